"""Objects that no kernel shows: set aside before the ascent, filled in by the prior after it.

Enters: the prior, the objects, and which of them are unseen. Leaves: the smaller problem over the
seen objects, and every matrix over them extended to all objects, in closed form. EM would reach
the same limit at the rate N / (lambda + N), in hundreds of steps.
"""

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..errors import LabelError, MKMCError
from ..linalg.cholesky import cholesky, log_determinant, solve
from ..linalg.symmetric import Matrix, symmetrize
from ..model.gaussian import GaussianModel
from ..model.prior import WishartPrior
from ..stacks.labels import Labels, name_some, positions


class Unseen:
    """What the prior says of unseen objects o given the seen r.

    At the maximum the regression of o on r is the prior's, B = T_rr^-1 T_ro, and so is the
    conditional covariance S = T_oo - T_or B (0 and the identity for T = I). The same B and S hold
    for the model and for every completed kernel, since no kernel says anything of o.

    Parameters
    ----------
    prior
        The prior over all objects.
    objects
        The labels of all objects.
    unseen : ndarray of bool
        Which of them no kernel shows.
    """

    def __init__(self, prior: WishartPrior, objects: Labels, unseen: NDArray[np.bool_]) -> None:
        self.prior = prior
        self.objects = objects
        self.seen, self.unseen = np.flatnonzero(~unseen), np.flatnonzero(unseen)
        r, o = self.seen, self.unseen
        scale = prior.scale_matrix(objects)
        factor = cholesky(scale[np.ix_(r, r)], "prior scale", objects[r])
        self.regression = solve(factor, scale[np.ix_(r, o)])
        self.covariance = scale[np.ix_(o, o)] - symmetrize(scale[np.ix_(o, r)] @ self.regression)

    @property
    def log_prior(self) -> float:
        """What the unseen objects add to log p(M) at the maximum: -(lambda/2) (log det S + m)."""
        factor = cholesky(self.covariance, "prior scale", self.objects[self.unseen])
        return -0.5 * self.prior.strength * (log_determinant(factor) + len(self.unseen))

    def restrict_stack(self, stack: xr.DataArray) -> xr.DataArray:
        """Return the stack of the seen objects."""
        return stack.isel(object=self.seen, object_bis=self.seen)

    def restrict_prior(self) -> WishartPrior:
        """Return the prior of the seen objects: the same strength, T's block."""
        return self.prior.restricted(self.objects, self.objects[self.seen])

    def restrict_model(self, given: Any) -> GaussianModel:
        """Return a model that a person gave over all objects, as one of the seen objects.

        Raises
        ------
        LabelError
            Where it has no row for a seen object.
        """
        model = given
        if not isinstance(given, GaussianModel):
            has_labels = isinstance(given, xr.DataArray) or hasattr(given, "columns")
            try:
                model = GaussianModel(given, objects=None if has_labels else self.objects)
            except MKMCError as error:
                raise type(error)(f"initial: {error}") from error
        wanted = self.objects[self.seen]
        place = positions(wanted, model.objects)
        if (place < 0).any():
            raise LabelError(
                f"initial: it has no object {name_some(wanted[place < 0])}. Give a model over all "
                "objects of the stack."
            )
        return GaussianModel.of(model.matrix[np.ix_(place, place)], wanted)

    def extend(self, matrix: Matrix) -> Matrix:
        """Return X over the seen objects extended to all: X_ro = X B, X_oo = S + B' X B."""
        if not len(self.unseen):
            return matrix
        full = np.empty((len(self.objects), len(self.objects)))
        r, o = self.seen, self.unseen
        cross = matrix @ self.regression
        full[np.ix_(r, r)] = matrix
        full[np.ix_(r, o)] = cross
        full[np.ix_(o, r)] = cross.T
        full[np.ix_(o, o)] = self.covariance + symmetrize(self.regression.T @ cross)
        return full
