"""Plot of a choice of the model: how the model and simple imputation predict held-out rows."""

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from ..errors import MKMCError
from ..utils.arguments import checked
from .axes import COLORS, MARKERS, axes_or_new, name_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The columns of the verdict's table that are drawn, with their labels.
DRAWN = {
    "model": "model",
    "alone": "kernel alone (sharing 0)",
    "mean": "mean imputation",
    "knn": "nearest neighbors",
}


@runtime_checkable
class Chosen(Protocol):
    """The attribute of `ModelSelection` that is drawn, as documented there."""

    @property
    def verdict(self) -> Any:
        """The verdict, with its table."""


def as_chosen(given: Any, what: str) -> Chosen:
    """Return `given` if it is what `select_model` returns; raise MKMCError otherwise."""
    if not isinstance(given, Chosen):
        raise MKMCError(
            f"{what}: {type(given).__name__} found; pass the ModelSelection that "
            "select_model(stack) returns, or result.selection."
        )
    return given


@checked(selection=as_chosen)
def plot_selection(selection: Chosen, *, ax: "Axes | None" = None) -> "Axes":
    """Draw the relative error of held-out rows per kernel: the model and simple imputation.

    Error bars are standard errors of the paired difference from the model. A kernel that could not
    be tested has no points.

    Parameters
    ----------
    selection
        What `select_model` returned, or ``result.selection`` of `complete`.
    ax
        Axes to draw on; new ones if omitted.

    Returns
    -------
    Axes

    Raises
    ------
    MKMCError
        If nothing was compared.

    Examples
    --------
    >>> from mkmc_prob import datasets, plots, remove_objects, select_model
    >>> kernels, _ = datasets.make_fusion_problem(30, 3)
    >>> selection = select_model(remove_objects(kernels, 0.3, seed=0))
    >>> plots.plot_selection(selection).get_xlabel()
    'relative error of held-out rows'
    """
    table = selection.verdict.table
    if table["model"].isna().all():
        raise MKMCError("selection: nothing was compared, so there is nothing to draw.")
    ax = axes_or_new(ax)
    rows = np.arange(len(table))
    for i, (name, label) in enumerate(DRAWN.items()):
        place = rows + 0.16 * (i - 1.5)
        error = None if name == "model" else table[f"se({name})"].fillna(0.0)
        ax.errorbar(
            table[name],
            place,
            xerr=error,
            fmt=MARKERS[i],
            color=COLORS[i],
            capsize=2,
            markersize=8 if name == "model" else 5,
            label=label,
        )
    name_ticks(ax, table.index.tolist(), axis="y")
    ax.invert_yaxis()
    ax.set(xlabel="relative error of held-out rows", ylabel="kernel")
    ax.grid(axis="y", alpha=0.3)
    ax.legend()
    return ax
