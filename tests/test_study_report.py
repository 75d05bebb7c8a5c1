"""The study's report and its command line: what is written says what the dataset says."""

import re

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from mkmc_prob import LabelError, MKMCError
from mkmc_prob.experiments import PAPER_SCORES, run_study, study_report, write_study
from mkmc_prob.experiments.__main__ import main


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


def test_a_ratio_that_is_not_there_is_refused(study, tmp_path):
    with pytest.raises(LabelError, match="ratio"):
        write_study(study, tmp_path / "out", ratio=0.4)
    assert not (tmp_path / "out").exists()
    with pytest.raises(MKMCError):
        study_report(study.drop_vars("roc"))


OPTIONS = ["--repetitions", "3", "--ratios", "0", "0.5", "--strength", "1", "--tol", "1"]
CHOSEN = ["--strengths", "1", "10", "--folds", "2", "--train-sizes", "15"]


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


def test_the_yeast_data_are_asked_for_by_name(tmp_path):
    with pytest.raises(FileNotFoundError, match="Pfam"):
        main(["yeast", str(tmp_path), "--output", str(tmp_path / "out")])


def test_what_it_cannot_do_it_says(capsys):
    for wrong in ([], ["digits"], ["digits", "--output", "x", "--methods", "best"]):
        with pytest.raises(SystemExit):
            main(wrong)
    assert "usage: python -m mkmc_prob.experiments" in capsys.readouterr().err
