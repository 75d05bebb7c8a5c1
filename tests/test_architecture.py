"""Imports go one way: a folder imports only from those named before it, and no file in a circle.

Imports inside functions and under ``TYPE_CHECKING`` count, too.
"""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import mkmc_prob

PACKAGE = Path(mkmc_prob.__file__).parent
#: The folders of the package, from the bottom up.
LAYERS = (
    "errors",
    "utils",
    "linalg",
    "kernels",
    "stacks",
    "io",
    "datasets",
    "evaluation",
    "model",
    "em",
    "diagnostics",
    "posterior",
    "plots",
    "fitting",
    "experiments",
)
MODULES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
}


def imports(module):
    """Return the modules of the package that `module` imports, wherever in the file it does."""
    path = MODULES[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parent = package.split(".")
            parent = parent[: len(parent) - node.level + 1] if node.level else []
            base = ".".join([*parent, *filter(None, [node.module])])
            found |= {
                f"{base}.{alias.name}" if f"{base}.{alias.name}" in MODULES else base
                for alias in node.names
            }
    return {name for name in found if name.partition(".")[0] == "mkmc_prob"}


def layer(module):
    """Return the folder of a module; None for the package itself, which is above all."""
    return module.split(".")[1] if "." in module else None


def test_only_what_belongs_there_is_at_the_root():
    found = {path.name for path in PACKAGE.iterdir() if path.name != "__pycache__"}
    assert found == {"__init__.py", "errors.py", "py.typed", *LAYERS} - {"errors"}


@pytest.mark.parametrize("module", sorted(MODULES))
def test_a_module_imports_only_from_its_own_folder_and_those_below(module):
    own = layer(module)
    for other in sorted(imports(module)):
        assert other in MODULES, f"{module} imports {other}, which is no module"
        if own is not None:
            assert layer(other) in LAYERS[: LAYERS.index(own) + 1], f"{module} imports {other}"


def test_no_file_is_in_a_circle():
    try:
        TopologicalSorter({module: imports(module) for module in MODULES}).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))
