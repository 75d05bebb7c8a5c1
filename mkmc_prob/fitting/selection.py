"""Which strength? By the likelihood of visible objects that were held out.

Enters: an incomplete stack and candidate strengths. Leaves: held-out scores by strength, fold and
kernel, the best strength and the one-standard-error choice, and how well the model is calibrated.
"""

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from tqdm.auto import tqdm

from ..errors import ConvergenceWarning, KernelError, MKMCWarning, warn
from ..linalg.cholesky import cholesky, log_determinant, solve
from ..model.conditional import LOG_2_PI, TOO_SINGULAR
from ..model.gaussian import GaussianModel
from ..model.prior import DEFAULT_STRENGTH, WishartPrior, one_prior
from ..stacks.degrees import DegreesOfFreedom, degrees_per_kernel
from ..stacks.matrix import as_array
from ..stacks.stack import check_stack, visible_objects, warn_of_scales
from ..utils.arguments import generator, positive_number, whole_number
from ..utils.processes import need_joblib
from .fit import fit
from .strengths import StrengthSelection

if TYPE_CHECKING:
    pass


#: Half decades from the paper's strength to ten times the weight of a kernel.
STRENGTHS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


def select_strength(
    stack: xr.DataArray,
    *,
    strengths: Sequence[float] | NDArray[np.float64] = STRENGTHS,
    folds: int = 5,
    prior: WishartPrior | None = None,
    degrees_of_freedom: DegreesOfFreedom = 1.0,
    method: str = "geodesic",
    tol: float = 1e-2,
    max_iter: int = 10_000,
    seed: int | np.random.Generator = 0,
    workers: int = 1,
    progress: bool = False,
) -> StrengthSelection:
    """Score strengths of the prior by the likelihood of visible objects that were held out.

    In every fold a part of each kernel's visible objects is hidden, the model is fitted without
    them from the largest strength down, each fit started from the last, and the held-out block is
    scored given the kernel's other visible objects: with the regression A and the conditional
    covariance C of the held-out objects h given the rest r under the fitted model::

        -(nu_k / 2) [m log 2 pi + log det C
                     + tr C^-1 (Q_hh - A' Q_rh - Q_hr A + A' Q_rr A)]    nats.

    Parameters
    ----------
    stack
        The incomplete kernels.
    strengths
        The candidates, at least one, each once.
    folds
        Into how many parts the visible objects of each kernel are divided, 2 at least.
    prior
        A prior whose scale is used with each of the strengths; the identity if left out.
    degrees_of_freedom, method, tol, max_iter
        As in `fit`.
    seed
        Of the folds.
    workers
        How many processes fit folds at a time (needs joblib). The result does not depend on it:
        every fold runs on one BLAS thread.
    progress
        Whether to show a progress bar over the folds.

    Returns
    -------
    StrengthSelection

    Raises
    ------
    KernelError
        Where an argument cannot be used, or no kernel shows two objects.
    MKMCError
        Where `workers` is more than 1 and joblib is not installed.

    Warns
    -----
    ConvergenceWarning
        Where fits ended before they converged; once, with their number.
    MKMCWarning
        Where the best strength is the smallest or the largest of those tried.

    Notes
    -----
    Objects are held out kernel by kernel at random. Where a source misses objects in blocks, or
    because of what they are, held-out objects are easier than the missing ones, and the score
    flatters. Folds share data: the standard error is a guide, not a test. Strengths within noise of
    the best (they are named) are as good a choice, by these data.

    Examples
    --------
    >>> from mkmc_prob import datasets, remove_objects, select_strength
    >>> kernels, _ = datasets.make_fusion_problem(30, 3)
    >>> found = select_strength(remove_objects(kernels, 0.3, seed=0), strengths=[0.1, 1.0, 10.0])
    >>> found.calibration.loc[found.best].index.tolist()
    ['rbf_1', 'linear_2', 'graph_3']
    """
    stack = check_stack(stack)
    given = list(np.atleast_1d(as_array(strengths, "strengths")))
    grid = sorted({positive_number(s, "strengths") for s in given})
    if len(grid) != len(given) or not grid:
        raise KernelError(f"strengths: {strengths!r} found; give at least one, each once.")
    folds = whole_number(folds, "folds", least=2)
    workers = whole_number(workers, "workers", least=1)
    nu = degrees_per_kernel(degrees_of_freedom, stack["kernel"].values.tolist())
    seen = visible_objects(stack).values
    if not (seen.sum(1) >= 2).any():
        raise KernelError("stack: no kernel shows two objects. There is nothing to hold out.")
    warn_of_scales(stack)
    if prior is not None:  # a scale without labels gets the stack's
        prior = one_prior(DEFAULT_STRENGTH, prior)
        prior = prior.restricted(stack["object"].values, stack["object"].values)
    parts = _parts(seen, folds, generator(seed))
    options = {"degrees_of_freedom": nu, "method": method, "tol": tol, "max_iter": max_iter}
    tasks = [(stack, parts == fold, grid, prior, options) for fold in range(folds)]
    bar = tqdm(total=folds, disable=not progress, desc="select_strength", unit=" folds")
    with bar:
        found = []
        for outcome in _in_parallel(tasks, workers):
            found.append(outcome)
            bar.update()
    late = sum(outcome[-1] for outcome in found)
    if late:
        warn(
            f"{late} of {folds * len(grid)} fits ended before they converged: their scores are "
            "those of the models reached. Raise max_iter.",
            ConvergenceWarning,
        )
    density, lengths, residuals = (
        np.stack(values) for values in list(zip(*found, strict=True))[:3]
    )
    selection = StrengthSelection(
        xr.Dataset(
            {
                "log_density": (
                    ("strength", "fold", "kernel"),
                    density.swapaxes(0, 1),
                    {"long_name": "held-out log density", "units": "nats"},
                ),
                "held_out": (
                    ("fold", "kernel"),
                    np.array([(parts == fold).sum(1) for fold in range(folds)]),
                ),
                "predicted": (
                    ("fold", "kernel"),
                    np.array([_predicted(seen, parts == fold).sum(1) for fold in range(folds)]),
                ),
                "mahalanobis": (("strength", "fold", "kernel"), lengths.swapaxes(0, 1)),
                # An object is held out in one fold: elsewhere there is nothing.
                "squared_residual": (("strength", "kernel", "object"), _merged(residuals)),
            },
            coords={
                "strength": grid,
                "fold": np.arange(folds),
                "kernel": stack["kernel"].values,
                "object": stack["object"].values,
            },
        )
    )
    if selection.at_the_edge:
        warn(selection._about_the_edge())
    return selection


