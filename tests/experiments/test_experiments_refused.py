"""What a study refuses: other runs in its folder, odd files, names, numbers, processes that end."""

import json
import os
import sys
import threading
from functools import partial

import numpy as np
import pytest
from test_comparisons import made_study
from test_experiments import problem

from mkmc_prob import KernelError, LabelError, MKMCError, fit, zero_impute
from mkmc_prob.experiments import mkmc, run_study, save_figures, study_summary, study_times
from mkmc_prob.experiments.classification import draw_order

ONE = {"ratios": [0.3], "repetitions": 1, "strength": 1.0, "seed": 7}


# Folders


def test_cells_of_a_method_that_is_not_on_record_are_named(tmp_path):
    stack, classes = problem(kernels=1)
    run_study(stack, classes, methods=["zero", {"a_b c": "mean"}], folder=tmp_path, **ONE)
    record = json.loads((tmp_path / "settings.json").read_text())
    del record["methods"]["a_b c"]
    (tmp_path / "settings.json").write_text(json.dumps(record))
    with pytest.raises(MKMCError, match=r"cells of method 'a_b c', which is not in settings\.json"):
        run_study(stack, classes, methods=["zero"], folder=tmp_path, **ONE)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("roc", [[1.2, 0.5], [0.5, 0.5]]),
        ("roc", [[-0.1, 0.5], [0.5, 0.5]]),
        ("roc", [[None, 0.5], [0.5, 0.5]]),
        ("roc", [["0.5", 0.5], [0.5, 0.5]]),
        ("roc", [[True, 0.5], [0.5, 0.5]]),
        ("roc", [[0.5, 0.5], [0.5]]),
        ("roc", 0.5),
        ("relative_error", [-0.1]),
        ("relative_error", ["1"]),
        ("correlation_matrix_distance", [-1e-9]),
        ("correlation_matrix_distance", [float("inf")]),
        ("strength", 0),
        ("strength", -1.0),
        ("strength", "1"),
        ("strength", [1.0]),
        ("evaluations", -1),
        ("evaluations", 1.0),
        ("converged", 1),
        ("seconds", -1.0),
        ("seconds", None),
        ("repetition", False),
        ("ratio", "0.3"),
        ("completion", "mean"),
    ],
)
def test_edited_cells_are_damaged(tmp_path_factory, name, value):
    stack, classes = problem(kernels=1)
    folder = tmp_path_factory.getbasetemp() / "edited"
    run_study(stack, classes, methods=["zero"], folder=folder, **ONE)
    file = folder / "cell_0_0.3_zero.json"
    text = file.read_text()
    file.write_text(json.dumps(json.loads(text) | {name: value}))
    with pytest.raises(MKMCError, match="damaged"):
        run_study(stack, classes, methods=["zero"], folder=folder, **ONE)
    with pytest.raises(MKMCError, match="damaged"):
        study_times(folder)
    file.write_text(text)


@pytest.mark.parametrize("folder", [3, b"bytes", "a\0b"])
def test_folders_that_are_no_names(folder):
    with pytest.raises(MKMCError, match=r"folder: .* found; the name of a folder"):
        run_study(*problem(kernels=1), methods=["zero"], folder=folder, **ONE)
    with pytest.raises(MKMCError, match=r"folder: .* found; the name of a folder"):
        study_times(folder)
    with pytest.raises(MKMCError, match=r"folder: .* found; the name of a folder"):
        save_figures(made_study(2), folder)


def test_folders_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    for use in (
        lambda path: run_study(*problem(kernels=1), methods=["zero"], folder=path, **ONE),
        lambda path: save_figures(made_study(2), path, formats="png"),
    ):
        with pytest.raises(FileExistsError, match=r"File exists: .*file"):
            use(tmp_path / "file")
        with pytest.raises(NotADirectoryError, match=r"Not a directory: .*below"):
            use(tmp_path / "file" / "below")


