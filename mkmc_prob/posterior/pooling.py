"""Rubin's rules: the answers of a function to several completed stacks, pooled into one."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from scipy.special import stdtrit

from ..errors import MKMCError
from ..utils.arguments import checked, real, share
from .imputation import FROM_POSTERIOR

#: Below this the squares of deviations lose digits, or vanish.
SMALLEST = float(np.finfo(float).tiny)


def _positive_or_infinite(value: Any, what: str) -> Any:
    """Check the degrees of freedom of a t-test."""
    if isinstance(value, float) and value == np.inf:
        return value
    return real(lambda number: number > 0.0, "a number > 0, or infinity,")(value, what)


@checked(complete_degrees_of_freedom=_positive_or_infinite, confidence=share)
def pool_estimates(
    function: Callable[[xr.DataArray], Any],
    completed: xr.DataArray,
    *,
    complete_degrees_of_freedom: float = np.inf,
    confidence: float = 0.95,
) -> xr.Dataset:
    """Apply a function to each completed stack, and pool its answers by Rubin's rules.

    With m stacks, estimates q_i and their complete-data variances u_i,

        q = mean q_i,  W = mean u_i,  B = sum (q_i - q)^2 / (m - 1),  T = W + (1 + 1/m) B,

    and (q - true value) / sqrt(T) follows Student's t with nu degrees of freedom, where
    lambda = (1 + 1/m) B / T is the share of the variance that is due to the missing entries, and
    1/nu = lambda^2 / (m - 1) + 1/nu_obs, nu_obs = nu_com (nu_com + 1) / (nu_com + 3) (1 - lambda)
    (Rubin 1987, *Multiple Imputation for Nonresponse in Surveys*, 3.1; Barnard and Rubin 1999,
    *Biometrika* 86, 948).

    Parameters
    ----------
    function
        Maps a completed stack, dims ``("kernel", "object", "object_bis")``, to an estimate or to
        ``(estimate, variance)``: numbers, arrays or labeled ones (pandas, xarray) of one shape,
        with the same labels for every stack. An estimate alone describes these very objects:
        u_i = 0. The function gets copies.
    completed
        At least two stacks that `sample_completed` drew from a posterior.
    complete_degrees_of_freedom
        nu_com, the degrees of freedom of the function's t-test on complete data; infinite means a
        normal test.
    confidence
        Confidence level of the intervals, between 0 and 1.

    Returns
    -------
    Dataset
        Over the dims of the estimate: ``estimate``, ``standard_error`` (sqrt T), ``lower`` and
        ``upper``, ``within`` (W), ``between`` (B), ``degrees_of_freedom`` (nu),
        ``missing_share`` (lambda) and ``missing_information``, the fraction of missing
        information, (r + 2 / (nu + 3)) / (r + 1) with r = (1 + 1/m) B / W.

    Raises
    ------
    KernelError
        If `confidence` or `complete_degrees_of_freedom` is not such a number.
    MKMCError
        If the stacks were not drawn from a posterior, since Rubin's rules hold for proper
        imputations only; if there are fewer than two, or one of them occurs twice; if an answer
        of the function is not finite, has a negative variance, or differs in shape or labels.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import pool_estimates, sample_completed, sample_posterior, stack_kernels
    >>> stack = stack_kernels(np.stack([np.eye(2)] * 2), visible=[[1, 1], [1, 0]])
    >>> options = dict(degrees_of_freedom=9, strength=10.0, draws=300, tune=100, seed=1)
    >>> posterior = sample_posterior(stack, **options)
    >>> completed = sample_completed(posterior, draws=50)
    >>> pooled = pool_estimates(lambda stack: stack.mean(("object", "object_bis")), completed)
    >>> pooled["missing_share"].values  # one estimate does not vary, the other misses all
    array([0., 1.])
    """
    stacks = _checked(completed)
    if not callable(function):
        raise MKMCError(f"function: {function!r} found; a function of a stack is needed.")
    m = len(stacks)
    answers = [_answer(function, stack.copy(), i) for i, stack in enumerate(stacks)]
    first = answers[0][0]
    for i, answer in enumerate(answers):
        for part in answer:
            _check_alike(part, first, i)
    if not first.size:
        raise MKMCError("function: it returned no number. Return at least one.")
    estimates = np.stack([estimate.values for estimate, _ in answers])
    # Deviations from the first: what does not vary has no variance, however a mean is rounded.
    apart = estimates - estimates[0]
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        mean = estimates[0] + apart.mean(axis=0)
        within = np.stack([variance.values for _, variance in answers]).mean(axis=0)
        between = apart.var(axis=0, ddof=1)
        extra = (1.0 + 1.0 / m) * between
        total = within + extra
        if not np.isfinite(total).all() or (apart.any(axis=0) & (total < SMALLEST)).any():
            raise MKMCError(
                "function: the variances of its answers are above 1e308 or below 1e-308, outside "
                "the range of floating-point numbers. Rescale the answers."
            )
        missing = np.where(total > 0.0, extra / total, 0.0)
        nu = _degrees(missing, within, m, complete_degrees_of_freedom)
    half = stdtrit(nu, 0.5 + confidence / 2.0) * np.sqrt(total)
    # r / (r + 1) is lambda and 1 / (r + 1) is 1 - lambda, which avoids a division by W.
    information = missing + (1.0 - missing) * 2.0 / (nu + 3.0)
    values = {
        "estimate": mean,
        "standard_error": np.sqrt(total),
        "lower": mean - half,
        "upper": mean + half,
        "within": within,
        "between": between,
        "degrees_of_freedom": nu,
        "missing_share": missing,
        "missing_information": np.where(total > 0.0, information, 0.0),
    }
    if taken := [dim for dim in first.dims if dim in values]:
        raise MKMCError(
            f"function: the answer has a dim {taken[0]!r}, which is the name of a result. Rename "
            "it."
        )
    pooled = xr.Dataset({name: first.copy(data=value) for name, value in values.items()})
    pooled.attrs = {"imputations": m, "confidence": confidence}
    return pooled


def _degrees(
    missing: NDArray[np.float64], within: NDArray[np.float64], m: int, complete: float
) -> NDArray[np.float64]:
    """Return Barnard and Rubin's degrees of freedom; m - 1 without a complete-data variance."""
    inverse = np.divide(missing**2, m - 1)
    if complete * complete < np.inf:
        observed = complete * (complete + 1.0) / (complete + 3.0) * (1.0 - missing)
        inverse = inverse + np.where(within > 0.0, 1.0 / observed, 0.0)
    degrees: NDArray[np.float64] = 1.0 / inverse
    return degrees


