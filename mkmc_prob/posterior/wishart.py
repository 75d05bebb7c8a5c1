"""Wishart matrices drawn by Bartlett's decomposition, without an inverse."""

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

from ..linalg.cholesky import cholesky, half_solve, solve
from ..linalg.products import product
from ..linalg.symmetric import Matrix, symmetrize
from ..model.prior import WishartPrior
from ..stacks.labels import Labels


def inverse_wishart_factor(factor: Matrix, degrees: float, rng: np.random.Generator) -> Matrix:
    """Return the Cholesky factor of a draw of M, M^-1 ~ Wishart(degrees, (L L')^-1), L = `factor`.

    It is L U'^-1, U being Bartlett's triangle in reverse order; L is overwritten.
    """
    size = len(factor)
    lower = np.zeros((size, size))  # U': its last diagonal entry has the full degrees of freedom
    diagonal(lower)[...] = np.sqrt(rng.chisquare(degrees + 1 + np.arange(-size, 0)))
    lower[np.tri(size, k=-1, dtype=bool)] = rng.standard_normal(size * (size - 1) // 2)
    drawn: Matrix = blas.dtrsm(1.0, lower.T, factor, side=1, lower=0, trans_a=1, overwrite_b=1)
    return drawn


def diagonal(matrix: Matrix) -> NDArray[np.float64]:
    """Return a writable view of the diagonal."""
    return matrix.reshape(-1)[:: len(matrix) + 1]


def bartlett(degrees: NDArray[np.float64], rng: np.random.Generator, out: Matrix) -> None:
    """Write B' into `out`, B lower triangular with B B' ~ Wishart(degrees[0], I)."""
    out[...] = 0.0
    diagonal(out)[...] = np.sqrt(rng.chisquare(degrees))
    size = len(degrees)
    out[~np.tri(size, dtype=bool)] = rng.standard_normal(size * (size - 1) // 2)


class UnseenRows:
    """The rows of objects o that are hidden in every kernel, given those of the others r.

    The kernels carry no information on them, so M_rr^-1 M_ro and the Schur complement M_oo.r have
    their prior distribution, independent of M_rr: M_oo.r ~ inverse Wishart(lambda + l + 1,
    lambda T_oo.r), and given it M_rr^-1 M_ro is normal with mean T_rr^-1 T_ro, row covariance
    (lambda T_rr)^-1 and column covariance M_oo.r. They are drawn without conditioning on the
    completed kernels: given these, which follow them, they would move by only a share
    lambda / (lambda + N) per step.

    Parameters
    ----------
    prior, objects
        The prior over all objects.
    visible : ndarray of bool
        Which of them are visible in some kernel.
    """

    def __init__(self, prior: WishartPrior, objects: Labels, visible: NDArray[np.bool_]) -> None:
        self.r, self.o = np.flatnonzero(visible), np.flatnonzero(~visible)
        r, o = self.r, self.o
        scale = prior.strength * prior.scale_matrix(objects)
        self._degrees = prior.strength + len(objects) + 1
        self._factor = cholesky(scale[np.ix_(r, r)], "prior scale", objects[r])
        self._mean = np.ascontiguousarray(solve(self._factor, scale[np.ix_(r, o)]))
        rest = scale[np.ix_(o, o)] - symmetrize(scale[np.ix_(o, r)] @ self._mean)
        self._rest = cholesky(rest, "prior scale", objects[o])

    def draw(self, matrix: Matrix, rng: np.random.Generator) -> Matrix:
        """Return `matrix` with new rows and columns of the objects o, exactly symmetric."""
        r, o = self.r, self.o
        rest = inverse_wishart_factor(self._rest.copy(order="F"), self._degrees, rng)
        noise = rng.standard_normal((len(o), len(r)))
        noise = half_solve(self._factor, noise.T, transposed=True)
        regression = self._mean + product(noise, rest.T, np.empty_like(self._mean))
        own = matrix[np.ix_(r, r)]
        cross = product(own, regression, np.empty_like(regression))
        inside = product(rest, rest.T, np.empty((len(o), len(o))))
        product(regression.T, cross, inside, add=1.0)
        out, order = np.empty_like(matrix), np.concatenate([r, o])
        out[np.ix_(order, order)] = np.block([[own, cross], [cross.T, symmetrize(inside)]])
        return out
