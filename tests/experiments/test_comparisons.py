"""Comparisons of methods: the tests against scipy and by hand, the tables, every error."""

import warnings

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mkmc_prob import LabelError, MKMCError
from mkmc_prob.experiments.comparisons import compare_methods, comparison_table, study_summary

KERNELS = ["fourier", "karhunen", "morphology", "pixels", "profile", "zernike"]
METHODS = ["mkmc", "mkmc_chosen", "zero", "mean"]
DISTANCES = ["correlation_matrix_distance", "relative_error"]


def made_study(repetitions=6, *, kernels=KERNELS, methods=METHODS, train_sizes=(200, 1000), seed=0):
    """Return a Dataset like that of a study, with scores made up to look like the paper's."""
    rng = np.random.default_rng(seed)
    ratio = np.arange(10) / 10
    method = np.resize([0.05, 0.03, 0.19, 0.12], len(methods))
    matrix = np.append(np.linspace(0.70, 0.80, len(kernels)), 0.85)
    common = rng.normal(scale=0.01, size=(repetitions, 10, 1, 1, len(train_sizes)))
    shape = (repetitions, 10, len(methods), len(matrix), len(train_sizes))
    lost = ratio[:, None, None, None] ** 1.5 * method[:, None, None]
    roc = matrix[:, None] - lost + 0.05 * np.arange(len(train_sizes)) + common
    roc = roc + rng.normal(scale=0.008, size=shape) * (ratio > 0)[:, None, None, None]
    shape = (repetitions, 10, len(methods), len(kernels))
    distance = ratio[:, None, None] * (method + 0.1)[:, None] + np.zeros(shape)
    distance *= np.exp(rng.normal(scale=0.2, size=shape))
    distance[:, 0] = np.nan  # nothing is missing
    distance[1, 1, :, 0] = np.nan  # nothing of one kernel
    of_kernel, of_fit = (
        ("repetition", "ratio", "completion", "kernel"),
        ("repetition", "ratio", "completion"),
    )
    return xr.Dataset(
        {
            "roc": (("repetition", "ratio", "completion", "matrix", "train_size"), roc),
            "correlation_matrix_distance": (of_kernel, distance),
            "relative_error": (of_kernel, 3 * distance),
            "strength": (of_fit, np.full(shape[:3], 0.001)),
            "converged": (of_fit, np.ones(shape[:3], dtype=bool)),
            "evaluations": (of_fit, np.full(shape[:3], 50)),
        },
        coords={
            "repetition": np.arange(repetitions),
            "ratio": ratio,
            "completion": methods,
            "matrix": [*kernels, "model"],
            "kernel": kernels,
            "train_size": list(train_sizes),
        },
        attrs={"n_objects": 2318, "strength": 0.001},
    )


@pytest.fixture(scope="module")
def study():
    return made_study()


def pair(study, score, ratio, method, **at):
    """Return the scores of mkmc and of a method by hand: one value a repetition."""
    values = study[score].transpose("repetition", "ratio", "completion", ...)
    i = study["ratio"].values.tolist().index(ratio)
    names = study["completion"].values.tolist()
    a, b = (values.values[:, i, names.index(name)] for name in ("mkmc", method))
    if score == "roc":
        m = study["matrix"].values.tolist().index(at["matrix"])
        t = study["train_size"].values.tolist().index(at["train_size"])
        return a[:, m, t], b[:, m, t]
    return np.nanmean(a, axis=1), np.nanmean(b, axis=1)


CELLS = [
    ("roc", 0.5, "zero", {"matrix": "model", "train_size": 200}),
    ("roc", 0.9, "mean", {"matrix": "pixels", "train_size": 1000}),
    ("correlation_matrix_distance", 0.1, "mkmc_chosen", {}),
    ("relative_error", 0.7, "zero", {}),
]


