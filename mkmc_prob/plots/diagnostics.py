"""Diagnostics as pictures: objects and kernels against the model, the strength, calibration.

Enters: a result or a selection. Leaves: the Matplotlib axes drawn on.
"""

from typing import TYPE_CHECKING

import numpy as np

from ..diagnostics import disagreement, kernel_agreement
from ..errors import LabelError
from .axes import axes_or_new

if TYPE_CHECKING:  # Matplotlib is slow to import: only drawing does
    from matplotlib.axes import Axes

    from ..result import MKMCResult
    from ..selection import StrengthSelection


def plot_disagreement(result: "MKMCResult", *, ax: "Axes | None" = None) -> "Axes":
    """Draw how much each kernel disagrees with the model about each object; missing in grey.

    The expected squared residual of the object given the kernel's others over its conditional
    variance (`diagnostics.disagreement`), on a log scale about 1, where the two agree.

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

    ax = axes_or_new(ax)
    kernels = result.observed["kernel"].values.tolist()
    objects = result.observed["object"].values.tolist()
    table = disagreement(result).pivot(index="kernel", columns="object", values="squared_residual")
    table = table.reindex(index=kernels, columns=objects)
    values = table.to_numpy(dtype=float)
    logs = np.log2(np.where(values > 0, values, np.nan))
    largest = max(1.0, float(np.nanmax(np.abs(logs), initial=0.0)))
    colours = mpl.colormaps["PuOr_r"].with_extremes(bad="0.75")
    image = ax.imshow(
        logs, cmap=colours, vmin=-largest, vmax=largest, aspect="auto", interpolation="nearest"
    )
    ax.figure.colorbar(image, ax=ax, label="log2 of the squared residual over its expectation")
    ax.set_yticks(range(len(kernels)), [str(k) for k in kernels])
    ax.set_xticks([])
    ax.set_xlabel("object")
    ax.set_ylabel("kernel")
    return ax


def plot_agreement(result: "MKMCResult", *, ax: "Axes | None" = None) -> "Axes":
    """Draw the kernels by scale and direction against the model: those unlike the others stand out.

    Across: tr(M_vv^-1 Q_vv) / n_k, 1 where the scales agree. Up: the correlation with M_vv. The
    area of a point is its effective rank as a share of its objects.

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
    ax = axes_or_new(ax)
    table = kernel_agreement(result)
    visible = result.summary()["visible"]
    table = table.assign(area=20.0 + 180.0 * (table["effective_rank"] / visible))
    table = table[["mahalanobis", "correlation", "area"]].dropna()
    ax.scatter(table["mahalanobis"], table["correlation"], s=table["area"], alpha=0.7)
    for name, row in table.iterrows():
        where = (row["mahalanobis"], row["correlation"])
        ax.annotate(str(name), where, xytext=(6, 4), textcoords="offset points")
    ax.axvline(1.0, color="0.6", linewidth=1, zorder=0)
    if (table["mahalanobis"] > 0).any():
        ax.set_xscale("log", base=2)
    ax.set_xlabel("scale: expected squared Mahalanobis length per object")
    ax.set_ylabel("correlation with the model")
    return ax


def plot_strength(selection: "StrengthSelection", *, ax: "Axes | None" = None) -> "Axes":
    """Draw the held-out score by strength with its standard errors; mark the two choices.

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
    >>> found = select_strength(remove_objects(kernels, 0.3, seed=0), strengths=[0.1, 1.0])
    >>> plots.plot_strength(found).get_xlabel()
    'strength'
    """
    ax = axes_or_new(ax)
    table = selection.table
    ax.errorbar(table.index, table["score"], yerr=table["standard_error"], fmt="o-", capsize=3)
    ax.axvline(selection.best, color="C1", linestyle="-", label=f"best: {selection.best:g}")
    one = selection.one_standard_error
    ax.axvline(one, color="C2", linestyle="--", label=f"one standard error: {one:g}")
    ax.set_xscale("log")
    ax.set_xlabel("strength")
    ax.set_ylabel("held-out log density (nats per object)")
    ax.legend()
    return ax


def plot_calibration(
    selection: "StrengthSelection", *, strength: float | None = None, ax: "Axes | None" = None
) -> "Axes":
    """Draw the squared residuals of held-out objects, kernel by kernel, against their expectation.

    Boxes about 1 are a calibrated kernel; above it the model is too sure, below too modest.

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
    >>> found = select_strength(remove_objects(kernels, 0.3, seed=0), strengths=[0.1, 1.0])
    >>> plots.plot_calibration(found).get_yscale()
    'log'
    """
    ax = axes_or_new(ax)
    at = selection.best if strength is None else strength
    known = selection.scores["strength"].values.tolist()
    if at not in known:
        raise LabelError(f"strength: {at!r} was not tried. Choose one of {known}.")
    residuals = selection.scores["squared_residual"].sel(strength=at)
    names = [str(name) for name in residuals["kernel"].values]
    boxes = [own[own > 0] for own in residuals.values]
    ax.boxplot(boxes, tick_labels=names)
    ax.axhline(1.0, color="0.6", linewidth=1, zorder=0)
    ax.set_yscale("log")
    ax.set_xlabel("kernel")
    ax.set_ylabel("held-out squared residual / expectation")
    ax.set_title(f"strength {at:g}")
    return ax
