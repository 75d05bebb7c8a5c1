"""What `EM.e_step` (in `em`) returns: expected sufficient statistics, completed kernels."""

from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from ..linalg.symmetric import Matrix
from ..model.gaussian import GaussianModel
from ..model.sources import Constant, Sources
from ..stacks.kernel_stack import KernelStack
from ..stacks.matrix import labelled
from .problem import Problem


class Expectation(NamedTuple):
    """What an E-step says of one kernel: log-likelihood and entropy, times nu_k, in nats.

    `constant` is the kernel's constant, if it has one, and `rounding` bounds the rounding of the
    log-likelihood beyond that of the model.
    """

    log_likelihood: float
    entropy: float
    constant: Constant | None = None
    rounding: float = 0.0


class KernelExpectations:
    """What an E-step says of each kernel, whatever the structure of the model matrix."""

    def __init__(
        self, problem: Problem, model: GaussianModel, kernels: Sequence[Expectation]
    ) -> None:
        self.problem, self.model, self.kernels = problem, model, kernels
        self.log_likelihood = np.array([kernel.log_likelihood for kernel in kernels])
        self.entropy = np.array([kernel.entropy for kernel in kernels])

    def without_precision(self) -> Any:
        """Return the statistics without the memory of M^-1, if they hold it."""
        return self

    @property
    def sources(self) -> Sources:
        """The sources, with the constants at which the expectations were taken."""
        sources = self.problem.sources
        pairs = zip(self.kernels, sources.constant, strict=True)
        constants = [
            float(given) if kernel.constant is None else kernel.constant.variance
            for kernel, given in pairs
        ]
        return sources.with_constants(np.array(constants))

    @property
    def log_likelihood_by_name(self) -> dict[Hashable, float]:
        """`log_likelihood` by the name of the kernel."""
        return dict(zip(self.problem.stack.names, self.log_likelihood.tolist(), strict=True))

    @property
    def rounding(self) -> float:
        """A bound on the rounding of the kernels' own terms, in nats."""
        return sum(kernel.rounding for kernel in self.kernels)

    def gain_of_constants(self, before: Sequence[Expectation] | None) -> float:
        """Return by how much L rises when the constants move to those of this E-step, in nats.

        `before` is what the E-step before found; NaN without one.
        """
        if before is None:
            return float("nan")
        gain = 0.0
        degrees = self.problem.sources.degrees_of_freedom.tolist()
        for nu, now, then in zip(degrees, self.kernels, before, strict=True):
            if now.constant is not None and then.constant is not None:
                own, old = now.constant, then.constant.variance
                gain += nu * (own.level(own.variance) - own.level(old))
        return gain


class ExpectedStatistics(KernelExpectations):
    """The expected sufficient statistics at a model, and what the E-step computes with them.

    Equation :eq:`eq-expected-statistic` of the derivation. `EM.e_step` returns them.

    Attributes
    ----------
    model : GaussianModel
        M, at which the expectations were taken.
    second_moment : ndarray, shape (l, l)
        S = sum_k nu_k E[x_k x_k'], exactly symmetric; labeled as `sufficient_statistic`.
    log_likelihood : ndarray, shape (K,)
        nu_k E_q[log N(v_k | 0, M_vv)] per kernel in nats, 2 pi included.
    entropy : ndarray, shape (K,)
        nu_k times the entropy of h_k given v_k under M, per kernel in nats.

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
        problem: Problem,
        model: GaussianModel,
        second_moment: Matrix,
        kernels: Sequence[Expectation],
    ) -> None:
        super().__init__(problem, model, kernels)
        self.second_moment = second_moment

    def without_precision(self) -> "ExpectedStatistics":
        """Return the same statistics, whose model has let go of the memory of M^-1."""
        model = self.model.without_precision()
        return ExpectedStatistics(self.problem, model, self.second_moment, self.kernels)

    def __repr__(self) -> str:
        table = pd.DataFrame(
            {"log_likelihood": self.log_likelihood, "entropy": self.entropy},
            index=self.problem.stack.names,
        )
        return (
            f"ExpectedStatistics of {len(table)} kernels\n{table}\n"
            f"sum of second moments\n{self.sufficient_statistic.to_pandas()}"
        )

    @property
    def sufficient_statistic(self) -> xr.DataArray:
        """S = sum_k nu_k E[x_k x_k'], labeled: dims ``(object, object_bis)``.

        Equations :eq:`eq-sufficient-statistic` and :eq:`eq-expected-statistic` of the derivation.
        """
        return labelled(self.second_moment, self.model.objects, "sufficient_statistic")

    @cached_property
    def completed(self) -> xr.DataArray:
        """The completed kernels E[x_k x_k'] as a stack: the paper's Q(k) after its E-step.

        Equations :eq:`eq-e-step-vh` and :eq:`eq-e-step-hh` of the derivation.
        """
        stack, prior = self.problem.stack, self.problem.prior
        scale = None if prior.is_identity else prior.scale_matrix(stack.objects)
        return complete(stack, self.sources, scale, self.model)


def complete(
    stack: KernelStack, sources: Sources, scale: Matrix | None, model: GaussianModel
) -> xr.DataArray:
    """Return the kernels completed by their expectations at `model`; see `EM.complete`.

    `scale` is T, None for the identity.
    """
    completed = stack.array.copy()
    for values, kernel, source in zip(completed.values, stack.kernels(), sources, strict=True):
        if kernel.visible.all():
            continue
        conditional = source.condition(model, scale, kernel.visible)
        cross, hidden = conditional.expected_second_moments(kernel.moment)
        values[np.ix_(kernel.v, kernel.h)] = cross
        values[np.ix_(kernel.h, kernel.v)] = cross.T
        values[np.ix_(kernel.h, kernel.h)] = hidden
    completed.attrs["long_name"] = "completed kernel matrices"
    return completed.rename("completed")
