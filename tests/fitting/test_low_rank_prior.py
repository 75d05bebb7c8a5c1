"""A scale of the prior from a few factors: `prior=PPCA(rank)` of the full model."""

import numpy as np
import pytest
from problems import PAPER
from test_structures import by_sources, stack_of, without

from mkmc_prob import (
    PPCA,
    FactorAnalysis,
    IdentifiabilityWarning,
    WishartPrior,
    fit,
    load_result,
    missing_information,
    select_model,
    stack_kernels,
    visible_objects,
)
from mkmc_prob.fitting import holdout

both = pytest.mark.parametrize("kind", [PPCA, FactorAnalysis])


def alike(stack, options):
    """The paper's model is for kernels of one unit."""
    return stack / [[[1.0]], [[20.0]], [[0.1]]] if "identical" in options.values() else stack


@by_sources
@both
def test_the_scale_is_a_fit_of_few_factors_with_strength_1(kind, sources):
    stack = alike(stack_of(seed=5), sources)
    options = {name: value for name, value in sources.items() if name != "strength"}
    result = fit(stack, prior=kind(2), strength=3.0, tol=1e-10, **options)
    alone = fit(stack, structure=kind(2), strength=1.0, tol=1e-10, **options)
    np.testing.assert_allclose(result.prior.scale, alone.model.matrix, atol=1e-4)
    assert result.prior.strength == 3.0
    assert result.structure.name == "full"
    assert result.sources.attrs["shared_constant"] == 0.0


@by_sources
@both
def test_the_rest_is_the_full_fit_with_that_scale(kind, sources):
    stack = alike(stack_of(seed=5), sources)
    options = {name: value for name, value in sources.items() if name != "strength"}
    result = fit(stack, prior=kind(2), strength=0.5, **options)
    given = fit(stack, prior=WishartPrior(0.5, result.prior.scale), **options)
    for name in ("completed", "trace", "sources"):
        one, two = (getattr(each, name) for each in (given, result))
        if name == "trace":
            one, two = (each.drop_vars("seconds") for each in (one, two))
        assert one.identical(two)
    np.testing.assert_array_equal(given.model.matrix, result.model.matrix)


def test_a_result_with_such_a_scale_survives_a_file(tmp_path):
    result = fit(stack_of(seed=5), prior=PPCA(2))
    result.save(tmp_path / "result.nc")
    assert load_result(tmp_path / "result.nc").identical(result)


def test_a_strong_prior_is_the_model_of_few_factors():
    stack = stack_of(seed=5)
    result = fit(stack, prior=PPCA(2), strength=1e7, tol=1e-8)
    np.testing.assert_allclose(result.model.matrix, result.prior.scale, atol=1e-5)
    assert 0.0 <= float(missing_information(result)["rate"]) < 1e-3


@pytest.mark.parametrize("options", [{}, PAPER], ids=["adaptive", "identical"])
def test_objects_hidden_in_every_kernel_follow_the_scale(options):
    stack = without(alike(stack_of(seed=5), options), "p6")
    with pytest.warns(IdentifiabilityWarning, match="'p6' is missing"):
        result = fit(stack, prior=PPCA(2), tol=1e-8, **options)
    scale, model = result.prior.scale.values, result.model.matrix
    seen = slice(0, 6)
    expected = model[seen, seen] @ np.linalg.solve(scale[seen, seen], scale[seen, 6])
    np.testing.assert_allclose(model[seen, 6], expected, atol=1e-9)
    assert not result.completed.isnull().any()


@pytest.mark.filterwarnings("ignore::mkmc_prob.IdentifiabilityWarning")
def test_kernels_that_share_nothing_have_the_scale_of_the_prior():
    result = fit(stack_of(seed=5), prior=PPCA(2), sharing=0.0)
    np.testing.assert_allclose(result.model.matrix, result.prior.scale, rtol=1e-9)


def two_populations(seed=0, size=24):
    """Kernels of two factors; two thirds of the objects are never seen together."""
    rng = np.random.default_rng(seed)
    loadings = rng.standard_normal((size, 2))
    covariance = loadings @ loadings.T + 0.3 * np.eye(size)
    features = np.linalg.cholesky(covariance) @ rng.standard_normal((6, size, 40))
    truth = features @ features.transpose(0, 2, 1) / 40
    visible = np.ones((6, size), dtype=bool)
    visible[:3, : size // 3] = visible[3:, -(size // 3) :] = False
    return covariance, stack_kernels((truth + truth.transpose(0, 2, 1)) / 2, visible=visible)


def test_pairs_never_seen_together_are_those_of_the_factors():
    covariance, stack = two_populations()

    def error(**options):
        result = fit(stack, **options)
        matrix, never = result.model.matrix, result.never_seen_together().values
        assert never.sum() == 2 * 8 * 8
        matrix = matrix * np.trace(covariance) / np.trace(matrix)
        return np.linalg.norm((matrix - covariance)[never]) / np.linalg.norm(covariance[never])

    assert error(prior=PPCA(2), strength=3.0) < 0.7 * error(strength=1.0)


def test_held_out_objects_choose_it_where_there_are_factors(monkeypatch):
    _, stack = two_populations()
    fitted = []
    original = holdout.with_low_rank_prior

    def spy(problem, factors, **options):
        fitted.append((problem.stack.visible.copy(), problem.prior.strength))
        return original(problem, factors, **options)

    monkeypatch.setattr(holdout, "with_low_rank_prior", spy)
    given = {"strengths": [3.0, 1.0], "sharing": [1.0], "draws": 3}
    selection = select_model(stack, priors=[None, PPCA(2)], **given)
    assert selection.best["prior"] == PPCA(2)
    assert fit(stack, **selection.best).prior.scale is not None
    # In every draw it is fitted without the held-out objects.
    visible = visible_objects(stack).values
    assert {strength for _, strength in fitted} == {10.0, 3.0, 1.0}
    for shown, _ in fitted:
        assert not (shown & ~visible).any()
        assert shown.sum() < visible.sum()
