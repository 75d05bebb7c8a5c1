"""The completion study: its scores by hand, its divisions, what methods get and may return."""

import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import SVC
from strategies import random_covariance

from mkmc_prob import (
    MKMCError,
    MKMCWarning,
    fit,
    mean_impute,
    select_strength,
    stack_kernels,
    visible_objects,
    zero_impute,
)
from mkmc_prob.experiments import mkmc_chosen, roc_area, run_study, study_table
from mkmc_prob.experiments.arguments import training_sizes
from mkmc_prob.experiments.cells import Study
from mkmc_prob.experiments.classification import draw_order


def problem(size=24, kernels=3, classes=2, seed=0):
    """Kernels that know something of the classes; labels in no order that sorting would give."""
    rng = np.random.default_rng(seed)
    objects = [f"o{i}" for i in rng.permutation(size)]
    kinds = rng.permutation(np.arange(size) % classes)
    features = rng.standard_normal((kernels, size, 6))
    features[:, np.arange(size), kinds] += 1.5
    scales = np.array([1.0, 3.0, 5.0])[:kernels, None, None]
    values = scales * (features @ features.transpose(0, 2, 1)) / 6
    stack = stack_kernels(values, names=["a", "b", "c"][:kernels], objects=objects)
    names = np.array(["no", "yes", "perhaps"])[kinds]
    return stack, xr.DataArray(names, dims="object", coords={"object": objects})


def by_hand(values, positive):
    """The area under the ROC curve: the Mann-Whitney count of pairs in the right order."""
    a, b = values[positive][:, None], values[~positive]
    return ((a > b) + 0.5 * (a == b)).mean()


def area_by_hand(matrix, classes, order, size, c=1.0):
    train, test = order[:size], order[size:]
    block = matrix[train][:, train]
    scale, areas = np.mean([block[i, i] for i in range(size)]), []
    for label in sorted(set(classes.tolist())):
        # The same machine as C / scale on the block itself; but LIBSVM stops early, and rounds.
        machine = SVC(kernel="precomputed", C=c).fit(block / scale, classes[train] == label)
        areas.append(
            by_hand(
                machine.decision_function(matrix[test][:, train] / scale), classes[test] == label
            )
        )
    return np.mean(areas)


def order_of(stack, classes, repetition, *, sizes, seed, C=1.0):
    codes = np.unique(classes.values, return_inverse=True)[1]
    return Study(stack, codes, sizes, C, seed, 1.0, None).order(repetition)


class Recorder:
    """A method that keeps what it got and what it returned."""

    def __init__(self, method):
        self.completion, self.got, self.gave = method, [], []

    def __call__(self, stack):
        self.got.append(stack.copy())
        self.gave.append(self.completion(stack))
        return self.gave[-1]


def ridge(stack):
    """Fill in zeros and add to the diagonal: visible entries change."""
    return zero_impute(stack) + np.eye(stack.sizes["object"])


