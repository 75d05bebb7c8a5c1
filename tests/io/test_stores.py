"""Zarr stores of kernels: what is written is read back, whole or not at all."""

import shutil
import sys
import warnings

import dask.array as da
import numpy as np
import pytest
import scipy.sparse
import xarray as xr
import zarr

from mkmc_prob import KernelError, LazyStack, MKMCError, kernels, stack_kernels
from mkmc_prob.io import read_stack, stores, write_stack
from mkmc_prob.linalg import tiles

SIZE, SIDE = 12, 5


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch):
    monkeypatch.setattr(stores, "CHUNK", SIDE)
    monkeypatch.setattr(tiles, "LEAST_TILE", 1)


def features(seed=0, dtype=np.float64):
    return np.random.default_rng(seed).standard_normal((SIZE, 4)).astype(dtype)


def matrix(seed=0):
    return features(seed) @ features(seed).T / 4


@pytest.fixture
def dense():
    """One kernel that shows all, one that hides whole tiles, one that shows nothing."""
    visible = np.ones((3, SIZE))
    visible[1, [0, 5, 6, 7, 8, 9]] = 0
    visible[2] = 0
    return stack_kernels(np.array([matrix(seed) for seed in range(3)]), visible=visible)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "stack.zarr"


def written(stack, path, **options):
    write_stack(stack, path, **options)
    return read_stack(path)


def test_a_stack_in_memory_is_read_back_bit_for_bit(dense, path):
    found = written(dense, path)
    assert type(found) is LazyStack
    assert found.load().identical(dense)
    assert found.load([7, 2]).identical(dense.sel(object=[7, 2], object_bis=[7, 2]))


@pytest.mark.parametrize("labels", ["text", "unicode", "empty", "integers"])
def test_names_and_labels_come_back(labels, path):
    names, objects = {
        "text": (["a", "b"], [f"p{i}" for i in range(SIZE)]),
        "unicode": (["Größe", "核"], [f"é\U0001f9ec{i}" * i for i in range(1, SIZE + 1)]),
        "empty": (["", " "], ["", *map(str, range(SIZE - 1))]),
        "integers": ([-3, 2**40], [*range(-5, 6), 2**62]),
    }[labels]
    stack = stack_kernels([matrix(0), matrix(1)], names=names, objects=objects)
    found = written(stack, path)
    assert found.load().identical(stack)
    assert [type(name) for name in found.names] == [type(name) for name in names]
    assert found.objects.dtype == stack["object"].dtype


