"""The scores against brute force and the reference; the divergence against integrals."""

import math

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from mkmc_prob import stack_kernels
from mkmc_prob.errors import IndefiniteKernelError, KernelError, LabelError
from mkmc_prob.evaluation.scores import correlation_matrix_distance, kl_divergence, relative_error

seeds = st.integers(0, 2**32)


def covariance(rng, n):
    x = rng.normal(size=(n, n + 2))
    return x @ x.T


def random_stack(rng, k, n, visible=None):
    names, objects = [f"Q{i}" for i in range(k)], [f"o{i}" for i in range(n)]
    kernels = np.stack([covariance(rng, n) for _ in range(k)])
    kernels /= np.trace(kernels, axis1=1, axis2=2)[:, None, None]
    return stack_kernels(kernels, names=names, objects=objects, visible=visible)


def shuffled(rng, stack):
    kernels, objects = (rng.permutation(stack.sizes[dim]) for dim in ("kernel", "object"))
    return stack.isel(kernel=kernels, object=objects, object_bis=objects)


@settings(deadline=None, max_examples=40)
@given(seeds, st.integers(1, 3), st.integers(1, 6))
def test_correlation_matrix_distance_is_the_formula(seed, k, n):
    rng = np.random.default_rng(seed)
    truth, estimate = random_stack(rng, k, n), random_stack(rng, k, n)
    distance = correlation_matrix_distance(truth, estimate)
    assert distance.dims == ("kernel",)
    for name in truth["kernel"].values:
        q, other = truth.sel(kernel=name).values, estimate.sel(kernel=name).values
        product = sum(q[i, j] * other[j, i] for i in range(n) for j in range(n))
        norms = math.sqrt((q**2).sum()) * math.sqrt((other**2).sum())
        assert distance.sel(kernel=name).item() == pytest.approx(1 - product / norms, abs=1e-14)


def test_correlation_matrix_distance_by_hand():
    eye, ones = np.eye(4), np.ones((4, 4))
    truth, estimate = stack_kernels([eye, ones]), stack_kernels([ones, ones])
    # tr(I 11') = 4, |I| = 2, |11'| = 4
    assert correlation_matrix_distance(truth, estimate).values.tolist() == [0.5, 0.0]


def test_correlation_matrix_distance_near_zero_is_accurate():
    # The angle between diag(1, 0) and diag(1, t) is atan t, and 1 - cos(atan t) = t^2/2 to t^4.
    truth, estimate = stack_kernels([np.diag([1.0, 0])]), stack_kernels([np.diag([1.0, 1e-9])])
    value = correlation_matrix_distance(truth, estimate).item()
    assert value == pytest.approx(5e-19, rel=1e-12)


@settings(deadline=None, max_examples=40)
@given(seeds, st.floats(1e-140, 1e140))
def test_correlation_matrix_distance_ignores_scale(seed, factor):
    rng = np.random.default_rng(seed)
    truth, estimate = random_stack(rng, 1, 4), random_stack(rng, 1, 4)
    expected = correlation_matrix_distance(truth, estimate)
    scaled = correlation_matrix_distance(truth * factor, estimate)
    np.testing.assert_allclose(scaled, expected, rtol=1e-12, atol=1e-15)


@settings(deadline=None, max_examples=40)
@given(seeds, st.integers(1, 3), st.integers(1, 6))
def test_relative_error_is_the_formula(seed, k, n):
    rng = np.random.default_rng(seed)
    truth, estimate = random_stack(rng, k, n), random_stack(rng, k, n)
    visible = rng.random((k, n)) < 0.6
    incomplete = truth.where(visible[:, :, None] & visible[:, None, :])
    error = relative_error(truth, estimate, incomplete)
    assert error.dims == ("kernel",)
    for i, name in enumerate(truth["kernel"].values):
        terms = [
            math.dist(truth.values[i, j], estimate.values[i, j]) / math.hypot(*truth.values[i, j])
            for j in range(n)
            if not visible[i, j]
        ]
        value = error.sel(kernel=name).item()
        if terms:
            assert value == pytest.approx(sum(terms) / len(terms), rel=1e-12)
        else:
            assert math.isnan(value)


