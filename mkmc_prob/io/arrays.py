"""What NumPy and MATLAB saved: the variables of a file, and which of them mean what.

Enters: a ``.npy``, ``.npz`` or ``.mat`` file. Leaves: arrays of numbers and of text by name, and
those among them that hold the kernels, say what is visible or label; or an error that lists what
the file holds. Nothing that is read is executed: pickled objects are never loaded.
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

#: Files that hold arrays: `read_stack` reads them.
ARRAY_SUFFIXES = (".npy", ".npz", ".mat", ".nc")


#: The classes of MATLAB's full arrays of numbers.
MATLAB_NUMBERS = {"double", "single", "logical"} | {
    f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}


NO_NUMBERS = "not a full array of numbers"


#: Integers up to here are exact as MATLAB's doubles.
EXACT = 2.0**53


#: What a file holds, by name: an array of numbers or text, or why it was not loaded.
Variables = Mapping[str, NDArray[Any] | str]


def read_npy(path: Path) -> NDArray[Any]:
    """Return the one array of a ``.npy`` file."""
    with path.open("rb") as file, decoding(path, "a .npy file"):
        return np.lib.format.read_array(file, allow_pickle=False)


def read_variables(path: Path) -> Variables:
    """Return what the file holds; the array of a ``.npy`` file is called after the file."""
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
    """Return `array` if it holds numbers or text (bytes are UTF-8), else what is wrong with it."""
    if isinstance(array, np.ndarray) and array.dtype.kind in "biufcU":
        return array
    if isinstance(array, np.ndarray) and array.dtype.kind == "S":
        return np.strings.decode(array, "utf-8")
    return NO_NUMBERS


def _read_mat5(path: Path) -> Variables:
    """Read MATLAB's own format, up to version 7.2."""
    kinds = {name: kind for name, _, kind in scipy.io.whosmat(path, appendmat=False)}
    wanted = [name for name, kind in kinds.items() if kind in MATLAB_NUMBERS | {"char", "cell"}]
    loaded = scipy.io.loadmat(path, appendmat=False, variable_names=wanted)
    found: dict[str, NDArray[Any] | str] = {}
    for name, kind in kinds.items():
        if kind == "char":
            found[name] = np.strings.rstrip(loaded[name], " ")  # rows are filled up with blanks
        elif kind == "cell":
            cells = loaded[name]
            texts = [
                "".join(cell.tolist()) if cell.dtype.kind == "U" and cell.size < 2 else None
                for cell in cells.ravel()
            ]
            found[name] = _of_cells(texts, cells.shape)
        else:
            found[name] = loaded[name] if name in wanted else f"of MATLAB's class {kind}"
    return found


def _read_mat73(path: Path) -> Variables:
    """Read MATLAB 7.3's format: HDF5, the axes last one first."""
    found: dict[str, NDArray[Any] | str] = {}
    with h5py.File(path, "r") as file:
        for name, item in file.items():
            kind = _matlab_class(item)
            if name.startswith("#"):
                continue  # where MATLAB keeps what is in its cells
            if not isinstance(item, h5py.Dataset):
                found[name] = NO_NUMBERS
            elif kind == "char":
                found[name] = np.array([row.rstrip(" ") for row in _rows_of_text(item)], dtype=str)
            elif item.dtype == h5py.ref_dtype:
                references = np.transpose(item[()])
                texts = [_one_text(file[reference]) for reference in references.ravel()]
                found[name] = _of_cells(texts, references.shape)
            elif item.dtype.kind in "biuf" and kind in MATLAB_NUMBERS | {""}:
                found[name] = np.transpose(item[()])
            else:
                found[name] = f"of MATLAB's class {kind}" if kind else NO_NUMBERS
    return found


def _matlab_class(item: Any) -> str:
    """Return what MATLAB 7.3 says `item` is, nothing where another program wrote it."""
    return bytes(item.attrs.get("MATLAB_class", b"")).decode("ascii")


