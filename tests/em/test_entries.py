"""Convergence of the entries: `tol_entries`, and the estimates behind it."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import small_stack

from mkmc_prob import PPCA, FactorAnalysis, KernelError, LowRankModel, fit, stack_kernels
from mkmc_prob.model.gaussian import GaussianModel

#: The maximum over M_ab of two kernels over (a, c) and (b, c), correlation 0.7, strength 0.001:
#: checked against an independent optimizer below.
CHOSEN = 0.5938248


def three_objects(order):
    block = np.array([[1.0, 0.7], [0.7, 1.0]])
    kernels = {pair: pd.DataFrame(block, [*pair], [*pair]) for pair in ("ac", "bc")}
    return stack_kernels(kernels, objects=[*order])


def chain(size, width):
    """Return kernels over overlapping blocks of a chain, each of a sample of its own."""
    rng = np.random.default_rng(size)
    covariance = 0.7 ** np.abs(np.subtract.outer(np.arange(size), np.arange(size)))
    half = np.linalg.cholesky(covariance)
    kernels = {}
    for start in range(0, size - 1, width - 1):
        sample = (half @ rng.standard_normal((size, 3 * size)))[start : start + width]
        labels = range(start, start + len(sample))
        kernels[f"k{start}"] = pd.DataFrame(sample @ sample.T / (3 * size), labels, labels)
    return stack_kernels(kernels, objects=range(size))


def apart(one, other):
    """Return the largest difference of entries, relative to the diagonal."""
    deviations = np.sqrt(np.diagonal(other))
    return (np.abs(one - other) / np.outer(deviations, deviations)).max()


@pytest.mark.parametrize("order", ["abc", "acb", "cab"])
@pytest.mark.parametrize("method", ["geodesic", "em", "squarem"])
def test_a_flat_entry_is_followed_to_the_priors_choice(method, order):
    options = {"strength": 0.001, "sources": "identical", "method": method}
    result = fit(three_objects(order), tol_entries=0.002, **options)
    entry = result.model.covariance.sel(object="a", object_bis="b").item()
    assert result.converged
    assert abs(entry - CHOSEN) < 0.01
    assert result.trace.attrs["limit"] == "entries"
    early = fit(three_objects(order), **options)
    entry = early.model.covariance.sel(object="a", object_bis="b").item()
    assert abs(entry - CHOSEN) > 0.1
    assert early.trace.attrs["limit"] == "gain"


def test_the_priors_choice_against_an_independent_optimizer():
    from scipy.optimize import minimize

    def matrix(x):
        a, b, c, ac, bc, ab = x
        return np.array([[a, ab, ac], [ab, b, bc], [ac, bc, c]])

    block = np.array([[1.0, 0.7], [0.7, 1.0]])

    def negative(x):
        m = matrix(x)
        if np.linalg.eigvalsh(m)[0] <= 1e-6:
            return 1e6
        total = 0.0005 * (np.linalg.slogdet(m)[1] + np.trace(np.linalg.inv(m)))
        for places in ([0, 2], [1, 2]):
            own = m[np.ix_(places, places)]
            total += 0.5 * (np.linalg.slogdet(own)[1] + np.trace(np.linalg.solve(own, block)))
        return total

    start = [1.0, 1.0, 1.0, 0.7, 0.7, 0.5]
    options = {"xatol": 1e-9, "fatol": 1e-15, "maxiter": 20_000, "maxfev": 20_000}
    found = minimize(negative, start, method="Nelder-Mead", options=options)
    assert abs(found.x[5] - CHOSEN) < 1e-3


@pytest.mark.parametrize(("size", "width"), [(10, 3), (30, 6)])
def test_unseen_entries_of_a_chain_of_blocks(size, width):
    stack, options = chain(size, width), {"strength": 0.001, "sources": "identical"}
    exact = fit(stack, tol=1e-12, **options).model.matrix
    near = fit(stack, tol_entries=0.002, **options)
    assert near.converged
    assert apart(near.model.matrix, exact) < 0.01
    assert apart(fit(stack, **options).model.matrix, exact) > 0.01


@pytest.mark.parametrize("strength", [0.1, 1.0])
def test_the_order_of_the_objects_does_not_matter(strength):
    stack = small_stack(3, size=24, kernels=4, missing=0.5)
    order = np.random.default_rng(0).permutation(24)
    moved = stack.isel(object=order, object_bis=order)
    one, two = (fit(each, strength=strength, tol_entries=1e-5) for each in (stack, moved))
    assert apart(one.model.matrix[np.ix_(order, order)], two.model.matrix) < 1e-4


@given(st.integers(0, 2**32 - 1), st.integers(1, 8))
def test_the_largest_change_by_brute_force(seed, size):
    rng = np.random.default_rng(seed)
    halves = rng.standard_normal((2, size, size + 2))
    before, after = (half @ half.T for half in halves)
    objects = np.arange(size)
    found = GaussianModel.of(before.copy(), objects).largest_change(
        GaussianModel.of(after, objects)
    )
    wanted = max(
        abs(after[i, j] - before[i, j]) / math.sqrt(before[i, i] * before[j, j])
        for i in range(size)
        for j in range(size)
    )
    assert found == pytest.approx(wanted, rel=1e-12)


@given(st.integers(0, 2**32 - 1), st.integers(2, 8))
def test_the_bound_for_a_few_factors(seed, size):
    """It is at least the change, whatever the rotation of the loadings, and not far above."""
    rng = np.random.default_rng(seed)
    loadings, noise = rng.standard_normal((size, 2)), rng.uniform(0.1, 1.0, size)
    step = 10.0 ** rng.uniform(-6, 0)
    other = loadings + step * rng.standard_normal((size, 2))
    later = noise * np.exp(step * rng.standard_normal(size))
    turn, _ = np.linalg.qr(rng.standard_normal((2, 2)))
    objects = np.arange(size)
    before = LowRankModel(loadings, noise, objects)
    found = before.largest_change(LowRankModel(other @ turn, later, objects))
    after = other @ other.T + np.diag(later)
    matrix = loadings @ loadings.T + np.diag(noise)
    deviations = np.sqrt(np.diagonal(matrix))
    wanted = (np.abs(after - matrix) / np.outer(deviations, deviations)).max()
    assert wanted <= found * (1 + 1e-9) + 1e-12
    assert found <= 10.0 * wanted + 1e-12


@pytest.mark.parametrize("structure", [PPCA(2), FactorAnalysis(2)])
@pytest.mark.parametrize("method", ["geodesic", "em", "px-em"])
def test_models_of_few_factors(structure, method):
    stack = small_stack(1, size=12, kernels=3, missing=0.3)
    options = {"structure": structure, "method": method}
    exact = fit(stack, tol=1e-10, tol_entries=1e-7, max_iter=50_000, **options)
    near = fit(stack, tol_entries=1e-3, **options)
    assert apart(near.model.matrix, exact.model.matrix) < 5e-3
    assert near.trace["entries_to_come"][-2] <= 1e-3


def test_what_the_trace_and_the_warning_say():
    stack = three_objects("abc")
    paper = fit(stack, sources="identical")
    assert paper.trace["entries_to_come"].isnull().all()
    adaptive = fit(stack)
    assert adaptive.trace["entries_to_come"].notnull().all()
    with pytest.warns(match="change by another .* more than tol_entries=1e-07"):
        fit(stack, sources="identical", strength=0.001, tol_entries=1e-7, max_iter=30)
    steps = fit(stack, tol=0, tol_entries=1e-3, max_iter=12)
    assert steps.n_iter == 12
    for wrong in (0, -1, "a", True):
        with pytest.raises(KernelError, match="tol_entries"):
            fit(stack, tol_entries=wrong)


def test_an_interrupt_between_step_and_path(monkeypatch):
    """The path is never shorter than the steps, so that the last step can be taken."""
    original, calls = GaussianModel.largest_change, []

    def interrupted(self, after):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(self, after)

    monkeypatch.setattr(GaussianModel, "largest_change", interrupted)
    with pytest.warns(match="interrupted"):
        result = fit(three_objects("abc"))
    assert result.interrupted
