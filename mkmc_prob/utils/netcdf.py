"""Reading netCDF files, and writing them whole or not at all."""

import io
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import h5netcdf
import numpy as np
import xarray as xr
from xarray.backends import H5NetCDFStore

from ..errors import MKMCError
from .files import a_path, decoding, replace_file
from .processes import interrupts_held

T = TypeVar("T", xr.Dataset, xr.DataTree)

#: Values are read as they are stored: no attribute scales them or marks them as missing.
AS_STORED: dict[str, Any] = {"engine": "h5netcdf", "mask_and_scale": False}


def write_netcdf(
    data: xr.Dataset | xr.DataTree,
    path: str | os.PathLike[str],
    *,
    what: str,
    checksums: bool = False,
) -> None:
    """Write a dataset or a tree to a netCDF file without loss.

    HDF5 can crash the interpreter if the disk is full. The file is therefore built in memory and
    read back there, and then its bytes are written to a temporary file that replaces `path`. If
    anything fails, an existing file stays as it was.

    Parameters
    ----------
    data
        Values are stored as they are, NaN included; encodings left by an earlier file are ignored.
    path
        The file, with the suffix ``.nc``.
    what
        The name of such data in an error message, ``"stack"`` for instance.
    checksums
        Whether numeric arrays get checksums, so that damaged ones cannot be read.

    Raises
    ------
    MKMCError
        If the suffix is not ``.nc``, or netCDF would change an attribute or a coordinate. Nothing
        is written then.
    OSError
        If the file cannot be written: for instance, the disk is full or the folder read-only.
    MemoryError
        If the memory does not suffice.

    Notes
    -----
    In addition to `data`, writing takes as much memory as the file plus 1.4 times the largest
    kernel: 1.2 GB for eight kernels in a file of 1 GB. Stacks too large for that need another
    format, zarr for instance.
    """
    path = a_path(path)
    if path.suffix.lower() != ".nc":
        raise MKMCError(
            f"{path}: {what}s are netCDF files, whose suffix is .nc. Name the file "
            f"{path.with_suffix('.nc').name!r}."
        )
    np.empty(int(1.3 * data.nbytes) + 2**24, np.uint8)  # MemoryError here; in HDF5 it is a crash
    try:
        with interrupts_held() as struck:  # h5py loses some of them
            tree = data if isinstance(data, xr.DataTree) else xr.DataTree(data)
            image = _image(tree, checksums)
            with xr.open_datatree(image, cache=False, **AS_STORED) as found:
                pieces = zip(_pieces(tree), _pieces(found), strict=True)
                if not all(piece.identical(back) for piece, back in pieces):
                    raise ValueError("it would come back changed")
    except MemoryError:
        raise
    except Exception as error:  # xarray, h5netcdf and h5py raise nearly anything
        raise MKMCError(
            f"{path}: netCDF cannot hold this {what} ({error}). Make the attributes and further "
            f"coordinates of the {what} text or numbers, without the names that netCDF keeps for "
            "itself ('units', 'dtype', 'coordinates'), or drop them."
        ) from error
    if struck:
        raise KeyboardInterrupt
    with image.getbuffer() as content, replace_file(path) as draft:
        draft.write_bytes(content)


def read_netcdf(path: Any) -> xr.Dataset:
    """Return the root group of a netCDF file; raise KernelError if the file is damaged."""
    return _loaded(path, xr.open_dataset)


def open_tree(path: Any) -> xr.DataTree:
    """Return all groups of a netCDF file; raise KernelError if the file is damaged."""
    return _loaded(path, xr.open_datatree)


def _loaded(path: Any, opener: Callable[..., T]) -> T:
    path = a_path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file.")
    with decoding(path, "a netCDF file"), opener(path, **AS_STORED) as opened:
        return opened.load()


def _image(tree: xr.DataTree, checksums: bool) -> io.BytesIO:
    """Return the content of the netCDF file."""
    image, checksum = io.BytesIO(), {"fletcher32": True} if checksums else {}
    with h5netcdf.File(image, "w") as file:
        for node in tree.subtree:
            group = node.to_dataset(inherit=False).compute()
            encoding = {
                name: {"_FillValue": None} | (checksum if _is_numeric_array(variable) else {})
                for name, variable in group.variables.items()
            }
            store = H5NetCDFStore(file, group=node.path, mode="a")
            group.dump_to_store(store, encoding=encoding)
    return image


def _is_numeric_array(variable: xr.Variable) -> bool:
    """Return whether HDF5 has checksums for `variable`; it has none for text and scalars."""
    return variable.ndim > 0 and variable.size > 0 and variable.dtype.kind in "fiub"


def _pieces(tree: xr.DataTree) -> Iterator[Any]:
    """Yield the content of a tree, large arrays by kernel or by chain: none is copied whole."""
    for node in sorted(tree.subtree, key=lambda node: node.path):
        group = node.to_dataset()
        large = sorted((name for name, array in group.data_vars.items() if array.ndim > 2), key=str)
        yield group.drop_vars(large)
        for name in large:
            yield from group[name]
