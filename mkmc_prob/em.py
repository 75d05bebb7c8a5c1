"""The EM algorithm, one method a step of the derivation (the paper, Algorithm 1).

Enters: a checked stack, a `WishartPrior` and degrees of freedom. Leaves: the quantities of the
derivation: the initial model, the E-step's expected sufficient statistics, the M-step's model, the
Q-function, the entropy, the penalized log-likelihood and the paper's objective J. The loop that
calls them is in `ascent`; labels are put on and taken off here, the arithmetic is on plain arrays.
"""

from collections.abc import Hashable
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from .conditional import LOG_2_PI
from .degrees import DegreesOfFreedom, degrees_per_kernel
from .errors import KernelError, LabelError
from .kernels import check_stack, visible_objects
from .labels import Labels
from .linalg import Matrix, Workspace, add_rows, add_transpose, inner, inner_of_block
from .matrices import labelled
from .metrics import kl_divergence
from .model import GaussianModel
from .preprocessing import check_definite
from .prior import WishartPrior


class Source(NamedTuple):
    """What one kernel shows: who is visible (v) and hidden (h), Q_vv, and how often it counts."""

    name: Hashable
    visible: NDArray[np.bool_]
    v: NDArray[np.intp]
    h: NDArray[np.intp]
    moment: Matrix
    degrees_of_freedom: float


class ExpectedStatistics:
    """What the E-step at a model gives: the expected sufficient statistics and their by-products.

    Attributes
    ----------
    model : GaussianModel
        M, at which the expectations were taken.
    second_moment : ndarray, shape (l, l)
        S = sum_k nu_k E[x_k x_k'], exactly symmetric; labelled as `sufficient_statistic`.
    log_likelihood : ndarray, shape (K,)
        Per kernel nu_k E_q[log N(v_k | 0, M_vv)] in nats, 2 pi included.
    entropy : ndarray, shape (K,)
        Per kernel nu_k times the entropy of h_k given v_k under M, in nats.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import EM, WishartPrior, stack_kernels
    >>> stack = stack_kernels(np.eye(2)[None], visible=[[1, 0]], objects=["a", "b"])
    >>> em = EM(stack, WishartPrior(1.0))
    >>> statistics = em.e_step(em.initial_model())
    >>> round(statistics.sufficient_statistic.sel(object="b", object_bis="b").item(), 6)
    0.5
    >>> statistics.completed.sizes["kernel"]
    1
    """

    def __init__(
        self,
        em: "EM",
        model: GaussianModel,
        second_moment: Matrix,
        log_likelihood: NDArray[np.float64],
        entropy: NDArray[np.float64],
    ) -> None:
        self.em = em
        self.model = model
        self.second_moment = second_moment
        self.log_likelihood = log_likelihood
        self.entropy = entropy

    def __repr__(self) -> str:
        table = pd.DataFrame(
            {"log_likelihood": self.log_likelihood, "entropy": self.entropy}, index=self.em.names
        )
        return (
            f"ExpectedStatistics of {len(table)} kernels\n{table}\n"
            f"sum of second moments\n{self.sufficient_statistic.to_pandas()}"
        )

    @property
    def sufficient_statistic(self) -> xr.DataArray:
        """S = sum_k nu_k E[x_k x_k'], labelled: dims ``(object, object_bis)``."""
        return labelled(self.second_moment, self.model.objects, "sufficient_statistic")

    @cached_property
    def completed(self) -> xr.DataArray:
        """The completed kernels E[x_k x_k'] as a stack: the paper's Q(k) after its E-step."""
        return self.em.complete(self.model)


