"""The argument `visible`: which objects are visible, given as masks, tables or labels."""

import numbers
from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from ..errors import KernelError, LabelError
from .labels import Labels, as_labels, match, name_some
from .matrix import as_array


def as_mask(values: NDArray[Any], what: str) -> NDArray[np.bool_]:
    """Return 0/1 `values` as bool; raise KernelError if there are other values."""
    for value in values.tolist():
        if not isinstance(value, numbers.Real | np.bool_) or value not in (0, 1):
            raise KernelError(f"{what}: {value!r} found; entries are 0 (hidden) or 1 (visible).")
    return values.astype(bool)


def visibility_table(visible: Any, names: Labels, objects: Labels | None) -> pd.DataFrame | None:
    """Return `visible` as a labeled table (kernels x objects), or None if it is None.

    A plain array is about `objects`; without them the array must be labeled.
    """
    if visible is None:
        return None
    if isinstance(visible, xr.DataArray) and visible.indexes:
        if visible.ndim != 2 or "kernel" not in visible.dims or len(visible.indexes) != 2:
            raise LabelError(
                f"visible: dims {visible.dims} found, of which {tuple(visible.indexes)} have "
                "labels; ('kernel', 'object') is expected, both with labels."
            )
        visible = visible.transpose("kernel", ...).to_pandas()
    if isinstance(visible, pd.DataFrame):
        rows = as_labels(visible.index, "visible, kernels")
        columns = as_labels(visible.columns, "visible, objects")
        return visible.set_axis(rows).set_axis(columns, axis=1)
    if objects is None:
        raise LabelError(
            "visible: for labeled kernels it must say which objects its columns are. Pass a "
            "DataFrame (kernels x objects), or omit it: objects without a row are hidden."
        )
    mask = as_array(visible, "visible")
    if mask.shape != (len(names), len(objects)):
        raise KernelError(
            f"visible: shape {mask.shape} found, ({len(names)}, {len(objects)}) expected: one row "
            "per kernel, one column per object."
        )
    return pd.DataFrame(mask, index=names, columns=objects)


def visible_row(table: pd.DataFrame, name: Hashable, objects: Labels) -> NDArray[np.bool_]:
    """Return which of `objects` are visible in the kernel `name`, from a visibility table."""
    if name not in table.index:
        raise LabelError(f"visible: there is no row for kernel {name!r}. Add one.")
    columns = table.columns.to_numpy()
    places = match(objects, columns, "visible: there is no column for {}. Add it.")
    mask = as_mask(table.loc[[name]].to_numpy()[0], f"visible, kernel {name!r}")
    absent = columns[mask & (pd.Index(objects).get_indexer(table.columns) < 0)].tolist()
    if absent:
        raise KernelError(
            f"visible, kernel {name!r}: 1 for {name_some(absent)}, for which the kernel has "
            "no row. Set it to 0, or add the row to the kernel."
        )
    return mask[places]


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
    unmatched = of + " has no object {}. Remove it, or fit a model that has it."
    mask[match(as_labels(values.tolist(), "visible"), objects, unmatched)] = True
    return mask
