"""The E-step without any of its matrix formulas: conditional moments, one vector at a time.

For kernels Q = X X' / d of a feature matrix X with missing rows, the E-step's completed kernel is
the average over the d columns of E[x x' | visible part], each by numpy alone for one vector.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from strategies import problems, random_covariance

from mkmc_prob import EM, GaussianModel


def conditional_second_moment(x, seen, covariance):
    """E[x x' | x_v] for one vector x ~ N(0, covariance), from its conditional mean and spread."""
    hidden = ~seen
    solved = np.linalg.solve(covariance[np.ix_(seen, seen)], covariance[np.ix_(seen, hidden)])
    full = x.copy()
    full[hidden] = solved.T @ x[seen]
    moment = np.outer(full, full)
    moment[np.ix_(hidden, hidden)] += (
        covariance[np.ix_(hidden, hidden)] - covariance[np.ix_(hidden, seen)] @ solved
    )
    return moment


@settings(max_examples=40)
@given(problems(), st.integers(0, 2**32 - 1))
def test_the_e_step_averages_conditional_second_moments(problem, seed):
    size = problem.stack.sizes["object"]
    covariance = random_covariance(np.random.default_rng(seed), size)
    em = EM(problem.stack, problem.prior, problem.degrees_of_freedom)
    completed = em.e_step(GaussianModel(covariance)).completed.values
    for kernel, features, seen in zip(completed, problem.features, problem.visible, strict=True):
        moments = [conditional_second_moment(x, seen, covariance) for x in features.T]
        np.testing.assert_allclose(kernel, np.mean(moments, axis=0), rtol=1e-8, atol=1e-8)


@settings(max_examples=40)
@given(problems(), st.integers(0, 2**32 - 1))
def test_the_likelihood_averages_scipys_log_densities(problem, seed):
    size = problem.stack.sizes["object"]
    covariance = random_covariance(np.random.default_rng(seed), size)
    em = EM(problem.stack, problem.prior, problem.degrees_of_freedom)
    per_kernel = em.e_step(GaussianModel(covariance)).log_likelihood
    for value, features, seen, nu in zip(
        per_kernel, problem.features, problem.visible, problem.degrees_of_freedom, strict=True
    ):
        expected = 0.0
        if seen.any():
            density = stats.multivariate_normal(cov=covariance[np.ix_(seen, seen)])
            expected = np.mean(density.logpdf(features[seen].T))
        assert value == pytest.approx(nu * expected, rel=1e-8, abs=1e-8)


def test_conditional_draws_have_the_conditional_moments():
    covariance = random_covariance(np.random.default_rng(1), 4)
    given_visible = GaussianModel(covariance, objects=list("abcd")).condition(["a", "c"])
    values = np.tile([0.7, -1.2], (200_000, 1))
    draws = given_visible.sample(values, seed=0)
    assert draws["object"].values.tolist() == ["b", "d"]
    v, h = [0, 2], [1, 3]
    mean = covariance[np.ix_(h, v)] @ np.linalg.solve(covariance[np.ix_(v, v)], [0.7, -1.2])
    # Five standard errors of a mean of 200,000 draws.
    np.testing.assert_allclose(draws.mean("draw"), mean, atol=5 * 200_000**-0.5 * 1.5)
    np.testing.assert_allclose(np.cov(draws.values.T), given_visible.covariance, atol=0.02)


def test_draws_of_the_model_have_its_covariance():
    covariance = random_covariance(np.random.default_rng(2), 3)
    draws = GaussianModel(covariance).sample(200_000, seed=3)
    np.testing.assert_allclose(np.cov(draws.values.T), covariance, atol=0.03)
    again = GaussianModel(covariance).sample(200_000, seed=3)
    assert draws.identical(again)