@pytest.mark.parametrize("classes", [2, 3])
def test_every_score_by_hand(classes):
    stack, labels = problem(classes=classes)
    before = stack.copy(deep=True)
    method = Recorder(ridge)
    study = run_study(
        stack,
        labels,
        methods={"ridge": method},
        ratios=[0.0, 0.4],
        repetitions=2,
        train_sizes=[8, 14],
        strength=0.5,
        seed=5,
    )
    xr.testing.assert_identical(stack, before)
    kinds, truth = labels.values, stack.values
    assert study["matrix"].values.tolist() == ["a", "b", "c", "model"]
    assert study["roc"].dims == ("repetition", "ratio", "completion", "matrix", "train_size")
    assert study["relative_error"].dims == ("repetition", "ratio", "completion", "kernel")
    for r in range(2):
        order = order_of(stack, labels, r, sizes=(8, 14), seed=5)
        for q in range(2):
            got, gave = method.got[2 * r + q].values, method.gave[2 * r + q].values
            cell = study.isel(repetition=r, ratio=q, completion=0)
            model = (0.5 * np.eye(24) + gave[0] + gave[1] + gave[2]) / 3.5
            for m, matrix in enumerate([*gave, model]):
                for s, size in enumerate((8, 14)):
                    expected = area_by_hand(matrix, kinds, order, size)
                    assert cell["roc"][m, s].item() == pytest.approx(expected, abs=1e-12)
            for k in range(3):
                missing = np.isnan(got[k]).all(axis=1)
                if not missing.any():
                    assert q == 0
                    assert np.isnan(cell["relative_error"][k])
                    assert np.isnan(cell["correlation_matrix_distance"][k])
                    continue
                norm = np.linalg.norm
                distance = 1 - np.trace(truth[k] @ gave[k]) / norm(truth[k]) / norm(gave[k])
                assert cell["correlation_matrix_distance"][k].item() == pytest.approx(distance)
                errors = [
                    norm(gave[k, i] - truth[k, i]) / norm(truth[k, i])
                    for i in np.flatnonzero(missing)
                ]
                assert cell["relative_error"][k].item() == pytest.approx(np.mean(errors))
    assert np.isnan(study["strength"]).all()
    assert study["converged"].all()
    assert not study["evaluations"].any()
    assert study["converged"].dtype == bool
    assert study["evaluations"].dtype.kind == "i"


def test_a_cell_of_the_fit_is_that_of_the_fit():
    stack, labels = problem(kernels=2)
    got = Recorder(mean_impute)
    options = {"ratios": [0.3], "repetitions": 1, "train_sizes": [12], "seed": 1}
    study = run_study(
        stack,
        labels,
        methods=["mkmc", {"look": got, "mine": partial(fit, strength=2.0, tol=1e-5)}],
        strength=0.8,
        **options,
    ).squeeze()
    order = order_of(stack, labels, 0, sizes=(12,), seed=1)
    for name, result in (
        ("mkmc", fit(got.got[0], strength=0.8, sources="identical")),
        ("mine", fit(got.got[0], strength=2.0, tol=1e-5)),
    ):
        cell = study.sel({"completion": name})
        assert cell["strength"].item() == result.prior.strength
        assert cell["converged"].item() is True
        assert cell["evaluations"].item() == result.trace["evaluations"][-1]
        for m, matrix in enumerate([*result.completed.values, result.model.matrix]):
            expected = area_by_hand(matrix, labels.values, order, 12)
            assert cell["roc"][m].item() == pytest.approx(expected, abs=1e-12)


def test_the_chosen_strength_is_that_of_the_incomplete_stack():
    stack, labels = problem(kernels=2)
    got = Recorder(zero_impute)
    chosen = partial(mkmc_chosen, strengths=[1.0, 3.0, 10.0], folds=2)
    options = {"ratios": [0.3], "repetitions": 1, "train_sizes": [12], "seed": 1}
    study = run_study(stack, labels, methods={"look": got, "chosen": chosen}, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MKMCWarning)  # the study keeps these to itself
        best = select_strength(got.got[0], strengths=[1.0, 3.0, 10.0], folds=2).best
    assert study["strength"].sel({"completion": "chosen"}).item() == best


def test_every_method_gets_the_same_and_the_ratios_are_nested():
    stack, labels = problem(kernels=2)
    methods = {"one": Recorder(zero_impute), "two": Recorder(mean_impute)}
    ratios = [0.0, 0.2, 0.5]
    run_study(stack, labels, methods=methods, ratios=ratios, repetitions=2, seed=3)
    seen = []
    for one, two in zip(methods["one"].got, methods["two"].got, strict=True):
        assert one.identical(two)
        assert np.array_equal(one.values, stack.where(~np.isnan(one)).values, equal_nan=True)
        seen.append(visible_objects(one).values)
    assert [int((~s).sum()) for s in seen] == [0, 10, 24] * 2
    for r in (0, 3):
        assert (seen[r + 1] >= seen[r + 2]).all()
    assert (seen[1] != seen[4]).any()  # repetitions differ


