"""The rate of EM against brute force, and against what R's norm2 reports."""

import dataclasses

import numpy as np
import plain
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import PAPER, both_models, norm2_problem, small_stack
from strategies import problems, random_covariance

from mkmc_prob import (
    EM,
    ConvergenceWarning,
    GaussianModel,
    IdentifiabilityWarning,
    KernelError,
    WishartPrior,
    fit,
    missing_information,
    stack_kernels,
)
from mkmc_prob.fitting import information
from mkmc_prob.fitting.information import EMDerivative
from mkmc_prob.fitting.solve import solve


def em_map(problem, model):
    completed = plain.e_step(problem.stack.values, problem.visible, model)
    return plain.m_step(
        completed, problem.degrees_of_freedom, problem.prior.strength, problem.scale
    )


@settings(max_examples=40)
@given(problems(largest=5), st.integers(0, 2**32 - 1))
def test_the_derivative_is_that_of_the_em_map(problem, seed):
    """By central differences of the plainly written map."""
    rng = np.random.default_rng(seed)
    size = problem.stack.sizes["object"]
    em = EM(problem.stack, problem.prior, problem.degrees_of_freedom)
    model = GaussianModel(random_covariance(rng, size))
    derivative = EMDerivative(em, model.cholesky)
    change = rng.standard_normal((size, size))
    change += change.T
    change /= np.linalg.norm(change)
    vector = derivative.triangle.vector(change.copy(order="F"))
    half = derivative.triangle.matrix(derivative(vector))
    step = 1e-5 * model.cholesky @ change @ model.cholesky.T
    ahead, back = (em_map(problem, model.matrix + sign * step) for sign in (1, -1))
    inverse = np.linalg.inv(model.cholesky)
    expected = inverse @ (ahead - back) @ inverse.T / 2e-5
    np.testing.assert_allclose(half + half.T, expected, rtol=1e-4, atol=1e-6)


def brute_force_rate(kernels, model, strength, nu):
    """The largest eigenvalue of the Jacobian of the map on the entries of M, by differences."""
    size = len(model)
    visible = ~np.isnan(np.diagonal(kernels, axis1=1, axis2=2))
    rows, columns = np.tril_indices(size)
    jacobian = np.empty((len(rows), len(rows)))
    for j, (a, b) in enumerate(zip(rows, columns, strict=True)):
        step = np.zeros((size, size))
        step[a, b] = step[b, a] = 1e-6
        ahead, back = (
            plain.m_step(
                plain.e_step(kernels, visible, model + sign * step),
                nu,
                strength,
                np.eye(size),
            )
            for sign in (1, -1)
        )
        jacobian[:, j] = ((ahead - back) / 2e-6)[rows, columns]
    return np.linalg.eigvals(jacobian).real.max()


@pytest.mark.parametrize("size", [5, 13])  # written out, and by Lanczos
@pytest.mark.parametrize("strength", [0.05, 1.0])
def test_the_rate_is_that_of_brute_force(size, strength):
    stack = small_stack(size=size)
    paper = {"strength": strength, "sources": "identical"}
    result = fit(stack, **paper, tol=1e-12, max_iter=3000)
    found = missing_information(result)
    rate = brute_force_rate(stack.values, result.model.matrix, strength, np.ones(3))
    assert 1 - float(found["rate"]) == pytest.approx(1 - rate, rel=0.02)
    assert found["is_maximum"]
    assert float(found["share"].sum()) == pytest.approx(1.0)
    # EM's own increments shrink by the square of the rate.
    direction = found["direction"].values
    near = GaussianModel(result.model.matrix + 1e-4 * direction, objects=stack["object"].values)
    levels = fit(stack, **paper, method="em", tol=0, max_iter=6, initial=near).trace
    gains = np.diff(levels["penalized_log_likelihood"])
    np.testing.assert_allclose(gains[1:4] / gains[:3], rate**2, rtol=0.05)


def test_norm2_reports_the_same_rate():
    stack, problem = norm2_problem()
    paper = {"strength": problem["strength"], "sources": "identical"}
    result = fit(stack, **paper, tol=1e-12, max_iter=2000)
    worst = problem["worst_fraction_of_missing_information"]
    rate = float(missing_information(result)["rate"])
    assert 1 - rate == pytest.approx(1 - worst, rel=1e-3)


def test_the_curvature_is_that_of_the_log_likelihood():
    """By second differences of L along the slowest direction."""
    stack = small_stack(size=6)
    result = fit(stack, strength=0.2, sources="identical", tol=1e-13, max_iter=5000)
    found = missing_information(result)
    step = 1e-3 * found["direction"].values
    seen = ~np.isnan(np.diagonal(stack.values, axis1=1, axis2=2))
    ahead, here, back = (
        plain.penalized_log_likelihood(
            stack.values, seen, np.ones(3), 0.2, np.eye(6), result.model.matrix + sign * step
        )
        for sign in (1, 0, -1)
    )
    # The direction has length 1 as a matrix; the curvature is per length in the frame B.
    whitened = np.linalg.inv(result.model.cholesky) @ step
    whitened = np.linalg.inv(result.model.cholesky) @ whitened.T
    length = np.linalg.norm(whitened)
    assert (2 * here - ahead - back) / length**2 == pytest.approx(
        float(found["curvature"]), rel=1e-3
    )


