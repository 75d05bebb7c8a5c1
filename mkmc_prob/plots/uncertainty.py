"""Heat maps of the uncertainty of completed kernels."""

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..errors import LabelError
from ..posterior.run import PosteriorRun
from ..utils.arguments import checked
from .axes import extend, panel_title, panels
from .kernels import chosen_labels, colormap

if TYPE_CHECKING:  # Matplotlib is slow to import: only drawing does
    from matplotlib.axes import Axes


@checked(cmap=colormap, sd_cmap=colormap)
def plot_uncertainty(
    posterior: xr.DataTree,
    *,
    kernels: Iterable[Hashable] | None = None,
    objects: Iterable[Hashable] | None = None,
    axes: NDArray[Any] | None = None,
    cmap: str = "viridis",
    sd_cmap: str = "YlOrBr",
) -> NDArray[Any]:
    r"""Draw completed kernels as heat maps: posterior means above, their uncertainty below.

    The uncertainty is the posterior standard deviation, darker if larger, on a scale from zero;
    visible entries are known exactly and left white. If a kernel that is drawn hides an entry
    without a variance (``completed_has_variance``), all maps below show half the width of the 90 %
    interval instead, (q95 - q5) / 2, which always exists; the label of the row says which it is.

    Each map has its own color scale: that of the mean covers the visible entries, as in
    `plot_kernels` (all entries, if the visible ones are equal or there are none), the other the
    hidden ones, to the 99th percentile; arrows at the color bars mark entries beyond.

    Parameters
    ----------
    posterior
        What `sample_posterior` returned.
    kernels
        Names of the kernels to draw; all if omitted.
    objects
        Labels of the objects to draw, in this order (sorted by class, for instance); all if
        omitted.
    axes
        Axes to draw on, shape (2, kernels); new ones if omitted.
    cmap, sd_cmap
        Matplotlib color maps for the upper and the lower row.

    Returns
    -------
    ndarray of Axes, shape (2, kernels)

    Raises
    ------
    MKMCError
        If `posterior` is not a posterior, or Matplotlib has no such color map.
    LabelError
        If there is no such kernel or object, or the axes have another shape.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import plots, sample_posterior, stack_kernels
    >>> stack = stack_kernels(np.stack([np.eye(2)] * 2), visible=[[1, 1], [1, 0]])
    >>> options = dict(degrees_of_freedom=9, strength=10.0, draws=300, tune=100, seed=1)
    >>> axes = plots.plot_uncertainty(sample_posterior(stack, **options))
    >>> axes.shape, axes[1, 0].get_ylabel()
    ((2, 2), 'posterior sd\n(white: visible, exact)')
    """
    stack = PosteriorRun.from_datatree(posterior).stack
    names = chosen_labels(kernels, stack["kernel"].values, "kernel")
    order = chosen_labels(objects, stack["object"].values, "object")
    if not names or not order:
        raise LabelError("kernels, objects: there is nothing to draw. Name at least one of each.")
    pick: dict[str, Any] = {"kernel": names, "object": order, "object_bis": order}
    summary = posterior["posterior_summary"].to_dataset().sel(pick)
    visible = stack.sel(pick).notnull()
    what, spread = "posterior sd", summary["completed_sd"]
    if not (visible | summary["completed_has_variance"]).all():
        what, quantiles = "half the 90 % interval", summary["completed_quantile"]
        spread = 0.5 * (quantiles.sel(quantile=0.95) - quantiles.sel(quantile=0.05))
    spread = spread.where(~visible)
    axes = panels(axes, (2, len(names)), (2.2 * len(names) + 0.4, 5.3))
    for (top, bottom), name in zip(axes.T, names, strict=True):
        mean, unsure = (
            each.sel(kernel=name).values for each in (summary["completed_mean"], spread)
        )
        hidden = np.isfinite(unsure)
        scale = mean[~hidden] if not hidden.all() and np.ptp(mean[~hidden]) > 0.0 else mean
        low, high = np.percentile(scale, [1, 99])
        _heat_map(top, mean, low, high, cmap)
        most = np.percentile(unsure[hidden], 99) if hidden.any() else 0.0
        bar = _heat_map(bottom, unsure, 0.0, most if most > 0.0 else 1.0, sd_cmap)
        if not hidden.any():
            bar.ax.set_visible(False)  # its place stays: the maps of a row have one size
            middle = {"ha": "center", "va": "center", "transform": bottom.transAxes}
            bottom.text(0.5, 0.5, "nothing\nis hidden", **middle)
        panel_title(top, name)
    axes[0, 0].set_ylabel("posterior mean")
    axes[1, 0].set_ylabel(f"{what}\n(white: visible, exact)")
    return axes


def _heat_map(ax: "Axes", values: NDArray[np.float64], low: float, high: float, cmap: str) -> Any:
    """Draw a matrix, NaN in white, and below it its color bar, which is returned."""
    import matplotlib as mpl

    colors = mpl.colormaps[cmap].with_extremes(bad="white")
    image = ax.imshow(values, cmap=colors, vmin=low, vmax=high, interpolation="nearest")
    ax.set_xticks([])
    ax.set_yticks([])
    return ax.figure.colorbar(
        image, ax=ax, shrink=0.7, location="bottom", extend=extend(values, low, high)
    )
