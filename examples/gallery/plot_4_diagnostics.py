"""
Likelihood diagnostics
======================

Figures for the diagnosis of a fit. :doc:`/diagnostics` explains how to read them.
"""

# %%
# Six simulated kernels over 60 objects with 40 % of the rows missing, fitted by plain EM.

import matplotlib.pyplot as plt

from mkmc_prob import datasets, fit, missing_information, remove_objects

complete, _ = datasets.make_fusion_problem(60, 6)
stack = remove_objects(complete, 0.4, seed=0)
result = fit(stack, strength=1.0, method="em", tol=1e-6)
print(result)

# %%
# Left: the gain of each step on a logarithmic scale, on which a constant rate is a straight line.
# Right: the two parts of each gain.

_, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
result.plot_increments(ax=left)
result.plot_gain_parts(ax=right)

# %%
# The rate of EM is the worst fraction of missing information. The slowest direction shows which
# objects it concerns.

information = missing_information(result)
_, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
result.plot_rate(information, ax=left)
result.plot_slowest(information, ax=right)

# %%
# The spectra of the kernels and of the model, and the agreement of each kernel with the model.

_, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
result.plot_spectra(ax=left)
result.plot_agreement(ax=right)

# %%
# The objects on which a kernel disagrees with the model.

result.plot_disagreement()
