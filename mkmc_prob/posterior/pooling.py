"""Rubin's rules: what a function says of several completed stacks, as one answer.

Enters: a function of a completed stack, and stacks drawn from a posterior. Leaves: its estimate,
with an uncertainty that counts what is missing.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from scipy import stats

from ..errors import MKMCError
from ..utils.arguments import real_number
from .imputation import FROM_POSTERIOR

#: Beyond this the squares of answers overflow; below its inverse they vanish.
LARGEST = 1e150


#: What is returned, and so no dim of an answer.
NAMES = (
    "estimate",
    "standard_error",
    "lower",
    "upper",
    "within",
    "between",
    "degrees_of_freedom",
    "missing_share",
    "missing_information",
)


def pool_estimates(
    function: Callable[[xr.DataArray], Any],
    completed: xr.DataArray,
    *,
    complete_degrees_of_freedom: float = np.inf,
    confidence: float = 0.95,
) -> xr.Dataset:
    """Apply a function to every completed stack, and pool what it returns by Rubin's rules.

    With m stacks, estimates q_i and their variances u_i for complete data:

        q = mean q_i,  W = mean u_i,  B = sum (q_i - q)^2 / (m - 1),  T = W + (1 + 1/m) B,

    and (q - true value) / sqrt(T) is Student's t with nu degrees of freedom, where
    lambda = (1 + 1/m) B / T is the share of the variance that is due to what is missing,
    1/nu = lambda^2 / (m - 1) + 1/nu_obs, nu_obs = nu_com (nu_com + 1) / (nu_com + 3) (1 - lambda)
    (Rubin 1987, *Multiple Imputation for Nonresponse in Surveys*, 3.1; Barnard and Rubin 1999,
    *Biometrika* 86, 948).

    Parameters
    ----------
    function
        From a completed stack, dims ``("kernel", "object", "object_bis")``, to an estimate or to
        ``(estimate, variance)``: numbers, arrays or labelled ones (pandas, xarray) of one shape,
        the same labels for every stack. An estimate alone describes these very objects: u_i = 0.
        It gets copies.
    completed
        At least two, of `sample_completed` from a posterior.
    complete_degrees_of_freedom
        nu_com, those of the function's own t-test with nothing missing; infinite is a normal one.
    confidence
        Of the intervals, between 0 and 1.

    Returns
    -------
    Dataset
        Over the dims of the estimate: ``estimate``, ``standard_error`` (sqrt T), ``lower`` and
        ``upper``, ``within`` (W), ``between`` (B), ``degrees_of_freedom`` (nu),
        ``missing_share`` (lambda) and ``missing_information``, the fraction of information that is
        missing, (r + 2 / (nu + 3)) / (r + 1) with r = (1 + 1/m) B / W.

    Raises
    ------
    MKMCError
        Where the stacks were not drawn from a posterior: Rubin's rules hold for proper imputations
        only; where there are less than two, or one of them twice; where what the function returns
        is not finite, differs in shape or labels, or has a negative variance.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import pool_estimates, sample_completed, sample_posterior, stack_kernels
    >>> stack = stack_kernels(np.stack([np.eye(2)] * 2), visible=[[1, 1], [1, 0]])
    >>> posterior = sample_posterior(stack, degrees_of_freedom=9, strength=2.0, draws=2000, seed=1)
    >>> completed = sample_completed(posterior, draws=50)
    >>> pooled = pool_estimates(lambda stack: stack.mean(("object", "object_bis")), completed)
    >>> pooled["missing_share"].values  # one estimate does not vary, the other misses all
    array([0., 1.])
    """
    stacks = _checked(completed)
    if not callable(function):
        raise MKMCError(f"function: {function!r} found; a function of a stack is needed.")
    m = len(stacks)
    level = real_number(confidence)
    if level is None or not 0.0 < level < 1.0:
        raise MKMCError(f"confidence: {confidence!r} found; a number between 0 and 1 is needed.")
    complete = _positive_or_infinite(complete_degrees_of_freedom)
    answers = [_answer(function, stack.copy(), i) for i, stack in enumerate(stacks)]
    first = answers[0][0]
    for i, answer in enumerate(answers):
        for part in answer:
            _check_alike(part, first, i)
    if not first.size:
        raise MKMCError("function: it returned no number. Return one at least.")
    estimates = np.stack([estimate.values for estimate, _ in answers])
    within = np.stack([variance.values for _, variance in answers]).mean(axis=0)
    # From the first: what does not vary has no variance, whatever the rounding of a mean.
    apart = estimates - estimates[0]
    _check_range(apart, within)
    mean = estimates[0] + apart.mean(axis=0)
    between = apart.var(axis=0, ddof=1)
    extra = (1.0 + 1.0 / m) * between
    total = within + extra
    share = np.divide(extra, total, out=np.zeros_like(total), where=total > 0.0)
    nu = _degrees(share, within, m, complete)
    half = stats.t.ppf(0.5 + level / 2.0, nu) * np.sqrt(total)
    # r / (r + 1) is lambda, and 1 / (r + 1) is 1 - lambda: no division by W.
    information = share + (1.0 - share) * 2.0 / (nu + 3.0)
    values = {
        "estimate": mean,
        "standard_error": np.sqrt(total),
        "lower": mean - half,
        "upper": mean + half,
        "within": within,
        "between": between,
        "degrees_of_freedom": nu,
        "missing_share": share,
        "missing_information": np.where(total > 0.0, information, 0.0),
    }
    pooled = xr.Dataset({name: first.copy(data=value) for name, value in values.items()})
    pooled.attrs = {"imputations": m, "confidence": level}
    return pooled


def _positive_or_infinite(given: Any) -> float:
    """Return the degrees of freedom of a t-test."""
    number = np.inf if isinstance(given, float) and given == np.inf else real_number(given)
    if number is None or not number > 0.0:
        raise MKMCError(
            f"complete_degrees_of_freedom: {given!r} found; a number > 0 is needed, or infinity."
        )
    return float(number)


def _check_alike(part: xr.DataArray, first: xr.DataArray, place: int) -> None:
    """Raise where an answer is of another shape than the first, or of other labels."""
    if part.dims != first.dims or part.shape != first.shape:
        raise MKMCError(
            f"function: shape {part.shape} {part.dims} found for imputation {place}, "
            f"{first.shape} {first.dims} for the first. All must be alike."
        )
    for dim in first.dims:
        if not first.get_index(dim).equals(part.get_index(dim)):
            raise MKMCError(
                f"function: for imputation {place} the labels of {dim!r}, or their order, are not "
                "those of the first. All must be alike: select and sort by what does not vary."
            )


def _check_range(apart: NDArray[np.float64], within: NDArray[np.float64]) -> None:
    """Raise where squares leave the range of numbers."""
    size = np.abs(apart)
    # A small one beside a variance within is rightly nothing.
    small = (size > 0.0) & (size < 1.0 / LARGEST) & (within == 0.0)
    if (size > LARGEST).any() or small.any():
        raise MKMCError(
            "function: answers that differ by more than 1e150, or by less than 1e-150, have no "
            "variance in the range of numbers. Rescale them."
        )
    if (within > LARGEST**2).any():
        raise MKMCError("function: a variance is above 1e300. Rescale the answers.")


def _degrees(
    share: NDArray[np.float64], within: NDArray[np.float64], m: int, complete: float
) -> NDArray[np.float64]:
    """Return Barnard and Rubin's degrees of freedom; without a complete-data variance, m - 1."""
    of_missing = np.divide(share**2, m - 1)
    if complete > LARGEST:
        of_observed = np.zeros_like(share)
    else:
        observed = complete * (complete + 1.0) / (complete + 3.0) * (1.0 - share)
        of_observed = np.divide(1.0, observed, out=np.zeros_like(share), where=within > 0.0)
    inverse = of_missing + of_observed
    return np.divide(1.0, inverse, out=np.full_like(share, np.inf), where=inverse > 0.0)


