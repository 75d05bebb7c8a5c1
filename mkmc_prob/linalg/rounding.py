"""How much of a matrix may be rounding, given the precision its entries came in."""

import math
from typing import Any

import numpy as np


def eps_of(dtype: np.dtype[Any]) -> float:
    """Return the machine epsilon of the precision that `dtype` carries, float64's at best."""
    if dtype.kind == "f":
        return max(float(np.finfo(dtype).eps), float(np.finfo(np.float64).eps))
    return float(np.finfo(np.float64).eps)


def rounding_share(size: int, eps: float) -> float:
    """Return the share of a matrix of `size` rows that may be rounding.

    n roundings of relative size eps add up to n eps at most; for coarse numbers (float16) no more
    than half of the digits are given away, sqrt(eps).
    """
    return min(size * eps, math.sqrt(eps))


def eps_of_share(size: int, share: float) -> float:
    """Return the eps whose `rounding_share` is `share`, 1 at most: no digit is left."""
    return min(max(share / size, share**2), 1.0)
