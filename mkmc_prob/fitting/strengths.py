"""Selection of the prior's strength by the likelihood of held-out visible objects."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from tqdm.auto import tqdm

from ..em.methods import METHODS
from ..em.problem import IDENTICAL_STRENGTH, Problem, one_prior
from ..errors import ConvergenceWarning, KernelError, MKMCWarning, warn
from ..linalg.cholesky import cholesky, log_determinant
from ..linalg.cholesky import solve as cholesky_solve
from ..model.conditional import TOO_SINGULAR, gaussian_log_likelihood
from ..model.gaussian import GaussianModel
from ..model.prior import WishartPrior
from ..stacks.degrees import DegreesOfFreedom
from ..stacks.stack import warn_of_scales
from ..utils.arguments import checked, choice, positive, seed, several, tolerance, whole
from ..utils.processes import in_processes
from .solve import solve
from .strength_selection import StrengthSelection

#: Half decades from the paper's strength to ten times the weight of a kernel.
STRENGTHS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


@checked(
    strengths=several(positive),
    folds=whole(least=2),
    method=choice(*METHODS),
    tol=tolerance,
    max_iter=whole(least=1),
    seed=seed,
    workers=whole(least=1),
)
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
    """Score strengths of the paper's prior; deprecated, use `select_model`.

    Strengths are scored by the likelihood of held-out visible objects. In each fold some of each
    kernel's visible objects are hidden, and the model is fitted without them, from the largest
    strength down, each fit starting from the previous one. The held-out block is scored given the
    kernel's other visible objects: with the regression A and the conditional
    covariance C of the held-out objects h given the rest r under the fitted model::

        -(nu_k / 2) [m log 2 pi + log det C
                     + tr C^-1 (Q_hh - A' Q_rh - Q_hr A + A' Q_rr A)]    nats.

    Parameters
    ----------
    stack
        The incomplete kernels.
    strengths
        The candidates: at least one, without repeats.
    folds
        The number of parts into which each kernel's visible objects are divided, at least 2.
    prior
        A prior whose scale is used with each strength; the identity if left out.
    degrees_of_freedom, method, tol, max_iter
        As in `fit`.
    seed
        The seed of the folds.
    workers
        The number of processes that fit folds in parallel (needs joblib). The result does not
        depend on it: every fold uses one BLAS thread.
    progress
        Whether to show a progress bar over the folds.

    Returns
    -------
    StrengthSelection

    Raises
    ------
    KernelError
        If an argument cannot be used, or no kernel shows two objects.
    MKMCError
        If `workers` is more than 1 and joblib is not installed.

    Warns
    -----
    ConvergenceWarning
        If fits ended before they converged; once, with their number.
    MKMCWarning
        If the best strength is the smallest or the largest of those tried.
    DeprecationWarning
        Always: the next version has `select_model` only.

    Notes
    -----
    Objects are held out at random, independently in each kernel. If a source misses objects in
    blocks, or because of their properties, held-out objects are easier to predict than missing
    ones, and the score is optimistic. Folds share data: the standard error is a guide, not a test.
    Strengths within noise of the best (listed in the repr) are indistinguishable on these data.

    Examples
    --------
    >>> from mkmc_prob import datasets, remove_objects, select_strength
    >>> kernels, _ = datasets.make_fusion_problem(30, 3)
    >>> found = select_strength(remove_objects(kernels, 0.3, seed=0), strengths=[0.1, 1.0, 10.0])
    >>> found.calibration.loc[found.best].index.tolist()
    ['rbf_1', 'linear_2', 'graph_3']
    """
    warn(
        "select_strength chooses the strength of the paper's model only, and will be removed. Use "
        "select_model(stack), which also chooses what each kernel shares with the others.",
        DeprecationWarning,
    )
    return score_strengths(
        stack,
        strengths=strengths,
        folds=folds,
        prior=prior,
        degrees_of_freedom=degrees_of_freedom,
        method=method,
        tol=tol,
        max_iter=max_iter,
        seed=seed,
        workers=workers,
        progress=progress,
    )


def score_strengths(
    stack: xr.DataArray,
    *,
    strengths: Sequence[float] | NDArray[np.float64],
    folds: int,
    prior: WishartPrior | None = None,
    degrees_of_freedom: DegreesOfFreedom = 1.0,
    method: str,
    tol: float,
    max_iter: int,
    seed: int | np.random.Generator,
    workers: int = 1,
    progress: bool = False,
) -> StrengthSelection:
    """Score strengths of the paper's model; see `select_strength`."""
    grid = sorted(strengths)
    prior = one_prior(IDENTICAL_STRENGTH, prior, IDENTICAL_STRENGTH)
    problem = Problem.of(stack, prior, degrees_of_freedom)
    visible = problem.stack.visible
    if not (visible.sum(1) >= 2).any():
        raise KernelError("stack: no kernel shows two objects. There is nothing to hold out.")
    warn_of_scales(problem.stack.array)
    parts = _parts(visible, folds, np.random.default_rng(seed))
    options = {"method": method, "tol": tol, "max_iter": max_iter}
    tasks = [(problem, parts == fold, grid, options) for fold in range(folds)]
    with tqdm(total=folds, disable=not progress, desc="select_strength", unit=" folds") as bar:
        found = []
        for outcome in in_processes(_score, tasks, workers=workers):
            found.append(outcome)
            bar.update()
    density, lengths, residuals, late = (np.stack(values) for values in zip(*found, strict=True))
    if late.any():
        warn(
            f"{late.sum()} of {folds * len(grid)} fits ended before they converged: their scores "
            "are those of the models reached. Raise max_iter.",
            ConvergenceWarning,
        )
    units = {"long_name": "held-out log density", "units": "nats"}
    held_out = [parts == fold for fold in range(folds)]
    predicted = [_predicted(visible, hidden).sum(1) for hidden in held_out]
    scores = xr.Dataset(
        {
            "log_density": (("strength", "fold", "kernel"), density.swapaxes(0, 1), units),
            "held_out": (("fold", "kernel"), np.sum(held_out, axis=2)),
            "predicted": (("fold", "kernel"), np.array(predicted)),
            "mahalanobis": (("strength", "fold", "kernel"), lengths.swapaxes(0, 1)),
            # Every object is held out in at most one fold.
            "squared_residual": (("strength", "kernel", "object"), _merged(residuals)),
        },
        coords={
            "strength": grid,
            "fold": np.arange(folds),
            "kernel": problem.stack.array["kernel"].values,
            "object": problem.stack.objects,
        },
    )
    selection = StrengthSelection(scores)
    if selection.at_the_edge:
        warn(selection._about_the_edge())
    return selection


