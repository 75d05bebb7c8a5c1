"""Draws with sources, against a plain augmentation and quadrature."""

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from strategies import random_covariance
from test_gibbs import LEVEL, same

from mkmc_prob import EM, KernelError, Sources, WishartPrior, stack_kernels
from mkmc_prob.model.gaussian import GaussianModel
from mkmc_prob.posterior.constants import draw_constant
from mkmc_prob.posterior.entries import Entries
from mkmc_prob.posterior.gibbs import GibbsSampler
from mkmc_prob.posterior.kernel_draw import NO_CONSTANT
from mkmc_prob.posterior.shared import draw_shared

VISIBLE = np.array([[1, 1, 1, 0, 1], [0, 1, 1, 1, 1], [1, 0, 1, 0, 0], [1, 1, 1, 1, 1]], dtype=bool)
#: Fewer than the visible objects, as many, more, and not whole.
DEGREES = [3, 4, 9, 12.5]
CASES = {
    "paper": ([1, 1, 1, 1], [0, 0, 0, 0]),
    "constants": ([1, 1, 1, 1], [1.0, 0.5, 0.0, 2.0]),
    "sharing": ([0.5, 0.5, 0.5, 0.5], [1.0, 0.5, 0.0, 2.0]),
    "mixture": ([0.5, 0.0, 0.3, 1.0], [1.0, 0.5, 0.0, 2.0]),
    "nearly all": ([0.5, 0.99999, 0.0, 1.0], [0.0, 0.0, 1e-9, 1e5]),
}


def stack_of(visible=VISIBLE, degrees=(3, 4, 9, 12), seed=0):
    """Return kernels of different units with constants."""
    rng = np.random.default_rng(seed)
    kernels = []
    for k, nu in enumerate(degrees):
        x = rng.standard_normal((visible.shape[1], nu)) + 1.5 * rng.standard_normal(nu)
        kernels.append(10.0**k * x @ x.T / nu)
    return stack_kernels(np.array(kernels), visible=visible)


def em_of(stack, sharing, constant, degrees=DEGREES, strength=2.0):
    sources = Sources.estimated(stack, sharing=sharing, degrees_of_freedom=degrees)
    sources = sources.with_constants(np.array(constant, dtype=float))
    return EM(stack, WishartPrior(strength), sources=sources)


# The draw of the completed kernels, constants held


@pytest.mark.parametrize("case", CASES)
def test_its_expectations_are_those_of_the_e_step(case):
    em = em_of(stack_of(), *CASES[case])
    sampler, rng, draws = GibbsSampler(em), np.random.default_rng(1), 500
    model = GaussianModel(random_covariance(np.random.default_rng(5), 5))
    drawn = [sampler.draw_completed(model, rng) for _ in range(draws)]
    statistics, completed = em.e_step(model), em.complete(model).values
    k, i, j = Entries(em).hidden_pairs()
    for found, expected in (
        (np.array([one.second_moment for one in drawn]), statistics.second_moment),
        (np.array([one.hidden for one in drawn]), completed[k, i, j]),
    ):
        error = found.std(0) / np.sqrt(draws)
        assert (np.abs(found.mean(0) - expected) < 5 * error + 1e-9 * np.abs(expected)).all()
    np.testing.assert_allclose(drawn[0].log_likelihood, statistics.log_likelihood, rtol=1e-7)
    np.testing.assert_array_equal(drawn[0].constants, CASES[case][1])
    np.testing.assert_array_equal(drawn[0].second_moment, drawn[0].second_moment.T)


