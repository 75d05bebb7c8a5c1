"""The conditional distribution of what a kernel hides given what it shows: the E-step's heart.

Enters: the model matrix M or its precision P = M^-1, and which objects are visible. Leaves: the
regression and the covariance of the hidden objects given the visible, and the expected second
moments that they give (the paper's E-step, Algorithm 1, lines 8 and 9).
"""

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from .checks import as_array, generator
from .errors import KernelError
from .labels import Labels
from .linalg import (
    Matrix,
    Workspace,
    cholesky,
    half_solve,
    inverse,
    log_determinant,
    product,
    solve,
    symmetrize,
)

LOG_2_PI = float(np.log(2.0 * np.pi))
TOO_SINGULAR = (
    "The model matrix is too near to singular: raise the strength, or normalize(stack) kernels "
    "whose scales are far from the prior's."
)


class ConditionalGaussian:
    """The hidden objects h given the visible objects v, under N(0, M).

    h | v ~ N(A' v, C) with the regression A = M_vv^-1 M_vh and the conditional covariance
    C = M_hh - M_hv A, the Schur complement of M_vv. Made by `GaussianModel.condition`.

    Attributes
    ----------
    regression : ndarray, shape (n, m)
        A; column j holds the coefficients of hidden object j on the n visible ones.
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

    def __init__(
        self,
        regression: Matrix,
        covariance: Matrix,
        log_determinant: float,
        visible: Labels,
        hidden: Labels,
    ) -> None:
        self.regression = regression
        self.covariance = covariance
        self.log_determinant = log_determinant
        self.visible = visible
        self.hidden = hidden

    def __repr__(self) -> str:
        regression = pd.DataFrame(self.regression, index=self.visible, columns=self.hidden)
        covariance = pd.DataFrame(self.covariance, index=self.hidden, columns=self.hidden)
        return (
            f"ConditionalGaussian of {len(self.hidden)} hidden given {len(self.visible)} visible "
            f"objects\nregression\n{regression}\ncovariance\n{covariance}"
        )

    @classmethod
    def from_covariance(
        cls,
        matrix: Matrix,
        log_det: float,
        visible: NDArray[np.bool_],
        objects: Labels,
        space: Workspace | None = None,
    ) -> "ConditionalGaussian":
        """Condition by the covariance form: one Cholesky of M_vv, n^3/3 operations.

        With M_vv = L L' and W = L^-1 M_vh: A = L'^-1 W, C = M_hh - W' W and
        log det C = log det M - log det M_vv; `log_det` is log det M.
        """
        space = Workspace() if space is None else space
        v, h = np.flatnonzero(visible), np.flatnonzero(~visible)
        block = space.block("vv", matrix, v, v)
        factor = cholesky(block, "model matrix", objects[v], TOO_SINGULAR, overwrite=True)
        half = half_solve(factor, space.block("vh", matrix, h, v).T, overwrite=True)
        explained = product(half.T, half, space.array("hidden", len(h), len(h)))
        covariance = space.block("hh", matrix, h, h)
        covariance -= symmetrize(explained)
        regression = half_solve(factor, half, transposed=True, overwrite=True)
        log_det_hidden = log_det - log_determinant(factor)
        return cls(regression, covariance, log_det_hidden, objects[v], objects[h])

    @classmethod
    def from_precision(
        cls,
        precision: Matrix,
        visible: NDArray[np.bool_],
        objects: Labels,
        space: Workspace | None = None,
    ) -> "ConditionalGaussian":
        """Condition by the precision form: one Cholesky of P_hh, m^3/3 operations.

        A = -P_vh P_hh^-1 and C = P_hh^-1.
        """
        space = Workspace() if space is None else space
        v, h = np.flatnonzero(visible), np.flatnonzero(~visible)
        block = space.block("hh", precision, h, h)
        factor = cholesky(block, "model precision", objects[h], TOO_SINGULAR, overwrite=True)
        regression = solve(factor, space.block("vh", precision, v, h).T, overwrite=True).T
        np.negative(regression, out=regression)
        log_det_hidden = -log_determinant(factor)
        covariance = inverse(factor, overwrite=True)
        return cls(regression, covariance, log_det_hidden, objects[v], objects[h])

    @property
    def entropy(self) -> float:
        """The entropy of h given v in nats, (1/2) (m log 2 pi e + log det C)."""
        return 0.5 * (len(self.hidden) * (LOG_2_PI + 1.0) + self.log_determinant)

    def expected_second_moments(
        self, visible_moment: Matrix, space: Workspace | None = None
    ) -> tuple[Matrix, Matrix]:
        """Return Q_vh = Q_vv A and Q_hh = C + A' Q_vv A, given E[v v'] = Q_vv.

        Parameters
        ----------
        visible_moment
            Q_vv, shape (n, n), symmetric.
        space
            Where to put the results, for the E-step's loop; new arrays if left out.

        Returns
        -------
        tuple of ndarray
            E[v h'], shape (n, m), and E[h h'], shape (m, m), exactly symmetric.
        """
        n = len(self.visible)
        if np.shape(visible_moment) != (n, n):
            raise KernelError(
                f"visible_moment: shape {np.shape(visible_moment)} found, ({n}, {n}) expected: one "
                "row and column a visible object."
            )
        space = Workspace() if space is None else space
        m = len(self.hidden)
        moment = np.ascontiguousarray(visible_moment, dtype=np.float64)
        cross = product(moment, self.regression, space.array("cross", n, m))
        hidden = symmetrize(product(self.regression.T, cross, space.array("hidden", m, m)))
        hidden += self.covariance
        return cross, hidden

    def sample(self, visible_values: Matrix, *, seed: int | np.random.Generator) -> xr.DataArray:
        """Draw h given each row of `visible_values`, shape (draws, n); returns (draw, object)."""
        rng = generator(seed)
        values = np.atleast_2d(as_array(visible_values, "visible_values"))
        if values.dtype.kind not in "biuf" or not np.isfinite(values).all():
            raise KernelError("visible_values: not all are finite real numbers. Give such.")
        if values.ndim != 2 or values.shape[1] != len(self.visible):
            raise KernelError(
                f"visible_values: shape {values.shape} found; one column for each of the "
                f"{len(self.visible)} visible objects is needed."
            )
        factor = cholesky(self.covariance, "conditional covariance", self.hidden, TOO_SINGULAR)
        noise = rng.standard_normal((len(values), len(self.hidden)))
        return xr.DataArray(
            values @ self.regression + noise @ factor.T,
            dims=("draw", "object"),
            coords={"object": self.hidden},
            name="hidden",
        )
