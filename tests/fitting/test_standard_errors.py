"""Standard errors against Hessians by finite differences, closed forms, simulation, the posterior."""

import numpy as np
import plain_sources
import pytest
import xarray as xr
from hypothesis import assume, given, settings
from problems import PAPER, small_stack
from scipy import stats
from strategies import problems, random_covariance

from mkmc_prob import (
    ConvergenceWarning,
    IdentifiabilityWarning,
    KernelError,
    LabelError,
    WishartPrior,
    fit,
    sample_posterior,
    stack_kernels,
    standard_errors,
)
from mkmc_prob.fitting import model_functions
from mkmc_prob.fitting import standard_errors as module
from mkmc_prob.fitting.solve import problem_of_result, seen_problem

TIGHT = {"tol": 1e-11, "max_iter": 20_000}


def errors(result, *given, **options):
    return standard_errors(result, *given, **options)["standard_error"].values


def overlapping_stack(size=5, alike=False):
    """Three kernels, which differ in unit and constant unless they are alike."""
    rng = np.random.default_rng(4)
    matrices = np.array([random_covariance(rng, size) for _ in range(3)])
    if not alike:
        matrices *= np.array([1.0, 5.0, 0.2])[:, None, None]
        matrices += np.array([0.3, 4.0, 0.0])[:, None, None]
    visible = np.ones((3, size), dtype=bool)
    visible[0, -1] = visible[2, 0] = visible[2, -2] = False
    return stack_kernels(matrices, visible=visible, objects=[*"abcdefgh"][:size], names=[*"xyz"])


def log_likelihood(result):
    """L as a function of a matrix, its free constants at their maximum, written plainly."""
    em, _ = seen_problem(problem_of_result(result))
    setting = plain_sources.setting_of(em)
    return lambda model: plain_sources.penalized_log_likelihood(setting.best(model), model)


def covariance_by_differences(result):
    """The inverse of the Hessian of -L in the entries of the lower triangle."""
    level, model = log_likelihood(result), result.model.matrix
    pairs = list(zip(*np.tril_indices(len(model)), strict=True))

    def moved(*changes):
        matrix = model.copy()
        for (i, j), change in changes:
            matrix[i, j] += change
            matrix[j, i] = matrix[i, j]
        return level(matrix)

    def second(one, other, step):
        if one == other:
            return (moved((one, step)) - 2 * level(model) + moved((one, -step))) / step**2
        signs = [(1, 1), (1, -1), (-1, 1), (-1, -1)]
        parts = (a * b * moved((one, a * step), (other, b * step)) for a, b in signs)
        return sum(parts) / (4 * step**2)

    def refined(one, other, step=2e-3):  # Richardson: the error is of the order of step^4
        return (4 * second(one, other, step) - second(one, other, 2 * step)) / 3

    hessian = np.empty((len(pairs), len(pairs)))
    for a, one in enumerate(pairs):
        for b, other in enumerate(pairs[: a + 1]):
            hessian[a, b] = hessian[b, a] = refined(one, other)
    return pairs, np.linalg.inv(-hessian)


HELD = xr.Dataset(
    {
        "scale": ("kernel", [1.0, 4.0, 0.3]),
        "constant": ("kernel", [0.2, 0.5, 0.0]),
        "sharing": ("kernel", [1.0, 0.7, 1.0]),
    },
    coords={"kernel": [*"xyz"]},
    attrs={"shared_constant": 0.1},
)
MODELS = {
    "identical": {"sources": "identical", "strength": 0.3, "degrees_of_freedom": [2.0, 0.5, 3.0]},
    "adaptive": {"strength": 0.5, "degrees_of_freedom": [4.0, 1.0, 2.0]},
    "sharing below 1": {"strength": 0.5, "sharing": {"x": 1.0, "y": 0.6, "z": 0.8}},
    "a kernel that shares nothing": {"sharing": {"x": 1.0, "y": 0.7, "z": 0.0}},
    "sources that are held": {"sources": HELD},
    "a scale of the prior": {
        "prior": WishartPrior(0.7, random_covariance(np.random.default_rng(1), 5))
    },
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dense", [True, False], ids=["dense", "conjugate gradients"])
def test_the_inverse_of_a_hessian_by_differences_says_the_same(name, dense, monkeypatch):
    stack = overlapping_stack(alike=name == "identical")
    result = fit(stack, **MODELS[name], **TIGHT)
    assert result.converged
    pairs, covariance = covariance_by_differences(result)
    seen = ~diagnosed_apart(result)
    kept = [p for p, pair in enumerate(pairs) if seen[pair]]
    labels = result.observed["object"].values
    entries = [tuple(labels[list(pairs[p])]) for p in kept]
    if not dense:
        monkeypatch.setattr(module, "FEW", 0)
    found = standard_errors(result, entries)
    expected = np.sqrt(np.diagonal(covariance))[kept]
    np.testing.assert_allclose(found["standard_error"], expected, rtol=1e-6)
    np.testing.assert_array_equal(found["value"], [result.model.matrix[pairs[p]] for p in kept])


def diagnosed_apart(result):
    return result.never_seen_together().values