@pytest.mark.parametrize(("score", "ratio", "method", "at"), CELLS)
def test_the_tests_are_scipys(study, score, ratio, method, at):
    found = compare_methods(study, score=score).sel({"ratio": ratio, "completion": method, **at})
    a, b = pair(study, score, ratio, method, **at)
    for result, test in (
        (stats.ttest_ind(b, a), "two_sample"),
        (stats.ttest_rel(b, a), "paired"),
    ):
        assert found[f"t_{test}"].item() == pytest.approx(result.statistic, rel=1e-9)
        assert found[f"p_{test}"].item() == pytest.approx(result.pvalue, rel=1e-9)
    welch = stats.ttest_ind(b, a, equal_var=False)
    assert found["p_welch"].item() == pytest.approx(welch.pvalue, rel=1e-9)
    assert found["t_two_sample"].item() == pytest.approx(welch.statistic, rel=1e-9)
    interval = stats.ttest_rel(b, a).confidence_interval(0.95)
    assert found["difference_low"].item() == pytest.approx(interval.low, rel=1e-9)
    assert found["difference_high"].item() == pytest.approx(interval.high, rel=1e-9)
    assert found["reason"].item() == ""
    assert found["repetitions"].item() == 6


@pytest.mark.parametrize(("score", "ratio", "method", "at"), CELLS)
def test_means_and_effect_sizes_by_hand(study, score, ratio, method, at):
    found = compare_methods(study, score=score).sel({"ratio": ratio, "completion": method, **at})
    a, b = pair(study, score, ratio, method, **at)
    d = b - a
    by_hand = {
        "mean": b.sum() / 6,
        "baseline_mean": a.sum() / 6,
        "difference": d.sum() / 6,
        "sd": np.sqrt(((b - b.mean()) ** 2).sum() / 5),
        "baseline_sd": np.sqrt(((a - a.mean()) ** 2).sum() / 5),
        "difference_sd": np.sqrt(((d - d.mean()) ** 2).sum() / 5),
    }
    by_hand["cohens_dz"] = by_hand["difference"] / by_hand["difference_sd"]
    pooled = np.sqrt((5 * by_hand["sd"] ** 2 + 5 * by_hand["baseline_sd"] ** 2) / 10)
    by_hand["cohens_d"] = by_hand["difference"] / pooled
    for name, value in by_hand.items():
        assert found[name].item() == pytest.approx(value, rel=1e-9), name


@pytest.mark.parametrize("train_size", [200, 1000])
def test_the_corrected_test_is_nadeau_and_bengios(study, train_size):
    at = {"matrix": "model", "train_size": train_size}
    found = compare_methods(study, confidence=0.9).sel({"ratio": 0.5, "completion": "mean", **at})
    a, b = pair(study, "roc", 0.5, "mean", **at)
    d = b - a
    error = np.sqrt((1 / 6 + (2318 - train_size) / train_size) * d.var(ddof=1))
    t = d.mean() / error
    assert found["t_corrected"].item() == pytest.approx(t, rel=1e-9)
    assert found["p_corrected"].item() == pytest.approx(2 * stats.t(5).sf(abs(t)), rel=1e-9)
    low, high = stats.t.interval(0.9, 5, loc=d.mean(), scale=error)
    assert found["corrected_low"].item() == pytest.approx(low, rel=1e-9)
    assert found["corrected_high"].item() == pytest.approx(high, rel=1e-9)
    assert found["p_corrected"] > found["p_paired"]
    assert found.attrs == {"score": "roc", "baseline": "mkmc", "confidence": 0.9}


def test_the_corrected_test_is_right_where_only_the_test_objects_differ():
    """Of methods whose difference is a number per object, 5% of such tests are below 0.05."""
    rng = np.random.default_rng(1)
    n, train, studies, repetitions = 120, 80, 400, 10
    worth = rng.normal(size=(studies, n))  # what the baseline gains at each object, 0 on average
    difference = np.array(
        [[own[rng.permutation(n)[train:]].mean() for _ in range(repetitions)] for own in worth]
    )
    roc = np.stack([np.zeros_like(difference), difference], axis=-1)  # many studies, as "matrices"
    many = xr.Dataset(
        {"roc": (["matrix", "repetition", "completion"], roc)},
        coords={"completion": ["mkmc", "zero"], "matrix": [str(i) for i in range(studies)]},
        attrs={"n_objects": n},
    ).expand_dims(ratio=[0.5], train_size=[train])
    found = compare_methods(many)
    assert 0.02 < (found["p_corrected"] < 0.05).mean().item() < 0.09
    # The other says only what these objects' further splits will bring, and is sure of it.
    assert (found["p_paired"] < 0.05).mean().item() > 0.3


