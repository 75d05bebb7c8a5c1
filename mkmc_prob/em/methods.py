"""The methods of ascent by name."""

from typing import Any

from ..errors import KernelError
from ..model.structures import LowRank, Structure
from .em import EM
from .geodesic import Geodesic
from .low_rank_steps import AcceleratedFactors, ExpandedSteps
from .squarem import Squarem
from .state import EMSteps

#: For any positive definite model matrix.
OF_FULL: dict[str, type[EMSteps]] = {"em": EMSteps, "geodesic": Geodesic, "squarem": Squarem}
#: For models of low rank.
OF_LOW_RANK: dict[str, type[EMSteps]] = {
    "em": EMSteps,
    "geodesic": AcceleratedFactors,
    "px-em": ExpandedSteps,
}
METHODS = sorted({*OF_FULL, *OF_LOW_RANK})


def method_of(name: str, em: EM, **options: Any) -> EMSteps:
    """Return the method of this name for an EM; `options` are those of its class.

    Raises
    ------
    KernelError
        If the structure of the model matrix has no such method.
    """
    return check_method(name, em.structure)(em, **options)


def check_method(name: str, structure: Structure) -> type[EMSteps]:
    """Return the class of this name for a structure of the model matrix; raise as `method_of`."""
    own = OF_LOW_RANK if isinstance(structure, LowRank) else OF_FULL
    if name not in own:
        known = ", ".join(map(repr, own))
        raise KernelError(
            f"method: {name!r} found with structure {structure.name!r}, which has {known}."
        )
    return own[name]
