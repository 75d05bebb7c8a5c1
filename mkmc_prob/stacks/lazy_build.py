"""Building a stack of kernels that are not in memory: what each kernel is, and its checks."""

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from tqdm.auto import tqdm

from ..errors import KernelError, LabelError
from ..kernels.feature_form import Features
from ..kernels.labeled import Labeled
from ..linalg import tiles
from ..linalg.lazy import dask_array, is_lazy, without_mask
from ..linalg.operators import SymmetricOperator, readable
from ..linalg.rounding import eps_of
from ..linalg.spectra import eigenvalue_tolerance, negative_spectrum
from .examined import (
    Given,
    check_spectrum,
    feature_operator,
    indefinite,
    sparse_operator,
    tiled_operator,
)
from .labels import Labels, as_labels, warn_of_lookalikes
from .lazy_stack import LazyKernel, LazyStack
from .matrix import (
    LabeledMatrix,
    as_array,
    check_rows_are_columns,
    check_square,
    input_eps,
    is_labeled,
    labeled_matrix,
    visible_block,
)
from .stack import common_order, places_among
from .visibility import visibility_table, visible_row


def is_out_of_memory(matrix: Any) -> bool:
    """Return whether a kernel is of a kind that is not held in memory as a matrix."""
    if isinstance(matrix, xr.DataArray):
        return is_lazy(matrix.data)
    if isinstance(matrix, Labeled):
        return True
    if isinstance(matrix, Features | np.memmap) or is_lazy(matrix):
        return True
    return _is_zarr(matrix) or _is_sparse(matrix)


def as_lazy_array(kernels: Any) -> Any:
    """Return an array of shape (K, l, l) that is not in memory so that its kernels are not either.

    None if `kernels` is of another kind.
    """
    if _is_zarr(kernels):
        return dask_array("kernels", kernels).from_array(kernels, asarray=False)
    return kernels if isinstance(kernels, np.memmap) or is_lazy(kernels) else None


def _is_zarr(matrix: Any) -> bool:
    return type(matrix).__module__.partition(".")[0] == "zarr"


def _is_sparse(matrix: Any) -> bool:
    return hasattr(matrix, "toarray") and hasattr(matrix, "nnz")


