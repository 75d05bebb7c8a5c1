"""Center, normalize, check and repair kernels: against closed forms, plain formulas and matrices
whose eigenvalues are known by construction."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.linalg
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

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
from mkmc_prob.preprocessing import check_definite

EPS = 2.0**-52
FLOAT32_EPS = 2.0**-23
METHODS = ("clip", "shift", "flip")


def with_eigenvalues(values, seed=0):
    """Return a symmetric matrix with the given eigenvalues, and its eigenvectors."""
    size = len(values)
    vectors = scipy.linalg.qr(np.random.default_rng(seed).standard_normal((size, size)))[0]
    matrix = (vectors * values) @ vectors.T
    return (matrix + matrix.T) / 2, vectors


def embedded(block, *, hidden=1, dtype=float):
    """Return `block` as the kernel 'a' of a stack, behind and before hidden objects."""
    labels = [f"o{i}" for i in range(len(block))]
    frame = pd.DataFrame(np.asarray(block, dtype=dtype), labels, labels)
    objects = [*(f"h{i}" for i in range(hidden)), *labels, *(f"g{i}" for i in range(hidden))]
    return stack_kernels({"a": frame}, objects=objects)


def block_of(stack, name="a"):
    seen = visible_objects(stack).sel(kernel=name).values
    return stack.sel(kernel=name).values[np.ix_(seen, seen)]


@st.composite
def stacks(draw):
    """Draw a stack of kernels of random features, often rank-deficient, float32 or float64."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    size, count = draw(st.integers(1, 7)), draw(st.integers(1, 3))
    visible = rng.random((count, size)) < draw(st.sampled_from([0.4, 0.8, 1.0]))
    features = rng.standard_normal((count, size, draw(st.integers(1, 8))))
    features += draw(st.sampled_from([0.0, 1.0, 30.0]))
    kernels = features @ features.swapaxes(1, 2)
    kernels /= np.trace(kernels, axis1=1, axis2=2)[:, None, None] / size
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MKMCWarning)
        return stack_kernels(
            kernels.astype(draw(st.sampled_from(["f4", "f8"]))), visible=visible
        ).assign_attrs(source="drawn")


def accepted(stack):
    check_definite(stack)
    return stack


def quiet(function, stack, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MKMCWarning)
        return function(stack, **options)


# -- what all of them keep ------------------------------------------------------------------------


@given(stacks())
def test_labels_attributes_and_the_input_are_kept(stack):
    before = stack.copy(deep=True)
    for function in (center, normalize, repair_spectrum):
        try:
            result = quiet(function, stack)
        except KernelError as error:  # an object whose diagonal happens to be zero
            if function is not normalize or "zero to rounding" not in str(error):
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
    with pytest.raises(KernelError, match="a labelled stack"):
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
    with pytest.warns(MKMCWarning, match=r"nothing of it beyond rounding .*, so zeros"):
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
        ([1.0, 6 * EPS, 2.0], "f8", False),  # n * rounding * largest = 6 eps: zero to rounding
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


# -- check_definite -------------------------------------------------------------------------------


def test_the_message_has_kernel_size_and_remedy():
    matrix = [[1.625, 1.875, 0.0], [1.875, 1.625, 0.0], [0.0, 0.0, 1.0]]  # 3.5, -0.25 and 1
    good = pd.DataFrame(np.eye(3), list("xyz"), list("xyz"))
    bad = pd.DataFrame(matrix, list("xyz"), list("xyz"))
    pattern = r"kernel 'bad': .*of 3 eigenvalues the smallest is -0\.25 \(the largest 3\.5;"
    with pytest.raises(IndefiniteKernelError, match=pattern + r".*repair_spectrum\(stack\)"):
        check_definite(stack_kernels({"good": good, "bad": bad}))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("size", [2, 5, 20])
def test_the_tolerance_is_n_times_rounding_times_the_norm(size, dtype):
    """2 x 2 blocks [[1, c], [c, 1]] on the diagonal: the smallest eigenvalue is 1 - c."""
    eps = FLOAT32_EPS if dtype == "f4" else EPS
    norm = np.sqrt(size + 2.0)  # to first order: size entries 1 and two entries c
    for factor, passes in ((0.0, True), (0.8, True), (1.3, False), (10.0, False)):
        matrix = np.eye(size)
        matrix[0, 1] = matrix[1, 0] = 1.0 + factor * size * eps * norm
        stack = embedded(matrix).assign_coords(rounding=("kernel", [eps]))
        if passes:
            check_definite(stack)
        else:
            with pytest.raises(IndefiniteKernelError):
                check_definite(stack)