def test_scores_depend_on_neither_the_other_cells_nor_their_order():
    stack, labels = problem(kernels=2)
    options = {"strength": 1.0, "seed": 4, "train_sizes": [6]}
    whole = run_study(
        stack, labels, methods=["zero", "mean"], ratios=[0.0, 0.2, 0.4], repetitions=3, **options
    )
    part = run_study(stack, labels, methods=["mean"], ratios=[0.4, 0.2], repetitions=2, **options)
    assert part.identical(whole.isel(completion=[1], ratio=[2, 1], repetition=[0, 1]))
    other = run_study(
        stack, labels, methods=["mean"], ratios=[0.2], repetitions=1, **options | {"seed": 5}
    )
    assert not other["roc"].equals(part["roc"].sel(ratio=[0.2], repetition=[0]))


def test_a_method_may_return_another_order_of_the_labels():
    stack, labels = problem()

    def turned(stack):
        turn = slice(None, None, -1)
        return mean_impute(stack).isel(kernel=turn, object=turn, object_bis=turn)

    def spoiled(stack):
        done = mean_impute(stack)
        stack.values[...] = 0.0  # its own copy
        return done

    def fitted(stack):
        turn = slice(None, None, -1)
        turned = stack.isel(kernel=turn, object=turn, object_bis=turn)
        return fit(turned, strength=1.0, sources="identical")

    methods = ["mean", "mkmc", {"turned": turned, "spoiled": spoiled, "fitted": fitted}]
    options = {"ratios": [0.3], "repetitions": 1, "strength": 1.0, "seed": 0}
    study = run_study(stack, labels, methods=methods, **options).drop_vars("completion")
    for other in (2, 3):
        xr.testing.assert_identical(study.isel(completion=0), study.isel(completion=other))
    for name in ("roc", "correlation_matrix_distance"):
        xr.testing.assert_allclose(
            study[name].isel(completion=1), study[name].isel(completion=4), rtol=1e-3
        )


# Classes


@pytest.mark.parametrize("form", ["series", "mapping", "numbers", "bools", "shuffled", "longer"])
def test_classes_in_any_form(form):
    stack, labels = problem(kernels=1)
    series = labels.to_series()
    given = {
        "series": series,
        "mapping": dict(series),
        "numbers": series.map({"no": -1.0, "yes": 1.0}),
        "bools": xr.DataArray(labels == "yes"),
        "shuffled": series.sort_index(),
        "longer": pd.concat([pd.Series({"new": "other", "newer": None}), series]),
    }[form]
    options = {"methods": ["zero"], "ratios": [0.0], "repetitions": 1, "seed": 0}
    assert run_study(stack, given, **options).identical(run_study(stack, labels, **options))


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.sampled_from([(2, 7), (9, 3), (5,)]), st.integers(2, 3))
def test_divisions_are_nested_and_hold_every_class(seed, sizes, classes):
    rng = np.random.default_rng(seed)
    if classes == 3:
        sizes = tuple(size + 2 for size in sizes)
    codes = rng.permutation(np.arange(16) % classes)
    order = draw_order(codes, sizes, rng)
    assert sorted(order) == list(range(16))
    for size in sizes:
        assert set(codes[order[:size]]) == set(codes[order[size:]]) == set(range(classes))


def test_divisions_that_nothing_can_give():
    rng = np.random.default_rng(0)
    for codes, sizes, least in (
        ([0] * 9 + [1], [5], 1),  # one of a class cannot be in both
        ([0, 1] * 5, [1], 1),
        ([0, 1] * 5, [9], 1),
        ([0, 1] * 5, [8], 5),
    ):
        with pytest.raises(MKMCError, match=r"train_sizes: .*leave no division"):
            draw_order(np.array(codes), sizes, rng, least=least)


def test_the_sizes_of_the_paper():
    assert training_sizes(None, 2318) == training_sizes(None, 1200) == (200, 1000)
    assert training_sizes(None, 1199) == (200, 999)
    assert training_sizes(None, 30) == (5, 25)


# Machines


