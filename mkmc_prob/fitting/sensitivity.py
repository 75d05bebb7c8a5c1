"""Sensitivity of a result to missingness that is not at random: hidden objects shifted by delta.

The pattern-mixture approach (delta adjustment: Little 1993; van Buuren, Boshuizen and Knook 1999).
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from tqdm.auto import tqdm

from ..diagnostics.protocol import FitResult, as_result
from ..errors import KernelError
from ..linalg.lazy import is_lazy
from ..model.shift import DIRECTIONS
from ..model.structures import need_full
from ..stacks.labels import as_labels, match
from ..utils.arguments import checked, choice, optional, real, real_number, seed, several, whole
from ..utils.memory import in_words
from .shifted import Shifts
from .shifted_holdout import held_out_errors
from .tipping import SIDES, Rule, Tipping

#: The default factors.
DELTAS = {
    "size": (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.4, 1.6, 2.0),
    "ties": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
}
delta_number = real(lambda number: number >= 0, "a finite number >= 0")


@checked(
    result=as_result,
    direction=choice(*DIRECTIONS),
    deltas=optional(several(delta_number)),
    draws=whole(least=2),
    seed=seed,
)
def sensitivity(
    result: FitResult,
    direction: str,
    *,
    deltas: Iterable[float] | None = None,
    quantity: Callable[[Any], float] | None = None,
    conclusion: float | Callable[[float], bool] | None = None,
    kernels: Iterable[Hashable] | None = None,
    refit: bool = False,
    verdict: bool = False,
    draws: int = 5,
    seed: int | np.random.Generator = 0,
    progress: bool = False,
) -> xr.Dataset:
    """Return how a result changes if hidden objects differ from what visible ones predict.

    `fit` assumes that missingness is ignorable: a hidden object is what the model of the visible
    ones predicts. Here it differs from that by a factor delta, on a grid. No data can tell which
    delta holds, because only the distribution of what is hidden depends on it; the likelihood does
    not. The question is how far delta may be from 1 before a conclusion changes (the tipping
    point), and whether that far is plausible.

    Parameters
    ----------
    result
        A fit.
    direction
        What delta multiplies. "size": the vector of a hidden object in the kernel's feature space,
        so Q_vh becomes delta Q_vh and Q_hh becomes delta^2 Q_hh. "ties": the regression of a
        hidden object on the visible ones, A, while its squared length stays: at 0 hidden objects
        are unrelated to visible ones. See Notes for the origin of the vectors.
    deltas
        The factors, each >= 0; 1 is added. By default 0.5 to 2 for "size", 0 to 1 for "ties".
    quantity
        What to follow: a function that returns a finite number, given an object with the attributes
        ``completed`` (the shifted stack), ``model`` (its `GaussianModel`) and ``delta``.
    conclusion
        A threshold (the conclusion is on which side of it the quantity is), or a function of the
        quantity that returns whether the conclusion holds.
    kernels
        Names of the kernels whose hidden objects are shifted; all if omitted.
    refit
        Whether delta is relative to a model of visible and hidden objects together, see Notes.
    verdict
        Whether to compare the completion with mean imputation: visible objects are held out and
        predicted by both, and their true rows are shifted by delta. It fits `draws` times.
    draws
        How often objects are held out for the verdict, at least 2.
    seed
        The seed of these draws.
    progress
        Whether to show a progress bar.

    Returns
    -------
    Dataset
        Over ``delta`` and ``kernel``: ``mean_change`` and ``largest_change`` of the entries of
        hidden objects, in absolute value and relative to sqrt(Q_ii Q_jj) of the result (NaN for a
        kernel that hides nothing). With a `quantity`, ``quantity`` over ``delta``; with a
        `conclusion`, whether it ``holds``, ``tipping_point`` over ``side`` ("below" and "above" 1)
        and ``tipping_interval`` over ``side`` and ``end``: the conclusion changes between these two
        neighbors of the grid. The point is interpolated linearly for a threshold, and the middle of
        the interval otherwise. Both are NaN if the conclusion does not change on that side;
        ``attrs["conclusion"]`` says so in a sentence. With `verdict`, ``model_error`` and
        ``mean_error`` over ``delta`` and ``kernel``, the relative errors of the held-out rows (NaN
        if none of a kernel is held out),
        ``advantage``, mean error less model error averaged over kernels and draws, and its
        ``advantage_error``, the standard error over the draws; ``attrs["verdict"]`` says at which
        delta the advantage ends.

    Raises
    ------
    KernelError, LabelError
        If an argument cannot be used; a delta above the largest that "ties" admit (the message
        states it); a `quantity` that is not finite; a refit that diverges.

    Warns
    -----
    ConvergenceWarning
        If a refit did not converge.

    Notes
    -----
    *The origin.* With ``sources="identical"`` (the paper's model, mean zero) it is that of the
    kernel's feature space. Otherwise the entries of a kernel share a constant, which is no
    property of a single object, and the shift is about the mean of the kernel's visible objects
    in feature space: with delta = 0 "size" is mean imputation. Multiplying a kernel by a constant
    multiplies its shifted completion. (`sources` has part of the constant only: the part that all
    kernels share is in the model matrix.)

    *The model.* If hidden objects are delta times what they would be if visible, x_h = delta y_h
    with y ~ N(0, M), the visible part has the distribution N(0, M_vv) whatever delta is. The fitted
    M therefore remains the maximum, and it is held: only the completions are shifted. The ``model``
    given to `quantity` describes the objects as they are, hidden ones included: the M-step of the
    shifted kernels. It is no maximum of L for delta other than 1.

    With `refit`, M is instead the fixed point of EM with shifted expectations,
    M = (lambda T + sum nu_k Q_delta(k)) / (lambda + N) in the paper's model: hidden objects differ
    by delta from what visible and hidden ones together predict. The shift then acts more than
    once, because shifted completions change M and M the completions: of an object visible in
    one of two kernels and hidden in the other, a small prior gives delta / (2 - delta) times its
    entries, and for delta > 1 there may be no fixed point. Use it only if that is what delta is to
    mean.

    *Ties.* Each hidden object gets variance of its own in place of what its regression loses. For
    delta > 1 its regression explains more than now, so that the conditional covariance must be
    large enough; the largest admissible delta follows from its eigenvalues.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import fit, sensitivity, stack_kernels
    >>> stack = stack_kernels(np.stack([np.eye(2) + 1] * 2), visible=[[1, 1], [1, 0]])
    >>> result = fit(stack, sources="identical", strength=0.1, tol=1e-9)
    >>> def similarity(shifted):
    ...     return shifted.completed.values[1, 0, 1]
    >>> found = sensitivity(result, "size", quantity=similarity, conclusion=0.5)
    >>> found["quantity"].sel(delta=[0.5, 1.0, 2.0]).values.round(2)
    array([0.48, 0.95, 1.9 ])
    >>> found["tipping_interval"].sel(side="below").values
    array([0.6, 0.5])
    >>> print(found.attrs["conclusion"])
    quantity > 0.5 holds at delta 1; it changes between 0.6 and 0.5 (about 0.525); it does not
    change up to 2.
    """
    grid = np.unique([1.0, *(DELTAS[direction] if deltas is None else deltas)])
    rule = None if conclusion is None else Rule.of(conclusion)
    _check(result, direction, grid, quantity, rule, refit=refit, verdict=verdict)
    names = result.observed["kernel"].values
    places = np.arange(len(names))
    if kernels is not None:
        wanted = as_labels([kernels] if isinstance(kernels, str) else kernels, "kernels")
        places = match(wanted, names, "kernels: there is no kernel {}.")
    shifts = Shifts(result, direction, places)
    shifts.check(float(grid[-1]))
    mean, largest, values = [], [], []
    for delta in tqdm(grid.tolist(), disable=not progress, desc="sensitivity", unit=" deltas"):
        shifted = shifts.refitted(delta) if refit else shifts.held(delta)
        change = relative_changes(result, shifted.completed)
        mean.append([own.mean() if own.size else np.nan for own in change])
        largest.append([own.max(initial=0.0) if own.size else np.nan for own in change])
        if quantity is not None:
            values.append(_finite(quantity(shifted), delta))
    about = "change of the entries of hidden objects, relative to the diagonal"
    found = xr.Dataset(
        {
            "mean_change": (("delta", "kernel"), mean, {"long_name": f"mean {about}"}),
            "largest_change": (("delta", "kernel"), largest, {"long_name": f"largest {about}"}),
        },
        coords={"delta": grid, "kernel": names},
        attrs={"direction": direction, "refit": int(refit)},
    )
    if quantity is not None:
        found["quantity"] = "delta", values
    if rule is not None:
        found = _with_tipping(found, Tipping.of(grid, np.array(values), rule), rule)
    if verdict:
        errors = held_out_errors(
            shifts.problem,
            result,
            direction=direction,
            places=places,
            deltas=grid,
            draws=draws,
            rng=np.random.default_rng(seed),
            progress=progress,
        )
        found = _with_verdict(found, errors)
    return found


def _check(
    result: FitResult,
    direction: str,
    grid: NDArray[np.float64],
    quantity: Any,
    rule: Rule | None,
    *,
    refit: bool,
    verdict: bool,
) -> None:
    """Raise KernelError if arguments do not go together."""
    if is_lazy(result.observed.data) or is_lazy(result.completed.data):
        raise KernelError(
            "result: its kernels are not in memory, which this needs: "
            f"{in_words(8.0 * result.observed.size)}. Fit some of the objects."
        )
    if quantity is not None and not callable(quantity):
        raise KernelError(f"quantity: {quantity!r} found; a function is needed.")
    if rule is not None and quantity is None:
        raise KernelError("conclusion: found without a quantity. Pass quantity=, a function.")
    if refit:
        need_full(result.structure, "sensitivity with refit")
    if verdict and direction == "ties" and grid[-1] > 1.0:
        raise KernelError(
            f"deltas: {grid[-1]:g} found with direction 'ties' and verdict=True; at most 1 is "
            "needed: the observed kernels seldom admit stronger ties. Leave verdict out."
        )


def _finite(value: Any, delta: float) -> float:
    """Return the value of a quantity; raise KernelError unless it is a finite number."""
    array = isinstance(value, np.ndarray | xr.DataArray) and value.ndim == 0
    number = real_number(value.item() if array else value)
    if number is None:
        raise KernelError(
            f"quantity: {value!r} found at delta {delta:g}; a finite number is needed."
        )
    return number


def relative_changes(result: FitResult, shifted: xr.DataArray) -> list[NDArray[np.float64]]:
    """Return abs(Q_delta - Q)_ij / sqrt(Q_ii Q_jj) of the entries that are hidden, by kernel.

    Each pair of objects counts once; entries of an object with Q_ii = 0 are left out.
    """
    found = []
    for observed, matrix, other in zip(
        result.observed.values, result.completed.values, shifted.values, strict=True
    ):
        deviations = np.sqrt(np.maximum(np.diagonal(matrix), 0.0))
        size = np.outer(deviations, deviations)
        chosen = np.isnan(observed) & (size > 0.0) & np.tri(len(matrix), dtype=bool)
        found.append(np.abs(other - matrix)[chosen] / size[chosen])
    return found


def _with_tipping(found: xr.Dataset, tipping: Tipping, rule: Rule) -> xr.Dataset:
    """Return the table with where a conclusion changes."""
    found = found.assign_coords(side=list(SIDES), end=["near", "far"]).assign(
        holds=("delta", tipping.holds),
        tipping_point=("side", list(tipping.points)),
        tipping_interval=(("side", "end"), np.array(tipping.intervals)),
    )
    what = "the conclusion"
    if rule.threshold is not None:
        what = f"quantity > {rule.threshold:g}"
        found.attrs["threshold"] = rule.threshold
    found.attrs["conclusion"] = tipping.sentence(what)
    return found


def _with_verdict(found: xr.Dataset, errors: xr.DataArray) -> xr.Dataset:
    """Return the table with the errors of held-out rows, and where completion stops paying."""
    advantage = (errors.sel(predictor="mean") - errors.sel(predictor="model")).mean("kernel")
    mean = advantage.mean("draw")
    noise = advantage.std("draw", ddof=1) / np.sqrt(errors.sizes["draw"])
    tipping = Tipping.of(found["delta"].values, mean.values, Rule.of(0.0))
    found = found.assign(
        model_error=errors.sel(predictor="model").mean("draw").drop_vars("predictor"),
        mean_error=errors.sel(predictor="mean").mean("draw").drop_vars("predictor"),
        advantage=mean,
        advantage_error=noise,
    )
    found.attrs["verdict"] = tipping.sentence("completion better than mean imputation")
    return found
