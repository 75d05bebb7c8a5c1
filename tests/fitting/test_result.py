"""Results: the table, ArviZ's schema, and files without loss."""

import copy
import pickle
import warnings

import numpy as np
import pytest
import xarray as xr
from problems import PAPER, beyond_double_precision, both_models, small_stack
from strategies import random_covariance

from mkmc_prob import (
    EM,
    GaussianModel,
    MKMCError,
    MKMCWarning,
    WishartPrior,
    datasets,
    diagnostics,
    fit,
    load_result,
    remove_objects,
    stack_kernels,
)


@pytest.fixture(scope="module", params=[{}, PAPER], ids=["adaptive", "identical"])
def result(request):
    return fit(small_stack(), **request.param, degrees_of_freedom=[1.0, 2.0, 0.5])


def test_the_summary_is_one_row_a_kernel(result):
    table = result.summary()
    identical = bool((result.sources["scale"] == 1).all())
    assert set(table.columns).isdisjoint({"scale", "constant", "sharing"}) == identical
    assert table.index.tolist() == ["Q1", "Q2", "Q3"]
    assert (table["visible"] + table["missing"] == 6).all()
    assert table["visible"].tolist() == (
        (~np.isnan(np.diagonal(small_stack().values, axis1=1, axis2=2))).sum(axis=1).tolist()
    )
    total = table["log_likelihood"].sum() + float(result.trace["log_prior"][-1])
    assert total == pytest.approx(result.penalized_log_likelihood)
    stack, model = small_stack(), result.model.matrix
    for name, row in table.iterrows():
        seen = ~np.isnan(np.diagonal(stack.sel(kernel=name)))
        block = stack.sel(kernel=name).values[np.ix_(seen, seen)]
        source = result.sources.sel(kernel=name)
        visible_model = model[np.ix_(seen, seen)] + source["constant"].item()
        visible_model *= source["scale"].item()
        length = np.trace(np.linalg.inv(visible_model) @ block) / seen.sum()
        assert row["mahalanobis"] == pytest.approx(length)
        cosine = np.sum(block * visible_model)
        cosine /= np.linalg.norm(block) * np.linalg.norm(visible_model)
        assert row["correlation"] == pytest.approx(cosine)


def test_a_perfect_kernel_has_unit_length_and_correlation():
    matrix = random_covariance(np.random.default_rng(0), 4)
    table = fit(stack_kernels(matrix[None]), strength=1e-9, sources="identical").summary()
    assert table["mahalanobis"].item() == pytest.approx(1)
    assert table["correlation"].item() == pytest.approx(1)


@pytest.mark.filterwarnings("ignore::mkmc_prob.IdentifiabilityWarning")
@both_models
def test_the_summary_of_a_kernel_that_shows_nothing(model):
    stack = stack_kernels(np.tile(np.eye(2), (2, 1, 1)), visible=[[1, 1], [0, 0]])
    row = fit(stack, **model).summary().loc["Q2"]
    assert row["visible"] == 0
    assert row["log_likelihood"] == 0
    assert row[["mahalanobis", "correlation"]].isna().all()


def test_a_result_says_what_it_is(result):
    assert "3 kernels over 6 objects" in repr(result)
    assert (
        f"converged after {result.n_iter} geodesic iterations ({result.n_iter + 1} evaluations)"
        in repr(result)
    )
    html = result._repr_html_()
    assert "<table" in html
    assert "log_likelihood" in html


def test_the_summary_of_a_model_beyond_double_precision_says_which_number_is_left_out():
    result = beyond_double_precision()
    with pytest.warns(MKMCWarning, match=r"kernel 'Q2': its mahalanobis is left out.*raise the st"):
        table = result.summary()
    assert table["mahalanobis"].isna().tolist() == [False, True]
    assert table.drop(columns="mahalanobis").notna().all(axis=None)


@pytest.mark.filterwarnings("ignore::mkmc_prob.MKMCWarning")
@pytest.mark.parametrize("strength", [1e-100, 1e-20, 1e100])
def test_extreme_strengths_have_a_summary(strength):
    scale = np.eye(3) * min(1.0 / strength, 1e100)
    result = fit(small_stack(size=6), strength=strength, sources="identical")
    assert result.summary().notna().all(axis=None)
    stack = stack_kernels(np.zeros((2, 3, 3)), visible=[[1, 1, 0], [0, 1, 1]])
    table = fit(stack, prior=WishartPrior(strength, scale), sources="identical").summary()
    assert (table["mahalanobis"] == 0).all()


# Pairs never seen together


