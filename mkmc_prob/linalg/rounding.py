"""The part of a matrix that may be rounding, given the precision in which its entries came."""

import math
from typing import Any

import numpy as np


def eps_of(dtype: np.dtype[Any]) -> float:
    """Return the machine epsilon of `dtype`, or that of float64 if it is larger."""
    if dtype.kind == "f":
        return max(float(np.finfo(dtype).eps), float(np.finfo(np.float64).eps))
    return float(np.finfo(np.float64).eps)


def rounding_share(size: int, eps: float) -> float:
    """Return the share of a matrix of `size` rows that may be rounding.

    n rounding errors of relative size eps add up to at most n eps. The share is limited to
    sqrt(eps), half of the digits, which matters for low precision (float16).
    """
    return min(size * eps, math.sqrt(eps))


def eps_of_share(size: int, share: float) -> float:
    """Return the eps whose `rounding_share` is `share`, at most 1 (no correct digit)."""
    return min(max(share / size, share**2), 1.0)
