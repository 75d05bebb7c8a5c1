"""
A first fit
===========

Six kernels over 100 handwritten digits lose half of their rows and columns and are completed.
"""

# %%
# The bundled data contain one kernel for each of six ways to describe an image. `remove_objects`
# removes (digit, kernel) pairs at random. Missing objects are gray.

from mkmc_prob import datasets, fit, mean_impute, plots, relative_error, remove_objects, zero_impute

complete, classes = datasets.load_multiple_features(n_per_class=10)
incomplete = remove_objects(complete, 0.5, seed=0)
plots.plot_pattern(incomplete)

# %%
# `fit` completes the kernels. It stops when the estimated remaining gain is below 0.001 nats. Every
# step raises the penalized log-likelihood.

result = fit(incomplete)
print(result)
result.plot_trace()

# %%
# The kernels before and after completion. Visible entries are unchanged.

result.plot_kernels(kernels=["fac", "kar", "mor", "zer"])

# %%
# The truth is known here. These are the relative errors of MKMC and of the paper's baselines.

for name, completed in {
    "MKMC": result.completed,
    "mean imputation": mean_impute(incomplete),
    "zero imputation": zero_impute(incomplete),
}.items():
    print(f"{name:16} {relative_error(complete, completed, incomplete).mean():.3f}")
