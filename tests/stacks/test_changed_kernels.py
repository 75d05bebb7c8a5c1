"""What is read for a product is what was checked; what cannot be a covariance is refused."""

import re

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import zarr

from mkmc_prob import (
    PPCA,
    FactorAnalysis,
    IndefiniteKernelError,
    KernelError,
    LabelError,
    MKMCError,
    diagnostics,
    fit,
    kernels,
    load_result,
    stack_kernels,
)
from mkmc_prob.io import read_stack, write_stack
from mkmc_prob.linalg import tiles

FEW = {"structure": PPCA(2), "max_iter": 3, "tol": 0}
CHANGED = "kernel 'a': what is read now is not what was read when it was checked"


@pytest.fixture(autouse=True)
def _small_tiles(monkeypatch):
    monkeypatch.setattr(tiles, "LEAST_TILE", 2)


def matrix(seed=0, size=12):
    table = np.random.default_rng(seed).standard_normal((size, 5))
    return table @ table.T / 5


def stored(path, values, chunk=6):
    array = zarr.create_array(
        str(path), shape=values.shape, chunks=(chunk, chunk), dtype=values.dtype
    )
    array[:] = values
    return array


def test_an_array_that_was_moved_is_not_zeros(tmp_path):
    stack = stack_kernels({"a": stored(tmp_path / "a.zarr", matrix())})
    result = fit(stack, **FEW)
    (tmp_path / "a.zarr").rename(tmp_path / "b.zarr")
    for use in (lambda: fit(stack, **FEW), stack.load, lambda: result.rows("a", [0])):
        with pytest.raises(KernelError, match=CHANGED):
            use()


def test_a_lost_chunk_and_other_numbers_are_found(tmp_path):
    array = stored(tmp_path / "a.zarr", matrix())
    stack = stack_kernels({"a": array})
    array[3, 8] = array[8, 3] = 0.1
    with pytest.raises(KernelError, match=CHANGED):
        fit(stack, **FEW)
    array[:] = matrix()
    fit(stack, **FEW)
    (tmp_path / "a.zarr" / "c" / "0" / "1").unlink()
    with pytest.raises(KernelError, match=CHANGED):
        fit(stack, **FEW)


@pytest.mark.parametrize("change", ["moved", "overwritten", "truncated"])
def test_a_store_that_changed_after_it_was_opened(change, tmp_path):
    path = tmp_path / "s.zarr"
    write_stack(stack_kernels({"a": da.from_array(matrix(), chunks=6)}), path)
    stack = read_stack(path)
    result = fit(stack, **FEW)
    if change == "moved":
        path.rename(tmp_path / "t.zarr")
    elif change == "overwritten":
        write_stack(stack_kernels({"a": da.from_array(3.0 * matrix(), chunks=6)}), path)
    else:
        chunk = path / "0" / "values" / "c" / "0" / "0"
        chunk.write_bytes(chunk.read_bytes()[:20])
    for use in (lambda: fit(stack, **FEW), stack.load, result.summary):
        with pytest.raises(KernelError, match=r"kernel 'a': (what is read|cannot be read)"):
            use()


def test_a_store_is_found_from_another_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_stack(stack_kernels(matrix()[None], names=["a"]), "s.zarr")
    stack = read_stack("s.zarr")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    fit(stack, **FEW)


