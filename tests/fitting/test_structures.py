"""Fits of few factors, at the level of the public functions."""

import dataclasses
import pickle
import sys
import warnings

import h5netcdf
import matplotlib.pyplot as plt
import numpy as np
import plain_sources
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_factors import dense
from plain_sources import Setting, check_fit, draw_problem
from problems import PAPER, small_stack
from scipy import optimize, stats
from strategies import random_covariance
from test_selection import flat, search

from mkmc_prob import (
    EM,
    PPCA,
    ConvergenceWarning,
    FactorAnalysis,
    GaussianModel,
    IdentifiabilityWarning,
    KernelError,
    LabelError,
    LowRankModel,
    WishartPrior,
    complete,
    datasets,
    explore_maxima,
    fit,
    load_result,
    missing_information,
    remove_objects,
    sample_completed,
    sample_posterior,
    select_model,
    stack_kernels,
    standard_errors,
)
from mkmc_prob.diagnostics import check_monotone
from mkmc_prob.em.methods import OF_LOW_RANK
from mkmc_prob.fitting.holdout import Setting as Candidate
from mkmc_prob.fitting.model_selection import ModelSelection
from mkmc_prob.model.structures import FULL, structure_of

KINDS = [PPCA, FactorAnalysis]
both = pytest.mark.parametrize("kind", KINDS)
seeds = st.integers(0, 2**32 - 1)
not_identified = pytest.mark.filterwarnings("ignore::mkmc_prob.IdentifiabilityWarning")
apart = pytest.mark.filterwarnings("ignore:objects? .* visible only in kernels that share")
#: What `fit` takes, by how the kernels relate to the model.
SOURCES = {
    "adaptive": {},
    "shared in part": {"sharing": [1.0, 0.5, 1.0]},
    "one apart": {"sharing": [1.0, 1.0, 0.0], "degrees_of_freedom": [1.0, 2.0, 3.0]},
    "identical": PAPER,
}
by_sources = pytest.mark.parametrize("sources", SOURCES.values(), ids=SOURCES)


def stack_of(seed=0, size=7, constant=0.6):
    """Three kernels of other units, which share a constant, of two factors and noise."""
    rng = np.random.default_rng(seed)
    common = rng.standard_normal((size, 2))
    visible = rng.random((3, size)) < 0.7
    visible[rng.integers(3, size=size), np.arange(size)] = visible[:, :3] = True
    kernels = []
    for unit in (1.0, 20.0, 0.1):
        features = common @ rng.standard_normal((2, 12)) + 0.7 * rng.standard_normal((size, 12))
        kernels.append(unit * (features @ features.T / 12 + constant))
    kernels = (np.array(kernels) + np.swapaxes(kernels, 1, 2)) / 2
    return stack_kernels(kernels, visible=visible, objects=[f"p{i}" for i in range(size)])


def without(stack, name):
    return stack.where(stack["object"] != name).where(stack["object_bis"] != name)


def setting_of_result(result, model, constant):
    """The problem of a result in plain arrays."""
    size, sources = result.observed.sizes["object"], result.sources
    kernels = result.observed.values
    prior = result.prior.scale
    return Setting(
        kernels,
        ~np.isnan(np.diagonal(kernels, axis1=1, axis2=2)),
        sources["scale"].values,
        np.asarray(constant),
        sources["sharing"].values,
        result.degrees_of_freedom.values,
        result.prior.strength,
        np.eye(size) if prior is None else prior.values,
    )


def check_completion(result):
    """The completed kernels are the dense conditional expectations at the E-step's model."""
    at = result.completion
    matrix = dense(at.model.factor_loadings, at.model.noise_variances)
    expected = plain_sources.completed(
        setting_of_result(result, matrix, at.sources.constant), matrix
    )
    for found, own in zip(result.completed.values, expected, strict=True):
        np.testing.assert_allclose(found, own, atol=1e-9 * np.abs(own).max())
    visible = result.observed.notnull().values
    np.testing.assert_array_equal(result.completed.values[visible], result.observed.values[visible])


# --- against computations without EM --------------------------------------------------------------


@by_sources
@both
def test_every_method_converges_and_rises(kind, sources):
    stack = stack_of()
    if "identical" in sources.values():
        stack = stack / [[[1.0]], [[20.0]], [[0.1]]]
    levels = []
    for method in OF_LOW_RANK:
        result = fit(stack, structure=kind(2), method=method, tol=1e-6, **sources)
        assert result.converged
        check_monotone(result.trace)
        check_completion(result)
        levels.append(result.penalized_log_likelihood)
    assert np.ptp(levels) < 1e-3
    assert max(levels) == pytest.approx(levels[1], abs=1e-4)  # geodesic


def plain_level(parameters, problem, structure, free):
    """L by SciPy's densities: loadings, log noise and the constants, all of them free."""
    kernels, visible, scale, sharing, degrees, strength, shared = problem
    size, rank = visible.shape[1], structure.rank
    loadings, rest = parameters[: size * rank].reshape(size, rank), parameters[size * rank :]
    count = 1 if isinstance(structure, PPCA) else size
    noise, constant = np.broadcast_to(np.exp(rest[:count]), size), rest[count:]
    model, t = loadings @ loadings.T + np.diag(noise), np.eye(size) + shared
    level = -0.5 * strength * (np.linalg.slogdet(model)[1] + np.trace(np.linalg.solve(model, t)))
    level -= 0.5 * structure.noise_strength * (np.log(noise) + structure.noise_scale / noise).sum()
    for k, seen in enumerate(visible):
        c = constant[k] if free else 0.0
        whole = scale[k] * (sharing[k] * model + (1.0 - sharing[k]) * t + c)
        block = whole[np.ix_(seen, seen)]
        own = kernels[k][np.ix_(seen, seen)]
        density = stats.multivariate_normal(cov=block).logpdf(np.zeros(seen.sum()))
        level += degrees[k] * (density - 0.5 * np.trace(np.linalg.solve(block, own)))
    return level


