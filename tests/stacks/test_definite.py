"""Check and repair kernels: against matrices whose eigenvalues are known by construction."""

import numpy as np
import pandas as pd
import pytest
import scipy.linalg
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from spectra import (
    EPS,
    FLOAT32_EPS,
    METHODS,
    block_of,
    embedded,
    quiet,
    stacks,
    with_eigenvalues,
)

from mkmc_prob import (
    IndefiniteKernelError,
    KernelError,
    MKMCWarning,
    normalize,
    repair_spectrum,
    stack_kernels,
)
from mkmc_prob.stacks.definite import check_definite

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
    with pytest.raises(KernelError, match="zero up to rounding"):
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
        f"'clip' changed the kernel by {share:.3g} of its Frobenius norm; the entry of "
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
