"""Tipping points: where along a grid of factors a conclusion changes."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..errors import KernelError
from ..utils.arguments import real_number

#: The sides of 1 on which a conclusion can change.
SIDES = ("below", "above")


class Rule(NamedTuple):
    """When a conclusion holds: if the quantity exceeds a threshold, or by a function of it."""

    test: Callable[[float], bool]
    threshold: float | None

    @classmethod
    def of(cls, given: Any) -> "Rule":
        """Return the rule that the user named; raise KernelError if it is none."""
        if callable(given):
            return cls(lambda value: _truth(given(value), value), None)
        threshold = real_number(given)
        if threshold is None:
            raise KernelError(
                f"conclusion: {given!r} found; a number, the threshold, or a function of the "
                "quantity is needed."
            )
        return cls(lambda value: value > threshold, threshold)


def _truth(answer: Any, value: float) -> bool:
    """Return whether a conclusion holds; raise KernelError unless the answer is True or False."""
    if isinstance(answer, np.ndarray | xr.DataArray) and answer.ndim == 0:
        answer = answer.item()
    if not isinstance(answer, bool | np.bool_):
        raise KernelError(
            f"conclusion: it returns {answer!r} at the quantity {value:g}; True or False is needed."
        )
    return bool(answer)


class Tipping(NamedTuple):
    """Where a conclusion changes.

    Attributes
    ----------
    grid : ndarray
        The factors, increasing, 1 among them.
    holds : ndarray of bool
        Whether the conclusion holds at each.
    points : tuple of float
        Below and above 1; NaN if it does not change there.
    intervals : tuple of tuple of float
        The neighbors of the grid between which it changes, the one nearer to 1 first.
    """

    grid: NDArray[np.float64]
    holds: NDArray[np.bool_]
    points: tuple[float, float]
    intervals: tuple[tuple[float, float], tuple[float, float]]

    @classmethod
    def of(cls, grid: NDArray[np.float64], values: NDArray[np.float64], rule: Rule) -> "Tipping":
        """Return the changes nearest to 1 on either side of it."""
        holds = np.array([rule.test(value) for value in values.tolist()])
        one = int(np.searchsorted(grid, 1.0))
        points, intervals = [], []
        for step in (-1, 1):
            i = one
            while 0 <= i < len(grid) and holds[i] == holds[one]:
                i += step
            if not 0 <= i < len(grid):
                points.append(math.nan)
                intervals.append((math.nan, math.nan))
                continue
            near, far = float(grid[i - step]), float(grid[i])
            share = 0.5
            if rule.threshold is not None:
                share = (values[i - step] - rule.threshold) / (values[i - step] - values[i])
            points.append(near + float(share) * (far - near))
            intervals.append((near, far))
        return cls(grid, holds, (points[0], points[1]), (intervals[0], intervals[1]))

    def sentence(self, what: str) -> str:
        """Return in words where the conclusion, called `what`, changes."""
        there = bool(self.holds[np.searchsorted(self.grid, 1.0)])
        said = [f"{what} {'holds' if there else 'does not hold'} at delta 1"]
        ends = (("down to", self.grid[0]), ("up to", self.grid[-1]))
        for point, (near, far), (way, end) in zip(self.points, self.intervals, ends, strict=True):
            if not math.isnan(point):
                said.append(f"it changes between {near:g} and {far:g} (about {point:.3g})")
            elif end != 1.0:
                said.append(f"it does not change {way} {end:g}")
        return "; ".join(said) + "."
