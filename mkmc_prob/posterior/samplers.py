"""The sampler for each structure of the model matrix."""

from ..em.em import EM
from ..em.low_rank import LowRankEM
from .factor_gibbs import FactorGibbsSampler
from .gibbs import GibbsSampler
from .sampler import Sampler


def sampler_of(em: EM) -> Sampler:
    """Return the sampler for the structure of an `EM`; raise as it does."""
    return FactorGibbsSampler(em) if isinstance(em, LowRankEM) else GibbsSampler(em)
