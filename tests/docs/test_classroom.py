"""The classroom's pages run as they stand, and their JavaScript computes what the package does."""

import ast
import json
import re
import shutil
import subprocess
import sys
from functools import cache
from io import BytesIO
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image

from mkmc_prob import EM, GaussianModel, WishartPrior, stack_kernels

DOCS = Path(__file__).parents[2] / "docs"
CLASSROOM, SCRIPT = DOCS / "classroom", DOCS / "_static" / "classroom.js"
TEXT = {page.name: page.read_text(encoding="utf-8") for page in sorted(CLASSROOM.glob("*.md"))}
CELL = re.compile(r"^```\{code-cell\} ipython3\n(?:(?::[^\n]*\n)+\n)?(.*?)^```", re.M | re.S)
EXECUTED = [name for name, text in TEXT.items() if CELL.search(text)]
PLAY = re.search(r"^```\{raw\} html\n(.*?)^```", TEXT["play.md"], re.M | re.S)[1]
JAVASCRIPT = SCRIPT.read_text(encoding="utf-8")


@pytest.fixture(scope="module", autouse=True)
def beside_the_pages():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(CLASSROOM)
        patch.setattr(sys, "dont_write_bytecode", True)
        yield
    sys.modules.pop("two_objects", None)


@cache
def executed(name):
    """Run a page's cells in order, once; return what they leave."""
    namespace = {}
    for number, cell in enumerate(CELL.findall(TEXT[name])):
        exec(compile(cell, f"{name}, cell {number}", "exec"), namespace)
    plt.close("all")
    return namespace


@pytest.mark.parametrize("name", EXECUTED)
def test_the_cells_of_a_page_run_in_order(name):
    assert executed(name)


@pytest.mark.parametrize("name", EXECUTED)
def test_every_cell_checks_or_shows_something(name):
    for cell in CELL.findall(TEXT[name]):
        tree = ast.parse(cell)
        checks = any(isinstance(node, ast.Assert) for node in ast.walk(tree))
        imports = all(isinstance(node, ast.Import | ast.ImportFrom) for node in tree.body)
        assert checks or imports or isinstance(tree.body[-1], ast.Expr), cell


def test_every_exercise_has_a_solution_that_checks_itself():
    parts = re.split(r"^## ", TEXT["exercises.md"], flags=re.M)[1:]
    assert [int(part.split(".")[0]) for part in parts] == list(range(1, 11))
    for number, part in enumerate(parts, start=1):
        (solution,) = re.findall(r"^<details (.*?)^</details>$", part, re.M | re.S)
        assert f"<summary>Solution {number}</summary>" in solution
        (cell,) = CELL.findall(solution)
        assert "assert " in cell


def test_the_animation_is_small_and_inside_the_page():
    animation = executed("animation.md")["picture"]
    picture = Image.open(BytesIO(animation.gif))
    assert picture.n_frames == 2 * executed("animation.md")["steps"]
    assert len(animation.gif) < 500_000
    assert 'src="data:image/gif;base64,' in animation._repr_html_()


def test_the_problem_is_the_one_that_the_pages_state():
    problem = executed("index.md")["em"]
    assert problem.prior.strength == 0.5
    assert problem.degrees_of_freedom.tolist() == [1, 4]
    shown = problem.stack.values
    assert np.array_equal(shown[0], [[2, 1], [1, 2]])
    assert np.array_equal(shown[1], [[4, np.nan], [np.nan, np.nan]], equal_nan=True)


# --- the JavaScript ---


def test_nothing_is_fetched_and_the_script_is_short():
    style = (DOCS / "_static" / "classroom.css").read_text(encoding="utf-8")
    for text in (PLAY, JAVASCRIPT, style):
        assert not re.search(r"https?:|fetch\(|import |XMLHttp|@import|url\(", text)
    assert JAVASCRIPT.count("\n") < 300


def test_page_and_script_name_the_same_parts():
    named = set(re.findall(r'(?:part|number|sheet)\("([a-z-]+)"', JAVASCRIPT))
    values = {"correlation", "variance", "strength", "knob", "step"}
    assert all(f"{name}:" in JAVASCRIPT.replace(" ", "") for name in values)
    assert named | {f"{name}-value" for name in values} == {*re.findall('data-part="(.*?)"', PLAY)}
    assert len(re.findall("<input ", PLAY)) == len(re.findall("<label>", PLAY)) - 1  # one select


