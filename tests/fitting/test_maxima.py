"""Other maxima: a problem with two known ones and a saddle between, and the starts."""

import dataclasses

import numpy as np
import pandas as pd
import plain
import pytest
from problems import PAPER, both_models, small_stack
from strategies import random_covariance
from test_information import brute_force_rate, saddle_stack

from mkmc_prob import (
    ConvergenceWarning,
    GaussianModel,
    KernelError,
    Maxima,
    WishartPrior,
    explore_maxima,
    fit,
    stack_kernels,
)
from mkmc_prob.fitting import maxima
from mkmc_prob.fitting.solve import solve


@pytest.mark.filterwarnings("ignore::mkmc_prob.MKMCWarning")
def test_two_mirrored_maxima_and_the_saddle_between():
    found = explore_maxima(
        saddle_stack(),
        starts=["zeros", "random"],
        random_starts=8,
        strength=0.01,
        sources="identical",
        tol=1e-8,
    )
    assert isinstance(found, Maxima)
    assert len(found.results) == 3
    signs = [np.sign(np.round(result.model.matrix[0, 1], 3)) for result in found.results]
    assert sorted(signs[:2]) == [-1, 1]
    assert signs[2] == 0
    levels = [result.penalized_log_likelihood for result in found.results]
    assert levels[0] == pytest.approx(levels[1], abs=1e-6)
    assert levels[0] > levels[2] + 0.01
    assert found.table.loc["zeros", "point"] == 2
    assert not found.table.loc["zeros", "is_maximum"]
    assert found.table["is_maximum"].iloc[0]
    assert found.best is found.results[0]
    assert "3 distinct points, 2 known to be maxima" in repr(found)


def nested_stack(rank):
    """Each kernel shows the first few objects: L then has one maximum, and that in closed form."""
    rng = np.random.default_rng(0)
    features = rng.standard_normal((4, 8, rank))
    visible = np.arange(8) < np.array([8, 6, 4, 2])[:, None]
    return stack_kernels(features @ features.transpose(0, 2, 1) / rank, visible=visible), visible


def highest_level(kernels, visible, strength):
    """Object by object: its regression on those before it, from all kernels that show it."""
    level = 0.0
    for i in range(kernels.shape[1]):
        moment, weight = strength * np.eye(i + 1), strength
        for kernel, seen in zip(kernels, visible, strict=True):
            if seen[i]:
                moment = moment + kernel[: i + 1, : i + 1]
                weight += 1.0
                level -= 0.5 * np.log(2 * np.pi)
        slope = np.linalg.solve(moment[:i, :i], moment[:i, i])
        variance = (moment[i, i] - moment[:i, i] @ slope) / weight
        level -= 0.5 * weight * (np.log(variance) + 1.0)
    return level


@pytest.mark.parametrize("rank", [1, 2, 4])
@pytest.mark.parametrize("strength", [0.001, 0.01, 0.1])
def test_one_maximum_counts_once_however_flat_it_is(rank, strength):
    """At a coarse tol single fits end far apart: their completions differ by up to 60 %."""
    stack, visible = nested_stack(rank)
    found = explore_maxima(stack, strength=strength, sources="identical", tol=1e-2)
    assert len(found.results) == 1
    assert (found.table["point"] == 0).all()
    assert found.table["is_maximum"].all()
    highest = highest_level(stack.values, visible, strength)
    np.testing.assert_allclose(found.table["penalized_log_likelihood"], highest, atol=1e-2)
    assert found.best.penalized_log_likelihood == pytest.approx(highest, abs=1e-4)
    assert found.table["evaluations"].max() < 300


def two_maxima_stack():
    """A random problem with two maxima, 0.29 nats apart."""
    rng = np.random.default_rng(23)
    features = rng.standard_normal((3, 5, 3))
    visible = rng.random((3, 5)) < 0.6
    return stack_kernels(features @ features.transpose(0, 2, 1) / 3, visible=visible), visible


