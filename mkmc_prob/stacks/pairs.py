"""Pairs of objects: in how many kernels they are seen together, and which never are.

Enters: an incomplete stack. Leaves: counts and marks by pair, labelled. `diagnostics` is the door
to it.
"""

import numpy as np
import xarray as xr

from .stack import visible_objects


def pair_counts(stack: xr.DataArray) -> xr.DataArray:
    """Count in how many kernels each pair of objects is seen together.

    Pairs with 0 are identified only through others, and through the prior: read what is filled in
    there with care.

    Parameters
    ----------
    stack
        The incomplete kernels, or a result's ``observed``.

    Returns
    -------
    DataArray
        Dims ``(object, object_bis)``, integers.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import diagnostics, stack_kernels
    >>> stack = stack_kernels(np.stack([np.eye(3)] * 2), visible=[[1, 1, 0], [1, 0, 1]])
    >>> diagnostics.pair_counts(stack).values
    array([[2, 1, 1],
           [1, 1, 0],
           [1, 0, 1]])
    """
    seen = visible_objects(stack)
    there = seen.values.astype(np.float64)
    objects = seen["object"].values
    return xr.DataArray(
        (there.T @ there).round().astype(int),
        dims=("object", "object_bis"),
        coords={"object": objects, "object_bis": objects},
        name="pair_counts",
        attrs={"long_name": "kernels in which both objects are seen"},
    )


def never_seen_together(stack: xr.DataArray) -> xr.DataArray:
    """Return which pairs of objects no kernel sees together.

    Their entries are identified only through other objects, which some kernel sees with the one
    and some kernel with the other, and through the prior: read what is filled in there with care.
    Where no chain of kernels ties the two, or no kernel shows one of them, it is the prior alone.

    Parameters
    ----------
    stack
        The incomplete kernels, or a result's ``observed``.

    Returns
    -------
    DataArray
        Bool, dims ``(object, object_bis)``; on the diagonal, whether no kernel shows the object.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import diagnostics, stack_kernels
    >>> stack = stack_kernels(np.stack([np.eye(3)] * 2), visible=[[1, 1, 0], [1, 0, 1]])
    >>> diagnostics.never_seen_together(stack).values.astype(int)
    array([[0, 0, 0],
           [0, 0, 1],
           [0, 1, 0]])
    """
    never = pair_counts(stack) == 0
    never.name = "never_seen_together"
    never.attrs = {"long_name": "pairs that no kernel sees together"}
    return never
