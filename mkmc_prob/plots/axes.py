"""Where to draw and how lines are told apart. Enters: axes or None, names. Leaves: axes, legends.

Names of kernels and objects are drawn as they are: "$" does not start a formula, "_" hides nothing.
"""

import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import MKMCError

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from numpy.typing import NDArray

#: Okabe and Ito's colours, which the colour-blind tell apart; the yellow is too pale for lines.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "0.4")
#: As many markers as colours, and styles: in grey, and beyond seven, pairs still differ.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
STYLES = ("-", "--", "-.", ":")


def axes_or_new(ax: "Axes | None") -> "Axes":
    """Return `ax`, or axes of a new figure; raise MKMCError where `ax` is something else."""
    if ax is None:
        import matplotlib.pyplot as plt  # slow to import: only drawing does

        return plt.subplots(layout="constrained")[1]
    return check_axes(ax, "ax")


def check_axes(given: Any, what: str) -> "Axes":
    """Return `given` if one can draw on it; raise MKMCError otherwise."""
    from matplotlib.axes import Axes

    if not isinstance(given, Axes):
        raise MKMCError(
            f"{what}: {type(given).__name__} found; Matplotlib Axes are needed. Pass those of "
            "figure, ax = plt.subplots(), say."
        )
    return given


def hatch_missing(ax: "Axes") -> None:
    """Hatch the background, which shows where an image has no entries: legible in grey, too."""
    ax.patch.set(facecolor="0.92", edgecolor="0.6", hatch="/////", linewidth=0)


def extend(values: "NDArray[np.float64]", low: float, high: float) -> str:
    """Return at which ends a colour bar from `low` to `high` needs arrows for `values`."""
    least, most = np.nanmin(values, initial=low), np.nanmax(values, initial=high)
    return {(0, 0): "neither", (1, 0): "min", (0, 1): "max", (1, 1): "both"}[
        int(least < low), int(most > high)
    ]


def wrapped(name: str, points: float, *, size: float) -> str:
    """Return `name` on at most two lines of so many points; of a longer one, start and end."""
    width = max(8, int(points / (0.62 * size)))  # a letter is about 0.62 of the font's size wide
    if len(name) <= width:
        return name
    lines = textwrap.wrap(name, width)
    if len(lines) > 2:
        lines = [lines[0], "…" + name[1 - width :]]
    return "\n".join(lines)


def name_ticks(ax: "Axes", names: Iterable[Any], *, axis: str, first: int = 0) -> None:
    """Write `names` at the places first, first + 1, ... of an axis, as they are."""
    labels = [str(name) for name in names]
    places = range(first, first + len(labels))
    which = ax.xaxis if axis == "x" else ax.yaxis
    which.set_ticks(places, labels)
    for text in which.get_ticklabels():
        text.set_parse_math(False)
        if axis == "x" and sum(map(len, labels)) > 60:  # about what fits side by side
            text.set(rotation=30, ha="right", rotation_mode="anchor")


def legend(
    ax: "Axes", entries: Sequence[tuple[str, "Artist"]], *, beside: bool = False, **options: Any
) -> None:
    """Draw a legend of `entries`, in their order, with their names as they are.

    Beside the axes it covers nothing; but axes that a person placed keep to their place.
    """
    if beside:
        options |= {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
    box = ax.legend([artist for _, artist in entries], [" "] * len(entries), **options)
    for text, (name, _) in zip(box.get_texts(), entries, strict=True):
        text.set_parse_math(False)
        text.set_text(name)


def plain_log(axis: "Axis") -> None:
    """Write plain numbers on an axis with a log scale, in-between ones too where it is short."""
    from matplotlib.ticker import LogFormatter

    class Plain(LogFormatter):
        def __call__(self, x: float, pos: int | None = None) -> str:
            return f"{x:g}" if super().__call__(x, pos) else ""

    axis.set_major_formatter(Plain())
    axis.set_minor_formatter(Plain(labelOnlyBase=False, minor_thresholds=(1.2, 0.6)))
