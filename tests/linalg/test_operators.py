"""Products, entries and sums of matrices that are not in memory are those of the dense matrix."""

import pickle
from typing import NamedTuple

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from mkmc_prob import kernels, stack_kernels
from mkmc_prob.linalg import operators, tiles

KINDS = ["dask", "zarr", "memmap", "sparse", "features", "features in tiles"]
DTYPES = [np.float32, np.float64]


class Case(NamedTuple):
    """A kernel of some kind, which objects it shows, and its visible block as a dense array."""

    kernel: object
    visible: np.ndarray
    block: np.ndarray


def case_of(kind, size, side, dtype, seed, folder):
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((size, 3)).astype(dtype)
    matrix = features.astype(np.float64) @ features.T.astype(np.float64) / 3
    visible = rng.random(size) < rng.choice([0.3, 0.7, 1.0])
    if "features" not in kind:
        matrix = rng.uniform(0.1, 10) * matrix + rng.uniform(0, 10)
        matrix[np.abs(matrix) < 0.3] = 0.0
        matrix = matrix.astype(dtype)
    given = {
        "dask": lambda: da.from_array(matrix, chunks=side),
        "zarr": lambda: zarr.array(matrix, chunks=(side, side)),
        "memmap": lambda: on_disk(matrix, folder),
        "sparse": lambda: scipy.sparse.csr_array(matrix),
        "features": lambda: kernels.Features(features),
        "features in tiles": lambda: kernels.Features(da.from_array(features, chunks=(side, 2))),
    }
    block = matrix.astype(np.float64)[np.ix_(visible, visible)]
    return Case(given[kind](), visible, block)


def on_disk(matrix, folder):
    np.save(folder / "matrix.npy", matrix)
    return np.load(folder / "matrix.npy", mmap_mode="r")


def operator_of(case):
    stack = stack_kernels({"a": case.kernel}, visible=case.visible[None])
    return stack.kernel(0).moment


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("matrices")


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=10)
@given(
    size=st.integers(1, 30),
    side=st.integers(1, 30),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 2**32 - 1),
    unit=st.sampled_from([1.0, 0.3, 50.0]),
    shift=st.sampled_from([0.0, 2.5, -40.0]),
)
def test_an_operator_is_the_dense_matrix(kind, folder, size, side, dtype, seed, unit, shift):
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("LEAST_TILE", 1), ("TILE", side), ("ROWS", 4)):
            patch.setattr(tiles, name, value)
        patch.setattr(operators, "ROWS", side)
        case = case_of(kind, size, min(side, size), dtype, seed, folder)
        plain = operator_of(case)
        moved = plain.in_units(unit, shift)
        rng = np.random.default_rng(seed)
        n = int(case.visible.sum())
        rows, columns = rng.integers(n, size=(2, 5)) if n else np.zeros((2, 0), dtype=int)
        for operator, dense in ((plain, case.block), (moved, case.block / unit - shift)):
            scale = np.abs(case.block).max(initial=1.0) / unit + abs(shift) + 1.0

            def close(found, expected, scale=scale):
                np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * n * scale)

            assert len(operator) == n
            wide = rng.standard_normal((n, 3))
            close(operator @ wide, dense @ wide)
            close(operator @ wide[:, 0], dense @ wide[:, 0])
            close(operator.diagonal(), np.diagonal(dense))
            close(operator.block(rows, columns), dense[np.ix_(rows, columns)])
            assert (operator.sizes >= np.abs(dense).sum(axis=1) * (1 - 1e-12) - 1e-300).all()
            # of Q, whatever the units
            close(operator.total, case.block.sum(), scale * unit * (n + 1))
            close(operator.trace, np.trace(case.block), scale * unit)
            close(operator.norm, np.linalg.norm(case.block), scale * unit)
        assert plain.unit == 1.0
        assert plain.shift == 0.0


@pytest.mark.parametrize("kind", KINDS)
def test_sizes_of_tiles_are_the_sums_of_absolute_values(kind, folder):
    case = case_of(kind, 20, 6, np.float64, 1, folder)
    sums = np.abs(case.block).sum(axis=1)
    sizes = operator_of(case).sizes
    if "features" in kind:  # bounds
        assert (sizes <= 3 * np.abs(case.block).sum()).all()
    else:
        np.testing.assert_allclose(sizes, sums, rtol=1e-13)


