"""The completed kernels of a model of few factors, computed where they are asked for."""

import math
from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..linalg.lazy import is_large, lazy_stack
from ..linalg.operators import entries, norm_of
from ..linalg.symmetric import Matrix, Vector, symmetrize
from ..model.factors import FactorPosterior, own_factors
from ..model.low_rank import LowRankModel
from ..model.sources import Source, Sources
from ..stacks.kernel_stack import KernelStack, VisibleKernel
from ..stacks.labels import as_labels, match
from ..stacks.lazy_stack import LazyStack
from .rounding import EPS
from .spread import described, spread_across, spread_among


class FactorCompletion:
    """The expectations of the kernels, given the factors of a model and the kernels' sources.

    With (z, g) the factors and the constant of a kernel, L their loadings, R = E[x (z, g)'] and E
    their second moment: Q_vh = R L_h' and Q_hh = L_h E L_h' + Psi_h, in units of the scale. So the
    rows of a few objects cost those rows.
    Equation :eq:`eq-factor-completion` of the derivation.

    Attributes
    ----------
    model : LowRankModel
        The model of the E-step.
    sources : Sources
        The sources there.
    kernels : KernelStack
        The incomplete kernels.
    """

    def __init__(self, stack: KernelStack, sources: Sources, model: LowRankModel) -> None:
        self.kernels, self.sources, self.model = stack, sources, model
        self._kernels: dict[int, CompletedKernel] = {}

    def __repr__(self) -> str:
        return (
            f"FactorCompletion of {len(self.kernels.names)} kernels over "
            f"{len(self.model.objects)} objects by {self.model.rank} factors: "
            "rows(kernel, objects) computes rows"
        )

    def to_dataset(self) -> xr.Dataset:
        """Return the loadings and the noise of the model, and the constants."""
        constants = ("kernel", self.sources.constant)
        names = np.array(self.kernels.names)
        return self.model.to_dataset().assign(constant=constants).assign_coords(kernel=names)

    @classmethod
    def of_dataset(
        cls,
        stack: KernelStack,
        given: xr.Dataset,
        sources: xr.Dataset,
        degrees_of_freedom: xr.DataArray,
    ) -> "FactorCompletion":
        """Return the completion that `to_dataset` wrote, of a stack with these sources."""
        found = Sources.of_dataset(sources, stack.names, degrees_of_freedom)
        found = found.with_constants(given["constant"].sel(kernel=stack.names).values)
        return cls(stack, found, LowRankModel.of_dataset(given))

    def kernel(self, place: int) -> "CompletedKernel":
        """Return what completes the kernel at this position: one product with its block."""
        if place not in self._kernels:
            self._kernels[place] = CompletedKernel.of(
                self.kernels.kernel(place),
                self.sources[place],
                self.sources.shared_constant,
                self.model,
            )
        return self._kernels[place]

    def stack(self) -> xr.DataArray:
        """Return all completed kernels. Visible entries are returned bit for bit.

        If they take more than 1 GiB and dask is installed, the array is a dask array: its entries
        are computed where they are asked for.
        """
        size = len(self.model.objects)
        if isinstance(self.kernels, LazyStack) or is_large(len(self.kernels.names) * size**2):
            return self._lazy_stack()
        completed = self.kernels.array.copy()
        everything = np.arange(len(self.model.objects))
        for place, values in enumerate(completed.values):
            hidden = ~self.kernels.visible[place]
            if hidden.any():
                found = self.kernel(place).block(everything, everything)
                values[hidden] = found[hidden]
                values[:, hidden] = found[:, hidden]
        completed.attrs["long_name"] = "completed kernel matrices"
        return completed.rename("completed")

    def standard_deviation(self) -> xr.DataArray:
        """Return the standard deviation of every completed entry, 0 for visible ones.

        It is a dask array if the completed stack is.
        """
        size = len(self.model.objects)
        if isinstance(self.kernels, LazyStack) or is_large(len(self.kernels.names) * size**2):
            return described(self._lazy(self._spread))
        everything = slice(0, size)
        found = self.kernels.array.copy(data=np.zeros(self.kernels.array.shape))
        for place, values in enumerate(found.values):
            if not self.kernels.visible[place].all():
                values[...] = self._spread(place, everything, everything)
        return described(found)

    def _spread(self, place: int, rows: slice, columns: slice) -> Matrix:
        everything = np.arange(len(self.model.objects))
        found = self.kernel(place).spread(everything[rows], everything[columns])
        found /= math.sqrt(self.sources.degrees_of_freedom[place])
        return found

    def _lazy_stack(self) -> xr.DataArray:
        completed = self._lazy(self._block)
        completed.attrs["long_name"] = "completed kernel matrices"
        return completed.rename("completed")

    def _lazy(self, block: Callable[[int, slice, slice], Matrix]) -> xr.DataArray:
        """Return a stack as a dask array of these blocks."""
        array, size = self.kernels.array, len(self.model.objects)
        return xr.DataArray(
            lazy_stack(len(self.kernels.names), size, block),
            dims=array.dims,
            coords=array.coords,
            attrs=array.attrs,
        )

    def _block(self, place: int, rows: slice, columns: slice) -> Matrix:
        everything = np.arange(len(self.model.objects))
        return self.kernel(place).block(everything[rows], everything[columns])

    def rows(self, kernel: Hashable, objects: Iterable[Hashable]) -> xr.DataArray:
        """Return the rows of these objects in the completed kernel of this name.

        Raises
        ------
        LabelError
            If there is no such kernel or object.
        """
        labels, names = self.model.objects, np.array(self.kernels.names)
        (place,) = match(as_labels([kernel], "kernel"), names, "kernel: there is no kernel {}.")
        wanted = as_labels(objects, "objects")
        places = match(wanted, labels, "objects: there is no object {}.")
        values = self.kernel(int(place)).block(places, np.arange(len(labels)))
        return xr.DataArray(
            values,
            dims=("object", "object_bis"),
            coords={"kernel": kernel, "object": labels[places], "object_bis": labels},
            name="completed",
        )


