"""Stacks as zarr stores: kernels in chunks on disk, which are read while they are used."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from ..errors import KernelError, LabelError, MKMCError
from ..linalg.operators import FeatureOperator, SparseOperator, Sums, SymmetricOperator
from ..linalg.tiles import FeatureTiles, TiledOperator, as_tiles
from ..stacks.build import stack_kernels
from ..stacks.kernel_stack import KernelStack
from ..stacks.labels import Labels, as_labels
from ..stacks.lazy_stack import LazyKernel, LazyStack
from ..stacks.stack import DIMS
from ..utils.files import replace_folder

#: The version of the layout that `write_store` writes.
LAYOUT = 1
#: The sides of a chunk.
CHUNK = 1_500


def write_store(stack: xr.DataArray | LazyStack, path: Path, dtype: Any) -> None:
    """Write a stack as a zarr store; see `write_stack`."""
    zarr = _zarr(path)
    checked = stack if isinstance(stack, LazyStack) else KernelStack.of(stack)
    with replace_folder(path.resolve(), is_replaceable=_is_store) as draft:
        group = zarr.open_group(zarr.storage.LocalStore(draft), mode="w")  # a text could be a URL
        labels = checked.objects
        _put(group, "objects", _encoded(labels))
        group.attrs["objects"] = "text" if labels.dtype.kind == "U" else "integers"
        group.attrs["kernels"] = checked.names
        for k, kernel in enumerate(checked.kernels()):
            _put(group, f"{k}/places", kernel.v.astype(np.int64))
            eps = _write_kernel(group, k, kernel.moment, np.dtype(dtype or np.float64), kernel.name)
            group[str(k)].attrs["eps"] = max(eps, kernel.eps)
        _check(group, checked)
        group.attrs["mkmc_prob_stack"] = LAYOUT


def read_store(path: Path) -> LazyStack | xr.DataArray:
    """Read a zarr store: one of `write_stack`, or a stack that xarray wrote."""
    zarr = _zarr(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such store.")
    try:
        group = zarr.open_group(zarr.storage.LocalStore(path.resolve()), mode="r")
    except Exception as error:
        raise KernelError(
            f"{path}: not readable as a zarr group ({type(error).__name__}: {error})."
        ) from error
    if "mkmc_prob_stack" not in group.attrs:
        return _read_xarray(path)
    if group.attrs["mkmc_prob_stack"] != LAYOUT:
        raise KernelError(f"{path}: written by another version of mkmc_prob. Write it again.")
    try:
        return _stack_of(group)
    except (KernelError, LabelError) as error:
        raise KernelError(f"{path}: damaged: {error}") from error
    except KeyError as error:
        raise KernelError(f"{path}: damaged: {error} is missing. Write it again.") from error
    except Exception as error:  # of zarr, its codecs, or a number that is none
        raise KernelError(
            f"{path}: damaged ({type(error).__name__}: {error}). Write it again."
        ) from error


def _zarr(path: Path) -> Any:
    try:
        import dask.array  # noqa: F401
        import zarr
    except ImportError as error:
        raise MKMCError(
            f"{path}: zarr stores need zarr and dask: pip install 'mkmc-prob[large]'."
        ) from error
    return zarr


def _is_store(path: Path) -> bool:
    return (path / "zarr.json").is_file() or (path / ".zgroup").is_file()


def _put(group: Any, name: str, values: Any) -> None:
    """Write a small array; the fill value, which stands for a chunk that was lost, is not in it."""
    values = np.ascontiguousarray(values)
    # NaN; the smallest integer; of text, a byte that UTF-8 has not.
    fill: Any = np.nan if values.dtype.kind == "f" else np.iinfo(values.dtype).min
    fill = 255 if values.dtype == np.uint8 else fill
    array = group.create_array(
        name, shape=values.shape, dtype=values.dtype, chunks=(len(values) or 1,), fill_value=fill
    )
    array[:] = values


def _encoded(labels: Labels) -> Any:
    """Return labels as numbers: text as UTF-8 with NUL, which labels do not contain, between."""
    if labels.dtype.kind != "U":
        return labels.astype(np.int64)
    return np.frombuffer("\0".join(labels.tolist()).encode(), dtype=np.uint8)


def _decoded(values: Any, kind: str) -> Labels:
    return values if kind == "integers" else np.array(bytes(values).decode().split("\0"))


def _write_kernel(group: Any, k: int, block: Any, dtype: np.dtype[Any], name: Any) -> float:
    """Write a visible block, or its features; return the eps of what was written."""
    if isinstance(block, FeatureOperator | FeatureTiles):
        features = block.features
        if isinstance(block, FeatureTiles):
            features = features[block.visible]
        dtype = features.dtype
        values = _array(group, f"{k}/features", features.shape, dtype, features.shape[1])
        for start in range(0, len(features), CHUNK):
            rows = slice(start, start + CHUNK)
            values[rows] = np.asarray(features[rows])
        return float(np.finfo(dtype).eps)
    if isinstance(block, SparseOperator):
        raise KernelError(
            f"kernel {name!r}: a sparse matrix, which this store does not hold. Write it with "
            "scipy.sparse.save_npz."
        )
    n = len(block)
    largest = float(np.abs(block.diagonal()).max(initial=0.0))
    if dtype == np.float32 and largest and not 1e-30 <= largest <= 1e30:
        raise KernelError(
            f"kernel {name!r}: its largest diagonal entry is {largest:.3g}, too far from 1 for "
            "float32. Rescale the kernel, or leave dtype out."
        )
    values = _array(group, f"{k}/values", (n, n), dtype, CHUNK)
    for rows, columns in _tiles(n):
        tile = _entries(block, rows, columns)
        values[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1] = tile
        if rows[0] != columns[0]:
            values[columns[0] : columns[-1] + 1, rows[0] : rows[-1] + 1] = tile.T
    return float(np.finfo(dtype).eps)


def _array(group: Any, name: str, shape: Any, dtype: Any, columns: int) -> Any:
    """Return a new array; NaN stands for what was never written."""
    chunks = tuple(min(side, size) or 1 for side, size in zip((CHUNK, columns), shape, strict=True))
    # Chunks of NaN only cannot occur, so a missing chunk is one that was lost.
    return group.create_array(name, shape=shape, dtype=dtype, chunks=chunks, fill_value=np.nan)


def _tiles(n: int) -> Iterator[tuple[Any, Any]]:
    """Yield the rows and columns of the tiles on and above the diagonal."""
    for i in range(0, n, CHUNK):
        for j in range(i, n, CHUNK):
            yield np.arange(i, min(i + CHUNK, n)), np.arange(j, min(j + CHUNK, n))


def _entries(block: Any, rows: Any, columns: Any) -> Any:
    if isinstance(block, SymmetricOperator):
        return block.block(rows, columns)
    return block[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def _check(group: Any, stack: KernelStack) -> None:
    """Read back what was written, and keep its diagonals and sums."""
    for k, name in enumerate(stack.names):
        own = group[str(k)]
        if "values" not in own or not own["values"].shape[0]:
            continue
        labels = stack.objects[own["places"][:]].tolist()
        everything = np.ones((1, len(labels)), dtype=bool)  # NaN is an error
        tiles = as_tiles(own["values"])
        read: Any = stack_kernels({name: tiles}, objects=labels, visible=everything)
        operator = read.kernel(0).moment
        _put(own, "diagonal", operator.diagonal())
        _put(own, "sizes", operator.sizes)
        _put(own, "rows", operator.rows)
        own.attrs["norm"] = operator.norm


def _stack_of(group: Any) -> LazyStack:
    """Return the stack in a store of `write_store`."""

    def whole(array: Any, what: str) -> Any:
        """Return an array, of which no chunk is missing."""
        absent = array.nchunks - array.nchunks_initialized
        if absent and array.size:
            raise KernelError(
                f"of {what} {absent} of {array.nchunks} chunks are missing. Copy the store again, "
                "or write it again."
            )
        return array

    labels = _decoded(whole(group["objects"], "the objects")[:], group.attrs["objects"])
    labels = as_labels(labels.tolist(), "objects")
    names = as_labels(group.attrs["kernels"], "kernels").tolist()
    kernels = []
    for k, name in enumerate(names):
        own = group[str(k)]
        what = f"kernel {name!r}"
        places = whole(own["places"], what)[:]
        array = whole(own["features"] if "features" in own else own["values"], what)
        everything = np.arange(len(places))
        operator: SymmetricOperator
        if "features" in own:
            operator = FeatureOperator(array[:])
        elif not len(places):
            operator = TiledOperator(
                as_tiles(array), everything, np.zeros(0), Sums(np.zeros(0), 0.0, np.zeros(0))
            )
        else:
            diagonal, rows, sizes = (
                whole(own[name], what)[:] for name in ("diagonal", "rows", "sizes")
            )
            sums = Sums(rows, float(own.attrs["norm"]), sizes)
            operator = TiledOperator(as_tiles(array), everything, diagonal, sums)
        if len(operator) != len(places) or places.max(initial=-1) >= len(labels):
            raise KernelError(f"{what} has {len(operator)} rows for {len(places)} objects.")
        operator.what = what
        kernels.append(LazyKernel(places.astype(np.intp), operator, own.attrs["eps"]))
    return LazyStack(names, labels, kernels)


def _read_xarray(path: Path) -> LazyStack | xr.DataArray:
    """Return the stack of a store that xarray wrote, with dims (kernel, object, object_bis)."""
    try:
        store = _zarr(path).storage.LocalStore(path.resolve())
        found = xr.open_dataset(store, engine="zarr", chunks={}, consolidated=False)
    except Exception as error:
        raise KernelError(
            f"{path}: neither a stack of write_stack nor a dataset of xarray "
            f"({type(error).__name__}: {error}). Pass the zarr arrays themselves to stack_kernels; "
            "a store that write_stack did not finish has to be written again."
        ) from error
    stacks = [variable for variable in found.data_vars.values() if {*variable.dims} == {*DIMS}]
    if len(stacks) != 1:
        raise KernelError(
            f"{path}: {len(stacks)} variables with dims {DIMS} found, one expected. Pass the zarr "
            "arrays themselves to stack_kernels; a store that write_stack did not finish has to be "
            "written again."
        )
    return stack_kernels(stacks[0])
