"""The two draws of the Gibbs sampler, against SciPy's Wishart and a plain augmentation."""

import numpy as np
import plain
import pytest
from scipy import stats
from strategies import random_covariance

from mkmc_prob import (
    EM,
    PPCA,
    IndefiniteKernelError,
    KernelError,
    LabelError,
    WishartPrior,
    stack_kernels,
)
from mkmc_prob.model.gaussian import GaussianModel
from mkmc_prob.posterior.gibbs import GibbsSampler
from mkmc_prob.posterior.wishart import UnseenRows, bartlett, diagonal, inverse_wishart_factor

#: What the p-values of tests with fixed seeds must exceed.
LEVEL = 1e-3


def sampler_of(kernels, visible, nu, strength=2.0, scale=None):
    stack = stack_kernels(np.asarray(kernels), visible=visible)
    return GibbsSampler(EM(stack, WishartPrior(strength, scale), nu))


def same(one, two):
    """Return two-sample Kolmogorov-Smirnov p-values by column, with Bonferroni's correction."""
    pairs = zip(one.reshape(len(one), -1).T, two.reshape(len(two), -1).T, strict=True)
    found = [stats.ks_2samp(a, b).pvalue for a, b in pairs]
    return min(found) * len(found)


# Wishart matrices


@pytest.mark.parametrize("degrees", [3.5, 4.0, 50.0])
def test_inverse_wishart_draws_have_scipys_distribution(degrees):
    rng = np.random.default_rng(0)
    scale = random_covariance(rng, 3)
    factor = np.linalg.cholesky(scale)
    drawn = []
    for _ in range(4000):
        f = inverse_wishart_factor(np.asfortranarray(factor), degrees, rng)
        assert (np.triu(f, 1) == 0).all()
        drawn.append(f @ f.T)
    expected = stats.invwishart(degrees, scale).rvs(4000, random_state=1)
    lower = np.tri(3, dtype=bool)
    assert same(np.array(drawn)[:, lower], expected[:, lower]) > LEVEL


@pytest.mark.parametrize("degrees", [2.3, 3.0, 40.0])
def test_bartletts_triangle_has_scipys_moments(degrees):
    rng = np.random.default_rng(1)
    out = np.empty((3, 3))
    drawn = np.empty((20000, 3, 3))
    for one in drawn:
        bartlett(degrees - np.arange(3), rng, out)
        one[...] = out.T @ out
    exact = stats.wishart(degrees, np.eye(3))
    error = np.sqrt(exact.var() / len(drawn))
    assert (np.abs(drawn.mean(0) - exact.mean()) < 5 * error).all()
    expected = exact.rvs(4000, random_state=2)
    assert same(drawn[:4000, np.tri(3, dtype=bool)], expected[:, np.tri(3, dtype=bool)]) > LEVEL


def test_the_diagonal_is_a_view():
    matrix = np.zeros((3, 3))
    diagonal(matrix)[...] = 2.0
    np.testing.assert_array_equal(matrix, 2.0 * np.eye(3))


# The model given the completed kernels


@pytest.mark.parametrize("own_scale", [False, True])
def test_the_models_draw_is_scipys_wishart(own_scale):
    rng = np.random.default_rng(3)
    scale = random_covariance(rng, 3) if own_scale else None
    kernels = [random_covariance(rng, 3) for _ in range(2)]
    sampler = sampler_of(kernels, np.ones((2, 3)), [3, 7], strength=1.5, scale=scale)
    moment = 3 * kernels[0] + 7 * kernels[1]
    drawn = [sampler.draw_model(moment, rng) for _ in range(4000)]
    total = 1.5 * (np.eye(3) if scale is None else scale) + moment
    exact = stats.wishart(1.5 + 3 + 1 + 10, np.linalg.inv(total))
    precisions = np.array([np.linalg.inv(model.matrix) for model in drawn])
    error = np.sqrt(exact.var() / len(drawn))
    assert (np.abs(precisions.mean(0) - exact.mean()) < 5 * error).all()
    lower = np.tri(3, dtype=bool)
    assert same(precisions[:, lower], exact.rvs(4000, random_state=4)[:, lower]) > LEVEL
    for model in drawn[:20]:
        np.testing.assert_array_equal(model.matrix, model.matrix.T)
        np.testing.assert_array_equal(model.precision, model.precision.T)
        np.testing.assert_allclose(model.cholesky @ model.cholesky.T, model.matrix, rtol=1e-12)
        np.testing.assert_allclose(model.precision @ model.matrix, np.eye(3), atol=1e-9)