def _check_alike(part: xr.DataArray, first: xr.DataArray, place: int) -> None:
    """Raise unless an answer has the shape and labels of the first."""
    if part.dims != first.dims or part.shape != first.shape:
        raise MKMCError(
            f"function: shape {part.shape} {part.dims} found for imputation {place}, "
            f"{first.shape} {first.dims} for the first. Return the same shape for every stack."
        )
    for dim in first.dims:
        if not first.get_index(dim).equals(part.get_index(dim)):
            raise MKMCError(
                f"function: for imputation {place} the labels of {dim!r}, or their order, are not "
                "those of the first. Select and sort by something that does not vary."
            )


def _checked(completed: Any) -> xr.DataArray:
    dims = ("imputation", "kernel", "object", "object_bis")
    if not isinstance(completed, xr.DataArray) or completed.dims != dims:
        raise MKMCError(f"completed: dims {dims} are needed. Pass what sample_completed returns.")
    drawn_from = completed.coords.get("drawn_from")
    if drawn_from is None or (drawn_from != FROM_POSTERIOR).any():
        raise MKMCError(
            "completed: not all drawn from a posterior. Rubin's rules need draws of the model, "
            "too: completions at an estimate understate the variance. Pass "
            "sample_completed(posterior, draws=...)."
        )
    if "imputation" in completed.indexes and not completed.indexes["imputation"].is_unique:
        raise MKMCError(
            "completed: a draw occurs more than once along 'imputation', but counts only once. "
            "If these are different draws, give each its own label."
        )
    if len(completed) < 2:
        raise MKMCError("completed: one stack has no variance. Draw at least 2, preferably 20.")
    return completed


def _answer(
    function: Callable[[xr.DataArray], Any], stack: xr.DataArray, place: int
) -> tuple[xr.DataArray, xr.DataArray]:
    """Return the function's answer to one stack: estimate and variance, labeled and finite."""
    answer = function(stack)
    pair = answer if isinstance(answer, tuple) and len(answer) == 2 else (answer, 0.0)
    estimate, variance = (_labeled(part, answer, place) for part in pair)
    if variance.ndim == 0:
        variance = xr.full_like(estimate, variance.item())
    if not (np.isfinite(estimate).all() and np.isfinite(variance).all() and (variance >= 0).all()):
        raise MKMCError(
            f"function: an estimate or a variance for imputation {place} is not finite, or a "
            "variance is negative. Such answers cannot be pooled."
        )
    return estimate, variance


def _labeled(values: Any, answer: Any, place: int) -> xr.DataArray:
    try:
        labels = isinstance(values, xr.DataArray | pd.Series | pd.DataFrame)
        array = xr.DataArray(values if labels else np.asarray(values))
    except (TypeError, ValueError):
        array = xr.DataArray("no array")
    if array.dtype.kind not in "biuf":
        raise MKMCError(
            f"function: {answer!r} found for imputation {place}; numbers are needed, an estimate "
            "or (estimate, variance)."
        )
    plain: xr.DataArray = array.reset_coords(drop=True).astype(np.float64)
    return plain
