"""Every public docstring has an example, and every example runs with its own imports."""

import doctest
import importlib
import inspect
import pkgutil

import matplotlib.pyplot as plt
import pytest

import mkmc_prob

MODULES = [mkmc_prob] + [
    importlib.import_module(module.name)
    for module in pkgutil.walk_packages(mkmc_prob.__path__, "mkmc_prob.")
]
PUBLIC = [
    (f"{module.__name__}.{name}", item)
    for module in (mkmc_prob, mkmc_prob.io, mkmc_prob.datasets, mkmc_prob.plots)
    for name, item in vars(module).items()
    if (inspect.isfunction(item) or inspect.isclass(item))
    and (name in getattr(module, "__all__", ()) or item.__module__ == module.__name__)
    and not name.startswith("_")
    and not (inspect.isclass(item) and issubclass(item, Exception))
]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_the_examples_run(module, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    for case in doctest.DocTestFinder().find(module, globs={}):
        runner.run(case)
    plt.close("all")
    assert runner.summarize(verbose=False).failed == 0


@pytest.mark.parametrize(("name", "item"), PUBLIC, ids=[name for name, _ in PUBLIC])
def test_there_is_an_example(name, item):
    assert ">>> " in (inspect.getdoc(item) or ""), name
