"""Standard deviations of completed entries, against simulation and plain formulas."""

import dataclasses
import warnings

import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from plain_spread import plain, regress
from problems import PAPER, REFERENCE, small_stack
from strategies import problems
from test_cost import Counted, counted, problem  # noqa: F401

from mkmc_prob import (
    EM,
    PPCA,
    FactorAnalysis,
    MKMCWarning,
    Sources,
    WishartPrior,
    datasets,
    fit,
    load_result,
    remove_objects,
    stack_kernels,
)
from mkmc_prob.em.completion import FactorCompletion
from mkmc_prob.linalg import lazy

#: Most tests have one degree of freedom, for which a result warns.
pytestmark = pytest.mark.filterwarnings("ignore:standard_deviation. all degrees of freedom are 1")


not_identified = pytest.mark.filterwarnings("ignore::mkmc_prob.IdentifiabilityWarning")
no_warning_of_scales = pytest.mark.filterwarnings("ignore:the kernels' scales differ")

#: What `fit` takes; each has another path to h given v.
MODELS = {
    "identical": PAPER,
    "adaptive": {},
    "a prior of one's own": {"prior": WishartPrior(2.0, 0.5 * np.eye(7) + 0.5)},
    "sharing 0.6": {"sharing": 0.6},
    "alone": {"sharing": {"Q1": 1.0, "Q2": 0.7, "Q3": 0.0}},
    "PPCA": {"structure": PPCA(2), "sharing": {"Q1": 1.0, "Q2": 0.7, "Q3": 0.0}},
    "factor analysis": {"structure": FactorAnalysis(2)},
    "PPCA, identical": {"structure": PPCA(2), "sources": "identical"},
}
ADAPTIVE = {name: model for name, model in MODELS.items() if "identical" not in name}
by_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)


def stack_of(seed=0, size=7, units=(1.0, 20.0, 0.1), constant=0.6):
    """Three kernels of other units, which share a constant; p6 is visible in one only."""
    rng = np.random.default_rng(seed)
    common = rng.standard_normal((size, 2))
    visible = np.array([[1, 1, 1, 1, 1, 0, 0], [1, 1, 1, 0, 0, 1, 1], [0, 1, 0, 1, 1, 1, 0]])
    kernels = []
    for unit in units:
        features = common @ rng.standard_normal((2, 12)) + 0.7 * rng.standard_normal((size, 12))
        kernels.append(unit * (features @ features.T / 12 + constant))
    kernels = (np.array(kernels) + np.swapaxes(kernels, 1, 2)) / 2
    objects = [f"p{i}" for i in range(size)]
    return stack_kernels(kernels, visible=visible[:, :size], objects=objects)


def fitted(stack, model, **options):
    """A fit; the paper's model takes kernels of one unit."""
    options = {"tol": 1e-10, "degrees_of_freedom": 12.0, "strength": 6.0} | model | options
    if "prior" in options:
        del options["strength"]
    return fit(stack, **options)


def parts(result, k):
    """The covariance d (s M + (1 - s) T + c J) of a kernel, its block, what is visible, and nu."""
    of = result.sources.isel(kernel=k)
    size = result.observed.sizes["object"]
    t = np.eye(size) if result.prior.scale is None else result.prior.scale.values
    s = float(of["sharing"])
    covariance = s * result.model.matrix + (1.0 - s) * t + float(of["constant"])
    kernel = result.observed.values[k]
    v = ~np.isnan(np.diagonal(kernel))
    nu = float(result.degrees_of_freedom[k])
    return float(of["scale"]) * covariance, kernel[np.ix_(v, v)], v, nu


