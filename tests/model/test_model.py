"""The prior and the complete-data model against scipy.stats and closed forms."""

import numpy as np
import pandas as pd
import plain
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from strategies import random_covariance

from mkmc_prob import GaussianModel, IndefiniteKernelError, KernelError, LabelError, WishartPrior

seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(1, 6)


@given(sizes, st.floats(0.01, 30), seeds, st.booleans())
def test_the_prior_is_scipys_wishart_of_the_precision(size, strength, seed, identity):
    rng = np.random.default_rng(seed)
    scale = None if identity else random_covariance(rng, size)
    prior = WishartPrior(strength, scale)
    one, two = random_covariance(rng, size), random_covariance(rng, size)
    density = prior.precision_distribution(size)
    ours = prior.log_density(one) - prior.log_density(two)
    theirs = density.logpdf(np.linalg.inv(one)) - density.logpdf(np.linalg.inv(two))
    assert ours == pytest.approx(theirs, rel=1e-7, abs=1e-7)
    full = np.eye(size) if identity else scale
    assert prior.log_density(one) == pytest.approx(plain.log_prior(one, strength, full))
    # The mode of a Wishart distribution of df degrees is (df - l - 1) times its scale.
    mode = (density.df - size - 1) * density.scale
    np.testing.assert_allclose(np.linalg.inv(prior.mode(size)), mode, rtol=1e-7, atol=1e-10)


@given(st.integers(1, 4), seeds)
def test_the_prior_is_scipys_inverse_wishart_where_that_is_proper(size, seed):
    rng = np.random.default_rng(seed)
    prior = WishartPrior(2 * size + 1.5, random_covariance(rng, size))
    one, two = random_covariance(rng, size), random_covariance(rng, size)
    density = prior.covariance_distribution(size)
    ours = prior.log_density(one) - prior.log_density(two)
    assert ours == pytest.approx(density.logpdf(one) - density.logpdf(two), rel=1e-7, abs=1e-7)


def test_the_improper_reading_is_refused():
    with pytest.raises(KernelError, match=r"strength 4 is not above 2 l = 4"):
        WishartPrior(4.0).covariance_distribution(2)


def test_a_labelled_scale_is_aligned_by_label():
    scale = pd.DataFrame([[2.0, 0.5], [0.5, 3.0]], index=["b", "a"], columns=["b", "a"])
    prior = WishartPrior(1.0, scale)
    np.testing.assert_array_equal(
        prior.scale_matrix(np.array(["a", "b"])), [[3.0, 0.5], [0.5, 2.0]]
    )
    assert prior.scale.sel(object="a", object_bis="a") == 3.0
    model = GaussianModel(np.diag([1.0, 4.0]), objects=["a", "b"])
    assert prior.log_density(model) == pytest.approx(-0.5 * (np.log(4) + 3 / 1 + 2 / 4))
    with pytest.raises(LabelError, match="no row for object 'c'"):
        prior.scale_matrix(np.array(["a", "c"]))
    with pytest.raises(LabelError, match="it is 2 x 2, for 3 objects"):
        WishartPrior(1.0, np.eye(2)).scale_matrix(3)


@pytest.mark.parametrize(
    ("scale", "error", "match"),
    [
        (np.ones((2, 3)), KernelError, r"prior scale: shape \(2, 3\)"),
        (np.array([[1.0, 0.0], [0.5, 1.0]]), KernelError, "prior scale.*not symmetric"),
        (np.ones((2, 2)), IndefiniteKernelError, "prior scale: not positive definite"),
        (np.array([[1.0, 2.0], [2.0, 1.0]]), IndefiniteKernelError, "prior scale"),
        (np.array([[np.nan, 0.0], [0.0, 1.0]]), KernelError, "prior scale.*NaN"),
        (np.eye(2) * 1j, KernelError, "prior scale.*complex"),
    ],
)
def test_the_scale_is_checked(scale, error, match):
    with pytest.raises(error, match=match):
        WishartPrior(1.0, scale)


@given(sizes, seeds)
def test_the_model_is_an_exponential_family(size, seed):
    """<S, G> - A is scipy's log density, for the sum of a few vectors."""
    rng = np.random.default_rng(seed)
    model = GaussianModel(random_covariance(rng, size))
    vectors = rng.standard_normal((3, size))
    inner = np.vdot(vectors.T @ vectors, model.natural_parameter)
    expected = np.sum(stats.multivariate_normal(cov=model.matrix).logpdf(vectors))
    assert inner - model.cumulant(3) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(sizes, seeds)
def test_the_log_likelihood_of_a_part_is_scipys(size, seed):
    rng = np.random.default_rng(seed)
    objects = [f"o{i}" for i in range(size)]
    model = GaussianModel(random_covariance(rng, size), objects=objects)
    part = rng.permutation(size)[: rng.integers(1, size + 1)]
    vectors = rng.standard_normal((4, len(part)))
    labels = [objects[i] for i in part]
    moment = pd.DataFrame(vectors.T @ vectors / 4, index=labels, columns=labels)
    density = stats.multivariate_normal(cov=model.matrix[np.ix_(part, part)])
    expected = np.mean(density.logpdf(vectors))
    assert model.log_likelihood(moment) == pytest.approx(expected, rel=1e-9, abs=1e-9)
    inverse = np.linalg.inv(model.matrix[np.ix_(part, part)])
    length = np.mean(np.einsum("di,ij,dj->d", vectors, inverse, vectors))
    assert model.mahalanobis(moment) == pytest.approx(length, rel=1e-9)


