"""Runs of the completion study: workers, folders that are gone on with, and what is refused."""

import json
import sys
import time
import warnings
from functools import partial

import numpy as np
import pytest
import xarray as xr
from test_experiments import problem

from mkmc_prob import (
    ConvergenceWarning,
    KernelError,
    LabelError,
    MKMCError,
    MKMCWarning,
    fit,
    remove_objects,
    zero_impute,
)
from mkmc_prob.experiments import run_study, study_times

SMALL = {"ratios": [0.0, 0.3], "repetitions": 2, "strength": 1.0, "seed": 7}


def states(folder):
    """What tells whether a file was touched."""
    return {f.name: (f.stat().st_mtime_ns, f.stat().st_ino) for f in folder.glob("cell_*.json")}


def slowly_filled(stack):
    return zero_impute(stack)


def test_neither_workers_nor_the_folder_change_the_result(tmp_path):
    stack, classes = problem(kernels=2)
    options = SMALL | {"methods": ["zero", {"own": slowly_filled}, "mkmc"]}
    here = run_study(stack, classes, **options)
    apart = run_study(stack, classes, workers=2, folder=tmp_path / "new" / "one", **options)
    xr.testing.assert_identical(here, apart)
    before = states(tmp_path / "new" / "one")
    assert len(before) == 12
    again = run_study(stack, classes, folder=tmp_path / "new" / "one", **options)
    xr.testing.assert_identical(here, again)
    assert states(tmp_path / "new" / "one") == before


def test_large_kernels_reach_other_processes_as_files():
    """From 1 MB on joblib hands arrays over read-only."""
    stack, classes = problem(size=260, kernels=2)
    assert stack.nbytes > 1e6
    options = SMALL | {"methods": ["zero", "mean"], "missingness": own_missingness}
    here = run_study(stack, classes, **options)
    xr.testing.assert_identical(here, run_study(stack, classes, workers=2, **options))


def test_a_folder_goes_on_where_it_ended(tmp_path, capsys):
    stack, classes = problem(kernels=2)
    first = SMALL | {"methods": ["mkmc", "zero"], "folder": tmp_path}
    run_study(stack, classes, **first)
    before, settings = states(tmp_path), (tmp_path / "settings.json").stat().st_mtime_ns
    more = first | {"methods": ["mean", "mkmc"], "ratios": [0.3, 0.5], "repetitions": 3}
    study = run_study(stack, classes, progress=True, **more)
    assert "12/12" in capsys.readouterr().err
    after = states(tmp_path)
    assert len(after) == 8 + 10
    assert {name: after[name] for name in before} == before
    xr.testing.assert_identical(study, run_study(stack, classes, **more | {"folder": None}))
    assert (tmp_path / "settings.json").stat().st_mtime_ns > settings
    assert list(json.loads((tmp_path / "settings.json").read_text())["methods"]) == [
        *("mkmc", "zero", "mean")
    ]
    times = study_times(tmp_path)
    assert times.dims == ("repetition", "ratio", "completion")
    assert times["ratio"].values.tolist() == [0.0, 0.3, 0.5]
    assert times["completion"].values.tolist() == ["mkmc", "zero", "mean"]
    assert int(times.notnull().sum()) == 18
    assert (times > 0).sum() == 18
    assert np.isnan(times.loc[{"ratio": 0.5, "completion": "zero"}]).all()
    some = first | {"repetitions": 1, "methods": ["zero"]}  # less is a part of it
    assert run_study(stack, classes, **some).sizes["repetition"] == 1
    # The fits themselves: nothing is read but what is in the files.
    file = tmp_path / "cell_0_0.3_mkmc.json"
    content = json.loads(file.read_text())
    content["strength"] = 123.0
    file.write_text(json.dumps(content))
    assert 123.0 in run_study(stack, classes, **first)["strength"].values


def weaker(stack):
    return 0.5 * zero_impute(stack)


