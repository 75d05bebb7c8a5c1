"""The study's report and its command line: what is written says what the dataset says."""

import re

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from mkmc_prob import LabelError, MKMCError
from mkmc_prob.experiments import PAPER_SCORES, run_study, study_report, study_table, write_study
from mkmc_prob.experiments.__main__ import main
from mkmc_prob.experiments.scores import method_name


@pytest.fixture(scope="module")
def study():
    """Return a made study in which MKMC is better by 0.1 than zero, by 0.05 than mean."""
    rng = np.random.default_rng(0)
    ratios, sizes = [0.0, 0.5], [200, 1000]
    base = 0.7 + 0.01 * rng.standard_normal((4, 2, 1, 3, 2))
    shift = np.array([0.1, 0.0, 0.05])[:, None, None]
    roc = base + shift + 0.001 * rng.standard_normal((4, 2, 3, 3, 2))
    distance = 0.1 * rng.random((4, 2, 3, 2))
    distance[:, 0] = np.nan
    dims = ("repetition", "ratio", "completion")
    return xr.Dataset(
        {
            "roc": ((*dims, "matrix", "train_size"), roc),
            "correlation_matrix_distance": ((*dims, "kernel"), distance),
            "relative_error": ((*dims, "kernel"), 2.0 * distance),
        },
        coords={
            "ratio": ratios,
            "completion": ["mkmc", "zero", "mean"],
            "matrix": ["a", "b", "model"],
            "kernel": ["a", "b"],
            "train_size": sizes,
        },
        attrs={"n_objects": 1200, "n_kernels": 2, "n_classes": 2, "strength": 0.001, "seed": 0},
    )


def rows_of(report, heading):
    part = report.split(f"## {heading}")[1].split("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return pd.DataFrame(cells[2:], columns=cells[0])


def test_the_tables_say_what_the_dataset_says(study):
    report = study_report(study)
    table = rows_of(report, "ROC scores of the model matrix, 50 % of the rows removed")
    assert len(table) == 6
    mean = study["roc"].sel(ratio=0.5, matrix="model").mean("repetition")
    for _, row in table.iterrows():
        name = next(
            key
            for key, word in {"mkmc": "MKMC", "zero": "zero", "mean": "mean"}.items()
            if row["completion"].startswith(word)
        )
        size = int(row["train size"])
        expected = mean.sel(completion=name, train_size=size).item()
        assert float(row["mean ROC"]) == pytest.approx(expected, abs=6e-4)
        if name == "mkmc":
            assert row["p, paired"] == row["difference"] == ""
        else:
            own = mean.sel(completion="mkmc", train_size=size).item()
            assert float(row["difference"]) == pytest.approx(expected - own, abs=6e-4)
            assert float(row["p, paired"]) < 1e-3
    means = rows_of(report, "Means over the repetitions (standard errors)")
    assert len(means) == 6
    assert means["correlation matrix distance"].tolist()[:3] == ["", "", ""]
    value = study["relative_error"].sel(ratio=0.5, completion="zero").mean("kernel")
    assert means["relative error"].iloc[4] == (f"{value.mean():.3f} ({value.std(ddof=1) / 2:.3f})")
    assert "- seed: 0" in report


def test_the_papers_numbers_stand_beside(study):
    table = rows_of(study_report(study, paper=True), "ROC scores")
    found = [float(text) for text in table["the paper's"]]
    assert found == PAPER_SCORES["roc"].values.ravel().tolist()
    other = study.assign_coords(train_size=[100, 1000])
    table = rows_of(study_report(other, paper=True), "ROC scores")
    assert table["the paper's"].tolist()[:3] == ["", "", ""]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda study: study.isel(ratio=[0]), "no ratio 0.5"),
        (lambda study: study.isel(repetition=[0]), "it has one repetition"),
        (lambda study: study.sel(completion=["zero"]), "'zero' is its only method"),
        (lambda study: study.drop_attrs(), "n_objects is None"),
        (lambda study: study.isel(matrix=[0, 1]), "no matrix 'model'"),
    ],
)
def test_what_cannot_be_compared_is_left_out_with_the_reason(study, tmp_path, change, reason):
    changed = change(study)
    paths = write_study(changed, tmp_path / "out")
    names = [path.name for path in paths]
    assert names[:3] == ["study.nc", "table.csv", "report.md"]
    assert all(path.stat().st_size for path in paths)
    report = (tmp_path / "out" / "report.md").read_text()
    assert re.search(f"The methods are not compared: .*{reason}", report)
    assert ("roc_by_matrix.pdf" in names) == ("no ratio" not in reason)
    assert ("- roc_by_matrix: " in report) == ("no ratio" in reason)
    assert len(pd.read_csv(tmp_path / "out" / "table.csv")) == changed["roc"].size


