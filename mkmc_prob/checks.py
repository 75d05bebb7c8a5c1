"""One kernel matrix, looked at before anything is computed from it.

Enters: the values of one kernel as a person gave them, its labels, and what is said to be visible.
Leaves: a float64 copy, exactly symmetric, NaN in whole rows and columns; or an error that names
the kernel, the object, the value and the remedy.
"""

import math
import numbers
from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from pandas.api.types import is_numeric_dtype

from .errors import KernelError, LabelError, MKMCError
from .labels import Labels, as_labels, name_some, positions

#: Asymmetry below this share of the kernel's largest entry is rounding and is averaged away.
ASYMMETRY_TOLERANCE = 1e-8
#: Beyond this size products of entries overflow, below its inverse they vanish.
LARGEST_ENTRY = 1e150
#: Strengths and degrees of freedom beyond this size, or below its inverse, do the same.
LARGEST_WEIGHT = 1e100


class LabelledMatrix(NamedTuple):
    """One kernel before alignment: its values, its objects, and what is said to be visible."""

    name: Hashable
    values: NDArray[Any]
    objects: Labels
    visible: NDArray[np.bool_] | None
    #: The machine epsilon it came with, where the dtype of `values` does not tell.
    rounding: float = 0.0


def eps_of(dtype: np.dtype[Any]) -> float:
    """Return the machine epsilon of the precision that `dtype` carries, float64's at best."""
    if dtype.kind == "f":
        return max(float(np.finfo(dtype).eps), float(np.finfo(np.float64).eps))
    return float(np.finfo(np.float64).eps)


def rounding_share(size: int, eps: float) -> float:
    """Return the share of a matrix of `size` rows that may be rounding.

    n roundings of relative size eps add up to n eps at most; for coarse numbers (float16) no more
    than half of the digits are given away, sqrt(eps).
    """
    return min(size * eps, math.sqrt(eps))


def eps_of_share(size: int, share: float) -> float:
    """Return the eps whose `rounding_share` is `share`, 1 at most: no digit is left."""
    return min(max(share / size, share**2), 1.0)


def as_array(given: Any, what: str) -> NDArray[Any]:
    """Return `given` as a plain array, NaN where a masked array is masked."""
    if hasattr(given, "toarray"):
        raise KernelError(
            f"{what}: a sparse matrix ({type(given).__name__}). Pass its .toarray(): what a "
            "sparse matrix leaves out is zero, not missing."
        )
    if isinstance(given, xr.Dataset | xr.DataTree):
        raise KernelError(
            f"{what}: {type(given).__name__} found; an array is needed. Take one of its variables."
        )
    try:
        array = np.asanyarray(given)
    except ValueError as error:
        raise KernelError(
            f"{what}: its rows have different lengths. Pass a rectangular array."
        ) from error
    if isinstance(array, np.ma.MaskedArray):
        if array.dtype.kind in "biu":
            array = array.astype(np.float64)
        return array.filled(np.nan) if array.dtype.kind == "f" else np.asarray(array)
    return np.asarray(array)


def frame_values(frame: pd.DataFrame) -> NDArray[Any]:
    """Return the values of `frame`; pandas' own number types with pd.NA become floats with NaN."""
    values = frame.to_numpy()
    if values.dtype != object or not all(is_numeric_dtype(dtype) for dtype in frame.dtypes):
        return values
    kinds = [getattr(dtype, "numpy_dtype", dtype) for dtype in frame.dtypes]
    return frame.to_numpy(dtype=np.result_type(np.float32, *kinds), na_value=np.nan)


def as_mask(values: NDArray[Any], what: str) -> NDArray[np.bool_]:
    """Return 0/1 `values` as bool; raise where they are anything else."""
    for value in values.tolist():
        if not isinstance(value, numbers.Real | np.bool_) or value not in (0, 1):
            raise KernelError(f"{what}: {value!r} found; entries are 0 (missing) or 1 (visible).")
    return values.astype(bool)


def visibility_table(visible: Any) -> pd.DataFrame | None:
    """Return a labelled visibility mask as a table kernels x objects, None if it has no labels."""
    if isinstance(visible, xr.DataArray) and visible.indexes:
        if visible.ndim != 2 or "kernel" not in visible.dims or len(visible.indexes) != 2:
            raise LabelError(
                f"visible: dims {visible.dims}, of which {tuple(visible.indexes)} have labels; "
                "('kernel', 'object') expected, both with labels."
            )
        visible = visible.transpose("kernel", ...).to_pandas()
    return visible if isinstance(visible, pd.DataFrame) else None


