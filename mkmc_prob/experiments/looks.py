"""How the methods of a study look in pictures: names, colours, error bars, legends, ticks.

Enters: scores, names, axes with something drawn on them. Leaves: what to draw, and legends that
cover nothing.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy import stats

from ..errors import MKMCError
from ..plots.axes import COLORS, MARKERS, STYLES, legend, name_ticks
from ..stacks.labels import name_some
from ..utils.arguments import real_number
from .scores import mean_and_sd

if TYPE_CHECKING:  # Matplotlib is slow to import: only drawing does
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.container import ErrorbarContainer
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend
    from matplotlib.transforms import BboxBase

#: What the error bars are, as it is written beside them.
BARS = {
    "se": "mean ± standard error",
    "ci": "mean and 95% t interval",
    "sd": "mean ± standard deviation",
}
#: What the study's own methods are called, in the order of their colours.
METHOD_NAMES = {
    "mkmc": "MKMC",
    "mkmc_chosen": "MKMC, chosen strength",
    "zero": "zero imputation",
    "mean": "mean imputation",
}


def method_name(study: xr.Dataset, method: str) -> str:
    """Return what a method is called in a legend; MKMC's strength is that of its fits.

    Where the study does not say it, its attribute does.
    """
    name = METHOD_NAMES.get(method, method)
    if method != "mkmc":
        return name
    strength = real_number(study.attrs.get("strength"))
    if "strength" in study and "completion" in study["strength"].dims:
        found = np.unique(study["strength"].sel({"completion": method}).values)
        found = found[~np.isnan(found)]
        strength = real_number(found[0]) if len(found) == 1 else None
    return f"{name}, strength {strength:g}" if strength else name


def looks_of(methods: list[str]) -> dict[str, dict[str, Any]]:
    """Return colour, marker and line of each method: the study's own have the same in any study."""
    from matplotlib import rcParams

    order = [*METHOD_NAMES, *(name for name in methods if name not in METHOD_NAMES)]
    return {
        name: {
            "color": COLORS[order.index(name) % len(COLORS)],
            "marker": MARKERS[order.index(name) % len(MARKERS)],
            "markersize": 0.75 * rcParams["lines.markersize"],  # bars are to be seen beside them
            "linestyle": STYLES[order.index(name) % len(STYLES)],
        }
        for name in methods
    }


def check_bars(bars: Any) -> None:
    """Raise where `bars` is none that can be drawn."""
    if not isinstance(bars, str) or bars not in BARS:
        raise MKMCError(f"bars: {bars!r} found. Choose one of {name_some(list(BARS))}.")


def mean_and_width(values: xr.DataArray, bars: Any) -> tuple[xr.DataArray, xr.DataArray]:
    """Return the mean over the repetitions and half the length of its error bars."""
    check_bars(bars)
    mean, sd = mean_and_sd(values)
    if bars == "sd":
        return mean, sd
    n = values.count("repetition").where(lambda count: count > 1)
    error = sd / n**0.5
    return mean, error * (xr.apply_ufunc(stats.t.ppf, 0.975, n - 1) if bars == "ci" else 1.0)


def with_bars(what: str, bars: str, values: xr.DataArray) -> str:
    """Return an axis' label that says what the error bars are, where there are some."""
    return f"{what}\n({BARS[bars]})" if values.sizes["repetition"] > 1 else what


def explain(axes: "Sequence[Axes]", entries: "list[tuple[str, ErrorbarContainer]]") -> None:
    """Draw the legend: above `axes` that are a figure by themselves, else in the first of them.

    Above needs Matplotlib's constrained layout, which new figures have. In axes Matplotlib looks
    for the best place; where that has something in it, room is made at the top.
    """
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    ax = axes[0]
    figure = cast("Figure", ax.get_figure(root=True))
    artists = cast("list[tuple[str, Artist]]", entries)  # a legend draws containers, too
    constrained = isinstance(figure.get_layout_engine(), ConstrainedLayoutEngine)
    if constrained and set(figure.axes) == set(axes):
        columns = _columns(entries, 72.0 * figure.get_figwidth())
        on = cast("Axes", figure)  # figures have the same method `legend`
        legend(on, artists, loc="outside upper center", ncols=columns, frameon=False)
        return
    legend(ax, artists, loc="best")
    box = _legend_box(ax, figure)
    # A constrained layout may still shrink the axes when others are drawn on: a little apart.
    wide = box.expanded(1.1, 1.1)
    if any(wide.count_contains(ax.transData.transform(_along(drawn))) for _, drawn in entries):
        columns = _columns(entries, 72.0 * ax.bbox.width / figure.dpi)
        legend(ax, artists, loc="upper center", ncols=columns, fontsize="small")
        share = min(1.15 * _legend_box(ax, figure).height / ax.bbox.height + 0.02, 0.8)
        low, high = ax.get_ylim()
        ax.set_ylim(low, low + (high - low) / (1.0 - share))


def _legend_box(ax: "Axes", figure: "Figure") -> "BboxBase":
    """Return where the legend of `ax` is; only after drawing is it known how large all is."""
    figure.draw_without_rendering()
    return cast("Legend", ax.get_legend()).get_window_extent()


def _along(drawn: "ErrorbarContainer") -> NDArray[np.float64]:
    """Return points on what was drawn of a method, close to each other: its line and its bars."""
    line, _, bars = drawn.lines
    points = np.asarray(line.get_xydata())
    ends = [np.asarray(path.vertices) for bar in bars for path in bar.get_paths()]
    if line.get_linestyle() != "None":
        ends.append(points)
    between = np.linspace(0.0, 1.0, 20)[:, None, None]
    pieces = [(end[:-1] + between * np.diff(end, axis=0)).reshape(-1, 2) for end in ends]
    return np.concatenate([points, *pieces])


def _columns(entries: "list[tuple[str, ErrorbarContainer]]", points: float) -> int:
    """Return how many columns of a legend of `entries` fit side by side in so many points."""
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
    """Write the matrices' names below their places, aslant where they do not fit side by side."""
    name_ticks(ax, names, axis="x")
    figure = cast("Figure", ax.get_figure(root=True))
    slot = 72.0 * ax.bbox.width / figure.dpi / len(names)
    for text in ax.get_xticklabels():
        if max(map(len, names)) * 0.6 * float(text.get_fontsize()) > slot:
            text.set(rotation=30, ha="right", rotation_mode="anchor")
