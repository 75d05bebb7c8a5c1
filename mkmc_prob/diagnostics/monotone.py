"""What a trace tells: whether every step rose, and how fast EM's own steps came closer.

Enters: the trace of a fit, or what a person made of it. Leaves: tables by iteration, or an error
that says where the trace does not hold together. `diagnostics` is the door to it.
"""

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from ..errors import MKMCError, MonotonicityError
from ..stacks.labels import name_some

#: An empirical rate is told where rounding moves it by no more than this share of 1 - rate.
CLEAR = 0.1


def check_monotone(trace: xr.Dataset) -> pd.DataFrame:
    """Check that the penalized log-likelihood rose at every step, and that the trace adds up.

    Equation :eq:`eq-ascent` of the derivation.

    Parameters
    ----------
    trace
        ``result.trace``.

    Returns
    -------
    pandas.DataFrame
        A row per step, indexed by iteration: ``gain``, the rise in nats; ``rounding``, what
        rounding can have made of it (the bounds at both models); ``clear``, whether the rise is
        more than that.

    Raises
    ------
    MonotonicityError
        Where the likelihood fell by more than rounding explains, or is no number.
    MKMCError
        Where `trace` is no trace, or misses a variable. Where the parts do not add up: the
        penalized log-likelihood is the sum of the kernels' terms and the log prior, the gain of an
        EM step that of its two parts, neither negative.

    Notes
    -----
    The derivation of the bound is in docs/numerics.md. A rise within it is no evidence against
    the step: near a maximum all rises are.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import diagnostics, fit, stack_kernels
    >>> kernels = np.array([[[2.0, 1.0], [1.0, 2.0]], [[1.0, 0.2], [0.2, 1.0]]])
    >>> result = fit(stack_kernels(kernels, visible=[[1, 1], [0, 1]]), method="em")
    >>> bool(diagnostics.check_monotone(result.trace)["clear"].all())
    True
    """
    trace = as_trace(
        trace,
        "penalized_log_likelihood",
        "log_likelihood",
        "log_prior",
        "rounding_bound",
        "gain_q_function",
        "gain_divergence",
    )
    level = trace["penalized_log_likelihood"].values
    bound = trace["rounding_bound"].values
    gain, rounding = np.diff(level), bound[1:] + bound[:-1]
    steps = trace["iteration"].values[1:]
    changed = "Fit again: the trace was changed, or the model is too near to singular."
    fell = ~(gain >= -rounding)
    if fell.any():
        at = int(np.argmax(fell))
        raise MonotonicityError(
            f"trace: the penalized log-likelihood changed by {gain[at]:.6g} nats in iteration "
            f"{steps[at]}, where rounding explains a fall of {rounding[at]:.3g} at most. {changed}"
        )
    if not np.isfinite(bound).all() or not np.isfinite(trace["log_prior"]).all():
        raise MKMCError(
            "trace: rounding_bound or log_prior is not finite. Fit again: it was changed."
        )
    sums = {
        "the kernels' terms and the log prior": (
            trace["log_likelihood"].sum("kernel").values + trace["log_prior"].values - level,
            bound,
            trace["iteration"].values,
        ),
        "the two parts of the gain": (
            (trace["gain_q_function"] + trace["gain_divergence"]).values[1:] - gain,
            rounding,
            steps,
        ),
    }
    for what, (excess, allowed, iterations) in sums.items():
        wrong = np.abs(excess) > allowed  # NaN, where there are no parts, is not
        if wrong.any():
            at = int(np.argmax(wrong))
            raise MKMCError(
                f"trace: in iteration {iterations[at]} {what} miss the total by {excess[at]:.6g} "
                f"nats. {changed}"
            )
    for name in ("gain_q_function", "gain_divergence"):
        negative = trace[name].values[1:] < -rounding
        if negative.any():
            at = int(np.argmax(negative))
            raise MKMCError(
                f"trace: {name} is {trace[name].values[1:][at]:.6g} nats in iteration {steps[at]}; "
                f"it cannot be negative. {changed}"
            )
    return pd.DataFrame(
        {"gain": gain, "rounding": rounding, "clear": gain > rounding},
        index=pd.Index(steps, name="iteration"),
    )


def empirical_rate(trace: xr.Dataset) -> xr.DataArray:
    """Return the rate of EM as its own steps show it: the root of the ratio of successive gains.

    Near a maximum EM's distance to it shrinks by the rate r at every step, and so the gains, which
    are its squares, by r^2. From below, as the slower directions come to light, sqrt(gain of the
    step / gain of the step before) rises to the r that `missing_information` computes.
    Equation :eq:`eq-rate` of the derivation.

    Parameters
    ----------
    trace
        ``result.trace``.

    Returns
    -------
    DataArray
        Dims ``(iteration,)``; NaN unless the step and the one before were EM's, and their gains so
        far above rounding that it moves the rate by a tenth of 1 - rate at most.

    Raises
    ------
    MKMCError
        Where `trace` is no trace, or misses a variable.

    Notes
    -----
    Do not take the last value for r where it is still rising: the fit ended before the slowest
    direction was alone. With ``method="geodesic"`` few steps are EM's, and mostly nothing is told.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import diagnostics, fit, stack_kernels
    >>> stack = stack_kernels(np.stack([np.eye(3) + 1] * 2), visible=[[1, 1, 0], [1, 0, 1]])
    >>> rate = diagnostics.empirical_rate(fit(stack, method="em", tol=1e-6).trace)
    >>> bool((rate.dropna("iteration") < 1).all())
    True
    """
    trace = as_trace(trace, "penalized_log_likelihood", "rounding_bound", "gain_q_function")
    bound = trace["rounding_bound"].values
    gain, rounding = np.diff(trace["penalized_log_likelihood"].values), bound[1:] + bound[:-1]
    by_em = np.isfinite(trace["gain_q_function"].values[1:])
    told = by_em & (gain > rounding)
    gain, share = np.where(told, gain, np.nan), np.where(told, rounding, np.nan)
    share /= gain
    rate = np.full(len(bound), np.nan)
    rate[2:] = np.sqrt(gain[1:] / gain[:-1])
    doubt = 0.5 * rate[2:] * (share[1:] + share[:-1])
    rate[2:][~(doubt <= CLEAR * np.abs(1.0 - rate[2:]))] = np.nan
    return xr.DataArray(
        rate,
        dims="iteration",
        coords={"iteration": trace["iteration"].values},
        name="empirical_rate",
        attrs={"long_name": "root of the ratio of successive gains of EM steps"},
    )


def as_trace(given: Any, *needed: str) -> xr.Dataset:
    """Return `given` if it is a trace with the variables needed; raise MKMCError otherwise."""
    if not isinstance(given, xr.Dataset):
        raise MKMCError(
            f"trace: {type(given).__name__} found; the xarray.Dataset of a fit is needed. Pass "
            "result.trace."
        )
    if absent := [name for name in needed if name not in given.data_vars]:
        raise MKMCError(f"trace: it has no variable {name_some(absent)}. Pass result.trace whole.")
    for name in needed:
        dims = {"iteration", "kernel"} if name == "log_likelihood" else {"iteration"}
        found = given[name]
        if set(found.dims) != dims or not found.size or found.dtype.kind not in "fiu":
            raise MKMCError(
                f"trace: {name} has dims {found.dims}, shape {found.shape} and dtype "
                f"{found.dtype}; numbers over {tuple(sorted(dims))} are needed, one at least. Pass "
                "result.trace."
            )
    return given
