"""Scales and shared constants by moments; conditional distributions with a constant; bad input."""

import numpy as np
import plain_sources
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from plain_sources import draw_problem, setting_of
from problems import reference
from scipy.optimize import minimize_scalar
from strategies import random_covariance

from mkmc_prob import (
    EM,
    PPCA,
    GaussianModel,
    KernelError,
    LabelError,
    Sources,
    WishartPrior,
    fit,
    stack_kernels,
)
from mkmc_prob.model.conditional import CovarianceForm, PrecisionForm, WithConstant
from mkmc_prob.model.sources import Centered, Constant, Source

REFERENCE = reference("sources.json")
seeds = st.integers(0, 2**32 - 1)


def reference_stack():
    return stack_kernels(np.array(REFERENCE["kernels"]), visible=REFERENCE["visible"])


def test_scales_and_the_shared_constant_are_those_of_the_reference():
    sources = Sources.estimated(reference_stack())
    np.testing.assert_allclose(sources.scale, REFERENCE["d"], rtol=1e-10)
    assert sources.shared_constant == pytest.approx(REFERENCE["b"], rel=1e-10)
    assert np.isnan(sources.constant).all()
    assert sources.sharing.tolist() == [1.0, 1.0, 1.0]


@given(seeds)
def test_scales_are_moments_of_the_visible_block(seed):
    drawn = draw_problem(np.random.default_rng(seed), regular=True)
    sources = drawn.sources
    found = []
    for kernel, scale in zip(drawn.stack.values, sources.scale, strict=True):
        seen = ~np.isnan(np.diagonal(kernel))
        d, off = plain_sources.moments(kernel[np.ix_(seen, seen)])
        assert scale == pytest.approx(d, rel=1e-12)
        found.append(off / d)
    assert sources.shared_constant == pytest.approx(max(0.0, min(found)), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    ("block", "scale", "shared"),
    [
        ([[4.0]], 4.0, 0.0),  # one object has no pair
        ([[3.0, 3.0], [3.0, 3.0]], 3.0, 1.0),  # nothing varies within the kernel
        ([[3.0, 3.0 - 1e-13], [3.0 - 1e-13, 3.0]], 3.0, 1.0),
        ([[3.0, 1.0], [1.0, 3.0]], 2.0, 0.5),
        ([[3.0, -1.0], [-1.0, 3.0]], 4.0, 0.0),  # a variance is not negative
    ],
)
def test_where_the_moments_give_no_scale_it_is_the_mean_diagonal(block, scale, shared):
    sources = Sources.estimated(stack_kernels({"one": np.array(block)}))
    assert sources.scale[0] == pytest.approx(scale, rel=1e-12)
    assert sources.shared_constant == pytest.approx(shared, abs=1e-12)


def test_kernels_of_one_object_or_none_do_not_lower_the_shared_constant():
    kernels = np.stack([np.eye(3) + 2.0] * 3)
    stack = stack_kernels(kernels, visible=[[1, 1, 1], [1, 0, 0], [0, 0, 0]])
    sources = Sources.estimated(stack)
    assert sources.scale.tolist() == [1.0, 3.0, 1.0]
    assert sources.shared_constant == 2.0
    assert np.isnan(sources.constant).tolist() == [True, True, False]


def test_a_block_of_zeros_has_no_scale():
    stack = stack_kernels({"good": np.eye(2), "empty": np.zeros((2, 2))})
    with pytest.raises(KernelError, match=r"kernel 'empty'.*zero.*Leave the kernel out"):
        Sources.estimated(stack)


