"""Where to draw. Enters: axes or None. Leaves: axes."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def axes_or_new(ax: "Axes | None") -> "Axes":
    """Return `ax`, or axes of a new figure."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt  # slow to import: only drawing does

    return plt.subplots(layout="constrained")[1]