def _predicted(seen: NDArray[np.bool_], hidden: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which of the hidden objects some kernel still shows: the prior alone knows others."""
    predicted: NDArray[np.bool_] = hidden & (seen & ~hidden).any(axis=0)
    return predicted


def _merged(residuals: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return what one of the folds has, NaN where none has."""
    out: NDArray[np.float64] = residuals[0]
    for other in residuals[1:]:
        out = np.where(np.isnan(out), other, out)
    return out


def _parts(seen: NDArray[np.bool_], folds: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Return in which fold each visible object of each kernel is held out; -1 for the others."""
    parts = np.full(seen.shape, -1)
    for own, there in zip(parts, seen, strict=True):
        place = rng.permutation(np.flatnonzero(there))
        for fold, some in enumerate(np.array_split(place, folds)):
            own[some] = fold
    return parts


def _in_parallel(tasks: list[tuple[Any, ...]], workers: int) -> Any:
    if workers == 1:
        return (_score(*task) for task in tasks)
    parallel, delayed = need_joblib()
    return parallel(n_jobs=workers, return_as="generator")(delayed(_score)(*t) for t in tasks)


def _score(
    stack: xr.DataArray,
    hidden: NDArray[np.bool_],
    strengths: list[float],
    prior: WishartPrior | None,
    options: dict[str, Any],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], int]:
    """Return one fold's log densities, lengths and residuals by strength, and the late fits."""
    seen = visible_objects(stack).values
    rest, predicted = seen & ~hidden, _predicted(seen, hidden)
    train = stack.copy()
    train.values[~(rest[:, :, None] & rest[:, None, :])] = np.nan
    density = np.zeros((len(strengths), len(seen)))
    lengths = np.full_like(density, np.nan)
    residuals = np.full((len(strengths), *seen.shape), np.nan)
    late, model = 0, None
    # The same bits whatever the number of threads outside.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", MKMCWarning)  # the caller was warned of the whole stack
        for s in reversed(range(len(strengths))):
            scale = None if prior is None else prior.scale
            own = WishartPrior(strengths[s], scale)
            result = fit(train, strength=strengths[s], prior=own, initial=model, **options)
            if result.interrupted:
                raise KeyboardInterrupt
            model = result.model
            late += not result.converged
            for k, nu in enumerate(options["degrees_of_freedom"].tolist()):
                if not hidden[k].any():
                    continue
                block = stack.values[k][np.ix_(seen[k], seen[k])]
                density[s, k], length, own_residuals = held_out(model, seen[k], rest[k], block)
                density[s, k] *= nu
                if not predicted[k].any():
                    continue
                told = rest[k] | predicted[k]
                if not told[seen[k]].all():
                    part = block[np.ix_(told[seen[k]], told[seen[k]])]
                    _, length, own_residuals = held_out(model, told, rest[k], part)
                lengths[s, k], residuals[s, k, predicted[k]] = length, own_residuals
    return density, lengths, residuals, late


def held_out(
    model: GaussianModel,
    seen: NDArray[np.bool_],
    rest: NDArray[np.bool_],
    moment: NDArray[np.float64],
) -> tuple[float, float, NDArray[np.float64]]:
    """Score the objects that are seen but not in the rest, given the rest.

    Returns
    -------
    tuple
        Their expected log density in nats, their expected squared Mahalanobis length per object,
        and the expected squared residual of each over its conditional variance.
    """
    part = GaussianModel.of(model.matrix[np.ix_(seen, seen)], model.objects[seen])
    conditional = part.condition(rest[seen])
    v, h = np.flatnonzero(rest[seen]), np.flatnonzero(~rest[seen])
    a, c = conditional.regression, conditional.covariance
    crossed = a.T @ moment[np.ix_(v, h)]
    residual = moment[np.ix_(h, h)] - crossed - crossed.T + a.T @ moment[np.ix_(v, v)] @ a
    factor = cholesky(c, "conditional covariance", conditional.hidden, TOO_SINGULAR)
    length = float(np.trace(solve(factor, residual)))
    density = -0.5 * (len(h) * LOG_2_PI + log_determinant(factor) + length)
    return density, length / len(h), np.diagonal(residual) / np.diagonal(c)
