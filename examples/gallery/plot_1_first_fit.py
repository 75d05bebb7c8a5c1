"""
A first fit
===========

Six kernels over 100 handwritten digits, half of all rows and columns removed, and completed.
"""

# %%
# The bundled data: one kernel for each of six ways to describe a picture. `remove_objects` takes
# out (digit, kernel) pairs at random. Grey is what is missing.

from mkmc_prob import datasets, fit, mean_impute, plots, relative_error, remove_objects, zero_impute

complete, classes = datasets.load_multiple_features(n_per_class=10)
incomplete = remove_objects(complete, 0.5, seed=0)
plots.plot_pattern(incomplete)

# %%
# `fit` completes them, until it has 0.001 nats still to gain by its own estimate. Every step
# raises the penalized log-likelihood.

result = fit(incomplete)
print(result)
result.plot_trace()

# %%
# Before, and after. What was visible is unchanged.

result.plot_kernels(kernels=["fac", "kar", "mor", "zer"])

# %%
# Here the truth is known: the error of what was filled in, beside that of the paper's baselines.

for name, completed in {
    "MKMC": result.completed,
    "mean imputation": mean_impute(incomplete),
    "zero imputation": zero_impute(incomplete),
}.items():
    print(f"{name:16} {relative_error(complete, completed, incomplete).mean():.3f}")
