"""Degrees of freedom: how many observations each kernel counts for.

Enters: what a person gave, in any of its forms. Leaves: one number per kernel.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from ..errors import KernelError, LabelError
from ..utils.arguments import positive_number
from .labels import as_labels, name_some

DegreesOfFreedom: TypeAlias = (
    "float | Sequence[float] | NDArray[np.float64] | Mapping[Hashable, float] | xr.DataArray"
    " | pd.Series[float]"
)


def degrees_per_kernel(
    given: Any, names: list[Hashable], *, what: str = "degrees_of_freedom"
) -> NDArray[np.float64]:
    """Return nu_k for each kernel, from one number, a sequence, or something labelled by kernel.

    `what` is the name of the argument, for messages.

    Raises
    ------
    KernelError
        Where one is not a finite number > 0, or there are too few or too many.
    LabelError
        Where a kernel has none, or one belongs to no kernel.
    """
    if isinstance(given, xr.DataArray | np.ndarray) and given.ndim > 1:
        raise KernelError(f"{what}: {given.ndim} dims found; one number for each kernel is needed.")
    if isinstance(given, xr.DataArray) and given.ndim == 1:
        if given.dims != ("kernel",) and given.dims[0] in given.indexes:
            raise LabelError(
                f"{what}: labelled by {given.dims[0]!r}; 'kernel' is needed. Rename the dim."
            )
        given = given.to_series()
    if isinstance(given, Mapping | pd.Series):
        as_labels(given.keys(), f"{what}, kernels")
        table = dict(given.items())
        without = [name for name in names if name not in table]
        unknown = [name for name in table if name not in names]
        if without:
            raise LabelError(f"{what}: none for kernel {name_some(without)}. Add it.")
        if unknown:
            raise LabelError(f"{what}: there is no kernel {name_some(unknown)}. Leave it out.")
        given = [table[name] for name in names]
    elif (
        isinstance(given, str)
        or not isinstance(given, Sequence | np.ndarray)
        or (isinstance(given, np.ndarray) and given.ndim == 0)
    ):
        given = [given.item() if isinstance(given, np.ndarray | xr.DataArray) else given] * len(
            names
        )
    if len(given) != len(names):
        raise KernelError(
            f"{what}: {len(given)} numbers for {len(names)} kernels. Give one for all "
            "or one for each."
        )
    return np.array(
        [
            positive_number(nu, f"{what} of kernel {name!r}")
            for nu, name in zip(given, names, strict=True)
        ]
    )