def own_missingness(stack, ratio, *, seed):
    return remove_objects(stack, ratio / 2, seed=seed)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"seed": 8}, "seed is 7 there and 8 here"),
        ({"C": 2.0}, "C is 1.0 there and 2.0 here"),
        ({"C": [1.0, 2.0]}, "C is 1.0 there"),
        ({"strength": 2}, "strength is 1.0 there and 2.0 here"),
        ({"tol": 1e-2}, "tol is 0.001 there"),
        ({"max_iter": 99}, "max_iter is 10000 there"),
        ({"train_sizes": [12, 19]}, "train_sizes is .12, 18. there"),
        ({"missingness": own_missingness}, "missingness is 'built-in remove_objects' there"),
        (
            {"methods": {"own": weaker}},
            "the definition of method 'own' is 'test_experiments_runs.sl",
        ),
        (
            {"methods": {"own": "mean"}},
            "the definition of method 'own' is 'test_experiments_runs.sl",
        ),
        ({"kernels": 1}, "kernels is '[0-9a-f]{16}' there"),
        ({"kernels": 2}, "kernels is '[0-9a-f]{16}' there"),
        ({"classes": 1}, "classes is '[0-9a-f]{16}' there"),
        ({"version": "9"}, "version is '[^']*' there and '9' here"),
    ],
)
def test_other_settings_are_refused(tmp_path_factory, monkeypatch, changed, named):
    stack, classes = problem(kernels=2)
    options = SMALL | {"methods": ["zero", {"own": slowly_filled}], "train_sizes": [12, 18]}
    folder = tmp_path_factory.getbasetemp() / "settings"
    run_study(stack, classes, folder=folder, **options)  # computed for the first of these only
    before = states(folder), (folder / "settings.json").read_text()
    changed = dict(changed)
    match changed.pop("kernels", 0):
        case 1:
            stack = stack.copy()
            stack.values[0, 3, 3] *= 1 + 1e-15
        case 2:
            stack = stack.assign_coords(kernel=["a", "z"])
    if changed.pop("classes", 0):
        classes = classes.roll(object=1)
    if "version" in changed:
        monkeypatch.setattr("mkmc_prob.experiments.study.__version__", changed.pop("version"))
    with pytest.raises(MKMCError, match=f"holds cells of other settings: {named}"):
        run_study(stack, classes, folder=folder, **options | changed)
    assert (states(folder), (folder / "settings.json").read_text()) == before


def test_damaged_files_are_named_and_left(tmp_path):
    stack, classes = problem(kernels=2)
    options = SMALL | {"methods": ["zero"], "folder": tmp_path}
    whole = run_study(stack, classes, **options)
    first, second = tmp_path / "cell_0_0.0_zero.json", tmp_path / "cell_1_0.3_zero.json"
    text = first.read_text()
    first.write_text(text[:100])
    second.write_text(text)  # another cell's
    with pytest.raises(
        MKMCError, match=r"cell_0_0\.0_zero\.json, .*cell_1_0\.3_zero\.json. Delete"
    ):
        run_study(stack, classes, **options)
    assert first.read_text() == text[:100]
    with pytest.raises(MKMCError, match=r"damaged cell files: .*cell_0_0\.0_zero\.json"):
        study_times(tmp_path)
    first.unlink()
    second.unlink()
    xr.testing.assert_identical(run_study(stack, classes, **options), whole)
    for name, value in (("converged", None), ("relative_error", [1.0]), ("roc", "x"), ("roc", [])):
        first.write_text(json.dumps(json.loads(text) | {name: value}))
        with pytest.raises(MKMCError, match="damaged"):
            run_study(stack, classes, **options)
    first.write_text("[]")
    with pytest.raises(MKMCError, match="damaged"):
        run_study(stack, classes, **options)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"methods": 3}'])
def test_settings_that_cannot_be_read(tmp_path, text):
    stack, classes = problem(kernels=1)
    (tmp_path / "settings.json").write_text(text)
    with pytest.raises(MKMCError, match=r"settings\.json: damaged"):
        run_study(stack, classes, methods=["zero"], folder=tmp_path, **SMALL)


def test_folders_that_are_not_a_study(tmp_path):
    stack, classes = problem(kernels=1)
    with pytest.raises(MKMCError, match=r"there is no settings\.json"):
        study_times(tmp_path)
    (tmp_path / "cell_0_0.0_zero.json").write_text("{}")
    with pytest.raises(
        MKMCError, match=r"holds cells of method 'zero', which is not in settings\.json"
    ):
        run_study(stack, classes, methods=["zero"], folder=tmp_path, **SMALL)


def test_names_of_methods_become_names_of_files(tmp_path):
    stack, classes = problem(kernels=1)
    methods = {"a/b: ü": "zero", ".": "mean", "A": "zero", "a": "mean"}
    options = {"methods": methods, "ratios": [0.2], "repetitions": 1, "seed": 0}
    study = run_study(stack, classes, folder=tmp_path, **options)
    assert len(list(tmp_path.glob("cell_0_0.2_*.json"))) == 4
    xr.testing.assert_identical(run_study(stack, classes, folder=tmp_path, **options), study)
    with pytest.raises(MKMCError, match="too long to name a file"):
        run_study(stack, classes, folder=tmp_path, **options | {"methods": {"x" * 200: "zero"}})


# Methods that fail


