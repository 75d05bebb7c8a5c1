"""Plots of the trace of a fit: the objective, its increments, and the parts of each gain."""

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ..diagnostics.monotone import PARTS, trace_with
from ..utils.arguments import checked
from .axes import axes_or_new, count_iterations

if TYPE_CHECKING:  # Matplotlib is slow to import, so only when drawing
    from matplotlib.axes import Axes

#: The label and the style of each part of a gain.
LOOKS = {
    "gain_q_function": ("rise of the Q-function", "o-"),
    "gain_divergence": ("Kullback-Leibler divergence of the hidden", "s--"),
    "gain_constants": ("update of the constants", "^:"),
}


@checked(trace=trace_with("penalized_log_likelihood"))
def plot_trace(trace: xr.Dataset, *, ax: "Axes | None" = None, **options: Any) -> "Axes":
    """Draw the penalized log-likelihood by iteration.

    Parameters
    ----------
    trace
        ``result.trace``.
    ax
        Axes to draw on; new ones if omitted.
    options
        Passed to `Axes.plot`.

    Returns
    -------
    Axes

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import fit, plots, stack_kernels
    >>> result = fit(stack_kernels(np.eye(2)[None]))
    >>> plots.plot_trace(result.trace).get_ylabel()
    'penalized log-likelihood (nats)'
    """
    ax = axes_or_new(ax)
    level = trace["penalized_log_likelihood"]
    few = level.sizes["iteration"] <= 50
    ax.plot(level["iteration"], level, **{"marker": "." if few else None, **options})
    count_iterations(ax)
    ax.set_ylabel("penalized log-likelihood (nats)")
    return ax


@checked(trace=trace_with("penalized_log_likelihood", "rounding_bound", "gain_to_come"))
def plot_increments(trace: xr.Dataset, *, ax: "Axes | None" = None) -> "Axes":
    """Draw the gain of each step, the estimated remaining gain, and the rounding bound.

    The scale is logarithmic: a straight line is a constant rate, and a bend shows a slower
    direction taking over. Gains within rounding carry no information.

    Parameters
    ----------
    trace
        ``result.trace``.
    ax
        Axes to draw on; new ones if omitted.

    Returns
    -------
    Axes

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import fit, plots, stack_kernels
    >>> result = fit(stack_kernels(np.stack([np.eye(3)] * 2), visible=[[1, 1, 0], [1, 0, 1]]))
    >>> plots.plot_increments(result.trace).get_ylabel()
    'nats'
    """
    ax = axes_or_new(ax)
    ax.set_yscale("log", nonpositive="mask")
    steps, rounding = trace["iteration"].values, trace["rounding_bound"].values
    gains = np.diff(trace["penalized_log_likelihood"].values)
    ax.plot(steps[1:], gains, ".-", label="gain of the step")
    ax.plot(steps, trace["gain_to_come"], "--", label="estimated gain to come")
    ax.plot(steps[1:], rounding[1:] + rounding[:-1], ":", label="explained by rounding")
    count_iterations(ax)
    ax.set_ylabel("nats")
    ax.legend()
    return ax


@checked(trace=trace_with(*PARTS[:2]))
def plot_gain_parts(trace: xr.Dataset, *, ax: "Axes | None" = None) -> "Axes":
    """Draw the parts of the gain of each EM step, none of which can be negative.

    There are two, and a third if updates of the kernels' constants contributed.
    Equations :eq:`eq-ascent` and :eq:`eq-parts-ratio` of the derivation.

    Other steps than EM's have no such parts; the title then says how many steps do.

    Parameters
    ----------
    trace
        ``result.trace``, preferably of a fit by ``method="em"``: other methods take few EM steps.
    ax
        Axes to draw on; new ones if omitted.

    Returns
    -------
    Axes

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import fit, plots, stack_kernels
    >>> stack = stack_kernels(np.stack([np.eye(3)] * 2), visible=[[1, 1, 0], [1, 0, 1]])
    >>> len(plots.plot_gain_parts(fit(stack, method="em").trace).lines)
    2
    """
    ax = axes_or_new(ax)
    iterations = trace["iteration"].values
    parts = {name: trace[name].where(trace[name] > 0) for name in PARTS if name in trace}
    drawn = [name for name, part in parts.items() if part.notnull().any()]
    for name in dict.fromkeys([*PARTS[:2], *drawn]):
        label, style = LOOKS[name]
        ax.plot(iterations, parts[name], style, ms=3, label=label)
    steps = len(iterations) - 1
    by_em = int(np.isfinite(trace[PARTS[0]].values[1:]).sum())
    if by_em < steps:
        title = f"only EM steps have these parts: {by_em} of {steps} steps"
        ax.set_title(title, fontsize="medium")
    if drawn:
        ax.set_yscale("log")
        ax.legend()
    else:
        what = "no step has a part to draw" if by_em else 'no step was an EM step:\nuse method="em"'
        ax.text(0.5, 0.5, what, transform=ax.transAxes, ha="center", va="center")
        ax.set_yticks([])
    first, last = iterations.min(), iterations.max()
    margin = max(0.5, 0.02 * (last - first))  # space for the first and the last marker
    ax.set_xlim(first - margin, last + margin)
    count_iterations(ax)
    ax.set_ylabel("part of the gain (nats)")
    return ax
