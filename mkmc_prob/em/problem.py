"""What is fitted or sampled: a checked stack, a prior over its objects, degrees of freedom."""

from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..errors import KernelError, LabelError
from ..model.gaussian import GaussianModel
from ..model.prior import WishartPrior
from ..stacks.definite import check_definite
from ..stacks.degrees import degrees_per_kernel
from ..stacks.kernel_stack import KernelStack
from ..stacks.labels import Labels
from ..utils.arguments import real_number

#: The strength of the prior if the user names none.
DEFAULT_STRENGTH = 0.1


class Problem(NamedTuple):
    """A stack of positive semidefinite kernels with the prior over its objects, all checked.

    Attributes
    ----------
    stack : KernelStack
    prior : WishartPrior
        Labeled like the stack, or with the identity as its scale.
    degrees_of_freedom : ndarray, shape (K,)
    """

    stack: KernelStack
    prior: WishartPrior
    degrees_of_freedom: NDArray[np.float64]

    @classmethod
    def of(
        cls, stack: xr.DataArray, prior: WishartPrior, degrees_of_freedom: Any = 1.0
    ) -> "Problem":
        """Check what the user passed; raise as `EM` does."""
        checked = KernelStack.of(stack)
        degrees = degrees_per_kernel(degrees_of_freedom, checked.names)
        check_definite(checked)
        return cls(checked, prior.restricted(checked.objects, checked.objects), degrees)


def one_prior(strength: Any, prior: WishartPrior | None) -> WishartPrior:
    """Return the prior that the arguments `strength` and `prior` mean together.

    Raises
    ------
    KernelError
        If they contradict each other.
    """
    if prior is None:
        return WishartPrior(strength)
    if not isinstance(prior, WishartPrior):
        raise KernelError(f"prior: {prior!r} found; pass WishartPrior(strength, scale).")
    if real_number(strength) not in (DEFAULT_STRENGTH, prior.strength):
        raise KernelError(
            f"strength: {strength!r} found with a prior of strength {prior.strength:g}. Pass one "
            "of the two."
        )
    return prior


def model_over(objects: Labels, model: GaussianModel) -> GaussianModel:
    """Return `model` if it is over `objects` in their order; raise otherwise."""
    if not isinstance(model, GaussianModel):
        raise KernelError(
            f"model: {type(model).__name__} found; pass GaussianModel(matrix, objects=...)."
        )
    if model.objects is not objects and not np.array_equal(model.objects, objects):
        raise LabelError(
            "model: its objects are not those of the stack, in the same order. Build it with "
            "objects=stack['object'].values."
        )
    return model
