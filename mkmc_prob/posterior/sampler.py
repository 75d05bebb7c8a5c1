"""What chains need of a sampler, whatever the structure of the model matrix."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..em.em import EM
from ..linalg.symmetric import Vector
from ..model.gaussian import GaussianModel

#: What a step starts from: the Cholesky ``factor`` of the model matrix, or its ``loadings`` and
#: ``noise``; and the ``constant`` of each kernel.
Parameters: TypeAlias = dict[str, NDArray[np.float64]]


class Drawn(NamedTuple):
    """One draw from the posterior.

    Attributes
    ----------
    lp : float
        The log posterior of the model's parameters and the constants, up to a constant.
    model : GaussianModel
        M.
    hidden : ndarray
        The hidden entries, in the order of `CompletedDraw.hidden`.
    constants : ndarray, shape (K,)
        c_k, drawn or held.
    """

    lp: float
    model: GaussianModel
    hidden: NDArray[np.float64]
    constants: Vector


class Sampler(Protocol):
    """A Markov chain whose stationary distribution is the posterior."""

    @property
    def em(self) -> EM:
        """The kernels, the prior, the sources and the structure."""

    @property
    def size(self) -> int:
        """The number of hidden entries."""

    @property
    def ranks(self) -> NDArray[np.intp]:
        """The numerical rank of each visible block."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The names of the parameters and the shapes of their arrays."""

    def start(self, rng: np.random.Generator) -> Parameters:
        """Draw a start that is more dispersed than the posterior."""

    def step(self, parameters: Parameters, rng: np.random.Generator) -> tuple[Drawn, Parameters]:
        """Return a draw at `parameters`, and the next parameters."""

    def model_at(self, parameters: Parameters) -> GaussianModel:
        """Return the model of `parameters`."""
