"""EM over all positive definite model matrices (the paper, Algorithm 1)."""

import math

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.linalg import blas

from ..linalg.blocks import Workspace, add_rows
from ..linalg.cholesky import cholesky, solve
from ..linalg.products import inner, product
from ..linalg.symmetric import Matrix, add_transpose
from ..model.conditional import TOO_SINGULAR, gaussian_entropy, gaussian_log_likelihood
from ..model.gaussian import GaussianModel
from ..model.low_rank import LowRankModel
from ..model.marginal import Marginal, MarginalScore, add_moments_by_scores, cheaper_by_score
from ..model.sources import Centered, Constant, Sources
from ..model.structures import Full
from .em import EM, QLevel
from .expected import Expectation, ExpectedStatistics, complete
from .problem import Problem
from .rounding import marginal_rounding, rounding_bound


class FullEM(EM, structure=Full):
    """EM over all positive definite matrices; `EM` says what each step is."""

    def _prepare(self) -> None:
        # T; None if it is the identity, which needs no array.
        self._scale = None if self.prior.is_identity else self.prior.scale_matrix(self.objects)
        self.space = Workspace()
        sharing = self.sources.sharing
        sizes = [(len(kernel.v), len(kernel.h)) for kernel in self.kernels]
        self._by_score = cheaper_by_score(sizes, (sharing > 0.0) & (sharing < 1.0))
        self._by_score &= sharing > 0.0
        self._direct = ~self._by_score & (sharing > 0.0)
        # Zeros for hidden entries: tr P_vv Q_vv of all kernels is one product with P's entries.
        self._entries = np.nan_to_num(self._stack.array.values).reshape(len(self.names), -1)
        size = len(self.objects)
        for part, entries in zip(self.source_kernels, self._entries, strict=True):
            if not part.source.is_plain:
                visible = np.ix_(part.kernel.v, part.kernel.v)
                entries.reshape(size, size)[visible] = part.kernel.moment
        self._masks = np.ascontiguousarray(self._stack.visible.T, dtype=np.float64)
        self._alone = {k: self._level_alone(k) for k in np.flatnonzero(sharing == 0.0).tolist()}

    def initial_model(self) -> GaussianModel:
        """Return the paper's start: the M-step of the kernels with zeros for hidden entries.

        With `sources` the start is M = T, the mode of the prior.
        Equation :eq:`eq-initial` of the derivation.
        """
        if not self.sources.is_identical:
            return GaussianModel.of(self.prior.scale_matrix(self.objects).copy(), self.objects)
        moment = self._sum_of_visible(np.ones(len(self.names)))
        return GaussianModel.of(self._maximum(moment, np.empty_like(moment)), self.objects)

    def adapted(self, model: GaussianModel) -> GaussianModel:
        """Return the model itself; one of low rank as a matrix."""
        if isinstance(model, LowRankModel):
            return GaussianModel.of(model.matrix.copy(), model.objects)
        return model

    def e_step(self, model: GaussianModel) -> ExpectedStatistics:
        """Return the expected sufficient statistics at `model` (Algorithm 1, lines 5 to 10).

        For each kernel E[v h'] = Q_vv A and E[h h'] = C + A' Q_vv A, with A and C those of
        ``model.condition(visible)``. The log-likelihood is a by-product: log det M_vv is
        log det M - log det C, and tr M_vv^-1 Q_vv = tr P E[x x'] - m with P = M^-1 and m hidden
        objects. (tr P_vv Q_vv + tr P_vh' Q_vh is the same number, but less accurate if M is
        ill-conditioned.) Kernels that hide most objects are handled by their scores if that is
        cheaper; see `add_moments_by_scores`. Equations :eq:`eq-e-step-vh`, :eq:`eq-e-step-hh`,
        :eq:`eq-precision-log-det` and :eq:`eq-completed-trace` of the derivation.
        """
        precision = self.own(model).precision  # first: it overwrites the Cholesky factor
        traces = blas.dgemv(1.0, self._entries.T, precision.reshape(-1), trans=1)
        found = [Expectation(0.0, 0.0)] * len(self.kernels)
        shifts = np.zeros_like(self._masks)
        sums = None
        if (self.sources.constant[self._direct] != 0.0).any():
            sums = product(precision, self._masks, np.empty_like(self._masks))
        # Half of the visible blocks, the rows of hidden objects and half of Q_hh: adding the
        # transpose at the end makes this the whole.
        moment = self._sum_of_visible(np.where(self._direct, 0.5, 0.0))
        for k in np.flatnonzero(self._direct).tolist():
            found[k] = self._expect(model, k, traces[k], sums, moment, shifts)
        if sums is not None:
            product(shifts, self._masks.T, moment, add=1.0)
        if chosen := np.flatnonzero(self._by_score).tolist():
            parts = [self.source_kernels[k] for k in chosen]
            marginals = add_moments_by_scores(model.matrix, parts, self._scale, moment, self.space)
            for k, marginal in zip(chosen, marginals, strict=True):
                found[k] = self._expectation(k, marginal, model.log_determinant)
        for k, alone in self._alone.items():
            found[k] = alone
        add_transpose(moment)
        return ExpectedStatistics(self._problem, model, moment, found)

    def _sum_of_visible(self, weights: NDArray[np.float64]) -> Matrix:
        """Return the weighted sum of nu_k Q(k), with zeros for hidden entries."""
        size = len(self.objects)
        weights = weights * self.degrees_of_freedom
        total: Matrix = blas.dgemv(1.0, self._entries.T, weights).reshape(size, size)
        return total

    def _expect(
        self,
        model: GaussianModel,
        k: int,
        trace: float,
        sums: Matrix | None,
        moment: Matrix,
        shifts: Matrix,
    ) -> Expectation:
        """Add kernel k's share to the rows of `moment`; return its log-likelihood and entropy.

        `trace` is tr P_vv Q_vv, and `sums` holds P_vv 1. What the kernel's constant takes from the
        visible block is put into `shifts`.
        """
        part = self.source_kernels[k]
        kernel, nu, source = part.kernel, part.degrees, part.source
        conditional = model.condition(kernel.visible, self.space)
        constant, shift = None, None
        if source.constant != 0.0 and sums is not None:
            own = sums[kernel.v, k]
            weights = conditional.ones_solved(own)
            constant = Constant.of(weights, part.centered, source.constant)
            shift = constant.shift
            trace += 2.0 * float(shift @ own)
            shifts[kernel.v, k] = nu * shift
        for strip in conditional.hidden_rows(kernel.moment, shift):
            rows, cross, hidden = strip
            trace += conditional.inner_with(strip, model.precision)
            hidden[:, rows.start :] *= 0.5
            add_rows(moment, nu, kernel.h[rows], kernel.order, cross, hidden)
        log_det = model.log_determinant - conditional.log_determinant
        deviations = np.sqrt(np.diagonal(model.precision)[kernel.v])  # the bound of M_vv^-1's
        marginal = Marginal(log_det, trace - len(kernel.h), 0.0, constant, 0.0, deviations)
        return self._expectation(k, marginal, model.log_determinant)

    def _expectation(self, k: int, marginal: Marginal, log_det_model: float) -> Expectation:
        """Return kernel k's log-likelihood and entropy from what its marginal says."""
        kernel, source, _, nu, sizes = self.source_kernels[k]
        log_det, trace, own, constant, inflation, deviations = marginal
        n, m = len(kernel.v), len(kernel.h)
        level = gaussian_log_likelihood(n, log_det, trace)
        entropy = gaussian_entropy(m, log_det_model - log_det)
        if source.is_plain:
            return Expectation(nu * level, nu * entropy)
        lost, cancelling = 0.5 * n * math.log(source.scale), 0.0
        if constant is not None:
            lost += constant.divergence()
            cancelling = constant.cancelling(deviations, sizes)
        entropy -= 0.5 * (1.0 - source.sharing) * own
        bound = marginal_rounding(n, log_det, trace, lost, inflation, cancelling)
        return Expectation(nu * (level - lost), nu * (entropy - lost), constant, nu * bound)

    def _level_alone(self, k: int) -> Expectation:
        """Return the log-likelihood of a kernel that shares nothing; no model changes it."""
        part = self.source_kernels[k]
        alone = part._replace(source=part.source._replace(sharing=1.0))
        scale = self.prior.scale_matrix(self.objects)
        score = MarginalScore.of(scale, alone, None, self.space)
        found = self._expectation(k, score.summary(), score.log_determinant)
        return found._replace(entropy=found.log_likelihood)

    def update_constants(self, model: GaussianModel) -> Sources:
        """Return the sources with every constant at its maximum for this model.

        With G = s_k M_vv + (1 - s_k) T_vv, q = G^-1 1, t = 1'q and r = q' S q, S the visible block
        in units of the scale, it is max(0, r/t^2 - 1/t). Equation :eq:`eq-constant` of the
        derivation.
        """
        found = np.zeros(len(self.kernels))
        blocks = zip(self._stack.kernels(), self.sources, strict=True)
        for k, (kernel, source) in enumerate(blocks):
            free = source._replace(constant=math.nan)
            places = np.ix_(kernel.v, kernel.v)
            own = None if self._scale is None else self._scale[places]
            base = source.base(self.own(model).matrix[places], own)
            factor = cholesky(base, "model matrix", kernel.objects[kernel.v], TOO_SINGULAR)
            weights = solve(factor, np.ones(len(kernel.v)))
            found[k] = Constant.of(weights, Centered.of(kernel.moment, free), math.nan).variance
        return self.sources.with_constants(found)

    @staticmethod
    def completed(problem: Problem, sources: Sources, model: GaussianModel) -> xr.DataArray:
        """Return the kernels completed by their expectations; see `EM.complete`."""
        prior, objects = problem.prior, problem.stack.objects
        scale = None if prior.is_identity else prior.scale_matrix(objects)
        return complete(problem.stack, sources, scale, model)

    def m_step(self, statistics: ExpectedStatistics) -> GaussianModel:
        """Return the model that maximizes the Q-function (Algorithm 1, line 11).

        M = (lambda T + S) / (lambda + N); the paper's (lambda I + sum_k Q(k)) / (lambda + K).
        Equation :eq:`eq-m-step` of the derivation.
        """
        moment = self._taken(statistics).second_moment
        return GaussianModel.of(self._maximum(moment, np.empty_like(moment)), self.objects)

    def q_function(self, model: GaussianModel, statistics: ExpectedStatistics) -> float:
        """Return the Q-function at `model`: <S, eta(M)> - a(M) + log p(M), in nats.

        S are the expected statistics, eta = -M^-1 / 2 and a the cumulant with N degrees of freedom;
        only the prior's constant is left out.
        Equation :eq:`eq-q-function` of the derivation.
        """
        fit = inner(self.own(model).precision, self._taken(statistics).second_moment)
        total = self.total_degrees_of_freedom
        cumulant = model.cumulant(total) if total else 0.0  # 0 if no kernel shares anything
        return -0.5 * fit - cumulant + self.prior.log_density(model)

    def rounding_bound(self, statistics: ExpectedStatistics) -> float:
        """Return by how much rounding can change the penalized log-likelihood, in nats.

        The bound and its derivation are those of `mkmc_prob.em.rounding.rounding_bound`.
        """
        weight = self.prior.strength + self.total_degrees_of_freedom
        trace = self.update_trace(statistics)
        return rounding_bound(
            statistics.model,
            weight=weight,
            update_trace=trace,
            n_kernels=len(self.kernels),
            of_kernels=statistics.rounding,
        )

    def update_trace(self, statistics: ExpectedStatistics) -> float:
        """Return tr M^-1 F(M), F(M) the EM update of the model M; it is l at a fixed point.

        The first part of the gain, equation :eq:`eq-gain-q` of the derivation, needs it.
        """
        moment, precision = self._taken(statistics).second_moment, statistics.model.precision
        strength, scale = self.prior.strength, self._scale
        of_prior = float(np.trace(precision)) if scale is None else inner(precision, scale)
        total = strength * of_prior + inner(precision, moment)
        return total / (strength + self.total_degrees_of_freedom)

    def update(self, statistics: ExpectedStatistics, out: Matrix) -> Matrix:
        """Put F(M), the matrix of the M-step's model, into `out`; return it."""
        return self._maximum(self._taken(statistics).second_moment, out)

    def _maximum(self, moment: Matrix, out: Matrix) -> Matrix:
        """Put the M-step's matrix into `out`; return it."""
        strength, scale = self.prior.strength, self._scale
        weight = strength + self.total_degrees_of_freedom
        if scale is None:
            np.divide(moment, weight, out=out)
            out.flat[:: len(out) + 1] = (strength + np.diagonal(moment)) / weight
            return out
        np.multiply(scale, strength, out=out)
        out += moment
        out /= weight
        return out

    def level_of_q(self, statistics: ExpectedStatistics) -> QLevel:
        """Return tr M^-1 F(M) and log det M."""
        return QLevel(self.update_trace(statistics), statistics.model.log_determinant)

    def rise_of_q(self, level: QLevel, model: GaussianModel) -> float:
        """Return ((lambda + N) / 2) (tr M^-1 M+ - l - log det M^-1 M+), M+ the M-step's model."""
        weight = self.prior.strength + self.total_degrees_of_freedom
        excess = level.update_trace - len(self.objects)
        return 0.5 * weight * (excess - (model.log_determinant - level.log_determinant))

    @property
    def metric_weight(self) -> float:
        """(lambda + N) / 2, in the affine-invariant metric."""
        return 0.5 * (self.prior.strength + self.total_degrees_of_freedom)

    def is_sound(self, statistics: ExpectedStatistics) -> bool:
        """Return whether tr M^-1 F(M) > 0, as for every positive definite M.

        M = B B' is rounded, and close to singular it can differ from what its factor B describes.
        """
        return self.update_trace(statistics) > 0.0
