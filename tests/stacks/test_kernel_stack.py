"""A stack is checked once per public call, and a prior is factored once."""

import numpy as np
import pytest
from problems import PAPER, small_stack
from strategies import random_covariance

from mkmc_prob import (
    EM,
    WishartPrior,
    explore_maxima,
    fit,
    missing_information,
    sample_posterior,
    select_strength,
)
from mkmc_prob.fitting import unseen
from mkmc_prob.model import prior as prior_module
from mkmc_prob.stacks import stack as stack_module


@pytest.fixture
def checked(monkeypatch):
    """The names of the kernels that are checked, in turn."""
    names, check = [], stack_module.visible_block

    def counted(part, *rest, **options):
        names.append(part.what)
        return check(part, *rest, **options)

    monkeypatch.setattr(stack_module, "visible_block", counted)
    return names


FIT = fit(small_stack(), strength=1.0, tol=1e-6)


@pytest.mark.parametrize(
    "call",
    [
        lambda stack: EM(stack, WishartPrior(1.0)),
        lambda stack: fit(stack, strength=1.0),
        lambda stack: fit(stack, **PAPER),
        lambda stack: select_strength(stack, strengths=[0.3, 1.0, 3.0], folds=2),
        lambda stack: explore_maxima(
            stack, starts=["zeros", "means", "kernels", "random"], strength=1.0
        ),
        lambda stack: missing_information(FIT, without_each_kernel=True),
        lambda stack: sample_posterior(
            stack, strength=20.0, degrees_of_freedom=9, draws=300, tune=10, seed=0
        ),
    ],
    ids=[
        "EM",
        "fit",
        "fit of the paper's model",
        "select_strength",
        "explore_maxima",
        "missing_information",
        "posterior",
    ],
)
@pytest.mark.filterwarnings("ignore::mkmc_prob.MKMCWarning")
def test_every_kernel_is_checked_once_per_call(call, checked):
    stack = small_stack()
    checked.clear()
    call(stack)
    assert sorted(checked) == [f"kernel {name!r}" for name in stack["kernel"].values.tolist()]


@pytest.mark.filterwarnings("ignore::mkmc_prob.MKMCWarning")
def test_a_scale_is_factored_once(monkeypatch):
    """When the prior is made, if every object is visible in some kernel."""
    factored = []
    for module in (prior_module, unseen):
        cholesky = module.cholesky

        def counted(matrix, what, *rest, cholesky=cholesky, **options):
            factored.append(what)
            return cholesky(matrix, what, *rest, **options)

        monkeypatch.setattr(module, "cholesky", counted)
    prior = WishartPrior(1.0, random_covariance(np.random.default_rng(0), 6))
    assert factored == ["prior scale"]
    fit(small_stack(), prior=prior)
    explore_maxima(small_stack(), starts=["zeros", "continuation"], prior=prior)
    assert factored == ["prior scale"]