@settings(max_examples=10)
@given(st.integers(2, 8), st.floats(-5, 5), st.floats(0.01, 100), st.integers(0, 1000))
def test_shift_and_scale(repetitions, shift, scale, seed):
    """Tests and effect sizes do not feel the scores' unit; swapping the baseline turns the sign."""
    roc = np.random.default_rng(seed).normal(size=(repetitions, 2))
    few = small(roc)
    found, moved = compare_methods(few).squeeze(), compare_methods(small(shift + scale * roc))
    for name in ("p_two_sample", "p_welch", "p_paired", "p_corrected", "cohens_d", "cohens_dz"):
        assert moved[name].item() == pytest.approx(found[name].item(), rel=1e-5, abs=1e-300)
    assert moved["difference"].item() == pytest.approx(scale * found["difference"].item(), rel=1e-6)
    swapped = compare_methods(few, baseline="zero").squeeze()
    for name in ("difference", "t_paired", "t_two_sample", "t_corrected", "cohens_d"):
        assert swapped[name].item() == pytest.approx(-found[name].item(), rel=1e-9)
    assert swapped["p_paired"].item() == pytest.approx(found["p_paired"].item(), rel=1e-9)


def small(roc, **coords):
    """Return a study of one cell from scores, repetitions x (mkmc, zero)."""
    return xr.Dataset(
        {"roc": (["repetition", "completion"], np.asarray(roc, dtype=float))},
        {"completion": ["mkmc", "zero"]},
        attrs={"n_objects": 100},
    ).expand_dims({"ratio": [0.5], "matrix": ["model"], "train_size": [50], **coords})


def test_what_comes_out_has_the_studys_labels(study):
    found = compare_methods(study)
    assert found["p_paired"].dims == ("ratio", "completion", "matrix", "train_size")
    assert found["completion"].values.tolist() == ["mkmc_chosen", "zero", "mean"]
    assert found["matrix"].values.tolist() == [*KERNELS, "model"]
    assert all(variable.dims == found["mean"].dims for variable in found.data_vars.values())
    assert all(variable.attrs["long_name"] for variable in found.data_vars.values())
    for score in DISTANCES:
        of_distance = compare_methods(study, score=score)
        assert of_distance["p_paired"].dims == ("ratio", "completion")
        assert "p_corrected" not in of_distance  # there is no test set
    assert compare_methods(study, baseline="zero")["completion"].values.tolist() == [
        "mkmc",
        "mkmc_chosen",
        "mean",
    ]


def test_the_order_of_dimensions_and_more_methods_change_nothing(study):
    turned = study.transpose("train_size", "kernel", "matrix", "completion", "ratio", "repetition")
    xr.testing.assert_identical(compare_methods(turned), compare_methods(study))
    few = study.sel({"completion": ["zero", "mkmc"]})
    xr.testing.assert_allclose(
        compare_methods(few), compare_methods(study).sel({"completion": ["zero"]}), rtol=1e-9
    )
    before = study.copy(deep=True)
    compare_methods(study)
    xr.testing.assert_identical(study, before)


# Where there is no test


def test_methods_that_are_equal_have_no_paired_test_and_a_reason():
    scores = [0.7, 0.8, 0.75]
    found = compare_methods(small(np.column_stack([scores, scores]))).squeeze()
    assert found["reason"].item() == "all differences are equal"
    assert found["difference"].item() == 0.0
    assert found["difference_sd"].item() == 0.0
    for name in ("t_paired", "p_paired", "t_corrected", "p_corrected", "cohens_dz"):
        assert np.isnan(found[name].item())
    for name in ("difference_low", "difference_high", "corrected_low", "corrected_high"):
        assert np.isnan(found[name].item())
    assert found["p_two_sample"].item() == pytest.approx(1.0)
    assert found["cohens_d"].item() == 0.0


