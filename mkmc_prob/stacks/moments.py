"""The scale of a kernel and the constant that all its entries share, by moments."""

from typing import NamedTuple

import numpy as np

from ..linalg.operators import SymmetricOperator
from ..linalg.symmetric import Matrix

#: Below this share of the mean diagonal the within-variance is rounding.
SMALLEST_SHARE = 1e-12


class Moments(NamedTuple):
    """The scale d of a kernel's visible block, and its mean off-diagonal entry in units of d.

    The mean is 0 if there are fewer than two objects.
    """

    scale: float
    off_diagonal: float

    @property
    def mean(self) -> float:
        """The mean off-diagonal entry, in units of the kernel."""
        return self.off_diagonal * self.scale


def block_moments(block: Matrix | SymmetricOperator) -> Moments:
    """Return the scale and the mean off-diagonal entry of a visible block.

    The scale is the mean diagonal entry less the mean off-diagonal entry: the variance within the
    kernel, freed of the constant that all entries share. It is the mean diagonal entry if that
    difference is not above 1e-12 times it, or if there are fewer than two objects. Equation
    :eq:`eq-scale` of the derivation.

    Returns
    -------
    Moments
        The scale is 0 for a block of zeros or without objects.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob.stacks.moments import block_moments
    >>> block_moments(np.array([[3.0, 1.0], [1.0, 3.0]]))
    Moments(scale=2.0, off_diagonal=0.5)
    """
    n = len(block)
    if isinstance(block, SymmetricOperator):
        return _moments(n, block.trace / n if n else 0.0, block.total, 1.0)
    largest = float(np.abs(block).max(initial=0.0))
    if not largest:
        return Moments(0.0, 0.0)
    unit = float(np.ldexp(1.0, int(np.frexp(largest)[1]) - 1))  # a power of 2: nothing is rounded
    scaled: Matrix = block / unit  # sums of large entries would overflow
    return _moments(n, float(np.trace(scaled)) / n, float(scaled.sum()), unit)


def _moments(n: int, diagonal: float, total: float, unit: float) -> Moments:
    """Return the moments from the mean of the diagonal and the sum of all entries."""
    if n < 2:
        return Moments(unit * diagonal, 0.0)
    off_diagonal = (total - n * diagonal) / (n * (n - 1))
    within = diagonal - off_diagonal
    scale = within if within > SMALLEST_SHARE * diagonal else diagonal
    return Moments(unit * scale, off_diagonal / scale if scale > 0.0 else 0.0)
