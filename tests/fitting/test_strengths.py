"""The choice of the paper's strength: scores by their definition, folds, workers, calibration."""

import dataclasses
import sys

import numpy as np
import pandas as pd
import plain
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import selection_of, small_stack
from strategies import random_covariance

from mkmc_prob import (
    ConvergenceWarning,
    GaussianModel,
    KernelError,
    MKMCError,
    MKMCWarning,
    WishartPrior,
    fit,
    select_strength,
    stack_kernels,
)
from mkmc_prob.fitting.solve import solve
from mkmc_prob.fitting.strengths import _parts, held_out

GRID = [0.1, 1.0, 10.0]
#: Small problems without structure: which strength is best is not what these tests are about.
edge_of_the_grid = pytest.mark.filterwarnings("ignore:strengths. the best:mkmc_prob.MKMCWarning")


@settings(max_examples=50)
@given(st.integers(1, 7), st.integers(0, 3**7 - 1), st.integers(0, 2**32 - 1))
def test_a_held_out_block_by_the_definition(size, pattern, seed):
    """log p(all seen) - log p(the rest), and the residual of each by explicit inverses."""
    rng = np.random.default_rng(seed)
    state = np.array([pattern // 3**i % 3 for i in range(size)])
    state[0] = 2  # 0 missing, 1 given, 2 held out
    seen, rest = state > 0, state == 1
    model, kernel = random_covariance(rng, size), random_covariance(rng, size)
    moment = kernel[np.ix_(seen, seen)]
    density, length, residual = held_out(GaussianModel(model), seen, rest, moment)
    whole, without = (
        plain.log_gaussian(kernel[np.ix_(v, v)], model[np.ix_(v, v)]) for v in (seen, rest)
    )
    assert density == pytest.approx(whole - without, rel=1e-9, abs=1e-9)
    held = seen & ~rest
    lengths = [
        np.trace(np.linalg.inv(model[np.ix_(v, v)]) @ kernel[np.ix_(v, v)]) for v in (seen, rest)
    ]
    assert length * held.sum() == pytest.approx(lengths[0] - lengths[1], rel=1e-8, abs=1e-8)
    for i, ours in zip(np.flatnonzero(held), residual, strict=True):
        a = np.linalg.inv(model[np.ix_(rest, rest)]) @ model[rest, i]
        weights = np.zeros(size)
        weights[rest], weights[i] = -a, 1.0
        variance = model[i, i] - model[rest, i] @ a
        assert ours == pytest.approx(weights @ kernel @ weights / variance, rel=1e-8)


def test_every_visible_object_is_held_out_once_and_scored_where_it_was():
    stack = small_stack(size=9)
    before = stack.copy(deep=True)
    found = select_strength(stack, strengths=[0.5], folds=3, tol=1e-8)
    xr.testing.assert_identical(stack, before)
    seen = ~np.isnan(np.diagonal(stack.values, axis1=1, axis2=2))
    told = ~np.isnan(found.scores["squared_residual"].values[0])
    np.testing.assert_array_equal(told.sum(1), found.scores["predicted"].sum("fold"))
    assert not told[:, seen.sum(0) < 2].any()  # of these the prior alone would speak
    assert not (told & ~seen).any()
    assert told.any()
    np.testing.assert_array_equal(found.scores["held_out"].sum("fold"), seen.sum(1))
    lengths, predicted = found.scores["mahalanobis"], found.scores["predicted"]
    assert ((lengths > 0) == (predicted > 0)).all()
    assert found.best == found.one_standard_error == 0.5


def test_the_score_is_that_of_a_fit_without_the_held_out_objects():
    stack = small_stack(size=9)
    found = select_strength(stack, strengths=[0.5], folds=3, tol=1e-10, seed=4)
    # Which objects fold 1 held out is known from nowhere else: try all folds' parts by refitting.
    seen = ~np.isnan(np.diagonal(stack.values, axis1=1, axis2=2))
    parts = _parts(seen, 3, np.random.default_rng(4))
    rest = seen & (parts != 1)
    train = stack.where(xr.DataArray(rest, dims=("kernel", "object")))
    train = train.where(xr.DataArray(rest, dims=("kernel", "object_bis")))
    train = stack_kernels(
        train.values.copy(),
        visible=rest,
        objects=stack["object"].values,
        names=stack["kernel"].values,
    )
    model = fit(train, strength=0.5, sources="identical", tol=1e-10).model.matrix
    for k, kernel in enumerate(stack.values):
        whole, without = (
            plain.log_gaussian(kernel[np.ix_(v, v)], model[np.ix_(v, v)])
            for v in (seen[k], rest[k])
        )
        ours = float(found.scores["log_density"][0, 1, k])
        assert ours == pytest.approx(whole - without, abs=1e-4)


@edge_of_the_grid
def test_workers_do_not_change_the_result():
    stack = small_stack(size=8)
    one, two = (
        select_strength(stack, strengths=GRID, folds=3, workers=workers) for workers in (1, 2)
    )
    assert one.scores.identical(two.scores)
    assert one.table.equals(two.table)


def test_the_table_and_the_choices():
    found = selection_of([[-1.0, -3.0], [-0.8, -2.8], [-0.9, -2.9], [-9.0, -9.0]])
    expected = pd.DataFrame(
        {
            "score": [-2.0, -1.8, -1.9, -9.0],
            "standard_error": [1.0, 1.0, 1.0, 0.0],
            "behind": [0.2, 0.0, 0.1, 7.2],
            "behind_error": [0.0, 0.0, 0.0, 1.0],
            "mahalanobis": 1.0,
            "mahalanobis_error": 0.0,
        },
        index=pd.Index([0.1, 1.0, 10.0, 100.0], name="strength"),
    )
    pd.testing.assert_frame_equal(found.table, expected)
    assert (found.best, found.one_standard_error) == (1.0, 10.0)
    assert "best 1, by one standard error 10" in repr(found)
    # Every fold says the same of the differences, however much the folds differ: no noise.
    assert found.within_noise == []
    assert not found.at_the_edge
    assert "noise" not in repr(found)
    assert "strengths:" not in repr(found)
    assert max(map(len, repr(found).splitlines())) <= 80


def test_candidates_within_noise_are_named():
    """Differences from the best, fold by fold: 0.1 +- 0.3, none, 0.5 +- 0.4 and 0.5 +- 0.25."""
    best = np.array([-1.0, -2.0])
    behind = np.array([[0.4, -0.2], [0.0, 0.0], [0.9, 0.1], [0.25, 0.75]])
    found = selection_of(best - behind)
    np.testing.assert_allclose(found.table["behind"], [0.1, 0.0, 0.5, 0.5])
    np.testing.assert_allclose(found.table["behind_error"], [0.3, 0.0, 0.4, 0.25], atol=1e-12)
    assert found.within_noise == [0.1]
    assert "within noise of the best" in repr(found)
    assert "difference): 0.1\n" in repr(found)


@pytest.mark.parametrize(
    ("best", "end", "other"), [(0, "smallest", "smaller"), (3, "largest", "la")]
)
def test_the_best_at_the_edge_of_the_grid_is_said(best, end, other):
    per_fold = np.full((4, 2), -3.0)
    per_fold[best] = -1.0
    found = selection_of(per_fold)
    assert found.at_the_edge
    assert f"is the {end} tried" in repr(found)
    assert f"Add {other}" in repr(found)


def test_the_best_at_the_edge_is_warned_of():
    stack = small_stack(size=9)
    for strengths in ([100.0, 1000.0], [1e-3, 1e-2]):
        with pytest.warns(MKMCWarning, match=r"strengths: the best, 1?0\.?01?0?, is the"):
            found = select_strength(stack, strengths=strengths, folds=3)
        assert found.at_the_edge
    assert not select_strength(stack, strengths=[0.5], folds=3).at_the_edge  # nothing to choose


def test_calibration_by_kernel():
    held_out = [[2, 1], [4, 0], [2, 3]]
    one = [[[1.0, 2.0], [0.5, np.nan], [1.5, 4.0]]]
    found = selection_of(-np.ones((1, 3)), held_out=held_out, lengths=one, strengths=[0.5])
    table = found.calibration
    assert table.index.tolist() == [(0.5, "Q1"), (0.5, "Q2")]
    row = table.loc[(0.5, "Q1")]
    assert row["predicted"] == 8
    assert row["mahalanobis"] == pytest.approx((2 * 1.0 + 4 * 0.5 + 2 * 1.5) / 8)
    assert row["standard_error"] == pytest.approx(0.5 / np.sqrt(3))
    row = table.loc[(0.5, "Q2")]
    assert row["mahalanobis"] == pytest.approx((2.0 + 3 * 4.0) / 4)
    assert row["standard_error"] == pytest.approx(np.sqrt(2.0) / np.sqrt(2))
    overall = found.table.loc[0.5]
    # By fold: (2 + 2) / 3, 0.5, (3 + 12) / 5.
    per_fold = np.array([4 / 3, 0.5, 3.0])
    assert overall["mahalanobis"] == pytest.approx((4 + 2 + 15) / 12)
    assert overall["mahalanobis_error"] == pytest.approx(per_fold.std(ddof=1) / np.sqrt(3))


def test_calibration_tells_a_kernel_of_a_larger_scale():
    """Four kernels drawn from one covariance, of which one was then made twice as large."""
    rng = np.random.default_rng(3)
    factor = np.linalg.cholesky(random_covariance(rng, 12))
    features = factor @ rng.standard_normal((4, 12, 400))
    kernels = features @ features.transpose(0, 2, 1) / 400
    kernels[2] *= 2.0
    found = select_strength(stack_kernels(kernels), strengths=[1e-3])
    by_kernel = found.calibration.loc[1e-3, "mahalanobis"]
    assert by_kernel.idxmax() == "Q3"
    # Held out, it is twice what the others say, they are 3/4 of what the four say: about that.
    assert by_kernel["Q3"] > 1.5
    assert (by_kernel.drop("Q3") < 1.0).all()
    # The table lies between: kernels on both sides cancel.
    assert by_kernel.drop("Q3").max() < found.table["mahalanobis"].item() < by_kernel["Q3"]


def test_kernels_drawn_from_a_model_are_calibrated():
    rng = np.random.default_rng(0)
    truth = random_covariance(rng, 15)
    factor = np.linalg.cholesky(truth)
    features = factor @ rng.standard_normal((4, 15, 400))
    kernels = features @ features.transpose(0, 2, 1) / 400
    visible = rng.random((4, 15)) < 0.8
    visible[0] = True
    found = select_strength(stack_kernels(kernels, visible=visible), strengths=[1e-3, 1e-2, 10])
    assert found.table.loc[found.best, "mahalanobis"] == pytest.approx(1.0, abs=0.1)
    assert found.table.loc[10.0, "score"] < found.table["score"].max()


@edge_of_the_grid
def test_a_prior_with_a_scale_goes_with_every_strength():
    stack = small_stack(size=6)
    scale = np.diag(np.arange(1.0, 7.0))
    one = select_strength(stack, strengths=GRID, folds=2, prior=WishartPrior(1.0, scale))
    two = select_strength(stack, strengths=GRID, folds=2)
    assert not np.allclose(one.table["score"], two.table["score"])


def test_it_warns_that_it_will_be_removed_and_of_what_the_papers_model_assumes():
    stack = small_stack(size=9)
    with pytest.warns(DeprecationWarning, match=r"will be removed\. Use select_model\(stack\)"):
        select_strength(stack, strengths=[0.5], folds=2)
    stack = stack * xr.DataArray([1.0, 1.0, 100.0], dims="kernel")
    with pytest.warns(MKMCWarning, match=r"scales differ by more .*'Q3' is .*normalize\(stack\)"):
        select_strength(stack, strengths=[0.5], folds=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strengths": []}, "strengths: "),
        ({"strengths": [0.1, 0.1]}, "each once"),
        ({"strengths": [0.1, -1.0]}, "strengths"),
        ({"folds": 1}, "folds"),
        ({"workers": 0}, "workers"),
        ({"method": "newton"}, "method"),
        ({"seed": "x"}, "seed"),
    ],
)
def test_arguments_that_cannot_be_used(options, message):
    with pytest.raises(MKMCError, match=message):
        select_strength(small_stack(), **options)


def test_nothing_to_hold_out():
    stack = stack_kernels(np.ones((2, 2, 2)), visible=[[1, 0], [0, 1]])
    with pytest.raises(KernelError, match="no kernel shows two objects"):
        select_strength(stack)


def test_without_joblib_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "joblib", None)
    with pytest.raises(MKMCError, match=r"pip install mkmc-prob\[parallel\]"):
        select_strength(small_stack(), strengths=GRID, workers=2)


