"""Fits of kernels that are not in memory are those of the same kernels in memory."""

import pickle
import tracemalloc

import dask.array as da
import numpy as np
import plain_factors as plainly
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_factors import STRUCTURES, drawn_case

from mkmc_prob import (
    EM,
    PPCA,
    FactorAnalysis,
    IdentifiabilityWarning,
    LazyStack,
    LowRankModel,
    Sources,
    WishartPrior,
    fit,
    kernels,
    stack_kernels,
)
from mkmc_prob.io import read_stack, stores, write_stack
from mkmc_prob.linalg import lazy as blocks
from mkmc_prob.linalg import tiles

SIZE, CHUNK = 600, 150
NAMES = ["a", "b", "c", "d"]
LABELS = [f"p{i:03}" for i in range(SIZE)]


def close(found, expected, tolerance=1e-9):
    """Relative to the largest entry."""
    expected = np.asarray(expected)
    size = np.abs(expected).max(initial=1e-300)
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * size)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """600 objects of five factors in four kernels of other units and constants, float32."""
    rng = np.random.default_rng(0)
    loadings = rng.standard_normal((SIZE, 5))
    matrices = []
    for unit, constant in ((1.0, 0.2), (40.0, 3.0), (0.1, 0.5), (1.0, 0.0)):
        drawn = loadings @ rng.standard_normal((5, 700)) + rng.standard_normal((SIZE, 700))
        matrices.append(unit * (drawn @ drawn.T / 700 + constant))
    visible = rng.random((4, SIZE)) < 0.7
    visible[0, CHUNK : 2 * CHUNK] = False  # a whole row of tiles
    visible[rng.choice([1, 3], size=SIZE), np.arange(SIZE)] = True
    path = tmp_path_factory.mktemp("stores") / "kernels.zarr"
    dense = stack_kernels(np.array(matrices), names=NAMES, objects=LABELS, visible=visible)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stores, "CHUNK", CHUNK)
        write_stack(dense, path, dtype="float32")
    return path


@pytest.fixture(scope="module")
def lazy(store):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiles, "LEAST_TILE", 1)  # chunks are not put together
        found = read_stack(store)
    assert type(found) is LazyStack
    assert found.kernel(3).moment.array.chunks[0][:2] == (CHUNK, CHUNK)
    return found


@pytest.fixture(scope="module")
def loaded(lazy):
    return lazy.load()


MODELS = {
    "adaptive": {},
    "sharing 0.5": {"sharing": 0.5},
    "one alone": {"sharing": {"a": 1.0, "b": 0.5, "c": 0.0, "d": 0.8}},
    "identical": {"sources": "identical", "strength": 0.5},
    "a scale": {"prior": WishartPrior(2.0, 3.0 * np.eye(SIZE))},
}
FITS = [
    ("adaptive", PPCA(5), "geodesic"),
    ("adaptive", FactorAnalysis(3), "em"),
    ("sharing 0.5", PPCA(5), "px-em"),
    ("sharing 0.5", FactorAnalysis(3), "geodesic"),
    ("one alone", PPCA(5), "em"),
    ("one alone", FactorAnalysis(3), "px-em"),
    ("identical", PPCA(5), "em"),
    ("identical", FactorAnalysis(3), "geodesic"),
    ("a scale", PPCA(3), "geodesic"),
]


