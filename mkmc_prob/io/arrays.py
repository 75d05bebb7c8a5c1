"""Reading the arrays of NumPy and MATLAB files, and finding kernels and labels among them.

Nothing that is read is executed: pickled objects are never loaded.
"""

from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np
import scipy.io
from numpy.typing import NDArray

from ..errors import KernelError, LabelError
from ..utils.files import decoding

#: The suffixes of the files that `read_stack` reads.
ARRAY_SUFFIXES = (".npy", ".npz", ".mat", ".nc")


#: MATLAB's classes of full numeric arrays.
MATLAB_NUMBERS = {"double", "single", "logical"} | {
    f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}


NOT_NUMBERS = "not a full array of numbers"


#: Smaller integers are exact as MATLAB's doubles.
EXACT = 2.0**53


#: The content of a file by name: an array of numbers or text, or the reason it was not loaded.
Variables = Mapping[str, NDArray[Any] | str]


def read_npy(path: Path) -> NDArray[Any]:
    """Return the array of a ``.npy`` file."""
    with path.open("rb") as file, decoding(path, "a .npy file"):
        return np.lib.format.read_array(file, allow_pickle=False)


def read_variables(path: Path) -> Variables:
    """Return the variables of a file; the array of a ``.npy`` file is named after the file."""
    if path.suffix.lower() == ".npy":
        return {path.stem: _usable(read_npy(path))}
    if path.suffix.lower() == ".npz":
        return _read_npz(path)
    with decoding(path, "a .mat file"):
        return _read_mat73(path) if h5py.is_hdf5(path) else _read_mat5(path)


def _read_npz(path: Path) -> Variables:
    found: dict[str, NDArray[Any] | str] = {}
    with decoding(path, "a .npz file"), np.load(path, allow_pickle=False) as file:
        for name in file.files:
            try:
                found[name] = _usable(file[name])
            except ValueError as error:
                found[name] = f"not loaded: {error}"
    return found


def _usable(array: Any) -> NDArray[Any] | str:
    """Return `array` if it holds numbers or text (bytes are UTF-8), else why it is not usable."""
    if isinstance(array, np.ndarray) and array.dtype.kind in "biufcU":
        return array
    if isinstance(array, np.ndarray) and array.dtype.kind == "S":
        return np.strings.decode(array, "utf-8")
    return NOT_NUMBERS


def _read_mat5(path: Path) -> Variables:
    """Read MATLAB's format up to version 7.2."""
    kinds = {name: kind for name, _, kind in scipy.io.whosmat(path, appendmat=False)}
    wanted = [name for name, kind in kinds.items() if kind in MATLAB_NUMBERS | {"char", "cell"}]
    loaded = scipy.io.loadmat(path, appendmat=False, variable_names=wanted)
    found: dict[str, NDArray[Any] | str] = {}
    for name, kind in kinds.items():
        if kind == "char":
            found[name] = np.strings.rstrip(loaded[name], " ")  # rows are padded with blanks
        elif kind == "cell":
            cells = loaded[name]
            rows = [c.tolist() or [""] if c.dtype.kind == "U" else [] for c in cells.ravel()]
            found[name] = _of_cells(rows, cells.shape)
        else:
            found[name] = loaded.get(name, f"of MATLAB's class {kind}")
    return found


def _read_mat73(path: Path) -> Variables:
    """Read MATLAB's format 7.3, which is HDF5 with the axes reversed."""
    found: dict[str, NDArray[Any] | str] = {}
    with h5py.File(path, "r") as file:
        for name, item in file.items():
            kind = _matlab_class(item)
            if name.startswith("#"):
                continue  # the content of cell arrays
            if not isinstance(item, h5py.Dataset):
                found[name] = NOT_NUMBERS
            elif kind == "char":
                found[name] = np.array([row.rstrip(" ") for row in _rows_of_text(item)], dtype=str)
            elif item.dtype == h5py.ref_dtype:
                references = np.transpose(item[()])
                rows = [_rows_of_text(file[reference]) for reference in references.ravel()]
                found[name] = _of_cells(rows, references.shape)
            elif item.dtype.kind in "biuf" and kind in MATLAB_NUMBERS | {""}:
                found[name] = np.transpose(item[()])
            else:
                found[name] = f"of MATLAB's class {kind}" if kind else NOT_NUMBERS
    return found


def _matlab_class(item: Any) -> str:
    """Return the MATLAB class of an item, empty if another program wrote it."""
    return bytes(item.attrs.get("MATLAB_class", b"")).decode("ascii")


def _rows_of_text(item: Any) -> list[str]:
    """Return the rows of a char matrix of MATLAB 7.3 (stored as UTF-16), none of other items."""
    if _matlab_class(item) != "char":
        return []
    if "MATLAB_empty" in item.attrs:
        return [""]
    rows = np.atleast_2d(np.transpose(item[()])).astype("<u2")
    return [row.tobytes().decode("utf-16-le", "surrogatepass") for row in rows]


def _of_cells(rows: list[list[str]], shape: tuple[int, ...]) -> NDArray[Any] | str:
    """Return a cell array of text, given the rows of text in each cell."""
    if any(len(cell) != 1 for cell in rows):
        return "a cell array of something other than text"
    return np.array(rows, dtype=str).reshape(shape)


