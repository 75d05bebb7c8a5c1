"""Helpers shared by the plots: axes, colors, legends, ticks and color bars.

Names of kernels and objects are drawn verbatim: "$" does not start a formula, and a leading "_"
does not hide a legend entry.
"""

import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import LabelError, MKMCError

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

#: The colors of Okabe and Ito, safe for color-blind readers, without their yellow (too pale for
#: lines).
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "0.4")
#: With these, lines and points differ even in gray, and if there are more than seven.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
STYLES = ("-", "--", "-.", ":")


def axes_or_new(ax: "Axes | None") -> "Axes":
    """Return `ax`, or the axes of a new figure if it is None; raise MKMCError if it is not axes."""
    if ax is None:
        import matplotlib.pyplot as plt  # slow to import, so only when drawing

        return plt.subplots(layout="constrained")[1]
    return check_axes(ax, "ax")


def check_axes(given: Any, what: str) -> "Axes":
    """Return `given` if it is Matplotlib axes; raise MKMCError otherwise."""
    from matplotlib.axes import Axes

    if not isinstance(given, Axes):
        raise MKMCError(
            f"{what}: {type(given).__name__} found; Matplotlib Axes are needed. Pass, for example, "
            "those of figure, ax = plt.subplots()."
        )
    return given


def panels(
    axes: NDArray[Any] | None, shape: tuple[int, int], inches: tuple[float, float]
) -> NDArray[Any]:
    """Return the axes of a grid of panels, checked if given, else those of a new figure."""
    import matplotlib.pyplot as plt

    if axes is None:
        _, axes = plt.subplots(*shape, figsize=inches, layout="constrained", squeeze=False)
    axes = np.asarray(axes, dtype=object)
    if axes.shape != shape:
        raise LabelError(f"axes: shape {axes.shape} found, {shape} (rows, kernels) expected.")
    for ax in axes.flat:
        check_axes(ax, "axes")
    return axes


def panel_title(ax: "Axes", name: Any) -> None:
    """Write the name of a kernel above its panel, on at most two lines."""
    points = 72.0 * ax.get_window_extent().width / ax.figure.dpi
    title = wrapped(str(name), points, size=float(ax.title.get_fontsize()))
    ax.set_title(title, parse_math=False)


def hatch_missing(ax: "Axes") -> None:
    """Hatch the background, which shows through an image where entries are missing."""
    ax.patch.set(facecolor="0.92", edgecolor="0.6", hatch="/////", linewidth=0)


def extend(values: NDArray[np.float64], low: float, high: float) -> str:
    """Return the ends at which a color bar from `low` to `high` needs arrows for `values`."""
    below, above = np.nanmin(values, initial=low) < low, np.nanmax(values, initial=high) > high
    return ("neither", "min", "max", "both")[int(below) + 2 * int(above)]


def wrapped(name: str, points: float, *, size: float) -> str:
    """Return `name` on at most two lines `points` wide; a longer name keeps its start and end."""
    width = max(8, int(points / (0.62 * size)))  # a letter is about 0.62 of the font size wide
    if len(name) <= width:
        return name
    lines = textwrap.wrap(name, width)
    if len(lines) > 2:
        lines = [lines[0], "…" + name[1 - width :]]
    return "\n".join(lines)


def name_ticks(ax: "Axes", names: Iterable[Any], *, axis: str, first: int = 0) -> None:
    """Label the positions first, first + 1, ... of an axis with `names`, verbatim."""
    labels = [str(name) for name in names]
    look: dict[str, Any] = {"parse_math": False}
    if axis == "x" and sum(map(len, labels)) > 60:  # about what fits side by side
        look |= {"rotation": 30, "ha": "right", "rotation_mode": "anchor"}
    which = ax.xaxis if axis == "x" else ax.yaxis
    which.set_ticks(range(first, first + len(labels)), labels, **look)


def count_iterations(ax: "Axes") -> None:
    """Label the iterations with whole numbers."""
    ax.set_xlabel("iteration")
    if ax.get_xscale() == "linear":
        ax.locator_params(axis="x", integer=True)


def legend(
    ax: "Axes", entries: Sequence[tuple[str, "Artist"]], *, beside: bool = False, **options: Any
) -> None:
    """Draw a legend of `entries` in order, with names verbatim.

    A legend `beside` the axes covers no data, but needs space: only for axes of a new figure.
    """
    if beside:
        options |= {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
    box = ax.legend([artist for _, artist in entries], [" "] * len(entries), **options)
    for text, (name, _) in zip(box.get_texts(), entries, strict=True):
        text.set(text=name, parse_math=False)


def plain_log(axis: "Axis") -> None:
    """Write plain numbers on a log axis, including minor ticks if the axis is short."""
    from matplotlib.ticker import LogFormatter

    class Plain(LogFormatter):
        def __call__(self, x: float, pos: int | None = None) -> str:
            return f"{x:g}" if super().__call__(x, pos) else ""

    axis.set_major_formatter(Plain())
    axis.set_minor_formatter(Plain(labelOnlyBase=False, minor_thresholds=(1.2, 0.6)))
