"""Other maxima: climbs from several starts, and what they end in.

Enters: an incomplete stack and starts. Leaves: the distinct maxima (or saddles) that were found,
with their log-likelihoods and how far their completions are apart.
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from ..errors import ConvergenceWarning, KernelError, MKMCWarning, warn
from ..evaluation.baselines import mean_impute, zero_impute
from ..linalg.cholesky import half_solve
from ..linalg.symmetric import Matrix, symmetrize
from ..model.gaussian import GaussianModel
from ..model.prior import WishartPrior, one_prior
from ..stacks.labels import Labels
from ..stacks.stack import check_stack, visible_objects
from ..utils.arguments import generator, tolerance, whole_number
from .fit import fit
from .information import missing_information, seen_problem
from .result import MKMCResult

#: The starts that are tried unless told otherwise.
STARTS = ("zeros", "means", "kernels", "random", "continuation")


#: Stands for a start that is computed when its turn comes.
CONTINUED = object()


#: Continuation begins at these multiples of the strength.
CONTINUATION = (1000.0, 300.0, 100.0, 30.0, 10.0, 3.0)


#: The climbs go on until this share of `tol` is still to come.
FINER = 0.01


#: How often a climb starts afresh from its end, at most, until that gains no more.
FRESH_STARTS = 10


#: Where between two ends L is looked at, as shares of the way: Chebyshev's points.
PLACES = 0.5 - 0.5 * np.cos(np.pi * (np.arange(17) + 0.5) / 17)


@dataclass(frozen=True, eq=False, repr=False)
class Maxima:
    """What `explore_maxima` found.

    Attributes
    ----------
    results : list of MKMCResult
        One per distinct point, the most likely first. Their traces are of the last stretch of the
        climb: it starts afresh until that gains nothing more.
    table : DataFrame
        A row per start, the most likely first: ``point``, which of the results it ended in;
        ``penalized_log_likelihood`` in nats; ``evaluations``; ``converged``; ``rate`` and
        ``is_maximum`` of the point (`missing_information`; a rate above 1 is a saddle), NaN and
        <NA> where the climb did not converge, or by its curvature the point is more than `tol`
        from where L is level: nothing is known then; ``difference``,
        ||completed - best completed||_F over ||best completed||_F.

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


