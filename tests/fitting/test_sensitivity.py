"""Sensitivity to hidden objects that differ by a factor: closed forms, simulation, arguments."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from not_ignorable import log_ratio, shifted_kernels
from problems import PAPER, both_models, small_stack
from strategies import random_covariance

from mkmc_prob import (
    EM,
    PPCA,
    KernelError,
    LabelError,
    WishartPrior,
    fit,
    load_result,
    mean_impute,
    sensitivity,
    stack_kernels,
    visible_objects,
)
from mkmc_prob.fitting.shifted import Shifts
from mkmc_prob.model.shift import DIRECTIONS, ShiftableKernel


def held(result, direction, delta):
    """The shifted kernels and their model."""
    return Shifts(result, direction, np.arange(result.observed.sizes["kernel"])).held(delta)


@pytest.fixture(scope="module")
def paper():
    return fit(small_stack(), **PAPER)


@pytest.fixture(scope="module")
def adaptive():
    return fit(small_stack() + 2.0)


def test_size_is_its_closed_form():
    """Two kernels of two objects, one hidden in the second, at the maximum.

    M_12 is that of the first kernel's part and the second's prediction, M_12 / M_11 times Q_11.
    """
    first = np.array([[2.0, 1.0], [1.0, 3.0]])
    second = np.array([[5.0, np.nan], [np.nan, np.nan]])
    stack = stack_kernels(np.stack([first, np.nan_to_num(second)]), visible=[[1, 1], [1, 0]])
    result = fit(stack, strength=1.0, sources="identical", tol=1e-12)
    m11 = (1.0 + 2.0 + 5.0) / 3.0
    a = (1.0 / 3.0) / (m11 - 5.0 / 3.0)  # m12 = (1 + 5 a) / 3, a = m12 / m11
    c = (1.0 + 3.0 + 5.0 * a**2 - a**2 * m11 * 3.0) / (3.0 - 1.0)  # m22 = c + a^2 m11
    for delta in (0.0, 0.5, 1.0, 3.0):
        shifted = held(result, "size", delta).completed.values[1]
        expected = [[5.0, delta * 5.0 * a], [delta * 5.0 * a, delta**2 * (c + 5.0 * a**2)]]
        np.testing.assert_allclose(shifted, expected, rtol=1e-5)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("centered", [False, True])
def test_a_shift_is_that_of_the_features(direction, centered):
    """The second moments of vectors that are shifted one by one, with A and C of a model."""
    rng = np.random.default_rng(1)
    size, delta = 5, 0.6
    v, h = np.arange(3), np.arange(3, 5)
    covariance = random_covariance(rng, size)
    regression = np.linalg.solve(covariance[np.ix_(v, v)], covariance[np.ix_(v, h)])
    rest = covariance[np.ix_(h, h)] - covariance[np.ix_(h, v)] @ regression
    x = rng.standard_normal((3, 2))  # a visible block of rank two
    block = x @ x.T / 2
    whole = np.empty((size, size))

    def completed(by, left):
        """Kernel of (x_v, by x_v + e), e with second moment `left`."""
        whole = np.block([[block, block @ by.T], [by @ block, by @ block @ by.T + left]])
        return 0.5 * (whole + whole.T)

    whole = completed(regression.T, rest)
    center = np.full((2, 3), 1.0 / 3.0) if centered else np.zeros((2, 3))
    about = regression.T - center
    explained = np.diag(np.diag(about @ block @ about.T))
    left = delta**2 * rest if direction == "size" else rest + (1 - delta**2) * explained
    expected = completed(center + delta * about, left)
    kernel = ShiftableKernel(whole, np.arange(size) < 3, centered=centered)
    np.testing.assert_allclose(kernel.shifted(direction, delta), expected, atol=1e-12)


@both_models
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_at_one_it_is_the_result_itself(model, direction):
    result = fit(small_stack() + 1.0, **model)
    shifted = held(result, direction, 1.0)
    np.testing.assert_array_equal(shifted.completed, result.completed)
    np.testing.assert_allclose(shifted.model.matrix, result.model.matrix, rtol=0, atol=1e-12)
    found = sensitivity(result, direction, deltas=[1.0], quantity=lambda own: own.delta)
    assert found["quantity"].item() == 1.0
    assert (found["largest_change"].fillna(0.0) == 0.0).all()
    again = sensitivity(result, direction, deltas=[1.0], refit=True)
    assert (again["largest_change"].fillna(0.0) == 0.0).all()


def test_the_paper_s_model_of_shifted_kernels_is_their_mean_with_the_prior(paper):
    shifted = held(paper, "size", 0.5)
    expected = (0.1 * np.eye(6) + shifted.completed.values.sum(axis=0)) / 3.1
    np.testing.assert_allclose(shifted.model.matrix, expected, atol=1e-12)


def test_the_model_of_shifted_kernels_is_their_m_step(adaptive):
    """Near a maximum: with the kernels taken for visible, and the constants held."""
    result = fit(small_stack() + 2.0, sharing=[1.0, 0.6, 0.8], tol=1e-11)
    shifted = held(result, "ties", 0.4)
    sources = result.sources.drop_vars("estimated")
    em = EM(shifted.completed, WishartPrior(1.0, result.prior.scale), sources=sources)
    expected = em.m_step(em.e_step(result.model)).matrix
    np.testing.assert_allclose(shifted.model.matrix, expected, atol=1e-5)


def test_with_sources_size_zero_is_mean_imputation(adaptive):
    found = held(adaptive, "size", 0.0).completed
    np.testing.assert_allclose(found, mean_impute(adaptive.observed), atol=1e-12)


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10**6), delta=st.floats(0.0, 3.0), centered=st.booleans())
def test_shifted_kernels_are_covariances(seed, delta, centered):
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 8))
    whole = random_covariance(rng, size)
    visible = rng.random(size) < 0.6
    kernel = ShiftableKernel(whole, visible, centered=centered)
    for direction in DIRECTIONS:
        if direction == "ties":
            delta = min(delta, kernel.largest_ties)
        shifted = kernel.shifted(direction, delta)
        np.testing.assert_array_equal(shifted, shifted.T)
        np.testing.assert_array_equal(
            shifted[np.ix_(visible, visible)], whole[np.ix_(visible, visible)]
        )
        assert np.linalg.eigvalsh(shifted)[0] > -1e-12 * max(1.0, delta**2) * np.trace(whole)
        if direction == "ties" and not centered:
            np.testing.assert_array_equal(np.diag(shifted), np.diag(whole))


@pytest.mark.parametrize("centered", [False, True])
def test_beyond_the_largest_ties_a_kernel_is_no_covariance(centered):
    whole = random_covariance(np.random.default_rng(3), 6)
    visible = np.array([1, 1, 1, 0, 0, 0], dtype=bool)
    kernel = ShiftableKernel(whole, visible, centered=centered)
    largest = kernel.largest_ties
    assert 1.0 < largest < np.inf
    assert np.linalg.eigvalsh(kernel.shifted("ties", largest))[0] > -1e-12
    # The conditional covariance is a Schur complement, of the same sign.
    assert np.linalg.eigvalsh(kernel.shifted("ties", 1.01 * largest))[0] < -1e-6


def test_the_largest_ties_of_special_kernels():
    unrelated = ShiftableKernel(np.eye(2), np.array([True, False]))
    assert unrelated.largest_ties == np.inf
    copied = ShiftableKernel(np.ones((2, 2)), np.array([True, False]))
    assert copied.largest_ties == 1.0
    empty = ShiftableKernel(np.eye(2), np.zeros(2, dtype=bool), centered=True)
    np.testing.assert_array_equal(empty.shifted("size", 2.0), 4.0 * np.eye(2))


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_kernel_s_unit_does_not_matter(direction):
    stack = small_stack() + 1.0
    factors = np.array([1.0, 1000.0, 1e-3])[:, None, None]
    one, other = (fit(s, tol=1e-9) for s in (stack, factors * stack))
    first, second = (held(result, direction, 0.7) for result in (one, other))
    np.testing.assert_allclose(second.completed, factors * first.completed, rtol=1e-6)
    np.testing.assert_allclose(second.model.matrix, first.model.matrix, rtol=1e-6)
    tables = [sensitivity(result, direction) for result in (one, other)]
    for name in ("mean_change", "largest_change"):
        np.testing.assert_allclose(tables[0][name], tables[1][name], rtol=1e-6)


@pytest.mark.parametrize(
    ("direction", "true", "constant"), [("size", 0.7, 0.0), ("size", 0.7, 0.5), ("ties", 0.6, 0.5)]
)
def test_the_truth_is_covered_at_its_delta_and_at_no_other(direction, true, constant):
    """Monte Carlo, 99 %. tests/slow/not_at_random.py has more draws."""
    deltas, rows = [true - 0.2, true - 0.1, true, true + 0.1, true + 0.2, 1.0], []
    for seed in range(10):
        truth, visible = shifted_kernels(
            np.random.default_rng(seed), direction, true, constant=constant, objects=24
        )
        sources = "adaptive" if constant else "identical"
        result = fit(stack_kernels(truth, visible=visible), strength=0.01, sources=sources)

        def ratio(shifted, truth=truth, visible=visible):
            values = shifted.completed.values
            return log_ratio(truth, values, visible, direction, centered=constant > 0.0)

        rows.append(sensitivity(result, direction, deltas=deltas, quantity=ratio)["quantity"])
    mean = np.mean(rows, axis=0)
    error = 3.25 * np.std(rows, axis=0, ddof=1) / np.sqrt(len(rows))  # t, 9 degrees of freedom
    covered = np.abs(mean) <= error
    assert covered.tolist() == [delta == true for delta in sorted(deltas)]


def test_changes_are_relative_to_the_diagonal(paper):
    found = sensitivity(paper, "size", deltas=[0.5], kernels=["Q1"])
    before, after = paper.completed.values[0], held(paper, "size", 0.5).completed.values[0]
    deviations = np.sqrt(np.diag(before))
    change = np.abs(after - before) / np.outer(deviations, deviations)
    hidden = ~visible_objects(paper.observed).values[0]
    pairs = np.tri(6, dtype=bool) & (hidden[:, None] | hidden)
    one = found.sel(kernel="Q1", delta=0.5)
    assert one["mean_change"].item() == pytest.approx(change[pairs].mean(), rel=1e-12)
    assert one["largest_change"].item() == pytest.approx(change[pairs].max(), rel=1e-12)
    assert (found.sel(kernel=["Q2", "Q3"], delta=0.5)["largest_change"] == 0.0).all()


def test_a_refit_is_a_fixed_point_and_compounds_the_factor():
    """Visible in one of two kernels, a small prior: delta / (2 - delta) times the entries."""
    first = np.array([[1.0, 0.5], [0.5, 1.0]])
    stack = stack_kernels(np.stack([first, first]), visible=[[1, 1], [1, 0]])
    result = fit(stack, sources="identical", strength=1e-6, tol=1e-12)
    found = sensitivity(
        result, "size", deltas=[0.5], refit=True, quantity=lambda own: own.completed.values[1, 0, 1]
    )
    assert found["quantity"].sel(delta=0.5).item() == pytest.approx(0.5 * 0.5 / 1.5, rel=1e-4)


@both_models
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_refitted_model_is_the_m_step_of_its_own_completions(model, direction):
    result = fit(small_stack() + 1.0, **model)
    shifts = Shifts(result, direction, np.arange(3))
    refitted = shifts.refitted(0.7)
    em = EM(
        result.observed,
        result.prior,
        sources=result.sources.assign(
            constant=result.sources["constant"].where(~result.sources["estimated"])
        ),
    )
    completed = em.complete(refitted.model)
    for own, matrix, visible in zip(
        refitted.completed.values, completed.values, shifts.problem.stack.visible, strict=True
    ):
        kernel = ShiftableKernel(matrix, visible, centered=shifts.centered)
        np.testing.assert_allclose(own, kernel.shifted(direction, 0.7), atol=1e-4)


def test_a_refit_without_a_fixed_point_says_so(paper):
    with pytest.raises(KernelError, match=r"deltas: 3 found with refit=True; the refit diverges"):
        sensitivity(paper, "size", deltas=[3.0], refit=True)


def test_tipping_points_are_interpolated_and_bracketed(paper):
    found = sensitivity(
        paper, "size", deltas=[0.5, 0.8, 1.25, 2.0], quantity=lambda own: own.delta, conclusion=0.7
    )
    assert found["tipping_point"].sel(side="below").item() == pytest.approx(0.7)
    assert found["tipping_interval"].sel(side="below").values.tolist() == [0.8, 0.5]
    assert np.isnan(found["tipping_point"].sel(side="above"))
    assert found["holds"].values.tolist() == [False, True, True, True, True]
    assert found.attrs["conclusion"] == (
        "quantity > 0.7 holds at delta 1; it changes between 0.8 and 0.5 (about 0.7); it does not "
        "change up to 2."
    )
    found = sensitivity(
        paper,
        "ties",
        deltas=[0.0, 0.5],
        quantity=lambda own: own.delta,
        conclusion=lambda value: value < 0.7,
    )
    assert found["tipping_point"].sel(side="below").item() == 0.75
    assert found.attrs["conclusion"] == (
        "the conclusion does not hold at delta 1; it changes between 1 and 0.5 (about 0.75)."
    )


def test_the_verdict_compares_with_rows_of_a_known_factor():
    """At size 0 about the center every hidden object is the mean: mean imputation is exact."""
    truth, _ = shifted_kernels(np.random.default_rng(0), "size", 1.0, objects=20, kernels=4)
    result = fit(stack_kernels(truth + 1.0))
    found = sensitivity(result, "size", deltas=[0.0, 0.5], verdict=True, draws=3)
    np.testing.assert_allclose(found["mean_error"].sel(delta=0.0), 0.0, atol=1e-12)
    assert found["advantage"].sel(delta=0.0) < 0.0 < found["advantage"].sel(delta=1.0)
    assert found["advantage_error"].sel(delta=1.0) > 0.0
    assert found.attrs["verdict"].startswith("completion better than mean imputation holds at")
    one = sensitivity(result, "size", deltas=[0.0], verdict=True, draws=3, kernels=["Q2"])
    assert one["mean_error"].sel(delta=0.0, kernel="Q2").item() == pytest.approx(0.0, abs=1e-12)
    same = one["mean_error"].sel(kernel=["Q1", "Q3", "Q4"])
    assert (same.sel(delta=0.0) == same.sel(delta=1.0)).all()


@pytest.mark.parametrize("options", [PAPER, {"structure": PPCA(2)}, {"prior": PPCA(2)}])
@pytest.mark.filterwarnings("ignore:.*:mkmc_prob.MKMCWarning")
def test_the_verdict_of_other_models(options):
    truth, visible = shifted_kernels(np.random.default_rng(1), "size", 1.0, objects=15, kernels=3)
    result = fit(stack_kernels(truth, visible=visible), **options)
    found = sensitivity(result, "ties", deltas=[0.5], verdict=True, draws=2)
    assert np.isfinite(found["advantage"]).all()


def test_a_saved_result_and_one_of_few_factors(tmp_path):
    result = fit(small_stack(), structure=PPCA(2))
    result.save(tmp_path / "few.nc")
    tables = [
        sensitivity(one, "ties", quantity=lambda own: float(own.completed.mean()))
        for one in (result, load_result(tmp_path / "few.nc"))
    ]
    assert tables[0].identical(tables[1])
    with pytest.raises(KernelError, match="model of shifted kernels: structure PPCA"):
        sensitivity(result, "size", quantity=lambda own: own.model.matrix[0, 0])
    with pytest.raises(KernelError, match="refit: structure PPCA"):
        sensitivity(result, "size", refit=True)


def test_the_result_is_not_changed(paper):
    before = paper.completed.copy(deep=True)
    sensitivity(paper, "size", quantity=lambda own: own.model.matrix[0, 0])
    assert before.identical(paper.completed)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"direction": "length"}, "direction: 'length' found"),
        ({"deltas": [-1.0]}, "deltas: -1.0 found; a finite number >= 0"),
        ({"deltas": [0.5, 0.5]}, "each once"),
        ({"conclusion": 0.5}, "conclusion: found without a quantity"),
        ({"conclusion": "high", "quantity": len}, "conclusion: 'high' found"),
        ({"quantity": 3}, "quantity: 3 found; a function"),
        (
            {"quantity": lambda own: 1.0, "conclusion": lambda value: np.zeros(0)},
            "conclusion: it returns array.* at the quantity 1; True or False",
        ),
        ({"deltas": xr.Dataset()}, "(?s)deltas: .* found"),
        ({"quantity": lambda own: np.nan}, r"quantity: nan found at delta 0\.5"),
        ({"direction": "ties", "deltas": [1.1], "verdict": True}, "at most 1 is needed"),
        (
            {"direction": "ties", "deltas": [50.0]},
            r"deltas: 50 found; at most 1\.\d+ is admissible",
        ),
        ({"draws": 1}, "draws: 1 found"),
    ],
)
def test_refused_arguments(paper, options, message):
    with pytest.raises(KernelError, match=message):
        sensitivity(paper, **{"direction": "size"} | options)


def test_a_kernel_that_does_not_exist_is_named(paper):
    with pytest.raises(LabelError, match="there is no kernel 'Q7'"):
        sensitivity(paper, "size", kernels="Q7")


def test_the_largest_admissible_delta_of_the_message_is_admissible(paper):
    with pytest.raises(KernelError) as error:
        sensitivity(paper, "ties", deltas=[50.0])
    largest = float(str(error.value).partition("at most ")[2].partition(" ")[0])
    sensitivity(paper, "ties", deltas=[largest])


def test_drawing_without_a_quantity(paper):
    from mkmc_prob import plots

    ax = plots.plot_sensitivity(sensitivity(paper, "size"))
    assert len(ax.get_legend().get_texts()) == 3
    plt.close("all")
