"""Names, colors, error bars, legends and ticks of a study's figures."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import xarray as xr
from scipy import stats

from ..plots.axes import COLORS, MARKERS, STYLES, legend, name_ticks
from ..utils.arguments import real_number
from .scores import mean_and_sd

if TYPE_CHECKING:  # Matplotlib is slow to import
    from matplotlib.axes import Axes

#: Means, and half the lengths of their error bars.
Parts: TypeAlias = tuple[xr.DataArray, xr.DataArray]
#: The error bars of methods, by the names of the methods.
Entries: TypeAlias = list[tuple[str, Any]]
#: The error bars, as the axis describes them.
BARS = {
    "se": "mean ± standard error",
    "ci": "mean and 95% t interval",
    "sd": "mean ± standard deviation",
}
#: The built-in methods as figures and reports name them, in the order of their colors.
METHOD_NAMES = {
    "mkmc": "MKMC",
    "mkmc_chosen": "MKMC, chosen strength",
    "zero": "zero imputation",
    "mean": "mean imputation",
}


def method_name(study: xr.Dataset, method: str) -> str:
    """Return a method's name in a legend; of MKMC with the strength of its fits, if it is one.

    A study without the strengths of its fits has it as an attribute.
    """
    if method != "mkmc":
        return METHOD_NAMES.get(method, method)
    strengths = [study.attrs.get("strength")]
    if "strength" in study and "completion" in study["strength"].dims:
        strengths = np.unique(study["strength"].sel(completion=method)).tolist()
    strength = real_number(strengths[0]) if len(strengths) == 1 else None
    return METHOD_NAMES[method] + (f", strength {strength:g}" if strength else "")


def looks_of(methods: list[str]) -> dict[str, dict[str, Any]]:
    """Return color, marker and line of each method; of built-in ones they never change."""
    from matplotlib import rcParams

    order = list(dict.fromkeys([*METHOD_NAMES, *methods]))
    cycles: dict[str, Sequence[Any]] = {"color": COLORS, "marker": MARKERS, "linestyle": STYLES}
    size = {"markersize": 0.75 * rcParams["lines.markersize"]}
    return {
        name: size | {key: of[order.index(name) % len(of)] for key, of in cycles.items()}
        for name in methods
    }


def mean_and_width(values: xr.DataArray, bars: str) -> Parts:
    """Return the mean over the repetitions and half the length of its error bars."""
    mean, sd = mean_and_sd(values)
    n = values.count("repetition").where(lambda count: count > 1)
    error = sd if bars == "sd" else sd / n**0.5
    return mean, error * xr.apply_ufunc(stats.t.ppf, 0.975, n - 1) if bars == "ci" else error


def with_bars(what: str, bars: str, values: xr.DataArray) -> str:
    """Return the label of an axis with what its error bars are, if there are any."""
    return f"{what}\n({BARS[bars]})" if values.sizes["repetition"] > 1 else what


def draw_methods(
    ax: "Axes", study: xr.Dataset, parts: Parts, at: Any, step: float, **style: Any
) -> Entries:
    """Draw means and error bars around the places `at`, the methods `step` apart."""
    methods, entries = parts[0]["completion"].values.tolist(), []
    for i, (method, look) in enumerate(looks_of(methods).items()):
        x = at + step * (i - (len(methods) - 1) / 2)
        y, error = (part.sel(completion=method).values for part in parts)
        entries.append((method_name(study, method), ax.errorbar(x, y, yerr=error, **look | style)))
    return entries


def explain(axes: "list[Axes]", entries: Entries) -> None:
    """Draw the legend above `axes` that are a whole figure, else at the top of the first of them.

    Above the axes it needs Matplotlib's constrained layout, which new figures have. In axes, the
    y-axis is extended to make room.
    """
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    ax = axes[0]
    figure: Any = ax.get_figure(root=True)
    constrained = isinstance(figure.get_layout_engine(), ConstrainedLayoutEngine)
    if constrained and set(figure.axes) == set(axes):
        columns = _columns(entries, 72.0 * figure.get_figwidth())
        legend(figure, entries, loc="outside upper center", ncols=columns, frameon=False)
        return
    columns = _columns(entries, 72.0 * ax.bbox.width / figure.dpi)
    legend(ax, entries, loc="upper center", ncols=columns, fontsize="small")
    figure.draw_without_rendering()  # only now the size of the legend is known
    box: Any = ax.get_legend()
    share = min(1.15 * box.get_window_extent().height / ax.bbox.height + 0.02, 0.8)
    low, high = ax.get_ylim()
    ax.set_ylim(low, low + (high - low) / (1.0 - share))


def _columns(entries: Entries, points: float) -> int:
    """Return how many columns of a legend of `entries` fit into a width in points."""
    from matplotlib import rcParams
    from matplotlib.font_manager import FontProperties

    size = FontProperties(size=rcParams["legend.fontsize"]).get_size_in_points()
    # A letter is about 0.55 of the font's size wide, marker and gaps together about 5 of it.
    widths = [size * (0.55 * len(name) + 5.0) for name, _ in entries]
    for rows in range(1, len(entries)):
        columns = [widths[i : i + rows] for i in range(0, len(widths), rows)]
        if sum(map(max, columns)) <= points:
            return len(columns)
    return 1


def matrix_ticks(ax: "Axes", names: list[str]) -> None:
    """Label the matrices, at an angle if the names do not fit side by side."""
    name_ticks(ax, names, axis="x")
    figure: Any = ax.get_figure(root=True)
    slot = 72.0 * ax.bbox.width / figure.dpi / len(names)
    for text in ax.get_xticklabels():
        if max(map(len, names)) * 0.6 * float(text.get_fontsize()) > slot:
            text.set(rotation=30, ha="right", rotation_mode="anchor")
