"""How a folder recognizes a function: by name, version and simple arguments."""

from functools import partial

import numpy as np
import pytest
import xarray as xr
from test_experiments import problem

from mkmc_prob import MKMCError, remove_objects, zero_impute
from mkmc_prob.experiments import mkmc, run_study
from mkmc_prob.experiments.methods import definition

ONE = {"ratios": [0.2], "repetitions": 1, "seed": 0}


class Ridge:
    def __init__(self, weight, version=""):
        self.weight, self.version = weight, version

    def __call__(self, stack):
        return self.weight * zero_impute(stack)


def scaled(stack, factor=1.0):
    return factor * zero_impute(stack)


def removed(stack, ratio, *, seed):
    return remove_objects(stack, ratio, seed=seed)


def test_name_version_and_simple_arguments():
    here = f"{__name__}."
    assert definition(scaled) == f"{here}scaled"
    assert definition(Ridge(1.0)) == f"{here}Ridge"
    assert definition(Ridge(1.0, "b")) == f"{here}Ridge, version b"
    assert definition(partial(scaled, factor=2.0)) == f"{here}scaled(factor=2.0)"
    assert definition(partial(mkmc, tol=1, strength=(1, None))) == (
        "mkmc_prob.experiments.methods.mkmc(strength=(1, None), tol=1)"
    )
    assert definition(partial(scaled, factor=np.ones(3))) == f"{here}scaled(factor=ndarray)"
    of_partial = partial(Ridge(1.0, "b"))
    assert definition(of_partial) == f"{here}Ridge(), version b"
    of_partial.version = "c"
    assert definition(of_partial) == f"{here}Ridge(), version c"


def test_the_papers_missingness():
    assert definition(None) == definition(remove_objects)
    other = definition(partial(remove_objects, protocol="rounds"))
    assert "remove_objects(protocol='rounds')" in other


def test_another_version_is_refused_and_another_body_is_not_noticed(tmp_path):
    stack, classes = problem(kernels=1)
    options = ONE | {"folder": tmp_path}
    first = run_study(stack, classes, methods={"mine": Ridge(1.0)}, **options)
    again = run_study(stack, classes, methods={"mine": Ridge(3.0)}, **options)
    xr.testing.assert_identical(again, first)  # as documented
    message = r"the definition of method 'mine' is '.*Ridge' there and '.*Ridge, version 2' here"
    with pytest.raises(MKMCError, match=message):
        run_study(stack, classes, methods={"mine": Ridge(3.0, "2")}, **options)


def test_another_version_of_the_missingness_is_refused(tmp_path, monkeypatch):
    stack, classes = problem(kernels=1)
    options = ONE | {"folder": tmp_path, "methods": ["zero"], "missingness": removed}
    run_study(stack, classes, **options)
    run_study(stack, classes, **options)
    monkeypatch.setattr(removed, "version", "2", raising=False)
    with pytest.raises(MKMCError, match=r"missingness is '.*removed' there and '.*version 2' here"):
        run_study(stack, classes, **options)