def augmented(block, seen, model, scale, source, nu, rng, draws):
    """Draw the second moments of y, and of x, as the definition says: nu whole vectors.

    All of (x, y) is normal given x_v; its mean and covariance are by explicit inverses.
    """
    d, c, s = source
    size, v = len(seen), np.flatnonzero(seen)
    own = d * (s * model + (1 - s) * scale + c)
    across = np.sqrt(d * s) * model
    joint = np.block([[own, across], [across, model]])
    rest = np.setdiff1d(np.arange(2 * size), v)
    a = np.linalg.solve(joint[np.ix_(v, v)], joint[np.ix_(v, rest)])
    left = joint[np.ix_(rest, rest)] - joint[np.ix_(rest, v)] @ a
    values, vectors = np.linalg.eigh(left)
    root = vectors * np.sqrt(np.clip(values, 0.0, None))
    values, vectors = np.linalg.eigh(nu * block)
    known = np.zeros((nu, len(v)))
    kept = values > 1e-9
    known[: kept.sum()] = (vectors * np.sqrt(np.clip(values, 0, None)))[:, kept].T
    x = np.empty((draws, nu, 2 * size))
    x[..., v] = known
    x[..., rest] = known @ a + rng.standard_normal((draws, nu, len(rest))) @ root.T
    moments = x.swapaxes(1, 2) @ x
    return moments[:, size:, size:], moments[:, :size, :size] / nu


@pytest.mark.parametrize(
    ("nu", "sharing", "seen"),
    [
        (2, 1.0, [1, 1, 0, 1]),
        (3, 1.0, [1, 0, 0, 1]),
        (9, 1.0, [1, 1, 0, 1]),
        (9, 1.0, [1, 1, 1, 1]),
        (3, 1.0, [0, 0, 0, 0]),
        (2, 0.6, [1, 1, 0, 1]),
        (9, 0.6, [1, 1, 0, 1]),
        (9, 0.6, [1, 1, 1, 1]),
        (3, 0.6, [0, 0, 0, 0]),
        (9, 0.0, [1, 1, 0, 1]),
    ],
)
def test_draws_are_those_of_whole_vectors(nu, sharing, seen):
    """In distribution, entry by entry, and in the covariances of two entries at a time."""
    rng, draws, seen = np.random.default_rng(nu), 1000, np.array(seen, dtype=bool)
    factor = rng.standard_normal((4, 2))
    kernel, model = 3.0 * factor @ factor.T, random_covariance(rng, 4)
    stack = stack_kernels(np.array([kernel, np.eye(4)]), visible=[seen, np.ones(4)])
    sources = Sources(
        ["Q1", "Q2"],
        np.array([3.0, 1.0]),
        np.array([0.7, 0.0]),
        np.array([sharing, 0.0]),
        np.array([nu, 4.0]),
        0.4,
    )
    em = EM(stack, WishartPrior(1.0), sources=sources)
    sampler, given_model = GibbsSampler(em), GaussianModel(model)
    drawn = [sampler.draw_completed(given_model, rng) for _ in range(draws)]
    k, i, j = Entries(em).hidden_pairs()
    block = kernel[np.ix_(seen, seen)]
    y, x = augmented(block, seen, model, np.eye(4) + 0.4, (3.0, 0.7, sharing), nu, rng, draws)
    ours, theirs = np.array([one.hidden for one in drawn]), x[:, i[k == 0], j[k == 0]]
    if sharing:
        lower = np.tri(4, dtype=bool)
        moments = np.array([one.second_moment for one in drawn])[:, lower]
        ours, theirs = np.hstack([ours, moments]), np.hstack([theirs, y[:, lower]])
    assert same(ours, theirs) > LEVEL
    ours, theirs = (
        np.einsum("di,dj->dij", one - one.mean(0), one - one.mean(0)) for one in (ours, theirs)
    )
    error = np.sqrt((ours.var(0) + theirs.var(0)) / draws)
    assert (np.abs(ours.mean(0) - theirs.mean(0)) < 5 * error + 1e-9).all()


