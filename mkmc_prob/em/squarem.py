"""SQUAREM: squared extrapolation of EM steps."""

import math
from collections.abc import Sequence

import numpy as np

from ..model.gaussian import GaussianModel
from .state import EMSteps, State, evaluate_if_definite
from .stopping import recent_rise


class Squarem(EMSteps):
    """Squared extrapolation of two EM steps (Varadhan and Roland 2008, their scheme S3).

    With r = F(M) - M and v = F(F(M)) - F(M) - r the step goes to M + 2 a r + a^2 v with
    a = ||r|| / ||v||, at least 1. If that is not positive definite or rises less than the first EM
    step does, the two EM steps are kept.
    """

    def step(self, state: State) -> State:
        """Return the state after two EM steps and their extrapolation."""
        assert state.statistics is not None
        start, number = state.model.matrix, state.number + 1
        once = self.em.e_step(self.em.m_step(state.statistics))
        twice = self.em.m_step(once)
        r = once.model.matrix - start
        v = twice.matrix - once.model.matrix - r
        if v.any():
            with np.errstate(all="ignore"):  # the squares of extreme scales under- or overflow
                ratio = float(np.linalg.norm(r) / np.linalg.norm(v))
            a = ratio if 1.0 < ratio < np.inf else 1.0
            far = GaussianModel.of(start + 2 * a * r + a**2 * v, self.em.objects)
            statistics, level = evaluate_if_definite(self.em, far)
            if statistics and level >= self.em.penalized_log_likelihood(once.model, once):
                return State(number, far, state.evaluations + 2, statistics, level)
            return State(number, twice, state.evaluations + 2)
        return State(number, twice, state.evaluations + 1)

    def gain_to_come(self, trace: Sequence[float]) -> float:
        """Return the recent rise; see `recent_rise`."""
        return recent_rise(trace)

    def entries_to_come(self, path: Sequence[float], trace: Sequence[float]) -> float:
        """Return the largest change that the remaining gain allows where only the prior bends L.

        The steps are too uneven to extrapolate the path. Along a geodesic of length u the prior
        falls by (lambda/4) u^2 to second order, and no entry changes by more than u.
        """
        return 2.0 * math.sqrt(self.gain_to_come(trace) / self.em.prior.strength)
