"""Degrees of freedom by held-out entries: the rule, what it finds, and what it warns of."""

import warnings

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from plain_spread import plain, regress
from problems import PAPER, small_stack
from scipy import stats
from test_interrupts import interrupt

from mkmc_prob import (
    PPCA,
    Calibration,
    ConvergenceWarning,
    FactorAnalysis,
    KernelError,
    MKMCError,
    MKMCWarning,
    WishartPrior,
    calibrate,
    complete,
    datasets,
    effective_degrees_of_freedom,
    fit,
    kernels,
    load_result,
    plots,
    remove_objects,
    select_model,
    stack_kernels,
)
from mkmc_prob.em.problem import problem_of
from mkmc_prob.fitting import calibration as module
from mkmc_prob.fitting import holdout
from mkmc_prob.fitting.calibration import LARGEST, KernelResiduals, Residuals
from mkmc_prob.fitting.holdout import Draw, Setting, approach, hidden_objects, training_problem
from mkmc_prob.stacks.kernel_stack import KernelStack

not_calibrated = pytest.mark.filterwarnings("ignore:degrees_of_freedom")
only_in_kernels_alone = pytest.mark.filterwarnings("ignore:objects? .* visible only in kernels")
QUICK = {"draws": 2}


def drawn_kernels(nu, size=60, seed=0):
    """Wishart matrices with these degrees of freedom, over them, and their covariance."""
    rng = np.random.default_rng(seed)
    common = rng.standard_normal((size, 4))
    covariance = common @ common.T / 4 + 0.5 * np.eye(size)
    root = np.linalg.cholesky(covariance)
    drawn = [root @ rng.standard_normal((size, n)) for n in nu]
    return stack_kernels([x @ x.T / n for x, n in zip(drawn, nu, strict=True)]), covariance


@pytest.fixture(scope="module")
def stack():
    """Three kernels over 40 objects, 30 % of them missing."""
    return remove_objects(datasets.make_fusion_problem(40, 3).kernels, 0.3, seed=0)


@pytest.fixture(scope="module")
def found(stack):
    return calibrate(stack)


# --- the rule -------------------------------------------------------------------------------------


@pytest.mark.parametrize("sharing", [1.0, 0.6])
def test_the_rule_is_that_of_a_plain_computation(monkeypatch, stack, sharing):
    monkeypatch.setattr(module, "ROUNDS", 1)
    result = calibrate(stack, sharing=sharing, draws=3, seed=5)
    problem = problem_of(stack, WishartPrior(1.0), sharing=sharing)
    rng = np.random.default_rng(5)
    residuals, held_out = [([], [], []) for _ in range(3)], [set() for _ in range(3)]
    for _ in range(3):
        draw = Draw(problem, hidden_objects(problem.stack, rng))
        training = training_problem(draw, draw.training, Setting(1.0, (sharing,) * 3))
        model, sources, _ = approach(training, None)
        t = training.prior.scale_matrix(stack.sizes["object"])
        for k, hidden in enumerate(draw.hidden):
            there = np.flatnonzero(problem.stack.visible[k])
            source = sources[k]
            covariance = source.sharing * model.matrix + (1.0 - source.sharing) * t
            covariance = (source.scale * (covariance + source.constant))[np.ix_(there, there)]
            truth, v = stack.values[k][np.ix_(there, there)], ~hidden[there]
            a, c = regress(covariance, v)
            block = truth[np.ix_(v, v)]
            sd = plain(covariance, block, v, 1.0)
            across = (truth[np.ix_(v, ~v)] - block @ a) / sd[np.ix_(v, ~v)]
            among = (truth[np.ix_(~v, ~v)] - c - a.T @ block @ a) / sd[np.ix_(~v, ~v)]
            lower = np.tri(len(among), k=-1, dtype=bool)
            kinds = across.ravel(), among[lower], np.diagonal(among)
            for own, more in zip(residuals[k], kinds, strict=True):
                own.extend(np.abs(more))
            held_out[k] |= set(there[~v])
    for k, kinds in enumerate(residuals):
        n, m = problem.stack.visible[k].sum(), (~problem.stack.visible[k]).sum()
        weights = [
            np.full(len(own), share / len(own))
            for own, share in zip(kinds, (n * m, m * (m - 1) / 2, m), strict=True)
        ]
        pooled = pd.DataFrame({"r": np.concatenate(kinds), "w": np.concatenate(weights)})
        pooled = pooled.sort_values("r")
        q = pooled["r"][pooled["w"].cumsum() >= 0.9 * pooled["w"].sum()].iloc[0]
        a = stats.t(len(held_out[k]) - 1).ppf(0.95) / stats.norm.ppf(0.95)
        expected = (stats.norm.ppf(0.95) / (a * q)) ** 2
        assert result.degrees_of_freedom[k].item() == pytest.approx(expected, rel=1e-6)
        assert result.held_out[k].item() == len(held_out[k])
    assert (result.tested == "others").all()


