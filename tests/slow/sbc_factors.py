"""Calibration of the posterior of few factors by simulation; some minutes, run by its name alone.

    python -m pytest -s tests/slow/sbc_factors.py

Loadings, noise and constants are drawn from the prior and kernels from them, by NumPy and SciPy;
scales, sharings and the shared constant are known. Then the rank of every true number among the
draws of the posterior is uniform (Talts et al. 2018, arXiv:1804.06788).
"""

import numpy as np
import pytest
from scipy import stats

from mkmc_prob import (
    EM,
    PPCA,
    FactorAnalysis,
    FactorGibbsSampler,
    Sources,
    WishartPrior,
    stack_kernels,
)
from mkmc_prob.posterior.factor_gibbs import FactorState

REPLICATIONS = 300
#: Truths from which a few steps are taken.
STEPPED = 3000
DRAWS = 39
#: Steps between the draws that are ranked, which should be independent, and before the first.
EVERY, TUNE = 5, 60
BINS = 20
STRENGTH, SHARED = 3.0, 0.5
#: Below the rank of a whole kernel, and above.
DEGREES = np.array([4, 7, 12])
SCALE = np.array([1.0, 50.0, 0.02])
#: Objects 0 and 5 are never seen together.
VISIBLE = np.array([[1, 1, 1, 1, 1, 0], [0, 1, 1, 0, 1, 1], [1, 0, 1, 1, 0, 0]], dtype=bool)
SHARINGS = {"shared": np.ones(3), "partly": np.array([1.0, 0.6, 0.0])}
STRUCTURES = [PPCA(1), PPCA(2), FactorAnalysis(1)]
LOWER = np.tril_indices(6)
NAMES = {"model": 21, "hidden": 32, "constant": 3, "log posterior": 1}


def truth(rng, structure, sharing):
    """Draw a state from the prior, and kernels from it."""
    q, a, tau = structure.rank, structure.noise_strength, structure.noise_scale
    shape, rate = 0.5 * (STRENGTH + a), 0.5 * (STRENGTH + a * tau)
    if isinstance(structure, PPCA):
        noise = np.full(6, stats.invgamma.rvs(6 * shape + 1, scale=6 * rate, random_state=rng))
    else:
        noise = stats.invgamma.rvs(shape + 1, scale=rate, size=6, random_state=rng)
    phi = stats.invwishart(STRENGTH + q + 1, STRENGTH / 6 * np.eye(q)).rvs(random_state=rng)
    phi = np.reshape(phi, (q, q))
    loadings = np.sqrt(noise)[:, None] * rng.multivariate_normal(np.zeros(q), phi, size=6)
    constant = stats.halfcauchy.rvs(size=3, random_state=rng) ** 2
    kernels = []
    for nu, s, c, d in zip(DEGREES, sharing, constant, SCALE, strict=True):
        y = loadings @ rng.standard_normal((q, nu))
        y += np.sqrt(noise)[:, None] * rng.standard_normal((6, nu))
        o = rng.standard_normal((6, nu)) + np.sqrt(SHARED) * rng.standard_normal(nu)
        x = np.sqrt(s) * y + np.sqrt(1.0 - s) * o + np.sqrt(c) * rng.standard_normal(nu)
        kernels.append(d * x @ x.T / nu)
    return FactorState(loadings, noise, constant), np.array([(q + q.T) / 2 for q in kernels])


def hidden_of(kernels):
    """Return the hidden entries in the order of `FactorDraw.hidden`."""
    found = []
    for kernel, seen in zip(kernels, VISIBLE, strict=True):
        found.append(kernel[np.ix_(~seen, seen)].ravel())
        found.append(kernel[np.ix_(~seen, ~seen)][np.tri((~seen).sum(), dtype=bool)])
    return np.concatenate(found)


def sampler_of(kernels, structure, sharing):
    """Return the sampler of the visible blocks, with constants that are not held."""
    stack = stack_kernels(kernels, visible=VISIBLE)
    names = stack["kernel"].values.tolist()
    sources = Sources(names, SCALE, np.full(3, np.nan), sharing, DEGREES.astype(float), SHARED)
    em = EM(stack, WishartPrior(STRENGTH), sources=sources, structure=structure)
    return FactorGibbsSampler(em)


def replication(seed, structure, sharing):
    """Return the rank of every true number among posterior draws."""
    rng = np.random.default_rng(seed)
    state, kernels = truth(rng, structure, sharing)
    sampler = sampler_of(kernels, structure, sharing)

    def numbers(state, hidden, log_likelihood=None):
        if log_likelihood is None:
            level = sampler.log_posterior(state)
        else:
            level = log_likelihood.sum() + sampler.log_prior(state)
        return np.concatenate([state.entries(*LOWER), hidden, state.constant, [level]])

    true, draws = numbers(state, hidden_of(kernels)), []
    current = sampler.draw_start(rng)
    for step in range(TUNE + DRAWS * EVERY):
        keep = step >= TUNE and (step - TUNE) % EVERY == 0
        draw = sampler.draw_completed(current, rng, hidden=keep)
        if keep:
            draws.append(numbers(current, draw.hidden, draw.log_likelihood))
        current = sampler.draw_parameters(draw, rng)
    return (np.array(draws) < true).sum(axis=0)


