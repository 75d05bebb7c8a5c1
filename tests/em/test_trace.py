"""The trace of an ascent against what its entries mean, written plainly."""

import numpy as np
import pytest
from hypothesis import given, settings
from problems import both_models, small_stack
from scipy.linalg import eigh
from strategies import problems

from mkmc_prob import EM, GaussianModel, WishartPrior, fit
from mkmc_prob.em.ascent import Ascent
from mkmc_prob.em.methods import method_of
from mkmc_prob.em.state import EMSteps
from mkmc_prob.em.trace import trace_of


def affine_distance(one: np.ndarray, two: np.ndarray) -> float:
    return float(np.sqrt((np.log(eigh(two, one, eigvals_only=True)) ** 2).sum()))


def kl_of_hidden(moment, seen, before, after):
    """E_q KL(p(h|v, M) || p(h|v, M+)) from the regressions and the conditional covariances."""
    if seen.all():
        return 0.0
    vv, vh, hh = np.ix_(seen, seen), np.ix_(seen, ~seen), np.ix_(~seen, ~seen)
    a, a_next = (np.linalg.solve(m[vv], m[vh]) for m in (before, after))
    c, c_next = (m[hh] - m[vh].T @ r for m, r in ((before, a), (after, a_next)))
    difference = a - a_next
    spread = c + difference.T @ moment @ difference
    trace = np.trace(np.linalg.solve(c_next, spread))
    logs = np.linalg.slogdet(c_next)[1] - np.linalg.slogdet(c)[1]
    return 0.5 * (trace - len(c) + logs)


@settings(max_examples=40)
@given(problems())
@pytest.mark.filterwarnings("ignore::mkmc_prob.MKMCWarning")
def test_the_two_parts_of_the_gain_are_what_they_are_called(problem):
    em = EM(problem.stack, problem.prior, problem.degrees_of_freedom)
    models = [em.initial_model()]
    for _ in range(3):
        models.append(em.m_step(em.e_step(models[-1])))
    climb = Ascent(EMSteps(em), models[0], tol=0)
    for _ in range(3):
        climb.advance()
    trace = trace_of(climb)
    weight = problem.prior.strength + problem.degrees_of_freedom.sum()
    assert np.isnan(trace["gain_q_function"][0])
    for i in range(3):
        before, after = models[i].matrix, models[i + 1].matrix
        ratio = np.linalg.solve(before, after)
        rise = 0.5 * weight * (np.trace(ratio) - len(ratio) - np.linalg.slogdet(ratio)[1])
        divergence = sum(
            nu * kl_of_hidden(np.nan_to_num(kernel)[np.ix_(seen, seen)], seen, before, after)
            for nu, kernel, seen in zip(
                problem.degrees_of_freedom, problem.stack.values, problem.visible, strict=True
            )
        )
        bound = trace["rounding_bound"].values[i : i + 2].sum() + 1e-12
        assert trace["gain_q_function"][i + 1] == pytest.approx(rise, rel=1e-6, abs=bound)
        assert trace["gain_divergence"][i + 1] == pytest.approx(divergence, rel=1e-6, abs=bound)
        assert trace["gain_q_function"][i + 1] >= -bound
        assert trace["gain_divergence"][i + 1] >= -bound


@both_models
def test_the_parts_of_the_gain_are_known_only_of_em_steps(model):
    trace = fit(small_stack(), **model, max_iter=6, tol=0).trace
    known = ~np.isnan(trace["gain_q_function"].values)
    assert known.tolist() == [False, True, False, False, False, False, True]
    total = trace["gain_q_function"] + trace["gain_divergence"] + trace["gain_constants"]
    gains = trace["penalized_log_likelihood"].diff("iteration")
    np.testing.assert_allclose(total[known], gains.values[known[1:]])


@pytest.mark.parametrize("method", ["em", "geodesic"])
def test_lengths_and_gradients_are_those_of_the_geometry(method):
    em = EM(small_stack(size=8), WishartPrior(0.1))
    climb = Ascent(method_of(method, em), em.initial_model(), tol=0)
    models = [climb.model]
    for _ in range(10):
        climb.advance()
        models.append(climb.model)
    trace = trace_of(climb)
    for i in range(4, 10):
        here, there = models[i].matrix, models[i + 1].matrix
        length = affine_distance(here, there)
        assert trace["step_length"][i + 1] == pytest.approx(length, rel=0.15)
        if not np.isnan(trace["gradient_norm"][i]):
            update = em.m_step(em.e_step(GaussianModel(here, objects=em.objects))).matrix
            factor = np.linalg.inv(np.linalg.cholesky(here))
            norm = np.linalg.norm(factor @ update @ factor.T - np.eye(8))
            rel = 1e-8 if method == "geodesic" else 0.15
            assert trace["gradient_norm"][i] == pytest.approx(norm, rel=rel)
    assert np.isfinite(trace["gradient_norm"][1:-1]).all()
    assert (np.diff(trace["seconds"]) >= 0).all()
