"""The variance c of a kernel's constant: its prior, and draws given the model."""

import math
from typing import NamedTuple

import numpy as np

from ..linalg.symmetric import Vector
from ..model.sources import Constant
from .augmented import AugmentedKernel
from .slice_sampling import slice_sample

#: The first width of the intervals of slice sampling, for log c: for few degrees of freedom the
#: density of log c is a few units wide, for many of them narrower.
WIDTH = 2.0
#: Updates per draw, which make it nearly independent of the constant before.
UPDATES = 3


def log_prior(variance: float) -> float:
    """Return the log density of sqrt(c) at c = `variance`: half-Cauchy(1), without its constant.

    It is proper, flat near 0, and allows constants far above the scale (Gelman 2006, *Bayesian
    Analysis* 1, 515). Equation :eq:`eq-constant-prior` of the derivation.
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
        The constant before, > 0.
    """

    def log_density(log_variance: float) -> float:
        if log_variance > 600.0:  # exp would overflow soon
            return -math.inf
        variance = math.exp(log_variance)
        return degrees * found.level(variance) + log_prior(variance) + 0.5 * log_variance

    at = math.log(current)
    for _ in range(UPDATES):
        at = slice_sample(log_density, at, rng, width=WIDTH)
    return math.exp(at)


class ConstantDraw(NamedTuple):
    """The constants g of a kernel's observations, and their variance c, drawn given the model.

    Attributes
    ----------
    variance : float
        c.
    level : float
        What it adds to the log-likelihood per degree of freedom (`Constant.level`).
    values : ndarray
        g of the rho observations that are not zero at the visible objects. If there are more, one
        number for all of these follows, the square root of the sum of their g^2: they are rotated
        so that g is zero in all but one. Empty if the kernel has no constant.
    """

    variance: float
    level: float
    values: Vector

    @classmethod
    def of(
        cls, own: AugmentedKernel, weights: Vector, before: float, rng: np.random.Generator
    ) -> "ConstantDraw":
        """Draw the constants; `weights` is q = G^-1 1, `before` the variance before.

        The variance is drawn first if it is not held.
        """
        part = own.part
        found = Constant.of(weights, part.centered, 1.0)
        c = part.source.constant
        if math.isnan(c):
            c = draw_constant(found, part.degrees, before, rng)
        e = c / (1.0 + c * found.total)
        values = e * (own.root.T @ weights)
        values += math.sqrt(e) * rng.standard_normal(len(values))
        if own.rest > 0.0:
            values = np.append(values, math.sqrt(e * rng.chisquare(own.rest)))
        return cls(c, found.level(c), values)

    def shift(self, own: AugmentedKernel) -> Vector:
        """Return u, if the visible block without its constants is nu Q_vv / d + u 1' + 1 u'."""
        rank, g = own.root.shape[1], self.values
        shift: Vector = 0.5 * (g @ g) - own.root @ g[:rank]
        return shift


#: That of a kernel without a constant.
NO_CONSTANT = ConstantDraw(0.0, 0.0, np.empty(0))
