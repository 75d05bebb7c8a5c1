"""The study's figures: image comparisons, what is drawn where, files, every error."""

import warnings

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy import stats
from test_comparisons import KERNELS, METHODS, made_study

from mkmc_prob import LabelError, MKMCError
from mkmc_prob.experiments.figures import (
    plot_distance_by_ratio,
    plot_roc_by_matrix,
    plot_roc_by_ratio,
    save_figures,
)

mpl_image = pytest.mark.mpl_image_compare(style="default", remove_text=True, tolerance=5)
BY_RATIO = [plot_roc_by_ratio, plot_distance_by_ratio]


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def study():
    return made_study()


def drawn(ax):
    """Return x, y and the ends of the bars of every method, in order."""
    found = []
    for container in ax.containers:
        line, _, (bars,) = container.lines
        ends = np.array([path.vertices for path in bars.get_paths()])
        found.append((*np.asarray(line.get_xydata()).T, ends[:, :, 1]))
    return found


def names_in(legend):
    return [text.get_text() for text in legend.get_texts()]


# Pictures


@mpl_image
@pytest.mark.parametrize("bars", ["se", "ci"])
def test_plot_roc_by_matrix(study, bars):
    return plot_roc_by_matrix(study, bars=bars)[0].figure


@mpl_image
def test_plot_roc_by_ratio(study):
    return plot_roc_by_ratio(study).figure


@mpl_image
def test_plot_distance_by_ratio(study):
    return plot_distance_by_ratio(study).figure


@mpl_image
def test_figures_of_many_methods_side_by_side():
    many = made_study(
        methods=[*METHODS, "_knn $k$", "soft", "GP", "other", "x"], train_sizes=[200], seed=3
    )
    figure, axes = plt.subplots(1, 3, figsize=(14, 4), layout="constrained")
    plot_roc_by_matrix(many, axes=axes[0], ratio=0.9)
    plot_roc_by_ratio(many, ax=axes[1], matrix="pixels", bars="sd")
    plot_distance_by_ratio(many, ax=axes[2], score="relative_error")
    return figure


# What is drawn


@pytest.mark.parametrize("bars", ["se", "ci", "sd"])
def test_points_are_means_and_bars_what_they_are_said_to_be(study, bars):
    def around(values):
        values = values[~np.isnan(values)]
        if bars == "ci":
            return stats.t.interval(0.95, len(values) - 1, values.mean(), stats.sem(values))
        half = stats.sem(values) if bars == "se" else values.std(ddof=1)
        return values.mean() - half, values.mean() + half

    label = {"se": "± standard error", "ci": "95% t interval", "sd": "± standard deviation"}[bars]
    axes = plot_roc_by_matrix(study, bars=bars, ratio=0.7)
    assert label in axes[0].get_ylabel()
    roc = study["roc"].values[:, 7]  # repetition, method, matrix, train size
    for j, ax in enumerate(axes):
        for i, (_, y, ends) in enumerate(drawn(ax)):
            np.testing.assert_allclose(y, roc[:, i, :, j].mean(axis=0))
            np.testing.assert_allclose(ends, [around(roc[:, i, m, j]) for m in range(7)])
    ax = plot_roc_by_ratio(study, bars=bars, matrix="pixels", train_size=1000)
    assert label in ax.get_ylabel()
    for i, (_, y, ends) in enumerate(drawn(ax)):
        own = study["roc"].values[:, :, i, 3, 1]
        np.testing.assert_allclose(y, own.mean(axis=0))
        np.testing.assert_allclose(ends, [around(own[:, r]) for r in range(10)])
    ax = plot_distance_by_ratio(study, bars=bars)
    assert label in ax.get_ylabel()
    for i, (_, y, ends) in enumerate(drawn(ax)):
        own = np.nanmean(study["correlation_matrix_distance"].values[:, 1:, i], axis=-1)
        np.testing.assert_allclose(y[1:], own.mean(axis=0))
        np.testing.assert_allclose(ends[1:], [around(own[:, r]) for r in range(9)])


