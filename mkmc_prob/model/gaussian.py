"""The model of the complete data: every kernel's vector is N(0, M) (the paper, "MKMC is an EM").

A `GaussianModel` computes the Cholesky factor, the precision and the log determinant of M once
each, when first asked for, and gives log-likelihoods and conditional distributions.
"""

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import blas

from ..errors import IndefiniteKernelError
from ..linalg.blocks import Workspace
from ..linalg.cholesky import cholesky, inverse, log_determinant, solve
from ..linalg.symmetric import Matrix, mirror
from ..stacks.labels import Labels
from ..stacks.matrix import LARGEST_ENTRY, aligned_matrix, labeled_square, labelled
from ..stacks.visibility import visible_mask
from ..utils.arguments import checked, positive, seed, whole
from .conditional import (
    LOG_2_PI,
    TOO_SINGULAR,
    ConditionalGaussian,
    CovarianceForm,
    PrecisionForm,
    gaussian_log_likelihood,
)
from .costs import covariance_form_cost, precision_form_cost


class GaussianModel:
    """The model x ~ N(0, M) of the complete data, an exponential family.

    With the sufficient statistic S = sum_k nu_k x_k x_k' and N = sum_k nu_k its log density is
    <S, eta(M)> - a(M): `natural_parameter` is eta = -M^-1 / 2, `cumulant` is a.
    Equations :eq:`eq-model` and :eq:`eq-exponential-family` of the derivation.

    Parameters
    ----------
    covariance
        M, symmetric positive definite, l x l: a labeled `DataArray` or `DataFrame`, or a plain
        array.
    objects
        The labels for a plain array; 0 to l - 1 if left out.

    Attributes
    ----------
    objects : ndarray
        The labels, in order.
    matrix, precision, cholesky : ndarray, shape (l, l)
        M, M^-1 and the lower triangular L with L L' = M, as plain arrays.
    log_determinant : float
        log det M.

    Raises
    ------
    KernelError, LabelError
        As for a kernel; IndefiniteKernelError if M is not positive definite.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import GaussianModel
    >>> model = GaussianModel(np.array([[2.0, 1.0], [1.0, 2.0]]), objects=["a", "b"])
    >>> round(model.log_determinant, 4)
    1.0986
    >>> model.natural_parameter.values.round(4)
    array([[-0.3333,  0.1667],
           [ 0.1667, -0.3333]])
    """

    def __init__(
        self,
        covariance: xr.DataArray | pd.DataFrame | ArrayLike,
        *,
        objects: Iterable[Hashable] | None = None,
    ) -> None:
        matrix, own = labeled_square(covariance, objects, "model matrix")
        self._set(matrix, own)
        _ = self.cholesky  # raises if M is not positive definite

    @classmethod
    def of(cls, matrix: Matrix, objects: Labels) -> "GaussianModel":
        """Return the model of a matrix known to be symmetric, unchecked, as the M-step gives it."""
        model = cls.__new__(cls)
        model._set(matrix, objects)
        return model

    @classmethod
    def of_factor(cls, factor: Matrix, objects: Labels) -> "GaussianModel":
        """Return the model L L' of a lower triangular L, which becomes its Cholesky factor."""
        model = cls.of(mirror(blas.dsyrk(1.0, factor, lower=1)).T, objects)
        model._cholesky = factor
        return model

    def without_precision(self) -> "GaussianModel":
        """Return the same model without the memory that M^-1 takes."""
        model = GaussianModel.of(self.matrix, self.objects)
        model._cholesky, model._log_determinant = self._cholesky, self._log_determinant
        return model

    def restricted(self, places: NDArray[np.intp], objects: Labels) -> "GaussianModel":
        """Return the model of the objects at these positions, which `objects` labels."""
        return GaussianModel.of(self.matrix[np.ix_(places, places)], objects)

    def largest_change(self, after: "GaussianModel") -> float:
        """Return max_ij |M+_ij - M_ij| / sqrt(M_ii M_jj), M+ the matrix of `after`."""
        unit = 1.0 / np.sqrt(np.diagonal(self.matrix))
        change = after.matrix - self.matrix
        change *= unit
        change *= unit[:, None]
        return float(max(change.max(), -change.min()))

    def _set(self, matrix: Matrix, objects: Labels) -> None:
        self.matrix, self.objects = matrix, objects
        self.matrix.flags.writeable = False
        self._cholesky: Matrix | None = None
        self._precision: Matrix | None = None
        self._log_determinant: float | None = None

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.matrix.flags.writeable = False  # the factor was computed from it

    def __repr__(self) -> str:
        return f"GaussianModel of {len(self.objects)} objects, covariance\n{self._table()}"

    def _repr_html_(self) -> str:
        table = self._table().to_html(max_rows=10, max_cols=10)
        return f"GaussianModel of {len(self.objects)} objects, covariance{table}"

    def _table(self) -> pd.DataFrame:
        return pd.DataFrame(self.matrix, index=self.objects, columns=self.objects)

    @property
    def covariance(self) -> xr.DataArray:
        """M, labeled: dims ``(object, object_bis)``."""
        return labelled(self.matrix, self.objects, "model")

    @property
    def cholesky(self) -> Matrix:
        """The lower triangular L with L L' = M."""
        if self._cholesky is None:
            self._cholesky = self._factored()
        return self._cholesky

    @property
    def log_determinant(self) -> float:
        """The log determinant of M."""
        if self._log_determinant is None:
            self._log_determinant = log_determinant(self.cholesky)
        return self._log_determinant

    @property
    def precision(self) -> Matrix:
        """P = M^-1, exactly symmetric."""
        if self._precision is None and self._cholesky is not None:
            self._precision = inverse(self._cholesky)
        if self._precision is None:
            # It overwrites the factor, which is rarely needed afterwards.
            factor = self._factored(clean=False)
            self._log_determinant = log_determinant(factor)
            self._precision = inverse(factor, overwrite=True)
        return self._precision

    def _factored(self, *, clean: bool = True) -> Matrix:
        variance = np.diagonal(self.matrix)
        tiny = np.flatnonzero(np.abs(variance) < 1 / LARGEST_ENTRY)
        if len(tiny):
            raise IndefiniteKernelError(
                f"model matrix: the variance of object {self.objects.tolist()[tiny[0]]!r} is "
                f"{variance[tiny[0]]:.3g}, too small to compute with. {TOO_SINGULAR}"
            )
        return cholesky(self.matrix, "model matrix", self.objects, TOO_SINGULAR, clean=clean)

    @property
    def natural_parameter(self) -> xr.DataArray:
        """eta(M) = -M^-1 / 2, labeled (G in the paper's eq. for S and G).

        Equation :eq:`eq-natural-parameter` of the derivation.
        """
        return labelled(-0.5 * self.precision, self.objects, "natural_parameter")

    @checked(degrees_of_freedom=positive)
    def cumulant(self, degrees_of_freedom: float = 1.0) -> float:
        """Return a(M) = (N/2) log det M + (N l / 2) log 2 pi, N the total degrees of freedom.

        Equation :eq:`eq-cumulant` of the derivation.
        """
        return 0.5 * degrees_of_freedom * (self.log_determinant + len(self.objects) * LOG_2_PI)

    def log_likelihood(self, second_moment: xr.DataArray | pd.DataFrame | ArrayLike) -> float:
        """Return E_q[log N(v | 0, M_vv)] in nats for a q with second moment E_q[v v'] = Q_vv.

        This is -(1/2) (n log 2 pi + log det M_vv + tr M_vv^-1 Q_vv), computed from a Cholesky
        factor of M_vv. (The E-step computes the same number from the precision.)
        Equation :eq:`eq-observed-log-likelihood` of the derivation.

        Parameters
        ----------
        second_moment
            Q_vv, shape (n, n): labeled, over any of the model's objects, or a plain array over all
            of them in their order.
        """
        return gaussian_log_likelihood(*self._marginal(second_moment))

    def mahalanobis(self, second_moment: xr.DataArray | pd.DataFrame | ArrayLike) -> float:
        """Return the expected squared Mahalanobis length E_q[v' M_vv^-1 v] = tr M_vv^-1 Q_vv.

        It is n, the number of visible objects, if Q_vv = M_vv; tables divide it by n.
        `second_moment` is as in `log_likelihood`.
        """
        return self._marginal(second_moment)[2]

    def _marginal(self, second_moment: Any) -> tuple[int, float, float]:
        """Return n, log det M_vv and tr M_vv^-1 Q_vv."""
        moment, places = aligned_matrix(second_moment, self.objects, "second_moment")
        block = self.matrix[np.ix_(places, places)]
        factor = cholesky(block, "model matrix", self.objects[places], TOO_SINGULAR)
        return len(places), log_determinant(factor), float(np.trace(solve(factor, moment)))

    def condition(
        self, visible: ArrayLike | xr.DataArray, space: Workspace | None = None
    ) -> ConditionalGaussian:
        """Return the distribution of the hidden objects given the visible ones.

        It has the cheaper of the two forms; see `mkmc_prob.model.costs`.
        Equation :eq:`eq-conditional` of the derivation.

        Parameters
        ----------
        visible
            One bool per object, aligned by label if labeled; or the labels of the visible objects,
            in any order (the result keeps the model's). Integers are labels.
        space
            The memory to work in, for the E-step's loop; new arrays if left out.
        """
        mask = visible_mask(visible, self.objects, of="the model")
        n, m = int(mask.sum()), int((~mask).sum())
        if precision_form_cost(n, m) < covariance_form_cost(n, m):
            return PrecisionForm(self.precision, mask, self.objects, space)
        return CovarianceForm(self.matrix, self.log_determinant, mask, self.objects, space)

    @checked(draws=whole(least=1), seed=seed)
    def sample(self, draws: int, *, seed: int | np.random.Generator) -> xr.DataArray:
        """Draw vectors from N(0, M); dims ``(draw, object)``."""
        noise = np.random.default_rng(seed).standard_normal((draws, len(self.objects)))
        return xr.DataArray(
            noise @ self.cholesky.T,
            dims=("draw", "object"),
            coords={"object": self.objects},
            name="sample",
        )
