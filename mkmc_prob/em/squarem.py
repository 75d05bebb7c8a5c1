"""SQUAREM: squared extrapolation of EM steps."""

from collections.abc import Sequence

import numpy as np

from ..model.gaussian import GaussianModel
from .steps import EMSteps, Position, evaluate_if_definite
from .stopping import recent_rise


class Squarem(EMSteps):
    """Squared extrapolation of two EM steps (Varadhan and Roland 2008, their scheme S3).

    With r = F(M) - M and v = F(F(M)) - F(M) - r the step goes to M + 2 a r + a^2 v with
    a = ||r|| / ||v||, 1 at least. Where that is not positive definite or rises less than the first
    EM step, the two EM steps stand.
    """

    def step(self, position: Position) -> None:
        """Take two EM steps and extrapolate them."""
        start = position.model.matrix
        once = position.evaluate(self.em.m_step(position.statistics))
        twice = self.em.m_step(once)
        r = once.model.matrix - start
        v = twice.matrix - once.model.matrix - r
        if v.any():
            with np.errstate(all="ignore"):  # at far scales their squares under- or overflow
                ratio = float(np.linalg.norm(r) / np.linalg.norm(v))
            a = ratio if 1.0 < ratio < np.inf else 1.0
            far = GaussianModel.of(start + 2 * a * r + a**2 * v, self.em.objects)
            beyond, level = evaluate_if_definite(position, far)
            if beyond and level >= self.em.penalized_log_likelihood(once.model, once):
                position.move(far, beyond)
                return
        position.move(twice)

    def gain_to_come(self, trace: Sequence[float]) -> float:
        """Take the recent rise for it; see `recent_rise`."""
        return recent_rise(trace)
