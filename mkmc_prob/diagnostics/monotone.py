"""Checks of the trace of a fit: whether every step increased the objective, and the rate of EM."""

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from ..errors import MKMCError, MonotonicityError
from ..stacks.labels import name_some
from ..utils.arguments import Check, checked

#: An empirical rate is reported if rounding changes it by at most this share of 1 - rate.
CLEAR = 0.1
#: The parts of the gain of an EM step; traces of the paper's model may lack the last.
PARTS = ("gain_q_function", "gain_divergence", "gain_constants")
REMEDY = "Fit again: the trace was changed, or the model is too close to singular."


def trace_with(*needed: str) -> Check:
    """Return a check for the trace of a fit that has the variables `needed`."""

    def check(value: Any, what: str) -> xr.Dataset:
        if not isinstance(value, xr.Dataset):
            raise MKMCError(
                f"{what}: {type(value).__name__} found; the xarray.Dataset of a fit is needed. "
                "Pass result.trace."
            )
        if absent := [name for name in needed if name not in value.data_vars]:
            raise MKMCError(
                f"{what}: it has no variable {name_some(absent)}. Pass result.trace whole."
            )
        for name in needed:
            dims = {"iteration", "kernel"} if name == "log_likelihood" else {"iteration"}
            found = value[name]
            if set(found.dims) != dims or not found.size or found.dtype.kind not in "fiu":
                raise MKMCError(
                    f"{what}: {name} has dims {found.dims}, shape {found.shape} and dtype "
                    f"{found.dtype}; at least one number over {tuple(sorted(dims))} is needed. "
                    "Pass result.trace."
                )
        return value

    return check


@checked(
    trace=trace_with(
        "penalized_log_likelihood", "log_likelihood", "log_prior", "rounding_bound", *PARTS[:2]
    )
)
def check_monotone(trace: xr.Dataset) -> pd.DataFrame:
    """Check that every step increased the penalized log-likelihood and that the trace adds up.

    Equation :eq:`eq-ascent` of the derivation.

    Parameters
    ----------
    trace
        ``result.trace``.

    Returns
    -------
    pandas.DataFrame
        One row per step, indexed by iteration: ``gain``, the increase in nats; ``rounding``, the
        largest change that rounding can cause (the sum of the bounds at both models); ``clear``,
        whether the gain exceeds it.

    Raises
    ------
    MonotonicityError
        If the penalized log-likelihood decreased by more than rounding explains, or is NaN.
    MKMCError
        If `trace` is not a trace or lacks a variable, or if its parts do not add up: the penalized
        log-likelihood is the sum of the kernels' terms and the log prior; the gain of an EM step
        is the sum of three parts (two if no constants are estimated), none of which is negative.

    Notes
    -----
    The bound is derived in docs/numerics.md. A gain within it is not evidence against the step:
    close to a maximum all gains are that small.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import diagnostics, fit, stack_kernels
    >>> kernels = np.array([[[2.0, 1.0], [1.0, 2.0]], [[1.0, 0.2], [0.2, 1.0]]])
    >>> result = fit(stack_kernels(kernels, visible=[[1, 1], [0, 1]]), method="em")
    >>> bool(diagnostics.check_monotone(result.trace)["clear"].all())
    True
    """
    iterations = trace["iteration"].values
    level, bound, log_prior = (
        trace[name].values for name in ("penalized_log_likelihood", "rounding_bound", "log_prior")
    )
    steps, gain, rounding = iterations[1:], np.diff(level), bound[1:] + bound[:-1]
    if (fell := ~(gain >= -rounding)).any():
        at = int(np.argmax(fell))
        raise MonotonicityError(
            f"trace: the penalized log-likelihood changed by {gain[at]:.6g} nats in iteration "
            f"{steps[at]}, but rounding explains a decrease of at most {rounding[at]:.3g}. {REMEDY}"
        )
    if not np.isfinite([bound, log_prior]).all():
        raise MKMCError(f"trace: rounding_bound or log_prior is not finite. {REMEDY}")
    excess = trace["log_likelihood"].sum("kernel").values + log_prior - level
    what = "the kernels' terms and the log prior miss the total by"
    _refuse_first(np.abs(excess) > bound, iterations, what, excess)
    # NaN if not an EM step: never wrong.
    parts = {name: trace[name].values[1:] for name in PARTS if name in trace}
    excess = sum(parts.values()) - gain
    what = "the parts of the gain miss the total by"
    _refuse_first(np.abs(excess) > rounding, steps, what, excess)
    for name, part in parts.items():
        _refuse_first(part < -rounding, steps, f"{name}, which cannot be negative, is", part)
    return pd.DataFrame(
        {"gain": gain, "rounding": rounding, "clear": gain > rounding},
        index=pd.Index(steps, name="iteration"),
    )


def _refuse_first(wrong: Any, iterations: Any, what: str, value: Any) -> None:
    """Raise MKMCError for the first wrong value, if any."""
    if wrong.any():
        at = int(np.argmax(wrong))
        raise MKMCError(
            f"trace: in iteration {iterations[at]} {what} {value[at]:.6g} nats. {REMEDY}"
        )


@checked(trace=trace_with("penalized_log_likelihood", "rounding_bound", "gain_q_function"))
def empirical_rate(trace: xr.Dataset) -> xr.DataArray:
    """Estimate the rate of EM from its own steps: the root of the ratio of successive gains.

    Close to a maximum, each EM step shrinks the distance to it by the rate r. The gains are
    proportional to the squared distance, so they shrink by r^2. As the slower directions come to
    dominate, sqrt(gain of the step / gain of the step before) increases to the r that
    `missing_information` computes.
    Equation :eq:`eq-rate` of the derivation.

    Parameters
    ----------
    trace
        ``result.trace``.

    Returns
    -------
    DataArray
        Dims ``(iteration,)``; NaN unless the step and the one before it are EM steps whose gains
        are so far above rounding that it changes the rate by at most a tenth of 1 - rate.

    Raises
    ------
    MKMCError
        If `trace` is not a trace or lacks a variable.

    Notes
    -----
    If the last values are still increasing, do not take the last one for r: the fit ended before
    the slowest direction dominated. With ``method="geodesic"`` few steps are EM steps, and most
    values are NaN.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import diagnostics, fit, stack_kernels
    >>> stack = stack_kernels(np.stack([np.eye(3) + 1] * 2), visible=[[1, 1, 0], [1, 0, 1]])
    >>> rate = diagnostics.empirical_rate(fit(stack, method="em", tol=1e-6).trace)
    >>> bool((rate.dropna("iteration") < 1).all())
    True
    """
    bound = trace["rounding_bound"].values
    gain, rounding = np.diff(trace["penalized_log_likelihood"].values), bound[1:] + bound[:-1]
    by_em = np.isfinite(trace["gain_q_function"].values[1:])
    gain = np.where(by_em & (gain > rounding), gain, np.nan)
    rounding_share = rounding / gain
    rate = np.sqrt(gain[1:] / gain[:-1])
    doubt = 0.5 * rate * (rounding_share[1:] + rounding_share[:-1])
    rate[~(doubt <= CLEAR * np.abs(1.0 - rate))] = np.nan
    return xr.DataArray(
        np.pad(rate, (2, 0), constant_values=np.nan)[: len(bound)],
        dims="iteration",
        coords={"iteration": trace["iteration"].values},
        name="empirical_rate",
        attrs={"long_name": "root of the ratio of successive gains of EM steps"},
    )
