"""Zero and mean imputation against explicit feature vectors and the paper's formulas."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mkmc_prob.errors import KernelError
from mkmc_prob.evaluation.baselines import mean_impute, zero_impute
from mkmc_prob.evaluation.scores import correlation_matrix_distance, relative_error
from mkmc_prob.stacks.stack import stack_kernels, visible_objects

REFERENCE = json.loads((Path(__file__).parents[1] / "reference" / "three_objects.json").read_text())


@st.composite
def problems(draw):
    """Draw feature vectors (K, l, p) and visible objects (K, l), at least one in each kernel."""
    k, size, p = draw(st.integers(1, 3)), draw(st.integers(1, 7)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    visible = rng.random((k, size)) < draw(st.sampled_from([0.2, 0.5, 0.9, 1.0]))
    visible[np.arange(k), rng.integers(size, size=k)] = True
    return rng.uniform(0.5, 1.5, size=(k, size, p)), visible


def gram(x):
    return x @ x.transpose(0, 2, 1)


@settings(deadline=None, max_examples=60)
@given(problems())
def test_mean_is_the_mean_feature_vector(problem):
    x, visible = problem
    stack = stack_kernels(gram(x), visible=visible)
    filled = x.copy()
    for vectors, seen in zip(filled, visible, strict=True):
        vectors[~seen] = vectors[seen].mean(axis=0)
    np.testing.assert_allclose(mean_impute(stack).values, gram(filled), rtol=1e-12)


@settings(deadline=None, max_examples=60)
@given(problems())
def test_zero_is_the_zero_feature_vector(problem):
    x, visible = problem
    stack = stack_kernels(gram(x), visible=visible)
    filled = np.where(visible[:, :, None], x, 0.0)
    np.testing.assert_allclose(zero_impute(stack).values, gram(filled), rtol=1e-12)


@pytest.mark.parametrize("impute", [zero_impute, mean_impute])
@settings(deadline=None, max_examples=60)
@given(problem=problems())
def test_what_both_promise(impute, problem):
    x, visible = problem
    stack = stack_kernels(gram(x), visible=visible)
    before = stack.copy(deep=True)
    completed = impute(stack)
    assert stack.identical(before)
    assert completed.dims == stack.dims
    assert not np.isnan(completed.values).any()
    assert (completed.values == completed.values.transpose(0, 2, 1)).all()
    there = ~np.isnan(stack.values)
    assert (completed.values[there] == stack.values[there]).all()
    for dim in stack.dims:
        assert completed.indexes[dim].equals(stack.indexes[dim])


@pytest.mark.parametrize("impute", [zero_impute, mean_impute])
def test_complete_stack_stays(impute):
    stack = stack_kernels(REFERENCE["kernels"])
    assert impute(stack).equals(stack)


@pytest.mark.parametrize(
    ("impute", "key"), [(zero_impute, "zero_imputation"), (mean_impute, "mean_imputation")]
)
def test_reference(impute, key):
    truth = stack_kernels(REFERENCE["kernels"])
    incomplete = stack_kernels(REFERENCE["kernels"], visible=REFERENCE["visible"])
    completed = impute(incomplete)
    scores = {
        "correlation_matrix_distance": correlation_matrix_distance(truth, completed),
        "average_relative_error": relative_error(truth, completed, incomplete),
    }
    for name, value in scores.items():
        assert value.mean().item() == pytest.approx(REFERENCE[key][name], rel=1e-12)


def test_kernel_that_sees_nothing():
    stack = stack_kernels(np.ones((2, 2, 2)), names=["a", "b"], visible=[[1, 0], [0, 0]])
    zero = zero_impute(stack)
    assert zero.sel(kernel="b").values.tolist() == [[0, 0], [0, 0]]
    with pytest.raises(KernelError, match=r"kernel 'b': no object is visible.*zero_impute"):
        mean_impute(stack)
    assert visible_objects(stack).values.tolist() == [[True, False], [False, False]]


@pytest.mark.parametrize("impute", [zero_impute, mean_impute])
def test_stack_is_checked(impute):
    with pytest.raises(KernelError, match="Build one with stack_kernels"):
        impute(np.ones((1, 2, 2)))
    broken = stack_kernels(np.ones((1, 2, 2)), names=["a"], objects=["x", "y"]).copy(deep=True)
    broken.values[0, 0, 1] = np.nan
    with pytest.raises(KernelError, match="kernel 'a': object 'x' is NaN in 1 entries"):
        impute(broken)
