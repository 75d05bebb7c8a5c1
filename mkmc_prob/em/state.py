"""The state of an ascent, what the loop needs of a method of ascent, and plain EM as one."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..errors import IndefiniteKernelError
from ..model.gaussian import GaussianModel
from .em import EM
from .expected import KernelExpectations
from .stopping import estimated_gain


class State(NamedTuple):
    """The model that an ascent has reached, and what is known there.

    Attributes
    ----------
    number : int
        How many steps led here.
    model : GaussianModel
    evaluations : int
        How many E-steps were taken so far.
    statistics : KernelExpectations or None
        The E-step at `model`, once it was taken.
    level : float
        The penalized log-likelihood of `model`; NaN before the E-step.
    by_em : bool
        Whether the last step was an EM step.
    length : float
        The length of the last step in the affine-invariant metric; NaN if the method does not
        compute it.
    gradient_norm : float
        The norm of the gradient G at `model`; NaN if the method does not compute it.
    memory : object
        What the method carries from step to step.
    """

    number: int
    model: GaussianModel
    evaluations: int = 0
    statistics: KernelExpectations | None = None
    level: float = math.nan
    by_em: bool = False
    length: float = math.nan
    gradient_norm: float = math.nan
    memory: Any = None

    def evaluated(self, em: EM) -> "State":
        """Return the state with the E-step at its model."""
        if self.statistics is not None:
            return self
        statistics = em.e_step(self.model)
        level = em.penalized_log_likelihood(self.model, statistics)
        count = self.evaluations + 1
        return self._replace(statistics=statistics, level=level, evaluations=count)

    def without_precision(self) -> "State":
        """Return the state without the memory that M^-1 takes; a step does not need it."""
        if self.statistics is None:
            return self._replace(model=self.model.without_precision())
        statistics = self.statistics.without_precision()
        return self._replace(model=statistics.model, statistics=statistics)


class Method(Protocol):
    """What the loop needs of a method; `remedy` is advice for the non-convergence warning."""

    remedy: str

    @property
    def em(self) -> EM:
        """The problem."""

    def step(self, state: State) -> State:
        """Return the next state, of a model at least as likely as that of an evaluated `state`."""

    def gain_to_come(self, trace: Sequence[float]) -> float:
        """Estimate the remaining gain in nats from the log-likelihoods in `trace`."""

    def entries_to_come(self, path: Sequence[float], trace: Sequence[float]) -> float:
        """Estimate the largest remaining change of an entry of M, by sqrt(M_ii M_jj).

        `path` sums the largest changes of the steps so far.
        """


class EMSteps:
    """The paper's algorithm: the M-step of the expected statistics gives the next model."""

    remedy = (
        'Use method="geodesic", which needs fewer steps, raise max_iter, or continue with '
        "initial=result."
    )

    def __init__(self, em: EM) -> None:
        self.em = em

    def step(self, state: State) -> State:
        """Return the state after one EM step."""
        assert state.statistics is not None
        model = self.em.m_step(state.statistics)
        return State(state.number + 1, model, state.evaluations, by_em=True)

    def gain_to_come(self, trace: Sequence[float]) -> float:
        """Extrapolate the increments; see `estimated_gain`."""
        return estimated_gain(trace)

    def entries_to_come(self, path: Sequence[float], trace: Sequence[float]) -> float:
        """Extrapolate the path as the log-likelihood."""
        return self.gain_to_come(path)


def evaluate_if_definite(em: EM, model: GaussianModel) -> tuple[KernelExpectations | None, float]:
    """Return the E-step at `model` and its log-likelihood; None and -inf if M is singular."""
    try:
        statistics = em.e_step(model)
    except IndefiniteKernelError:
        return None, -np.inf
    if not em.is_sound(statistics):
        return None, -np.inf
    return statistics, em.penalized_log_likelihood(model, statistics)