def test_a_model_takes_labels_from_where_they_are():
    frame = pd.DataFrame(np.eye(2), index=["a", "b"], columns=["a", "b"])
    for covariance in (frame, xr.DataArray(frame, dims=("object", "object_bis"))):
        assert GaussianModel(covariance).covariance["object"].values.tolist() == ["a", "b"]
    assert GaussianModel(np.eye(2)).objects.tolist() == [0, 1]
    with pytest.raises(LabelError, match="has labels already"):
        GaussianModel(frame, objects=["c", "d"])
    with pytest.raises(LabelError, match="3 labels for 2 objects"):
        GaussianModel(np.eye(2), objects=["a", "b", "c"])


def test_the_models_arrays_cannot_be_written_to():
    matrix = np.eye(2)
    model = GaussianModel(matrix)
    matrix[0, 0] = 5.0
    assert model.matrix[0, 0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        model.matrix[0, 0] = 5.0


def test_conditioning_by_labels_and_by_mask_agree():
    model = GaussianModel(random_covariance(np.random.default_rng(0), 4), objects=list("abcd"))
    by_label = model.condition(["c", "a"])
    by_mask = model.condition(np.array([True, False, True, False]))
    np.testing.assert_array_equal(by_label.regression, by_mask.regression)
    assert by_label.visible.tolist() == ["a", "c"]
    assert by_label.hidden.tolist() == ["b", "d"]
    with pytest.raises(LabelError, match="no object 'e'"):
        model.condition(["a", "e"])
    with pytest.raises(KernelError, match=r"shape \(3,\) found, \(4,\) expected"):
        model.condition(np.array([True, False, True]))
    with pytest.raises(KernelError, match=r"\(3, 3\) found, \(2, 2\) expected"):
        by_mask.expected_second_moments(np.eye(3))


@given(sizes, seeds)
def test_conditional_entropy_is_scipys(size, seed):
    model = GaussianModel(random_covariance(np.random.default_rng(seed), size + 1))
    seen = np.arange(size + 1) < size // 2
    given_visible = model.condition(seen)
    expected = stats.multivariate_normal(cov=given_visible.covariance).entropy()
    assert given_visible.entropy == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_a_mask_is_aligned_by_label():
    model = GaussianModel(np.diag([1.0, 2.0, 3.0]), objects=list("abc"))
    mask = xr.DataArray([True, False, False], dims="object", coords={"object": list("cba")})
    for given_as in (mask, mask.to_series()):
        assert model.condition(given_as).visible.tolist() == ["c"]
    with pytest.raises(LabelError, match="does not say whether 'a' is visible"):
        model.condition(mask.isel(object=[0, 1]))
    assert model.condition(label for label in "ab").visible.tolist() == ["a", "b"]


STACK = xr.DataArray(np.ones((1, 2, 2)), coords={"k": [0], "i": [0, 1], "j": [0, 1]})


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: GaussianModel(STACK), r"model matrix: shape \(1, 2, 2\)"),
        (lambda: WishartPrior(1, STACK), r"prior scale: shape \(1, 2, 2\)"),
        (lambda: GaussianModel(np.eye(2)).log_likelihood(STACK), "second_moment: shape"),
        (lambda: GaussianModel([[1.0], [1.0, 2.0]]), "different lengths"),
        (lambda: GaussianModel(np.eye(2)).condition([[1.0], [1.0, 2.0]]), "different lengths"),
        (lambda: GaussianModel(np.ma.array(np.eye(2), mask=np.eye(2))), "NaN"),
        (lambda: GaussianModel(np.eye(2)).sample(-1, seed=0), "draws: -1"),
        (lambda: GaussianModel(np.eye(2)).sample(1, seed=-1), "seed: -1"),
        (lambda: GaussianModel(np.eye(2)).sample(1, seed=None), "seed: None"),
        (lambda: GaussianModel(np.eye(2)).cumulant(np.nan), "degrees_of_freedom: nan"),
        (lambda: WishartPrior(1.0).mode(-1), "objects: -1"),
        (lambda: GaussianModel(np.eye(3)).condition([1, 1, 0]), "Pass a mask as bools"),
        (lambda: GaussianModel(np.eye(2)).condition([1, 0]), "Pass a mask as bools"),
        (lambda: GaussianModel(np.eye(2)).condition([0]).sample([1j], seed=0), "visible_values"),
        (lambda: GaussianModel(np.eye(2)).condition([0]).sample([np.nan], seed=0), "finite"),
    ],
)
def test_odd_arguments_get_a_named_error(call, match):
    with pytest.raises(KernelError, match=match):
        call()


def test_numbers_of_other_kinds_are_taken():
    frame = pd.DataFrame({"a": [1.0, 0.5], "b": [0.5, 1.0]}, index=["a", "b"], dtype="Float64")
    assert GaussianModel(frame).matrix[0, 1] == 0.5
    np.testing.assert_array_equal(WishartPrior(1.0).mode(np.int64(2)), np.eye(2))
