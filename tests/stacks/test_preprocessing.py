"""Center, normalize and describe kernels: against closed forms and plain formulas."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from spectra import (
    EPS,
    FLOAT32_EPS,
    accepted,
    block_of,
    embedded,
    quiet,
    stacks,
)

from mkmc_prob import (
    IndefiniteKernelError,
    KernelError,
    MKMCWarning,
    center,
    describe,
    normalize,
    repair_spectrum,
    stack_kernels,
    visible_objects,
)
from mkmc_prob.stacks.definite import check_definite

# -- what all of them keep ------------------------------------------------------------------------


@given(stacks())
def test_labels_attributes_and_the_input_are_kept(stack):
    before = stack.copy(deep=True)
    for function in (center, normalize, repair_spectrum):
        try:
            result = quiet(function, stack)
        except KernelError as error:  # an object whose diagonal happens to be zero
            if function is not normalize or "zero up to rounding" not in str(error):
                raise
            continue
        xr.testing.assert_identical(stack, before)
        assert not np.shares_memory(result.values, stack.values)
        assert result.attrs["source"] == "drawn"
        assert result["rounding"].attrs == stack["rounding"].attrs
        assert result.dims == stack.dims
        for dim in stack.dims:
            assert result[dim].values.tolist() == stack[dim].values.tolist()
        # what was missing is missing, and what is there is exactly symmetric
        xr.testing.assert_identical(visible_objects(result), visible_objects(stack))
        assert np.array_equal(result.values, result.values.swapaxes(1, 2), equal_nan=True)
        assert (np.isnan(result.values) == np.isnan(stack.values)).all()


@pytest.mark.parametrize("function", [center, normalize, check_definite, repair_spectrum, describe])
def test_the_stack_is_checked(function):
    with pytest.raises(KernelError, match="a labeled stack"):
        function(np.eye(2))
    stack = embedded(np.eye(2))
    stack[0, 1, 2] = 0.5
    with pytest.raises(KernelError, match=r"kernel 'a': not symmetric.*'o0' and 'o1'"):
        function(stack)


def test_a_kernel_that_sees_nothing_passes_through():
    stack = stack_kernels(np.array([np.eye(2), np.eye(2)]), visible=[[1, 1], [0, 0]])
    for function in (center, normalize, repair_spectrum):
        assert np.isnan(function(stack).values[1]).all()
    check_definite(stack)


def test_further_coordinates_stay_where_rounding_changes():
    stack = embedded([[4.0, 2.0], [2.0, 4.0]]).assign_coords(species=("object", list("abcd")))
    for function in (center, normalize):
        assert function(stack)["species"].values.tolist() == list("abcd")


# -- center -------------------------------------------------------------------------------------


@given(stacks())
def test_center_is_double_centering(stack):
    centered = quiet(center, stack)
    for k, seen in enumerate(visible_objects(stack).values):
        n = int(seen.sum())
        block = stack.values[k][np.ix_(seen, seen)]
        h = np.eye(n) - 1.0 / max(n, 1)
        found = centered.values[k][np.ix_(seen, seen)]
        atol = 20 * EPS * max(np.abs(block).max(initial=0.0), 1e-300)
        np.testing.assert_allclose(found, h @ block @ h, rtol=0, atol=atol)
        np.testing.assert_allclose(found.sum(axis=0), 0.0, atol=n * atol)


def test_center_is_the_kernel_of_centered_features():
    features = np.random.default_rng(1).standard_normal((5, 3)) + 2.0
    centered = features - features.mean(axis=0)
    found = center(embedded(features @ features.T))
    np.testing.assert_allclose(block_of(found), centered @ centered.T, atol=1e-13)


def test_center_reports_the_digits_that_cancel():
    # X = m + (1, -1), both with one feature: ||Q||_F = 2 m^2 + 2 and ||HQH||_F = 2 exactly
    for dtype, eps, m in (("f8", EPS, 1024.0), ("f4", FLOAT32_EPS, 32.0)):
        x = np.array([m + 1, m - 1])
        centered = center(embedded(np.outer(x, x), dtype=dtype))
        assert block_of(centered).tolist() == [[1, -1], [-1, 1]]
        assert centered["rounding"].item() == pytest.approx(eps * (m**2 + 1), rel=1e-12)


def test_center_warns_where_nothing_is_left():
    with pytest.warns(
        MKMCWarning, match=r"kernel 'a'.*nothing of it.* 3 visible objects"
    ) as caught:
        centered = center(embedded(np.full((3, 3), 0.1)))
    assert [w.filename for w in caught] == [__file__]
    assert not block_of(centered).any()
    # float32 and a mean of 1e5: what cancels leaves 9 objects noise with a negative eigenvalue
    features = np.random.default_rng(0).standard_normal((9, 3)) + 1e5
    with pytest.warns(MKMCWarning, match=r"nothing of it beyond rounding .*, so it is set to zero"):
        assert not block_of(center(embedded(features @ features.T, dtype="f4"))).any()
    with pytest.warns(MKMCWarning, match="1 visible"):
        assert block_of(center(embedded([[0.3]]))).tolist() == [[0.0]]
    assert block_of(center(embedded(np.zeros((2, 2))))).tolist() == [[0, 0], [0, 0]]


# -- normalize ------------------------------------------------------------------------------------


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 6))
def test_normalize_is_the_cosine_of_the_features(seed, size, rank):
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((size, rank)) + 0.1
    features *= 10.0 ** rng.uniform(-2, 2, (size, 1))
    matrix = features @ features.T
    found = block_of(normalize(embedded((matrix + matrix.T) / 2)))
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    np.testing.assert_allclose(found, unit @ unit.T, atol=1e-13)
    assert (np.diagonal(found) == 1.0).all()


def test_normalize_at_the_ends_of_the_range():
    for scale in (1e-150, 1e149):
        found = block_of(normalize(embedded(scale * np.array([[4.0, 1.0], [1.0, 1.0]]))))
        np.testing.assert_allclose(found, [[1, 0.5], [0.5, 1]], rtol=4 * EPS)


@pytest.mark.parametrize(
    ("diagonal", "dtype", "passes"),
    [
        ([1.0, 0.0, 2.0], "f8", False),
        ([0.0, 0.0, 0.0], "f8", False),
        ([1.0, 6 * EPS, 2.0], "f8", False),  # n * rounding * largest = 6 eps: zero up to rounding
        ([1.0, 7 * EPS, 2.0], "f8", True),
        ([1.0, -4 * EPS, 2.0], "f8", False),
        ([1.0, 6 * FLOAT32_EPS, 2.0], "f4", False),
        ([1.0, 7 * FLOAT32_EPS, 2.0], "f4", True),
    ],
)
def test_normalize_refuses_a_zero_diagonal(diagonal, dtype, passes):
    stack = embedded(np.diag(diagonal), dtype=dtype)
    if passes:
        assert (block_of(normalize(stack)) == np.eye(3)).all()
        return
    first = int(np.argmin(diagonal))
    with pytest.raises(
        KernelError, match=rf"kernel 'a'.*object 'o{first}'.*(?s:Hide the object)"
    ) as raised:
        normalize(stack)
    assert raised.type is KernelError


def test_normalize_after_center_names_the_object_at_the_mean():
    x = np.array([-1.0, 0.0, 1.0]) + 1 / 3
    with pytest.raises(KernelError, match=r"object 'o1'.*do not center"):
        normalize(center(embedded(np.outer(x, x))))


def test_what_is_semidefinite_stays_so_through_any_chain():
    """Rank 1 to 3, mean up to 1e6 times the spread, lengths over three decades, both precisions."""
    rng = np.random.default_rng(2)
    passed = grown = 0
    for _ in range(80):
        size, rank = rng.integers(2, 30), rng.integers(1, 4)
        features = rng.standard_normal((size, rank)) * 10.0 ** rng.uniform(-1.5, 0, (size, 1))
        features += rng.choice([0.0, 1.0, 1e3, 1e6])
        stack = embedded(features @ features.T, dtype=rng.choice(["f4", "f8"]))
        check_definite(stack)
        centered = accepted(quiet(center, stack))
        accepted(quiet(center, centered))
        for first in (stack, centered):
            try:
                second = accepted(normalize(first))
            except KernelError as error:
                if isinstance(error, IndefiniteKernelError):
                    raise
                continue
            passed += 1
            grown += bool(second["rounding"] > first["rounding"])
            accepted(quiet(center, second))
    assert passed > 60
    assert grown  # the rounding error that normalize enlarges does occur


def test_normalize_and_center_do_not_hide_an_indefinite_kernel():
    matrix = np.array([[1.0, 0.9, -0.9], [0.9, 1.0, 0.9], [-0.9, 0.9, 1.0]])  # smallest -0.8
    scales = np.array([1.0, 1e-3, 1e2])
    stack = normalize(embedded(matrix * np.outer(scales, scales)))
    assert stack["rounding"].item() == EPS
    with pytest.raises(IndefiniteKernelError, match=r"smallest is -0\.8 "):
        check_definite(stack)


# -- describe -------------------------------------------------------------------------------------


def test_describe():
    a = pd.DataFrame([[4.0, -1.0], [-1.0, 2.0]], ["x", "y"], ["x", "y"])
    b = pd.DataFrame(np.ones((3, 3)), list("yzw"), list("yzw"))
    stack = stack_kernels({"a": a, "b": b, "c": pd.DataFrame()})
    table = describe(stack)
    assert table.index.name == "kernel"
    assert table.index.tolist() == ["a", "b", "c"]
    assert table["visible"].tolist() == [2, 3, 0]
    assert table["missing"].tolist() == [2, 1, 4]
    figures = ["mean_diagonal", "mean_entry", "smallest", "largest"]
    assert table.columns.tolist() == ["visible", "missing", *figures]
    assert table.loc["a", figures].tolist() == [3, -1 / 3, -1, 4]
    assert table.loc["b", figures].tolist() == [1, 1, 1, 1]
    assert table.loc["c", figures].isna().all()
    table = describe(stack, spectrum=True)
    spectrum = table[["smallest_eigenvalue", "largest_eigenvalue", "rank"]].to_numpy()
    root = np.sqrt(2.0)
    np.testing.assert_allclose(spectrum[:2], [[3 - root, 3 + root, 2], [0, 3, 1]], atol=1e-14)
    assert np.isnan(spectrum[2]).all()


def test_the_mean_entry_is_the_constant_of_a_kernel_whatever_its_scale():
    size, rng = 7, np.random.default_rng(0)
    features = rng.standard_normal((size, 30))
    one = features @ features.T
    for constant in (0.0, 5.0, 500.0):
        for scale in (1e-100, 1.0, 1e100):
            stack = embedded(scale * (one + constant))
            pairs = [one[i, j] for i in range(size) for j in range(size) if i != j]
            expected = (sum(pairs) / len(pairs) + constant) / (np.trace(one) / size + constant)
            assert describe(stack)["mean_entry"].item() == pytest.approx(expected, rel=1e-12)
    centered = describe(center(embedded(one + 5.0)))  # its rows sum to zero
    assert centered["mean_entry"].item() == pytest.approx(-1 / (size - 1), rel=1e-10)


def test_there_is_no_mean_entry_of_one_object_or_of_zeros():
    for matrix in (np.eye(1), np.zeros((3, 3))):
        assert np.isnan(describe(embedded(matrix))["mean_entry"].item())