def distribution(seed, form):
    """A kernel's conditional distribution with a constant, and the same by brute force."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 8))
    model, scale = (random_covariance(rng, size) for _ in range(2))
    seen = rng.random(size) < rng.choice([0.2, 0.6, 0.9])
    source = Source(
        10.0 ** rng.uniform(-6, 6), 10.0 ** rng.uniform(-3, 3), float(rng.choice([0, 0.3, 1]))
    )
    base = source.base(model, scale)
    whole = source.scale * (
        source.sharing * model + (1.0 - source.sharing) * scale + source.constant
    )
    if form is PrecisionForm:
        given = PrecisionForm(np.linalg.inv(base), seen, np.arange(size))
    else:
        given = CovarianceForm(base, np.linalg.slogdet(base)[1], seen, np.arange(size))
    found = WithConstant(given, source.scale, source.constant)
    root = rng.standard_normal((seen.sum(), 2))
    block = source.scale * root @ root.T
    hidden = ~seen
    parts = [whole[np.ix_(one, two)] for one, two in ((hidden, hidden), (hidden, seen))]
    visible = whole[np.ix_(seen, seen)]
    return source, found, visible, plain_sources.condition(*parts, visible, block), model, scale


@pytest.mark.parametrize("form", [PrecisionForm, CovarianceForm])
@given(seeds)
def test_the_conditional_distribution_with_a_constant(form, seed):
    source, found, visible, expected, _, _ = distribution(seed, form)
    unit = source.scale * (1.0 + source.constant)
    close = {"rtol": 1e-8, "atol": 1e-8 * unit}
    np.testing.assert_allclose(found.regression, expected.regression.T, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(found.covariance, expected.covariance, **close)
    log_det = np.linalg.slogdet(expected.covariance)[1] if len(expected.covariance) else 0.0
    assert found.log_determinant == pytest.approx(log_det, rel=1e-8, abs=1e-7)
    ones = np.linalg.inv(visible).sum(axis=1)
    np.testing.assert_allclose(found.ones_solved(), ones, rtol=1e-7, atol=1e-9 / source.scale)
    cross, hidden = found.expected_second_moments(expected.block)
    np.testing.assert_allclose(cross.T, expected.regression @ expected.block, **close)
    np.testing.assert_allclose(hidden, expected.moment, **close)


@given(seeds)
def test_a_source_conditions_and_has_the_covariance_of_its_vector(seed):
    source, _, visible, expected, model, scale = distribution(seed, CovarianceForm)
    seen = np.arange(len(model)) < len(visible)
    whole = source.covariance(model, scale)
    parts = [whole[np.ix_(one, two)] for one, two in ((~seen, ~seen), (~seen, seen))]
    brute = plain_sources.condition(*parts, whole[np.ix_(seen, seen)], expected.block)
    found = source.condition(GaussianModel(model), scale, seen)
    unit = source.scale * (1.0 + source.constant)
    np.testing.assert_allclose(found.regression, brute.regression.T, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(found.covariance, brute.covariance, rtol=1e-8, atol=1e-8 * unit)


def centered_kernel(seed):
    """A visible block in units of its scale, and the covariance G without the constant."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 7))
    root = rng.standard_normal((size, int(rng.integers(1, 5))))
    block = root @ root.T + 10.0 ** rng.uniform(-2, 2)
    return rng, block, random_covariance(rng, size)


@given(seeds)
def test_the_constant_of_an_e_step_is_the_best_one(seed):
    """Against a search; and what is said of any constant, against brute force."""
    rng, block, base = centered_kernel(seed)
    n = len(block)
    source = Source(1.0, float("nan"), 1.0)
    centered = Centered.of(block, source)
    np.testing.assert_allclose(centered.moment + centered.off_diagonal, block, atol=1e-12 * n)
    weights = np.linalg.inv(base).sum(axis=1)

    def level(c):
        return plain_sources.plain.log_gaussian(block, base + c)

    best = Constant.of(weights, centered, float("nan"))
    searched = minimize_scalar(lambda c: -level(c), bounds=(0.0, 1e4), options={"xatol": 1e-9})
    assert best.variance >= 0.0
    assert level(best.variance) >= -searched.fun - 1e-9 * (1.0 + abs(searched.fun))
    held = float(rng.exponential())
    found = Constant.of(weights, centered, held)
    expected = level(best.variance) - level(held)
    assert found.level(best.variance) - found.level(held) == pytest.approx(expected, abs=1e-8)
    # g given x_v, from its joint distribution with x_v.
    posterior = plain_sources.condition(
        np.array([[held]]), np.full((1, n), held), base + held, block
    )
    divergence = plain_sources.plain.log_gaussian(posterior.moment, np.array([[held]]))
    assert found.divergence() == pytest.approx(-divergence - posterior.entropy, abs=1e-8)
    # x_v - g 1, whose second moment takes the constant out.
    left = np.eye(n) - np.ones((n, 1)) @ posterior.regression
    without = left @ block @ left.T + posterior.covariance
    np.testing.assert_allclose(found.without(centered, np.empty((n, n))), without, atol=1e-8)


@given(seeds)
def test_the_constants_of_a_model_are_the_best_ones(seed):
    rng = np.random.default_rng(seed)
    em = draw_problem(rng, regular=True).em()
    setting = setting_of(em)
    model = random_covariance(rng, len(em.objects))
    found = em.update_constants(GaussianModel(model)).constant
    for k, c in enumerate(found):
        at = setting.at(found)

        def level(value, k=k, at=at):
            constant = at.constant.copy()
            constant[k] = value
            return plain_sources.log_likelihood(at.at(constant), k, model)

        searched = minimize_scalar(
            lambda value, level=level: -level(value), bounds=(0.0, 100.0 + 10.0 * c)
        )
        assert level(c) >= -searched.fun - 1e-9 * (1.0 + abs(searched.fun))