def test_scores_without_spread_have_no_test():
    found = compare_methods(small([[0.8, 0.7]] * 3)).squeeze()
    assert found["reason"].item() == "all differences are equal"
    assert found["difference"].item() == pytest.approx(-0.1)
    assert found["sd"].item() == found["baseline_sd"].item() == 0.0
    for name in ("t_two_sample", "p_two_sample", "p_welch", "p_paired", "cohens_d", "cohens_dz"):
        assert np.isnan(found[name].item())


def test_a_method_without_spread_is_compared_with_one_that_has_some():
    roc = np.array([[1.0, 0.7], [1.0, 0.8], [1.0, 0.6]])
    found = compare_methods(small(roc)).squeeze()
    t = -0.3 / np.sqrt(0.01 / 3)
    assert found["t_two_sample"].item() == pytest.approx(t)
    assert found["t_paired"].item() == pytest.approx(t)
    assert found["p_two_sample"].item() == pytest.approx(2 * stats.t(4).sf(-t))
    # Welch's degrees of freedom are those of the only one that varies.
    assert found["p_welch"].item() == pytest.approx(2 * stats.t(2).sf(-t))


def test_differences_within_the_rounding_of_the_scores_are_equal():
    """0.1 + 0.2 is not 0.3: that is no difference between methods that a test may find."""
    found = compare_methods(small([[0.3, 0.1 + 0.2], [0.7, 0.7], [0.8, 0.8]])).squeeze()
    assert found["reason"].item() == "all differences are equal"
    assert np.isnan(found["p_paired"].item())
    tiny = compare_methods(small(np.array([[0.3, 0.1 + 0.2], [0.7, 0.7]]) * [1, 1 + 1e-12]))
    assert tiny["reason"].item() == ""


def test_distances_where_nothing_is_missing_have_a_reason(study):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = compare_methods(study, score="relative_error")
    none = found.sel(ratio=0.0)
    assert set(none["reason"].values) == {"fewer than two repetitions have a score"}
    assert not none["repetitions"].any()
    for name, variable in none.data_vars.items():
        if name not in ("reason", "repetitions"):
            assert variable.isnull().all(), name
    assert not found["reason"].sel(ratio=[0.1, 0.9]).values.any()


def test_a_repetition_in_which_no_method_has_a_score_is_left_out(study):
    holey = study.copy(deep=True)
    holey["relative_error"][{"repetition": [0, 3], "ratio": 2}] = np.nan
    found = compare_methods(holey, score="relative_error").sel(ratio=0.2)
    assert set(found["repetitions"].values) == {4}
    full = compare_methods(study.isel(repetition=[1, 2, 4, 5]), score="relative_error")
    xr.testing.assert_allclose(found, full.sel(ratio=0.2))
    holey["relative_error"][{"repetition": slice(1, None), "ratio": 2}] = np.nan
    holey["relative_error"][{"repetition": 0, "ratio": 2}] = 0.5
    found = compare_methods(holey, score="relative_error").sel(ratio=0.2)
    assert set(found["reason"].values) == {"fewer than two repetitions have a score"}
    assert found["mean"].values == pytest.approx(0.5)
    assert found["sd"].isnull().all()


# The tables


def test_the_table_has_the_baseline_first_and_the_numbers_of_compare_methods(study):
    table = comparison_table(study, ratio=0.5)
    assert table.index.names == ["train_size", "completion"]
    assert table.index.tolist() == [(size, name) for size in (200, 1000) for name in METHODS]
    assert table.columns.tolist() == [
        *("mean", "sd", "difference", "difference_low", "difference_high"),
        *("p_two_sample", "p_welch", "p_paired", "p_corrected", "p_adjusted"),
        *("cohens_d", "cohens_dz", "reason"),
    ]
    own = study["roc"].sel(
        {"ratio": 0.5, "matrix": "model", "train_size": 200, "completion": "mkmc"}
    )
    assert table.loc[(200, "mkmc"), "mean"] == pytest.approx(own.values.mean())
    assert table.loc[(200, "mkmc"), "sd"] == pytest.approx(own.values.std(ddof=1))
    assert table.loc[(200, "mkmc"), "difference":"cohens_dz"].isna().all()
    found = compare_methods(study).sel({"ratio": 0.5, "matrix": "model"})
    for name in ("mean", "sd", "difference", "p_two_sample", "p_paired", "cohens_d"):
        for size, method in ((200, "zero"), (1000, "mean")):
            expected = found[name].sel({"completion": method, "train_size": size}).item()
            assert table.loc[(size, method), name] == pytest.approx(expected)
    assert table["reason"].tolist() == [""] * 8