@settings(deadline=None, max_examples=40)
@given(seeds, st.integers(1, 3), st.integers(1, 6))
def test_the_truth_may_be_incomplete_itself(seed, k, n):
    """Then it is as if the objects that a kernel lacks were not there, kernel by kernel."""
    rng = np.random.default_rng(seed)
    whole, estimate = random_stack(rng, k, n), random_stack(rng, k, n)
    known = rng.random((k, n)) < 0.7
    visible = known & (rng.random((k, n)) < 0.6)
    truth, incomplete = (
        whole.where(seen[:, :, None] & seen[:, None, :]) for seen in (known, visible)
    )
    error = relative_error(truth, estimate, incomplete)
    for i, name in enumerate(whole["kernel"].values):
        place = np.flatnonzero(known[i])
        if not len(place):
            assert math.isnan(error.sel(kernel=name))
            continue
        part = {"kernel": [i], "object": place, "object_bis": place}
        alone = relative_error(truth.isel(part), estimate.isel(part), incomplete.isel(part))
        np.testing.assert_allclose(error.sel(kernel=name), alone.item(), rtol=1e-13)


def test_relative_error_mean_is_over_kernels_that_miss_something():
    truth = stack_kernels([np.eye(2), np.eye(2)], names=["a", "b"])
    estimate = stack_kernels([np.eye(2), np.diag([1, 0.5])], names=["a", "b"])
    incomplete = stack_kernels([np.eye(2)] * 2, names=["a", "b"], visible=[[1, 1], [1, 0]])
    error = relative_error(truth, estimate, incomplete)
    assert math.isnan(error.sel(kernel="a").item())
    assert error.mean().item() == 0.5


@settings(deadline=None, max_examples=40)
@given(seeds, st.floats(1e-145, 1e140))
def test_relative_error_ignores_common_scale(seed, factor):
    rng = np.random.default_rng(seed)
    truth, estimate = random_stack(rng, 1, 4), random_stack(rng, 1, 4)
    incomplete = stack_kernels(
        truth.values, names=["Q0"], objects=truth["object"].values, visible=[[1, 0, 1, 0]]
    )
    expected = relative_error(truth, estimate, incomplete).item()
    scaled = relative_error(truth * factor, estimate * factor, incomplete).item()
    assert scaled == pytest.approx(expected, rel=1e-12)


@settings(deadline=None, max_examples=15)
@given(seeds)
def test_scores_align_by_label(seed):
    rng = np.random.default_rng(seed)
    visible = rng.random((3, 5)) < 0.5
    truth, estimate = random_stack(rng, 3, 5), random_stack(rng, 3, 5)
    incomplete = truth.where(visible[:, :, None] & visible[:, None, :])
    distance = correlation_matrix_distance(truth, estimate)
    error = relative_error(truth, estimate, incomplete)
    mixed = shuffled(rng, estimate).transpose("object", "kernel", "object_bis")
    assert distance.identical(correlation_matrix_distance(truth, mixed))
    assert error.identical(relative_error(truth, mixed, shuffled(rng, incomplete)))
    other = shuffled(rng, truth)
    again = correlation_matrix_distance(other, estimate)
    assert again["kernel"].values.tolist() == other["kernel"].values.tolist()
    np.testing.assert_allclose(again.sel(kernel=distance["kernel"]), distance, atol=1e-15)
    again = relative_error(other, estimate, incomplete).sel(kernel=error["kernel"])
    np.testing.assert_allclose(again, error, rtol=1e-12)


def test_scores_leave_their_arguments_alone():
    rng = np.random.default_rng(0)
    stacks = [random_stack(rng, 2, 3) for _ in range(3)]
    copies = [stack.copy(deep=True) for stack in stacks]
    correlation_matrix_distance(*stacks[:2])
    relative_error(*stacks)
    assert all(s.identical(c) for s, c in zip(stacks, copies, strict=True))


