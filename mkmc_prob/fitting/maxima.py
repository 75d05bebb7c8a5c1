"""Local maxima: ascents from several starts, and the distinct points where they end."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from ..em.methods import METHODS
from ..em.problem import DEFAULT_STRENGTH, Problem, one_prior, problem_of
from ..errors import ConvergenceWarning, KernelError, MKMCWarning, warn
from ..evaluation.baselines import impute_means
from ..linalg.cholesky import half_solve
from ..linalg.symmetric import Matrix, symmetrize
from ..model.gaussian import GaussianModel
from ..model.prior import WishartPrior
from ..model.structures import Structure, need_full, structure_of
from ..stacks.degrees import DegreesOfFreedom
from ..stacks.kernel_stack import KernelStack
from ..stacks.labels import Labels
from ..stacks.pattern import warn_of_what_is_not_identified
from ..stacks.stack import visible_objects
from ..utils.arguments import checked, choice, seed, tolerance, whole
from ..utils.processes import in_processes
from .information import information_at
from .result import MKMCResult
from .solve import Solution, seen_problem, solve, warn_of_the_model

#: The default starts.
STARTS = ("zeros", "means", "kernels", "random", "continuation")


#: The start that is computed by its own ascent.
CONTINUED = "continuation"


#: Continuation begins at these multiples of the strength.
CONTINUATION = (1000.0, 300.0, 100.0, 30.0, 10.0, 3.0)


#: The ascents continue until this share of `tol` is the remaining gain.
FINER = 0.01


#: How often an ascent restarts from its end, at most, until that gains no more.
FRESH_STARTS = 10


#: Where L is evaluated between two ends, as shares of the way: Chebyshev's points.
PLACES = 0.5 - 0.5 * np.cos(np.pi * (np.arange(17) + 0.5) / 17)


@dataclass(frozen=True, eq=False, repr=False)
class Maxima:
    """What `explore_maxima` found.

    Attributes
    ----------
    results : list of MKMCResult
        One per distinct point, the most likely first. Their traces are those of the last restart:
        an ascent restarts from its end until that gains nothing more.
    table : DataFrame
        A row per start, the most likely first: ``point``, the index of the result it ended in;
        ``penalized_log_likelihood`` in nats; ``evaluations``; ``converged``; ``rate`` and
        ``is_maximum`` of the point (`missing_information`; a rate above 1 means a saddle), NaN and
        <NA> if they are unknown, because the ascent did not converge or because, by its curvature,
        the point is more than `tol` below where L is stationary; ``difference``,
        ||completed - best completed||_F / ||best completed||_F.

    Examples
    --------
    >>> from mkmc_prob import datasets, explore_maxima, remove_objects
    >>> kernels, _ = datasets.make_fusion_problem(12, 3)
    >>> found = explore_maxima(remove_objects(kernels, 0.3, seed=0), strength=0.1)
    >>> bool(found.table["is_maximum"].iloc[0])
    True
    """

    results: list[MKMCResult]
    table: pd.DataFrame

    @property
    def best(self) -> MKMCResult:
        """The most likely of the results."""
        return self.results[0]

    def __repr__(self) -> str:
        known = self.table["is_maximum"].fillna(False).groupby(self.table["point"]).any().sum()
        return (
            f"Maxima: {len(self.results)} distinct points, {known} known to be maxima\n"
            f"{self.table.to_string()}"
        )


@checked(random_starts=whole(least=0), tol=tolerance, seed=seed, workers=whole(least=1))
def explore_maxima(
    stack: xr.DataArray,
    *,
    starts: Sequence[str] | Mapping[str, Any] = STARTS,
    random_starts: int = 3,
    strength: float = DEFAULT_STRENGTH,
    prior: WishartPrior | None = None,
    tol: float = 1e-5,
    seed: int | np.random.Generator = 0,
    workers: int = 1,
    **options: Any,
) -> Maxima:
    """Fit from several starts, and report the distinct points where the ascents end.

    The penalized log-likelihood is not concave; at a small strength it has many maxima.

    Parameters
    ----------
    stack
        The incomplete kernels.
    starts
        Some of "zeros" (the start of `fit`: zeros for the missing entries in the paper's model, the
        prior's mode otherwise), "means" (mean imputation), "kernels" (from each kernel
        alone: its visible block, the mean variance elsewhere), "random" (a random covariance of the
        kernels' scale), "continuation" (the fit at a larger strength, lowered in steps); or a
        mapping from your own names to models, as `fit` takes them.
    random_starts
        The number of random starts.
    strength, prior, options
        As in `fit`.
    tol
        The resolution in nats. Two ends are the same point if, along the geodesic from one model to
        the other, L is nowhere more than `tol` below the higher end (or more than rounding, if that
        is more). The ascents themselves use the tolerance tol / 100 and restart from their ends
        until that gains no more than tol / 100, so that the remaining gain is not mistaken for a
        difference. With 0 each ascent takes exactly `max_iter` steps, and none is known to have
        converged.
    seed
        The seed of the random starts.
    workers
        The number of processes that run ascents in parallel (needs joblib).

    Returns
    -------
    Maxima

    Raises
    ------
    KernelError
        If an argument cannot be used.

    Warns
    -----
    ConvergenceWarning
        If ascents did not converge: whether they ended in maxima is unknown.
    IdentifiabilityWarning
        As `fit` does.

    Notes
    -----
    The geodesic of the affine-invariant metric is A^(1/2) (A^(-1/2) B A^(-1/2))^t A^(1/2), 0 <= t
    <= 1. Every path out of a maximum falls first. Two maxima separated by a valley deeper than
    `tol` are therefore distinguished, however close their completions and log-likelihoods. Near one
    maximum L is concave, and a path between two ends falls below neither of them, however far apart
    a flat L lets the ascents stop; along a curved ridge farther away it can fall, which is why the
    ascents restart. Differences below `tol` are not resolved: a saddle less than `tol` below a
    maximum, or two maxima separated by a shallower valley. L is evaluated at 17 points only, denser
    toward the ends.

    No number of starts proves that there is no higher maximum. The smallest curvature of L shows
    whether a point is a maximum, which requires a converged fit; at a small strength the remaining
    gain can be underestimated, and a plateau can be taken for convergence.

    Examples
    --------
    >>> from mkmc_prob import datasets, explore_maxima, remove_objects
    >>> kernels, _ = datasets.make_fusion_problem(12, 3)
    >>> incomplete = remove_objects(kernels, 0.3, seed=0)
    >>> len(explore_maxima(incomplete, starts=["zeros", "means"], strength=1.0).results)
    1
    """
    if "initial" in options:
        raise KernelError("initial: the ascents start elsewhere. Pass starts={name: model}.")
    model, common = _options_of_fit(tol=FINER * tol, **options)
    need_full(structure_of(model["structure"]), "explore_maxima")
    problem = problem_of(stack, one_prior(strength, prior), **model)
    array = problem.stack.array
    in_units = problem.stack.array / xr.DataArray(problem.sources.scale, dims="kernel")
    alike = KernelStack(in_units)
    chosen = _starts(alike, starts, random_starts, np.random.default_rng(seed))
    warn_of_the_model(problem)
    warn_of_what_is_not_identified(visible_objects(array), problem.sources.sharing)
    tasks = [(problem, start, common) for start in chosen.values()]
    ends = dict(zip(chosen, in_processes(_ascend, tasks, workers=workers), strict=True))
    late = [str(name) for name, end in ends.items() if tol and not end.converged]
    if late:
        warn(
            f"{len(late)} of {len(ends)} ascents did not converge to {FINER * tol:g} nats "
            f"({', '.join(late)}): whether they end in maxima is unknown. Raise max_iter.",
            ConvergenceWarning,
        )
    return _sorted(problem, ends, tol)


@checked(method=choice(*METHODS), max_iter=whole(least=1))
def _options_of_fit(
    *,
    tol: float,
    degrees_of_freedom: DegreesOfFreedom = 1.0,
    sources: str | xr.Dataset = "adaptive",
    sharing: DegreesOfFreedom = 1.0,
    structure: str | Structure = "full",
    method: str = "geodesic",
    max_iter: int = 10_000,
    progress: bool = False,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what `problem_of` takes, and what `solve` takes."""
    model = {
        "degrees_of_freedom": degrees_of_freedom,
        "sources": sources,
        "sharing": sharing,
        "structure": structure,
    }
    options = {"tol": tol, "method": method, "max_iter": max_iter, "progress": progress}
    return model, options


def _starts(
    stack: KernelStack,
    wanted: Sequence[str] | Mapping[str, Any],
    count: int,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Return the starting models by name: None for the paper's, `CONTINUED` for continuation."""
    if isinstance(wanted, Mapping):
        if not wanted:
            raise KernelError("starts: there is none. Name at least one.")
        return dict(wanted)
    names = [wanted] if isinstance(wanted, str) or not isinstance(wanted, Iterable) else [*wanted]
    if not names or any(name not in STARTS for name in names):
        raise KernelError(f"starts: {wanted!r} found; some of {STARTS} are needed.")
    showing = np.flatnonzero(stack.visible.any(axis=1))  # a kernel that shows nothing is no start
    if not len(showing):
        raise KernelError("stack: no kernel shows an object. There is nothing to complete from.")
    stack, objects = stack.with_kernels(showing), stack.objects
    found: dict[str, Any] = {}
    for name in names:
        if name == "zeros":
            found[name] = None
        elif name == "means":
            found[name] = _definite(impute_means(stack).values.mean(0), objects)
        elif name == "kernels":
            for own, values in zip(stack.names, stack.array.values, strict=True):
                found[f"kernel {own}"] = _definite(np.nan_to_num(values), objects, fill=True)
        elif name == "random":
            diagonals = np.diagonal(stack.array.values, axis1=1, axis2=2)
            scale = np.nanmean(diagonals) or 1.0
            for i in range(count):
                features = rng.standard_normal((len(objects), len(objects)))
                covariance = scale * features @ features.T / len(objects)
                found[f"random {i + 1}"] = _definite(covariance, objects)
        else:
            found[name] = CONTINUED
    if not found:
        raise KernelError("starts: there is none: random_starts is 0, or no kernel shows anything.")
    return found


def _definite(matrix: Matrix, objects: Labels, *, fill: bool = False) -> GaussianModel:
    """Return a model near a matrix: symmetric, and no eigenvalue below 1 % of the mean variance."""
    variances = np.diagonal(matrix)
    mean = float(variances[variances > 0].mean()) if (variances > 0).any() else 1.0
    matrix = matrix.copy()
    if fill:
        empty = np.flatnonzero(variances <= 0)
        matrix[empty, empty] = mean
    values, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
    matrix = (vectors * np.maximum(values, 0.01 * mean)) @ vectors.T
    return GaussianModel.of(0.5 * (matrix + matrix.T), objects)


class _End(NamedTuple):
    """Where the ascent from one start ended: `converged` if a fresh start gained no more."""

    solution: Solution
    evaluations: int
    converged: bool

    @property
    def level(self) -> float:
        return self.solution.penalized_log_likelihood

    @property
    def rounding_bound(self) -> float:
        return float(self.solution.trace["rounding_bound"][-1])


def _ascend(problem: Problem, start: Any, options: dict[str, Any]) -> _End:
    """Take an ascent, and continue from its end until that gains no more than its tol.

    Along a bent ridge, and after a warm start, the remaining gain is underestimated.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MKMCWarning)  # the caller warns of the problem, and counts
        if start is CONTINUED:
            start = _continued(problem, options)
        solution = _solve(problem, start, options)
        end = _End(solution, int(solution.trace["evaluations"][-1]), False)
        for _ in range(FRESH_STARTS):
            if not end.solution.converged:
                break
            solution = _solve(problem, end.solution.model, options)
            evaluations = end.evaluations + int(solution.trace["evaluations"][-1])
            gain = solution.penalized_log_likelihood - end.level
            done = solution.converged and gain <= max(solution.tol, end.rounding_bound)
            end = _End(solution, evaluations, done)
            if done:
                break
    return end


def _solve(problem: Problem, start: Any, options: dict[str, Any]) -> Solution:
    """Take one ascent; let Ctrl-C end the exploration."""
    solution = solve(problem, initial=start, **options)
    if solution.interrupted:
        raise KeyboardInterrupt
    return solution


def _continued(problem: Problem, options: dict[str, Any]) -> GaussianModel | None:
    """Return the model at the end of a path of falling strengths, before the last."""
    model, prior = None, problem.prior
    loose = {**options, "tol": max(options["tol"], 1e-2)}
    for factor in CONTINUATION:
        own = problem.with_strength(factor * prior.strength)
        model = _solve(own, model, loose).model
    return model


def _sorted(problem: Problem, ends: dict[str, _End], tol: float) -> Maxima:
    """Return the ends, the most likely first, grouped by point."""
    order = sorted(ends, key=lambda name: -ends[name].level)
    best = ends[order[0]].solution.completed.values
    size = float(np.linalg.norm(best)) or 1.0
    points: list[list[_End]] = []
    rows = []
    for name in order:
        end = ends[name]
        known = (i for i, point in enumerate(points) if _is_same(problem, point[0], end, tol))
        at = next(known, len(points))
        if at == len(points):
            points.append([])
        points[at].append(end)
        rows.append(
            {
                "point": at,
                "penalized_log_likelihood": end.level,
                "evaluations": end.evaluations,
                "converged": end.converged,
                "difference": float(np.linalg.norm(end.solution.completed.values - best)) / size,
            }
        )
    table = pd.DataFrame(rows, index=pd.Index(order, name="start"))
    rates = dict(enumerate(_rate(problem, point, tol) for point in points))
    rate = table["point"].map(rates).where(table["converged"])
    table.insert(4, "rate", rate)
    table.insert(5, "is_maximum", (rate < 1.0).astype("boolean").mask(rate.isna()))
    return Maxima([MKMCResult.of(point[0].solution) for point in points], table)


def _rate(problem: Problem, point: list[_End], tol: float) -> float:
    """Return the rate at the most likely of a point's ends that converged; NaN if unknown.

    By the gradient and the curvature, L becomes stationary after a change of at most the last EM
    step's gain in the Q-function divided by |1 - rate|. If that is more than `tol`, the rate at the
    point itself may differ.
    """
    end = next((end for end in point if end.converged), None)
    if end is None:
        return np.nan
    rng = np.random.default_rng(0)
    rate = float(information_at(problem, end.solution, rng)["rate"])
    rise = float(end.solution.trace["gain_q_function"][-1])
    return rate if rise <= max(tol, end.rounding_bound) * abs(1.0 - rate) else np.nan


def _is_same(problem: Problem, high: _End, low: _End, tol: float) -> bool:
    """Return whether L falls by at most `tol` on the path from the higher end to the lower one."""
    allowed = max(tol, high.rounding_bound + low.rounding_bound)
    if high.level - low.level > allowed:
        return False
    em, aside = seen_problem(problem)
    start, end = (aside.restrict_model(one.solution.model) for one in (high, low))
    least = em.penalized_log_likelihood(start) - allowed
    return all(em.penalized_log_likelihood(model) >= least for model in _between(start, end))


def _between(start: GaussianModel, end: GaussianModel) -> Iterator[GaussianModel]:
    """Yield models on the geodesic from one model to another, starting in the middle.

    With A = L L' and L^-1 B L'^-1 = V diag(w) V' they are (L V) diag(w^t) (L V)'.
    """
    factor = start.cholesky
    whitened = half_solve(factor, half_solve(factor, end.matrix).T)
    values, vectors = np.linalg.eigh(0.5 * (whitened + whitened.T))
    logs = np.log(np.maximum(values, np.finfo(np.float64).tiny))
    frame = factor @ vectors
    for t in sorted(PLACES, key=lambda t: abs(t - 0.5)):
        half = frame * np.exp(0.5 * t * logs)
        yield GaussianModel.of(symmetrize(half @ half.T), start.objects)
