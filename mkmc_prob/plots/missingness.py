"""Plots about why objects are missing: sensitivity to it, and a test of it."""

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ..errors import MKMCError
from ..utils.arguments import Check, checked
from .axes import COLORS, MARKERS, STYLES, axes_or_new, legend, name_ticks

if TYPE_CHECKING:  # Matplotlib is slow to import, so only when drawing
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes


def table_of(function: str, *needed: str) -> Check:
    """Return a check for the Dataset that a function returns, with the variables `needed`."""

    def check(value: Any, what: str) -> xr.Dataset:
        if not isinstance(value, xr.Dataset) or not set(needed) <= set(value.data_vars):
            raise MKMCError(
                f"{what}: {type(value).__name__} found; pass the Dataset that {function} returns."
            )
        return value

    return check


@checked(found=table_of("sensitivity(result, direction)", "mean_change"))
def plot_sensitivity(found: xr.Dataset, *, ax: "Axes | None" = None) -> "Axes":
    """Draw a quantity by delta, and mark where the conclusion changes.

    The interval of the grid in which it changes is shaded, the interpolated tipping point is a
    solid line, a threshold is dashed, and the result itself (delta = 1) is a dotted line. Without a
    quantity, the mean change of each kernel's hidden entries is drawn.

    Parameters
    ----------
    found
        What `sensitivity` returned.
    ax
        Axes to draw on; new ones if omitted.

    Returns
    -------
    Axes

    Examples
    --------
    >>> from mkmc_prob import datasets, fit, plots, remove_objects, sensitivity
    >>> kernels, _ = datasets.make_fusion_problem(20, 3)
    >>> result = fit(remove_objects(kernels, 0.3, seed=0))
    >>> plots.plot_sensitivity(sensitivity(result, "size")).get_xlabel()
    'delta (size)'
    """
    ax = axes_or_new(ax)
    delta = found["delta"].values
    entries: list[tuple[str, Artist]] = []
    ax.axvline(1.0, color="0.6", linewidth=1, linestyle=":", zorder=0)
    if "quantity" not in found:
        changes = found["mean_change"].transpose("kernel", "delta")
        for k, (name, change) in enumerate(zip(changes["kernel"].values, changes, strict=True)):
            look: dict[str, Any] = {"color": COLORS[k % len(COLORS)]}
            look |= {"marker": MARKERS[k % len(MARKERS)], "linestyle": STYLES[k % len(STYLES)]}
            (line,) = ax.plot(delta, change.values, **look)
            entries.append((str(name), line))
        ax.set_ylabel("mean change of hidden entries")
        legend(ax, entries, title="kernel")
    else:
        ax.plot(delta, found["quantity"], "o-", color=COLORS[0])
        ax.set_ylabel("quantity")
        if "threshold" in found.attrs:
            threshold = found.attrs["threshold"]
            entries.append(
                ("threshold", ax.axhline(threshold, color="0.4", linestyle="--", linewidth=1))
            )
        entries += _tipping(ax, found)
        if entries:
            legend(ax, entries)
    ax.set_xlabel(f"delta ({found.attrs.get('direction', '')})")
    return ax


def _tipping(ax: "Axes", found: xr.Dataset) -> "list[tuple[str, Artist]]":
    """Mark the tipping points; return their entries of the legend."""
    entries: list[tuple[str, Artist]] = []
    if "tipping_point" not in found:
        return entries
    for side in found["side"].values:
        point = float(found["tipping_point"].sel(side=side))
        if np.isnan(point):
            continue
        low, high = np.sort(found["tipping_interval"].sel(side=side).values)
        ax.axvspan(low, high, color=COLORS[1], alpha=0.3, linewidth=0, zorder=0)
        line = ax.axvline(point, color=COLORS[5], linewidth=2, zorder=1)
        entries.append((f"tipping point: {point:.3g}", line))
    return entries


@checked(test=table_of("diagnostics.mcar_test(stack)", "difference", "p_adjusted"))
def plot_mcar_test(test: xr.Dataset, *, ax: "Axes | None" = None) -> "Axes":
    """Draw how the objects that each kernel misses differ from the others in the other kernels.

    A point is the standardized difference of mean ranks of one feature in one other kernel; about
    95 % of them are within the gray band if objects are missing completely at random. The labels
    have the adjusted p-values.

    Parameters
    ----------
    test
        What `diagnostics.mcar_test` returned.
    ax
        Axes to draw on; new ones if omitted.

    Returns
    -------
    Axes

    Examples
    --------
    >>> from mkmc_prob import datasets, diagnostics, plots, remove_objects
    >>> kernels, _ = datasets.make_fusion_problem(40, 3)
    >>> test = diagnostics.mcar_test(remove_objects(kernels, 0.3, seed=0))
    >>> plots.plot_mcar_test(test).get_ylabel()
    'kernel'
    """
    ax = axes_or_new(ax)
    ax.axvspan(-1.96, 1.96, color="0.92", zorder=0)
    ax.axvline(0.0, color="0.6", linewidth=1, zorder=0)
    entries, names = [], test["kernel"].values
    for f, feature in enumerate(test["feature"].values):
        values = test["difference"].sel(feature=feature).transpose("kernel", "other").values
        rows = np.repeat(np.arange(len(names)) + 0.2 * (f - 0.5), values.shape[1])
        look: dict[str, Any] = {"color": COLORS[f], "alpha": 0.8, "linestyle": ""}
        (points,) = ax.plot(values.ravel(), rows, marker=MARKERS[f], **look)
        entries.append((str(feature), points))
    adjusted = test["p_adjusted"].values
    said = ["not testable" if np.isnan(p) else f"p = {p:.3g}" for p in adjusted]
    name_ticks(ax, [f"{name}\n{text}" for name, text in zip(names, said, strict=True)], axis="y")
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set(xlabel="missing less visible objects (standardized mean ranks)", ylabel="kernel")
    legend(ax, entries, title="in the other kernels")
    return ax