def test_pairs_never_seen_together_are_marked():
    stack = stack_kernels(
        np.stack([np.eye(5)] * 2), visible=[[1, 1, 1, 0, 0], [1, 0, 0, 1, 1]], objects=list("abcde")
    )
    result = fit(stack)
    never = {frozenset(pair) for pair in ("bd", "be", "cd", "ce")}
    marked = result.never_seen_together()
    for one in "abcde":
        for two in "abcde":
            found = bool(marked.sel(object=one, object_bis=two))
            assert found == (frozenset((one, two)) in never)
            assert (int(result.pair_counts().sel(object=one, object_bis=two)) == 0) == found
    assert (result.summary()["apart"] == 4).all()
    assert (
        "4 of 10 pairs of objects are never observed together:\n  the kernels only bound their "
        "entries, and the prior chooses within the bounds"
    ) in repr(result)
    assert "prior alone" not in repr(result)
    assert "never observed together" in result._repr_html_()


@pytest.mark.filterwarnings("ignore::mkmc_prob.IdentifiabilityWarning")
def test_pairs_that_no_chain_of_kernels_ties_come_from_the_prior():
    kernels = np.stack([np.eye(5)] * 3)
    # d is tied to none, and no kernel shows e: 7 pairs of the 8; a and c are tied through b.
    result = fit(
        stack_kernels(kernels, visible=[[1, 1, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 0, 1, 0]])
    )
    assert "8 of 10 pairs" in repr(result)
    assert "the entries of 7 come from the prior alone" in repr(result)
    result = fit(stack_kernels(kernels[:1, :2, :2], visible=[[1, 0]]))
    assert "1 of 1 pairs of objects is never observed together:\n  their entries come" in repr(
        result
    )
    assert repr(result).endswith("come from the prior alone")


def test_where_all_pairs_are_seen_nothing_is_said():
    result = fit(stack_kernels(np.stack([np.eye(3)] * 2), visible=[[1, 1, 1], [1, 0, 1]]))
    assert "together" not in repr(result)
    assert (result.summary()["apart"] == 0).all()
    assert not result.never_seen_together().any()
    assert "together" not in repr(fit(stack_kernels(np.ones((1, 1, 1)))))


def test_the_mark_is_in_the_tree_and_in_files(result, tmp_path):
    marked = result.never_seen_together()
    assert marked.any()
    assert result.to_datatree()["constant_data/never_seen_together"].dtype == bool
    result.save(tmp_path / "result.nc")
    with xr.open_datatree(tmp_path / "result.nc", engine="h5netcdf") as tree:
        kept = tree["constant_data/never_seen_together"].load()
    xr.testing.assert_equal(kept, marked)
    assert kept.dtype == bool
    assert load_result(tmp_path / "result.nc").never_seen_together().identical(marked)


def same(one, two):
    assert one.identical(two)
    assert one.observed.identical(two.observed)
    assert one.completed.identical(two.completed)
    assert one.trace.drop_vars("seconds").identical(two.trace.drop_vars("seconds"))
    assert one.degrees_of_freedom.identical(two.degrees_of_freedom)
    assert one.sources.identical(two.sources)
    assert one.model.covariance.identical(two.model.covariance)
    assert one.prior.strength == two.prior.strength
    assert (one.prior.scale is None) == (two.prior.scale is None)
    if one.prior.scale is not None:
        assert one.prior.scale.identical(two.prior.scale)
    for name in ("method", "tol", "converged", "interrupted", "n_iter"):
        assert getattr(one, name) == getattr(two, name)


def test_saved_and_loaded_without_loss(result, tmp_path):
    result.save(tmp_path / "result.nc")
    again = load_result(tmp_path / "result.nc")
    same(result, again)
    assert again.summary().equals(result.summary())
    again.save(tmp_path / "again.nc")
    same(result, load_result(tmp_path / "again.nc"))


@pytest.mark.parametrize("sources", ["adaptive", "identical"])
def test_integer_labels_a_scale_and_a_short_fit_survive_too(tmp_path, sources):
    rng = np.random.default_rng(1)
    stack = stack_kernels(
        np.array([random_covariance(rng, 3) for _ in range(2)]),
        visible=[[1, 1, 0], [0, 1, 1]],
        names=[10, 20],
        objects=[5, 3, 4],
    )
    prior = WishartPrior(0.3, random_covariance(rng, 3))
    short = fit(stack, prior=prior, sources=sources, tol=0, max_iter=1)
    short.save(tmp_path / "short.nc")
    again = load_result(str(tmp_path / "short.nc"))
    same(short, again)
    assert again.completed["object"].dtype == np.int64
    options = {"prior": again.prior, "sources": again.sources}
    continued = fit(again.observed, **options, initial=again.model)
    assert continued.converged


def test_results_compare_by_identical(result):
    other = fit(small_stack(), degrees_of_freedom=[1.0, 2.0, 0.5], strength=0.2)
    assert result.identical(result)
    assert not result.identical(other)
    assert result != other