@pytest.mark.parametrize("name", ["adaptive", "shared in part", "identical"])
@pytest.mark.parametrize("kind", [PPCA, FactorAnalysis])
def test_the_maximum_is_that_of_scipys_optimizer(kind, name):
    stack = stack_of(seed=4, size=5, constant=2.0)
    options, degrees = SOURCES[name], [1.0, 2.0, 0.7]
    structure = kind(1, noise_strength=0.4, noise_scale=0.7)
    free = name != "identical"
    scale, shared = np.ones(3), 0.0
    kernels = stack.values
    visible = ~np.isnan(np.diagonal(kernels, axis1=1, axis2=2))
    if free:
        parts = [
            plain_sources.moments(k[np.ix_(v, v)]) for k, v in zip(kernels, visible, strict=True)
        ]
        scale, off = np.array(parts).T
        shared = max(0.0, (off / scale).min())
        assert shared > 0.1
    else:
        stack = stack / [[[1.0]], [[20.0]], [[0.1]]]
        kernels = stack.values
    sharing = options.get("sharing", [1.0] * 3)
    strength = options.get("strength", 0.8)
    problem = (np.nan_to_num(kernels), visible, scale, sharing, degrees, strength, shared)
    noises = 1 if kind is PPCA else 5
    rng = np.random.default_rng(0)
    bounds = [(None, None)] * 5 + [(-6.0, 6.0)] * noises + [(0.0, None)] * 3 * free
    ends = []
    for _ in range(2):
        start = np.concatenate([rng.standard_normal(5), np.zeros(noises), np.ones(3 * free)])
        ends.append(
            optimize.minimize(
                lambda x: -plain_level(x, problem, structure, free),
                start,
                method="L-BFGS-B",
                bounds=bounds,
                options={"ftol": 1e-14, "gtol": 1e-8, "maxiter": 2000, "maxfun": 100_000},
            )
        )
    best = min(ends, key=lambda end: end.fun)
    result = fit(
        stack,
        structure=structure,
        degrees_of_freedom=degrees,
        tol=1e-10,
        **({"strength": strength} | options),
    )
    assert result.penalized_log_likelihood == pytest.approx(-best.fun, abs=1e-6)
    loadings, noise = best.x[:5, None], np.broadcast_to(np.exp(best.x[5 : 5 + noises]), 5)
    matrix = loadings @ loadings.T + np.diag(noise)
    np.testing.assert_allclose(result.model.matrix, matrix, atol=2e-3)
    np.testing.assert_allclose(result.model.noise, noise, atol=2e-3)
    canonical = loadings * np.sign(loadings[np.abs(loadings).argmax()])
    np.testing.assert_allclose(result.model.loadings, canonical, atol=2e-3)
    if free:
        np.testing.assert_allclose(result.sources["scale"], scale, rtol=1e-12)
        np.testing.assert_allclose(result.sources["constant"], best.x[5 + noises :], atol=5e-3)
    check_completion(result)


@settings(max_examples=12, deadline=None)
@given(seeds, st.sampled_from(KINDS), st.sampled_from(list(OF_LOW_RANK)))
@not_identified
@pytest.mark.filterwarnings("ignore::mkmc_prob.ConvergenceWarning")
def test_whatever_the_pattern(seed, kind, method):
    drawn = draw_problem(np.random.default_rng(seed))
    size = drawn.stack.sizes["object"]
    if (drawn.sharing < 1.0).any():
        drawn = drawn._replace(scale=None)  # refused together
    rank = 1 + seed % min(size - 1, 3)
    result = check_fit(drawn, structure=kind(rank), method=method, max_iter=30)
    check_completion(result)


@settings(max_examples=6, deadline=None)
@given(seeds, st.sampled_from(KINDS), st.floats(-6.0, 6.0))
@not_identified
def test_units_and_orders_do_not_matter(seed, kind, decades):
    rng = np.random.default_rng(seed)
    drawn = draw_problem(rng, regular=True)
    stack, size = drawn.stack, drawn.stack.sizes["object"]
    kernels, objects = rng.permutation(stack.sizes["kernel"]), rng.permutation(size)
    unit = 10.0**decades
    other = (unit * stack).isel(kernel=kernels, object=objects, object_bis=objects)
    root = rng.standard_normal((size, size + 2))
    start = GaussianModel(root @ root.T / size + np.eye(size), objects=stack["object"].values)
    options = {"strength": drawn.strength, "structure": kind(1), "initial": start}
    options |= {"tol": 0, "max_iter": 12, "method": "px-em"}
    one = fit(stack, sharing=drawn.sharing, **options)
    two = fit(other, sharing=drawn.sharing[kernels], **options)
    matrix = one.model.matrix[np.ix_(objects, objects)]
    np.testing.assert_allclose(two.model.matrix, matrix, atol=1e-8 * np.abs(matrix).max())
    for k, place in enumerate(kernels):
        expected = unit * one.completed.values[place][np.ix_(objects, objects)]
        size_of = np.abs(expected).max()
        np.testing.assert_allclose(two.completed.values[k], expected, atol=1e-8 * size_of)


