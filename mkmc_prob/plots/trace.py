"""The trace as pictures: the level, the increments, the parts of the gain.

Enters: a result's trace. Leaves: the Matplotlib axes drawn on.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ..diagnostics.monotone import as_trace
from .axes import axes_or_new

if TYPE_CHECKING:  # Matplotlib is slow to import: only drawing does
    from matplotlib.axes import Axes


def plot_trace(trace: xr.Dataset, *, ax: "Axes | None" = None, **options: Any) -> "Axes":
    """Draw the penalized log-likelihood against the iteration.

    Parameters
    ----------
    trace
        ``result.trace``.
    ax
        Where to draw; new axes if left out.
    options
        Handed to `Axes.plot`.

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
    trace = as_trace(trace, "penalized_log_likelihood")
    ax = axes_or_new(ax)
    level = trace["penalized_log_likelihood"]
    few = level.sizes["iteration"] <= 50
    ax.plot(level["iteration"], level, **{"marker": "." if few else None, **options})
    _count_iterations(ax)
    ax.set_ylabel("penalized log-likelihood (nats)")
    return ax


def plot_increments(trace: xr.Dataset, *, ax: "Axes | None" = None) -> "Axes":
    """Draw what each step gained, the gain estimated to come, and what rounding explains.

    On a log scale: a straight line is a constant rate, a bend a slower direction coming to light.
    Steps whose gain is within rounding tell nothing.

    Parameters
    ----------
    trace
        ``result.trace``.
    ax
        Where to draw; new axes if left out.

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
    trace = as_trace(trace, "penalized_log_likelihood", "rounding_bound", "gain_to_come")
    ax = axes_or_new(ax)
    steps = trace["iteration"].values
    gains = np.diff(trace["penalized_log_likelihood"].values)
    rounding = trace["rounding_bound"].values
    lines = {
        "gain of the step": (steps[1:], gains, ".-"),
        "estimated gain to come": (steps, trace["gain_to_come"].values, "--"),
        "explained by rounding": (steps[1:], rounding[1:] + rounding[:-1], ":"),
    }
    for label, (x, y, style) in lines.items():
        ax.plot(x, np.where(np.isfinite(y) & (y > 0), y, np.nan), style, label=label)
    ax.set_yscale("log")
    _count_iterations(ax)
    ax.set_ylabel("nats")
    ax.legend()
    return ax


def plot_gain_parts(trace: xr.Dataset, *, ax: "Axes | None" = None) -> "Axes":
    """Draw the two parts of the gain of each EM step, neither of which can be negative.

    Equations :eq:`eq-ascent` and :eq:`eq-parts-ratio` of the derivation.

    Steps of other methods have no parts, and where there are some the title says so.

    Parameters
    ----------
    trace
        ``result.trace``, best of a fit by ``method="em"``: with another method few steps are EM's.
    ax
        Where to draw; new axes if left out.

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
    trace = as_trace(trace, "gain_q_function", "gain_divergence")
    ax = axes_or_new(ax)
    labels = {
        "gain_q_function": "rise of the Q-function",
        "gain_divergence": "Kullback-Leibler divergence of the hidden",
    }
    for (name, label), style in zip(labels.items(), ("o-", "s--"), strict=True):
        part = trace[name].values
        ax.plot(trace["iteration"], np.where(part > 0, part, np.nan), style, ms=3, label=label)
    drawn = any(np.isfinite(line.get_ydata()).any() for line in ax.lines)
    steps = trace.sizes["iteration"] - 1
    by_em = int(np.isfinite(trace["gain_q_function"].values[1:]).sum())
    if by_em < steps:
        title = f"only EM steps have these parts: {by_em} of {steps} steps"
        ax.set_title(title, fontsize="medium")
    if not drawn:
        what = "no step has a part to draw" if by_em else 'no step was an EM step:\nuse method="em"'
        ax.text(0.5, 0.5, what, transform=ax.transAxes, ha="center", va="center")
        ax.set_yticks([])
    else:
        ax.set_yscale("log")
        ax.legend()
    first, last = trace["iteration"].values.min(), trace["iteration"].values.max()
    margin = max(0.5, 0.02 * (last - first))  # room for the markers of the first and the last
    ax.set_xlim(first - margin, last + margin)
    _count_iterations(ax)
    ax.set_ylabel("part of the gain (nats)")
    return ax


def _count_iterations(ax: "Axes") -> None:
    """Label the iterations, by whole numbers."""
    ax.set_xlabel("iteration")
    if ax.get_xscale() == "linear":
        ax.locator_params(axis="x", integer=True)