def build_lazy_stack(
    names: Labels,
    matrices: list[Any],
    order: Labels | None,
    visible: Any,
    check: str,
    progress: bool,
) -> LazyStack:
    """Return a stack of kernels of which some are not in memory."""
    for name, matrix in zip(names.tolist(), matrices, strict=True):
        if is_out_of_memory(matrix):  # also of features: what `fit` completes is a dask array
            dask_array(f"kernel {name!r}", matrix)
    parts = [
        _given(f"kernel {name!r}", matrix, order)
        for name, matrix in zip(names.tolist(), matrices, strict=True)
    ]
    labeled = [_has_labels(matrix) for matrix in matrices]
    if any(labeled) and not all(labeled):
        some, other = (names.tolist()[labeled.index(kind)] for kind in (True, False))
        raise LabelError(
            f"kernels: {some!r} is labeled and {other!r} is not. Label all of them "
            "(kernels.Labeled(matrix, objects), kernels.Features(X, objects=...)) or none."
        )
    for part in parts if not any(labeled) else ():
        if len(part.objects) != len(parts[0].objects):
            raise KernelError(
                f"{part.what}: {len(part.objects)} objects, but {parts[0].what} has "
                f"{len(parts[0].objects)}. Kernels without labels cover the same objects."
            )
    everything = common_order(parts, order)
    table = visibility_table(visible, names, None if any(labeled) else everything)
    if all(labeled):
        warn_of_lookalikes([part.objects for part in parts], "objects")
    kernels = []
    total = sum(
        len(part.matrix.chunks[0]) if is_lazy(part.matrix) else -(-len(part.objects) // tiles.TILE)
        for part in parts
        if is_lazy(part.matrix) or isinstance(part.matrix, LabeledMatrix)
    )
    with tqdm(total=total, disable=not progress, desc="check", unit=" rows of tiles") as bar:
        for name, part in zip(names.tolist(), parts, strict=True):
            places = places_among(everything, part)
            row = None if table is None else visible_row(table, name, part.objects)
            if isinstance(part.matrix, LabeledMatrix):
                part = part._replace(matrix=_in_tiles(part.matrix, row))
            operator, shown = _operator(part, row, bar)
            operator.what = part.what
            kernels.append(LazyKernel(places[shown], operator, part.eps))
            if check == "thorough":
                bar.set_postfix_str(f"spectrum of {name!r}")
                check_spectrum(operator, part.what, part.eps)
    return LazyStack(names.tolist(), everything, kernels)


def _has_labels(matrix: Any) -> bool:
    if isinstance(matrix, Features):
        return matrix.objects is not None
    return isinstance(matrix, Labeled) or is_labeled(matrix)


def _given(what: str, matrix: Any, order: Labels | None) -> Given:
    """Return a kernel of any kind as tiles, features or a matrix in memory, with its labels."""
    if isinstance(matrix, Labeled):
        if _has_labels(matrix.matrix):
            raise LabelError(f"{what}: the matrix in Labeled has labels already. Pass it itself.")
        return _given(what, matrix.matrix, as_labels(matrix.objects, what))
    objects: Labels | None = None
    eps = eps_of(np.dtype(np.float64))
    if isinstance(matrix, Features):
        if matrix.objects is not None:
            objects = as_labels(matrix.objects, what)
        _check_shape(matrix.values, what)
        eps, size = eps_of(matrix.values.dtype), matrix.values.shape[0]
    elif _is_sparse(matrix):
        check_square(matrix, what)
        _check_real(matrix, what)
        eps, size = eps_of(matrix.dtype), matrix.shape[0]
    elif is_out_of_memory(matrix):
        if isinstance(matrix, xr.DataArray):
            objects = _labels_of(matrix, what)
            eps, matrix = float(input_eps(matrix)), matrix.data
        _check_shape(matrix, what)
        check_square(matrix, what)
        _check_real(matrix, what)
        eps, size = max(eps, eps_of(matrix.dtype)), matrix.shape[0]
        matrix = tiles.as_tiles(without_mask(matrix))
    else:
        part = labeled_matrix(matrix, what) if is_labeled(matrix) else None
        if part is None:
            array = as_array(matrix, what)
            check_square(array, what)
            part = LabeledMatrix(what, array, np.arange(len(array)), eps_of(array.dtype))
        else:
            objects = part.objects
        matrix, eps, size = part, part.eps, len(part.values)
    if objects is None:
        objects = np.arange(size) if order is None else order
    if len(objects) != size:
        raise LabelError(f"{what}: {len(objects)} labels for {size} objects.")
    return Given(what, matrix, objects, eps)


def _in_tiles(part: LabeledMatrix, row: NDArray[np.bool_] | None) -> Any:
    """Return a checked kernel in memory as tiles; what is hidden is NaN."""
    block, shown = visible_block(part, row)
    spectrum = negative_spectrum(block, part.eps)
    if spectrum is not None:
        raise indefinite(part.what, float(spectrum[0]), eigenvalue_tolerance(block, part.eps))
    values = np.full(part.values.shape, np.nan)
    values[np.ix_(shown, shown)] = block
    return tiles.as_tiles(values)


def _check_shape(array: Any, what: str) -> None:
    if np.isnan(array.shape).any():
        raise KernelError(
            f"{what}: a dask array of unknown shape. Call its compute_chunk_sizes() first."
        )


def _check_real(matrix: Any, what: str) -> None:
    if matrix.dtype.kind not in "biuf":
        raise KernelError(f"{what}: dtype {matrix.dtype} found; kernels hold real numbers.")


def _labels_of(matrix: xr.DataArray, what: str) -> Labels | None:
    """Return the labels of a 2-D DataArray, None if it has none."""
    if matrix.ndim != 2:
        raise KernelError(f"{what}: shape {matrix.shape} is not a matrix.")
    if not matrix.indexes:
        return None
    for dim in matrix.dims:
        if dim not in matrix.indexes:
            raise LabelError(f"{what}: no labels on {dim!r}. Label rows and columns.")
    rows, columns = (
        as_labels(matrix.indexes[dim], f"{what}, {side}")
        for dim, side in zip(matrix.dims, ("rows", "columns"), strict=True)
    )
    check_rows_are_columns(rows, columns, what, remedy="Give both the same labels.")
    return rows


def _operator(
    part: Given, row: NDArray[np.bool_] | None, bar: Any
) -> tuple[SymmetricOperator, NDArray[np.bool_]]:
    with readable(part.what, "It is damaged."):
        if isinstance(part.matrix, Features):
            return feature_operator(part, row)
        if _is_sparse(part.matrix):
            return sparse_operator(part, row)
        return tiled_operator(part, row, bar.update)
