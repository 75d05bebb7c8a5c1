"""Checks of a single square matrix over objects: a kernel, a model matrix, the scale of a prior."""

from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from pandas.api.types import is_numeric_dtype

from ..errors import KernelError, LabelError
from ..linalg.rounding import eps_of, rounding_share
from ..linalg.symmetric import Matrix
from .labels import Labels, as_labels, match, name_some

#: Asymmetry below this share of the kernel's largest entry is rounding and is averaged away.
ASYMMETRY_TOLERANCE = 1e-8
#: Above this size products of entries overflow, and below its inverse they vanish.
LARGEST_ENTRY = 1e150


class LabeledMatrix(NamedTuple):
    """One matrix before it is checked and aligned.

    `what` names it in messages, and `eps` is the machine epsilon of the precision it came in.
    """

    what: str
    values: NDArray[Any]
    objects: Labels
    eps: float


def square_matrix(given: Any, what: str) -> tuple[Matrix, Labels | None]:
    """Return `given` as a new, exactly symmetric array without NaN, and its objects if labeled.

    Raises
    ------
    KernelError, LabelError
        As for a kernel: if it is not square, numeric, symmetric and finite, or if the labels of
        rows and columns differ.
    """
    objects: Labels | None = None
    frame = given
    if isinstance(given, xr.DataArray) and given.ndim == 2 and {*given.dims} <= {*given.indexes}:
        frame = given.to_pandas()
    if isinstance(frame, pd.DataFrame):
        objects = as_labels(frame.index, f"{what}, rows")
        columns = as_labels(frame.columns, f"{what}, columns")
        check_rows_are_columns(objects, columns, what, remedy="Give both the same labels.")
        values = frame_values(frame)
    else:
        values = as_array(given, what)
    if values.ndim != 2 or values.shape[0] != values.shape[1] or not values.size:
        raise KernelError(f"{what}: shape {values.shape} found; a square matrix is needed.")
    labels = np.arange(len(values)) if objects is None else objects
    part = LabeledMatrix(what, values, labels, float(input_eps(given)))
    return visible_block(part, np.ones(len(values), dtype=bool))[0], objects


def input_eps(given: Any) -> NDArray[np.float64]:
    """Return the machine epsilon of the precision in which each matrix of `given` came.

    It is the coordinate `rounding` of a stack or of one of its kernels, or the machine epsilon of
    the dtype if that is larger.
    """
    values = frame_values(given) if isinstance(given, pd.DataFrame) else given
    dtype = getattr(values, "dtype", np.dtype(np.float64))
    eps = np.full(np.shape(values)[:-2], eps_of(dtype))
    own = given.coords.get("rounding") if isinstance(given, xr.DataArray) else None
    if own is None or own.dims != given.dims[:-2]:
        return eps
    if own.dtype.kind not in "fiu" or not (np.isnan(own) | ((own >= 0) & (own <= 1))).all():
        raise KernelError(
            f"stack: its coordinate 'rounding' is {own.values.tolist()}; a machine epsilon between "
            "0 and 1 is expected for each kernel. Drop it, or correct it."
        )
    return np.asarray(np.fmax(eps, own.values))  # fmax: NaN if a kernel was added by hand


def labeled_square(
    given: Any, objects: Iterable[Hashable] | None, what: str
) -> tuple[Matrix, Labels]:
    """Return `given` as `square_matrix` does, with the labels `objects` if it has none of its own.

    0 to l - 1 if there are neither.
    """
    matrix, own = square_matrix(given, what)
    if own is not None and objects is not None:
        raise LabelError("objects: the matrix has labels already. Leave objects out.")
    if own is None:
        own = as_labels(range(len(matrix)) if objects is None else objects, "objects")
    if len(own) != len(matrix):
        raise LabelError(f"objects: {len(own)} labels for {len(matrix)} objects.")
    return matrix, own


def aligned_matrix(given: Any, objects: Labels, what: str) -> tuple[Matrix, NDArray[np.intp]]:
    """Return `given` as `square_matrix` does, and the positions of its rows among `objects`.

    Without labels it must be over all of them, in their order.
    """
    matrix, own = square_matrix(given, what)
    if own is None:
        check_size(matrix, len(objects), what)
    unmatched = "the model has no object {}. Drop it, or fit a model that has it."
    return matrix, match(objects if own is None else own, objects, unmatched)


def labelled(matrix: Matrix, objects: Labels, name: str) -> xr.DataArray:
    """Return `matrix` with labels, as a DataArray with dims ``(object, object_bis)``."""
    if len(matrix) != len(objects):
        raise LabelError(f"{name}: {len(objects)} labels for {len(matrix)} objects.")
    return xr.DataArray(
        matrix,
        dims=("object", "object_bis"),
        coords={"object": objects, "object_bis": objects},
        name=name,
    )


