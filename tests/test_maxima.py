"""Other maxima: a problem with two known ones and a saddle between, and the starts."""

import dataclasses

import numpy as np
import plain
import pytest
from test_fit import small_stack
from test_information import saddle_stack

from mkmc_prob import (
    ConvergenceWarning,
    KernelError,
    Maxima,
    WishartPrior,
    explore_maxima,
    fit,
    stack_kernels,
)


@pytest.mark.filterwarnings("ignore::mkmc_prob.MKMCWarning")
def test_two_mirrored_maxima_and_the_saddle_between():
    found = explore_maxima(
        saddle_stack(), starts=["zeros", "random"], random_starts=8, strength=0.01, tol=1e-8
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
    assert "3 distinct" in repr(found)


def test_at_a_large_strength_all_starts_end_in_one_point():
    stack = small_stack(size=7)
    found = explore_maxima(stack, strength=2.0)
    assert len(found.results) == 1
    kernels = {f"kernel {name}" for name in stack["kernel"].values}
    starts = {"zeros", "means", "continuation", "random 1", "random 2", "random 3"} | kernels
    assert set(found.table.index) == starts
    assert (found.table["difference"] < 1e-3).all()
    best = fit(stack, strength=2.0, tol=1e-5).penalized_log_likelihood
    np.testing.assert_allclose(found.table["penalized_log_likelihood"], best, atol=1e-3)


def test_the_levels_are_those_of_the_formula_and_the_best_comes_first():
    stack = small_stack(size=7)
    found = explore_maxima(stack, strength=0.01, starts=["zeros", "means", "random"])
    seen = ~np.isnan(np.diagonal(stack.values, axis1=1, axis2=2))
    for result in found.results:
        level = plain.penalized_log_likelihood(
            stack.values, seen, np.ones(3), 0.01, np.eye(7), result.model.matrix
        )
        assert result.penalized_log_likelihood == pytest.approx(level)
    assert found.table["penalized_log_likelihood"].is_monotonic_decreasing


def test_starts_of_ones_own_and_a_prior_with_a_scale():
    stack = small_stack(size=6)
    prior = WishartPrior(0.5, np.diag(np.arange(1.0, 7.0)))
    start = fit(stack, prior=prior).model
    found = explore_maxima(stack, starts={"mine": start, "paper": None}, prior=prior)
    assert set(found.table.index) == {"mine", "paper"}
    assert len(found.results) == 1


def test_the_seed_decides():
    one, two = (explore_maxima(small_stack(), starts="random", seed=5) for _ in range(2))
    assert one.table.equals(two.table)


def test_climbs_that_end_early_are_named():
    with pytest.warns(ConvergenceWarning, match=r"2 of 2 climbs did not converge \(zeros, means\)"):
        explore_maxima(small_stack(), starts=["zeros", "means"], max_iter=2)


@pytest.mark.parametrize("starts", [[], {}, ["nowhere"], "nowhere"])
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
        ({"distinct": np.nan}, "distinct"),
        ({"tol": "x"}, "tol"),
    ],
)
def test_arguments_that_cannot_be_used(options, message):
    with pytest.raises(KernelError, match=message):
        explore_maxima(small_stack(), **options)


def test_ctrl_c_ends_the_exploration(monkeypatch):
    def interrupted(*arguments, **options):
        return dataclasses.replace(fit(*arguments, **options, max_iter=3), interrupted=True)

    monkeypatch.setattr("mkmc_prob.maxima.fit", interrupted)
    for start in ("means", "continuation"):
        with pytest.raises(KeyboardInterrupt):
            explore_maxima(small_stack(), starts=[start], tol=0)
