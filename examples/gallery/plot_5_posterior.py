"""
Pictures: how sure is an entry?
===============================

Posterior draws of the model and of every hidden entry, by Gibbs sampling.
"""

# %%
# Three kernels over 20 digits. How many independent features a kernel counts for decides how wide
# the posterior is; `effective_degrees_of_freedom` estimates it.

from mkmc_prob import (
    datasets,
    effective_degrees_of_freedom,
    fit,
    plots,
    reduce_rank,
    remove_objects,
    sample_posterior,
)

kernels, _ = datasets.load_multiple_features(2, kernel="linear", sources=["fou", "kar", "zer"])
stack = remove_objects(kernels, 0.2, seed=0)
nu = effective_degrees_of_freedom(stack).round()
reduced = reduce_rank(stack, nu)
posterior = sample_posterior(
    reduced, strength=30.0, degrees_of_freedom=nu, draws=1000, tune=200, seed=1
)

# %%
# Below each completed kernel, how sure its entries are; what is visible is sure.

plots.plot_uncertainty(posterior)

# %%
# Intervals of single entries, with the estimate of `fit` and, as it is known here, the truth.

estimate = fit(reduced, strength=30.0, degrees_of_freedom=nu)
plots.plot_intervals(posterior, kernel="fou", estimate=estimate, truth=kernels)
