"""Protocols of artificial missingness: the order in which visible rows are removed.

A protocol is a random order of the visible pairs of kernel and object, of which the first ones are
removed. The removals of all protocols are therefore nested in the share.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..errors import MKMCError

Indices: TypeAlias = NDArray[np.int64]


class Pairs(NamedTuple):
    """The visible pairs of kernel and object; the pairs of a unit are removed together."""

    kernels: Indices
    objects: Indices
    #: Numbered from 0 without gaps.
    units: Indices
    #: The odds of each pair in ``"classes"``.
    odds: NDArray[np.float64]

    @property
    def n_units(self) -> int:
        """The number of units."""
        return len(np.unique(self.units))


class RemovalProtocol(NamedTuple):
    """The order in which units are removed, and what the ratio is a share of."""

    order: Callable[[Pairs, np.random.Generator], Indices]
    #: Whether the ratio applies to each kernel separately.
    each_kernel: bool = False
    #: Whether each object loses at most one pair.
    once: bool = False
    #: The options that it requires.
    needs: tuple[str, ...] = ()


def rows_to_remove(
    pairs: Pairs,
    share: float,
    rng: np.random.Generator,
    *,
    protocol: str,
    of: str,
    keep_one: bool,
) -> Indices:
    """Return the positions among `pairs` of those to remove, see `remove_objects`."""
    chosen = PROTOCOLS[protocol]
    order = chosen.order(pairs, rng)
    if keep_one:
        order = _last_of_each_object_last(order, pairs)
    if chosen.once:  # each unit is one pair
        order = order[np.sort(np.unique(pairs.objects[order], return_index=True)[1])]
    rows = np.bincount(pairs.kernels, minlength=1)
    if not chosen.each_kernel:
        return _first(order, pairs, rows, share, of)
    by_kernel = zip(range(len(rows)), np.diag(rows), strict=True)  # each unit is one pair
    parts = [(order[pairs.kernels[order] == k], own) for k, own in by_kernel]
    return np.concatenate([_first(part, pairs, own, share, of) for part, own in parts])


def _at_random(pairs: Pairs, rng: np.random.Generator) -> Indices:
    return rng.permutation(pairs.n_units)


def _in_rounds(pairs: Pairs, rng: np.random.Generator) -> Indices:
    """Shuffle the kernels of each object, then the objects within each round."""
    order = rng.permutation(len(pairs.objects))
    round_of = np.empty_like(order)
    round_of[order] = _counted(pairs.objects[order])
    return np.lexsort((rng.permutation(len(order)), round_of))


def _by_odds(pairs: Pairs, rng: np.random.Generator) -> Indices:
    """Draw without replacement by odds: sort exponential times whose rates are the odds."""
    return np.argsort(rng.exponential(size=len(pairs.odds)) / pairs.odds, kind="stable")


#: The protocols by name.
PROTOCOLS = {
    "pairs": RemovalProtocol(_at_random),
    "objects": RemovalProtocol(_in_rounds, once=True),
    "rounds": RemovalProtocol(_in_rounds),
    "kernels": RemovalProtocol(_at_random, each_kernel=True),
    "blocks": RemovalProtocol(_at_random, needs=("batches",)),
    "classes": RemovalProtocol(_by_odds, needs=("classes", "odds")),
}


def _last_of_each_object_last(order: Indices, pairs: Pairs) -> Indices:
    """Move the units with the last pair of some object to the end, otherwise keep the order."""
    place = np.argsort(order)[pairs.units]
    is_last = np.zeros(len(order), dtype=bool)
    is_last[pd.Series(place).groupby(pairs.objects).max().to_numpy()] = True
    return order[np.argsort(is_last, kind="stable")]


def _first(order: Indices, pairs: Pairs, rows: Indices, share: float, of: str) -> Indices:
    """Return the pairs of the first units of `order`, in the number nearest to the share.

    `rows` counts per kernel the visible rows that the share refers to.
    """
    place = np.full(pairs.n_units, -1)
    place[order] = np.arange(len(order))
    places = place[pairs.units]
    going = np.argsort(places, kind="stable")[np.count_nonzero(places < 0) :]
    if of == "entries":
        # Removing one of r remaining rows removes r^2 - (r - 1)^2 entries.
        left = rows[pairs.kernels[going]] - _counted(pairs.kernels[going])
        size, whole = 2 * left - 1, int((rows**2).sum())
    else:
        size, whole = np.ones_like(going), len(going)
    after = np.cumsum(np.bincount(places[going], weights=size, minlength=len(order)))
    removed = np.concatenate([[0.0], after])  # by 0, 1, 2, ... units
    if share * whole > removed[-1]:
        raise MKMCError(
            f"ratio: {share:g} of the entries is more than one row of each object has, which is "
            f"{removed[-1] / whole:.3g} with this seed. Lower it, or pass protocol='rounds', "
            "which then removes further rows."
        )
    off = np.abs(removed - share * whole)
    nearest = np.flatnonzero(off == off.min())  # two if the share is halfway
    n_units = min(nearest.tolist(), key=lambda number: number % 2)
    return going[places[going] < n_units]


def _counted(labels: Indices) -> Indices:
    """Return how often each label has occurred before its position."""
    return np.asarray(pd.Series(labels).groupby(labels).cumcount(), dtype=np.int64)
