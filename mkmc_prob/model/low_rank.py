"""A model matrix of a few factors: M = W W' + D, the structures of the authors' later paper."""

from collections.abc import Hashable, Iterable
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from ..errors import KernelError
from ..linalg.lazy import is_large, lazy_stack
from ..linalg.symmetric import Matrix, Vector, symmetrize
from ..stacks.labels import Labels, as_labels
from ..stacks.matrix import labelled
from ..utils.memory import check_memory
from .factors import FactorPosterior
from .gaussian import GaussianModel


class LowRankModel(GaussianModel):
    """The model x ~ N(0, W W' + D), D diagonal: q factors and noise of its own for each object.

    M is what the data determine: W only up to rotation of its columns. `loadings` gives the W for
    which W' D^-1 W is diagonal and decreasing and the entry of largest absolute value in each
    column is positive. Whatever is asked of a `GaussianModel` is computed from W and D; `matrix`,
    `precision` and `cholesky` are l x l and formed when first asked for.
    Equation :eq:`eq-low-rank` of the derivation.

    Parameters
    ----------
    loadings
        W, shape (l, factors).
    noise
        The diagonal of D, shape (l,), above 0.
    objects
        The labels of the objects.

    Attributes
    ----------
    loadings : DataArray, dims (object, factor)
        W, canonical.
    noise : DataArray, dims (object,)
        The diagonal of D.

    Raises
    ------
    KernelError, LabelError
        If an array has another shape or entries that are no finite numbers.

    Examples
    --------
    >>> from mkmc_prob import PPCA, datasets, fit, remove_objects
    >>> kernels, _ = datasets.make_fusion_problem(30, 3)
    >>> model = fit(remove_objects(kernels, 0.3, seed=0), structure=PPCA(2)).model
    >>> model.loadings.dims, model.noise.dims
    (('object', 'factor'), ('object',))
    """

    def __init__(self, loadings: ArrayLike, noise: ArrayLike, objects: Iterable[Hashable]) -> None:
        labels = as_labels(objects, "objects")
        self.factor_loadings = _numbers(loadings, "loadings", (len(labels), None))
        self.noise_variances = _numbers(noise, "noise", (len(labels),))
        if not (self.noise_variances > 0.0).all():
            at = int(np.argmin(self.noise_variances > 0.0))
            raise KernelError(
                f"noise: {self.noise_variances[at]:g} found for object {labels.tolist()[at]!r}; a "
                "number > 0 is needed."
            )
        self._set_labels(labels)

    @classmethod
    def of(  # type: ignore[override]
        cls, loadings: Matrix, noise: Vector, objects: Labels
    ) -> "LowRankModel":
        """Return the model of these loadings and noise, unchecked, as the M-step gives it."""
        model = cls.__new__(cls)
        model.factor_loadings, model.noise_variances = loadings, noise
        loadings.flags.writeable = noise.flags.writeable = False
        model._set_labels(objects)
        return model

    def _set_labels(self, objects: Labels) -> None:
        self.objects = objects
        self._cholesky = self._precision = None
        self._log_determinant: float | None = None

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        arrays = (self.factor_loadings, self.noise_variances, self.__dict__.get("matrix"))
        for values in arrays:
            if values is not None:
                values.flags.writeable = False

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
            {
                "loadings": (dims, self.factor_loadings.copy()),
                "noise": ("object", self.noise_variances.copy()),
            },
            coords={"object": self.objects, "factor": np.arange(1, self.rank + 1)},
        )

    @classmethod
    def of_dataset(cls, given: xr.Dataset) -> "LowRankModel":
        """Return the model that `to_dataset` wrote."""
        for name in ("object", "factor"):
            given[name]  # a file without them is damaged
        loadings = given["loadings"].transpose("object", "factor").values
        return cls(loadings, given["noise"].values, given["object"].values)

    def restricted(self, places: NDArray[np.intp], objects: Labels) -> "LowRankModel":
        """Return the model of the objects at these positions, which `objects` labels."""
        return LowRankModel.of(self.factor_loadings[places], self.noise_variances[places], objects)

    def largest_change(self, after: GaussianModel) -> float:
        """Return a bound on max_ij |M+_ij - M_ij| / sqrt(M_ii M_jj), without an l x l matrix.

        The change of W W' is Z' of rank 2 q: with its eigenvalues u_k and vectors e_k it is at most
        a_i a_j, a_i^2 = sum_k |u_k| e_ik^2 (Cauchy and Schwarz).
        """
        assert isinstance(after, LowRankModel)
        unit = self.noise_variances + np.einsum("ij,ij->i", *[self.factor_loadings] * 2)
        both = np.hstack([after.factor_loadings, self.factor_loadings])
        basis, triangle = np.linalg.qr(both / np.sqrt(unit)[:, None])
        signs = np.repeat([1.0, -1.0], [after.rank, self.rank])
        values, vectors = np.linalg.eigh(symmetrize((triangle * signs) @ triangle.T))
        squares = (basis @ vectors) ** 2 @ np.abs(values)
        noise = np.abs(after.noise_variances - self.noise_variances) / unit
        return float((squares + noise).max())

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
            self.noise_variances.copy(),
            dims="object",
            coords={"object": self.objects},
            name="noise",
        )

    @cached_property
    def matrix(self) -> Matrix:  # type: ignore[override]
        """M = W W' + D, l x l."""
        self._check_memory()
        matrix = self.factor_loadings @ self.factor_loadings.T
        matrix.flat[:: len(matrix) + 1] += self.noise_variances
        matrix = symmetrize(matrix)
        matrix.flags.writeable = False
        return matrix

    def _check_memory(self) -> None:
        size = len(self.objects)
        remedy = "Use its loadings and noise, or covariance.sel(object=some, object_bis=some)."
        check_memory(24.0 * size**2, f"the matrix of {size} objects", remedy)

    @property
    def covariance(self) -> xr.DataArray:
        """M, labeled; of very many objects a dask array, if dask is installed."""
        size = len(self.objects)
        if not is_large(size**2):
            return super().covariance
        return labelled(lazy_stack(1, size, self._block)[0], self.objects, "model")

    def _block(self, _: int, rows: slice, columns: slice) -> Matrix:
        found: Matrix = self.factor_loadings[rows] @ self.factor_loadings[columns].T
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
        self._check_memory()
        posterior = self.posterior
        precision = symmetrize(-(posterior.weighted @ posterior.regression.T))
        precision.flat[:: len(precision) + 1] += 1.0 / self.noise_variances
        return precision

    def without_precision(self) -> "LowRankModel":
        """Return the model itself: it keeps no precision."""
        return self


def _numbers(given: ArrayLike, what: str, shape: tuple[int | None, ...]) -> Any:
    """Return a read-only array of finite numbers of this shape; None stands for any length."""
    try:
        values = np.array(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise KernelError(f"{what}: an array of numbers is needed ({error}).") from error
    fits = len(values.shape) == len(shape) and all(
        wanted in (None, own) for wanted, own in zip(shape, values.shape, strict=True)
    )
    if not fits or not np.isfinite(values).all():
        sizes = ", ".join("factors" if size is None else str(size) for size in shape)
        raise KernelError(
            f"{what}: shape {values.shape} found; finite numbers of shape ({sizes}) are needed."
        )
    values.flags.writeable = False
    return values


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
