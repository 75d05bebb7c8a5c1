"""What `fit` takes for its arguments, and what it says of others."""

import numpy as np
import pandas as pd
import pytest
from problems import both_models, small_stack

from mkmc_prob import (
    GaussianModel,
    IndefiniteKernelError,
    KernelError,
    LabelError,
    WishartPrior,
    fit,
)


@pytest.mark.parametrize("value", [0, -1.0, np.nan, np.inf, "x", None, True])
def test_the_strength_is_a_positive_number(value):
    with pytest.raises(KernelError, match=r"^strength: .* a finite number > 0"):
        fit(small_stack(), strength=value)


@pytest.mark.parametrize("value", [0.0, np.nan, [1.0, 2.0, -3.0], {"Q1": 1, "Q2": 1, "Q3": "x"}])
def test_the_degrees_of_freedom_are_positive_numbers(value):
    with pytest.raises(KernelError, match=r"^degrees_of_freedom of kernel 'Q[13]': "):
        fit(small_stack(), degrees_of_freedom=value)


@pytest.mark.parametrize("value", [-1e-3, np.nan, np.inf, "small", None, True, 1j])
def test_tol_is_a_number_of_nats(value):
    with pytest.raises(KernelError, match=r"^tol: "):
        fit(small_stack(), tol=value)


@pytest.mark.parametrize("value", [0, -3, 2.5, "many", None, True, np.inf])
def test_max_iter_is_a_whole_number(value):
    with pytest.raises(KernelError, match=r"^max_iter: "):
        fit(small_stack(), max_iter=value)


def test_numpy_numbers_are_numbers():
    stack = small_stack()
    result = fit(stack, strength=np.float64(0.2), tol=np.float32(1e-3), max_iter=np.int64(500))
    assert result.prior.strength == 0.2


def test_other_arguments_are_checked():
    with pytest.raises(
        KernelError,
        match=r"method: 'newton' found; 'em', 'geodesic', 'px-em' or 'squarem' is needed",
    ):
        fit(small_stack(), method="newton")
    with pytest.raises(KernelError, match=r"prior: 0\.1 found"):
        fit(small_stack(), prior=0.1)
    with pytest.raises(KernelError, match="Pass one of the two"):
        fit(small_stack(), strength=0.3, prior=WishartPrior(0.5))
    with pytest.raises(KernelError, match="Pass one of the two"):
        fit(small_stack(), strength=1.0, prior=WishartPrior(0.5))  # the default, but passed
    with pytest.raises(KernelError, match=r"Build one with stack_kernels"):
        fit({"a": np.eye(2)})
    labels = [f"p{i}" for i in range(5)]
    scale = pd.DataFrame(np.eye(5), index=labels, columns=labels)
    with pytest.raises(LabelError, match=r"prior scale: no row for object 'p5'"):
        fit(small_stack(), prior=WishartPrior(1.0, scale))


@both_models
def test_a_warm_start_continues(model):
    stack, options = small_stack(), {"method": "em", "tol": 0, **model}
    first = fit(stack, **options, max_iter=5)
    whole = fit(stack, **options, max_iter=10)
    for start in (first, first.model):
        second = fit(stack, **options, max_iter=5, initial=start)
        np.testing.assert_allclose(second.model.matrix, whole.model.matrix, rtol=1e-10)


def test_a_start_may_be_labelled_in_another_order_or_plain():
    stack = small_stack()
    model = fit(stack, tol=0, max_iter=3).model
    frame = model.covariance.to_pandas()
    mixed = frame.iloc[::-1, ::-1]
    results = [
        fit(stack, tol=0, max_iter=3, initial=start).model.matrix
        for start in (model, model.covariance, frame, mixed, model.matrix)
    ]
    for other in results[1:]:
        np.testing.assert_allclose(other, results[0], rtol=1e-12)
    with pytest.raises(LabelError, match="initial: it has no object 'p5'"):
        fit(stack, initial=GaussianModel(np.eye(5), objects=[f"p{i}" for i in range(5)]))
    with pytest.raises(IndefiniteKernelError, match="initial: model matrix: not positive definite"):
        fit(stack, initial=np.ones((6, 6)))
    with pytest.raises(LabelError, match="initial: objects: 6 labels for 3 objects"):
        fit(stack, initial=np.eye(3))


def test_progress_is_shown(capsys):
    fit(small_stack(), progress=True)
    assert "log-likelihood" in capsys.readouterr().err
    fit(small_stack())
    assert capsys.readouterr().err == ""
