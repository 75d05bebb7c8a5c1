"""The choice of a model by held-out objects: draws, scores, rules, verdict."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import small_stack
from scipy import optimize, stats
from strategies import random_covariance

from mkmc_prob import (
    ConvergenceWarning,
    KernelError,
    LabelError,
    MKMCError,
    WishartPrior,
    complete,
    datasets,
    fit,
    knn_impute,
    mean_impute,
    plots,
    relative_error,
    remove_objects,
    select_model,
    stack_kernels,
)
from mkmc_prob.fitting import selection as module
from mkmc_prob.fitting.holdout import (
    Draw,
    HeldOut,
    Outcome,
    Setting,
    hidden_objects,
)
from mkmc_prob.model.sources import Source
from mkmc_prob.model.structures import FULL
from mkmc_prob.stacks.kernel_stack import KernelStack

#: Some objects are visible in the third kernel alone, which shares nothing.
pytestmark = pytest.mark.filterwarnings("ignore:objects .* visible only in kernels that share")


def independent(seed, *, kernels=3, size=40, features=20, common=False, missing=0.2):
    """Linear kernels of normal features; with `common` ones, the features have one covariance."""
    rng = np.random.default_rng(seed)
    factor = np.eye(size)
    if common:
        loadings = rng.standard_normal((size, 10))
        factor = np.linalg.cholesky(loadings @ loadings.T / 10 + 0.3 * np.eye(size))
    drawn = factor @ rng.standard_normal((kernels, size, features))
    stack = stack_kernels(drawn @ drawn.transpose(0, 2, 1) / features)
    return remove_objects(stack, missing, seed=seed)


@pytest.fixture(scope="module")
def fusion():
    truth, _ = datasets.make_fusion_problem(30, 3)
    return truth, remove_objects(truth, 0.2, seed=0)


@pytest.fixture(scope="module")
def selection(fusion):
    return select_model(fusion[1], draws=3)


# --- what a draw hides ---------------------------------------------------------------------------


@given(seed=st.integers(0, 10_000))
@settings(max_examples=50)
def test_a_draw_hides_a_quarter_of_each_kernel_and_no_object_everywhere(seed):
    rng = np.random.default_rng(seed)
    kernels, size = int(rng.integers(1, 6)), int(rng.integers(1, 20))
    visible = rng.random((kernels, size)) < rng.uniform(0.2, 1.0)
    stack = KernelStack.of(stack_kernels(np.stack([np.eye(size)] * kernels), visible=visible))
    hidden = hidden_objects(stack, rng)
    assert not (hidden & ~visible).any()
    assert ((visible & ~hidden).any(axis=0) == visible.any(axis=0)).all()
    for own, shown in zip(hidden.sum(axis=1), visible.sum(axis=1), strict=True):
        assert own <= (max(1, shown // 4) if shown >= 3 else 0)
    if kernels > 1 and visible.all() and size >= 3:
        assert (hidden.sum(axis=1) == max(1, size // 4)).any()


@given(seed=st.integers(0, 10_000))
@settings(max_examples=30)
def test_groups_are_hidden_but_for_objects_that_would_be_seen_nowhere(seed):
    rng = np.random.default_rng(seed)
    visible = rng.random((3, 24)) < 0.8
    groups = rng.integers(0, 8, 24)
    stack = KernelStack.of(stack_kernels(np.stack([np.eye(24)] * 3), visible=visible))
    hidden = hidden_objects(stack, rng, groups)
    for own, shown in zip(hidden, visible, strict=True):
        for group in set(groups[own]):
            left = shown & ~own & (groups == group)
            assert ((visible & ~hidden)[:, left].sum(axis=0) == 1).all()
        assert (shown & ~own).sum() >= 2 or not own.any()


def test_a_draw_never_leaves_a_block_of_zeros():
    kernel = np.diag([1.0, 0.0, 0.0, 0.0])
    stack = KernelStack.of(stack_kernels(np.stack([kernel, np.eye(4)])))
    for seed in range(20):
        hidden = hidden_objects(stack, np.random.default_rng(seed))
        assert not hidden[0, 0]


# --- scores --------------------------------------------------------------------------------------


@pytest.mark.parametrize("sharing", [1.0, 0.6, 0.0])
@pytest.mark.parametrize("constant", [0.0, 0.7, 30.0])
def test_the_score_is_the_density_with_its_scale_at_the_maximum(sharing, constant):
    rng = np.random.default_rng(3)
    base, block, d = random_covariance(rng, 6), 40.0 * random_covariance(rng, 6), 3.0
    hidden = np.array([0, 1, 0, 0, 1, 0], dtype=bool)
    found = HeldOut(block, hidden, base, Source(d, constant, sharing))
    covariance = d * (base + constant)
    r, h = np.flatnonzero(~hidden), np.flatnonzero(hidden)
    regression = np.linalg.inv(covariance[np.ix_(r, r)]) @ covariance[np.ix_(r, h)]
    spread = covariance[np.ix_(h, h)] - covariance[np.ix_(h, r)] @ regression
    crossed = regression.T @ block[np.ix_(r, h)]
    residual = block[np.ix_(h, h)] - crossed - crossed.T
    residual += regression.T @ block[np.ix_(r, r)] @ regression

    def lost(log_scale):
        scaled = np.exp(log_scale) * spread
        return 0.5 * (
            2 * np.log(2 * np.pi)
            + np.linalg.slogdet(scaled)[1]
            + np.trace(np.linalg.inv(scaled) @ residual)
        )

    best = optimize.minimize_scalar(lost, bounds=(-10, 10), method="bounded")
    assert found.score == pytest.approx(-best.fun, rel=1e-8)
    rows = np.hstack([crossed * 0, crossed * 0])  # shape only
    rows = np.hstack(
        [
            regression.T @ block[np.ix_(r, r)],
            spread + regression.T @ block[np.ix_(r, r)] @ regression,
        ]
    )
    truth = np.hstack([block[np.ix_(h, r)], block[np.ix_(h, h)]])
    errors = np.linalg.norm(rows - truth, axis=1) / np.linalg.norm(truth, axis=1)
    assert found.error == pytest.approx(errors.mean(), rel=1e-8)


def test_a_free_constant_is_the_best_one_for_the_rest():
    rng = np.random.default_rng(5)
    base, block = random_covariance(rng, 6), random_covariance(rng, 6) + 2.0
    hidden = np.array([1, 0, 0, 0, 0, 0], dtype=bool)
    free = HeldOut(block, hidden, base, Source(1.0, np.nan, 1.0))

    def lost(c):
        rest = np.ix_(~hidden, ~hidden)
        b = base[rest] + c
        return np.linalg.slogdet(b)[1] + np.trace(np.linalg.inv(b) @ block[rest])

    c = optimize.minimize_scalar(lost, bounds=(0, 50), method="bounded", options={"xatol": 1e-10}).x
    held = HeldOut(block, hidden, base, Source(1.0, c, 1.0))
    assert free.score == pytest.approx(held.score, rel=1e-6)


def test_a_large_constant_does_not_cancel():
    rng = np.random.default_rng(7)
    base, block = random_covariance(rng, 8), random_covariance(rng, 8)
    hidden = np.arange(8) < 2
    # As the constant grows the score approaches a limit, that of the contrasts.
    at = [HeldOut(block + a, hidden, base, Source(1.0, np.nan, 1.0)).score for a in (1e4, 1e6)]
    assert at[0] == pytest.approx(at[1], rel=1e-3)
    assert np.isfinite(at).all()


# --- the rules of the search, on made-up scores -------------------------------------------------


def search(
    scores,
    monkeypatch,
    *,
    kernels=3,
    draws=4,
    strengths=(10.0, 1.0),
    sharings=(0.0, 0.5),
    structures=(FULL,),
    priors=(),
    starts=None,
):
    """Run the search on `scores`: of a setting, in nats per object, by draw and kernel.

    `starts` gets the setting from whose model each path starts.
    """
    stack = stack_kernels(np.stack([np.eye(12)] * kernels))
    problem = module.problem_of(stack, WishartPrior(1.0))
    rng = np.random.default_rng(0)
    drawn = [Draw(problem, hidden_objects(problem.stack, rng)) for _ in range(draws)]
    asked = []

    def compare(draw, path, start):
        i = next(i for i, other in enumerate(drawn) if other.hidden is draw.hidden)
        if i == 0:
            asked.append([*path])
            if starts is not None:
                starts.append(start)
        counts = draw.hidden.sum(axis=1)
        return [
            Outcome(np.asarray(scores(s))[i] * counts, np.full(kernels, 0.5), s, 1, 0.0)
            for s in path
        ]

    monkeypatch.setattr(module, "compare_path", compare)
    candidates = [list(each) for each in (strengths, sharings, structures, priors)]
    return module.Search(drawn, *candidates, 1, False).run(), asked


def flat(value, draws=4, kernels=3):
    return np.full((draws, kernels), float(value))


def test_equal_strengths_go_to_the_one_nearest_to_1(monkeypatch):
    found, asked = search(lambda s: flat(0.0), monkeypatch, strengths=(30.0, 3.0, 0.1))
    assert [s.strength for path in asked[1:4] for s in path] == [30.0, 3.0, 0.1]
    assert {s.strength for s in asked[4]} == {3.0}
    # Nothing is better than sharing nothing, and then the strength has no effect.
    assert found.best == {"strength": 1.0, "sharing": {"Q1": 0.0, "Q2": 0.0, "Q3": 0.0}}


def test_strengths_are_tried_until_one_is_clearly_worse(monkeypatch):
    noise = np.array([1.0, -1.0, 1.0, -1.0])[:, None] * np.ones(3)
    error = np.std(noise[:, 0], ddof=1) / 2
    strengths = (30.0, 10.0, 3.0, 1.0, 0.3)

    def scores(setting, fall):
        of = dict(zip(strengths, (0.0, 5.0, 6.0, 6.0 - fall, 20.0), strict=True))
        return flat(of[setting.strength]) + noise * (setting.strength == 1.0)

    _, asked = search(lambda s: scores(s, 1.01 * error), monkeypatch, strengths=strengths)
    assert [path[0].strength for path in asked[1:5]] == [30.0, 10.0, 3.0, 1.0]
    assert {s.strength for s in asked[5]} == {3.0}
    _, asked = search(lambda s: scores(s, 0.99 * error), monkeypatch, strengths=strengths)
    assert [path[0].strength for path in asked[1:6]] == [*strengths]


def test_at_the_chosen_sharings_the_strength_moves_while_that_is_better(monkeypatch):
    strengths = (30.0, 10.0, 3.0, 1.0, 0.3)

    def scores(setting):
        share = setting.sharing[0]
        if not share:
            return flat(-9.0)
        best = 3.0 if share == 1.0 else 0.3
        return flat(
            4.0 * (share == 0.5) - abs(strengths.index(setting.strength) - strengths.index(best))
        )

    starts = []
    found, asked = search(scores, monkeypatch, strengths=strengths, starts=starts)
    assert found.best == {"strength": 0.3, "sharing": dict.fromkeys(["Q1", "Q2", "Q3"], 0.5)}
    last = [s for path in asked for s in path if s.sharing == (0.5,) * 3]
    assert [s.strength for s in last] == [3.0, 10.0, 1.0, 0.3]
    # The models of the first of these are freed: the next two start from those at sharing 1.
    near = Setting(3.0, (1.0,) * 3)
    assert starts[-3:] == [near, near, Setting(1.0, (0.5,) * 3)]


def test_each_kernel_gets_its_best_sharing(monkeypatch):
    gains = {1.0: [0.5, 0.5, 0.001], 0.5: [0.4, 0.6, 0.0015], 0.0: [0.0, 0.0, 0.0]}

    def scores(setting):
        return flat(0.0) + [gains[s][k] for k, s in enumerate(setting.sharing)]

    found, _ = search(scores, monkeypatch)
    # What the third gains is below 0.002 nats.
    assert list(found.best["sharing"].values()) == [1.0, 0.5, 0.0]


def test_noise_is_the_standard_error_of_the_paired_difference(monkeypatch):
    noise = np.array([1.0, -1.0, 1.0, -1.0])[:, None] * np.ones(3)
    error = np.std(noise[:, 0], ddof=1) / 2

    def scores(setting, gain):
        return flat(0.0) if not any(setting.sharing) else gain + noise

    below, _ = search(lambda s: scores(s, 0.99 * error), monkeypatch)
    assert not any(below.best["sharing"].values())
    above, _ = search(lambda s: scores(s, 1.01 * error), monkeypatch)
    assert all(above.best["sharing"].values())


def test_a_kernel_left_alone_shares_nothing(monkeypatch):
    def scores(setting):
        return flat(0.0) + np.array([float(setting.sharing[0] > 0), 0.0, 0.0])

    found, _ = search(scores, monkeypatch)
    assert not any(found.best["sharing"].values())


def test_an_unrelated_kernel_is_set_apart_and_the_search_repeated(monkeypatch):
    def scores(setting):
        shared = np.array(setting.sharing) > 0
        # With the third kernel the large strength is better, without it the small one.
        fits = setting.strength == (10.0 if shared[2] else 1.0)
        half = np.array(setting.sharing) == 0.5
        return flat(0.0) + np.where(shared, [1.0, 1.0, -1.0], 0.0) + 0.1 * half + 0.1 * fits

    found, asked = search(scores, monkeypatch)
    assert found.best == {"strength": 1.0, "sharing": {"Q1": 0.5, "Q2": 0.5, "Q3": 0.0}}
    again = [path for path in asked if path[0].sharing == (1.0, 1.0, 0.0)]
    assert [s.strength for path in again for s in path] == [10.0, 1.0]
    # Last, the strengths at the chosen sharings; that of strength 1 was compared before.
    assert asked[-1] == [Setting(10.0, (0.5, 0.5, 0.0))]


def test_the_search_is_repeated_at_most_twice(monkeypatch):
    def scores(setting):
        # Whatever is held apart, one more kernel shares nothing.
        shared = np.array(setting.sharing) > 0
        worse = np.zeros(6)
        worse[np.flatnonzero(shared)[-1:]] = -1.0
        return flat(0.0, kernels=6) + np.where(shared, 0.5, 0.0) + worse

    found, asked = search(scores, monkeypatch, kernels=6)
    apart = {tuple(share == 0.0 for share in s.sharing) for path in asked for s in path}
    assert sorted(sum(zeros) for zeros in apart) == [0, 1, 2, 3, 6]
    assert sum(share > 0 for share in found.best["sharing"].values()) == 3


def test_ctrl_c_returns_what_is_known(monkeypatch):
    def scores(setting):
        if setting.sharing == (0.5,) * 3:
            raise KeyboardInterrupt
        return flat(setting.strength == 10.0)

    with pytest.warns(ConvergenceWarning, match="best of the 3 candidates"):
        found, _ = search(scores, monkeypatch)
    assert found.interrupted
    assert found.best == {"strength": 10.0, "sharing": {"Q1": 1.0, "Q2": 1.0, "Q3": 1.0}}
    assert "the search was interrupted" in found.verdict.sentence
    assert "the search was interrupted" in repr(found)


def test_ctrl_c_at_once_leaves_the_default(monkeypatch):
    def scores(setting):
        raise KeyboardInterrupt

    with pytest.warns(ConvergenceWarning, match="best of the 0 candidates"):
        found, _ = search(scores, monkeypatch)
    assert found.best["strength"] == 1.0
    assert set(found.best["sharing"].values()) == {1.0}
    assert found.table.empty


# --- what comes back -----------------------------------------------------------------------------


def test_the_best_is_what_fit_takes(fusion, selection):
    result = fit(fusion[1], **selection.best)
    assert result.prior.strength == selection.best["strength"]
    assert dict(result.sources["sharing"].to_series()) == selection.best["sharing"]


def test_the_table_has_every_candidate(selection):
    table = selection.table
    assert {"strength", "score", "standard_error", "relative_error", "seconds"} <= {*table.columns}
    assert len(table) == selection.comparisons.sizes["candidate"] >= 10
    counts = selection.comparisons["held_out"]
    total = selection.comparisons["score"].sum(["draw", "kernel"]) / counts.sum()
    np.testing.assert_allclose(table["score"], total)
    per_kernel = [table[f"score[{name}]"] for name in counts["kernel"].values]
    weights = counts.sum("draw").values
    np.testing.assert_allclose(np.array(per_kernel).T @ weights / weights.sum(), table["score"])


def test_the_verdict_compares_on_the_same_rows(fusion, selection):
    table = selection.verdict.table
    data = selection.comparisons
    at = selection._index(selection.chosen)
    np.testing.assert_allclose(table["model"], data["relative_error"][at].mean("draw"))
    paired = data["relative_error"][at] - data["baseline_error"].sel(baseline="knn")
    np.testing.assert_allclose(table["model-knn"], paired.mean("draw"))
    np.testing.assert_allclose(table["se(knn)"], stats.sem(paired, axis=0))
    assert (table["zero"] == 1.0).all()
    assert "mean imputation" in selection.verdict.sentence


def test_baselines_are_those_of_the_public_functions(fusion):
    _, incomplete = fusion
    problem = module.problem_of(incomplete, WishartPrior(1.0))
    hidden = hidden_objects(problem.stack, np.random.default_rng(1))
    errors = module.baseline_errors(Draw(problem, hidden))
    training = problem.stack.hiding(hidden).array
    for row, impute in zip(errors, (mean_impute, None, knn_impute), strict=True):
        if impute is not None:
            expected = relative_error(incomplete, impute(training), training)
            np.testing.assert_allclose(row, expected, rtol=1e-10)


def test_one_standard_error_is_no_better_and_no_less_cautious(selection):
    table, one = selection.table, selection.one_standard_error
    at = selection._index(selection.chosen)
    i = selection._index(Setting(one["strength"], tuple(one["sharing"].values())))
    assert table["score"][i] >= table["score"][at] - table["standard_error"][at]
    assert sum(one["sharing"].values()) <= sum(selection.best["sharing"].values())


def test_the_same_seed_gives_the_same_choice(fusion, selection):
    again = select_model(fusion[1], draws=3)
    assert again.chosen == selection.chosen
    drop = ["seconds"]
    assert again.comparisons.drop_vars(drop).identical(selection.comparisons.drop_vars(drop))


def test_workers_do_not_change_the_choice(fusion, selection):
    pytest.importorskip("joblib")
    again = select_model(fusion[1], draws=3, workers=2)
    drop = ["seconds"]
    assert again.comparisons.drop_vars(drop).identical(selection.comparisons.drop_vars(drop))


def test_a_selection_is_drawn(selection):
    ax = selection.plot()
    assert [text.get_text() for text in ax.get_yticklabels()] == ["rbf_1", "linear_2", "graph_3"]
    with pytest.raises(MKMCError, match="selection: int found"):
        plots.plot_selection(3)


@pytest.mark.parametrize("kernels", [1, 2])
def test_what_cannot_be_tested_is_said(kernels):
    visible = [[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]][:kernels] if kernels == 2 else [[1] * 6]
    stack = stack_kernels(np.stack([np.eye(6) + 0.3] * kernels), visible=visible)
    selection = select_model(stack)
    assert set(selection.best["sharing"].values()) == {0.0}
    assert selection.best["strength"] == 1.0
    assert "cannot be tested" in selection.verdict.sentence
    with pytest.raises(MKMCError, match="nothing was compared"):
        selection.plot()


def test_a_kernel_that_cannot_be_tested_shares_nothing():
    rng = np.random.default_rng(0)
    visible = np.ones((3, 12), dtype=bool)
    visible[2] = np.arange(12) < 2  # fewer than three visible objects
    stack = stack_kernels(np.stack([random_covariance(rng, 12)] * 3), visible=visible)
    selection = select_model(stack, draws=3)
    assert selection.best["sharing"]["Q3"] == 0.0
    assert "'Q3' cannot be tested" in selection.verdict.sentence
    assert selection.verdict.table["use"]["Q3"] == "untested"


@pytest.mark.parametrize("common", [False, True])
def test_the_verdict_is_honest(common):
    shares = []
    for seed in (0, 2):
        chosen = select_model(independent(seed, common=common))
        shares.extend(chosen.best["sharing"].values())
        helps = chosen.verdict.table["others_help"]
        assert helps.all() if common else not helps.any()
    assert all(share > 0 for share in shares) if common else not any(shares)


def test_a_users_scale_is_kept(monkeypatch):
    stack = small_stack(size=8)
    scale = np.eye(8) + 0.2
    kept = []
    approach = module.compare_path.__globals__["approach"]

    def spy(problem, start):
        kept.append(problem.prior.scale_matrix(problem.stack.objects))
        return approach(problem, start)

    monkeypatch.setitem(module.compare_path.__globals__, "approach", spy)
    select_model(stack, prior=WishartPrior(1.0, scale), draws=2)
    assert kept
    for found in kept:
        np.testing.assert_array_equal(found, scale)


# --- groups and arguments ------------------------------------------------------------------------


def test_groups_by_label_or_by_position(fusion):
    _, incomplete = fusion
    objects = incomplete["object"].values
    labels = np.arange(30) // 5
    by_position = select_model(incomplete, draws=2, groups=labels)
    labeled = xr.DataArray(labels, dims="object", coords={"object": objects})[::-1]
    by_label = select_model(incomplete, draws=2, groups=labeled)
    assert by_position.comparisons["held_out"].identical(by_label.comparisons["held_out"])


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"groups": [1, 2]}, KernelError, "groups: shape"),
        ({"groups": xr.DataArray([1, 2], dims="x")}, KernelError, "groups: dims"),
        (
            {"groups": xr.DataArray([1], dims="object", coords={"object": ["p0"]})},
            LabelError,
            "groups: none for object",
        ),
        ({"draws": 1}, KernelError, "draws"),
        ({"strengths": []}, KernelError, "strengths"),
        ({"strengths": [0.0]}, KernelError, "strengths"),
        ({"sharing": [2.0]}, KernelError, "sharing"),
        ({"sharing": ["a"]}, KernelError, "sharing"),
        ({"structures": ["ppca"]}, KernelError, "structure"),
        ({"structures": []}, KernelError, "structures"),
        ({"seed": -1}, KernelError, "seed"),
        ({"workers": 0}, KernelError, "workers"),
        ({"prior": 3}, KernelError, "prior"),
        ({"degrees_of_freedom": 0}, KernelError, "degrees_of_freedom"),
    ],
)
def test_bad_arguments_are_named(options, error, words):
    for function in (select_model, complete):
        with pytest.raises(error, match=words):
            function(small_stack(), **options)


# --- complete ------------------------------------------------------------------------------------


def test_complete_fits_the_chosen_model(fusion):
    _, incomplete = fusion
    result = complete(incomplete, draws=3)
    again = fit(incomplete, **result.selection.best)
    np.testing.assert_array_equal(result.completed.values, again.completed.values)
    for said in ("strength", "sharing", "mean imputation", "help"):
        assert said in repr(result)
    assert result.selection.verdict.sentence in repr(result)


@pytest.mark.parametrize("missing", [0.2, 0.5])
def test_complete_is_below_mean_imputation(missing):
    for truth in (
        datasets.load_multiple_features(3, sources=["fac", "fou", "kar"]).kernels,
        datasets.make_fusion_problem(30, 3).kernels,
    ):
        incomplete = remove_objects(truth, missing, seed=1)
        own = relative_error(truth, complete(incomplete, draws=2).completed, incomplete).mean()
        assert own < relative_error(truth, mean_impute(incomplete), incomplete).mean()


def test_units_do_not_matter(fusion):
    _, incomplete = fusion
    units = xr.DataArray([1e-4, 1.0, 1e5], dims="kernel", coords={"kernel": incomplete["kernel"]})
    one, other = complete(incomplete, draws=2), complete(incomplete * units, draws=2)
    assert one.selection.best == other.selection.best
    np.testing.assert_allclose((other.completed / units).values, one.completed.values, rtol=1e-6)


def test_complete_repairs_only_if_asked():
    stack = small_stack()
    stack.values[0, 0, 0] = 0.0
    with pytest.raises(MKMCError, match="indefinite"):
        complete(stack)
    with pytest.warns(UserWarning, match="eigenvalues below zero"):
        result = complete(stack, repair=True, draws=2)
    assert not result.completed.isnull().any()


@pytest.mark.parametrize("option", ["strength", "sources"])
def test_complete_decides_the_model(option):
    with pytest.raises(KernelError, match=f"{option}: complete chooses it"):
        complete(small_stack(), **{option: 1.0})


def test_a_selection_survives_a_file(tmp_path, fusion):
    from mkmc_prob import load_result

    result = complete(fusion[1], draws=2)
    result.save(tmp_path / "result.nc")
    again = load_result(tmp_path / "result.nc")
    assert again.identical(result)
    assert again.selection.best == result.selection.best
    assert repr(again.selection) == repr(result.selection)


def test_an_interrupted_selection_marks_the_result(monkeypatch, fusion):
    def interrupted(draw, path, start):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "compare_path", interrupted)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        result = complete(fusion[1])
    assert result.interrupted
    assert not result.completed.isnull().any()


def test_a_long_search_says_how_long(monkeypatch, capsys, fusion):
    monkeypatch.setattr(module, "LONG", 0.0)
    select_model(fusion[1], draws=2)
    assert "s for 26 fits, up to twice" in capsys.readouterr().err


# --- found by trying to break it ------------------------------------------------------------------


def test_a_prior_gets_the_chosen_strength(fusion):
    result = complete(fusion[1], prior=WishartPrior(5.0, np.eye(30)), draws=2)
    assert result.prior.strength == result.selection.best["strength"]


@pytest.mark.parametrize("options", [{"tol": -1}, {"method": "x"}, {"max_iter": 0}, {"foo": 1}])
def test_options_of_the_fit_are_checked_before_the_search(monkeypatch, options):
    monkeypatch.setattr(module, "hidden_objects", None)  # the search would fail
    with pytest.raises(KernelError, match=next(iter(options))):
        complete(small_stack(), **options)


@pytest.mark.parametrize(
    ("groups", "alike"),
    [
        (pd.Categorical(list("abcdef") * 5), np.arange(30) % 6),
        (pd.interval_range(0, 30), None),  # every object by itself
        ([1, 1.0, np.int64(1), 2, 2.0, np.str_("a")] * 5, [1, 1, 1, 2, 2, "a"] * 5),
    ],
)
def test_groups_are_equal_labels_of_any_kind(fusion, groups, alike):
    one, other = (
        select_model(fusion[1], draws=2, groups=given).comparisons["score"]
        for given in (groups, alike)
    )
    np.testing.assert_array_equal(one, other)


def test_groups_that_are_lists_are_refused(fusion):
    with pytest.raises(KernelError, match="groups: unhashable"):
        select_model(fusion[1], draws=2, groups=[[1], [2, 3]] * 15)


def test_the_table_has_the_same_columns_if_nothing_can_be_tested(selection):
    visible = np.eye(3, 10, dtype=bool)
    untested = select_model(stack_kernels(np.array([np.eye(10)] * 3), visible=visible), draws=2)
    table = untested.verdict.table
    assert table.columns.tolist() == selection.verdict.table.columns.tolist()
    assert set(table["use"]) == {"untested"}
    assert table[["model", "mean", "knn", "model-mean", "se(mean)"]].isna().all(axis=None)
    assert not table["others_help"].any()


def test_groups_in_a_series_are_aligned_by_label(fusion):
    _, incomplete = fusion
    groups = pd.Series(np.arange(30) // 5, index=incomplete["object"].values)
    one, other = (
        select_model(incomplete, draws=2, groups=given).comparisons["score"]
        for given in (groups, groups[::-1])
    )
    assert one.identical(other)


@pytest.mark.parametrize("missing", [np.nan, None])
def test_groups_without_a_label_are_named(missing):
    groups = ["a", missing, "a", "b", "b", "c"]
    with pytest.raises(KernelError, match="groups: none for object 'p1'"):
        select_model(small_stack(), groups=groups)


def test_a_baseline_that_is_exact_is_said():
    ones = np.ones((6, 6))
    stack = stack_kernels(np.array([ones] * 2), visible=[[1] * 5 + [0], [1] * 6])
    assert "mean imputation is exact" in repr(complete(stack))


def test_the_result_of_a_single_kernel_can_be_saved(tmp_path):
    from mkmc_prob import load_result

    features = np.random.default_rng(0).standard_normal((8, 4))
    with pytest.warns(UserWarning, match="missing in every kernel"):
        result = complete(stack_kernels((features @ features.T)[None], visible=[[1] * 6 + [0] * 2]))
    result.save(tmp_path / "one.nc")
    assert load_result(tmp_path / "one.nc").identical(result)


def test_a_candidate_beyond_double_precision_is_never_chosen(monkeypatch, fusion):
    from mkmc_prob import MonotonicityError

    space = module.compare_path.__globals__
    approach = space["approach"]

    def fragile(problem, start):
        if problem.prior.strength < 1.0:
            raise MonotonicityError("it fell")
        return approach(problem, start)

    monkeypatch.setitem(space, "approach", fragile)
    selection = select_model(fusion[1], strengths=[0.1, 1.0], draws=2)
    assert selection.best["strength"] == 1.0
    assert np.isneginf(selection.table["score"]).any()


def test_a_single_draw_decides_nothing():
    gain = np.array([1.0])
    assert not module.is_clear(gain)


def test_batches_can_be_held_out_although_some_objects_are_in_one_kernel_only():
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(6), 10)
    visible = np.array([groups != k for k in range(3)])
    visible &= rng.random(visible.shape) < 0.7
    stack = KernelStack.of(stack_kernels(np.array([np.eye(60) + 1.0] * 3), visible=visible))
    draws = [hidden_objects(stack, np.random.default_rng(seed), groups) for seed in range(5)]
    for hidden in draws:
        assert hidden.any(axis=1).all()
        assert not hidden[:, visible.sum(axis=0) == 1].any()
    assert len({hidden.tobytes() for hidden in draws}) > 1
