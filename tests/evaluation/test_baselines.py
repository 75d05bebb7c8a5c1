"""Zero and mean imputation against feature vectors, nearest neighbors against scikit-learn's."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.impute import KNNImputer

from mkmc_prob import stack_kernels, visible_objects
from mkmc_prob.errors import KernelError, MKMCWarning
from mkmc_prob.evaluation.baselines import (
    impute_neighbors,
    knn_impute,
    mean_impute,
    zero_impute,
)
from mkmc_prob.evaluation.scores import correlation_matrix_distance, relative_error
from mkmc_prob.stacks.kernel_stack import KernelStack

METHODS = [zero_impute, mean_impute, knn_impute]
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


@pytest.mark.parametrize("impute", METHODS)
@settings(deadline=None, max_examples=60)
@given(problem=problems())
def test_what_all_promise(impute, problem):
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


@pytest.mark.parametrize("impute", METHODS)
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
    for impute in (mean_impute, knn_impute):
        with pytest.raises(KernelError, match=r"kernel 'b': no object is visible.*zero_impute"):
            impute(stack)
    assert visible_objects(stack).values.tolist() == [[True, False], [False, False]]


@pytest.mark.parametrize("impute", METHODS)
def test_stack_is_checked(impute):
    with pytest.raises(KernelError, match="Build one with stack_kernels"):
        impute(np.ones((1, 2, 2)))
    broken = stack_kernels(np.ones((1, 2, 2)), names=["a"], objects=["x", "y"]).copy(deep=True)
    broken.values[0, 0, 1] = np.nan
    with pytest.raises(KernelError, match="kernel 'a': object 'x' is NaN in 1 entries"):
        impute(broken)


def quiet_stack(kernels, visible):
    """A stack of kernels whose scales may differ."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MKMCWarning)
        return stack_kernels(kernels, visible=visible)


@pytest.mark.parametrize("n_neighbors", [1, 3, 50])
@pytest.mark.parametrize("missing", [0.2, 0.6, 0.85])
def test_neighbors_are_those_of_scikit_learn(missing, n_neighbors):
    rng = np.random.default_rng(5)
    x = rng.standard_normal((3, 30, 4)) + rng.standard_normal((30, 4))
    visible = rng.random((3, 30)) >= missing
    visible[:, 0] = visible[:, 1] = True
    kernels = gram(x + 2.0)
    for kernel, seen in zip(kernels, visible, strict=True):
        block, n = kernel[np.ix_(seen, seen)], seen.sum()
        mean_diagonal = block.trace() / n
        kernel /= mean_diagonal - (block.sum() - block.trace()) / (n * (n - 1))
    stack = stack_kernels(kernels, visible=visible)
    features = np.concatenate(list(stack.values), axis=1)  # a hidden object's columns are dropped
    expected = KNNImputer(n_neighbors=n_neighbors).fit_transform(features)
    ours = np.concatenate(list(knn_impute(stack, n_neighbors=n_neighbors).values), axis=1)
    np.testing.assert_allclose(ours[:, visible.ravel()], expected, rtol=1e-12, atol=1e-14)


