"""Effective degrees of freedom and kernels of smaller rank, against closed forms and simulation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mkmc_prob import (
    ConvergenceWarning,
    KernelError,
    LabelError,
    effective_degrees_of_freedom,
    reduce_rank,
    sample_posterior,
    stack_kernels,
)


def random_block(rng, size, rank):
    features = rng.standard_normal((size, rank)) * rng.uniform(0.1, 3.0, rank)
    block = features @ features.T
    return (block + block.T) / 2


# Effective degrees of freedom


def test_equal_eigenvalues_count_one_each():
    rotation = np.linalg.qr(np.random.default_rng(0).standard_normal((7, 7)))[0]
    projection = rotation[:, :3] @ rotation[:, :3].T
    stack = stack_kernels([5.0 * (projection + projection.T), np.eye(7)])
    found = effective_degrees_of_freedom(stack)
    np.testing.assert_allclose(found, [3.0, 7.0], rtol=1e-13)
    assert found.dims == ("kernel",)
    assert found["kernel"].values.tolist() == ["Q1", "Q2"]


@given(st.integers(0, 10**6), st.integers(1, 8), st.integers(1, 8), st.floats(1e-100, 1e100))
def test_it_lies_between_one_and_the_rank_and_has_no_scale(seed, size, rank, scale):
    block = random_block(np.random.default_rng(seed), size, rank)
    values = np.linalg.eigvalsh(block)
    (found,) = effective_degrees_of_freedom(stack_kernels([scale * block])).values
    np.testing.assert_allclose(found, values.sum() ** 2 / (values**2).sum(), rtol=1e-10)
    assert 1.0 <= found <= min(size, rank) * (1 + 1e-12)
    assert 1 <= np.round(found) <= min(size, rank)  # reduce_rank may take it


def test_only_visible_entries_count():
    stack = stack_kernels([np.diag([1.0, 1.0, 9.0])], visible=[[1, 1, 0]])
    np.testing.assert_allclose(effective_degrees_of_freedom(stack), [2.0], rtol=1e-14)


def test_features_that_depend_on_each_other_count_as_satterthwaite_says():
    """E tr Q^2 / E (tr Q)^2 = (1/nu + rho (1 + 1/nu)) / (1 + 2 rho / nu), by simulation."""
    rng = np.random.default_rng(1)
    spread = np.array([4.0, 2.0, 1.0, 1.0, 0.5])  # of the features: nu = 8.5^2 / 22.25
    model = np.diag([3.0, 1.0, 1.0, 0.5])
    squares, traces = [], []
    for _ in range(10_000):
        features = np.sqrt(np.diag(model))[:, None] * rng.standard_normal((4, 5)) * np.sqrt(spread)
        kernel = features @ features.T
        squares.append((kernel**2).sum())
        traces.append(np.trace(kernel) ** 2)
    nu = spread.sum() ** 2 / (spread**2).sum()
    rho = (model**2).sum() / np.trace(model) ** 2
    ratio = (1 / nu + rho * (1 + 1 / nu)) / (1 + 2 * rho / nu)
    assert np.mean(squares) / np.mean(traces) == pytest.approx(ratio, rel=0.015)
    # Independent objects, many of them: what is estimated is nu itself.
    features = rng.standard_normal((2000, 5)) * np.sqrt(spread)
    block = features @ features.T
    found = effective_degrees_of_freedom(stack_kernels([(block + block.T) / 2])).item()
    assert found == pytest.approx(nu, rel=0.03)


def test_a_kernel_that_says_nothing_is_named():
    stack = stack_kernels({"a": np.eye(2), "b": np.eye(2)}, visible=[[1, 1], [0, 0]])
    with pytest.raises(KernelError, match=r"kernel 'b': it shows no object.*Leave it out"):
        effective_degrees_of_freedom(stack)
    with pytest.raises(KernelError, match="kernel 'z': it is zero"):
        effective_degrees_of_freedom(stack_kernels({"z": np.zeros((2, 2))}))


# Kernels of smaller rank


@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))
def test_it_is_the_best_approximation(seed, size, rank, wanted):
    block = random_block(np.random.default_rng(seed), size, rank)
    padded = np.full((size + 1, size + 1), np.nan)
    padded[:size, :size] = block
    stack = stack_kernels([padded])
    before = stack.copy(deep=True)
    reduced = reduce_rank(stack, wanted)
    assert stack.identical(before)
    found = reduced.values[0, :size, :size]
    np.testing.assert_array_equal(found, found.T)
    assert np.isnan(reduced.values[0, size]).all()
    # NumPy's singular value decomposition knows the best one (Eckart and Young).
    left, values, right = np.linalg.svd(block)
    best = (left[:, :wanted] * values[:wanted]) @ right[:wanted]
    tied = wanted < size and values[wanted - 1] - values[wanted] < 1e-9 * values[0]
    if not tied:
        np.testing.assert_allclose(found, best, atol=1e-9 * values[0], rtol=0)
    gone = np.sqrt((values[wanted:] ** 2).sum())
    assert np.linalg.norm(found - block) == pytest.approx(gone, abs=1e-11 * values[0])
    assert np.linalg.matrix_rank(found, hermitian=True) <= wanted
    if wanted >= size:
        np.testing.assert_array_equal(found, block)


def test_it_is_what_the_sampler_needs():
    rng = np.random.default_rng(2)
    kernels = {"a": random_block(rng, 6, 6), "b": random_block(rng, 6, 4)}
    stack = stack_kernels(kernels, visible=[[1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 0, 1]])
    nu = effective_degrees_of_freedom(stack).round()
    with pytest.raises(KernelError, match=r"kernel 'a'.*pass reduce_rank"):
        sample_posterior(stack, degrees_of_freedom=nu, strength=1.0, draws=4, seed=0)
    reduced = reduce_rank(stack, nu)
    options = {"degrees_of_freedom": nu, "strength": 5.0, "draws": 4, "tune": 0, "seed": 0}
    with pytest.warns(ConvergenceWarning):
        tree = sample_posterior(reduced, **options)
    np.testing.assert_array_equal(tree["constant_data"]["rank"], nu)


def test_ranks_by_kernel_and_what_was_kept():
    stack = stack_kernels({"a": np.diag([4.0, 3.0, 2.0, 1.0]), "b": np.eye(4)})
    reduced = reduce_rank(stack, {"b": 4, "a": 2})
    np.testing.assert_allclose(np.diagonal(reduced.values[0]), [4.0, 3.0, 0.0, 0.0], atol=1e-14)
    np.testing.assert_array_equal(reduced.values[1], np.eye(4))
    assert reduced.attrs["reduce_rank"].splitlines() == [
        "kernel 'a': rank 2 of 4 objects, 70.0 % of the trace kept",
        "kernel 'b': rank 4 of 4 objects, 100.0 % of the trace kept",
    ]


@pytest.mark.parametrize("rank", [0.5, 1.5, 0, -1, np.nan, np.inf, "two"])
def test_ranks_that_are_none_are_refused(rank):
    with pytest.raises(KernelError, match="rank of kernel 'Q1'"):
        reduce_rank(stack_kernels([np.eye(3)]), rank)


def test_ranks_of_other_kernels_are_refused():
    with pytest.raises(LabelError, match="rank: none for kernel 'Q1'"):
        reduce_rank(stack_kernels([np.eye(3)]), {"other": 2})


def test_a_kernel_that_shows_nothing_passes():
    stack = stack_kernels([np.eye(2), np.eye(2)], visible=[[1, 1], [0, 0]])
    reduced = reduce_rank(stack, 1)
    assert np.isnan(reduced.values[1]).all()