# Names and numbers


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"methods": {"a\0b": "zero"}}, LabelError, "methods: label .* NUL character"),
        ({"methods": {"a\ud800": "zero"}}, LabelError, "methods: label .* surrogate pair"),
        (
            {"methods": {"mkmc": partial(fit, strength=1.0)}},
            MKMCError,
            "'mkmc' is the name of",
        ),
        ({"methods": {"mkmc_chosen": mkmc}}, MKMCError, "'mkmc_chosen' is the name of"),
        ({"methods": {"zero": "mean"}}, MKMCError, "'zero' is the name .* a name of its own"),
        ({"methods": {"mean": lambda stack: stack}}, MKMCError, "'mean' is the name of"),
        ({"ratios": [0.3, 0.1 + 0.2]}, MKMCError, "ratios: .*each once"),
        ({"seed": 2**63}, KernelError, "seed: 9223372036854775808 found; a whole number"),
        ({"C": 1e11}, KernelError, "C: 100000000000.0 found; .*LIBSVM, does not end"),
        ({"C": [1.0, 1e11]}, KernelError, "LIBSVM, does not end"),
        ({"train_sizes": [24]}, MKMCError, "no division .the numbers do not allow one. with"),
    ],
)
def test_arguments_that_cannot_be_used(options, error, message):
    with pytest.raises(error, match=message):
        run_study(*problem(kernels=1), **{"methods": ["zero"]} | ONE | options)


def test_names_of_built_in_methods_stay_theirs():
    stack, classes = problem(kernels=2)
    methods = {"mkmc": partial(mkmc, strength=2.0), "zero": zero_impute}
    study = run_study(stack, classes, methods=methods, **ONE)
    assert (study["strength"].sel(completion="mkmc") == 2.0).all()


def test_a_division_that_was_not_found_says_how_often_it_was_drawn():
    with pytest.raises(MKMCError, match="none was found in 10000 draws"):
        # Ten classes in ten objects, at both ends of the order.
        draw_order(np.arange(60) % 10, [10, 50], np.random.default_rng(0))


def test_kernels_called_by_numbers_are_found():
    study = made_study(2, kernels=[1, 2]).assign_coords(matrix=["1", "2", "model"])
    assert study_summary(study, matrix=1).equals(study_summary(study, matrix="1"))
    with pytest.raises(LabelError, match="matrix 3"):
        study_summary(study, matrix=3)


@pytest.mark.parametrize("formats", [None, 3, [None], ["png", ["pdf"]], "gif!"])
def test_formats_that_are_none(tmp_path, formats):
    with pytest.raises(MKMCError, match=r"formats: .* is needed"):
        save_figures(made_study(2), tmp_path, formats=formats)


def test_formats_that_fail(tmp_path, monkeypatch):
    def fails(*args, **options):
        raise RuntimeError("xelatex not found")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", fails)
    with pytest.raises(MKMCError, match=r"roc_by_matrix.pgf could not be .*xelatex not found"):
        save_figures(made_study(2), tmp_path, formats="pgf")


# Processes


def leaves(stack):
    sys.exit(3)


def ends(stack):
    os._exit(3)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_method_that_leaves_is_named(workers):
    options = ONE | {"repetitions": 2, "workers": workers}
    with pytest.raises(MKMCError, match=r"method 'mine': .*sys\.exit\(3\)"):
        run_study(*problem(kernels=1), methods={"mine": leaves}, **options)


def test_a_process_that_ends_is_told_with_its_cells():
    with pytest.raises(MKMCError, match=r"worker process died.*In flight were .*'mine'"):
        run_study(
            *problem(kernels=1), methods={"mine": ends}, **ONE | {"repetitions": 2, "workers": 2}
        )


def test_what_cannot_go_to_another_process_is_named():
    lock = threading.Lock()

    def locked(stack):
        with lock:
            return zero_impute(stack)

    def missing(stack, ratio, *, seed):
        with lock:
            stack.values[:, 0, :] = stack.values[:, :, 0] = np.nan
        return stack

    stack, classes = problem(kernels=1)
    options = ONE | {"repetitions": 2, "workers": 2}
    with pytest.raises(MKMCError, match=r"cannot be passed.*workers=1.*method 'mine'"):
        run_study(stack, classes, methods=["zero", {"mine": locked}], **options)
    with pytest.raises(MKMCError, match=r"cannot be passed.*lock.*workers=1"):
        run_study(stack, classes, methods=["zero"], missingness=missing, **options)
