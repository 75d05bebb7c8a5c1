"""
Pictures: which strength?
=========================

The prior's strength, chosen by the likelihood of what is held out.
"""

# %%
# `select_strength` hides a part of each kernel's visible objects in turn, fits without them, and
# scores what it hid given the rest. It needs no truth.

import matplotlib.pyplot as plt

from mkmc_prob import datasets, plots, remove_objects, select_strength

complete, _ = datasets.load_multiple_features(n_per_class=5)
incomplete = remove_objects(complete, 0.3, seed=0)
choice = select_strength(incomplete, strengths=[0.01, 0.03, 0.1, 0.3, 1.0, 3.0])
print(choice)
choice.plot()

# %%
# Is the model as sure as it should be? One strength serves all kernels: calibrated overall is not
# calibrated for each.

plots.plot_calibration(choice)
plt.show()