def test_constants_far_above_the_scale_lose_no_digits_that_matter():
    """A kernel plus 1e8: what the model is told changes by rounding alone."""
    em = em_of(stack_of() + 1e8, [1, 1, 0.5, 1], [1e8, 1e7, 1e6, 1e5], [5, 5, 9, 12.5])
    model = GaussianModel(random_covariance(np.random.default_rng(5), 5))
    sampler, rng = GibbsSampler(em), np.random.default_rng(0)
    drawn = np.array([sampler.draw_completed(model, rng).second_moment for _ in range(600)])
    error = drawn.std(0) / np.sqrt(len(drawn))
    assert (np.abs(drawn.mean(0) - em.e_step(model).second_moment) < 5 * error).all()


@given(st.integers(0, 2**32 - 1), st.floats(1e-6, 1e6))
@settings(max_examples=6)
def test_the_unit_of_a_kernel_is_that_of_its_draws(seed, unit):
    """Constants, models and likelihoods in units of the scale do not depend on it."""
    stack, sharing = stack_of(seed=seed % 100), [1.0, 0.5, 1.0, 0.0]
    other = stack.copy()
    other[1] *= unit
    found = []
    for one in (stack, other):
        sampler = GibbsSampler(em_of(one, sharing, [np.nan] * 4))
        rng = np.random.default_rng(seed)
        parameters = sampler.start(rng)
        for _ in range(2):
            drawn, parameters = sampler.step(parameters, rng)
        found.append((drawn, parameters))
    (one, after), (two, after_two) = found
    np.testing.assert_allclose(two.constants, one.constants, rtol=1e-6)
    np.testing.assert_allclose(after_two["factor"], after["factor"], rtol=1e-6, atol=1e-8)
    k = Entries(sampler.em).hidden_pairs()[0]
    np.testing.assert_allclose(two.hidden, one.hidden * np.where(k == 1, unit, 1.0), rtol=1e-6)


def test_sources_that_are_the_papers_change_no_bit():
    stack = stack_of()
    paper = Sources.identical(stack["kernel"].values, DEGREES).dataset
    found = []
    for given_sources in (None, paper):
        em = EM(stack, WishartPrior(2.0), DEGREES, given_sources)
        sampler, rng = GibbsSampler(em), np.random.default_rng(3)
        drawn, parameters = sampler.step(sampler.start(rng), rng)
        assert drawn.constants.tolist() == [0, 0, 0, 0]
        found.append([drawn.hidden, parameters["factor"], np.array([drawn.lp])])
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)


# The constants


@pytest.mark.parametrize(("sharing", "nu"), [(1.0, 3), (0.4, 9), (0.0, 400)])
def test_a_constant_has_its_conditional_distribution(sharing, nu):
    """Against numerical integration of the marginal likelihood by SciPy's normal density."""
    rng = np.random.default_rng(1)
    model = random_covariance(rng, 3)
    x = np.linalg.cholesky(model) @ rng.standard_normal((3, nu)) + rng.standard_normal(nu)
    stack = stack_kernels((x @ x.T / nu)[None], visible=[[1, 1, 0]])
    em = em_of(stack, sharing, [np.nan], degrees=nu)
    sampler, given_model = GibbsSampler(em), GaussianModel(model)
    draws, constant = [], np.ones(1)
    for _ in range(900):
        drawn = sampler.draw_completed(given_model, rng, constant)
        constant = drawn.constants
        draws.append(constant[0])
    source, shared = em.sources[0], em.sources.shared_constant
    base = sharing * model + (1 - sharing) * (np.eye(3) + shared)
    block = stack.values[0, :2, :2] / source.scale
    grid = np.linspace(-25.0, 12.0, 4001)  # log c
    level = np.empty_like(grid)
    for place, c in enumerate(np.exp(grid)):
        covariance = base[:2, :2] + c
        sign, log_det = np.linalg.slogdet(covariance)
        assert sign > 0
        level[place] = -0.5 * nu * (log_det + np.trace(np.linalg.solve(covariance, block)))
    # Half-Cauchy sqrt(c), and the derivative of sqrt(c) by log c.
    density = np.exp(level - level.max()) * stats.halfcauchy().pdf(np.exp(grid / 2))
    cdf = np.cumsum(density * np.exp(grid / 2))
    cdf /= cdf[-1]
    thinned = np.log(draws[::3])
    assert stats.kstest(thinned, lambda at: np.interp(at, grid, cdf)).pvalue > LEVEL


