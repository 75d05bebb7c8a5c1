"""EM with a scale, a constant and a sharing per kernel, against item 12 written plainly."""

from itertools import pairwise

import mpmath
import numpy as np
import plain_sources as plainly
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_sources import draw_problem, setting_of
from problems import reference, small_stack
from strategies import random_covariance

from mkmc_prob import EM, GaussianModel, KernelError, LabelError, Sources, WishartPrior, fit
from mkmc_prob import stack_kernels as stacked
from mkmc_prob.diagnostics import check_monotone
from mkmc_prob.em.ascent import Ascent
from mkmc_prob.em.state import EMSteps
from mkmc_prob.em.trace import trace_of
from mkmc_prob.fitting.information import EMDerivative

REFERENCE = reference("sources.json")
seeds = st.integers(0, 2**32 - 1)
close = {"rtol": 1e-9, "atol": 1e-9}


def drawn(seed):
    """An EM with its constants free or held, the same plainly, and a model."""
    rng = np.random.default_rng(seed)
    problem = draw_problem(rng, regular=True)
    em = problem.em(held=rng.random() < 0.3, rng=rng)
    model = random_covariance(rng, len(em.objects))
    setting = setting_of(em)
    return em, setting, setting.best(model), model


def by_scores(em):
    """Make the EM take the scores of all kernels; it does if most objects are hidden."""
    em._by_score = em.sources.sharing > 0.0
    em._direct = np.zeros_like(em._by_score)


def test_one_step_of_the_reference():
    step = REFERENCE["step"]
    stack = stacked(np.array(REFERENCE["kernels"]), visible=REFERENCE["visible"])
    sources = Sources.estimated(stack, sharing=1.0 - np.array(step["rho"]))
    em = EM(stack, WishartPrior(1.0), sources=sources.with_constants(np.array(step["c"])))
    model = GaussianModel(step["M"])
    statistics = em.e_step(model)
    level = em.penalized_log_likelihood(model, statistics)
    assert level == pytest.approx(step["L"], rel=1e-9)
    update = em.m_step(statistics).matrix
    np.testing.assert_allclose(update, step["F"], rtol=1e-9)
    best = em.update_constants(model).constant
    np.testing.assert_allclose(best, step["best_c"], rtol=1e-9)
    for found, kernel in zip(em.complete(model).values, step["completed"], strict=True):
        np.testing.assert_allclose(found, kernel, atol=1e-9 * np.abs(kernel).max())


@settings(max_examples=30)
@given(seeds, st.booleans())
def test_the_e_step_and_the_m_step(seed, scores):
    em, setting, best, model = drawn(seed)
    if scores:
        by_scores(em)
    given_model = GaussianModel(model)
    statistics = em.e_step(given_model)
    np.testing.assert_allclose(statistics.sources.constant, best.constant, **close)
    moment = plainly.e_step(best, model)
    np.testing.assert_allclose(statistics.second_moment, moment, **close)
    np.testing.assert_allclose(
        em.m_step(statistics).matrix, plainly.em_map(setting, model), **close
    )
    levels = [plainly.log_likelihood(best, k, model) for k in range(len(em.names))]
    np.testing.assert_allclose(statistics.log_likelihood, levels, **close)
    level = plainly.penalized_log_likelihood(best, model)
    assert em.penalized_log_likelihood(given_model) == pytest.approx(level, rel=1e-9)
    kernels = plainly.completed(best, model)
    for found in (em.complete(given_model), statistics.completed):
        for one, two in zip(found.values, kernels, strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-8, atol=1e-9 * np.abs(two).max())


@settings(max_examples=30)
@given(seeds)
def test_the_q_function_and_the_entropy_add_up_to_the_likelihood(seed):
    """Each against brute force: joint distributions of (x_v, y, g), whatever the sharings."""
    em, _, best, model = drawn(seed)
    here = GaussianModel(model)
    elsewhere = random_covariance(np.random.default_rng(seed), len(model))
    statistics = em.e_step(here)
    moment = plainly.e_step(best, model)
    for at in (model, elsewhere):
        expected = plainly.q_function(best, at, moment)
        assert em.q_function(GaussianModel(at), statistics) == pytest.approx(expected, rel=1e-9)
    left_out = [plainly.entropy(best, k, model) for k in range(len(em.names))]
    np.testing.assert_allclose(statistics.entropy, left_out, rtol=1e-7, atol=1e-7)
    total = em.q_function(here, statistics) + em.entropy(statistics)
    level = em.penalized_log_likelihood(here, statistics)
    assert total == pytest.approx(level, rel=1e-10, abs=1e-10)


