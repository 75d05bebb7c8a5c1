"""Objects that no kernel shows: left out of the ascent, and filled in from the prior afterwards.

The closed form is the limit of EM, which would approach it at the rate N / (lambda + N), in
hundreds of steps.
"""

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..errors import MKMCError
from ..linalg.cholesky import cholesky, log_determinant, solve
from ..linalg.symmetric import Matrix, symmetrize
from ..model.gaussian import GaussianModel
from ..model.prior import WishartPrior
from ..stacks.labels import Labels, match


class Unseen:
    """The distribution of unseen objects o given the seen objects r under the prior.

    At the maximum the regression of o on r is the prior's, B = T_rr^-1 T_ro, and so is the
    conditional covariance S = T_oo - T_or B (0 and the identity for T = I). The same B and S hold
    for the model and for every completed kernel, since no kernel has information on o.

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
        self.prior, self.objects = prior, objects
        self.seen, self.unseen = np.flatnonzero(~unseen), np.flatnonzero(unseen)
        if not len(self.unseen):
            return  # nothing to fill in: the prior need not be factored
        r, o = self.seen, self.unseen
        scale = prior.scale_matrix(objects)
        factor = cholesky(scale[np.ix_(r, r)], "prior scale", objects[r])
        self.regression = solve(factor, scale[np.ix_(r, o)])
        self.covariance = scale[np.ix_(o, o)] - symmetrize(scale[np.ix_(o, r)] @ self.regression)

    @property
    def log_prior(self) -> float:
        """What the unseen objects add to log p(M) at the maximum, -(lambda/2) (log det S + m)."""
        if not len(self.unseen):
            return 0.0
        factor = cholesky(self.covariance, "prior scale", self.objects[self.unseen])
        return -0.5 * self.prior.strength * (log_determinant(factor) + len(self.unseen))

    def restrict_prior(self) -> WishartPrior:
        """Return the prior of the seen objects: the same strength, T's block."""
        if not len(self.unseen):
            return self.prior
        return self.prior.restricted(self.objects, self.objects[self.seen])

    def restrict_model(self, given: Any) -> GaussianModel:
        """Return the model that the user passed, over the seen objects.

        Raises
        ------
        LabelError
            If it has no row for a seen object.
        """
        model: GaussianModel = given
        if not isinstance(given, GaussianModel):
            has_labels = isinstance(given, xr.DataArray) or hasattr(given, "columns")
            try:
                model = GaussianModel(given, objects=None if has_labels else self.objects)
            except MKMCError as error:
                raise type(error)(f"initial: {error}") from error
        wanted = self.objects[self.seen]
        unmatched = "initial: it has no object {}. Pass a model over all objects of the stack."
        places = match(wanted, model.objects, unmatched)
        return model.restricted(places, wanted)

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