def simulated(covariance, block, v, nu, draws=20_000):
    """The deviations of drawn kernels, with their standard errors.

    Each is the second moment of nu vectors whose visible parts have exactly the second moment
    `block`.
    """
    rng = np.random.default_rng(0)
    nu, n = int(nu), v.sum()
    values, vectors = np.linalg.eigh(block)
    turned = np.linalg.qr(rng.standard_normal((nu, n)))[0].T  # orthonormal rows
    seen = np.sqrt(nu) * (vectors * np.sqrt(np.maximum(values, 0.0))) @ turned
    np.testing.assert_allclose(seen @ seen.T / nu, block, atol=1e-12 * np.abs(block).max())
    a, c = regress(covariance, v)
    x = np.empty((draws, len(v), nu))
    x[:, v] = seen
    x[:, ~v] = a.T @ seen + np.linalg.cholesky(c) @ rng.standard_normal((draws, (~v).sum(), nu))
    kernels = x @ x.swapaxes(1, 2) / nu
    apart = kernels - kernels.mean(axis=0)
    variance = (apart**2).mean(axis=0)
    fourth = (apart**4).mean(axis=0)
    varied = np.maximum(fourth - variance**2, 0.0)
    error = np.sqrt(varied / draws / (4.0 * np.maximum(variance, 1e-300)))
    return np.sqrt(variance), error


def check(result, rtol=1e-6):
    """Against the formula, in the kernel's unit; 0 where visible; exactly symmetric."""
    found = result.standard_deviation
    assert found.dims == result.observed.dims
    assert found.coords.equals(result.observed.coords)
    assert found.name == "standard_deviation"
    for k, own in enumerate(found.values):
        expected = plain(*parts(result, k))
        np.testing.assert_allclose(own, expected, rtol=rtol, atol=1e-12 * expected.max())
        assert np.array_equal(own, own.T)
        v = parts(result, k)[2]
        assert not own[np.ix_(v, v)].any()
        assert (own[~v] > 0.0).all()


# --- against simulation and formula ---------------------------------------------------------------


@no_warning_of_scales
@by_model
def test_they_are_the_deviations_of_simulated_kernels(model):
    result = fitted(stack_of(), model)
    for k, found in enumerate(result.standard_deviation.values):
        covariance, block, v, nu = parts(result, k)
        expected, error = simulated(covariance, block, v, nu)
        hidden = ~(v & v[:, None])
        assert (np.abs(found - expected) <= 4.0 * error)[hidden].all()


@no_warning_of_scales
@by_model
def test_they_are_those_of_the_formula(model):
    check(fitted(stack_of(seed=1), model))


@not_identified
@given(problems(paper=True))
@settings(max_examples=25)
def test_singular_kernels_and_small_problems(drawn):
    """Often of low rank, of a single object, or with objects that only one kernel shows."""
    options = {"prior": drawn.prior, "sources": "identical", "degrees_of_freedom": 2.0}
    check(fit(drawn.stack, **options, tol=0, max_iter=3), rtol=1e-5)


@not_identified
@no_warning_of_scales
@by_model
def test_objects_hidden_everywhere_and_kernels_without_objects(model):
    stack = stack_of()
    stack = stack.where(stack["object"] != "p1").where(stack["object_bis"] != "p1")
    check(fitted(stack, model))
    check(fitted(stack.where(stack["kernel"] != "Q2"), model))


def test_a_complete_kernel_has_no_deviation():
    stack = stack_of()
    complete = fit(stack).completed.drop_vars("rounding")
    assert not fit(complete).standard_deviation.values.any()


# --- units ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ADAPTIVE.values(), ids=ADAPTIVE)
@pytest.mark.parametrize("units", [(4.0, 1.0, 0.5), (1e140, 1e-140, 1e30)])
def test_they_are_in_the_unit_of_the_kernel(model, units):
    plain_units, others = stack_of(units=(1.0, 1.0, 1.0)), stack_of(units=units)
    options = {"tol": 0, "max_iter": 5}
    expected = fitted(plain_units, model, **options).standard_deviation.values
    found = fitted(others, model, **options).standard_deviation.values
    for unit, own, other in zip(units, found, expected, strict=True):
        np.testing.assert_allclose(own / unit, other, rtol=1e-8, atol=1e-12)


@no_warning_of_scales
@by_model
def test_four_times_the_degrees_of_freedom_are_half_the_deviation(model):
    result = fitted(stack_of(), model)
    more = dataclasses.replace(result, degrees_of_freedom=4.0 * result.degrees_of_freedom)
    if result.completion is not None:
        of = result.completion
        own = of.sources.with_degrees(more.degrees_of_freedom.values)
        more = dataclasses.replace(more, completion=FactorCompletion(of.kernels, own, of.model))
    expected = result.standard_deviation.values
    np.testing.assert_allclose(2.0 * more.standard_deviation.values, expected, rtol=1e-14)


