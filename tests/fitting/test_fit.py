"""The whole job: the loop, its stopping rule, its guard, and the stacks at the edges."""

import warnings

import numpy as np
import plain
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import PAPER, both_models, small_stack
from strategies import problems, random_covariance

from mkmc_prob import (
    EM,
    ConvergenceWarning,
    GaussianModel,
    IdentifiabilityWarning,
    IndefiniteKernelError,
    KernelError,
    MKMCWarning,
    MonotonicityError,
    WishartPrior,
    fit,
    stack_kernels,
)
from mkmc_prob.em.full import FullEM
from mkmc_prob.em.stopping import estimated_gain

# What rises, and what is returned


@settings(max_examples=40)
@given(problems())
@pytest.mark.filterwarnings("ignore::mkmc_prob.MKMCWarning")
def test_every_step_rises_and_the_result_agrees_with_itself(problem):
    nu = problem.degrees_of_freedom
    result = fit(
        problem.stack,
        prior=problem.prior,
        sources="identical",
        degrees_of_freedom=nu,
        method="em",
        tol=0,
        max_iter=12,
    )
    level = result.trace["penalized_log_likelihood"].values
    assert (np.diff(level) >= -result.trace["rounding_bound"].values[1:] * 2).all()
    assert len(level) == 13
    model = result.model.matrix
    expected = plain.penalized_log_likelihood(
        problem.stack.values, problem.visible, nu, problem.prior.strength, problem.scale, model
    )
    assert level[-1] == pytest.approx(expected, rel=1e-9, abs=1e-9)
    total = result.trace["log_likelihood"].sum("kernel") + result.trace["log_prior"]
    np.testing.assert_allclose(total, level, rtol=1e-9, atol=1e-9)
    again = plain.m_step(result.completed.values, nu, problem.prior.strength, problem.scale)
    np.testing.assert_allclose(model, again, rtol=1e-9, atol=1e-9)
    assert not result.completed.isnull().any()
    assert (result.trace["evaluations"].values == np.arange(1, 14)).all()


@both_models
def test_the_observed_stack_stays_as_it_was(model):
    stack = small_stack()
    before = stack.copy(deep=True)
    result = fit(stack, **model)
    assert stack.identical(before)
    assert np.array_equal(result.observed.values, before.values, equal_nan=True)
    seen = ~np.isnan(before.values)
    assert (result.completed.values[seen] == before.values[seen]).all()


@both_models
def test_the_same_call_gives_the_same_bits(model):
    one, two = (fit(small_stack(), **model) for _ in range(2))
    assert one.completed.identical(two.completed)
    assert one.trace.drop_vars("seconds").identical(two.trace.drop_vars("seconds"))


@pytest.mark.parametrize(("method", "steps", "rtol"), [("em", 30, 1e-9), ("geodesic", 60, 1e-6)])
@both_models
def test_labels_and_order_do_not_matter(model, method, steps, rtol):
    stack = small_stack()
    order = [3, 1, 5, 0, 2, 4]
    shuffled = stack.isel(object=order, object_bis=order, kernel=[2, 0, 1])
    options = {"method": method, "tol": 0, "max_iter": steps, **model}
    one, two = (fit(s, **options) for s in (stack, shuffled))
    aligned = two.completed.sel(
        kernel=stack["kernel"], object=stack["object"], object_bis=stack["object"].values
    )
    np.testing.assert_allclose(one.completed.values, aligned.values, rtol=rtol)


def test_the_fit_is_the_maximum_scipy_finds():
    """Against a general-purpose optimizer on the Cholesky factor, from another start."""
    from scipy.optimize import minimize

    stack = small_stack(size=4)
    kernels, visible = stack.values, ~np.isnan(np.diagonal(stack.values, axis1=1, axis2=2))
    lower = np.tril_indices(4)

    def negative(theta):
        factor = np.zeros((4, 4))
        factor[lower] = theta
        model = factor @ factor.T + 1e-12 * np.eye(4)
        return -plain.penalized_log_likelihood(kernels, visible, np.ones(3), 0.5, np.eye(4), model)

    found = minimize(negative, np.eye(4)[lower], method="BFGS", options={"gtol": 1e-7})
    result = fit(stack, strength=0.5, sources="identical", tol=1e-9)
    assert result.penalized_log_likelihood == pytest.approx(-found.fun, abs=1e-7)


