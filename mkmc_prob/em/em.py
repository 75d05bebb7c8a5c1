"""The EM algorithm, one method per step of the derivation (the paper, Algorithm 1).

The loop that calls these methods is in `ascent`.
"""

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.linalg import blas

from ..errors import KernelError
from ..evaluation.scores import kl_divergence
from ..linalg.blocks import Workspace, add_rows
from ..linalg.products import inner
from ..linalg.symmetric import Matrix, add_transpose
from ..model.conditional import gaussian_entropy, gaussian_log_likelihood
from ..model.gaussian import GaussianModel
from ..model.marginal import add_moments_by_scores, cheaper_by_score
from ..model.prior import WishartPrior
from ..stacks.degrees import DegreesOfFreedom
from ..stacks.labels import match
from ..stacks.matrix import labelled
from ..stacks.stack import check_complete
from .expected import ExpectedStatistics, complete
from .problem import Problem, model_over
from .rounding import rounding_bound


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
    ) -> None:
        if not isinstance(prior, WishartPrior):
            raise KernelError(f"prior: {prior!r} found; pass WishartPrior(strength).")
        self._set(Problem.of(stack, prior, degrees_of_freedom))

    @classmethod
    def of(cls, problem: Problem) -> "EM":
        """Return the EM of a problem, which is checked already."""
        em = cls.__new__(cls)
        em._set(problem)
        return em

    def _set(self, problem: Problem) -> None:
        stack, self.prior, self.degrees_of_freedom = problem
        self.names, self.objects, self._stack = stack.names, stack.objects, stack
        self.total_degrees_of_freedom = float(self.degrees_of_freedom.sum())
        # T; None if it is the identity, which needs no array.
        self._scale = None if self.prior.is_identity else self.prior.scale_matrix(self.objects)
        self.kernels = list(stack.kernels())
        self.space = Workspace()
        # Zeros for hidden entries: tr P_vv Q_vv of all kernels is one product with P's entries.
        self._entries = np.nan_to_num(stack.array.values).reshape(len(self.names), -1)
        self._by_score = cheaper_by_score([(len(s.v), len(s.h)) for s in self.kernels])

    @property
    def stack(self) -> xr.DataArray:
        """The incomplete kernels, NaN where an object is missing; a copy."""
        return self._stack.array.copy()

    def __repr__(self) -> str:
        return f"EM({len(self.kernels)} kernels, {len(self.objects)} objects, {self.prior!r})"

    def initial_model(self) -> GaussianModel:
        """Return the paper's start: the M-step of the kernels with zeros for hidden entries.

        Equation :eq:`eq-initial` of the derivation.
        """
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
        # Half of the visible blocks, the rows of hidden objects and half of Q_hh: adding the
        # transpose at the end makes this the whole.
        moment = self._sum_of_visible(np.where(self._by_score, 0.0, 0.5))
        per_kernel = np.empty((len(self.kernels), 2))
        for k in np.flatnonzero(~self._by_score).tolist():
            per_kernel[k] = self._expect(model, k, traces[k], moment)
        if chosen := np.flatnonzero(self._by_score).tolist():
            kernels, degrees = [self.kernels[k] for k in chosen], self.degrees_of_freedom[chosen]
            found = add_moments_by_scores(model.matrix, kernels, degrees, moment, self.space)
            for k, (log_det, trace) in zip(chosen, found, strict=True):
                per_kernel[k] = self._levels(k, log_det, trace, model.log_determinant - log_det)
        add_transpose(moment)
        return ExpectedStatistics(self._stack, self.kernels, model, moment, *per_kernel.T)

    def _sum_of_visible(self, weights: NDArray[np.float64]) -> Matrix:
        """Return the weighted sum of nu_k Q(k), with zeros for hidden entries."""
        size = len(self.objects)
        weights = weights * self.degrees_of_freedom
        total: Matrix = blas.dgemv(1.0, self._entries.T, weights).reshape(size, size)
        return total

    def _expect(
        self, model: GaussianModel, k: int, trace: float, moment: Matrix
    ) -> tuple[float, float]:
        """Add kernel k's share to the rows of `moment`; return its log-likelihood and entropy.

        `trace` is tr P_vv Q_vv.
        """
        kernel, nu = self.kernels[k], self.degrees_of_freedom[k]
        conditional = model.condition(kernel.visible, self.space)
        for part in conditional.hidden_rows(kernel.moment):
            rows, cross, hidden = part
            trace += conditional.inner_with(part, model.precision)
            hidden[:, rows.start :] *= 0.5
            add_rows(moment, nu, kernel.h[rows], kernel.order, cross, hidden)
        log_det = model.log_determinant - conditional.log_determinant
        return self._levels(k, log_det, trace - len(kernel.h), conditional.log_determinant)

    def _levels(
        self, k: int, log_det: float, trace: float, log_det_hidden: float
    ) -> tuple[float, float]:
        """Return kernel k's log-likelihood and entropy; `trace` is tr M_vv^-1 Q_vv."""
        kernel, nu = self.kernels[k], self.degrees_of_freedom[k]
        level = nu * gaussian_log_likelihood(len(kernel.v), log_det, trace)
        return level, nu * gaussian_entropy(len(kernel.h), log_det_hidden)

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
        cumulant = model.cumulant(self.total_degrees_of_freedom)
        return -0.5 * fit - cumulant + self.prior.log_density(model)

    def entropy(self, statistics: ExpectedStatistics) -> float:
        """Return sum_k nu_k times the entropy of h_k given v_k at the model of `statistics`.

        Equation :eq:`eq-entropy` of the derivation.
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
        return complete(self._stack, self.kernels, self.own(model))

    def rounding_bound(self, statistics: ExpectedStatistics) -> float:
        """Return by how much rounding can change the penalized log-likelihood, in nats.

        The bound and its derivation are those of `mkmc_prob.em.rounding.rounding_bound`.
        """
        weight = self.prior.strength + self.total_degrees_of_freedom
        trace = self.update_trace(statistics)
        model = statistics.model
        return rounding_bound(model, weight=weight, update_trace=trace, n_kernels=len(self.kernels))

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
        """Put (lambda T + S) / (lambda + N) into `out`; return it."""
        strength, weight = self.prior.strength, self.prior.strength + self.total_degrees_of_freedom
        if self._scale is None:
            np.divide(moment, weight, out=out)
            out.flat[:: len(out) + 1] = (strength + np.diagonal(moment)) / weight
            return out
        np.multiply(self._scale, strength, out=out)
        out += moment
        out /= weight
        return out

    def _taken(self, statistics: ExpectedStatistics) -> ExpectedStatistics:
        """Return `statistics` if an E-step of this EM took them; raise otherwise."""
        if not isinstance(statistics, ExpectedStatistics):
            raise KernelError(
                f"statistics: {type(statistics).__name__} found; pass what e_step(model) returns."
            )
        if statistics.stack is not self._stack:
            raise KernelError("statistics: another EM took them. Pass what e_step(model) returns.")
        return statistics

    def own(self, model: GaussianModel) -> GaussianModel:
        """Return `model` if it is over these objects in this order; raise otherwise."""
        return model_over(self.objects, model)
