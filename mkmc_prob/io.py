"""Kernel stacks from files and into files.

Enters: paths. `read_kernel` (its room is `io_text`) reads one matrix from text, `read_stack` a
whole stack from arrays that NumPy or MATLAB saved or from netCDF, `write_stack` writes netCDF.
Leaves: labelled, checked arrays, or an error that names the file. Nothing that is read is executed:
pickled objects are never loaded.
"""

import os
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np
import scipy.io
import xarray as xr
from numpy.typing import NDArray

from .errors import KernelError, LabelError, MKMCError
from .files import replace_file
from .io_text import ARRAY_SUFFIXES, read_kernel
from .kernels import DIMS, check_stack, stack_kernels

__all__ = ["read_kernel", "read_stack", "write_stack"]

#: The classes of MATLAB's full arrays of numbers.
MATLAB_NUMBERS = {"double", "single", "logical"} | {
    f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}
#: What a file holds, by name: the array, or why it was not loaded.
Variables = Mapping[str, NDArray[Any] | str]


def read_stack(
    path: str | os.PathLike[str],
    *,
    kernels: str | None = None,
    visible: str | Literal[False] | None = None,
    objects: Iterable[Hashable] | None = None,
    names: Iterable[Hashable] | None = None,
    kernel_axis: int | None = None,
) -> xr.DataArray:
    """Read a stack of kernels from a ``.npz``, ``.mat`` or ``.nc`` file.

    Parameters
    ----------
    path
        What NumPy's ``savez``, MATLAB's ``save`` (any version; 7.3 is HDF5) or `write_stack` wrote.
    kernels
        The name of the variable that holds the kernels, an array of shape (K, n, n) or (n, n, K).
        It may be left out where there is only one such variable.
    visible
        The name of the variable that says which objects each kernel sees: 0/1, shape (K, n) or
        (n, K). It may be left out where there is at most one such variable; False uses none, and
        then only what is NaN is missing.
    objects, names
        The labels of the objects and of the kernels, as `stack_kernels` takes them.
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
    ...     np.savez(path, K=np.ones((3, 3, 2)), seen=[[1, 1, 0], [1, 1, 1]])
    ...     stack = read_stack(path, names=["expression", "sequence"])
    >>> stack.sel(kernel="expression").values
    array([[ 1.,  1., nan],
           [ 1.,  1., nan],
           [nan, nan, nan]])
    """
    path = Path(path)
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
    for what, labels in ("objects", objects), ("names", names):
        if isinstance(labels, str):
            raise LabelError(f"{what}: {labels!r} is one text. Pass a list of the labels.")
    variables = _read_npz(path) if suffix == ".npz" else _read_mat(path)
    with _naming(path):
        name, array = _find_kernels(variables, kernels)
        axis = _kernel_axis(array.shape, kernel_axis, name)
        count, size = array.shape[axis], array.shape[1]
        mask = _find_visible(variables, visible, count, size)
        if mask is not None and mask.shape == (size, count) and (size != count or axis == 2):
            mask = mask.T
        return stack_kernels(
            np.moveaxis(array, axis, 0), objects=objects, names=names, visible=mask
        )


def write_stack(stack: xr.DataArray, path: str | os.PathLike[str]) -> None:
    """Write `stack` to a netCDF file, which `read_stack` reads without loss.

    The file appears, or replaces an older one, only when it is complete and has been read back.

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
    path = Path(path)
    if path.suffix.lower() != ".nc":
        raise MKMCError(
            f"{path}: write_stack writes netCDF, whose suffix is .nc. Name the file "
            f"{path.with_suffix('.nc').name!r}."
        )
    checked = _checked(stack)
    with replace_file(path) as draft:
        try:
            whole = checked.to_dataset()
            # In place of what an earlier file left in `encoding` (packed integers lose digits); NaN
            # is a value here, not a mark in the file.
            plain = {name: {"_FillValue": None} for name in whole.variables}
            whole.to_netcdf(draft, engine="h5netcdf", encoding=plain)
            if not _read_netcdf(draft).identical(checked):
                raise ValueError("it would come back changed")
        except OSError:
            raise  # the disk, not the stack
        except Exception as error:
            raise MKMCError(
                f"{path}: netCDF cannot hold this stack ({error}). Make its attributes and further "
                "coordinates text or numbers, without the names that netCDF keeps for itself "
                "('units', 'dtype', 'coordinates')."
            ) from error


def _checked(stack: xr.DataArray) -> xr.DataArray:
    """Return `stack` checked, with its own name, attributes and further coordinates."""
    checked = check_stack(stack)
    further = {
        name: coordinate.variable
        for name, coordinate in stack.coords.items()
        if name not in checked.coords
    }
    checked = checked.assign_coords(further)
    checked.attrs = dict(stack.attrs)
    return checked if stack.name is None else checked.rename(stack.name)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Put the file's name before what the package's own errors say."""
    try:
        yield
    except MKMCError as error:
        raise type(error)(f"{path}: {error}") from error


@contextmanager
def _decoding(path: Path, kind: str) -> Iterator[None]:
    """Say which file it is that a decoder stumbles over: they raise nearly anything."""
    try:
        yield
    except Exception as error:
        raise KernelError(
            f"{path}: not readable as {kind} ({type(error).__name__}: {error}). It is damaged or "
            "of another kind; save it again."
        ) from error