# --- starts ---------------------------------------------------------------------------------------


@both
def test_where_a_fit_may_start(kind):
    stack = stack_of(seed=1)
    best = fit(stack, structure=kind(2), tol=1e-7)
    full = fit(stack)
    starts = {
        "full result": full,
        "its own": best,
        "one factor": fit(stack, structure=PPCA(1)),
        "other structure": fit(stack, structure=PPCA(2) if kind is FactorAnalysis else kind(2)),
        "more factors": fit(stack, structure=FactorAnalysis(4)),
        "model": best.model,
        "labeled": full.model.covariance[::-1, ::-1],
        "frame": full.model.covariance.to_pandas(),
        "identity": np.eye(7),
        "diagonal": np.diag(np.arange(1.0, 8.0)),
    }
    for name, start in starts.items():
        result = fit(stack, structure=kind(2), tol=1e-7, initial=start)
        level = result.penalized_log_likelihood
        assert level == pytest.approx(best.penalized_log_likelihood, abs=1e-4), name
    assert fit(stack, structure=kind(2), initial=best).n_iter <= 12
    again = fit(stack, initial=best, tol=1e-7)
    assert again.penalized_log_likelihood == pytest.approx(
        fit(stack, tol=1e-7).penalized_log_likelihood, abs=1e-5
    )
    with pytest.raises(LabelError, match="initial: it has no object"):
        fit(stack, structure=kind(2), initial=full.model.covariance[1:, 1:])


# --- what is visible nowhere, or in little --------------------------------------------------------


@pytest.mark.parametrize("sources", [{}, PAPER], ids=["adaptive", "identical"])
@both
def test_objects_hidden_in_every_kernel(kind, sources):
    stack = without(small_stack(seed=1, size=8), "p5")
    with pytest.warns(IdentifiabilityWarning, match="'p5' is missing in every kernel"):
        result = fit(stack, structure=kind(2), tol=1e-9, **sources)
    assert result.converged
    check_completion(result)
    assert "p5" in result.model.objects
    if sources:  # the prior's scale is the identity: nothing ties p5 to the others
        row = result.model.covariance.sel(object="p5").drop_sel(object_bis="p5")
        np.testing.assert_allclose(row, 0.0, atol=1e-3)
        if kind is FactorAnalysis:
            assert result.model.noise.sel(object="p5") == pytest.approx(1.0, abs=1e-4)
    with pytest.warns(IdentifiabilityWarning):
        full = fit(stack, initial=result, **sources)
    with pytest.warns(IdentifiabilityWarning):
        again = fit(stack, structure=kind(2), initial=full, **sources)
    assert again.penalized_log_likelihood == pytest.approx(
        result.penalized_log_likelihood, abs=2e-3
    )


@both
def test_a_kernel_that_shares_nothing_is_completed_from_itself(kind):
    stack = stack_of(seed=2)
    sharing = {"Q1": 1.0, "Q2": 0.0, "Q3": 1.0}
    result, full = (fit(stack, structure=each, sharing=sharing) for each in (kind(2), "full"))
    apart = result.completed.sel(kernel="Q2"), full.completed.sel(kernel="Q2")
    np.testing.assert_allclose(*apart, rtol=1e-9)
    check_completion(result)
    nothing = fit(stack, structure=kind(2), sharing=0.0)
    full = fit(stack, sharing=0.0)
    np.testing.assert_allclose(nothing.completed, full.completed, rtol=1e-9)


@both
@not_identified
def test_kernels_with_fewer_visible_objects_than_factors(kind):
    rng = np.random.default_rng(0)
    visible = np.ones((4, 8), dtype=bool)
    visible[1, 2:] = visible[2, 1:] = visible[3] = False
    stack = stack_kernels(np.array([random_covariance(rng, 8) for _ in range(4)]), visible=visible)
    result = fit(stack, structure=kind(5))
    assert result.converged
    check_completion(result)
    one = fit(stack, structure=kind(2), tol=0, max_iter=1)
    assert one.n_iter == 1
    check_completion(one)


# --- files and views ------------------------------------------------------------------------------


def tables(path):
    """The variables of a netCDF file with the dimension `object_bis`."""
    found = []

    def visit(group):
        for name, variable in group.variables.items():
            if "object_bis" in variable.dimensions and len(variable.dimensions) > 1:
                found.append(f"{group.name}/{name}")
        for child in group.groups.values():
            visit(child)

    with h5netcdf.File(path) as file:
        visit(file)
    return found