def _rows_of_text(item: Any) -> list[str]:
    """Return the rows of MATLAB 7.3's char matrix, which is stored as UTF-16."""
    if "MATLAB_empty" in item.attrs:
        return [""]
    rows = np.atleast_2d(np.transpose(item[()])).astype("<u2")
    return [row.tobytes().decode("utf-16-le", "surrogatepass") for row in rows]


def _one_text(item: Any) -> str | None:
    """Return the text in a cell of MATLAB 7.3, None where it holds something else."""
    rows = _rows_of_text(item) if _matlab_class(item) == "char" else []
    return rows[0] if len(rows) == 1 else None


def _of_cells(texts: list[str | None], shape: tuple[int, ...]) -> NDArray[Any] | str:
    if any(text is None for text in texts):
        return "a cell array of something else than text"
    return np.array(texts, dtype=str).reshape(shape)


def listed(variables: Variables) -> str:
    """Return the names of `variables` and what they are, for a message."""
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
    found = variables[name]
    if isinstance(found, str) or found.dtype.kind == "U":
        why = found if isinstance(found, str) else NO_NUMBERS
        raise KernelError(
            f"variable {name!r}: {why}. Save it as an array of numbers (np.array(K, dtype=float))."
        )
    return found


def find_labels(
    variables: Variables, given: str | Iterable[Hashable] | None, option: str
) -> Iterable[Hashable] | None:
    """Return the labels in the variable that `given` names, or `given` itself if it is labels."""
    if not isinstance(given, str):
        return given
    found = variables.get(given, "there is no such variable")
    if isinstance(found, str):
        raise LabelError(
            f"{option}={given!r}: {found}. Name a variable of the file, saved as text "
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

    Those that are `asked` for; else the only array of shape (K, n, n) or (n, n, K); else, where
    nothing has three dims, every square matrix but `visible` and single numbers.
    """
    if asked is not None:
        found = {n: _number(variables, n) for n in ([asked] if isinstance(asked, str) else asked)}
        for name, array in found.items():
            alone = len(found) == 1 and array.ndim == 3
            if not alone and (array.ndim != 2 or array.shape[0] != array.shape[1]):
                raise KernelError(
                    f"variable {name!r}: shape {array.shape} is neither (n, n) nor, alone, "
                    "(K, n, n) or (n, n, K)."
                )
        if not found:
            raise KernelError("kernels=[] names no variable. Name one, or leave it out.")
        return found
    cubes = {name: v for name, v in _numbers(variables).items() if v.ndim == 3}
    stacks = {n: v for n, v in cubes.items() if v.shape[1] in (v.shape[0], v.shape[2])}
    if len(stacks) == 1:
        return stacks
    matrices = {
        name: v
        for name, v in _numbers(variables).items()
        if v.ndim == 2 and v.shape[0] == v.shape[1] > 1 and name != visible
    }
    if cubes or not matrices:
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


def find_visible(
    variables: Variables,
    asked: str | Literal[False] | None,
    kernels: dict[str, NDArray[Any]],
    count: int,
    size: int,
) -> NDArray[Any] | None:
    """Return the array that says which of `size` objects `count` kernels see, None if none does.

    It is taken unasked only where one array holds all the kernels: then their order is known.
    """
    if asked is False:
        return None
    if asked is not None:
        return _number(variables, asked)
    fitting = [
        name
        for name, v in _numbers(variables).items()
        if v.shape in ((count, size), (size, count))
        and name not in kernels
        and np.isin(v, (0, 1)).all()
    ]
    if not fitting:
        return None
    matrices = next(iter(kernels.values())).ndim == 2
    if len(fitting) > 1 or matrices:
        raise KernelError(
            f"{len(fitting)} arrays could say what is visible ({', '.join(map(repr, fitting))}). "
            "Name one with visible=..., or pass visible=False to use none; the file holds "
            f"{listed(variables)}."
        )
    return _number(variables, fitting[0])


def axis_of_kernels(shape: tuple[int, ...], asked: int | None, name: str) -> int:
    """Return which axis of an array of `shape` counts the kernels."""
    squares = ((0, shape[1:]), (2, shape[:2]))
    possible = [axis for axis, square in squares if len(shape) == 3 and len({*square}) == 1]
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
