"""Artificial missingness: counts, nesting, cover, and that nothing else changes."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mkmc_prob import stack_kernels, visible_objects
from mkmc_prob.errors import KernelError, MKMCError
from mkmc_prob.evaluation.missingness import remove_objects


def stack_of(visible):
    """Return a stack with those visible objects and entries that are all different."""
    visible = np.asarray(visible)
    k, size = visible.shape
    values = np.arange(k * size * size, dtype=float).reshape(k, size, size)
    return stack_kernels(
        (values + values.transpose(0, 2, 1)) / 1000 + 100 * np.eye(size), visible=visible
    )


@st.composite
def masks(draw):
    k, size = draw(st.integers(1, 5)), draw(st.integers(1, 8))
    row = st.lists(st.booleans(), min_size=size, max_size=size)
    return np.array(draw(st.lists(row, min_size=k, max_size=k)))


ratios = st.floats(0, 1, exclude_max=True)
seeds = st.integers(0, 2**32)


@settings(deadline=None, max_examples=60)
@given(masks(), ratios, seeds)
def test_exact_number_and_untouched_rest(visible, ratio, seed):
    stack = stack_of(visible)
    before = stack.copy(deep=True)
    removed = remove_objects(stack, ratio, seed=seed)
    assert stack.identical(before)
    seen = visible_objects(removed).values
    assert visible.sum() - seen.sum() == round(ratio * int(visible.sum()))
    assert not (seen & ~visible).any()
    both = seen[:, :, None] & seen[:, None, :]
    expected = np.where(both, stack.values, np.nan)  # whole rows and columns, the rest as it was
    np.testing.assert_array_equal(removed.values, expected)
    for dim in ("kernel", "object", "object_bis"):
        assert removed.indexes[dim].equals(stack.indexes[dim])


@settings(deadline=None, max_examples=60)
@given(masks(), st.lists(ratios, min_size=2, max_size=5), seeds)
def test_one_seed_nests(visible, several, seed):
    stack = stack_of(visible)
    seen = [visible_objects(remove_objects(stack, r, seed=seed)).values for r in sorted(several)]
    for more, fewer in pairwise(seen):
        assert not (fewer & ~more).any()


@settings(deadline=None, max_examples=60)
@given(masks(), ratios, seeds)
def test_objects_stay_visible_as_long_as_the_ratio_allows(visible, ratio, seed):
    somewhere = visible.any(axis=0)
    seen = visible_objects(remove_objects(stack_of(visible), ratio, seed=seed)).values
    removed = visible.sum() - seen.sum()
    most = visible.sum() - somewhere.sum()  # one pair of each object may stay
    lost = somewhere.sum() - seen.any(axis=0).sum()
    assert lost == max(0, removed - most)


def test_up_to_k_minus_one_of_k_for_a_complete_stack():
    stack = stack_of(np.ones((4, 25)))
    seen = visible_objects(remove_objects(stack, 0.75, seed=0)).values
    assert (seen.sum(axis=0) == 1).all()
    fewer = visible_objects(remove_objects(stack, 0.80, seed=0)).values
    assert fewer.any(axis=0).sum() == 20


@pytest.mark.parametrize(("pairs", "ratio", "count"), [(10, 0.25, 2), (10, 0.35, 4), (3, 0.9, 3)])
def test_rounding(pairs, ratio, count):
    # Halves go to the even number: 2.5 to 2 and 3.5 to 4.
    seen = visible_objects(remove_objects(stack_of(np.ones((1, pairs))), ratio, seed=0))
    assert seen.sum() == pairs - count


def test_zero_removes_nothing():
    stack = stack_of([[1, 1, 0], [0, 1, 1]])
    assert remove_objects(stack, 0, seed=0).identical(stack)


def test_every_pattern_is_equally_likely():
    # Three objects in two kernels, half removed: one pair of each object goes, in 2^3 patterns.
    stack = stack_of(np.ones((2, 3)))
    counts = np.zeros(8)
    for seed in range(240):
        seen = visible_objects(remove_objects(stack, 0.5, seed=seed)).values
        assert (seen.sum(axis=0) == 1).all()
        counts[int(seen[0] @ [1, 2, 4])] += 1
    assert stats.chisquare(counts).pvalue > 1e-3


def test_single_removals_are_equally_likely():
    stack = stack_of([[1, 1, 1], [1, 1, 1], [0, 0, 1]])  # 7 pairs
    counts = np.zeros((3, 3))
    for seed in range(280):
        counts += visible_objects(stack).values & ~visible_objects(
            remove_objects(stack, 1 / 7, seed=seed)
        )
    # The first pair of the order that is not its object's last: of objects 0 and 1 two pairs
    # each, of object 2 three. By symmetry within an object all its pairs are equally likely.
    assert counts.sum() == 280
    assert counts[2, 0] == counts[2, 1] == 0
    for column, kernels in ((0, 2), (1, 2), (2, 3)):
        assert stats.chisquare(counts[:kernels, column]).pvalue > 1e-3
    # Object 2 comes first with probability 3/7, objects 0 and 1 with 2/7 each: the first pair of
    # the whole order is never the last one of its object.
    assert stats.chisquare(counts.sum(axis=0), 280 * np.array([2, 2, 3]) / 7).pvalue > 1e-3


def test_same_seed_same_removals():
    stack = stack_of(np.ones((3, 10)))
    first = remove_objects(stack, 0.4, seed=7)
    assert first.identical(remove_objects(stack, 0.4, seed=7))
    assert not first.identical(remove_objects(stack, 0.4, seed=8))


def test_generator_is_advanced():
    stack = stack_of(np.ones((3, 10)))
    rng = np.random.default_rng(7)
    first, second = (remove_objects(stack, 0.4, seed=rng) for _ in range(2))
    assert first.identical(remove_objects(stack, 0.4, seed=np.random.default_rng(7)))
    assert first.identical(remove_objects(stack, 0.4, seed=7))
    assert not first.identical(second)


def test_removing_twice():
    stack = stack_of(np.ones((2, 10)))
    twice = remove_objects(remove_objects(stack, 0.25, seed=0), 0.2, seed=1)
    assert visible_objects(twice).sum() == 12
    assert visible_objects(twice).any("kernel").all()


def test_numpy_numbers_are_numbers():
    stack = stack_of(np.ones((2, 10)))
    expected = remove_objects(stack, 0.5, seed=1)
    assert expected.identical(remove_objects(stack, np.float32(0.5), seed=np.int64(1)))


@pytest.mark.parametrize("ratio", [1, 1.5, -0.1, math.nan, math.inf, -math.inf])
def test_ratio_out_of_range(ratio):
    with pytest.raises(MKMCError, match=rf"ratio: {ratio} found; a number in \[0, 1\)"):
        remove_objects(stack_of([[1, 1]]), ratio, seed=0)


@pytest.mark.parametrize("ratio", ["0.1", None, True, [0.1], 0.1j])
def test_ratio_is_a_number(ratio):
    with pytest.raises(MKMCError, match=r"ratio: .* found; a number"):
        remove_objects(stack_of([[1, 1]]), ratio, seed=0)


def test_seed_is_needed():
    with pytest.raises(MKMCError, match="seed: None"):
        remove_objects(stack_of([[1, 1]]), 0.5, seed=None)


def test_stack_is_checked():
    with pytest.raises(KernelError, match="Build one with stack_kernels"):
        remove_objects(np.ones((1, 2, 2)), 0.5, seed=0)
