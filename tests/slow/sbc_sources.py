"""Simulation-based calibration with sources; some minutes, so it is run by its name alone.

    python -m pytest -s tests/slow/sbc_sources.py

Models are drawn from the prior, constants from theirs and kernels from both; then the rank of every
true entry and constant among the posterior's draws is uniform (Talts et al. 2018,
arXiv:1804.06788). SciPy and NumPy draw the truth.
"""

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from mkmc_prob import EM, WishartPrior, stack_kernels
from mkmc_prob.posterior.gibbs import GibbsSampler

REPLICATIONS = 300
DRAWS = 39
#: Steps between the draws that are ranked, which should be independent, and before the first.
EVERY, TUNE = 16, 80
BINS = 20
STRENGTH, SHARED = 3.0, 0.3
#: Below the rank of a whole kernel, and above.
DEGREES = [4, 7, 9, 5]
#: Objects 0 and 5 are visible together in the last kernel only.
VISIBLE = np.array(
    [[1, 1, 1, 1, 1, 0], [0, 1, 1, 0, 1, 1], [1, 0, 1, 1, 0, 0], [1, 1, 0, 0, 0, 1]], dtype=bool
)
#: The variance of a constant that is held; the others are drawn.
HELD = [np.nan, np.nan, 0.5, np.nan]
CASES = {
    "sharing 1": [1.0, 1.0, 1.0, 1.0],
    "sharing below 1": [0.6, 0.6, 0.3, 0.6],
    "mixture": [1.0, 0.5, 1.0, 0.0],
}


def truth(rng, sharing):
    """Draw a model and constants from their priors, and kernels given them."""
    scale = np.eye(6) + SHARED
    model = stats.invwishart(STRENGTH + 7, STRENGTH * scale).rvs(random_state=rng)
    constants = np.where(np.isnan(HELD), stats.halfcauchy().rvs(4, random_state=rng) ** 2, HELD)
    kernels = []
    for nu, s, c in zip(DEGREES, sharing, constants, strict=True):
        y = rng.multivariate_normal(np.zeros(6), model, size=nu)
        o = rng.multivariate_normal(np.zeros(6), scale, size=nu)
        x = np.sqrt(s) * y + np.sqrt(1.0 - s) * o + np.sqrt(c) * rng.standard_normal((nu, 1))
        kernels.append(x.T @ x / nu)
    return model, constants, np.array([(kernel + kernel.T) / 2 for kernel in kernels])


def hidden_of(kernels):
    """Return the hidden entries in the order of `CompletedDraw.hidden`."""
    found = []
    for kernel, seen in zip(kernels, VISIBLE, strict=True):
        v, h = np.flatnonzero(seen), np.flatnonzero(~seen)
        found.append(kernel[np.ix_(h, v)].ravel())
        found.append(kernel[np.ix_(h, h)][np.tri(len(h), dtype=bool)])
    return np.concatenate(found)


def replication(sharing, seed):
    """Return the rank of every true entry and constant among posterior draws."""
    rng = np.random.default_rng(seed)
    model, constants, kernels = truth(rng, sharing)
    stack = stack_kernels(kernels, visible=VISIBLE)
    sources = xr.Dataset(
        {"scale": ("kernel", np.ones(4)), "constant": ("kernel", HELD)},
        coords={"kernel": stack["kernel"].values},
        attrs={"shared_constant": SHARED},
    ).assign(sharing=("kernel", sharing))
    sampler = GibbsSampler(EM(stack, WishartPrior(STRENGTH), DEGREES, sources))
    lower, free = np.tri(6, dtype=bool), np.isnan(HELD)
    true = np.concatenate([model[lower], hidden_of(kernels), constants[free]])
    parameters, draws = sampler.start(rng), []
    for step in range(TUNE + DRAWS * EVERY):
        drawn, parameters = sampler.step(parameters, rng)
        if step >= TUNE and (step - TUNE) % EVERY == 0:
            parts = drawn.model.matrix[lower], drawn.hidden, drawn.constants[free]
            draws.append(np.concatenate(parts))
    return (np.array(draws) < true).sum(axis=0)


def largest_band(uniform, ranks):
    """Return the p-value of the largest deviation of an ECDF, in binomial standard errors.

    `uniform` are ranks of simulated replications, whose largest deviations are the reference: a
    simultaneous band (Säilynoja, Bürkner and Vehtari 2022, *Statistics and Computing* 32, 32).
    """

    def deviation(ranks):
        at = np.arange(1, DRAWS + 1)
        share = np.stack([(one < at[:, None]).mean(axis=1) for one in ranks])
        expected = at / (DRAWS + 1)
        error = np.sqrt(expected * (1 - expected) / ranks.shape[1])
        return (np.abs(share - expected) / error).max(axis=1)

    reference = np.sort(deviation(uniform))
    beyond = len(reference) - np.searchsorted(reference, deviation(ranks))
    return (beyond + 1.0) / (len(reference) + 1.0)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore:the kernels' scales:mkmc_prob.MKMCWarning")
def test_ranks_are_uniform(case):
    """By chi-squared tests and bands of the ECDF of each entry, Bonferroni's correction made."""
    ranks = np.array([replication(CASES[case], seed) for seed in range(REPLICATIONS)])
    counts = np.apply_along_axis(np.bincount, 0, ranks * BINS // (DRAWS + 1), minlength=BINS)
    found = stats.chisquare(counts, axis=0).pvalue
    uniform = np.random.default_rng(0).integers(0, DRAWS + 1, size=(20_000, len(ranks)))
    by_band = largest_band(uniform, ranks.T)
    mean = (ranks + 0.5).mean(axis=0) / (DRAWS + 1)
    z = (mean - 0.5) * np.sqrt(12 * len(ranks))
    spread = ((ranks + 0.5) / (DRAWS + 1) - 0.5).std(axis=0) * np.sqrt(12)
    print(f"\n{case}: {ranks.shape[1]} ranks of {len(ranks)} replications")
    parts = {"model": slice(21), "hidden": slice(21, -3), "constants": slice(-3, None)}
    for name, part in parts.items():
        print(
            f"{name}: chi-squared p from {found[part].min():.4f}, {(found[part] < 0.05).mean():.3f}"
            f" of them below 0.05; band p from {by_band[part].min():.4f}, "
            f"{(by_band[part] < 0.05).mean():.3f} below 0.05; largest |z| of mean ranks "
            f"{np.abs(z[part]).max():.2f}; spread {spread[part].min():.3f} to "
            f"{spread[part].max():.3f}"
        )
    assert found.min() * len(found) > 0.01
    assert by_band.min() * len(by_band) > 0.01