def test_results_are_saved_as_nc(result, tmp_path):
    with pytest.raises(MKMCError, match=r"result\.npz: results are netCDF files"):
        result.save(tmp_path / "result.npz")
    with pytest.raises(MKMCError, match="path: 3 found"):
        result.save(3)


@pytest.mark.parametrize("sources", ["adaptive", "identical"])
def test_a_loaded_result_starts_a_fit(tmp_path, sources):
    model = {"strength": 0.01, "sources": sources}
    result = fit(small_stack(), **model, degrees_of_freedom=[1.0, 2.0, 0.5])
    result.save(tmp_path / "result.nc")
    again = load_result(tmp_path / "result.nc")
    degrees = again.degrees_of_freedom
    warm = fit(again.observed, **model, degrees_of_freedom=degrees, initial=again.model)
    assert warm.n_iter < result.n_iter
    assert isinstance(again.model, GaussianModel)


def test_saving_replaces_a_file_only_when_it_is_whole(result, tmp_path, monkeypatch):
    path = tmp_path / "result.nc"
    path.write_bytes(b"old")

    def breaks(*_, **__):
        raise OSError("disk full")

    monkeypatch.setattr(type(path), "write_bytes", breaks)
    with pytest.raises(OSError, match="disk full"):
        result.save(path)
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["result.nc"]


def test_files_that_are_no_results_are_refused(tmp_path):
    (tmp_path / "text.nc").write_text("no netCDF")
    with pytest.raises(MKMCError, match=r"text\.nc: not readable as a netCDF file"):
        load_result(tmp_path / "text.nc")
    xr.Dataset({"a": 1}).to_netcdf(tmp_path / "other.nc", engine="h5netcdf")
    with pytest.raises(MKMCError, match=r"other\.nc: not a result"):
        load_result(tmp_path / "other.nc")
    with pytest.raises(FileNotFoundError, match=r"none\.nc"):
        load_result(tmp_path / "none.nc")


def test_the_datatree_follows_arvizs_schema(result):
    tree = result.to_datatree()
    assert set(tree.children) == {
        "observed_data",
        "constant_data",
        "sample_stats",
        "point_estimate",
        "sources",
    }
    assert tree.attrs["inference_library"] == "mkmc_prob"
    assert bool(tree["constant_data/visible"].sum() == result.summary()["visible"].sum())


def test_diagnostics_are_groups_of_their_own(result):
    tree = result.to_datatree(diagnostics=True)
    assert "log_likelihood" not in tree.children
    scores = diagnostics.object_predictive(result)
    np.testing.assert_array_equal(tree["object_predictive"]["log_density"], scores)
    np.testing.assert_array_equal(
        tree["kernel_agreement"]["correlation"],
        diagnostics.kernel_agreement(result)["correlation"],
    )
    assert tree["pair_counts"]["pair_counts"].dtype.kind == "i"
    assert tree.attrs["inference_library"] == "mkmc_prob"


@pytest.mark.parametrize("to", ["netcdf", "zarr"])
def test_the_tree_comes_back_from_files_whole_and_arviz_summarises_it(result, tmp_path, to):
    import arviz_stats
    import xarray as xr

    tree = result.to_datatree(diagnostics=True)
    if to == "netcdf":
        tree.to_netcdf(tmp_path / "r.nc", engine="h5netcdf")
        again = xr.open_datatree(tmp_path / "r.nc", engine="h5netcdf").load()
    else:
        tree.to_zarr(tmp_path / "r.zarr", zarr_format=2, consolidated=True)
        again = xr.open_datatree(tmp_path / "r.zarr", engine="zarr", consolidated=True).load()
    for group in tree.subtree:
        xr.testing.assert_equal(again[group.path].to_dataset(), group.to_dataset())
    assert again.attrs["mkmc_prob_layout"] == tree.attrs["mkmc_prob_layout"]
    trace = again["sample_stats"].to_dataset()[["gain_to_come", "seconds"]]
    finite = trace.isel(iteration=slice(10, None)).expand_dims("chain")
    table = arviz_stats.summary(
        finite, sample_dims=["chain", "iteration"], kind="stats", round_to="none"
    )
    mean = float(trace["seconds"][10:].mean())
    assert float(table.loc["seconds", "mean"]) == pytest.approx(mean)


def test_arviz_reads_the_trees_that_are_written(result, tmp_path):
    """arviz-base takes the tree, arviz opens the file, on both generations of ArviZ."""
    import arviz_base

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # arviz 0.23 announces arviz 1
        import arviz

    tree = arviz_base.convert_to_datatree(result.to_datatree())
    assert "observed_data" in tree.children
    result.save(tmp_path / "result.nc")
    opened = arviz.from_netcdf(tmp_path / "result.nc")
    level = opened["sample_stats"]["penalized_log_likelihood"]
    np.testing.assert_array_equal(level, result.trace["penalized_log_likelihood"])