def test_the_mode_of_the_models_draw_is_ems_m_step():
    """The mode of Wishart(d, V) is (d - l - 1) V, here the inverse of EM's M."""
    rng = np.random.default_rng(5)
    kernels = [random_covariance(rng, 4) for _ in range(2)]
    em = EM(stack_kernels(np.array(kernels)), WishartPrior(1.5), [4, 9])
    statistics = em.e_step(em.initial_model())
    mode = (1.5 + 13) * np.linalg.inv(1.5 * np.eye(4) + 4 * kernels[0] + 9 * kernels[1])
    np.testing.assert_allclose(em.m_step(statistics).precision, mode, rtol=1e-9)


# The completed kernels given the model


def augmented(kernel, seen, model, nu, rng, draws):
    """Draw S given M as the definition says: nu vectors, whose visible parts are known.

    Any vectors with second moment S_vv will do; each hidden part is drawn by explicit regression.
    """
    v, h = np.flatnonzero(seen), np.flatnonzero(~seen)
    n = len(v)
    values, vectors = np.linalg.eigh(nu * kernel[np.ix_(v, v)])
    known = np.zeros((nu, n))
    root = vectors * np.sqrt(np.clip(values, 0, None))
    kept = values > 1e-9
    known[: kept.sum()] = root[:, kept].T
    rotation = np.linalg.qr(rng.standard_normal((nu, nu)))[0]
    known = rotation @ known
    a = np.linalg.inv(model[np.ix_(v, v)]) @ model[np.ix_(v, h)]
    c = model[np.ix_(h, h)] - model[np.ix_(h, v)] @ a
    noise = rng.standard_normal((draws, nu, len(h))) @ np.linalg.cholesky(c).T
    x = np.empty((draws, nu, len(seen)))
    x[..., v], x[..., h] = known, known @ a + noise
    return x.swapaxes(1, 2) @ x / nu


@pytest.mark.parametrize("nu", [2, 3, 4, 5, 30])
@pytest.mark.parametrize("seen", [[1, 1, 0, 0, 1], [0, 0, 0, 0, 0], [0, 1, 0, 0, 0]])
def test_completed_draws_are_those_of_whole_vectors(nu, seen):
    """The rank is at most 2; degrees of freedom from the fewest possible to more than objects."""
    rng = np.random.default_rng(nu)
    seen = np.array(seen, dtype=bool)
    factor = rng.standard_normal((5, 2))
    kernel, model = factor @ factor.T, random_covariance(rng, 5)
    sampler = sampler_of([kernel, np.eye(5)], [seen, np.ones(5)], [nu, 5])
    given = GaussianModel(model)
    draws = 3000
    drawn = [sampler.draw_completed(given, rng) for _ in range(draws)]
    v, h = np.flatnonzero(seen), np.flatnonzero(~seen)
    i, j = np.tril_indices(len(h))
    expected = augmented(kernel, seen, model, nu, rng, draws)
    cross = expected[:, h[:, None], v].reshape(draws, -1)
    expected = np.concatenate([cross, expected[:, h[i], h[j]]], axis=1)
    assert same(np.array([one.hidden for one in drawn]), expected) > LEVEL
    # Of two entries at a time: covariances, by their standard errors.
    ours, theirs = (
        np.einsum("di,dj->dij", x - x.mean(0), x - x.mean(0))
        for x in (np.array([one.hidden for one in drawn]), expected)
    )
    error = np.sqrt((ours.var(0) + theirs.var(0)) / draws)
    assert (np.abs(ours.mean(0) - theirs.mean(0)) < 5 * error + 1e-12).all()