def test_the_scale_of_a_kernel_does_not_matter():
    rng = np.random.default_rng(0)
    matrix, classes = random_covariance(rng, 30), np.arange(30) % 2
    order = rng.permutation(30)
    areas = {roc_area(matrix * 4.0**p, classes, order[:20], order[20:]) for p in range(-20, 20, 5)}
    assert len(areas) == 1
    assert roc_area(0 * matrix, classes, order[:20], order[20:]) == 0.5
    matrix[order[:20]] = matrix[:, order[:20]] = 0.0
    assert roc_area(matrix, classes, order[:20], order[20:]) == 0.5


@pytest.mark.parametrize("classes", [2, 3])
def test_the_best_of_several_weights_by_cross_validation(classes):
    stack, labels = problem(size=60, kernels=2, classes=classes, seed=3)
    weights, sizes = [10.0, 0.01, 1.0], (30, 45)
    study = run_study(
        stack,
        labels,
        methods=["mean"],
        ratios=[0.0],
        repetitions=1,
        train_sizes=sizes,
        C=weights,
        seed=2,
        strength=1.0,
    ).squeeze()
    kinds = labels.values
    order = order_of(stack, labels, 0, sizes=sizes, seed=2, C=(0.01, 1.0, 10.0))
    chosen = []
    for m, matrix in enumerate([*stack.values, (np.eye(60) + stack.values.sum(0)) / 3]):
        for s, size in enumerate(sizes):
            train = order[:size]
            assert min(np.unique(kinds[train], return_counts=True)[1]) >= 5
            scores = []
            for c in sorted(weights):
                areas = [
                    area_by_hand(
                        matrix[train][:, train], kinds[train], np.r_[some, rest], len(some), c
                    )
                    for some, rest in StratifiedKFold(5).split(train, kinds[train])
                ]
                scores.append(np.mean(areas))
            chosen.append(sorted(weights)[int(np.argmax(scores))])
            expected = area_by_hand(matrix, kinds, order, size, chosen[-1])
            assert study["roc"][m, s].item() == pytest.approx(expected, abs=1e-12)
    assert len(set(chosen)) > 1
    assert study.attrs["C"] == [0.01, 1.0, 10.0]


# What comes out


def test_the_table_is_tidy():
    stack, labels = problem(kernels=2)
    options = {"ratios": [0.2, 0.4], "repetitions": 2, "train_sizes": [12, 6], "seed": 0}
    study = run_study(stack, labels, methods=["zero", "mean"], **options)
    table = study_table(study)
    assert list(table.columns) == [
        *("repetition", "ratio", "completion", "matrix", "train_size"),
        *("roc", "correlation_matrix_distance", "relative_error"),
    ]
    assert len(table) == 2 * 2 * 2 * 3 * 2
    assert table["train_size"].tolist()[:4] == [12, 6, 12, 6]
    assert table["matrix"].tolist()[:6] == ["a", "a", "b", "b", "model", "model"]
    for row in table.sample(20, random_state=0).itertuples():
        cell = study.sel(
            {name: getattr(row, name) for name in ("repetition", "ratio", "completion")}
        )
        assert row.roc == cell["roc"].sel(matrix=row.matrix, train_size=row.train_size)
        for name in ("correlation_matrix_distance", "relative_error"):
            if row.matrix == "model":
                assert np.isnan(getattr(row, name))
            else:
                assert getattr(row, name) == cell[name].sel(kernel=row.matrix)


def test_kernels_named_by_numbers(tmp_path):
    stack, labels = problem(kernels=2)
    stack = stack.assign_coords(kernel=[7, 3])
    options = {"methods": ["zero"], "ratios": [0.2], "repetitions": 1, "seed": 0, "C": 2}
    study = run_study(stack, labels, folder=tmp_path, **options)
    assert study["matrix"].values.tolist() == ["7", "3", "model"]
    assert study["kernel"].values.tolist() == [7, 3]
    assert study.attrs["C"] == 2.0
    assert study.attrs["n_objects"] == 24
    assert study_table(study)["relative_error"].isna().sum() == 2
    study.to_netcdf(tmp_path / "study.nc")
    with xr.open_dataset(tmp_path / "study.nc") as again:
        xr.testing.assert_equal(again.load(), study)
