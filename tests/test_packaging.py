"""What the project says of itself agrees with what is there: versions, imports, layout, data."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib import metadata, resources
from pathlib import Path

import mkmc_prob

ROOT = Path(__file__).parents[1]
AGREED_LAYOUT = {
    "pyproject.toml",
    "mkmc_prob",
    "tests",
    "docs",
    "examples",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "CITATION.cff",
    "Makefile",
}


def imported_modules() -> set[str]:
    """Return the names, up to the first dot, that the package's own files import."""
    names = set()
    for file in (ROOT / "mkmc_prob").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names.add(str(node.module).partition(".")[0])
    return names


def canonical(name: str) -> str:
    """Return a distribution's name in the one spelling that package indexes compare."""
    return re.sub(r"[-_.]+", "-", name).lower()


def tracked_files() -> list[str]:
    """Return what git tracks; nothing where this is not a clone (an unpacked sdist)."""
    try:
        run = subprocess.run(
            ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return []
    return run.stdout.splitlines()


def test_changelog_begins_with_this_version():
    newest = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert newest is not None
    assert newest[1] == mkmc_prob.__version__


def test_citation_names_this_version_and_the_paper():
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert f"\nversion: {mkmc_prob.__version__}\n" in citation
    assert "Mutual Kernel Matrix Completion" in citation


def test_package_carries_its_types_and_its_data():
    package = resources.files("mkmc_prob")
    assert package.joinpath("py.typed").is_file()
    data = {file.name for file in package.joinpath("datasets", "mfeat").iterdir()}
    sources = ("fac", "fou", "kar", "mor", "pix", "zer")
    assert data >= {f"mfeat-{source}.csv.gz" for source in sources} | {"LICENSE.md"}


def test_every_import_is_a_declared_dependency():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    declared = {canonical(re.split(r"[^\w.-]", need)[0]) for need in project["dependencies"]}
    optional = project["optional-dependencies"]
    extras = [*optional["parallel"], *optional["experiments"], *optional["large"]]
    extras += optional["cluster"]
    declared |= {canonical(re.split(r"[^\w.-]", need)[0]) for need in extras}
    declared.add("pandas")  # it comes with xarray, which cannot do without it
    foreign = imported_modules() - set(sys.stdlib_module_names) - {"mkmc_prob"}
    providers = metadata.packages_distributions()
    undeclared = {n for n in foreign if not declared & set(map(canonical, providers.get(n, ())))}
    assert undeclared == set()


def test_top_level_holds_only_the_agreed_layout():
    top = {file.partition("/")[0] for file in tracked_files()}
    assert {name for name in top if not name.startswith(".")} <= AGREED_LAYOUT
