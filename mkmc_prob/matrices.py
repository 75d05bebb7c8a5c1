"""One labelled square matrix over objects: the model matrix, a prior's scale, a moment.

Enters: a `DataArray`, `DataFrame` or plain array. Leaves: an exactly symmetric float64 array and
the labels of its objects (None where it has none); and the way back to a labelled matrix.
"""

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from .checks import (
    LabelledMatrix,
    as_array,
    check_matrix,
    check_rows_are_columns,
    eps_of,
    frame_values,
)
from .errors import KernelError, LabelError
from .labels import Labels, as_labels
from .linalg import Matrix


def square_matrix(given: Any, what: str) -> tuple[Matrix, Labels | None]:
    """Return `given` as a new, exactly symmetric array without NaN, and its objects if labelled.

    Raises
    ------
    KernelError, LabelError
        As for a kernel: not square, not numeric, not symmetric, not finite; labels that differ.
    """
    objects: Labels | None = None
    eps = rounding_of(given)
    if (
        isinstance(given, xr.DataArray)
        and given.ndim == 2
        and all(dim in given.indexes for dim in given.dims)
    ):
        given = given.to_pandas()
    if isinstance(given, pd.DataFrame):
        objects = as_labels(given.index, f"{what}, rows")
        columns = as_labels(given.columns, f"{what}, columns")
        check_rows_are_columns(objects, columns, what, remedy="Give both the same labels.")
        values = frame_values(given)
    else:
        values = as_array(given, what)
    if values.ndim != 2 or values.shape[0] != values.shape[1] or not values.size:
        raise KernelError(f"{what}: shape {values.shape} found; a square matrix is needed.")
    labels = np.arange(len(values)) if objects is None else objects
    everything = np.ones(len(values), dtype=bool)
    part = LabelledMatrix(what, values, labels, everything)
    return check_matrix(part, eps, what), objects


def rounding_of(given: Any) -> float:
    """Return the machine epsilon that `given` came with: its kernel's, or its dtype's."""
    eps = eps_of(np.asarray(given).dtype) if hasattr(given, "dtype") else eps_of(np.dtype(float))
    if isinstance(given, pd.DataFrame):
        eps = eps_of(frame_values(given).dtype)
    if isinstance(given, xr.DataArray) and "rounding" in given.coords:
        own = given["rounding"]
        eps = max(eps, float(own)) if own.ndim == 0 else eps
    return eps


def labelled(matrix: Matrix, objects: Labels, name: str) -> xr.DataArray:
    """Return `matrix` with the labels of its objects: dims ``(object, object_bis)``."""
    if len(matrix) != len(objects):
        raise LabelError(f"{name}: {len(objects)} labels for {len(matrix)} objects.")
    return xr.DataArray(
        matrix,
        dims=("object", "object_bis"),
        coords={"object": objects, "object_bis": objects},
        name=name,
    )
