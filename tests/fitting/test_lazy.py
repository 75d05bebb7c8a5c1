"""Completed kernels and model matrices of many objects are computed where they are asked for."""

import pickle

import numpy as np
import pytest

from mkmc_prob import PPCA, datasets, fit, load_result, remove_objects
from mkmc_prob.em.completion import CompletedKernel
from mkmc_prob.linalg import lazy


@pytest.fixture
def incomplete():
    return remove_objects(datasets.make_fusion_problem(130, 3).kernels, 0.4, seed=0)


@pytest.fixture
def results(incomplete, monkeypatch):
    """The same fit, whole and lazy."""
    whole = fit(incomplete, structure=PPCA(6), sharing=0.9)
    monkeypatch.setattr(lazy, "MOST_ENTRIES", 1_000)
    monkeypatch.setattr(lazy, "BLOCK", 50)
    return whole, fit(incomplete, structure=PPCA(6), sharing=0.9)


def test_the_entries_are_those_of_the_whole(results, incomplete):
    whole, parts = results
    assert type(parts.completed.data).__module__.startswith("dask")
    values = parts.completed.values
    np.testing.assert_allclose(values, whole.completed.values, rtol=1e-12, atol=1e-14)
    assert np.array_equal(values, values.transpose(0, 2, 1))
    visible = ~np.isnan(incomplete.values)
    assert np.array_equal(values[visible], incomplete.values[visible])
    matrix = parts.model.covariance
    assert type(matrix.data).__module__.startswith("dask")
    np.testing.assert_allclose(matrix.values, whole.model.matrix, rtol=1e-12, atol=1e-14)
    assert np.array_equal(matrix.values, matrix.values.T)


def test_labels_and_attributes_are_the_same(results):
    whole, parts = (each.completed for each in results)
    assert parts.coords.identical(whole.coords)
    assert (parts.name, parts.dims, parts.attrs) == (whole.name, whole.dims, whole.attrs)


def test_rows_cost_those_rows(results, monkeypatch):
    _, parts = results
    computed, block = [], CompletedKernel.block

    def counted(self, rows, columns):
        computed.append((len(rows), len(columns)))
        return block(self, rows, columns)

    monkeypatch.setattr(CompletedKernel, "block", counted)
    first = parts.completed["object"].values[:3]
    assert parts.completed.isel(kernel=1).sel(object=first).values.shape == (3, 130)
    assert sum(rows * columns for rows, columns in computed) <= 50 * 130


def test_a_lazy_result_can_be_pickled_saved_and_summarized(results, tmp_path):
    whole, parts = results
    again = pickle.loads(pickle.dumps(parts))
    assert np.array_equal(again.completed.values, parts.completed.values)
    parts.save(tmp_path / "result.nc")
    loaded = load_result(tmp_path / "result.nc")
    assert loaded.identical(parts)
    assert np.array_equal(loaded.completed.values, parts.completed.values)
    assert repr(parts) == repr(whole)
    assert parts.summary().equals(whole.summary())


def test_without_dask_the_whole_is_computed(results, incomplete, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "dask.array", None)
    found = fit(incomplete, structure=PPCA(6), sharing=0.9)
    assert isinstance(found.completed.data, np.ndarray)
    assert isinstance(found.model.covariance.data, np.ndarray)
