"""What `EM.e_step` (in `em`) returns: expected sufficient statistics, completed kernels."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from ..linalg.symmetric import Matrix
from ..model.gaussian import GaussianModel
from ..stacks.kernel_stack import KernelStack, VisibleKernel
from ..stacks.matrix import labelled


class ExpectedStatistics:
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
        stack: KernelStack,
        kernels: Sequence[VisibleKernel],
        model: GaussianModel,
        second_moment: Matrix,
        log_likelihood: NDArray[np.float64],
        entropy: NDArray[np.float64],
    ) -> None:
        self.stack, self._kernels = stack, kernels
        self.model = model
        self.second_moment = second_moment
        self.log_likelihood, self.entropy = log_likelihood, entropy

    def without_precision(self) -> "ExpectedStatistics":
        """Return the same statistics, whose model has let go of the memory of M^-1."""
        model = self.model.without_precision()
        parts = (self.second_moment, self.log_likelihood, self.entropy)
        return ExpectedStatistics(self.stack, self._kernels, model, *parts)

    def __repr__(self) -> str:
        table = pd.DataFrame(
            {"log_likelihood": self.log_likelihood, "entropy": self.entropy}, index=self.stack.names
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
        return complete(self.stack, self._kernels, self.model)


def complete(
    stack: KernelStack, kernels: Sequence[VisibleKernel], model: GaussianModel
) -> xr.DataArray:
    """Return the kernels completed by their expectations at `model`; see `EM.complete`."""
    completed = stack.array.copy()
    for values, kernel in zip(completed.values, kernels, strict=True):
        if kernel.visible.all():
            continue
        conditional = model.condition(kernel.visible)
        cross, hidden = conditional.expected_second_moments(kernel.moment)
        values[np.ix_(kernel.v, kernel.h)] = cross
        values[np.ix_(kernel.h, kernel.v)] = cross.T
        values[np.ix_(kernel.h, kernel.h)] = hidden
    completed.attrs["long_name"] = "completed kernel matrices"
    return completed.rename("completed")
