"""Diagnostics against their definitions, and traces that were tampered with."""

import numpy as np
import pandas as pd
import plain
import pytest
import xarray as xr
from hypothesis import given, settings
from problems import PAPER, beyond_double_precision, both_models, small_stack
from scipy.stats import rankdata
from strategies import problems

from mkmc_prob import (
    IndefiniteKernelError,
    KernelError,
    MKMCError,
    MKMCWarning,
    MonotonicityError,
    WishartPrior,
    diagnostics,
    fit,
    stack_kernels,
)


@pytest.mark.parametrize("method", ["em", "geodesic", "squarem"])
@both_models
def test_every_step_is_reported(model, method):
    result = fit(small_stack(), **model, method=method)
    steps = diagnostics.check_monotone(result.trace)
    assert steps.index.tolist() == list(range(1, result.n_iter + 1))
    total = result.penalized_log_likelihood - float(result.trace["penalized_log_likelihood"][0])
    assert steps["gain"].sum() == pytest.approx(total)
    assert steps["clear"].iloc[0]


PARTS = ("gain_q_function", "gain_divergence", "gain_constants")


@pytest.mark.parametrize("sign", [-1, 1])
@both_models
def test_a_trace_that_was_tampered_with_is_caught(model, sign):
    trace = fit(small_stack(), **model, method="em").trace
    for name in ("penalized_log_likelihood", "log_prior", *PARTS):
        spoiled = trace.copy(deep=True)
        spoiled[name][4] += sign * 1e-6
        with pytest.raises((MKMCError, MonotonicityError), match=r"iteration [45]"):
            diagnostics.check_monotone(spoiled)
    spoiled = trace.copy(deep=True)
    spoiled["log_likelihood"][4, 1] += sign * 1e-6
    with pytest.raises(MKMCError, match="iteration 4 the kernels' terms and the log prior"):
        diagnostics.check_monotone(spoiled)
    for part in PARTS:
        spoiled = trace.copy(deep=True)
        spoiled[part][3] -= 1.0
        spoiled[PARTS[PARTS.index(part) - 1]][3] += 1.0
        with pytest.raises(MKMCError, match=rf"{part}, which cannot be negative, is"):
            diagnostics.check_monotone(spoiled)
    spoiled = trace.copy(deep=True)
    spoiled["penalized_log_likelihood"][2] = np.nan
    with pytest.raises(MonotonicityError, match="iteration 2"):
        diagnostics.check_monotone(spoiled)


def test_a_trace_without_constants_may_lack_their_gain():
    trace = fit(small_stack(), **PAPER, method="em").trace
    assert (trace["gain_constants"][1:] == 0).all()
    steps = diagnostics.check_monotone(trace.drop_vars("gain_constants"))
    pd.testing.assert_frame_equal(steps, diagnostics.check_monotone(trace))