def visible_row(table: pd.DataFrame, name: Hashable, objects: Labels) -> NDArray[np.bool_]:
    """Return which of `objects` the kernel `name` sees by a table kernels x objects."""
    columns = as_labels(table.columns, "visible, objects")
    row = positions(np.array([name]), as_labels(table.index, "visible, kernels"))[0]
    if row < 0:
        raise LabelError(f"visible: there is no row for kernel {name!r}. Add one.")
    place = positions(objects, columns)
    if (place < 0).any():
        raise LabelError(
            f"visible: there is no column for {name_some(objects[place < 0])}. Add it."
        )
    seen = as_mask(table.to_numpy()[row], f"visible, kernel {name!r}")
    absent = columns[seen & (positions(columns, objects) < 0)]
    if len(absent):
        raise KernelError(
            f"visible, kernel {name!r}: 1 for {name_some(absent)}, of which the kernel has no "
            "row. Set it to 0, or add the row to the kernel."
        )
    return seen[place]


def check_square(values: NDArray[Any], what: str) -> None:
    """Raise where `values` is not a square matrix; say what it looks like."""
    if values.ndim == 2 and values.shape[0] == values.shape[1]:
        return
    remedy = "Pass a square matrix."
    if values.ndim == 2 and values.dtype.kind in "biuf":
        remedy = "Of a table of features X (objects x features) pass a kernel: X @ X.T, say."
    elif values.ndim == 2 and values.shape[1] == values.shape[0] + 1:
        remedy = "Its first column looks like the labels: pandas.read_csv(path, index_col=0)."
    elif values.dtype.kind in "UO" and values.ndim == 0:
        remedy = "Read a file first: io.read_kernel(path)."
    raise KernelError(f"{what}: shape {values.shape} is not square. {remedy}")


def check_rows_are_columns(rows: Labels, columns: Labels, what: str, *, remedy: str) -> None:
    """Raise where the labels of the rows are not those of the columns, in the same order."""
    if np.array_equal(rows, columns):
        return
    kinds = {"U": "text", "i": "integers"}
    of_rows, of_columns = kinds[rows.dtype.kind], kinds[columns.dtype.kind]
    if of_rows != of_columns and len(rows) and len(columns):
        found = (
            f"rows have {of_rows} ({rows.tolist()[0]!r}), columns {of_columns} "
            f"({columns.tolist()[0]!r})"
        )
    elif odd := sorted(set(rows.tolist()) ^ set(columns.tolist())):
        found = f"{name_some(odd)} occur in one only"
    else:
        found = "the orders differ"
    raise LabelError(f"{what}: row and column labels differ ({found}). {remedy}")


def positive_number(value: Any, what: str) -> float:
    """Return `value` as a float; raise KernelError unless it is a number > 0 of usable size."""
    number = real_number(value)
    if number is None or not 1 / LARGEST_WEIGHT <= number <= LARGEST_WEIGHT:
        raise KernelError(
            f"{what}: {value!r} found; a finite number > 0 is needed "
            f"({1 / LARGEST_WEIGHT:g} to {LARGEST_WEIGHT:g})."
        )
    return number


def real_number(value: Any) -> float | None:
    """Return `value` as a float if it is one finite real number, else None."""
    if isinstance(value, bool | np.bool_ | np.timedelta64) or not isinstance(value, numbers.Real):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if np.isfinite(number) else None


def whole_number(value: Any, what: str, *, least: int) -> int:
    """Return `value` as an int; raise KernelError unless it is a whole number >= `least`."""
    number = None if real_number(value) is None else value
    if not isinstance(number, numbers.Integral) or number < least:
        raise KernelError(f"{what}: {value!r} found; a whole number >= {least} is needed.")
    return int(number)


def need_joblib(install: str = "pip install mkmc-prob[parallel]") -> tuple[Any, Any]:
    """Return joblib's Parallel and delayed; raise where it is missing."""
    try:
        from joblib import Parallel, delayed
    except ImportError as error:
        raise MKMCError(f"workers: more than one needs joblib. Install it: {install}") from error
    return Parallel, delayed


def generator(seed: Any) -> np.random.Generator:
    """Return NumPy's generator for `seed`; raise KernelError where it makes none of it."""
    if seed is not None and not isinstance(seed, bool):
        try:
            return np.random.default_rng(seed)
        except (TypeError, ValueError):
            pass
    raise KernelError(
        f"seed: {seed!r} found; a whole number >= 0 or a numpy.random.Generator is needed."
    )


