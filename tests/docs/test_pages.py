"""The code of the guides runs and supports the text; names of files and functions exist."""

import re
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from test_architecture import LAYERS

import mkmc_prob

ROOT = Path(__file__).parents[2]
PAGES = ("start", "bring-your-own", "model", "choosing", "after", "posterior", "study")
PAGES += ("missing-not-at-random", "structures", "large", "cluster", "developing", "uncertainty")
TEXT = {name: (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in PAGES}
#: Cells, whose outputs the site shows, and plain blocks. Both are run.
CODE = re.compile(r"^```(?:\{code-cell\} ipython3|python)\n(.*?)^```", re.M | re.S)
CELL = re.compile(r"^```\{code-cell\} ipython3\n(.*?)^```", re.M | re.S)
PACKAGE = Path(mkmc_prob.__file__).parent


def start_says(found):
    row = found["row"]
    assert not mkmc_prob.visible_objects(found["incomplete"]).sel(kernel="fac", object="d3_001")
    assert str(row.drop_sel(object_bis="d3_001").to_series().idxmax()).startswith("d3_")


def bring_your_own_says(found):
    for table in (found["questionnaire"], found["scaled"], found["diffusion"]):
        assert np.linalg.eigvalsh(table)[0] > -1e-12
    assert found["adjacency"].loc["p02", "p03"] == found["adjacency"].loc["p03", "p02"] == 0.5
    assert found["adjacency"].loc["p07"].sum() == 0.0  # covered, but without a contact
    for errors in (found["compared"]["as they are"], found["compared"]["centered, normalized"]):
        assert (errors["complete"] < errors[["mean", "KNN"]].min(axis=1)).all()


def structures_says(found):
    assert not {"structure", "prior"} & set(found["selection"].best)
    assert found["choice"].best["prior"] == mkmc_prob.PPCA(3)
    errors = found["comparison_of_pairs"][["seen", "never seen"]]
    assert (errors.idxmin() == "full, prior PPCA(3), strength 3").all()


def after_says(found):
    accuracy, answer = found["table"], found["answer"]
    for kernel in ("fac", "fou", "zer"):
        assert accuracy["complete"][kernel] > accuracy["mean imputation"][kernel] + 0.1
        assert accuracy["complete"][kernel] > accuracy["KNN imputation"][kernel] + 0.05
    assert ((answer["lower"] < answer["truth"]) & (answer["truth"] < answer["upper"])).all()


def choosing_says(found):
    by_ratio, by_shared, by_odds = found["by_ratio"], found["by_shared"], found["by_odds"]
    for errors in by_ratio.values():
        assert errors["complete"] == min(errors.values())
    assert by_ratio[0.8]["complete"] > 0.9 * by_ratio[0.8]["mean imputation"]
    assert by_shared[10]["mean sharing"] > 0.5 > 0.0 == by_shared[4]["mean sharing"]
    assert by_odds[100]["held-out rows"] < 1.02 * by_odds[1]["held-out rows"]
    assert by_odds[100]["missing rows"] > 1.2 * by_odds[1]["missing rows"]


def model_says(found):
    errors, table = found["errors"], found["result"].selection.verdict.table
    assert (errors["paper's model"] > errors["mean imputation"])[["fac, RBF", "unrelated"]].all()
    assert (errors["complete"] == np.min(list(errors.values()), axis=0)).all()
    assert table["others_help"].tolist() == [True, True, True, True, False]
    assert table.loc["unrelated", "sharing"] == 0.0
    alone = found["alone"].selection
    assert set(alone.best["sharing"].values()) == {0.0}
    assert not alone.verdict.table["others_help"].any()
    np.testing.assert_allclose(found["off"]["complete"], 1.0, atol=5e-3)


def missing_not_at_random_says(found):
    adjusted = found["test"]["p_adjusted"].to_series() < 0.05
    assert adjusted[["fac", "mor", "zer"]].all()
    assert not adjusted["fou"]
    size, ties = (found[name]["tipping_interval"].values.tolist() for name in ("size", "ties"))
    assert size == [[0.7, 0.6], [1.4, 1.6]]
    assert ties[0] == [0.5, 0.4]
    assert found["size"].attrs["verdict"].count("changes between 0.7 and 0.6") == 1
    assert found["squared_length"](found["result"]) < 0.9 < 1.02 < found["true"]
    assert 1.1 < found["found"]["tipping_point"].sel(side="above") < 1.25


def posterior_says(found):
    pair, entry = found["pair"], found["entry"]
    draws = found["draws"]
    true = found["kernels"].sel(kernel=entry[0], object=entry[1], object_bis=entry[2])
    said = re.findall(r"^print\(.*# (?:5, 50, 95 %: )?(-?\d\.\d\d.*)$", TEXT["posterior"], re.M)
    said = [[float(number) for number in re.findall(r"-?\d\.\d\d", line)] for line in said]
    shown = (
        [found["sd"].sel(kernel="fou", object="d8_000", object_bis="d8_001").item()],
        [draws.mean().item(), *draws.quantile([0.05, 0.95]).values],
        [pair["completed_mean"].item(), pair["completed_sd"].item()],
        pair["completed_quantile"].values,
        *(
            np.concatenate([found[name]["value"], found[name]["standard_error"]])
            for name in ("errors", "correlations", "within")
        ),
    )
    for numbers, values in zip(said, shown, strict=True):
        np.testing.assert_allclose(numbers, values, atol=0.01)
    assert f"The true entry is {true:.2f}." in TEXT["posterior"]
    assert found["nu"].values.tolist() == [12, 14, 8]


def uncertainty_says(found):
    assert found["covered"].between(0.85, 0.98).all()
    assert (found["result"].calibration.tested == "others").all()
    shares = [
        float(found[name].where(found["removed"]).mean()) for name in ("by_posterior", "by_fit")
    ]
    assert 0.9 < shares[1] < shares[0] < 0.99
    assert 1.0 < float(found["ratio"].median()) < 1.25


def study_says(found):
    error, table = found["error"], found["table"]["difference"].unstack("completion")
    assert (error.sel(completion="mkmc") < error.drop_sel(completion="mkmc") - 0.2).all()
    assert (table.drop(columns="mkmc") < 0).all(axis=None)
    assert found["table"]["p_paired"].min() < 0.05 < 0.1 < found["table"]["p_corrected"].min()
    assert 40 <= len(found["keep"]) < 60 == len(found["classes"])


SAYS = {
    "start": start_says,
    "bring-your-own": bring_your_own_says,
    "after": after_says,
    "choosing": choosing_says,
    "missing-not-at-random": missing_not_at_random_says,
    "model": model_says,
    "posterior": posterior_says,
    "structures": structures_says,
    "study": study_says,
    "uncertainty": uncertainty_says,
}


@pytest.mark.parametrize("name", PAGES)
def test_the_code_of_a_page_runs_in_order_and_shows_what_the_text_says(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    blocks = CODE.findall(TEXT[name])
    assert blocks
    found = {}
    for number, block in enumerate(blocks):
        exec(compile(block, f"docs/{name}.md, block {number}", "exec"), found)
    plt.close("all")
    SAYS.get(name, lambda found: None)(found)


@pytest.mark.parametrize("name", PAGES)
def test_cells_are_executed_where_the_page_says_so(name):
    assert bool(CELL.search(TEXT[name])) == TEXT[name].startswith("---\nfile_format: mystnb\n")


def test_the_page_on_development_names_files_and_functions_that_exist():
    files = re.findall(r"`((?:\w+/)+\w+\.\w+)`", TEXT["developing"])
    missing = [name for name in files if not any((top / name).exists() for top in (PACKAGE, ROOT))]
    assert missing == []
    named = re.findall(r"`(?:\w+\.)?(\w+)`\s\(`(\w+/\w+\.py)`", TEXT["developing"])
    assert len(named) > 20
    for name, file in named:
        assert re.search(rf"\b{name}\b", (PACKAGE / file).read_text(encoding="utf-8")), (name, file)


def test_the_page_on_development_lists_the_folders_in_the_order_of_imports():
    listed = re.findall(r"^\| `(\w+)(?:/|\.py)` \|", TEXT["developing"], re.M)
    assert tuple(listed) == LAYERS
