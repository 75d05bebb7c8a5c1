"""L-BFGS in EM's own metric: what the accelerated methods have in common."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg import blas

from ..linalg.symmetric import Vector
from ..model.gaussian import GaussianModel
from .em import EM
from .state import EMSteps, State, evaluate_if_definite
from .stopping import RECENT_STEPS, recent_rise

#: A step must gain this share of what the slope at its start promises (Armijo's condition).
SUFFICIENT = 1e-4
#: How often a step is shortened before an EM step is taken instead.
SHORTENINGS = 5
#: No entry of a direction is longer, so that the factors stay in range.
LONGEST = 3.0


class Accelerated(EMSteps):
    """L-BFGS in coordinates in which an EM step is, to first order, a gradient step of length 1.

    `_gradient` gives the gradient in these coordinates, divided by `EM.metric_weight`, and `_along`
    moves a model by a vector in them. The coordinates of different iterates are identified, so the
    memory of ordinary L-BFGS needs no transport.

    The first step is an EM step, and so is every step whose L-BFGS direction does not raise L.

    Parameters
    ----------
    em
        The problem.
    memory
        How many pairs (step, change of gradient) are kept.
    fewest
        The fewest steps in each of the two windows by which the remaining gain is estimated.
    """

    remedy = "Raise max_iter, or continue with initial=result; a larger strength needs fewer steps."

    def __init__(self, em: EM, memory: int = 10, fewest: int = RECENT_STEPS) -> None:
        super().__init__(em)
        self.memory, self.fewest = memory, fewest

    def step(self, state: State) -> State:
        """Return the state after a search along the L-BFGS direction, or after an EM step."""
        moved: Vector | None = None
        if state.memory is not None:
            after, moved = self._search(state)
        if moved is None:
            after = super().step(state)._replace(evaluations=state.evaluations)
        after = after.evaluated(self.em)
        gradient = self._gradient(after)
        pairs: tuple[Pair, ...] = ()
        if moved is not None:
            pairs, change = state.memory.pairs, state.memory.gradient - gradient
            if blas.ddot(moved, change) > 0:
                pairs = (*pairs, Pair.of(moved, change))[-self.memory :]
        norm = float(blas.dnrm2(gradient))
        return after._replace(gradient_norm=norm, memory=Curvature(gradient, pairs))

    def gain_to_come(self, trace: Sequence[float]) -> float:
        """Return the recent rise; see `recent_rise`."""
        return recent_rise(trace, self.fewest)

    def _gradient(self, state: State) -> Vector:
        """Return the gradient at an evaluated state, divided by the weight of the metric."""
        raise NotImplementedError

    def _along(self, state: State, moved: Vector) -> GaussianModel:
        """Return the model of an evaluated state, moved."""
        raise NotImplementedError

    def _search(self, state: State) -> tuple[State, Vector | None]:
        """Return the first state along the L-BFGS direction that raises L, and the way there.

        Without success `state` itself, with its evaluations counted, and None.
        """
        direction = two_loop(state.memory.gradient, state.memory.pairs)
        slope = self.em.metric_weight * blas.ddot(state.memory.gradient, direction)
        longest = float(np.abs(direction).max())
        length = min(1.0, LONGEST / longest) if longest else 0.0
        for _ in range(SHORTENINGS + 1):
            if not slope * length > 0:
                break
            model = self._along(state, length * direction)
            statistics, level = evaluate_if_definite(self.em, model)
            state = state._replace(evaluations=state.evaluations + 1)
            if statistics and level >= state.level + SUFFICIENT * length * slope:
                number, distance = state.number + 1, length * blas.dnrm2(direction)
                after = State(number, model, state.evaluations, statistics, level, length=distance)
                return after, length * direction
            # The maximum of the parabola through what is known, within limits.
            bend = state.level + slope * length - level
            best = 0.5 * slope * length**2 / bend if 0 < bend < np.inf else 0.0
            length = min(max(best, 0.1 * length), 0.5 * length)
        return state, None


class Pair(NamedTuple):
    """A step, the change of the (negated) gradient along it, and their inner product."""

    moved: Vector
    change: Vector
    product: float

    @classmethod
    def of(cls, moved: Vector, change: Vector) -> "Pair":
        """Return the pair of the two."""
        return cls(moved, change, float(blas.ddot(moved, change)))


class Curvature(NamedTuple):
    """What L-BFGS carries from step to step: the gradient at the model, and the pairs."""

    gradient: Vector
    pairs: tuple[Pair, ...]


def two_loop(gradient: Vector, pairs: tuple[Pair, ...]) -> Vector:
    """Return H g, H the inverse Hessian of L-BFGS (Nocedal and Wright 2006, Algorithm 7.4)."""
    direction = gradient.copy()
    shares = []
    for moved, change, product in reversed(pairs):
        share = blas.ddot(moved, direction) / product
        direction = blas.daxpy(change, direction, a=-share)
        shares.append(share)
    if pairs:
        # The last pair's ratio varies from step to step; that of the sums is more stable.
        products = sum(product for _, _, product in pairs)
        direction *= products / sum(blas.ddot(change, change) for _, change, _ in pairs)
    for (moved, change, product), share in zip(pairs, reversed(shares), strict=True):
        rest = share - blas.ddot(change, direction) / product
        direction = blas.daxpy(moved, direction, a=rest)
    return direction