class OddError(Exception):
    """Does not survive pickling."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def fails(stack):
    if stack.isnull().any():
        raise OddError("this", "that")
    return stack


def fails_once_there_is(path, stack):
    until = time.monotonic() + 60
    while stack.isnull().any() and not path.exists() and time.monotonic() < until:
        time.sleep(0.01)
    return fails(stack)


def spoiled(change):
    def method(stack):
        return change(zero_impute(stack))

    return method


def entry(value):
    def change(stack):
        stack.values[0, 0, 1] = value
        return stack

    return change


@pytest.mark.parametrize(
    ("method", "cause", "message"),
    [
        (fails, OddError, "OddError: this and that"),
        (lambda stack: stack, KernelError, "kernel 'a': .*hidden .NaN.. A method fills in all"),
        (lambda stack: stack.values, KernelError, "labeled stack .* is expected, not ndarray"),
        (lambda stack: None, KernelError, "not NoneType"),
        (spoiled(entry(np.nan)), KernelError, "kernel 'a': object 'o[0-9]*' is NaN in 1 entries"),
        (spoiled(entry(np.inf)), KernelError, "kernel 'a': the entry of objects .* is inf"),
        (spoiled(entry(50.0)), KernelError, "kernel 'a': not symmetric"),
        (spoiled(lambda s: s.isel(kernel=[0])), LabelError, "its kernels are not those"),
        (
            spoiled(lambda s: s.isel(object=slice(1, None), object_bis=slice(1, None))),
            LabelError,
            "its objects are not those of the stack it got: 'o[0-9]*' in one only",
        ),
        (spoiled(lambda s: 0 * s), KernelError, "kernel 'a': all its entries are zero"),
        (spoiled(lambda s: s - 9 * np.eye(24)), KernelError, "kernel 'a': the diagonal entry"),
    ],
)
def test_a_method_that_fails_is_named(tmp_path, method, cause, message):
    stack, classes = problem(kernels=2)
    options = SMALL | {"folder": tmp_path, "ratios": [0.3]}
    named = f"repetition 0, ratio 0.3, method 'mine': .*{message}"
    with pytest.raises(MKMCError, match=named) as caught:
        run_study(stack, classes, methods=["zero", {"mine": method}], **options)
    assert isinstance(caught.value.__cause__, cause)
    assert list(states(tmp_path)) == ["cell_0_0.3_zero.json"]
    run_study(stack, classes, methods=["zero"], **options)  # finished cells are of use


def test_a_method_that_fails_in_another_process_is_named_too(tmp_path):
    stack, classes = problem(kernels=2)
    mine = partial(fails_once_there_is, tmp_path / "cell_0_0.0_mine.json")
    options = SMALL | {"methods": ["zero", {"mine": mine}]}
    named = r"repetition \d, ratio 0.3, method 'mine': OddError: this and that"
    with pytest.raises(MKMCError, match=named) as caught:
        run_study(stack, classes, workers=2, folder=tmp_path, **options)
    assert "in fails" in caught.value.__cause__.__notes__[0]
    assert "cell_0_0.0_mine.json" in states(tmp_path)
    options = SMALL | {"methods": ["zero", {"brief": lambda stack: 1 / 0}]}
    with pytest.raises(MKMCError, match="method 'brief': ZeroDivisionError") as caught:
        run_study(stack, classes, workers=2, **options)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_fits_that_did_not_converge_are_counted_once():
    stack, classes = problem(kernels=2)
    hasty = partial(fit, strength=1.0, max_iter=2)
    options = SMALL | {"methods": ["mkmc", {"hasty": hasty}, "zero"]}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        study = run_study(stack, classes, **options)
    assert [w.category for w in caught] == [ConvergenceWarning]
    assert "converged: 4 of 4 by 'hasty';" in str(caught[0].message)
    assert caught[0].filename == __file__
    assert study["converged"].sum(["repetition", "ratio"]).values.tolist() == [4, 0, 4]


def test_what_else_is_warned_of():
    """Of the kernels' scales, once; not of what each cell leaves to the prior."""
    stack, classes = problem(kernels=2)
    stack.values[0] *= 100.0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run_study(stack, classes, methods=["mkmc"], **SMALL | {"ratios": [0.3, 0.7]})
    assert [w.category for w in caught] == [MKMCWarning]
    assert "scales differ" in str(caught[0].message)