# --- many objects ---------------------------------------------------------------------------------


@pytest.fixture
def results(monkeypatch):
    """The same fit, whole and lazy."""
    incomplete = remove_objects(datasets.make_fusion_problem(130, 3).kernels, 0.4, seed=0)
    options = {"structure": PPCA(6), "sharing": 0.9, "degrees_of_freedom": [10.0, 20.0, 30.0]}
    whole = fit(incomplete, **options)
    assert isinstance(whole.standard_deviation.data, np.ndarray)
    monkeypatch.setattr(lazy, "MOST_ENTRIES", 1_000)
    monkeypatch.setattr(lazy, "BLOCK", 50)
    return whole, fit(incomplete, **options)


def test_the_entries_of_a_lazy_result_are_those_of_the_whole(results):
    whole, lazily = (each.standard_deviation for each in results)
    assert isinstance(lazily.data, da.Array)
    values = lazily.values
    np.testing.assert_allclose(values, whole.values, rtol=1e-10)
    assert np.array_equal(values, values.transpose(0, 2, 1))
    assert lazily.coords.identical(whole.coords)
    assert (lazily.name, lazily.dims, lazily.attrs) == (whole.name, whole.dims, whole.attrs)


def test_kernels_that_are_not_in_memory(results):
    whole, _ = results
    stack = whole.observed
    visible = ~np.isnan(np.diagonal(stack.values, axis1=1, axis2=2))
    kernels = {
        name: da.from_array(stack.fillna(0.0).sel(kernel=name).values, chunks=70)
        for name in stack["kernel"].values.tolist()
    }
    given_lazily = stack_kernels(kernels, objects=stack["object"].values, visible=visible)
    options = {"structure": PPCA(6), "sharing": 0.9, "initial": whole.model}
    options |= {"degrees_of_freedom": whole.degrees_of_freedom, "tol": 0, "max_iter": 1}
    found, again = fit(given_lazily, **options), fit(stack, **options)
    values = found.standard_deviation.values
    np.testing.assert_allclose(values, again.standard_deviation.values, rtol=1e-8)


# --- results and cost -----------------------------------------------------------------------------


@pytest.mark.parametrize("model", [{}, {"structure": PPCA(2)}], ids=["full", "PPCA"])
def test_a_loaded_result_has_the_same_deviations(model, tmp_path):
    result = fit(small_stack(), degrees_of_freedom=[3.0, 4.0, 5.0], **model)
    deviations = result.standard_deviation
    assert result.standard_deviation is deviations  # computed once
    result.save(tmp_path / "result.nc")
    assert load_result(tmp_path / "result.nc").standard_deviation.identical(deviations)


def test_a_result_that_version_0_1_0_saved_has_deviations():
    check(load_result(REFERENCE / "result_of_version_0_1_0.nc"))


@not_identified
@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
@pytest.mark.parametrize("sharing", [1.0, 0.5])
def test_they_cost_at_most_three_evaluations_of_the_em_map(counted, share, sharing):  # noqa: F811
    size = 200
    stack = problem(size, int(share * size), kernels=3)
    result = fit(stack, sharing=sharing, tol=0, max_iter=1)
    sources = Sources.estimated(stack, sharing=sharing)
    em = EM(stack, WishartPrior(1.0), sources=sources)
    start = em.initial_model()
    Counted.total = 0.0
    em.m_step(em.e_step(start))
    of_the_map, Counted.total = Counted.total, 0.0
    assert result.standard_deviation.values.any()
    assert 0 < Counted.total <= 3 * of_the_map


def test_the_default_degrees_of_freedom_are_warned_of():
    stack = small_stack()
    with pytest.warns(MKMCWarning, match="all degrees of freedom are 1.*auto"):
        fit(stack).standard_deviation  # noqa: B018
    result = fit(stack, degrees_of_freedom=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result.standard_deviation  # noqa: B018
