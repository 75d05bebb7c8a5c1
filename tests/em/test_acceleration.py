"""Accelerated methods climb the same likelihood, in fewer evaluations, and never fall."""

import numpy as np
import plain
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import PAPER, both_models, digits_kernels, small_stack
from strategies import problems, random_covariance

from mkmc_prob import EM, GaussianModel, IndefiniteKernelError, WishartPrior, fit, stack_kernels
from mkmc_prob.em.ascent import Ascent
from mkmc_prob.em.geodesic import Geodesic
from mkmc_prob.em.lbfgs import Pair, two_loop
from mkmc_prob.em.methods import OF_FULL
from mkmc_prob.em.state import EMSteps, State
from mkmc_prob.em.stopping import estimated_gain, recent_rise
from mkmc_prob.linalg.symmetric import Triangle

FAST = ["geodesic", "squarem"]


@pytest.mark.parametrize("method", FAST)
@settings(max_examples=30)
@given(problems())
@pytest.mark.filterwarnings("ignore::mkmc_prob.MKMCWarning")
def test_every_step_rises_and_the_last_is_an_em_step(method, problem):
    nu = problem.degrees_of_freedom
    result = fit(
        problem.stack,
        prior=problem.prior,
        sources="identical",
        degrees_of_freedom=nu,
        tol=0,
        max_iter=15,
        method=method,
    )
    assert result.n_iter == 15
    trace = result.trace
    rises = np.diff(trace["penalized_log_likelihood"])
    assert (rises >= -2 * trace["rounding_bound"].values[1:]).all()
    assert (np.diff(trace["evaluations"]) >= 1).all()
    strength, scale = problem.prior.strength, problem.scale
    model = result.model.matrix
    again = plain.m_step(result.completed.values, nu, strength, scale)
    np.testing.assert_allclose(model, again, rtol=1e-8, atol=1e-8)
    expected = plain.penalized_log_likelihood(
        problem.stack.values, problem.visible, nu, strength, scale, model
    )
    assert result.penalized_log_likelihood == pytest.approx(expected, rel=1e-9, abs=1e-9)


@settings(max_examples=30)
@given(problems(largest=5), st.integers(0, 2**32 - 1))
def test_the_gradient_is_the_slope_along_the_geodesic(problem, seed):
    """By finite differences of the plainly written likelihood."""
    rng = np.random.default_rng(seed)
    size = problem.stack.sizes["object"]
    em = EM(problem.stack, problem.prior, problem.degrees_of_freedom)
    model = GaussianModel(random_covariance(rng, size))
    geodesic = Geodesic(em)
    state = State(0, model).evaluated(em)
    gradient = geodesic._gradient(state)
    direction = rng.standard_normal(len(gradient))
    weight = 0.5 * (problem.prior.strength + problem.degrees_of_freedom.sum())

    def level(length):
        moved = geodesic._along(state, length * direction)
        return plain.penalized_log_likelihood(
            problem.stack.values,
            problem.visible,
            problem.degrees_of_freedom,
            problem.prior.strength,
            problem.scale,
            moved.matrix,
        )

    step = 1e-5
    slope = (level(step) - level(-step)) / (2 * step)
    assert weight * gradient @ direction == pytest.approx(slope, rel=1e-5, abs=1e-4)


