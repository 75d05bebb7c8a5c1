"""Plots of single entries of a posterior: their intervals, and EM's estimate among their draws."""

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..diagnostics.protocol import FitResult, as_result
from ..errors import KernelError, LabelError
from ..posterior.run import PosteriorRun
from ..utils.arguments import checked, real
from .axes import COLORS, check_axes, legend, name_ticks
from .drawn import drawn_entries, names_of, points_of

if TYPE_CHECKING:  # Matplotlib is slow to import: only drawing does
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


#: The number of entries that are drawn if none is named: rows of intervals, panels of histograms.
ROWS, PANELS = 20, 6
#: Names next to intervals have two lines of so many letters, and rows so many inches.
NAME_WIDTH, ROW_INCHES = 27, 0.27
#: Histograms show the draws between these quantiles, since tails can be very long.
VIEW = (0.005, 0.995)
BINS = 30
#: The color of entries that the prior alone determines.
ALONE = "0.45"
#: EM's estimate and the truth, as marks on intervals and as lines in histograms (EM's is a broad
#: one, on which those of the mean and the median are still visible).
MARKS: dict[str, dict[str, Any]] = {
    "estimate": {"marker": "D", "color": COLORS[5], "ms": 5, "ls": ""},
    "truth": {"marker": "x", "color": "black", "ms": 7, "mew": 1.4, "ls": ""},
}
LINES: dict[str, dict[str, Any]] = {
    "estimate": {"color": COLORS[5], "linewidth": 4, "zorder": 1.5},
    "truth": {"color": "black", "linewidth": 2, "linestyle": ":"},
}


