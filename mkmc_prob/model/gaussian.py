"""The complete-data model: every kernel's vector is N(0, M) (the paper, Section "MKMC is an EM").

Enters: the model matrix M, labelled. Leaves: its Cholesky factor, precision and log determinant
(each computed once, when first asked for), log-likelihoods, and conditional distributions.
"""

from collections.abc import Hashable, Iterable
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import blas

from ..errors import IndefiniteKernelError, KernelError, LabelError
from ..linalg.blocks import Workspace
from ..linalg.cholesky import cholesky, inverse, log_determinant, solve
from ..linalg.symmetric import Matrix, mirror
from ..stacks.labels import Labels, as_labels, name_some, positions
from ..stacks.matrix import LARGEST_ENTRY, as_array, labelled, square_matrix
from ..utils.arguments import generator, positive_number, whole_number
from .conditional import (
    LOG_2_PI,
    TOO_SINGULAR,
    ConditionalGaussian,
    CovarianceForm,
    PrecisionForm,
    covariance_form_cost,
    precision_form_cost,
)


class GaussianModel:
    """The model x ~ N(0, M) of the complete data, an exponential family.

    With the sufficient statistic S = sum_k nu_k x_k x_k' and N = sum_k nu_k its log density is
    <S, eta(M)> - a(M): `natural_parameter` is eta = -M^-1 / 2, `cumulant` is a.
    Equations :eq:`eq-model` and :eq:`eq-exponential-family` of the derivation.

    Parameters
    ----------
    covariance
        M, symmetric positive definite, l x l: `DataArray` or `DataFrame` with labels, or a plain
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
        As for a kernel; IndefiniteKernelError where M is not positive definite.

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
        matrix, own = square_matrix(covariance, "model matrix")
        if own is not None and objects is not None:
            raise LabelError("objects: the matrix has labels already. Leave objects out.")
        if own is None:
            own = as_labels(range(len(matrix)) if objects is None else objects, "objects")
        if len(own) != len(matrix):
            raise LabelError(f"objects: {len(own)} labels for {len(matrix)} objects.")
        self._set(matrix, own)
        _ = self.cholesky  # a matrix that is not positive definite is refused at the door

    @classmethod
    def of(cls, matrix: Matrix, objects: Labels) -> "GaussianModel":
        """Return the model of a matrix known to be symmetric: the M-step's way in, unchecked."""
        model = cls.__new__(cls)
        model._set(matrix, objects)
        return model

    @classmethod
    def of_factor(cls, factor: Matrix, objects: Labels) -> "GaussianModel":
        """Return the model L L' of a lower triangular L, which is then its Cholesky factor."""
        model = cls.of(mirror(blas.dsyrk(1.0, factor, lower=1)).T, objects)
        model.__dict__["cholesky"] = factor
        return model

    def _set(self, matrix: Matrix, objects: Labels) -> None:
        self.matrix = matrix
        self.matrix.flags.writeable = False
        self.objects = objects

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.matrix.flags.writeable = False  # what else is known was computed from it

    def __repr__(self) -> str:
        return f"GaussianModel of {len(self.objects)} objects, covariance\n{self._table()}"

    def _repr_html_(self) -> str:
        table = self._table().to_html(max_rows=10, max_cols=10)
        return f"GaussianModel of {len(self.objects)} objects, covariance{table}"

    def _table(self) -> pd.DataFrame:
        return pd.DataFrame(self.matrix, index=self.objects, columns=self.objects)

    @property
    def covariance(self) -> xr.DataArray:
        """M, labelled: dims ``(object, object_bis)``."""
        return labelled(self.matrix, self.objects, "model")

    @cached_property
    def cholesky(self) -> Matrix:
        """The lower triangular L with L L' = M."""
        return self._factored()

    @cached_property
    def log_determinant(self) -> float:
        """The log determinant of M."""
        return log_determinant(self.cholesky)

    @cached_property
    def precision(self) -> Matrix:
        """P = M^-1, exactly symmetric."""
        if "cholesky" in self.__dict__:
            return inverse(self.cholesky)
        # Who asks for P first seldom needs the factor, which makes place for it.
        factor = self._factored(clean=False)
        self.__dict__["log_determinant"] = log_determinant(factor)
        return inverse(factor, overwrite=True)

    def forget_precision(self) -> None:
        """Let go of M^-1; it is computed again when asked for."""
        self.__dict__.pop("precision", None)

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
        """eta(M) = -M^-1 / 2, labelled (G in the paper's eq. for S and G).

        Equation :eq:`eq-natural-parameter` of the derivation.
        """
        return labelled(-0.5 * self.precision, self.objects, "natural_parameter")

    def cumulant(self, degrees_of_freedom: float = 1.0) -> float:
        """Return a(M) = (N/2) log det M + (N l / 2) log 2 pi, N the total degrees of freedom.

        Equation :eq:`eq-cumulant` of the derivation.
        """
        size = len(self.objects)
        degrees_of_freedom = positive_number(degrees_of_freedom, "degrees_of_freedom")
        return 0.5 * degrees_of_freedom * (self.log_determinant + size * LOG_2_PI)

    def log_likelihood(self, second_moment: xr.DataArray | pd.DataFrame | ArrayLike) -> float:
        """Return E_q[log N(v | 0, M_vv)] in nats for a q with second moment E_q[v v'] = Q_vv.

        This is -(1/2) (n log 2 pi + log det M_vv + tr M_vv^-1 Q_vv), by a Cholesky factor of
        M_vv: the direct form. (The E-step gets the same number from the precision.)
        Equation :eq:`eq-observed-log-likelihood` of the derivation.

        Parameters
        ----------
        second_moment
            Q_vv, shape (n, n): labelled, over any of the model's objects, or a plain array over
            all of them in their order.
        """
        moment, place, factor = self._marginal(second_moment)
        trace = float(np.trace(solve(factor, moment)))
        return -0.5 * (len(place) * LOG_2_PI + log_determinant(factor) + trace)

    def mahalanobis(self, second_moment: xr.DataArray | pd.DataFrame | ArrayLike) -> float:
        """Return the expected squared Mahalanobis length E_q[v' M_vv^-1 v] = tr M_vv^-1 Q_vv.

        It is n, the number of visible objects, where Q_vv = M_vv. `second_moment` is as in
        `log_likelihood`.
        """
        moment, _, factor = self._marginal(second_moment)
        return float(np.trace(solve(factor, moment)))

    def _marginal(self, second_moment: Any) -> tuple[Matrix, NDArray[np.intp], Matrix]:
        """Return Q_vv as an array, where its objects stand, and the Cholesky factor of M_vv."""
        moment, objects = square_matrix(second_moment, "second_moment")
        place = self._places(objects, len(moment))
        block = self.matrix[np.ix_(place, place)]
        return moment, place, cholesky(block, "model matrix", self.objects[place], TOO_SINGULAR)

    def condition(
        self, visible: ArrayLike | xr.DataArray, space: Workspace | None = None
    ) -> ConditionalGaussian:
        """Return the distribution of the other objects given the visible ones.

        Equation :eq:`eq-conditional` of the derivation.

        Parameters
        ----------
        visible
            One bool an object, aligned by label where it is labelled; or the labels of the visible
            objects (in any order: the result keeps the model's). Integers are labels.
        space
            Where to put the result, for the E-step's loop; new arrays if left out.

        Notes
        -----
        With n visible and m hidden objects, the precision form of the E-step costs about
        m^3 + 3 n m^2 + 2 n^2 m operations beside the precision of M, the covariance form
        4 n^3 / 3 + 4 n^2 m + n m^2 slower ones, which count twice; the cheaper is taken.
        """
        mask = self._mask(visible)
        n, m = int(mask.sum()), int((~mask).sum())
        if precision_form_cost(n, m) < covariance_form_cost(n, m):
            return PrecisionForm(self.precision, mask, self.objects, space)
        return CovarianceForm(self.matrix, self.log_determinant, mask, self.objects, space)

    def sample(self, draws: int, *, seed: int | np.random.Generator) -> xr.DataArray:
        """Draw vectors from N(0, M); dims ``(draw, object)``."""
        count = whole_number(draws, "draws", least=1)
        noise = generator(seed).standard_normal((count, len(self.objects)))
        return xr.DataArray(
            noise @ self.cholesky.T,
            dims=("draw", "object"),
            coords={"object": self.objects},
            name="sample",
        )

    def _mask(self, visible: Any) -> NDArray[np.bool_]:
        if isinstance(visible, xr.DataArray) and visible.indexes:
            visible = visible.to_series()
        if isinstance(visible, pd.Series) and visible.dtype == bool:
            place = positions(self.objects, as_labels(visible.index, "visible"))
            if (place < 0).any():
                raise LabelError(
                    f"visible: nothing is said of {name_some(self.objects[place < 0])}. Add it."
                )
            return visible.to_numpy()[place]
        values = as_array(list(visible) if isinstance(visible, Iterable) else visible, "visible")
        if values.ndim != 1 or (values.dtype == bool and values.shape != self.objects.shape):
            raise KernelError(
                f"visible: shape {values.shape} found, {self.objects.shape} expected: one bool an "
                "object, or the labels of the visible ones."
            )
        if values.dtype == bool:
            return values
        zeros_and_ones = values.dtype.kind in "iu" and np.isin(values, (0, 1)).all()
        if len(values) == len(self.objects) > 1 and zeros_and_ones:
            raise KernelError(
                f"visible: {values.tolist()} may be a mask or labels. A mask has bools."
            )
        mask = np.zeros(len(self.objects), dtype=bool)
        mask[self._places(as_labels(values.tolist(), "visible"), len(values))] = True
        return mask

    def _places(self, objects: Labels | None, size: int) -> NDArray[np.intp]:
        if objects is None:
            if size != len(self.objects):
                raise LabelError(
                    f"second_moment: {size} objects without labels, the model has "
                    f"{len(self.objects)}. Label them."
                )
            return np.arange(size)
        place = positions(objects, self.objects)
        if (place < 0).any():
            raise LabelError(
                f"the model has no object {name_some(objects[place < 0])}. Drop it, or fit a "
                "model that has it."
            )
        return place
