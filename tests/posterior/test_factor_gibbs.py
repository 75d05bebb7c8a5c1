"""The draws of the Gibbs sampler for few factors, against dense conditioning and SciPy."""

import pickle
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
from plain_factors import dense
from plain_sources import condition
from scipy import integrate, stats
from strategies import random_covariance

from mkmc_prob import EM, PPCA, FactorAnalysis, KernelError, Sources, WishartPrior, stack_kernels
from mkmc_prob.kernels import Features
from mkmc_prob.model.factors import FactorStatistics, KernelFactors, Patterns
from mkmc_prob.model.low_rank import LowRankModel
from mkmc_prob.model.sources import Constant
from mkmc_prob.posterior.constants import draw_constant, log_prior
from mkmc_prob.posterior.factor_gibbs import FactorDraw, FactorGibbsSampler, FactorState

#: What the p-values of tests with fixed seeds must exceed.
LEVEL = 1e-3
#: Objects 0 and 4 are never seen together; kernel 3 shows one object, kernel 4 none.
VISIBLE = np.array(
    [[1, 1, 1, 1, 0], [0, 1, 1, 0, 1], [1, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 0]],
    dtype=bool,
)
SHARING = np.array([1.0, 0.6, 0.0, 1.0, 0.4])
CONSTANT = np.array([0.7, 0.3, 0.2, 0.0, 1.5])
SCALE = np.array([1.0, 100.0, 0.01, 2.0, 1.0])
SHARED = 0.4


class Case(NamedTuple):
    """A sampler and a state, with kernels of nu observations of rank 2."""

    sampler: FactorGibbsSampler
    state: FactorState
    kernels: np.ndarray
    nu: np.ndarray

    @property
    def em(self):
        return self.sampler.em


def case_of(kind=FactorAnalysis, nu=6, *, rank=2, sharing=SHARING, held=True, strength=1.5):
    rng = np.random.default_rng(0)
    features = rng.standard_normal((len(VISIBLE), 5, 2))
    kernels = SCALE[:, None, None] * features @ features.transpose(0, 2, 1) / 2
    stack = stack_kernels(kernels, visible=VISIBLE)
    degrees = np.full(len(kernels), float(nu))
    constant = CONSTANT if held else np.where(np.arange(5) == 1, 0.3, np.nan)
    sources = Sources(list(stack["kernel"].values), SCALE, constant, sharing, degrees, SHARED)
    structure = kind(rank, noise_strength=0.3, noise_scale=1.4)
    em = EM(stack, WishartPrior(strength), sources=sources, structure=structure)
    noise = np.full(5, 0.8) if kind is PPCA else rng.uniform(0.4, 1.5, size=5)
    state = FactorState(rng.standard_normal((5, rank)), noise, CONSTANT)
    return Case(FactorGibbsSampler(em), state, kernels, degrees.astype(int))


def same(one, two):
    """Return two-sample Kolmogorov-Smirnov p-values by column, with Bonferroni's correction."""
    pairs = zip(one.T, two.T, strict=True)
    found = [stats.ks_2samp(a, b).pvalue for a, b in pairs if a.std() or b.std()]
    return min(found) * len(found)


# The draws given a state


def vector_of(draw):
    """The sums and the hidden entries as one vector."""
    moments = draw.factor_moments.ravel()
    parts = [moments, draw.total.ravel(), draw.cross.ravel(), draw.squares, draw.hidden]
    return np.concatenate(parts)