# What is refused


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"methods": "none"}, MKMCError, "methods: 'none' found for 'none'; .* built-in 'mkmc'"),
        ({"methods": []}, MKMCError, "methods: there are none"),
        ({"methods": 3}, MKMCError, "methods: name 3 found"),
        ({"methods": ["zero", {"zero": "mean"}]}, MKMCError, "'zero' occurs more than once"),
        ({"methods": {"a": 1}}, MKMCError, "methods: 1 found for 'a'"),
        ({"methods": {3: "zero"}}, MKMCError, "methods: name 3 found"),
        ({"methods": [zero_impute]}, MKMCError, "methods: name <function zero_impute"),
        ({"ratios": [1.0]}, MKMCError, "ratios: 1.0 found"),
        ({"ratios": [-0.1]}, MKMCError, "ratios: -0.1 found"),
        ({"ratios": [0.1, 0.1]}, MKMCError, "ratios: .* each once"),
        ({"ratios": []}, MKMCError, "ratios: .* at least one"),
        ({"ratios": ["a"]}, MKMCError, "ratios: 'a' found"),
        ({"repetitions": 0}, KernelError, "repetitions: 0"),
        ({"workers": 0}, KernelError, "workers: 0"),
        ({"seed": None}, KernelError, "seed: None"),
        ({"seed": -1}, KernelError, "seed: -1"),
        ({"strength": 0}, KernelError, "strength: 0"),
        ({"tol": -1}, KernelError, "tol: -1"),
        ({"max_iter": 0}, KernelError, "max_iter: 0"),
        ({"C": 0}, KernelError, "C: 0"),
        ({"C": []}, MKMCError, r"C: \[\] found"),
        ({"C": [1.0, 1]}, MKMCError, "C: .* each once"),
        ({"C": "1"}, KernelError, "C: '1'"),
        ({"train_sizes": [24]}, MKMCError, r"train_sizes: \[24\] of 24 objects leave no division"),
        ({"train_sizes": [0]}, KernelError, "train_sizes: 0"),
        ({"train_sizes": [5, 5]}, MKMCError, "train_sizes: .* each once"),
        ({"train_sizes": []}, MKMCError, "train_sizes: .* at least one"),
        ({"missingness": 0.3}, MKMCError, "missingness: 0.3 found"),
        ({"C": [0.1, 1.0], "train_sizes": [9]}, MKMCError, "with 5 or more of each of the 2"),
    ],
)
def test_arguments_that_cannot_be_used(options, error, message):
    stack, classes = problem(kernels=1)
    with pytest.raises(error, match=message):
        run_study(stack, classes, **{"methods": ["zero"]} | SMALL | options)


def test_seed_has_no_default():
    with pytest.raises(TypeError, match="seed"):
        run_study(*problem())


def test_kernels_that_cannot_be_used():
    stack, classes = problem(kernels=2)
    with pytest.raises(KernelError, match=r"kernels, kernel 'a': .*hidden \(NaN\)"):
        run_study(remove_objects(stack, 0.3, seed=0), classes, seed=0)
    with pytest.raises(LabelError, match="kernels: a kernel is called 'model'"):
        run_study(stack.assign_coords(kernel=["a", "model"]), classes, seed=0)
    with pytest.raises(KernelError, match="kernels: a labeled stack"):
        run_study(stack.values, classes, seed=0)


def test_classes_that_cannot_be_used():
    stack, classes = problem(kernels=1)
    series = classes.to_series()
    label = stack["object"].values[0].item()
    for given, error, message in (
        (series.drop(label), LabelError, f"classes: none for object '{label}'"),
        (series.add_prefix("other "), LabelError, f"classes: none for object '{label}'"),
        (series.where(series.index != label), MKMCError, f"found for object '{label}'"),
        (dict(series) | {label: None}, MKMCError, f"None found for object '{label}'"),
        (dict(series) | {label: [1]}, MKMCError, f"found for object '{label}'"),
        (dict(series) | {label: 1}, MKMCError, "text, numbers or truth values are mixed"),
        ({**series.map({"no": 1, "yes": 2}), label: True}, MKMCError, "truth values are mixed"),
        (dict.fromkeys(series.index, "x"), MKMCError, "all objects are of class 'x'"),
        (series.to_list(), LabelError, "classes: list found"),
        (classes.rename(object="thing"), LabelError, "classes: DataArray found"),
        (classes.drop_vars("object"), LabelError, "classes: DataArray found"),
    ):
        with pytest.raises(error, match=message):
            run_study(stack, given, seed=0)


@pytest.mark.parametrize(
    ("module", "workers", "message"),
    [("sklearn.svm", 1, "scikit-learn"), ("joblib", 2, "joblib")],
)
def test_what_is_not_installed_is_named(monkeypatch, tmp_path, module, workers, message):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MKMCError, match=rf'{message}.*pip install "mkmc_prob\[experiments\]"'):
        run_study(*problem(), seed=1, workers=workers, folder=tmp_path / "none")
    assert not (tmp_path / "none").exists()