@settings(max_examples=20)
@given(st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_a_symmetric_matrix_as_a_vector(size, seed):
    rng = np.random.default_rng(seed)
    one, two = (random_covariance(rng, size) for _ in range(2))
    triangle = Triangle(size)
    vector = triangle.vector(one.copy(order="F"))
    assert vector @ triangle.vector(two.copy(order="F")) == pytest.approx(np.sum(one * two))
    x = triangle.matrix(vector)
    np.testing.assert_array_equal(x, np.tril(x))
    np.testing.assert_allclose(x + x.T, one)


def test_two_loops_are_the_inverse_hessian_written_out():
    """The matrix of the BFGS update, product by product (Nocedal and Wright 2006, eq. 6.17)."""
    rng = np.random.default_rng(0)
    hessian = random_covariance(rng, 6)
    moves = [rng.standard_normal(6) for _ in range(3)]
    pairs = tuple(Pair.of(moved, hessian @ moved) for moved in moves)
    lengths = sum(change @ change for _, change, _ in pairs)
    inverse = np.eye(6) * sum(product for *_, product in pairs) / lengths
    for moved, change, product in pairs:
        left = np.eye(6) - np.outer(moved, change) / product
        inverse = left @ inverse @ left.T + np.outer(moved, moved) / product
    gradient = rng.standard_normal(6)
    before = gradient.copy()
    np.testing.assert_allclose(two_loop(gradient, pairs), inverse @ gradient)
    np.testing.assert_array_equal(gradient, before)


def test_moving_keeps_the_factor_and_the_direction():
    model = GaussianModel(random_covariance(np.random.default_rng(0), 5))
    em = EM(stack_kernels(np.eye(5)[None]), WishartPrior(1.0))
    direction = np.random.default_rng(1).standard_normal(15)
    before = direction.copy()
    moved = Geodesic(em)._along(State(0, model), direction)
    np.testing.assert_array_equal(direction, before)
    np.testing.assert_allclose(moved.cholesky, np.linalg.cholesky(moved.matrix), rtol=1e-10)
    assert (moved.matrix == moved.matrix.T).all()


@pytest.mark.parametrize("method", FAST)
@pytest.mark.parametrize(
    ("strength", "sources"), [(0.1, "identical"), (1.0, "identical"), (1.0, "adaptive")]
)
def test_all_methods_end_in_the_same_optimum(method, strength, sources):
    stack, model = small_stack(size=8), {"strength": strength, "sources": sources}
    slow = fit(stack, **model, tol=0, max_iter=400, method="em")
    fast = fit(stack, **model, tol=0, max_iter=150, method=method)
    assert fast.penalized_log_likelihood == pytest.approx(slow.penalized_log_likelihood, abs=1e-6)
    np.testing.assert_allclose(fast.completed, slow.completed, atol=1e-4)


@pytest.mark.parametrize(
    ("pattern", "strength", "most"),
    # Plain EM needs 57, 89, 144, 599, 1133, 4550, 15591 and more than 20000 until within 0.005
    # nats of its maximum: as many are allowed where that is at most 100, else a sixth.
    [
        ("visible_10", 0.1, 57),
        ("visible_30", 0.1, 89),
        ("visible_60", 0.1, 144 / 6),
        ("visible_10", 0.01, 599 / 6),
        ("visible_30", 0.01, 1133 / 6),
        ("visible_60", 0.01, 4550 / 6),
        ("visible_10", 0.001, 15591 / 6),
        ("visible_30", 0.001, 20000 / 6),
        ("visible_60", 0.001, 20000 / 6),
    ],
)
def test_the_geodesic_method_needs_far_fewer_evaluations_than_em(pattern, strength, most):
    kernels, patterns = digits_kernels()
    stack = stack_kernels(kernels, visible=patterns[pattern])
    paper = {"strength": strength, "sources": "identical"}
    trace = fit(stack, **paper, method="geodesic", tol=1e-3).trace
    level = trace["penalized_log_likelihood"].values
    needed = trace["evaluations"].values[np.argmax(level >= level[-1] - 0.005)]
    assert needed <= most


@pytest.mark.parametrize("method", FAST)
@both_models
def test_the_same_call_gives_the_same_bits(model, method):
    one, two = (fit(small_stack(), **model, method=method) for _ in range(2))
    assert one.identical(two)


@pytest.mark.parametrize("method", FAST)
@pytest.mark.filterwarnings("ignore::mkmc_prob.MKMCWarning")
def test_stacks_at_the_edges(method):
    rng = np.random.default_rng(0)
    options = {"method": method, "sources": "identical"}
    one = fit(stack_kernels(np.array([[[3.0]]])), strength=1.0, **options, tol=0, max_iter=4)
    np.testing.assert_allclose(one.model.matrix, [[2.0]])
    kernels = np.array([random_covariance(rng, 4) for _ in range(2)])
    whole = fit(stack_kernels(kernels), strength=0.5, **options, tol=0, max_iter=4)
    np.testing.assert_allclose(whole.model.matrix, (kernels.sum(0) + 0.5 * np.eye(4)) / 2.5)
    visible = [[1, 1, 0, 0], [0, 1, 0, 1]]
    unseen = fit(stack_kernels(kernels, visible=visible), **options, prior=WishartPrior(0.5))
    assert not unseen.completed.isnull().any()
    singular = fit(stack_kernels(np.ones((1, 4, 4))), **options, strength=1e-6)
    assert (np.diff(singular.trace["penalized_log_likelihood"]) >= -1e-9).all()


def test_the_recent_rise_looks_at_two_quarters_of_the_steps():
    trace = (-1 / np.arange(1.0, 102.0)).tolist()
    recent, earlier = 1 / 76 - 1 / 101, 1 / 51 - 1 / 76
    assert recent_rise(trace) == pytest.approx(max(recent, recent**2 / (earlier - recent)))
    assert recent_rise(trace[:10]) == np.inf
    assert recent_rise(trace[:11]) == pytest.approx(1 / 6 - 1 / 11)
    assert recent_rise([*trace, *trace[-1:] * 60]) == 0.0
    assert recent_rise(np.arange(50.0).tolist()) == np.inf


@pytest.mark.parametrize("estimate", [recent_rise, estimated_gain])
@pytest.mark.parametrize("share", [0.3, 0.03, 0.01])
def test_a_slow_method_with_short_steps_does_not_pass_for_converged(estimate, share):
    """Each step goes a small part of EM's: it rises by little from the first."""

    class Slow(EMSteps):
        def step(self, state):
            here, there = state.model.matrix, self.em.m_step(state.statistics).matrix
            model = GaussianModel.of(here + share * (there - here), self.em.objects)
            return State(state.number + 1, model, state.evaluations)

        def gain_to_come(self, trace):
            return estimate(trace)

    stack, tol = small_stack(size=8), 0.05
    best = fit(stack, **PAPER, tol=1e-8).penalized_log_likelihood
    em = EM(stack, WishartPrior(0.1))
    slow = Ascent(Slow(em), em.initial_model(), tol=tol)
    slow.run(max_iter=20_000, progress=False)
    assert slow.converged
    assert best - slow.records[-1].penalized_log_likelihood <= 2 * tol


@pytest.mark.parametrize("scale", [1e20, 1e100])
def test_a_rise_is_no_fall_even_beyond_double_precision(scale):
    """Kernels so large beside the prior that the precision, and with it its trace, is rounding."""
    for seed in range(15):
        rng = np.random.default_rng(seed)
        kernels = scale * np.array([random_covariance(rng, 4) for _ in range(2)])
        stack = stack_kernels(kernels, visible=[[1, 1, 1, 0], [0, 1, 1, 1]])
        try:
            trace = fit(stack, **PAPER, tol=0, max_iter=60).trace
        except IndefiniteKernelError:
            continue  # said by name
        assert (trace["rounding_bound"] > 0).all()


@pytest.mark.parametrize("method", sorted(OF_FULL))
@pytest.mark.parametrize("scale", [1e-2, 1e-3, 1e-6, 1e-12])
@both_models
def test_a_bad_start_does_not_pass_for_convergence(model, method, scale):
    """The first step gains thousands of nats: beside it the next ones look as if they were done."""
    rng = np.random.default_rng(1)
    features = rng.standard_normal((3, 20, 10))
    visible = rng.random((3, 20)) < 0.6
    visible[0] |= ~visible.any(axis=0)
    stack = stack_kernels(features @ features.transpose(0, 2, 1) / 10, visible=visible)
    best = fit(stack, **model, tol=1e-8).penalized_log_likelihood
    result = fit(stack, **model, method=method, initial=scale * np.eye(20))
    assert result.converged
    assert best - result.penalized_log_likelihood < 0.01


@pytest.mark.parametrize("strength", [1e-9, 1e-12, 1e-14])
@pytest.mark.parametrize("scale", [1e3, 1e6, 1e9])
@pytest.mark.parametrize("sources", ["adaptive", "identical"])
@pytest.mark.filterwarnings("ignore::mkmc_prob.MKMCWarning")
def test_near_to_singular_models_are_refused_by_name_or_fitted(sources, strength, scale):
    """Duplicated objects: B B' can lose what the factor B still has, and L with it."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        kernels = scale * np.array([random_covariance(rng, 6) for _ in range(2)])
        kernels[:, 0, :] = kernels[:, 1, :]
        kernels[:, :, 0] = kernels[:, :, 1]
        stack = stack_kernels(kernels, visible=rng.random((2, 6)) >= 0.4)
        try:
            trace = fit(stack, strength=strength, sources=sources).trace
        except IndefiniteKernelError:
            continue
        assert (trace["rounding_bound"] > 0).all()
