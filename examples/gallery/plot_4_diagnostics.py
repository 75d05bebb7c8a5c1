"""
After a fit
===========

Likelihood diagnostics in pictures. How to read them: :doc:`/diagnostics`.
"""

# %%
# Six kernels over 60 objects of a made up problem, 40 % of the rows missing, fitted by plain EM.

import matplotlib.pyplot as plt

from mkmc_prob import datasets, fit, missing_information, remove_objects

complete, _ = datasets.make_fusion_problem(60, 6)
stack = remove_objects(complete, 0.4, seed=0)
result = fit(stack, strength=1.0, method="em", tol=1e-6)
print(result)

# %%
# The gain of each step on a log scale: a straight line is a constant rate. Beside it, the two parts
# of each gain.

_, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
result.plot_increments(ax=left)
result.plot_gain_parts(ax=right)

# %%
# The rate of EM is the worst fraction of missing information, and the slowest direction says whom
# it concerns.

information = missing_information(result)
_, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
result.plot_rate(information, ax=left)
result.plot_slowest(information, ax=right)

# %%
# The spectra of the kernels and of the model; which kernels agree with it.

_, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
result.plot_spectra(ax=left)
result.plot_agreement(ax=right)

# %%
# Which objects a kernel sees differently.

result.plot_disagreement()