STACK = random_stack(np.random.default_rng(1), 2, 3)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (STACK.assign_coords(kernel=["Q0", "zzz"]), "kernels are not those of truth: 'Q1', 'zzz'"),
        (STACK.isel(kernel=[0]), "kernels are not those of truth: 'Q1' in one only"),
        (
            STACK.isel(object=[0, 2], object_bis=[0, 2]),
            "objects are not those of truth: 'o1' in one only",
        ),
        (
            STACK.assign_coords(object=[0, 1, 2], object_bis=[0, 1, 2]),
            "objects are not those of truth: 'o0'",
        ),
    ],
)
def test_scores_refuse_other_labels(other, message):
    with pytest.raises(LabelError, match=f"estimate: its {message}"):
        correlation_matrix_distance(STACK, other)
    with pytest.raises(LabelError, match=f"estimate: its {message}"):
        relative_error(STACK, other, STACK)
    with pytest.raises(LabelError, match=f"incomplete: its {message}"):
        relative_error(STACK, STACK, other)
    with pytest.raises(LabelError, match="in one only"):
        correlation_matrix_distance(other, STACK)


def test_scores_refuse_missing_objects():
    holes = STACK.copy(deep=True)
    holes.values[1, 2, :] = holes.values[1, :, 2] = np.nan
    with pytest.raises(KernelError, match="truth, kernel 'Q1': 'o2' hidden"):
        correlation_matrix_distance(holes, STACK)
    with pytest.raises(KernelError, match="estimate, kernel 'Q1': 'o2' hidden"):
        correlation_matrix_distance(STACK, holes)
    with pytest.raises(KernelError, match=r"truth, kernel 'Q1': object 'o2' is missing.*visible"):
        relative_error(holes, STACK, STACK)
    with pytest.raises(KernelError, match="estimate, kernel 'Q1': 'o2' hidden"):
        relative_error(STACK, holes, holes)
    holes.values[1, 1, 0] = np.nan
    with pytest.raises(KernelError, match="kernel 'Q1': object 'o0' is NaN in 0 entries"):
        correlation_matrix_distance(STACK, holes)


def test_scores_refuse_zeros():
    zero = STACK.copy(deep=True)
    zero.values[1] = 0
    with pytest.raises(KernelError, match="truth, kernel 'Q1': all its entries are zero"):
        correlation_matrix_distance(zero, STACK)
    with pytest.raises(KernelError, match="estimate, kernel 'Q1': all its entries are zero"):
        correlation_matrix_distance(STACK, zero)
    holes = STACK.copy(deep=True)
    holes.values[1, 2, :] = holes.values[1, :, 2] = np.nan
    with pytest.raises(KernelError, match="truth, kernel 'Q1': the row of object 'o2' is all zero"):
        relative_error(zero, STACK, holes)
    # Zero rows that nothing is compared with do no harm.
    assert relative_error(zero, STACK, STACK).isnull().all()


def test_scores_refuse_what_is_no_stack():
    for arguments in ([STACK.values, STACK], [STACK, STACK.values]):
        with pytest.raises(KernelError, match="Build one with stack_kernels"):
            correlation_matrix_distance(*arguments)
    with pytest.raises(KernelError, match="incomplete: a labeled stack"):
        relative_error(STACK, STACK, STACK.values)


@pytest.mark.parametrize(("a", "b"), [(1.0, 1.0), (2.0, 1.0), (0.3, 1.7), (1e-3, 1.0)])
def test_kl_divergence_is_the_integral(a, b):
    p, q = stats.norm(scale=math.sqrt(a)), stats.norm(scale=math.sqrt(b))
    reach = 12 * math.sqrt(a)
    expected, _ = integrate.quad(
        lambda x: p.pdf(x) * (p.logpdf(x) - q.logpdf(x)), -reach, reach, epsabs=1e-12
    )
    assert kl_divergence([[a]], [[b]]) == pytest.approx(expected, abs=1e-10)


