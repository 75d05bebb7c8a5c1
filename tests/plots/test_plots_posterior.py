"""Plots of the posterior: image comparisons, and the plotted numbers against NumPy's."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr

from mkmc_prob import (
    IdentifiabilityWarning,
    KernelError,
    LabelError,
    MKMCError,
    MKMCWarning,
    fit,
    load_posterior,
    plots,
    sample_posterior,
    save_posterior,
    stack_kernels,
    zero_impute,
)

mpl_image = pytest.mark.mpl_image_compare(style="default", remove_text=True, tolerance=5)
#: These tests use short runs and do not depend on mixing.
short = pytest.mark.filterwarnings("ignore:R-hat|the effective:mkmc_prob.ConvergenceWarning")
OBJECTS = list("abcdef")
PAPER = {"degrees_of_freedom": 12, "strength": 4.0, "sources": "identical"}
SHORT = {"draws": 40, "tune": 5, "seed": 1}
PICTURES = ["plot_intervals", "plot_uncertainty", "plot_estimate_on_posterior"]


def stacks(visible, objects=None, names=None, seed=0):
    """Return a complete stack, and the same with missing objects."""
    visible = np.asarray(visible, dtype=bool)
    rng = np.random.default_rng(seed)
    mixing = np.linalg.cholesky(0.5 * np.eye(visible.shape[1]) + 0.5)
    features = mixing @ rng.standard_normal((*visible.shape, 12))
    kernels = features @ features.transpose(0, 2, 1) / 12
    labels = {"objects": objects, "names": names}
    return stack_kernels(kernels, **labels), stack_kernels(kernels, visible=visible, **labels)


@pytest.fixture(scope="module")
def truth_and_stack():
    """Return three kernels over six objects; the last one misses none."""
    visible = [[1, 1, 1, 1, 1, 0], [0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]]
    return stacks(visible, OBJECTS, ["text", "image", "sound"])


@pytest.fixture(scope="module")
def truth(truth_and_stack):
    return truth_and_stack[0]


@pytest.fixture(scope="module")
def result(truth_and_stack):
    return fit(truth_and_stack[1], tol=1e-6, **PAPER)


@pytest.fixture(scope="module")
def posterior(truth_and_stack):
    return sample_posterior(truth_and_stack[1], draws=500, tune=50, seed=1, **PAPER)


def tied_by_nothing(draws=500):
    """The last object is alone in its kernel: the prior alone ties it to the others."""
    _, stack = stacks([[1, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 1]], objects=[10, 20, 30, 40])
    with pytest.warns(IdentifiabilityWarning, match="the prior alone"):
        return sample_posterior(stack, draws=draws, tune=50, seed=2, **PAPER)


def without_variance(draws=500):
    """One feature of two objects, and a kernel in which nothing is visible."""
    kernel = np.array([[1.0, 0.5], [0.5, 0.25]])
    stack = stack_kernels(np.stack([kernel, kernel]), visible=[[1, 1], [0, 0]])
    options = PAPER | {"degrees_of_freedom": 1, "strength": 0.5}
    with pytest.warns(IdentifiabilityWarning, match="have no variance"):
        return sample_posterior(stack, draws=draws, tune=50, seed=3, **options)


@mpl_image
def test_plot_intervals(posterior, result, truth):
    return plots.plot_intervals(posterior, estimate=result, truth=truth).figure


@short
@mpl_image
def test_plot_intervals_of_what_the_prior_alone_ties():
    return plots.plot_intervals(tied_by_nothing(), kernel="Q2").figure


@mpl_image
def test_plot_uncertainty(posterior):
    return plots.plot_uncertainty(posterior)[0, 0].figure


@short
@mpl_image
def test_plot_uncertainty_without_a_variance():
    return plots.plot_uncertainty(without_variance())[0, 0].figure


@mpl_image
def test_plot_estimate_on_posterior(posterior, result, truth):
    axes = plots.plot_estimate_on_posterior(posterior, result, truth=truth)
    return axes[0].figure


@mpl_image
def test_plot_estimate_on_posterior_of_few_entries(posterior, result):
    entries = [("text", "f", "f"), ("f", "f")]
    return plots.plot_estimate_on_posterior(posterior, result, entries=entries)[0].figure


# The numbers drawn


def draws_of(tree, name, label):
    return tree["posterior"][name].sel({f"{name}_entry": label}).values.ravel()


def rows(ax):
    """Return low, quartiles, median and high of each row, from the top."""
    ends = {}
    for width in (1.3, 4.5):
        lines = [line for line in ax.lines if line.get_linewidth() == width]
        ends[width] = {line.get_ydata()[0]: line.get_xdata() for line in lines}
    medians = {}
    for line in ax.lines:
        if line.get_marker() == "o":
            medians |= dict(zip(line.get_ydata(), line.get_xdata(), strict=True))
    places = sorted(medians)
    thin, thick = (np.array([ends[width][place] for place in places]) for width in (1.3, 4.5))
    medians = [medians[place] for place in places]
    return np.column_stack([thin[:, 0], thick[:, 0], medians, thick[:, 1], thin[:, 1]])


def tick_names(ax):
    return [text.get_text() for text in ax.get_yticklabels()]


def points(ax, marker):
    (line,) = (line for line in ax.lines if line.get_marker() == marker)
    return line.get_xdata()


def legend_of(drawn):
    """Return the texts of the legend of axes or, if they have none, of their figure."""
    (box,) = [drawn.get_legend()] if drawn.get_legend() else drawn.figure.legends
    return [text.get_text() for text in box.get_texts()]


def test_intervals_are_quantiles_of_the_draws(posterior):
    entries = [("image", "b", "f"), ("a", "b"), ("text", "f", "f")]
    ax = plots.plot_intervals(posterior, entries, probability=0.8)
    assert tick_names(ax) == ["image: b, f", "model: a, b", "text: f, f"]
    assert ax.yaxis.get_inverted()
    draws = [
        draws_of(posterior, "hidden", "image, b, f"),
        draws_of(posterior, "model", "b, a"),
        draws_of(posterior, "hidden", "text, f, f"),
    ]
    assert all(len(own) == 2000 for own in draws)
    expected = np.quantile(draws, [0.1, 0.25, 0.5, 0.75, 0.9], axis=1).T
    np.testing.assert_allclose(rows(ax), expected, rtol=1e-12)
    assert legend_of(ax) == ["median, central 50 %", "central 80 %"]


def test_both_orders_of_the_objects_are_one_entry(posterior):
    entries = [("text", "f", "a"), ["text", "a", "f"], ("a", "b"), ("b", "a")]
    ax = plots.plot_intervals(posterior, entries)
    assert tick_names(ax) == ["text: f, a", "model: a, b"]
    other = plots.plot_intervals(posterior, [("b", "a"), ("text", "a", "f")])
    np.testing.assert_array_equal(rows(ax), rows(other)[::-1])


def test_all_hidden_entries_are_drawn_where_they_are_few(posterior):
    names = tick_names(plots.plot_intervals(posterior))
    labels = posterior["posterior"]["hidden_entry"].values.tolist()
    assert [name.replace(":", ",") for name in names] == labels
    names = tick_names(plots.plot_intervals(posterior, kernel="text"))
    assert [name.replace(":", ",") for name in names] == labels[:6]


@short
def test_of_many_hidden_entries_some_are_spread_evenly():
    visible = np.ones((2, 12), dtype=bool)
    visible[0, :3] = visible[1, 9:] = False
    _, stack = stacks(visible)
    tree = sample_posterior(stack, **PAPER, **SHORT)
    labels = tree["posterior"]["hidden_entry"].values.tolist()
    assert len(labels) == 66
    names = [name.replace(":", ",") for name in tick_names(plots.plot_intervals(tree))]
    assert len(names) == 20
    assert [names[0], names[-1]] == [labels[0], labels[-1]]
    assert set(np.diff([labels.index(name) for name in names])) == {3, 4}
    panels = plots.plot_estimate_on_posterior(tree, fit(stack, **PAPER), kernel="Q1")
    assert len(panels) == 6
    assert all(ax.get_title().startswith("Q1: ") for ax in panels)


@short
def test_entries_that_are_not_kept_in_full_have_thinned_draws(truth_and_stack):
    _, stack = truth_and_stack
    whole = sample_posterior(stack, keep="all", **PAPER, **SHORT)
    keep = [("text", "f", "a"), ("c", "d")]
    some = sample_posterior(stack, keep=keep, quantile_draws=40, **PAPER, **SHORT)
    wanted = {
        ("text", "f", "a"): ("hidden", "text, f, a", 1),
        ("c", "d"): ("model", "d, c", 1),
        ("text", "f", "b"): ("hidden", "text, f, b", 4),
        ("a", "a"): ("model", "a, a", 4),
    }
    expected = []
    for name, label, every in wanted.values():
        own = whole["posterior"][name].sel({f"{name}_entry": label}).values[:, ::every]
        expected.append(np.quantile(own, [0.05, 0.25, 0.5, 0.75, 0.95]))
    np.testing.assert_allclose(rows(plots.plot_intervals(some, list(wanted))), expected)
    # Evenly spread over those kept in full, or over all if none of these is.
    assert tick_names(plots.plot_intervals(some)) == ["text: f, a"]
    assert len(tick_names(plots.plot_intervals(some, kernel="image"))) == 11
    of_model = sample_posterior(stack, keep=[("c", "d")], **PAPER, **SHORT)
    assert len(tick_names(plots.plot_intervals(of_model))) == 17


@short
def test_a_posterior_that_was_saved_is_drawn_alike(truth_and_stack, tmp_path):
    tree = sample_posterior(truth_and_stack[1], **PAPER, **SHORT)
    save_posterior(tree, tmp_path / "posterior.nc")
    again = load_posterior(tmp_path / "posterior.nc")
    drawn, expected = (plots.plot_intervals(given) for given in (again, tree))
    np.testing.assert_array_equal(rows(drawn), rows(expected))
    assert tick_names(drawn) == tick_names(expected)


def test_the_estimate_and_the_truth_are_drawn_where_they_are(posterior, result, truth):
    entries = [("image", "b", "f"), ("a", "b"), ("text", "f", "f")]
    ax = plots.plot_intervals(posterior, entries, estimate=result, truth=truth)
    own = result.completed.sel(object="f")
    image = own.sel(kernel="image", object_bis="b").item()
    text = own.sel(kernel="text", object_bis="f").item()
    model = result.model.covariance.sel(object="a", object_bis="b").item()
    np.testing.assert_array_equal(points(ax, "D"), [image, model, text])
    there = truth.sel(object="f")
    expected = [there.sel(kernel="image", object_bis="b"), np.nan, there.sel(kernel="text")[-1]]
    np.testing.assert_array_equal(points(ax, "x"), np.array(expected, dtype=float))
    assert legend_of(ax)[2:] == ["EM estimate", "truth"]
    # The model's entries have no truth.
    ax = plots.plot_intervals(posterior, [("a", "b")], truth=truth)
    assert legend_of(ax) == ["median, central 50 %", "central 90 %"]


def test_the_order_of_the_estimate_and_of_the_truth_does_not_matter(
    posterior, result, truth, truth_and_stack
):
    turned = {"kernel": ["sound", "text", "image"], "object": list("fbdaec")}
    turned["object_bis"] = turned["object"]
    other = fit(truth_and_stack[1].sel(turned), tol=1e-6, **PAPER)
    ax = plots.plot_intervals(
        posterior, estimate=other, truth=truth.sel(turned).transpose("object", ...)
    )
    expected = plots.plot_intervals(posterior, estimate=result, truth=truth)
    np.testing.assert_array_equal(points(ax, "x"), points(expected, "x"))
    np.testing.assert_allclose(points(ax, "D"), points(expected, "D"), atol=1e-3)
    assert legend_of(ax) == legend_of(expected)


def test_an_estimate_that_is_not_the_mode_of_this_posterior_is_said_to_be_none(
    posterior, result, truth, truth_and_stack
):
    _, stack = truth_and_stack
    scale = np.diag(np.arange(1.0, 7.0))
    for other in (
        fit(stack, sources="identical", strength=0.1),
        fit(stack, **PAPER | {"strength": 4.5}),
        fit(stack, **PAPER | {"degrees_of_freedom": [12, 12, 13]}),
        fit(stack, **PAPER | {"sources": "adaptive"}),
        fit(truth, **PAPER),
        fit(stack, **PAPER, prior=type(result.prior)(4.0, scale)),
    ):
        ax = plots.plot_intervals(posterior, [("a", "a")], estimate=other)
        assert legend_of(ax)[-1] == "EM estimate\n(other prior, ν or data)"
    panels = plots.plot_estimate_on_posterior(posterior, other, entries=[("a", "a")])
    assert legend_of(panels[0])[-1] == "EM estimate\n(other prior, ν or data)"


@short
def test_a_fit_of_the_same_sources_is_the_estimate(truth_and_stack):
    _, stack = truth_and_stack
    adaptive = PAPER | {"sources": "adaptive"}
    tree = sample_posterior(stack, **adaptive, **SHORT)
    for options, note in (({}, ""), ({"sharing": 0.5}, "\n(other prior, ν or data)")):
        ax = plots.plot_intervals(tree, estimate=fit(stack, **adaptive, **options))
        assert f"EM estimate{note}" in legend_of(ax)


def test_far_points_are_in_view(posterior, result):
    far = fit(1e4 * result.observed, **PAPER)
    entries = [("text", "f", "f")]
    ax = plots.plot_intervals(posterior, entries, estimate=far)
    assert ax.get_xlim()[1] > points(ax, "D")[0] > 1000.0
    (ax,) = plots.plot_estimate_on_posterior(posterior, far, entries=entries)
    assert ax.get_xlim()[1] > far.completed.sel(kernel="text").values[5, 5]
    assert ax.get_xlabel() == "100 % of the draws below EM"


@short
def test_what_the_prior_alone_ties_is_hollow():
    tree = tied_by_nothing(draws=60)
    entries = [("Q1", 10, 40), ("Q2", 10, 20), (20, 40), ("Q1", 40, 40), (10, 30)]
    ax = plots.plot_intervals(tree, entries)
    dots = {line.get_markerfacecolor(): line for line in ax.lines if line.get_marker() == "o"}
    assert dots["white"].get_ydata().tolist() == [0, 2]
    (other,) = dots.keys() - {"white"}
    assert dots[other].get_ydata().tolist() == [1, 3, 4]
    assert legend_of(ax) == ["median, central 50 %", "central 90 %", "the prior alone"]
    flags = tree["posterior_summary"]["completed_prior_only"].sel(kernel="Q1", object=40)
    assert flags.values.tolist() == [True, True, True, False]
    ax = plots.plot_intervals(tree, [(20, 40)])
    assert legend_of(ax) == ["the prior alone: median, central 50 %", "central 90 %"]
    with pytest.warns(IdentifiabilityWarning):
        result = fit(tree["observed_data"]["kernels"], **PAPER)
    one, two = plots.plot_estimate_on_posterior(tree, result, entries=[(20, 40), (10, 30)])
    assert one.get_xlabel().endswith("\n(the prior alone)")
    assert "prior" not in two.get_xlabel()


# Uncertainty


def test_maps_are_the_summarys(posterior):
    summary = posterior["posterior_summary"]
    axes = plots.plot_uncertainty(posterior, kernels=["image", "sound", "text"])
    assert axes.shape == (2, 3)
    assert [ax.get_title() for ax in axes[0]] == ["image", "sound", "text"]
    assert axes[0, 0].get_ylabel() == "posterior mean"
    assert axes[1, 0].get_ylabel() == "posterior sd\n(white: visible, exact)"
    hidden = np.isnan(posterior["observed_data"]["kernels"])
    for name, column in zip(["image", "sound", "text"], axes.T, strict=True):
        above, below = (np.ma.filled(ax.images[0].get_array(), np.nan) for ax in column)
        np.testing.assert_array_equal(above, summary["completed_mean"].sel(kernel=name))
        sd = summary["completed_sd"].sel(kernel=name).values
        own = hidden.sel(kernel=name).values
        np.testing.assert_array_equal(np.isnan(below), ~own)
        np.testing.assert_array_equal(below[own], sd[own])
    draws = draws_of(posterior, "hidden", "text, f, b")
    assert axes[1, 2].images[0].get_array()[5, 1] == pytest.approx(draws.std(ddof=1))
    assert axes[0, 2].images[0].get_array()[5, 1] == pytest.approx(draws.mean())


def test_maps_have_their_own_scales(posterior):
    axes = plots.plot_uncertainty(posterior)
    stack, sd = (
        posterior["observed_data"]["kernels"],
        posterior["posterior_summary"]["completed_sd"],
    )
    for k in range(2):
        seen = stack.values[k][~np.isnan(stack.values[k])]
        above, below = (ax.images[0].get_clim() for ax in axes[:, k])
        np.testing.assert_allclose(above, np.percentile(seen, [1, 99]))
        unsure = sd.values[k][np.isnan(stack.values[k])]
        np.testing.assert_allclose(below, [0.0, np.percentile(unsure, 99)])
        assert axes[1, k].images[0].colorbar.extend == "max"
    assert axes[1, 2].texts[0].get_text() == "nothing\nis hidden"
    assert not axes[1, 2].images[0].colorbar.ax.get_visible()


def test_objects_are_drawn_in_the_order_asked_for(posterior):
    order = ["f", "a"]
    axes = plots.plot_uncertainty(posterior, kernels=["text"], objects=order)
    pick = {"kernel": "text", "object": order, "object_bis": order}
    summary = posterior["posterior_summary"].to_dataset().sel(pick)
    np.testing.assert_array_equal(axes[0, 0].images[0].get_array(), summary["completed_mean"])
    below = np.ma.filled(axes[1, 0].images[0].get_array(), 0.0)
    np.testing.assert_array_equal(below, summary["completed_sd"])


@short
def test_without_a_variance_the_width_of_the_interval_is_drawn():
    tree = without_variance(draws=60)
    assert np.isinf(tree["posterior_summary"]["completed_sd"].sel(kernel="Q2")).all()
    axes = plots.plot_uncertainty(tree)
    assert axes[1, 0].get_ylabel() == "half the 90 % interval\n(white: visible, exact)"
    low, high = np.quantile(draws_of(tree, "hidden", "Q2, 1, 0"), [0.05, 0.95])
    drawn = axes[1, 1].images[0].get_array()
    assert drawn[0, 1] == drawn[1, 0] == pytest.approx((high - low) / 2)
    # Only the kernels that are drawn matter.
    axes = plots.plot_uncertainty(tree, kernels=["Q1"])
    assert axes[1, 0].get_ylabel().startswith("posterior sd")


@short
def test_kernels_of_one_value_and_of_zeros_are_drawn():
    kernels = np.stack([np.zeros((3, 3)), np.ones((3, 3)), np.eye(3)])
    stack = stack_kernels(kernels, visible=[[1, 1, 0], [1, 0, 0], [1, 1, 1]])
    with pytest.warns(MKMCWarning, match="scales differ"):
        tree = sample_posterior(stack, **PAPER, **SHORT)
    with pytest.warns(MKMCWarning, match="scales differ"):
        result = fit(stack, **PAPER)
    axes = plots.plot_uncertainty(tree)
    axes[0, 0].figure.canvas.draw()
    mean = tree["posterior_summary"]["completed_mean"].values[1]
    np.testing.assert_allclose(axes[0, 1].images[0].get_clim(), np.percentile(mean, [1, 99]))
    # All draws next to zeros are zero.
    ax = plots.plot_intervals(tree, [("Q1", 0, 2)])
    ax.figure.canvas.draw()
    np.testing.assert_array_equal(rows(ax), np.zeros((1, 5)))
    (ax,) = plots.plot_estimate_on_posterior(tree, result, entries=[("Q1", 0, 2)])
    ax.figure.canvas.draw()


# EM's estimate


def test_histograms_are_those_of_the_draws(posterior, result, truth):
    entries = [("text", "f", "f"), ("a", "a")]
    axes = plots.plot_estimate_on_posterior(
        posterior, result, entries=entries, probability=0.8, truth=truth
    )
    assert [ax.get_title() for ax in axes] == ["text: f, f", "model: a, a"]
    draws = draws_of(posterior, "hidden", "text, f, f"), draws_of(posterior, "model", "a, a")
    estimates = result.completed.values[0, 5, 5], result.model.matrix[0, 0]
    for ax, own, estimate in zip(axes, draws, estimates, strict=True):
        shade, *bars = ax.patches
        assert shade.get_x() == pytest.approx(np.quantile(own, 0.1))
        assert shade.get_x() + shade.get_width() == pytest.approx(np.quantile(own, 0.9))
        view = np.quantile(own, [0.005, 0.995])
        heights, edges = np.histogram(own, 30, range=view, density=True)
        np.testing.assert_allclose([bar.get_height() for bar in bars], heights)
        np.testing.assert_allclose([bar.get_x() for bar in bars], edges[:-1])
        mean, median, em = (line.get_xdata()[0] for line in ax.lines[:3])
        assert mean == pytest.approx(own.mean())
        assert median == pytest.approx(np.median(own))
        assert em == estimate
        share = np.searchsorted(np.sort(own), estimate) / len(own)
        assert ax.get_xlabel() == f"{100 * share:.0f} % of the draws below EM"
    assert axes[0].lines[3].get_xdata()[0] == truth.values[0, 5, 5]
    assert len(axes[1].lines) == 3  # the model's entries have no truth
    assert legend_of(axes[0]) == [
        "draws",
        "80 % interval",
        "posterior mean",
        "posterior median",
        "EM estimate",
        "truth",
    ]


@pytest.mark.parametrize(("count", "shape"), [(1, (1, 1)), (3, (1, 3)), (4, (2, 2)), (5, (2, 3))])
def test_panels_are_as_many_as_entries(posterior, result, count, shape):
    entries = [("text", "f", label) for label in OBJECTS[:count]]
    axes = plots.plot_estimate_on_posterior(posterior, result, entries=entries)
    assert axes.shape == (count,)
    assert len(axes[0].figure.axes) == count
    grid = axes[0].get_subplotspec().get_gridspec()
    assert grid.get_geometry() == shape


# Axes and names


def test_axes_are_taken_and_returned(posterior, result):
    entries = [("text", "f", "a"), ("a", "b")]
    _, ax = plt.subplots()
    assert plots.plot_intervals(posterior, entries, ax=ax, estimate=result) is ax
    assert ax.get_xlabel() == "value of the entry"
    assert ax.get_ylabel() == "entry"
    assert legend_of(ax)[-1] == "EM estimate"
    _, axes = plt.subplots(2, 1)
    drawn = plots.plot_estimate_on_posterior(posterior, result, entries=entries, axes=axes)
    assert drawn.tolist() == axes.tolist()
    assert all(ax.get_ylabel() == "density" for ax in axes)
    assert legend_of(axes[0])[-1] == "EM estimate"
    _, ax = plt.subplots()
    drawn = plots.plot_estimate_on_posterior(posterior, result, entries=entries[:1], axes=ax)
    assert drawn.tolist() == [ax]
    _, axes = plt.subplots(2, 3)
    assert plots.plot_uncertainty(posterior, axes=axes)[1, 2] is axes[1, 2]


@short
def test_names_are_drawn_as_they_are():
    names = ["$\\frac", "_b and a long name of several words", "c" * 80]
    objects = ["_x", "$y$", "an object with many words in its name", "{z} %s"]
    _, stack = stacks([[1, 1, 1, 0], [0, 1, 1, 1], [1, 1, 0, 1]], objects, names)
    tree = sample_posterior(stack, **PAPER, **SHORT)
    result = fit(stack, **PAPER)
    ax = plots.plot_intervals(tree, estimate=result)
    ax.figure.canvas.draw()
    labels = ax.get_yticklabels()
    assert not any(text.get_parse_math() for text in labels)
    texts = [text.get_text() for text in labels]
    assert texts[0] == "$\\frac: {z} %s, _x"
    assert texts[2] == "$\\frac:\n{z} %s, an object…its name"
    assert texts[4] == "_b and a long…everal words:\n_x, $y$"
    assert texts[8] == f"{'c' * 13}…{'c' * 12}:\nan object w…in its name, _x"
    assert all(len(line) <= 27 for text in texts for line in text.split("\n"))
    panels = plots.plot_estimate_on_posterior(tree, result)
    panels[0].figure.canvas.draw()
    assert panels[0].get_title() == "$\\frac: {z} %s, _x"
    assert not panels[0].title.get_parse_math()
    assert all(ax.get_title().count("\n") <= 1 for ax in panels)
    plots.plot_uncertainty(tree)[0, 0].figure.canvas.draw()


@short
def test_names_that_could_be_mistaken_are_told_apart():
    objects = ["a", "b, a", "a, b"]
    _, stack = stacks([[1, 1, 1], [1, 1, 0]], objects, ["model", "other"])
    tree = sample_posterior(stack, **PAPER, **SHORT)
    ax = plots.plot_intervals(tree, [("a", "b, a"), ("a, b", "a")])
    assert tick_names(ax) == ["model matrix: 'a', 'b, a'", "model matrix: 'a, b', 'a'"]
    ax = plots.plot_intervals(tree, [("a", "a"), ("other", "a, b", "a")])
    assert tick_names(ax) == ["model matrix: a, a", "other: a, b, a"]


@short
def test_integer_labels_are_taken_from_numpy_too():
    tree = tied_by_nothing(draws=20)
    ax = plots.plot_intervals(tree, [(np.int64(10), 20), (np.str_("Q2"), 10, np.int32(30))])
    assert tick_names(ax) == ["model: 10, 20", "Q2: 10, 30"]


# Bad input


@pytest.mark.parametrize("name", PICTURES)
@pytest.mark.parametrize("given", [3, "x", np.eye(2), xr.DataTree(), xr.Dataset()])
def test_what_is_no_posterior_is_refused(name, given, result):
    more = (result,) if name == "plot_estimate_on_posterior" else ()
    with pytest.raises(MKMCError, match=r"not a posterior .* sample_posterior"):
        getattr(plots, name)(given, *more)
    assert not plt.get_fignums()  # no empty figure is left behind


def test_a_damaged_posterior_is_refused(posterior):
    damaged = posterior.copy()
    del damaged["observed_data"]
    with pytest.raises(MKMCError, match=r"damaged, or not whole: .*observed_data"):
        plots.plot_intervals(damaged)


def drawers(posterior, result):
    """Return both plots of entries, as functions of the arguments they share."""
    return (
        lambda **given: plots.plot_intervals(posterior, **({"estimate": result} | given)),
        lambda **given: plots.plot_estimate_on_posterior(
            posterior, given.pop("estimate", result), **given
        ),
    )


@pytest.mark.parametrize(
    ("given", "error", "match"),
    [
        (
            {"entries": [("text", "a", "b")]},
            KernelError,
            r"entries: kernel 'text' shows the entry \('a', 'b'\): it is a constant",
        ),
        ({"entries": [("a", "z")]}, LabelError, r"entries: \('a', 'z'\): there is no object 'z'"),
        (
            {"entries": [("smell", "a", "b")]},
            LabelError,
            r"entries: \('smell', 'a', 'b'\): there is no kernel 'smell'",
        ),
        ({"entries": ["ab"]}, KernelError, r"entries: 'ab' found; an entry is \(object, object\)"),
        ({"entries": ("text", "a", "f")}, KernelError, "entries: 'text' found; an entry is"),
        ({"entries": "all"}, KernelError, "entries: 'all' found; a list of entries is needed"),
        ({"entries": 3}, KernelError, "entries: 3 found; a list of entries is needed"),
        ({"entries": []}, KernelError, "entries: there is nothing to draw"),
        ({"entries": [("a", "b")], "kernel": "text"}, KernelError, "entries, kernel: both found"),
        ({"kernel": "smell"}, LabelError, "kernel: there is none called 'smell'.*'text'"),
        ({"kernel": ["text"]}, LabelError, r"kernel: there is none called \['text'\]"),
        ({"kernel": "sound"}, MKMCError, "nothing to draw: kernel 'sound' hides no entry"),
        ({"probability": 1.0}, KernelError, r"probability: 1\.0 found; a number above"),
        ({"probability": "0.9"}, KernelError, "probability: '0.9' found"),
        ({"probability": True}, KernelError, "probability: True found"),
        ({"estimate": 3}, MKMCError, "result: int found"),
        ({"truth": np.eye(3)}, KernelError, "truth: a labeled stack .* not ndarray"),
    ],
)
def test_what_is_wrong_is_named(posterior, result, given, error, match):
    for draw in drawers(posterior, result):
        with pytest.raises(error, match=match):
            draw(**given)
    assert not plt.get_fignums()


def test_the_wider_interval_is_wider(posterior, result):
    with pytest.raises(KernelError, match=r"probability: 0\.5 found; a number above 0\.5 and"):
        plots.plot_intervals(posterior, probability=0.5)
    plots.plot_estimate_on_posterior(posterior, result, probability=0.5)


def test_other_labels_are_refused(posterior, result, truth, truth_and_stack):
    _, stack = truth_and_stack
    for draw in drawers(posterior, result):
        with pytest.raises(
            LabelError, match=r"result: its kernels are not the posterior's: 'image'"
        ):
            draw(estimate=fit(stack.sel(kernel=["text", "sound"]), **PAPER))
        fewer = stack.sel(object=OBJECTS[:5], object_bis=OBJECTS[:5])
        with pytest.raises(
            LabelError, match=r"result: its objects are not the posterior's: 'f' in"
        ):
            draw(estimate=fit(fewer, **PAPER))
        with pytest.raises(
            LabelError, match=r"truth: its objects .* 'a', 'b', .* and 7 more in one"
        ):
            draw(truth=stack_kernels(truth.values, names=["text", "image", "sound"]))
        with pytest.raises(LabelError, match=r"truth: its kernels .*: 'text', 'odd' in one only"):
            draw(truth=truth.assign_coords(kernel=["odd", "image", "sound"]))
        with pytest.raises(
            KernelError, match=r"truth, kernel 'text': the entry \('f', 'a'\) is miss"
        ):
            draw(truth=stack)
        draw(truth=zero_impute(stack))


@short
def test_nothing_hidden_is_nothing_to_draw(truth):
    tree = sample_posterior(truth, **PAPER, **SHORT)
    with pytest.raises(MKMCError, match=r"nothing to draw: no kernel hides an entry.*of the model"):
        plots.plot_intervals(tree)
    assert tick_names(plots.plot_intervals(tree, [("a", "b")])) == ["model: a, b"]


def test_what_is_no_axes_is_named(posterior, result):
    figure, axes = plt.subplots(2, 2)
    for given in (figure, axes, 3):
        with pytest.raises(MKMCError, match=rf"ax: {type(given).__name__} found; Matplotlib Axes"):
            plots.plot_intervals(posterior, ax=given)
    one = [("a", "b")]
    with pytest.raises(MKMCError, match="axes: Figure found"):
        plots.plot_estimate_on_posterior(posterior, result, entries=one, axes=figure)
    with pytest.raises(LabelError, match="axes: 4 found, 1 expected"):
        plots.plot_estimate_on_posterior(posterior, result, entries=one, axes=axes)
    with pytest.raises(LabelError, match=r"axes: shape \(2, 2\) found, \(2, 3\) \(rows, kernels\)"):
        plots.plot_uncertainty(posterior, axes=axes)
    with pytest.raises(MKMCError, match="axes: int found"):
        plots.plot_uncertainty(posterior, kernels=["text"], axes=np.array([[1], [2]]))


def test_what_a_heat_map_lacks_is_named(posterior):
    with pytest.raises(LabelError, match="no kernel 'smell'"):
        plots.plot_uncertainty(posterior, kernels=["smell"])
    with pytest.raises(LabelError, match="no object 'z'"):
        plots.plot_uncertainty(posterior, objects=["z"])
    with pytest.raises(LabelError, match="there is nothing to draw"):
        plots.plot_uncertainty(posterior, kernels=[])
    with pytest.raises(MKMCError, match="cmap: Matplotlib has no colormap 'virids'"):
        plots.plot_uncertainty(posterior, cmap="virids")
    with pytest.raises(MKMCError, match="sd_cmap: Matplotlib has no colormap 'YlOrB'"):
        plots.plot_uncertainty(posterior, sd_cmap="YlOrB")
    assert not plt.get_fignums()


def test_more_entries_than_panels_are_refused(posterior, result):
    entries = [("a", label) for label in OBJECTS] + [("b", "c")]
    with pytest.raises(KernelError, match=r"entries: 7 found; at most 6 .* plot_intervals"):
        plots.plot_estimate_on_posterior(posterior, result, entries=entries)