def test_nothing_is_drawn_where_nothing_is_missing(study):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ax = plot_distance_by_ratio(study)
        ax.figure.canvas.draw()
    assert all(np.isnan(y[0]) and np.isnan(ends[0]).all() for _, y, ends in drawn(ax))
    assert [text.get_text() for text in ax.get_xticklabels()] == [f"0.{i}" for i in range(1, 10)]
    assert ax.get_xlim()[0] > 0


def test_every_method_stands_by_its_ratio_and_its_matrix(study):
    for ax in (plot(study) for plot in BY_RATIO):
        at = np.array([x for x, _, _ in drawn(ax)])
        np.testing.assert_allclose(at.mean(axis=0), study["ratio"], atol=1e-12)
        assert np.ptp(at, axis=0).max() < 0.05  # of steps of 0.1
        assert (np.diff(at, axis=0) > 0).all()
    for methods in (METHODS, [str(i) for i in range(12)]):
        for ax in plot_roc_by_matrix(made_study(3, methods=methods)):
            at = np.array([x for x, _, _ in drawn(ax)])
            np.testing.assert_allclose(at.mean(axis=0), range(7), atol=1e-12)
            assert np.abs(at - np.arange(7)).max() < 0.45
            assert ax.get_xlim() == (-0.5, 6.5)


def test_panels_say_what_they_show(study):
    axes = plot_roc_by_matrix(study, ratio=0.1 + 0.2)
    assert [ax.get_title() for ax in axes] == ["200 training objects", "1000 training objects"]
    assert [text.get_text() for text in axes[1].get_xticklabels()] == [*KERNELS, "model"]
    assert axes[0].get_xlabel() == "matrix (30% of rows missing)"
    assert axes[0].get_ylim() == axes[1].get_ylim()
    assert axes[0].get_ylim()[0] > 0.5  # points need no zero
    assert axes[1].get_ylabel() == ""
    assert plot_roc_by_ratio(study).get_title() == "model, 200 training objects"
    ax = plot_roc_by_ratio(study.isel(train_size=[1, 0]), matrix="profile", train_size=1000)
    assert ax.get_title() == "profile, 1000 training objects"
    assert plot_roc_by_ratio(study.isel(train_size=[1, 0])).get_title().startswith("model, 200 ")
    ax = plot_distance_by_ratio(study, score="relative_error")
    assert ax.get_ylabel() == "relative error\n(mean ± standard error)"


def test_methods_have_names_and_the_same_looks_in_any_study(study):
    figure = plot_roc_by_ratio(study).figure
    assert names_in(figure.legends[0]) == [
        "MKMC, strength 0.001",
        "MKMC, chosen strength",
        "zero imputation",
        "mean imputation",
    ]

    def looks(ax):
        lines = [container.lines[0] for container in ax.containers]
        return [(line.get_color(), line.get_marker()) for line in lines]

    all_looks = looks(figure.axes[0])
    assert len({colour for colour, _ in all_looks}) == len({mark for _, mark in all_looks}) == 4
    few = study.sel({"completion": ["mean", "mkmc"]})
    few = few.drop_vars("strength").assign_attrs(strength=None)
    ax = plot_distance_by_ratio(few)
    assert looks(ax) == [all_looks[3], all_looks[0]]
    assert names_in(ax.figure.legends[0]) == ["mean imputation", "MKMC"]
    many = made_study(2, methods=[str(i) for i in range(30)])
    assert len(set(looks(plot_roc_by_ratio(many)))) == 30


def test_names_are_drawn_as_they_are():
    kernels = ["$\\frac", "_b", "c" * 40]
    odd = made_study(3, kernels=kernels, methods=["mkmc", "_mine", "$\\alpha"])
    axes = plot_roc_by_matrix(odd)
    assert [text.get_text() for text in axes[0].get_xticklabels()] == [*kernels, "model"]
    assert names_in(axes[0].figure.legends[0])[1:] == ["_mine", "$\\alpha"]
    axes[0].figure.canvas.draw()
    ax = plot_roc_by_ratio(odd, matrix="$\\frac")
    assert ax.get_title().startswith("$\\frac, ")
    ax.figure.canvas.draw()
    # Long names are aslant, short ones are not.
    assert axes[0].get_xticklabels()[0].get_rotation() == 30
    short = plot_roc_by_matrix(made_study(3, kernels=["a", "b"]))
    assert short[0].get_xticklabels()[0].get_rotation() == 0


