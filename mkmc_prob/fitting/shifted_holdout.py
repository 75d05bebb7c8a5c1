"""Held-out objects whose true rows are shifted, predicted by the model and by the mean."""

import warnings
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from tqdm.auto import tqdm

from ..diagnostics.protocol import FitResult
from ..em.em import EM
from ..em.problem import Problem
from ..errors import KernelError, MKMCWarning
from ..evaluation.baselines import impute_means
from ..model.shift import ShiftableKernel
from ..model.structures import LowRank, structure_of
from .holdout import Draw, Setting, approach, hidden_objects, mean_relative_error, training_problem

PREDICTORS = ("model", "mean")


def held_out_errors(
    problem: Problem,
    result: FitResult,
    *,
    direction: str,
    places: NDArray[np.intp],
    deltas: NDArray[np.float64],
    draws: int,
    rng: np.random.Generator,
    progress: bool,
) -> xr.DataArray:
    """Return the relative error of held-out rows, shifted, by draw, predictor, delta and kernel.

    Each draw hides a quarter of the visible objects of every kernel. The model is fitted without
    them, and neither it nor mean imputation knows delta. Only rows of the kernels at `places` are
    shifted. NaN if nothing of a kernel is held out.

    Raises
    ------
    KernelError
        If no kernel has three visible objects, so that nothing can be held out.
    """
    stack = problem.stack
    errors = np.full((draws, len(PREDICTORS), len(deltas), len(stack.names)), np.nan)
    for own in tqdm(errors, disable=not progress, desc="verdict", unit=" fits"):
        draw = Draw(problem, hidden_objects(stack, rng))
        if not draw.hidden.any():
            raise KernelError(
                "verdict: no object can be held out, because no kernel shows three objects of "
                "which another kernel shows one. Leave verdict out."
            )
        predicted = predictions(draw, result)
        for k in np.flatnonzero(draw.hidden.any(axis=1)).tolist():
            v, rows = np.flatnonzero(stack.visible[k]), draw.hidden[k][stack.visible[k]]
            block = stack.array.values[k][np.ix_(v, v)]
            truth = ShiftableKernel(block, ~rows, centered=not problem.sources.is_identical)
            for d, delta in enumerate(deltas.tolist()):
                shifted = truth.shifted(direction, delta if k in places else 1.0)[rows]
                for m, completed in enumerate(predicted):
                    found = completed[k][np.ix_(draw.hidden[k], v)]
                    own[m, d, k] = mean_relative_error(found, shifted)
    return xr.DataArray(
        errors,
        dims=("draw", "predictor", "delta", "kernel"),
        coords={"predictor": list(PREDICTORS), "delta": deltas, "kernel": np.array(stack.names)},
    )


def predictions(draw: Draw, result: FitResult) -> tuple[Any, Any]:
    """Return the kernels without the held-out objects, completed by the model and by the mean."""
    training, given = draw.training, draw.problem
    if given.sources.is_identical:
        problem = given._replace(stack=training)
    else:
        factors = structure_of(result.prior.factors) if result.prior.factors else None
        setting = Setting(
            result.prior.strength,
            tuple(given.sources.sharing.tolist()),
            result.structure,
            factors if isinstance(factors, LowRank) else None,
        )
        problem = training_problem(draw, training, setting)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MKMCWarning)  # of the draws, not of the user's kernels
        model, sources, _ = approach(problem, result.model)
    by_model = EM.of(problem).completed(problem, sources, model).values
    by_mean = training.array.fillna(0.0).values
    shown = np.flatnonzero(training.visible.any(axis=1))  # an empty kernel has no mean
    by_mean[shown] = impute_means(training.with_kernels(shown)).values
    return by_model, by_mean