def test_sources_are_a_dataset_and_back():
    stack = reference_stack()
    sources = Sources.estimated(stack, sharing=[1.0, 0.5, 0.0], degrees_of_freedom=[1, 2, 3])
    sources = sources.with_constants(np.array([0.5, 0.0, 2.0]))
    dataset = sources.dataset
    again = Sources.of_dataset(dataset.isel(kernel=[2, 0, 1]), stack["kernel"].values.tolist())
    assert again.dataset.identical(dataset)
    assert list(again) == list(sources)
    assert again[1] == Source(sources.scale[1], 0.0, 0.5)
    assert sources.total_degrees_of_freedom == 3.0  # the third shares nothing
    assert "shared constant 0.459" in repr(sources)


def test_identical_sources_are_the_papers():
    sources = Sources.identical(["a", "b"])
    assert sources.is_identical
    assert all(source.is_plain for source in sources)
    assert not Sources.estimated(stack_kernels(np.eye(2)[None])).is_identical


@pytest.mark.parametrize("wrong", [-0.1, 1.1, np.nan, np.inf, "x", True, None])
def test_a_sharing_is_a_number_from_0_to_1(wrong):
    with pytest.raises(KernelError, match=r"sharing of kernel 'Q2'.*from 0 to 1"):
        Sources.estimated(reference_stack(), sharing=[1.0, wrong, 1.0])


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ([1.0, 1.0], KernelError, "2 numbers for 3 kernels"),
        (np.ones((3, 1)), KernelError, "2 dims found"),
        ({"Q1": 1.0, "Q2": 1.0}, LabelError, "none for kernel 'Q3'"),
        ({"Q1": 1.0, "Q2": 1.0, "Q3": 1.0, "Q9": 1.0}, LabelError, "there is no kernel 'Q9'"),
        (xr.DataArray([1.0] * 3, {"object": [0, 1, 2]}, ["object"]), LabelError, "labeled by"),
    ],
)
def test_sharings_are_one_per_kernel(given, error, message):
    with pytest.raises(error, match=message):
        Sources.estimated(reference_stack(), sharing=given)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda d: d.drop_vars("sharing"), KernelError, "no variable 'sharing'"),
        (lambda d: d.drop_vars("constant"), KernelError, "no variable 'constant'"),
        (lambda d: d.assign_coords(kernel=["a", "b", "c"]), LabelError, "none for kernel 'Q1'"),
        (lambda d: d.isel(kernel=[0, 1]), LabelError, "none for kernel 'Q3'"),
        (lambda d: d.assign(constant=d.constant - 9.0), KernelError, "constant of kernel 'Q1'"),
        (lambda d: d.assign(constant=d.constant + 1e300), KernelError, "constant of kernel 'Q1'"),
        (lambda d: d.assign(scale=-d.scale), KernelError, "scale of kernel 'Q1'"),
        (lambda d: d.assign(scale=d.scale * np.nan), KernelError, "scale of kernel 'Q1'"),
        (lambda d: d.assign(sharing=d.sharing + 1.0), KernelError, "sharing of kernel 'Q1'"),
        (lambda d: d.assign_attrs(shared_constant=-1.0), KernelError, "shared_constant"),
        (lambda d: d.expand_dims(draw=2), KernelError, "2 dims found"),
    ],
)
def test_a_dataset_that_holds_no_sources_is_refused(change, error, message):
    stack = reference_stack()
    dataset = Sources.estimated(stack).with_constants(np.ones(3)).dataset
    for take in (
        lambda given: Sources.of_dataset(given, ["Q1", "Q2", "Q3"]),
        lambda given: EM(stack, WishartPrior(1.0), sources=given),
    ):
        with pytest.raises(error, match=message):
            take(change(dataset))


@pytest.mark.parametrize("options", [{}, {"structure": PPCA(1)}])
def test_an_estimated_scale_out_of_range_is_refused(options):
    """Its fit could not be printed, saved or continued: `of_dataset` takes no such scale."""
    block = 1.1e-150 * np.array([[1.0, 0.9, 0.9], [0.9, 1.0, 0.9], [0.9, 0.9, 1.0]])
    stack = stack_kernels(np.stack([np.eye(3), block]), visible=[[1, 1, 1], [1, 1, 0]])
    with pytest.raises(KernelError, match=r"kernel 'Q2', scale: 1\.\d*e-151 .* Rescale the kernel"):
        fit(stack, **options)
