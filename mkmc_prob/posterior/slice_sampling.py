"""Slice sampling of one number whose density is known up to a factor."""

import math
from collections.abc import Callable

import numpy as np

from ..errors import KernelError

#: The interval is at most this many times as wide as the width that it starts with.
MOST_WIDTHS = 64


def slice_sample(
    log_density: Callable[[float], float],
    start: float,
    rng: np.random.Generator,
    *,
    width: float = 1.0,
) -> float:
    """Draw the next number of a Markov chain that leaves a density invariant.

    A level is drawn uniformly below the density at `start`, and the number from an interval in
    which the density is above the level: it is found by stepping out, and shrunk towards `start`
    as long as a draw is below the level (Neal 2003, *Ann. Statist.* 31, 705, figures 3 and 5).

    Parameters
    ----------
    log_density
        The logarithm of the density, up to a constant; -inf where the density is zero.
    start
        The current number.
    rng
        The random numbers.
    width
        The first width of the interval. Any is valid; about the width of the density is fast.

    Raises
    ------
    KernelError
        If the log density at `start` is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob.posterior.slice_sampling import slice_sample
    >>> rng, x, draws = np.random.default_rng(0), 0.0, []
    >>> for _ in range(2000):
    ...     x = slice_sample(lambda x: -0.5 * (x - 3.0) ** 2, x, rng)
    ...     draws.append(x)
    >>> bool(abs(np.mean(draws) - 3.0) < 0.1), bool(abs(np.std(draws) - 1.0) < 0.1)
    (True, True)
    """
    height = log_density(start)
    if not math.isfinite(height):
        raise KernelError(f"start: {start!r} found, with log density {height}; it must be finite.")
    level = height - rng.exponential()
    left = start - width * rng.random()
    right = left + width
    # The steps that are allowed are divided at random, for the chain to be reversible.
    to_left = int(rng.integers(MOST_WIDTHS))
    for _ in range(to_left):
        if not log_density(left) >= level:
            break
        left -= width
    for _ in range(MOST_WIDTHS - 1 - to_left):
        if not log_density(right) >= level:
            break
        right += width
    while True:
        drawn = left + (right - left) * rng.random()
        # At the latest at `start` itself, whose density is not below the level.
        if drawn == start or log_density(drawn) >= level:
            return drawn
        if drawn < start:
            left = drawn
        else:
            right = drawn
