"""`fit`: from an incomplete stack to a result."""

import math
from typing import Any

import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike

from ..em.methods import METHODS, check_method
from ..em.problem import DEFAULT_STRENGTH, Problem, one_prior, problem_of
from ..errors import warn
from ..linalg.tiles import on_cluster
from ..model.gaussian import GaussianModel
from ..model.prior import WishartPrior
from ..model.structures import PPCA, FactorAnalysis, Full, Structure, structure_of
from ..stacks.degrees import DegreesOfFreedom, DegreesOrAuto
from ..stacks.lazy_stack import LazyStack
from ..stacks.pattern import warn_of_what_is_not_identified
from ..utils.arguments import checked, choice, optional, positive, tolerance, whole
from .calibration import calibrated, is_auto, with_degrees
from .low_rank_prior import low_rank_prior, with_low_rank_prior
from .result import MKMCResult
from .solve import solve, warn_of_the_model

#: The default for `tol_entries`, except for the paper's model.
TOL_ENTRIES = 0.1


@checked(
    strength=positive,
    method=choice(*METHODS),
    tol=tolerance,
    tol_entries=optional(positive),
    max_iter=whole(least=1),
)
def fit(
    stack: xr.DataArray | LazyStack,
    *,
    strength: float = DEFAULT_STRENGTH,
    sources: str | xr.Dataset = "adaptive",
    sharing: DegreesOfFreedom = 1.0,
    structure: str | Structure = "full",
    prior: WishartPrior | PPCA | FactorAnalysis | str | None = None,
    degrees_of_freedom: DegreesOrAuto = 1.0,
    method: str = "geodesic",
    tol: float = 1e-3,
    tol_entries: float | None = None,
    max_iter: int = 10_000,
    initial: MKMCResult | GaussianModel | xr.DataArray | pd.DataFrame | ArrayLike | None = None,
    progress: bool = False,
    client: Any = None,
) -> MKMCResult:
    """Complete the kernels of `stack` mutually, by one stated model.

    Parameters
    ----------
    stack
        The incomplete kernels, from `stack_kernels`. Not changed. Kernels that are not in memory
        need a `structure` of few factors.
    strength
        lambda > 0, the strength of the prior, measured in pseudo-observations, relative to the
        kernels' degrees of freedom.
    sources
        How each kernel relates to the model matrix. "adaptive": each kernel has a scale and a
        constant of its own, estimated from it. "identical": the paper's model, in which all kernels
        have one scale and no constant. A Dataset like ``result.sources`` holds scale, constant and
        sharing at its values.
    sharing
        From 0 to 1, the share of a kernel's variance that is common to all kernels: one number, one
        per kernel, or labeled by kernel. A kernel with sharing 0 is completed from itself alone.
    structure
        The structure of the model matrix M: "full", any positive definite matrix; ``PPCA(rank)``,
        a few factors and the same noise for all objects; ``FactorAnalysis(rank)``, noise of its own
        for each. With a few factors a step costs one product of each kernel with `rank` columns,
        hundreds of times less for thousands of objects. The best strength is then often larger
        than 1: choose it with `complete` or `select_model`.
    prior
        The prior itself, instead of `strength`, if you choose its scale. Or ``PPCA(rank)``: the
        scale is then a model of that many factors, fitted to the same kernels with strength 1, and
        `strength` says how much it counts. That helps if pairs of objects are never seen together
        and a few factors describe the objects; `select_model` can test it.
    degrees_of_freedom
        nu_k > 0, the number of observations each kernel counts for: one number, one per kernel, or
        labeled by kernel. 1 in the paper. "auto": numbers with which the intervals of held-out
        entries are calibrated (`calibrate` explains the rule), at the cost of ten quick fits. The
        strength is then multiplied by the mean of nu_k, so that it keeps its meaning. Use "auto"
        if you need `MKMCResult.standard_deviation`.
    method
        The method of ascent. All methods maximize the same likelihood, and it rises at every step.
        "geodesic": an accelerated form of EM, L-BFGS in the geometry in which an EM step is a
        gradient step. "em": the paper's Algorithm 1, which needs thousands of steps if the strength
        is small. "squarem", for the full structure: squared extrapolation, the classical
        accelerator of EM, for comparison; it can need more evaluations than EM does. "px-em", for
        models of few factors: parameter-expanded EM, near a maximum never slower than "em". If
        there are several maxima (at strengths of 0.01 and less, for example) the methods may end
        in different ones.
    tol
        The fit has converged when the estimated remaining gain in log-likelihood is at most `tol`,
        in nats. A shortfall of g nats displaces any one parameter by at most about sqrt(2 g) of its
        standard error: 1e-3 stands for 4 %. Where L is flat that error is large, and poorly
        determined entries can still change in the second digit: use 1e-5 for numbers to report. The
        estimate extrapolates the rates observed so far; far from the maximum, at a small strength,
        and right after a warm start, it can be several times too small (`missing_information`
        computes another). At least ten steps are taken before convergence is declared; ``tol=0``
        runs exactly `max_iter` steps.
    tol_entries
        In addition, the estimated remaining change of every entry of the model must be at most
        `tol_entries`, relative to sqrt(M_ii M_jj). L can be so flat in an entry that a gain far
        below `tol` moves it a lot: at small strengths, entries of pairs never observed together.
        0.1 by default, but with ``sources="identical"`` and the full structure no condition.
        ``trace.attrs["limit"]`` is what the fit waited for last, "gain" or "entries". For models of
        few factors the changes are bounded from above.
    max_iter
        The most steps, at least 1.
    initial
        Where to start: another fit's result, a model, or a labeled positive definite matrix over
        all objects. If left out, the scale of the prior; with "identical" the paper's start, zeros
        for the missing entries; with a few factors the leading components of the visible entries,
        with five or fewer after quick fits at larger strengths.
    progress
        Whether to show a progress bar.
    client
        A `dask.distributed.Client`: products with kernels that are not in memory are computed on
        its cluster. If left out, on that of the active client, if there is one.

    Returns
    -------
    MKMCResult
        The completed kernels, the model matrix, and the trace of the likelihood. It ends with an
        EM step, whatever the method: ``completed`` is its E-step, ``model`` its M-step.

    Raises
    ------
    KernelError, LabelError, IndefiniteKernelError
        If the stack or an argument cannot be used; the message names the kernel, the object, the
        value and the remedy.
    ClusterError
        If the cluster does not answer any more; ``error.model`` is the last iterate.
    MonotonicityError
        If a step lowered the penalized log-likelihood by more than rounding.

    Warns
    -----
    ConvergenceWarning
        Not converged within `max_iter`, or interrupted (Ctrl-C returns what there is; while degrees
        of freedom are calibrated, one step with equal weights).
    IdentifiabilityWarning
        One warning of everything that the kernels leave to the prior: pairs of objects never
        observed together (`MKMCResult.unseen_pairs` gives their bounds), objects missing in every
        kernel or visible only in kernels that share nothing, kernels without visible objects, and
        groups of objects that no kernel connects.
    MKMCWarning
        With ``sources="identical"``: kernels whose scales differ by more than a factor of 10, or
        whose entries all share a constant larger than the variance within the kernel. With
        ``degrees_of_freedom="auto"``: as `calibrate` does.

    Notes
    -----
    The likelihood of the visible part is the right one if missingness is ignorable, that is if
    which objects a source misses does not depend on the missing similarities.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import fit, stack_kernels
    >>> kernels = np.array([[[2.0, 1.0], [1.0, 2.0]], [[1.0, 0.2], [0.2, 1.0]]])
    >>> stack = stack_kernels(kernels, visible=[[1, 1], [0, 1]])
    >>> result = fit(stack, tol=1e-9)
    >>> result.converged
    True
    >>> result.completed.sel(kernel="Q2").values.round(2)
    array([[1.68, 0.46],
           [0.46, 1.  ]])
    >>> result.sources["constant"].values.round(2)
    array([0.32, 0.  ])
    """
    named = structure_of(structure)
    check_method(method, named)
    factors = low_rank_prior(prior, named)
    given: Any = None if factors else prior  # one_prior checks it
    auto = is_auto(degrees_of_freedom)
    problem = problem_of(
        stack,
        one_prior(strength, given),
        degrees_of_freedom=1.0 if auto else degrees_of_freedom,
        sources=sources,
        sharing=sharing,
        structure=named,
        in_memory=False,
    )
    warn_of_the_model(problem)
    warn_of_what_is_not_identified(problem.stack.shown, problem.sources.sharing)
    interrupted, calibration = False, None
    estimated = isinstance(sources, str) and sources == "adaptive"
    try:
        if auto:
            calibration = calibrated(
                problem, factors=factors, estimated=estimated, progress=progress
            )
            problem = with_degrees(problem, calibration.degrees_of_freedom.values)
        if factors:
            problem = with_low_rank_prior(problem, factors, tol=tol, max_iter=max_iter)
    except KeyboardInterrupt:  # the default prior, then
        interrupted = True
        if auto and calibration is None:
            warn(
                "degrees_of_freedom: interrupted before they were calibrated. They are 1 for every "
                "kernel, so the standard deviations mean nothing."
            )
    with on_cluster(client):
        solution = solve(
            problem,
            initial=initial,
            method=method,
            tol=tol,
            tol_entries=_tol_entries(tol_entries, problem),
            max_iter=max_iter,
            progress=progress,
            interrupted=interrupted,
        )
    return MKMCResult(**vars(solution), calibration=calibration)


def _tol_entries(given: float | None, problem: Problem) -> float:
    """Return the tolerance of the entries: the default, or none for the paper's model."""
    if given is not None:
        return given
    paper = problem.sources.is_identical and isinstance(problem.structure, Full)
    return math.inf if paper else TOL_ENTRIES
