"""What the E-step takes and gives: each kernel's visible block, the expected statistics.

Enters: a kernel's values and visibility; the sums of an E-step. Leaves: the same, labelled.
"""

from collections.abc import Hashable
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from ..linalg.symmetric import Matrix
from ..model.conditional import LOG_2_PI
from ..model.gaussian import GaussianModel
from ..stacks.matrix import labelled

if TYPE_CHECKING:
    from .em import EM


class Source(NamedTuple):
    """What one kernel shows: who is visible (v) and hidden (h), Q_vv, and how often it counts.

    `order` puts what is over (v, h) into the order of all objects.
    """

    name: Hashable
    visible: NDArray[np.bool_]
    v: NDArray[np.intp]
    h: NDArray[np.intp]
    order: NDArray[np.intp]
    moment: Matrix
    degrees_of_freedom: float

    def log_likelihood(self, log_det: float, trace: float) -> float:
        """Return nu E_q[log N(v | 0, M_vv)] from log det M_vv and tr M_vv^-1 Q_vv."""
        return -0.5 * self.degrees_of_freedom * (len(self.v) * LOG_2_PI + log_det + trace)


def source_of(
    name: Hashable, visible: NDArray[np.bool_], values: Matrix, degrees_of_freedom: float
) -> Source:
    """Return what a kernel shows, from its values and who is visible."""
    v, h = np.flatnonzero(visible), np.flatnonzero(~visible)
    order = np.argsort(np.concatenate([v, h]))
    return Source(name, visible, v, h, order, values[np.ix_(v, v)], degrees_of_freedom)


class ExpectedStatistics:
    """What the E-step at a model gives: the expected sufficient statistics and their by-products.

    Equation :eq:`eq-expected-statistic` of the derivation.

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
        """S = sum_k nu_k E[x_k x_k'], labelled: dims ``(object, object_bis)``.

        Equations :eq:`eq-sufficient-statistic` and :eq:`eq-expected-statistic` of the derivation.
        """
        return labelled(self.second_moment, self.model.objects, "sufficient_statistic")

    @cached_property
    def completed(self) -> xr.DataArray:
        """The completed kernels E[x_k x_k'] as a stack: the paper's Q(k) after its E-step.

        Equations :eq:`eq-e-step-vh` and :eq:`eq-e-step-hh` of the derivation.
        """
        return self.em.complete(self.model)