@pytest.mark.parametrize("tol", [1e-1, 1e-2, 1e-6])
def test_two_maxima_count_twice(tol):
    """Plain EM stays at each, and by brute force each is a maximum."""
    stack, visible = two_maxima_stack()
    found = explore_maxima(stack, **PAPER, tol=tol)
    assert len(found.results) == 2
    assert found.table["is_maximum"].all()
    models = []
    for result in found.results:
        model = result.model.matrix
        for _ in range(2000):
            model = plain.m_step(
                plain.e_step(stack.values, visible, model), np.ones(3), 0.1, np.eye(5)
            )
        np.testing.assert_allclose(model, result.model.matrix, atol=0.1)
        assert brute_force_rate(stack.values, model, 0.1, np.ones(3)) < 1
        models.append(model)
    assert np.abs(models[0] - models[1]).max() > 0.3
    levels = [
        plain.penalized_log_likelihood(stack.values, visible, np.ones(3), 0.1, np.eye(5), model)
        for model in models
    ]
    assert levels[0] - levels[1] > 0.2
    table = found.table.drop_duplicates("point")
    np.testing.assert_allclose(table["penalized_log_likelihood"], levels, atol=tol)


def test_a_way_between_two_models_is_the_geodesic():
    """At its middle is the geometric mean, G A^-1 G = B; its ends are the two."""
    rng = np.random.default_rng(0)
    a, b = (GaussianModel(random_covariance(rng, 4)) for _ in range(2))
    middle = next(maxima._between(a, b)).matrix
    np.testing.assert_allclose(middle @ a.precision @ middle, b.matrix, atol=1e-12)
    every = [model.matrix for model in maxima._between(a, b)]
    assert len(every) == 17
    assert min(np.abs(matrix - a.matrix).max() for matrix in every) < 0.05
    assert min(np.abs(matrix - b.matrix).max() for matrix in every) < 0.05


def test_a_plateau_is_not_called_a_saddle(monkeypatch):
    """Where by its own curvature a point is not yet one, nothing is claimed of it."""
    monkeypatch.setattr(maxima, "information_at", lambda *_: {"rate": 1.0 + 1e-13})
    found = explore_maxima(small_stack(), **PAPER, starts=["zeros"], tol=1e-3)
    assert found.table["converged"].all()
    assert found.table["is_maximum"].isna().all()
    assert np.isnan(found.table["rate"]).all()


def test_the_table_is_printed_whole():
    found = explore_maxima(small_stack(), starts=["zeros", "means"], strength=1.0)
    with pd.option_context("display.width", 80, "display.max_columns", 3):
        printed = repr(found)
    assert "..." not in printed
    for column in found.table.columns:
        assert column in printed.splitlines()[1]


@pytest.mark.parametrize("sources", ["adaptive", "identical"])
def test_at_a_large_strength_all_starts_end_in_one_point(sources):
    stack, model = small_stack(size=7), {"strength": 2.0, "sources": sources}
    found = explore_maxima(stack, **model)
    assert len(found.results) == 1
    kernels = {f"kernel {name}" for name in stack["kernel"].values}
    starts = {"zeros", "means", "continuation", "random 1", "random 2", "random 3"} | kernels
    assert set(found.table.index) == starts
    assert (found.table["difference"] < 1e-3).all()
    best = fit(stack, **model, tol=1e-5).penalized_log_likelihood
    np.testing.assert_allclose(found.table["penalized_log_likelihood"], best, atol=1e-3)


def test_the_levels_are_those_of_the_formula_and_the_best_comes_first():
    stack = small_stack(size=7)
    paper = {"strength": 0.01, "sources": "identical"}
    found = explore_maxima(stack, **paper, starts=["zeros", "means", "random"])
    seen = ~np.isnan(np.diagonal(stack.values, axis1=1, axis2=2))
    for result in found.results:
        level = plain.penalized_log_likelihood(
            stack.values, seen, np.ones(3), 0.01, np.eye(7), result.model.matrix
        )
        assert result.penalized_log_likelihood == pytest.approx(level)
    assert found.table["penalized_log_likelihood"].is_monotonic_decreasing


@pytest.mark.parametrize("sources", ["adaptive", "identical"])
def test_starts_of_ones_own_and_a_prior_with_a_scale(sources):
    stack = small_stack(size=6)
    prior = WishartPrior(0.5, np.diag(np.arange(1.0, 7.0)))
    model = {"prior": prior, "sources": sources}
    start = fit(stack, **model).model
    found = explore_maxima(stack, starts={"mine": start, "paper": None}, **model)
    assert set(found.table.index) == {"mine", "paper"}
    assert len(found.results) == 1


