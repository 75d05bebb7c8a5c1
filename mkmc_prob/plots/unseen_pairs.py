"""Plot of the bounds on the entries of pairs of objects that no kernel shows together."""

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ..diagnostics.bounds import unseen_pairs
from ..diagnostics.protocol import FitResult, as_result
from ..errors import MKMCError
from ..utils.arguments import checked, whole
from .axes import COLORS, axes_or_new, legend, name_ticks

if TYPE_CHECKING:  # Matplotlib is slow to import, so only when drawing
    from matplotlib.axes import Axes

NEEDED = ("value", "lower", "upper", "relative_width", "prior_alone", "object", "object_bis")


def result_or_bounds(value: Any, what: str) -> FitResult | xr.Dataset:
    """Return `value` if it is a fit or a table of `unseen_pairs`; raise MKMCError otherwise."""
    if not isinstance(value, xr.Dataset):
        return as_result(value, what)
    if absent := [name for name in NEEDED if name not in value.variables]:
        raise MKMCError(
            f"{what}: the Dataset has no variable {absent[0]!r}. Pass a fit, or what "
            "diagnostics.unseen_pairs returns."
        )
    return value


@checked(result=result_or_bounds, most=whole(least=1))
def plot_unseen_pairs(
    result: FitResult | xr.Dataset, *, most: int = 20, ax: "Axes | None" = None
) -> "Axes":
    """Draw how far the kernels bound the entries of pairs never observed together, widest first.

    One line per pair: the interval in which the entry of the model matrix can lie if all others
    are held, and the entry that the fit has (dot). All are divided by sqrt(M_ii M_jj), so they
    lie between -1 and 1, the range of correlations. Pairs that no chain of kernels connects are
    dashed, with an open dot: the prior alone determines their entries.

    Parameters
    ----------
    result
        A fit, or what `diagnostics.unseen_pairs` returned.
    most
        The largest number of pairs to draw.
    ax
        Axes to draw on; new ones if omitted.

    Returns
    -------
    Axes

    Raises
    ------
    MKMCError
        If `result` is neither.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import fit, plots, stack_kernels
    >>> kernels = np.stack([0.5 * np.eye(3) + 0.5] * 2)
    >>> result = fit(stack_kernels(kernels, visible=[[1, 1, 0], [0, 1, 1]]))
    >>> plots.plot_unseen_pairs(result).get_title()
    '1 of 1 pair never observed together'
    """
    table = result if isinstance(result, xr.Dataset) else unseen_pairs(result, most=most)
    total = int(table.attrs.get("unseen_pairs", table.sizes["pair"]))
    order = np.argsort(-table["relative_width"].values, kind="stable")[:most]
    table = table.isel(pair=order)
    ax = axes_or_new(ax)
    plural = "pair" if total == 1 else "pairs"
    ax.set_title(f"{len(order)} of {total} {plural} never observed together")
    ax.set(xlabel="entry of the model matrix, as a correlation", xlim=(-1.05, 1.05))
    ax.set_ylabel("pair of objects")
    if not len(order):
        middle: dict[str, Any] = {"ha": "center", "va": "center", "transform": ax.transAxes}
        ax.text(0.5, 0.5, "every pair of objects is observed together", **middle)
        ax.set_yticks([])
        return ax
    deviations = (table["upper"] - table["lower"]) / table["relative_width"]
    lower, value, upper = (
        (table[name] / deviations).values for name in ("lower", "value", "upper")
    )
    alone, row = table["prior_alone"].values, np.arange(len(order))
    entries = []
    for which, name, color, line, face in (
        (~alone, "bounded by the kernels", COLORS[0], "-", COLORS[0]),
        (alone, "the prior alone", COLORS[5], "--", "white"),
    ):
        if which.any():
            ax.hlines(row[which], lower[which], upper[which], color=color, linestyle=line)
            look: dict[str, Any] = {"color": color, "markerfacecolor": face}
            (dots,) = ax.plot(value[which], row[which], "o", **look)
            entries.append((name, dots))
    ax.axvline(0.0, color="0.8", linewidth=0.8, zorder=0)
    labels = zip(table["object"].values.tolist(), table["object_bis"].values.tolist(), strict=True)
    name_ticks(ax, [f"{one}, {other}" for one, other in labels], axis="y")
    ax.set_ylim(len(order) - 0.5, -0.5)
    if alone.any():
        below: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.13), "ncols": 2}
        legend(ax, entries, frameon=False, **below)
    return ax
