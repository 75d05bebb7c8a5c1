"""Artificial missingness: how many rows each protocol removes, and in what order."""

import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from removals import full, options_of, seen_after, seen_in, stack_of

from mkmc_prob.errors import MKMCError
from mkmc_prob.evaluation.missingness import remove_objects
from mkmc_prob.evaluation.protocols import PROTOCOLS

ONE_BY_ONE = ["pairs", "rounds", "classes"]  # of all pairs exactly round(ratio n) go


@st.composite
def masks(draw):
    k, size = draw(st.integers(1, 4)), draw(st.integers(1, 8))
    row = st.lists(st.booleans(), min_size=size, max_size=size)
    return np.array(draw(st.lists(row, min_size=k, max_size=k)))


ratios = st.floats(0, 1, exclude_max=True)
seeds = st.integers(0, 2**32)
few = settings(max_examples=30)
protocols = st.sampled_from(sorted(PROTOCOLS))


def test_the_default_is_a_permutation_with_each_objects_last_pair_put_last():
    # Written out in loops. These draws are a promise: studies with a seed can be run again.
    for seed in range(4):
        visible = np.random.default_rng(seed).random((4, 9)) < 0.8
        pairs = [(k, i) for k in range(4) for i in range(9) if visible[k, i]]
        order = [pairs[j] for j in np.random.default_rng(seed).permutation(len(pairs))]
        last = [
            pair for n, pair in enumerate(order) if pair[1] not in [i for _, i in order[n + 1 :]]
        ]
        order = [pair for pair in order if pair not in last] + last
        for number in range(len(pairs)):
            expected = visible.copy()
            for pair in order[:number]:
                expected[pair] = False
            seen = seen_after(stack_of(visible), number / len(pairs), seed)
            np.testing.assert_array_equal(seen, expected)


# What holds for every protocol.


@few
@given(masks(), protocols, st.lists(ratios, min_size=2, max_size=4), seeds, st.booleans())
def test_one_seed_nests_and_leaves_the_rest_alone(visible, protocol, several, seed, keep_one):
    stack, more = stack_of(visible), {"keep_one": keep_one, "protocol": protocol}
    before = stack.copy(deep=True)
    seen = [visible] + [seen_after(stack, r, seed, **more) for r in sorted(several)]
    for wider, narrower in pairwise(seen):
        assert not (narrower & ~wider).any()
    assert stack.identical(before)
    removed = remove_objects(
        stack, several[0], seed=seed, **more, **options_of(protocol, visible.shape[1])
    )
    both = seen_in(removed)
    both = both[:, :, None] & both[:, None, :]
    np.testing.assert_array_equal(removed.values, np.where(both, stack.values, np.nan))
    rng = np.random.default_rng(seed)
    np.testing.assert_array_equal(seen_after(stack, several[0], rng, **more), both.any(axis=2))


@pytest.mark.parametrize("protocol", sorted(PROTOCOLS))
def test_a_generator_is_advanced_at_any_ratio(protocol):
    stack, rng = full(3, 10), np.random.default_rng(4)
    first, nothing, third = (seen_after(stack, r, rng, protocol) for r in (0.4, 0, 0.4))
    np.testing.assert_array_equal(first, seen_after(stack, 0.4, 4, protocol))
    assert nothing.all()
    assert (first != third).any()
    rng = np.random.default_rng(4)
    for _ in range(2):
        seen_after(stack, 0.7, rng, protocol)
    np.testing.assert_array_equal(third, seen_after(stack, 0.4, rng, protocol))


@few
@given(st.integers(1, 4), st.integers(1, 7), protocols, st.tuples(ratios, ratios), seeds)
def test_entries_nest_too(kernels, objects, protocol, several, seed):
    # One row of each object has at least a K-th of all entries: that when all are of one kernel.
    scale = 0.999 / kernels if protocol == "objects" else 1
    fewer, more = (
        seen_after(full(kernels, objects), r * scale, seed, protocol, of="entries")
        for r in sorted(several)
    )
    assert not (more & ~fewer).any()


