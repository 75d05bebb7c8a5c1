"""Diagnostics against their definitions, and traces that were tampered with."""

import numpy as np
import plain
import pytest
from hypothesis import given, settings
from strategies import problems
from test_fit import small_stack

from mkmc_prob import (
    MKMCError,
    MonotonicityError,
    WishartPrior,
    diagnostics,
    fit,
    stack_kernels,
)


@pytest.mark.parametrize("method", ["em", "geodesic", "squarem"])
def test_every_step_is_reported(method):
    result = fit(small_stack(), method=method)
    steps = diagnostics.check_monotone(result.trace)
    assert steps.index.tolist() == list(range(1, result.n_iter + 1))
    total = result.penalized_log_likelihood - float(result.trace["penalized_log_likelihood"][0])
    assert steps["gain"].sum() == pytest.approx(total)
    assert steps["clear"].iloc[0]


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_trace_that_was_tampered_with_is_caught(sign):
    trace = fit(small_stack(), method="em").trace
    for name in ("penalized_log_likelihood", "log_prior", "gain_q_function", "gain_divergence"):
        spoiled = trace.copy(deep=True)
        spoiled[name][4] += sign * 1e-6
        with pytest.raises((MKMCError, MonotonicityError), match=r"iteration [45]"):
            diagnostics.check_monotone(spoiled)
    spoiled = trace.copy(deep=True)
    spoiled["log_likelihood"][4, 1] += sign * 1e-6
    with pytest.raises(MKMCError, match="iteration 4 the kernels' terms and the log prior"):
        diagnostics.check_monotone(spoiled)
    spoiled = trace.copy(deep=True)
    spoiled["gain_q_function"][3] -= 1.0
    spoiled["gain_divergence"][3] += 1.0
    with pytest.raises(MKMCError, match=r"gain_q_function is .* cannot be negative"):
        diagnostics.check_monotone(spoiled)
    spoiled = trace.copy(deep=True)
    spoiled["penalized_log_likelihood"][2] = np.nan
    with pytest.raises(MonotonicityError, match="iteration 2"):
        diagnostics.check_monotone(spoiled)


@settings(max_examples=30)
@given(problems())
@pytest.mark.filterwarnings("ignore::mkmc_prob.MKMCWarning")
def test_the_predictive_density_by_removing_one_object_at_a_time(problem):
    result = fit(
        problem.stack,
        prior=problem.prior,
        degrees_of_freedom=problem.degrees_of_freedom,
        tol=0,
        max_iter=2,
    )
    scores = diagnostics.object_predictive(result)
    model = result.model.matrix
    for k, seen in enumerate(problem.visible):
        assert np.isnan(scores.values[k, ~seen]).all()
        kernel = problem.stack.values[k]
        for i in np.flatnonzero(seen):
            rest = seen.copy()
            rest[i] = False
            whole, without = (
                plain.log_gaussian(kernel[np.ix_(v, v)], model[np.ix_(v, v)]) for v in (seen, rest)
            )
            assert scores.values[k, i] == pytest.approx(whole - without, rel=1e-6, abs=1e-6)


def test_an_object_that_one_source_sees_differently_ranks_first():
    rng = np.random.default_rng(0)
    # Four latent features and a little noise: each object is predicted well by the others.
    features = rng.standard_normal((12, 4)) @ rng.standard_normal((4, 30))
    features += 0.3 * rng.standard_normal((12, 30))
    kernels = np.array([features @ features.T / 30] * 3)
    other = features.copy()
    other[4] = 2.0 * rng.standard_normal(30)
    kernels[1] = other @ other.T / 30
    stack = stack_kernels(
        kernels, names=["one", "two", "three"], objects=[f"o{i}" for i in range(12)]
    )
    result = fit(stack, strength=0.1)
    table = diagnostics.disagreement(result)
    assert (table.loc[0, "kernel"], table.loc[0, "object"]) == ("two", "o4")
    assert len(table) == 36
    assert (table["kernels"] == 3).all()
    assert table["squared_residual"].is_monotonic_decreasing
    density = diagnostics.object_predictive(result)
    assert float(density.sel(kernel="two", object="o4")) == table.loc[0, "log_density"]


def test_pairs_are_counted():
    stack = small_stack()
    seen = ~np.isnan(np.diagonal(stack.values, axis1=1, axis2=2))
    counts = diagnostics.pair_counts(stack)
    for i in range(6):
        for j in range(6):
            assert counts.values[i, j] == sum(s[i] and s[j] for s in seen)


def test_kernels_against_the_model():
    result = fit(small_stack(), strength=0.5)
    table = diagnostics.kernel_agreement(result)
    for k, name in enumerate(table.index):
        kernel = result.observed.values[k]
        seen = ~np.isnan(np.diagonal(kernel))
        q, m = kernel[np.ix_(seen, seen)], result.model.matrix[np.ix_(seen, seen)]
        row = table.loc[name]
        assert row["mahalanobis"] == pytest.approx(np.trace(np.linalg.solve(m, q)) / len(q))
        cosine = np.sum(q * m) / np.linalg.norm(q) / np.linalg.norm(m)
        assert row["correlation"] == pytest.approx(cosine)
        assert row["effective_rank"] == pytest.approx(np.trace(q) ** 2 / np.trace(q @ q))
        assert row["kl_divergence"] == pytest.approx(plain.kl(q, m))


@pytest.mark.filterwarnings("ignore::mkmc_prob.MKMCWarning")
def test_kernels_at_the_edges():
    kernels = np.array([np.eye(3), np.ones((3, 3)), np.zeros((3, 3)), np.eye(3)])
    visible = [[1, 1, 1], [1, 1, 0], [1, 1, 1], [0, 0, 0]]
    table = diagnostics.kernel_agreement(fit(stack_kernels(kernels, visible=visible)))
    assert table["effective_rank"].iloc[1] == pytest.approx(1.0)
    assert np.isinf(table["kl_divergence"].iloc[1])
    assert np.isnan(table["effective_rank"].iloc[2:]).all()
    assert np.isnan(table["kl_divergence"].iloc[3])


@pytest.mark.filterwarnings("ignore::mkmc_prob.MKMCWarning")
def test_the_constant_of_many_unseen_objects_is_no_tampering():
    size = 120
    kernels = 2.0 * np.eye(size)[None].repeat(2, 0)
    kernels[1, 0, 1] = kernels[1, 1, 0] = 0.5
    visible = np.zeros((2, size), dtype=bool)
    visible[:, :3] = True
    visible[1, 0] = False
    stack = stack_kernels(kernels, visible=visible)
    for small in (1e-3, 1e-100):
        prior = WishartPrior(1.0, np.diag([1.0] * 3 + [small] * (size - 3)))
        for method in ("em", "geodesic", "squarem"):
            result = fit(stack, prior=prior, tol=1e-12, method=method)
            diagnostics.check_monotone(result.trace)
