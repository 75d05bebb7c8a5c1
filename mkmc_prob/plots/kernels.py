"""Plots of kernels: heat maps before and after completion, patterns, pair counts and spectra."""

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..diagnostics.protocol import FitResult, as_result
from ..errors import LabelError, MKMCError
from ..stacks.labels import Labels, as_labels, match
from ..stacks.pairs import never_seen_together, pair_counts
from ..stacks.stack import check_labels, visible_objects
from ..utils.arguments import checked
from .axes import (
    COLORS,
    STYLES,
    axes_or_new,
    extend,
    hatch_missing,
    legend,
    name_ticks,
    panel_title,
    panels,
)

if TYPE_CHECKING:  # Matplotlib is slow to import, so only when drawing
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

#: The color of pairs that no kernel observes together, a gray that is not in the colormap.
MISSING = "0.75"
#: Up to this many objects, pairs never observed together are marked with dots; beyond it with a
#: white veil, because dots would be too small to print.
DOTTED = 40
#: The share of white in a veiled color; hue and order of the colors remain visible.
VEIL = 0.5


def colormap(value: Any, what: str) -> str:
    """Return `value` if Matplotlib has a colormap of this name; raise MKMCError otherwise."""
    import matplotlib as mpl

    if not isinstance(value, str) or value not in mpl.colormaps:
        raise MKMCError(f"{what}: Matplotlib has no colormap {value!r}. Pass 'viridis', say.")
    return value


@checked(cmap=colormap)
def plot_kernels(
    before: xr.DataArray,
    after: xr.DataArray | None = None,
    *,
    kernels: Iterable[Hashable] | None = None,
    objects: Iterable[Hashable] | None = None,
    mark: bool | xr.DataArray = True,
    axes: NDArray[Any] | None = None,
    cmap: str = "viridis",
) -> NDArray[Any]:
    """Draw kernels as heat maps, before (top row) and after completion; missing entries hatched.

    The two pictures of a kernel share a color scale, the 1st to 99th percentile of its visible
    entries, so that completed entries can be compared with visible ones; arrows on the color bar
    indicate entries beyond it. Pairs of objects that no kernel of `before` observes together are
    marked in the completed kernels (white dots, or a ruled white veil if there are more than 40
    objects): the kernels only bound their entries, and the prior chooses within the bounds.

    Parameters
    ----------
    before
        An incomplete stack.
    after
        The completed stack, drawn in a second row; if omitted, there is one row.
    kernels
        Names of the kernels to draw; all if omitted.
    objects
        Labels of the objects to draw, in the given order (for example sorted by class); all if
        omitted.
    mark
        Whether to mark those pairs; or which pairs to mark, as `diagnostics.never_seen_together`
        returns them.
    axes
        Axes to draw on, shape (rows, kernels); new ones if omitted.
    cmap
        The name of a Matplotlib colormap.

    Returns
    -------
    ndarray of Axes, shape (rows, kernels)

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import fit, plots, stack_kernels
    >>> stack = stack_kernels(np.stack([np.eye(3)] * 2), visible=[[1, 1, 0], [1, 1, 1]])
    >>> plots.plot_kernels(stack, fit(stack).completed).shape
    (2, 2)
    """
    import matplotlib as mpl

    stacks = {"before": before} if after is None else {"before": before, "completed": after}
    known, labels = check_labels(before)
    if after is not None:
        both = zip(check_labels(after, what="after"), (known, labels), strict=True)
        for what, (now, then) in zip(("kernels", "objects"), both, strict=True):
            if set(now.tolist()) != set(then.tolist()):
                raise LabelError(
                    f"after: its {what} are not those of `before`. Pass its completion."
                )
    names = chosen_labels(kernels, known, "kernel")
    order = chosen_labels(objects, labels, "object")
    if not names or not order:
        raise LabelError("kernels, objects: there is nothing to draw. Name at least one of each.")
    never = np.zeros((0, 0), dtype=bool)
    if mark is not False and after is not None:
        marked = mark if isinstance(mark, xr.DataArray) else never_seen_together(before)
        never = marked.sel(object=order, object_bis=order).values
    shape = (len(stacks), len(names))
    inches = (2.2 * shape[1] + 0.4, 2.3 * shape[0] + 0.2 + 0.5 * bool(never.any()))
    axes = panels(axes, shape, inches)
    colors = mpl.colormaps[cmap].with_extremes(bad=(0.0, 0.0, 0.0, 0.0))
    for column, name in enumerate(names):
        drawn = [
            stack.sel(kernel=name, object=order, object_bis=order).transpose("object", ...).values
            for stack in stacks.values()
        ]
        visible = drawn[0][np.isfinite(drawn[0])]
        low, high = np.percentile(visible, [1, 99]) if visible.size else (0.0, 1.0)
        for ax, matrix, word in zip(axes[:, column], drawn, stacks, strict=True):
            image = ax.imshow(matrix, cmap=colors, vmin=low, vmax=high, interpolation="nearest")
            hatch_missing(ax)
            ax.set(xticks=[], yticks=[])
            if column == 0:
                ax.set_ylabel(word)
        if never.any():
            _mark(axes[1, column], never, colors, explain=column == 0)
        panel_title(axes[0, column], name)
        ax.figure.colorbar(
            image,
            ax=list(axes[:, column]),
            shrink=0.7,
            location="bottom",
            extend=extend(np.stack(drawn), low, high),
        )
    return axes


