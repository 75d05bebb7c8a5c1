"""The code of the README and of the examples runs as printed."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from mkmc_prob import relative_error

ROOT = Path(__file__).parents[2]


def blocks_of(page):
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.S | re.M)


BLOCKS = blocks_of("README.md")


def write_patients(folder):
    """Write the files that the section on your own kernels reads: patients in different units."""
    rng = np.random.default_rng(0)
    patients = [f"p{i:02d}" for i in range(1, 41)]
    states = rng.standard_normal((40, 3))

    def table(features, shown):
        values = states @ rng.standard_normal((3, features)) + rng.standard_normal((40, features))
        return pd.DataFrame(values, patients).iloc[shown]

    (100.0 + 20.0 * table(50, slice(30))).to_csv(folder / "expression.csv")
    table(12, slice(10, 40)).to_csv(folder / "proteins.csv")
    answers = table(8, slice(0, 40, 2))
    (answers @ answers.T).to_csv(folder / "questionnaire.csv")


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_the_readmes_code_runs(number, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_patients(tmp_path)
    exec(compile(BLOCKS[number], f"README block {number}", "exec"), {})
    plt.close("all")
    printed = capsys.readouterr().out
    if number == 0:
        assert "on held-out rows" in printed
        assert float(printed.splitlines()[-1]) < 0.1736  # the paper's model at strength 0.1
    for comment in re.findall(r"print\(.*#((?: -?\d+\.\d+,?)+)$", BLOCKS[number], re.M):
        assert printed.split()[: len(comment.split())] == comment.replace(",", "").split()


def test_the_code_on_reading_the_diagnostics_runs(capsys):
    whole = "\n".join(blocks_of("docs/diagnostics.md"))  # each block continues the previous one
    found = {}
    exec(compile(whole, "docs/diagnostics.md", "exec"), found)
    assert "1 distinct points, 1 known to be maxima" in capsys.readouterr().out
    error = relative_error(found["truth"], found["result"].completed, found["stack"]).mean().item()
    rate, text = found["information"]["rate"].item(), (ROOT / "docs/diagnostics.md").read_text()
    assert f"completed kernels is {error:.3f}" in text
    assert f"is {rate:.3f}: in one" in text
    in_kernel = found["table"].set_index(["kernel", "object"])["rank_in_kernel"]["rbf_1"]
    assert in_kernel[["object_08", "object_01"]].tolist() == [2, 7]


def test_the_first_block_is_ten_lines():
    assert 8 <= len([line for line in BLOCKS[0].splitlines() if line]) <= 12


def test_every_link_within_the_project_leads_somewhere():
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_demo_prints_a_table_and_names_its_files(tmp_path):
    script = ROOT / "examples" / "complete_digits.py"
    done = subprocess.run(
        [sys.executable, script, "--n-per-class", "3", "--output", tmp_path / "out"],
        capture_output=True,
        text=True,
        check=True,
    )
    for word in ("complete", "paper's model, strength 0.1", "KNN imputation", "held-out rows"):
        assert word in done.stdout
    assert "log-likelihood" in done.stderr  # the progress bar
    for name in ("trace.png", "kernels.png", "result.nc"):
        assert f"{tmp_path / 'out' / name}" in done.stdout
        assert (tmp_path / "out" / name).stat().st_size > 1000


def test_the_overview_picture_is_drawn(tmp_path):
    module = runpy.run_path(str(ROOT / "examples" / "overview_picture.py"))
    module["main"](tmp_path / "overview.png", n_per_class=3)
    plt.close("all")
    assert (tmp_path / "overview.png").stat().st_size > 10_000
