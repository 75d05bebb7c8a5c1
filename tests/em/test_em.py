"""The identities of the derivation, on random stacks, against plain formulas."""

import copy
import pickle
from unittest.mock import patch

import numpy as np
import pandas as pd
import plain
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import both_models
from scipy import stats
from strategies import Problem, problems, random_covariance

from mkmc_prob import EM, GaussianModel, KernelError, LabelError, WishartPrior, fit, stack_kernels
from mkmc_prob.model.conditional import CovarianceForm, PrecisionForm

seeds = st.integers(0, 2**32 - 1)
close = {"rel": 1e-9, "abs": 1e-9}


def em_of(problem: Problem) -> EM:
    return EM(problem.stack, problem.prior, problem.degrees_of_freedom)


def random_model(problem: Problem, seed: int) -> GaussianModel:
    size = problem.stack.sizes["object"]
    return GaussianModel(random_covariance(np.random.default_rng(seed), size))


def parts(problem: Problem):
    """The problem as the plain formulas take it."""
    return (
        problem.stack.values,
        problem.visible,
        problem.degrees_of_freedom,
        problem.prior.strength,
        problem.scale,
    )


@given(problems(), seeds)
def test_the_penalized_log_likelihood_is_its_definition(problem, seed):
    model = random_model(problem, seed)
    expected = plain.penalized_log_likelihood(*parts(problem), model.matrix)
    assert em_of(problem).penalized_log_likelihood(model) == pytest.approx(expected, **close)


@given(problems(), seeds)
def test_the_e_step_and_the_m_step_are_the_papers(problem, seed):
    em, model = em_of(problem), random_model(problem, seed)
    statistics = em.e_step(model)
    completed = plain.e_step(problem.stack.values, problem.visible, model.matrix)
    np.testing.assert_allclose(statistics.completed.values, completed, rtol=1e-9, atol=1e-9)
    weighted = np.einsum("k,kij->ij", problem.degrees_of_freedom, completed)
    np.testing.assert_allclose(statistics.sufficient_statistic, weighted, rtol=1e-9, atol=1e-9)
    after = plain.m_step(
        completed, problem.degrees_of_freedom, problem.prior.strength, problem.scale
    )
    np.testing.assert_allclose(em.m_step(statistics).matrix, after, rtol=1e-9, atol=1e-9)


@given(problems(), seeds)
def test_symmetry_is_exact(problem, seed):
    em = em_of(problem)
    statistics = em.e_step(random_model(problem, seed))
    model = em.m_step(statistics)
    for matrix in (statistics.second_moment, model.matrix, model.precision):
        assert (matrix == matrix.T).all()
    completed = statistics.completed.values
    assert (completed == completed.transpose(0, 2, 1)).all()
    seen = ~np.isnan(problem.stack.values)
    assert (completed[seen] == problem.stack.values[seen]).all()


@given(problems(), seeds)
def test_q_function_plus_entropy_is_the_penalized_log_likelihood(problem, seed):
    em, model = em_of(problem), random_model(problem, seed)
    statistics = em.e_step(model)
    total = em.q_function(model, statistics) + em.entropy(statistics)
    expected = plain.penalized_log_likelihood(*parts(problem), model.matrix)
    assert total == pytest.approx(expected, **close)


@given(problems(), seeds, seeds)
def test_the_q_function_is_its_definition(problem, seed, other):
    em, model, at = em_of(problem), random_model(problem, seed), random_model(problem, other)
    completed = plain.e_step(problem.stack.values, problem.visible, at.matrix)
    expected = plain.log_prior(model.matrix, problem.prior.strength, problem.scale) + sum(
        nu * plain.log_gaussian(kernel, model.matrix)
        for nu, kernel in zip(problem.degrees_of_freedom, completed, strict=True)
    )
    assert em.q_function(model, em.e_step(at)) == pytest.approx(expected, **close)


@given(problems(), seeds)
def test_the_entropy_is_scipys(problem, seed):
    em, model = em_of(problem), random_model(problem, seed)
    expected = 0.0
    for seen, nu in zip(problem.visible, problem.degrees_of_freedom, strict=True):
        if not seen.all():
            hidden = ~seen
            precision = np.linalg.inv(model.matrix)[np.ix_(hidden, hidden)]
            covariance = np.linalg.inv(precision)
            expected += (
                nu * stats.multivariate_normal(cov=(covariance + covariance.T) / 2).entropy()
            )
    assert em.entropy(em.e_step(model)) == pytest.approx(expected, **close)


