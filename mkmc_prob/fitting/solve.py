"""The ascent over all objects: what `fit`, selection and the search for maxima have in common."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from ..diagnostics.protocol import FitResult
from ..em.ascent import Ascent
from ..em.completion import FactorCompletion
from ..em.em import EM
from ..em.expected import KernelExpectations
from ..em.methods import method_of
from ..em.problem import Problem
from ..em.trace import trace_of
from ..errors import ClusterError, warn
from ..model.gaussian import GaussianModel
from ..model.low_rank import LowRankModel
from ..model.prior import WishartPrior
from ..model.sources import Sources
from ..model.structures import Full, LowRank, Structure
from ..stacks.moments import block_moments
from ..stacks.stack import warn_of_scales
from ..utils.memory import check_memory
from .unseen import Unseen

#: A loose ascent ends when the estimated gain is below this many nats per visible object, with this
#: many steps at least in the window of the stopping rule, or after so many steps.
LOOSE, FEWEST_STEPS, MOST_STEPS = 1e-3, 2, 500
#: With so few factors an ascent starts from a path of strengths, the first of which is this one.
FEW_FACTORS, FIRST_STRENGTH = 5, 10.0
#: How many l x l matrices an ascent of the full structure holds at once, beside two per kernel
#: (measured: docs/benchmarks.md, Memory).
MATRICES = {"geodesic": 22, "em": 9}
#: A constant that is larger than the variance within each kernel is worth a warning.
LARGE_CONSTANT = 1.0


@dataclass(frozen=True, eq=False)
class Solution:
    """What an ascent found; `MKMCResult` says what each attribute is."""

    observed: xr.DataArray
    completed: xr.DataArray
    model: GaussianModel
    trace: xr.Dataset
    prior: WishartPrior
    sources: xr.Dataset
    degrees_of_freedom: xr.DataArray
    structure: Structure
    method: str
    tol: float
    converged: bool
    interrupted: bool
    completion: FactorCompletion | None = None

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
    tol_entries: float = math.inf,
    max_iter: int = 10_000,
    progress: bool = False,
    interrupted: bool = False,
) -> Solution:
    """Take an ascent to its end. The arguments are those of `fit`, checked.

    Objects that are hidden in every kernel are left out of the ascent and filled in afterwards.
    After a KeyboardInterrupt the solution is what was reached; if it was `interrupted` before, one
    EM step from the start.
    """
    _check_memory(problem, method)
    em, aside = seen_problem(problem)
    if isinstance(initial, Solution):
        initial = initial.model
    chosen = method_of(method, em)
    start = em.initial_model() if initial is None else em.adapted(aside.restrict_model(initial))
    ascent = Ascent(chosen, start, tol=tol, tol_entries=tol_entries)
    try:
        if interrupted:
            raise KeyboardInterrupt
        if initial is None:
            start = starting_model(em, start)
            ascent = Ascent(chosen, start, tol=tol, tol_entries=tol_entries)
        ascent.run(max_iter=max_iter, progress=progress)
        return _solution(ascent, aside, problem, method)
    except ClusterError as error:
        error.model = ascent.model
        raise
    except KeyboardInterrupt:  # what was reached is kept: only a second Ctrl-C discards it
        ascent.interrupted = True
        return _solution(ascent, aside, problem, method)


def _check_memory(problem: Problem, method: str) -> None:
    """Raise MKMCError if a fit of the full structure would not fit in memory."""
    if not isinstance(problem.structure, Full):
        return
    kernels, size = problem.stack.visible.shape
    arrays = MATRICES.get(method, MATRICES["em"]) + 2 * kernels
    check_memory(
        8.0 * arrays * size**2,
        f"a fit of {kernels} kernels over {size} objects",
        "Use a model of few factors: structure=PPCA(20).",
    )


def starting_model(em: EM, model: GaussianModel | None = None) -> GaussianModel:
    """Return the model that an ascent starts from; `model` is the EM's own start.

    With a handful of factors the leading components of the visible entries can lie near a lower
    maximum, so fits at larger strengths come first, each from the one before it.
    """
    model, strength = em.initial_model() if model is None else model, FIRST_STRENGTH
    if not isinstance(em.structure, LowRank) or em.structure.rank > FEW_FACTORS:
        return model
    while strength > em.prior.strength:
        stronger = em.problem.with_strength(strength)
        model = loose_ascent(EM.of(stronger), model, loose(stronger)).model
        strength /= 3.0
    return model


def loose(problem: Problem) -> float:
    """Return a tolerance in nats that is small relative to the number of visible objects."""
    return LOOSE * float(problem.stack.visible.sum())


def loose_ascent(em: EM, start: GaussianModel, tol: float) -> Ascent:
    """Return an ascent by the accelerated method that stops early."""
    ascent = Ascent(method_of("geodesic", em, fewest=FEWEST_STEPS), start, tol=tol)
    ascent.run(max_iter=MOST_STEPS, progress=False)
    return ascent


def warn_of_the_model(problem: Problem) -> None:
    """Warn if the paper's model is used on kernels that differ in scale or share a constant."""
    if not problem.sources.is_identical:
        return
    if problem.stack.in_memory:
        warn_of_scales(problem.stack.array)
    blocks = [kernel.moment for kernel in problem.stack.kernels() if len(kernel.v)]
    shared = min((block_moments(block).off_diagonal for block in blocks), default=0.0)
    if shared > LARGE_CONSTANT:
        warn(
            "the entries of every kernel share a constant: their mean off-diagonal entry is at "
            f"least {shared:.3g} times the variance within the kernel. The paper's model has mean "
            'zero; sources="adaptive" (the default of fit) estimates the constants.'
        )