@pytest.mark.parametrize("sharing", [1.0, 0.5])
def test_one_object_by_quadrature(sharing):
    """M and c of a kernel of one object: their joint density on a grid."""
    nu, strength, value = 5, 3.0, 2.0
    stack = stack_kernels(np.array([[[value]], [[0.7]]]))
    dataset = xr.Dataset(
        {
            "scale": ("kernel", [1.0, 1.0]),
            "constant": ("kernel", [np.nan, 0.0]),
            "sharing": ("kernel", [sharing, 1.0]),
        },
        coords={"kernel": stack["kernel"].values},
        attrs={"shared_constant": 0.0},
    )
    sampler = GibbsSampler(EM(stack, WishartPrior(strength), nu, dataset))
    rng, found = np.random.default_rng(0), []
    parameters = sampler.start(rng)
    for _ in range(1500):
        drawn, parameters = sampler.step(parameters, rng)
        found.append([np.log(drawn.model.matrix[0, 0]), np.log(drawn.constants[0])])
    m, c = np.exp(np.linspace(-4, 4, 300))[:, None], np.exp(np.linspace(-25, 12, 900))
    covariance = sharing * m + 1 - sharing + c
    level = -0.5 * nu * (np.log(covariance) + value / covariance + np.log(m) + 0.7 / m)
    # P ~ Wishart(lambda + 2, 1 / lambda) of size one, by log M; half-Cauchy sqrt(c), by log c.
    level += stats.chi2(strength + 2).logpdf(strength / m) - np.log(m)
    level += stats.halfcauchy().logpdf(np.sqrt(c)) + 0.5 * np.log(c)
    density = np.exp(level - level.max())
    for draws, axis, grid in zip(np.array(found).T, (1, 0), (m[:, 0], c), strict=True):
        cdf = np.cumsum(density.sum(axis=axis))
        expected = np.interp([0.1, 0.3, 0.5, 0.7, 0.9], cdf / cdf[-1], np.log(grid))
        share = [(draws < quantile).mean() for quantile in expected]
        # The draws are worth at least 400.
        np.testing.assert_allclose(share, [0.1, 0.3, 0.5, 0.7, 0.9], atol=4 * 0.5 / np.sqrt(400))


def test_a_constant_that_is_to_be_drawn_needs_the_one_before():
    sampler = GibbsSampler(em_of(stack_of(), 1.0, [np.nan] * 4))
    rng = np.random.default_rng(0)
    model = sampler.model_at(sampler.start(rng))
    with pytest.raises(KernelError, match="constants: none found, but some are drawn"):
        sampler.draw_completed(model, rng)
    assert sampler.shapes == {"factor": (5, 5), "constant": (4,)}
    assert NO_CONSTANT.values.size == 0
    assert callable(draw_constant)


# Sharing


def test_a_kernel_that_shares_nothing_tells_the_model_nothing():
    stack, other = stack_of(), stack_of()
    other[1] = 7.0 * other[1] + 2.0
    after = []
    for one in (stack, other):
        em = em_of(one, [1, 0, 0.5, 1], [0.5, 1.0, 0.0, 0.0])
        sampler, rng = GibbsSampler(em), np.random.default_rng(4)
        parameters = sampler.start(rng)
        for _ in range(3):
            _, parameters = sampler.step(parameters, rng)
        after.append(parameters["factor"])
    np.testing.assert_array_equal(*after)