def _read_netcdf(path: Path) -> xr.DataArray:
    with (
        _decoding(path, "netCDF-4"),
        # Entries and labels are taken as they stand: no attribute scales them.
        xr.open_dataset(path, engine="h5netcdf", mask_and_scale=False) as file,
    ):
        whole = file.load()
    held = {str(name): variable for name, variable in whole.data_vars.items()}
    stacks = [variable for variable in held.values() if set(variable.dims) == set(DIMS)]
    if len(stacks) != 1:
        raise KernelError(
            f"{path}: {len(stacks)} variables with dims {DIMS} found, one expected. The file "
            f"holds {_listed({name: variable.values for name, variable in held.items()})}."
        )
    with _naming(path):
        return _checked(stacks[0])


def _read_npz(path: Path) -> Variables:
    found: dict[str, NDArray[Any] | str] = {}
    with _decoding(path, "a .npz file"), np.load(path, allow_pickle=False) as file:
        for name in file.files:
            try:
                found[name] = _numeric(file[name])
            except ValueError as error:
                found[name] = f"not loaded: {error}"
    return found


def _read_mat(path: Path) -> Variables:
    found: dict[str, NDArray[Any] | str] = {}
    with _decoding(path, "a .mat file"):
        if not h5py.is_hdf5(path):  # MATLAB's own format, up to version 7.2
            kinds = {name: kind for name, _, kind in scipy.io.whosmat(path, appendmat=False)}
            full = [name for name, kind in kinds.items() if kind in MATLAB_NUMBERS]
            arrays = scipy.io.loadmat(path, appendmat=False, variable_names=full)
            return {
                name: arrays[name] if name in full else f"of MATLAB's class {kind}"
                for name, kind in kinds.items()
            }
        with h5py.File(path, "r") as file:
            for name, item in file.items():
                if isinstance(item, h5py.Dataset) and item.dtype.kind in "biuf":
                    found[name] = np.transpose(item[()])  # MATLAB's axes, last one first
                else:
                    found[name] = _numeric(item)
    return found


def _numeric(item: Any) -> NDArray[Any] | str:
    """Return `item` if it is an array of numbers, else what is wrong with it."""
    if isinstance(item, np.ndarray) and item.dtype.kind in "biufc":
        return item
    return "not a full array of numbers"


def _listed(variables: Variables) -> str:
    """Return the names of `variables` and what they are, for a message."""
    return "; ".join(
        f"{name!r} ({v})" if isinstance(v, str) else f"{name!r} {v.shape} {v.dtype}"
        for name, v in variables.items()
    ) or ("no variables")


def _named(variables: Variables, name: str) -> NDArray[Any]:
    if name not in variables:
        raise KernelError(f"there is no variable {name!r}. The file holds {_listed(variables)}.")
    found = variables[name]
    if isinstance(found, str):
        raise KernelError(f"variable {name!r}: {found}. Save it as an array of numbers.")
    return found


def _find_kernels(variables: Variables, name: str | None) -> tuple[str, NDArray[Any]]:
    if name is None:
        fitting = [
            name
            for name, v in variables.items()
            if not isinstance(v, str) and v.ndim == 3 and v.shape[1] in (v.shape[0], v.shape[2])
        ]
        if len(fitting) != 1:
            raise KernelError(
                f"{len(fitting)} arrays of shape (K, n, n) or (n, n, K) found. Name one with "
                f"kernels=...; the file holds {_listed(variables)}."
            )
        name = fitting[0]
    return name, _named(variables, name)


def _find_visible(
    variables: Variables, name: str | Literal[False] | None, count: int, size: int
) -> NDArray[Any] | None:
    if name is False:
        return None
    if name is None:
        fitting = [
            name
            for name, v in variables.items()
            if not isinstance(v, str)
            and v.shape in ((count, size), (size, count))
            and np.isin(v, (0, 1)).all()
        ]
        if not fitting:
            return None
        if len(fitting) > 1:
            raise KernelError(
                f"{len(fitting)} arrays could say what is visible. Name one with visible=..., or "
                f"pass visible=False to use none; the file holds {_listed(variables)}."
            )
        name = fitting[0]
    return _named(variables, name)


def _kernel_axis(shape: tuple[int, ...], asked: int | None, name: str) -> int:
    """Return which axis of an array of `shape` counts the kernels."""
    possible = []
    if len(shape) == 3:
        possible = [
            axis for axis, square in ((0, shape[1:]), (2, shape[:2])) if len({*square}) == 1
        ]
    if not possible:
        raise KernelError(f"variable {name!r}: shape {shape} is neither (K, n, n) nor (n, n, K).")
    if asked is None:
        if len(possible) == 1:
            return possible[0]
        raise KernelError(
            f"variable {name!r}: shape {shape} does not tell kernels from objects. Pass "
            "kernel_axis=0 if the first axis counts the kernels, kernel_axis=2 if the last does."
        )
    axis = asked + 3 if asked < 0 else asked
    if axis not in possible:
        raise KernelError(
            f"kernel_axis={asked}: variable {name!r} has shape {shape}, whose other two axes "
            f"would not be square. Pass kernel_axis={possible[0]}, or leave it out."
        )
    return axis