def test_coverage_is_that_of_the_degrees_of_freedom_of_the_other_draws(stack):
    """Two draws, with residuals r and 2 r: each takes its degrees of freedom from the other."""
    kernel = KernelStack.of(stack).kernel(0)
    r = np.linspace(0.01, 1.0, 100)
    draws = [Residuals(factor * r, factor * r, factor * r) for factor in (1.0, 2.0)]
    one = KernelResiduals(kernel, draws, held_out=10**6)  # so many that t is normal
    shares = []
    for own, other in ((1.0, 2.0), (2.0, 1.0)):
        sd = other * 0.9 / stats.norm.ppf(0.95)
        limits = stats.norm.ppf(0.5 + 0.5 * np.array([0.5, 0.8, 0.9, 0.95])) * sd
        shares.append([(own * r <= limit + 1e-9).mean() for limit in limits])
    np.testing.assert_allclose(one.coverage, np.mean(shares, axis=0), atol=0.011)
    alone = KernelResiduals(kernel, draws[:1], held_out=10)
    assert np.isnan(alone.coverage).all()
    few, many = (KernelResiduals(kernel, draws, n).degrees_of_freedom for n in (3, 300))
    assert few < 0.5 * many  # fewer objects, wider intervals


def test_the_degrees_of_freedom_of_wishart_matrices_are_found():
    """With M known, to 20 %; with M estimated, fewer, as they account for its errors, too."""
    nu = np.array([20.0, 60.0, 200.0])
    truth, covariance = drawn_kernels(nu.astype(int), size=120)
    stack = remove_objects(truth, 0.3, seed=0)
    known = WishartPrior(1e6, covariance)
    given_m = calibrate(stack, prior=known, sources="identical").degrees_of_freedom.values
    assert (np.abs(np.log(given_m / nu)) < np.log(1.2)).all()
    estimated = calibrate(stack, sources="identical").degrees_of_freedom.values
    assert (estimated < 1.25 * nu).all()
    assert (estimated > 10.0).all()


def test_intervals_of_removed_entries_cover():
    truth, _ = drawn_kernels([20, 60, 200], seed=1)
    stack = remove_objects(truth, 0.3, seed=1)
    result = fit(stack, degrees_of_freedom="auto")
    inside = np.abs(truth - result.completed) <= 1.645 * result.standard_deviation
    for k in range(3):
        assert 0.84 <= inside.values[k][np.isnan(stack.values[k])].mean() <= 0.96
    assert (np.abs(result.calibration.coverage.sel(level=0.9) - 0.9) < 0.08).all()


# --- what it does not depend on -------------------------------------------------------------------


def test_units_do_not_matter(stack, found):
    scaled = stack * xr.DataArray([8.0, 1e-3, 1e6], dims="kernel")
    again = calibrate(scaled)
    np.testing.assert_allclose(again.degrees_of_freedom, found.degrees_of_freedom, rtol=1e-5)
    np.testing.assert_allclose(again.coverage, found.coverage, atol=2e-3)


def test_the_order_matters_only_by_other_draws(stack, found):
    again = calibrate(stack.isel(kernel=[2, 0, 1])).degrees_of_freedom
    ratio = again.sel(kernel=stack["kernel"]) / found.degrees_of_freedom
    assert (np.abs(np.log(ratio)) < np.log(1.5)).all()


