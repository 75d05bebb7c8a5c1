"""The score of a visible block, and the E-step by scores, against plain formulas."""

from unittest.mock import patch

import numpy as np
import plain
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import problems, random_covariance

from mkmc_prob import EM, GaussianModel, IndefiniteKernelError, WishartPrior, stack_kernels
from mkmc_prob.model.marginal import MarginalScore, cheaper_by_score

seeds = st.integers(0, 2**32 - 1)


@given(problems(), seeds, seeds)
def test_an_e_step_by_scores_is_the_papers(problem, seed, chosen):
    rng = np.random.default_rng(seed)
    model = GaussianModel(random_covariance(rng, problem.stack.sizes["object"]))
    by_score = np.random.default_rng(chosen).random(len(problem.visible)) < 0.7
    with patch("mkmc_prob.em.full.cheaper_by_score", lambda *_: by_score):
        em = EM(problem.stack, problem.prior, problem.degrees_of_freedom)
    statistics = em.e_step(model)
    assert (statistics.second_moment == statistics.second_moment.T).all()
    completed = plain.e_step(problem.stack.values, problem.visible, model.matrix)
    weighted = np.einsum("k,kij->ij", problem.degrees_of_freedom, completed)
    np.testing.assert_allclose(statistics.second_moment, weighted, rtol=1e-9, atol=1e-9)
    rows = zip(problem.stack.values, problem.visible, problem.degrees_of_freedom, strict=True)
    for k, (kernel, seen, nu) in enumerate(rows):
        block = np.ix_(seen, seen)
        expected = nu * plain.log_gaussian(kernel[block], model.matrix[block])
        assert statistics.log_likelihood[k] == pytest.approx(expected, rel=1e-9, abs=1e-9)
        hidden = np.ix_(~seen, ~seen)
        of_hidden = np.linalg.slogdet(np.linalg.inv(np.linalg.inv(model.matrix)[hidden]))[1]
        entropy = nu * 0.5 * ((~seen).sum() * np.log(2 * np.pi * np.e) + of_hidden)
        assert statistics.entropy[k] == pytest.approx(entropy, rel=1e-9, abs=1e-9)


@given(st.integers(1, 6), seeds)
def test_the_score_is_the_derivative_of_the_log_likelihood(size, seed):
    rng = np.random.default_rng(seed)
    model, moment = random_covariance(rng, size), random_covariance(rng, size)
    marginal = MarginalScore(model, np.arange(size), np.arange(size), moment)
    change = random_covariance(rng, size)
    step = 1e-5
    there, back = (plain.log_gaussian(moment, model + way * change) for way in (step, -step))
    derivative = 0.5 * np.sum(marginal.score * change)
    scale = 1 + np.abs(marginal.score).max() * np.abs(change).max() * size**2
    assert (there - back) / (2 * step) == pytest.approx(derivative, abs=1e-4 * scale)
    assert marginal.trace == pytest.approx(np.trace(np.linalg.inv(model) @ moment), rel=1e-9)
    assert marginal.log_determinant == pytest.approx(np.linalg.slogdet(model)[1], abs=1e-9)


def test_scores_are_taken_where_many_kernels_hide_most():
    assert cheaper_by_score([(200, 800)] * 7).all()
    assert not cheaper_by_score([(200, 800)] * 2).any()  # too few share the products with M
    assert not cheaper_by_score([(900, 100)] * 7).any()
    mixed = cheaper_by_score([(200, 800)] * 7 + [(1000, 0), (900, 100)])
    assert mixed.tolist() == [True] * 7 + [False] * 2


@pytest.mark.parametrize("condition", [1e2, 1e6, 1e10])
@pytest.mark.parametrize(("visible", "by_score"), [(15, False), (4, False), (15, True), (4, True)])
def test_an_e_step_is_as_exact_as_the_model_allows(visible, by_score, condition):
    """In the model's own frame, to eps times its condition number; against 50 digits."""
    import mpmath

    size, rng = 20, np.random.default_rng(0)
    axes, _ = np.linalg.qr(rng.standard_normal((size, size)))
    matrix = (axes * np.geomspace(1, 1 / condition, size)) @ axes.T
    model = GaussianModel((matrix + matrix.T) / 2)
    seen = rng.permutation(size) < visible
    with patch("mkmc_prob.em.full.cheaper_by_score", lambda *_: np.array([by_score])):
        em = EM(
            stack_kernels(random_covariance(rng, size)[None], visible=[seen]), WishartPrior(1.0)
        )
    statistics = em.e_step(model)
    v, h = np.flatnonzero(seen), np.flatnonzero(~seen)
    with mpmath.workdps(50):
        m, q = (mpmath.matrix(x.tolist()) for x in (model.matrix, em.kernels[0].moment))
        part = {
            a + b: mpmath.matrix(model.matrix[np.ix_(i, j)].tolist())
            for a, i in (("v", v), ("h", h))
            for b, j in (("v", v), ("h", h))
        }
        regression = part["vv"] ** -1 * part["vh"]
        error = mpmath.matrix(statistics.second_moment.tolist())
        blocks = (
            (v, v, q),
            (v, h, q * regression),
            (h, v, (q * regression).T),
            (h, h, part["hh"] - part["hv"] * regression + regression.T * q * regression),
        )
        for rows, columns, block in blocks:
            for i, row in enumerate(rows.tolist()):
                for j, column in enumerate(columns.tolist()):
                    error[row, column] -= block[i, j]
        frame = mpmath.cholesky(m) ** -1
        exact = frame * (mpmath.matrix(statistics.second_moment.tolist()) - error) * frame.T
        share = mpmath.mnorm(frame * error * frame.T, "f") / mpmath.mnorm(exact, "f")
    assert share <= 10 * np.finfo(float).eps * condition


def test_a_singular_block_is_named():
    with pytest.raises(IndefiniteKernelError, match="object 'b'"):
        MarginalScore(np.ones((2, 2)), np.arange(2), np.array(["a", "b"]), np.eye(2))
