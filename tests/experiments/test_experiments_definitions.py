"""What tells one function from another: everything it consists of, in every process."""

import functools
import operator
import os
import subprocess
import sys
import textwrap
import threading
import types
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from test_experiments import problem

from mkmc_prob import MKMCError, remove_objects, zero_impute
from mkmc_prob.experiments import mkmc, mkmc_chosen, run_study
from mkmc_prob.experiments.definitions import definition, missingness_definition


class Ridge:
    """A method with a setting."""

    def __init__(self, weight, extra=None):
        self.weight, self.extra = weight, extra

    def __call__(self, stack):
        return self.weight * zero_impute(stack)

    def method(self, stack):
        return self(stack)


class Lasso(Ridge):
    def __call__(self, stack):
        return self.weight * zero_impute(stack) + 1


class Slotted:
    __slots__ = ("weight",)

    def __init__(self, weight):
        self.weight = weight

    def __call__(self, stack):
        return stack


def closure(weight):
    def method(stack):
        return weight * stack

    return method


def nested(weight):
    return lambda stack: [weight * row for row in stack]


def default(weight):
    def method(stack, weight=weight, *, more=weight):
        return weight * stack

    return method


def decorated(factor):
    def decorate(function):
        @functools.wraps(function)
        def wrapper(stack):
            return factor * function(stack)

        return wrapper

    return decorate(zero_impute)


def from_text(text):
    """A function without a source."""
    space = {"__name__": "typed"}
    exec(text, space)
    return space["method"]


def with_helper(number):
    return from_text(
        f"weight = {number}\ndef helper(x): return {number} * x\n"
        "def method(stack): return [helper(stack) for _ in 'a']"
    )


def recursive(number):
    def method(stack):
        return number if stack is None else method(None)

    return method


def array(number):
    return np.arange(5000.0) + np.where(np.arange(5000) == 2500, number, 0)