def random_case(rng):
    """Return a problem of the JavaScript's, a start, and a model to take the bound at."""
    kernels = []
    for sees in rng.choice(["ab", "a", "b"], size=rng.integers(1, 4)).tolist():
        root = rng.standard_normal((2, 3))
        (aa, ab), (_, bb) = root @ root.T * 10 ** rng.uniform(-1, 1)
        q = {"ab": [aa, ab, bb], "a": [aa, 0, 0], "b": [0, 0, bb]}[sees]
        kernels.append({"sees": sees, "nu": 10 ** rng.uniform(-1, 1.5), "q": q})
    models = []
    for correlation in rng.uniform(-0.95, 0.95, 2):
        aa, bb = 10 ** rng.uniform(-1, 1, 2)
        models.append([aa, correlation * np.sqrt(aa * bb), bb])
    problem = {"strength": 10 ** rng.uniform(-2, 1.5), "kernels": kernels}
    return {"problem": problem, "start": models[0], "other": models[1]}


any_scale = pytest.mark.filterwarnings("ignore:the kernels' scales differ")
STEPS = 20
CASES = [random_case(np.random.default_rng(seed)) for seed in range(40)]
COMPUTE = f"""
const answer = (c) => cases.map(({{ problem, start, other }}) => {{
  const models = c.climb(problem, start, {STEPS});
  return {{
    models,
    initial: c.initialModel(problem),
    levels: models.map((m) => c.logLikelihood(problem, m)),
    bounds: models.map((m) => c.boundAt(problem, m)(other)),
    touches: models.map((m) => c.boundAt(problem, m)(m)),
  }};
}});
"""


def em_of(problem):
    kernels = {}
    for number, kernel in enumerate(problem["kernels"]):
        aa, ab, bb = kernel["q"]
        values = np.array([[aa, ab], [ab, bb]], dtype=float)
        seen = np.array([o in kernel["sees"] for o in "ab"])
        kernels[number] = np.where(seen[:, None] & seen, values, np.nan)
    nu = [kernel["nu"] for kernel in problem["kernels"]]
    prior = WishartPrior(problem["strength"])
    return EM(stack_kernels(kernels, objects=["a", "b"]), prior, degrees_of_freedom=nu)


def model_of(numbers):
    aa, ab, bb = numbers
    return GaussianModel(np.array([[aa, ab], [ab, bb]]), objects=["a", "b"])


def numbers_of(model):
    return model.matrix[[0, 0, 1], [0, 1, 1]]


def by_the_package(case):
    em, model, other = em_of(case["problem"]), model_of(case["start"]), model_of(case["other"])
    rows = {"models": [], "levels": [], "bounds": [], "touches": []}
    for _ in range(STEPS + 1):
        statistics = em.e_step(model)
        entropy = em.entropy(statistics)
        rows["models"].append(numbers_of(model))
        rows["levels"].append(em.penalized_log_likelihood(model, statistics))
        rows["bounds"].append(em.q_function(other, statistics) + entropy)
        rows["touches"].append(em.q_function(model, statistics) + entropy)
        model = em.m_step(statistics)
    return rows | {"initial": numbers_of(em.initial_model())}


def assert_same(answers):
    assert len(answers) == len(CASES)
    for case, answer in zip(CASES, answers, strict=True):
        for name, expected in by_the_package(case).items():
            np.testing.assert_allclose(answer[name], expected, rtol=1e-10, atol=1e-10)
        levels, touches = np.array(answer["levels"]), np.array(answer["touches"])
        np.testing.assert_allclose(touches, levels, rtol=1e-10, atol=1e-10)
        assert (np.diff(levels) >= -1e-10 * np.abs(levels[1:])).all()


@any_scale
def test_in_node_it_computes_what_the_package_does(tmp_path):
    node = shutil.which("node") or shutil.which("nodejs")
    if node is None:
        pytest.skip("there is no node here")
    program = tmp_path / "compare.cjs"
    program.write_text(
        f"const c = require({json.dumps(str(SCRIPT))}), cases = {json.dumps(CASES)};\n{COMPUTE}"
        "const shared = { strength: 0.5, kernels: c.scenes.shared.kernels(4) };\n"
        "console.log(JSON.stringify({ answers: answer(c), shared }));"
    )
    done = subprocess.run([node, program], capture_output=True, text=True, timeout=60, check=True)
    found = json.loads(done.stdout)
    assert_same(found["answers"])
    ours, pages = em_of(found["shared"]), executed("index.md")["em"]
    np.testing.assert_array_equal(ours.stack.values, pages.stack.values)
    assert ours.degrees_of_freedom.tolist() == pages.degrees_of_freedom.tolist()


