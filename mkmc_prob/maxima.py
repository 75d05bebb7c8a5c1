"""Other maxima: climbs from several starts, and what they end in.

Enters: an incomplete stack and starts. Leaves: the distinct maxima (or saddles) that were found,
with their log-likelihoods and how far their completions are apart.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from .baselines import mean_impute, zero_impute
from .checks import generator, positive_number, whole_number
from .errors import ConvergenceWarning, KernelError, MKMCWarning, warn
from .fit import fit, one_prior, tolerance
from .information import missing_information
from .kernels import check_stack, visible_objects
from .labels import Labels
from .linalg import Matrix
from .model import GaussianModel
from .prior import WishartPrior
from .result import MKMCResult

#: The starts that are tried unless told otherwise.
STARTS = ("zeros", "means", "kernels", "random", "continuation")
#: Stands for a start that is computed when its turn comes.
CONTINUED = object()
#: Continuation begins at these multiples of the strength.
CONTINUATION = (1000.0, 300.0, 100.0, 30.0, 10.0, 3.0)


@dataclass(frozen=True, eq=False, repr=False)
class Maxima:
    """What `explore_maxima` found.

    Attributes
    ----------
    results : list of MKMCResult
        One per distinct point, the most likely first.
    table : DataFrame
        A row per start, the most likely first: ``point``, which of the results it ended in;
        ``penalized_log_likelihood`` in nats; ``evaluations``; ``converged``; ``rate`` and
        ``is_maximum`` of the point (`missing_information`; a rate above 1 is a saddle);
        ``difference``, ||completed - best completed||_F over ||best completed||_F.

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
        return f"Maxima: {len(self.results)} distinct\n{self.table}"


def explore_maxima(
    stack: xr.DataArray,
    *,
    starts: Sequence[str] | Mapping[str, Any] = STARTS,
    random_starts: int = 3,
    strength: float = 0.1,
    prior: WishartPrior | None = None,
    tol: float = 1e-5,
    distinct: float = 1e-3,
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
    strength, prior, tol, options
        As in `fit`.
    distinct
        Two ends are the same point where their completions differ by at most this share
        (Frobenius) and their log-likelihoods by at most 100 `tol`.
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
        Where climbs did not converge: their ends are not maxima.

    Notes
    -----
    No number of starts proves that there is no higher maximum. Whether a point is a maximum is told
    by the smallest curvature of L there, which needs a converged fit.

    Examples
    --------
    >>> from mkmc_prob import datasets, explore_maxima, remove_objects
    >>> kernels, _ = datasets.make_fusion_problem(12, 3)
    >>> incomplete = remove_objects(kernels, 0.3, seed=0)
    >>> len(explore_maxima(incomplete, starts=["zeros", "means"], strength=1.0).results)
    1
    """
    stack = check_stack(stack)
    rng = generator(seed)
    count = whole_number(random_starts, "random_starts", least=0)
    distinct, tol = positive_number(distinct, "distinct"), tolerance(tol)
    objects = stack["object"].values
    prior = one_prior(strength, prior).restricted(objects, objects)
    common = {"tol": tol, **options}
    ends: dict[str, MKMCResult] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # counted below
        for name, start in _starts(stack, starts, count, rng).items():
            if start is CONTINUED:
                start = _continued(stack, prior, common)
            ends[name] = fit(stack, strength=prior.strength, prior=prior, initial=start, **common)
            if ends[name].interrupted:
                raise KeyboardInterrupt
            warnings.simplefilter("ignore", MKMCWarning)  # the first fit has said it
    late = [str(name) for name, end in ends.items() if tol and not end.converged]
    if late:
        warn(
            f"{len(late)} of {len(ends)} climbs did not converge ({', '.join(late)}): where they "
            "ended is no maximum. Raise max_iter.",
            ConvergenceWarning,
        )
    return _sorted(ends, distinct, 100.0 * tol)


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
    names = [wanted] if isinstance(wanted, str) else list(wanted)
    unknown = [name for name in names if name not in STARTS]
    if unknown or not names:
        raise KernelError(f"starts: {wanted!r} found; some of {STARTS} are needed.")
    objects = stack["object"].values
    # A kernel that shows nothing is no start.
    stack = stack.isel(kernel=visible_objects(stack).values.any(axis=1))
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


def _continued(
    stack: xr.DataArray, prior: WishartPrior, common: dict[str, Any]
) -> GaussianModel | None:
    """Return the model that a path of falling strengths ends in, before the last."""
    model = None
    for factor in CONTINUATION:
        own = WishartPrior(factor * prior.strength, prior.scale)
        loose = {**common, "tol": max(common["tol"], 1e-2)}
        result = fit(stack, strength=own.strength, prior=own, initial=model, **loose)
        if result.interrupted:
            raise KeyboardInterrupt
        model = result.model
    return model


def _sorted(ends: dict[str, MKMCResult], distinct: float, near: float) -> Maxima:
    """Return the ends, the most likely first, those that are the same point together."""
    order = sorted(ends, key=lambda name: -ends[name].penalized_log_likelihood)
    best = ends[order[0]].completed.values
    size = float(np.linalg.norm(best)) or 1.0
    results: list[MKMCResult] = []
    information: list[xr.Dataset] = []
    rows = []
    for name in order:
        end = ends[name]
        level, completed = end.penalized_log_likelihood, end.completed.values
        same = [
            np.linalg.norm(completed - known.completed.values) <= distinct * size
            and known.penalized_log_likelihood - level <= near
            for known in results
        ]
        point = same.index(True) if any(same) else len(results)
        if point == len(results):
            results.append(end)
            information.append(missing_information(end))
        rows.append(
            {
                "point": point,
                "penalized_log_likelihood": level,
                "evaluations": int(end.trace["evaluations"][-1]),
                "converged": end.converged,
                "rate": float(information[point]["rate"]),
                "is_maximum": bool(information[point]["is_maximum"]),
                "difference": float(np.linalg.norm(completed - best)) / size,
            }
        )
    return Maxima(results, pd.DataFrame(rows, index=pd.Index(order, name="start")))