def test_the_sum_holds_what_was_drawn_and_what_is_visible():
    rng = np.random.default_rng(6)
    kernels = [random_covariance(rng, 4) for _ in range(2)]
    visible = np.array([[1, 1, 0, 1], [0, 1, 1, 0]], dtype=bool)
    sampler = sampler_of(kernels, visible, [6.5, 4])
    drawn = sampler.draw_completed(GaussianModel(random_covariance(rng, 4)), rng)
    np.testing.assert_array_equal(drawn.second_moment, drawn.second_moment.T)
    hidden = iter(drawn.hidden)
    total = np.zeros((4, 4))
    for kernel, seen, nu in zip(kernels, visible, [6.5, 4], strict=True):
        whole = np.where(seen[:, None] & seen, kernel, np.nan)
        v, h = np.flatnonzero(seen), np.flatnonzero(~seen)
        for a in h:
            for b in v:
                whole[a, b] = whole[b, a] = next(hidden)
        for place, a in enumerate(h):
            for b in h[: place + 1]:
                whole[a, b] = whole[b, a] = next(hidden)
        assert np.linalg.eigvalsh(whole)[0] > -1e-12
        total += nu * whole
    np.testing.assert_allclose(drawn.second_moment, total, rtol=1e-10)
    assert next(hidden, None) is None


@pytest.mark.parametrize("strength", [0.3, 5.0])
def test_the_log_likelihood_comes_along(strength):
    rng = np.random.default_rng(7)
    kernels = np.array([random_covariance(rng, 5) for _ in range(3)])
    visible = np.array([[1, 1, 0, 1, 0], [0, 0, 0, 0, 1], [1, 1, 1, 1, 1]], dtype=bool)
    nu = [6.0, 1.0, 4.5]
    sampler = sampler_of(kernels, visible, nu, strength)
    model = random_covariance(rng, 5)
    found = sampler.draw_completed(GaussianModel(model), rng).log_likelihood
    expected = [
        weight * plain.log_gaussian(kernel[np.ix_(seen, seen)], model[np.ix_(seen, seen)])
        for kernel, seen, weight in zip(kernels, visible, nu, strict=True)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_the_cost_does_not_grow_with_the_degrees_of_freedom():
    """At most the rank plus one column per hidden object is drawn, whatever nu is."""
    rng = np.random.default_rng(8)
    factor = rng.standard_normal((6, 2))
    seen = np.array([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]])
    for nu in (2, 3, 4, 5, 10**6):
        sampler = sampler_of([factor @ factor.T, np.eye(6)], seen, [nu, 6])
        part, _ = sampler._groups[0].kernels
        assert sampler.ranks[0] == 2
        assert part.extra == min(nu - 2, 2)
        drawn = sampler.draw_completed(GaussianModel(np.eye(6)), rng)
        assert np.isfinite(drawn.hidden).all()


# Objects that are hidden in every kernel


def test_unseen_rows_are_the_priors_given_the_others():
    """Their joint distribution with a draw of the others is SciPy's inverse Wishart over all."""
    rng = np.random.default_rng(9)
    scale, strength, draws = random_covariance(rng, 4), 3.0, 4000
    seen = np.array([1, 0, 1, 0], dtype=bool)
    prior = WishartPrior(strength, scale)
    rows = UnseenRows(prior, np.arange(4), seen)
    expected = stats.invwishart(strength + 5, strength * scale).rvs(2 * draws, random_state=10)
    given, expected = expected[:draws], expected[draws:]
    drawn = np.array([rows.draw(matrix, rng) for matrix in given])
    assert (np.linalg.eigvalsh(drawn) > 0).all()
    np.testing.assert_array_equal(drawn, drawn.swapaxes(1, 2))
    np.testing.assert_array_equal(drawn[:, seen][:, :, seen], given[:, seen][:, :, seen])
    lower = np.tri(4, dtype=bool)
    assert same(drawn[:, lower], expected[:, lower]) > LEVEL
    # The joint distribution: by regressions of unseen on seen, and what is left.
    r, o = np.flatnonzero(seen), np.flatnonzero(~seen)
    regression = [
        np.linalg.solve(m[:, r[:, None], r], m[:, r[:, None], o]) for m in (drawn, expected)
    ]
    assert same(*regression) > LEVEL
    rest = [
        m[:, o[:, None], o] - m[:, o[:, None], r] @ a
        for m, a in zip((drawn, expected), regression, strict=True)
    ]
    assert same(*rest) > LEVEL


