"""Diagnostics as pictures: objects and kernels against the model, the strength, calibration.

Enters: a result or a selection. Leaves: the Matplotlib axes drawn on.
"""

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd
import xarray as xr

from ..diagnostics.agreement import disagreement, kernel_agreement
from ..diagnostics.fitted import FitResult, as_result
from ..errors import LabelError, MKMCError
from ..stacks.stack import visible_objects
from ..utils.arguments import real_number
from .axes import (
    COLOURS,
    MARKERS,
    axes_or_new,
    extend,
    hatch_missing,
    legend,
    name_ticks,
    plain_log,
)

if TYPE_CHECKING:  # Matplotlib is slow to import: only drawing does
    from matplotlib.axes import Axes

#: The colours of `plot_disagreement` end at a factor of 4 (two standard deviations) to 64 (eight):
#: less is no disagreement, and one object beyond does not make the others pale.
LEAST_FACTOR, LARGEST_FACTOR = 4.0, 64.0
#: How many standard errors below the best score `plot_strength` shows.
SHOWN_ERRORS = 10.0


class Selection(Protocol):
    """The attributes of `StrengthSelection` that are drawn; see there for what each one is."""

    @property
    def scores(self) -> xr.Dataset:
        """The held-out scores."""

    @property
    def table(self) -> pd.DataFrame:
        """The scores by strength."""

    @property
    def best(self) -> float:
        """The strength with the highest score."""

    @property
    def one_standard_error(self) -> float:
        """The strength chosen by the one-standard-error rule."""


def plot_disagreement(result: FitResult, *, ax: "Axes | None" = None) -> "Axes":
    """Draw how much each kernel disagrees with the model about each object; missing hatched.

    The expected squared residual of the object given the kernel's others over its conditional
    variance (`diagnostics.disagreement`), on a log scale about 1, where the two agree. The largest
    residual sets the scale, within a factor of 4 to 64. The smallest does not: a residual near zero
    is no finding (where a kernel is singular, or the only one to show the object, residuals come as
    near to zero as rounding lets them). What lies beyond has the last colour.

    Parameters
    ----------
    result
        A fit.
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
    >>> plots.plot_disagreement(fit(stack)).get_ylabel()
    'kernel'
    """
    import matplotlib as mpl

    result = as_result(result)
    ax = axes_or_new(ax)
    kernels = result.observed["kernel"].values.tolist()
    objects = result.observed["object"].values.tolist()
    table = disagreement(result).pivot(index="kernel", columns="object", values="squared_residual")
    table = table.reindex(index=kernels, columns=objects)
    values = table.to_numpy(dtype=float)
    largest = np.clip(np.nanmax(values, initial=0.0), LEAST_FACTOR, LARGEST_FACTOR)
    drawn = np.log2(np.maximum(values, np.finfo(float).tiny))  # zero lies below the scale
    scale = float(np.log2(largest))
    # From light to dark, so that it reads in grey as well; what is missing is hatched.
    colours = mpl.colormaps["YlOrBr"].with_extremes(bad=(0.0, 0.0, 0.0, 0.0))
    hatch_missing(ax)
    image = ax.imshow(
        drawn, cmap=colours, vmin=-scale, vmax=scale, aspect="auto", interpolation="nearest"
    )
    bar = ax.figure.colorbar(
        image,
        ax=ax,
        label="squared residual / expectation",
        extend=extend(drawn, -scale, scale),
    )
    powers = range(-int(scale), int(scale) + 1)
    bar.set_ticks(powers, labels=[f"1/{2**-p}" if p < 0 else f"{2**p}" for p in powers])
    name_ticks(ax, kernels, axis="y")
    ax.set_xticks([])
    ax.set_xlabel(f"object ({len(objects)}); hatched: missing")
    ax.set_ylabel("kernel")
    return ax


def plot_agreement(result: FitResult, *, ax: "Axes | None" = None) -> "Axes":
    """Draw the kernels by scale and direction against the model: those unlike the others stand out.

    Across: tr(M_vv^-1 Q_vv) / n_k, 1 where the scales agree. Up: the correlation with M_vv. The
    area of a point grows with its effective rank as a share of its objects.

    Parameters
    ----------
    result
        A fit.
    ax
        Where to draw; new axes if left out.

    Returns
    -------
    Axes

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import fit, plots, stack_kernels
    >>> plots.plot_agreement(fit(stack_kernels(np.stack([np.eye(3)] * 2)))).get_ylabel()
    'correlation with the model'
    """
    from matplotlib.lines import Line2D

    table = kernel_agreement(as_result(result))
    given, ax = ax, axes_or_new(ax)
    visible = visible_objects(result.observed).sum("object").to_series()
    table = table.assign(area=20.0 + 180.0 * (table["effective_rank"] / visible))
    table = table[["mahalanobis", "correlation", "area"]].dropna()
    entries = []
    for i, (name, row) in enumerate(table.iterrows()):
        look: dict[str, Any] = {
            "color": COLOURS[i % len(COLOURS)],
            "marker": MARKERS[i % len(MARKERS)],
        }
        ax.scatter(
            row["mahalanobis"], row["correlation"], s=row["area"], alpha=0.8, linewidth=0, **look
        )
        # In the legend all have one size: areas there would be read as a rank.
        entries.append((str(name), Line2D([], [], linestyle="", alpha=0.8, **look)))
    if entries:
        legend(ax, entries, beside=given is None, title="kernel\n(area: effective rank)")
    ax.axvline(1.0, color="0.6", linewidth=1, zorder=0)
    if (table["mahalanobis"] > 0).any():
        ax.set_xscale("log")
        plain_log(ax.xaxis)
    ax.set_xlabel("scale: expected squared Mahalanobis length per object")
    ax.set_ylabel("correlation with the model")
    return ax