@pytest.mark.parametrize("label", ["", 0, "x"])
def test_one_object(label, path):
    stack = stack_kernels({"a": np.ones((1, 1))}, objects=[label])
    assert written(stack, path).load().identical(stack)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A store of kernels of every kind."""
    path = tmp_path_factory.mktemp("stores") / "kinds.zarr"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stores, "CHUNK", SIDE)
        write_stack(lazy_kinds(), path)
    return path


def lazy_kinds(dtype=np.float64):
    own = features(2, dtype)
    own[4] = np.nan
    return stack_kernels(
        {
            "tiles": da.from_array(matrix(0).astype(dtype), chunks=7),
            "zarr": zarr.array(matrix(1).astype(dtype), chunks=(4, 4)),
            "features": kernels.Features(own),
            "features in tiles": kernels.Features(da.from_array(own, chunks=(7, 2))),
            "in memory": matrix(4),
        },
        objects=list("abcdefghijkl"),
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_kernels_of_every_kind_come_back(dtype, path):
    lazy = lazy_kinds(dtype)
    found = written(lazy, path)
    expected = lazy.load()
    np.testing.assert_allclose(found.load().values, expected.values, rtol=0, atol=1e-14)
    assert found.load().copy(data=expected.values).identical(expected)
    group = zarr.open_group(str(path), mode="r")
    assert group["2/features"].dtype == group["3/features"].dtype == dtype
    assert group["2/features"].shape == (SIZE - 1, 4)  # of what is visible
    columns = np.random.default_rng(0).standard_normal((SIZE, 2))
    for k in range(5):
        one, two = (stack.kernel(k).moment for stack in (lazy, found))
        n = len(one)
        np.testing.assert_allclose(two @ columns[:n], one @ columns[:n], rtol=0, atol=1e-12)
        np.testing.assert_allclose(two.sizes, one.sizes, rtol=1e-12)
        np.testing.assert_allclose((two.total, two.norm), (one.total, one.norm), rtol=1e-12)


def test_single_precision_is_rounded_and_says_so(dense, path):
    found = written(dense, path, dtype="float32").load()
    np.testing.assert_array_equal(found.values, dense.values.astype(np.float32))
    assert (found["rounding"] == np.finfo(np.float32).eps).all()
    assert zarr.open_group(str(path), mode="r")["0/values"].dtype == np.float32


def test_only_visible_blocks_are_kept_in_chunks(dense, path):
    write_stack(dense, path)
    group = zarr.open_group(str(path), mode="r")
    assert [group[f"{k}/values"].shape for k in range(3)] == [(12, 12), (6, 6), (0, 0)]
    assert group["0/values"].chunks == (SIDE, SIDE)


@pytest.mark.parametrize("scale", [1e-40, 1e40])
def test_what_single_precision_does_not_hold_is_refused(scale, path):
    stack = stack_kernels({"bad": scale * matrix()})
    with pytest.raises(KernelError, match=r"kernel 'bad': .*too far from 1 for float32"):
        write_stack(stack, path, dtype="float32")
    assert written(stack, path).load().identical(stack)


# -- what stood there before ----------------------------------------------------------------------


def test_an_older_store_is_replaced_even_by_itself(dense, stored, path):
    shutil.copytree(stored, path)
    found = written(dense, path)
    expected = found.load()
    assert written(found, path).load().identical(expected)
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_what_is_no_store_is_not_replaced(dense, path):
    path.mkdir()
    (path / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match="something else stands there"):
        write_stack(dense, path)
    assert [each.name for each in path.parent.rglob("*")] == [path.name, "thesis.tex"]
    shutil.rmtree(path)
    path.write_text("a file")
    with pytest.raises(FileExistsError, match="something else"):
        write_stack(dense, path)
    assert path.read_text() == "a file"
    with pytest.raises(FileNotFoundError, match="no folder"):
        write_stack(dense, path.parent / "nowhere" / "a.zarr")


class Interrupted(BaseException):
    """As Ctrl-C."""


@pytest.mark.parametrize("older", [False, True])
def test_an_interrupted_write_leaves_nothing_behind(dense, path, older, monkeypatch):
    if older:
        write_stack(dense, path)
    chunks = iter(range(4))
    entries = stores._entries

    def until_ctrl_c(*given):
        if next(chunks) == 3:
            raise Interrupted
        return entries(*given)

    monkeypatch.setattr(stores, "_entries", until_ctrl_c)
    with pytest.raises(Interrupted):
        write_stack(stack_kernels({"other": matrix(8)}), path)
    assert [each.name for each in path.parent.iterdir()] == ([path.name] if older else [])
    if older:
        assert read_stack(path).load().identical(dense)


def test_what_was_written_is_read_back_before_it_counts(dense, path, monkeypatch):
    monkeypatch.setattr(stores, "_entries", lambda *_: np.full((1, 1), np.nan))  # as if lost
    with pytest.raises(KernelError, match=r"kernel 'Q1': .* 0 and 0 is nan"):
        write_stack(dense, path)
    assert not [*path.parent.iterdir()]


# -- damage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("0/values", "kernel 'tiles' 9 of 9"),
        ("2/features", "kernel 'features' 3 of 3"),
        ("1/places", "kernel 'zarr' 1 of 1"),
        ("0/diagonal", "kernel 'tiles' 1 of 1"),
        ("0/sizes", "kernel 'tiles' 1 of 1"),
        ("objects", "the objects 1 of 1"),
    ],
)
def test_missing_chunks_are_noticed(name, what, stored, path):
    shutil.copytree(stored, path)
    shutil.rmtree(path / name / "c")
    with pytest.raises(KernelError, match=rf"damaged: of {what} chunks are missing. Copy"):
        read_stack(path)


def test_one_missing_chunk_is_noticed(stored, path):
    shutil.copytree(stored, path)
    (path / "1" / "values" / "c" / "0" / "2").unlink()
    with pytest.raises(KernelError, match="of kernel 'zarr' 1 of 9 chunks"):
        read_stack(path)


@pytest.mark.parametrize("name", ["0", "0/places", "0/values", "0/sizes", "objects"])
def test_missing_arrays_are_noticed(name, stored, path):
    shutil.copytree(stored, path)
    shutil.rmtree(path / name)
    with pytest.raises(KernelError, match=r"stack\.zarr: damaged: .* is missing. Write it again"):
        read_stack(path)


def test_stores_that_are_none_are_refused(dense, path):
    with pytest.raises(FileNotFoundError, match="no such store"):
        read_stack(path)
    path.mkdir()
    with pytest.raises(KernelError, match="not readable as a zarr group"):
        read_stack(path)
    write_draft = zarr.open_group(str(path), mode="w")
    write_draft.create_array("0/values", data=matrix())  # as of a process that was killed
    with pytest.raises(KernelError, match=r"stack\.zarr: .*write"):
        read_stack(path)
    shutil.rmtree(path)
    write_stack(dense, path)
    zarr.open_group(str(path), mode="r+").attrs["mkmc_prob_stack"] = 99
    with pytest.raises(KernelError, match="written by another version of mkmc_prob"):
        read_stack(path)


# -- stores of xarray -----------------------------------------------------------------------------


def to_zarr(dataset, path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zarr 3 warns of text labels and of metadata
        dataset.to_zarr(path)


def test_a_store_that_xarray_wrote_is_read(dense, path):
    named = dense.assign_coords(object=list("abcdefghijkl"), object_bis=list("abcdefghijkl"))
    chunked = named.chunk(object=SIDE, object_bis=SIDE)
    to_zarr(chunked.to_dataset(), path)
    found = read_stack(path)
    assert type(found) is LazyStack
    assert found.load().equals(named)
    assert written(found, path.with_name("again.zarr")).load().equals(named)


def test_a_store_of_xarray_with_other_variables_is_refused(dense, path):
    to_zarr(xr.Dataset({"one": dense, "two": dense}), path)
    with pytest.raises(KernelError, match=r"2 variables with dims .* found, one expected"):
        read_stack(path)


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "int32", "complex64"])
def test_other_precisions_are_refused(dtype, dense, path):
    with pytest.raises(MKMCError, match=f"dtype: '{dtype}' found; float32 or float64"):
        write_stack(dense, path, dtype=dtype)
    assert not path.exists()


def test_a_sparse_kernel_is_refused(path):
    stack = stack_kernels({"a": matrix(), "links": scipy.sparse.csr_array(matrix())})
    with pytest.raises(KernelError, match=r"kernel 'links': a sparse matrix.*save_npz"):
        write_stack(stack, path)
    assert not [*path.parent.iterdir()]


def test_netcdf_takes_neither_a_dtype_nor_kernels_that_are_not_in_memory(dense, path):
    file = path.with_suffix(".nc")
    with pytest.raises(MKMCError, match=r"not in memory are written to a \.zarr store"):
        write_stack(lazy_kinds(), file)
    with pytest.raises(MKMCError, match=r"dtype: 'float32' found, but only a \.zarr store"):
        write_stack(dense, file, dtype="float32")
    assert not file.exists()


def test_a_store_takes_no_options(dense, path):
    write_stack(dense, path)
    with pytest.raises(MKMCError, match=r"stack\.zarr: .* Leave the options out"):
        read_stack(path, objects=list("abcdefghijkl"))


@pytest.mark.parametrize("module", ["zarr", "dask.array"])
def test_without_zarr_it_is_said_what_to_install(module, dense, path, monkeypatch):
    write_stack(dense, path)
    monkeypatch.setitem(sys.modules, module, None)
    for call in (lambda: read_stack(path), lambda: write_stack(dense, path)):
        with pytest.raises(MKMCError, match=r"stores need zarr and dask: pip install 'mkmc-prob\["):
            call()
