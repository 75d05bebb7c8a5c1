"""
Choosing the strength
=====================

The strength of the prior is chosen by held-out likelihood.
"""

# %%
# `select_strength` holds out a part of each kernel's visible objects in turn, fits without them,
# and scores the held-out block given the rest. The truth is not needed.

import matplotlib.pyplot as plt

from mkmc_prob import datasets, plots, remove_objects, select_strength

complete, _ = datasets.load_multiple_features(n_per_class=5)
incomplete = remove_objects(complete, 0.3, seed=0)
choice = select_strength(incomplete, strengths=[0.01, 0.03, 0.1, 0.3, 1.0, 3.0])
print(choice)
choice.plot()

# %%
# The calibration by kernel: all kernels share one strength, so a model can be calibrated overall
# but not for each kernel.

plots.plot_calibration(choice)
plt.show()