@checked(probability=real(lambda share: 0.5 < share < 1.0, "a number above 0.5 and below 1"))
def plot_intervals(
    posterior: xr.DataTree,
    entries: Iterable[tuple[Any, ...]] | None = None,
    *,
    kernel: Hashable | None = None,
    probability: float = 0.9,
    estimate: FitResult | None = None,
    truth: xr.DataArray | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw posterior intervals of entries, one per row: median, central 50 % and a wider one.

    Intervals are equal-tailed quantiles of the draws: of all draws if the entry is kept in full,
    otherwise of those in ``thinned_posterior``. Entries that the prior alone determines are gray,
    with a hollow dot.

    Parameters
    ----------
    posterior
        What `sample_posterior` returned.
    entries
        ``(object, object)`` for the model's, ``(kernel, object, object)`` for a kernel's, in the
        order of the rows; an entry named twice is drawn once. If omitted: at most 20 hidden
        entries, evenly spread over those kept in full (over all, if none is).
    kernel
        Select from this kernel's entries only.
    probability
        Of the wider interval, above 0.5 and below 1.
    estimate
        A fit of the same stack, whose values are drawn as diamonds. If the fit has the same prior,
        sources and degrees of freedom, they are the mode of this posterior (of the precision, up to
        the prior of the constants) and the expected kernels there; otherwise the legend says so.
    truth
        The complete stack, if it is known, drawn as crosses. It has no value for entries of the
        model.
    ax
        Axes to draw on; new ones, as high as the rows need, if omitted.

    Returns
    -------
    Axes

    Raises
    ------
    MKMCError
        If `posterior` is not a posterior, or there is nothing to draw.
    KernelError
        If an entry is visible, or an argument cannot be used.
    LabelError
        If there is no such kernel or object, or `estimate` or `truth` has others.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import fit, plots, sample_posterior, stack_kernels
    >>> stack = stack_kernels(np.stack([np.eye(2)] * 2), visible=[[1, 1], [1, 0]])
    >>> options = dict(degrees_of_freedom=9, strength=10.0, sources="identical")
    >>> posterior = sample_posterior(stack, draws=300, tune=100, seed=1, **options)
    >>> ax = plots.plot_intervals(posterior, estimate=fit(stack, **options))
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['Q2: 1, 0', 'Q2: 1, 1']
    """
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D
    from matplotlib.transforms import ScaledTranslation

    run = PosteriorRun.from_datatree(posterior)
    drawn = drawn_entries(run, entries, kernel, ROWS)
    points = points_of(run, drawn, estimate, truth)
    names = names_of(run, drawn, NAME_WIDTH)
    figure = None
    if ax is None:
        row = ROW_INCHES * (1.4 if any("\n" in name for name in names) else 1.0)
        inches = (6.4, max(2.2, row * len(drawn) + 1.3))
        figure, ax = plt.subplots(figsize=inches, layout="constrained")
    ax = check_axes(ax, "ax")
    place = np.arange(len(drawn))
    levels = [(1 - probability) / 2, 0.25, 0.5, 0.75, (1 + probability) / 2]
    quantiles = np.array([np.quantile(entry.draws, levels) for entry in drawn])
    alone = np.array([entry.alone for entry in drawn])
    words: dict[str, Artist] = {}
    for rows, color, face, edge, who in (
        (~alone, COLORS[0], COLORS[0], "white", ""),
        (alone, ALONE, "white", ALONE, "the prior alone"),
    ):
        if not rows.any():
            continue
        low, first, median, third, high = quantiles[rows].T
        line: dict[str, Any] = {"color": color, "solid_capstyle": "butt"}  # as long as the interval
        ax.plot((low, high), [place[rows]] * 2, linewidth=1.3, **line)
        ax.plot((first, third), [place[rows]] * 2, linewidth=4.5, **line)
        dot: dict[str, Any] = {"markersize": 7, "markerfacecolor": face, "markeredgecolor": edge}
        ax.plot(median, place[rows], "o", zorder=3, **dot)
        both = Line2D([], [], color=color, linewidth=4.5, marker="o", **dot)
        if words:  # the legend explains the lines already
            words[who] = both
            continue
        words[f"{who}{': ' if who else ''}median, central 50 %"] = both
        words[f"central {100 * probability:g} %"] = Line2D([], [], color=color, linewidth=1.3)
    under = ax.transData + ScaledTranslation(0.0, -6 / 72, ax.figure.dpi_scale_trans)
    for point in points:
        (words[point.name],) = ax.plot(point.values, place, zorder=4, **MARKS[point.what])
        if point.what == "estimate":
            words[point.name].set_transform(under)  # on the line it would cover the median
    left, right = ax.get_xlim()
    if left < 0.0 < right:
        ax.axvline(0.0, color="0.8", linewidth=1, zorder=0)
    ax.set_ylim(len(drawn) - 0.4, -0.6)
    name_ticks(ax, names, axis="y")
    ax.set(xlabel="value of the entry", ylabel="entry")
    _legend(figure, ax, words, size=None, loc="outside upper center", ncols=2)
    return ax


@checked(probability=real(lambda share: 0.0 < share < 1.0, "a number above 0 and below 1"))
def plot_estimate_on_posterior(
    posterior: xr.DataTree,
    result: FitResult,
    *,
    entries: Iterable[tuple[Any, ...]] | None = None,
    kernel: Hashable | None = None,
    probability: float = 0.9,
    truth: xr.DataArray | None = None,
    axes: Any = None,
) -> NDArray[Any]:
    """Draw EM's estimate on the posterior of a few entries: histograms of their draws.

    The posterior mean and median are marked, and the central interval is shaded. Below each panel
    is the share of the draws that are less than the estimate. The view ends at the draws' 0.5 and
    99.5 % quantiles, or at the estimate and the truth if they lie beyond.

    EM ends in the mode of the posterior of the precision, up to the prior of the constants, and
    completes the kernels by their expectation there. Posteriors of variances are skewed: it is no
    fault if the estimate differs from the mean and the median; if it lies outside the interval,
    look for the reason.

    Parameters
    ----------
    posterior
        What `sample_posterior` returned.
    result
        A fit of the same stack. If its prior, sources or degrees of freedom are not those of the
        posterior, it is not the mode, and the legend says so.
    entries, kernel, truth
        As in `plot_intervals`; at most 6 entries.
    probability
        Of the shaded interval, between 0 and 1.
    axes
        Axes to draw on, as many as entries; new ones, three per row, if omitted.

    Returns
    -------
    ndarray of Axes, one per entry

    Raises
    ------
    MKMCError
        If `posterior` is not a posterior, `result` not a fit, or there is nothing to draw.
    KernelError
        If an entry is visible, or an argument cannot be used.
    LabelError
        If there is no such kernel or object, `result` or `truth` has others, or there are not as
        many axes as entries.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import fit, plots, sample_posterior, stack_kernels
    >>> stack = stack_kernels(np.stack([np.eye(2)] * 2), visible=[[1, 1], [1, 0]])
    >>> options = dict(degrees_of_freedom=9, strength=10.0, sources="identical")
    >>> posterior = sample_posterior(stack, draws=300, tune=100, seed=1, **options)
    >>> axes = plots.plot_estimate_on_posterior(posterior, fit(stack, **options))
    >>> [ax.get_title() for ax in axes]
    ['Q2: 1, 0', 'Q2: 1, 1']
    """
    import matplotlib.pyplot as plt

    run = PosteriorRun.from_datatree(posterior)
    drawn = drawn_entries(run, entries, kernel, PANELS)
    if len(drawn) > PANELS:
        raise KernelError(
            f"entries: {len(drawn)} found; at most {PANELS} have a panel. "
            "plot_intervals draws more."
        )
    points = points_of(run, drawn, as_result(result), truth)
    figure, columns = None, 1
    if axes is None:
        columns = 2 if len(drawn) == 4 else min(3, len(drawn))
        rows = -(-len(drawn) // columns)
        inches = (max(2.3 * columns + 0.3, 4.0), 2.2 * rows + 0.8)
        figure, axes = plt.subplots(
            rows, columns, figsize=inches, layout="constrained", squeeze=False
        )
        for ax in axes.flat[len(drawn) :]:
            ax.remove()
        axes = axes.flat[: len(drawn)]
    panels: NDArray[Any] = np.asarray(axes, dtype=object).ravel()
    if len(panels) != len(drawn):
        raise LabelError(f"axes: {len(panels)} found, {len(drawn)} expected: one for each entry.")
    for ax in panels:
        check_axes(ax, "axes")
    width = 72.0 * panels[0].get_window_extent().width / panels[0].figure.dpi
    names = names_of(run, drawn, max(8, int(width / 6.2)))  # as `wrapped` does
    words: dict[str, Artist] = {}
    for i, (ax, entry, name) in enumerate(zip(panels, drawn, names, strict=True)):
        words |= _histogram(ax, entry.draws, probability)
        for point in points:
            if np.isfinite(point.values[i]):
                words[point.name] = ax.axvline(point.values[i], **LINES[point.what])
        ax.set_title(name, fontsize=10, parse_math=False)
        below = float((entry.draws < points[0].values[i]).mean())
        why = "\n(the prior alone)" if entry.alone else ""
        ax.set_xlabel(f"{100 * below:.0f} % of the draws below EM{why}", fontsize="small")
        ax.set_yticks([])
        ax.locator_params(axis="x", nbins=4)
    for ax in panels[::columns]:
        ax.set_ylabel("density", fontsize="small")
    options: dict[str, Any] = {"loc": "outside lower center", "ncols": max(2, columns)}
    _legend(figure, panels[0], words, size="small", **options)
    return panels


def _histogram(ax: "Axes", draws: NDArray[np.float64], probability: float) -> dict[str, "Artist"]:
    """Draw a histogram of draws; return what the legend says."""
    low, high = np.quantile(draws, [(1 - probability) / 2, (1 + probability) / 2])
    first, last = np.quantile(draws, VIEW)
    shade = ax.axvspan(low, high, color="0.9", zorder=0)
    bars: Any = ax.hist(draws, BINS, range=(first, last), color=COLORS[4], density=True)[2]
    line: dict[str, Any] = {"color": "black", "linewidth": 1.2}
    return {
        "draws": bars[0],
        f"{100 * probability:g} % interval": shade,
        "posterior mean": ax.axvline(float(draws.mean()), **line),
        "posterior median": ax.axvline(float(np.median(draws)), linestyle="--", **line),
    }


def _legend(
    figure: "Figure | None",
    ax: "Axes",
    words: dict[str, "Artist"],
    size: str | None,
    **outside: Any,
) -> None:
    """Draw a legend above or below all axes of a new figure, or on the axes that were given."""
    if figure is None:
        legend(ax, list(words.items()), fontsize=size)
    else:
        figure.legend([*words.values()], [*words], frameon=False, fontsize="small", **outside)