def test_kl_divergence_in_the_plane_is_the_integral():
    a, b = np.array([[1.0, 0.6], [0.6, 2.0]]), np.array([[1.5, -0.3], [-0.3, 0.8]])
    p, q = (stats.multivariate_normal(cov=m) for m in (a, b))
    step = np.linspace(-13, 13, 521)  # the trapezoidal rule is spectrally accurate here
    grid = np.stack(np.meshgrid(step, step), axis=-1)
    values = p.pdf(grid) * (p.logpdf(grid) - q.logpdf(grid))
    expected = values.sum() * (step[1] - step[0]) ** 2
    assert kl_divergence(a, b) == pytest.approx(expected, rel=1e-10)


@settings(deadline=None, max_examples=40)
@given(seeds, st.integers(1, 8))
def test_kl_divergence_is_the_formula(seed, n):
    rng = np.random.default_rng(seed)
    a, b = covariance(rng, n), covariance(rng, n)
    expected = 0.5 * (
        np.trace(np.linalg.inv(b) @ a) + np.linalg.slogdet(b)[1] - np.linalg.slogdet(a)[1] - n
    )
    value = kl_divergence(a, b)
    assert value == pytest.approx(expected, rel=1e-8)
    # The divergence does not depend on the coordinates.
    t = rng.normal(size=(n, n)) + 3 * np.eye(n)
    moved = kl_divergence(*(symmetric(t @ m @ t.T) for m in (a, b)))
    assert moved == pytest.approx(value, rel=1e-6, abs=1e-9)


def symmetric(matrix):
    return (matrix + matrix.T) / 2


@settings(deadline=None, max_examples=40)
@given(seeds, st.integers(1, 8), st.floats(1e-9, 1e-2))
def test_kl_divergence_near_zero(seed, n, t):
    a = covariance(np.random.default_rng(seed), n)
    assert kl_divergence(a, a) == pytest.approx(0, abs=1e-25)
    # b = a (1 + t): (n/2) [1/(1+t) - 1 + log(1+t)]
    expected = n / 2 * (math.log1p(t) - t / (1 + t))
    assert kl_divergence(a, a * (1 + t)) == pytest.approx(expected, rel=1e-4, abs=1e-17)
    assert kl_divergence(a, a * (1 + t)) >= 0


@pytest.mark.parametrize("small", [1e-20, 1e-100])
def test_kl_divergence_of_very_different_scales(small):
    expected = 0.5 * 3 * (small - 1 - math.log(small))
    assert kl_divergence(small * np.eye(3), np.eye(3)) == pytest.approx(expected, rel=1e-14)
    expected = 0.5 * 3 * (1 / small - 1 + math.log(small))
    assert kl_divergence(np.eye(3), small * np.eye(3)) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("wrap", ["frame", "array"])
def test_kl_divergence_aligns_by_label(wrap):
    rng = np.random.default_rng(0)
    a, b = covariance(rng, 4), covariance(rng, 4)
    labels = np.array(["p", "q", "r", "s"])

    def labelled(matrix, order):
        values, names = matrix[np.ix_(order, order)], labels[order]
        if wrap == "frame":
            return pd.DataFrame(values, index=names, columns=names)
        return xr.DataArray(values, coords={"object": names, "object_bis": names})

    expected = kl_divergence(a, b)
    value = kl_divergence(labelled(a, [0, 1, 2, 3]), labelled(b, [2, 0, 3, 1]))
    assert value == pytest.approx(expected, rel=1e-12)
    before = labelled(b, [2, 0, 3, 1])
    after = before.copy(deep=True)
    kl_divergence(labelled(a, [0, 1, 2, 3]), after)
    assert after.equals(before)
    with pytest.raises(LabelError, match="one matrix is labeled"):
        kl_divergence(a, before)
    smaller = before.iloc[:3, :3] if wrap == "frame" else before[:3, :3]
    with pytest.raises(LabelError, match="b: its objects are not those of a: 'q' in one only"):
        kl_divergence(before, smaller)