@pytest.mark.parametrize("kind", [PPCA, FactorAnalysis])
def test_expectations_are_those_of_the_e_step(kind):
    case = case_of(kind)
    model = LowRankModel(case.state.loadings, case.state.noise, case.em.objects)
    expected = FactorStatistics(Patterns.of(VISIBLE & (SHARING[:, None] > 0)), 2)
    for k, part in enumerate(case.em.source_kernels):
        if SHARING[k]:
            parameters = (case.state.loadings, case.state.noise)
            expected.add(k, KernelFactors.of(part, *parameters, SHARED), part, *parameters)
    rng, draws = np.random.default_rng(1), []
    for _ in range(800):
        draws.append(case.sampler.draw_completed(case.state, rng))
    completed = case.em.complete(model).values
    hidden = []
    for kernel, seen in zip(completed, VISIBLE, strict=True):
        hidden.append(kernel[np.ix_(~seen, seen)].ravel())
        hidden.append(kernel[np.ix_(~seen, ~seen)][np.tri((~seen).sum(), dtype=bool)])
    exact = FactorDraw(
        case.state,
        expected.factor_moments,
        expected.cross,
        expected.squares,
        expected.total,
        np.concatenate(hidden),
        np.empty(0),
    )
    found = np.array([vector_of(draw) for draw in draws])
    error = found.std(axis=0) / np.sqrt(len(found))
    assert (np.abs(found.mean(axis=0) - vector_of(exact)) <= 5 * error + 1e-9).all()
    np.testing.assert_allclose(draws[0].log_likelihood, case.em.e_step(model).log_likelihood)