def test_the_tables_p_values_are_adjusted_by_holm(study):
    table = comparison_table(study, ratio=0.5, matrix="pixels")
    p = table["p_corrected"].dropna()
    assert len(p) == 6
    expected, least = {}, 0.0
    for i, (row, value) in enumerate(p.sort_values().items()):
        least = max(least, (6 - i) * value)
        expected[row] = min(least, 1.0)
    adjusted = table["p_adjusted"].dropna().to_dict()
    assert adjusted == pytest.approx(expected)
    of_distance = comparison_table(study, ratio=0.3, score="relative_error")
    p = of_distance["p_paired"].to_numpy()[1:]
    assert of_distance["p_adjusted"].min() == pytest.approx(min(1.0, 3 * p.min()))


def test_the_table_of_a_distance_is_by_method(study):
    table = comparison_table(study, ratio=0.1 + 0.2, score="relative_error", baseline="mean")
    assert table.index.tolist() == ["mean", "mkmc", "mkmc_chosen", "zero"]
    assert "p_corrected" not in table
    nothing = comparison_table(study, ratio=0.0, score="relative_error")
    assert set(nothing["reason"][1:]) == {"fewer than two repetitions have a score"}
    assert nothing["p_adjusted"].isna().all()


def test_another_ratio_that_cannot_be_compared_is_not_in_the_way(study):
    holey = study.copy(deep=True)
    holey["roc"][{"repetition": 1, "ratio": 2, "completion": 1}] = np.nan
    pd.testing.assert_frame_equal(
        comparison_table(holey, ratio=0.5), comparison_table(study, ratio=0.5)
    )


def test_the_summary_by_hand(study):
    table = study_summary(study)
    assert table.index.names == ["ratio", "completion"]
    assert len(table) == 40
    names = ["roc_200", "roc_1000", *DISTANCES]
    assert table.columns.tolist() == [
        (name, statistic) for name in names for statistic in ("mean", "standard_error")
    ]
    at = {"matrix": "model", "train_size": 1000}
    _, roc = pair(study, "roc", 0.4, "zero", **at)
    _, distance = pair(study, "correlation_matrix_distance", 0.4, "zero")
    for name, values in (("roc_1000", roc), ("correlation_matrix_distance", distance)):
        row = table.loc[(0.4, "zero")]
        assert row[name, "mean"] == pytest.approx(values.mean())
        assert row[name, "standard_error"] == pytest.approx(stats.sem(values))
    assert table.loc[0.0, "relative_error"].isna().all(axis=None)
    of_kernel = study_summary(study, matrix="pixels").loc[(0.4, "zero"), ("roc_200", "mean")]
    _, roc = pair(study, "roc", 0.4, "zero", matrix="pixels", train_size=200)
    assert of_kernel == pytest.approx(roc.mean())


def test_one_repetition_has_a_mean_and_no_standard_error(study):
    table = study_summary(study.isel(repetition=[0]))
    assert table["roc_200", "mean"].notna().all()
    assert table["roc_200", "standard_error"].isna().all()


# What cannot be compared


def test_too_little_is_said_to_be(study):
    with pytest.raises(MKMCError, match="one repetition"):
        compare_methods(study.isel(repetition=[0]))
    with pytest.raises(MKMCError, match="'mkmc' is its only method"):
        compare_methods(study.isel(completion=[0]))