@pytest.mark.parametrize("method", ["geodesic", "em", "squarem"])
@pytest.mark.parametrize("tol", [1e-1, 1e-3])
def test_what_is_still_to_come_is_below_what_the_curvature_says(method, tol):
    stack = small_stack(size=6)
    seen = ~np.isnan(np.diagonal(stack.values, axis1=1, axis2=2))
    paper = {"strength": 0.02, "sources": "identical"}
    highest = fit(stack, **paper, tol=1e-13, max_iter=5000).model.matrix
    result = fit(stack, **paper, tol=tol, method=method)
    level, best = (
        plain.penalized_log_likelihood(stack.values, seen, np.ones(3), 0.02, np.eye(6), model)
        for model in (result.model.matrix, highest)
    )
    to_come = float(missing_information(result)["gain_to_come"])
    assert 0 <= best - level <= 1.2 * to_come
    assert to_come < 10 * tol


def overlapping_stack():
    """Three kernels over six objects; only the last shows the object 'f'."""
    rng = np.random.default_rng(4)
    kernels = np.array([random_covariance(rng, 6) for _ in range(3)])
    visible = [[1, 1, 1, 1, 0, 0], [0, 1, 1, 1, 1, 0], [1, 0, 1, 0, 1, 1]]
    return stack_kernels(kernels, visible=visible, objects=list("abcdef"), names=["x", "y", "z"])


@pytest.mark.parametrize("strength", [0.1, 1.0])
@pytest.mark.parametrize("method", ["geodesic", "em"])
def test_without_each_kernel_the_numbers_are_those_of_a_fit_without_it(strength, method):
    """By plain EM over the objects that the other kernels show, and by differences of its map."""
    stack = overlapping_stack()
    nu = np.array([1.0, 0.5, 2.0])
    paper = {"strength": strength, "sources": "identical", "degrees_of_freedom": nu}
    result = fit(stack, **paper, tol=1e-11, max_iter=20_000, method=method)
    found = missing_information(result, without_each_kernel=True)
    assert found["unseen_without"].values.tolist() == [0, 0, 1]
    for k, name in enumerate("xyz"):
        rest = [i for i in range(3) if i != k]
        values = stack.values[rest]
        seen = ~np.isnan(np.diagonal(values, axis1=1, axis2=2))
        there = seen.any(axis=0)
        values, seen = values[:, there][:, :, there], seen[:, there]
        size = int(there.sum())
        model = result.model.matrix[np.ix_(there, there)]
        before = model
        for _ in range(1500):
            model = plain.m_step(
                plain.e_step(values, seen, model), nu[rest], strength, np.eye(size)
            )
        rate = brute_force_rate(values, model, strength, nu[rest])
        own = found.sel(kernel=name)
        assert 1 - own["rate_without"] == pytest.approx(1 - rate, rel=0.02)
        curvature = 0.5 * (strength + nu[rest].sum()) * (1 - rate)
        assert own["curvature_without"] == pytest.approx(curvature, rel=0.02)
        change = np.linalg.norm(model - before) / np.linalg.norm(before)
        assert own["change_without"] == pytest.approx(change, rel=1e-3)


@pytest.mark.parametrize("sources", ["adaptive", "identical"])
def test_a_prior_with_a_scale_and_an_object_that_only_one_kernel_shows(sources):
    stack = overlapping_stack()
    prior = WishartPrior(0.5, random_covariance(np.random.default_rng(1), 6))
    result = fit(stack, prior=prior, sources=sources, tol=1e-9)
    found = missing_information(result, without_each_kernel=True)
    rest = stack.sel(kernel=["x", "y"])
    with pytest.warns(IdentifiabilityWarning, match="object 'f' is missing in every kernel"):
        alone = fit(rest, prior=result.prior, sources=sources, tol=1e-9)
    expected = float(missing_information(alone)["rate"])
    assert 1 - found["rate_without"].sel(kernel="z") == pytest.approx(1 - expected, rel=1e-3)


@both_models
def test_where_no_other_kernel_shows_anything_there_is_nothing_to_fit(model):
    stack = overlapping_stack().isel(kernel=[0])
    with pytest.warns(IdentifiabilityWarning):
        result = fit(stack, **model)
    found = missing_information(result, without_each_kernel=True)
    for name in ("rate_without", "curvature_without", "change_without"):
        assert np.isnan(found[name].values).all()
    assert found["unseen_without"].values.tolist() == [4]


@both_models
def test_a_result_of_tol_zero_is_fitted_again_with_as_many_steps(monkeypatch, model):
    result = fit(overlapping_stack(), **model, tol=0, max_iter=7)
    steps = []

    def counted(*arguments, **options):
        steps.append(options["max_iter"])
        return solve(*arguments, **options)

    monkeypatch.setattr(information, "solve", counted)
    missing_information(result, without_each_kernel=True)
    assert steps == [7, 7, 7]


