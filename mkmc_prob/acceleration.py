"""Steps that climb the penalized log-likelihood: EM's own, and two that need fewer of them.

Enters: the E-step at a model. Leaves: the E-step at the next model, whose log-likelihood is higher.
Every method falls back on an EM step, whose ascent is guaranteed, so that the loop in `ascent`
(trace, monotone check, stopping, final EM step) is the same for all.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from scipy.linalg import blas, lapack

from .em import EM, ExpectedStatistics
from .errors import IndefiniteKernelError
from .linalg import Matrix, inner
from .model import GaussianModel
from .stopping import estimated_gain, recent_rise

#: A step must gain this share of what the slope at its start promises (Armijo's condition).
SUFFICIENT = 1e-4
#: How often a step is shortened before an EM step is taken instead.
SHORTENINGS = 5
#: No entry of a direction is longer, so that exponentials stay in range.
LONGEST = 3.0


class Step(NamedTuple):
    """One step taken.

    `statistics` is the E-step at the new model, `evaluations` counts E-steps; `previous` is the
    model whose EM step gave the new one, None where the new one is not the outcome of an EM step.
    """

    statistics: ExpectedStatistics
    evaluations: int
    previous: GaussianModel | None


class Method(Protocol):
    """What the loop needs of a method."""

    em: EM

    def step(self, statistics: ExpectedStatistics) -> Step:
        """Go on from the model at which `statistics` were taken."""

    def gain_to_come(self, trace: Sequence[float]) -> float:
        """Estimate how much the log-likelihoods in `trace` would still rise, in nats."""


class EMSteps:
    """The paper's algorithm: each step is an M-step and the E-step at its model."""

    def __init__(self, em: EM) -> None:
        self.em = em

    def step(self, statistics: ExpectedStatistics) -> Step:
        """Take one EM step."""
        return Step(self.em.e_step(self.em.m_step(statistics)), 1, statistics.model)

    def gain_to_come(self, trace: Sequence[float]) -> float:
        """Extrapolate the increments; see `estimated_gain`."""
        return estimated_gain(trace)


class Squarem(EMSteps):
    """Squared extrapolation of two EM steps (Varadhan and Roland 2008, their scheme S3).

    With r = F(M) - M and v = F(F(M)) - F(M) - r the step goes to M + 2 a r + a^2 v with
    a = ||r|| / ||v||, 1 at least. Where that is not positive definite or rises less than the first
    EM step, the two EM steps stand.
    """

    def step(self, statistics: ExpectedStatistics) -> Step:
        """Take two EM steps and extrapolate them."""
        once = EMSteps.step(self, statistics).statistics
        twice = self.em.m_step(once)
        r = once.model.matrix - statistics.model.matrix
        v = twice.matrix - once.model.matrix - r
        spent = 1
        if v.any():
            a = max(1.0, float(np.linalg.norm(r) / np.linalg.norm(v)))
            far = statistics.model.matrix + 2 * a * r + a**2 * v
            beyond, level = _evaluate(self.em, GaussianModel.of(far, self.em.objects))
            spent += 1
            if beyond and level >= self.em.penalized_log_likelihood(once.model, once):
                return Step(beyond, spent, None)
        return Step(self.em.e_step(twice), spent + 1, once.model)

    def gain_to_come(self, trace: Sequence[float]) -> float:
        """Take the recent rise for it; see `recent_rise`."""
        return recent_rise(trace)