def listed(variables: Variables) -> str:
    """Describe `variables` in a message: their names, shapes and dtypes."""
    return "; ".join(
        f"{name!r} ({v})" if isinstance(v, str) else f"{name!r} {v.shape} {v.dtype}"
        for name, v in variables.items()
    ) or ("no variables")


def _numbers(variables: Variables) -> dict[str, NDArray[Any]]:
    return {
        name: v
        for name, v in variables.items()
        if not isinstance(v, str) and v.dtype.kind in "biufc"
    }


def _number(variables: Variables, name: str) -> NDArray[Any]:
    """Return the array of numbers called `name`."""
    if name not in variables:
        raise KernelError(f"there is no variable {name!r}. The file holds {listed(variables)}.")
    if name not in (numbers := _numbers(variables)):
        found = variables[name]
        raise KernelError(
            f"variable {name!r}: {found if isinstance(found, str) else NOT_NUMBERS}. Save it as an "
            "array of numbers (np.array(K, dtype=float))."
        )
    return numbers[name]


def find_labels(
    variables: Variables, given: str | Iterable[Hashable] | None, option: str
) -> Iterable[Hashable] | None:
    """Return the labels in the variable called `given`, or `given` itself unless it is a name."""
    if not isinstance(given, str):
        return given
    found = variables.get(given, "there is no such variable")
    if isinstance(found, str):
        raise LabelError(
            f"{option}={given!r}: {found}. Name a variable of the file that is saved as text "
            "(NumPy: np.array(ids, dtype=str); MATLAB: cellstr(ids)), or pass a list of the "
            f"labels; the file holds {listed(variables)}."
        )
    if found.ndim not in (1, 2) or found.size != max(found.shape):
        raise LabelError(
            f"{option}={given!r}: shape {found.shape} found; labels have shape (n,), (n, 1) or "
            "(1, n)."
        )
    if found.dtype.kind == "f" and (found == np.rint(found)).all() and (abs(found) < EXACT).all():
        found = found.astype(np.int64)  # MATLAB's integers are doubles
    labels: list[Hashable] = found.ravel().tolist()
    return labels


def find_kernels(
    variables: Variables, asked: str | Iterable[str] | None, visible: str | Literal[False] | None
) -> dict[str, NDArray[Any]]:
    """Return the arrays that hold the kernels: one of three dims, or square matrices of one size.

    These are the ones `asked` for, otherwise the only array of shape (K, n, n) or (n, n, K),
    otherwise, if no array has three dims, all square matrices except `visible` and single numbers.
    """
    if asked is not None:
        found = {n: _number(variables, n) for n in ([asked] if isinstance(asked, str) else asked)}
        for name, array in found.items():
            if not (_is_stack(array) and len(found) == 1) and not _is_square(array):
                raise KernelError(
                    f"variable {name!r}: shape {array.shape} is neither (n, n) nor, alone, "
                    "(K, n, n) or (n, n, K)."
                )
        if not found:
            raise KernelError("kernels=[] names no variable. Name one, or leave it out.")
        return found
    numbers = _numbers(variables)
    stacks = {name: v for name, v in numbers.items() if _is_stack(v)}
    if len(stacks) == 1:
        return stacks
    matrices = {
        name: v for name, v in numbers.items() if _is_square(v) and v.size > 1 and name != visible
    }
    if any(v.ndim == 3 for v in numbers.values()) or not matrices:
        raise KernelError(
            f"{len(stacks)} arrays of shape (K, n, n) or (n, n, K) found. Name one with "
            f"kernels=...; the file holds {listed(variables)}."
        )
    if len({v.shape for v in matrices.values()}) > 1:
        raise KernelError(
            f"square matrices of different sizes found: {listed(matrices)}. Name those over the "
            f"same objects, kernels=[{next(iter(matrices))!r}, ...]. Kernels over different "
            "objects need labels: stack_kernels({name: pd.DataFrame(matrix, ids, ids), ...})."
        )
    return matrices


def _is_square(array: NDArray[Any]) -> bool:
    return array.ndim == 2 and array.shape[0] == array.shape[1]


def _is_stack(array: NDArray[Any]) -> bool:
    return array.ndim == 3 and array.shape[1] in (array.shape[0], array.shape[2])


def find_visible(
    variables: Variables,
    asked: str | Literal[False] | None,
    kernels: dict[str, NDArray[Any]],
    count: int,
    size: int,
) -> NDArray[Any] | None:
    """Return the array that says which of `size` objects are visible in `count` kernels, if any.

    An array that was not `asked` for is used only if one array holds all kernels, because their
    order is known then.
    """
    if asked is False:
        return None
    if asked is not None:
        return _number(variables, asked)
    fitting = {
        name: v
        for name, v in _numbers(variables).items()
        if v.shape in ((count, size), (size, count))
        and name not in kernels
        and np.isin(v, (0, 1)).all()
    }
    if len(fitting) > 1 or (fitting and next(iter(kernels.values())).ndim == 2):
        raise KernelError(
            f"{len(fitting)} arrays could say what is visible ({', '.join(map(repr, fitting))}). "
            "Name one with visible=..., or pass visible=False to use none; the file holds "
            f"{listed(variables)}."
        )
    return next(iter(fitting.values()), None)


def axis_of_kernels(shape: tuple[int, ...], asked: int | None, name: str) -> int:
    """Return the axis of the kernels in an array of shape (K, n, n) or (n, n, K)."""
    possible = [axis for axis in (0, 2) if shape[1] == shape[2 - axis]]
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