@pytest.mark.filterwarnings("ignore:the kernels' scales differ")
@pytest.mark.parametrize(
    ("model", "structure", "method"), FITS, ids=[f"{m}, {s.name}, {how}" for m, s, how in FITS]
)
def test_a_fit_is_that_of_the_loaded_kernels(model, structure, method, lazy, loaded):
    options = {"structure": structure, "method": method, "tol": 0, "max_iter": 4}
    options |= {"initial": start(structure.rank)} | MODELS[model]
    found, expected = fit(lazy, **options), fit(loaded, **options)
    for name in ("penalized_log_likelihood", "log_likelihood", "log_prior"):
        close(found.trace[name], expected.trace[name])
    levels, bounds = (
        found.trace[name].values for name in ("penalized_log_likelihood", "rounding_bound")
    )
    assert (np.diff(levels) > 0.0).all()
    assert (bounds > 0.0).all()
    assert (bounds < 1e-6 * np.abs(levels)).all()
    for one, two in zip(model_of(found), model_of(expected), strict=True):
        close(one, two)
    close(found.sources["constant"], expected.sources["constant"])
    some = LABELS[::37]
    for name in NAMES:
        rows = found.rows(name, some)
        assert rows.coords.equals(expected.rows(name, some).coords)
        close(rows, expected.rows(name, some))


def start(rank):
    """A model to start from: the start that is found otherwise takes several fits."""
    rng = np.random.default_rng(rank)
    loadings = rng.standard_normal((SIZE, rank))
    return LowRankModel(loadings, np.ones(SIZE), np.array(LABELS))


def test_the_start_is_that_of_the_loaded_kernels(lazy, loaded):
    found, expected = (
        EM(stack, WishartPrior(1.0), sources=Sources.estimated(stack), structure=PPCA(7))
        for stack in (lazy, loaded)
    )
    close(found.initial_model().matrix, expected.initial_model().matrix)


def model_of(result):
    model = result.model
    return model.factor_loadings @ model.factor_loadings.T, model.noise_variances


@pytest.mark.parametrize("sharing", [1.0, 0.6])
def test_rows_of_completed_are_conditional_expectations(sharing, lazy, loaded):
    """Q_hv = K Q_vv and Q_hh = B_hh - K B_vh + K Q_vv K' with K = B_hv B_vv^-1."""
    options = {"structure": PPCA(5), "sharing": sharing, "initial": start(5)}
    found = fit(lazy, tol=0, max_iter=3, **options)
    model, sources = found.completion.model, found.completion.sources
    matrix = model.factor_loadings @ model.factor_loadings.T + np.diag(model.noise_variances)
    own = np.eye(SIZE) + sources.shared_constant
    some = LABELS[3::71]
    places = [LABELS.index(label) for label in some]
    for k, name in enumerate(NAMES):
        v, h = lazy.visible[k], ~lazy.visible[k]
        covariance = sharing * matrix + (1.0 - sharing) * own + sources.constant[k]
        covariance *= sources.scale[k]
        block = loaded.values[k][np.ix_(v, v)]
        given = np.linalg.solve(covariance[np.ix_(v, v)], covariance[np.ix_(v, h)]).T
        expected = loaded.values[k].copy()
        expected[np.ix_(h, v)] = given @ block
        expected[np.ix_(v, h)] = expected[np.ix_(h, v)].T
        expected[np.ix_(h, h)] = covariance[np.ix_(h, h)] - given @ covariance[np.ix_(v, h)]
        expected[np.ix_(h, h)] += given @ block @ given.T
        close(found.rows(name, some), expected[places], 1e-10)
        if k == 1 and sharing == 1.0:
            close(found.completed.sel(kernel=name), expected, 1e-10)


