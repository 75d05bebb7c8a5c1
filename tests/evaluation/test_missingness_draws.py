"""Artificial missingness: with what probability each protocol removes what.

The chi-squared tests are at level 0.001; their seeds are fixed, so they pass or fail every time.
"""

import itertools
from collections import Counter

import numpy as np
from removals import full, seen_after
from scipy import stats

LEVEL = 1e-3


def is_likely(counts, expected=None):
    return stats.chisquare(counts, expected).pvalue > LEVEL


def test_without_keep_one_every_subset_is_equally_likely():
    counts = Counter(
        seen_after(full(2, 2), 0.5, seed, keep_one=False).tobytes() for seed in range(240)
    )
    assert len(counts) == 6  # 4 over 2: in two of them an object has vanished
    assert is_likely(list(counts.values()))


def test_every_pick_of_a_kernel_is_equally_likely():
    counts = Counter(seen_after(full(3, 2), 0.99, s, "objects").tobytes() for s in range(270))
    assert len(counts) == 9  # one of three kernels for each of two objects
    assert is_likely(list(counts.values()))
    counts = Counter(seen_after(full(3, 2), 0.5, s, "objects").tobytes() for s in range(270))
    assert len(counts) == 6  # one object, one kernel
    assert is_likely(list(counts.values()))


def test_each_round_has_its_own_order():
    counts = np.zeros((3, 3))
    for seed in range(270):
        first = np.argmin(seen_after(full(3, 3), 1 / 9, seed, "rounds").sum(axis=0))
        second = np.argmin(seen_after(full(3, 3), 4 / 9, seed, "rounds").sum(axis=0))
        counts[first, second] += 1
    assert is_likely(counts.ravel())


def test_kernels_lose_independently_where_nothing_is_kept():
    counts = Counter(
        seen_after(full(2, 3), 1 / 3, seed, "kernels", keep_one=False).tobytes()
        for seed in range(270)
    )
    assert len(counts) == 9
    assert is_likely(list(counts.values()))


def test_kernels_keep_one_of_each_object():
    # About 50 of 200 objects have their kept pair in any one of four kernels, 100 pairs of each go.
    stack, lost = full(4, 200), 0
    for seed in range(20):
        assert seen_after(stack, 0.5, seed, "kernels").any(axis=0).all()
        lost += (~seen_after(stack, 0.5, seed, "kernels", keep_one=False).any(axis=0)).sum()
    # Without it one in 2^4 vanishes. Objects exclude each other slightly: less than binomial.
    assert abs(lost / 4000 - 1 / 16) < 4 * np.sqrt(1 / 16 * 15 / 16 / 4000)


def test_blocks_are_equally_likely_whatever_their_size():
    batches = {0: "two", 1: "three", 2: "three", 3: "two", 4: "three"}  # not in a row
    counts = np.zeros((2, 2))
    for seed in range(200):
        gone = ~seen_after(full(2, 5), 0.24, seed, "blocks", batches=batches)  # 2.4 of 10 rows
        assert gone.sum() in (2, 3)
        assert gone[:, 0].sum() + gone[:, 1].sum() == 1
        counts += gone[:, :2]
    assert is_likely(counts.ravel())


def test_the_first_removal_goes_by_the_odds():
    classes, odds = dict(enumerate("aab")), {"a": 1, "b": 3}
    counts = np.zeros(3)
    for seed in range(240):
        more = {"classes": classes, "odds": odds}
        counts += (~seen_after(full(2, 3), 1 / 6, seed, "classes", **more)).sum(axis=0)
    assert is_likely(counts, 240 * np.array([1, 1, 3]) / 5)


def test_two_removals_have_the_exact_probabilities():
    weights = {"a": 1.0, "b": 2.0, "c": 5.0}
    exact = Counter()
    for first, second in itertools.permutations("abc", 2):
        rest = 8 - weights[first]
        exact["".join(sorted(first + second))] += weights[first] / 8 * weights[second] / rest
    counts = Counter()
    more = {"classes": dict(enumerate("abc")), "odds": weights, "keep_one": False}
    for seed in range(400):
        gone = ~seen_after(full(1, 3), 2 / 3, seed, "classes", **more)
        counts["".join(np.array(list("abc"))[gone[0]])] += 1
    assert is_likely([counts[key] for key in exact], [400 * p for p in exact.values()])


def test_counts_by_class_are_wallenius():
    # 12 of 30 pairs are of a class with four times the odds; 15 are removed.
    law = stats.nchypergeom_wallenius(30, 12, 15, 4.0)
    more = {
        "classes": {i: "rare" if i < 4 else "common" for i in range(10)},
        "odds": {"rare": 8, "common": 2},
        "keep_one": False,
    }
    found = [
        (~seen_after(full(3, 10), 0.5, seed, "classes", **more))[:, :4].sum() for seed in range(400)
    ]
    inner = np.array([7, 8, 9, 10])  # up to 7, 8, 9, 10, more
    expected = 400 * np.diff([0, *law.cdf(inner), 1])
    assert (expected > 5).all()
    assert is_likely(np.histogram(found, [0, *(inner + 0.5), 13])[0], expected)


def test_only_the_ratios_of_the_odds_matter():
    stack, classes = full(3, 10), {i: i % 3 for i in range(10)}
    draws = [
        seen_after(stack, 0.4, 3, "classes", classes=classes, odds=odds)
        for odds in ({0: 1, 1: 2, 2: 3}, {0: 4, 1: 8, 2: 12.0})
    ]
    np.testing.assert_array_equal(*draws)
    sure = seen_after(stack, 0.8 / 3, 3, "classes", classes=classes, odds={0: 1e20, 1: 1, 2: 1})
    assert sure[:, [0, 3, 6, 9]].sum(axis=0).tolist() == [1, 1, 1, 1]  # 8 pairs, one each is kept
