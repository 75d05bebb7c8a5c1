"""The ascent over all objects: what `fit`, selection and the search for maxima have in common."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from ..em.ascent import Ascent
from ..em.em import EM
from ..em.methods import METHODS
from ..em.problem import Problem
from ..em.trace import trace_of
from ..model.gaussian import GaussianModel
from ..model.prior import WishartPrior
from ..stacks.kernel_stack import KernelStack
from .unseen import Unseen


@dataclass(frozen=True, eq=False)
class Solution:
    """What an ascent found; `MKMCResult` says what each attribute is."""

    observed: xr.DataArray
    completed: xr.DataArray
    model: GaussianModel
    trace: xr.Dataset
    prior: WishartPrior
    degrees_of_freedom: xr.DataArray
    method: str
    tol: float
    converged: bool
    interrupted: bool

    @property
    def n_iter(self) -> int:
        """How many steps were taken."""
        return self.trace.sizes["iteration"] - 1

    @property
    def penalized_log_likelihood(self) -> float:
        """L of `model`, in nats."""
        return float(self.trace["penalized_log_likelihood"][-1])


def solve(
    problem: Problem,
    *,
    initial: Any = None,
    method: str = "geodesic",
    tol: float = 1e-3,
    max_iter: int = 10_000,
    progress: bool = False,
) -> Solution:
    """Take an ascent to its end. The arguments are those of `fit`, checked.

    Objects that are hidden in every kernel are left out of the ascent and filled in afterwards.
    After a KeyboardInterrupt the solution is what was reached.
    """
    em, aside = seen_problem(problem)
    if isinstance(initial, Solution):
        initial = initial.model
    start = em.initial_model() if initial is None else aside.restrict_model(initial)
    ascent = Ascent(METHODS[method](em), start, tol=tol)
    try:
        ascent.run(max_iter=max_iter, progress=progress)
        return _solution(ascent, aside, problem.stack, method)
    except KeyboardInterrupt:  # what was reached is kept: only a second Ctrl-C discards it
        ascent.interrupted = True
        return _solution(ascent, aside, problem.stack, method)


def seen_problem(problem: Problem) -> tuple[EM, Unseen]:
    """Return the EM of the objects that some kernel shows, and what the prior says of the rest."""
    stack, prior, degrees = problem
    aside = Unseen(prior, stack.objects, ~stack.visible.any(axis=0))
    seen = Problem(stack.with_objects(aside.seen), aside.restrict_prior(), degrees)
    return EM.of(seen), aside


def _solution(ascent: Ascent, aside: Unseen, stack: KernelStack, method: str) -> Solution:
    ascent.complete()
    completed, model = ascent.completed, ascent.model
    if len(aside.unseen):
        values = np.stack([aside.extend(matrix) for matrix in completed.values])
        attrs = completed.attrs
        completed = stack.array.copy(data=values).rename(completed.name)
        completed.attrs = dict(attrs)
        model = GaussianModel.of(aside.extend(model.matrix), stack.objects)
    solution = Solution(
        observed=stack.array,
        completed=completed,
        model=model,
        trace=trace_of(ascent, constant=aside.log_prior),
        prior=aside.prior,
        degrees_of_freedom=xr.DataArray(
            ascent.em.degrees_of_freedom,
            dims="kernel",
            coords={"kernel": stack.array["kernel"].values},
            name="degrees_of_freedom",
        ),
        method=method,
        tol=ascent.tol,
        converged=ascent.converged,
        interrupted=ascent.interrupted,
    )
    ascent.warn_if_unfinished()
    return solution
