"""Models of few factors and what an E-step needs of them, against dense matrices; bad input."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_factors import STRUCTURES, dense
from scipy import stats
from strategies import random_covariance

from mkmc_prob import PPCA, FactorAnalysis, GaussianModel, IndefiniteKernelError, KernelError
from mkmc_prob.model.factors import FactorPosterior, KernelFactors, own_factors
from mkmc_prob.model.low_rank import LowRankModel, canonical
from mkmc_prob.model.sources import Source
from mkmc_prob.model.structures import FULL, structure_of

seeds = st.integers(0, 2**32 - 1)
both = pytest.mark.parametrize("kind", STRUCTURES)
close = {"rtol": 1e-9, "atol": 1e-9}


def parts(seed, *, largest=7):
    """Loadings and noise of a random model; more factors than objects, too."""
    rng = np.random.default_rng(seed)
    size, rank = rng.integers(1, largest), rng.integers(1, 5)
    return rng.standard_normal((size, rank)), rng.uniform(0.1, 2.0, size=size)


def random_model(seed):
    loadings, noise = parts(seed)
    return LowRankModel(loadings, noise, np.array([f"p{i}" for i in range(len(noise))]))


@given(seeds)
def test_the_posterior_is_that_of_the_joint_distribution(seed):
    loadings, noise = parts(seed)
    posterior, matrix = FactorPosterior(loadings, noise), dense(loadings, noise)
    inverse = np.linalg.inv(matrix)
    np.testing.assert_allclose(posterior.regression, inverse @ loadings, **close)
    left = np.eye(loadings.shape[1]) - loadings.T @ inverse @ loadings
    np.testing.assert_allclose(posterior.covariance, left, **close)
    assert posterior.log_determinant == pytest.approx(np.linalg.slogdet(matrix)[1], abs=1e-9)
    np.testing.assert_allclose(posterior.ones_solved(), inverse.sum(axis=1), **close)


def test_the_posterior_without_objects_is_the_prior():
    posterior = FactorPosterior(np.ones((0, 3)), np.ones(0))
    np.testing.assert_array_equal(posterior.covariance, np.eye(3))
    assert posterior.regression.shape == (0, 3)
    assert posterior.log_determinant == 0.0


@pytest.mark.parametrize("noise", [1e-3, 1e-6, 1e-9, 1e-12])
def test_the_regression_solves_its_equations_where_the_noise_of_an_object_is_small(noise):
    """Found by a search: by the inverse of G, L was wrong by 5e-3 nats, 1,000 times its bound."""
    rng = np.random.default_rng(0)
    loadings, variances = rng.standard_normal((6, 3)), rng.uniform(0.3, 1.0, size=6)
    variances[2] = noise
    posterior = FactorPosterior(loadings, variances)
    rest = posterior.precision @ posterior.regression.T - posterior.weighted.T
    deviations = np.sqrt(np.diagonal(posterior.precision))
    sizes = np.outer(deviations, deviations @ np.abs(posterior.regression.T))
    assert (np.abs(rest) <= 4.0 * np.finfo(float).eps * sizes).all()


@given(seeds)
def test_the_prior_is_one_more_kernel(seed):
    loadings, noise = parts(seed)
    size = len(noise)
    inverse = np.linalg.inv(dense(loadings, noise))
    scale = random_covariance(np.random.default_rng(seed), size)
    for given_scale, shared in ((scale, 0.0), (None, 0.0), (None, 0.8)):
        t = np.eye(size) + shared if given_scale is None else scale
        found = KernelFactors.of_prior(given_scale, shared, loadings, noise)
        assert found.trace == pytest.approx(np.trace(inverse @ t), rel=1e-9)
        np.testing.assert_allclose(found.cross, t @ inverse @ loadings, **close)
        np.testing.assert_allclose(found.squares, np.diagonal(t), **close)
        moment = found.posterior.covariance + loadings.T @ inverse @ t @ inverse @ loadings
        np.testing.assert_allclose(found.moment, moment, **close)


@pytest.mark.parametrize("sharing", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("shared", [0.0, 0.8])
def test_a_kernels_own_part_is_in_its_loadings_and_its_noise(sharing, shared):
    loadings, noise = np.random.default_rng(0).standard_normal((5, 2)), np.arange(1.0, 6.0)
    own = own_factors(Source(1.0, 0.0, sharing), loadings, noise, shared)
    expected = sharing * dense(loadings, noise) + (1.0 - sharing) * (np.eye(5) + shared)
    np.testing.assert_allclose(dense(*own), expected, **close)


@given(seeds)
def test_a_model_is_the_gaussian_model_of_its_matrix(seed):
    model = random_model(seed)
    matrix = dense(model.factor_loadings, model.noise_variances)
    whole = GaussianModel((matrix + matrix.T) / 2, objects=model.objects)
    assert isinstance(model, GaussianModel)
    for name in ("matrix", "precision", "cholesky", "covariance", "natural_parameter"):
        np.testing.assert_allclose(getattr(model, name), getattr(whole, name), **close)
    for exact in (model.matrix, model.precision):
        np.testing.assert_array_equal(exact, exact.T)
    assert not model.matrix.flags.writeable
    assert model.log_determinant == pytest.approx(whole.log_determinant, abs=1e-9)
    assert model.cumulant(2.0) == pytest.approx(whole.cumulant(2.0), abs=1e-9)
    moment = random_covariance(np.random.default_rng(seed), len(matrix))
    assert model.log_likelihood(moment) == pytest.approx(whole.log_likelihood(moment), rel=1e-9)
    assert model.mahalanobis(moment) == pytest.approx(whole.mahalanobis(moment), rel=1e-9)
    visible = np.random.default_rng(seed).random(len(matrix)) < 0.6
    one, two = (each.condition(visible) for each in (model, whole))
    np.testing.assert_allclose(one.regression, two.regression, **close)
    np.testing.assert_allclose(one.covariance, two.covariance, **close)
    places = np.flatnonzero(visible)
    some = model.restricted(places, model.objects[places])
    assert isinstance(some, LowRankModel)
    np.testing.assert_allclose(some.matrix, matrix[np.ix_(places, places)], **close)


def test_the_log_density_is_scipys():
    model, rng = random_model(4), np.random.default_rng(4)
    x = rng.standard_normal((len(model.objects), 20))
    density = stats.multivariate_normal(cov=dense(model.factor_loadings, model.noise_variances))
    found = model.log_likelihood(x @ x.T / 20)
    assert found == pytest.approx(density.logpdf(x.T).mean(), rel=1e-10)
    drawn = model.sample(20_000, seed=0).values
    np.testing.assert_allclose(drawn.T @ drawn / 20_000, model.matrix, atol=0.2)


@given(seeds)
def test_canonical_loadings(seed):
    loadings, noise = parts(seed)
    found = canonical(loadings, noise)
    np.testing.assert_allclose(found @ found.T, loadings @ loadings.T, **close)
    assert found.shape[1] == min(loadings.shape)
    strengths = found.T @ (found / noise[:, None])
    np.testing.assert_allclose(strengths, np.diag(np.diagonal(strengths)), atol=1e-8)
    assert (np.diff(np.diagonal(strengths)) <= 1e-9).all()
    peaks = np.abs(found).argmax(axis=0)
    assert (found[peaks, np.arange(found.shape[1])] > 0.0).all()
    # Whatever the rotation, the loadings are these.
    rng = np.random.default_rng(seed)
    rotation, _ = np.linalg.qr(rng.standard_normal((loadings.shape[1],) * 2))
    gaps = np.diff(np.append(np.diagonal(strengths), 0.0))
    ties = np.sort(np.abs(found), axis=0)[-2:] if len(found) > 1 else np.zeros((2, 1))
    if np.abs(gaps).min() > 1e-3 and np.diff(ties, axis=0).min(initial=1.0) > 1e-3:
        again = canonical(loadings @ rotation, noise)
        np.testing.assert_allclose(again, found, atol=1e-7)


def test_the_loadings_of_a_model_are_canonical_and_labeled():
    model = random_model(4)
    assert model.loadings.dims == ("object", "factor")
    assert model.loadings["object"].values.tolist() == model.objects.tolist()
    assert model.loadings["factor"].values.tolist() == list(range(1, model.rank + 1))
    found = canonical(model.factor_loadings, model.noise_variances)
    np.testing.assert_array_equal(model.loadings, found)
    np.testing.assert_array_equal(model.noise, model.noise_variances)
    assert model.noise["object"].values.tolist() == model.objects.tolist()


def test_a_model_can_be_stored_copied_and_shown():
    model = random_model(4)
    stored = LowRankModel.of_dataset(model.to_dataset())
    for again in (stored, pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        np.testing.assert_array_equal(again.factor_loadings, model.factor_loadings)
        np.testing.assert_array_equal(again.noise_variances, model.noise_variances)
        np.testing.assert_array_equal(again.objects, model.objects)
        assert again.log_determinant == model.log_determinant
        assert repr(again) == repr(model)
    assert repr(model).startswith(f"LowRankModel of {len(model.objects)} objects and {model.rank} ")
    assert "noise" in repr(model)
    assert "<table" in model._repr_html_()


def test_a_model_without_noise_is_refused():
    expected = r"factors of the model matrix: not positive .* at factor 2"
    with pytest.raises(IndefiniteKernelError, match=expected):
        FactorPosterior(np.array([[1.0, 1.0], [1.0, 1.0]]), np.array([1e-200, 1e-200]))


# Structures


@both
@pytest.mark.parametrize("rank", [0, -1, 2.5, 2.0, "2", None, True, np.nan])
def test_ranks_are_whole_numbers_from_1(kind, rank):
    with pytest.raises(KernelError, match=rf"{kind.__name__}, rank: .* a whole number >= 1"):
        kind(rank)


@both
@pytest.mark.parametrize("number", [-1.0, -1e-9, np.nan, np.inf, "a", None, [0.1]])
def test_noise_strengths_are_numbers_from_0(kind, number):
    with pytest.raises(KernelError, match=rf"{kind.__name__}, noise_strength: .* a number >= 0"):
        kind(2, noise_strength=number)


@both
@pytest.mark.parametrize("number", [0.0, -1.0, np.nan, np.inf, "a", None])
def test_noise_scales_are_numbers_above_0(kind, number):
    with pytest.raises(KernelError, match=rf"{kind.__name__}, noise_scale: .* a finite number > 0"):
        kind(2, noise_scale=number)


def test_structures_are_values():
    assert PPCA(2) == PPCA(np.int64(2), 0.1, 1)
    assert PPCA(2) != FactorAnalysis(2)
    assert len({PPCA(2), PPCA(3), PPCA(2, 0.0), FactorAnalysis(2), PPCA(2)}) == 4
    assert [structure.name for structure in (PPCA(2), FactorAnalysis(3), FULL)] == [
        "PPCA(2)",
        "FactorAnalysis(3)",
        "full",
    ]
    assert structure_of("full") is FULL
    assert structure_of(PPCA(2)) == PPCA(2)
    with pytest.raises(AttributeError):
        PPCA(2).rank = 3


@pytest.mark.parametrize("value", ["PPCA", "ppca(2)", 2, None, PPCA, np.eye(2)])
def test_what_is_no_structure_is_refused(value):
    with pytest.raises(KernelError, match=r"(?s)structure: .*'full', PPCA\(rank\) or FactorAn"):
        structure_of(value)


@both
@settings(max_examples=20)
@given(seed=seeds)
def test_the_rounding_terms_are_above_the_terms_that_they_bound(kind, seed):
    """Sizes that log det and the trace are made of."""
    loadings, noise = parts(seed)
    if kind is PPCA:
        noise[:] = noise[0]
    found = KernelFactors.of_prior(None, 0.5, loadings, noise)
    size = found.rounding_terms(np.full(len(noise), 1.0 + 0.5 * len(noise)))
    assert size >= np.abs(found.squares / noise).sum()
    assert size >= loadings.shape[1]