@edge_of_the_grid
def test_fits_that_end_early_are_counted():
    with pytest.warns(ConvergenceWarning, match="6 of 6 fits"):
        select_strength(small_stack(), strengths=GRID, folds=2, max_iter=2)


def test_empty_folds_do_not_shrink_the_standard_error():
    rng = np.random.default_rng(0)
    stack = stack_kernels(np.array([random_covariance(rng, 2) for _ in range(3)]))
    found = select_strength(stack, strengths=[0.1], folds=5)
    density, held = found.scores["log_density"].sum("kernel"), found.scores["held_out"]
    scores = (density / held.sum("kernel")).values[0, :2]
    expected = scores.std(ddof=1) / np.sqrt(2)
    assert found.table["standard_error"].iloc[0] == pytest.approx(expected)


def test_ctrl_c_ends_the_selection(monkeypatch):
    def interrupted(*arguments, **options):
        return dataclasses.replace(solve(*arguments, **options), interrupted=True)

    monkeypatch.setattr("mkmc_prob.fitting.strengths.solve", interrupted)
    with pytest.raises(KeyboardInterrupt):
        select_strength(small_stack(), strengths=GRID)


def test_the_prior_is_a_prior():
    with pytest.raises(KernelError, match=r"prior: 0\.1 found; pass WishartPrior"):
        select_strength(small_stack(), prior=0.1)
