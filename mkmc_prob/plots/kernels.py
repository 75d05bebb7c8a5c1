"""Kernels as pictures: heat maps before and after, what is missing, pairs, spectra.

Enters: stacks or a result. Leaves: the Matplotlib axes drawn on, so that a person can go on.
"""

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..diagnostics.fitted import FitResult, as_result
from ..errors import LabelError, MKMCError
from ..stacks.labels import Labels, as_labels, name_some
from ..stacks.pairs import never_seen_together, pair_counts
from ..stacks.stack import check_labels, visible_objects
from .axes import (
    COLOURS,
    STYLES,
    axes_or_new,
    check_axes,
    extend,
    hatch_missing,
    legend,
    name_ticks,
    wrapped,
)

if TYPE_CHECKING:  # Matplotlib is slow to import: only drawing does
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap


#: Pairs that no kernel sees together: a grey that the colour map does not have.
MISSING = "0.75"
#: Up to this many objects pairs never seen together get dots, beyond it a white veil: there a dot
#: would be smaller than what is printed.
DOTTED = 40
#: How much of a veiled colour is white: the hue and the order of the colours remain.
VEIL = 0.5


def plot_kernels(
    before: xr.DataArray,
    after: xr.DataArray | None = None,
    *,
    kernels: Iterable[Hashable] | None = None,
    objects: Iterable[Hashable] | None = None,
    mark: bool = True,
    axes: NDArray[Any] | None = None,
    cmap: str = "viridis",
) -> NDArray[Any]:
    """Draw kernels as heat maps, missing rows and columns hatched; a row above, a row below.

    The two pictures of a kernel share one colour scale, that of its visible entries (their 1st to
    99th percentile; arrows at the colour bar tell of entries beyond it), so that what was filled
    in can be judged against what was seen. Pairs of objects that no kernel of `before` sees
    together are marked in the completed ones (white dots; a ruled white veil where there are more
    than 40 objects): their entries are identified only through other objects.

    Parameters
    ----------
    before
        An incomplete stack.
    after
        The completed stack, drawn below; left out, there is one row.
    kernels
        Names of the kernels to draw; all if left out.
    objects
        Labels of the objects to draw, in their order (sorted by class, say); all if left out.
    mark
        Whether to mark those pairs.
    axes
        Axes to draw on, shape (rows, kernels); new ones if left out.
    cmap
        A Matplotlib colour map.

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
    import matplotlib.pyplot as plt

    stacks = [before] if after is None else [before, after]
    known, labels = check_labels(before)
    if after is not None:
        for now, then, what in zip(
            check_labels(after, what="after"), (known, labels), ("kernels", "objects"), strict=True
        ):
            if set(now.tolist()) != set(then.tolist()):
                raise LabelError(
                    f"after: its {what} are not those of `before`. Pass its completion."
                )
    names = chosen_labels(kernels, known, "kernel")
    order = chosen_labels(objects, labels, "object")
    if not names or not order:
        raise LabelError("kernels, objects: there is nothing to draw. Name at least one of each.")
    shape = (len(stacks), len(names))
    if cmap not in mpl.colormaps:
        raise MKMCError(f"cmap: Matplotlib has no colour map {cmap!r}. Pass 'viridis', say.")
    never = np.zeros((0, 0), dtype=bool)
    if mark and after is not None:
        never = never_seen_together(before).sel(object=order, object_bis=order).values
    if axes is None:
        inches = (2.2 * shape[1] + 0.4, 2.3 * shape[0] + 0.2 + 0.5 * bool(never.any()))
        _, axes = plt.subplots(*shape, figsize=inches, layout="constrained", squeeze=False)
    axes = np.asarray(axes, dtype=object)
    if axes.shape != shape:
        raise LabelError(f"axes: shape {axes.shape} found, {shape} (rows, kernels) expected.")
    for ax in axes.flat:
        check_axes(ax, "axes")
    colours = mpl.colormaps[cmap].with_extremes(bad=(0.0, 0.0, 0.0, 0.0))
    for column, name in enumerate(names):
        seen = before.sel(kernel=name, object=order, object_bis=order).values
        seen = seen[np.isfinite(seen)]
        low, high = np.percentile(seen, [1, 99]) if seen.size else (0.0, 1.0)
        drawn: list[NDArray[np.float64]] = []
        for row, stack in enumerate(stacks):
            ax = axes[row, column]
            matrix = stack.sel(kernel=name, object=order, object_bis=order)
            matrix = matrix.transpose("object", "object_bis")
            image = ax.imshow(matrix, cmap=colours, vmin=low, vmax=high, interpolation="nearest")
            hatch_missing(ax)
            drawn.append(matrix.values)
            ax.set_xticks([])
            ax.set_yticks([])
        if never.any():
            _mark(axes[1, column], never, colours, explain=column == 0)
        top = axes[0, column]
        points = 72.0 * top.get_window_extent().width / top.figure.dpi
        size = top.title.get_fontsize()
        top.set_title(wrapped(str(name), points, size=size), parse_math=False)
        ax.figure.colorbar(
            image,
            ax=list(axes[:, column]),
            shrink=0.7,
            location="bottom",
            extend=extend(np.stack(drawn), low, high),
        )
    for row, word in enumerate(["before", "completed"][: len(stacks)]):
        axes[row, 0].set_ylabel(word)
    return axes


def plot_pattern(stack: xr.DataArray, *, ax: "Axes | None" = None) -> "Axes":
    """Draw which objects each kernel shows: a row per kernel, missing objects in grey.

    Parameters
    ----------
    stack
        The incomplete kernels.
    ax
        Where to draw; new axes if left out.

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
    seen = visible_objects(stack)
    ax = axes_or_new(ax)
    ax.imshow(seen, cmap="Greys", vmin=-0.5, vmax=1.5, aspect="auto", interpolation="nearest")
    name_ticks(ax, seen["kernel"].values, axis="y")
    ax.set_xticks([])
    ax.set_xlabel(f"object ({seen.sizes['object']})")
    ax.set_ylabel("kernel")
    share = 1.0 - float(seen.mean())
    ax.set_title(f"visible (dark), missing (light): {100.0 * share:.0f} % missing")
    return ax


