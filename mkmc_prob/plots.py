"""Pictures: Matplotlib axes in, Matplotlib axes out.

Enters: a trace or stacks. Leaves: the axes drawn on, so that a person can go on from there.
"""

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from .errors import LabelError
from .kernels import check_labels
from .labels import Labels, as_labels, name_some

if TYPE_CHECKING:  # Matplotlib is slow to import: only drawing does
    from matplotlib.axes import Axes

#: Missing rows and columns: a grey that the colour map does not have.
MISSING = "0.75"


def plot_trace(trace: xr.Dataset, *, ax: "Axes | None" = None, **options: Any) -> "Axes":
    """Draw the penalized log-likelihood against the iteration.

    Parameters
    ----------
    trace
        ``result.trace``.
    ax
        Where to draw; new axes if left out.
    options
        Handed to `Axes.plot`.

    Returns
    -------
    Axes

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import fit, plots, stack_kernels
    >>> result = fit(stack_kernels(np.eye(2)[None]))
    >>> plots.plot_trace(result.trace).get_ylabel()
    'penalized log-likelihood (nats)'
    """
    import matplotlib.pyplot as plt

    if ax is None:
        _, ax = plt.subplots(layout="constrained")
    level = trace["penalized_log_likelihood"]
    few = level.sizes["iteration"] <= 50
    ax.plot(level["iteration"], level, **{"marker": "." if few else None, **options})
    ax.set_xlabel("iteration")
    ax.set_ylabel("penalized log-likelihood (nats)")
    return ax


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


def _chosen(wanted: Iterable[Hashable] | None, known: Labels, what: str) -> list[Any]:
    """Return the labels that are wanted, all if None; raise where one is not known."""
    if wanted is None:
        return known.tolist()  # type: ignore[no-any-return]
    chosen = as_labels(wanted, f"{what}s").tolist()
    unknown = [label for label in chosen if label not in set(known.tolist())]
    if unknown:
        raise LabelError(f"{what}s: the stack has no {what} {name_some(unknown)}.")
    return chosen  # type: ignore[no-any-return]
