"""The guides run as they stand and show what they say; the page on the code names its files."""

import ast
import re
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

import mkmc_prob

ROOT = Path(__file__).parent.parent
PAGES = ("start", "bring-your-own", "after", "choosing", "developing")
TEXT = {name: (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in PAGES}
#: Cells, whose outputs the site shows, and plain blocks: both run.
CODE = re.compile(r"^```(?:\{code-cell\} ipython3|python)\n(.*?)^```", re.M | re.S)
CELL = re.compile(r"^```\{code-cell\} ipython3\n(.*?)^```", re.M | re.S)
PACKAGE = Path(mkmc_prob.__file__).parent


def start_says(found):
    row = found["row"]
    assert not mkmc_prob.visible_objects(found["incomplete"]).sel(kernel="fac", object="d3_001")
    assert str(row.drop_sel(object_bis="d3_001").to_series().idxmax()).startswith("d3_")


def after_says(found):
    accuracy, answer = found["table"], found["answer"]
    for kernel in ("fac", "fou", "zer"):
        assert accuracy["MKMC"][kernel] > accuracy["mean imputation"][kernel] + 0.1
        assert accuracy["MKMC"][kernel] > accuracy["zero imputation"][kernel] + 0.1
    assert ((answer["lower"] < answer["truth"]) & (answer["truth"] < answer["upper"])).all()


def choosing_says(found):
    by_ratio, by_shared, by_odds = found["by_ratio"], found["by_shared"], found["by_odds"]
    for ratio in (0.1, 0.3, 0.5):
        assert by_ratio[ratio]["MKMC"] < by_ratio[ratio]["mean imputation"]
    assert by_ratio[0.8]["MKMC"] > by_ratio[0.8]["mean imputation"]
    assert by_shared[0]["MKMC"] > 4 * by_shared[0]["mean imputation"]
    assert by_odds[100][0] > by_odds[1][0]  # the held-out score
    assert by_odds[100][2] > 1.1 * by_odds[1][2]  # the error
    assert found["edge"].best == 100.0


SAYS = {"start": start_says, "after": after_says, "choosing": choosing_says}


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


def rooms():
    """Return the files that the page on the code names, by room."""
    section = TEXT["developing"].partition("## The rooms\n")[2].partition("\n## ")[0]
    parts = re.split(r"^\*(\w[\w &]*)\*$", section, flags=re.M)[1:]
    named = [re.findall(r"^\| `(.*?\.py)` \| \S", part, re.M) for part in parts[1::2]]
    return dict(zip(parts[::2], named, strict=True))


def test_every_file_of_the_package_has_one_row():
    named = sorted(file for room in rooms().values() for file in room)
    assert named == sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))


def test_a_file_imports_from_its_room_and_those_before():
    floor = {file: i for i, room in enumerate(rooms().values()) for file in room}
    for file, own in floor.items():
        if "/" in file or file == "__init__.py":
            continue
        for node in ast.parse((PACKAGE / file).read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ImportFrom) and node.level == 1:
                names = [node.module] if node.module else [alias.name for alias in node.names]
                for name in names:
                    assert floor[f"{name}.py"] <= own, f"{file} imports {name}"
