"""The EM algorithm, one method per step of the derivation (the paper, Algorithm 1).

The loop that calls these methods is in `ascent`.
"""

import math

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.linalg import blas

from ..errors import KernelError
from ..evaluation.scores import kl_divergence
from ..linalg.blocks import Workspace, add_rows
from ..linalg.cholesky import cholesky, solve
from ..linalg.products import inner, product
from ..linalg.symmetric import Matrix, add_transpose
from ..model.conditional import TOO_SINGULAR, gaussian_entropy, gaussian_log_likelihood
from ..model.gaussian import GaussianModel
from ..model.marginal import Marginal, MarginalScore, add_moments_by_scores, cheaper_by_score
from ..model.prior import WishartPrior
from ..model.sources import Centered, Constant, SourceKernel, Sources
from ..stacks.degrees import DegreesOfFreedom
from ..stacks.labels import match
from ..stacks.matrix import labelled
from ..stacks.stack import check_complete
from .expected import Expectation, ExpectedStatistics, complete
from .problem import Problem, model_over
from .rounding import marginal_rounding, rounding_bound


class EM:
    """EM for the penalized likelihood of a model matrix, step by step (the paper, Algorithm 1).

    `fit` calls these methods. With S the expected statistics at a model M,
    ``q_function(M, S) + entropy(S) == penalized_log_likelihood(M)``
    (equation :eq:`eq-level` of the derivation).

    Parameters
    ----------
    stack
        The incomplete kernels, as `stack_kernels` builds them; their visible blocks are covariance
        matrices, so positive semidefinite.
    prior
        The prior of the model matrix.
    degrees_of_freedom
        nu_k > 0, the number of observations that kernel k counts for: one number for all kernels
        (1 in the paper), one per kernel in their order, or labeled by kernel.
    sources
        How each kernel relates to the model: `Sources`, a Dataset like `result.sources`, or None
        for the paper's model, in which every kernel is N(0, M). Constants that are NaN are set to
        their maximum before every E-step, a conditional maximization: the algorithm is then an ECM.

    Raises
    ------
    KernelError, LabelError, IndefiniteKernelError
        If the stack, the prior's scale or the degrees of freedom cannot be used.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import EM, WishartPrior, stack_kernels
    >>> kernels = np.array([[[2.0, 1.0], [1.0, 2.0]], [[1.0, 0.2], [0.2, 1.0]]])
    >>> em = EM(stack_kernels(kernels, visible=[[1, 1], [0, 1]]), WishartPrior(0.5))
    >>> model = em.initial_model()
    >>> statistics = em.e_step(model)
    >>> better = em.m_step(statistics)
    >>> em.penalized_log_likelihood(better) > em.penalized_log_likelihood(model)
    True
    """

    def __init__(
        self,
        stack: xr.DataArray,
        prior: WishartPrior,
        degrees_of_freedom: DegreesOfFreedom = 1.0,
        sources: Sources | xr.Dataset | None = None,
    ) -> None:
        if not isinstance(prior, WishartPrior):
            raise KernelError(f"prior: {prior!r} found; pass WishartPrior(strength).")
        if not isinstance(sources, Sources | xr.Dataset | None):
            raise KernelError(
                f"sources: {sources!r} found; pass Sources.estimated(stack), a Dataset like "
                "result.sources, or None."
            )
        self._set(Problem.of(stack, prior, degrees_of_freedom, sources))

    @classmethod
    def of(cls, problem: Problem) -> "EM":
        """Return the EM of a problem, which is checked already."""
        em = cls.__new__(cls)
        em._set(problem)
        return em

    def _set(self, problem: Problem) -> None:
        self._problem = problem
        stack, self.prior, self.sources, self.structure = problem
        self.degrees_of_freedom = self.sources.degrees_of_freedom
        self.names, self.objects, self._stack = stack.names, stack.objects, stack
        self.total_degrees_of_freedom = self.sources.total_degrees_of_freedom
        # T; None if it is the identity, which needs no array.
        self._scale = None if self.prior.is_identity else self.prior.scale_matrix(self.objects)
        self.space = Workspace()
        sharing = self.sources.sharing
        degrees = self.degrees_of_freedom.tolist()
        self.source_kernels = [
            SourceKernel.of(*part)
            for part in zip(stack.kernels(), self.sources, degrees, strict=True)
        ]
        self.kernels = [part.kernel for part in self.source_kernels]
        sizes = [(len(kernel.v), len(kernel.h)) for kernel in self.kernels]
        self._by_score = cheaper_by_score(sizes, (sharing > 0.0) & (sharing < 1.0))
        self._by_score &= sharing > 0.0
        self._direct = ~self._by_score & (sharing > 0.0)
        # Zeros for hidden entries: tr P_vv Q_vv of all kernels is one product with P's entries.
        self._entries = np.nan_to_num(stack.array.values).reshape(len(self.names), -1)
        size = len(self.objects)
        for part, entries in zip(self.source_kernels, self._entries, strict=True):
            if not part.source.is_plain:
                visible = np.ix_(part.kernel.v, part.kernel.v)
                entries.reshape(size, size)[visible] = part.kernel.moment
        self._masks = np.ascontiguousarray(stack.visible.T, dtype=np.float64)
        self._alone = {k: self._level_alone(k) for k in np.flatnonzero(sharing == 0.0).tolist()}

    @property
    def stack(self) -> xr.DataArray:
        """The incomplete kernels, NaN where an object is missing; a copy."""
        return self._stack.array.copy()

    def __repr__(self) -> str:
        return f"EM({len(self.kernels)} kernels, {len(self.objects)} objects, {self.prior!r})"

    def initial_model(self) -> GaussianModel:
        """Return the paper's start: the M-step of the kernels with zeros for hidden entries.

        With `sources` the start is M = T, the mode of the prior.
        Equation :eq:`eq-initial` of the derivation.
        """
        if not self.sources.is_identical:
            return self.structure.start(self.prior.scale_matrix(self.objects), self.objects)
        moment = self._sum_of_visible(np.ones(len(self.names)))
        return GaussianModel.of(self._maximum(moment, np.empty_like(moment)), self.objects)

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

    def entropy(self, statistics: ExpectedStatistics) -> float:
        """Return sum_k nu_k times the entropy of h_k given v_k at the model of `statistics`.

        With `sources`, what the Q-function leaves out: the entropy less the divergence of each
        constant from its prior, less the log density of the kernels' own parts, in the kernels'
        units; for a kernel that shares nothing, its log-likelihood.
        Equations :eq:`eq-entropy` and :eq:`eq-source-entropy` of the derivation.
        """
        return float(self._taken(statistics).entropy.sum())

    def penalized_log_likelihood(
        self, model: GaussianModel, statistics: ExpectedStatistics | None = None
    ) -> float:
        """Return L(M) = sum_k nu_k E_q[log N(v_k | 0, M_vv)] + log p(M), in nats.

        Equation :eq:`eq-penalized-likelihood` of the derivation.

        Parameters
        ----------
        model
            The model matrix M.
        statistics
            The E-step at this model, if it was taken already; it is not repeated then.
        """
        if statistics is None:
            statistics = self.e_step(model)
        elif self._taken(statistics).model is not model:
            raise KernelError("statistics: they were taken at another model. Leave them out.")
        return float(statistics.log_likelihood.sum()) + self.prior.log_density(model)

    def kl_objective(self, model: GaussianModel, completed: xr.DataArray) -> float:
        """Return the paper's objective J = lambda KL(T, M) + sum_k nu_k KL(Q(k), M).

        It is infinite if a completed kernel is singular, as any kernel of fewer features than
        objects is; the penalized log-likelihood exists there, too. Where J is finite, J + L is the
        same number after every E-step.
        Equations :eq:`eq-objective-j` and :eq:`eq-j-plus-l` of the derivation.
        """
        covariance = self.own(model).covariance
        scale = labelled(self.prior.scale_matrix(self.objects), self.objects, "scale")
        completed = check_complete(completed, what="completed", remedy="Pass complete(model).")
        absent = "completed: there is no kernel {}. Pass complete(model)."
        match(self._stack.array["kernel"].values, completed["kernel"].values, absent)
        objective = self.prior.strength * kl_divergence(scale, covariance)
        for name, nu in zip(self.names, self.degrees_of_freedom.tolist(), strict=True):
            objective += nu * kl_divergence(completed.sel(kernel=name), covariance)
        return objective

    def complete(self, model: GaussianModel) -> xr.DataArray:
        """Return the kernels completed by their expectations at `model`, as a stack without NaN.

        Visible entries are returned bit for bit.
        Equations :eq:`eq-e-step-vh` and :eq:`eq-e-step-hh` of the derivation.
        """
        sources = self.sources
        if np.isnan(sources.constant).any():
            best = self.update_constants(model).constant
            held = sources.constant
            sources = sources.with_constants(np.where(np.isnan(held), best, held))
        return complete(self._stack, sources, self._scale, self.own(model))

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
        strength = self.prior.strength
        weight = strength + self.total_degrees_of_freedom
        return self.structure.maximum(moment, strength, self._scale, weight, out)

    def _taken(self, statistics: ExpectedStatistics) -> ExpectedStatistics:
        """Return `statistics` if an E-step of this EM took them; raise otherwise."""
        if not isinstance(statistics, ExpectedStatistics):
            raise KernelError(
                f"statistics: {type(statistics).__name__} found; pass what e_step(model) returns."
            )
        if statistics.problem.stack is not self._stack:
            raise KernelError("statistics: another EM took them. Pass what e_step(model) returns.")
        return statistics

    def own(self, model: GaussianModel) -> GaussianModel:
        """Return `model` if it is over these objects in this order; raise otherwise."""
        return model_over(self.objects, model)
