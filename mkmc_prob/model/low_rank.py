"""A model matrix of a few factors: M = W W' + D, the structures of the authors' later paper."""

from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from ..linalg.lazy import is_large, lazy_stack
from ..linalg.symmetric import Matrix, Vector, symmetrize
from ..stacks.labels import Labels
from ..stacks.matrix import labelled
from .factors import FactorPosterior
from .gaussian import GaussianModel


class LowRankModel(GaussianModel):
    """The model x ~ N(0, W W' + D), D diagonal: q factors and noise of its own for each object.

    M is what the data determine: W only up to rotation of its columns. `loadings` gives the W for
    which W' D^-1 W is diagonal and decreasing and the entry of largest absolute value in each
    column is positive. Whatever is asked of a `GaussianModel` is computed from W and D; `matrix`,
    `precision` and `cholesky` are l x l and formed when first asked for.
    Equation :eq:`eq-low-rank` of the derivation.

    Attributes
    ----------
    loadings : DataArray, dims (object, factor)
        W, canonical.
    noise : DataArray, dims (object,)
        The diagonal of D.

    Examples
    --------
    >>> from mkmc_prob import PPCA, datasets, fit, remove_objects
    >>> kernels, _ = datasets.make_fusion_problem(30, 3)
    >>> model = fit(remove_objects(kernels, 0.3, seed=0), structure=PPCA(2)).model
    >>> model.loadings.dims, model.noise.dims
    (('object', 'factor'), ('object',))
    """

    def __init__(self, loadings: Matrix, noise: Vector, objects: Labels) -> None:
        self.factor_loadings, self.noise_variances, self.objects = loadings, noise, objects
        self._cholesky = self._precision = None
        self._log_determinant: float | None = None

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __repr__(self) -> str:
        return f"{self._head()}\n{self._table()}"

    def _repr_html_(self) -> str:
        return f"{self._head()}{self._table().to_html(max_rows=10, max_cols=10)}"

    def _head(self) -> str:
        return f"LowRankModel of {len(self.objects)} objects and {self.rank} factors"

    def _table(self) -> pd.DataFrame:
        table = pd.DataFrame(self.loadings.values, self.objects, self.loadings["factor"].values)
        table["noise"] = self.noise_variances
        return table

    def to_dataset(self) -> xr.Dataset:
        """Return the loadings, as the fit found them, and the noise."""
        dims = ("object", "factor")
        return xr.Dataset(
            {"loadings": (dims, self.factor_loadings), "noise": ("object", self.noise_variances)},
            coords={"object": self.objects, "factor": np.arange(1, self.rank + 1)},
        )

    @classmethod
    def of_dataset(cls, given: xr.Dataset) -> "LowRankModel":
        """Return the model that `to_dataset` wrote."""
        loadings = given["loadings"].transpose("object", "factor").values
        return cls(loadings, given["noise"].values, given["object"].values)

    def restricted(self, places: NDArray[np.intp], objects: Labels) -> "LowRankModel":
        """Return the model of the objects at these positions, which `objects` labels."""
        return LowRankModel(self.factor_loadings[places], self.noise_variances[places], objects)

    @property
    def rank(self) -> int:
        """q, the number of factors."""
        return int(self.factor_loadings.shape[1])

    @cached_property
    def loadings(self) -> xr.DataArray:
        """W, canonical: W' D^-1 W diagonal and decreasing, the largest entry of a column > 0."""
        values = canonical(self.factor_loadings, self.noise_variances)
        return xr.DataArray(
            values,
            dims=("object", "factor"),
            coords={"object": self.objects, "factor": np.arange(1, self.rank + 1)},
            name="loadings",
        )

    @property
    def noise(self) -> xr.DataArray:
        """The diagonal of D."""
        return xr.DataArray(
            self.noise_variances, dims="object", coords={"object": self.objects}, name="noise"
        )

    @cached_property
    def matrix(self) -> Matrix:  # type: ignore[override]
        """M = W W' + D, l x l."""
        matrix = self.factor_loadings @ self.factor_loadings.T
        matrix.flat[:: len(matrix) + 1] += self.noise_variances
        matrix = symmetrize(matrix)
        matrix.flags.writeable = False
        return matrix

    @property
    def covariance(self) -> xr.DataArray:
        """M, labeled; of very many objects a dask array, if dask is installed."""
        size = len(self.objects)
        if not is_large(size**2):
            return super().covariance
        return labelled(lazy_stack(1, size, self._block)[0], self.objects, "model")

    def _block(self, _: int, rows: slice, columns: slice) -> Matrix:
        found = self.factor_loadings[rows] @ self.factor_loadings[columns].T
        if rows == columns:
            found = symmetrize(found)
            found.flat[:: len(found) + 1] += self.noise_variances[rows]
        return found

    @property
    def posterior(self) -> FactorPosterior:
        """The factors given all objects."""
        return FactorPosterior(self.factor_loadings, self.noise_variances)

    @property
    def log_determinant(self) -> float:
        """Log det M = log det D + log det(I + W' D^-1 W)."""
        if self._log_determinant is None:
            self._log_determinant = self.posterior.log_determinant
        return self._log_determinant

    @property
    def precision(self) -> Matrix:
        """M^-1 = D^-1 - D^-1 W G^-1 W' D^-1, l x l."""
        posterior = self.posterior
        precision = symmetrize(-(posterior.weighted @ posterior.regression.T))
        precision.flat[:: len(precision) + 1] += 1.0 / self.noise_variances
        return precision

    def without_precision(self) -> "LowRankModel":
        """Return the model itself: it keeps no precision."""
        return self


def canonical(loadings: Matrix, noise: Vector) -> Matrix:
    """Return W rotated so that W' D^-1 W is diagonal and decreasing, with positive peaks.

    Equation :eq:`eq-canonical` of the derivation.
    """
    scale = np.sqrt(noise)[:, None]
    left, values, _ = np.linalg.svd(loadings / scale, full_matrices=False)
    rotated = left * values * scale
    peaks = rotated[np.argmax(np.abs(rotated), axis=0), np.arange(rotated.shape[1])]
    result: Matrix = rotated * np.where(peaks < 0.0, -1.0, 1.0)
    return result