def plain_draw(case, rng):
    """Draw (z, y, x) observation by observation, by conditioning in one dense distribution."""
    loadings, noise, constant = case.state
    model, prior = dense(loadings, noise), np.eye(5) + SHARED
    patterns = Patterns.of(VISIBLE & (SHARING[:, None] > 0))
    moments = np.zeros((len(patterns.shown), 2, 2))
    cross, squares, total, hidden = np.zeros((5, 2)), np.zeros(5), np.zeros((2, 2)), []
    for k, seen in enumerate(VISIBLE):
        nu, s = case.nu[k], SHARING[k]
        values, vectors = np.linalg.eigh(case.kernels[k][np.ix_(seen, seen)] / SCALE[k])
        known = np.zeros((seen.sum(), nu))
        largest = min(2, seen.sum())  # the rank
        known[:, :largest] = (vectors * np.sqrt(nu * np.maximum(values, 0.0)))[:, -largest:]
        known = known @ np.linalg.qr(rng.standard_normal((nu, nu)))[0]
        whole = s * model + (1.0 - s) * prior + constant[k]
        joint = np.block(
            [
                [np.eye(2), loadings.T, np.sqrt(s) * loadings.T],
                [loadings, model, np.sqrt(s) * model],
                [np.sqrt(s) * loadings, np.sqrt(s) * model, whole],
            ]
        )
        places = 7 + np.flatnonzero(seen)
        given = condition(
            joint,
            joint[:, places],
            joint[np.ix_(places, places)] if seen.any() else np.empty((0, 0)),
            np.zeros((len(places), len(places))),
        )
        values, vectors = np.linalg.eigh(given.covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        drawn = given.regression @ known + root @ rng.standard_normal((12, nu))
        z, y, x = drawn[:2], drawn[2:7][seen], drawn[7:]
        if s:
            moments[patterns.shown[:, k]] += z @ z.T
            total += z @ z.T
            cross[seen] += y @ z.T
            squares[seen] += (y**2).sum(axis=1)
        kernel = SCALE[k] * x @ x.T / nu
        hidden.append(kernel[np.ix_(~seen, seen)].ravel())
        hidden.append(kernel[np.ix_(~seen, ~seen)][np.tri((~seen).sum(), dtype=bool)])
    hidden = np.concatenate(hidden)
    return FactorDraw(case.state, moments, cross, squares, total, hidden, np.empty(0))


@pytest.mark.parametrize("nu", [2, 4, 12])
def test_draws_are_those_of_whole_observations(nu):
    """The rank is 2 and there are up to four factors: from no observation of zero to many."""
    case, rng = case_of(nu=nu), np.random.default_rng(nu)
    ours = np.array([vector_of(case.sampler.draw_completed(case.state, rng)) for _ in range(500)])
    theirs = np.array([vector_of(plain_draw(case, rng)) for _ in range(500)])
    varying = theirs.std(axis=0) > 1e-9 * np.abs(theirs).max(axis=0)
    np.testing.assert_allclose(ours[:, ~varying], theirs[:, ~varying], atol=1e-12)
    ours, theirs = ours[:, varying], theirs[:, varying]
    assert same(ours, theirs) > LEVEL
    unit = theirs.std(axis=0)
    products = [np.einsum("di,dj->dij", x / unit, x / unit) for x in (ours, theirs)]
    error = np.sqrt(sum(product.var(axis=0) for product in products) / len(ours))
    assert (np.abs(products[0].mean(axis=0) - products[1].mean(axis=0)) < 5.5 * error).all()


def test_hidden_entries_can_be_left_out_and_cost_does_not_grow_with_the_observations():
    case = case_of(nu=10**7)
    rng = np.random.default_rng(0)
    draw = case.sampler.draw_completed(case.state, rng, hidden=False)
    assert draw.hidden.shape == (0,)
    assert np.isfinite(vector_of(draw)).all()
    assert case.sampler.ranks.tolist() == [2, 2, 2, 1, 0]
    hidden = case.sampler.draw_completed(case.state, rng).hidden
    assert hidden.shape == (case.sampler.size,)
    assert np.isfinite(hidden).all()


# The parameters given a draw


@pytest.mark.parametrize("kind", [PPCA, FactorAnalysis])
def test_parameters_are_drawn_from_scipys_distributions(kind):
    """From z and y as arrays, by explicit inverses: Phi, then d and W, then C."""
    case, rng = case_of(kind), np.random.default_rng(2)
    loadings, noise, _ = case.state
    z = [rng.standard_normal((2, 6)) for _ in SHARING]
    y = [rng.standard_normal((5, 6)) for _ in SHARING]
    shown = VISIBLE & (SHARING[:, None] > 0)
    patterns = Patterns.of(shown)
    moments = np.zeros((len(patterns.shown), 2, 2))
    cross, squares, known = np.zeros((5, 2)), np.zeros(5), []
    for i in range(5):
        own = np.flatnonzero(shown[:, i])
        factors = np.hstack([z[k] for k in own])
        values = np.concatenate([y[k][i] for k in own])
        moments[patterns.of_object[i]] = factors @ factors.T
        cross[i], squares[i] = factors @ values, values @ values
        known.append((factors, values))
    total = sum(z[k] @ z[k].T for k in np.flatnonzero(SHARING))
    draw = FactorDraw(case.state, moments, cross, squares, total, np.empty(0), np.empty(0))
    of_prior = 1.5 * np.eye(2) / 5 + loadings.T @ (loadings / noise[:, None])
    number, strength = 6 * (SHARING > 0).sum(), 1.5

    def plain():
        phi = stats.invwishart.rvs(strength + 3 + 5, of_prior, random_state=rng)
        precision, drawn, gammas = np.linalg.inv(phi), [], []
        for factors, values in known:
            inverse = np.linalg.inv(factors @ factors.T + precision)
            mean = inverse @ factors @ values
            left = values - mean @ factors
            shape = 0.5 * (len(values) + strength + 0.3)
            rate = 0.5 * (left @ left + mean @ precision @ mean + strength + 0.3 * 1.4)
            drawn.append((mean, inverse))
            gammas.append((shape, rate))
        shape, rate = np.transpose(gammas)
        if kind is PPCA:
            shape, rate = shape.sum(keepdims=True), rate.sum(keepdims=True)
        d = stats.invgamma.rvs(shape + 1, scale=rate, random_state=rng)
        d = np.broadcast_to(d, 5)
        w = [rng.multivariate_normal(m, v * c) for (m, c), v in zip(drawn, d, strict=True)]
        of_map = total + 1.5 * precision / 5
        h = stats.invwishart.rvs(number + strength + 3, of_map, random_state=rng)
        return np.concatenate([d, (np.array(w) @ np.linalg.cholesky(h)).ravel()])

    states = [case.sampler.draw_parameters(draw, rng) for _ in range(500)]
    ours = np.array([np.concatenate([one.noise, one.loadings.ravel()]) for one in states])
    theirs = np.array([plain() for _ in range(500)])
    assert same(ours, theirs) > LEVEL
    unit = theirs.std(axis=0)
    products = [np.einsum("di,dj->dij", x / unit, x / unit) for x in (ours, theirs)]
    error = np.sqrt(sum(product.var(axis=0) for product in products) / len(ours))
    assert (np.abs(products[0].mean(axis=0) - products[1].mean(axis=0)) < 5 * error).all()
    for state in states[:5]:
        np.testing.assert_array_equal(state.constant, CONSTANT)  # they are held


def test_a_constant_has_the_density_that_integration_gives():
    """SciPy's normal log densities of the observations, and its half-Cauchy prior."""
    rng, nu, n = np.random.default_rng(3), 5, 4
    covariance = random_covariance(rng, n)
    x = np.linalg.cholesky(covariance) @ rng.standard_normal((n, nu)) + rng.standard_normal(nu)

    def density(root):  # of sqrt(c)
        normal = stats.multivariate_normal(np.zeros(n), covariance + root**2)
        return np.exp(normal.logpdf(x.T).sum() + 30.0) * stats.halfcauchy.pdf(root)

    total = integrate.quad(density, 0, np.inf)[0]
    grid = np.concatenate([np.linspace(0, 4, 81), [8.0, 40.0]])
    parts = [integrate.quad(density, a, b)[0] for a, b in pairwise(grid)]
    cdf = np.concatenate([[0.0], np.cumsum(parts)]) / total
    weights = np.linalg.solve(covariance, np.ones(n))
    moment = x @ x.T / nu
    z = (moment.sum() - np.trace(moment)) / (n * (n - 1))
    constant = Constant.of_moved(weights, (moment - z) @ weights, z, 1.0)
    c, roots = 50.0, []
    for step in range(2000):
        c = draw_constant(constant, nu, c, rng)
        if step >= 20 and step % 2 == 0:
            roots.append(np.sqrt(c))
    assert stats.kstest(roots, lambda root: np.interp(root, grid, cdf)).pvalue > LEVEL
    ratio = stats.halfcauchy.logpdf(np.sqrt(0.3)) - stats.halfcauchy.logpdf(np.sqrt(2.0))
    assert np.isclose(log_prior(0.3) - log_prior(2.0), ratio)
    # A kernel without visible objects: the prior. From zero, to which a draw can underflow.
    nothing = Constant.of_moved(np.empty(0), np.empty(0), 0.0, 1.0)
    c, roots = 0.0, []
    for step in range(2000):
        c = draw_constant(nothing, nu, c, rng)
        if step % 2 == 0:
            roots.append(np.sqrt(c))
    assert stats.kstest(roots[50:], stats.halfcauchy.cdf).pvalue > LEVEL


def test_the_constants_that_are_free_move():
    case, rng = case_of(held=False), np.random.default_rng(4)
    draw = case.sampler.draw_completed(case.state, rng)
    state = case.sampler.draw_parameters(draw, rng)
    assert (state.constant != CONSTANT).tolist() == [True, False, True, True, True]


# The posterior


def log_density_of_loadings(loadings, noise, strength):
    """Return log p(W | D) by Bayes's rule for Phi, which holds at any Phi."""
    size, rank = loadings.shape
    phi, degrees = np.eye(rank) + 0.3, strength + rank + 1
    moment = np.eye(rank) * strength / size + loadings.T @ (loadings / noise[:, None])
    given = stats.matrix_normal(rowcov=np.diag(noise), colcov=phi).logpdf(loadings)
    prior = stats.invwishart(degrees, np.eye(rank) * strength / size).logpdf(phi)
    return given + prior - stats.invwishart(degrees + size, moment).logpdf(phi)


@pytest.mark.parametrize("kind", [PPCA, FactorAnalysis])
def test_the_log_posterior_is_the_sum_of_scipys_log_densities(kind):
    case = case_of(kind, held=False)
    loadings, noise, constant = case.state
    level = 0.0
    for k, seen in enumerate(VISIBLE):
        s, nu = SHARING[k], case.nu[k]
        whole = s * dense(loadings, noise) + (1 - s) * (np.eye(5) + SHARED) + constant[k]
        if not seen.any():
            continue
        values, vectors = np.linalg.eigh(case.kernels[k][np.ix_(seen, seen)])
        x = np.zeros((nu, seen.sum()))
        x[: len(values)] = (vectors * np.sqrt(nu * np.maximum(values, 0.0))).T
        normal = stats.multivariate_normal(
            np.zeros(seen.sum()), SCALE[k] * whole[np.ix_(seen, seen)]
        )
        level += normal.logpdf(x).sum()
    level += log_density_of_loadings(loadings, noise, 1.5)
    if kind is PPCA:
        level += stats.invgamma.logpdf(noise[0], 5 * 0.9 + 1, scale=5 * 0.96)
    else:
        level += stats.invgamma.logpdf(noise, 1.9, scale=0.96).sum()
    free = np.sqrt(constant[[0, 2, 3, 4]])  # without the constant of the distribution
    level += (stats.halfcauchy.logpdf(free) - np.log(2.0 / np.pi)).sum()
    np.testing.assert_allclose(case.sampler.log_posterior(case.state), level)


def test_the_chain_has_the_posterior_that_integration_gives():
    """One factor of two objects and one noise: a grid over three parameters, by SciPy."""
    rng, nu, s = np.random.default_rng(5), 4, 0.7
    x = np.array([[1.0, 0.6], [0.6, 1.2]]) @ rng.standard_normal((2, nu))
    stack = stack_kernels(np.array([x @ x.T / nu, np.zeros((2, 2))]), visible=[[1, 1], [0, 1]])
    sources = Sources(["Q1", "Q2"], np.ones(2), np.array([0.2, 0.0]), np.array([s, 1.0]),
                      np.array([nu, 1.0]), 0.3)  # fmt: skip
    sampler = FactorGibbsSampler(EM(stack, WishartPrior(2.0), sources=sources, structure=PPCA(1)))
    w, log_d = np.linspace(-9, 9, 110), np.linspace(-3, 2.5, 60)
    w1, w2, d = np.meshgrid(w, w, np.exp(log_d), indexing="ij")
    m11, m22, m12 = w1**2 + d, w2**2 + d, w1 * w2
    level = -np.log(d) - 3.0 * np.log(1.0 + (w1**2 + w2**2) / d)  # a bivariate t distribution
    level += stats.invgamma.logpdf(d, 3.1, scale=2.1) + np.log(d)  # a = 0.1, tau = 1
    b11, b22, b12 = (s * m + (1 - s) * t + 0.2 for m, t in ((m11, 1.3), (m22, 1.3), (m12, 0.3)))
    det = b11 * b22 - b12**2
    q = x @ x.T
    level -= 0.5 * (nu * np.log(det) + (b22 * q[0, 0] - 2 * b12 * q[0, 1] + b11 * q[1, 1]) / det)
    level -= 0.5 * np.log(m22)  # the second kernel shows a zero
    weights = np.exp(level - level.max())
    weights /= weights.sum()
    state, found = sampler.draw_start(rng), []
    for step in range(3800):
        draw = sampler.draw_completed(state, rng, hidden=False)
        if step >= 200 and not step % 3:
            m = state.entries(np.array([0, 1, 1]), np.array([0, 1, 0]))
            found.append([*np.log(m[:2]), m[2], np.log(state.noise[0])])
        state = sampler.draw_parameters(draw, rng)
    found = np.array(found)
    for ours, values in zip(found.T, (np.log(m11), np.log(m22), m12, np.log(d)), strict=True):
        mean = (weights * values).sum()
        spread = np.sqrt((weights * (values - mean) ** 2).sum())
        assert abs(ours.mean() - mean) < 0.12 * spread
        assert abs(ours.std() / spread - 1.0) < 0.1


# What it takes


def test_the_scale_of_the_prior_is_that_of_the_pseudo_observations():
    rng = np.random.default_rng(6)
    scale = random_covariance(rng, 3)
    em = EM(
        stack_kernels(np.eye(3)[None]), WishartPrior(2.0, scale), 3, structure=FactorAnalysis(1)
    )
    loadings = rng.standard_normal((3, 1))
    state = FactorState(loadings, np.array([0.5, 1.0, 2.0]), np.zeros(1))
    rates = 0.5 * (2.0 * np.diagonal(scale) + 0.1)
    expected = stats.invgamma.logpdf(state.noise, 2.05, scale=rates).sum()
    student = stats.multivariate_t(shape=np.diag(state.noise) / 6, df=4.0)
    expected += student.logpdf(state.loadings[:, 0])
    np.testing.assert_allclose(FactorGibbsSampler(em).log_prior(state), expected)


@pytest.mark.parametrize("kind", [PPCA, FactorAnalysis])
def test_starts_are_dispersed_and_in_the_units_of_the_kernels(kind):
    case, rng = case_of(kind, held=False), np.random.default_rng(7)
    states = [case.sampler.draw_start(rng) for _ in range(300)]
    noise = np.array([state.noise for state in states])
    assert np.log(noise).std() > 0.4
    assert np.isfinite([case.sampler.log_posterior(state) for state in states]).all()
    assert all(state.constant[1] == 0.3 for state in states)
    variance = np.mean([np.diagonal(case.sampler.model(state).matrix) for state in states], axis=0)
    assert variance.min() > 0.2
    assert variance.max() < 5


def test_an_object_that_varies_less_than_the_constant_has_a_start():
    kernel = np.full((3, 3), 10.0) + np.diag([1.0, 1.0, 1.0])
    kernel[2] = kernel[:, 2] = 0.0
    kernel[2, 2] = 0.01
    stack = stack_kernels(kernel[None])
    sources = Sources.estimated(stack, degrees_of_freedom=5)
    em = EM(stack, WishartPrior(0.1), sources=sources, structure=FactorAnalysis(1))
    sampler, rng = FactorGibbsSampler(em), np.random.default_rng(0)
    assert np.isfinite([sampler.log_posterior(sampler.draw_start(rng)) for _ in range(20)]).all()


def test_a_sampler_can_be_sent_to_another_process_and_changes_nothing():
    case = case_of()
    before = pickle.dumps(case.em.stack), [part.copy() for part in case.state]
    again = pickle.loads(pickle.dumps(case.sampler))
    one, two = (
        sampler.draw_completed(case.state, np.random.default_rng(8))
        for sampler in (case.sampler, again)
    )
    np.testing.assert_array_equal(vector_of(one), vector_of(two))
    assert pickle.dumps(case.em.stack) == before[0]
    for part, copy in zip(case.state, before[1], strict=True):
        np.testing.assert_array_equal(part, copy)


@pytest.mark.parametrize("nu", [1.0, 2.5, 1.999])
def test_degrees_of_freedom_must_be_a_number_of_observations(nu):
    message = rf"degrees_of_freedom of kernel 'Q1': {nu:g} found, but the rank .* is 2: a whole"
    with pytest.raises(KernelError, match=message):
        case_of(nu=nu)


def test_the_structure_must_be_one_of_few_factors():
    em = EM(stack_kernels(np.eye(2)[None]), WishartPrior(1.0), 2)
    with pytest.raises(KernelError, match=r"em: EM\(.* found; pass EM\(\.\.\., structure=PPCA"):
        FactorGibbsSampler(em)


def test_kernels_must_be_in_memory():
    features = np.random.default_rng(9).standard_normal((4, 3))
    stack = stack_kernels({"a": Features(features)}, objects=list("abcd"))
    em = EM(stack, WishartPrior(1.0), 3, structure=PPCA(1))
    with pytest.raises(KernelError, match="its kernels are not in memory"):
        FactorGibbsSampler(em)


def test_kernels_that_share_nothing_leave_the_prior():
    case, rng = case_of(sharing=np.zeros(5)), np.random.default_rng(10)
    state, noise = case.state, []
    for _ in range(200):
        state = case.sampler.draw_parameters(case.sampler.draw_completed(state, rng), rng)
        noise.append(state.noise)
    exact = stats.invgamma(1.9, scale=0.96)
    assert stats.kstest(np.ravel(noise), exact.cdf).pvalue > LEVEL