def _checked(completed: Any) -> xr.DataArray:
    dims = ("imputation", "kernel", "object", "object_bis")
    if not isinstance(completed, xr.DataArray) or completed.dims != dims:
        raise MKMCError(f"completed: dims {dims} are needed. Pass what sample_completed returns.")
    drawn_from = completed.coords.get("drawn_from")
    if drawn_from is None or (drawn_from != FROM_POSTERIOR).any():
        raise MKMCError(
            "completed: not all drawn from a posterior. Rubin's rules need draws whose models were "
            "drawn, too: completions at an estimate understate the variance. Pass "
            "sample_completed(posterior, draws=...)."
        )
    if "imputation" in completed.indexes and not completed.indexes["imputation"].is_unique:
        raise MKMCError(
            "completed: a draw occurs more than once along 'imputation', and says no more than "
            "once. If these are different draws, give each a label of its own."
        )
    if len(completed) < 2:
        raise MKMCError("completed: one stack has no variance. Draw two at least, better 20.")
    return completed


def _answer(
    function: Callable[[xr.DataArray], Any], stack: xr.DataArray, place: int
) -> tuple[xr.DataArray, xr.DataArray]:
    """Return what the function says of one stack: estimate and variance, labelled, finite."""
    answer = function(stack)
    estimate, variance = answer if isinstance(answer, tuple) and len(answer) == 2 else (answer, 0.0)
    try:
        labelled = _labelled(estimate)
        spread = _labelled(variance)
    except MKMCError:
        raise
    except (TypeError, ValueError) as error:
        raise MKMCError(
            f"function: {answer!r} found for imputation {place}; numbers are needed, an estimate "
            "or (estimate, variance)."
        ) from error
    if spread.ndim == 0:
        spread = xr.full_like(labelled, spread.item())
    if not (np.isfinite(labelled).all() and np.isfinite(spread).all() and (spread >= 0.0).all()):
        raise MKMCError(
            f"function: an estimate or a variance for imputation {place} is not finite, or a "
            "variance is negative. Such answers cannot be pooled."
        )
    return labelled, spread


def _labelled(values: Any) -> xr.DataArray:
    array = values if isinstance(values, xr.DataArray) else xr.DataArray(np.asarray(values))
    if isinstance(values, pd.Series | pd.DataFrame):
        array = xr.DataArray(values)  # with its labels
    if array.dtype.kind not in "biuf":
        raise TypeError("not numbers")
    if taken := [dim for dim in array.dims if dim in NAMES]:
        raise MKMCError(
            f"function: the answer has a dim {taken[0]!r}, which is what a result of pooling is "
            "called. Rename it."
        )
    plain: xr.DataArray = array.reset_coords(drop=True).astype(np.float64)
    return plain
