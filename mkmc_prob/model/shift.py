"""Hidden objects that differ from what the visible ones predict: a pattern-mixture model.

Under the model, the vector of a kernel has z_h = A' x_v + e for its hidden objects h, with
z = x - 1 u'x_v the vector about its center u'x_v. A factor delta changes the distribution of z_h
given x_v, about which the visible entries say nothing.
"""

import math
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..errors import IndefiniteKernelError
from ..linalg.cholesky import cholesky, half_solve
from ..linalg.symmetric import Matrix, Vector, symmetrize

#: What a factor changes.
DIRECTIONS = ("size", "ties")


class ShiftableKernel:
    """A complete kernel whose hidden objects can be shifted.

    With Z = E[z z'] the hidden block about the center, E = A' Q_vv A the part of it that the
    visible objects explain and C = Z - E the rest, a factor delta replaces

    ========  ===========  ===============================================
    ``size``  A by dA      C by d^2 C: the hidden z_h become d z_h
    ``ties``  A by dA      C by C + (1 - d^2) diag E: the diagonal of Z stays
    ========  ===========  ===============================================

    with d = delta. Nothing but the completed kernel is needed, because Q_vv A is its visible-hidden
    block.

    Parameters
    ----------
    matrix
        The complete kernel, shape (l, l), exactly symmetric. Not changed.
    visible
        Which of its objects are visible, shape (l,).
    centered
        Whether the center is the mean of the visible objects in the kernel's feature space
        (u = 1/n); otherwise it is the origin (u = 0).

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob.model.shift import ShiftableKernel
    >>> kernel = ShiftableKernel(np.array([[2.0, 1.0], [1.0, 2.0]]), np.array([True, False]))
    >>> kernel.shifted("size", 0.5)
    array([[2. , 0.5],
           [0.5, 0.5]])
    >>> kernel.shifted("ties", 0.5)
    array([[2. , 0.5],
           [0.5, 2. ]])
    """

    def __init__(
        self, matrix: Matrix, visible: NDArray[np.bool_], *, centered: bool = False
    ) -> None:
        self.matrix, self._v, self._h = matrix, np.flatnonzero(visible), np.flatnonzero(~visible)
        v, h = self._v, self._h
        self._cross = matrix[np.ix_(v, h)]  # E[x_v z_h']
        self._about = matrix[np.ix_(h, h)]  # E[z_h z_h']
        self._along: Vector = np.zeros(len(h))  # E[(u'x_v) z_h]
        if centered and len(v):
            rows = matrix[np.ix_(v, v)].mean(axis=1)
            mean = float(rows.mean())
            along = self._cross.mean(axis=0)
            self._about -= along[:, None] + along - mean
            self._cross -= rows[:, None]
            self._along = along - mean

    @cached_property
    def _explained(self) -> Matrix:
        """E = A' Q_vv A.

        Since Q_vv A is known, it is (Q_vv A)' Q_vv^+ (Q_vv A) for any generalized inverse.
        Eigenvalues of Q_vv below n eps times the largest are rounding and left out: what they would
        add to E is of that size, too.
        """
        v = self._v
        if not len(v):
            return np.zeros_like(self._about)
        values, vectors = np.linalg.eigh(self.matrix[np.ix_(v, v)])
        kept = values > len(v) * np.finfo(np.float64).eps * values[-1]
        half = (vectors[:, kept].T @ self._cross) / np.sqrt(values[kept])[:, None]
        return symmetrize(half.T @ half)

    @cached_property
    def largest_ties(self) -> float:
        """The largest delta for which C + (1 - delta^2) diag E is a covariance matrix.

        That is sqrt(1 + t) with t the largest number for which C - t diag E is: 1 over the largest
        eigenvalue of (diag E)^(1/2) C^-1 (diag E)^(1/2). It is 1 if C is singular to working
        precision, and infinite if the visible objects explain nothing.
        """
        deviations = np.sqrt(np.diagonal(self._explained))
        if not deviations.any():
            return math.inf
        try:
            factor = cholesky(self._about - self._explained, "conditional covariance")
        except IndefiniteKernelError:
            return 1.0
        norm = float(np.linalg.norm(half_solve(factor, np.diag(deviations)), 2))
        return math.sqrt(1.0 + norm**-2)

    def shifted(self, direction: str, delta: float) -> Matrix:
        """Return the kernel with its hidden objects shifted; a copy, equal to it at delta = 1."""
        v, h, matrix = self._v, self._h, self.matrix.copy()
        if not len(h):
            return matrix
        change, square = delta - 1.0, (delta - 1.0) * (delta + 1.0)
        cross = matrix[np.ix_(v, h)] + change * self._cross
        hidden = change * (self._along[:, None] + self._along)
        if direction == "size":
            hidden += square * self._about
        else:
            ties = square * self._explained
            np.fill_diagonal(ties, 0.0)
            hidden += ties
        matrix[np.ix_(v, h)] = cross
        matrix[np.ix_(h, v)] = cross.T
        matrix[np.ix_(h, h)] += hidden
        return matrix