@settings(deadline=None, max_examples=40)
@given(seeds, st.integers(2, 6))
def test_kl_divergence_is_infinite_where_a_matrix_is_singular(seed, n):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, n - 1))
    singular, regular = x @ x.T, covariance(rng, n)
    assert kl_divergence(singular, regular) == math.inf
    assert kl_divergence(regular, singular) == math.inf
    assert kl_divergence(singular, singular) == math.inf


def test_kl_divergence_tolerance():
    eps = np.finfo(float).eps
    for n in (2, 3, 4):
        below, above = np.eye(n), np.eye(n)
        below[0, 0], above[0, 0] = n * eps, 1.01 * n * eps
        assert kl_divergence(below, np.eye(n)) == math.inf
        assert kl_divergence(np.eye(n), below) == math.inf
        t = 1.01 * n * eps
        expected = 0.5 * (t - 1 - math.log(t))
        assert kl_divergence(above, np.eye(n)) == pytest.approx(expected, rel=1e-12)
    # A float32 matrix is known to float32's rounding only.
    single = np.diag([1e-7, 1.0])
    assert math.isfinite(kl_divergence(single, np.eye(2)))
    assert kl_divergence(single.astype(np.float32), np.eye(2)) == math.inf
    assert kl_divergence(np.zeros((2, 2)), np.eye(2)) == math.inf


def test_kl_divergence_refuses_indefinite_matrices():
    indefinite = np.array([[1.0, 2.0], [2.0, 1.0]])  # eigenvalues 3 and -1
    singular = np.ones((2, 2))
    for other in (np.eye(2), singular):
        with pytest.raises(IndefiniteKernelError, match=r"'a': an eigenvalue is -1 .*largest is 3"):
            kl_divergence(indefinite, other)
        with pytest.raises(IndefiniteKernelError, match=r"'b': an eigenvalue is -1 .*repair_spec"):
            kl_divergence(other, indefinite)
    # Rounding below zero is singular, not indefinite; a little more is not rounding.
    eps = np.finfo(float).eps
    assert kl_divergence([[1, 1 + eps], [1 + eps, 1]], np.eye(2)) == math.inf
    with pytest.raises(IndefiniteKernelError, match="an eigenvalue is"):
        kl_divergence([[1, 1 + 8 * eps], [1 + 8 * eps, 1]], np.eye(2))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.ones((2, 3)), r"shape \(2, 3\)"),
        (np.ones(3), r"shape \(3,\)"),
        (np.ones((0, 0)), r"shape \(0, 0\)"),
        (np.array([[1.0, 0.5], [0.4, 1.0]]), "not symmetric"),
        (np.array([[1.0, np.nan], [np.nan, 1.0]]), "NaN"),
        (np.full((2, 2), np.nan), "NaN"),
        (np.array([[1.0, 0.0], [0.0, np.inf]]), "inf"),
        (np.array([[1.0, 0.0], [0.0, -1.0]]), "diagonal entry of object 1 is -1"),
        (np.eye(2) * 1j, "real numbers"),
        (np.array([["1", "0"], ["0", "1"]]), "real numbers"),
    ],
)
def test_kl_divergence_checks_each_matrix(bad, message):
    with pytest.raises(KernelError, match=rf"a.*{message}"):
        kl_divergence(bad, np.eye(2))
    with pytest.raises(KernelError, match=rf"b.*{message}"):
        kl_divergence(np.eye(2), bad)


def test_kl_divergence_of_different_sizes():
    with pytest.raises(KernelError, match="a has 2 objects, b has 3"):
        kl_divergence(np.eye(2), np.eye(3))


def test_a_dataset_is_no_kernel():
    kernel = xr.DataArray(np.eye(2), dims=("object", "object_bis"))
    with pytest.raises(KernelError, match="Dataset found; an array is needed"):
        kl_divergence(kernel.to_dataset(name="kernel"), kernel)
