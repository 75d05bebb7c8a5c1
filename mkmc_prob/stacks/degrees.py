"""Degrees of freedom: one positive number per kernel, read from any form a user may give."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from ..errors import KernelError, LabelError
from ..utils.arguments import Check, positive
from .labels import as_labels, match

DegreesOfFreedom: TypeAlias = (
    "float | Sequence[float] | NDArray[np.float64] | Mapping[Hashable, float] | xr.DataArray"
    " | pd.Series[float]"
)
#: The same, or "auto".
DegreesOrAuto: TypeAlias = "DegreesOfFreedom | Literal['auto']"


def degrees_per_kernel(
    given: Any,
    names: list[Hashable],
    *,
    what: str = "degrees_of_freedom",
    check: Check = positive,
) -> NDArray[np.float64]:
    """Return nu_k for each kernel, from one number, a sequence, or something labeled by kernel.

    `what` is the name of the argument, for messages, and `check` checks each number.

    Raises
    ------
    KernelError
        If `check` refuses a number, or there are too few or too many.
    LabelError
        If a kernel has no number, or a number belongs to no kernel.
    """
    if what == "degrees_of_freedom" and isinstance(given, str) and given == "auto":
        raise KernelError(
            'degrees_of_freedom: "auto" found, which only fit and complete take. Pass numbers, for '
            "example calibrate(stack).degrees_of_freedom."
        )
    if isinstance(given, xr.DataArray | np.ndarray) and given.ndim != 1:
        if given.ndim:
            raise KernelError(f"{what}: {given.ndim} dims found; one number per kernel is needed.")
        given = given.item()
    if isinstance(given, xr.DataArray):
        if given.dims != ("kernel",) and given.dims[0] in given.indexes:
            raise LabelError(
                f"{what}: labeled by {given.dims[0]!r}; 'kernel' is needed. Rename the dim."
            )
        # Without labels by position: `to_series` would make some up, 0 to K - 1.
        given = given.to_series() if given.dims[0] in given.indexes else given.values
    if isinstance(given, Mapping | pd.Series):
        labels, wanted = as_labels(given.keys(), f"{what}, kernels"), np.array(names)
        places = match(wanted, labels, what + ": none for kernel {}. Add it.")
        match(labels, wanted, what + ": there is no kernel {}. Leave it out.")
        numbers = list(dict(given.items()).values())
        given = [numbers[place] for place in places]
    elif isinstance(given, str) or not isinstance(given, Sequence | np.ndarray):
        given = [given] * len(names)
    if len(given) != len(names):
        raise KernelError(
            f"{what}: {len(given)} numbers for {len(names)} kernels. Give one for all "
            "or one for each."
        )
    named = zip(given, names, strict=True)
    return np.array([check(number, f"{what} of kernel {name!r}") for number, name in named])
