"""The sampler of each structure of the model matrix."""

from ..em.em import EM
from ..errors import KernelError
from ..model.structures import FULL
from .gibbs import GibbsSampler
from .sampler import Sampler


def sampler_of(em: EM) -> Sampler:
    """Return the sampler for the structure of an `EM`.

    Raises
    ------
    KernelError
        If there is none, or as the sampler does.
    """
    if em.structure != FULL:
        raise KernelError(
            f'structure: {em.structure.name} found; there is a sampler for "full" only. '
            "Leave it out."
        )
    return GibbsSampler(em)
