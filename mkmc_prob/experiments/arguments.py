"""Checks of the arguments of a study."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from pandas.api.types import is_scalar

from ..errors import LabelError, MKMCError
from ..stacks.labels import as_labels, match
from ..stacks.stack import check_complete
from ..utils.arguments import real, several

#: The paper's numbers of training objects, and the number of objects from which they are default.
TRAIN_SIZES, ENOUGH = (200, 1000), 1200
#: The largest integer that netCDF attributes can hold.
LARGEST_SEED = 2**63 - 1
#: The name of the model matrix, the last of the matrices that are classified.
MODEL = "model"
#: Ratios are the same if they agree to this many digits, as 0.3 and 0.1 + 0.2 do.
RATIO_DIGITS = 9

ratio = real(lambda number: 0 <= number < 1, "a number from 0 to below 1")
error_weight = real(
    lambda number: 1e-100 <= number <= 1e10,
    "a number > 0 up to 1e+10 (beyond, the solver, LIBSVM, does not end)",
)


def different_ratios(value: Any, what: str) -> list[float]:
    """Return one or more ratios, all of them different after rounding."""
    several(lambda each, _: round(ratio(each, what), RATIO_DIGITS))(value, what)
    return [float(each) for each in np.atleast_1d(value)]


def error_weights(value: Any, what: str) -> float | list[float]:
    """Return C, or the values from which it is chosen, in ascending order."""
    found = sorted(several(error_weight)(value, what))
    return found if len(found) > 1 else found[0]


def function(value: Any, what: str) -> Any:
    """Check that `value` can be called."""
    if not callable(value):
        raise MKMCError(f"{what}: {value!r} found; a function is needed.")
    return value


def folder_path(value: Any, what: str) -> Path:
    """Return the path of a folder."""
    if isinstance(value, str | os.PathLike) and "\0" not in os.fspath(value):
        return Path(value)
    raise MKMCError(f"{what}: {value!r} found; the name of a folder is needed.")


def complete_kernels(value: Any, what: str) -> xr.DataArray:
    """Return a complete stack without a kernel called "model"."""
    remedy = "A study removes rows itself: select the objects that are visible in all kernels."
    kernels = check_complete(value, what=what, remedy=remedy)
    if MODEL in map(str, kernels["kernel"].values.tolist()):
        raise LabelError(
            f"{what}: a kernel is called {MODEL!r}, as the combined matrix is. Rename the kernel."
        )
    return kernels


def class_codes(classes: Any, objects: NDArray[Any]) -> NDArray[np.intp]:
    """Return the classes of `objects`, numbered from 0 in sorted order; others are ignored."""
    if isinstance(classes, xr.DataArray) and list(classes.indexes) == [*classes.dims] == ["object"]:
        classes = classes.to_series()
    if not isinstance(classes, Mapping | pd.Series):
        raise LabelError(
            f"classes: {type(classes).__name__} found; a mapping, a Series or a DataArray with the "
            "dimension 'object' is needed, labeled by object."
        )
    within, given = as_labels(classes.keys(), "classes, objects"), [v for _, v in classes.items()]
    places = match(objects, within, "classes: none for object {}. Add it.")
    values = [given[place] for place in places]
    for label, value in zip(objects.tolist(), values, strict=True):
        if not is_scalar(value) or pd.isna(value):
            raise MKMCError(f"classes: {value!r} found for object {label!r}; a class is needed.")
    kinds = {(isinstance(value, str), isinstance(value, bool | np.bool_)) for value in values}
    if len(kinds) > 1:
        raise MKMCError("classes: text, numbers or truth values are mixed. Convert all to text.")
    codes, names = pd.factorize(np.array(values, dtype=object), sort=True)
    if len(names) < 2:
        raise MKMCError(f"classes: all objects are of class {names[0]!r}; two or more are needed.")
    return codes


def training_sizes(given: Any, size: int) -> tuple[int, ...]:
    """Return the numbers of training objects of `size` objects; by default the paper's."""
    default = TRAIN_SIZES if size >= ENOUGH else (max(round(size / 6), 1), round(5 * size / 6))
    return default if given is None else tuple(given)