# The stopping rule


@pytest.mark.parametrize("rate", [0.5, 0.9, 0.97])
def test_the_gain_to_come_of_a_geometric_trace(rate):
    """Exact but for p / (p - 1), p the number of e-foldings so far."""
    trace = [-(rate**t) for t in range(301)]
    folds = -300 * np.log(rate)
    assert 1 <= estimated_gain(trace) / rate**300 < folds / (folds - 1) * 1.1


@pytest.mark.parametrize("power", [1.5, 2.0, 3.0])
def test_the_gain_to_come_of_a_trace_without_a_rate(power):
    """Increments like t^-p, which Aitken's extrapolation alone underestimates by (p - 1) / p."""
    trace = [-((t + 1.0) ** (1 - power)) for t in range(2000)]
    assert estimated_gain(trace) == pytest.approx(-trace[-1], rel=0.1)


def test_small_steps_are_not_convergence():
    """At a rate near 1 the last step is far below `tol`, the gain to come is not."""
    trace = [-(0.9999**t) for t in range(1000)]
    assert trace[-1] - trace[-2] < 1e-4
    assert estimated_gain(trace) > 0.9


def test_the_gain_to_come_before_anything_is_known():
    assert estimated_gain([1.0]) == np.inf
    assert estimated_gain([1.0, 2.0]) == np.inf
    assert estimated_gain([1.0, 2.0, 4.0]) == np.inf  # the increments grow
    assert estimated_gain([1.0, 2.0, 2.0]) == 0.0


@pytest.mark.parametrize(
    ("sources", "strength", "tol"),
    [
        *(("identical", strength, tol) for strength in (0.01, 0.1, 1.0) for tol in (1e-2, 1e-4)),
        ("adaptive", 0.01, 1e-4),
        ("adaptive", 1.0, 1e-2),
    ],
)
def test_tol_is_the_gain_still_to_come(sources, strength, tol):
    stack, model = small_stack(seed=3, missing=0.5), {"sources": sources, "strength": strength}
    result = fit(stack, **model, tol=tol)
    best = fit(stack, **model, tol=0, max_iter=200).penalized_log_likelihood  # 100 suffice
    assert result.converged
    missing = best - result.penalized_log_likelihood
    # The estimate follows the slowest component seen so far: right within a small factor.
    assert missing < 3 * tol


@both_models
def test_tol_zero_takes_exactly_max_iter_steps_and_does_not_warn(model):
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        result = fit(small_stack(), **model, tol=0, max_iter=7)
    assert result.n_iter == 7
    assert not result.converged


def test_not_converged_is_a_warning():
    with pytest.warns(ConvergenceWarning, match=r"not converged in 2 iterations.*Raise max_iter"):
        result = fit(small_stack(), tol=1e-9, max_iter=2)
    assert not result.converged
    with pytest.warns(ConvergenceWarning, match='Use method="geodesic"'):
        fit(small_stack(), tol=1e-9, max_iter=2, method="em")
    with pytest.warns(ConvergenceWarning, match="unknown gain"):
        fit(small_stack(), max_iter=1)


# The guard


@both_models
def test_a_fall_is_an_error_with_iteration_and_size(monkeypatch, model):
    original = FullEM.m_step

    def spoiled(self, statistics):
        model = original(self, statistics)
        spoiled.calls += 1
        if spoiled.calls < 3:
            return model
        return GaussianModel.of(model.matrix * 1.5, model.objects)

    spoiled.calls = 0
    monkeypatch.setattr(FullEM, "m_step", spoiled)
    with pytest.raises(MonotonicityError, match=r"fell by [0-9.e+-]+ nats in iteration 3 "):
        fit(small_stack(), **model, method="em")