def test_if_no_kernel_shares_anything_the_model_has_its_prior():
    sampler = GibbsSampler(em_of(stack_of(), 0.0, [np.nan] * 4))
    rng, found = np.random.default_rng(0), []
    parameters = sampler.start(rng)
    for _ in range(600):
        drawn, parameters = sampler.step(parameters, rng)
        found.append(np.linalg.inv(drawn.model.matrix))
    prior = sampler.em.prior.precision_distribution(sampler.em.objects)
    lower = np.tri(5, dtype=bool)
    expected = prior.rvs(2000, random_state=1)
    assert same(np.array(found)[:, lower], expected[:, lower]) > LEVEL


def test_objects_that_only_a_kernel_of_sharing_0_shows_have_the_priors_rows():
    visible = np.array([[1, 1, 1, 0], [1, 1, 0, 1]], dtype=bool)
    stack = stack_of(visible, (9, 9))
    em = em_of(stack, [1, 0], [0.0, 0.0], degrees=9)
    sampler, rng, found = GibbsSampler(em), np.random.default_rng(2), []
    parameters = sampler.start(rng)
    for _ in range(500):
        drawn, parameters = sampler.step(parameters, rng)
        found.append(np.linalg.inv(drawn.model.matrix)[3, 3])
    # P_oo is Wishart of one row: the inverse Schur complement of the prior.
    scale = em.prior.scale_matrix(em.objects)
    rest = scale[3, 3] - scale[3, :3] @ np.linalg.solve(scale[:3, :3], scale[:3, 3])
    values = np.array(found) * em.prior.strength * rest
    assert stats.kstest(values, stats.chi2(em.prior.strength + 5).cdf).pvalue > LEVEL
    model, kernels = Entries(em).prior_only
    assert model[3].all()
    assert not model[:3, :3].any()
    assert kernels[1].all()
    assert not kernels[0, :3, :3].any()


@pytest.mark.parametrize("degrees", [3, 7, 10.5])
def test_the_shared_part_has_the_moments_of_whole_vectors(degrees):
    """With r = sqrt(s) y + sqrt(1 - s) o, y given r; the moment has fewer and more columns."""
    rng, s, draws = np.random.default_rng(6), 0.3, 3000
    model, scale = random_covariance(rng, 4), random_covariance(rng, 4)
    root = rng.standard_normal((4, min(int(degrees), 5)))
    moment = root @ root.T
    own = [GaussianModel(matrix) for matrix in (model, scale)]
    drawn = np.array([draw_shared(*own, s, moment, degrees, rng) for _ in range(draws)])
    a = np.sqrt(s) * model @ np.linalg.inv(s * model + (1 - s) * scale)
    left = model - np.sqrt(s) * a @ model
    expected = a @ moment @ a.T + degrees * left
    error = drawn.std(0) / np.sqrt(draws)
    assert (np.abs(drawn.mean(0) - expected) < 5 * error).all()
    np.testing.assert_array_equal(drawn, drawn.swapaxes(1, 2))
    if degrees == 3:
        assert np.linalg.matrix_rank(drawn[0]) == 3


# Degrees of freedom


@pytest.mark.parametrize(
    ("sharing", "constant", "least"),
    [(1, 0, 3), (1, 0.5, 4), (0.5, 0, 7), (0.5, 0.5, 8), (0, 1, 4)],
)
def test_degrees_of_freedom_that_are_not_whole_must_be_above_the_dimension(
    sharing, constant, least
):
    stack = stack_of(np.array([[1, 1, 0, 1]], dtype=bool), (5,))
    GibbsSampler(em_of(stack, sharing, [constant], degrees=least + 0.1))
    GibbsSampler(em_of(stack, sharing, [constant], degrees=3))
    for nu in (least - 0.1, 2):
        with pytest.raises(KernelError, match=f"above {least}.*whole numbers nu.*reduce_rank"):
            GibbsSampler(em_of(stack, sharing, [constant], degrees=nu))