@pytest.mark.parametrize("rank", [1, 3, 10])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_rank_deficient_kernels_pass_in_the_precision_they_came_in(dtype, rank):
    for seed in range(10):
        features = np.random.default_rng(seed).standard_normal((60, rank)).astype(dtype)
        stack = embedded(features @ features.T, dtype=dtype)
        check_definite(stack)
    if dtype == "f4":  # as if float64: the rounding of float32 is really negative then
        assert scipy.linalg.eigvalsh(block_of(stack))[0] < 0
        with pytest.raises(IndefiniteKernelError):
            check_definite(stack.drop_vars("rounding"))


def test_coarse_numbers_give_away_half_of_their_digits_at_most():
    """float16, eps 2^-10: n eps would pass 100 objects with a tenth of the norm below zero."""
    matrix = np.eye(100)
    matrix[0, 1] = matrix[1, 0] = 1.0 + 0.2  # smallest -0.2, norm about 10.1
    check_definite(embedded(matrix, dtype="f2"))
    matrix[0, 1] = matrix[1, 0] = 1.0 + 0.5  # 0.5 > 2^-5 * 10.2
    with pytest.raises(IndefiniteKernelError):
        check_definite(embedded(matrix, dtype="f2"))
    diagonal = np.ones(2000)
    diagonal[0] = 0.05  # above 2^-5, though below 2000 * 2^-10
    normalize(embedded(np.diag(diagonal), dtype="f2"))
    diagonal[0] = 0.02
    with pytest.raises(KernelError, match="zero to rounding"):
        normalize(embedded(np.diag(diagonal), dtype="f2"))
    diagonal[0] = -0.05
    with pytest.raises(KernelError, match=r"diagonal entry of object 'o0' is -0\.04998"):
        embedded(np.diag(diagonal), dtype="f2")


def test_extreme_but_definite_kernels_pass():
    for matrix in (
        np.zeros((2, 2)),
        [[0.0]],
        np.ones((4, 4)),
        np.diag([1e150, 1e-150]),
        1e-145 * np.array([[2.0, 1.0], [1.0, 2.0]]),
        1e150 * np.ones((3, 3)),
        scipy.linalg.hilbert(12),
    ):
        check_definite(embedded(matrix))
        assert np.array_equal(block_of(repair_spectrum(embedded(matrix))), matrix)


def test_extreme_indefinite_kernels_do_not():
    for scale in (1e-145, 1e149):
        with pytest.raises(IndefiniteKernelError):
            check_definite(embedded(scale * np.array([[1.0, 2.0], [2.0, 1.0]])))
    with pytest.raises(IndefiniteKernelError):  # a zero diagonal allows no covariance
        check_definite(embedded([[0.0, 1.0], [1.0, 1.0]]))


# -- repair_spectrum ------------------------------------------------------------------------------


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(-40, 40), min_size=2, max_size=7))
def test_repair_does_to_the_eigenvalues_what_it_says(seed, values):
    values = np.array(values) / 8
    values -= min(0.0, values.sum() / len(values))  # no kernel has a negative trace
    matrix, vectors = with_eigenvalues(values, seed)
    matrix += np.diag(np.maximum(0.0, -np.diagonal(matrix)))
    values, vectors = scipy.linalg.eigh(matrix, driver="ev")
    stack = embedded(matrix)
    expected = {
        "clip": np.maximum(values, 0.0),
        "shift": values - min(values[0], 0.0),
        "flip": np.abs(values),
    }
    for method in METHODS:
        repaired = quiet(repair_spectrum, stack, method=method)
        atol = 1e-13 * np.linalg.norm(matrix)
        np.testing.assert_allclose(
            block_of(repaired), (vectors * expected[method]) @ vectors.T, atol=atol
        )
        check_definite(repaired)


def test_closed_forms():
    stack = embedded([[1.0, 2.0], [2.0, 1.0]])  # eigenvalues 3 and -1
    expected = {
        "clip": [[1.5, 1.5], [1.5, 1.5]],
        "shift": [[2.0, 2.0], [2.0, 2.0]],
        "flip": [[2.0, 1.0], [1.0, 2.0]],
    }
    for method, values in expected.items():
        with pytest.warns(MKMCWarning) as caught:
            repaired = repair_spectrum(stack, method=method)
        np.testing.assert_allclose(block_of(repaired), values, rtol=4 * EPS)
        assert [w.filename for w in caught] == [__file__]
    xr.testing.assert_identical(
        quiet(repair_spectrum, stack), quiet(repair_spectrum, stack, method="clip")
    )