# Where the legend is


def is_covered(legend, ax):
    """Return whether the legend lies over a point or the end of a bar."""
    ax.figure.canvas.draw()
    box = legend.get_window_extent()
    for x, y, ends in drawn(ax):
        for values in (y, *ends.T):
            if box.count_contains(ax.transData.transform(np.column_stack([x, values]))):
                return True
    return False


@pytest.mark.parametrize("plot", BY_RATIO)
@pytest.mark.parametrize("size", [(6.4, 4.8), (3.4, 2.6)])
def test_the_legend_covers_nothing(study, plot, size):
    with plt.rc_context({"figure.figsize": size, "font.size": 8}):
        ax = plot(study)
        legend = ax.figure.legends[0]
        ax.figure.canvas.draw()
        box = legend.get_window_extent()
        assert box.y0 >= ax.get_window_extent().y1
        assert box.x0 >= 0
        assert box.x1 <= ax.figure.bbox.x1
        _, ax = plt.subplots()  # a place that is given is kept
        before = ax.get_position().bounds
        plot(study, ax=ax)
        assert not ax.figure.legends
        assert not is_covered(ax.get_legend(), ax)
        assert ax.get_position().bounds == before


def test_room_is_made_where_the_legend_would_cover_points(study):
    flat = study.copy(deep=True)
    flat["roc"][:] = (
        np.tile([0.5, 0.6, 0.7, 0.8], (2, 7, 1)).T
        + 0
        * flat["roc"]
        .transpose("completion", "matrix", "train_size", "repetition", "ratio")
        .values[:, :, :, 0, 0]
        .mean()
    )
    with plt.rc_context({"figure.figsize": (4, 3)}):
        _, ax = plt.subplots()
        plot_roc_by_ratio(flat, ax=ax)
    assert not is_covered(ax.get_legend(), ax)
    assert ax.get_ylim()[1] > 0.9


def test_given_axes_that_are_a_figure_by_themselves_have_the_legend_above(study):
    figure, axes = plt.subplots(2, 1, figsize=(3.4, 6), layout="constrained")
    found = plot_roc_by_matrix(study, axes=axes)
    assert found[1] is axes[1]
    assert len(figure.legends) == 1
    assert axes[1].get_ylabel()  # which shares no axis with the first
    figure, axes = plt.subplots(1, 3, layout="constrained")
    assert plot_roc_by_matrix(study, axes=axes[:2])[0] is axes[0]
    assert not figure.legends
    assert names_in(axes[0].get_legend())[2] == "zero imputation"


def test_axes_are_taken_and_returned(study):
    for plot in BY_RATIO:
        _, ax = plt.subplots()
        assert plot(study, ax=ax) is ax
    one = study.isel(train_size=[0])
    _, ax = plt.subplots()
    found = plot_roc_by_matrix(one, axes=ax)
    assert found.shape == (1,)
    assert found[0] is ax
    assert plot_roc_by_matrix(one).shape == (1,)


