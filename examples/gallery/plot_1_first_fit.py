"""
Complete six kernels
====================

Six kernels over 100 handwritten digits lose half of their rows and columns and are completed.
"""

# %%
# The bundled data contain one kernel for each of six ways to describe an image. `remove_objects`
# removes (digit, kernel) pairs at random. Missing objects are gray.

from mkmc_prob import (
    complete,
    datasets,
    knn_impute,
    mean_impute,
    plots,
    relative_error,
    remove_objects,
)

truth, classes = datasets.load_multiple_features(n_per_class=10)
incomplete = remove_objects(truth, 0.5, seed=0)
plots.plot_pattern(incomplete)

# %%
# `complete` chooses a model by held-out objects and fits it. Every step of the fit raises the
# penalized log-likelihood.

result = complete(incomplete)
print(result)
result.plot_trace()

# %%
# The kernels before and after completion. Visible entries are unchanged.

result.plot_kernels(kernels=["fac", "kar", "mor", "zer"])

# %%
# The truth is known here. These are the relative errors of the model and of simple imputation.

for name, completed in {
    "complete": result.completed,
    "KNN imputation": knn_impute(incomplete),
    "mean imputation": mean_impute(incomplete),
}.items():
    print(f"{name:16} {relative_error(truth, completed, incomplete).mean():.3f}")