def test_a_level_that_is_no_number_is_an_error(monkeypatch):
    monkeypatch.setattr(EM, "penalized_log_likelihood", lambda *_: float("nan"))
    with pytest.raises(MonotonicityError):
        fit(small_stack())


@pytest.mark.parametrize("sources", ["adaptive", "identical"])
def test_a_strength_below_what_double_precision_carries_is_named(sources):
    stack = stack_kernels(np.ones((1, 3, 3)), objects=["a", "b", "c"])
    with pytest.raises(IndefiniteKernelError, match=r"stops at object 'b'.*raise the strength"):
        fit(stack, strength=1e-18, sources=sources)


@pytest.mark.parametrize("strength", [0.1, 1.0, 10.0, 100.0])
@pytest.mark.parametrize("size", [1, 2])
def test_rounding_at_a_fixed_point_is_no_fall(size, strength):
    """Long after convergence, at scales far from the prior's, L moves by its last digits only."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        features = rng.standard_normal((3, size, 4))
        visible = rng.random((3, size)) < 0.6
        visible[0] = True
        kernels = features @ features.transpose(0, 2, 1) / 4
        kernels *= 1e6 / np.diagonal(kernels, axis1=1, axis2=2).mean(axis=1)[:, None, None]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MKMCWarning)
            stack, paper = stack_kernels(kernels, visible=visible), {"sources": "identical"}
            fit(stack, **paper, strength=strength, tol=0, max_iter=60)


@pytest.mark.parametrize("weight", [10**400, 1e308, 1e-200, np.timedelta64(1, "s")])
def test_weights_that_overflow_are_refused(weight):
    with pytest.raises(KernelError, match="strength"):
        fit(small_stack(), strength=weight)
    with pytest.raises(KernelError, match="degrees_of_freedom"):
        fit(small_stack(), degrees_of_freedom=weight)


@both_models
def test_a_model_too_small_to_compute_with_is_refused(model):
    with pytest.raises(IndefiniteKernelError, match="variance of object 'p0' is 1e-200"):
        fit(small_stack(), **model, initial=np.diag([1e-200, 1.0, 1.0, 1.0, 1.0, 1.0]))


@pytest.mark.parametrize("size", [1e-6, 1e6])
@both_models
def test_the_likelihood_rises_from_a_start_of_another_scale(model, size):
    result = fit(small_stack(), **model, initial=np.eye(6) * size)
    assert (np.diff(result.trace["penalized_log_likelihood"]) > 0).all()
    assert result.converged


# Stacks at the edges


def test_nothing_missing_is_done_at_once():
    rng = np.random.default_rng(0)
    kernels = np.array([random_covariance(rng, 4) for _ in range(2)])
    result = fit(stack_kernels(kernels), strength=0.5, sources="identical")
    assert result.converged
    np.testing.assert_allclose(result.model.matrix, (kernels.sum(0) + 0.5 * np.eye(4)) / 2.5)
    assert (result.completed.values == (kernels + kernels.transpose(0, 2, 1)) / 2).all()


def test_one_kernel_of_one_object():
    result = fit(stack_kernels(np.array([[[3.0]]])), strength=1.0, sources="identical")
    assert result.model.matrix.tolist() == [[2.0]]
    assert result.converged


def test_one_visible_object():
    """Closed form: the lone object's variance is all that a kernel says."""
    kernels = np.array([[[2.0, 0.8], [0.8, 1.0]], [[5.0, 0.0], [0.0, 0.0]]])
    stack = stack_kernels(kernels, visible=[[1, 1], [1, 0]])
    result = fit(stack, strength=0.5, sources="identical", tol=1e-12)
    model = result.model.matrix
    slope = model[0, 1] / model[0, 0]
    np.testing.assert_allclose(result.completed[1, 0, 1], 5.0 * slope, rtol=1e-5)
    spread = model[1, 1] - slope * model[0, 1]
    np.testing.assert_allclose(result.completed[1, 1, 1], spread + 5.0 * slope**2, rtol=1e-5)