@pytest.mark.parametrize("name", ["run#2", "run?2", "run;2", "run 2", "rün"])
def test_the_name_of_a_folder_is_never_a_url(name, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("x")
    (tmp_path / name).mkdir()
    stack = stack_kernels(matrix()[None], names=["a"])
    for path in (tmp_path / name / "s.zarr", tmp_path / f"{name}.zarr"):
        write_stack(stack, path)
        np.testing.assert_array_equal(read_stack(path).load(), stack)
    assert (tmp_path / "run" / "thesis.txt").read_text() == "x"
    assert {p.name for p in tmp_path.iterdir()} == {"run", name, f"{name}.zarr"}


def test_masked_entries_are_hidden():
    mask = np.zeros((12, 12), dtype=bool)
    mask[3] = mask[:, 3] = True
    masked = np.ma.masked_array(np.where(mask, -999.0, matrix()), mask)
    for array in (da.from_array(masked, chunks=6), da.from_array(masked, chunks=6, asarray=False)):
        stack = stack_kernels({"a": array})
        assert np.flatnonzero(~stack.visible[0]).tolist() == [3]
    features = np.ma.masked_array(np.ones((4, 3)), [[0] * 3, [1] * 3, [0] * 3, [0] * 3])
    for table in (features, da.from_array(features, chunks=(2, 3))):
        stack = stack_kernels({"a": kernels.Features(table)})
        assert np.flatnonzero(~stack.visible[0]).tolist() == [1]


def test_a_result_takes_only_its_own_kernels(tmp_path):
    stack = stack_kernels({"a": da.from_array(matrix(), chunks=5)})
    fit(stack, **FEW).save(tmp_path / "r.nc")
    load_result(tmp_path / "r.nc", stack=stack)
    for other in (2.0 * matrix(), matrix(1)):
        wrong = stack_kernels({"a": da.from_array(other, chunks=5)})
        with pytest.raises(MKMCError, match="entries are not those of the fit"):
            load_result(tmp_path / "r.nc", stack=wrong)


def changed(entries):
    values = matrix()
    for (i, j), value in entries.items():
        values[i, j] = values[j, i] = value
    return values


DISTANCES = np.abs(np.subtract.outer(np.arange(12.0), np.arange(12.0)))
LOST = changed({(i, j): 0.0 for i in range(6) for j in range(6)})


@pytest.mark.parametrize("kind", [lambda q: da.from_array(q, chunks=6), scipy.sparse.csr_array])
@pytest.mark.parametrize(
    ("values", "says"),
    [
        (changed({(2, 9): 5.0}), r"objects 2 and 9 is 5, with diagonal entries .*repair"),
        (DISTANCES, r"objects 0 and 11 is 11.*look like distances"),
        (LOST, r"a chunk that was never written"),
    ],
    ids=["large", "distances", "lost"],
)
def test_two_objects_can_show_that_a_kernel_is_none(kind, values, says):
    with pytest.raises(IndefiniteKernelError, match=f"(?s)kernel 'a': .*{says}"):
        stack_kernels({"a": kind(values)})


def test_the_thorough_check_of_small_and_zero_kernels():
    stack_kernels({"a": da.zeros((12, 12), chunks=6)}, check="thorough")
    negative = 0.9 * np.ones((3, 3)) + 0.1 * np.eye(3)
    negative[0, 1] = negative[1, 0] = -0.9
    with pytest.raises(IndefiniteKernelError, match="is indefinite"):
        stack_kernels({"a": da.from_array(negative)}, check="thorough")


def test_kernels_in_memory_beside_others_are_checked_as_always():
    negative = np.kron(np.eye(6), [[1.0, 2.0], [2.0, 1.0]])
    with pytest.raises(IndefiniteKernelError, match="kernel 'a': its visible block is indefinite"):
        stack_kernels({"a": negative, "b": da.from_array(matrix(), chunks=6)})


def test_labels_for_what_has_none(tmp_path):
    names = list("lkjihgfedcba")
    sparse = scipy.sparse.csr_array(matrix())
    array = stored(tmp_path / "a.zarr", matrix())
    table = pd.DataFrame(matrix(), index=names, columns=names)
    for given in (sparse, array, da.from_array(matrix(), chunks=6), matrix()):
        stack = stack_kernels({"a": kernels.Labeled(given, names), "b": table[::-1].T[::-1].T})
        np.testing.assert_allclose(stack.load(names).values[0], matrix(), rtol=1e-12)
        np.testing.assert_allclose(stack.load(names).values[1], matrix(), rtol=1e-12)
    with pytest.raises(LabelError, match="kernel 'a': 11 labels for 12 objects"):
        stack_kernels({"a": kernels.Labeled(sparse, names[1:])})
    with pytest.raises(LabelError, match=re.escape("kernels.Labeled(matrix, objects)")):
        stack_kernels({"a": sparse, "b": table})
    with pytest.raises(LabelError, match="has labels already"):
        stack_kernels({"a": kernels.Labeled(table, names)})


def test_unknown_shapes_are_named():
    table = da.from_array(np.random.default_rng(0).standard_normal((12, 3)), chunks=(4, 3))
    some = table[table[:, 0] > 0.0]
    for given in (kernels.Features(some), some @ some.T):
        with pytest.raises(KernelError, match=r"kernel 'a': .*unknown shape.*compute_chunk_sizes"):
            stack_kernels({"a": given})


def exact_residuals(result):
    """Squared residuals by the dense formula, in extended precision."""
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(60):
        loadings = mpmath.matrix(result.model.factor_loadings.tolist())
        covariance = loadings * loadings.T + mpmath.diag(result.model.noise_variances.tolist())
        precision = covariance**-1
        both = precision * mpmath.matrix(result.observed.values[0].tolist()) * precision
        size = precision.rows
        return np.array([float(both[i, i] / precision[i, i]) for i in range(size)])


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_diagnostics_do_not_lose_their_digits_if_the_noise_is_tiny(seed):
    rng = np.random.default_rng(seed)
    table = rng.standard_normal((16, 2)) @ rng.standard_normal((2, 12))
    table += 0.7 * rng.standard_normal((16, 12))
    stack = stack_kernels((1e8 * table @ table.T / 12)[None])
    result = fit(stack, structure=FactorAnalysis(2), sources="identical", max_iter=300)
    found = diagnostics.disagreement(result).set_index("object")["squared_residual"].sort_index()
    np.testing.assert_allclose(found, exact_residuals(result), rtol=1e-5)
