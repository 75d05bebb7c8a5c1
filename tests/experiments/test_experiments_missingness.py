"""Rows removed by a function of one's own: what it gets, and what it may return."""

from functools import partial

import numpy as np
import pytest
from test_experiments import Recorder, problem

from mkmc_prob import MKMCError, remove_objects, visible_objects, zero_impute
from mkmc_prob.experiments import run_study


def test_missingness_of_ones_own():
    stack, labels = problem(kernels=2)
    calls = []

    def blocks(stack, ratio, *, seed):
        calls.append((ratio, seed))
        count = round(ratio * stack.sizes["object"])
        stack.values[0, :count, :] = stack.values[0, :, :count] = np.nan
        return stack

    got = Recorder(zero_impute)
    study = run_study(
        stack,
        labels,
        methods={"look": got},
        ratios=[0.0, 0.25, 0.5],
        repetitions=2,
        missingness=blocks,
        seed=0,
    )
    # At 0 nothing is removed. The first repetition's ratios are tried before all.
    assert [ratio for ratio, _ in calls] == [0.25, 0.5] * 3
    seeds = [seed for _, seed in calls]
    assert len(set(seeds[:4])) == len(set(seeds[4:])) == 1
    assert seeds[0] != seeds[4]
    assert all(type(seed) is int for seed in seeds)
    assert [int((~visible_objects(s)).sum()) for s in got.got] == [0, 6, 12] * 2
    assert np.isnan(study["relative_error"].sel(kernel="b")).all()
    assert (study["relative_error"].sel(kernel="a", ratio=[0.25, 0.5]) == 1.0).all()
    assert study.attrs["missingness"].startswith("test_experiments_missingness.test_missingness")


def test_what_else_it_does_is_refused_before_anything_is_computed():
    stack, labels = problem(kernels=2)
    got = Recorder(zero_impute)

    def reordered(stack, ratio, *, seed):
        return remove_objects(stack.isel(kernel=[1, 0]), ratio, seed=seed)

    def smoothed(stack, ratio, *, seed):
        done = remove_objects(stack, ratio, seed=seed)
        done.values[0] *= 1.0 + 1e-15
        return done

    def holes(stack, ratio, *, seed):
        stack.values[1, 2, 3] = stack.values[1, 3, 2] = np.nan
        return stack

    def all_of_one(stack, ratio, *, seed):
        stack.values[1] = np.nan
        return stack

    def odd(stack, ratio, *, seed):
        return stack if ratio < 0.4 else 1 / 0

    options = {"methods": {"look": got}, "ratios": [0.0, 0.2, 0.8], "repetitions": 1, "seed": 0}
    for function, told in (
        (reordered, "0.2 .*missingness: its kernels, or their order, are not those of the stack"),
        (smoothed, "0.2 .*missingness: it changed kernel 'a' at objects 'o"),
        (holes, "0.2 .*missingness.* 'b'"),
        (all_of_one, "0.2 .*kernel 'b' loses all its objects.*a smaller ratio"),
        (odd, "0.8 .*missingness: ZeroDivisionError"),
        (partial(remove_objects, protocol="objects", of="entries"), "0.8 .*one row of each object"),
    ):
        with pytest.raises(MKMCError, match=f"ratios: at {told}"):
            run_study(stack, labels, missingness=function, **options)
        assert not got.got  # before anything is computed
