"""The geodesic method: L-BFGS in the geometry in which an EM step is a gradient step."""

from scipy.linalg import blas, lapack

from ..linalg.symmetric import Triangle, Vector
from ..model.gaussian import GaussianModel
from .expected import ExpectedStatistics
from .full import FullEM
from .lbfgs import Accelerated
from .state import State
from .stopping import RECENT_STEPS


class Geodesic(Accelerated):
    """L-BFGS in the geometry in which an EM step is a gradient step.

    In the affine-invariant metric of positive definite matrices, with M = B B' and B lower
    triangular, the gradient of L in the frame B is ((lambda + N) / 2) G,
    G = B^-1 F(M) B'^-1 - I. A symmetric direction W becomes the triangular X, its strict lower
    part and half its diagonal, and B (I + X + X^2 / 2) is the next factor: M stays positive
    definite, and the factor is at hand. Frames of different iterates are identified by left
    translation, so the memory of ordinary L-BFGS needs no transport. Beyond the EM map a step
    costs two triangular products, one product B B' and one two-sided triangular solve.
    Equations :eq:`eq-gradient`, :eq:`eq-gradient-step` and :eq:`eq-step` of the derivation.
    """

    em: FullEM

    def __init__(self, em: FullEM, memory: int = 10, fewest: int = RECENT_STEPS) -> None:
        super().__init__(em, memory, fewest)
        self._triangle = Triangle(len(em.objects))

    def _gradient(self, state: State) -> Vector:
        """Return G = B^-1 F(M) B'^-1 - I at an evaluated state, as a vector."""
        assert isinstance(state.statistics, ExpectedStatistics)
        out = self.em.space.factored.array(*self._triangle.shape)
        target = self.em.update(state.statistics, out)
        whitened, _ = lapack.dsygst(target.T, state.model.cholesky, itype=1, lower=1, overwrite_a=1)
        whitened.T.flat[:: len(target) + 1] -= 1.0
        return self._triangle.vector(whitened)

    def _along(self, state: State, moved: Vector) -> GaussianModel:
        """Return the model with the factor B (I + X + X^2 / 2)."""
        # The E-step is done with these two buffers: no more memory is needed.
        x = self._triangle.matrix(moved, self.em.space.factored.array(*self._triangle.shape))
        series = self.em.space.across.array(*self._triangle.shape).T
        series[...] = x
        blas.dtrmm(0.5, x, series, lower=1, overwrite_b=1)
        series += x
        factor = blas.dtrmm(1.0, state.model.cholesky, series, lower=1)
        factor += state.model.cholesky
        return GaussianModel.of_factor(factor, state.model.objects)