def test_what_is_no_study_is_refused(study, tmp_path):
    for change in (
        lambda study: study.drop_vars("roc"),
        lambda study: study.drop_vars("relative_error"),
        lambda study: study["roc"],
        lambda study: study.isel(ratio=0),
        lambda study: study.drop_vars("matrix"),
    ):
        for use in (study_report, study_table, lambda odd: write_study(odd, tmp_path / "out")):
            with pytest.raises(MKMCError, match="study: "):
                use(change(study))
    with pytest.raises(LabelError, match="kernel 'a' is none of its matrices"):
        study_table(study.isel(matrix=[1, 2]))
    assert not (tmp_path / "out").exists()
    with pytest.raises(MKMCError, match="ratio: 'half' found"):
        study_report(study, ratio="half")
    for folder in (3, None, "a\0b"):
        with pytest.raises(MKMCError, match=r"folder: .* the name of a folder"):
            write_study(study, folder)
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"File exists: .*file"):
        write_study(study, tmp_path / "file")


def test_mkmcs_label_says_the_strength_of_its_fits(study):
    assert method_name(study, "mkmc") == "MKMC, strength 0.001"
    own = study["roc"].isel(matrix=0, train_size=0, drop=True)
    assert method_name(study.assign(strength=0 * own + 2.0), "mkmc") == "MKMC, strength 2"
    assert method_name(study.assign(strength=own), "mkmc") == "MKMC"


OPTIONS = ["--repetitions", "3", "--ratios", "0", "0.5", "--strength", "1", "--tol", "1"]
CHOSEN = ["--strengths", "1", "10", "--folds", "2", "--train-sizes", "15"]


def test_what_the_fits_took_is_reported_of_the_methods_that_fit(study):
    assert "## Fits" not in study_report(study)
    dims = ("repetition", "ratio", "completion")
    nan, many = np.nan, np.arange(24).reshape(4, 2, 3)
    strength = np.broadcast_to([0.3, nan, nan], (4, 2, 3))
    took = {
        "strength": (dims, strength),
        "evaluations": (dims, many),
        "converged": (dims, many > 0),
    }
    table = rows_of(study_report(study.assign(took)), "Fits: medians over the repetitions")
    assert table["completion"].str.startswith("MKMC").all()
    assert table["strength"].tolist() == ["0.3", "0.3"]
    assert table["evaluations"].tolist() == ["9", "12"]  # of 0, 6, 12, 18 and of 3, 9, 15, 21
    assert table["converged"].tolist() == ["75%", "100%"]


def test_the_command_line_does_what_the_function_does(tmp_path, capsys):
    made = ["fusion", "--objects", "30", "--kernels", "2", "--output", str(tmp_path / "out")]
    main([*made, *OPTIONS, *CHOSEN])
    printed = capsys.readouterr().out
    names = re.findall(r"^\S+out/(\S+)$", printed, re.M)
    assert set(names) >= {"study.nc", "table.csv", "report.md", "roc_by_ratio.pdf"}
    assert all((tmp_path / "out" / name).stat().st_size > 100 for name in names)
    assert printed.endswith((tmp_path / "out" / "report.md").read_text() + "\n")
    with xr.open_dataset(tmp_path / "out" / "study.nc", engine="h5netcdf") as saved:
        assert saved["completion"].values.tolist() == ["mkmc", "mkmc_chosen", "zero", "mean"]
        assert saved.attrs["command"].startswith(
            "python -m mkmc_prob.experiments fusion --objects 30"
        )
        from mkmc_prob import datasets

        kernels, classes = datasets.make_fusion_problem(30, 2, seed=0)
        own = run_study(
            kernels,
            classes,
            methods=["mkmc", "zero"],
            ratios=[0.0, 0.5],
            repetitions=3,
            train_sizes=[15],
            strength=1.0,
            tol=1.0,
            seed=0,
        )
        for name in ("roc", "relative_error"):
            np.testing.assert_array_equal(saved[name].sel(completion=["mkmc", "zero"]), own[name])
    cells = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "cells").iterdir()}
    main([*made, *OPTIONS, *CHOSEN])  # nothing is computed again
    assert cells == {p: p.stat().st_mtime_ns for p in (tmp_path / "out" / "cells").iterdir()}


def test_one_repetition_of_one_method_is_written_too(tmp_path, capsys):
    made = ["fusion", "--objects", "30", "--kernels", "2", "--output", str(tmp_path / "out")]
    main([*made, "--methods", "zero", "--repetitions", "1", "--ratios", "0", "0.1"])
    assert "The methods are not compared: study: it has one repetition" in capsys.readouterr().out
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names >= {"study.nc", "table.csv", "report.md", "roc_by_matrix.pdf", "roc_by_ratio.png"}


def test_errors_are_one_line_and_the_help_shows_defaults(tmp_path, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["yeast", str(tmp_path), "--output", str(tmp_path / "out")])
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {tmp_path}")
    assert "'Pfam'" in line
    with pytest.raises(SystemExit) as caught:
        main(["fusion", "--objects", "20", "--strength", "0", "--output", str(tmp_path / "out")])
    assert caught.value.code == 2
    assert capsys.readouterr().err.startswith("error: strength: 0.0 found")
    with pytest.raises(SystemExit):
        main(["digits", "--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert "(default: 0.1)" in told
    assert "same command again continues where it ended" in told


def test_what_it_cannot_do_it_says(capsys):
    for wrong in ([], ["digits"], ["digits", "--output", "x", "--methods", "best"]):
        with pytest.raises(SystemExit):
            main(wrong)
    assert "usage: python -m mkmc_prob.experiments" in capsys.readouterr().err
