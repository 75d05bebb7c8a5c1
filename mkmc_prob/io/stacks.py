"""Reading stacks of kernels from files, and writing them to netCDF."""

import os
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np
import xarray as xr
from numpy.typing import DTypeLike

from ..errors import KernelError, MKMCError
from ..stacks.build import stack_kernels
from ..stacks.lazy_stack import LazyStack
from ..stacks.stack import DIMS, check_stack
from ..utils.files import a_path
from ..utils.netcdf import read_netcdf, write_netcdf
from .arrays import (
    ARRAY_SUFFIXES,
    axis_of_kernels,
    find_kernels,
    find_labels,
    find_visible,
    listed,
    read_variables,
)
from .stores import read_store, write_store


def read_stack(
    path: str | os.PathLike[str],
    *,
    kernels: str | Iterable[str] | None = None,
    visible: str | Literal[False] | None = None,
    objects: str | Iterable[Hashable] | None = None,
    names: str | Iterable[Hashable] | None = None,
    kernel_axis: int | None = None,
) -> xr.DataArray | LazyStack:
    """Read a stack of kernels from a ``.npz``, ``.npy``, ``.mat`` or ``.nc`` file, or from zarr.

    Parameters
    ----------
    path
        A file written by NumPy's ``savez`` or ``save``, MATLAB's ``save`` (any version; 7.3 is
        HDF5) or `write_stack`, or a ``.zarr`` store of `write_stack` or xarray, whose kernels are
        read while they are used. It holds either one array of all kernels, of shape (K, n, n) or
        (n, n, K), or one matrix of shape (n, n) per kernel.
    kernels
        The name of the variable that holds the kernels, or a list of the names of their matrices.
        By default, the only array of all kernels; if no array in the file has three dims, all
        square matrices except single numbers. Matrices give their names to the kernels; the
        variable of a ``.npy`` file has the name of the file without the suffix.
    visible
        The name of the variable that shows which objects are visible in each kernel: 0/1, of shape
        (K, n) or (n, K). With one matrix per kernel, its rows are in the order of `kernels`, or of
        the variables in the file (MATLAB 7.3 does not keep their order: pass `kernels`), and
        (n, K) requires K != n. By default, the only such variable, if one array holds all kernels.
        False ignores it, so that only NaN marks missing objects.
    objects, names
        The labels of the objects and of the kernels, as in `stack_kernels`; or the name of the
        variable that holds them: text (NumPy's text or bytes, MATLAB's cell arrays of char, or the
        rows of a char matrix without trailing blanks) or integers, of shape (n,), (n, 1) or (1, n).
    kernel_axis
        The axis of the kernels, 0 for (K, n, n) or 2 for (n, n, K), in the program that saved the
        array. Needed only if there are as many kernels as objects; 0 then also means that `visible`
        is (kernels, objects), and 2 that it is (objects, kernels).

    Returns
    -------
    xarray.DataArray or LazyStack
        The stack, as made by `stack_kernels`; of a ``.zarr`` store a `LazyStack`. A ``.nc`` file or
        ``.zarr`` store includes the labels, takes no options and is returned as it was written.

    Raises
    ------
    MKMCError
        If the suffix is none of these, or options are given for a ``.nc`` file.
    KernelError, LabelError
        If the file is damaged or lacks these arrays, or `stack_kernels` rejects them.
    FileNotFoundError
        If the file does not exist.

    Examples
    --------
    >>> from pathlib import Path
    >>> import numpy as np
    >>> import tempfile
    >>> from mkmc_prob.io import read_stack
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "kernels.npz"
    ...     ids = np.array(["p1", "p2", "p3"])
    ...     np.savez(path, K=np.ones((3, 3, 2)), seen=[[1, 1, 0], [1, 1, 1]], ids=ids)
    ...     stack = read_stack(path, objects="ids", names=["expression", "sequence"])
    >>> stack.sel(kernel="expression", object="p1").values
    array([ 1.,  1., nan])

    One matrix per kernel:

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "kernels.npz"
    ...     np.savez(path, expression=np.eye(2), sequence=np.ones((2, 2)))
    ...     read_stack(path)["kernel"].values
    array(['expression', 'sequence'], dtype='<U10')
    """
    path = a_path(path)
    suffix = path.suffix.lower()
    if suffix not in (*ARRAY_SUFFIXES, ".zarr"):
        kinds = ", ".join(ARRAY_SUFFIXES)
        raise MKMCError(
            f"{path}: read_stack reads {kinds} files and .zarr stores. For matrices in text files "
            "call stack_kernels({name: read_kernel(path), ...})."
        )
    if suffix in (".nc", ".zarr"):
        if any(option is not None for option in (kernels, visible, objects, names, kernel_axis)):
            raise MKMCError(
                f"{path}: a {suffix} file holds its labels and what is missing. Leave the options "
                "out."
            )
        return _read_netcdf(path) if suffix == ".nc" else read_store(path)
    variables = read_variables(path)
    with _naming(path):
        objects = find_labels(variables, objects, "objects")
        names = find_labels(variables, names, "names")
        found = find_kernels(variables, kernels, visible)
        name, first = next(iter(found.items()))
        stacked: Any = found
        axis, count, size = 0, len(found), len(first)
        if first.ndim == 3:
            axis = axis_of_kernels(first.shape, kernel_axis, name)
            stacked = np.moveaxis(first, axis, 0)
            count, size, _ = stacked.shape
        elif kernel_axis is not None:
            raise KernelError(
                f"kernel_axis={kernel_axis}: the kernels are one matrix each ({', '.join(found)})."
                " Leave it out."
            )
        elif visible and kernels is None and count > 1 and h5py.is_hdf5(path):
            raise KernelError(
                f"visible={visible!r}: this file (MATLAB 7.3) does not keep the order of its "
                f"variables. Pass kernels={list(found)}, in the order of the rows of {visible!r}."
            )
        mask = find_visible(variables, visible, found, count, size)
        if mask is not None and mask.shape == (size, count) and (size != count or axis == 2):
            mask = mask.T
        return stack_kernels(stacked, objects=objects, names=names, visible=mask)


