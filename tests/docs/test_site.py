"""The parts of the documentation are consistent. `make docs` tests whether it builds."""

import importlib
import inspect
import re
import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
MODULES = [
    f"mkmc_prob{module}"
    for module in ("", ".datasets", ".diagnostics", ".experiments", ".io", ".kernels", ".plots")
]
MADE = ("_build", "gallery", "generated", "backreferences")  # created in docs/ by the build


def public_names():
    for name in MODULES:
        module = importlib.import_module(name)
        for item in module.__all__:
            if not inspect.ismodule(getattr(module, item)):
                yield f"{name}.{item}"


def entries():
    """Yield the full names of all entries of the reference."""
    for page in (DOCS / "reference").glob("*.md"):
        for block in re.findall(r"^```\{eval-rst\}\n(.*?)^```", page.read_text(), re.S | re.M):
            module = re.search(r"currentmodule:: (\S+)", block)[1]
            names = re.findall(r"^   ([\w.]*\w)$|^\.\. (?:auto\w+|py:data):: (\S+)$", block, re.M)
            yield from (f"{module}.{listed or directive}" for listed, directive in names)


def pages():
    found = {path.relative_to(DOCS) for path in DOCS.rglob("*.md")}
    return {str(page.with_suffix("")) for page in found if not set(page.parts[:-1]) & {*MADE}}


def reached(page):
    """Return the pages that can be reached from `page` through tables of contents."""
    there = {page}
    text = (DOCS / f"{page}.md").read_text()
    for table in re.findall(r"^```\{toctree\}\n(.*?)^```", text, re.S | re.M):
        for line in table.splitlines():
            if line and not line.startswith(":") and not line.startswith("gallery/"):
                there |= reached(str(Path(page).parent / line))
    return there


def test_every_public_name_is_in_the_reference_once():
    listed = list(entries())
    assert sorted(set(public_names()) - set(listed)) == []
    assert len(listed) == len(set(listed))


def test_the_reference_lists_nothing_else():
    inside = (DOCS / "reference" / "inside.md").read_text()
    beyond = set(entries()) - set(public_names())
    beyond = {name for name in beyond if name.removeprefix("mkmc_prob.") not in inside}
    assert beyond == {
        "mkmc_prob.em.geodesic.Geodesic",
        "mkmc_prob.em.squarem.Squarem",
        "mkmc_prob.em.state.EMSteps",
    }


def test_what_the_reference_lists_exists():
    for name in entries():
        parts = name.split(".")
        found = next(
            module
            for i in range(len(parts), 0, -1)
            if (module := sys.modules.get(".".join(parts[:i]))) is not None
        )
        for part in parts[found.__name__.count(".") + 1 :]:
            found = getattr(found, part)


def test_the_index_of_the_reference_names_them_all():
    index = (DOCS / "reference" / "index.md").read_text()
    errors = {"KernelError", "LabelError", "IndefiniteKernelError"}
    errors |= {"ConvergenceWarning", "IdentifiabilityWarning"}  # it says "their subclasses"
    names = {name.rpartition(".")[2] for name in public_names()} - errors
    assert sorted(name for name in names if f"`{name}`" not in index) == []


def test_every_page_is_in_a_table_of_contents():
    assert reached("index") == pages()


def test_the_first_page_shows_the_readmes_first_code():
    """The block itself is run by test_readme."""
    blocks = [
        re.search(r"^```python\n(.*?)^```", path.read_text(), re.S | re.M)[1]
        for path in (ROOT / "README.md", DOCS / "index.md")
    ]
    assert blocks[0] == blocks[1]


def test_every_script_of_the_gallery_has_a_title():
    scripts = sorted((ROOT / "examples" / "gallery").glob("*.py"))
    assert len(scripts) >= 6
    for script in scripts:
        assert re.match(r'"""\n(.+)\n=+\n', script.read_text()), script.name
        compile(script.read_text(), script.name, "exec")


def test_the_configuration_is_read():
    conf = runpy.run_path(str(DOCS / "conf.py"))
    assert conf["nitpicky"]
    assert "sphinx.ext.intersphinx" not in conf["extensions"]
    assert conf["digest"]() == conf["DIGEST"]