class EM:
    """EM for the penalized likelihood of a model matrix, step by step (the paper, Algorithm 1).

    `fit` calls these very methods. With S the expected statistics taken at a model M,
    ``q_function(M, S) + entropy(S) == penalized_log_likelihood(M)``.

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
        self.stack = check_stack(stack)
        check_definite(self.stack)
        self.prior = prior
        self.names: list[Hashable] = self.stack["kernel"].values.tolist()
        self.objects: Labels = self.stack["object"].values
        self.degrees_of_freedom = degrees_per_kernel(degrees_of_freedom, self.names)
        self.total_degrees_of_freedom = float(self.degrees_of_freedom.sum())
        # T; None where it is the identity, which needs no array.
        self._scale = None if prior.is_identity else prior.scale_matrix(self.objects)
        self.sources = [
            _source(name, seen, values, nu)
            for name, seen, values, nu in zip(
                self.names,
                visible_objects(self.stack).values,
                self.stack.values,
                self.degrees_of_freedom.tolist(),
                strict=True,
            )
        ]
        self._space = Workspace()
        # The visible blocks' share of S is the same in every iteration.
        self._visible_moment = np.zeros((len(self.objects), len(self.objects)))
        for source in self.sources:
            nu = source.degrees_of_freedom
            self._visible_moment[np.ix_(source.v, source.v)] += nu * source.moment

    def __repr__(self) -> str:
        return f"EM({len(self.sources)} kernels, {len(self.objects)} objects, {self.prior!r})"

    def initial_model(self) -> GaussianModel:
        """Return the paper's start: the M-step of the kernels with zeros where entries miss."""
        return self._maximize(self._visible_moment)

    def e_step(self, model: GaussianModel) -> ExpectedStatistics:
        """Return the expected sufficient statistics at `model` (Algorithm 1, lines 5 to 10).

        For each kernel E[v h'] = Q_vv A and E[h h'] = C + A' Q_vv A, with A and C those of
        ``model.condition(visible)``. The log-likelihood comes along: log det M_vv is
        log det M - log det C, and tr M_vv^-1 Q_vv = tr P_vv Q_vv + tr P_vh' Q_vh with P = M^-1.
        """
        precision = self._own(model).precision  # first: it takes the Cholesky factor's place
        # The rows of hidden objects, Q_hh halved: with their transpose they are all that changes.
        moment = np.zeros_like(precision)
        per_kernel = [self._expect(model, source, moment) for source in self.sources]
        add_transpose(moment, self._visible_moment)
        log_likelihood, entropy = np.array(per_kernel).T
        return ExpectedStatistics(self, model, moment, log_likelihood, entropy)

    def _expect(self, model: GaussianModel, source: Source, moment: Matrix) -> tuple[float, float]:
        """Add one kernel's share to the rows of `moment`; return its log-likelihood and entropy."""
        _, visible, v, h, visible_moment, nu = source
        conditional = model.condition(visible, self._space)
        order = np.argsort(np.concatenate([v, h]))
        trace = inner_of_block(model.precision, v, v, visible_moment)
        for rows, cross, hidden in conditional.strips(visible_moment):
            trace += inner_of_block(model.precision, h[rows], v, cross)
            hidden[:, rows.start :] *= 0.5
            add_rows(moment, nu, h[rows], order, cross, hidden)
        log_det = model.log_determinant - conditional.log_determinant
        log_likelihood = -0.5 * nu * (len(v) * LOG_2_PI + log_det + trace)
        return log_likelihood, nu * conditional.entropy

    def m_step(self, statistics: ExpectedStatistics) -> GaussianModel:
        """Return the model that maximizes the Q-function (Algorithm 1, line 11).

        M = (lambda T + S) / (lambda + N); the paper's (lambda I + sum_k Q(k)) / (lambda + K).
        """
        return self._maximize(self._taken(statistics).second_moment)

    def q_function(self, model: GaussianModel, statistics: ExpectedStatistics) -> float:
        """Return the Q-function at `model`: <S, G(M)> - A(M) + log p(M), in nats.

        S are the expected statistics, G = -M^-1 / 2 and A the cumulant with N degrees of freedom;
        nothing is left out but the prior's constant.
        """
        fit = inner(self._own(model).precision, self._taken(statistics).second_moment)
        cumulant = model.cumulant(self.total_degrees_of_freedom)
        return -0.5 * fit - cumulant + self.prior.log_density(model)

    def entropy(self, statistics: ExpectedStatistics) -> float:
        """Return sum_k nu_k times the entropy of h_k given v_k where `statistics` were taken."""
        return float(self._taken(statistics).entropy.sum())

    def penalized_log_likelihood(
        self, model: GaussianModel, statistics: ExpectedStatistics | None = None
    ) -> float:
        """Return L(M) = sum_k nu_k E_q[log N(v_k | 0, M_vv)] + log p(M), in nats.

        Parameters
        ----------
        model
            M.
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
        """
        scale = labelled(self.prior.scale_matrix(self.objects), self.objects, "scale")
        objective = self.prior.strength * kl_divergence(scale, model.covariance)
        for name, nu in zip(self.names, self.degrees_of_freedom.tolist(), strict=True):
            objective += nu * kl_divergence(completed.sel(kernel=name), model.covariance)
        return objective

    def complete(self, model: GaussianModel) -> xr.DataArray:
        """Return the kernels completed by their expectations at `model`, as a stack without NaN.

        What was visible comes back bit for bit.
        """
        completed = self.stack.copy()
        for values, source in zip(completed.values, self.sources, strict=True):
            if source.visible.all():
                continue
            conditional = self._own(model).condition(source.visible)
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
            + eps (sqrt(l) + K + 4) [(lambda + N) sum_i (|log d_i| + log 2 pi) + t],

        t = tr P (lambda T + S), d_i the one of M_ii and 1 / P_ii that is farther from 1. The first
        line is what the roundings of the factor do: a Cholesky factor is exact for M + E with
        |E_ij| <= g sqrt(M_ii M_jj); g grows like sqrt(l) eps where roundings are independent
        (Higham and Mary 2019, SIAM J. Sci. Comput. 41, A2815). To first order E moves log det M by
        tr P E and tr P S by tr P S P E, and |P_ij| <= sqrt(P_ii P_jj) bounds the sum over i, j of
        |P_ij| |E_ij|. Each of the lambda + N log determinants carries one such error, and each
        trace t / l on average, which at a fixed point is lambda + N. The second line is what
        adding up the terms of L does, by their sizes: the pivots lie between 1 / P_ii and M_ii.
        """
        model, size = statistics.model, len(self.objects)
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
        """Return tr M^-1 F(M), F(M) the EM update of the model M; l at a fixed point."""
        precision = statistics.model.precision
        weight = self.prior.strength + self.total_degrees_of_freedom
        scale = self._scale
        of_prior = float(np.trace(precision)) if scale is None else inner(precision, scale)
        return (
            self.prior.strength * of_prior + inner(precision, statistics.second_moment)
        ) / weight

    def _maximize(self, moment: Matrix) -> GaussianModel:
        strength = self.prior.strength
        weight = strength + self.total_degrees_of_freedom
        if self._scale is None:
            matrix = moment / weight
            matrix.flat[:: len(matrix) + 1] = (strength + np.diagonal(moment)) / weight
        else:
            matrix = (strength * self._scale + moment) / weight
        return GaussianModel.of(matrix, self.objects)

    def _taken(self, statistics: ExpectedStatistics) -> ExpectedStatistics:
        if not isinstance(statistics, ExpectedStatistics):
            raise KernelError(
                f"statistics: {type(statistics).__name__} found; pass what e_step(model) returns."
            )
        if statistics.em is not self:
            raise KernelError("statistics: another EM took them. Pass what e_step(model) returns.")
        return statistics

    def _own(self, model: GaussianModel) -> GaussianModel:
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


def _source(
    name: Hashable, visible: NDArray[np.bool_], values: Matrix, degrees_of_freedom: float
) -> Source:
    v, h = np.flatnonzero(visible), np.flatnonzero(~visible)
    return Source(name, visible, v, h, values[np.ix_(v, v)], degrees_of_freedom)