def plot_pair_counts(stack: xr.DataArray, *, ax: "Axes | None" = None) -> "Axes":
    """Draw in how many kernels each pair of objects is seen together; pairs never seen in grey.

    Parameters
    ----------
    stack
        The incomplete kernels.
    ax
        Where to draw; new axes if left out.

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
    steps = mpl.colormaps["viridis"].resampled(most).with_extremes(bad=MISSING)
    drawn = np.ma.masked_equal(counts, 0)
    image = ax.imshow(drawn, cmap=steps, vmin=0.5, vmax=most + 0.5, interpolation="nearest")
    ax.figure.colorbar(image, ax=ax, label="kernels that see both", ticks=range(1, most + 1))
    ax.set_xticks([])
    ax.set_yticks([])
    ax.set_xlabel("object")
    ax.set_ylabel("object")
    pairs = counts[np.triu_indices(len(counts), 1)]
    never = float((pairs == 0).mean()) if pairs.size else 0.0
    ax.set_title(f"{100.0 * never:.0f} % of the pairs are seen together by no kernel")
    return ax


def plot_spectra(result: FitResult, *, ax: "Axes | None" = None) -> "Axes":
    """Draw the eigenvalues of the completed kernels and of the model, largest first, log scale.

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
    >>> plots.plot_spectra(fit(stack_kernels(np.eye(3)[None]))).get_yscale()
    'log'
    """
    result = as_result(result)
    ax = axes_or_new(ax)
    names = result.completed["kernel"].values.tolist()
    rank = np.arange(1, result.completed.sizes["object"] + 1)
    entries = []
    spectra = np.linalg.eigvalsh(result.completed.values)
    for i, (name, values) in enumerate(zip(names, spectra, strict=True)):
        # Zero but for rounding is zero: nothing to draw on a log scale.
        zero = len(rank) * np.finfo(np.float64).eps * np.abs(values).max()
        (line,) = ax.plot(
            rank,
            np.where(values > zero, values, np.nan)[::-1],
            color=COLOURS[i % len(COLOURS)],
            linestyle=STYLES[i % len(STYLES)],
        )
        entries.append((str(name), line))
    model = np.linalg.eigvalsh(result.model.matrix)[::-1]
    entries.append(("model", ax.plot(rank, model, color="black", linewidth=2)[0]))
    ax.set_yscale("log")
    ax.set_xlabel("rank")
    ax.set_ylabel("eigenvalue")
    legend(ax, entries)
    return ax


def _mark(ax: "Axes", never: NDArray[np.bool_], colours: "Colormap", *, explain: bool) -> None:
    """Mark the pairs never seen together in a heat map; one artist, however many there are."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    size, words = len(never), "never seen\ntogether"
    key: Line2D | Patch
    if size <= DOTTED:
        limits = ax.get_xlim(), ax.get_ylim()
        points = 72.0 * ax.get_window_extent().width / ax.figure.dpi / size
        # White with a dark rim: seen on the dark and on the light colours of any map.
        look: dict[str, Any] = {
            "markersize": float(np.clip(0.35 * points, 2.0, 6.0)),
            "markeredgewidth": 0.8,
            "markerfacecolor": "white",
            "markeredgecolor": "black",
        }
        rows, columns = np.nonzero(never)
        ax.plot(columns, rows, "o", **look)
        ax.set(xlim=limits[0], ylim=limits[1])
        key = Line2D([], [], linestyle="", marker="o", **look)
    else:
        veil = np.ones((size, size, 4))
        veil[..., 3] = VEIL * never
        # A white veil alone is lost on bright cells: dark lines, as far apart whatever the size.
        place = np.arange(size)
        apart, wide = max(6, size // 16), max(1, size // 150)
        ruled = never & (np.abs(place[:, None] - place) % apart < wide)
        veil[ruled] = (0.0, 0.0, 0.0, 0.7)
        ax.imshow(veil, interpolation="nearest")
        words = "ruled: never\nseen together"
        red, green, blue = ((1.0 - VEIL) * part + VEIL for part in colours(0.5)[:3])
        key = Patch(facecolor=(red, green, blue), edgecolor="0.2", hatch="\\\\\\")
    if explain:
        # Two lines and no wider than the picture: what is wider would push its neighbour away.
        beside: dict[str, Any] = {
            "loc": "upper left",
            "bbox_to_anchor": (0.0, 0.0),
            "borderpad": 0.2,
        }
        legend(ax, [(words, key)], frameon=False, handlelength=1.2, **beside)


def chosen_labels(wanted: Iterable[Hashable] | None, known: Labels, what: str) -> list[Any]:
    """Return the labels that are wanted, all if None; raise where one is not known."""
    if wanted is None:
        return known.tolist()  # type: ignore[no-any-return]
    chosen = as_labels(wanted, f"{what}s").tolist()
    unknown = [label for label in chosen if label not in set(known.tolist())]
    if unknown:
        raise LabelError(f"{what}s: the stack has no {what} {name_some(unknown)}.")
    return chosen  # type: ignore[no-any-return]
