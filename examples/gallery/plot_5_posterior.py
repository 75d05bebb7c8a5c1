"""
Uncertainty of completed entries
================================

Posterior draws of the model and of every hidden entry by Gibbs sampling.
"""

# %%
# Three RBF kernels over 20 digits, each with a constant of its own. The width of the posterior
# depends on the number of independent features that a kernel is worth, which
# `effective_degrees_of_freedom` estimates; one more stands for the constant. The posterior is that
# of the fitted model.

from mkmc_prob import (
    center,
    datasets,
    effective_degrees_of_freedom,
    fit,
    plots,
    reduce_rank,
    remove_objects,
)

kernels, _ = datasets.load_multiple_features(2, sources=["fou", "kar", "zer"])
stack = remove_objects(kernels, 0.2, seed=0)
nu = effective_degrees_of_freedom(center(stack)).round() + 1
reduced = reduce_rank(stack, nu)
estimate = fit(reduced, strength=10.0, degrees_of_freedom=nu)
posterior = estimate.sample_posterior(draws=1500, tune=200, seed=1)

# %%
# Each completed kernel, and below it the posterior standard deviations of its entries. Visible
# entries have none.

plots.plot_uncertainty(posterior)

# %%
# Intervals of single entries, with the estimate of `fit` and the truth, which is known here.

plots.plot_intervals(posterior, kernel="fou", estimate=estimate, truth=kernels)
