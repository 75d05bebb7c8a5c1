"""Artificial missingness: hide objects of a stack, to see how well they are recovered.

Enters: a labelled stack, a ratio and a seed. Leaves: the same stack with whole rows and columns
NaN. Here is decided only what is hidden; how well it is recovered is the metrics' business.
"""

import numpy as np
import xarray as xr

from .checks import generator, real_number
from .errors import MKMCError
from .kernels import check_stack, visible_objects


def remove_objects(
    stack: xr.DataArray, ratio: float, *, seed: int | np.random.Generator
) -> xr.DataArray:
    """Hide a share of the visible rows and columns of `stack`, at random.

    The paper's protocol (section 5): with one seed the removals are nested, what is missing at
    10% is missing at 20% too, and so on. What is removed is a pair of an object and a kernel: the
    object's row and column of that kernel become NaN.

    The pairs are removed in a random order, in which the last pair of each object is moved to
    the end. So every object stays visible in some kernel as long as the ratio allows: up to
    (K - 1)/K for a complete stack of K kernels, in general up to 1 - (visible objects)/(visible
    pairs). Beyond that whole objects vanish. A kernel may lose all its objects at any ratio that
    is large enough for it.

    Parameters
    ----------
    stack
        From `stack_kernels`: dims ``("kernel", "object", "object_bis")``, complete or not.
    ratio
        The share of the visible pairs to remove, 0 <= ratio < 1. Exactly ``round(ratio * n)`` of
        the n visible pairs are removed (Python's `round`: halves to the even number).
    seed
        An integer draws the same order every time: that makes the ratios nested. A
        `numpy.random.Generator` is advanced by each call, so two calls with it are two
        independent draws.

    Returns
    -------
    xarray.DataArray
        The stack with more NaN. `stack` itself is not modified.

    Raises
    ------
    MKMCError
        Where `ratio` is not a number from 0 up to but not including 1; where `seed` is None.
    KernelError, LabelError
        Where the stack is not one, see `check_stack`.

    Examples
    --------
    >>> from mkmc_prob.kernels import stack_kernels, visible_objects
    >>> import numpy as np
    >>> from mkmc_prob import remove_objects
    >>> stack = stack_kernels([np.eye(5), np.eye(5)])
    >>> fewer = remove_objects(stack, 0.3, seed=1)
    >>> visible_objects(fewer).sum().item()
    7
    """
    share = real_number(ratio)
    if share is None or not 0 <= share < 1:
        raise MKMCError(
            f"ratio: {ratio!r} is not a number in [0, 1). It is the share of the visible rows to "
            "remove."
        )
    if seed is None:
        raise MKMCError(
            "seed: None draws differently each time, and ratios would not be nested. Pass an "
            "integer."
        )
    removed = check_stack(stack)  # a copy
    rng = generator(seed)
    kernels, objects = np.nonzero(visible_objects(removed).values)
    order = rng.permutation(len(objects))
    kernels, objects = kernels[order], objects[order]
    # Where each object comes last is where it comes first in the reversed order.
    last = len(objects) - 1 - np.unique(objects[::-1], return_index=True)[1]
    is_last = np.zeros(len(objects), dtype=bool)
    is_last[last] = True
    first = np.argsort(is_last, kind="stable")[: round(share * len(objects))]
    removed.values[kernels[first], objects[first], :] = np.nan
    removed.values[kernels[first], :, objects[first]] = np.nan
    return removed