@settings(max_examples=30)
@given(seeds)
def test_the_gradient_is_that_of_the_likelihood_with_the_best_constants(seed):
    """By the envelope theorem, it is the gradient with the constants held."""
    em, setting, best, model = drawn(seed)
    gradient = plainly.gradient(best, model)
    moved = em.m_step(em.e_step(GaussianModel(model))).matrix - model
    expected = 2.0 / setting.weight * model @ gradient @ model
    np.testing.assert_allclose(moved, expected, rtol=1e-8, atol=1e-9)
    change = random_covariance(np.random.default_rng(seed), len(model))
    ahead, back = (
        em.penalized_log_likelihood(GaussianModel(model + sign * 1e-6 * change)) for sign in (1, -1)
    )
    slope = float(np.vdot(gradient, change))
    size = 1.0 + abs(slope) + abs(ahead)
    assert (ahead - back) / 2e-6 == pytest.approx(slope, abs=1e-6 * size)


@settings(max_examples=30)
@given(seeds)
def test_the_derivative_of_the_em_map_with_constants_that_move(seed):
    em, setting, _, model = drawn(seed)
    derivative = EMDerivative(em, np.linalg.cholesky(model))
    factor = np.linalg.cholesky(model)
    change = random_covariance(np.random.default_rng(seed), len(model))
    change /= np.linalg.norm(change)
    half = derivative.triangle.matrix(
        derivative(derivative.triangle.vector(np.asfortranarray(change)))
    )
    ends = [model + sign * 1e-5 * factor @ change @ factor.T for sign in (1, -1)]
    if len({tuple(setting.best(end).constant > 0.0) for end in ends}) > 1:
        return  # the map has a kink here
    ahead, back = (plainly.em_map(setting, end) for end in ends)
    inverse = np.linalg.inv(factor)
    expected = inverse @ (ahead - back) @ inverse.T / 2e-5
    np.testing.assert_allclose(half + half.T, expected, rtol=1e-4, atol=1e-5)


@settings(max_examples=20)
@given(seeds)
def test_the_three_parts_of_the_gain_are_what_they_are_called(seed):
    em, setting, _, model = drawn(seed)
    ascent = Ascent(EMSteps(em), GaussianModel(model), tol=0)
    models = [ascent.model.matrix]
    for _ in range(3):
        ascent.advance()
        models.append(ascent.model.matrix)
    trace = trace_of(ascent)
    table = check_monotone(trace)
    for i, (before, after) in enumerate(pairwise(models), start=1):
        parts = plainly.gain_parts(setting, before, after)
        for name, part in zip(
            ("gain_q_function", "gain_divergence", "gain_constants"), parts, strict=True
        ):
            assert trace[name][i] == pytest.approx(part, rel=1e-7, abs=1e-8)
            assert trace[name][i] >= -table["rounding"][i]
        assert sum(parts) == pytest.approx(table["gain"][i], rel=1e-7, abs=1e-8)


def test_nothing_is_learned_from_kernels_that_share_nothing():
    stack = small_stack()
    em = EM(stack, WishartPrior(2.0), sources=Sources.estimated(stack, sharing=0.0))
    assert em.total_degrees_of_freedom == 0.0
    model = GaussianModel(random_covariance(np.random.default_rng(0), 6), objects=em.objects)
    statistics = em.e_step(model)
    np.testing.assert_allclose(em.m_step(statistics).matrix, em.prior.scale_matrix(em.objects))
    assert em.q_function(model, statistics) == em.prior.log_density(model)
    np.testing.assert_array_equal(statistics.entropy, statistics.log_likelihood)


