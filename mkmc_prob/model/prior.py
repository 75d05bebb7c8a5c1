"""The Wishart prior of the model matrix (the paper, Section "MKMC is an EM Algorithm").

Enters: a strength lambda > 0 and a scale matrix T (the identity in the paper). Leaves: log p(M)
and its mode, and the two distributions that the same formula can be read as.
"""

from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike

from ..errors import KernelError, LabelError
from ..linalg.cholesky import cholesky, inverse
from ..linalg.products import inner
from ..linalg.symmetric import Matrix
from ..stacks.labels import Labels, name_some, positions
from ..stacks.matrix import labelled, square_matrix
from ..utils.arguments import positive_number, real_number, whole_number
from .gaussian import GaussianModel


class WishartPrior:
    r"""The prior of the model matrix M: log p(M) = -(lambda/2) (log det M + tr T M^-1) + const.

    The constant is left out throughout. The same expression has two readings:

    - as a density of the precision P = M^-1 it is a proper Wishart distribution with
      lambda + l + 1 degrees of freedom and scale (lambda T)^-1, whose mode is T^-1;
    - as a density of M itself it is the kernel of an inverse Wishart distribution with
      lambda - l - 1 degrees of freedom and scale lambda T, which is improper unless lambda > 2 l.

    Equations :eq:`eq-prior` and :eq:`eq-prior-kl` of the derivation.

    The strength counts as observations: it is relative to the sum of the degrees of freedom of
    the kernels, and means less where those are larger.

    Parameters
    ----------
    strength
        lambda > 0.
    scale
        T, symmetric positive definite, l x l: labelled (`DataArray`, `DataFrame`), then aligned by
        label wherever it is used, or a plain array in the order of the objects. The identity if
        left out.

    Raises
    ------
    KernelError
        Where the strength is not a finite number > 0, or the scale not a symmetric matrix.
    IndefiniteKernelError
        Where the scale is not positive definite.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import WishartPrior
    >>> prior = WishartPrior(0.5)
    >>> float(prior.log_density(np.eye(3)))
    -0.75
    """

    def __init__(
        self, strength: float, scale: xr.DataArray | pd.DataFrame | ArrayLike | None = None
    ) -> None:
        self.strength = positive_number(strength, "strength")
        self._matrix: Matrix | None = None
        self._objects: Labels | None = None
        if scale is not None:
            self._matrix, self._objects = square_matrix(scale, "prior scale")
            self._matrix.flags.writeable = False
            cholesky(
                self._matrix,
                "prior scale",
                self._objects,
                "Pass a positive definite scale, or none for the identity.",
            )

    def __repr__(self) -> str:
        scale = "identity" if self._matrix is None else f"{len(self._matrix)} x {len(self._matrix)}"
        return f"WishartPrior(strength={self.strength:g}, scale={scale})"

    @property
    def is_identity(self) -> bool:
        """Whether the scale is the identity of whatever size (the paper's prior)."""
        return self._matrix is None

    @cached_property
    def scale(self) -> xr.DataArray | None:
        """T, labelled; None where it is the identity of whatever size."""
        if self._matrix is None:
            return None
        objects = np.arange(len(self._matrix)) if self._objects is None else self._objects
        return labelled(self._matrix, objects, "scale")

    def scale_matrix(self, objects: Labels | int) -> Matrix:
        """Return T as a plain array for these objects (or this many), in their order.

        Raises
        ------
        LabelError
            Where the scale has no row for one of the objects, or (unlabelled) another size.
        """
        labels = objects if isinstance(objects, np.ndarray) else None
        size = whole_number(objects, "objects", least=1) if labels is None else len(labels)
        if self._matrix is None:
            return np.eye(size)
        if self._objects is None or labels is None:
            if len(self._matrix) != size:
                raise LabelError(
                    f"prior scale: it is {len(self._matrix)} x {len(self._matrix)}, for {size} "
                    "objects. Label it, or give it their size."
                )
            return self._matrix
        place = positions(labels, self._objects)
        if (place < 0).any():
            raise LabelError(
                f"prior scale: no row for object {name_some(labels[place < 0])}. Add it."
            )
        return self._matrix[np.ix_(place, place)]

    def log_density(self, model: GaussianModel | xr.DataArray | ArrayLike) -> float:
        """Return -(lambda/2) (log det M + tr T M^-1), without the normalising constant.

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
        """Return the proper reading: P ~ Wishart(lambda + l + 1, (lambda T)^-1), frozen.

        Equation :eq:`eq-prior-precision` of the derivation.
        """
        from scipy import stats  # slow to import, and only the two distributions need it

        scale = self.strength * self.scale_matrix(objects)
        size = len(scale)
        return stats.wishart(
            df=self.strength + size + 1, scale=inverse(cholesky(scale, "prior scale"))
        )

    def covariance_distribution(self, objects: Labels | int) -> Any:
        """Return the other reading: M ~ inverse Wishart(lambda - l - 1, lambda T), frozen.

        Equation :eq:`eq-prior-covariance` of the derivation.

        Raises
        ------
        KernelError
            Where it is improper, that is unless lambda > 2 l.
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
        """Return the prior of the objects to `keep`: the same strength, T's block."""
        if self.is_identity:
            return self
        place = positions(keep, objects)
        block = self.scale_matrix(objects)[np.ix_(place, place)]
        return WishartPrior(self.strength, labelled(block, keep, "scale"))


DEFAULT_STRENGTH = 0.1


def one_prior(strength: Any, prior: WishartPrior | None) -> WishartPrior:
    """Return the prior that the two arguments mean; raise where they contradict each other."""
    if prior is None:
        return WishartPrior(strength)
    if not isinstance(prior, WishartPrior):
        raise KernelError(f"prior: {prior!r} found; pass WishartPrior(strength, scale).")
    if real_number(strength) not in (DEFAULT_STRENGTH, prior.strength):
        raise KernelError(
            f"strength: {strength!r} found beside a prior of strength {prior.strength:g}. Give one "
            "of the two."
        )
    return prior
