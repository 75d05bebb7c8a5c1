"""The rate of EM against brute force, and against what R's norm2 reports."""

import numpy as np
import plain
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import problems, random_covariance
from test_fit import small_stack
from test_reference import norm2_problem

from mkmc_prob import (
    EM,
    ConvergenceWarning,
    GaussianModel,
    WishartPrior,
    fit,
    missing_information,
    stack_kernels,
)
from mkmc_prob import information as room
from mkmc_prob.information import EMDerivative


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


def brute_force_rate(stack, model, strength):
    """The largest eigenvalue of the Jacobian of the map on the entries of M, by differences."""
    size = len(model)
    visible = ~np.isnan(np.diagonal(stack.values, axis1=1, axis2=2))
    rows, columns = np.tril_indices(size)
    jacobian = np.empty((len(rows), len(rows)))
    for j, (a, b) in enumerate(zip(rows, columns, strict=True)):
        step = np.zeros((size, size))
        step[a, b] = step[b, a] = 1e-6
        ahead, back = (
            plain.m_step(
                plain.e_step(stack.values, visible, model + sign * step),
                np.ones(len(visible)),
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
    result = fit(stack, strength=strength, tol=1e-12, max_iter=3000)
    information = missing_information(result)
    rate = brute_force_rate(stack, result.model.matrix, strength)
    assert 1 - float(information["rate"]) == pytest.approx(1 - rate, rel=0.02)
    assert information["is_maximum"]
    assert float(information["share"].sum()) == pytest.approx(1.0)
    # EM's own increments shrink by the square of the rate.
    direction = information["direction"].values
    near = GaussianModel(result.model.matrix + 1e-4 * direction, objects=stack["object"].values)
    levels = fit(stack, strength=strength, method="em", tol=0, max_iter=6, initial=near).trace
    gains = np.diff(levels["penalized_log_likelihood"])
    np.testing.assert_allclose(gains[1:4] / gains[:3], rate**2, rtol=0.05)


def test_norm2_reports_the_same_rate():
    stack, problem = norm2_problem()
    result = fit(stack, strength=problem["strength"], tol=1e-12, max_iter=2000)
    worst = problem["worst_fraction_of_missing_information"]
    rate = float(missing_information(result)["rate"])
    assert 1 - rate == pytest.approx(1 - worst, rel=1e-3)


def test_without_a_kernel_the_rate_is_that_of_the_others():
    stack = small_stack(size=6)
    result = fit(stack, tol=1e-10)
    found = missing_information(result, without_each_kernel=True)
    assert found["rate_without"].sizes == {"kernel": 3}
    em = EM(stack.isel(kernel=[0, 2]), WishartPrior(0.1))
    alone = EMDerivative(em, result.model.cholesky)
    expected = room.largest_eigenvalue(alone, np.random.default_rng(0))[0]
    assert float(found["rate_without"][1]) == pytest.approx(expected)


def test_what_is_never_hidden_costs_nothing_and_the_unseen_are_left_out():
    kernels = np.stack([np.eye(3), np.ones((3, 3))])
    assert float(missing_information(fit(stack_kernels(kernels)))["rate"]) == 0.0
    visible = [[1, 1, 0], [1, 0, 0]]
    with pytest.warns(UserWarning, match="missing in every kernel"):
        result = fit(stack_kernels(kernels, visible=visible, objects=["a", "b", "c"]))
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
    stuck = fit(stack, strength=0.01, tol=1e-10)
    found = missing_information(stuck)
    # Each of the two hides one of the pair: M_aa = 10.1 / 2 nearly, twice 10 / M_aa over N = 3.
    assert float(found["rate"]) == pytest.approx(4 / 3, rel=0.01)
    assert not found["is_maximum"]
    assert float(found["curvature"]) < 0
    tilted = stuck.model.matrix + 0.1 * found["direction"].values
    result = fit(stack, strength=0.01, tol=1e-10, initial=tilted)
    assert result.penalized_log_likelihood > stuck.penalized_log_likelihood + 0.01
    assert missing_information(result)["is_maximum"]


def test_lanczos_that_does_not_get_there_warns(monkeypatch):
    monkeypatch.setattr(room, "ACCURACY", 0.0)
    with pytest.warns(ConvergenceWarning, match="lower bound"):
        missing_information(fit(small_stack(size=13)))


def test_the_seed_decides():
    result = fit(small_stack(size=13))
    one, two = (missing_information(result, seed=3) for _ in range(2))
    assert one.identical(two)


def test_nothing_hidden_needs_no_lanczos():
    rng = np.random.default_rng(0)
    kernels = np.array([random_covariance(rng, 15) for _ in range(3)])
    found = missing_information(fit(stack_kernels(kernels)))
    assert float(found["rate"]) == 0.0
    assert found["is_maximum"]
    visible = np.ones((3, 15), dtype=bool)
    visible[0, :5] = False
    result = fit(stack_kernels(kernels, visible=visible))
    assert float(missing_information(result, without_each_kernel=True)["rate_without"][0]) == 0.0