@pytest.mark.parametrize("value", [0, 1, -0.5, 95, np.nan, "0.95", None, True])
def test_levels_that_are_none_are_named(study, value):
    with pytest.raises(MKMCError, match=r"confidence: .* found; a number between 0 and 1"):
        compare_methods(study, confidence=value)


@pytest.mark.parametrize("score", ["auc", "converged", None, 3])
def test_scores_that_are_none_are_named(study, score):
    with pytest.raises(MKMCError, match=r"score: .* found; 'roc', 'corr"):
        compare_methods(study, score=score)
    with pytest.raises(MKMCError, match="score: "):
        comparison_table(study, ratio=0.5, score=score)


def test_labels_that_are_not_there_are_named(study):
    with pytest.raises(LabelError, match=r"baseline: the study has no completion 'em'.*'zero'"):
        compare_methods(study, baseline="em")
    with pytest.raises(LabelError, match=r"ratio: the study has no ratio 0\.55.*0\.5, 0\.6"):
        comparison_table(study, ratio=0.55)
    for ratio in ("0.5", None, np.nan, [0.5]):
        with pytest.raises(LabelError, match="ratio: the study has no ratio"):
            comparison_table(study, ratio=ratio)
    with pytest.raises(LabelError, match=r"matrix: the study has no matrix 'M'.*'model'"):
        comparison_table(study, ratio=0.5, matrix="M")
    with pytest.raises(LabelError, match="matrix: the study has no matrix 0"):
        study_summary(study, matrix=0)


@pytest.mark.parametrize("function", [compare_methods, study_summary])
def test_what_is_no_study_is_named(study, function):
    for wrong in (3, pd.DataFrame(), study["roc"]):
        with pytest.raises(MKMCError, match=f"study: {type(wrong).__name__} found.*run_study"):
            function(wrong)
    with pytest.raises(MKMCError, match="study: it has no variable 'roc'"):
        function(study.drop_vars("roc"))
    with pytest.raises(MKMCError, match=r"roc has dims .* as a list"):
        function(study.sel(ratio=0.5))
    with pytest.raises(MKMCError, match=r"roc has dims .*'ratio': 0.* none of them empty"):
        function(study.isel(ratio=[]))
    with pytest.raises(LabelError, match=r"roc has dims .* all but the first labeled"):
        function(study.drop_vars("matrix"))


def test_a_score_that_only_some_methods_have_is_named(study):
    holey = study.copy(deep=True)
    holey["roc"][
        {"repetition": 4, "ratio": 2, "completion": [1, 2], "matrix": 6, "train_size": 1}
    ] = np.nan
    message = (
        "study: roc of 'mkmc_chosen', 'zero' is NaN at repetition 4, ratio 0.2, matrix 'model', "
        "train_size 1000, but other methods have a value"
    )
    with pytest.raises(MKMCError, match=message):
        compare_methods(holey)
    with pytest.raises(MKMCError, match=message):  # repetitions need no labels
        compare_methods(holey.drop_vars("repetition", errors="ignore"))
    for change in ({"repetition": [4]}, {"completion": ["zero", "mkmc_chosen"]}):
        compare_methods(holey.drop_sel(**change))  # as the message advises
    holey["relative_error"][{"repetition": 0, "ratio": 5, "completion": 0, "kernel": 3}] = np.nan
    message = "relative_error of 'mkmc' is NaN at repetition 0, ratio 0.5, kernel 'pixels'"
    with pytest.raises(MKMCError, match=message):
        compare_methods(holey, score="relative_error")


def test_the_number_of_objects_must_be_that_of_the_study(study):
    for value in (None, "many", 0, np.nan):
        with pytest.raises(MKMCError, match=r"attribute n_objects is .*assign_attrs"):
            compare_methods(study.assign_attrs(n_objects=value))
    without = study.copy()
    del without.attrs["n_objects"]
    with pytest.raises(MKMCError, match="attribute n_objects is None"):
        compare_methods(without)
    compare_methods(without, score="relative_error")  # which has no test set
    with pytest.raises(MKMCError, match=r"n_objects is 1000; .*more than the train_size 1000"):
        compare_methods(study.assign_attrs(n_objects=1000))