@by_sources
@both
def test_a_result_survives_a_file_without_loss(tmp_path, kind, sources):
    stack = stack_of(seed=3)
    if "identical" in sources.values():
        stack = stack / [[[1.0]], [[20.0]], [[0.1]]]
    if kind is FactorAnalysis:
        stack = stack.assign_coords(kernel=[3, 1, 2], object=range(7), object_bis=range(7))
    result = fit(stack, structure=kind(2, noise_strength=0.03, noise_scale=1e-3), **sources)
    result.save(tmp_path / "result.nc")
    again = load_result(tmp_path / "result.nc")
    assert again.identical(result)
    np.testing.assert_array_equal(again.completed.values, result.completed.values)
    np.testing.assert_array_equal(again.model.factor_loadings, result.model.factor_loadings)
    assert again.completed.identical(result.completed)
    assert again.structure == result.structure
    assert repr(again) == repr(result)
    assert tables(tmp_path / "result.nc") == ["/observed_data/kernels"]
    np.testing.assert_array_equal(
        again.prior.scale_matrix(result.model.objects),
        result.prior.scale_matrix(result.model.objects),
    )
    assert again.prior.is_identity == result.prior.is_identity
    more = fit(stack, structure=again.structure, initial=again, **sources)
    first = float(more.trace["penalized_log_likelihood"][0])
    assert first == pytest.approx(result.penalized_log_likelihood, abs=1e-9)


def test_a_scale_of_the_users_survives_a_file(tmp_path):
    scale = np.eye(7) + 0.1
    result = fit(stack_of(), structure=PPCA(2), prior=WishartPrior(0.7, scale))
    result.save(tmp_path / "result.nc")
    again = load_result(tmp_path / "result.nc")
    assert again.identical(result)
    np.testing.assert_array_equal(again.prior.scale, scale)


def test_rows_are_those_of_the_completed_kernels():
    result = fit(stack_of(), structure=FactorAnalysis(2))
    for kernel in ("Q1", "Q2", "Q3"):
        for objects in (["p5", "p0"], ["p3"], [], result.model.objects):
            rows = result.completion.rows(kernel, objects)
            expected = result.completed.sel(kernel=kernel, object=list(objects))
            assert rows.dims == expected.dims
            np.testing.assert_allclose(rows, expected, rtol=1e-12)
    with pytest.raises(LabelError, match="there is no kernel 'Q9'"):
        result.completion.rows("Q9", ["p0"])
    with pytest.raises(LabelError, match="there is no object 'zz', 'yy'"):
        result.completion.rows("Q1", ["p0", "zz", "yy"])
    with pytest.raises(LabelError, match="Pass a list"):
        result.completion.rows("Q1", "p0")


@pytest.mark.parametrize("sources", [{"sharing": [1.0, 0.5, 0.0]}, PAPER], ids=["own", "identical"])
@both
@apart
def test_every_view_of_a_result(kind, sources):
    stack = small_stack(seed=1, size=8)
    result = fit(stack, structure=kind(2), **sources)
    assert f"{kind.__name__}(2), " in repr(result)
    assert f"{kind.__name__}(2), " in result._repr_html_()
    assert "the factors choose within the bounds" in repr(result)
    table = result.summary()
    assert len(table) == 3
    shares = result.sources["sharing"].values > 0.0
    assert np.isfinite(table["mahalanobis"][shares]).all()
    tree = result.to_datatree(diagnostics=True)
    assert {"object_predictive", "pair_counts", "kernel_agreement", "completion"} <= {*tree}
    assert result.identical(result)
    assert not result.identical(fit(stack, structure=kind(3), **sources))
    drawn = [name for name in dir(result) if name.startswith("plot_")]
    for name in drawn:
        if name in ("plot_rate", "plot_slowest"):
            with pytest.raises(KernelError, match="missing_information: structure"):
                getattr(result, name)()
        else:
            assert getattr(result, name)() is not None
    plt.close("all")


# --- what cannot be done --------------------------------------------------------------------------


def test_errors_name_the_remedy():
    stack = small_stack(seed=1, size=8)
    scale = WishartPrior(1.0, np.eye(8) + 0.2)
    result = fit(stack, structure=PPCA(2))
    cases = [
        ({"structure": PPCA(8)}, "rank 8 found for 8 objects.*smaller"),
        ({"structure": FactorAnalysis(9)}, "rank 9 found for 8 objects.*smaller"),
        ({"prior": PPCA(8)}, "rank 8 found for 8 objects.*smaller"),
        ({"structure": PPCA(2), "method": "squarem"}, r"'squarem'.*PPCA\(2\).*'px-em'"),
        ({"method": "px-em"}, "'px-em'.*'full'.*'squarem'"),
        ({"prior": PPCA(2), "method": "px-em"}, "'px-em'.*'full'.*'squarem'"),
        ({"structure": PPCA(2), "prior": PPCA(2)}, "leave one of the two out"),
        ({"structure": PPCA(2), "prior": scale, "sharing": [1, 1, 0]}, "Leave the scale out"),
        ({"structure": PPCA(2), "prior": scale, "sharing": 0.5}, "Leave the scale out"),
        ({"structure": "ppca(2)"}, r"'ppca\(2\)' found; 'full', PPCA\(rank\)"),
        ({"structure": 2}, r"2 found; 'full', PPCA\(rank\)"),
        ({"structure": "PPCA(2, noise_strength=1e)"}, "could not convert"),
        ({"structure": "PPCA(0)"}, "rank: 0 found"),
        ({"prior": "ppca"}, "prior: 'ppca' found"),
    ]
    for options, words in cases:
        with pytest.raises(KernelError, match=words):
            fit(stack, **options)
    for kind in KINDS:
        for options in ({"rank": 0}, {"rank": 1.5}, {"rank": 1, "noise_strength": -1}):
            with pytest.raises(KernelError, match=kind.__name__):
                kind(**options)
    others = (missing_information, standard_errors)
    for function in (*others, lambda one: explore_maxima(stack, structure=PPCA(2))):
        with pytest.raises(KernelError, match=r'PPCA\(2\) found.*Fit with structure="full"'):
            function(result)
    with pytest.raises(KernelError, match="prior: PPCA"):
        sample_posterior(stack, degrees_of_freedom=9, prior=PPCA(2), seed=0)


