"""Simulation-based calibration of the posterior; some minutes, so it is run by its name alone.

    python -m pytest -s tests/slow/sbc.py

Models are drawn from the prior and kernels from them; then the rank of every true entry among the
posterior's draws is uniform (Talts et al. 2018, arXiv:1804.06788). SciPy and NumPy draw the truth.
"""

import numpy as np
import pytest
from scipy import stats
from strategies import random_covariance

from mkmc_prob import EM, WishartPrior, stack_kernels
from mkmc_prob.posterior.gibbs import GibbsSampler

REPLICATIONS = 400
DRAWS = 99
#: Steps between the draws that are ranked, which should be independent, and before the first.
EVERY, TUNE = 20, 60
BINS = 20
STRENGTH = 3.0
#: Below the rank of a whole kernel and whole; above and whole; above l - 1 and not whole.
DEGREES = [4, 7, 6.5]
#: Objects 0 and 5 are never seen together.
VISIBLE = np.array([[1, 1, 1, 1, 1, 0], [0, 1, 1, 0, 1, 1], [1, 0, 1, 1, 0, 0]], dtype=bool)


def truth(rng, scale):
    """Draw a model from the prior and kernels from it."""
    model = stats.invwishart(STRENGTH + 7, STRENGTH * scale).rvs(random_state=rng)
    kernels = []
    for nu in DEGREES:
        if nu >= 6:
            kernels.append(stats.wishart(nu, model).rvs(random_state=rng) / nu)
        else:
            vectors = rng.multivariate_normal(np.zeros(6), model, size=nu)
            kernels.append(vectors.T @ vectors / nu)
    return model, np.array([(kernel + kernel.T) / 2 for kernel in kernels])


def hidden_of(kernels):
    """Return the hidden entries in the order of `CompletedDraw.hidden`."""
    found = []
    for kernel, seen in zip(kernels, VISIBLE, strict=True):
        v, h = np.flatnonzero(seen), np.flatnonzero(~seen)
        found.append(kernel[np.ix_(h, v)].ravel())
        found.append(kernel[np.ix_(h, h)][np.tri(len(h), dtype=bool)])
    return np.concatenate(found)


def replication(seed):
    """Return the rank of every true entry among posterior draws."""
    rng = np.random.default_rng(seed)
    scale = random_covariance(np.random.default_rng(0), 6)
    model, kernels = truth(rng, scale)
    stack = stack_kernels(kernels, visible=VISIBLE)
    sampler = GibbsSampler(EM(stack, WishartPrior(STRENGTH, scale), DEGREES))
    lower = np.tri(6, dtype=bool)
    true = np.concatenate([model[lower], hidden_of(kernels)])
    current, draws = sampler.draw_start(rng), []
    for step in range(TUNE + DRAWS * EVERY):
        completed = sampler.draw_completed(current, rng)
        if step >= TUNE and (step - TUNE) % EVERY == 0:
            draws.append(np.concatenate([current.matrix[lower], completed.hidden]))
        current = sampler.draw_model(completed.second_moment, rng)
    return (np.array(draws) < true).sum(axis=0)


@pytest.mark.filterwarnings("ignore:the kernels' scales:mkmc_prob.MKMCWarning")
def test_ranks_are_uniform():
    """By chi-squared tests of 20 bins for each entry, Bonferroni's correction made."""
    ranks = np.array([replication(seed) for seed in range(REPLICATIONS)])
    bins = ranks * BINS // (DRAWS + 1)
    counts = np.apply_along_axis(np.bincount, 0, bins, minlength=BINS)
    found = stats.chisquare(counts, axis=0).pvalue
    print(
        f"\n{ranks.shape[1]} entries, {REPLICATIONS} replications: smallest p {found.min():.4f}, "
        f"below 0.05: {(found < 0.05).mean():.3f}, quartiles of p "
        f"{np.quantile(found, [0.25, 0.5, 0.75]).round(3).tolist()}"
    )
    of_model, of_kernels = found[:21], found[21:]
    print("p of the model's entries:", of_model.round(3).tolist())
    print("p of hidden entries:", of_kernels.round(3).tolist())
    # Shifts and widths, to which ranks react most: U shapes (too sure) have spreads above 1.
    mean = (ranks + 0.5).mean(axis=0) / (DRAWS + 1)
    z = (mean - 0.5) * np.sqrt(12 * REPLICATIONS)
    spread = ((ranks + 0.5) / (DRAWS + 1) - 0.5).std(axis=0) * np.sqrt(12)
    print(
        f"largest |z| of mean ranks {np.abs(z).max():.2f}, spread {spread.min():.3f} to "
        f"{spread.max():.3f} (1 expected)"
    )
    assert found.min() * len(found) > 0.01