@settings(max_examples=30)
@given(problems())
@pytest.mark.filterwarnings("ignore::mkmc_prob.MKMCWarning")
def test_the_predictive_density_by_removing_one_object_at_a_time(problem):
    result = fit(
        problem.stack,
        prior=problem.prior,
        sources="identical",
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


@pytest.mark.parametrize("sources", ["adaptive", "identical"])
def test_an_object_that_one_source_sees_differently_ranks_first(sources):
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
    result = fit(stack, strength=0.1, sources=sources)
    table = diagnostics.disagreement(result)
    assert (table.loc[0, "kernel"], table.loc[0, "object"]) == ("two", "o4")
    assert len(table) == 36
    assert (table["kernels"] == 3).all()
    assert table["squared_residual"].is_monotonic_decreasing
    density = diagnostics.object_predictive(result)
    assert float(density.sel(kernel="two", object="o4")) == table.loc[0, "log_density"]
    assert table.loc[0, ["rank", "rank_in_kernel"]].tolist() == [1, 1]
    assert table["rank"].tolist() == rankdata(-table["squared_residual"], "ordinal").tolist()
    for _, own in table.groupby("kernel"):
        expected = rankdata(-own["squared_residual"], "ordinal")  # equal kernels tie
        assert own["rank_in_kernel"].tolist() == expected.tolist()


def test_a_kernel_of_a_larger_scale_fills_the_upper_ranks_but_not_those_within_the_others():
    rng = np.random.default_rng(1)
    features = rng.standard_normal((12, 4)) @ rng.standard_normal((4, 40))
    features = features + 0.5 * rng.standard_normal((3, 12, 40))
    features[1, 4] = 1.5 * rng.standard_normal(40)
    kernels = features @ features.transpose(0, 2, 1) / 40
    kernels[0] *= 9.0
    table = diagnostics.disagreement(fit(stack_kernels(kernels), **PAPER))
    odd = table[(table["kernel"] == "Q2") & (table["object"] == 4)].iloc[0]
    assert odd["rank_in_kernel"] == 1
    assert odd["rank"] > 6
    assert (table["kernel"].iloc[:6] == "Q1").all()


def test_pairs_are_counted():
    stack = small_stack()
    seen = ~np.isnan(np.diagonal(stack.values, axis1=1, axis2=2))
    counts = diagnostics.pair_counts(stack)
    for i in range(6):
        for j in range(6):
            assert counts.values[i, j] == sum(s[i] and s[j] for s in seen)


def test_pairs_never_seen_together_are_those_with_a_count_of_zero():
    stack = stack_kernels(np.stack([np.eye(4)] * 2), visible=[[1, 1, 0, 0], [1, 0, 1, 0]])
    never = diagnostics.never_seen_together(stack)
    expected = np.zeros((4, 4), dtype=bool)
    expected[1, 2] = expected[2, 1] = True
    expected[3] = expected[:, 3] = True  # the last object is seen by none
    np.testing.assert_array_equal(never, expected)
    assert never.dtype == bool
    assert never.dims == ("object", "object_bis")


def test_kernels_against_the_model():
    result = fit(small_stack(), strength=0.5, sources="identical")
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
    stack = stack_kernels(kernels, visible=visible)
    table = diagnostics.kernel_agreement(fit(stack, **PAPER))
    assert table["effective_rank"].iloc[1] == pytest.approx(1.0)
    assert np.isinf(table["kl_divergence"].iloc[1])
    assert np.isnan(table["effective_rank"].iloc[2:]).all()
    assert np.isnan(table["kl_divergence"].iloc[3])


@pytest.mark.parametrize("sources", ["adaptive", "identical"])
@pytest.mark.filterwarnings("ignore::mkmc_prob.MKMCWarning")
def test_the_constant_of_many_unseen_objects_is_no_tampering(sources):
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
            result = fit(stack, prior=prior, sources=sources, tol=1e-12, method=method)
            diagnostics.check_monotone(result.trace)


def trace_of_gains(gains, *, by_em=True, bound=1e-12):
    """A trace with these gains, as far as the empirical rate looks at it."""
    level = np.concatenate([[0.0], np.cumsum(gains)])
    rise = np.where(np.append(False, np.broadcast_to(by_em, len(gains))), 0.1, np.nan)
    return xr.Dataset(
        {
            "penalized_log_likelihood": ("iteration", level),
            "rounding_bound": ("iteration", np.full(len(level), bound)),
            "gain_q_function": ("iteration", rise),
        }
    )


def test_gains_that_shrink_by_the_square_of_the_rate_show_the_rate():
    rate = diagnostics.empirical_rate(trace_of_gains(0.9 ** (2.0 * np.arange(6))))
    assert np.isnan(rate[:2]).all()
    np.testing.assert_allclose(rate[2:], 0.9)
    # A step of another kind, and what rounding blurs, tell nothing.
    by_em = [True, True, False, True, True, True]
    rate = diagnostics.empirical_rate(trace_of_gains(0.9 ** (2.0 * np.arange(6)), by_em=by_em))
    assert np.isnan(rate.values).tolist() == [True, True, False, True, True, False, False]
    # Gains of 1e-3 known to 2e-5: a ratio near 0.81 to 4 %, the rate to 0.02 of 0.9, 1 - r to 20 %.
    gains = 1e-3 * 0.9 ** (2.0 * np.arange(3))
    assert np.isnan(diagnostics.empirical_rate(trace_of_gains(gains, bound=1e-5))).all()
    assert np.isfinite(diagnostics.empirical_rate(trace_of_gains(gains, bound=1e-6))[2:]).all()
    # A gain within rounding, or a fall, has no ratio.
    rate = diagnostics.empirical_rate(trace_of_gains([1.0, -1e-13, 0.5, 0.25]))
    assert np.isnan(rate[:4]).all()
    assert float(rate[4]) == pytest.approx(np.sqrt(0.5))


def test_the_last_steps_of_em_show_the_largest_eigenvalue_of_its_derivative():
    stack = small_stack(size=6)
    paper = {"strength": 0.5, "sources": "identical"}
    result = fit(stack, **paper, method="em", tol=1e-10, max_iter=5000)
    seen = ~np.isnan(np.diagonal(stack.values, axis1=1, axis2=2))
    at = result.model.matrix
    upper = np.triu_indices(6)
    kernels = np.nan_to_num(stack.values)

    def step(model):
        return plain.m_step(plain.e_step(kernels, seen, model), np.ones(3), 0.5, np.eye(6))

    columns = []
    for i, j in zip(*upper, strict=True):
        change = np.zeros((6, 6))
        change[i, j] = change[j, i] = 1e-5
        columns.append((step(at + change) - step(at - change))[upper] / 2e-5)
    largest = np.abs(np.linalg.eigvals(np.array(columns).T)).max()
    last = float(diagnostics.empirical_rate(result.trace).dropna("iteration")[-1])
    assert 1.0 - last == pytest.approx(1.0 - largest, rel=0.1)


@pytest.mark.parametrize("check", [diagnostics.check_monotone, diagnostics.empirical_rate])
def test_what_is_no_trace_is_named(check):
    trace = fit(small_stack(), **PAPER, method="em", tol=1e-2).trace
    with pytest.raises(MKMCError, match=r"trace: DataFrame found.*Pass result\.trace"):
        check(trace["rounding_bound"].to_dataframe())
    for other in (None, 3, "trace", trace["rounding_bound"]):
        with pytest.raises(MKMCError, match=rf"trace: {type(other).__name__} found"):
            check(other)
    with pytest.raises(MKMCError, match=r"no variable 'rounding_bound'\. Pass"):
        check(trace.drop_vars("rounding_bound"))
    with pytest.raises(MKMCError, match=r"no variable 'penalized_log_likelihood', .*'rounding"):
        check(xr.Dataset())
    renamed = trace["rounding_bound"].rename(iteration="step").drop_vars("step")
    with pytest.raises(MKMCError, match=r"rounding_bound has dims \('step',\)"):
        check(trace.drop_vars("rounding_bound").assign(rounding_bound=renamed))
    with pytest.raises(MKMCError, match=r"rounding_bound has dims .* dtype <U"):
        check(trace.assign(rounding_bound=trace["rounding_bound"].astype(str)))
    with pytest.raises(MKMCError, match="shape \\(0,\\)"):
        check(trace.isel(iteration=slice(0, 0)))


@pytest.mark.parametrize(
    "diagnose",
    [diagnostics.object_predictive, diagnostics.disagreement, diagnostics.kernel_agreement],
)
@pytest.mark.parametrize("given", [None, pd.DataFrame(), xr.Dataset(), np.eye(2)])
def test_what_is_no_result_is_named(diagnose, given):
    with pytest.raises(KernelError, match=rf"result: {type(given).__name__} found; pass the MKMC"):
        diagnose(given)


@pytest.mark.parametrize("count", [diagnostics.pair_counts, diagnostics.never_seen_together])
@pytest.mark.parametrize("given", [None, pd.DataFrame(), xr.Dataset(), np.eye(2)])
def test_what_is_no_stack_is_named(count, given):
    with pytest.raises(KernelError, match=rf"stack: .*not {type(given).__name__}"):
        count(given)


def test_a_model_beyond_double_precision_is_refused_with_the_kernels_name():
    with pytest.warns(MKMCWarning, match=r"kernel 'Q2': its mahalanobis is left out"):
        table = diagnostics.kernel_agreement(beyond_double_precision())
    assert np.isinf(table.loc["Q2", "kl_divergence"])
    for diagnose in (diagnostics.object_predictive, diagnostics.disagreement):
        with pytest.raises(IndefiniteKernelError, match=r"kernel 'Q2': .* object 1.*raise the str"):
            diagnose(beyond_double_precision())