def write_stack(
    stack: xr.DataArray | LazyStack,
    path: str | os.PathLike[str],
    *,
    dtype: DTypeLike | None = None,
) -> None:
    """Write `stack` to a netCDF file or a zarr store, which `read_stack` reads without loss.

    It is read back, and replaces an older one only when it is complete.

    Parameters
    ----------
    stack
        Dims ``("kernel", "object", "object_bis")``, NaN where an object is missing. Attributes and
        further coordinates are kept.
    path
        The file, with the suffix ``.nc``; or a folder with the suffix ``.zarr``, a store in which
        only the visible blocks are kept, in chunks of 1,500 rows and columns (or their features).
        Kernels that are not in memory need a store.
    dtype
        "float32" halves a store; the kernels' entries are then known to 7 digits. float64 if left
        out.

    Raises
    ------
    MKMCError
        If the suffix is neither, or netCDF would change an attribute or a coordinate.
    KernelError, LabelError
        If `stack` is not a valid stack, see `stack_kernels`.
    OSError
        If the file cannot be written: for instance, the disk is full or the folder read-only.

    Notes
    -----
    In addition to `stack` and a checked copy, writing takes as much memory as the file plus 1.4
    times one kernel: 1.2 GB for eight kernels in a netCDF file of 1 GB. A zarr store is written
    chunk by chunk.

    Examples
    --------
    >>> from pathlib import Path
    >>> import numpy as np
    >>> import tempfile
    >>> from mkmc_prob import stack_kernels
    >>> from mkmc_prob.io import read_stack, write_stack
    >>> stack = stack_kernels({"a": np.eye(2), "b": np.ones((2, 2))}, objects=["x", "y"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_stack(stack, Path(folder) / "stack.nc")
    ...     read_stack(Path(folder) / "stack.nc").identical(stack)
    True
    """
    if a_path(path).suffix.lower() == ".zarr":
        try:
            known = np.dtype(dtype or np.float64) in (np.dtype(np.float32), np.dtype(np.float64))
        except TypeError:
            known = False
        if not known:
            raise MKMCError(f"dtype: {dtype!r} found; float32 or float64 is needed.")
        write_store(stack, a_path(path), dtype)
        return
    if dtype is not None:
        raise MKMCError(f"dtype: {dtype!r} found, but only a .zarr store takes one.")
    if isinstance(stack, LazyStack):
        raise MKMCError(f"{path}: kernels that are not in memory are written to a .zarr store.")
    write_netcdf(check_stack(stack).to_dataset(), path, what="stack")


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Put the name of the file in front of the package's own errors."""
    try:
        yield
    except MKMCError as error:
        raise type(error)(f"{path}: {error}") from error


def _read_netcdf(path: Path) -> xr.DataArray:
    whole = read_netcdf(path)
    if "mkmc_prob_layout" in whole.attrs:
        raise KernelError(
            f"{path}: this is a result written by MKMCResult.save. Call load_result(path); its "
            "`observed` and `completed` are stacks."
        )
    stacks = [variable for variable in whole.data_vars.values() if {*variable.dims} == {*DIMS}]
    if len(stacks) != 1:
        held = {str(name): variable.values for name, variable in whole.data_vars.items()}
        raise KernelError(
            f"{path}: {len(stacks)} variables with dims {DIMS} found, one expected. The file "
            f"holds {listed(held)}."
        )
    with _naming(path):
        return check_stack(stacks[0])
