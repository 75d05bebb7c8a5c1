"""Which objects a kernel shows, as the user states it: masks and tables of 0 and 1."""

import numbers
from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from ..errors import KernelError, LabelError
from .labels import Labels, as_labels, match, name_some, positions
from .matrix import as_array


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


def visible_mask(visible: Any, objects: Labels, *, of: str) -> NDArray[np.bool_]:
    """Return which of `objects` are visible, from one bool per object or from their labels.

    `of` says whose objects they are, for messages. Integers are labels.
    """
    if isinstance(visible, xr.DataArray) and visible.indexes:
        visible = visible.to_series()
    if isinstance(visible, pd.Series) and visible.dtype == bool:
        labels = as_labels(visible.index, "visible")
        unmatched = "visible: it does not say whether {} is visible. Add it."
        return visible.to_numpy()[match(objects, labels, unmatched)]
    values = as_array(list(visible) if isinstance(visible, Iterable) else visible, "visible")
    if values.ndim != 1 or (values.dtype == bool and values.shape != objects.shape):
        raise KernelError(
            f"visible: shape {values.shape} found, {objects.shape} expected: one bool per object, "
            "or the labels of the visible objects."
        )
    if values.dtype == bool:
        return values
    zeros_and_ones = values.dtype.kind in "iu" and np.isin(values, (0, 1)).all()
    if len(values) == len(objects) > 1 and zeros_and_ones:
        raise KernelError(
            f"visible: {values.tolist()} may be a mask or labels. Pass a mask as bools."
        )
    mask = np.zeros(len(objects), dtype=bool)
    unmatched = of + " has no object {}. Drop it, or fit a model that has it."
    mask[match(as_labels(values.tolist(), "visible"), objects, unmatched)] = True
    return mask
