"""The Wishart prior of the model matrix (the paper, Section "MKMC is an EM Algorithm")."""

import copy
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike

from ..errors import KernelError
from ..linalg.cholesky import cholesky, inverse
from ..linalg.products import inner
from ..linalg.symmetric import Matrix
from ..stacks.labels import Labels, match
from ..stacks.matrix import check_size, labelled, square_matrix
from ..utils.arguments import checked, positive, whole
from ..utils.memory import check_memory
from .gaussian import GaussianModel


class WishartPrior:
    r"""The prior of the model matrix M: log p(M) = -(lambda/2) (log det M + tr T M^-1) + const.

    The constant is left out throughout. The expression can be read in two ways:

    - as a density of the precision P = M^-1 it is a proper Wishart distribution with
      lambda + l + 1 degrees of freedom and scale (lambda T)^-1, whose mode is T^-1;
    - as a density of M itself it is the kernel of an inverse Wishart distribution with
      lambda - l - 1 degrees of freedom and scale lambda T, which is improper unless lambda > 2 l.

    Equations :eq:`eq-prior` and :eq:`eq-prior-kl` of the derivation.

    The strength is measured in pseudo-observations: it is relative to the sum of the kernels'
    degrees of freedom, and means less if those are larger.

    Parameters
    ----------
    strength
        lambda > 0.
    scale
        T, symmetric positive definite, l x l: labeled (`DataArray`, `DataFrame`), and then aligned
        by label, or a plain array in the order of the objects. The identity if left out.

    Attributes
    ----------
    strength : float
    factors : str
        The structure of the scale if `fit` made it of one, like ``"PPCA(3)"``; else empty.

    Raises
    ------
    KernelError
        If the strength is not a finite number > 0, or the scale not a symmetric matrix.
    IndefiniteKernelError
        If the scale is not positive definite.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import WishartPrior
    >>> prior = WishartPrior(0.5)
    >>> float(prior.log_density(np.eye(3)))
    -0.75
    """

    @checked(strength=positive)
    def __init__(
        self, strength: float, scale: xr.DataArray | pd.DataFrame | ArrayLike | None = None
    ) -> None:
        self._set(
            strength, *((None, None) if scale is None else square_matrix(scale, "prior scale"))
        )
        if self._matrix is not None:
            remedy = "Pass a positive definite scale, or none for the identity."
            cholesky(self._matrix, "prior scale", self._objects, remedy)

    @classmethod
    def of(
        cls,
        strength: float,
        matrix: Matrix | None,
        objects: Labels | None,
        factors: str = "",
    ) -> "WishartPrior":
        """Return the prior with a scale known to be positive definite: it is not factored again.

        `factors` names the structure of the scale if it has one, like ``"PPCA(3)"``.
        """
        prior = cls.__new__(cls)
        prior._set(strength, matrix, objects)
        prior.factors = factors
        return prior

    @classmethod
    def with_constant(cls, strength: float, constant: float, objects: Labels) -> "WishartPrior":
        """Return the prior with the scale I + b J, b > 0, which is formed when it is asked for."""
        prior = cls.of(strength, None, objects)
        prior.constant = constant
        return prior

    def _set(self, strength: float, matrix: Matrix | None, objects: Labels | None) -> None:
        self.strength, self._given, self._objects = strength, matrix, objects
        self.factors, self.constant = "", 0.0
        if matrix is not None:
            matrix.flags.writeable = False

    @property
    def _matrix(self) -> Matrix | None:
        """T as an array, None for the identity."""
        if self._given is None and self.constant:
            assert self._objects is not None
            size = len(self._objects)
            check_memory(8.0 * size**2, f"the prior's scale of {size} objects", "")
            self._given = np.full((size, size), self.constant)
            self._given.flat[:: size + 1] += 1.0
            self._given.flags.writeable = False
        return self._given

    def __repr__(self) -> str:
        scale = "identity"
        if not self.is_identity:
            objects = self._given if self._objects is None else self._objects
            assert objects is not None
            scale = f"{len(objects)} x {len(objects)}"
        scale = self.factors or scale
        return f"WishartPrior(strength={self.strength:g}, scale={scale})"

    @property
    def is_identity(self) -> bool:
        """Whether the scale is the identity (the paper's prior), for any number of objects."""
        return self._given is None and not self.constant

    @cached_property
    def scale(self) -> xr.DataArray | None:
        """T, labeled; None if it is the identity."""
        if self._matrix is None:
            return None
        objects = np.arange(len(self._matrix)) if self._objects is None else self._objects
        return labelled(self._matrix, objects, "scale")

    def scale_matrix(self, objects: Labels | int) -> Matrix:
        """Return T as a plain array for these objects (or this many), in their order.

        Raises
        ------
        LabelError
            If the scale has no row for one of the objects or, without labels, another size.
        """
        labels = objects if isinstance(objects, np.ndarray) else None
        size = whole(least=1)(objects, "objects") if labels is None else len(labels)
        if self._matrix is None:
            return np.eye(size)
        if self._objects is None or labels is None:
            check_size(self._matrix, size, "prior scale")
            return self._matrix
        if labels is self._objects or np.array_equal(labels, self._objects):
            return self._matrix
        places = match(labels, self._objects, "prior scale: no row for object {}. Add it.")
        return self._matrix[np.ix_(places, places)]

    def log_density(self, model: GaussianModel | xr.DataArray | ArrayLike) -> float:
        """Return -(lambda/2) (log det M + tr T M^-1), without the normalizing constant.

        Equation :eq:`eq-prior` of the derivation.
        """
        if not isinstance(model, GaussianModel):
            model = GaussianModel(model)
        if self.is_identity:
            trace = float(np.trace(model.precision))
        else:
            trace = inner(self.scale_matrix(model.objects), model.precision)
        return -0.5 * self.strength * (model.log_determinant + trace)

    def mode(self, objects: Labels | int) -> Matrix:
        """Return T, where log p(M) is largest: the mode of P = M^-1 is T^-1.

        Equation :eq:`eq-prior-mode` of the derivation.
        """
        return self.scale_matrix(objects)

    def precision_distribution(self, objects: Labels | int) -> Any:
        """Return the proper distribution P ~ Wishart(lambda + l + 1, (lambda T)^-1), frozen.

        Equation :eq:`eq-prior-precision` of the derivation.
        """
        from scipy import stats  # slow to import, and only these two methods need it

        scale = self.strength * self.scale_matrix(objects)
        degrees = self.strength + len(scale) + 1
        return stats.wishart(df=degrees, scale=inverse(cholesky(scale, "prior scale")))

    def covariance_distribution(self, objects: Labels | int) -> Any:
        """Return the distribution M ~ inverse Wishart(lambda - l - 1, lambda T), frozen.

        Equation :eq:`eq-prior-covariance` of the derivation.

        Raises
        ------
        KernelError
            If it is improper, that is unless lambda > 2 l.
        """
        from scipy import stats

        scale = self.scale_matrix(objects)
        size = len(scale)
        if self.strength <= 2 * size:
            raise KernelError(
                f"prior: as a density of M it is improper: strength {self.strength:g} is not above "
                f"2 l = {2 * size}. Use precision_distribution, which is always proper."
            )
        return stats.invwishart(df=self.strength - size - 1, scale=self.strength * scale)

    def restricted(self, objects: Labels, keep: Labels) -> "WishartPrior":
        """Return the prior of the objects to `keep`: the same strength, T's block, labeled."""
        if self.is_identity or self._objects is keep:
            return self
        if self.constant:
            match(keep, objects, "prior scale: {} are not among the objects.")
            return WishartPrior.with_constant(self.strength, self.constant, keep)
        places = match(keep, objects, "prior scale: {} are not among the objects.")
        return WishartPrior.of(
            self.strength, self.scale_matrix(objects)[np.ix_(places, places)], keep, self.factors
        )

    @checked(strength=positive)
    def with_strength(self, strength: float) -> "WishartPrior":
        """Return the prior with the same scale, which is not factored again."""
        other = copy.copy(self)
        other.strength = strength
        return other
