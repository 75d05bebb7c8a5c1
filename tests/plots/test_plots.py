"""Pictures: image comparisons, and axes in and out."""

import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from problems import PAPER, both_models, selection_of

from mkmc_prob import (
    PPCA,
    Calibration,
    FactorAnalysis,
    LabelError,
    MKMCError,
    datasets,
    fit,
    missing_information,
    plots,
    select_model,
    select_strength,
    stack_kernels,
)

mpl_image = pytest.mark.mpl_image_compare(style="default", remove_text=True, tolerance=5)


@pytest.fixture(scope="module")
def result():
    """Three kernels over twelve objects in two clusters, each missing some."""
    position = np.repeat([[0.0, 0.0], [2.0, 1.0]], 6, axis=0) + 0.3 * np.sin(np.arange(24)).reshape(
        12, 2
    )
    distance = ((position[:, None] - position[None]) ** 2).sum(-1)
    kernels = np.array([np.exp(-distance / width) for width in (1.0, 2.0, 4.0)])
    visible = np.ones((3, 12), dtype=bool)
    visible[0, [1, 7]] = visible[1, 3:5] = visible[2, 8:] = False
    paper = {"strength": 0.5, "sources": "identical"}
    return fit(stack_kernels(kernels, visible=visible), **paper, tol=0, max_iter=30)


@mpl_image
def test_plot_trace(result):
    return result.plot_trace().figure


@mpl_image
def test_plot_kernels(result):
    return result.plot_kernels()[0, 0].figure


