"""The EM algorithm, one method a step of the derivation (the paper, Algorithm 1).

Enters: a checked stack, a `WishartPrior` and degrees of freedom. Leaves: the quantities of the
derivation: the initial model, the E-step's expected sufficient statistics, the M-step's model, the
Q-function, the entropy, the penalized log-likelihood and the paper's objective J. The loop that
calls them is in `ascent`; labels are put on and taken off here, the arithmetic is on plain arrays.
"""

from collections.abc import Hashable

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.linalg import blas

from ..errors import KernelError, LabelError
from ..evaluation.scores import kl_divergence
from ..linalg.blocks import Workspace, add_rows, strips
from ..linalg.products import inner, product
from ..linalg.symmetric import Matrix, add_transpose
from ..model.conditional import LOG_2_PI, gaussian_entropy
from ..model.gaussian import GaussianModel
from ..model.marginal import MarginalScore, cheaper_by_score
from ..model.prior import WishartPrior
from ..stacks.definite import check_definite
from ..stacks.degrees import DegreesOfFreedom, degrees_per_kernel
from ..stacks.labels import Labels
from ..stacks.matrix import labelled
from ..stacks.stack import check_complete, check_stack, visible_objects
from .statistics import ExpectedStatistics, Source, source_of


class EM:
    """EM for the penalized likelihood of a model matrix, step by step (the paper, Algorithm 1).

    `fit` calls these very methods. With S the expected statistics taken at a model M,
    ``q_function(M, S) + entropy(S) == penalized_log_likelihood(M)``
    (equation :eq:`eq-level` of the derivation).

    Parameters
    ----------
    stack
        The incomplete kernels, as `stack_kernels` builds them; visible blocks are covariances, so
        positive semidefinite.
    prior
        The prior of the model matrix.
    degrees_of_freedom
        nu_k > 0, how many observations kernel k counts for: one number for all kernels (1 in the
        paper), one per kernel in their order, or labelled by the kernels' names.

    Raises
    ------
    KernelError, LabelError, IndefiniteKernelError
        Where the stack, the prior's scale or the degrees of freedom cannot be used.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import WishartPrior, stack_kernels
    >>> from mkmc_prob import EM
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
        self._set(check_stack(stack), prior, degrees_of_freedom)

    @classmethod
    def of(
        cls, stack: xr.DataArray, prior: WishartPrior, degrees_of_freedom: DegreesOfFreedom
    ) -> "EM":
        """Return the EM of a stack that `check_stack` returned, whose array becomes the EM's."""
        em = cls.__new__(cls)
        em._set(stack, prior, degrees_of_freedom)
        return em

    def _set(
        self, stack: xr.DataArray, prior: WishartPrior, degrees_of_freedom: DegreesOfFreedom
    ) -> None:
        check_definite(stack)
        self.prior = prior
        self.names: list[Hashable] = stack["kernel"].values.tolist()
        self.objects: Labels = stack["object"].values
        self.degrees_of_freedom = degrees_per_kernel(degrees_of_freedom, self.names)
        self.total_degrees_of_freedom = float(self.degrees_of_freedom.sum())
        # T; None where it is the identity, which needs no array.
        self._scale = None if prior.is_identity else prior.scale_matrix(self.objects)
        self.sources = [
            source_of(name, seen, values, nu)
            for name, seen, values, nu in zip(
                self.names,
                visible_objects(stack).values,
                stack.values,
                self.degrees_of_freedom.tolist(),
                strict=True,
            )
        ]
        self.space = Workspace()
        # Zeros where entries miss: tr P_vv Q_vv of all kernels is one product with P's entries.
        np.nan_to_num(stack.values, copy=False)
        self._shown = stack
        self._entries = stack.values.reshape(len(self.names), -1)
        self._by_score = cheaper_by_score([(len(s.v), len(s.h)) for s in self.sources])

    @property
    def stack(self) -> xr.DataArray:
        """The incomplete kernels, NaN where an object is missing."""
        seen = np.stack([source.visible for source in self.sources])
        return self._shown.where(seen[:, :, None] & seen[:, None, :])

    def _sum_of_shown(self, weights: NDArray[np.float64]) -> Matrix:
        """Return the weighted sum of nu_k Q(k), zeros where entries miss."""
        weights = weights * self.degrees_of_freedom
        size = len(self.objects)
        return blas.dgemv(1.0, self._entries.T, weights).reshape(size, size)

    def __repr__(self) -> str:
        return f"EM({len(self.sources)} kernels, {len(self.objects)} objects, {self.prior!r})"

    def initial_model(self) -> GaussianModel:
        """Return the paper's start: the M-step of the kernels with zeros where entries miss.

        Equation :eq:`eq-initial` of the derivation.
        """
        return self._maximize(self._sum_of_shown(np.ones(len(self.names))))

    def e_step(self, model: GaussianModel) -> ExpectedStatistics:
        """Return the expected sufficient statistics at `model` (Algorithm 1, lines 5 to 10).

        For each kernel E[v h'] = Q_vv A and E[h h'] = C + A' Q_vv A, with A and C those of
        ``model.condition(visible)``. The log-likelihood comes along: log det M_vv is
        log det M - log det C, and tr M_vv^-1 Q_vv = tr P E[x x'] - m with P = M^-1 and m hidden
        objects. (tr P_vv Q_vv + tr P_vh' Q_vh is the same, but exact only to the condition number
        of M: the whole is level in A, and an error of P meets M on both sides.)
        Kernels that hide most objects enter by their scores instead, where that is cheaper; see
        `MarginalScore`. Equations :eq:`eq-e-step-vh`, :eq:`eq-e-step-hh`,
        :eq:`eq-precision-log-det` and :eq:`eq-completed-trace` of the derivation.
        """
        precision = self.own(model).precision  # first: it takes the Cholesky factor's place
        traces = blas.dgemv(1.0, self._entries.T, precision.reshape(-1), trans=1)
        # Half of what is visible, the rows of hidden objects, and half of Q_hh: with the transpose
        # to come that is all.
        moment = self._sum_of_shown(np.where(self._by_score, 0.0, 0.5))
        per_kernel = np.empty((len(self.sources), 2))
        for k in np.flatnonzero(~self._by_score):
            per_kernel[k] = self._expect(model, self.sources[k], traces[k], moment)
        if self._by_score.any():
            per_kernel[self._by_score] = self._expect_by_score(model, moment)
        add_transpose(moment)
        log_likelihood, entropy = per_kernel.T
        return ExpectedStatistics(self, model, moment, log_likelihood, entropy)

    def _expect(
        self, model: GaussianModel, source: Source, trace: float, moment: Matrix
    ) -> tuple[float, float]:
        """Add one kernel's share to the rows of `moment`; return its log-likelihood and entropy.

        `trace` is tr P_vv Q_vv.
        """
        conditional = model.condition(source.visible, self.space)
        nu = source.degrees_of_freedom
        for strip in conditional.strips(source.moment):
            rows, cross, hidden = strip
            trace += conditional.trace(strip, model.precision)
            hidden[:, rows.start :] *= 0.5
            add_rows(moment, nu, source.h[rows], source.order, cross, hidden)
        trace -= len(source.h)
        log_det = model.log_determinant - conditional.log_determinant
        return source.log_likelihood(log_det, trace), nu * conditional.entropy

    def _expect_by_score(self, model: GaussianModel, moment: Matrix) -> list[tuple[float, float]]:
        """Add the lower half of sum_k nu_k (M + M Z_k M) to `moment`; return the same as `_expect`.

        The diagonal blocks of strips are halved, for the transpose to come.
        """
        matrix, space = model.matrix, self.space
        score = space.array("score", *matrix.shape)
        score[...] = 0.0
        degrees, per_kernel = 0.0, []
        for k in np.flatnonzero(self._by_score):
            source = self.sources[k]
            nu = source.degrees_of_freedom
            marginal = MarginalScore(matrix, source.v, self.objects, source.moment, space)
            for rows, block in marginal.strips():
                block[:, rows.start :] *= 0.5
                add_rows(score, nu, source.v[rows], source.order, block, block[:, :0])
            degrees += nu
            of_hidden = model.log_determinant - marginal.log_determinant
            log_likelihood = source.log_likelihood(marginal.log_determinant, marginal.trace)
            per_kernel.append((log_likelihood, nu * gaussian_entropy(len(source.h), of_hidden)))
        add_transpose(score)
        for rows in strips(len(matrix)):
            count, end = rows.stop - rows.start, rows.stop
            moved = product(matrix[rows], score, space.array("cross", count, len(matrix)))
            strip = product(moved, matrix[:end].T, space.array("strip", count, end))
            strip += degrees * matrix[rows, :end]
            strip[:, rows.start :] *= 0.5
            moment[rows, :end] += strip
        return per_kernel

    def m_step(self, statistics: ExpectedStatistics) -> GaussianModel:
        """Return the model that maximizes the Q-function (Algorithm 1, line 11).

        M = (lambda T + S) / (lambda + N); the paper's (lambda I + sum_k Q(k)) / (lambda + K).
        Equation :eq:`eq-m-step` of the derivation.
        """
        return self._maximize(self._taken(statistics).second_moment)

    def q_function(self, model: GaussianModel, statistics: ExpectedStatistics) -> float:
        """Return the Q-function at `model`: <S, eta(M)> - a(M) + log p(M), in nats.

        S are the expected statistics, eta = -M^-1 / 2 and a the cumulant with N degrees of freedom;
        nothing is left out but the prior's constant.
        Equation :eq:`eq-q-function` of the derivation.
        """
        fit = inner(self.own(model).precision, self._taken(statistics).second_moment)
        cumulant = model.cumulant(self.total_degrees_of_freedom)
        return -0.5 * fit - cumulant + self.prior.log_density(model)

    def entropy(self, statistics: ExpectedStatistics) -> float:
        """Return sum_k nu_k times the entropy of h_k given v_k where `statistics` were taken.

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
            The E-step at this very model, where it is at hand: saves doing it again.
        """
        if statistics is None:
            statistics = self.e_step(model)
        elif self._taken(statistics).model is not model:
            raise KernelError("statistics: they were taken at another model. Leave them out.")
        return float(statistics.log_likelihood.sum()) + self.prior.log_density(model)

    def kl_objective(self, model: GaussianModel, completed: xr.DataArray) -> float:
        """Return the paper's objective J = lambda KL(T, M) + sum_k nu_k KL(Q(k), M).

        It is infinite where a completed kernel is singular, as any kernel of fewer features than
        objects is; the penalized log-likelihood exists there too. Where J is finite, J + L is the
        same number after every E-step.
        Equations :eq:`eq-objective-j` and :eq:`eq-j-plus-l` of the derivation.
        """
        scale = labelled(self.prior.scale_matrix(self.objects), self.objects, "scale")
        completed = check_complete(completed, what="completed", remedy="Pass complete(model).")
        absent = [name for name in self.names if name not in completed["kernel"].values.tolist()]
        if absent:
            raise LabelError(f"completed: there is no kernel {absent[0]!r}. Pass complete(model).")
        model = self.own(model)
        objective = self.prior.strength * kl_divergence(scale, model.covariance)
        for name, nu in zip(self.names, self.degrees_of_freedom.tolist(), strict=True):
            objective += nu * kl_divergence(completed.sel(kernel=name), model.covariance)
        return objective

    def complete(self, model: GaussianModel) -> xr.DataArray:
        """Return the kernels completed by their expectations at `model`, as a stack without NaN.

        What was visible comes back bit for bit.
        Equations :eq:`eq-e-step-vh` and :eq:`eq-e-step-hh` of the derivation.
        """
        completed = self._shown.copy()
        for values, source in zip(completed.values, self.sources, strict=True):
            if source.visible.all():
                continue
            conditional = self.own(model).condition(source.visible)
            cross, hidden = conditional.expected_second_moments(source.moment)
            values[np.ix_(source.v, source.h)] = cross
            values[np.ix_(source.h, source.v)] = cross.T
            values[np.ix_(source.h, source.h)] = hidden
        completed.attrs["long_name"] = "completed kernel matrices"
        return completed.rename("completed")

    def rounding_bound(self, statistics: ExpectedStatistics) -> float:
        """Return how far rounding can move the penalized log-likelihood, in nats.

        With P = M^-1 and the variance inflation factors f_i = M_ii P_ii, the bound is

            eps sqrt(l) (lambda + N + t / l) (sum_i sqrt(f_i))^2
            + eps (sqrt(l) + K + 4) [(lambda + N) sum_i (abs(log d_i) + log 2 pi) + t],

        t = tr P (lambda T + S), d_i the one of M_ii and 1 / P_ii that is farther from 1. The first
        line is what the roundings of the factor do: a Cholesky factor is exact for M + E with
        abs(E_ij) <= g sqrt(M_ii M_jj); g grows like sqrt(l) eps where roundings are independent
        (Higham and Mary 2019, SIAM J. Sci. Comput. 41, A2815). To first order E moves log det M by
        tr P E and tr P S by tr P S P E, and abs(P_ij) <= sqrt(P_ii P_jj) bounds the sum over i, j
        of abs(P_ij E_ij). Each of the lambda + N log determinants carries one such error, and each
        trace t / l on average, which at a fixed point is lambda + N. The second line is what
        adding up the terms of L does, by their sizes: the pivots lie between 1 / P_ii and M_ii.
        """
        model, size = self._taken(statistics).model, len(self.objects)
        variance, precision = np.diagonal(model.matrix), np.diagonal(model.precision)
        inflation = np.sqrt(variance * precision).sum() ** 2
        logs = np.maximum(np.abs(np.log(variance)), np.abs(np.log(precision))) + LOG_2_PI
        weight = self.prior.strength + self.total_degrees_of_freedom
        # Its sign is lost where the model is beyond double precision; its size still tells.
        trace = weight * abs(self.update_trace(statistics))
        factor = np.sqrt(size) * (weight + trace / size) * inflation
        terms = (np.sqrt(size) + len(self.sources) + 4) * (weight * logs.sum() + trace)
        return float(np.finfo(np.float64).eps * (factor + terms))

    def update_trace(self, statistics: ExpectedStatistics) -> float:
        """Return tr M^-1 F(M), F(M) the EM update of the model M; l at a fixed point.

        It makes the first part of the gain, equation :eq:`eq-gain-q` of the derivation.
        """
        precision = statistics.model.precision
        weight = self.prior.strength + self.total_degrees_of_freedom
        scale = self._scale
        of_prior = float(np.trace(precision)) if scale is None else inner(precision, scale)
        return (
            self.prior.strength * of_prior + inner(precision, statistics.second_moment)
        ) / weight

    def update(self, statistics: ExpectedStatistics, out: Matrix) -> Matrix:
        """Put F(M), the matrix of the M-step's model, into `out`; return it."""
        return self._maximum(self._taken(statistics).second_moment, out)

    def _maximize(self, moment: Matrix) -> GaussianModel:
        return GaussianModel.of(self._maximum(moment, np.empty_like(moment)), self.objects)

    def _maximum(self, moment: Matrix, out: Matrix) -> Matrix:
        """Put (lambda T + S) / (lambda + N) into `out`; return it."""
        strength = self.prior.strength
        weight = strength + self.total_degrees_of_freedom
        if self._scale is None:
            np.divide(moment, weight, out=out)
            out.flat[:: len(out) + 1] = (strength + np.diagonal(moment)) / weight
        else:
            np.multiply(self._scale, strength, out=out)
            out += moment
            out /= weight
        return out

    def _taken(self, statistics: ExpectedStatistics) -> ExpectedStatistics:
        if not isinstance(statistics, ExpectedStatistics):
            raise KernelError(
                f"statistics: {type(statistics).__name__} found; pass what e_step(model) returns."
            )
        if statistics.em is not self:
            raise KernelError("statistics: another EM took them. Pass what e_step(model) returns.")
        return statistics

    def own(self, model: GaussianModel) -> GaussianModel:
        """Return `model` if it is over these objects in this order; raise otherwise."""
        if not isinstance(model, GaussianModel):
            raise KernelError(
                f"model: {type(model).__name__} found; pass GaussianModel(matrix, objects=...)."
            )
        if model.objects is not self.objects and not np.array_equal(model.objects, self.objects):
            raise LabelError(
                "model: its objects are not those of the stack, in the same order. Build it with "
                "objects=stack['object'].values."
            )
        return model
