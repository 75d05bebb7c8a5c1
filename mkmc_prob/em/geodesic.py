"""Steps that climb the same penalized log-likelihood as EM's, and of which fewer are needed.

Enters: the position of an ascent. Leaves: the next, whose log-likelihood is higher. Every method
falls back on an EM step, whose ascent is guaranteed.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg import blas, lapack

from ..linalg.symmetric import Matrix, Triangle, Vector
from ..model.gaussian import GaussianModel
from .em import EM
from .steps import EMSteps, Position, evaluate_if_definite
from .stopping import recent_rise

#: A step must gain this share of what the slope at its start promises (Armijo's condition).
SUFFICIENT = 1e-4


#: How often a step is shortened before an EM step is taken instead.
SHORTENINGS = 5


#: No entry of a direction is longer, so that the factors stay in range.
LONGEST = 3.0


class Geodesic(EMSteps):
    """L-BFGS in the geometry in which an EM step is a gradient step.

    In the affine-invariant metric of positive definite matrices, with M = B B' and B lower
    triangular, the gradient of L in the frame B is ((lambda + N) / 2) G,
    G = B^-1 F(M) B'^-1 - I. A symmetric direction W becomes the triangular X, its strict lower
    part and half its diagonal, and B (I + X + X^2 / 2) is the next factor: M stays positive
    definite, and the factor is at hand. Frames of different iterates are identified by left
    translation, so the memory of ordinary L-BFGS needs no transport. Beyond the EM map a step
    costs two triangular products, one product B B' and one two-sided triangular solve.
    Equations :eq:`eq-gradient`, :eq:`eq-gradient-step` and :eq:`eq-step` of the derivation.

    The first step is an EM step, and so is any that L-BFGS fails to raise L by.

    Parameters
    ----------
    em
        What to climb.
    memory
        How many (step, change of gradient) pairs are kept.
    """

    remedy = "Raise max_iter, or continue with initial=result; a larger strength needs fewer steps."

    def __init__(self, em: EM, memory: int = 10) -> None:
        super().__init__(em)
        self.memory = memory
        self._weight = 0.5 * (em.prior.strength + em.total_degrees_of_freedom)
        self._triangle = Triangle(len(em.objects))
        self._known: _Curvature | None = None

    def step(self, position: Position) -> None:
        """Search along the L-BFGS direction; take an EM step where that fails."""
        known = self._known
        if known is None or known.number != position.number:
            self._em_step(position)
            return
        moved = self._search(position, known)
        if moved is None:
            self._em_step(position)
            return
        gradient = self._gradient(position)
        change = known.gradient - gradient
        pairs = known.pairs
        if blas.ddot(moved, change) > 0:
            pairs = (*pairs, Pair.of(moved, change))[-self.memory :]
        self._known = _Curvature(position.number, gradient, pairs)

    def gain_to_come(self, trace: Sequence[float]) -> float:
        """Take the recent rise for it; see `recent_rise`."""
        return recent_rise(trace)

    def _em_step(self, position: Position) -> None:
        self._known = None
        super().step(position)
        self._known = _Curvature(position.number, self._gradient(position), ())

    def _gradient(self, position: Position) -> Vector:
        """Return G = B^-1 F(M) B'^-1 - I at the position, as a vector."""
        target = self.em.update(position.statistics, self._buffer("factored"))
        whitened, _ = lapack.dsygst(
            target.T, position.model.cholesky, itype=1, lower=1, overwrite_a=1
        )
        whitened.T.flat[:: len(target) + 1] -= 1.0
        gradient = self._triangle.vector(whitened)
        position.gradient_norm = float(blas.dnrm2(gradient))
        return gradient

    def _search(self, position: Position, known: "_Curvature") -> Vector | None:
        """Move along the L-BFGS direction to a point that raises L; return the way there."""
        direction = two_loop(known.gradient, known.pairs)
        slope = self._weight * blas.ddot(known.gradient, direction)
        level = position.level
        position.model.forget_precision()
        longest = float(np.abs(direction).max())
        length = min(1.0, LONGEST / longest) if longest else 0.0
        for _ in range(SHORTENINGS + 1):
            if not slope * length > 0:
                break
            model = self._along(position.model, length * direction)
            reached, new = evaluate_if_definite(position, model)
            if reached and new >= level + SUFFICIENT * length * slope:
                position.move(model, reached, length=length * blas.dnrm2(direction))
                return length * direction
            # The maximum of the parabola through what is known, within reason.
            bend = level + slope * length - new
            best = 0.5 * slope * length**2 / bend if 0 < bend < np.inf else 0.0
            length = min(max(best, 0.1 * length), 0.5 * length)
        return None

    def _along(self, model: GaussianModel, moved: Vector) -> GaussianModel:
        """Return the model with the factor B (I + X + X^2 / 2)."""
        x = self._triangle.matrix(moved, self._buffer("factored"))
        series = self._buffer("across").T
        series[...] = x
        blas.dtrmm(0.5, x, series, lower=1, overwrite_b=1)
        series += x
        factor = blas.dtrmm(1.0, model.cholesky, series, lower=1)
        factor += model.cholesky
        return GaussianModel.of_factor(factor, model.objects)

    def _buffer(self, name: str) -> Matrix:
        # The E-step is done with them: no more memory is needed.
        return self.em.space.array(name, *self._triangle.shape)


class Pair(NamedTuple):
    """A step, the change of the (negated) gradient along it, and their inner product."""

    moved: Vector
    change: Vector
    product: float

    @classmethod
    def of(cls, moved: Vector, change: Vector) -> "Pair":
        """Return the pair of the two."""
        return cls(moved, change, float(blas.ddot(moved, change)))


class _Curvature(NamedTuple):
    """What L-BFGS knows: at which position, the gradient there, and the pairs."""

    number: int
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
        # The last pair's ratio swings from step to step; that of the sums is steadier.
        products = sum(product for _, _, product in pairs)
        direction *= products / sum(blas.ddot(change, change) for _, change, _ in pairs)
    for (moved, change, product), share in zip(pairs, reversed(shares), strict=True):
        rest = share - blas.ddot(change, direction) / product
        direction = blas.daxpy(moved, direction, a=rest)
    return direction