def halves(size):
    """Two kernels, one of the first three quarters of the objects, one of the last, completed."""
    place = np.linspace(0.0, 3.0, size)
    own = np.arange(size)
    kernel = np.exp(-((place[:, None] - place) ** 2))
    visible = np.ones((2, size), dtype=bool)
    visible[0, 3 * size // 4 :] = visible[1, : size // 4] = False
    visible[1, (own % 5 == 0) & visible[0]] = False
    stack = stack_kernels(np.stack([kernel, 0.5 + 0.5 * kernel]), visible=visible)
    return stack, stack_kernels(np.stack([kernel, 0.5 + 0.5 * kernel]))


@mpl_image
@pytest.mark.parametrize("size", [10, 200])
def test_pairs_never_seen_together_are_marked(size):
    return plots.plot_kernels(*halves(size))[0, 0].figure


@pytest.fixture(scope="module")
def information():
    """What missing_information returns, with numbers made up."""
    return xr.Dataset(
        {
            "rate": 0.85,
            "share": ("object", [0.1, 0.5, 0.05, 0.3, 0.05]),
            "rate_without": ("kernel", [0.8, 0.9, np.nan]),
        },
        coords={"object": list("abcde"), "kernel": ["text", "image", "sound"]},
    )


@mpl_image
def test_plot_rate_by_iteration(result, information):
    few = fit(result.observed, **PAPER, tol=0, max_iter=14, method="em")
    return plots.plot_rate(information, trace=few.trace).figure


@mpl_image
def test_plot_rate_by_kernel(information):
    return plots.plot_rate(information).figure


@mpl_image
def test_plot_slowest(information):
    return plots.plot_slowest(information, most=4).figure


@mpl_image
@pytest.mark.parametrize("side", ["below", "none"])
def test_plot_sensitivity(side):
    delta = np.array([0.25, 0.5, 1.0, 1.5, 2.0])
    found = xr.Dataset(
        {
            "mean_change": (("delta", "kernel"), np.abs(delta - 1)[:, None] * [1.0, 0.3]),
            "quantity": ("delta", [0.2, 0.4, 0.8, 0.7, 0.65]),
            "tipping_point": ("side", [0.625, np.nan]),
            "tipping_interval": (("side", "end"), [[1.0, 0.5], [np.nan, np.nan]]),
        },
        coords={"delta": delta, "kernel": ["text", "$\\image"], "side": ["below", "above"]},
        attrs={"direction": "size", "threshold": 0.5},
    )
    if side == "none":
        found = found[["mean_change"]]
    return plots.plot_sensitivity(found).figure


@mpl_image
def test_plot_mcar_test():
    place = np.arange(18.0).reshape(3, 3, 2)
    difference = np.where(np.eye(3, dtype=bool)[:, :, None], np.nan, np.sin(place) * 3.0)
    difference[2] = np.nan
    test = xr.Dataset(
        {
            "difference": (("kernel", "other", "feature"), difference),
            "p_adjusted": ("kernel", [0.004, 0.7, np.nan]),
        },
        coords={"kernel": ["text", "image", "sound"], "feature": ["size", "similarity"]},
    )
    return plots.plot_mcar_test(test).figure


@mpl_image
def test_plot_gain_parts_of_other_steps(result):
    few = fit(result.observed, **PAPER, tol=0, max_iter=8, method="geodesic")
    return few.plot_gain_parts().figure


@mpl_image
def test_plot_strength_with_some_below_the_view():
    level = np.array([-40.0, -6.0, -1.5, -1.0, -1.1, -1.55])
    fold = np.array([-0.1, 0.0, 0.1])
    strengths = [0.001, 0.01, 0.1, 0.3, 1.0, 10.0]
    return selection_of(level[:, None] + fold, strengths=strengths).plot().figure


@pytest.fixture(scope="module")
def selection(result):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # whatever is best here
        return select_strength(result.observed, strengths=[0.01, 0.1, 1.0, 10.0], folds=3)


@mpl_image
@pytest.mark.parametrize("name", ["pattern", "pair_counts", "spectra", "disagreement", "agreement"])
def test_diagnostic_pictures(result, name):
    return getattr(result, f"plot_{name}")().figure


@mpl_image
@pytest.mark.parametrize("name", ["increments", "gain_parts"])
def test_pictures_of_the_steps(result, name):
    """Of steps whose gains are far above rounding."""
    few = fit(result.observed, **PAPER, tol=0, max_iter=14, method="em")
    return getattr(few, f"plot_{name}")().figure


@mpl_image
def test_plot_strength(selection):
    return selection.plot().figure


@mpl_image
def test_plot_calibration(selection):
    return plots.plot_calibration(selection, strength=1.0).figure


@pytest.fixture(scope="module")
def calibration():
    """What calibrate returns, with numbers made up; the last kernel could not be tested."""
    names = {"kernel": ["text", "image", "sound"]}
    coverage = [[0.52, 0.79, 0.9, 0.94], [0.3, 0.6, 0.75, 0.8], [np.nan] * 4]
    return Calibration(
        xr.DataArray([20.0, 5.0, 8.0], names, ["kernel"]),
        xr.DataArray(coverage, names | {"level": [0.5, 0.8, 0.9, 0.95]}, ["kernel", "level"]),
        xr.DataArray([30, 25, 0], names, ["kernel"]),
        xr.DataArray(["others", "alone", "spectrum"], names, ["kernel"]),
    )


@mpl_image
def test_plot_coverage(calibration):
    return calibration.plot().figure


@pytest.fixture(scope="module")
def few_factors(result):
    return fit(result.observed, structure=FactorAnalysis(3), tol=1e-9)


@mpl_image
@pytest.mark.parametrize("factors", [2, 3])
def test_plot_loadings(few_factors, factors):
    return few_factors.plot_loadings(factors=factors).figure


def test_every_picture_draws_on_the_axes_it_is_given(
    result, selection, information, calibration, few_factors
):
    chosen = select_model(result.observed, strengths=[1.0], sharing=[1.0], draws=2)
    for name in plots.__all__:
        if name in ("MISSING", "plot_kernels", *MISSINGNESS, *POSTERIORS):
            continue
        _, ax = plt.subplots()
        given = {"plot_strength": selection, "plot_calibration": selection}.get(name, result)
        if name in ("plot_trace", "plot_increments", "plot_gain_parts"):
            given = result.trace
        if name in ("plot_pattern", "plot_pair_counts"):
            given = result.observed
        if name in ("plot_rate", "plot_slowest"):
            given = information
        if name == "plot_selection":
            given = chosen
        if name == "plot_coverage":
            given = calibration
        if name == "plot_loadings":
            given = few_factors
        assert getattr(plots, name)(given, ax=ax) is ax
        assert ax.get_xlabel()
        assert ax.get_ylabel()


def test_missing_rows_are_hatched(result):
    axes = plots.plot_kernels(result.observed)
    image = axes[0, 0].images[0]
    colours = image.to_rgba(image.get_array())
    assert axes[0, 0].patch.get_hatch()
    assert not colours[1, :, 3].any()  # the hatched background shows
    assert not colours[:, 7, 3].any()
    assert colours[0, 0, 3] == 1.0


@pytest.mark.parametrize(
    ("beyond", "arrows"), [([], "neither"), ([-1], "min"), ([1], "max"), ([-1, 1], "both")]
)
def test_the_colour_bar_has_arrows_where_entries_lie_beyond_it(beyond, arrows):
    kernel = np.ones((20, 20))
    after = kernel.copy()
    for i, sign in enumerate(beyond):
        after[i, i] += 0.1 * sign
    axes = plots.plot_kernels(stack_kernels(kernel[None]), stack_kernels(after[None]))
    assert axes[0, 0].images[0].colorbar is None
    assert axes[1, 0].images[0].colorbar.extend == arrows


def test_long_names_are_wrapped_to_their_panel(result):
    names = ["a long name of several words that goes on and on", "x" * 60 + "1", "short"]
    title = [
        ax.get_title() for ax in plots.plot_kernels(result.observed.assign_coords(kernel=names))[0]
    ]
    assert all(text.count("\n") <= 1 for text in title)
    assert all(len(line) < 25 for text in title for line in text.split("\n"))
    assert title[1].endswith("x1")
    assert title[2] == "short"


def test_before_and_after_share_one_scale(result):
    axes = result.plot_kernels(kernels=["Q2", "Q1"])
    assert axes.shape == (2, 2)
    assert axes[0, 0].get_title() == "Q2"
    for column in axes.T:
        assert column[0].images[0].get_clim() == column[1].images[0].get_clim()


def test_objects_are_drawn_in_the_order_asked_for(result):
    ax = plots.plot_kernels(result.completed, kernels=["Q1"], objects=[7, 0])[0, 0]
    drawn = result.completed.sel(kernel="Q1", object=[7, 0], object_bis=[7, 0]).values
    np.testing.assert_array_equal(ax.images[0].get_array(), drawn)
    with pytest.raises(LabelError, match="no object 99"):
        result.plot_kernels(objects=[99])


def test_axes_are_taken_and_returned(result):
    _, ax = plt.subplots()
    assert plots.plot_trace(result.trace, ax=ax, color="C3") is ax
    assert ax.lines[0].get_color() == "C3"
    assert ax.get_xlabel() == "iteration"
    assert ax.get_ylabel() == "penalized log-likelihood (nats)"
    _, axes = plt.subplots(2, 3)
    assert result.plot_kernels(axes=axes)[1, 2] is axes[1, 2]
    with pytest.raises(LabelError, match=r"axes: shape \(2, 2\) found, \(2, 3\)"):
        result.plot_kernels(axes=plt.subplots(2, 2)[1])
    with pytest.raises(LabelError, match="no kernel 'Q9'"):
        result.plot_kernels(kernels=["Q9"])


def test_a_kernel_that_shows_nothing_is_drawn():
    nothing = stack_kernels(np.tile(np.eye(2), (2, 1, 1)), visible=[[1, 1], [0, 0]])
    assert plots.plot_kernels(nothing).shape == (1, 2)


def test_a_trace_of_one_point_is_drawn():
    level = xr.Dataset(
        {"penalized_log_likelihood": ("iteration", [-1.0])}, coords={"iteration": [0]}
    )
    assert len(plots.plot_trace(level).lines) == 1


def test_kernels_without_a_place_are_left_out_of_the_picture():
    ax = fit(stack_kernels(np.zeros((1, 3, 3))), **PAPER).plot_agreement()
    ax.figure.canvas.draw()


def test_a_strength_that_was_not_tried_is_named(selection):
    with pytest.raises(LabelError, match=r"strength: 0\.5 was not tried"):
        plots.plot_calibration(selection, strength=0.5)


# Pairs never seen together


def test_small_pictures_have_dots_where_pairs_are_never_seen():
    result = fit(halves(12)[0])
    never = result.never_seen_together().values
    assert never.any()
    axes = result.plot_kernels()
    for ax in axes[0]:
        assert not ax.lines
    for ax in axes[1]:
        (dots,) = ax.lines
        marked = np.zeros_like(never)
        marked[dots.get_ydata(), dots.get_xdata()] = True
        np.testing.assert_array_equal(marked, never)
        assert ax.get_xlim() == (-0.5, 11.5)
    assert [text.get_text() for text in axes[1, 0].get_legend().get_texts()] == [
        "never seen\ntogether"
    ]
    order = [11, 1, 7, 8]
    (dots,) = result.plot_kernels(objects=order, kernels=["Q1"])[1, 0].lines
    there = {(order[r], order[c]) for r, c in zip(dots.get_ydata(), dots.get_xdata(), strict=True)}
    assert there == {(i, j) for i in order for j in order if never[i, j]}


def test_large_pictures_have_one_veil_and_no_thousands_of_artists():
    before, after = halves(200)
    for ax in plots.plot_kernels(before, after)[1]:
        assert not ax.lines
        assert len(ax.images) == 2
        veil = np.asarray(ax.images[1].get_array())
        seen = np.isfinite(before.values).any(axis=0)
        np.testing.assert_array_equal(veil[..., 3] > 0, ~seen)
        assert 0 < veil[..., 3].max() < 1  # what lies below still shows


def test_nothing_is_marked_where_all_pairs_are_seen_or_it_is_not_wanted(result):
    axes = [
        *result.plot_kernels(mark=False)[1],
        *plots.plot_kernels(result.completed, result.completed)[1],
    ]
    for ax in axes:
        assert not ax.lines
        assert ax.get_legend() is None


def with_groups():
    """A fit with pairs of three kinds: observed together, bounded, and tied by the prior alone."""
    kernels, _ = datasets.make_fusion_problem(9, 3)
    visible = np.array([[1, 1, 1, 1, 0, 0, 0, 0, 0], [0, 0, 1, 1, 1, 1, 0, 0, 0]])
    visible = np.vstack([visible, [0, 0, 0, 0, 0, 0, 1, 1, 1]])
    stack = stack_kernels(kernels.values, visible=visible, objects=list("abcdefghi"))
    with warnings.catch_warnings(action="ignore"):  # two groups
        return fit(stack)


@mpl_image
def test_plot_unseen_pairs():
    result = with_groups()
    _, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    result.plot_unseen_pairs(most=8, ax=left)
    pairs = [("a", "e"), ("b", "f"), ("b", "g"), ("a", "f")]
    return plots.plot_unseen_pairs(result.unseen_pairs(pairs), ax=right).figure


def test_intervals_are_drawn_as_correlations_widest_first():
    result = with_groups()
    ax = result.plot_unseen_pairs(most=30)
    table = result.unseen_pairs(most=30)
    variance = np.diagonal(result.model.matrix)
    bounded, alone = (line.get_xydata() for line in ax.lines[:2])
    assert len(bounded) + len(alone) == table.sizes["pair"] == table.attrs["unseen_pairs"] == 22
    rows = np.argsort(np.concatenate([bounded, alone])[:, 1])
    drawn = np.concatenate([bounded, alone])[rows, 0]
    places = [
        [result.model.objects.tolist().index(label) for label in table[dim].values.tolist()]
        for dim in ("object", "object_bis")
    ]
    scale = np.sqrt(variance[places[0]] * variance[places[1]])
    np.testing.assert_allclose(drawn, table["value"] / scale, atol=1e-12)
    ends = np.concatenate([lines.get_segments() for lines in ax.collections])[rows, :, 0]
    np.testing.assert_allclose(ends, np.c_[table["lower"], table["upper"]] / scale[:, None])
    assert (np.diff(ends[:, 1] - ends[:, 0]) < 1e-12).all()
    first = ax.get_yticklabels()[0].get_text()
    assert first == f"{table['object'].values[0]}, {table['object_bis'].values[0]}"
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts == ["bounded by the kernels", "the prior alone"]


def test_intervals_where_every_pair_is_observed(result):
    ax = fit(result.observed.isel(object=[0, 1, 2], object_bis=[0, 1, 2])).plot_unseen_pairs()
    assert "every pair" in ax.texts[0].get_text()
    with pytest.raises(MKMCError, match="result: the Dataset has no variable 'value'"):
        plots.plot_unseen_pairs(xr.Dataset())
    with pytest.raises(MKMCError, match="the Dataset has no variable 'object'"):
        plots.plot_unseen_pairs(result.unseen_pairs().drop_vars("object"))
    with pytest.raises(MKMCError, match="most: 0 found"):
        plots.plot_unseen_pairs(result, most=0)


# The rate


def test_the_rate_is_drawn_as_one_minus_itself(information):
    ax = plots.plot_rate(information)
    assert [text.get_text() for text in ax.get_xticklabels()] == ["none", "text", "image", "sound"]
    none, without = ax.lines[0].get_ydata(), ax.lines[1].get_ydata()
    np.testing.assert_allclose(np.append(none, without), [0.15, 0.2, 0.1, np.nan])
    ax = plots.plot_rate(information.drop_vars("rate_without"))
    assert [text.get_text() for text in ax.get_xticklabels()] == ["none"]


def test_the_rate_of_a_saddle_is_said_to_be_no_maximum(information):
    nothing = plots.plot_rate(information.drop_vars("rate_without").assign(rate=1.2))
    assert "no maximum" in nothing.get_title()
    nothing.figure.canvas.draw()
    ax = plots.plot_rate(information.assign(rate=1.001))
    assert "rate ≥ 1, no maximum" in ax.get_title()
    assert "at the model" in ax.get_title()
    ax.figure.canvas.draw()


def test_a_trace_alone_and_a_trace_without_em_steps(result, information):
    em = fit(result.observed, **PAPER, method="em", tol=1e-4)
    line = plots.plot_rate(trace=em.trace).lines[0].get_ydata()
    assert 0 < line[-1] < 1
    ax = plots.plot_rate(information, trace=result.trace.isel(iteration=slice(0, 2)))
    assert "no two EM steps in a row" in ax.texts[0].get_text()
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["at the model: 0.15", "without text: 0.2", "without image: 0.1"]
    plots.plot_rate(trace=result.trace.isel(iteration=[0])).figure.canvas.draw()


@pytest.mark.parametrize("with_trace", [False, True])
@pytest.mark.parametrize("rate", [0.0, 0.15, 1.0 - 1e-6])
def test_one_rate_is_a_line_within_the_axes_and_its_value_is_written(result, rate, with_trace):
    """After few steps, or steps that are not EM's, the trace shows no rate."""
    information = xr.Dataset({"rate": rate})
    for steps in (slice(0, 1), slice(0, 2)):
        trace = result.trace.isel(iteration=steps) if with_trace else None
        ax = plots.plot_rate(information, trace=trace)
        low, high = ax.get_ylim()
        assert any(set(line.get_ydata()) == {1.0 - rate} for line in ax.lines)
        assert 2.0 * low < 1.0 - rate < 0.5 * high
        written = [text for text in ax.get_yticklabels(which="both") if text.get_text()]
        assert any(low <= text.get_position()[1] <= high for text in written)
        assert f"rate at the model: {rate:.6g} " in ax.get_title()


@pytest.mark.parametrize("method", ["em", "geodesic"])
@pytest.mark.parametrize("max_iter", [1, 3, 11])
@pytest.mark.parametrize("sources", ["adaptive", "identical"])
def test_the_rate_of_a_fit_of_few_steps_is_drawn(result, sources, method, max_iter):
    model = {"strength": 1.0, "sources": sources}
    few = fit(result.observed, **model, method=method, tol=0, max_iter=max_iter)
    ax = few.plot_rate()
    rate = float(missing_information(few)["rate"])
    assert f"rate at the model: {rate:.6g} " in ax.get_title()
    low, high = ax.get_ylim()
    assert low < 1.0 - rate < high if rate < 1.0 else "no maximum" in ax.get_title()
    assert (rate < 1.0) != ("no rate below 1 to draw" in [text.get_text() for text in ax.texts])


def test_a_trace_without_em_steps_says_what_else_to_pass(result):
    ax = plots.plot_rate(trace=result.trace.isel(iteration=slice(0, 2)))
    assert "pass missing_information(result)" in ax.texts[0].get_text()
    assert not ax.get_yticks().size


def test_the_results_methods_compute_the_rate(result):
    em = fit(result.observed, **PAPER, method="em", tol=1e-6)
    computed = 1.0 - float(missing_information(em)["rate"])
    ax = em.plot_rate()
    assert ax.get_xlabel() == "iteration"
    assert ax.lines[1].get_ydata()[0] == pytest.approx(computed)
    # As it ends, EM's own steps show it.
    assert np.asarray(ax.lines[0].get_ydata())[-1] == pytest.approx(computed, rel=0.3)
    ax = fit(result.observed, **PAPER, tol=1e-6).plot_rate(without_each_kernel=True)
    assert ax.get_xlabel() == "kernel left out"
    assert len(ax.lines[1].get_ydata()) == 3
    share = missing_information(em)["share"].to_series().sort_values(ascending=False)
    ax = em.plot_slowest()
    assert [bar.get_width() for bar in ax.patches] == pytest.approx((100 * share).tolist())
    assert [t.get_text() for t in ax.get_yticklabels()] == [str(i) for i in share.index]


def test_nothing_missing_has_no_slow_direction():
    complete = fit(stack_kernels(np.stack([np.eye(3)] * 2)), **PAPER, tol=1e-6)
    assert "nothing is missing" in complete.plot_slowest().get_title()


# What the views show


def test_the_view_of_the_strength_ends_near_the_best():
    level = np.array([-40.0, -6.0, -1.5, -1.0, -1.1, -1.55])
    fold = np.array([-0.1, 0.0, 0.1])
    strengths = [0.001, 0.01, 0.1, 0.3, 1.0, 10.0]
    ax = selection_of(level[:, None] + fold, strengths=strengths).plot()
    low, high = ax.get_ylim()
    # Ten standard errors of 0.1 / sqrt(3) below the best.
    assert -1.8 < low < -1.0 - 10 * 0.1 / np.sqrt(3)
    assert -1.0 < high < -0.8
    assert {text.get_text() for text in ax.texts} == {"−40", "−6"}
    arrows = next(line for line in ax.lines if line.get_marker() == "v")
    np.testing.assert_array_equal(arrows.get_xdata(), [0.001, 0.01])
    assert (np.asarray(arrows.get_ydata()) > low).all()
    # Where all folds agree there is no standard error, and the three best are shown.
    ax = selection_of(level[:, None] + 0 * fold, strengths=strengths).plot()
    assert ax.get_ylim()[0] < -1.5
    assert {text.get_text() for text in ax.texts} == {"−40", "−6", "−1.55"}
    assert not selection_of(np.array([[-1.0, -1.2]]), strengths=[1.0]).plot().texts


def test_loadings_are_labeled_and_canonical(few_factors):
    loadings, names = few_factors.model.loadings.values, few_factors.model.objects.tolist()
    ax = few_factors.plot_loadings()
    np.testing.assert_array_equal(np.transpose(ax.lines[2].get_data()), loadings[:, :2])
    assert [text.get_text() for text in ax.texts] == [str(name) for name in names]
    assert ax.get_aspect() == 1.0
    share = 100 * (loadings[:, 0] ** 2).sum() / np.trace(few_factors.model.matrix)
    assert ax.get_xlabel() == f"factor 1 ({share:.0f} % of the variance)"
    # The model alone will do, and it has three factors at most.
    for factors in (3, 8):
        ax = plots.plot_loadings(few_factors.model, factors=factors)
        image = ax.images[0]
        np.testing.assert_array_equal(image.get_array(), loadings)
        assert image.get_clim() == (-np.abs(loadings).max(), np.abs(loadings).max())
        assert [text.get_text() for text in ax.get_yticklabels()] == [str(n) for n in names]
    assert plots.plot_loadings(few_factors, factors=1).images[0].get_array().shape == (12, 1)


def test_loadings_of_many_objects_have_no_labels():
    many = np.eye(60) + np.exp(-0.01 * np.subtract.outer(np.arange(60), np.arange(60)) ** 2)
    result = fit(stack_kernels(many[None]), structure=PPCA(2))
    assert not result.plot_loadings().texts
    assert result.plot_loadings(factors=1).get_ylabel() == "object (60)"


def test_the_full_structure_has_no_loadings(result):
    for given in (result, result.model):
        with pytest.raises(MKMCError, match=r"without loadings; pass a fit with structure=PPCA"):
            plots.plot_loadings(given)
    with pytest.raises(MKMCError, match="factors: 0 found"):
        plots.plot_loadings(result, factors=0)


def test_tiny_residuals_do_not_set_the_scale_of_the_disagreement():
    kernels = np.stack([np.eye(4), np.eye(4), np.eye(4)])
    kernels[0, 3, 3] = 0.0  # a residual of zero
    kernels[1, 1, 1] = 1e-9
    stack = stack_kernels(kernels, visible=[[1, 1, 0, 1], [1, 1, 1, 0], [1, 1, 1, 1]])
    ax = fit(stack, **PAPER).plot_disagreement()
    image = ax.images[0]
    assert image.get_clim() == (-2.0, 2.0)
    drawn = np.ma.masked_invalid(image.get_array())
    np.testing.assert_array_equal(
        np.ma.getmaskarray(drawn), np.isnan(stack.values[:, range(4), range(4)])
    )
    assert drawn[0, 3] < -2.0  # zero is drawn, and is not missing
    ax.figure.canvas.draw()
    kernels[2, 2, 2] = 1e6
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the scales
        paper = {"strength": 100.0, "sources": "identical"}
        ax = fit(stack_kernels(kernels), **paper).plot_disagreement()
    assert ax.images[0].get_clim() == (-6.0, 6.0)


def test_kernels_that_agree_alike_are_told_apart_by_the_legend(result):
    kernels = np.stack([np.eye(4)] * 3)
    alike = fit(stack_kernels(kernels, names=["_one", "$two", "three$x$"]))
    ax = alike.plot_agreement()
    texts = ax.get_legend().get_texts()
    assert [text.get_text() for text in texts] == ["_one", "$two", "three$x$"]
    assert not any(text.get_parse_math() for text in texts)
    looks = {(c.get_facecolor().tobytes(), len(c.get_paths()[0])) for c in ax.collections}
    assert len(looks) == 3
    assert not ax.texts
    ax.figure.canvas.draw()
    box = ax.get_legend().get_window_extent()
    assert box.x0 >= ax.get_window_extent().x1 - 1  # beside the axes, over no point


def test_steps_without_parts_are_said_to_have_none(result):
    trace = result.trace.copy(deep=True)
    trace["gain_q_function"][:] = np.nan
    trace["gain_divergence"][:] = np.nan
    ax = plots.plot_gain_parts(trace)
    assert "only EM steps have these parts: 0 of 30 steps" in ax.get_title()
    assert "no step was an EM step" in ax.texts[0].get_text()
    assert ax.get_legend() is None
    ax.figure.canvas.draw()
    em = fit(result.observed, **PAPER, method="em", tol=0, max_iter=3)
    assert em.plot_gain_parts().get_title() == ""
    geodesic = fit(result.observed, **PAPER, tol=0, max_iter=9)
    by_em = np.isfinite(geodesic.trace["gain_q_function"][1:]).sum().item()
    assert f"{by_em} of 9 steps" in geodesic.plot_gain_parts().get_title()


def test_the_update_of_the_constants_is_the_third_part_of_a_gain(result):
    adaptive = fit(result.observed, method="em", tol=0, max_iter=9)
    gain = adaptive.trace["gain_constants"]
    assert (gain > 0).any()
    ax = adaptive.plot_gain_parts()
    drawn = ax.lines[2].get_ydata()
    np.testing.assert_array_equal(drawn, gain.where(gain > 0))
    shown = [text.get_text() for text in ax.get_legend().get_texts()]
    assert shown[2] == "update of the constants"
    # A trace without it, or in which no constant moved, has the paper's two parts.
    for trace in (adaptive.trace.drop_vars("gain_constants"), result.trace):
        assert len(plots.plot_gain_parts(trace).lines) == 2


@both_models
def test_names_are_drawn_as_they_are(result, model):
    odd = result.observed.assign_coords(kernel=["$\\frac", "_b", "c" * 40])
    other = fit(odd, **model, tol=0, max_iter=2)
    for name in ("pattern", "spectra", "disagreement", "agreement", "slowest", "kernels"):
        ax = np.ravel(getattr(other, f"plot_{name}")())[0]
        ax.figure.canvas.draw()
    names = ["$\\frac", *"_bcdefghijk"]
    few = fit(odd.assign_coords(object=names, object_bis=names), structure=PPCA(2))
    few.plot_loadings().figure.canvas.draw()
    few.plot_loadings(factors=1).figure.canvas.draw()
    legend = [text.get_text() for text in other.plot_spectra().get_legend().get_texts()]
    assert legend == ["$\\frac", "_b", "c" * 40, "model"]


# What cannot be drawn

TRACES = ["plot_trace", "plot_increments", "plot_gain_parts"]
STACKS = ["plot_kernels", "plot_pattern", "plot_pair_counts"]
RESULTS = ["plot_spectra", "plot_disagreement", "plot_agreement", "plot_unseen_pairs"]
SELECTIONS = ["plot_strength", "plot_calibration"]
CHOICES = ["plot_selection"]
CALIBRATIONS = ["plot_coverage"]
#: Drawn above from tables of their own.
MISSINGNESS = ["plot_sensitivity", "plot_mcar_test"]
FACTORS = ["plot_loadings"]
INFORMATION = ["plot_rate", "plot_slowest"]
#: Tested in test_plots_posterior.py.
POSTERIORS = ["plot_intervals", "plot_uncertainty", "plot_estimate_on_posterior"]


@pytest.mark.parametrize(
    ("names", "what", "returns"),
    [
        (TRACES, "trace", r"result\.trace"),
        (STACKS, "stack", "stack_kernels"),
        (RESULTS, "result", "fit"),
        (SELECTIONS, "selection", "select_strength"),
        (CHOICES, "selection", "select_model"),
        (CALIBRATIONS, "calibration", r"calibrate\(stack\)"),
        (FACTORS, "model_or_result", r"structure=PPCA"),
        (INFORMATION, "information", "missing_information"),
    ],
)
@pytest.mark.parametrize(
    "given", [3, "x", pd.DataFrame(), np.eye(2)], ids=lambda g: type(g).__name__
)
def test_what_is_of_the_wrong_type_is_named(names, what, returns, given):
    for name in names:
        with pytest.raises(MKMCError, match=rf"{what}: .*{type(given).__name__}.*{returns}"):
            getattr(plots, name)(given)
    assert not plt.get_fignums()  # no empty figure is left behind


def test_no_picture_was_forgotten():
    functions = {name for name in plots.__all__ if name.startswith("plot_")}
    kinds = (TRACES, STACKS, RESULTS, SELECTIONS, CHOICES, FACTORS, INFORMATION)
    kinds += (CALIBRATIONS, MISSINGNESS, POSTERIORS)
    assert functions == {name for kind in kinds for name in kind}


def test_missing_variables_are_named(result, information):
    for name in TRACES:
        with pytest.raises(MKMCError, match=r"trace: it has no variable '.*Pass result\.trace"):
            getattr(plots, name)(xr.Dataset({"a": ("iteration", [1.0])}))
    with pytest.raises(MKMCError, match=r"information: it has no variable 'rate'.*A trace"):
        plots.plot_rate(result.trace)
    with pytest.raises(MKMCError, match="trace: it has no variable 'penalized_log_likelihood'"):
        plots.plot_rate(information, trace=information)
    with pytest.raises(MKMCError, match="information: it has no variable 'share'"):
        plots.plot_slowest(information.drop_vars("share"))
    with pytest.raises(MKMCError, match=r"rate_without has dims \('source',\)"):
        plots.plot_rate(information.rename(kernel="source"))
    with pytest.raises(MKMCError, match="there is nothing to draw"):
        plots.plot_rate()
    with pytest.raises(MKMCError, match="most: 0 found"):
        plots.plot_slowest(information, most=0)


def test_what_is_no_axes_is_named(result, selection, information):
    figure, axes = plt.subplots(2, 2)
    for given in (figure, axes, 3):
        with pytest.raises(MKMCError, match=rf"ax: {type(given).__name__} found; Matplotlib Axes"):
            result.plot_trace(ax=given)
    with pytest.raises(MKMCError, match="axes: Figure found"):
        plots.plot_kernels(result.observed, kernels=["Q1"], axes=np.array([[figure]]))
    with pytest.raises(MKMCError, match=r"after: .* not DataFrame"):
        plots.plot_kernels(result.observed, pd.DataFrame())
    with pytest.raises(MKMCError, match="cmap: Matplotlib has no colormap 'virids'"):
        result.plot_kernels(cmap="virids")


def test_strengths_that_are_no_numbers_are_named(selection):
    for given in ("x", [0.1, 1.0], np.array([0.1, 1.0])):
        with pytest.raises(LabelError, match="was not tried"):
            plots.plot_calibration(selection, strength=given)