@pytest.mark.parametrize("sources", ["adaptive", "identical"])
def test_a_kernel_that_shows_nothing_is_completed_by_the_model(sources):
    kernels = np.array([[[2.0, 1.0], [1.0, 2.0]], [[1.0, 0.0], [0.0, 1.0]]])
    stack = stack_kernels(kernels, visible=[[1, 1], [0, 0]], names=["a", "b"])
    with pytest.warns(IdentifiabilityWarning, match=r"kernel 'b' shows no object"):
        result = fit(stack, strength=0.5, sources=sources, tol=1e-12)
    np.testing.assert_allclose(result.completed.sel(kernel="b"), result.model.matrix, rtol=1e-5)
    # At the maximum it is as if the kernel were not there.
    alone = fit(stack.sel(kernel=["a"]), strength=0.5, sources=sources)
    np.testing.assert_allclose(result.model.matrix, alone.model.matrix, rtol=1e-5)


@pytest.mark.parametrize("identity", [True, False])
def test_an_object_missing_everywhere_is_filled_in_from_the_prior(identity):
    rng = np.random.default_rng(5)
    kernels = np.array([random_covariance(rng, 5) for _ in range(2)])
    visible = np.array([[1, 1, 0, 1, 0], [1, 1, 0, 0, 1]])
    stack = stack_kernels(kernels, visible=visible, objects=list("abcde"))
    scale = None if identity else random_covariance(rng, 5)
    prior = WishartPrior(0.7, scale)
    with pytest.warns(IdentifiabilityWarning, match="object 'c' is missing in every kernel"):
        result = fit(stack, prior=prior, sources="identical", tol=1e-11)
    full = np.eye(5) if identity else scale
    model = result.model.matrix
    # It is the limit of plain EM over all objects, which takes hundreds of steps.
    em = EM(stack, prior)
    slow = em.initial_model()
    for _ in range(3000):
        slow = em.m_step(em.e_step(slow))
    np.testing.assert_allclose(model, slow.matrix, atol=1e-5)
    np.testing.assert_allclose(result.completed, em.complete(slow), atol=1e-5)
    expected = plain.penalized_log_likelihood(
        stack.values, visible.astype(bool), np.ones(2), 0.7, full, model
    )
    assert result.penalized_log_likelihood == pytest.approx(expected, rel=1e-10)
    # completed is the E-step and model its M-step, the unseen object included.
    again = plain.m_step(result.completed.values, np.ones(2), 0.7, full)
    np.testing.assert_allclose(model, again, atol=1e-12)
    total = result.trace["log_likelihood"].sum("kernel") + result.trace["log_prior"]
    np.testing.assert_allclose(total, result.trace["penalized_log_likelihood"], rtol=1e-12)


def test_groups_that_no_kernel_ties_together_are_named():
    kernels = np.tile(np.eye(4) + 0.5, (2, 1, 1))
    stack = stack_kernels(
        kernels, visible=[[1, 1, 0, 0], [0, 0, 1, 1]], objects=["a", "b", "c", "d"]
    )
    with pytest.warns(IdentifiabilityWarning, match=r"2 groups.*\('a', 'b'\); \('c', 'd'\)"):
        result = fit(stack, **PAPER)
    assert np.abs(result.model.matrix[:2, 2:]).max() == 0


@both_models
def test_nothing_visible_anywhere_is_refused(model):
    stack = stack_kernels(np.eye(2)[None], visible=[[0, 0]], names=["a"])
    with pytest.raises(KernelError, match=r"no object is visible in any kernel \('a'\)"):
        fit(stack, **model)


