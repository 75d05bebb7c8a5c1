"""What the pattern of visible objects leaves open, against brute force."""

import warnings

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from mkmc_prob.errors import IdentifiabilityWarning
from mkmc_prob.stacks.pattern import (
    empty_kernels,
    tied_groups,
    unseen_objects,
    warn_of_what_is_not_identified,
)


def labelled(pattern):
    pattern = np.asarray(pattern, dtype=bool)
    return xr.DataArray(
        pattern,
        dims=("kernel", "object"),
        coords={
            "kernel": [f"k{i}" for i in range(pattern.shape[0])],
            "object": np.arange(pattern.shape[1]),
        },
    )


@given(st.integers(1, 4), st.integers(1, 7), st.integers(0, 2**32 - 1))
def test_groups_are_what_merging_until_nothing_changes_gives(kernels, objects, seed):
    pattern = np.random.default_rng(seed).random((kernels, objects)) < 0.35
    groups = [{i} for i in range(objects) if pattern[:, i].any()]
    merged = True
    while merged:
        merged = False
        for row in pattern:
            shown = set(np.flatnonzero(row))
            touching = [group for group in groups if group & shown]
            if len(touching) > 1:
                groups = [group for group in groups if not group & shown]
                groups.append(set.union(*touching))
                merged = True
    ours = tied_groups(labelled(pattern))
    assert sorted(map(sorted, ours)) == sorted(map(sorted, groups))
    assert [len(group) for group in ours] == sorted(map(len, groups), reverse=True)


def test_unseen_objects_and_empty_kernels():
    pattern = labelled([[1, 0, 1], [0, 0, 0]])
    assert unseen_objects(pattern) == [1]
    assert empty_kernels(pattern) == ["k1"]


def said(pattern):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_what_is_not_identified(labelled(pattern))
    assert all(warning.category is IdentifiabilityWarning for warning in caught)
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize(
    ("hidden", "begins"),
    [
        (1, "object 0 is missing in every kernel: it is completed"),
        (2, "objects 0, 1 are missing in every kernel: they are completed"),
        (7, "objects 0, 1, 2, 3, 4 and 2 more are missing in every kernel: they are completed"),
    ],
)
def test_objects_of_no_source_are_named_and_how_to_drop_them(hidden, begins):
    pattern = np.ones((2, 9))
    pattern[:, :hidden] = 0
    (message,) = said(pattern)
    assert message.startswith(begins)
    assert "visible_objects(stack).any('kernel')" in message


@pytest.mark.parametrize(
    ("empty", "begins"),
    [
        (1, "kernel 'k0' shows no object: it is completed"),
        (2, "kernels 'k0', 'k1' show no object: they are completed"),
    ],
)
def test_kernels_that_show_nothing_are_named(empty, begins):
    pattern = np.ones((3, 2))
    pattern[:empty] = 0
    (message,) = said(pattern)
    assert message.startswith(begins)


def test_groups_that_nothing_ties_together_may_be_labels_that_do_not_match():
    (message,) = said([[1, 1, 0, 0], [0, 0, 1, 1]])
    assert "2 groups that no kernel ties together: (0, 1); (2, 3)" in message
    assert message.endswith("their labels may not match.")


def test_nothing_is_said_where_all_is_tied():
    assert said([[1, 1, 0], [0, 1, 1]]) == []
