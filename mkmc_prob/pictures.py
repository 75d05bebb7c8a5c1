"""The pictures of a result, as its methods.

Enters: a result. Leaves: Matplotlib axes, drawn by `plots`, which is loaded when first needed.
"""

from typing import TYPE_CHECKING, Any, cast

import xarray as xr

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .result import MKMCResult


class Pictures:
    """What an `MKMCResult` can draw of itself."""

    observed: xr.DataArray
    completed: xr.DataArray
    trace: xr.Dataset
    method: str

    @property
    def _result(self) -> "MKMCResult":
        return cast("MKMCResult", self)

    def plot_trace(self, *, ax: "Axes | None" = None) -> "Axes":
        """Draw the penalized log-likelihood by iteration; see `plots.plot_trace`."""
        from . import plots

        return plots.plot_trace(self.trace, ax=ax)

    def plot_kernels(self, **options: Any) -> Any:
        """Draw the kernels before and after completion; see `plots.plot_kernels`."""
        from . import plots

        return plots.plot_kernels(self.observed, self.completed, **options)

    def plot_increments(self, *, ax: "Axes | None" = None) -> "Axes":
        """See `plots.plot_increments`."""
        from . import plots

        return plots.plot_increments(self.trace, ax=ax)

    def plot_rate(
        self, information: xr.Dataset | None = None, *, ax: "Axes | None" = None, **options: Any
    ) -> "Axes":
        """Draw the rate of EM, beside that of the steps where they were EM's.

        See `plots.plot_rate`. What it draws is computed by `missing_information` with `options`,
        unless it is given.
        """
        from . import plots
        from .information import missing_information

        if information is None:
            information = missing_information(self._result, **options)
        trace = self.trace if self.method == "em" else None
        return plots.plot_rate(information, trace=trace, ax=ax)

    def plot_slowest(
        self, information: xr.Dataset | None = None, *, ax: "Axes | None" = None, **options: Any
    ) -> "Axes":
        """Draw which objects take part in EM's slowest direction; see `plots.plot_slowest`.

        What it draws is computed by `missing_information` with `options`, unless it is given.
        """
        from . import plots
        from .information import missing_information

        if information is None:
            information = missing_information(self._result, **options)
        return plots.plot_slowest(information, ax=ax)

    def plot_gain_parts(self, *, ax: "Axes | None" = None) -> "Axes":
        """See `plots.plot_gain_parts`."""
        from . import plots

        return plots.plot_gain_parts(self.trace, ax=ax)

    def plot_pattern(self, *, ax: "Axes | None" = None) -> "Axes":
        """See `plots.plot_pattern`."""
        from . import plots

        return plots.plot_pattern(self.observed, ax=ax)

    def plot_pair_counts(self, *, ax: "Axes | None" = None) -> "Axes":
        """See `plots.plot_pair_counts`."""
        from . import plots

        return plots.plot_pair_counts(self.observed, ax=ax)

    def plot_spectra(self, *, ax: "Axes | None" = None) -> "Axes":
        """See `plots.plot_spectra`."""
        from . import plots

        return plots.plot_spectra(self._result, ax=ax)

    def plot_disagreement(self, *, ax: "Axes | None" = None) -> "Axes":
        """See `plots.plot_disagreement`."""
        from . import plots

        return plots.plot_disagreement(self._result, ax=ax)

    def plot_agreement(self, *, ax: "Axes | None" = None) -> "Axes":
        """See `plots.plot_agreement`."""
        from . import plots

        return plots.plot_agreement(self._result, ax=ax)
