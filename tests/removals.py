"""Stacks to remove objects from, and what is seen of them afterwards: read off the values."""

from functools import cache

import numpy as np

from mkmc_prob import remove_objects, stack_kernels


def stack_of(visible):
    """Return identity kernels with those visible objects."""
    visible = np.asarray(visible)
    return stack_kernels(np.stack([np.eye(visible.shape[1])] * len(visible)), visible=visible)


@cache
def full(kernels, objects):
    """Return a complete stack."""
    return stack_of(np.ones((kernels, objects)))


def options_of(protocol, size):
    """Return what `protocol` needs for objects 0, 1, ...: batches of unequal size, two classes."""
    if protocol == "blocks":
        return {"batches": {i: "small" if i % 3 == 0 else "large" for i in range(size)}}
    if protocol == "classes":
        return {"classes": {i: i % 2 for i in range(size + 1)}, "odds": {0: 1, 1: 5.0}}
    return {}


def seen_in(stack):
    """Return which objects each kernel sees."""
    return ~np.isnan(np.diagonal(stack.values, axis1=1, axis2=2))


def seen_after(stack, ratio, seed, protocol="pairs", **more):
    """Return which objects each kernel sees after a removal."""
    more = options_of(protocol, stack.sizes["object"]) | more
    return seen_in(remove_objects(stack, ratio, seed=seed, protocol=protocol, **more))