@given(problems(), seeds)
def test_the_gain_of_an_em_step_has_its_two_parts_and_neither_is_negative(problem, seed):
    em, model = em_of(problem), random_model(problem, seed)
    statistics = em.e_step(model)
    better = em.m_step(statistics)
    gain = em.penalized_log_likelihood(better) - em.penalized_log_likelihood(model)
    maximization = em.q_function(better, statistics) - em.q_function(model, statistics)
    # The closed form of the E-step's part, kernel by kernel.
    information = 0.0
    for seen, nu, kernel in zip(
        problem.visible, problem.degrees_of_freedom, problem.stack.values, strict=True
    ):
        before, after = model.condition(seen), better.condition(seen)
        shift = before.regression - after.regression
        spread = before.covariance + shift.T @ kernel[np.ix_(seen, seen)] @ shift
        if not seen.all():
            information += nu * plain_kl_of_spread(spread, before.covariance, after.covariance)
    assert gain == pytest.approx(maximization + information, rel=1e-8, abs=1e-8)
    assert maximization >= -1e-9
    assert information >= -1e-9
    # The M-step's part costs nothing extra: it is a function of M^-1 F alone.
    ratio = np.linalg.solve(model.matrix, better.matrix)
    weight = problem.prior.strength + problem.degrees_of_freedom.sum()
    free = 0.5 * weight * (np.trace(ratio) - len(ratio) - np.linalg.slogdet(ratio)[1])
    assert maximization == pytest.approx(free, rel=1e-8, abs=1e-8)


def plain_kl_of_spread(spread, before, after):
    """E_q KL(N(A'v, C) || N(A+'v, C+)) with the spread C + D' Q_vv D."""
    return 0.5 * (
        np.trace(np.linalg.inv(after) @ spread)
        - len(after)
        + np.linalg.slogdet(after)[1]
        - np.linalg.slogdet(before)[1]
    )


@given(problems(full_rank=True), seeds)
def test_j_plus_l_is_constant(problem, seed):
    em, model = em_of(problem), random_model(problem, seed)
    statistics = em.e_step(model)
    objective = em.kl_objective(model, statistics.completed)
    constant = problem.prior.strength * (len(model.objects) + np.linalg.slogdet(problem.scale)[1])
    for seen, nu, kernel in zip(
        problem.visible, problem.degrees_of_freedom, problem.stack.values, strict=True
    ):
        block, n = kernel[np.ix_(seen, seen)], seen.sum()
        log_det = np.linalg.slogdet(block)[1] if n else 0.0
        constant += nu * (log_det + n + n * np.log(2 * np.pi))
    total = objective + em.penalized_log_likelihood(model)
    assert total == pytest.approx(-0.5 * constant, rel=1e-8, abs=1e-8)


def test_j_is_the_papers_formula_and_infinite_where_a_kernel_is_singular():
    rng = np.random.default_rng(0)
    kernels = np.array([random_covariance(rng, 4) for _ in range(2)])
    stack = stack_kernels(kernels, visible=[[1, 1, 0, 1], [0, 1, 1, 1]])
    em = EM(stack, WishartPrior(0.3))
    model = em.initial_model()
    completed = em.e_step(model).completed
    expected = 0.3 * plain.kl(np.eye(4), model.matrix) + sum(
        plain.kl(kernel, model.matrix) for kernel in completed.values
    )
    assert em.kl_objective(model, completed) == pytest.approx(expected)
    singular = EM(stack_kernels(np.ones((1, 4, 4))), WishartPrior(0.3))
    statistics = singular.e_step(singular.initial_model())
    assert singular.kl_objective(statistics.model, statistics.completed) == np.inf
    assert np.isfinite(singular.penalized_log_likelihood(statistics.model))


