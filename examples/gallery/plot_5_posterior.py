"""
Uncertainty of completed entries
================================

Posterior draws of the model and of every hidden entry by Gibbs sampling.
"""

# %%
# Three kernels over 20 digits. The width of the posterior depends on the number of independent
# features that a kernel is worth, which `effective_degrees_of_freedom` estimates.

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
# Each completed kernel, and below it the posterior standard deviations of its entries. Visible
# entries have none.

plots.plot_uncertainty(posterior)

# %%
# Intervals of single entries, with the estimate of `fit` and the truth, which is known here.

estimate = fit(reduced, strength=30.0, degrees_of_freedom=nu, sources="identical")
plots.plot_intervals(posterior, kernel="fou", estimate=estimate, truth=kernels)
