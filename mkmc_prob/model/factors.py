"""A few factors behind many objects: what an E-step needs of M = W W' + D.

With loadings W of shape (l, q) and noise D = diag(d), y = W z + e with z ~ N(0, I) and
e ~ N(0, D). Given the visible objects of a kernel, z has a distribution over q numbers; nothing of
size l x l is formed.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..linalg.cholesky import cholesky, inverse, log_determinant, solve
from ..linalg.symmetric import Matrix, Vector, symmetrize
from .conditional import LOG_2_PI
from .sources import Constant, Source, SourceKernel

#: What helps if the factors are beyond double precision.
REMEDY = "Raise the strength, or the noise_strength of the structure."


def factor_cholesky(matrix: Matrix) -> Matrix:
    """Return the Cholesky factor of a second moment or precision of the factors."""
    numbers = np.arange(1, len(matrix) + 1)
    return cholesky(matrix, "factors of the model matrix", numbers, REMEDY, kind="factor")


class FactorPosterior:
    """The factors z given the visible objects of x = L z + e, e ~ N(0, Psi), Psi diagonal.

    With G = I + L' Psi^-1 L, z | x ~ N(B' x, G^-1) with B = Psi^-1 L G^-1.
    Equation :eq:`eq-factor-posterior` of the derivation.

    Parameters
    ----------
    loadings, noise
        L, shape (n, p), and the diagonal of Psi, shape (n,).

    Attributes
    ----------
    regression : ndarray, shape (n, p)
        B.
    covariance : ndarray, shape (p, p)
        G^-1.
    log_determinant : float
        log det(L L' + Psi).
    """

    def __init__(self, loadings: Matrix, noise: Vector) -> None:
        self.loadings, self.noise = loadings, noise
        self.weighted = loadings / noise[:, None]  # Psi^-1 L
        self.precision = loadings.T @ self.weighted
        self.precision.flat[:: loadings.shape[1] + 1] += 1.0
        factor = factor_cholesky(symmetrize(self.precision))
        self.covariance = inverse(factor)
        self.regression = solve(factor, self.weighted.T).T
        self.log_determinant = float(np.log(noise).sum()) + log_determinant(factor)

    def ones_solved(self) -> Vector:
        """Return (L L' + Psi)^-1 1."""
        inverse_noise = 1.0 / self.noise
        weights: Vector = inverse_noise - self.regression @ (self.loadings.T @ inverse_noise)
        return weights


class KernelFactors(NamedTuple):
    """What an E-step finds of one kernel, x without its constant in units of its scale.

    Attributes
    ----------
    posterior : FactorPosterior
        Of (z, g), with g the shared constant of the kernel's own part if the sharing is below 1.
    cross : ndarray, shape (n, p)
        R = E[x (z, g)'].
    moment : ndarray, shape (p, p)
        E = E[(z, g) (z, g)'].
    squares : ndarray, shape (n,)
        E[x_i^2].
    constant : Constant or None
    """

    posterior: FactorPosterior
    cross: Matrix
    moment: Matrix
    squares: Vector
    constant: Constant | None

    @classmethod
    def of(
        cls, part: SourceKernel, loadings: Matrix, noise: Vector, shared: float
    ) -> "KernelFactors":
        """Return the E-step of a kernel; the one product with its visible block is S B.

        Equations :eq:`eq-factor-moments` and :eq:`eq-without-constant` of the derivation.

        Parameters
        ----------
        part
            The kernel.
        loadings, noise
            W and d, of all objects.
        shared
            b, the constant of the prior's scale T = I + b J.
        """
        kernel, source = part.kernel, part.source
        v = kernel.v
        posterior = FactorPosterior(*own_factors(source, loadings[v], noise[v], shared))
        columns, weights = posterior.regression, None
        if source.constant != 0.0:
            weights = posterior.ones_solved()
            columns = np.column_stack([columns, weights])
        products = kernel.moment @ columns
        squares = kernel.moment.diagonal().copy()
        constant = None
        cross = products
        if weights is not None:
            moved, cross = products[:, -1], products[:, :-1]
            constant = Constant.of_moved(weights, moved, part.off_diagonal, source.constant)
            shift = constant.shift
            cross = cross + np.outer(shift, posterior.regression.sum(axis=0))
            cross += shift @ posterior.regression
            squares += 2.0 * shift
        moment = posterior.covariance + symmetrize(posterior.regression.T @ cross)
        return cls(posterior, cross, moment, squares, constant)

    @classmethod
    def of_prior(
        cls, scale: Matrix | None, shared: float, loadings: Matrix, noise: Vector
    ) -> "KernelFactors":
        """Return the same of the prior, which is one more kernel, T, that shows every object.

        T is `scale`; if that is None, I + b J with b = `shared`.
        """
        posterior = FactorPosterior(loadings, noise)
        if scale is None:
            cross = posterior.regression + shared * posterior.regression.sum(axis=0)
            squares = np.full(len(noise), 1.0 + shared)
        else:
            cross, squares = scale @ posterior.regression, np.diagonal(scale).copy()
        moment = posterior.covariance + symmetrize(posterior.regression.T @ cross)
        return cls(posterior, cross, moment, squares, None)

    @property
    def trace(self) -> float:
        """Tr (L L' + Psi)^-1 S."""
        explained = np.einsum("ij,ij->", self.posterior.weighted, self.cross)
        return float((self.squares / self.posterior.noise).sum() - explained)

    @property
    def residual_squares(self) -> Vector:
        """E (x - L (z, g))^2 by object, given x."""
        loadings = self.posterior.loadings
        both = np.einsum("ij,ij->i", loadings @ self.moment - 2.0 * self.cross, loadings)
        squares: Vector = self.squares + both
        return squares

    def rounding_terms(self, sizes: Vector) -> float:
        """Return the size of the terms by which rounding changes log det and trace.

        G is computed and factored with an error of a few roundings of sqrt(G_aa G_bb) in entry
        (a, b). That changes log det G by at most (sum_a sqrt(G_aa (G^-1)_aa))^2 of them and the
        trace by (sum_a sqrt(G_aa (B' S B)_aa))^2. The products round by the sizes of their terms,
        sum_ija abs((Psi^-1 L)_ia S_ij B_ja), at most the sum over i and a of
        abs((Psi^-1 L)_ia) R_i max_j abs(B_ja). (They cancel if the columns of L are far from
        orthogonal.) With a constant, the shift u of S adds its terms.

        Parameters
        ----------
        sizes
            R, the sums of the absolute values of the rows of S, without its shift.
        """
        weights, columns = np.abs(self.posterior.weighted), np.abs(self.posterior.regression)
        of_products = float((sizes @ weights) @ columns.max(axis=0, initial=0.0))
        if self.constant is not None:
            shift = np.abs(self.constant.shift)
            of_products += float((shift @ weights) @ columns.sum(axis=0))
            of_products += float(weights.sum(axis=0) @ (shift @ columns))
        precision = np.diagonal(self.posterior.precision)
        variances = np.diagonal(self.posterior.covariance)
        means = np.maximum(np.diagonal(self.moment) - variances, 0.0)
        of_determinant = float(np.sqrt(precision * variances).sum()) ** 2
        of_trace = float(np.sqrt(precision * means).sum()) ** 2
        size = float((self.squares / self.posterior.noise).sum())
        return of_determinant + of_trace + of_products + size


def own_factors(
    source: Source, loadings: Matrix, noise: Vector, shared: float
) -> tuple[Matrix, Vector]:
    """Return the loadings and the noise of a kernel without its constant, in units of its scale.

    x = sqrt(s) (W z + e) + sqrt(1 - s) o with o ~ N(0, I + b J) has the loadings
    (sqrt(s) W, sqrt((1 - s) b) 1) and the noise s d + 1 - s.
    Equation :eq:`eq-source-factors` of the derivation.
    """
    share = source.sharing
    if share == 1.0:
        return loadings, noise
    own = share * noise + (1.0 - share)
    scaled = math.sqrt(share) * loadings
    if shared:
        constant = np.full((len(noise), 1), math.sqrt((1.0 - share) * shared))
        scaled = np.concatenate([scaled, constant], axis=1)
    return scaled, own


class Patterns(NamedTuple):
    """Which objects are visible in the same kernels.

    Attributes
    ----------
    of_object : ndarray of int, shape (l,)
        The number of each object's pattern.
    shown : ndarray of bool, shape (patterns, K)
        In which kernels the objects of a pattern are visible.
    """

    of_object: NDArray[np.intp]
    shown: NDArray[np.bool_]

    @classmethod
    def of(cls, visible: NDArray[np.bool_]) -> "Patterns":
        """Return the patterns of a mask of shape (K, l)."""
        shown, of_object = np.unique(visible.T, axis=0, return_inverse=True)
        return cls(of_object.reshape(-1), shown)


class FactorStatistics:
    """The expected sufficient statistics of y = W z + e, summed over the kernels and the prior.

    For object i: A_i = sum nu E[z z'], b_i = sum nu E[y_i z], c_i = sum nu E[y_i^2] and
    N_i = sum nu, sums over the kernels that show it and the prior. A_i is the same for all objects
    that are visible in the same kernels (a `pattern`).
    Equation :eq:`eq-factor-statistics` of the derivation.

    Attributes
    ----------
    patterns : ndarray of int, shape (l,)
        The number of each object's pattern.
    factor_moments : ndarray, shape (patterns, q, q)
        A, by pattern.
    cross : ndarray, shape (l, q)
        b.
    squares, counts : ndarray, shape (l,)
        c and N.
    total : ndarray, shape (q, q)
        The sum of nu E[z z'] over all kernels and the prior.
    weight : float
        The sum of nu over all of them.
    """

    def __init__(self, patterns: Patterns, rank: int) -> None:
        self.patterns, self._shown = patterns
        size = len(self.patterns)
        self.factor_moments = np.zeros((len(self._shown), rank, rank))
        self.cross, self.squares = np.zeros((size, rank)), np.zeros(size)
        self.counts = np.zeros(size)
        self.total, self.weight, self.constant = np.zeros((rank, rank)), 0.0, 0.0
        self.rank = rank

    def add(
        self, k: int, found: KernelFactors, part: SourceKernel, loadings: Matrix, noise: Vector
    ) -> None:
        """Add the expectations of kernel number `k`, given W and d."""
        v, share = part.kernel.v, part.source.sharing
        cross, squares = found.cross[:, : self.rank], found.squares
        if share < 1.0:
            # y given (z, g) and x has the mean H (z, g) + kappa x and the variance d (1 - s) / psi.
            psi = found.posterior.noise
            kappa = math.sqrt(share) * noise[v] / psi
            known = -kappa[:, None] * found.posterior.loadings
            known[:, : self.rank] += loadings[v]
            moved = known @ found.moment
            cross = (moved + kappa[:, None] * found.cross)[:, : self.rank]
            squares = np.einsum("ij,ij->i", moved + 2.0 * kappa[:, None] * found.cross, known)
            squares += kappa**2 * found.squares + noise[v] * (1.0 - share) / psi
        shown = self._shown[:, k]
        self._add(found, part.degrees, v, shown, cross, squares)
        self.constant += part.degrees * len(v) * LOG_2_PI

    def add_prior(self, found: KernelFactors, strength: float) -> None:
        """Add the expectations of the prior, which has no log 2 pi."""
        everywhere: Any = slice(None)
        self._add(found, strength, everywhere, everywhere, found.cross, found.squares)

    def _add(
        self,
        found: KernelFactors,
        degrees: float,
        v: Any,
        shown: Any,
        cross: Matrix,
        squares: Vector,
    ) -> None:
        moment = found.moment[: self.rank, : self.rank]
        self.factor_moments[shown] += degrees * moment
        self.total += degrees * moment
        self.weight += degrees
        self.counts[v] += degrees
        self.cross[v] += degrees * cross
        self.squares[v] += degrees * squares
        self.constant += degrees * (self.rank * LOG_2_PI + float(np.trace(moment)))

    def regression(self) -> Matrix:
        """Return A_i^-1 b_i, by object."""
        loadings = np.empty_like(self.cross)
        for number, moment in enumerate(self.factor_moments):
            own = self.patterns == number
            factor = factor_cholesky(moment)
            loadings[own] = solve(factor, self.cross[own].T).T
        return loadings

    def moved(self, loadings: Matrix) -> Matrix:
        """Return A_i w_i, by object."""
        moved = np.empty_like(loadings)
        for number, moment in enumerate(self.factor_moments):
            own = self.patterns == number
            moved[own] = loadings[own] @ moment
        return moved

    def residuals(self, loadings: Matrix) -> Vector:
        """Return c_i - 2 w_i'b_i + w_i'A_i w_i, the expected squares of y - W z, by object."""
        both = np.einsum("ij,ij->i", self.moved(loadings) - 2.0 * self.cross, loadings)
        squares: Vector = self.squares + both
        return squares