def test_what_cannot_be_fitted_is_refused_before_the_first_step(monkeypatch):
    monkeypatch.setattr("mkmc_prob.em.ascent.Ascent.run", None)
    scale = WishartPrior(1.0, np.eye(7) + 0.2)
    with pytest.raises(KernelError, match="Leave the scale out"):
        fit(stack_of(), structure=PPCA(2), prior=scale, sharing=[1, 1, 0])
    with pytest.raises(KernelError, match="method"):
        fit(stack_of(), prior=PPCA(2), method="px-em")
    for options in ({"structures": ["full", PPCA(7)]}, {"priors": [None, PPCA(7)]}):
        with pytest.raises(KernelError, match="rank 7 found for 7 objects"):
            select_model(stack_of(), **options)
    with pytest.raises(KernelError, match="Leave the scale out"):
        select_model(stack_of(), structures=["full", PPCA(2)], prior=scale)
    with pytest.raises(KernelError, match="priors: found with a prior"):
        select_model(stack_of(), priors=[None, PPCA(2)], prior=WishartPrior(1.0))
    with pytest.raises(KernelError, match="priors: 'x' found"):
        select_model(stack_of(), priors=["x"])
    for options in (
        {"method": "squarem", "structures": ["full", PPCA(2)]},
        {"method": "px-em"},
    ):
        with pytest.raises(KernelError, match="method: "):
            complete(stack_of(), **options)


def test_draws_at_the_estimate_are_those_of_the_model():
    """The hidden entries given a model matrix do not depend on its structure."""
    stack = small_stack(seed=1)
    result = fit(stack, structure=PPCA(2), **PAPER)
    with pytest.warns(UserWarning, match="drawn at the estimated model"):
        drawn = sample_completed(result, draws=1000, degrees_of_freedom=9, seed=0)
    expected = EM(stack, WishartPrior(0.1)).complete(GaussianModel(result.model.covariance))
    error = drawn.std("imputation") / np.sqrt(1000)
    assert (np.abs(drawn.mean("imputation") - expected) <= 5.0 * error + 1e-12).all()


@pytest.mark.parametrize(
    "structure",
    [FULL, PPCA(3), FactorAnalysis(2, noise_strength=0), PPCA(1, 1e-20, 3e20), PPCA(4, 0.5)],
)
def test_structures_are_read_from_their_names(structure):
    assert structure_of(structure.name) == structure


# --- the choice among structures and priors, on made-up scores ------------------------------------

NOISE = np.array([1.0, -1.0, 1.0, -1.0])[:, None] * np.ones(3)
ERROR = np.std(NOISE[:, 0], ddof=1) / 2


def by_structure(gains, noise=0.0 * NOISE):
    """Scores of settings: sharing helps, and the structure and the prior add their gains."""

    def scores(setting):
        if not any(setting.sharing):
            return flat(0.0)
        which = setting.prior or setting.structure
        own = gains[which.name]
        return flat(5.0 + own) + noise * (own != 0.0) - 1e-4 * abs(np.log(setting.strength))

    return scores


def chosen_of(selection):
    return selection.chosen.structure, selection.chosen.prior


@pytest.mark.parametrize(
    ("order", "gain", "noise", "taken"),
    [
        ((FULL, PPCA(2)), 0.0, 0.0, FULL),  # of equal ones the first
        ((PPCA(2), FULL), 0.0, 0.0, PPCA(2)),
        ((FULL, PPCA(2)), 0.0019, 0.0, FULL),  # below 0.002 nats
        ((FULL, PPCA(2)), 0.0021, 0.0, PPCA(2)),
        ((PPCA(2), FULL), -0.0021, 0.0, FULL),
        ((FULL, PPCA(2)), 0.99 * ERROR, 1.0, FULL),  # within noise
        ((FULL, PPCA(2)), 1.01 * ERROR, 1.0, PPCA(2)),
    ],
)
def test_a_later_structure_must_be_clearly_better(monkeypatch, order, gain, noise, taken):
    scores = by_structure({"full": 0.0, "PPCA(2)": gain}, noise * NOISE)
    found, _ = search(scores, monkeypatch, structures=order)
    assert chosen_of(found) == (taken, None)
    assert found.best.get("structure", FULL) == taken
    assert {*found.table["structure"]} == {"full", "PPCA(2)"}
    assert "prior" not in found.table


def test_of_several_structures_the_first_of_equal_ones(monkeypatch):
    scores = by_structure({"full": 0.0, "PPCA(2)": 1.0, "FactorAnalysis(2)": 1.001})
    found, _ = search(scores, monkeypatch, structures=(FULL, PPCA(2), FactorAnalysis(2)))
    assert chosen_of(found) == (PPCA(2), None)
    assert "PPCA(2), strength" in repr(found)