class Geodesic(EMSteps):
    """L-BFGS in the geometry in which an EM step is a gradient step.

    In the affine-invariant metric of positive definite matrices, with M = B B' and B lower
    triangular, the gradient of L in the frame B is ((lambda + N) / 2) G,
    G = B^-1 F(M) B'^-1 - I. A symmetric direction W becomes the triangular X, its strict lower
    part and half its diagonal, and B (I + X + X^2 / 2) is the next factor: M stays positive
    definite, and the factor is at hand. Frames of different iterates are identified by left
    translation, so the memory of ordinary L-BFGS needs no transport. Symmetric matrices are kept
    as their lower triangles. Beyond the EM map a step costs two triangular products, one product
    B B' and one two-sided triangular solve.

    The first step is an EM step, and so is any that L-BFGS fails to raise L by.
    """

    def __init__(self, em: EM, memory: int = 10) -> None:
        super().__init__(em)
        self.memory = memory
        self._weight = 0.5 * (em.prior.strength + em.total_degrees_of_freedom)
        self._known: _Curvature | None = None

    def step(self, statistics: ExpectedStatistics) -> Step:
        """Search along the L-BFGS direction; take an EM step where that fails."""
        known = self._known
        if known is None or known.statistics is not statistics:
            step = EMSteps.step(self, statistics)
            self._known = _Curvature(step.statistics, self._gradient(step.statistics), ())
            return step
        direction = _two_loop(known.gradient, known.pairs)
        found, spent = self._search(statistics, known.gradient, direction)
        if found is None:
            step = EMSteps.step(self, statistics)
            self._known = _Curvature(step.statistics, self._gradient(step.statistics), ())
            return step._replace(evaluations=spent + 1)
        reached, moved = found
        gradient = self._gradient(reached)
        change = known.gradient - gradient
        pairs = known.pairs
        if _inner(moved, change) > 0:
            pairs = (*pairs, (moved, change))[-self.memory :]
        self._known = _Curvature(reached, gradient, pairs)
        return Step(reached, spent, None)

    def gain_to_come(self, trace: Sequence[float]) -> float:
        """Take the recent rise for it; see `recent_rise`."""
        return recent_rise(trace)

    def _gradient(self, statistics: ExpectedStatistics) -> Matrix:
        """Return the lower triangle of G = B^-1 F(M) B'^-1 - I."""
        target = self.em.m_step(statistics).matrix
        whitened, _ = lapack.dsygst(target.T, statistics.model.cholesky, itype=1, lower=1)
        gradient: Matrix = np.tril(whitened)
        gradient.flat[:: len(gradient) + 1] -= 1.0
        return gradient

    def _search(
        self, statistics: ExpectedStatistics, gradient: Matrix, direction: Matrix
    ) -> tuple[tuple[ExpectedStatistics, Matrix] | None, int]:
        """Return the E-step at a point along `direction` that raises L, and the way there."""
        slope = self._weight * _inner(gradient, direction)
        level = self.em.penalized_log_likelihood(statistics.model, statistics)
        longest = float(np.abs(direction).max())
        length = min(1.0, LONGEST / longest) if longest else 0.0
        spent = 0
        while slope * length > 0 and spent <= SHORTENINGS:
            moved = length * direction
            model = _along(statistics.model, moved)
            reached, new = _evaluate(self.em, model)
            spent += 1
            if reached and new >= level + SUFFICIENT * length * slope:
                return (reached, moved), spent
            # The maximum of the parabola through what is known, within reason.
            bend = level + slope * length - new
            best = 0.5 * slope * length**2 / bend if 0 < bend < np.inf else 0.0
            length = min(max(best, 0.1 * length), 0.5 * length)
        return None, spent


class _Curvature(NamedTuple):
    """What L-BFGS knows: the last point, its gradient, and the (step, change of gradient) pairs."""

    statistics: ExpectedStatistics
    gradient: Matrix
    pairs: tuple[tuple[Matrix, Matrix], ...]


def _evaluate(em: EM, model: GaussianModel) -> tuple[ExpectedStatistics | None, float]:
    """Return the E-step at `model` and its log-likelihood; None and -inf where M is singular."""
    try:
        statistics = em.e_step(model)
    except IndefiniteKernelError:
        return None, -np.inf
    return statistics, em.penalized_log_likelihood(model, statistics)


def _inner(one: Matrix, two: Matrix) -> float:
    """Return <A, B> of symmetric matrices given by their lower triangles."""
    # The same order of entries in both: ravel would copy to make it so.
    return 2.0 * inner(one.T, two.T) - float((np.diagonal(one) * np.diagonal(two)).sum())


def _two_loop(gradient: Matrix, pairs: tuple[tuple[Matrix, Matrix], ...]) -> Matrix:
    """Return H G, H the inverse Hessian of L-BFGS (Nocedal and Wright 2006, Algorithm 7.4)."""
    direction = gradient.copy()
    shares = []
    for moved, change in reversed(pairs):
        share = _inner(moved, direction) / _inner(moved, change)
        direction -= share * change
        shares.append(share)
    if pairs:
        moved, change = pairs[-1]
        direction *= _inner(moved, change) / _inner(change, change)
    for (moved, change), share in zip(pairs, reversed(shares), strict=True):
        direction += (share - _inner(change, direction) / _inner(moved, change)) * moved
    return direction


def _along(model: GaussianModel, moved: Matrix) -> GaussianModel:
    """Return the model with the factor B (I + X + X^2 / 2), X the triangular form of `moved`."""
    triangular = moved.copy(order="F")
    triangular.flat[:: len(moved) + 1] *= 0.5
    series = triangular + blas.dtrmm(0.5, triangular, triangular, lower=1)
    factor = model.cholesky + blas.dtrmm(1.0, model.cholesky, series, lower=1)
    return GaussianModel.of_factor(factor, model.objects)


METHODS: dict[str, type[EMSteps]] = {"em": EMSteps, "geodesic": Geodesic, "squarem": Squarem}
