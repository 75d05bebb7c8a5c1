"""The paper's three figures: ROC scores by matrix and by ratio, distances by ratio."""

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy import stats

from ..errors import LabelError, MKMCError
from ..plots.axes import COLORS, MARKERS, STYLES, axes_or_new, check_axes, legend, name_ticks
from ..utils.arguments import checked, choice
from .arguments import MODEL, folder_path
from .scores import DISTANCES, METHOD_NAMES, mean_and_sd, method_name, place, score_of

if TYPE_CHECKING:  # Matplotlib is slow to import
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: For print, in inches: two panels are as wide as a page, other figures as a column.
PANEL, HEIGHT, COLUMN = 3.5, 2.9, (3.4, 2.8)
PRINT: Any = {
    "font.size": 8,
    "axes.titlesize": "medium",
    "lines.markersize": 4.5,
    "lines.linewidth": 1.2,
    "errorbar.capsize": 2,
    "pdf.fonttype": 42,  # journals refuse Type 3
    "savefig.dpi": 300,
}

#: Means, and half the lengths of their error bars.
Parts: TypeAlias = tuple[xr.DataArray, xr.DataArray]
#: The error bars of methods, by the names of the methods.
Entries: TypeAlias = list[tuple[str, Any]]
#: The error bars, as the axis describes them.
BARS = {
    "se": "mean ± standard error",
    "ci": "mean and 95% t interval",
    "sd": "mean ± standard deviation",
}


@checked(bars=choice(*BARS))
def plot_roc_by_matrix(
    study: xr.Dataset, *, ratio: float = 0.5, bars: str = "se", axes: Any = None
) -> NDArray[Any]:
    """Draw the ROC score of every kernel and of the model at one ratio, by method.

    The paper's first figure, one panel per training size. The scores are points rather than bars,
    because ROC scores do not start at 0.

    Parameters
    ----------
    study
        What `run_study` returns.
    ratio
        The ratio of missing rows, one of the study's.
    bars
        The error bars, over the repetitions: ``"se"``, the standard error of the mean, ``"ci"``,
        its 95% t interval, or ``"sd"``, the standard deviation. All methods see the same removals
        and splits, so differences are known better than the bars suggest (`compare_methods`).
    axes
        Axes to draw on, one per training size; by default those of a new figure.

    Returns
    -------
    ndarray of Axes, one per training size

    Raises
    ------
    MKMCError
        If `study` is not a study, or `bars` or `axes` cannot be used.
    LabelError
        If the study does not have the ratio.

    Examples
    --------
    >>> import numpy as np
    >>> import xarray as xr
    >>> from mkmc_prob.experiments.figures import plot_roc_by_matrix
    >>> roc = [[[0.80, 0.76], [0.84, 0.79]], [[0.82, 0.77], [0.85, 0.80]]]
    >>> study = xr.Dataset(
    ...     {"roc": (["repetition", "matrix", "completion"], roc)},
    ...     {"matrix": ["text", "model"], "completion": ["mkmc", "zero"]},
    ... ).expand_dims(ratio=[0.5], train_size=[50, 100])
    >>> [ax.get_title() for ax in plot_roc_by_matrix(study)]
    ['50 training objects', '100 training objects']
    """
    import matplotlib.pyplot as plt

    values = score_of(study, "roc")
    values = values.isel(ratio=place(values, "ratio", ratio))
    sizes = values["train_size"].values.tolist()
    if axes is None:
        figure = plt.figure(figsize=(PANEL * len(sizes), HEIGHT), layout="constrained")
        axes = figure.subplots(1, len(sizes), sharey=True)
    axes = np.atleast_1d(np.asarray(axes, dtype=object))
    if axes.shape != (len(sizes),):
        raise LabelError(
            f"axes: shape {axes.shape} found, ({len(sizes)},) expected: one for each of {sizes}."
        )
    for ax in axes:
        check_axes(ax, "axes")
    names = values["matrix"].values.tolist()
    step = min(0.2, 0.8 / values.sizes["completion"])
    for ax, size in zip(axes, sizes, strict=True):
        parts = mean_and_width(values.sel(train_size=size), bars)
        entries = draw_methods(ax, study, parts, np.arange(len(names)), step, linestyle="none")
        for i, name in enumerate(names[1:]):
            color = "0.4" if name == MODEL else "0.9"  # the model combines the kernels
            ax.axvline(i + 0.5, color=color, linewidth=0.8, zorder=0)
        ax.set_xlim(-0.5, len(names) - 0.5)
        matrix_ticks(ax, names)
        ax.set_title(f"{size} training objects", fontsize="medium")
        ax.set_xlabel(f"matrix ({100 * float(values['ratio']):g}% of rows missing)")
        if ax is axes[0] or not ax.get_shared_y_axes().joined(ax, axes[0]):
            ax.set_ylabel(with_bars("ROC score", bars, values))
    explain(axes.tolist(), entries)
    return np.asarray(axes)