def _predicted(visible: NDArray[np.bool_], hidden: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which of the hidden objects some kernel still shows; the rest have only the prior."""
    predicted: NDArray[np.bool_] = hidden & (visible & ~hidden).any(axis=0)
    return predicted


def _merged(residuals: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return what one of the folds has, NaN where none has."""
    out: NDArray[np.float64] = residuals[0]
    for other in residuals[1:]:
        out = np.where(np.isnan(out), other, out)
    return out


def _parts(visible: NDArray[np.bool_], folds: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Return in which fold each visible object of each kernel is held out; -1 for the others."""
    parts = np.full(visible.shape, -1)
    for own, v in zip(parts, visible, strict=True):
        place = rng.permutation(np.flatnonzero(v))
        for fold, some in enumerate(np.array_split(place, folds)):
            own[some] = fold
    return parts


def _score(
    problem: Problem,
    hidden: NDArray[np.bool_],
    strengths: list[float],
    options: dict[str, Any],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], int]:
    """Return one fold's densities, lengths, residuals by strength, and how many fits were late."""
    stack, degrees = problem.stack, problem.sources.degrees_of_freedom
    visible, predicted = stack.visible, _predicted(stack.visible, hidden)
    rest = visible & ~hidden
    train = problem._replace(stack=stack.hiding(hidden))
    blocks = [kernel.moment for kernel in stack.kernels()]
    density = np.zeros((len(strengths), len(visible)))
    lengths = np.full_like(density, np.nan)
    residuals = np.full((len(strengths), *visible.shape), np.nan)
    late, model = 0, None
    # The same bits whatever the number of threads outside.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", MKMCWarning)  # the caller was warned of the whole stack
        for s in reversed(range(len(strengths))):
            solution = solve(train.with_strength(strengths[s]), initial=model, **options)
            if solution.interrupted:
                raise KeyboardInterrupt
            model = solution.model
            late += not solution.converged
            for k, nu in enumerate(degrees.tolist()):
                if not hidden[k].any():
                    continue
                density[s, k], length, of_objects = held_out(model, visible[k], rest[k], blocks[k])
                density[s, k] *= nu
                if not predicted[k].any():
                    continue
                told = rest[k] | predicted[k]
                if not told[visible[k]].all():
                    part = blocks[k][np.ix_(told[visible[k]], told[visible[k]])]
                    _, length, of_objects = held_out(model, told, rest[k], part)
                lengths[s, k], residuals[s, k, predicted[k]] = length, of_objects
    return density, lengths, residuals, late


def held_out(
    model: GaussianModel,
    visible: NDArray[np.bool_],
    rest: NDArray[np.bool_],
    moment: NDArray[np.float64],
) -> tuple[float, float, NDArray[np.float64]]:
    """Score the objects that are visible but not in the rest, given the rest.

    Returns
    -------
    tuple
        Their expected log density in nats, their expected squared Mahalanobis length per object,
        and the expected squared residual of each over its conditional variance.
    """
    part = GaussianModel.of(model.matrix[np.ix_(visible, visible)], model.objects[visible])
    conditional = part.condition(rest[visible])
    v, h = np.flatnonzero(rest[visible]), np.flatnonzero(~rest[visible])
    a, c = conditional.regression, conditional.covariance
    crossed = a.T @ moment[np.ix_(v, h)]
    residual = moment[np.ix_(h, h)] - crossed - crossed.T + a.T @ moment[np.ix_(v, v)] @ a
    factor = cholesky(c, "conditional covariance", conditional.hidden, TOO_SINGULAR)
    length = float(np.trace(cholesky_solve(factor, residual)))
    density = gaussian_log_likelihood(len(h), log_determinant(factor), length)
    return density, length / len(h), np.diagonal(residual) / np.diagonal(c)
