"""The EM algorithm, one method per step of the derivation (the paper, Algorithm 1).

`EM` says what the steps are. `full` and `low_rank` take them, for the structures of the model
matrix; the loop that calls them is in `ascent`.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, NamedTuple

import numpy as np
import xarray as xr

from ..errors import KernelError
from ..evaluation.scores import kl_divergence
from ..model.gaussian import GaussianModel
from ..model.prior import WishartPrior
from ..model.sources import SourceKernel, Sources
from ..model.structures import FULL, Structure, structure_of
from ..stacks.degrees import DegreesOfFreedom
from ..stacks.labels import match
from ..stacks.lazy_stack import LazyStack
from ..stacks.matrix import labelled
from ..stacks.stack import check_complete
from .expected import KernelExpectations
from .problem import Problem, model_over


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
    structure
        The structure of the model matrix: "full" for any positive definite matrix,
        `PPCA` or `FactorAnalysis`.

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

    _of_structure: ClassVar[dict[type[Structure], type["EM"]]] = {}

    def __init_subclass__(cls, structure: type[Structure]) -> None:
        EM._of_structure[structure] = cls

    def __new__(
        cls,
        stack: Any = None,  # unpickling passes nothing
        prior: Any = None,
        degrees_of_freedom: Any = 1.0,
        sources: Any = None,
        structure: str | Structure = "full",
    ) -> "EM":
        """Return an EM of the class for this structure."""
        return object.__new__(cls._for(structure_of(structure)))

    @classmethod
    def _for(cls, structure: Structure) -> "type[EM]":
        """Return the class that takes the steps for this structure."""
        if cls is not EM:
            return cls
        return next(c for kind, c in EM._of_structure.items() if isinstance(structure, kind))

    def __init__(
        self,
        stack: xr.DataArray | LazyStack,
        prior: WishartPrior,
        degrees_of_freedom: DegreesOfFreedom = 1.0,
        sources: Sources | xr.Dataset | None = None,
        structure: str | Structure = "full",
    ) -> None:
        if not isinstance(prior, WishartPrior):
            raise KernelError(f"prior: {prior!r} found; pass WishartPrior(strength).")
        if not isinstance(sources, Sources | xr.Dataset | None):
            raise KernelError(
                f"sources: {sources!r} found; pass Sources.estimated(stack), a Dataset like "
                "result.sources, or None."
            )
        named = structure_of(structure)
        self._set(Problem.of(stack, prior, degrees_of_freedom, sources, structure=named))

    @classmethod
    def of(cls, problem: Problem) -> "EM":
        """Return the EM of a problem, which is checked already."""
        em = object.__new__(cls._for(problem.structure))
        em._set(problem)
        return em

    def _set(self, problem: Problem) -> None:
        self._problem = problem
        stack, self.prior, self.sources, self.structure = problem
        self.degrees_of_freedom = self.sources.degrees_of_freedom
        self.names, self.objects, self._stack = stack.names, stack.objects, stack
        self.total_degrees_of_freedom = self.sources.total_degrees_of_freedom
        degrees = self.degrees_of_freedom.tolist()
        self.source_kernels = [
            SourceKernel.of(*part)
            for part in zip(stack.kernels(), self.sources, degrees, strict=True)
        ]
        self.kernels = [part.kernel for part in self.source_kernels]
        self._prepare()

    def _prepare(self) -> None:
        """Compute what never changes between the steps."""
        raise NotImplementedError

    @property
    def problem(self) -> Problem:
        """The checked problem."""
        return self._problem

    @property
    def stack(self) -> xr.DataArray:
        """The incomplete kernels, NaN where an object is missing; a copy."""
        return self._stack.array.copy()

    def __repr__(self) -> str:
        structure = "" if self.structure == FULL else f", {self.structure.name}"
        sizes = f"{len(self.names)} kernels, {len(self.objects)} objects"
        return f"EM({sizes}, {self.prior!r}{structure})"

    def initial_model(self) -> GaussianModel:
        """Return the model that an ascent starts from.

        For the paper's model it is the paper's start: the M-step of the kernels with zeros for
        hidden entries. With `sources` it is M = T, the mode of the prior; for a model of low rank
        the leading components of the visible entries.
        Equation :eq:`eq-initial` of the derivation.
        """
        raise NotImplementedError

    def adapted(self, model: GaussianModel) -> GaussianModel:
        """Return a model of this structure near any model over the objects, to start from."""
        raise NotImplementedError

    def e_step(self, model: GaussianModel) -> Any:
        """Return the expected sufficient statistics at `model` (Algorithm 1, lines 5 to 10).

        Equations :eq:`eq-e-step-vh` and :eq:`eq-e-step-hh` of the derivation.
        """
        raise NotImplementedError

    def m_step(self, statistics: Any) -> Any:
        """Return the model that maximizes the Q-function (Algorithm 1, line 11).

        Equation :eq:`eq-m-step` of the derivation.
        """
        raise NotImplementedError

    def q_function(self, model: GaussianModel, statistics: Any) -> float:
        """Return the Q-function at `model`, in nats; only the prior's constant is left out.

        Equation :eq:`eq-q-function` of the derivation.
        """
        raise NotImplementedError

    def update_constants(self, model: GaussianModel) -> Sources:
        """Return the sources with every constant at its maximum for this model.

        With G = s_k M_vv + (1 - s_k) T_vv, q = G^-1 1, t = 1'q and r = q' S q, S the visible block
        in units of the scale, it is max(0, r/t^2 - 1/t). Equation :eq:`eq-constant` of the
        derivation.
        """
        raise NotImplementedError

    def rounding_bound(self, statistics: Any) -> float:
        """Return by how much rounding can change the penalized log-likelihood, in nats.

        The bounds and their derivations are in `mkmc_prob.em.rounding`.
        """
        raise NotImplementedError

    def level_of_q(self, statistics: Any) -> Any:
        """Return what `rise_of_q` needs of the model that a step starts from."""
        raise NotImplementedError

    def rise_of_q(self, level: Any, model: GaussianModel) -> float:
        """Return the rise of the Q-function in an EM step that led to `model`, in nats.

        Equation :eq:`eq-gain-q` of the derivation.
        """
        raise NotImplementedError

    def threads(self) -> AbstractContextManager[Any]:
        """Return a context in which the steps use as many BLAS threads as pay."""
        return nullcontext()

    @property
    def metric_weight(self) -> float:
        """w, if the rise of the Q-function by a short EM step of length u is w u^2 / 2."""
        raise NotImplementedError

    def is_sound(self, statistics: Any) -> bool:
        """Return whether rounding leaves the statistics of a step meaningful."""
        return True

    def log_prior(self, model: GaussianModel, statistics: Any = None) -> float:
        """Return log p(M), without its constant, in nats.

        `statistics` is the E-step at this model, if it was taken already.
        """
        return self.prior.log_density(model)

    def entropy(self, statistics: Any) -> float:
        """Return sum_k nu_k times the entropy of h_k given v_k at the model of `statistics`.

        With `sources`, what the Q-function leaves out: the entropy less the divergence of each
        constant from its prior, less the log density of the kernels' own parts, in the kernels'
        units; for a kernel that shares nothing, its log-likelihood.
        Equations :eq:`eq-entropy` and :eq:`eq-source-entropy` of the derivation.
        """
        return float(self._taken(statistics).entropy.sum())

    def penalized_log_likelihood(
        self, model: GaussianModel, statistics: KernelExpectations | None = None
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
        return float(statistics.log_likelihood.sum()) + self.log_prior(model, statistics)

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
        match(np.array(self._stack.names), completed["kernel"].values, absent)
        objective = self.prior.strength * kl_divergence(scale, covariance)
        for name, nu in zip(self.names, self.degrees_of_freedom.tolist(), strict=True):
            objective += nu * kl_divergence(completed.sel(kernel=name), covariance)
        return objective

    def complete(self, model: GaussianModel) -> xr.DataArray:
        """Return the kernels completed by their expectations at `model`, as a stack without NaN.

        Visible entries are returned bit for bit.
        Equations :eq:`eq-e-step-vh` and :eq:`eq-e-step-hh` of the derivation.
        """
        return self.completed(self._problem, self._at_maximum(model), self.own(model))

    @staticmethod
    def completed(problem: Problem, sources: Sources, model: GaussianModel) -> xr.DataArray:
        """Return the kernels of a problem completed by their expectations, given the constants."""
        raise NotImplementedError

    def _at_maximum(self, model: GaussianModel) -> Sources:
        """Return the sources, with constants that are to be estimated at their maximum."""
        held = self.sources.constant
        if not np.isnan(held).any():
            return self.sources
        best = self.update_constants(model).constant
        return self.sources.with_constants(np.where(np.isnan(held), best, held))

    def _taken(self, statistics: Any) -> Any:
        """Return `statistics` if an E-step of this EM took them; raise otherwise."""
        if not isinstance(statistics, KernelExpectations):
            raise KernelError(
                f"statistics: {type(statistics).__name__} found; pass what e_step(model) returns."
            )
        if statistics.problem.stack is not self._stack:
            raise KernelError("statistics: another EM took them. Pass what e_step(model) returns.")
        return statistics

    def own(self, model: GaussianModel) -> GaussianModel:
        """Return `model` if it is over these objects in this order; raise otherwise."""
        return model_over(self.objects, model)


class QLevel(NamedTuple):
    """What the rise of the Q-function needs of the model that a step starts from."""

    update_trace: float
    log_determinant: float