@both_models
def test_the_seed_decides(model):
    one, two = (explore_maxima(small_stack(), **model, starts="random", seed=5) for _ in range(2))
    assert one.table.equals(two.table)


def test_of_climbs_that_end_early_nothing_is_known():
    message = r"2 of 2 ascents did not converge to 1e-07 nats \(zeros, means\): .*unknown"
    with pytest.warns(ConvergenceWarning, match=message):
        found = explore_maxima(small_stack(), starts=["zeros", "means"], max_iter=2)
    assert not found.table["converged"].any()
    assert found.table["is_maximum"].dtype == "boolean"
    assert found.table["is_maximum"].isna().all()
    assert np.isnan(found.table["rate"]).all()
    assert "0 known to be maxima" in repr(found)


def test_a_climb_that_ends_early_beside_one_that_does_not():
    stack = small_stack()
    best = fit(stack, **PAPER, tol=1e-12).model
    starts = {"near": best, "far": best.matrix * 30}
    with pytest.warns(ConvergenceWarning, match=r"1 of 2 ascents did not converge.*\(far\)"):
        found = explore_maxima(stack, **PAPER, starts=starts, tol=1e-6, max_iter=20)
    assert found.table.loc["near", "is_maximum"]
    assert found.table.loc["far", "is_maximum"] is pd.NA
    assert "1 known to be maxima" in repr(found)


@both_models
def test_with_tol_zero_nothing_is_known_and_nothing_said(model):
    found = explore_maxima(small_stack(), **model, starts=["zeros", "means"], tol=0, max_iter=150)
    assert found.best.n_iter == 150
    assert found.table["is_maximum"].isna().all()
    assert len(found.results) == 1


@pytest.mark.parametrize("starts", [[], {}, ["nowhere"], "nowhere", 5, None, [["zeros"]]])
def test_starts_that_there_are_not(starts):
    with pytest.raises(KernelError, match="starts"):
        explore_maxima(small_stack(), starts=starts)


@pytest.mark.filterwarnings("ignore::mkmc_prob.MKMCWarning")
def test_a_kernel_that_shows_nothing_is_no_start():
    stack = small_stack()
    silent = stack.isel(kernel=0) * np.nan
    both = stack_kernels(
        np.concatenate([stack.values, silent.values[None]]),
        visible=[*~np.isnan(np.diagonal(stack.values, axis1=1, axis2=2)), [0] * 6],
    )
    found = explore_maxima(both, starts=["means", "kernels"], strength=1.0)
    assert len(found.table) == 4


def test_a_scale_without_labels_gets_the_stacks():
    stack = small_stack().assign_coords(object=list("abcdef"), object_bis=list("abcdef"))
    prior = WishartPrior(0.5, np.eye(6) + 0.1)
    found = explore_maxima(stack, prior=prior, starts=["zeros", "continuation"])
    assert len(found.results) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strength": 77.0, "prior": WishartPrior(1.0)}, "strength"),
        ({"starts": ["random"], "random_starts": 0}, "starts"),
        ({"tol": "x"}, "tol"),
        ({"initial": np.eye(3)}, "initial: .* starts="),
    ],
)
def test_arguments_that_cannot_be_used(options, message):
    with pytest.raises(KernelError, match=message):
        explore_maxima(small_stack(), **options)


@pytest.mark.parametrize("wrong", [5, None, np.eye(3), fit(small_stack())])
def test_what_is_no_stack_is_refused(wrong):
    with pytest.raises(KernelError, match="stack: a labeled stack"):
        explore_maxima(wrong)


def test_ctrl_c_ends_the_exploration(monkeypatch):
    def interrupted(*arguments, **options):
        return dataclasses.replace(solve(*arguments, **options), interrupted=True)

    monkeypatch.setattr("mkmc_prob.fitting.maxima.solve", interrupted)
    for start in ("means", "continuation"):
        with pytest.raises(KeyboardInterrupt):
            explore_maxima(small_stack(), starts=[start], tol=0, max_iter=3)


def test_a_stack_that_shows_nothing_is_said_to_be_so():
    stack = stack_kernels(np.array([np.eye(2)] * 2), visible=np.zeros((2, 2), dtype=bool))
    with pytest.raises(KernelError, match="no kernel shows an object"):
        explore_maxima(stack)
