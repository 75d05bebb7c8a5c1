"""Plot of a calibration: how intervals of held-out entries cover, by their nominal level."""

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import xarray as xr

from ..errors import MKMCError
from ..utils.arguments import checked
from .axes import COLORS, MARKERS, axes_or_new

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@runtime_checkable
class Covered(Protocol):
    """The attribute of `Calibration` that is drawn, as documented there."""

    @property
    def coverage(self) -> xr.DataArray:
        """Coverage by kernel and level."""


def as_covered(given: Any, what: str) -> Covered:
    """Return `given` if it is what `calibrate` returns; raise MKMCError otherwise."""
    if not isinstance(given, Covered):
        raise MKMCError(
            f"{what}: {type(given).__name__} found; pass the Calibration that calibrate(stack) "
            "returns, or result.calibration."
        )
    return given


@checked(calibration=as_covered)
def plot_coverage(calibration: Covered, *, ax: "Axes | None" = None) -> "Axes":
    """Draw the coverage of held-out entries against the nominal level of the intervals.

    Points on the diagonal are calibrated; above it, intervals are too wide. A kernel that could not
    be tested has no points.

    Parameters
    ----------
    calibration
        What `calibrate` returned, or ``result.calibration``.
    ax
        Axes to draw on; new ones if omitted.

    Returns
    -------
    Axes

    Raises
    ------
    MKMCError
        If no kernel could be tested.

    Examples
    --------
    >>> from mkmc_prob import calibrate, datasets, plots, remove_objects
    >>> kernels, _ = datasets.make_fusion_problem(30, 3)
    >>> calibration = calibrate(remove_objects(kernels, 0.3, seed=0))
    >>> plots.plot_coverage(calibration).get_xlabel()
    'nominal level of the intervals'
    """
    coverage = calibration.coverage.dropna("kernel", how="all")
    if not coverage.sizes["kernel"]:
        raise MKMCError("calibration: no kernel could be tested, so there is nothing to draw.")
    ax = axes_or_new(ax)
    ends = [0.4, 1.0]
    ax.plot(ends, ends, color="gray", linestyle=":", label="calibrated")
    levels = coverage["level"].values
    for i, name in enumerate(coverage["kernel"].values.tolist()):
        style: dict[str, Any] = {
            "color": COLORS[i % len(COLORS)],
            "marker": MARKERS[i % len(MARKERS)],
        }
        ax.plot(levels, coverage.sel(kernel=name).values, label=str(name), **style)
    ax.set(
        xlabel="nominal level of the intervals",
        ylabel="share of held-out entries inside",
        xlim=ends,
        ylim=(min(0.4, 0.95 * float(np.nanmin(coverage.values))), 1.02),
    )
    ax.legend()
    return ax
