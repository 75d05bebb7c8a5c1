"""The permutation test of missingness completely at random."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from not_ignorable import remove_large
from scipy.stats import mannwhitneyu

from mkmc_prob import KernelError, datasets, remove_objects, stack_kernels, visible_objects
from mkmc_prob.diagnostics import mcar_test
from mkmc_prob.diagnostics.missingness_test import Ranks, holm


def kernels_of(rng, objects, kernels):
    """Kernels of features, each object with a size of its own in all of them."""
    size = np.exp(0.5 * rng.standard_normal((objects, 1)))
    found = []
    for _ in range(kernels):
        x = size * (1.0 + rng.standard_normal((objects, 4)))
        found.append(x @ x.T)
    return np.array(found)


def test_a_difference_is_that_of_the_rank_sum_test():
    rng = np.random.default_rng(0)
    values, missing = rng.integers(0, 8, 30).astype(float), rng.random(30) < 0.4
    found = Ranks.of(np.arange(30), values).differences(missing[None])[0]
    expected = mannwhitneyu(
        values[missing], values[~missing], use_continuity=False, method="asymptotic"
    )
    from scipy.stats import norm

    assert 2.0 * norm.sf(abs(found)) == pytest.approx(expected.pvalue, rel=1e-12)
    assert (found > 0) == (expected.statistic > missing.sum() * (~missing).sum() / 2)


def test_the_p_value_is_that_of_all_permutations():
    """Brute force over which 3 of 8 objects are missing, the statistic by its definition."""
    rng = np.random.default_rng(2)
    kernels = kernels_of(rng, 8, 2)
    missing = np.zeros(8, dtype=bool)
    missing[[0, 3, 5]] = True
    stack = stack_kernels(kernels, visible=[~missing, np.ones(8, dtype=bool)])
    other = kernels[1]
    features = np.diag(other), (other.sum(axis=1) - np.diag(other)) / 7.0
    ranks = [1.0 + (each[:, None] > each).sum(axis=1) for each in features]

    def statistic(chosen):
        chosen = list(chosen)
        return max(abs(own[chosen].mean() - 4.5) for own in ranks)

    all_of_them = [statistic(chosen) for chosen in itertools.combinations(range(8), 3)]
    share = np.mean(np.array(all_of_them) >= statistic([0, 3, 5]) - 1e-12)
    found = mcar_test(stack, permutations=20_000, seed=1)
    assert found["p_value"].values[0] == pytest.approx(share, abs=0.015)
    assert found["reason"].values.tolist() == ["", "it misses fewer than 3 objects"]
    assert np.isnan(found["p_value"].values[1])
    assert found["p_adjusted"].values[0] == found["p_value"].values[0]
    difference = found["difference"].sel(kernel="Q1", other="Q2").values
    assert found["statistic"].values[0] == np.abs(difference).max()


def test_p_values_are_uniform_under_exchangeability():
    """Of 120 kernels without eight objects each, within 3 standard errors."""
    kernels = stack_kernels(kernels_of(np.random.default_rng(0), 24, 3))
    p = np.array(
        [
            mcar_test(
                remove_objects(kernels, 0.35, seed=seed, protocol="kernels"),
                permutations=99,
                seed=seed,
            )["p_value"]
            for seed in range(40)
        ]
    ).ravel()
    for level in (0.05, 0.2, 0.5):
        noise = np.sqrt(level * (1.0 - level) / len(p))
        assert abs((p <= level).mean() - level) < 3.0 * noise


def test_missing_by_size_is_found():
    kernels = stack_kernels(kernels_of(np.random.default_rng(1), 60, 3))
    found = mcar_test(remove_large(kernels, 20, np.random.default_rng(0), 2.0), seed=0)
    assert (found["p_adjusted"] < 0.05).all()
    sizes = found["difference"].sel(feature="size").values
    assert (sizes[~np.eye(3, dtype=bool)] > 0.0).all()  # the missing ones are larger elsewhere


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 10**6), factor=st.floats(1e-6, 1e6))
def test_a_unit_does_not_matter_and_the_seed_decides(seed, factor):
    kernels = stack_kernels(kernels_of(np.random.default_rng(seed), 14, 3))
    stack = remove_objects(kernels, 0.3, seed=seed)
    scaled = stack * np.array([factor, 1.0, 2.0])[:, None, None]
    before = stack.copy(deep=True)
    one, other = (mcar_test(each, permutations=39, seed=seed) for each in (stack, scaled))
    assert before.identical(stack)
    for name in ("p_value", "p_adjusted", "difference", "statistic"):
        np.testing.assert_allclose(one[name], other[name], rtol=1e-9)
    p = one["p_value"].values
    assert ((p >= 1 / 40) & (p <= 1.0) | np.isnan(p)).all()
    assert (np.isnan(p) == (one["reason"].values != "")).all()


def test_what_cannot_be_tested_has_a_reason():
    ones = np.eye(8)
    visible = np.ones((4, 8), dtype=bool)
    visible[0, :2] = False  # too few missing
    visible[1, 2:] = False  # too few visible
    visible[2, :4] = visible[3, 4:] = False  # no others show both
    found = mcar_test(stack_kernels([ones] * 4, visible=visible))
    reasons = found["reason"].values.tolist()
    assert reasons[:2] == ["it misses fewer than 3 objects", "it shows fewer than 3 objects"]
    assert np.isnan(found["p_value"]).all()
    assert reasons[2] == reasons[3]
    assert reasons[2].startswith("no other kernel shows 3 of its missing and 3 of its visible")
    equal = mcar_test(stack_kernels([ones, ones], visible=visible[[2, 0]] | [[0], [1]]))
    assert equal["reason"].values[0] == "the other kernels show no differences between objects"
    alone = mcar_test(stack_kernels([ones], visible=[[1, 1, 1, 1, 0, 0, 0, 0]]))
    assert alone["reason"].item().startswith("no other kernel shows 3 of its missing")


def test_unit_diagonals_do_not_differ():
    kernels, _ = datasets.make_fusion_problem(40, 3)
    found = mcar_test(remove_objects(kernels, 0.3, seed=0), permutations=49)
    assert np.isnan(found["difference"].sel(feature="size")).all()
    assert np.isfinite(found["p_value"]).all()


def test_objects_that_no_other_kernel_shows_are_not_permuted():
    kernels = kernels_of(np.random.default_rng(4), 20, 2)
    visible = np.ones((2, 20), dtype=bool)
    visible[0, :6] = False
    visible[1, 15:] = False
    stack = stack_kernels(kernels, visible=visible)
    fewer = stack.isel(object=slice(15), object_bis=slice(15))
    one, other = (mcar_test(each, permutations=99, seed=3) for each in (stack, fewer))
    assert one["p_value"].sel(kernel="Q1") == other["p_value"].sel(kernel="Q1")
    assert visible_objects(fewer).sel(kernel="Q2").all()


def test_holm_against_its_definition():
    rng = np.random.default_rng(0)
    for _ in range(20):
        p = rng.random(5) ** 3
        order = np.argsort(p)
        expected = np.empty(5)
        largest = 0.0
        for i, place in enumerate(order):
            largest = max(largest, min(1.0, (5 - i) * p[place]))
            expected[place] = largest
        np.testing.assert_allclose(holm(p), expected)
    assert len(holm(np.array([]))) == 0


@pytest.mark.parametrize("options", [{"permutations": 0}, {"seed": -1}])
def test_refused_arguments(options):
    with pytest.raises(KernelError, match=f"{next(iter(options))}: "):
        mcar_test(stack_kernels([np.eye(3)]), **options)
