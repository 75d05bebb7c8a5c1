"""Plots of agreement with the model, by object and by kernel, and of a choice of the strength."""

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import pandas as pd
import xarray as xr

from ..diagnostics.agreement import kernel_agreement, predictive_scores
from ..diagnostics.protocol import FitResult, as_result
from ..errors import LabelError, MKMCError
from ..stacks.stack import visible_objects
from ..utils.arguments import checked, real_number
from .axes import (
    COLORS,
    MARKERS,
    axes_or_new,
    extend,
    hatch_missing,
    legend,
    name_ticks,
    plain_log,
)

if TYPE_CHECKING:  # Matplotlib is slow to import, so only when drawing
    from matplotlib.axes import Axes

#: The color scale of `plot_disagreement` ends at a factor of 4 (two standard deviations) to 64
#: (eight): less is not disagreement, and a single extreme object does not make the others pale.
LEAST_FACTOR, LARGEST_FACTOR = 4.0, 64.0
#: `plot_strength` shows scores down to this many standard errors below the best.
SHOWN_ERRORS = 10.0


@runtime_checkable
class Selection(Protocol):
    """The attributes of `StrengthSelection` that are drawn, as documented there."""

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


def as_selection(given: Any, what: str) -> Selection:
    """Return `given` if it is what `select_strength` returns; raise MKMCError otherwise."""
    if not isinstance(given, Selection):
        raise MKMCError(
            f"{what}: {type(given).__name__} found; pass the StrengthSelection that "
            "select_strength(stack) returns."
        )
    return given


@checked(result=as_result)
def plot_disagreement(result: FitResult, *, ax: "Axes | None" = None) -> "Axes":
    """Draw how strongly each kernel disagrees with the model about each object; missing hatched.

    The quantity is the expected squared residual of the object given the kernel's other visible
    objects, over its conditional variance (`diagnostics.disagreement`), on a log scale around 1,
    where the two agree. The largest residual sets the scale, within a factor of 4 to 64; values
    beyond it get the last color. Small residuals do not set it, because a residual near zero is
    not a finding (if a kernel is singular, or is the only one in which the object is visible,
    residuals are zero up to rounding).

    Parameters
    ----------
    result
        A fit.
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
    >>> plots.plot_disagreement(fit(stack)).get_ylabel()
    'kernel'
    """
    import matplotlib as mpl

    residuals = predictive_scores(result)["squared_residual"]
    ax = axes_or_new(ax)
    largest = np.clip(np.nanmax(residuals, initial=0.0), LEAST_FACTOR, LARGEST_FACTOR)
    scale = float(np.log2(largest))
    drawn = np.log2(np.maximum(residuals.values, np.finfo(float).tiny))  # zero is below the scale
    colors = mpl.colormaps["YlOrBr"].with_extremes(bad=(0.0, 0.0, 0.0, 0.0))
    hatch_missing(ax)
    image = ax.imshow(
        drawn, cmap=colors, vmin=-scale, vmax=scale, aspect="auto", interpolation="nearest"
    )
    ax.figure.colorbar(
        image,
        ax=ax,
        label="squared residual / expectation",
        extend=extend(drawn, -scale, scale),
        ticks=range(-int(scale), int(scale) + 1),
        format=lambda power, _: f"1/{2**-power:.0f}" if power < 0 else f"{2**power:.0f}",
    )
    name_ticks(ax, residuals["kernel"].values, axis="y")
    objects = residuals.sizes["object"]
    ax.set(xticks=[], xlabel=f"object ({objects}); hatched: missing", ylabel="kernel")
    return ax


