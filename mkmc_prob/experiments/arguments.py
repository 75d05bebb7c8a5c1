"""What a person hands to a study, looked at before anything is computed.

Enters: kernels, classes and numbers as given. Leaves: them in one form; or an error that names the
argument, the value and the remedy.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from pandas.api.types import is_scalar

from ..errors import KernelError, LabelError, MKMCError
from ..stacks.labels import as_labels, name_some
from ..stacks.matrix import as_array
from ..stacks.stack import check_complete
from ..utils.arguments import positive_number, real_number, whole_number
from .scores import SAME_RATIO

#: The paper's numbers of training objects, and from how many objects on they are the default.
TRAIN_SIZES, ENOUGH = (200, 1000), 1200
#: Beyond these LIBSVM does not end, and a netCDF attribute holds no number.
LARGEST_C, LARGEST_SEED = 1e10, 2**63 - 1
#: The last of the matrices on which classes are told apart.
MODEL = "model"


def complete_kernels(kernels: xr.DataArray) -> xr.DataArray:
    """Return the complete kernels, checked; raise where an object is missing or a name is taken."""
    kernels = check_complete(
        kernels,
        what="kernels",
        remedy="A study removes rows itself, to compare with what was there: select the objects "
        "that all kernels see.",
    )
    for name in kernels["kernel"].values.tolist():
        if str(name) == MODEL:
            raise LabelError(
                f"kernels: a kernel is called {name!r}, which names the combined model matrix in "
                "the results. Rename the kernel."
            )
    return kernels


def class_codes(classes: Any, objects: NDArray[Any]) -> NDArray[np.intp]:
    """Return the classes of `objects`, numbered from 0 in sorted order.

    Classes of further objects are not looked at: nothing depends on them, and a table of classes
    is often longer than the kernels that all objects of a study must be in.
    """
    if isinstance(classes, xr.DataArray):
        if classes.dims != ("object",) or "object" not in classes.indexes:
            raise LabelError(
                f"classes: dims {tuple(classes.dims)} found; one dim 'object' with labels is "
                "needed."
            )
        classes = pd.Series(classes.values, index=classes.indexes["object"])
    if not isinstance(classes, Mapping | pd.Series):
        raise LabelError(
            f"classes: {type(classes).__name__} found; a DataArray over 'object', a mapping or a "
            "Series is needed, labelled by object."
        )
    as_labels(classes.keys(), "classes, objects")
    table: dict[Any, Any] = dict(classes.items())
    wanted = objects.tolist()
    if without := [label for label in wanted if label not in table]:
        raise LabelError(f"classes: none for object {name_some(without)}. Add it.")
    values: list[Any] = [table[label] for label in wanted]
    for label, value in zip(wanted, values, strict=True):
        if not is_scalar(value) or pd.isna(value):
            raise MKMCError(f"classes: {value!r} found for object {label!r}; a class is needed.")
    try:
        codes, found = pd.factorize(np.array(values, dtype=object), sort=True)
        sorted(found)
        kinds = {isinstance(value, bool | np.bool_) for value in values}
        if len(kinds) > 1:
            raise TypeError("truth values and numbers")
    except TypeError as error:
        raise MKMCError(
            "classes: text, numbers or truth values are mixed. Convert them all with str()."
        ) from error
    if len(found) < 2:
        raise MKMCError(f"classes: all objects are of class {found[0]!r}; two or more are needed.")
    return codes


def training_sizes(given: Any, size: int) -> tuple[int, ...]:
    """Return how many of `size` objects train, in the order given."""
    if given is None:
        default = TRAIN_SIZES if size >= ENOUGH else (round(size / 6), round(5 * size / 6))
        return tuple(max(number, 1) for number in default)
    listed = np.atleast_1d(as_array(given, "train_sizes")).tolist()
    sizes = tuple(whole_number(number, "train_sizes", least=1) for number in listed)
    if not sizes or len(set(sizes)) < len(sizes):
        raise MKMCError(f"train_sizes: {given!r} found; give at least one, each once.")
    return sizes


def error_weights(given: Any) -> float | tuple[float, ...]:
    """Return C, or several of which one is to be chosen, ascending."""
    if isinstance(given, Sequence | np.ndarray) and not isinstance(given, str):
        several = sorted({_error_weight(c) for c in given})
        if len(several) < len(given) or not several:
            raise MKMCError(f"C: {given!r} found; give at least one, each once.")
        return tuple(several) if len(several) > 1 else several[0]
    return _error_weight(given)


def _error_weight(given: Any) -> float:
    number = positive_number(given, "C")
    if number > LARGEST_C:
        raise KernelError(
            f"C: {given!r} found; beyond {LARGEST_C:g} the solver, LIBSVM, does not end. Training "
            "errors are as good as forbidden long before."
        )
    return number


def study_seed(given: Any) -> int:
    """Return the seed, which JSON and netCDF keep as a 64-bit integer."""
    seed = whole_number(given, "seed", least=0)
    if seed > LARGEST_SEED:
        raise KernelError(f"seed: {given!r} found; it cannot be saved beyond {LARGEST_SEED}.")
    return seed


def shares_removed(given: Any) -> list[float]:
    """Return the shares of rows to remove, in the order given."""
    ratios = []
    for ratio in np.atleast_1d(as_array(given, "ratios")).tolist():
        share = real_number(ratio)
        if share is None or not 0 <= share < 1:
            raise MKMCError(f"ratios: {ratio!r} found; numbers from 0 to below 1 are needed.")
        ratios.append(share + 0.0)  # of -0.0, 0.0
    if not ratios or np.diff(sorted(ratios)).min(initial=1.0) <= SAME_RATIO:
        raise MKMCError(
            f"ratios: {given!r} found; give at least one, each once (those that differ by no more "
            f"than {SAME_RATIO:g} are the same)."
        )
    return ratios