def test_mkmc_beats_both_baselines_on_the_bundled_digits():
    """Half of the pairs removed, strength 0.1: closer to the truth than zeros and means."""
    from mkmc_prob import correlation_matrix_distance, mean_impute, relative_error, zero_impute

    complete, _ = datasets.load_multiple_features(n_per_class=20)
    incomplete = remove_objects(complete, 0.5, seed=0)
    completions = [fit(incomplete).completed, mean_impute(incomplete), zero_impute(incomplete)]
    distance = [float(correlation_matrix_distance(complete, c).mean()) for c in completions]
    error = [float(relative_error(complete, c, incomplete).mean()) for c in completions]
    assert distance[0] < min(distance[1:])
    assert error[0] < min(error[1:])


@pytest.mark.parametrize(
    "attributes",
    [
        {"scale_factor": 2.0},
        {"_FillValue": 1.0},
        {"missing_value": 1.0},
        {"units": "days since 2000-01-01"},
        {"dtype": "bool"},
        {"note": None},
        {"note": {"a": 1}},
        {"coordinates": "x"},
    ],
)
def test_attributes_that_netcdf_would_act_on_change_nothing(attributes, tmp_path):
    """Either the result comes back as it was, or saving refuses by name."""
    odd = fit(small_stack().assign_attrs(attributes), tol=0, max_iter=2)
    refused = ""
    try:
        odd.save(tmp_path / "odd.nc")
    except MKMCError as error:
        refused = str(error)
    if refused:
        assert "netCDF cannot hold this result" in refused
        assert not list(tmp_path.iterdir())
    else:
        same(odd, load_result(tmp_path / "odd.nc"))


def test_further_coordinates_and_packed_encodings_survive(tmp_path):
    stack = small_stack().assign_coords(weight=("object", np.linspace(0.123456, 1, 6)))
    stack["weight"].encoding = {"dtype": "int16", "scale_factor": 0.1}
    result = fit(stack, tol=0, max_iter=2)
    assert "weight" in result.completed.coords
    result.save(tmp_path / "result.nc")
    same(result, load_result(tmp_path / "result.nc"))


@pytest.mark.parametrize("group", ["constant_data", "point_estimate", "observed_data"])
def test_a_damaged_file_is_named(result, tmp_path, group):
    tree = result.to_datatree()
    del tree[group]
    tree.to_netcdf(tmp_path / "damaged.nc", engine="h5netcdf")
    with pytest.raises(MKMCError, match=r"damaged\.nc: damaged: .* is missing"):
        load_result(tmp_path / "damaged.nc")


def test_a_file_with_nan_in_the_model_is_refused(result, tmp_path):
    tree = result.to_datatree().copy(deep=True)
    tree["point_estimate"]["model"] = tree["point_estimate"]["model"] * np.nan
    tree.to_netcdf(tmp_path / "nan.nc", engine="h5netcdf")
    with pytest.raises(MKMCError, match=r"nan\.nc: model matrix: .*NaN"):
        load_result(tmp_path / "nan.nc")


def test_saving_into_no_folder_names_it(result, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no folder '.*nowhere'"):
        result.save(tmp_path / "nowhere" / "result.nc")
    (tmp_path / "folder.nc").mkdir()
    with pytest.raises(IsADirectoryError, match=r"folder\.nc: is a folder"):
        result.save(tmp_path / "folder.nc")


def test_what_fit_accepts_the_summary_accepts():
    """Rounding errors of float32 below zero on the diagonal, and eigenvalues below zero."""
    kernels = np.array([np.diag([1, 1, -1e-8]), np.eye(3)]).astype(np.float32)
    table = fit(stack_kernels(kernels), tol=0, max_iter=3).summary()
    assert table.notna().all(axis=None)
    q = np.array([[1, 1 + 1e-7], [1 + 1e-7, 1]], np.float32)
    em = EM(stack_kernels(q[None]), WishartPrior(0.1))
    model = em.initial_model()
    assert em.kl_objective(model, em.complete(model)) == np.inf


def test_the_correlation_is_one_at_any_scale():
    for scale in (1e-149, 1e140):
        stack = stack_kernels(np.array([[[2.0, 1.0], [1.0, 2.0]]]) * scale)
        prior = WishartPrior(1e-3, np.eye(2) * scale)
        result = fit(stack, prior=prior, sources="identical", tol=0, max_iter=2)
        row = result.summary().loc["Q1"]
        assert row["correlation"] == pytest.approx(1, abs=1e-5)


def test_results_can_be_copied_and_pickled(result):
    for again in (copy.deepcopy(result), pickle.loads(pickle.dumps(result))):
        same(result, again)
