"""The variance c of a kernel's constant: its prior, and draws given the model."""

import math

import numpy as np

from ..model.sources import Constant
from .slice_sampling import slice_sample

#: The first width of the intervals of slice sampling, for log c: for few degrees of freedom the
#: density of log c is a few units wide, for many of them narrower.
WIDTH = 2.0
#: Updates per draw, which make it nearly independent of the constant before.
UPDATES = 3
#: Larger logarithms of c, in units of the scale, would soon overflow.
LARGEST_LOG = 600.0


def log_prior(variance: float) -> float:
    """Return the log density of sqrt(c) at c = `variance`: half-Cauchy(1), without its constant.

    c is in units of the kernel's scale. The prior is proper, flat near 0, and allows constants far
    above the scale (Gelman 2006, *Bayesian Analysis* 1, 515). Equation :eq:`eq-constant-prior` of
    the derivation.
    """
    return -math.log1p(variance)


def draw_constant(
    found: Constant, degrees: float, current: float, rng: np.random.Generator
) -> float:
    """Draw c given the model and the visible block, the constants g being integrated out.

    The density of log c is that of sqrt(c) times sqrt(c) / 2. The draw is by slice sampling.
    Equation :eq:`eq-draw-constant` of the derivation.

    Parameters
    ----------
    found
        t, r and z of the kernel; `Constant.level` is its log-likelihood per degree of freedom.
    degrees
        nu.
    current
        The constant before.
    rng
        The random numbers.
    """

    def log_density(log_variance: float) -> float:
        if log_variance > LARGEST_LOG:
            return -math.inf
        variance = math.exp(log_variance)
        return degrees * found.level(variance) + log_prior(variance) + 0.5 * log_variance

    at = math.log(max(current, np.finfo(np.float64).tiny))  # it can have underflowed
    for _ in range(UPDATES):
        at = slice_sample(log_density, at, rng, width=WIDTH)
    return math.exp(at)