def plot_pattern(stack: xr.DataArray, *, ax: "Axes | None" = None) -> "Axes":
    """Draw which objects are visible in each kernel: one row per kernel, missing objects in gray.

    Parameters
    ----------
    stack
        The incomplete kernels.
    ax
        Axes to draw on; new ones if omitted.

    Returns
    -------
    Axes

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import plots, stack_kernels
    >>> stack = stack_kernels(np.stack([np.eye(3)] * 2), visible=[[1, 1, 0], [1, 0, 1]])
    >>> plots.plot_pattern(stack).get_xlabel()
    'object (3)'
    """
    visible = visible_objects(stack)
    ax = axes_or_new(ax)
    ax.imshow(visible, cmap="Greys", vmin=-0.5, vmax=1.5, aspect="auto", interpolation="nearest")
    name_ticks(ax, visible["kernel"].values, axis="y")
    ax.set(xticks=[], xlabel=f"object ({visible.sizes['object']})", ylabel="kernel")
    missing = 100.0 * (1.0 - float(visible.mean()))
    ax.set_title(f"visible (dark), missing (light): {missing:.0f} % missing")
    return ax


def plot_pair_counts(stack: xr.DataArray, *, ax: "Axes | None" = None) -> "Axes":
    """Draw the number of kernels that observe each pair of objects together; zero in gray.

    The kernels only bound the entries of the gray pairs, and the prior chooses within the bounds.

    Parameters
    ----------
    stack
        The incomplete kernels, or which objects are visible in each (`visible_objects`).
    ax
        Axes to draw on; new ones if omitted.

    Returns
    -------
    Axes

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import plots, stack_kernels
    >>> stack = stack_kernels(np.stack([np.eye(3)] * 2), visible=[[1, 1, 0], [1, 0, 1]])
    >>> plots.plot_pair_counts(stack).get_title()
    '33 % of the pairs are seen together by no kernel'
    """
    import matplotlib as mpl

    counts = pair_counts(stack).values
    ax = axes_or_new(ax)
    most = max(int(counts.max()), 1)
    colors = mpl.colormaps["viridis"].resampled(most).with_extremes(bad=MISSING)
    drawn = np.ma.masked_equal(counts, 0)
    image = ax.imshow(drawn, cmap=colors, vmin=0.5, vmax=most + 0.5, interpolation="nearest")
    ax.figure.colorbar(image, ax=ax, label="kernels that see both", ticks=range(1, most + 1))
    ax.set(xticks=[], yticks=[], xlabel="object", ylabel="object")
    pairs = counts[np.triu_indices(len(counts), 1)]
    never = float((pairs == 0).mean()) if pairs.size else 0.0
    ax.set_title(f"{100.0 * never:.0f} % of the pairs are seen together by no kernel")
    return ax


