"""Kernel stacks from files and into files.

Enters: paths. `read_kernel` (its room is `io_text`) reads one matrix, `read_stack` a whole stack
from arrays that NumPy or MATLAB saved (`io_arrays`) or from netCDF, `write_stack` writes netCDF.
Leaves: checked arrays, or an error that names the file.
"""

import os
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np
import xarray as xr

from ..errors import KernelError, MKMCError
from ..stacks.stack import DIMS, check_stack, stack_kernels
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
from .text import read_kernel

__all__ = ["read_kernel", "read_stack", "write_stack"]


def read_stack(
    path: str | os.PathLike[str],
    *,
    kernels: str | Iterable[str] | None = None,
    visible: str | Literal[False] | None = None,
    objects: str | Iterable[Hashable] | None = None,
    names: str | Iterable[Hashable] | None = None,
    kernel_axis: int | None = None,
) -> xr.DataArray:
    """Read a stack of kernels from a ``.npz``, ``.npy``, ``.mat`` or ``.nc`` file.

    Parameters
    ----------
    path
        What NumPy's ``savez`` or ``save``, MATLAB's ``save`` (any version; 7.3 is HDF5) or
        `write_stack` wrote. Two layouts are read: one array of all kernels, of shape (K, n, n) or
        (n, n, K), or one matrix of shape (n, n) for each kernel.
    kernels
        The name of the variable that holds the kernels, or a list of the names of their matrices.
        Left out, the only array of all kernels is taken; where nothing in the file has three
        dims, every square matrix is (single numbers aside). Kernels that are a variable each are
        called as it is; the variable of a ``.npy`` file is called as the file, without suffix.
    visible
        The name of the variable that says which objects each kernel sees: 0/1, shape (K, n) or
        (n, K). With one matrix for each kernel, its rows are in the order of `kernels`, or of the
        variables in the file (MATLAB 7.3 keeps none: pass `kernels`); (n, K) then needs K != n.
        It may be left out where there is no such variable, or just one beside one array of all
        kernels, which is then used; False uses none, and then only what is NaN is missing.
    objects, names
        The labels of the objects and of the kernels, as `stack_kernels` takes them; or the name
        of the variable that holds them: text (NumPy's text or bytes, MATLAB's cell arrays of char,
        or the rows of a char matrix without the blanks at their ends) or integers, of shape (n,),
        (n, 1) or (1, n).
    kernel_axis
        The axis of the kernels, 0 for (K, n, n) or 2 for (n, n, K), as the program that saved the
        array shows it. Needed only where there are as many kernels as objects; then 0 also means
        that `visible` is (kernels, objects), and 2 that it is (objects, kernels).

    Returns
    -------
    xarray.DataArray
        The stack, as `stack_kernels` makes it. A ``.nc`` file holds the labels: it comes back as
        it was written, and takes no options.

    Raises
    ------
    MKMCError
        Where the suffix is none of these, or options are given for a ``.nc`` file.
    KernelError, LabelError
        Where the file is damaged or has no such arrays, or where `stack_kernels` refuses them.
    FileNotFoundError
        Where there is no such file.

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

    One matrix for each kernel:

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "kernels.npz"
    ...     np.savez(path, expression=np.eye(2), sequence=np.ones((2, 2)))
    ...     read_stack(path)["kernel"].values
    array(['expression', 'sequence'], dtype='<U10')
    """
    path = a_path(path)
    suffix = path.suffix.lower()
    if suffix not in ARRAY_SUFFIXES:
        raise MKMCError(
            f"{path}: read_stack reads {', '.join(ARRAY_SUFFIXES)} files. For matrices in text "
            "files call stack_kernels({name: read_kernel(path), ...})."
        )
    with path.open("rb"):
        pass  # a file that is missing or locked says so itself; what follows is about its content
    if suffix == ".nc":
        if any(option is not None for option in (kernels, visible, objects, names, kernel_axis)):
            raise MKMCError(
                f"{path}: a .nc file holds its labels and what is missing. Leave the options out."
            )
        return _read_netcdf(path)
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
            count, size = first.shape[axis], first.shape[1]
            stacked = np.moveaxis(first, axis, 0)
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


def write_stack(stack: xr.DataArray, path: str | os.PathLike[str]) -> None:
    """Write `stack` to a netCDF file, which `read_stack` reads without loss.

    The file is made and read back in memory, and replaces an older one only when it is complete.

    Parameters
    ----------
    stack
        Dims ``("kernel", "object", "object_bis")``, NaN where an object is missing. Attributes and
        further coordinates are kept.
    path
        Where to write it; the suffix is ``.nc``.

    Raises
    ------
    MKMCError
        Where the suffix is not ``.nc``, or netCDF cannot hold an attribute or a coordinate as it
        is.
    KernelError, LabelError
        Where `stack` is not a stack of kernels, as `stack_kernels` checks it.
    OSError
        If the file cannot be written: for instance, the disk is full or the folder read-only.

    Notes
    -----
    Writing takes about 1.2 times the size of the file in memory, in addition to `stack` and the
    copy that is checked. A stack too large for that belongs in another format, such as zarr.

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
    write_netcdf(check_stack(stack).to_dataset(), path, what="stack")


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Put the file's name before what the package's own errors say."""
    try:
        yield
    except MKMCError as error:
        raise type(error)(f"{path}: {error}") from error


def _read_netcdf(path: Path) -> xr.DataArray:
    whole = read_netcdf(path)
    if "mkmc_prob_layout" in whole.attrs:
        raise KernelError(
            f"{path}: this is a result that MKMCResult.save wrote. Call load_result(path); its "
            "`observed` and `completed` are stacks."
        )
    held = {str(name): variable for name, variable in whole.data_vars.items()}
    stacks = [variable for variable in held.values() if set(variable.dims) == set(DIMS)]
    if len(stacks) != 1:
        raise KernelError(
            f"{path}: {len(stacks)} variables with dims {DIMS} found, one expected. The file "
            f"holds {listed({name: variable.values for name, variable in held.items()})}."
        )
    with _naming(path):
        return check_stack(stacks[0])
