"""Entries of a posterior as pictures: their intervals, and EM's estimate among their draws.

Enters: the tree that `sample_posterior` returns, and a fit and the truth to compare. Leaves: the
Matplotlib axes drawn on.
"""

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..diagnostics.fitted import FitResult, as_result
from ..errors import KernelError, LabelError
from ..posterior.run import PosteriorRun
from .axes import COLOURS, check_axes, legend, name_ticks
from .drawn import drawn_entries, names_of, points_of, probability_of

if TYPE_CHECKING:  # Matplotlib is slow to import: only drawing does
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


#: How many entries are drawn where nobody names any: rows of intervals, panels of histograms.
ROWS, PANELS = 20, 6
#: Names beside intervals get two lines of so many letters, and rows so many inches.
NAME_WIDTH, ROW_INCHES = 27, 0.27
#: Histograms show the draws between these quantiles: tails can be so long that nothing else shows.
VIEW = (0.005, 0.995)
BINS = 30
#: Entries that the prior alone determines.
ALONE = "0.45"
#: How EM's estimate and the truth look, as marks beside intervals and as lines in histograms (EM's
#: is a broad one, on which those of the mean and the median still show).
MARKS: dict[str, dict[str, Any]] = {
    "estimate": {"marker": "D", "color": COLOURS[5], "markersize": 5, "linestyle": ""},
    "truth": {
        "marker": "x",
        "color": "black",
        "markersize": 7,
        "markeredgewidth": 1.4,
        "linestyle": "",
    },
}
LINES: dict[str, dict[str, Any]] = {
    "estimate": {"color": COLOURS[5], "linewidth": 4, "zorder": 1.5},
    "truth": {"color": "black", "linewidth": 2, "linestyle": ":"},
}


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
    """Draw posterior intervals of entries, a row for each: median, central 50 %, and wider.

    Intervals are equal-tailed quantiles of the draws: of all draws where the entry is kept in full,
    else of those in ``thinned_posterior``. Entries that the prior alone determines are grey, with a
    hollow dot.

    Parameters
    ----------
    posterior
        What `sample_posterior` returned.
    entries
        ``(object, object)`` for the model's, ``(kernel, object, object)`` for a kernel's, in the
        order of the rows; an entry named twice is drawn once. Left out: at most 20 hidden ones,
        evenly spread over those kept in full (over all, where none is).
    kernel
        Spread them over this kernel's entries only.
    probability
        Of the wider interval, above 0.5 and below 1.
    estimate
        A fit of the same stack: its values are drawn as diamonds. They are the mode of this
        posterior (of the precision) and what follows from it where the fit has the same prior and
        degrees of freedom; the legend says so where it has not.
    truth
        The complete stack, where it is known: crosses. It has none for entries of the model.
    ax
        Where to draw; new axes, as high as the rows need, if left out.

    Returns
    -------
    Axes

    Raises
    ------
    MKMCError
        Where `posterior` is none, or there is nothing to draw.
    KernelError
        Where an entry is visible, or an argument cannot be used.
    LabelError
        Where there is no such kernel or object, or `estimate` or `truth` has others.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import fit, plots, sample_posterior, stack_kernels
    >>> stack = stack_kernels(np.stack([np.eye(2)] * 2), visible=[[1, 1], [1, 0]])
    >>> options = dict(degrees_of_freedom=9, strength=2.0)
    >>> posterior = sample_posterior(stack, draws=2000, seed=1, **options)
    >>> ax = plots.plot_intervals(posterior, estimate=fit(stack, **options))
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['Q2: 1, 0', 'Q2: 1, 1']
    """
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D
    from matplotlib.transforms import ScaledTranslation

    run = PosteriorRun.from_datatree(posterior)
    share = probability_of(probability, above=0.5)
    drawn = drawn_entries(posterior, run, entries, kernel, ROWS)
    points = points_of(run, drawn, estimate, truth)
    names = names_of(run, drawn, NAME_WIDTH)
    figure = None
    if ax is None:
        row = ROW_INCHES * (1.4 if any("\n" in name for name in names) else 1.0)
        inches = (6.4, max(2.2, row * len(drawn) + 1.3))
        figure, ax = plt.subplots(figsize=inches, layout="constrained")
    ax = check_axes(ax, "ax")
    place = np.arange(len(drawn))
    levels = [(1 - share) / 2, 0.25, 0.5, 0.75, (1 + share) / 2]
    quantiles = np.array([np.quantile(entry.draws, levels) for entry in drawn])
    alone = np.array([entry.alone for entry in drawn])
    words: list[tuple[str, Artist]] = []
    for rows, colour, face, edge, who in (
        (~alone, COLOURS[0], COLOURS[0], "white", ""),
        (alone, ALONE, "white", ALONE, "the prior alone"),
    ):
        if not rows.any():
            continue
        low, first, median, third, high = quantiles[rows].T
        for ends, width in (((low, high), 1.3), ((first, third), 4.5)):
            line: dict[str, Any] = {"color": colour, "linewidth": width}
            ax.plot(ends, [place[rows]] * 2, solid_capstyle="butt", **line)  # no longer than it is
        dot: dict[str, Any] = {"markersize": 7, "markerfacecolor": face, "markeredgecolor": edge}
        ax.plot(median, place[rows], "o", zorder=3, **dot)
        both = Line2D([], [], color=colour, linewidth=4.5, marker="o", **dot)
        if words:  # what the lines are was said above
            words.append((who, both))
            continue
        words.append((f"{who}{': ' if who else ''}median, central 50 %", both))
        thin = Line2D([], [], color=colour, linewidth=1.3)
        words.append((f"central {100 * share:g} %", thin))
    under = ax.transData + ScaledTranslation(0.0, -6 / 72, ax.figure.dpi_scale_trans)
    for point in points:
        (mark,) = ax.plot(point.values, place, zorder=4, **MARKS[point.what])
        words.append((point.name, mark))
        if point.what == "estimate":
            mark.set_transform(under)  # on the line it would hide the median
    left, right = ax.get_xlim()
    if left < 0.0 < right:
        ax.axvline(0.0, color="0.8", linewidth=1, zorder=0)
    ax.set_ylim(len(drawn) - 0.4, -0.6)
    name_ticks(ax, names, axis="y")
    ax.set_xlabel("value of the entry")
    ax.set_ylabel("entry")
    if figure is not None:
        _legend_outside(figure, dict(words), where="upper", columns=2)
    else:
        legend(ax, words)
    return ax


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

    With the posterior mean and median, and the central interval shaded. Below each it is said how
    many of the draws are less than the estimate. The view ends at the draws' 0.5 and 99.5 %
    quantiles, or at the estimate and the truth where they lie beyond.

    EM ends in the mode of the posterior of the precision, and completes the kernels by what it
    expects of them there. Posteriors of variances are skewed: that the estimate lies beside the
    mean and the median is no fault of it; that it lies outside the interval asks for a reason.

    Parameters
    ----------
    posterior
        What `sample_posterior` returned.
    result
        A fit of the same stack. Where its prior or degrees of freedom are not those of the
        posterior, it is not its mode, and the legend says so.
    entries, kernel, truth
        As in `plot_intervals`; at most 6 entries.
    probability
        Of the shaded interval, between 0 and 1.
    axes
        Axes to draw on, as many as entries; new ones, three in a row, if left out.

    Returns
    -------
    ndarray of Axes, one for each entry

    Raises
    ------
    MKMCError
        Where `posterior` or `result` is none, or there is nothing to draw.
    KernelError
        Where an entry is visible, or an argument cannot be used.
    LabelError
        Where there is no such kernel or object, or `result` or `truth` has others; where the axes
        are not as many as the entries.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import fit, plots, sample_posterior, stack_kernels
    >>> stack = stack_kernels(np.stack([np.eye(2)] * 2), visible=[[1, 1], [1, 0]])
    >>> options = dict(degrees_of_freedom=9, strength=2.0)
    >>> posterior = sample_posterior(stack, draws=2000, seed=1, **options)
    >>> axes = plots.plot_estimate_on_posterior(posterior, fit(stack, **options))
    >>> [ax.get_title() for ax in axes]
    ['Q2: 1, 0', 'Q2: 1, 1']
    """
    import matplotlib.pyplot as plt

    run = PosteriorRun.from_datatree(posterior)
    share = probability_of(probability, above=0.0)
    drawn = drawn_entries(posterior, run, entries, kernel, PANELS)
    if len(drawn) > PANELS:
        raise KernelError(
            f"entries: {len(drawn)} found; at most {PANELS} have a panel. "
            "plot_intervals draws more."
        )
    points = points_of(run, drawn, as_result(result), truth)
    figure, columns = None, 1
    if axes is None:
        columns = 2 if len(drawn) == 4 else min(3, len(drawn))
        shape = -(-len(drawn) // columns), columns
        inches = (max(2.3 * columns + 0.3, 4.0), 2.2 * shape[0] + 0.8)
        figure, axes = plt.subplots(*shape, figsize=inches, layout="constrained", squeeze=False)
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
        words |= _histogram(ax, entry.draws, share)
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
    if figure is not None:
        _legend_outside(figure, words, where="lower", columns=max(2, columns))
    else:
        legend(panels[0], list(words.items()), fontsize="small")
    return panels


def _histogram(ax: "Axes", draws: NDArray[np.float64], probability: float) -> dict[str, "Artist"]:
    """Draw a histogram of draws; return what the legend says."""
    low, high = np.quantile(draws, [(1 - probability) / 2, (1 + probability) / 2])
    first, last = np.quantile(draws, VIEW)
    shade = ax.axvspan(low, high, color="0.9", zorder=0)
    bars: Any = ax.hist(draws, BINS, range=(first, last), color=COLOURS[4], density=True)[2]
    line: dict[str, Any] = {"color": "black", "linewidth": 1.2}
    return {
        "draws": bars[0],
        f"{100 * probability:g} % interval": shade,
        "posterior mean": ax.axvline(float(draws.mean()), **line),
        "posterior median": ax.axvline(float(np.median(draws)), linestyle="--", **line),
    }


def _legend_outside(
    figure: "Figure", words: dict[str, "Artist"], *, where: str, columns: int
) -> None:
    """Draw a legend above or below all axes of a figure."""
    options: dict[str, Any] = {"loc": f"outside {where} center", "ncols": columns}
    artists, names = list(words.values()), list(words)
    figure.legend(artists, names, frameon=False, fontsize="small", **options)
