"""The structure of the model matrix: what EM needs of M besides its conditional distributions."""

from typing import Any, Protocol

import numpy as np

from ..errors import KernelError
from ..linalg.symmetric import Matrix
from ..stacks.labels import Labels
from .gaussian import GaussianModel


class Structure(Protocol):
    """A set of model matrices, with the start of an ascent and the M-step within the set."""

    name: str

    def start(self, scale: Matrix, objects: Labels) -> GaussianModel:
        """Return the model that an ascent starts from; `scale` is T, the mode of the prior."""

    def maximum(
        self, moment: Matrix, strength: float, scale: Matrix | None, weight: float, out: Matrix
    ) -> Matrix:
        """Put the M-step's matrix into `out`; return it.

        `moment` is S, the expected statistic, `scale` is T (None for the identity), and `weight` is
        lambda + N.
        """


class Full:
    """Any positive definite matrix."""

    name = "full"

    def start(self, scale: Matrix, objects: Labels) -> GaussianModel:
        """Return M = T."""
        return GaussianModel.of(scale.copy(), objects)

    def maximum(
        self, moment: Matrix, strength: float, scale: Matrix | None, weight: float, out: Matrix
    ) -> Matrix:
        """Put (lambda T + S) / (lambda + N) into `out`; return it."""
        if scale is None:
            np.divide(moment, weight, out=out)
            out.flat[:: len(out) + 1] = (strength + np.diagonal(moment)) / weight
            return out
        np.multiply(scale, strength, out=out)
        out += moment
        out /= weight
        return out


FULL = Full()


def structure_of(value: Any, what: str = "structure") -> Structure:
    """Return the structure that the user named."""
    if not isinstance(value, str) or value != FULL.name:
        raise KernelError(f"{what}: {value!r} found; 'full' is needed.")
    return FULL
