"""What chains need of a sampler, whatever the structure of the model matrix."""

from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..em.em import EM
from ..linalg.symmetric import Vector
from ..model.gaussian import GaussianModel

#: What a step starts from: for the full structure the Cholesky ``factor`` of the model matrix, and
#: the ``constant`` of each kernel if any is drawn.
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
    """A Markov chain whose stationary distribution is the posterior.

    Attributes
    ----------
    em : EM
        The kernels, the prior, the sources and the structure.
    size : int
        The number of hidden entries.
    ranks : ndarray of int, shape (K,)
        The numerical rank of each visible block.
    shapes : dict
        The parameters' names and the shapes of their arrays.
    """

    em: EM
    size: int
    ranks: NDArray[np.intp]
    shapes: dict[str, tuple[int, ...]]

    def start(self, rng: np.random.Generator) -> Parameters:
        """Draw a start that is more dispersed than the posterior."""

    def step(self, parameters: Parameters, rng: np.random.Generator) -> tuple[Drawn, Parameters]:
        """Return a draw of which `parameters` are the model's, and the next parameters."""