def test_completed_is_computed_where_it_is_asked_for(lazy, loaded, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK", 200)
    completed = fit(lazy, structure=PPCA(2), tol=0, max_iter=1, initial=start(2)).completed
    assert isinstance(completed.data, da.Array)
    values = completed.values
    assert np.array_equal(values, values.transpose(0, 2, 1))
    shown = ~np.isnan(loaded.values)
    assert np.array_equal(values[shown], loaded.values[shown])
    assert not np.isnan(values).any()
    part = completed.sel(kernel="b", object=LABELS[7:9], object_bis=LABELS[590:])
    close(part.values, values[1, 7:9, 590:], 1e-14)


def test_an_em_can_be_pickled(lazy):
    em = EM(lazy, WishartPrior(1.0), structure=PPCA(2))
    again = pickle.loads(pickle.dumps(em))
    model = em.initial_model()
    statistics = em.e_step(model)
    assert np.array_equal(again.e_step(model).log_likelihood, statistics.log_likelihood)
    assert type(pickle.loads(pickle.dumps(em.problem)).stack) is LazyStack
    assert 0.0 < em.rounding_bound(statistics) < 1e-6


# -- small problems of every kind -----------------------------------------------------------------


def out_of_memory(stack, rng):
    """The same kernels, each in a form of its own that is not in memory."""
    visible = ~np.isnan(np.diagonal(stack.values, axis1=1, axis2=2))
    given = {}
    for own, name, shown in zip(stack.values, stack["kernel"].values, visible, strict=True):
        in_tiles = da.from_array(own, chunks=int(rng.integers(1, len(own) + 1)))
        zeros = np.where(shown[:, None] & shown, own, 0.0)
        values, vectors = np.linalg.eigh(zeros)
        whole = np.sqrt(len(own) * np.maximum(values, 0.0)) * vectors
        kinds = [in_tiles, scipy.sparse.csr_array(zeros), kernels.Features(whole)]
        given[name] = kinds[rng.integers(3)] if len(given) else in_tiles
    return stack_kernels(given, objects=stack["object"].values, visible=visible)


@pytest.mark.parametrize("kind", STRUCTURES)
@settings(max_examples=10)
@given(seed=st.integers(0, 2**32 - 1))
def test_em_is_that_of_the_dense_distributions(kind, seed):
    case = drawn_case(seed, kind)
    dense, setting, model, loadings, noise = case
    lazy = out_of_memory(dense.stack, np.random.default_rng(seed))
    em = EM.of(dense.problem._replace(stack=lazy))
    statistics = em.e_step(model)
    expected = plainly.level(setting, em.structure, loadings, noise)
    found = em.penalized_log_likelihood(model, statistics)
    assert found == pytest.approx(expected, rel=1e-8, abs=1e-8)
    assert abs(found - expected) <= 1e-7 + em.rounding_bound(statistics)
    sums = plainly.statistics(setting, loadings, noise)
    close(statistics.factors.cross, sums.cross, 1e-7)
    close(statistics.factors.squares, sums.squares, 1e-7)
    better = em.m_step(statistics)
    for one, two in zip(
        (better.factor_loadings, better.noise_variances),
        plainly.m_step(sums, em.structure),
        strict=True,
    ):
        close(one, two, 1e-6)
    close(em.update_constants(model).constant, dense.update_constants(model).constant, 1e-7)


def test_a_kernel_that_shows_nothing_takes_part():
    rng = np.random.default_rng(0)
    values = rng.standard_normal((9, 4))
    given = {
        "tiles": da.from_array(np.full((9, 9), np.nan), chunks=4),
        "features": kernels.Features(np.full((9, 4), np.nan)),
        "seen": kernels.Features(da.from_array(values, chunks=(4, 4))),
    }
    lazy = stack_kernels(given)
    options = {"structure": PPCA(2), "tol": 0, "max_iter": 3}
    with pytest.warns(IdentifiabilityWarning):
        found = fit(lazy, **options)
    with pytest.warns(IdentifiabilityWarning):
        expected = fit(lazy.load(), **options)
    for name in given:
        close(found.rows(name, range(9)), expected.rows(name, range(9)))


def test_nothing_of_the_size_of_a_kernel_is_formed():
    """A kernel of 20,000 objects would take 3.2 GB."""
    rng = np.random.default_rng(0)
    given = {name: kernels.Features(rng.standard_normal((20_000, 5))) for name in "ab"}
    tracemalloc.start()
    try:
        result = fit(stack_kernels(given), structure=PPCA(2), tol=0, max_iter=2)
        rows = result.rows("a", [7, 19_000])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100e6
    close(rows[1], given["a"].values[19_000] @ given["a"].values.T / 5, 1e-12)
