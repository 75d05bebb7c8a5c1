"""The methods of ascent for models of low rank."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..linalg.cholesky import half_solve
from ..linalg.symmetric import Matrix, Vector
from ..model.factors import factor_cholesky
from ..model.low_rank import LowRankModel
from ..model.structures import PPCA
from .lbfgs import Accelerated
from .low_rank import LowRankEM, LowRankStatistics
from .state import EMSteps, State


class ExpandedSteps(EMSteps):
    """Parameter-expanded EM: the variance of the factors is estimated, too, at every step."""

    em: LowRankEM

    def step(self, state: State) -> State:
        """Return the state after one step."""
        assert isinstance(state.statistics, LowRankStatistics)
        model = self.em.expanded_m_step(state.statistics)
        return State(state.number + 1, model, state.evaluations)


class AcceleratedFactors(Accelerated):
    """L-BFGS for the loadings and the logarithms of the noise, in EM's own metric.

    The metric is the negative second derivative of the Q-function: A_i / d_i for row i of W, and
    (N_i + a) / 2 for log d_i. So the gradient in it is, to first order, an EM step.
    Equation :eq:`eq-factor-gradient` of the derivation.
    """

    em: LowRankEM

    def _gradient(self, state: State) -> Vector:
        """Return the gradient, whitened: sqrt(d_i) C^-1 (dL/dw_i) with A_i = C C'."""
        assert isinstance(state.statistics, LowRankStatistics)
        by_loadings, by_noise = self.em.gradient(state.statistics)
        frame = Frame.of(self.em, state.statistics)
        return np.concatenate([frame.whitened(by_loadings).ravel(), by_noise / frame.of_noise])

    def _along(self, state: State, moved: Vector) -> LowRankModel:
        """Return the model with W and log d moved."""
        assert isinstance(state.statistics, LowRankStatistics)
        frame, model = Frame.of(self.em, state.statistics), state.statistics.model
        count = model.factor_loadings.size
        step = frame.unwhitened(moved[:count].reshape(model.factor_loadings.shape))
        noise = model.noise_variances * np.exp(moved[count:] / frame.of_noise)
        return LowRankModel.of(model.factor_loadings + step, noise, model.objects)


class Frame(NamedTuple):
    """The coordinates at a model in which EM's metric is the identity.

    Attributes
    ----------
    factors : ndarray, shape (patterns, q, q)
        The Cholesky factors C of A, by pattern.
    patterns : ndarray of int, shape (l,)
    deviations : ndarray, shape (l,)
        sqrt(d_i).
    of_noise : ndarray
        sqrt((N_i + a) / 2); for PPCA the one of all objects together.
    """

    factors: Matrix
    patterns: NDArray[np.intp]
    deviations: Vector
    of_noise: Vector

    @classmethod
    def of(cls, em: LowRankEM, statistics: LowRankStatistics) -> "Frame":
        """Return the frame at the model of these statistics."""
        own = statistics.factors
        counts = own.counts + em.structure.noise_strength
        if isinstance(em.structure, PPCA):
            counts = counts.sum(keepdims=True)
        return cls(
            np.array([factor_cholesky(moment) for moment in own.factor_moments]),
            own.patterns,
            np.sqrt(statistics.model.noise_variances),
            np.sqrt(0.5 * counts),
        )

    def whitened(self, gradient: Matrix) -> Matrix:
        """Return sqrt(d_i) C^-1 g_i, by object."""
        return self._solved(gradient, transposed=False)

    def unwhitened(self, moved: Matrix) -> Matrix:
        """Return sqrt(d_i) C'^-1 u_i, by object."""
        return self._solved(moved, transposed=True)

    def _solved(self, rows: Matrix, *, transposed: bool) -> Matrix:
        solved = np.empty_like(rows)
        for number, factor in enumerate(self.factors):
            own = self.patterns == number
            solved[own] = half_solve(factor, rows[own].T, transposed=transposed).T
        return solved * self.deviations[:, None]
