"""Pictures: image comparisons, and axes in and out."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr

from mkmc_prob import LabelError, fit, plots, select_strength, stack_kernels

mpl_image = pytest.mark.mpl_image_compare(style="default", remove_text=True, tolerance=5)


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


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
    return fit(stack_kernels(kernels, visible=visible), strength=0.5, tol=0, max_iter=30)


@mpl_image
def test_plot_trace(result):
    return result.plot_trace().figure


@mpl_image
def test_plot_kernels(result):
    return result.plot_kernels()[0, 0].figure


@pytest.fixture(scope="module")
def selection(result):
    return select_strength(result.observed, strengths=[0.01, 0.1, 1.0, 10.0], folds=3)


@mpl_image
@pytest.mark.parametrize("name", ["pattern", "pair_counts", "spectra", "disagreement", "agreement"])
def test_diagnostic_pictures(result, name):
    return getattr(result, f"plot_{name}")().figure


@mpl_image
@pytest.mark.parametrize("name", ["increments", "gain_parts"])
def test_pictures_of_the_steps(result, name):
    """Of steps whose gains are far above rounding."""
    few = fit(result.observed, strength=0.1, tol=0, max_iter=14, method="em")
    return getattr(few, f"plot_{name}")().figure


@mpl_image
def test_plot_strength(selection):
    return selection.plot().figure


@mpl_image
def test_plot_calibration(selection):
    return plots.plot_calibration(selection, strength=1.0).figure


def test_every_picture_draws_on_the_axes_it_is_given(result, selection):
    for name in plots.__all__:
        if name in ("MISSING", "plot_kernels"):
            continue
        _, ax = plt.subplots()
        given = {"plot_strength": selection, "plot_calibration": selection}.get(name, result)
        if name in ("plot_trace", "plot_increments", "plot_gain_parts"):
            given = result.trace
        if name in ("plot_pattern", "plot_pair_counts"):
            given = result.observed
        assert getattr(plots, name)(given, ax=ax) is ax
        assert ax.get_xlabel()
        assert ax.get_ylabel()


def test_missing_rows_are_grey(result):
    axes = plots.plot_kernels(result.observed)
    image = axes[0, 0].images[0]
    colours = image.to_rgba(image.get_array())
    grey = float(plots.MISSING)
    assert np.allclose(colours[1, :, :3], grey)
    assert np.allclose(colours[:, 7, :3], grey)
    assert not np.allclose(colours[0, 0, :3], grey)


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
    ax = fit(stack_kernels(np.zeros((1, 3, 3)))).plot_agreement()
    ax.figure.canvas.draw()


def test_a_strength_that_was_not_tried_is_named(selection):
    with pytest.raises(LabelError, match=r"strength: 0\.5 was not tried"):
        plots.plot_calibration(selection, strength=0.5)