def band(trials, rng, level=0.95, simulated=4000):
    """Return the pointwise level at which bands of the ECDF hold at all ranks at once.

    Saeilynoja, Buerkner and Vehtari (2022), Statistics and Computing 32, 32, by simulation.
    """
    ranks = rng.integers(DRAWS + 1, size=(simulated, trials))
    counts = (ranks[:, :, None] <= np.arange(DRAWS)).sum(axis=1)
    return np.quantile(pointwise(counts, trials).min(axis=1), 1.0 - level)


def pointwise(counts, trials):
    """Return two-sided binomial p-values of the numbers of ranks up to 0, 1, ..."""
    share = np.arange(1, DRAWS + 1) / (DRAWS + 1)
    below, above = stats.binom.cdf(counts, trials, share), stats.binom.sf(counts - 1, trials, share)
    return 2.0 * np.minimum(below, above)


@pytest.mark.filterwarnings("ignore:the kernels' scales:mkmc_prob.MKMCWarning")
@pytest.mark.parametrize("sharing", SHARINGS)
@pytest.mark.parametrize("structure", STRUCTURES, ids=str)
def test_ranks_are_uniform(structure, sharing):
    """By chi-squared tests of 20 bins and by ECDF bands, Bonferroni's correction made."""
    ranks = np.array(
        [replication(seed, structure, SHARINGS[sharing]) for seed in range(REPLICATIONS)]
    )
    bins = ranks * BINS // (DRAWS + 1)
    counts = np.apply_along_axis(np.bincount, 0, bins, minlength=BINS)
    found = stats.chisquare(counts, axis=0).pvalue
    cumulative = (ranks[:, :, None] <= np.arange(DRAWS)).sum(axis=0)
    least = pointwise(cumulative, REPLICATIONS).min(axis=1)
    allowed = band(REPLICATIONS, np.random.default_rng(0))
    mean = (ranks + 0.5).mean(axis=0) / (DRAWS + 1)
    z = (mean - 0.5) * np.sqrt(12 * REPLICATIONS)
    spread = ((ranks + 0.5) / (DRAWS + 1) - 0.5).std(axis=0) * np.sqrt(12)
    print(f"\n{structure}, {sharing}: {ranks.shape[1]} numbers, {REPLICATIONS} replications")
    start = 0
    for name, size in NAMES.items():
        own = slice(start, start + size)
        start += size
        outside = (least[own] < allowed).sum()
        print(
            f"  {name}: chi-squared p from {found[own].min():.4f}, median "
            f"{np.median(found[own]):.2f}; outside the 95 % ECDF bands {outside} of {size}; "
            f"mean ranks |z| up to {np.abs(z[own]).max():.2f}; spread "
            f"{spread[own].min():.3f} to {spread[own].max():.3f} (1 expected)"
        )
    assert found.min() * len(found) > 0.01
    assert (least < allowed).mean() < 0.2


@pytest.mark.filterwarnings("ignore:the kernels' scales:mkmc_prob.MKMCWarning")
@pytest.mark.parametrize("sharing", SHARINGS)
@pytest.mark.parametrize("structure", STRUCTURES, ids=str)
def test_steps_keep_the_joint_distribution(structure, sharing):
    """Three steps from the truth: the means of independent differences are zero.

    No chain has to converge, so this finds smaller errors than ranks do at the same cost.
    """

    def numbers(state):
        model = state.entries(*LOWER)
        return np.concatenate([np.arcsinh(model), np.log(state.constant), np.log(state.noise)])

    differences = []
    for seed in range(STEPPED):
        rng = np.random.default_rng([1, seed])
        state, kernels = truth(rng, structure, SHARINGS[sharing])
        sampler, before = sampler_of(kernels, structure, SHARINGS[sharing]), numbers(state)
        for _ in range(3):
            draw = sampler.draw_completed(state, rng, hidden=False)
            state = sampler.draw_parameters(draw, rng)
        differences.append(numbers(state) - before)
    z = np.mean(differences, axis=0) / np.std(differences, axis=0) * np.sqrt(STEPPED)
    print(f"\n{structure}, {sharing}: |z| of {len(z)} differences up to {np.abs(z).max():.2f}")
    assert np.abs(z).max() < stats.norm.isf(0.005 / len(z))
