"""The conditional distribution of a kernel's hidden objects given its visible ones.

It gives the paper's E-step (Algorithm 1, lines 8 and 9) in two forms: one is cheap if few objects
are hidden, the other if many are.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from ..errors import KernelError
from ..linalg.blocks import Workspace, inner_of_block, strips
from ..linalg.cholesky import cholesky, half_solve, inverse, log_determinant, solve
from ..linalg.products import inner, product, symmetric_product
from ..linalg.symmetric import Matrix, Vector, mirror, symmetrize
from ..stacks.labels import Labels
from ..stacks.matrix import finite_rows
from ..utils.arguments import checked, seed

LOG_2_PI = float(np.log(2.0 * np.pi))
TOO_SINGULAR = (
    "The model matrix is too close to singular: raise the strength, or normalize(stack) if the "
    "kernels' scales are far from the prior's."
)


def gaussian_log_likelihood(size: int, log_det: float, trace: float) -> float:
    """Return E_q[log N(v | 0, C)] in nats from n, log det C and tr C^-1 E_q[v v']."""
    return -0.5 * (size * LOG_2_PI + log_det + trace)


def gaussian_entropy(size: int, log_det: float) -> float:
    """Return the entropy of a Gaussian in nats, (1/2) (m log 2 pi e + log det C)."""
    return 0.5 * (size * (LOG_2_PI + 1.0) + log_det)


class HiddenRows(NamedTuple):
    """Some rows of E[h x']: all of Q_hv, and Q_hh up to the diagonal block of these rows."""

    rows: slice
    cross: Matrix
    hidden: Matrix


class ConditionalGaussian:
    """The hidden objects h given the visible objects v, under N(0, M).

    h | v ~ N(A' v, C) with the regression A = M_vv^-1 M_vh and the conditional covariance
    C = M_hh - M_hv A, the Schur complement of M_vv. `GaussianModel.condition` returns it, as a
    `CovarianceForm` or a `PrecisionForm`.
    Equations :eq:`eq-regression` and :eq:`eq-conditional` of the derivation.

    Attributes
    ----------
    regression : ndarray, shape (n, m)
        A; column j holds the coefficients of hidden object j on the n visible objects.
    covariance : ndarray, shape (m, m)
        C, exactly symmetric.
    log_determinant : float
        log det C.
    visible, hidden : ndarray of labels, shapes (n,) and (m,)
        The objects that the rows and columns belong to.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import GaussianModel
    >>> given = GaussianModel(np.array([[2.0, 1.0], [1.0, 2.0]])).condition([True, False])
    >>> given.regression
    array([[0.5]])
    >>> given.covariance
    array([[1.5]])
    """

    log_determinant: float

    def __init__(self, visible: NDArray[np.bool_], objects: Labels, space: Workspace | None):
        self._v, self._h = np.flatnonzero(visible), np.flatnonzero(~visible)
        self.visible, self.hidden = objects[self._v], objects[self._h]
        self._space = Workspace() if space is None else space

    def __repr__(self) -> str:
        regression = pd.DataFrame(self.regression, index=self.visible, columns=self.hidden)
        covariance = pd.DataFrame(self.covariance, index=self.hidden, columns=self.hidden)
        return (
            f"{type(self).__name__} of {len(self.hidden)} hidden given {len(self.visible)} visible "
            f"objects\nregression\n{regression}\ncovariance\n{covariance}"
        )

    @property
    def regression(self) -> Matrix:
        """A = M_vv^-1 M_vh."""
        raise NotImplementedError

    @property
    def covariance(self) -> Matrix:
        """C = M_hh - M_hv A."""
        raise NotImplementedError

    @property
    def entropy(self) -> float:
        """The entropy of h given v in nats, (1/2) (m log 2 pi e + log det C)."""
        return gaussian_entropy(len(self.hidden), self.log_determinant)

    def ones_solved(self, row_sums: Vector | None = None) -> Vector:
        """Return q = M_vv^-1 1, the weights by which v estimates a constant added to it.

        `row_sums`, the sums P_vv 1 over the visible objects, saves the precision form a product.
        """
        raise NotImplementedError

    def hidden_rows(
        self, visible_moment: Matrix, shift: Vector | None = None
    ) -> Iterator[HiddenRows]:
        """Yield Q_hv = A' Q_vv and Q_hh = C + A' Q_vv A, some rows at a time.

        With a `shift` u, Q_vv is `visible_moment` + u 1' + 1 u'. Each item is valid until the next.
        So only a few rows are held at a time, and little more than half of the symmetric Q_hh is
        computed.
        """
        raise NotImplementedError

    def inner_with(self, part: HiddenRows, precision: Matrix) -> float:
        """Return what these rows add to 2 tr P_hv Q_vh + tr P_hh Q_hh, P the precision."""
        rows, cross, hidden = part
        own, start = self._h[rows], rows.start
        total = self._inner_across(rows, cross, precision)
        total += inner_of_block(precision, own, self._h[:start], hidden[:, :start])
        return 2.0 * total + inner_of_block(precision, own, own, hidden[:, start:])

    def _inner_across(self, rows: slice, cross: Matrix, precision: Matrix) -> float:
        return inner_of_block(precision, self._h[rows], self._v, cross)

    def expected_second_moments(self, visible_moment: Matrix) -> tuple[Matrix, Matrix]:
        """Return Q_vh = Q_vv A and Q_hh = C + A' Q_vv A, given E[v v'] = Q_vv.

        Equations :eq:`eq-e-step-vh` and :eq:`eq-e-step-hh` of the derivation.

        Parameters
        ----------
        visible_moment
            Q_vv, shape (n, n), symmetric.

        Returns
        -------
        tuple of ndarray
            E[v h'], shape (n, m), and E[h h'], shape (m, m), exactly symmetric.
        """
        n, m = len(self.visible), len(self.hidden)
        if np.shape(visible_moment) != (n, n):
            raise KernelError(
                f"visible_moment: shape {np.shape(visible_moment)} found, ({n}, {n}) expected: one "
                "row and column per visible object."
            )
        cross, hidden = np.empty((n, m)), np.empty((m, m))
        for part in self.hidden_rows(np.ascontiguousarray(visible_moment, dtype=np.float64)):
            cross[:, part.rows] = part.cross.T
            hidden[part.rows, : part.rows.stop] = part.hidden
        return cross, mirror(hidden)

    @checked(seed=seed)
    def sample(self, visible_values: Matrix, *, seed: int | np.random.Generator) -> xr.DataArray:
        """Draw h given each row of `visible_values`, shape (draws, n); returns (draw, object)."""
        values = finite_rows(visible_values, len(self.visible), "visible_values")
        factor = cholesky(self.covariance, "conditional covariance", self.hidden, TOO_SINGULAR)
        noise = np.random.default_rng(seed).standard_normal((len(values), len(self.hidden)))
        return xr.DataArray(
            values @ self.regression + noise @ factor.T,
            dims=("draw", "object"),
            coords={"object": self.hidden},
            name="hidden",
        )


class PrecisionForm(ConditionalGaussian):
    """h given v from P = M^-1, by one Cholesky factor of P_hh, m^3/3 operations.

    C = P_hh^-1 and A = -P_vh C. Equation :eq:`eq-precision-form` of the derivation.
    """

    def __init__(
        self,
        precision: Matrix,
        visible: NDArray[np.bool_],
        objects: Labels,
        space: Workspace | None = None,
    ) -> None:
        super().__init__(visible, objects, space)
        v, h, space = self._v, self._h, self._space
        block = space.factored.block(precision, h, h)
        factor = cholesky(
            block, "model precision", self.hidden, TOO_SINGULAR, overwrite=True, clean=False
        )
        self.log_determinant = -log_determinant(factor)
        self._precision = precision
        # C itself is needed, and a product with it takes half the time of two solves.
        self._covariance = inverse(factor, overwrite=True)
        self._across = space.across.block(precision, h, v)
        out = space.regression.array(len(h), len(v))
        self._regression = symmetric_product(self._covariance, self._across, out, -1.0).T

    @property
    def regression(self) -> Matrix:
        """A = -P_vh C."""
        return self._regression

    @property
    def covariance(self) -> Matrix:
        """C = P_hh^-1."""
        return self._covariance

    def ones_solved(self, row_sums: Vector | None = None) -> Vector:
        """Return q = P_vv 1 + P_vh (A' 1)."""
        if row_sums is None:
            row_sums = self._precision[np.ix_(self._v, self._v)].sum(axis=1)
        if not len(self._h):
            return row_sums
        weights: Vector = row_sums + self._across.T @ self.regression.sum(axis=0)
        return weights

    def hidden_rows(
        self, visible_moment: Matrix, shift: Vector | None = None
    ) -> Iterator[HiddenRows]:
        """Yield A' Q_vv and C + (A' Q_vv) A."""
        (n, m), space = self.regression.shape, self._space
        if shift is not None:
            shifted, sums = shift @ self.regression, self.regression.sum(axis=0)
        for rows in strips(m):
            count, end = rows.stop - rows.start, rows.stop
            across = self.regression[:, rows].T
            cross = product(across, visible_moment, space.cross.array(count, n))
            if shift is not None:
                cross += shifted[rows, None]
                cross += np.outer(sums[rows], shift)
            hidden = product(cross, self.regression[:, :end], space.strip.array(count, end))
            hidden += self.covariance[rows, :end]
            yield HiddenRows(rows, cross, hidden)

    def _inner_across(self, rows: slice, cross: Matrix, precision: Matrix) -> float:
        return inner(self._across[rows], cross)


class CovarianceForm(ConditionalGaussian):
    """h given v from M, by one Cholesky factor of M_vv, n^3/3 operations.

    With M_vv = L L' and W = L^-1 M_vh: A = L'^-1 W, C = M_hh - W' W and
    log det C = log det M - log det M_vv; `log_det` is log det M.
    Equation :eq:`eq-regression` of the derivation.
    """

    def __init__(
        self,
        matrix: Matrix,
        log_det: float,
        visible: NDArray[np.bool_],
        objects: Labels,
        space: Workspace | None = None,
    ) -> None:
        super().__init__(visible, objects, space)
        self._matrix = matrix
        v, h, space = self._v, self._h, self._space
        block = space.factored.block(matrix, v, v)
        self._factor = cholesky(block, "model matrix", self.visible, TOO_SINGULAR, overwrite=True)
        self._half = half_solve(self._factor, space.across.block(matrix, h, v).T, overwrite=True)
        self.log_determinant = log_det - log_determinant(self._factor)

    @cached_property
    def regression(self) -> Matrix:
        """A = L'^-1 W."""
        return half_solve(self._factor, self._half, transposed=True)

    @cached_property
    def covariance(self) -> Matrix:
        """C = M_hh - W' W."""
        covariance = self._matrix[np.ix_(self._h, self._h)]
        explained = product(self._half.T, self._half, np.empty_like(covariance))
        return np.subtract(covariance, symmetrize(explained), out=covariance)

    def ones_solved(self, row_sums: Vector | None = None) -> Vector:
        """Return q = L'^-1 L^-1 1."""
        return solve(self._factor, np.ones(len(self._v)))

    def hidden_rows(
        self, visible_moment: Matrix, shift: Vector | None = None
    ) -> Iterator[HiddenRows]:
        """Yield W' E L' and M_hh - W' (I - E) W, with E = L^-1 Q_vv L'^-1.

        They equal A' Q_vv and C + A' Q_vv A, with one product of m^2 n operations instead of two.
        """
        (n, m), space = self._half.shape, self._space
        if n:
            copy = space.whitened.array(n, n)
            copy[...] = visible_moment
            if shift is not None:
                copy += shift
                copy += shift[:, None]
            whitened, _ = lapack.dsygst(copy.T, self._factor, itype=1, lower=1, overwrite_a=1)
        for rows in strips(m):
            end = rows.stop
            hidden = space.strip.block(self._matrix, self._h[rows], self._h[:end])
            half = self._half[:, rows]
            if n:
                moved = blas.dsymm(1.0, whitened, half, lower=1)
                rest = np.subtract(half, moved, order="F")
                product(rest.T, self._half[:, :end], hidden, add=-1.0)
                half = blas.dtrmm(1.0, self._factor, moved, lower=1, overwrite_b=1)
            yield HiddenRows(rows, half.T, hidden)


class WithConstant(ConditionalGaussian):
    """h given v of a kernel with a scale d and a constant of variance c: x ~ N(0, d (G + c J)).

    With A0, C0 the regression and the covariance under N(0, G), q = G_vv^-1 1, t = 1'q,
    e = c / (1 + c t) and f = 1 - A0' 1: A = A0 + e q f' and C = d (C0 + e f f').
    Equation :eq:`eq-source-conditional` of the derivation.

    Parameters
    ----------
    base
        h given v under N(0, G).
    scale, constant
        d and c.
    """

    def __init__(self, base: ConditionalGaussian, scale: float, constant: float) -> None:
        self._v, self._h, self._space = base._v, base._h, base._space
        self.visible, self.hidden = base.visible, base.hidden
        self._base, self._scale, self._constant = base, scale, constant
        self._weights = base.ones_solved()
        total = float(self._weights.sum())
        self._e = constant / (1.0 + constant * total)
        self._left = 1.0 - base.regression.sum(axis=0)  # f

    @property
    def log_determinant(self) -> float:  # type: ignore[override]
        """Log det C = m log d + log det C0 + log(1 + e f' C0^-1 f)."""
        factor = cholesky(self._base.covariance, "conditional covariance", self.hidden)
        half = half_solve(factor, self._left)
        grown = float(np.log1p(self._e * float(half @ half)))
        return len(self.hidden) * float(np.log(self._scale)) + log_determinant(factor) + grown

    @property
    def regression(self) -> Matrix:
        """A = A0 + e q f'."""
        return self._base.regression + np.outer(self._e * self._weights, self._left)

    @property
    def covariance(self) -> Matrix:
        """C = d (C0 + e f f')."""
        rank_one = self._e * np.outer(self._left, self._left)
        return self._scale * (self._base.covariance + rank_one)

    def ones_solved(self, row_sums: Vector | None = None) -> Vector:
        """Return (d (G_vv + c J))^-1 1."""
        total = float(self._weights.sum())
        weights: Vector = self._weights / (self._scale * (1.0 + total * self._constant))
        return weights

    def hidden_rows(
        self, visible_moment: Matrix, shift: Vector | None = None
    ) -> Iterator[HiddenRows]:
        """Yield A' Q_vv and C + A' Q_vv A: those under N(0, G), corrected for the constant."""
        if shift is not None:
            visible_moment = visible_moment + shift + shift[:, None]
        moved = self._weights
        if len(moved):
            moved = blas.dsymv(1.0, visible_moment.T, moved, lower=1)
        spread = self._e * (1.0 + self._e * float(self._weights @ moved) / self._scale)
        along = (
            self._e * (self._base.regression.T @ moved) + 0.5 * spread * self._scale * self._left
        )
        for rows, cross, hidden in self._base.hidden_rows(visible_moment / self._scale):
            cross *= self._scale
            cross += np.outer(self._e * self._left[rows], moved)
            hidden *= self._scale
            end = rows.stop
            hidden += np.outer(self._left[rows], along[:end])
            hidden += np.outer(along[rows], self._left[:end])
            yield HiddenRows(rows, cross, hidden)