@pytest.mark.parametrize(("gain", "taken"), [(1.01, PPCA(3)), (0.99, None)])
def test_a_prior_must_be_clearly_better_than_none(monkeypatch, gain, taken):
    scores = by_structure({"full": 0.0, "PPCA(3)": gain * ERROR}, NOISE)
    found, asked = search(scores, monkeypatch, priors=[PPCA(3)], strengths=(30.0, 1.0))
    assert chosen_of(found) == (FULL, taken)
    assert found.best.get("prior") == taken
    of_prior = [path for path in asked if path[0].prior is not None]
    assert [s.strength for s in of_prior[0]] == [10.0, 3.0, 1.0]
    assert {*found.table["prior"]} == {"", "PPCA(3)"}
    assert "structure" not in found.table
    if taken:  # the sharings are compared again
        assert {s.sharing[0] for path in of_prior for s in path} == {1.0, 0.5}
        assert "prior PPCA(3), " in repr(found)
        assert found.best["strength"] == 1.0
    else:
        assert len(of_prior) == 1


def test_sharings_are_chosen_again_under_the_prior(monkeypatch):
    def scores(setting):
        shared = np.array(setting.sharing)
        own = 1.0 if setting.prior else 0.0
        return flat(0.0) + np.where(shared > 0.0, 1.0 + own + (shared == 0.5) * own, 0.0)

    found, _ = search(scores, monkeypatch, priors=[PPCA(1), PPCA(3)])
    assert found.chosen.prior == PPCA(1)  # PPCA(3) is no better
    assert set(found.best["sharing"].values()) == {0.5}


def test_priors_are_for_the_full_structure_of_kernels_that_share(monkeypatch):
    scores = by_structure({"PPCA(2)": 0.0, "PPCA(3)": 9.0})
    _, asked = search(scores, monkeypatch, structures=(PPCA(2),), priors=(PPCA(3),))
    assert all(s.prior is None for path in asked for s in path)
    found, asked = search(lambda s: flat(0.0), monkeypatch, priors=(PPCA(3),))
    assert all(s.prior is None for path in asked for s in path)
    assert not any(found.best["sharing"].values())


def test_kernels_alone_take_a_structure_that_was_asked_for(monkeypatch):
    """The full one can take too long for many objects."""
    found, asked = search(lambda s: flat(0.0), monkeypatch, structures=(PPCA(2), PPCA(3)))
    assert {s.structure for path in asked for s in path} == {PPCA(2), PPCA(3)}
    assert found.best["structure"] == PPCA(2)
    assert not any(found.best["sharing"].values())


def test_ctrl_c_keeps_the_best_structure_so_far(monkeypatch):
    def scores(setting):
        if setting.structure == FactorAnalysis(2):
            raise KeyboardInterrupt
        return by_structure({"full": 0.0, "PPCA(2)": 1.0})(setting)

    structures = (FULL, PPCA(2), FactorAnalysis(2))
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        found, _ = search(scores, monkeypatch, structures=structures)
    assert found.interrupted
    assert chosen_of(found) == (PPCA(2), None)


def test_the_most_cautious_model_has_its_own_structure(monkeypatch):
    def scores(setting):
        if not any(setting.sharing):
            return flat(-9.0)
        gain = {"full": 0.0, "PPCA(2)": 2.0}[setting.structure.name]
        return flat(gain) + NOISE + 0.1 * (setting.strength == 1.0)

    found, _ = search(scores, monkeypatch, structures=(FULL, PPCA(2)), sharings=(0.0,))
    assert found.best["strength"] == 1.0
    one = found.one_standard_error
    assert one["structure"] == PPCA(2)
    assert one["strength"] == 10.0  # within a standard error


# --- the choice on real fits ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def incomplete():
    truth, _ = datasets.make_fusion_problem(24, 3)
    return remove_objects(truth, 0.3, seed=0)


CHOICE = {"structures": ["full", PPCA(1), FactorAnalysis(2)], "priors": [None, PPCA(1)]}
SMALL = {"draws": 2, "strengths": [3.0, 1.0], "sharing": [0.5]}


@pytest.fixture(scope="module")
def selection(incomplete):
    return select_model(incomplete, **SMALL, **CHOICE)


@not_identified
def test_the_best_structure_is_what_fit_takes(incomplete, selection):
    assert {*selection.table["structure"]} == {"full", "PPCA(1)", "FactorAnalysis(2)"}
    assert {*selection.table["prior"]} == {"", "PPCA(1)"}
    assert selection.table.columns[:4].tolist() == ["strength", "structure", "prior", "score"]
    assert np.isfinite(selection.table["score"]).all()
    for i in range(len(selection.table)):
        result = fit(incomplete, **selection._arguments(selection._setting(i)), max_iter=2, tol=0)
        assert result.structure.name == selection.table["structure"][i]
    assert selection._index(selection.chosen) is not None


def test_workers_do_not_change_the_choice_of_a_structure(incomplete, selection):
    pytest.importorskip("joblib")
    again = select_model(incomplete, **SMALL, **CHOICE, workers=2)
    assert again.chosen == selection.chosen
    one, two = (each.comparisons.drop_vars("seconds") for each in (again, selection))
    assert one.identical(two)


