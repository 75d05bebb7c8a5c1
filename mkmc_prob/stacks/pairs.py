"""Counts of the kernels that show each pair of objects together."""

import numpy as np
import xarray as xr

from ..utils.memory import check_memory
from .stack import visible_objects

#: Patterns of visibility that are compared with all others at a time.
PATTERNS = 1_000


def pair_counts(stack: xr.DataArray) -> xr.DataArray:
    """Count the kernels in which both objects of each pair are visible.

    The kernels only bound the entries of pairs with count 0; the prior chooses within the bounds.

    Parameters
    ----------
    stack
        The incomplete kernels, for example the ``observed`` of a result; or which objects are
        visible in each, as `visible_objects` returns it.

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
    visible = stack
    if not isinstance(stack, xr.DataArray) or stack.dtype != bool:
        visible = visible_objects(stack)
    visible = visible.transpose("kernel", "object")
    size = visible.sizes["object"]
    check_memory(24.0 * size**2, f"the pairs of {size} objects", "Take some objects: .sel(...).")
    indicator = visible.values.astype(np.float64)
    objects = visible["object"].values
    return xr.DataArray(
        (indicator.T @ indicator).round().astype(int),
        dims=("object", "object_bis"),
        coords={"object": objects, "object_bis": objects},
        name="pair_counts",
        attrs={"long_name": "kernels in which both objects are visible"},
    )


def never_seen_together(stack: xr.DataArray) -> xr.DataArray:
    """Return which pairs of objects are never observed together.

    The kernels only bound the entries of such pairs, and the prior chooses within the bounds; if
    no chain of kernels connects the two objects, or one of them is hidden in every kernel, the
    entry comes from the prior alone.

    Parameters
    ----------
    stack
        The incomplete kernels, for example the ``observed`` of a result; or which objects are
        visible in each, as `visible_objects` returns it.

    Returns
    -------
    DataArray
        Bool, dims ``(object, object_bis)``; on the diagonal, whether the object is hidden in every
        kernel.

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
    never.attrs = {"long_name": "pairs of objects never observed together"}
    return never


def number_of_pairs(size: int) -> int:
    """Return the number of pairs of `size` objects."""
    return size * (size - 1) // 2


def count_of_unseen_pairs(visible: xr.DataArray) -> int:
    """Return how many pairs of different objects no kernel shows together.

    Objects that are visible in the same kernels are counted as one pattern, so that nothing l x l
    is formed.
    """
    table = visible.transpose("kernel", "object").values
    patterns, counts = np.unique(table.T, axis=0, return_counts=True)
    shown, number = patterns.astype(np.float64), counts.astype(np.int64)
    ordered = 0
    for start in range(0, len(shown), PATTERNS):
        part = slice(start, start + PATTERNS)
        ordered += int(number[part] @ (shown[part] @ shown.T == 0.0) @ number)
    # An object that no kernel shows forms such a pair with itself, which does not count.
    return (ordered - int(number[~patterns.any(axis=1)].sum())) // 2
