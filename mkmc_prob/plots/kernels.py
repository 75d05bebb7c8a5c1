"""Kernels as pictures: heat maps before and after, what is missing, pairs, spectra.

Enters: stacks or a result. Leaves: the Matplotlib axes drawn on, so that a person can go on.
"""

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..diagnostics import pair_counts
from ..errors import LabelError
from ..kernels import check_labels, visible_objects
from ..labels import Labels, as_labels, name_some
from .axes import axes_or_new

if TYPE_CHECKING:  # Matplotlib is slow to import: only drawing does
    from matplotlib.axes import Axes

    from ..result import MKMCResult

#: Missing rows and columns: a grey that the colour map does not have.
MISSING = "0.75"


def plot_kernels(
    before: xr.DataArray,
    after: xr.DataArray | None = None,
    *,
    kernels: Iterable[Hashable] | None = None,
    objects: Iterable[Hashable] | None = None,
    axes: NDArray[Any] | None = None,
    cmap: str = "viridis",
) -> NDArray[Any]:
    """Draw kernels as heat maps, missing rows and columns in grey; a row above, a row below.

    The two pictures of a kernel share one colour scale, that of its visible entries (their 1st to
    99th percentile), so that what was filled in can be judged against what was seen.

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
            check_labels(after), (known, labels), ("kernels", "objects"), strict=True
        ):
            if set(now.tolist()) != set(then.tolist()):
                raise LabelError(
                    f"after: its {what} are not those of `before`. Pass its completion."
                )
    names = _chosen(kernels, known, "kernel")
    order = _chosen(objects, labels, "object")
    if not names or not order:
        raise LabelError("kernels, objects: there is nothing to draw. Name at least one of each.")
    shape = (len(stacks), len(names))
    if axes is None:
        size = (2.2 * shape[1] + 0.4, 2.3 * shape[0] + 0.2)
        _, axes = plt.subplots(*shape, figsize=size, layout="constrained", squeeze=False)
    axes = np.asarray(axes, dtype=object)
    if axes.shape != shape:
        raise LabelError(f"axes: shape {axes.shape} found, {shape} (rows, kernels) expected.")
    colours = mpl.colormaps[cmap].with_extremes(bad=MISSING)
    for column, name in enumerate(names):
        seen = before.sel(kernel=name, object=order, object_bis=order).values
        seen = seen[np.isfinite(seen)]
        low, high = np.percentile(seen, [1, 99]) if seen.size else (0.0, 1.0)
        for row, stack in enumerate(stacks):
            ax = axes[row, column]
            matrix = stack.sel(kernel=name, object=order, object_bis=order)
            matrix = matrix.transpose("object", "object_bis")
            image = ax.imshow(matrix, cmap=colours, vmin=low, vmax=high, interpolation="nearest")
            ax.set_xticks([])
            ax.set_yticks([])
        axes[0, column].set_title(str(name), parse_math=False)
        ax.figure.colorbar(image, ax=list(axes[:, column]), shrink=0.7, location="bottom")
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
    ax = axes_or_new(ax)
    seen = visible_objects(stack)
    ax.imshow(seen, cmap="Greys", vmin=-0.5, vmax=1.5, aspect="auto", interpolation="nearest")
    ax.set_yticks(range(seen.sizes["kernel"]), [str(k) for k in seen["kernel"].values])
    ax.set_xticks([])
    ax.set_xlabel(f"object ({seen.sizes['object']})")
    ax.set_ylabel("kernel")
    share = 1.0 - float(seen.mean())
    ax.set_title(f"visible (dark), missing (light): {share:.0%} missing")
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
    '33% of the pairs are seen together by no kernel'
    """
    import matplotlib as mpl

    ax = axes_or_new(ax)
    counts = pair_counts(stack).values
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
    ax.set_title(f"{never:.0%} of the pairs are seen together by no kernel")
    return ax


def plot_spectra(result: "MKMCResult", *, ax: "Axes | None" = None) -> "Axes":
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
    ax = axes_or_new(ax)
    names = result.completed["kernel"].values.tolist()
    rank = np.arange(1, result.completed.sizes["object"] + 1)
    for name, values in zip(names, np.linalg.eigvalsh(result.completed.values), strict=True):
        # Zero but for rounding is zero: nothing to draw on a log scale.
        zero = len(rank) * np.finfo(np.float64).eps * np.abs(values).max()
        ax.plot(rank, np.where(values > zero, values, np.nan)[::-1], label=str(name))
    model = np.linalg.eigvalsh(result.model.matrix)[::-1]
    ax.plot(rank, model, color="black", linewidth=2, label="model")
    ax.set_yscale("log")
    ax.set_xlabel("rank")
    ax.set_ylabel("eigenvalue")
    ax.legend()
    return ax


def _chosen(wanted: Iterable[Hashable] | None, known: Labels, what: str) -> list[Any]:
    """Return the labels that are wanted, all if None; raise where one is not known."""
    if wanted is None:
        return known.tolist()  # type: ignore[no-any-return]
    chosen = as_labels(wanted, f"{what}s").tolist()
    unknown = [label for label in chosen if label not in set(known.tolist())]
    if unknown:
        raise LabelError(f"{what}s: the stack has no {what} {name_some(unknown)}.")
    return chosen  # type: ignore[no-any-return]