def explore_maxima(
    stack: xr.DataArray,
    *,
    starts: Sequence[str] | Mapping[str, Any] = STARTS,
    random_starts: int = 3,
    strength: float = 0.1,
    prior: WishartPrior | None = None,
    tol: float = 1e-5,
    seed: int | np.random.Generator = 0,
    **options: Any,
) -> Maxima:
    """Climb from several starts, and report the distinct points where the climbs end.

    The penalized log-likelihood is not concave: at a small strength it has many maxima.

    Parameters
    ----------
    stack
        The incomplete kernels.
    starts
        Some of "zeros" (the paper's), "means" (mean imputation), "kernels" (from each kernel
        alone: its visible block, the mean variance elsewhere), "random" (a random covariance of the
        kernels' scale), "continuation" (the fit at a larger strength, lowered in steps); or a
        mapping from names of your own to models, as `fit` takes them.
    random_starts
        How many random starts there are.
    strength, prior, options
        As in `fit`.
    tol
        How fine a look is taken, in nats. Two ends are the same point where, along the geodesic
        from one model to the other, L is nowhere more than `tol` below the higher end (or more
        than rounding, if that is more). The climbs themselves go on to tol / 100, and start afresh
        from where they end until that gains no more than tol / 100, so that what is still to come
        does not pass for a difference. With 0 each climb takes exactly `max_iter` steps, and none
        is known to have converged.
    seed
        Of the random starts.

    Returns
    -------
    Maxima

    Raises
    ------
    KernelError
        Where an argument cannot be used.

    Warns
    -----
    ConvergenceWarning
        Where climbs did not converge: what their ends are is unknown.

    Notes
    -----
    The geodesic of the affine-invariant metric is A^(1/2) (A^(-1/2) B A^(-1/2))^t A^(1/2), 0 <= t
    <= 1. A way out of a maximum must fall first, by the height of the pass at least: so two maxima
    that a pass deeper than `tol` separates are told apart, however close their completions and
    levels. Near one maximum L is concave, and a way between two ends falls below neither, however
    far apart a flat L lets them stop; along a bent ridge farther out it can fall, which is why the
    climbs start afresh. What is below `tol` is not resolved: a saddle less than `tol` below a
    maximum, two maxima with a shallower pass. And L is looked at in 17 places only, denser toward
    the ends.

    No number of starts proves that there is no higher maximum. Whether a point is a maximum is told
    by the smallest curvature of L there, which needs a converged fit; at a small strength the
    estimate of what is still to come can be too small, and a plateau pass for converged.

    Examples
    --------
    >>> from mkmc_prob import datasets, explore_maxima, remove_objects
    >>> kernels, _ = datasets.make_fusion_problem(12, 3)
    >>> incomplete = remove_objects(kernels, 0.3, seed=0)
    >>> len(explore_maxima(incomplete, starts=["zeros", "means"], strength=1.0).results)
    1
    """
    if "initial" in options:
        raise KernelError("initial: the climbs start elsewhere. Pass starts={name: model}.")
    stack = check_stack(stack)
    rng = generator(seed)
    count = whole_number(random_starts, "random_starts", least=0)
    tol = tolerance(tol, "tol")
    objects = stack["object"].values
    prior = one_prior(strength, prior).restricted(objects, objects)
    common = {"tol": FINER * tol, **options}
    ends: dict[str, _End] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # counted below
        for name, start in _starts(stack, starts, count, rng).items():
            if start is CONTINUED:
                start = _continued(stack, prior, common)
            ends[name] = _climb(stack, prior, start, common)
            warnings.simplefilter("ignore", MKMCWarning)  # the first fit has said it
    late = [str(name) for name, end in ends.items() if tol and not end.converged]
    if late:
        warn(
            f"{len(late)} of {len(ends)} climbs did not converge to {FINER * tol:g} nats "
            f"({', '.join(late)}): whether they end in maxima is unknown. Raise max_iter.",
            ConvergenceWarning,
        )
    return _sorted(ends, tol)