def test_a_seed_gives_the_same_with_any_number_of_workers(stack, found):
    dataset = found.to_dataset()
    assert calibrate(stack, seed=0, workers=2).to_dataset().identical(dataset)
    generator = np.random.default_rng(0)
    assert calibrate(stack, seed=generator).to_dataset().identical(dataset)
    assert not calibrate(stack, seed=1).to_dataset().identical(dataset)


def test_the_stack_is_not_changed(stack):
    before = stack.copy(deep=True)
    calibrate(stack, **QUICK)
    assert stack.identical(before)


# --- kernels that cannot be tested ----------------------------------------------------------------


def apart(size=30):
    """Two kernels that have no object in common."""
    truth, _ = drawn_kernels([40, 40], size=size)
    visible = np.ones((2, size), dtype=bool)
    visible[0, size // 2 :] = visible[1, : size // 2] = False
    return stack_kernels(truth.values, visible=visible)


@pytest.mark.filterwarnings("ignore::mkmc_prob.IdentifiabilityWarning")
def test_kernels_without_common_objects_are_tested_alone():
    with pytest.warns(MKMCWarning, match=r"'Q1', 'Q2' could be held out.*Use sharing 0"):
        found = calibrate(apart(), **QUICK)
    assert (found.tested == "alone").all()
    assert (found.held_out > 0).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = calibrate(apart(), sharing=0.0, **QUICK)
    assert (found.tested == "alone").all()


@pytest.mark.filterwarnings("ignore:.* could be held out that another")
def test_kernels_of_few_objects_take_the_number_of_their_spectrum():
    stack = small_stack(size=8)
    hidden = stack["object"].values[2:]
    of_q1 = stack["kernel"] == "Q1"
    few = stack.where(~(of_q1 & stack["object"].isin(hidden)))
    few = few.where(~(of_q1 & few["object_bis"].isin(hidden)))
    with pytest.warns(MKMCWarning, match=r"too few objects are visible in 'Q1' .*\(at least 3"):
        found = calibrate(few, **QUICK)
    assert found.tested.values.tolist()[0] == "spectrum"
    expected = effective_degrees_of_freedom(few)[0]
    assert found.degrees_of_freedom[0] == pytest.approx(expected.item())
    assert np.isnan(found.coverage[0]).all()
    nowhere = few.where(few["kernel"] != "Q1")
    with pytest.warns(MKMCWarning, match="too few objects are visible in 'Q1'"):
        assert calibrate(nowhere, **QUICK).degrees_of_freedom[0] == 1.0


@not_calibrated
@pytest.mark.filterwarnings("ignore::mkmc_prob.IdentifiabilityWarning")
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_few_objects(size):
    stack = stack_kernels(np.stack([np.eye(size) + 1.0] * 2))
    found = calibrate(stack, sources="identical", **QUICK)
    assert np.isfinite(found.degrees_of_freedom).all()
    assert (found.degrees_of_freedom > 0.0).all()


def test_kernels_that_are_predicted_exactly_have_a_largest_number():
    stack = stack_kernels(np.stack([np.eye(12)] * 2))
    found = calibrate(stack, sources="identical", **QUICK)
    np.testing.assert_allclose(found.degrees_of_freedom, LARGEST)
    np.testing.assert_allclose(found.coverage, 1.0)


def test_a_kernel_whose_intervals_do_not_cover_is_named(monkeypatch, stack):
    monkeypatch.setattr(module, "LEAST_COVERAGE", 0.999)
    with pytest.warns(MKMCWarning) as caught:
        result = fit(stack, degrees_of_freedom="auto")
    said = [str(one.message) for one in caught if one.category is MKMCWarning]
    low = result.calibration.coverage.sel(level=0.9) < 0.999
    assert len(said) == low.sum() > 0
    for name in low["kernel"][low].values.tolist():
        share = float(result.calibration.coverage.sel(kernel=name, level=0.9))
        assert any(f"kernel {name!r} cover only {share:.0%}" in one for one in said)


# --- every model ----------------------------------------------------------------------------------


@only_in_kernels_alone
@pytest.mark.parametrize(
    "model",
    [
        {"structure": PPCA(6)},
        {"structure": FactorAnalysis(6), "sharing": 0.7},
        {"prior": PPCA(6), "strength": 3.0},
        {"prior": WishartPrior(2.0, 0.5 * np.eye(40) + 0.5)},
        {"sharing": [1.0, 0.5, 0.0]},
        PAPER,
    ],
    ids=lambda model: ", ".join(model),
)
def test_a_fit_takes_what_is_calibrated_with_its_model(stack, model):
    expected = calibrate(stack, **model)
    result = fit(stack, degrees_of_freedom="auto", **model)
    assert result.calibration.to_dataset().identical(expected.to_dataset())
    np.testing.assert_array_equal(result.degrees_of_freedom, expected.degrees_of_freedom)
    shares = result.sources["sharing"].values > 0.0
    mean = float(expected.degrees_of_freedom[shares].mean())
    own = model.get("prior")
    if isinstance(own, WishartPrior):
        weighted = model | {"prior": own.with_strength(mean * own.strength)}
    else:
        weighted = model | {"strength": mean * model.get("strength", 1.0)}
    again = fit(stack, degrees_of_freedom=expected.degrees_of_freedom, **weighted)
    assert again.prior.strength == result.prior.strength
    assert again.completed.identical(result.completed)
    assert again.standard_deviation.identical(result.standard_deviation)


def test_sources_of_the_users_are_held(stack):
    adaptive = fit(stack).sources
    own = adaptive.assign(scale=2.0 * adaptive["scale"])
    one, two = (calibrate(stack, sources=given, **QUICK) for given in (adaptive, own))
    assert not np.allclose(one.degrees_of_freedom, two.degrees_of_freedom, rtol=0.1)
    result = fit(stack, sources=own, degrees_of_freedom="auto")
    np.testing.assert_array_equal(result.sources["scale"], own["scale"])


@pytest.mark.parametrize("sources", ["adaptive", "identical"])
def test_a_prior_of_few_factors_is_fitted_in_each_draw(monkeypatch, stack, sources):
    calls, original = [], holdout.with_low_rank_prior

    def counted(problem, factors, **options):
        calls.append(factors)
        return original(problem, factors, **options)

    monkeypatch.setattr(holdout, "with_low_rank_prior", counted)
    calibrate(stack, prior=PPCA(6), sources=sources, draws=2)
    assert calls == [PPCA(6)] * 2 * module.ROUNDS


# --- results --------------------------------------------------------------------------------------


def test_a_result_is_saved_with_its_calibration(stack, tmp_path):
    result = fit(stack, degrees_of_freedom="auto")
    result.save(tmp_path / "result.nc")
    loaded = load_result(tmp_path / "result.nc")
    assert loaded.identical(result)
    assert loaded.calibration.to_dataset().identical(result.calibration.to_dataset())
    assert loaded.calibration.table.equals(result.calibration.table)
    assert repr(loaded.calibration) == repr(result.calibration)
    assert not fit(stack).identical(result)
    assert fit(stack).calibration is None


@only_in_kernels_alone
def test_complete_shows_the_calibration(stack, tmp_path):
    options = {"strengths": [1.0], "sharing": [1.0], "draws": 2, "degrees_of_freedom": "auto"}
    result = complete(stack, **options)
    assert isinstance(result.calibration, Calibration)
    assert result.selection.calibration is result.calibration
    result.save(tmp_path / "result.nc")
    loaded = load_result(tmp_path / "result.nc")
    assert loaded.identical(result)
    assert loaded.selection.calibration is loaded.calibration
    np.testing.assert_array_equal(
        loaded.selection.calibration.degrees_of_freedom, result.degrees_of_freedom
    )
    again = fit(stack, **result.selection.best, degrees_of_freedom="auto")
    assert again.completed.identical(result.completed)


def test_the_table_has_a_row_per_kernel(found, stack):
    table = found.table
    assert table.index.tolist() == stack["kernel"].values.tolist()
    assert table.columns.tolist()[3:] == ["50 %", "80 %", "90 %", "95 %"]
    assert "rbf_1" in repr(found)
    for name in table.index:
        assert table.loc[name, "90 %"] == found.coverage.sel(kernel=name, level=0.9)


def test_progress_is_shown(stack, capsys):
    calibrate(stack, draws=2, progress=True)
    assert "calibrate: 100%" in capsys.readouterr().err
    calibrate(stack, draws=2)
    assert not capsys.readouterr().err


# --- arguments and Ctrl-C -------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["automatic", "", "Auto"])
@pytest.mark.parametrize("function", [fit, complete, select_model])
def test_other_texts_are_refused(function, value, stack):
    with pytest.raises(KernelError, match=rf"^degrees_of_freedom: '{value}' found; numbers or"):
        function(stack, degrees_of_freedom=value)


def test_a_model_is_selected_with_equal_weights(stack):
    with pytest.raises(KernelError, match=r"equal weights, then fit\(stack, \*\*selection.best"):
        select_model(stack, degrees_of_freedom="auto")
    with pytest.raises(KernelError, match=r"only fit and complete take.*calibrate\(stack\)"):
        problem_of(stack, WishartPrior(1.0), degrees_of_freedom="auto")


@pytest.mark.parametrize(
    "option", [{"draws": 0}, {"draws": 1.5}, {"seed": -1}, {"workers": 0}, {"strength": 0.0}]
)
def test_wrong_options_are_named(option, stack):
    (name,) = option
    with pytest.raises(MKMCError, match=f"^{name}: "):
        calibrate(stack, **option)


def test_kernels_that_are_not_in_memory_are_refused():
    rng = np.random.default_rng(0)
    features = {name: kernels.Features(rng.standard_normal((9, 4))) for name in ("a", "b")}
    stack = stack_kernels(features, objects=[f"p{i}" for i in range(9)], visible=np.ones((2, 9)))
    options = {"structure": PPCA(2)}
    with pytest.raises(KernelError, match=r"needs the kernels in memory.*stack\.load\(objects\)"):
        fit(stack, degrees_of_freedom="auto", **options)
    with pytest.raises(KernelError, match=r"stack: .*not in memory.*stack\.load\(objects\)"):
        calibrate(stack, **options)


def test_no_plot_without_a_tested_kernel(found):
    untested = Calibration(
        found.degrees_of_freedom, found.coverage * np.nan, found.held_out, found.tested
    )
    with pytest.raises(MKMCError, match="no kernel could be tested"):
        untested.plot()
    assert found.plot().get_xlabel() == plots.plot_coverage(found).get_xlabel()


@pytest.mark.parametrize("prior", [None, PPCA(6)])
def test_an_interrupt_while_calibrating_returns_one_step_with_equal_weights(
    monkeypatch, stack, prior
):
    interrupt(monkeypatch, "e_step", 5)
    with (
        pytest.warns(ConvergenceWarning, match="interrupted after"),
        pytest.warns(MKMCWarning, match="interrupted before they were calibrated"),
    ):
        result = fit(stack, degrees_of_freedom="auto", prior=prior)
    monkeypatch.undo()
    assert result.interrupted
    assert result.calibration is None
    assert (result.degrees_of_freedom == 1.0).all()
    plainly = fit(stack, method="em", tol=0, max_iter=1)
    np.testing.assert_allclose(result.completed, plainly.completed, rtol=1e-12, atol=1e-12)


def test_an_interrupt_of_calibrate_is_passed_on(monkeypatch, stack):
    interrupt(monkeypatch, "e_step", 5)
    with pytest.raises(KeyboardInterrupt):
        calibrate(stack)


def test_an_interrupt_after_the_calibration_keeps_it(monkeypatch, stack, found):

    calls = []

    def struck(*arguments, **options):
        calls.append(options)
        raise KeyboardInterrupt

    monkeypatch.setattr("mkmc_prob.fitting.fit.with_low_rank_prior", struck)
    with pytest.warns(ConvergenceWarning, match="interrupted after"):
        result = fit(stack, degrees_of_freedom="auto", prior=PPCA(6))
    assert len(calls) == 1
    assert result.interrupted
    np.testing.assert_array_equal(result.degrees_of_freedom, result.calibration.degrees_of_freedom)


@pytest.mark.parametrize("structure", ["full", PPCA(1)])
def test_nothing_is_calibrated_if_nothing_is_visible(structure):
    stack = stack_kernels(np.stack([np.eye(3)] * 2), visible=np.zeros((2, 3)))
    with pytest.raises(KernelError, match=r"no object is visible in any kernel \('Q1', 'Q2'\)"):
        calibrate(stack, structure=structure)