def kernel_factors(source: Source, shared: float, model: LowRankModel) -> tuple[Matrix, Vector]:
    """Return the loadings, the constant's included, and the noise of a kernel of scale 1."""
    loadings, noise = own_factors(source, model.factor_loadings, model.noise_variances, shared)
    if source.constant:
        column = np.full((len(noise), 1), math.sqrt(source.constant))
        loadings = np.concatenate([loadings, column], axis=1)
    return loadings, noise


class FactorAgreement(NamedTuple):
    """How a kernel agrees with its covariance C = L L' + Psi under a model of few factors.

    Attributes
    ----------
    v : ndarray of int
        The visible objects.
    diagonal : ndarray
        The diagonal of S, the visible block in units of its scale.
    posterior : FactorPosterior
    cross : ndarray
        S B, with B of the posterior.
    scale, norm : float
        The scale, and the Frobenius norm of S.
    within : float
        Tr L' S L.
    """

    v: NDArray[np.intp]
    diagonal: Vector
    posterior: FactorPosterior
    cross: Matrix
    scale: float
    norm: float
    within: float

    @classmethod
    def of(
        cls, kernel: VisibleKernel, scale: float, loadings: Matrix, noise: Vector
    ) -> "FactorAgreement":
        """Return the agreement of a kernel, by one product with its visible block."""
        posterior = FactorPosterior(loadings[kernel.v], noise[kernel.v])
        own, p = posterior.loadings, posterior.loadings.shape[1]
        products = kernel.moment @ np.hstack([posterior.regression, own]) / scale
        within = float(np.einsum("ij,ij->", own, products[:, p:]))
        diagonal = kernel.moment.diagonal() / scale
        norm = norm_of(kernel.moment) / scale
        return cls(kernel.v, diagonal, posterior, products[:, :p], scale, norm, within)

    @property
    def lost(self) -> float:
        """The share of the numbers that rounding may make up: 1 if no digit is known.

        1 - h, with h the part of an object that the factors explain, and traces that are a small
        difference of large ones lose digits if the noise is tiny beside the loadings.
        """
        if not len(self.diagonal):
            return 0.0
        own, noise = self.posterior.loadings, self.posterior.noise
        left = float((self.precision_diagonal * self.scale * noise).min())
        within = max(self.mahalanobis * len(self.diagonal), 0.0)
        total = float((self.diagonal / noise).sum())
        condition = float(np.linalg.cond(self.posterior.precision))
        worst = max(1.0 / left if left > 0.0 else math.inf, total / within if within else 1.0)
        return float(min(1.0, EPS * own.shape[1] * worst * math.sqrt(condition)))

    @property
    def mahalanobis(self) -> float:
        """Tr C^-1 S / n."""
        explained = float(np.einsum("ij,ij->", self.posterior.weighted, self.cross))
        total = float((self.diagonal / self.posterior.noise).sum()) - explained
        return total / len(self.diagonal)

    @property
    def correlation(self) -> float:
        """Tr S C / (||S|| ||C||); NaN for a kernel of zeros."""
        own, noise = self.posterior.loadings, self.posterior.noise
        lengths = np.einsum("ij,ij->i", own, own)
        size = float(np.sum((own.T @ own) ** 2) + 2.0 * (noise @ lengths) + noise @ noise)
        product = self.within + float(noise @ self.diagonal)
        return product / (self.norm * math.sqrt(size)) if self.norm else math.nan

    @property
    def precision_diagonal(self) -> Vector:
        """The diagonal of C^-1, in the kernel's own units."""
        posterior = self.posterior
        explained = np.einsum("ij,ij->i", posterior.loadings, posterior.regression)
        diagonal: Vector = (1.0 - explained) / posterior.noise / self.scale
        return diagonal

    @property
    def squared_residuals(self) -> Vector:
        """The expected squared residuals of the objects given the others, over their variances."""
        own, noise = self.posterior.loadings, self.posterior.noise
        moment = self.posterior.regression.T @ self.cross
        squares = self.diagonal + np.einsum("ij,ij->i", own @ moment - 2.0 * self.cross, own)
        residuals: Vector = squares / noise**2 / (self.precision_diagonal * self.scale)
        return residuals