@checked(result=as_result)
def plot_spectra(result: FitResult, *, ax: "Axes | None" = None) -> "Axes":
    """Draw the eigenvalues of the completed kernels and of the model, largest first, log scale.

    Each kernel is in units of its scale (``result.sources``; 1 in the paper's model).

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
    >>> plots.plot_spectra(fit(stack_kernels(np.eye(3)[None]))).get_yscale()
    'log'
    """
    ax = axes_or_new(ax)
    scale = result.sources["scale"].sel(kernel=result.completed["kernel"].values).values
    spectra = np.linalg.eigvalsh(result.completed.values / scale[:, None, None])[:, ::-1]
    rank = np.arange(1, spectra.shape[1] + 1)
    # Eigenvalues within rounding of zero are zero and not drawn on a log scale.
    zero = len(rank) * np.finfo(np.float64).eps * np.abs(spectra).max(axis=1, keepdims=True)
    spectra = np.where(spectra > zero, spectra, np.nan)
    entries = []
    for i, name in enumerate(result.completed["kernel"].values.tolist()):
        look: dict[str, Any] = {
            "color": COLORS[i % len(COLORS)],
            "linestyle": STYLES[i % len(STYLES)],
        }
        entries.append((str(name), ax.plot(rank, spectra[i], **look)[0]))
    model = np.linalg.eigvalsh(result.model.matrix)[::-1]
    entries.append(("model", ax.plot(rank, model, color="black", linewidth=2)[0]))
    unit = "" if (scale == 1.0).all() else " (in units of the kernel's scale)"
    ax.set(yscale="log", xlabel="rank", ylabel=f"eigenvalue{unit}")
    legend(ax, entries)
    return ax


def _mark(ax: "Axes", never: NDArray[np.bool_], colors: "Colormap", *, explain: bool) -> None:
    """Mark the pairs never observed together in a heat map, with a single artist."""
    from matplotlib.patches import Patch

    size, words = len(never), "never seen\ntogether"
    key: Artist
    if size <= DOTTED:
        points = 72.0 * ax.get_window_extent().width / ax.figure.dpi / size
        rows, columns = np.nonzero(never)
        ax.autoscale(False)
        dot = float(np.clip(0.35 * points, 2.0, 6.0))
        # The dark rim makes the white dots visible on light colors.
        (key,) = ax.plot(columns, rows, "o", ms=dot, mew=0.8, mfc="white", mec="black")
    else:
        veil = np.ones((size, size, 4))
        veil[..., 3] = VEIL * never
        # A white veil is lost on bright cells, so it is ruled with dark lines.
        place = np.arange(size)
        apart, wide = max(6, size // 16), max(1, size // 150)
        veil[never & (np.abs(place[:, None] - place) % apart < wide)] = (0.0, 0.0, 0.0, 0.7)
        ax.imshow(veil, interpolation="nearest")
        words = "ruled: never\nseen together"
        red, green, blue = ((1.0 - VEIL) * part + VEIL for part in colors(0.5)[:3])
        key = Patch(facecolor=(red, green, blue), edgecolor="0.2", hatch="\\\\\\")
    if explain:
        # On two lines, to be no wider than the panel: a wider legend would move its neighbor.
        below: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (0.0, 0.0)}
        legend(ax, [(words, key)], frameon=False, handlelength=1.2, borderpad=0.2, **below)


def chosen_labels(wanted: Iterable[Hashable] | None, known: Labels, what: str) -> list[Any]:
    """Return the labels `wanted`, all if None; raise LabelError if one is not known."""
    if wanted is None:
        return known.tolist()  # type: ignore[no-any-return]
    chosen = as_labels(wanted, f"{what}s")
    match(chosen, known, f"{what}s: the stack has no {what} {{}}.")
    return chosen.tolist()  # type: ignore[no-any-return]
