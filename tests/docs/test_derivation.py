"""The code of the derivation runs, and equations and code refer to each other."""

import ast
import importlib
import inspect
import pkgutil
import re
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

import mkmc_prob

DERIVATION = Path(__file__).parents[2] / "docs" / "derivation"
PAGES = sorted(DERIVATION.glob("[0-9]*.md"))
TEXT = {page.name: page.read_text(encoding="utf-8") for page in PAGES}
INDEX = (DERIVATION / "index.md").read_text(encoding="utf-8")

EQUATION = re.compile(r"^```\{math\}\n:label: (.*?)\n.*?^```", re.M | re.S)
CELL = re.compile(r"^```\{code-cell\} ipython3\n(.*?)^```", re.M | re.S)
CODE = re.compile(r"\{py:\w+\}`.*? <(mkmc_prob\..*?)>`")
IN_DOCSTRING = re.compile(r":eq:`(.*?)`")

LABELS = {name: EQUATION.findall(text) for name, text in TEXT.items()}
EVERY_LABEL = [label for labels in LABELS.values() for label in labels]
#: For each equation, the code named in its row of the index.
ROWS = {
    label: set(CODE.findall(row))
    for label, row in re.findall(r"^\| \{eq\}`(.*?)` (.*)$", INDEX, re.M)
}


@pytest.fixture
def beside_the_pages(monkeypatch):
    monkeypatch.syspath_prepend(DERIVATION)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield
    plt.close("all")
    sys.modules.pop("worked_example", None)


@pytest.mark.parametrize("name", TEXT)
def test_the_cells_of_a_page_run_in_order(name, beside_the_pages):
    cells = CELL.findall(TEXT[name])
    assert cells
    namespace = {}
    for number, cell in enumerate(cells):
        exec(compile(cell, f"{name}, cell {number}", "exec"), namespace)


@pytest.mark.parametrize("name", TEXT)
def test_every_cell_checks_or_shows_something(name):
    for cell in CELL.findall(TEXT[name]):
        tree = ast.parse(cell)
        checks = any(isinstance(node, ast.Assert) for node in ast.walk(tree))
        assert checks or isinstance(tree.body[-1], ast.Expr), cell


@pytest.mark.parametrize("name", TEXT)
def test_every_equation_has_a_name_and_every_page_leads_to_the_code(name):
    assert TEXT[name].count("```{math}") == len(LABELS[name]) > 0
    assert all(label.startswith("eq-") for label in LABELS[name])
    assert "*In the code:*" in TEXT[name]


def test_the_index_has_every_equation_once_and_every_page():
    assert len(set(EVERY_LABEL)) == len(EVERY_LABEL)
    assert list(ROWS) == EVERY_LABEL
    assert re.findall(r"^(\d\d-.*)$", INDEX, re.M) == [page.stem for page in PAGES]
    assert re.findall(r"^### \[.*\]\((.*)\)$", INDEX, re.M) == list(TEXT)


def test_every_reference_leads_somewhere():
    for text in [*TEXT.values(), INDEX]:
        for label in re.findall(r"\{eq\}`(.*?)`", text):
            assert label in EVERY_LABEL
        for page in re.findall(r"\]\((?!https?:)([^)#:]+)", text):
            assert page.startswith("../reference/") or (DERIVATION / page).exists(), page
        for target in CODE.findall(text):
            assert inspect.getdoc(found(target)), target


def found(target):
    """Return the object with a dotted name."""
    parts = target.split(".")
    for i in range(len(parts), 0, -1):
        try:
            item = importlib.import_module(".".join(parts[:i]))
        except ModuleNotFoundError:
            continue
        for part in parts[i:]:
            item = getattr(item, part)
        return item
    raise AssertionError(target)


def documented():
    """Yield every class, function, method and property of the package."""
    for module in pkgutil.walk_packages(mkmc_prob.__path__, "mkmc_prob."):
        for item in vars(importlib.import_module(module.name)).values():
            if getattr(item, "__module__", None) != module.name:
                continue
            yield item
            if inspect.isclass(item):
                members = (getattr(item, name) for name in vars(item) if not name.startswith("_"))
                yield from (member for member in members if inspect.getdoc(member))


def test_docstrings_and_index_name_each_other():
    named = 0
    for item in documented():
        for label in IN_DOCSTRING.findall(getattr(item, "__doc__", None) or ""):
            named += 1
            assert label in ROWS, f"{item}: {label}"
            assert any(found(target) == item for target in ROWS[label]), f"{item}: {label}"
    sources = Path(mkmc_prob.__file__).parent.rglob("*.py")
    written = sum(len(IN_DOCSTRING.findall(path.read_text(encoding="utf-8"))) for path in sources)
    assert named == written > 40


@pytest.mark.parametrize("name", ["e_step", "m_step", "q_function", "kl_objective", "entropy"])
def test_the_steps_of_em_name_their_equations(name):
    assert IN_DOCSTRING.findall(getattr(mkmc_prob.EM, name).__doc__)
