"""What the pattern of visible objects leaves open, against brute force."""

import numpy as np
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from mkmc_prob.identifiability import empty_kernels, tied_groups, unseen_objects


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