def test_what_j_and_the_bound_cannot_use_is_named():
    stack = stack_kernels(np.stack([np.eye(3)] * 2), visible=[[1, 1, 0], [0, 1, 1]])
    em = EM(stack, WishartPrior(0.3))
    model = em.initial_model()
    completed = em.complete(model)
    with pytest.raises(KernelError, match="model: int found"):
        em.kl_objective(1, completed)
    with pytest.raises(KernelError, match="completed: a labeled stack"):
        em.kl_objective(model, 2)
    with pytest.raises(KernelError, match=r"completed, kernel 'Q1': .*2.* hidden"):
        em.kl_objective(model, stack)
    with pytest.raises(LabelError, match="completed: there is no kernel 'Q2'"):
        em.kl_objective(model, completed.isel(kernel=[0]))
    with pytest.raises(KernelError, match="statistics: str found"):
        em.rounding_bound("x")


@given(st.integers(1, 8), st.integers(0, 255), seeds)
def test_the_precision_form_is_the_direct_form(size, pattern, seed):
    rng = np.random.default_rng(seed)
    model = GaussianModel(random_covariance(rng, size))
    seen = np.array([bool(pattern >> i & 1) for i in range(size)])
    moment = random_covariance(rng, size)[np.ix_(seen, seen)]
    direct = CovarianceForm(model.matrix, model.log_determinant, seen, model.objects)
    precise = PrecisionForm(model.precision, seen, model.objects)
    for ours in (direct, precise, model.condition(seen)):
        vv, vh, hh = np.ix_(seen, seen), np.ix_(seen, ~seen), np.ix_(~seen, ~seen)
        regression = np.linalg.inv(model.matrix[vv]) @ model.matrix[vh]
        covariance = model.matrix[hh] - model.matrix[vh].T @ regression
        np.testing.assert_allclose(ours.regression, regression, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(ours.covariance, covariance, rtol=1e-9, atol=1e-10)
        cross, hidden = ours.expected_second_moments(moment)
        expected = covariance + regression.T @ moment @ regression
        np.testing.assert_allclose(cross, moment @ regression, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(hidden, expected, rtol=1e-9, atol=1e-10)
        assert (hidden == hidden.T).all()
        log_det = np.linalg.slogdet(covariance)[1] if len(covariance) else 0.0
        assert ours.log_determinant == pytest.approx(log_det, **close)
        assert (ours.covariance == ours.covariance.T).all()


@given(problems(identity=True, paper=True))
def test_the_start_is_the_papers_zeros_in_the_missing_entries(problem):
    zeros = np.nan_to_num(problem.stack.values)
    start = plain.m_step(zeros, problem.degrees_of_freedom, problem.prior.strength, problem.scale)
    np.testing.assert_allclose(em_of(problem).initial_model().matrix, start, rtol=1e-12)


@settings(max_examples=30)
@given(problems(largest=4, kernels=3))
def test_the_gradient_is_the_em_steps_and_vanishes_at_the_fixed_point(problem):
    """The gradient, by finite differences of the plain formula, is (w/2) P (F - M) P."""
    em = em_of(problem)
    weight = problem.prior.strength + problem.degrees_of_freedom.sum()
    model = em.initial_model()
    statistics = em.e_step(model)
    target = em.m_step(statistics).matrix
    precision = np.linalg.inv(model.matrix)
    analytic = 0.5 * weight * precision @ (target - model.matrix) @ precision
    size = np.abs(analytic).max() + np.abs(precision).max()
    np.testing.assert_allclose(gradient(problem, model.matrix), analytic, atol=2e-6 * size)
    for _ in range(3000):
        previous, model = model, em.m_step(em.e_step(model))
        if np.abs(model.matrix - previous.matrix).max() < 1e-11:
            break
    size = weight * np.abs(np.linalg.inv(model.matrix)).max()
    np.testing.assert_allclose(gradient(problem, model.matrix), 0, atol=1e-5 * size)


def gradient(problem: Problem, model: np.ndarray) -> np.ndarray:
    """The gradient of L among symmetric matrices by central differences."""
    size = len(model)
    result = np.zeros((size, size))
    step = 1e-5 * np.linalg.eigvalsh(model)[0]
    for i in range(size):
        for j in range(i + 1):
            direction = np.zeros((size, size))
            direction[i, j] = direction[j, i] = 1.0 if i == j else 0.5
            up = plain.penalized_log_likelihood(*parts(problem), model + step * direction)
            down = plain.penalized_log_likelihood(*parts(problem), model - step * direction)
            result[i, j] = result[j, i] = (up - down) / (2 * step)
    return result


@settings(max_examples=40)
@given(
    st.integers(1, 12),
    st.sampled_from([1e2, 1.0, 1e-3, 1e-6, 1e-9]),
    st.sampled_from([-300, -20, 0, 20, 300]),
    seeds,
)
def test_rounding_stays_within_its_bound(size, strength, exponent, seed):
    """Against the same formula in 50 digits, on ill-conditioned models of any scale."""
    import mpmath

    rng = np.random.default_rng(seed)
    features = rng.standard_normal((2, size, 1 + size // 3))
    features /= np.linalg.norm(features, axis=2, keepdims=True)
    visible = rng.random((2, size)) < 0.7
    visible[0, 0] = True
    scale = 2.0**exponent
    stack = stack_kernels(scale * (features @ features.transpose(0, 2, 1)), visible=visible)
    em = EM(stack, WishartPrior(strength, scale * np.eye(size)))
    statistics = em.e_step(em.m_step(em.e_step(em.initial_model())))
    model = statistics.model
    with mpmath.workdps(50):
        exact = mpmath.matrix(model.matrix.tolist())
        total = (
            -mpmath.mpf(strength)
            / 2
            * (mpmath.log(mpmath.det(exact)) + scale * sum((exact**-1)[i, i] for i in range(size)))
        )
        for kernel, seen in zip(
            stack.values, ~np.isnan(stack.values[:, range(size), range(size)]), strict=True
        ):
            if seen.any():
                block = mpmath.matrix(model.matrix[np.ix_(seen, seen)].tolist())
                inverse = block**-1
                moment = kernel[np.ix_(seen, seen)]
                n = len(moment)
                trace = sum(
                    inverse[i, j] * mpmath.mpf(moment[j, i]) for i in range(n) for j in range(n)
                )
                total -= (n * mpmath.log(2 * mpmath.pi) + mpmath.log(mpmath.det(block)) + trace) / 2
        error = abs(float(total - mpmath.mpf(em.penalized_log_likelihood(model, statistics))))
    assert error <= em.rounding_bound(statistics)


def test_statistics_belong_to_their_model():
    em = EM(stack_kernels(np.eye(2)[None]), WishartPrior(1.0))
    model = em.initial_model()
    with pytest.raises(KernelError, match="another model"):
        em.penalized_log_likelihood(GaussianModel(np.eye(2)), em.e_step(model))


def test_a_model_over_other_objects_is_refused():
    em = EM(stack_kernels(np.eye(2)[None], objects=["a", "b"]), WishartPrior(1.0))
    with pytest.raises(LabelError, match="objects are not those of the stack"):
        em.e_step(GaussianModel(np.eye(2), objects=["b", "a"]))


def test_statistics_of_another_em_are_refused():
    one, two = (EM(stack_kernels(np.eye(2)[None] * c), WishartPrior(1.0)) for c in (1.0, 2.0))
    model = one.initial_model()
    statistics = one.e_step(model)
    for step in (
        two.m_step,
        two.entropy,
        lambda given: two.q_function(model, given),
        lambda given: two.penalized_log_likelihood(model, given),
    ):
        with pytest.raises(KernelError, match="another EM took them"):
            step(statistics)


def test_degrees_of_freedom_given_twice_are_refused():
    stack = stack_kernels(np.stack([np.eye(2)] * 2), names=["a", "b"])
    twice = pd.Series([5.0, 1.0, 2.0], index=["a", "a", "b"])
    with pytest.raises(LabelError, match="'a' occurs more than once"):
        EM(stack, WishartPrior(1.0), twice)
    with pytest.raises(KernelError, match="degrees_of_freedom"):
        EM(stack, WishartPrior(1.0), [[1.0], 1.0])


def test_steps_say_what_they_take():
    em = EM(stack_kernels(np.eye(2)[None]), WishartPrior(1.0))
    model = em.initial_model()
    with pytest.raises(KernelError, match=r"ndarray found; pass GaussianModel\("):
        em.e_step(np.eye(2))
    for step in (em.m_step, em.entropy, lambda given: em.q_function(model, given)):
        with pytest.raises(KernelError, match=r"GaussianModel found; pass what e_step"):
            step(model)


def test_what_a_step_returns_shows_its_numbers():
    stack = stack_kernels(np.eye(2)[None] * 3, visible=[[1, 0]], objects=["seen", "unseen"])
    em = EM(stack, WishartPrior(1.0))
    model = em.initial_model()
    for shown in (repr(model), model._repr_html_()):
        assert "seen" in shown
        assert "2.0" in shown
    assert "regression" in repr(model.condition(["seen"]))
    assert "log_likelihood" in repr(em.e_step(model))


def test_the_prior_must_be_a_prior():
    with pytest.raises(KernelError, match=r"pass WishartPrior"):
        EM(stack_kernels(np.eye(2)[None]), 0.1)


@pytest.mark.parametrize("value", [0, -1.0, np.nan, np.inf, "two", None, True])
def test_degrees_of_freedom_are_positive_numbers(value):
    stack = stack_kernels(np.stack([np.eye(2)] * 2), names=["a", "b"])
    with pytest.raises(KernelError, match=r"degrees_of_freedom of kernel 'b'"):
        EM(stack, WishartPrior(1.0), [1.0, value])


def test_degrees_of_freedom_by_kernel():
    stack = stack_kernels(np.stack([np.eye(2)] * 2), names=["a", "b"])
    for given_as in ({"b": 3, "a": 2}, [2, 3], np.array([2.0, 3.0])):
        assert EM(stack, WishartPrior(1.0), given_as).degrees_of_freedom.tolist() == [2.0, 3.0]
    with pytest.raises(LabelError, match="no kernel 'c'"):
        EM(stack, WishartPrior(1.0), {"a": 1, "b": 1, "c": 1})
    with pytest.raises(LabelError, match="none for kernel 'b'"):
        EM(stack, WishartPrior(1.0), {"a": 1})
    with pytest.raises(KernelError, match="3 numbers for 2 kernels"):
        EM(stack, WishartPrior(1.0), [1, 2, 3])


@pytest.mark.parametrize("apart", [1e-4, 1e-6, 1e-8])
def test_a_model_that_only_hidden_objects_make_singular_costs_no_digits(apart):
    """M_vv is the identity, and the hidden object all but a combination of the visible ones."""
    matrix = np.array([[1, 0, 0.6], [0, 1, 0.8], [0.6, 0.8, 1 + apart]])
    block = np.array([[4.0, -1.0], [-1.0, 1.0]])
    stack = stack_kernels(np.pad(block, (0, 1))[None], visible=[[1, 1, 0]])
    for form in (PrecisionForm, CovarianceForm):
        cheap = form is PrecisionForm
        with patch(
            "mkmc_prob.model.gaussian.precision_form_cost", lambda n, m, cheap=cheap: -cheap
        ):
            em = EM(stack, WishartPrior(1e-3))
            found = em.e_step(GaussianModel(matrix)).log_likelihood.item()
        expected = -0.5 * (2 * np.log(2 * np.pi) + np.trace(block))
        # The terms are of size 1 / apart; their roundings remain, not the condition number's.
        assert found == pytest.approx(expected, abs=8 * np.finfo(float).eps * 5 / apart)


@pytest.mark.parametrize("scale", [1e4, 1e6, 1e8])
@both_models
@pytest.mark.filterwarnings("ignore::mkmc_prob.MKMCWarning")
def test_low_rank_kernels_of_a_large_scale_rise_at_every_step(model, scale):
    visible = np.array([[1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1], [1, 1, 0, 0, 1, 1]])
    for seed in (37, 58, 71):
        features = np.random.default_rng(seed).standard_normal((3, 6, 2))
        kernels = scale * features @ features.swapaxes(1, 2)
        # From step 500 on the models are as near to singular as they get.
        trace = fit(stack_kernels(kernels, visible=visible), **model, max_iter=1500).trace
        for k, seen in enumerate(visible.astype(bool)):
            assert np.isfinite(trace["log_likelihood"].values[:, k]).all(), seen


def test_the_parts_can_be_copied_and_pickled():
    rng = np.random.default_rng(0)
    em = EM(stack_kernels(np.array([random_covariance(rng, 4)])), WishartPrior(0.1))
    statistics = em.e_step(em.initial_model())
    conditional = statistics.model.condition([True, True, False, True])
    for part in (em, statistics, conditional):
        assert repr(pickle.loads(pickle.dumps(copy.deepcopy(part)))) == repr(part)
    assert not pickle.loads(pickle.dumps(statistics.model)).matrix.flags.writeable
