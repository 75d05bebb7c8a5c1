"""What the pattern of visible objects leaves open, against brute force."""

import warnings

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from mkmc_prob.errors import IdentifiabilityWarning
from mkmc_prob.stacks.pairs import count_of_unseen_pairs, pair_counts
from mkmc_prob.stacks.pattern import (
    empty_kernels,
    group_numbers,
    pairs_between,
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


def said(pattern, sharing=None):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_what_is_not_identified(labelled(pattern), sharing)
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
def test_objects_of_no_source_are_named(hidden, begins):
    pattern = np.ones((2, 9))
    pattern[:, :hidden] = 0
    (message,) = said(pattern)
    assert message.startswith(begins)


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
    assert "their labels may not match. 4 of 6 pairs" in message


def test_pairs_never_observed_together_are_counted():
    assert said([[1, 1, 0], [0, 1, 1]]) == [
        "1 of 3 pairs of objects is never observed together: the kernels only bound their entries. "
        "See result.unseen_pairs()."
    ]


def test_nothing_is_said_where_every_pair_is_observed():
    assert said([[1, 1, 0], [1, 1, 1]]) == []


def test_everything_is_said_at_once():
    pattern = [[1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 0]]
    (message,) = said(pattern, [1.0, 0.5, 1.0, 0.0])
    parts = [
        "kernel 'k2' shows no object",
        "Object 5 is missing in every kernel",
        "Object 4 is visible only in kernels that share nothing with the others ('k3')",
        "The objects fall into 2 groups that no kernel ties together: (0, 1); (2, 3).",
        "13 of 15 pairs of objects are never observed together",
    ]
    places = [message.find(part) for part in parts]
    assert places == sorted(places)
    assert places[0] == 0


def test_kernels_that_share_nothing_count_if_none_shares_anything():
    assert said([[1, 1], [1, 0]], [0.0, 0.0]) == []
    assert len(said([[1, 1], [1, 0]], [0.0, 1.0])) == 1


@given(st.integers(1, 4), st.integers(1, 7), st.integers(0, 2**32 - 1))
def test_counts_of_pairs_are_those_of_a_list(kernels, objects, seed):
    pattern = np.random.default_rng(seed).random((kernels, objects)) < 0.4
    visible = labelled(pattern)
    pairs = [(i, j) for i in range(objects) for j in range(i)]
    never = [(i, j) for i, j in pairs if not (pattern[:, i] & pattern[:, j]).any()]
    assert count_of_unseen_pairs(visible) == len(never)
    groups = tied_groups(visible)
    number = group_numbers(groups, visible["object"].values)
    between = [(i, j) for i, j in pairs if number[i] != number[j] or number[i] < 0]
    assert pairs_between(groups, objects) == len(between)
    assert set(between) <= set(never)
    counts = pair_counts(visible)
    assert (counts.values == pattern.T.astype(int) @ pattern).all()