@pytest.mark.parametrize("scale", [None, np.diag([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) + 0.5])
def test_identical_sources_are_no_sources(scale):
    """The same numbers, bit for bit."""
    stack, prior = small_stack(), WishartPrior(0.1, scale)
    one = EM(stack, prior, [1.0, 2.0, 3.0])
    two = EM(stack, prior, sources=Sources.identical(one.names, [1.0, 2.0, 3.0]))
    model = one.initial_model()
    np.testing.assert_array_equal(two.initial_model().matrix, model.matrix)
    for _ in range(3):
        parts = [em.e_step(model) for em in (one, two)]
        np.testing.assert_array_equal(parts[0].second_moment, parts[1].second_moment)
        np.testing.assert_array_equal(parts[0].log_likelihood, parts[1].log_likelihood)
        np.testing.assert_array_equal(parts[0].completed, parts[1].completed)
        model = one.m_step(parts[0])


def test_an_adaptive_ascent_starts_from_the_priors_mode():
    stack = stacked(np.stack([np.eye(4) + 1.5] * 2), visible=[[1, 1, 1, 0], [0, 1, 1, 1]])
    em = EM(stack, WishartPrior(0.5), sources=Sources.estimated(stack))
    np.testing.assert_allclose(em.initial_model().matrix, np.eye(4) + 1.5)


def exact_level(em, model):
    """L in 60 digits, from what the EM keeps of the kernels: S0 and z."""
    mp, setting = mpmath, setting_of(em)
    scale = mp.matrix(setting.prior_scale.tolist())
    whole = mp.matrix(model.tolist())
    inverse = whole**-1
    total = mp.log(mp.det(whole)) + sum((inverse * scale)[i, i] for i in range(len(model)))
    total *= -mp.mpf(setting.strength) / 2
    for k, kernel in enumerate(part.kernel for part in em.source_kernels):
        n, v = len(kernel.v), kernel.v.tolist()
        if not n:
            continue
        s, d, nu, c = (
            mp.mpf(float(part[k]))
            for part in (setting.sharing, setting.scale, setting.degrees, setting.constant)
        )
        block = mp.matrix(kernel.moment.tolist())
        block += mp.mpf(float(em.source_kernels[k].off_diagonal)) * mp.ones(n, n)
        base = mp.matrix(n, n)
        for a in range(n):
            for b in range(n):
                base[a, b] = s * whole[v[a], v[b]] + (1 - s) * scale[v[a], v[b]]
        solved = base**-1
        q = solved * mp.ones(n, 1)
        t, r = sum(q), (q.T * block * q)[0]
        if mp.isnan(c):
            c = max(mp.mpf(0), r / t**2 - 1 / t)
        trace = sum((solved * block)[i, i] for i in range(n)) - c / (1 + c * t) * r
        log_det = mp.log(mp.det(base)) + mp.log(1 + c * t)
        total -= nu / 2 * (n * mp.log(2 * mp.pi * d) + log_det + trace)
    return total


@pytest.mark.parametrize("scores", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_the_rounding_of_the_likelihood_is_below_its_bound(seed, scores):
    """Also where M is close to singular in a direction that the constant fills.

    There tr G^-1 S and what the constant takes from it are far larger than their difference.
    """
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 6))
    root = rng.standard_normal((3, size, 2))
    kernels = root @ root.swapaxes(1, 2) + 10.0 ** rng.uniform(-1, 4, size=(3, 1, 1))
    visible = rng.random((3, size)) < (0.7 if scores else 1.0)
    visible[0] = True
    stack = stacked((kernels + kernels.swapaxes(1, 2)) / 2, visible=visible)
    sources = Sources.estimated(stack, sharing=[1.0, 1.0, rng.choice([0.5, 1.0])])
    em = EM(stack, WishartPrior(10.0 ** rng.uniform(-5, 0)), sources=sources)
    if scores:
        by_scores(em)
    # An orthogonal frame whose smallest variance lies mostly along the ones.
    frame, _ = np.linalg.qr(np.c_[np.ones(size) + 0.3 * rng.random(size), np.eye(size)[:, 1:]])
    variances = np.append(10.0 ** rng.uniform(-10, -4), rng.uniform(0.3, 3.0, size=size - 1))
    model = GaussianModel((lambda m: (m + m.T) / 2)((frame * variances) @ frame.T))
    statistics = em.e_step(model)
    with mpmath.workdps(60):
        exact = exact_level(em, model.matrix)
        error = abs(float(exact - mpmath.mpf(em.penalized_log_likelihood(model, statistics))))
    assert error <= em.rounding_bound(statistics)


def test_the_bound_covers_a_constant_that_hides_a_singular_model():
    """Found by a search: without the constant's terms the bound was a twentieth of the error."""
    kernels = np.ones((3, 3, 3)) * np.array([5.0e6, 4.5e3, 1.6e6])[:, None, None]
    stack = stacked(kernels, visible=[[1, 1, 1], [0, 1, 0], [0, 0, 1]])
    options = {"strength": 1.5e-7, "degrees_of_freedom": [1.9, 1.6, 3.0]}
    result = fit(stack, sharing=[1.0, 1.0, 0.9], tol=0, max_iter=30, **options)
    sources = Sources.estimated(
        stack, sharing=[1.0, 1.0, 0.9], degrees_of_freedom=options["degrees_of_freedom"]
    )
    em = EM(stack, WishartPrior(options["strength"]), sources=sources)
    by_scores(em)
    model = GaussianModel(result.model.matrix)
    statistics = em.e_step(model)
    with mpmath.workdps(60):
        exact = exact_level(em, model.matrix)
        error = abs(float(exact - mpmath.mpf(em.penalized_log_likelihood(model, statistics))))
    assert error <= em.rounding_bound(statistics)


def test_sources_of_another_kind_or_stack_are_refused():
    stack, prior = small_stack(), WishartPrior(1.0)
    for wrong in ("adaptive", 3, [1.0], {"scale": 1.0}):
        with pytest.raises(KernelError, match=r"sources: .* found; pass Sources.estimated"):
            EM(stack, prior, sources=wrong)
    fewer = Sources.estimated(stack.isel(kernel=[0, 1]))
    with pytest.raises(LabelError, match=r"sources: they are of kernels 'Q1', 'Q2'"):
        EM(stack, prior, sources=fewer)
    with pytest.raises(KernelError, match="degrees_of_freedom: the sources have theirs"):
        EM(stack, prior, 2.0, sources=Sources.estimated(stack))