@pytest.mark.parametrize(
    "chosen", [Candidate(1.0, (0.5, 1.0, 1.0), PPCA(1)), Candidate(3.0, (1.0,) * 3, FULL, PPCA(1))]
)
@not_identified
def test_a_selection_with_structures_survives_a_file(tmp_path, incomplete, selection, chosen):
    made = dataclasses.replace(selection, chosen=chosen, left_out="some")
    result = dataclasses.replace(fit(incomplete, **made.best), selection=made)
    result.save(tmp_path / "result.nc")
    again = load_result(tmp_path / "result.nc")
    assert again.identical(result)
    assert again.selection.chosen == chosen
    assert again.selection.best == made.best
    assert again.selection.left_out == "some"
    assert repr(again) == repr(result)
    np.testing.assert_array_equal(again.completed.values, result.completed.values)


def test_selections_of_before_have_the_full_structure(incomplete):
    now = select_model(incomplete, **SMALL)
    old = now.to_dataset().drop_vars(["structure", "prior"])
    for name in ("structure", "prior", "left_out"):
        del old.attrs[name]
    again = ModelSelection.of_dataset(old)
    assert again.chosen == now.chosen
    assert again.best == now.best
    assert again.one_standard_error == now.one_standard_error
    assert repr(again) == repr(now)
    assert again.table.equals(now.table)


# --- what complete tries --------------------------------------------------------------------------


def tried(monkeypatch, stack, **options):
    """The structures and priors that `complete` compares."""
    seen = {}

    class Seen(Exception):
        pass

    def look(_, **given):
        seen.update(given)
        raise Seen

    monkeypatch.setattr(sys.modules["mkmc_prob.fitting.complete"], "select_model", look)
    with pytest.raises(Seen):
        complete(stack, **options)
    return tuple(map(structure_of, seen["structures"])), tuple(seen["priors"])


def stack_with(apart, size):
    visible = np.ones((2, size), dtype=bool)
    if apart:
        visible[0, 0] = visible[1, -1] = False
    return stack_kernels(np.array([np.eye(size) + 0.3] * 2), visible=visible)


def test_the_defaults_of_complete(monkeypatch):
    module = sys.modules["mkmc_prob.fitting.complete"]
    monkeypatch.setattr(module, "MOST_FOR_FULL", 20)
    full, none = (FULL,), (None,)
    assert tried(monkeypatch, stack_with(False, 20)) == (full, none)
    assert tried(monkeypatch, stack_with(True, 20)) == (full, module.PRIORS)
    assert tried(monkeypatch, stack_with(True, 16)) == (full, none)  # too few for 8 factors
    assert tried(monkeypatch, stack_with(True, 20), prior=WishartPrior(1.0)) == (full, none)
    assert tried(monkeypatch, stack_with(False, 21)) == (module.FOR_MANY, none)
    scale = WishartPrior(1.0, np.eye(21) + 0.1)
    assert tried(monkeypatch, stack_with(False, 21), prior=scale) == (full, none)
    given = {"structures": ["full"], "priors": [None, PPCA(2)]}
    assert tried(monkeypatch, stack_with(True, 21), **given) == (full, (None, PPCA(2)))


@apart
def test_complete_says_what_it_did_not_try(monkeypatch, tmp_path):
    module = sys.modules["mkmc_prob.fitting.complete"]
    monkeypatch.setattr(module, "MOST_FOR_FULL", 20)
    monkeypatch.setattr(module, "FOR_MANY", (PPCA(1), FactorAnalysis(2)))
    truth, _ = datasets.make_fusion_problem(24, 3)
    stack = remove_objects(truth, 0.2, seed=0)
    quick = {"draws": 2, "strengths": [1.0], "sharing": [1.0]}
    result = complete(stack, **quick)
    said = 'not tried: structure "full", which takes long for so many objects (pass it in'
    assert said in repr(result)
    assert said in str(result.selection.verdict)
    assert result.structure in (PPCA(1), FactorAnalysis(2))
    again = fit(stack, **result.selection.best)
    np.testing.assert_array_equal(again.completed.values, result.completed.values)
    result.save(tmp_path / "result.nc")
    assert said in repr(load_result(tmp_path / "result.nc"))
    assert tables(tmp_path / "result.nc") == ["/observed_data/kernels"]
    asked = complete(stack, **quick, structures=["full"])
    assert "not tried" not in repr(asked)


def test_a_result_of_few_factors_is_an_xarray_of_its_factors():
    result = fit(stack_of(), structure=PPCA(2))
    estimate = result.to_datatree()["point_estimate"].to_dataset()
    assert {*estimate.data_vars} == {"loadings", "noise"}
    assert isinstance(result.completed, xr.DataArray)
    covariance = result.model.covariance
    loadings = estimate["loadings"]
    rebuilt = loadings.values @ loadings.values.T + np.diag(estimate["noise"])
    np.testing.assert_allclose(covariance, rebuilt, rtol=1e-12)


def test_rows_are_those_of_the_completed_kernels_whatever_the_structure():
    kernels, _ = datasets.make_fusion_problem(30, 3)
    incomplete = remove_objects(kernels, 0.3, seed=0)
    names = ["object_07", "object_03"]
    for structure in ("full", PPCA(2)):
        result = fit(incomplete, structure=structure)
        rows = result.rows("linear_2", names)
        expected = result.completed.sel(kernel="linear_2", object=names)
        np.testing.assert_allclose(rows.values, expected.values, rtol=1e-12, atol=1e-14)
        assert rows["object"].values.tolist() == names
        for wrong in (("linear_2", ["nobody"]), ("none", names)):
            with pytest.raises(LabelError, match=r"there is no (object|kernel) '(nobody|none)'"):
                result.rows(*wrong)


