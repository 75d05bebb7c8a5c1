"""The uncertainty of completed kernels as heat maps.

Enters: the tree that `sample_posterior` returns. Leaves: the Matplotlib axes drawn on.
"""

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..errors import LabelError, MKMCError
from ..posterior.run import PosteriorRun
from .axes import check_axes, extend, wrapped
from .kernels import chosen_labels

if TYPE_CHECKING:  # Matplotlib is slow to import: only drawing does
    from matplotlib.axes import Axes


def plot_uncertainty(
    posterior: xr.DataTree,
    *,
    kernels: Iterable[Hashable] | None = None,
    objects: Iterable[Hashable] | None = None,
    axes: NDArray[Any] | None = None,
    cmap: str = "viridis",
    sd_cmap: str = "YlOrBr",
) -> NDArray[Any]:
    r"""Draw completed kernels as heat maps, their posterior means above, how sure below.

    Below is the posterior standard deviation, darker where it is larger, from zero up; visible
    entries are known exactly and left white. Where a kernel that is drawn hides an entry whose
    variance does not exist (``completed_has_variance``), all maps below show half the width of the
    90 % interval, (q95 - q5) / 2, which always exists; the label of the row says which it is.

    Each map has its own colour scale: the mean that of the visible entries, as in `plot_kernels`
    (of all, where these are equal or there are none), the other that of the hidden ones, to the
    99th percentile; arrows at the colour bars tell of entries beyond.

    Parameters
    ----------
    posterior
        What `sample_posterior` returned.
    kernels
        Names of the kernels to draw; all if left out.
    objects
        Labels of the objects to draw, in their order (sorted by class, say); all if left out.
    axes
        Axes to draw on, shape (2, kernels); new ones if left out.
    cmap, sd_cmap
        Matplotlib colour maps for the row above and the row below.

    Returns
    -------
    ndarray of Axes, shape (2, kernels)

    Raises
    ------
    MKMCError
        Where `posterior` is none, or Matplotlib has no such colour map.
    LabelError
        Where there is no such kernel or object, or the axes have another shape.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import plots, sample_posterior, stack_kernels
    >>> stack = stack_kernels(np.stack([np.eye(2)] * 2), visible=[[1, 1], [1, 0]])
    >>> options = dict(degrees_of_freedom=9, strength=2.0, draws=2000, seed=1)
    >>> axes = plots.plot_uncertainty(sample_posterior(stack, **options))
    >>> axes.shape, axes[1, 0].get_ylabel()
    ((2, 2), 'posterior sd\n(white: visible, exact)')
    """
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    stack = PosteriorRun.from_datatree(posterior).stack
    names = chosen_labels(kernels, stack["kernel"].values, "kernel")
    order = chosen_labels(objects, stack["object"].values, "object")
    if not names or not order:
        raise LabelError("kernels, objects: there is nothing to draw. Name at least one of each.")
    for what, wanted in (("cmap", cmap), ("sd_cmap", sd_cmap)):
        if wanted not in mpl.colormaps:
            raise MKMCError(
                f"{what}: Matplotlib has no colour map {wanted!r}. Pass 'viridis', say."
            )
    pick: dict[str, Any] = {"kernel": names, "object": order, "object_bis": order}
    summary = posterior["posterior_summary"].to_dataset().sel(pick)
    visible = stack.sel(pick).values
    hidden = np.isnan(visible)
    what, spread = "posterior sd", summary["completed_sd"].values
    if not summary["completed_has_variance"].values[hidden].all():
        quantiles = summary["completed_quantile"]
        what = "half the 90 % interval"
        spread = 0.5 * (quantiles.sel(quantile=0.95) - quantiles.sel(quantile=0.05)).values
    if axes is None:
        inches = (2.2 * len(names) + 0.4, 5.3)
        _, axes = plt.subplots(2, len(names), figsize=inches, layout="constrained", squeeze=False)
    axes = np.asarray(axes, dtype=object)
    if axes.shape != (2, len(names)):
        raise LabelError(
            f"axes: shape {axes.shape} found, {(2, len(names))} (rows, kernels) expected."
        )
    for ax in axes.flat:
        check_axes(ax, "axes")
    for column, name in enumerate(names):
        mean = summary["completed_mean"].values[column]
        shown = visible[column][~hidden[column]]
        scale = shown if shown.size and np.ptp(shown) > 0.0 else mean
        low, high = np.percentile(scale, [1, 99])
        _heat_map(axes[0, column], mean, low, high, cmap)
        unsure = np.where(hidden[column], spread[column], np.nan)
        some = bool(hidden[column].any())
        most = np.percentile(unsure[hidden[column]], 99) if some else 0.0
        bar = _heat_map(axes[1, column], unsure, 0.0, most if most > 0.0 else 1.0, sd_cmap)
        if not some:
            bar.ax.set_visible(False)  # its place stays: the maps of a row are of one size
            middle = {"ha": "center", "va": "center", "transform": axes[1, column].transAxes}
            axes[1, column].text(0.5, 0.5, "nothing\nis hidden", **middle)
        top = axes[0, column]
        points = 72.0 * top.get_window_extent().width / top.figure.dpi
        size = top.title.get_fontsize()
        top.set_title(wrapped(str(name), points, size=size), parse_math=False)
    axes[0, 0].set_ylabel("posterior mean")
    axes[1, 0].set_ylabel(f"{what}\n(white: visible, exact)")
    return axes


def _heat_map(ax: "Axes", values: NDArray[np.float64], low: float, high: float, cmap: str) -> Any:
    """Draw a matrix, and below it its colour bar, which is returned; NaN is white."""
    import matplotlib as mpl

    colours = mpl.colormaps[cmap].with_extremes(bad="white")
    image = ax.imshow(values, cmap=colours, vmin=low, vmax=high, interpolation="nearest")
    ax.set_xticks([])
    ax.set_yticks([])
    return ax.figure.colorbar(
        image, ax=ax, shrink=0.7, location="bottom", extend=extend(values, low, high)
    )