@few
@given(masks(), st.sampled_from(ONE_BY_ONE), ratios, seeds, st.booleans())
def test_how_many_rows_go(visible, protocol, ratio, seed, keep_one):
    seen = seen_after(stack_of(visible), ratio, seed, protocol, keep_one=keep_one)
    n = int(visible.sum())
    assert n - seen.sum() == round(ratio * n)


@few
@given(masks(), st.sampled_from(ONE_BY_ONE), ratios, seeds)
def test_objects_stay_visible_as_long_as_the_ratio_allows(visible, protocol, ratio, seed):
    somewhere = visible.any(axis=0).sum()
    seen = seen_after(stack_of(visible), ratio, seed, protocol)
    lost = somewhere - seen.any(axis=0).sum()
    assert lost == max(0, visible.sum() - seen.sum() - (visible.sum() - somewhere))


@few
@given(masks(), st.sampled_from(ONE_BY_ONE), ratios, seeds)
def test_entries_are_as_many_as_whole_rows_allow(visible, protocol, ratio, seed):
    stack, n = stack_of(visible), int(visible.sum())
    entries = [
        np.isnan(remove_objects(stack, r, seed=seed, protocol=protocol, **more).values).sum()
        for more in [options_of(protocol, visible.shape[1])]
        for r in [max(0, j - 0.25) / n for j in range(n + 1) if n]  # rounds to j rows
    ] or [0]
    target = ratio * (visible.sum(axis=1) ** 2).sum() + np.isnan(stack.values).sum()
    more = options_of(protocol, visible.shape[1])
    removed = remove_objects(stack, ratio, seed=seed, protocol=protocol, of="entries", **more)
    off = abs(np.isnan(removed.values).sum() - target) if n else 0
    assert off <= min(abs(count - target) for count in entries) + 1e-9 or not n


# "objects": one kernel per object.


@few
@given(masks(), ratios, seeds)
def test_objects_lose_one_kernel_and_no_more(visible, ratio, seed):
    seen = seen_after(stack_of(visible), ratio, seed, "objects")
    lost = visible.sum(axis=0) - seen.sum(axis=0)
    n = int(visible.any(axis=0).sum())
    assert lost.max() <= 1
    assert lost.sum() == round(ratio * n)
    # An object that only one kernel sees goes after those that more do.
    assert lost[visible.sum(axis=0) == 1].sum() == max(
        0, lost.sum() - (visible.sum(axis=0) > 1).sum()
    )


def test_objects_can_remove_a_kth_of_the_rows_only():
    stack = full(4, 10)
    assert seen_after(stack, 0.99, 0, "objects").sum() == 30
    with pytest.raises(
        MKMCError, match=r"ratio: 0\.9 of the entries is more than one row .* protocol='rounds'"
    ):
        remove_objects(stack, 0.9, seed=0, protocol="objects", of="entries")


# "rounds".


@few
@given(st.integers(1, 5), st.integers(1, 8), ratios, seeds)
def test_rounds_take_turns(kernels, objects, ratio, seed):
    seen = seen_after(full(kernels, objects), ratio, seed, "rounds")
    turns, rest = divmod(round(ratio * kernels * objects), objects)
    lost = sorted((kernels - seen.sum(axis=0)).tolist())
    assert lost == [turns] * (objects - rest) + [turns + 1] * rest


def test_objects_is_the_first_round():
    stack = full(3, 8)
    for seed in range(5):
        once = seen_after(stack, 0.5, seed, "objects")
        np.testing.assert_array_equal(once, seen_after(stack, 0.5 / 3, seed, "rounds"))


# "kernels": the same share of each.


@few
@given(masks(), ratios, seeds, st.booleans())
def test_each_kernel_loses_the_same_share(visible, ratio, seed, keep_one):
    seen = seen_after(stack_of(visible), ratio, seed, "kernels", keep_one=keep_one)
    for before, after in zip(visible, seen, strict=True):
        n = int(before.sum())
        assert n - after.sum() == round(ratio * n)


@few
@given(masks(), ratios, seeds)
def test_each_kernel_loses_the_same_share_of_its_entries(visible, ratio, seed):
    # Of n rows r stay where r^2 is nearest to (1 - ratio) n^2: a share 1 - sqrt(1 - ratio) goes.
    seen = seen_after(stack_of(visible), ratio, seed, "kernels", of="entries")
    for before, after in zip(visible.sum(axis=1), seen.sum(axis=1), strict=True):
        off = np.abs(np.arange(before + 1) ** 2 - (1 - ratio) * before**2)
        assert off[after] <= off.min() + 1e-9