def problem_of_result(result: FitResult) -> Problem:
    """Return the problem that a result solves; constants that the fit estimated are free again."""
    degrees, names = result.degrees_of_freedom.values, result.observed["kernel"].values.tolist()
    sources = Sources.of_dataset(result.sources, names, degrees)
    free = result.sources["estimated"].sel(kernel=names).values.astype(bool)
    sources = sources.with_constants(np.where(free, np.nan, sources.constant))
    return Problem.of(result.observed, result.prior, sources=sources, structure=result.structure)


def seen_problem(problem: Problem) -> tuple[EM, Unseen]:
    """Return the EM of what the ascent is over, and what the prior says of the other objects.

    The ascent leaves out kernels that share nothing, and objects that no other kernel shows. A
    model of few factors keeps the objects: what the prior says of them is not of that form.
    """
    problem.check_structure()
    kept = problem.sources.sharing > 0.0
    if kept.any() and not kept.all():
        problem = problem.with_kernels(np.flatnonzero(kept))
    if not isinstance(problem.structure, Full):
        everything = np.zeros(len(problem.stack.objects), dtype=bool)
        return EM.of(problem), Unseen(problem.prior, problem.stack.objects, everything)
    seen = problem.stack.visible.any(axis=0)
    seen[0] |= not seen.any()  # the prior alone determines the model: any object will do
    aside = Unseen(problem.prior, problem.stack.objects, ~seen)
    stack = problem.stack.with_objects(aside.seen)
    return EM.of(problem._replace(stack=stack, prior=aside.restrict_prior())), aside


def _solution(ascent: Ascent, aside: Unseen, problem: Problem, method: str) -> Solution:
    ascent.complete()
    stack, model = problem.stack, ascent.model
    if len(aside.unseen):
        model = GaussianModel.of(aside.extend(model.matrix), stack.objects)
    alone = _left_out(problem, ascent.em)
    sources = _with_constants(problem.sources, ascent.sources, alone)
    kernels = {"kernel": np.array(stack.names)}
    completion = _completion(ascent, problem, alone)
    if completion is not None:
        completed = completion.stack()
    else:
        completed = _completed(ascent, aside, problem, alone)
    solution = Solution(
        observed=stack.array,
        completed=completed,
        model=model,
        trace=trace_of(
            ascent,
            constant=aside.log_prior,
            alone={} if alone is None else alone.log_likelihood_by_name,
            names=stack.names,
        ),
        prior=aside.prior,
        sources=sources_dataset(sources, problem.sources).assign_coords(kernels),
        degrees_of_freedom=xr.DataArray(
            sources.degrees_of_freedom, dims="kernel", coords=kernels, name="degrees_of_freedom"
        ),
        structure=problem.structure,
        method=method,
        tol=ascent.tol,
        converged=ascent.converged,
        interrupted=ascent.interrupted,
        completion=completion,
    )
    ascent.warn_if_unfinished()
    return solution


def sources_dataset(sources: Sources, given: Sources) -> xr.Dataset:
    """Return the sources at the end of an ascent, with a note of which constants it chose."""
    about = {"long_name": "whether the fit chose the constant"}
    return sources.dataset.assign(estimated=("kernel", given.is_estimated, about))


def _left_out(problem: Problem, em: EM) -> KernelExpectations | None:
    """Return the statistics of the kernels that are left out of the ascent, None if none is."""
    places = [k for k, name in enumerate(problem.stack.names) if name not in em.names]
    if not places:
        return None
    alone = EM.of(problem.with_kernels(np.array(places)))
    found: KernelExpectations = alone.e_step(alone.initial_model())
    return found


def with_constants_of_left_out(problem: Problem, sources: Sources) -> Sources:
    """Return sources with the constants of the kernels that an ascent leaves out."""
    places = np.flatnonzero(np.isnan(sources.constant))
    if not len(places):
        return sources
    alone = EM.of(problem.with_kernels(places))
    constant = sources.constant.copy()
    constant[places] = alone.e_step(alone.initial_model()).sources.constant
    return sources.with_constants(constant)


def _with_constants(sources: Sources, kept: Sources, alone: KernelExpectations | None) -> Sources:
    """Return the sources of all kernels with the constants of those in and out of the ascent."""
    parts = [kept] if alone is None else [kept, alone.sources]
    found = {name: c for one in parts for name, c in zip(one.names, one.constant, strict=True)}
    return sources.with_constants(np.array([found[name] for name in sources.names]))


def _completion(
    ascent: Ascent, problem: Problem, alone: KernelExpectations | None
) -> FactorCompletion | None:
    """Return what completes the kernels by a few factors; None for the full structure."""
    model, sources = ascent.completion
    if not isinstance(model, LowRankModel):
        return None
    return FactorCompletion(problem.stack, _with_constants(problem.sources, sources, alone), model)


def _completed(
    ascent: Ascent, aside: Unseen, problem: Problem, alone: KernelExpectations | None
) -> xr.DataArray:
    """Return the completed kernels of the last E-step."""
    stack, em = problem.stack, ascent.em
    model, sources = ascent.completion
    if problem.sources.is_identical and len(aside.unseen):
        values = em.complete(model).values
        completed = stack.array.copy(data=np.stack([aside.extend(matrix) for matrix in values]))
        completed.attrs["long_name"] = "completed kernel matrices"
        return completed.rename("completed")
    if len(aside.unseen):
        model = GaussianModel.of(aside.extend(model.matrix), stack.objects)
    sources = _with_constants(problem.sources, sources, alone)
    return em.completed(problem, sources, model)