def test_little_left_of_a_kernel_is_still_semidefinite():
    """A zero diagonal: as much below zero as above, and clip and shift leave singular matrices."""
    rng = np.random.default_rng(3)
    for _ in range(40):
        size = rng.integers(2, 12)
        matrix = rng.standard_normal((size, size)) * 10.0 ** rng.uniform(-4, 0, (size, 1))
        matrix += matrix.T
        np.fill_diagonal(matrix, 0.0)
        for method in METHODS:
            check_definite(quiet(repair_spectrum, embedded(matrix, hidden=0), method=method))


def test_it_says_exactly_what_it_changed():
    good = pd.DataFrame(np.eye(3), list("xyz"), list("xyz"))
    # eigenvalues 3, -1 and 4 (x and y: clip moves each entry by 1/2, ||change|| = 1)
    bad = pd.DataFrame(
        [[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 4.0]], list("xyz"), list("xyz")
    )
    single = pd.DataFrame([[1.0, 3.0], [3.0, 1.0]], list("zw"), list("zw"))
    stack = stack_kernels({"good": good, "bad": bad, "worse": single})
    with pytest.warns(MKMCWarning) as caught:
        result = repair_spectrum(stack)
    texts = [str(w.message) for w in caught]
    assert len(texts) == 2
    share = 1 / np.sqrt(1 + 1 + 4 + 4 + 16)
    assert texts[0].startswith(
        "kernel 'bad': 1 of 3 eigenvalues below zero, the smallest -1 (the largest 4); method "
        f"'clip' changed the kernel by {share:.3g} of its Frobenius norm, most the entry of "
        "objects "
    )
    assert {"'x'", "'y'"} & set(texts[0].split())
    assert texts[0].endswith(("from 1 to 1.5", "from 2 to 1.5"))
    assert texts[1].startswith("kernel 'worse': 1 of 2 eigenvalues below zero, the smallest -2 ")
    assert result.attrs["repair_spectrum"] == "\n".join(texts)
    assert result.sel(kernel="good").values.tobytes() == stack.sel(kernel="good").values.tobytes()
    # once more: nothing to do, and what was done is still told
    again = repair_spectrum(result)
    xr.testing.assert_identical(again, result)


def test_what_it_says_survives_netcdf(tmp_path):
    for stack in (embedded([[1.0, 2.0], [2.0, 1.0]]), embedded(np.eye(2))):
        repaired = quiet(repair_spectrum, stack)
        repaired.to_netcdf(tmp_path / "repaired.nc", engine="h5netcdf")
        loaded = xr.load_dataarray(tmp_path / "repaired.nc", engine="h5netcdf")
        assert loaded.attrs["repair_spectrum"] == repaired.attrs["repair_spectrum"]
    assert "nothing changed" in loaded.attrs["repair_spectrum"]


@given(stacks())
def test_what_is_semidefinite_to_rounding_is_not_touched(stack):
    for method in METHODS:
        result = repair_spectrum(stack, method=method)  # a warning would fail the test
        assert result.values.tobytes() == stack.values.tobytes()
        assert "nothing changed" in result.attrs["repair_spectrum"]


def test_rounding_of_float32_is_counted_as_such():
    features = np.random.default_rng(4).standard_normal((30, 2)).astype("f4")
    matrix = (features @ features.T).astype(float)
    matrix[0, 1] = matrix[1, 0] = matrix[0, 1] + 1.0  # one pair is wrong: one negative eigenvalue
    stack = embedded(matrix).assign_coords(rounding=("kernel", [FLOAT32_EPS]))
    with pytest.warns(MKMCWarning, match="1 of 30 eigenvalues below zero"):
        check_definite(repair_spectrum(stack))


@pytest.mark.parametrize("method", ["Clip", "", None, 3, ["clip"]])
def test_unknown_methods(method):
    with pytest.raises(KernelError, match="'clip', 'shift' or 'flip'"):
        repair_spectrum(embedded(np.eye(2)), method=method)


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
    figures = ["mean_diagonal", "smallest", "largest"]
    assert table.columns.tolist() == ["visible", "missing", *figures]
    assert table.loc["a", figures].tolist() == [3, -1, 4]
    assert table.loc["b", figures].tolist() == [1, 1, 1]
    assert table.loc["c", figures].isna().all()
    table = describe(stack, spectrum=True)
    spectrum = table[["smallest_eigenvalue", "largest_eigenvalue", "rank"]].to_numpy()
    root = np.sqrt(2.0)
    np.testing.assert_allclose(spectrum[:2], [[3 - root, 3 + root, 2], [0, 3, 1]], atol=1e-14)
    assert np.isnan(spectrum[2]).all()
