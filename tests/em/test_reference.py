"""Values that other programs computed: a plain transcription of the paper, and R's norm2."""

import numpy as np
import pytest
from problems import digits_kernels, norm2_problem, reference

from mkmc_prob import correlation_matrix_distance, fit, relative_error, stack_kernels

THREE = reference("three_objects.json")
DIGITS = reference("digits.json")["cases"]


def check(case, kernels, visible):
    complete = stack_kernels(np.array(kernels))
    stack = stack_kernels(np.array(kernels), visible=visible)
    paper = {"strength": case["strength"], "sources": "identical"}
    result = fit(stack, **paper, tol=0, max_iter=case["iterations"], method="em")
    assert result.n_iter == case["iterations"]
    level = result.trace["penalized_log_likelihood"]
    for iteration, value in case["penalized_log_likelihood"].items():
        assert float(level.sel(iteration=int(iteration))) == pytest.approx(value, rel=1e-8)
    model = result.model.matrix
    assert np.trace(model) == pytest.approx(case["model_trace"], rel=1e-8)
    assert np.linalg.norm(model) == pytest.approx(case["model_frobenius"], rel=1e-8)
    assert result.model.log_determinant == pytest.approx(case["model_logdet"], rel=1e-8)
    np.testing.assert_allclose(model[0, :5], case["model_row0_first5"], atol=1e-8)
    completed = result.completed.values
    np.testing.assert_allclose(
        np.linalg.norm(completed, axis=(1, 2)), case["completed_frobenius"], rtol=1e-8
    )
    rows = [
        kernel[np.flatnonzero(~np.array(seen, dtype=bool))[0], :5]
        for kernel, seen in zip(completed, visible, strict=True)
        if not np.all(seen)
    ]
    np.testing.assert_allclose(rows, case["completed_first_missing_row_first5"], atol=1e-8)
    distance = correlation_matrix_distance(complete, result.completed).mean()
    assert float(distance) == pytest.approx(case["correlation_matrix_distance"], rel=1e-6)
    error = relative_error(complete, result.completed, stack).mean()
    assert float(error) == pytest.approx(case["average_relative_error"], rel=1e-6)


def test_three_objects():
    check(THREE, THREE["kernels"], THREE["visible"])


def test_three_objects_after_one_step():
    stack = stack_kernels(np.array(THREE["kernels"]), visible=THREE["visible"])
    result = fit(stack, strength=THREE["strength"], sources="identical", tol=0, max_iter=1)
    np.testing.assert_allclose(result.model.matrix, THREE["model_after_1"], atol=1e-8)
    np.testing.assert_allclose(result.completed, THREE["completed_after_1"], atol=1e-8)


@pytest.mark.parametrize("case", DIGITS, ids=lambda c: f"{c['visible']}-{c['strength']}")
def test_digits(case):
    kernels, patterns = digits_kernels()
    check(case, kernels, patterns[case["visible"]])


def test_norm2():
    """R's norm2 and this package agree on the posterior mode of a covariance."""
    stack, problem = norm2_problem()
    paper = {"strength": problem["strength"], "sources": "identical"}
    result = fit(stack, **paper, method="em", tol=0, max_iter=500)
    np.testing.assert_allclose(result.model.matrix, problem["covariance"], rtol=1e-9, atol=1e-9)
