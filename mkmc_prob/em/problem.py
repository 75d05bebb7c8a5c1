"""What is fitted or sampled: a checked stack, a prior over its objects, degrees of freedom."""

from typing import Any, Literal, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..errors import KernelError, LabelError
from ..model.gaussian import GaussianModel
from ..model.prior import WishartPrior
from ..model.sources import Sources
from ..model.structures import FULL, LowRank, Structure, structure_of
from ..stacks.definite import check_definite
from ..stacks.kernel_stack import KernelStack
from ..stacks.labels import Labels, name_some
from ..stacks.lazy_stack import LazyStack
from ..utils.arguments import real_number

#: The strength of the prior if the user names none, in units of kernels. An object of its own:
#: `one_prior` tells it from a 1.0 that the user passed.
DEFAULT_STRENGTH = float("1.0")
#: The paper's model has other units: where it is the only one offered, this is the default.
IDENTICAL_STRENGTH = 0.1


class Problem(NamedTuple):
    """A stack of positive semidefinite kernels, the prior and the sources, all checked.

    Attributes
    ----------
    stack : KernelStack
    prior : WishartPrior
        Labeled like the stack, with the scale T of the sources, or with the identity.
    sources : Sources
        How each kernel relates to the model, and how much it counts.
    structure : Structure
        The structure of the model matrix.
    """

    stack: KernelStack
    prior: WishartPrior
    sources: Sources
    structure: Structure = FULL

    @classmethod
    def of(
        cls,
        stack: xr.DataArray | LazyStack,
        prior: WishartPrior,
        degrees_of_freedom: Any = 1.0,
        sources: Sources | xr.Dataset | Literal["adaptive", "identical"] | None = None,
        *,
        sharing: Any = 1.0,
        structure: Structure = FULL,
    ) -> "Problem":
        """Check what the user passed; raise as `EM` does."""
        if isinstance(stack, LazyStack) and isinstance(structure, LowRank):
            checked: KernelStack = stack  # checked when it was built
        else:
            checked = KernelStack.of(stack)
            check_definite(checked)
        if isinstance(sources, Sources):
            if sources.names != checked.names:
                raise LabelError(
                    f"sources: they are of kernels {name_some(sources.names)}, the stack has "
                    f"{name_some(checked.names)}. Estimate them for this stack."
                )
            if real_number(degrees_of_freedom) != 1.0:
                raise KernelError(
                    "degrees_of_freedom: the sources have theirs. Pass them to "
                    "Sources.estimated(stack, degrees_of_freedom=...)."
                )
            # Checked, and a copy.
            degrees = sources.degrees_of_freedom
            sources = Sources.of_dataset(sources.dataset, checked.names, degrees)
        elif isinstance(sources, xr.Dataset):
            sources = Sources.of_dataset(sources, checked.names, degrees_of_freedom)
        elif sources == "adaptive":
            sources = Sources.estimated(
                checked, sharing=sharing, degrees_of_freedom=degrees_of_freedom
            )
        else:
            sources = Sources.identical(checked.names, degrees_of_freedom)
        prior = prior.restricted(checked.objects, checked.objects)
        if not prior.is_identity:
            sources = sources.without_shared_constant()
        return cls(checked, sources.prior(prior, checked.objects), sources, structure)

    def check_structure(self, what: str = "structure") -> None:
        """Raise KernelError if no model of the structure fits the objects, prior and sharings.

        `what` is the argument that named the structure.
        """
        if not isinstance(self.structure, LowRank):
            return
        if self.structure.rank >= len(self.stack.objects):
            raise KernelError(
                f"{what}: rank {self.structure.rank} found for {len(self.stack.objects)} "
                "objects; it must be smaller."
            )
        least = float(self.sources.sharing.min())
        if least < 1.0 and not (self.sources.shared_constant or self.prior.is_identity):
            raise KernelError(
                f"sharing: {least:g} found with a scale of the prior and a structure of low rank. "
                "Leave the scale out, or use sharing 1."
            )

    def with_strength(self, strength: float) -> "Problem":
        """Return the problem with another strength of the prior."""
        return self._replace(prior=self.prior.with_strength(strength))

    def with_kernels(self, places: NDArray[np.intp]) -> "Problem":
        """Return the problem of the kernels at these positions, with the same prior."""
        return self._replace(
            stack=self.stack.with_kernels(places), sources=self.sources.with_kernels(places)
        )


def problem_of(
    stack: xr.DataArray | LazyStack,
    prior: WishartPrior,
    *,
    degrees_of_freedom: Any = 1.0,
    sources: Any = "adaptive",
    sharing: Any = 1.0,
    structure: Any = "full",
    in_memory: bool = True,
) -> Problem:
    """Return the problem that the arguments of `fit` describe.

    With `in_memory` a `LazyStack` is refused.

    Raises
    ------
    KernelError, LabelError, IndefiniteKernelError
        As `fit` does.
    """
    if not isinstance(sources, xr.Dataset):
        sources = _named_sources(sources)
    if isinstance(sources, xr.Dataset) or sources == "identical":
        _refuse_sharing(sharing, sources)
    return Problem.of(
        KernelStack.of(stack).array if in_memory and isinstance(stack, LazyStack) else stack,
        prior,
        degrees_of_freedom,
        sources,
        sharing=sharing,
        structure=structure_of(structure),
    )


def _named_sources(sources: Any) -> str:
    """Return `sources` if it is one of the two names; raise KernelError otherwise."""
    if isinstance(sources, str) and sources in ("adaptive", "identical"):
        return str(sources)
    found = repr(sources) if isinstance(sources, str) else type(sources).__name__
    raise KernelError(
        f"sources: {found} found; 'adaptive', 'identical' or a Dataset like result.sources is "
        "needed."
    )


def _refuse_sharing(sharing: Any, sources: str | xr.Dataset) -> None:
    """Raise KernelError unless `sharing` was left out."""
    if real_number(sharing) != 1.0:
        given = "identical sources share all" if isinstance(sources, str) else "sources holds it"
        raise KernelError(
            f'sharing: {sharing!r} found, but {given}. Leave it out, or use sources="adaptive".'
        )


def one_prior(
    strength: Any, prior: WishartPrior | None, default: float = DEFAULT_STRENGTH
) -> WishartPrior:
    """Return the prior that the arguments `strength` and `prior` mean together.

    Raises
    ------
    KernelError
        If they contradict each other.
    """
    if prior is None:
        return WishartPrior(strength)
    if isinstance(prior, LowRank):
        raise KernelError(
            f"prior: {prior.name} found; only fit takes one. Pass it to select_model or complete "
            "in priors."
        )
    if not isinstance(prior, WishartPrior):
        raise KernelError(f"prior: {prior!r} found; pass WishartPrior(strength, scale).")
    if strength is not default and real_number(strength) != prior.strength:
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