def _starts(
    stack: xr.DataArray,
    wanted: Sequence[str] | Mapping[str, Any],
    count: int,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Return the starting models by name; the paper's is None, continuation its own name."""
    if isinstance(wanted, Mapping):
        if not wanted:
            raise KernelError("starts: there is none. Name at least one.")
        return dict(wanted)
    names = [wanted] if isinstance(wanted, str) or not isinstance(wanted, Iterable) else [*wanted]
    unknown = [name for name in names if name not in STARTS]
    if unknown or not names:
        raise KernelError(f"starts: {wanted!r} found; some of {STARTS} are needed.")
    objects = stack["object"].values
    # A kernel that shows nothing is no start.
    showing = visible_objects(stack).values.any(axis=1)
    if not showing.any():
        raise KernelError("stack: no kernel shows an object. There is nothing to complete from.")
    stack = stack.isel(kernel=showing)
    found: dict[str, Any] = {}
    for name in names:
        if name == "zeros":
            found[name] = None
        elif name == "means":
            found[name] = _definite(mean_impute(stack).values.mean(0), objects)
        elif name == "kernels":
            for own in stack["kernel"].values.tolist():
                alone = zero_impute(stack.sel(kernel=[own])).values[0]
                found[f"kernel {own}"] = _definite(alone, objects, fill=True)
        elif name == "random":
            scale = np.nanmean(np.diagonal(stack.values, axis1=1, axis2=2)) or 1.0
            for i in range(count):
                features = rng.standard_normal((len(objects), len(objects)))
                found[f"random {i + 1}"] = _definite(
                    scale * features @ features.T / len(objects), objects
                )
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
    """Where a climb from one start ended: `converged` where a fresh start gained no more."""

    result: MKMCResult
    evaluations: int
    converged: bool

    @property
    def level(self) -> float:
        return self.result.penalized_log_likelihood

    @property
    def rounding(self) -> float:
        return float(self.result.trace["rounding_bound"][-1])


def _climb(stack: xr.DataArray, prior: WishartPrior, start: Any, common: dict[str, Any]) -> _End:
    """Climb, and climb on from the end until that gains no more than the climbs' tol.

    Along a bent ridge, and after a warm start, what is still to come is estimated too small.
    """
    result = _fit(stack, prior, start, common)
    end = _End(result, int(result.trace["evaluations"][-1]), False)
    for _ in range(FRESH_STARTS):
        if not end.result.converged:
            break
        result = _fit(stack, prior, end.result.model, common)
        evaluations = end.evaluations + int(result.trace["evaluations"][-1])
        gain, nothing = result.penalized_log_likelihood - end.level, max(result.tol, end.rounding)
        end = _End(result, evaluations, result.converged and gain <= nothing)
        if end.converged:
            break
    return end


def _fit(
    stack: xr.DataArray, prior: WishartPrior, start: Any, options: dict[str, Any]
) -> MKMCResult:
    """Fit; let Ctrl-C end the exploration."""
    result = fit(stack, strength=prior.strength, prior=prior, initial=start, **options)
    if result.interrupted:
        raise KeyboardInterrupt
    return result


def _continued(
    stack: xr.DataArray, prior: WishartPrior, common: dict[str, Any]
) -> GaussianModel | None:
    """Return the model that a path of falling strengths ends in, before the last."""
    model = None
    for factor in CONTINUATION:
        own = WishartPrior(factor * prior.strength, prior.scale)
        loose = {**common, "tol": max(common["tol"], 1e-2)}
        model = _fit(stack, own, model, loose).model
    return model


def _sorted(ends: dict[str, _End], tol: float) -> Maxima:
    """Return the ends, the most likely first, those that are the same point together."""
    order = sorted(ends, key=lambda name: -ends[name].level)
    best = ends[order[0]].result.completed.values
    size = float(np.linalg.norm(best)) or 1.0
    points: list[list[_End]] = []
    rows = []
    for name in order:
        end = ends[name]
        known = (i for i, point in enumerate(points) if _is_same(point[0], end, tol))
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
                "difference": float(np.linalg.norm(end.result.completed.values - best)) / size,
            }
        )
    table = pd.DataFrame(rows, index=pd.Index(order, name="start"))
    rates = dict(enumerate(_rate(point, tol) for point in points))
    rate = table["point"].map(rates).where(table["converged"])
    table.insert(4, "rate", rate)
    table.insert(5, "is_maximum", (rate < 1.0).astype("boolean").mask(rate.isna()))
    return Maxima([point[0].result for point in points], table)


def _rate(point: list[_End], tol: float) -> float:
    """Return the rate at the most likely of a point's ends that converged; NaN if unknown.

    By the gradient and the curvature there L is level after a change of at most what the last EM
    step gained by its Q-function over |1 - rate|: where that is more than `tol`, the rate of the
    point itself may be another.
    """
    end = next((end for end in point if end.converged), None)
    if end is None:
        return np.nan
    rate = float(missing_information(end.result)["rate"])
    rise = float(end.result.trace["gain_q_function"][-1])
    return rate if rise <= max(tol, end.rounding) * abs(1.0 - rate) else np.nan


def _is_same(high: _End, low: _End, tol: float) -> bool:
    """Return whether L falls by no more than `tol` on the way from the higher end to the lower."""
    allowed = max(tol, high.rounding + low.rounding)
    if high.level - low.level > allowed:
        return False
    em, start = seen_problem(high.result)
    _, end = seen_problem(low.result)
    least = em.penalized_log_likelihood(start) - allowed
    return all(em.penalized_log_likelihood(model) >= least for model in _between(start, end))


def _between(start: GaussianModel, end: GaussianModel) -> Iterator[GaussianModel]:
    """Yield models on the geodesic from one model to another, those in the middle first.

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