@pytest.mark.parametrize("kind", KINDS)
def test_the_diagonal_is_a_copy(kind, folder):
    operator = operator_of(case_of(kind, 6, 3, np.float64, 0, folder))
    before = operator.diagonal()
    operator.diagonal()[:] = 0.0
    assert np.array_equal(operator.diagonal(), before)


@pytest.mark.parametrize("kind", KINDS)
def test_an_operator_can_be_pickled(kind, folder):
    case = case_of(kind, 9, 4, np.float32, 2, folder)
    operator = operator_of(case).in_units(2.0, 0.5)
    again = pickle.loads(pickle.dumps(operator))
    columns = np.random.default_rng(0).standard_normal((len(operator), 2))
    assert np.array_equal(again @ columns, operator @ columns)


def nearly_symmetric(size=17, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((size, 4))
    return features @ features.T + 1e-9 * rng.standard_normal((size, size))


@pytest.mark.parametrize("side", [3, 5, 17])
def test_of_a_nearly_symmetric_array_the_operator_is_symmetric(side):
    matrix = nearly_symmetric()
    operator = stack_kernels({"a": da.from_array(matrix, chunks=side)}).kernel(0).moment
    everything = np.arange(17)
    whole = operator.block(everything, everything)
    assert np.array_equal(whole, whole.T)
    np.testing.assert_allclose(operator @ np.eye(17), whole, rtol=0, atol=1e-14)
    np.testing.assert_allclose(whole, 0.5 * (matrix + matrix.T), rtol=0, atol=1e-8)
    assert np.array_equal(operator.block(everything[::-1], everything[:4]), whole[::-1, :4])
    np.testing.assert_allclose(operator.total, whole.sum(), rtol=1e-12)
    np.testing.assert_allclose(operator.norm, np.linalg.norm(whole), rtol=1e-12)


def test_products_have_the_same_bits_whatever_the_scheduler():
    operator = stack_kernels({"a": da.from_array(nearly_symmetric(60), chunks=7)}).kernel(0).moment
    columns = np.random.default_rng(1).standard_normal((60, 2))
    with dask.config.set(scheduler="synchronous"):
        expected = operator @ columns
    with dask.config.set(scheduler="threads", num_workers=4):
        assert np.array_equal(operator @ columns, expected)


@pytest.mark.parametrize("side", [8, 30])
def test_a_large_constant_is_taken_out_of_float32_without_loss(side):
    """The shift is subtracted in float64: in float32 the differences would have lost digits."""
    rng = np.random.default_rng(0)
    features = rng.standard_normal((30, 4))
    matrix = (1000.0 + features @ features.T).astype(np.float32)
    operator = stack_kernels({"a": da.from_array(matrix, chunks=side)}).kernel(0).moment
    columns = rng.standard_normal((30, 2))
    exact = (matrix.astype(np.float64) - 1000.1) @ columns
    found = operator.in_units(1.0, 1000.1) @ columns
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("chunks", "size", "expected"),
    [
        ((4, 4), 30, (12, 12, 6)),  # small chunks are read several at a time, always whole ones
        ((6, 6), 30, (6,) * 5),
        ((6, 8), 30, (8, 8, 8, 6)),
        ((50, 50), 50, (20, 20, 10)),
        ((8, 8), 3, (3,)),
    ],
)
def test_tiles_are_whole_chunks_of_a_middling_size(monkeypatch, chunks, size, expected):
    for name, value in (("LEAST_TILE", 5), ("TILE", 11), ("LARGEST_TILE", 20)):
        monkeypatch.setattr(tiles, name, value)
    array = tiles.as_tiles(zarr.zeros((size, size), chunks=chunks))
    assert array.chunks == (expected, expected)


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        (((2, 8, 20), (2, 8, 20)), (2, 8, 20)),
        (((2, 8, 20), (15, 15)), (2, 8, 20)),
        (((30,), (15, 15)), (11, 11, 8)),
        (((3,) * 10, (3,) * 10), (11, 11, 8)),
    ],
)
def test_chunks_of_dask_are_kept_where_they_can_be(monkeypatch, chunks, expected):
    monkeypatch.setattr(tiles, "TILE", 11)
    monkeypatch.setattr(tiles, "LEAST_TILE", 5)
    monkeypatch.setattr(tiles, "LARGEST_TILE", 20)
    array = tiles.as_tiles(da.zeros((30, 30), chunks=chunks))
    assert array.chunks == (expected, expected)