def test_neighbors_by_hand():
    """The distance is a mean over coordinates: the sum would make p the neighbor of r.

    The scales are 5.5, 2/3 and 2. The squared distance of p and r is 27/4 over the 3 columns of b;
    that of q and r is 27/4 + 2 over the 5 columns of b and c.
    """
    kernels = {
        "a": [[4.0, 1.0, 0.0], [1.0, 9.0, 0.0], [0.0, 0.0, 0.0]],
        "b": [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        "c": [[0.0, 0.0, 0.0], [0.0, 1.0, -1.0], [0.0, -1.0, 1.0]],
    }
    visible = {"a": [1, 1, 0], "b": [1, 1, 1], "c": [0, 1, 1]}
    stack = stack_kernels(
        {name: np.array(kernel) for name, kernel in kernels.items()},
        objects=["p", "q", "r"],
        visible=list(visible.values()),
    )
    one = knn_impute(stack, n_neighbors=1)
    assert one.sel(kernel="a").values.tolist() == [[4, 1, 1], [1, 9, 9], [1, 9, 9]]
    assert one.sel(kernel="c").values.tolist() == [[1, 1, -1], [1, 1, -1], [-1, -1, 1]]
    two = knn_impute(stack, n_neighbors=2)
    assert two.sel(kernel="a").values.tolist() == [[4, 1, 2.5], [1, 9, 5], [2.5, 5, 3.75]]


@settings(max_examples=60)
@given(problems(), st.integers(1, 4))
def test_an_object_is_the_mean_of_visible_objects(problem, n_neighbors):
    x, visible = problem
    completed = knn_impute(stack_kernels(gram(x), visible=visible), n_neighbors=n_neighbors)
    for matrix in completed.values:
        eigenvalues = np.linalg.eigvalsh(matrix)
        assert eigenvalues[0] >= -1e-13 * eigenvalues[-1]


@settings(max_examples=60)
@given(problems(), st.integers(1, 4), st.data())
def test_neighbors_do_not_depend_on_scales_or_the_order_of_kernels(problem, n_neighbors, data):
    x, visible = problem
    scale = st.sampled_from([1e-300, 1e-7, 0.3, 1.0, 1e9, 1e300])
    scales = data.draw(st.lists(scale, min_size=len(x), max_size=len(x)), label="scales")
    order = data.draw(st.permutations(range(len(x))), label="order")
    stack = stack_kernels(gram(x), visible=visible)
    plain = knn_impute(stack, n_neighbors=n_neighbors)
    # The largest and the smallest scales are beyond those that a checked stack may have.
    scaled = stack.copy(data=np.reshape(scales, (-1, 1, 1)) * stack.values).isel(kernel=order)
    completed = impute_neighbors(KernelStack(scaled), n_neighbors=n_neighbors)
    for k, matrix in zip(order, completed.values, strict=True):
        np.testing.assert_allclose(matrix / scales[k], plain.values[k], rtol=1e-12)


def test_ties_go_to_the_first_objects():
    first = np.diag([2.0, 3.0, 5.0, 7.0, 1.0])
    visible = [[0, 1, 1, 1, 1], [1, 1, 1, 1, 1]]
    for scale in (1.0, 0.1, 1 / 3):
        stack = quiet_stack([first, scale * (np.eye(5) + 0.7)], visible)
        row = knn_impute(stack, n_neighbors=2).values[0, 0]
        np.testing.assert_allclose(row, [(3 + 5) / 4, 1.5, 2.5, 0, 0], rtol=1e-15)


def test_an_object_without_neighbors_is_at_the_mean():
    rng = np.random.default_rng(2)
    kernels = gram(rng.standard_normal((2, 6, 3)))
    visible = [[1, 1, 1, 1, 0, 0], [1, 1, 0, 0, 1, 0]]  # object 5 is visible nowhere
    stack = stack_kernels(kernels, visible=visible)
    neighbors, mean = knn_impute(stack, n_neighbors=1), mean_impute(stack)
    np.testing.assert_allclose(neighbors.values[:, 5, :4][0], mean.values[:, 5, :4][0], rtol=1e-13)
    np.testing.assert_allclose(neighbors.values[:, 5, 5], mean.values[:, 5, 5], rtol=1e-13)
    alone = stack.isel(kernel=[0])
    np.testing.assert_allclose(knn_impute(alone).values, mean_impute(alone).values, rtol=1e-13)


def test_a_kernel_of_zeros_has_no_say():
    rng = np.random.default_rng(3)
    kernels = gram(rng.standard_normal((3, 8, 3)))
    kernels[2] = 0.0
    visible = np.ones((3, 8), dtype=bool)
    visible[0, :3] = visible[2, 5:] = False
    stack = quiet_stack(kernels, visible)
    completed = knn_impute(stack, n_neighbors=2)
    assert not completed.values[2].any()
    visible[2] = True  # the same columns for all pairs
    everywhere = knn_impute(quiet_stack(kernels, visible), n_neighbors=2)
    without = knn_impute(stack.isel(kernel=[0, 1]), n_neighbors=2)
    np.testing.assert_array_equal(everywhere.values[:2], without.values)


@pytest.mark.parametrize("number", [0, -1, 2.5, True, "5", None])
def test_number_of_neighbors_is_checked(number):
    with pytest.raises(KernelError, match=r"n_neighbors: .* found; a whole number >= 1"):
        knn_impute(stack_kernels(np.ones((1, 2, 2))), n_neighbors=number)