def test_scales_far_apart_are_warned_about_in_the_papers_model():
    stack = stack_kernels(np.stack([np.eye(2)] * 2), names=["a", "b"])
    stack = stack * xr.DataArray([1.0, 100.0], dims="kernel")
    with pytest.warns(
        MKMCWarning, match=r"'b' is 100, of 'a' 1\b.*sources=\"adaptive\".*normalize"
    ):
        fit(stack, **PAPER)
    fit(stack)  # scales are no matter there: a warning would be an error


@pytest.mark.parametrize("seen", [[[1, 1, 1], [1, 1, 1]], [[1, 1, 0], [0, 1, 1]]])
def test_a_constant_that_every_kernel_shares_is_warned_about_in_the_papers_model(seen):
    kernels = np.stack([np.eye(3) + 1.5, np.eye(3) + 2.5])
    stack = stack_kernels(kernels, visible=seen, names=["a", "b"])
    message = r"entries of every kernel share a constant: .* at least 1\.5 times .*\"adaptive\""
    with pytest.warns(MKMCWarning, match=message):
        fit(stack, **PAPER)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", IdentifiabilityWarning)  # two objects never seen together
        fit(stack)
        fit(stack - xr.DataArray([0.6, 0.0], dims="kernel"), **PAPER)  # 'b' alone has one


def test_an_indefinite_kernel_is_refused_with_its_eigenvalue():
    stack = stack_kernels({"good": np.eye(2), "bad": np.array([[1.0, 2.0], [2.0, 1.0]])})
    with pytest.raises(IndefiniteKernelError, match=r"'bad'.*-1\b.*repair_spectrum"):
        fit(stack)


@both_models
def test_a_rank_deficient_float32_kernel_is_fine(model):
    features = np.random.default_rng(0).standard_normal((40, 3)).astype(np.float32)
    stack = stack_kernels({"x": features @ features.T})
    assert fit(stack, **model).converged


@pytest.mark.parametrize(
    ("method", "close"),
    [("em", 1e-12), ("geodesic", 1e-7)],  # L, flat at its maximum, tells models to sqrt(eps)
)
@both_models
def test_degrees_of_freedom_weigh_the_kernels(model, method, close):
    """A kernel that counts twice is the same kernel given twice."""
    rng = np.random.default_rng(8)
    a, b = random_covariance(rng, 4), random_covariance(rng, 4)
    seen_a, seen_b = [1, 1, 1, 0], [0, 1, 1, 1]
    options = {"method": method, "tol": 0, "max_iter": 20, **model}
    weighted = fit(
        stack_kernels(np.array([a, b]), visible=[seen_a, seen_b], names=["a", "b"]),
        degrees_of_freedom={"a": 2.0, "b": 1.0},
        **options,
    )
    repeated = fit(stack_kernels(np.array([a, a, b]), visible=[seen_a, seen_a, seen_b]), **options)
    np.testing.assert_allclose(weighted.model.matrix, repeated.model.matrix, rtol=close)
    np.testing.assert_allclose(
        weighted.penalized_log_likelihood, repeated.penalized_log_likelihood, rtol=1e-12
    )


@settings(max_examples=20)
@given(problems(largest=4, kernels=3), st.floats(-120, 120))
@pytest.mark.filterwarnings("ignore::mkmc_prob.MKMCWarning")
def test_the_whole_problem_scales(problem, exponent):
    """Kernels and prior scale multiplied by c: so is the model, at any size of c."""
    factor = float(2.0 ** int(exponent))
    options = {"sources": "identical", "tol": 0, "max_iter": 5}
    one = fit(problem.stack, prior=problem.prior, **options)
    scaled = WishartPrior(problem.prior.strength, problem.scale * factor)
    two = fit(problem.stack * factor, prior=scaled, **options)
    np.testing.assert_allclose(two.model.matrix / factor, one.model.matrix, rtol=1e-9, atol=1e-12)