#: What is set on the page, one after the other: a control's name, its value.
TURNS = [
    {},
    {"correlation": 0.5, "variance": 1.0, "step": 7},
    {"strength": 1.0},
    {"strength": -2, "knob": 5},
    {"scene": "apart"},
    {"correlation": -0.05, "strength": -0.3, "step": 59},
    {"paper": "click"},
]
DRIVE = """
const page = document.getElementById("classroom"), seen = [];
const part = (name) => page.querySelector(`[data-part="${name}"]`);
const texts = (row) => [...row.cells].map((cell) => cell.textContent);
const rows = () => [...part("rows").rows].map(texts);
for (const turn of turns) {
  for (const [name, value] of Object.entries(turn)) {
    if (value === "click") { part(name).click(); continue; }
    part(name).value = value;
    part(name).dispatchEvent(new Event("input", { bubbles: true }));
  }
  const value = (name) => Number(part(name).value);
  const painted = ["map", "section"].map((name) => part(name).toDataURL().length);
  const set = { scene: part("scene").value };
  for (const name of ["correlation", "variance", "strength", "knob"]) set[name] = value(name);
  seen.push({ set, rows: rows(), painted, summary: part("summary").textContent });
}
document.getElementById("out").textContent = JSON.stringify({ answers: answer(classroom), seen });
"""


def in_chromium(folder):
    names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"]
    browser = next(filter(None, map(shutil.which, names)), None)
    if browser is None:
        pytest.skip("there is no Chromium here")
    body = PLAY.replace("../_static", SCRIPT.parent.as_uri())
    given = f"const cases = {json.dumps(CASES)}, turns = {json.dumps(TURNS)};"
    page = folder / "play.html"
    page.write_text(
        f'<!doctype html><meta charset="utf-8"><body>{body}<pre id="out">nothing</pre>'
        f"<script>{given}{COMPUTE}{DRIVE}</script>",
        encoding="utf-8",
    )
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
    options += [f"--user-data-dir={folder / 'profile'}", "--allow-file-access-from-files"]
    command = [browser, *options, "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    found = re.search('<pre id="out">(.*?)</pre>', done.stdout, re.S)
    if found is None:
        pytest.skip(f"Chromium opens no page here: {done.stderr[-200:]}")
    assert found[1] != "nothing", done.stderr[-2000:]
    return json.loads(found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))


def number(words):
    return float(words.replace("−", "-"))


@any_scale
def test_in_chromium_the_page_shows_what_the_package_computes(tmp_path):
    found = in_chromium(tmp_path)
    assert_same(found["answers"])
    assert len(found["seen"]) == len(TURNS)
    for shown in found["seen"]:
        turn, rows = shown["set"], shown["rows"]
        strength, variance = 10 ** turn["strength"], turn["variance"]
        if turn["scene"] == "shared":
            kernels = [("ab", 1, [2, 1, 2]), ("a", 2 ** turn["knob"], [4, 0, 0])]
        else:
            kernels = [("a", 1, [turn["knob"], 0, 0]), ("b", 1, [0, 0, turn["knob"]])]
        named = [dict(zip(("sees", "nu", "q"), kernel, strict=True)) for kernel in kernels]
        em = em_of({"strength": strength, "kernels": named})
        side = em.initial_model().matrix[0, 0] if turn["scene"] == "shared" else variance
        model = model_of([side, turn["correlation"] * np.sqrt(side * variance), variance])
        assert len(rows) == 61
        for i, (name, *values, gain) in enumerate(rows):
            level = em.penalized_log_likelihood(model)
            assert int(name) == i
            expected = [*model.matrix[1], level]
            np.testing.assert_allclose([number(v) for v in values], expected, atol=6e-4)
            assert abs(number(values[2]) - level) < 1e-6
            assert not gain or number(gain) > -1e-12
            model = em.m_step(em.e_step(model))
        assert "no step fell" in shown["summary"]
        assert min(shown["painted"]) > 1000  # an empty canvas is shorter
    assert found["seen"][0]["rows"] != found["seen"][1]["rows"]
    assert "M_ab 0.000" in found["seen"][-1]["summary"]  # the saddle
    assert "M_ab −2.8" in found["seen"][-2]["summary"]  # one of the two maxima