def test_fits_without_a_kernel_that_do_not_converge_are_named(monkeypatch):
    result = fit(overlapping_stack(), tol=1e-9)
    monkeypatch.setattr(information, "solve", lambda *a, **b: solve(*a, **b, max_iter=2))
    with pytest.warns(ConvergenceWarning, match="without kernel 'x', 'y', 'z' did not converge"):
        missing_information(result, without_each_kernel=True)


def test_lanczos_without_a_kernel_names_it(monkeypatch):
    monkeypatch.setattr(information, "ACCURACY", 0.0)
    with pytest.warns(ConvergenceWarning) as caught:
        missing_information(fit(small_stack(size=13)), without_each_kernel=True)
    messages = [str(one.message) for one in caught]
    assert any(message.startswith("without kernel 'Q2' the rate of EM is") for message in messages)


def test_ctrl_c_ends_the_fits_without_a_kernel(monkeypatch):
    def interrupted(*arguments, **options):
        return dataclasses.replace(solve(*arguments, **options), interrupted=True)

    result = fit(overlapping_stack())
    monkeypatch.setattr(information, "solve", interrupted)
    with pytest.raises(KeyboardInterrupt):
        missing_information(result, without_each_kernel=True)


@pytest.mark.parametrize("wrong", [5, None, "digits.nc", np.eye(3), overlapping_stack()])
def test_what_is_no_result_is_refused(wrong):
    message = f"result: {type(wrong).__name__} found; pass the MKMCResult that fit"
    with pytest.raises(KernelError, match=message):
        missing_information(wrong)


def test_a_seed_that_is_none_is_refused():
    with pytest.raises(KernelError, match="seed: 'x' found"):
        missing_information(fit(overlapping_stack()), seed="x")


def test_progress_counts_applications_and_names_the_kernel(capsys):
    result = fit(overlapping_stack())
    missing_information(result, without_each_kernel=True)
    assert not capsys.readouterr().err
    missing_information(result, without_each_kernel=True, progress=True)
    shown = capsys.readouterr().err
    assert "applications" in shown
    assert "without 'z'" in shown


def test_what_is_never_hidden_costs_nothing_and_the_unseen_are_left_out():
    kernels = np.stack([np.eye(3), np.ones((3, 3))])
    assert float(missing_information(fit(stack_kernels(kernels), **PAPER))["rate"]) == 0.0
    visible = [[1, 1, 0], [1, 0, 0]]
    with pytest.warns(UserWarning, match="missing in every kernel"):
        result = fit(stack_kernels(kernels, visible=visible, objects=["a", "b", "c"]), **PAPER)
    assert missing_information(result)["object"].values.tolist() == ["a", "b"]


def saddle_stack():
    """Zero correlation is a fixed point by symmetry, and so is its mirror image: a saddle between.

    Two kernels say that a and b are large, each hiding the other; the third that they are small.
    """
    kernels = np.array([np.diag([1.0, 10.0]), np.diag([10.0, 1.0]), np.diag([0.1, 0.1])])
    return stack_kernels(kernels, visible=[[0, 1], [1, 0], [1, 1]], objects=["a", "b"])


@pytest.mark.filterwarnings("ignore::mkmc_prob.MKMCWarning")
def test_a_saddle_is_told_from_a_maximum():
    stack = saddle_stack()
    stuck = fit(stack, strength=0.01, sources="identical", tol=1e-10)
    found = missing_information(stuck)
    # Each of the two hides one of the pair: M_aa = 10.1 / 2 nearly, twice 10 / M_aa over N = 3.
    assert float(found["rate"]) == pytest.approx(4 / 3, rel=0.01)
    assert not found["is_maximum"]
    assert float(found["curvature"]) < 0
    assert float(found["gain_to_come"]) == np.inf
    tilted = stuck.model.matrix + 0.1 * found["direction"].values
    result = fit(stack, strength=0.01, sources="identical", tol=1e-10, initial=tilted)
    assert result.penalized_log_likelihood > stuck.penalized_log_likelihood + 0.01
    assert missing_information(result)["is_maximum"]


def test_lanczos_that_does_not_get_there_warns(monkeypatch):
    monkeypatch.setattr(information, "ACCURACY", 0.0)
    with pytest.warns(ConvergenceWarning, match="lower bound"):
        missing_information(fit(small_stack(size=13)))


@both_models
def test_the_seed_decides(model):
    result = fit(small_stack(size=13), **model)
    one, two = (missing_information(result, seed=3) for _ in range(2))
    assert one.identical(two)


def test_nothing_hidden_needs_no_lanczos():
    rng = np.random.default_rng(0)
    kernels = np.array([random_covariance(rng, 15) for _ in range(3)])
    found = missing_information(fit(stack_kernels(kernels), **PAPER))
    assert float(found["rate"]) == 0.0
    assert found["is_maximum"]
    visible = np.ones((3, 15), dtype=bool)
    visible[0, :5] = False
    result = fit(stack_kernels(kernels, visible=visible), **PAPER)
    without = missing_information(result, without_each_kernel=True)
    assert float(without["rate_without"][0]) == 0.0
    assert without["unseen_without"].values.tolist() == [0, 0, 0]