#: Makers of functions that are the same where the number is, and other ones where it is not.
MAKERS = {
    "object": Ridge,
    "object within an object": lambda number: Ridge(0, extra={"a": [Ridge(number)]}),
    "object with a function": lambda number: Ridge(0, extra=closure(number)),
    "slots": Slotted,
    "bound method": lambda number: Ridge(number).method,
    "closure": closure,
    "nested code": nested,
    "default": default,
    "decorated": decorated,
    "cached": lambda number: functools.cache(closure(number)),
    "no source": lambda number: from_text(f"def method(stack): return {number} * stack"),
    "helper": with_helper,
    "recursive": recursive,
    "getter": operator.itemgetter,
    "keyword": lambda number: partial(mkmc, tol=number),
    "position": lambda number: partial(mkmc, None, number),
    "array": lambda number: partial(mkmc, strength=array(number)),
    "array in a list": lambda number: partial(mkmc, strength=[{"a": (array(number),)}]),
    "Series": lambda number: partial(mkmc, strength=pd.Series(array(number))),
    "table": lambda number: partial(mkmc, strength=pd.DataFrame({"a": array(number), "b": "c"})),
    "index": lambda number: partial(mkmc, strength=pd.Series(0.0, index=array(number))),
    "DataArray": lambda number: partial(mkmc, strength=xr.DataArray(array(number), dims="a")),
    "coordinate": lambda number: partial(
        mkmc, strength=xr.DataArray(np.zeros(5000), dims="a", coords={"a": array(number)})
    ),
    "Dataset": lambda number: partial(mkmc, strength=xr.Dataset({"a": ("b", array(number))})),
    "set": lambda number: partial(mkmc, method={"a", "b", f"c{number}"}),
    "generator": lambda number: partial(mkmc, method=np.random.default_rng(number)),
    "objects": lambda number: partial(mkmc, method=np.array(["a", None, number], dtype=object)),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_what_a_function_consists_of_is_compared(make):
    one, other = definition(make(1)), definition(make(2))
    assert one == definition(make(1))
    assert one != other
    assert len(one) < 120  # names, not data


def test_these_are_different_too():
    one, two = lambda stack: stack + 1, lambda stack: stack + 2  # on one line
    assert definition(one) != definition(two)
    assert definition(Ridge(1)) != definition(Lasso(1))
    assert definition(Ridge(1).method) != definition(Lasso(1).method)
    assert definition(mkmc) != definition(mkmc_chosen)
    assert definition(decorated(1)) != definition(zero_impute)
    assert definition(partial(mkmc, strength=1)) != definition(partial(mkmc, strength=1.0))


def test_functions_of_installed_packages_are_their_name_and_version(monkeypatch):
    before = definition(zero_impute), definition(closure(zero_impute)), definition(np.mean)
    edited = types.FunctionType(mkmc.__code__, vars(sys.modules[mkmc.__module__]), "zero_impute")
    edited.__module__, edited.__qualname__ = zero_impute.__module__, "zero_impute"
    assert definition(edited) != before[0]  # bears the name only
    monkeypatch.setattr(sys.modules[zero_impute.__module__], "zero_impute", edited)
    assert definition(edited) == before[0]
    assert "Python" not in before[0]
    assert f"Python 3.{sys.version_info[1]}" in before[1]
    monkeypatch.setattr("mkmc_prob.__version__", "9")
    assert definition(edited) != before[0]
    assert definition(np.mean) == before[2]


def test_another_process_says_the_same(tmp_path):
    script = textwrap.dedent(
        """
        import sys
        sys.path.insert(0, sys.argv[1])
        import test_experiments_definitions as here
        for make in here.MAKERS.values():
            print(here.definition(make(1)))
        """
    )
    folder = str(Path(__file__).parent)
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    found = [
        subprocess.run(
            [sys.executable, "-c", script, folder],
            env=environment | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert found[0] == found[1]
    assert len(found[0].splitlines()) == len(MAKERS)


def test_the_papers_missingness_has_one_definition():
    same = [
        None,
        remove_objects,
        partial(remove_objects),
        partial(remove_objects, protocol="pairs", of="rows", keep_one=True, batches=None),
    ]
    assert {missingness_definition(each) for each in same} == {"built-in remove_objects"}
    for other in (
        partial(remove_objects, protocol="rounds"),
        partial(remove_objects, keep_one=1),
        decorated(1),
    ):
        assert missingness_definition(other) != "built-in remove_objects"


def test_arguments_that_are_the_defaults_make_no_difference():
    assert definition(partial(mkmc, tol=1e-3, method="geodesic")) == definition(mkmc)
    assert definition(partial(mkmc, tol=1)) != definition(mkmc)


def test_a_changed_method_is_refused_and_told_briefly(tmp_path):
    stack, classes = problem(kernels=1)
    options = {"ratios": [0.2], "repetitions": 1, "seed": 0, "folder": tmp_path}
    run_study(stack, classes, methods={"mine": Ridge(array(1)[0] + 1)}, **options)
    with pytest.raises(MKMCError, match="definition of method 'mine' is 'test_exp") as caught:
        run_study(stack, classes, methods={"mine": Ridge(3.0)}, **options)
    assert len(str(caught.value)) < 500
    assert "Python 3." in str(caught.value)


@pytest.mark.parametrize("carried", [threading.Lock(), sys.__stderr__, (n for n in "ab")])
def test_what_cannot_be_compared_is_refused_where_there_is_a_folder(tmp_path, carried):
    stack, classes = problem(kernels=1)
    method = Ridge(1.0, extra=carried)
    options = {"ratios": [0.2], "repetitions": 1, "seed": 0}
    study = run_study(stack, classes, methods={"mine": method}, **options)
    assert study["roc"].notnull().all()
    with pytest.raises(MKMCError, match=r"methods, 'mine': it carries .*Pass no folder, or"):
        run_study(stack, classes, methods={"mine": method}, folder=tmp_path / "a", **options)
    assert not (tmp_path / "a").exists()

    def missing(stack, ratio, *, seed, method=method):
        return remove_objects(stack, ratio, seed=seed)

    study = run_study(stack, classes, methods=["zero"], missingness=missing, **options)
    assert study.attrs["missingness"].endswith("missing")
    with pytest.raises(MKMCError, match="missingness: it carries"):
        run_study(
            stack, classes, methods=["zero"], missingness=missing, folder=tmp_path / "a", **options
        )