def test_one_repetition_has_points_without_bars(study):
    one = study.isel(repetition=[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        axes = [*plot_roc_by_matrix(one), plot_roc_by_ratio(one), plot_distance_by_ratio(one)]
        _, given = plt.subplots()
        axes.append(plot_distance_by_ratio(one, ax=given))
        for ax in axes:
            ax.figure.canvas.draw()
    for ax in axes:
        assert "±" not in ax.get_ylabel()
        assert all(np.isfinite(y[1:]).all() and np.isnan(ends).all() for _, y, ends in drawn(ax))


def test_one_ratio_and_one_method_are_drawn(study):
    few = study.isel(ratio=[5], completion=[1], train_size=[1])
    for plot in BY_RATIO:
        ((x, _, _),) = drawn(plot(few))
        np.testing.assert_allclose(x, [0.5])
    plot_roc_by_matrix(few)[0].figure.canvas.draw()


# Files


def test_figures_are_written_as_vectors_and_pixels(study, tmp_path):
    folder = tmp_path / "new" / "figures"
    before = dict(mpl.rcParams)
    paths = save_figures(study, folder, ratio=0.3)
    names = ["roc_by_matrix", "roc_by_ratio", "distance_by_ratio"]
    assert paths == [folder / f"{name}.{ending}" for name in names for ending in ("pdf", "png")]
    assert [path.read_bytes()[:4] for path in paths] == [b"%PDF", b"\x89PNG"] * 3
    width = {path.name: plt.imread(path).shape[1] / 300 for path in paths[1::2]}
    assert width == {
        "roc_by_matrix.png": pytest.approx(7.0, abs=0.01),
        "roc_by_ratio.png": pytest.approx(3.4, abs=0.01),
        "distance_by_ratio.png": pytest.approx(3.4, abs=0.01),
    }
    assert not plt.get_fignums()
    assert dict(mpl.rcParams) == before
    assert b"/Type3" not in paths[0].read_bytes()
    again = save_figures(study, str(tmp_path), formats="pdf", ratio=0.3)
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in paths[::2]]


def test_what_cannot_be_written_is_named_before_anything_is(study, tmp_path):
    with pytest.raises(MKMCError, match=r"formats: 'docx' found; .*'pdf'"):
        save_figures(study, tmp_path, formats=["pdf", "docx"])
    with pytest.raises(LabelError, match=r"ratio: the study has no ratio 0\.45"):
        save_figures(study, tmp_path, ratio=0.45)
    with pytest.raises(MKMCError, match="it has no variable 'correlation_matrix_distance'"):
        save_figures(study.drop_vars("correlation_matrix_distance"), tmp_path)
    with pytest.raises(MKMCError, match="bars: 'both'"):
        save_figures(study, tmp_path, bars="both")
    assert not list(tmp_path.iterdir())
    assert not plt.get_fignums()


# What cannot be drawn


@pytest.mark.parametrize("plot", [plot_roc_by_matrix, *BY_RATIO])
def test_what_is_no_study_is_named(study, plot):
    for wrong in (3, pd.DataFrame(), study["roc"]):
        with pytest.raises(MKMCError, match=f"study: {type(wrong).__name__} found.*run_study"):
            plot(wrong)
    with pytest.raises(MKMCError, match="study: it has no variable"):
        plot(study[["strength"]])
    for bars in ("std", None, 0.95):
        with pytest.raises(MKMCError, match=r"bars: .* found; 'se', 'ci' or 'sd'"):
            plot(study, bars=bars)
    assert not plt.get_fignums()  # no empty figure is left behind


def test_labels_that_are_not_there_are_named(study):
    with pytest.raises(LabelError, match=r"ratio: the study has no ratio 0\.51.*0\.5"):
        plot_roc_by_matrix(study, ratio=0.51)
    with pytest.raises(LabelError, match=r"matrix: the study has no matrix 'M'.*'model'"):
        plot_roc_by_ratio(study, matrix="M")
    for size in (300, "200", [200]):
        with pytest.raises(
            LabelError, match=r"train_size: the study has no train size .*200, 1000"
        ):
            plot_roc_by_ratio(study, train_size=size)
    with pytest.raises(MKMCError, match=r"score: 'roc' found; 'correlation_matrix_distance' or"):
        plot_distance_by_ratio(study, score="roc")
    with pytest.raises(MKMCError, match="score: 'mse' found"):
        plot_distance_by_ratio(study, score="mse")


def test_what_is_no_axes_is_named(study):
    figure, axes = plt.subplots(2, 2)
    for plot in BY_RATIO:
        for given in (figure, axes, 3):
            with pytest.raises(MKMCError, match=f"ax: {type(given).__name__} found; Matplotlib"):
                plot(study, ax=given)
    for given in (axes, axes[0, 0], axes[:1, 0]):
        with pytest.raises(LabelError, match=r"axes: shape .* found, \(2,\) .*200, 1000"):
            plot_roc_by_matrix(study, axes=given)
    with pytest.raises(MKMCError, match="axes: int found; Matplotlib Axes"):
        plot_roc_by_matrix(study, axes=[axes[0, 0], 3])