def test_half_of_the_entries_is_less_than_a_third_of_the_rows():
    seen = seen_after(full(7, 100), 0.5, 0, "kernels", of="entries")
    assert (seen.sum(axis=1) == 71).all()  # 100 / sqrt(2) = 70.7
    # 90% of the entries, with every object still visible in some of seven kernels.
    seen = seen_after(full(7, 100), 0.9, 0, of="entries")
    assert seen.any(axis=0).all()
    assert seen.mean() == pytest.approx(np.sqrt(0.1), abs=0.01)


# "blocks".


@few
@given(masks(), ratios, seeds, st.booleans(), st.integers(1, 4))
def test_blocks_are_never_cut(visible, ratio, seed, keep_one, size):
    stack = stack_of(visible)
    seen = seen_after(stack, ratio, seed, "blocks", keep_one=keep_one, batches=size)
    blocks = []
    for before, after in zip(visible, seen, strict=True):
        for start in range(0, visible.shape[1], size):
            there = before[start : start + size].sum()
            assert after[start : start + size].sum() in (0, there)
            blocks.append(there)
    # The nearest number of whole blocks is at most half a block away.
    assert abs(visible.sum() - seen.sum() - ratio * visible.sum()) <= max(blocks) / 2 + 1e-9


@few
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), ratios, seeds)
def test_how_many_blocks_of_one_size_go(kernels, batches, size, ratio, seed):
    stack = full(kernels, batches * size)
    seen = seen_after(stack, ratio, seed, "blocks", batches=size)
    n = kernels * batches
    gone = n - seen.sum() / size
    assert abs(gone - ratio * n) <= 0.5 + 1e-9
    vanished = batches - seen.any(axis=0).sum() / size
    assert vanished == max(0, gone - (kernels - 1) * batches)


@few
@given(masks(), seeds)
def test_blocks_with_an_objects_last_pair_go_last(visible, seed):
    stack, n = stack_of(visible), int(visible.sum())
    more = {"protocol": "blocks", "batches": 2}
    seen = [visible] + [seen_after(stack, j / n, seed, **more) for j in range(1, n)]
    seen.append(np.zeros_like(visible))
    # Seen block by block: some object vanishes with the block, or none does.
    vanishes = [
        (before.any(axis=0) & ~after.any(axis=0)).any()
        for before, after in pairwise(seen)
        if (before != after).any()
    ]
    assert vanishes == sorted(vanishes)


@pytest.mark.parametrize(("ratio", "blocks"), [(0.25, 0), (0.75, 2)])
def test_halfway_goes_to_the_even_number_of_blocks(ratio, blocks):
    assert seen_after(full(1, 6), ratio, 0, "blocks", batches=3).sum() == 6 - 3 * blocks


def test_runs_are_labels():
    stack = full(3, 8)
    runs = seen_after(stack, 0.4, 1, "blocks", batches=3)
    for labels in ([0, 0, 0, 1, 1, 1, 2, 2], list("xxxaaabb")):
        for batches in (
            dict(enumerate(labels)),
            pd.Series(labels),
            pd.Series(labels)[::-1],
            xr.DataArray(labels, dims="object", coords={"object": range(8)}),
            pd.Series(labels + labels),  # of more objects than the stack has
        ):
            np.testing.assert_array_equal(
                runs, seen_after(stack, 0.4, 1, "blocks", batches=batches)
            )


# "classes": not at random.


def test_with_keep_one_the_classes_become_alike():
    seen = seen_after(full(3, 10), 2 / 3, 0, "classes")
    assert (seen.sum(axis=0) == 1).all()


def test_the_pages_code_runs(capsys):
    page = (Path(__file__).parents[2] / "docs" / "missingness.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.S | re.M)
    exec(compile("\n".join(blocks), "docs/missingness.md", "exec"), {})
    printed = capsys.readouterr().out.strip()
    assert printed in page