def check_matrix(part: LabelledMatrix, eps: float, what: str = "") -> NDArray[np.float64]:
    """Return one kernel as float64, exactly symmetric, NaN in the rows of missing objects."""
    what = what or f"kernel {part.name!r}"
    if part.values.dtype.kind not in "biuf":
        is_complex = part.values.dtype.kind == "c"
        raise KernelError(
            f"{what}: its entries are of dtype {part.values.dtype}; kernels hold real numbers. "
            + ("Pass its .real if that is meant." if is_complex else "Convert it: astype(float).")
        )
    with np.errstate(over="ignore"):  # a long double may become infinite, which is refused below
        values = part.values.astype(np.float64)  # a copy: the caller's array stays as it is
    if part.visible is None:
        nan = np.isnan(values)
        seen = ~(nan.all(axis=0) & nan.all(axis=1))
    else:
        seen = part.visible
    values[~seen, :] = np.nan
    values[:, ~seen] = np.nan
    block = values if seen.all() else values[np.ix_(seen, seen)]
    labels = part.objects[seen].tolist()
    if not labels:
        return values
    _check_entries(block, labels, what)
    largest = float(np.abs(block).max())
    if 0 < largest < 1 / LARGEST_ENTRY:
        raise KernelError(
            f"{what}: its largest entry is {largest:.3g}; below {1 / LARGEST_ENTRY:g} products of "
            "entries vanish. Rescale the kernel."
        )
    _symmetrize(block, labels, what, max(ASYMMETRY_TOLERANCE, 16 * eps) * largest)
    diagonal = np.diagonal(block)
    worst = int(np.argmin(diagonal))
    if diagonal[worst] < -rounding_share(len(labels), eps) * largest:
        raise KernelError(
            f"{what}: the diagonal entry of object {labels[worst]!r} is {diagonal[worst]:.6g}. A "
            "kernel's diagonal holds squared lengths; if this is a similarity score, add a "
            "constant to the diagonal first."
        )
    if block is not values:
        values[np.ix_(seen, seen)] = block
    return values


def _check_entries(block: NDArray[np.float64], labels: list[Hashable], what: str) -> None:
    """Raise where the visible block of a kernel has entries that are not finite numbers."""
    if (np.abs(block) <= LARGEST_ENTRY).all():  # False for NaN too
        return
    infinite = np.argwhere(np.isinf(block))
    if len(infinite):
        i, j = infinite[0]
        raise KernelError(
            f"{what}: the entry of objects {labels[i]!r} and {labels[j]!r} is {block[i, j]}. "
            "Replace infinite similarities, or hide the object (its whole row and column NaN)."
        )
    huge = np.argwhere(np.abs(block) > LARGEST_ENTRY)
    if len(huge):
        i, j = huge[0]
        raise KernelError(
            f"{what}: the entry of objects {labels[i]!r} and {labels[j]!r} is {block[i, j]:.6g}; "
            f"beyond {LARGEST_ENTRY:g} products overflow. Rescale the kernel."
        )
    nan = np.isnan(block)
    upper = np.triu(np.ones_like(nan), 1)
    if len(nan) > 2 and (np.array_equal(nan, upper) or np.array_equal(nan, upper.T)):
        side = "above" if nan[0, 1] else "below"
        raise KernelError(
            f"{what}: every entry {side} the diagonal is NaN. It looks like one triangle: pass "
            "table.combine_first(table.T), with table a pandas.DataFrame (of an array Q: "
            "np.where(np.isnan(Q), Q.T, Q))."
        )
    worst = int((nan.sum(axis=1) + nan.sum(axis=0)).argmax())
    row, column = int(nan[worst].sum()), int(nan[:, worst].sum())
    found = (
        f"{what}: object {labels[worst]!r} is NaN in {row} entries of its row and {column} of its "
        f"column, out of {len(labels)}"
    )
    if row == column == len(labels):
        raise KernelError(f"{found}, but is said to be visible. Set its visibility to 0.")
    raise KernelError(
        f"{found}, but not in all. Objects are missing as a whole: set its whole row and column to "
        "NaN, or fill the entries in."
    )


def _symmetrize(
    block: NDArray[np.float64], labels: list[Hashable], what: str, tolerance: float
) -> None:
    """Average away the rounding asymmetry of `block` in place; raise where it is more."""
    difference = np.abs(block - block.T)
    if not difference.any():
        return
    i, j = np.unravel_index(int(np.argmax(difference)), difference.shape)
    if difference[i, j] > tolerance:
        remedy = "If the average is meant, pass (Q + Q.T) / 2."
        if not np.triu(block, 1).any() or not np.tril(block, -1).any():
            remedy = "It looks like one triangle of it: pass Q + Q.T - np.diag(np.diag(Q))."
        raise KernelError(
            f"{what}: not symmetric: the entry of objects {labels[i]!r} and {labels[j]!r} is "
            f"{block[i, j]:.9g}, the other way round {block[j, i]:.9g}. {remedy}"
        )
    block += block.T.copy()
    block *= 0.5
