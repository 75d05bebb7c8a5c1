"""Large symmetric arrays whose entries are computed where they are asked for, by dask."""

from collections.abc import Callable
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from ..errors import MKMCError
from .symmetric import Matrix

#: An array of more entries than this (1 GiB) is not computed as a whole.
MOST_ENTRIES = 2**27
#: The number of rows and columns of a block.
BLOCK = 1_000

Block = Callable[[int, slice, slice], Matrix]


def is_large(entries: int) -> bool:
    """Return whether an array of so many entries is to be lazy: it is large, and dask is there."""
    if entries <= MOST_ENTRIES:
        return False
    try:
        import dask.array
    except ImportError:
        return False
    return bool(dask.array)


def dask_array(what: str, found: Any) -> Any:
    """Return the module `dask.array`; raise MKMCError that `found` needs it, if there is none."""
    try:
        import dask.array
    except ImportError as error:
        raise MKMCError(
            f"{what}: {type(found).__name__} found, for which dask is needed: "
            "pip install 'mkmc-prob[large]'."
        ) from error
    return dask.array


def without_mask(array: Any) -> Any:
    """Return an array with NaN for masked entries."""
    meta = getattr(array, "_meta", array)
    if not isinstance(meta, np.ma.MaskedArray) or meta.dtype.kind not in "biuf":
        return array
    dtype = meta.dtype if meta.dtype.kind == "f" else np.float64
    if is_lazy(array):
        return array.astype(dtype).map_blocks(
            np.ma.filled, np.nan, dtype=dtype, meta=np.empty((0, 0), dtype)
        )
    return np.asarray(np.ma.filled(array.astype(dtype), np.nan))


def is_lazy(array: Any) -> bool:
    """Return whether an array is a dask array."""
    return type(array).__module__.partition(".")[0] == "dask"


def lazy_stack(count: int, size: int, block: Block) -> Any:
    """Return a dask array of shape (count, size, size), each matrix of which is symmetric.

    ``block(k, rows, columns)`` computes a block of matrix k on or above the diagonal; those below
    it are transposes, so that the matrices are exactly symmetric.
    """
    import dask.array

    array: Any = dask.array
    sides = (BLOCK,) * (size // BLOCK) + ((size % BLOCK,) if size % BLOCK else ())
    return array.map_blocks(
        partial(_computed, block, [0, *accumulate(sides)]),
        chunks=((1,) * count, sides, sides),
        dtype=np.float64,
        meta=np.empty((0, 0, 0)),
    )


def _computed(block: Block, ends: list[int], block_info: Any = None) -> Any:
    k, i, j = block_info[None]["chunk-location"]
    low, high = sorted((i, j))
    found = block(int(k), slice(*ends[low : low + 2]), slice(*ends[high : high + 2]))
    return (found if i <= j else found.T)[None]