def test_where_all_are_seen_the_model_stays():
    sampler = sampler_of([np.eye(2)], [[1, 1]], 5)
    model = GaussianModel(np.eye(2))
    assert sampler.draw_unseen(model, np.random.default_rng(0)) is model


# Bad input


@pytest.mark.parametrize(
    ("nu", "fine"),
    [(1, False), (2, True), (3, True), (2.5, False), (3.0, True), (3.5, True), (2.999, False)],
)
def test_degrees_of_freedom_that_make_a_wishart(nu, fine):
    factor = np.random.default_rng(0).standard_normal((4, 2))
    visible = [[1, 1, 1, 0], [1, 1, 1, 1]]
    kernels = [factor @ factor.T, np.eye(4)]
    if fine:
        assert sampler_of(kernels, visible, [nu, 4]).ranks.tolist() == [2, 4]
        return
    message = rf"degrees_of_freedom of kernel 'Q1': {nu:g} found, but the rank .* is 2.*above 3\."
    with pytest.raises(KernelError, match=message):
        sampler_of(kernels, visible, [nu, 4])


def test_the_rank_is_that_of_the_precision_the_kernel_came_in():
    factor = np.random.default_rng(0).standard_normal((6, 2))
    kernel = (factor @ factor.T).astype(np.float32)
    stack = stack_kernels(kernel[None], visible=[[1, 1, 1, 1, 1, 0]])
    assert GibbsSampler(EM(stack, WishartPrior(1.0), 2)).ranks.tolist() == [2]


def test_starts_are_dispersed():
    """They spread wider than draws given all visible entries, by their log determinants."""
    rng = np.random.default_rng(11)
    kernels = [random_covariance(rng, 4) for _ in range(2)]
    sampler = sampler_of(kernels, [[1, 1, 1, 0], [0, 1, 1, 1]], [40, 40])
    starts = [sampler.draw_start(rng).log_determinant for _ in range(300)]
    model, posterior = sampler.draw_start(rng), []
    for _ in range(300):
        model = sampler.draw_model(sampler.draw_completed(model, rng).second_moment, rng)
        posterior.append(model.log_determinant)
    assert np.std(starts) > 1.5 * np.std(posterior)


def test_a_model_of_other_objects_is_refused():
    stack = stack_kernels(np.eye(3)[None], visible=[[1, 1, 0]])
    em = EM(stack, WishartPrior(2.0), degrees_of_freedom=20)
    sampler, rng = GibbsSampler(em), np.random.default_rng(0)
    matrix = np.diag([1.0, 2.0, 3.0])
    with pytest.raises(LabelError, match="model: its objects"):
        sampler.draw_completed(GaussianModel(matrix, objects=[2, 1, 0]), rng)
    with pytest.raises(KernelError, match="model: ndarray found"):
        sampler.draw_completed(matrix, rng)
    with pytest.raises(KernelError, match=r"second_moment: shape \(2, 2\) found"):
        sampler.draw_model(np.eye(2), rng)
    few = EM(stack, WishartPrior(1.0), structure=PPCA(1))
    with pytest.raises(KernelError, match=r'em: the structure PPCA\(1\) found; "full"'):
        GibbsSampler(few)
    with pytest.raises(KernelError, match="em: str found"):
        GibbsSampler("x")
    with pytest.raises(IndefiniteKernelError, match="not positive definite"):
        sampler.draw_model(np.full((3, 3), np.nan), rng)