@checked(bars=choice(*BARS))
def plot_roc_by_ratio(
    study: xr.Dataset,
    *,
    matrix: str = "model",
    train_size: int | None = None,
    bars: str = "se",
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw the ROC score against the ratio of missing rows, by method.

    The paper's second figure. At each ratio the methods are shifted slightly, so that their error
    bars do not overlap.

    Parameters
    ----------
    study
        What `run_study` returns.
    matrix
        ``"model"`` or a kernel's name.
    train_size
        One of the study's; by default the smallest.
    bars
        As for `plot_roc_by_matrix`.
    ax
        Axes to draw on; by default those of a new figure.

    Returns
    -------
    Axes

    Raises
    ------
    MKMCError
        If `study` is not a study, or `bars` or `ax` cannot be used.
    LabelError
        If the study does not have the matrix or the training size.

    Examples
    --------
    >>> import numpy as np
    >>> import xarray as xr
    >>> from mkmc_prob.experiments.figures import plot_roc_by_ratio
    >>> roc = [[[0.80, 0.76], [0.74, 0.69]], [[0.82, 0.77], [0.75, 0.70]]]
    >>> study = xr.Dataset(
    ...     {"roc": (["repetition", "ratio", "completion"], roc)},
    ...     {"ratio": [0.1, 0.5], "completion": ["mkmc", "zero"]},
    ... ).expand_dims(matrix=["model"], train_size=[50, 100])
    >>> plot_roc_by_ratio(study).get_title()
    'model, 50 training objects'
    """
    values = score_of(study, "roc")
    values = values.isel(matrix=place(values, "matrix", matrix))
    sizes = values["train_size"].values
    size = sizes.min() if train_size is None else train_size
    values = values.isel(train_size=place(values, "train_size", size))
    ax = _draw_by_ratio(study, values, "ROC score", bars, axes_or_new(ax))
    title = f"{values['matrix'].item()}, {values['train_size'].item()} training objects"
    ax.set_title(title, parse_math=False, fontsize="medium")
    return ax


@checked(score=choice(*DISTANCES), bars=choice(*BARS))
def plot_distance_by_ratio(
    study: xr.Dataset,
    *,
    score: str = "correlation_matrix_distance",
    bars: str = "se",
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw the distance of the completed kernels from the true ones against the ratio, by method.

    The paper's third figure: the mean over the kernels with missing rows. At ratio 0 there are
    none, and nothing is drawn.

    Parameters
    ----------
    study
        What `run_study` returns.
    score
        ``"correlation_matrix_distance"`` (the paper's) or ``"relative_error"``.
    bars
        As for `plot_roc_by_matrix`.
    ax
        Axes to draw on; by default those of a new figure.

    Returns
    -------
    Axes

    Raises
    ------
    MKMCError
        If `study` is not a study, or `score`, `bars` or `ax` cannot be used.

    Examples
    --------
    >>> import numpy as np
    >>> import xarray as xr
    >>> from mkmc_prob.experiments.figures import plot_distance_by_ratio
    >>> distance = [[[0.02, 0.03], [0.13, 0.15]], [[0.02, 0.04], [0.12, 0.14]]]
    >>> study = xr.Dataset(
    ...     {"correlation_matrix_distance": (["repetition", "ratio", "completion"], distance)},
    ...     {"ratio": [0.1, 0.5], "completion": ["mkmc", "zero"]},
    ... ).expand_dims(kernel=["text"])
    >>> plot_distance_by_ratio(study).get_xlabel()
    'ratio of missing rows'
    """
    values = score_of(study, score).mean("kernel")
    return _draw_by_ratio(study, values, score.replace("_", " "), bars, axes_or_new(ax))


def file_formats(value: Any, what: str) -> list[str]:
    """Check the names of formats in which Matplotlib writes figures."""
    from matplotlib.figure import Figure

    known = choice(*sorted(Figure().canvas.get_supported_filetypes()))
    given = [value] if isinstance(value, str) or not isinstance(value, Iterable) else value
    return [known(ending, what) for ending in given]


@checked(folder=folder_path, formats=file_formats, bars=choice(*BARS))
def save_figures(
    study: xr.Dataset,
    folder: str | os.PathLike[str],
    *,
    formats: Iterable[str] = ("pdf", "png"),
    ratio: float = 0.5,
    bars: str = "se",
) -> list[Path]:
    """Write the paper's three figures, sized for print, and return their paths.

    ``roc_by_matrix`` is as wide as a page; ``roc_by_ratio`` (of the model, smallest training size)
    and ``distance_by_ratio`` are as wide as a column.

    Parameters
    ----------
    study
        What `run_study` returns.
    folder
        The folder to write to, made if it does not exist. Files of these names are replaced.
    formats
        File endings: ``"pdf"``, ``"svg"``, ``"png"`` (300 dots per inch), ...
    ratio
        The ratio of the first figure.
    bars
        As for `plot_roc_by_matrix`.

    Returns
    -------
    list of Path
        Three per format.

    Raises
    ------
    MKMCError
        If `study` is not a study, `bars` cannot be used, or Matplotlib does not write a format.
    LabelError
        If the study does not have the ratio.

    Examples
    --------
    >>> import tempfile
    >>> import xarray as xr
    >>> from mkmc_prob.experiments.figures import save_figures
    >>> roc = [[[0.80, 0.76], [0.74, 0.69]], [[0.82, 0.77], [0.75, 0.70]]]
    >>> roc = xr.DataArray(roc, dims=["repetition", "ratio", "completion"]).assign_coords(
    ...     ratio=[0.1, 0.5], completion=["mkmc", "zero"]
    ... )
    >>> study = xr.Dataset(
    ...     {
    ...         "roc": roc.expand_dims(matrix=["model"], train_size=[50, 100]),
    ...         "correlation_matrix_distance": (1 - roc).expand_dims(kernel=["text"]),
    ...     }
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path.name for path in save_figures(study, folder, formats=["png"])]
    ['roc_by_matrix.png', 'roc_by_ratio.png', 'distance_by_ratio.png']
    """
    return write_figures(FIGURES, study, Path(folder), formats=formats, ratio=ratio, bars=bars)


#: The paper's figures by the names of their files.
FIGURES: dict[str, Callable[..., Any]] = {
    "roc_by_matrix": lambda study, ratio, **bars: plot_roc_by_matrix(study, ratio=ratio, **bars)[0],
    "roc_by_ratio": lambda study, ratio, **bars: plot_roc_by_ratio(study, **bars),
    "distance_by_ratio": lambda study, ratio, **bars: plot_distance_by_ratio(study, **bars),
}


def write_figures(
    names: Iterable[str], study: xr.Dataset, folder: Path, *, formats: Iterable[str], **options: Any
) -> list[Path]:
    """Write some of `FIGURES`; see `save_figures`."""
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    drawn: dict[Path, Figure] = {}
    with mpl.rc_context(PRINT | {"figure.figsize": COLUMN}), ExitStack() as stack:
        for name in names:
            figure = FIGURES[name](study, **options).figure
            stack.callback(plt.close, figure)
            drawn |= {folder / f"{name}.{ending}": figure for ending in formats}
        folder.mkdir(parents=True, exist_ok=True)
        for path, figure in drawn.items():
            # Without a date the same study writes the same file.
            metadata = {"CreationDate": None} if path.suffix == ".pdf" else None
            try:
                figure.savefig(path, metadata=metadata)
            except Exception as error:  # some formats need other programs
                raise MKMCError(
                    f"formats: {path} could not be written ({type(error).__name__}: {error}). "
                    "Choose another format or folder."
                ) from error
    return list(drawn)


def _draw_by_ratio(
    study: xr.Dataset, values: xr.DataArray, what: str, bars: str, ax: "Axes"
) -> "Axes":
    """Draw a line with error bars per method over the ratios."""
    ratios = values["ratio"].values.astype(float)
    gap = float(np.diff(np.sort(ratios)).min()) if len(ratios) > 1 else 0.1
    step = min(0.1, 0.5 / values.sizes["completion"]) * gap
    mean, width = mean_and_width(values, bars)
    entries = draw_methods(ax, study, (mean, width), ratios, step)
    at = ratios[mean.notnull().any("completion").values]
    if len(at) <= 12:
        ax.set_xticks(at, [f"{ratio:g}" for ratio in at])
    ax.set_xlabel("ratio of missing rows")
    ax.set_ylabel(with_bars(what, bars, values))
    explain([ax], entries)
    return ax


def mean_and_width(values: xr.DataArray, bars: str) -> Parts:
    """Return the mean over the repetitions and half the length of its error bars."""
    mean, sd = mean_and_sd(values)
    n = values.count("repetition").where(lambda count: count > 1)
    error = sd if bars == "sd" else sd / n**0.5
    return mean, error * xr.apply_ufunc(stats.t.ppf, 0.975, n - 1) if bars == "ci" else error


def with_bars(what: str, bars: str, values: xr.DataArray) -> str:
    """Return the label of an axis with what its error bars are, if there are any."""
    return f"{what}\n({BARS[bars]})" if values.sizes["repetition"] > 1 else what


def draw_methods(
    ax: "Axes", study: xr.Dataset, parts: Parts, at: Any, step: float, **style: Any
) -> Entries:
    """Draw means and error bars around the places `at`, the methods `step` apart.

    Built-in methods have the same color, marker and line in every study.
    """
    from matplotlib import rcParams

    methods, entries = parts[0]["completion"].values.tolist(), []
    order = list(dict.fromkeys([*METHOD_NAMES, *methods]))
    cycles: dict[str, Sequence[Any]] = {"color": COLORS, "marker": MARKERS, "linestyle": STYLES}
    for i, method in enumerate(methods):
        k = order.index(method)
        look = {key: values[k % len(values)] for key, values in cycles.items()} | style
        x = at + step * (i - (len(methods) - 1) / 2)
        y, error = (part.sel(completion=method).values for part in parts)
        size = 0.75 * rcParams["lines.markersize"]
        drawn = ax.errorbar(x, y, yerr=error, markersize=size, **look)
        entries.append((method_name(study, method), drawn))
    return entries


def explain(axes: "list[Axes]", entries: Entries) -> None:
    """Draw the legend above `axes` that are a whole figure, else at the top of the first of them.

    Above the axes it needs Matplotlib's constrained layout, which new figures have. In axes, the
    y-axis is extended to make room.
    """
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    ax = axes[0]
    figure: Any = ax.get_figure(root=True)
    constrained = isinstance(figure.get_layout_engine(), ConstrainedLayoutEngine)
    if constrained and set(figure.axes) == set(axes):
        columns = _columns(entries, 72.0 * figure.get_figwidth())
        legend(figure, entries, loc="outside upper center", ncols=columns, frameon=False)
        return
    columns = _columns(entries, 72.0 * ax.bbox.width / figure.dpi)
    legend(ax, entries, loc="upper center", ncols=columns, fontsize="small")
    figure.draw_without_rendering()  # only now the size of the legend is known
    box: Any = ax.get_legend()
    share = min(1.15 * box.get_window_extent().height / ax.bbox.height + 0.02, 0.8)
    low, high = ax.get_ylim()
    ax.set_ylim(low, low + (high - low) / (1.0 - share))


def _columns(entries: Entries, points: float) -> int:
    """Return how many columns of a legend of `entries` fit into a width in points."""
    from matplotlib import rcParams
    from matplotlib.font_manager import FontProperties

    size = FontProperties(size=rcParams["legend.fontsize"]).get_size_in_points()
    # A letter is about 0.55 of the font's size wide, marker and gaps together about 5 of it.
    widths = [size * (0.55 * len(name) + 5.0) for name, _ in entries]
    for rows in range(1, len(entries)):
        columns = [widths[i : i + rows] for i in range(0, len(widths), rows)]
        if sum(map(max, columns)) <= points:
            return len(columns)
    return 1


def matrix_ticks(ax: "Axes", names: list[str]) -> None:
    """Label the matrices, at an angle if the names do not fit side by side."""
    name_ticks(ax, names, axis="x")
    figure: Any = ax.get_figure(root=True)
    slot = 72.0 * ax.bbox.width / figure.dpi / len(names)
    for text in ax.get_xticklabels():
        if max(map(len, names)) * 0.6 * float(text.get_fontsize()) > slot:
            text.set(rotation=30, ha="right", rotation_mode="anchor")