class CompletedKernel(NamedTuple):
    """One completed kernel.

    Attributes
    ----------
    kernel : VisibleKernel
    scale : float
    loadings : ndarray, shape (l, p)
        L, those of the constant included.
    noise : ndarray, shape (l,)
        The diagonal of Psi.
    cross : ndarray, shape (l, p)
        For visible objects R, for hidden ones L E.
    moment, covariance : ndarray, shape (p, p)
        E, and the covariance of the factors given the visible objects.
    """

    kernel: VisibleKernel
    scale: float
    loadings: Matrix
    noise: Vector
    cross: Matrix
    moment: Matrix
    covariance: Matrix

    @classmethod
    def of(
        cls, kernel: VisibleKernel, source: Source, shared: float, model: LowRankModel
    ) -> "CompletedKernel":
        """Return the completion of a kernel whose visible block is in its own units."""
        loadings, noise = kernel_factors(source, shared, model)
        v, h = kernel.v, kernel.h
        posterior = FactorPosterior(loadings[v], noise[v])
        cross = np.empty_like(loadings)
        cross[v] = kernel.moment @ posterior.regression / source.scale
        moment = posterior.covariance + symmetrize(posterior.regression.T @ cross[v])
        cross[h] = loadings[h] @ moment
        return cls(kernel, source.scale, loadings, noise, cross, moment, posterior.covariance)

    def block(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> Matrix:
        """Return the entries of these rows and columns, symmetric if they are the same."""
        hidden = ~self.kernel.visible
        found = np.zeros((len(rows), len(columns)))
        below, beside = hidden[rows], hidden[columns]
        # A hidden object has its loadings on one side, the other object its E[x (z, g)'].
        found[below] = self.loadings[rows[below]] @ self.cross[columns].T
        among = np.ix_(~below, beside)
        found[among] = self.cross[rows[~below]] @ self.loadings[columns[beside]].T
        both = np.ix_(below, beside)
        same = rows[below][:, None] == columns[beside]
        inner = found[both] + same * self.noise[rows[below]][:, None]
        if np.array_equal(rows, columns):
            inner = symmetrize(inner)
            found[np.ix_(below, ~beside)] = found[among].T
        found[both] = inner
        found *= self.scale
        place = np.empty(len(hidden), dtype=np.intp)
        place[self.kernel.v] = np.arange(len(self.kernel.v))
        shown = entries(self.kernel.moment, place[rows[~below]], place[columns[~beside]])
        found[np.ix_(~below, ~beside)] = shown
        return found

    def spread(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> Matrix:
        """Return the standard deviations for nu = 1, 0 where both objects are visible.

        Equation :eq:`eq-spread` of the derivation.
        """
        visible, found = self.kernel.visible, np.zeros((len(rows), len(columns)))
        (shown, hidden), (shown_bis, hidden_bis) = (
            (np.flatnonzero(visible[each]), np.flatnonzero(~visible[each]))
            for each in (rows, columns)
        )
        (h, g, c), (h_bis, g_bis, c_bis) = (
            (own, *self._variances(own)) for own in (rows[hidden], columns[hidden_bis])
        )
        place = np.cumsum(visible) - 1
        q, q_bis = (
            self.kernel.moment.diagonal()[place[own]] / self.scale
            for own in (rows[shown], columns[shown_bis])
        )
        found[np.ix_(shown, hidden_bis)] = spread_across(q, c_bis)
        found[np.ix_(hidden, shown_bis)] = spread_across(q_bis, c).T
        left, right = self.loadings[h], self.loadings[h_bis]
        covariance = left @ self.covariance @ right.T
        covariance += (h[:, None] == h_bis) * self.noise[h][:, None]
        explained = left @ (self.moment - self.covariance) @ right.T
        if np.array_equal(h, h_bis):
            covariance, explained = symmetrize(covariance), symmetrize(explained)
        among = spread_among(explained, covariance, ((g, c), (g_bis, c_bis)))
        found[np.ix_(hidden, hidden_bis)] = among
        found *= self.scale
        return found

    def _variances(self, objects: NDArray[np.intp]) -> tuple[Vector, Vector]:
        """Return the explained variance and the conditional variance of hidden objects."""
        own = self.loadings[objects]
        conditional = np.einsum("ij,ij->i", own @ self.covariance, own) + self.noise[objects]
        explained = np.einsum("ij,ij->i", own @ (self.moment - self.covariance), own)
        return np.maximum(explained, 0.0), conditional