def test_complete_takes_one_structure_and_says_where_to_name_it():
    kernels, _ = datasets.make_fusion_problem(30, 3)
    incomplete = remove_objects(kernels, 0.3, seed=0)
    assert select_model(incomplete, structures=PPCA(2), draws=2).chosen.structure == PPCA(2)
    with warnings.catch_warnings(action="ignore"):  # kernels that are set apart
        assert complete(incomplete, structures=PPCA(2)).structure == PPCA(2)
    with pytest.raises(KernelError, match="Pass what it may be in structures"):
        complete(incomplete, structure=PPCA(2))
    with pytest.raises(KernelError, match=r"prior: 3 found; WishartPrior.* or PPCA"):
        fit(incomplete, prior=3)


def test_where_the_kernels_say_little_nothing_runs_away():
    """A tiny strength, no prior of the noise, an object that no kernel of weight shows."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        drawn = rng.standard_normal((3, 11, 3))
        visible = rng.random((3, 11)) < 0.3
        visible[0] |= ~visible.any(axis=0)
        stack = stack_kernels(drawn @ drawn.transpose(0, 2, 1), visible=visible)
        with warnings.catch_warnings(action="ignore"):
            result = fit(
                stack,
                structure=FactorAnalysis(1, noise_strength=0.0),
                strength=1e-4,
                sharing=[0.0, 0.01, 0.5],
                degrees_of_freedom=[0.1, 1000.0, 1000.0],
                max_iter=300,
            )
        assert np.abs(result.completed.values).max() < 1e6 * np.nanmax(np.abs(stack.values))


@pytest.mark.parametrize("kind", [PPCA, FactorAnalysis])
def test_a_start_on_a_saddle_is_left(kind):
    stack = stack_of()
    level = fit(stack, structure=kind(1), tol=1e-8).penalized_log_likelihood
    size = stack.sizes["object"]
    zero = LowRankModel(np.zeros((size, 1)), np.ones(size), stack["object"].values)
    for start in (np.eye(size), zero):
        found = fit(stack, structure=kind(1), initial=start, tol=1e-8)
        assert found.penalized_log_likelihood > level - 1e-4


def test_a_log_likelihood_that_rounding_hides_is_no_convergence():
    kernel = np.diag(np.arange(1.0, 10.0)) * 1e20
    visible = np.ones((2, 9), dtype=bool)
    visible[0, -1] = visible[1, 1] = False
    visible[:, 2] = False
    stack = stack_kernels(np.array([kernel, kernel]), visible=visible)
    hidden = pytest.warns(IdentifiabilityWarning, match="object 2 is missing in every kernel")
    with hidden, pytest.warns(ConvergenceWarning, match="only known to"):
        result = fit(stack, sources="identical", structure=PPCA(8))
    assert not result.converged


def test_the_structure_of_an_em_may_be_passed_by_position():
    em = EM(stack_of(), WishartPrior(1.0), 1.0, None, PPCA(2))
    assert type(em).__name__ == "LowRankEM"
    assert pickle.loads(pickle.dumps(em)).structure == PPCA(2)


def test_a_model_cannot_be_changed_through_what_it_returns():
    model = fit(stack_of(), structure=PPCA(2)).model
    before = model.noise_variances.copy()
    model.noise.values[:] = 99.0
    model.to_dataset()["loadings"].values[:] = 99.0
    assert np.array_equal(model.noise_variances, before)
    assert np.abs(model.factor_loadings).max() < 99.0
    with pytest.raises(ValueError, match="read-only"):
        model.noise_variances[:] = 1.0


@pytest.mark.parametrize(
    ("loadings", "noise", "message"),
    [
        (np.ones((3, 1)), np.ones(4), r"loadings: shape \(3, 1\) found"),
        (np.ones((4, 1)), np.ones(3), r"noise: shape \(3,\) found"),
        (np.ones(4), np.ones(4), r"loadings: shape \(4,\) found"),
        ([[1.0], [np.nan], [1.0], [1.0]], np.ones(4), "loadings: .* finite numbers"),
        (np.ones((4, 1)), [1.0, 0.0, 1.0, 1.0], "noise: 0 found for object 'b'"),
        ("text", np.ones(4), "loadings: an array of numbers is needed"),
    ],
)
def test_a_model_of_the_users_is_checked(loadings, noise, message):
    with pytest.raises(KernelError, match=message):
        LowRankModel(loadings, noise, ["a", "b", "c", "d"])


@pytest.mark.parametrize("where", ["path", "prior"])
def test_ctrl_c_before_the_ascent_gives_an_interrupted_result(monkeypatch, where):
    module = sys.modules["mkmc_prob.fitting.solve" if where == "path" else "mkmc_prob.fitting.fit"]
    name = "loose_ascent" if where == "path" else "with_low_rank_prior"

    def struck(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, name, struck)
    options = {"structure": PPCA(2)} if where == "path" else {"prior": PPCA(2)}
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        result = fit(stack_of(), **options)
    assert result.interrupted
    assert not result.completed.isnull().any()


def test_completed_kernels_do_not_depend_on_what_memory_held():
    result = fit(stack_of(), structure=PPCA(2))
    with np.errstate(all="raise"):
        again = result.completion.kernel(0).block(np.arange(3), np.arange(3))
    assert np.isfinite(again).all()