@checked(result=as_result)
def plot_agreement(result: FitResult, *, ax: "Axes | None" = None) -> "Axes":
    """Draw each kernel's scale and direction relative to the model; outliers stand out.

    The horizontal axis is the expected squared Mahalanobis length per visible object,
    tr(M_vv^-1 Q_vv) / n_k, which is 1 if the scales agree; the vertical axis is the correlation
    with M_vv. The area of a point increases with the effective rank of the kernel relative to the
    number of its visible objects.

    Parameters
    ----------
    result
        A fit.
    ax
        Axes to draw on; new ones if omitted.

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

    table = kernel_agreement(result)
    visible = visible_objects(result.observed).sum("object").to_series()
    table["area"] = 20.0 + 180.0 * (table["effective_rank"] / visible)
    table = table[["mahalanobis", "correlation", "area"]].dropna()
    given, ax = ax, axes_or_new(ax)
    entries = []
    for i, (name, row) in enumerate(table.iterrows()):
        look: dict[str, Any] = {
            "color": COLORS[i % len(COLORS)],
            "marker": MARKERS[i % len(MARKERS)],
            "alpha": 0.8,
        }
        ax.scatter(row["mahalanobis"], row["correlation"], s=row["area"], linewidth=0, **look)
        # All legend entries have one size; areas there would be read as a rank.
        entries.append((str(name), Line2D([], [], linestyle="", **look)))
    if entries:
        legend(ax, entries, beside=given is None, title="kernel\n(area: effective rank)")
    ax.axvline(1.0, color="0.6", linewidth=1, zorder=0)
    if (table["mahalanobis"] > 0).any():
        ax.set_xscale("log")
        plain_log(ax.xaxis)
    ax.set_xlabel("scale: expected squared Mahalanobis length per object")
    ax.set_ylabel("correlation with the model")
    return ax


@checked(selection=as_selection)
def plot_strength(selection: Selection, *, ax: "Axes | None" = None) -> "Axes":
    """Draw the held-out score by strength with standard errors, and mark the two choices.

    The view ends ten standard errors below the best score, or at the third best if that is lower.
    Strengths below the view are arrows at its lower edge, labeled with their scores.

    Parameters
    ----------
    selection
        What `select_strength` returned.
    ax
        Axes to draw on; new ones if omitted.

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

    ax = axes_or_new(ax)
    score = selection.table["score"]
    error = selection.table["standard_error"].fillna(0.0)
    ax.errorbar(score.index, score, yerr=error, fmt="o-", capsize=3, color=COLORS[0])
    best_error = error.iloc[int(score.argmax())]
    bottom = min(score.nlargest(3).min(), score.max() - SHOWN_ERRORS * best_error)
    below = score[score < bottom]
    if len(below):
        top = (score + error)[score >= bottom].max()
        margin = 0.06 * (top - bottom)
        edge = bottom - margin
        ax.set_ylim(bottom - 2.0 * margin, top + margin)
        ax.plot(below.index, np.full(len(below), edge), "v", color=COLORS[5])
        look: dict[str, Any] = {"xytext": (0, 6), "textcoords": "offset points", "ha": "center"}
        for strength, value in zip(below.index, below, strict=True):
            text = Formatter.fix_minus(f"{value:.3g}")  # the minus sign of the axis
            ax.annotate(text, (strength, edge), fontsize="small", **look)
    best, one = selection.best, selection.one_standard_error
    ax.axvline(best, color="black", linewidth=1, label=f"best: {best:g}", zorder=0)
    label = f"one standard error: {one:g}"
    ax.axvline(one, color=COLORS[5], linestyle="--", linewidth=2, label=label, zorder=1)
    ax.set(xscale="log", xlabel="strength", ylabel="held-out log density (nats per object)")
    ax.legend()
    return ax


@checked(selection=as_selection)
def plot_calibration(
    selection: Selection, *, strength: float | None = None, ax: "Axes | None" = None
) -> "Axes":
    """Draw the squared residuals of held-out objects by kernel, relative to their expectation.

    Boxes around 1 indicate a calibrated model; above 1 it is overconfident about the kernel,
    below 1 underconfident. `StrengthSelection.calibration` has the numbers and standard errors.

    Parameters
    ----------
    selection
        What `select_strength` returned.
    strength
        One of its strengths; the best if omitted.
    ax
        Axes to draw on; new ones if omitted.

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
    at = selection.best if strength is None else real_number(strength)
    tried = selection.scores["strength"].values.tolist()
    if at not in tried:
        raise LabelError(f"strength: {strength!r} was not tried. Choose one of {tried}.")
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