def plot_strength(selection: Selection, *, ax: "Axes | None" = None) -> "Axes":
    """Draw the held-out score by strength with its standard errors; mark the two choices.

    The view ends ten standard errors below the best score, or at the third best where that is
    lower; strengths below it are arrows at its lower edge with their scores beside them.

    Parameters
    ----------
    selection
        What `select_strength` returned.
    ax
        Where to draw; new axes if left out.

    Returns
    -------
    Axes

    Examples
    --------
    >>> from mkmc_prob import datasets, plots, remove_objects, select_strength
    >>> kernels, _ = datasets.make_fusion_problem(30, 3)
    >>> found = select_strength(remove_objects(kernels, 0.3, seed=0), strengths=[0.1, 1.0, 10.0])
    >>> plots.plot_strength(found).get_xlabel()
    'strength'
    """
    from matplotlib.ticker import Formatter

    table = as_selection(selection).table
    ax = axes_or_new(ax)
    score, error = table["score"], table["standard_error"].fillna(0.0)
    ax.errorbar(table.index, score, yerr=error, fmt="o-", capsize=3, color=COLOURS[0])
    bottom = _lowest_shown(table)
    top = float((score + error)[score >= bottom].max())
    margin = 0.06 * (top - bottom)
    below = score[score < bottom]
    minus = Formatter.fix_minus  # as the axis writes it
    if len(below):
        ax.set_ylim(bottom - 2 * margin, top + margin)
        ax.plot(below.index, np.full(len(below), bottom - margin), "v", color=COLOURS[5])
        for strength, value in below.items():
            ax.annotate(
                minus(f"{value:.3g}"),
                (float(str(strength)), bottom - margin),
                xytext=(0, 6),
                textcoords="offset points",
                ha="center",
                fontsize="small",
            )
    best, one = selection.best, selection.one_standard_error
    ax.axvline(best, color="black", linewidth=1, label=f"best: {best:g}", zorder=0)
    label = f"one standard error: {one:g}"
    ax.axvline(one, color=COLOURS[5], linestyle="--", linewidth=2, label=label, zorder=1)
    ax.set_xscale("log")
    ax.set_xlabel("strength")
    ax.set_ylabel("held-out log density (nats per object)")
    ax.legend()
    return ax


def plot_calibration(
    selection: Selection, *, strength: float | None = None, ax: "Axes | None" = None
) -> "Axes":
    """Draw the squared residuals of held-out objects, kernel by kernel, against their expectation.

    Boxes about 1 are a calibrated kernel; above it the model is too sure, below too modest.
    `StrengthSelection.calibration` has numbers, with standard errors.

    Parameters
    ----------
    selection
        What `select_strength` returned.
    strength
        Which of its strengths; the best if left out.
    ax
        Where to draw; new axes if left out.

    Returns
    -------
    Axes

    Examples
    --------
    >>> from mkmc_prob import datasets, plots, remove_objects, select_strength
    >>> kernels, _ = datasets.make_fusion_problem(30, 3)
    >>> found = select_strength(remove_objects(kernels, 0.3, seed=0), strengths=[0.1, 1.0, 10.0])
    >>> plots.plot_calibration(found).get_yscale()
    'log'
    """
    selection = as_selection(selection)
    at = selection.best if strength is None else real_number(strength)
    known = selection.scores["strength"].values.tolist()
    if at not in known:
        raise LabelError(f"strength: {strength!r} was not tried. Choose one of {known}.")
    residuals = selection.scores["squared_residual"].sel(strength=at)
    ax = axes_or_new(ax)
    boxes = [own[own > 0] for own in residuals.transpose("kernel", "object").values]
    ax.boxplot(boxes)
    name_ticks(ax, residuals["kernel"].values, axis="x", first=1)
    ax.axhline(1.0, color="0.6", linewidth=1, zorder=0)
    if any(len(box) for box in boxes):
        ax.set_yscale("log")
        plain_log(ax.yaxis)
    ax.set_xlabel("kernel")
    ax.set_ylabel("held-out squared residual / expectation")
    ax.set_title(f"strength {at:g}")
    return ax


def as_selection(given: Any) -> Selection:
    """Return `given` if it is what `select_strength` returns; raise MKMCError otherwise."""
    if not all(hasattr(given, name) for name in ("scores", "table", "best")):
        raise MKMCError(
            f"selection: {type(given).__name__} found; pass the StrengthSelection that "
            "select_strength(stack) returns."
        )
    selection: Selection = given
    return selection


def _lowest_shown(table: pd.DataFrame) -> float:
    """Return the lowest score that `plot_strength` shows."""
    score, error = table["score"], table["standard_error"].fillna(0.0)
    best = int(np.argmax(score))
    third = float(score.nlargest(3).iloc[-1])
    return min(third, float(score.iloc[best] - SHOWN_ERRORS * error.iloc[best]))