def labeled_matrix(matrix: Any, what: str) -> LabeledMatrix:
    """Return a labeled kernel with its columns in the order of its rows."""
    frame = matrix
    if isinstance(matrix, xr.DataArray):
        for dim in matrix.dims:
            if dim not in matrix.indexes:
                raise LabelError(f"{what}: no labels on {dim!r}. Label rows and columns.")
        frame = matrix.to_pandas()
    objects = as_labels(frame.index, f"{what}, rows")
    columns = as_labels(frame.columns, f"{what}, columns")
    values = frame_values(frame)
    check_square(values, what)
    places = pd.Index(columns).get_indexer(pd.Index(objects))
    if (places < 0).any():
        remedy = "Give rows and columns the same labels."
        check_rows_are_columns(objects, columns, what, remedy=remedy)
    return LabeledMatrix(what, values[:, places], objects, float(input_eps(matrix)))


def is_labeled(matrix: Any) -> bool:
    """Return whether a matrix has labels of its own."""
    if isinstance(matrix, xr.DataArray):
        return matrix.ndim == 2 and len(matrix.indexes) > 0
    return isinstance(matrix, pd.DataFrame)


def as_array(given: Any, what: str) -> NDArray[Any]:
    """Return `given` as a plain array, with NaN for masked entries."""
    if hasattr(given, "toarray"):
        raise KernelError(
            f"{what}: sparse matrix ({type(given).__name__}) found. Pass its .toarray(); "
            "the entries that it does not store are zero, not missing."
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
    if isinstance(array, np.ma.MaskedArray) and array.dtype.kind in "biuf":
        dtype = array.dtype if array.dtype.kind == "f" else np.float64
        return np.asarray(np.ma.filled(array.astype(dtype), np.nan))
    return np.asarray(array)


def finite_rows(given: Any, columns: int, what: str) -> NDArray[Any]:
    """Return `given` as rows of so many finite real numbers, one per visible object."""
    values = np.atleast_2d(as_array(given, what))
    if values.dtype.kind not in "biuf" or not np.isfinite(values).all():
        raise KernelError(f"{what}: must be finite real numbers.")
    if values.ndim != 2 or values.shape[1] != columns:
        raise KernelError(
            f"{what}: shape {values.shape} found; one column for each of the {columns} visible "
            "objects is needed."
        )
    return values


def frame_values(frame: pd.DataFrame) -> NDArray[Any]:
    """Return the values of `frame`, as floats with NaN if it has pandas number types with NA."""
    values = frame.to_numpy()
    if values.dtype != object or not all(is_numeric_dtype(dtype) for dtype in frame.dtypes):
        return values
    kinds = [getattr(dtype, "numpy_dtype", dtype) for dtype in frame.dtypes]
    return frame.to_numpy(dtype=np.result_type(np.float32, *kinds), na_value=np.nan)


def check_square(values: NDArray[Any], what: str) -> None:
    """Raise KernelError if `values` is not a square matrix, and say what it looks like."""
    if values.ndim == 2 and values.shape[0] == values.shape[1]:
        return
    remedy = "Pass a square matrix."
    if values.ndim == 2 and values.dtype.kind in "biuf":
        remedy = "Of a table of features X (objects x features), pass a kernel, such as X @ X.T."
    elif values.ndim == 2 and values.shape[1] == values.shape[0] + 1:
        remedy = "Its first column looks like the labels: pandas.read_csv(path, index_col=0)."
    elif values.dtype.kind in "UO" and values.ndim == 0:
        remedy = "Read a file first: io.read_kernel(path)."
    raise KernelError(f"{what}: shape {values.shape} is not square. {remedy}")


def check_size(matrix: Matrix, size: int, what: str) -> None:
    """Raise LabelError if a matrix without labels has not `size` rows."""
    if len(matrix) != size:
        raise LabelError(
            f"{what}: it is {len(matrix)} x {len(matrix)}, for {size} objects. Label it, or pass "
            "one of their size."
        )


def check_rows_are_columns(rows: Labels, columns: Labels, what: str, *, remedy: str) -> None:
    """Raise LabelError unless rows and columns have the same labels in the same order."""
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
        found = f"{name_some(odd)} occur in only one of them"
    else:
        found = "the orders differ"
    raise LabelError(f"{what}: row and column labels differ ({found}). {remedy}")


def visible_block(
    part: LabeledMatrix, visible: NDArray[np.bool_] | None = None
) -> tuple[Matrix, NDArray[np.bool_]]:
    """Return the visible block as float64, exactly symmetric, and which objects are visible.

    If `visible` is None, the objects whose row and column are wholly NaN are hidden.
    """
    what, dtype = part.what, part.values.dtype
    if dtype.kind not in "biuf":
        remedy = "Pass its .real if that is meant." if dtype.kind == "c" else "Use astype(float)."
        raise KernelError(f"{what}: dtype {dtype} found; kernels hold real numbers. {remedy}")
    with np.errstate(over="ignore"):  # a long double may become infinite, which is refused below
        values = part.values.astype(np.float64, copy=False)
    if visible is None:
        number = ~np.isnan(values)
        visible = np.asarray(number.any(axis=0) | number.any(axis=1))
    block, labels = values[np.ix_(visible, visible)], part.objects[visible].tolist()  # a copy
    if not labels:
        return block, visible
    _check_entries(block, labels, what)
    largest = float(np.abs(block).max())
    if 0 < largest < 1 / LARGEST_ENTRY:
        raise KernelError(
            f"{what}: its largest entry is {largest:.3g}; below {1 / LARGEST_ENTRY:g}, products of "
            "entries vanish. Rescale the kernel."
        )
    _symmetrize(block, labels, what, max(ASYMMETRY_TOLERANCE, 16 * part.eps) * largest)
    diagonal = np.diagonal(block)
    worst = int(np.argmin(diagonal))
    if diagonal[worst] < -rounding_share(len(labels), part.eps) * largest:
        raise KernelError(
            f"{what}: the diagonal entry of object {labels[worst]!r} is {diagonal[worst]:.6g}. The "
            "diagonal of a kernel holds squared lengths. If this is a similarity score, add a "
            "constant to the diagonal first."
        )
    return block, visible


def _check_entries(block: Matrix, labels: list[Hashable], what: str) -> None:
    """Raise KernelError unless all entries of the visible block are finite numbers in range."""
    sizes = np.abs(block)
    if (sizes <= LARGEST_ENTRY).all():  # False for NaN too
        return
    if (sizes > LARGEST_ENTRY).any():
        i, j = np.unravel_index(int(np.nanargmax(sizes)), sizes.shape)
        remedy = f"; beyond {LARGEST_ENTRY:g}, products overflow. Rescale the kernel."
        if np.isinf(block[i, j]):
            remedy = ". Replace it, or hide the object (its whole row and column NaN)."
        raise KernelError(
            f"{what}: the entry of objects {labels[i]!r} and {labels[j]!r} is {block[i, j]:.6g}"
            + remedy
        )
    nan = np.isnan(block)
    upper = np.triu(np.ones_like(nan), 1)
    if len(nan) > 2 and (np.array_equal(nan, upper) or np.array_equal(nan, upper.T)):
        side = "above" if nan[0, 1] else "below"
        raise KernelError(
            f"{what}: every entry {side} the diagonal is NaN. This looks like one triangle: pass "
            "table.combine_first(table.T) for a pandas.DataFrame, or "
            "np.where(np.isnan(Q), Q.T, Q) for an array Q."
        )
    worst = int((nan.sum(axis=1) + nan.sum(axis=0)).argmax())
    row, column = int(nan[worst].sum()), int(nan[:, worst].sum())
    found = (
        f"{what}: object {labels[worst]!r} is NaN in {row} entries of its row and {column} of its "
        f"column, out of {len(labels)}"
    )
    remedy = ", but is said to be visible. Set its visibility to 0."
    if not row == column == len(labels):
        remedy = (
            ", but not in all. Objects are hidden as a whole: set the whole row and column to NaN, "
            "or fill in the entries."
        )
    raise KernelError(found + remedy)


def _symmetrize(block: Matrix, labels: list[Hashable], what: str, tolerance: float) -> None:
    """Average out asymmetry up to `tolerance` in place; raise KernelError if it is larger."""
    difference = np.abs(block - block.T)
    if not difference.any():
        return
    i, j = np.unravel_index(int(np.argmax(difference)), difference.shape)
    if difference[i, j] > tolerance:
        remedy = "If the average is meant, pass (Q + Q.T) / 2."
        if not np.triu(block, 1).any() or not np.tril(block, -1).any():
            remedy = "This looks like one triangle: pass Q + Q.T - np.diag(np.diag(Q))."
        raise KernelError(
            f"{what}: not symmetric: the entry of objects {labels[i]!r} and {labels[j]!r} is "
            f"{block[i, j]:.9g}, its transpose {block[j, i]:.9g}. {remedy}"
        )
    block += block.T.copy()
    block *= 0.5
