"""The posterior: brute force at l = 2, direct draws, what is kept, ArviZ."""

import warnings

import numpy as np
import plain
import pytest
import xarray as xr
from scipy import stats
from strategies import random_covariance

from mkmc_prob import (
    EM,
    ConvergenceWarning,
    IdentifiabilityWarning,
    KernelError,
    LabelError,
    WishartPrior,
    fit,
    pool_estimates,
    reduce_rank,
    sample_completed,
    stack_kernels,
)
from mkmc_prob.model.gaussian import GaussianModel
from mkmc_prob.posterior.sampling import continue_posterior, sample_posterior
from mkmc_prob.posterior.tree import posterior_entry, posterior_models

LEVEL = 1e-3
#: Most tests use short runs and do not depend on mixing.
short = pytest.mark.filterwarnings("ignore:R-hat|the effective:mkmc_prob.ConvergenceWarning")
SHORT = {"draws": 60, "tune": 10, "seed": 1}


def small_stack(size=5, kernels=2, seed=0, names=None):
    rng = np.random.default_rng(seed)
    visible = np.ones((kernels, size), dtype=bool)
    for k in range(kernels):
        visible[k, rng.choice(size, size // 3 + k % 2, replace=False)] = False
    visible[0, ~visible.any(axis=0)] = True
    features = rng.standard_normal((kernels, size, 9))
    stack = features @ features.transpose(0, 2, 1) / 9
    labels = [*"abcdefghij", *(f"o{i}" for i in range(10, size))][:size]
    return stack_kernels(stack, visible=visible, objects=labels, names=names)


def entry(tree, name, label):
    return tree["posterior"][name].sel({f"{name}_entry": label}).values


# Correctness


def weighted_quantiles(values, weights, at):
    order = np.argsort(values)
    total = np.cumsum(weights[order])
    return values[order][np.searchsorted(total, np.array(at) * total[-1])]


def test_two_objects_by_brute_force():
    """Importance sampling: SciPy draws given the complete kernel, weighted by the others."""
    whole = np.array([[1.2, 0.5], [0.5, 0.8]])
    kernels = np.array([whole, [[2.5, 0], [0, 0]], [[0, 0], [0, 0.3]]])
    nu, strength, scale = [5, 3, 4], 2.5, np.array([[1.0, -0.2], [-0.2, 1.5]])
    stack = stack_kernels(kernels, visible=[[1, 1], [1, 0], [0, 1]], objects=["a", "b"])
    prior = WishartPrior(strength, scale)
    tree = sample_posterior(
        stack,
        degrees_of_freedom=nu,
        sources="identical",
        prior=prior,
        draws=1500,
        tune=100,
        seed=3,
        strength=strength,
    )
    rng = np.random.default_rng(4)
    degrees = strength + 3 + nu[0]
    models = stats.invwishart(degrees, strength * scale + nu[0] * whole).rvs(
        100_000, random_state=rng
    )
    a, b, ab = models[:, 0, 0], models[:, 1, 1], models[:, 0, 1]
    log_weight = -0.5 * (nu[1] * (np.log(a) + 2.5 / a) + nu[2] * (np.log(b) + 0.3 / b))
    weights = np.exp(log_weight - log_weight.max())
    weights /= weights.sum()
    # Hidden entries of Q2, given each model: four-dimensional normal vectors, nu of them.
    known = np.sqrt(2.5)  # nu vectors whose first parts have the mean square 2.5
    noise = rng.standard_normal((nu[1], len(a))) * np.sqrt(b - ab**2 / a)
    hidden = known * ab / a + noise
    cross, square = (known * hidden).mean(0), (hidden**2).mean(0)
    effective = 1 / (weights**2).sum()
    assert effective > 15_000
    for name, label, values in (
        ("model", "a, a", a),
        ("model", "b, b", b),
        ("model", "b, a", ab),
        ("hidden", "Q2, b, a", cross),
        ("hidden", "Q2, b, b", square),
    ):
        drawn = entry(tree, name, label).ravel()
        levels = [0.05, 0.25, 0.5, 0.75, 0.95]
        expected = weighted_quantiles(values, weights, levels)
        found = [(drawn < quantile).mean() for quantile in expected]
        # The 6,000 draws are worth at least 1,000; and the weights' own error.
        error = np.sqrt(np.multiply(levels, np.subtract(1, levels)) * (1 / 1000 + 1 / effective))
        assert (np.abs(np.subtract(found, levels)) < 4 * error).all(), label
        mean = (weights * values).sum()
        sd = np.sqrt((weights * (values - mean) ** 2).sum())
        assert abs(drawn.mean() - mean) < 4 * sd / np.sqrt(1000), label


def test_nothing_missing_is_direct_wishart_draws():
    rng = np.random.default_rng(5)
    kernels = np.array([random_covariance(rng, 3) for _ in range(2)])
    options = {"degrees_of_freedom": [4, 6.5], "strength": 1.5, "tune": 1, "seed": 6}
    tree = sample_posterior(stack_kernels(kernels), sources="identical", **options)
    assert "hidden" not in tree["posterior"]
    models = posterior_models(tree).values.reshape(-1, 3, 3)
    total = 1.5 * np.eye(3) + 4 * kernels[0] + 6.5 * kernels[1]
    expected = stats.invwishart(1.5 + 4 + 10.5, total).rvs(len(models), random_state=7)
    lower = np.tri(3, dtype=bool)
    for one, two in zip(models[:, lower].T, expected[:, lower].T, strict=True):
        assert stats.ks_2samp(one, two).pvalue > LEVEL / 6
    mean = total / (1.5 + 4 + 10.5 - 4)
    np.testing.assert_allclose(tree["posterior_summary"]["model_mean"], mean, atol=0.05)
    # Independent draws: no autocorrelation at lag one.
    first = entry(tree, "model", tree["posterior"]["model_entry"].values[0])
    lag = np.corrcoef(first[:, 1:].ravel(), first[:, :-1].ravel())[0, 1]
    assert abs(lag) < 4 / np.sqrt(first.size)


@short
def test_the_log_posterior_is_the_penalized_log_likelihood_of_the_model_drawn():
    stack = small_stack()
    options = {"sources": "identical", "strength": 0.7} | SHORT
    tree = sample_posterior(stack, degrees_of_freedom=[9, 10], **options)
    models = posterior_models(tree)
    for chain, draw in [(0, 0), (1, 17), (3, 59)]:
        expected = plain.penalized_log_likelihood(
            stack.values,
            tree["constant_data"]["visible"].values,
            [9, 10],
            0.7,
            np.eye(5),
            models.values[chain, draw],
        )
        assert tree["sample_stats"]["lp"].values[chain, draw] == pytest.approx(expected, rel=1e-9)


@short
def test_no_draw_is_likelier_than_the_fit():
    """EM's estimate is the mode of the posterior of the precision."""
    stack = small_stack()
    paper = {"sources": "identical", "degrees_of_freedom": 9, "strength": 1.0}
    tree = sample_posterior(stack, draws=600, seed=8, **paper)
    best = fit(stack, **paper, tol=1e-9).penalized_log_likelihood
    assert float(tree["sample_stats"]["lp"].max()) < best


def test_unseen_objects_have_the_priors_distribution():
    """T = I: M_oo.r ~ inverse gamma, and chains mix even if lambda is far below N."""
    rng = np.random.default_rng(9)
    kernels = np.array([random_covariance(rng, 3) for _ in range(2)])
    stack = stack_kernels(kernels, visible=[[1, 1, 0], [1, 1, 0]])
    with pytest.warns(IdentifiabilityWarning, match="prior alone determines 3 of 6"):
        tree = sample_posterior(
            stack, degrees_of_freedom=500, sources="identical", strength=1.5, seed=10
        )
    models = posterior_models(tree).values.reshape(-1, 3, 3)
    rest = 1 / np.linalg.inv(models)[:, 2, 2]
    # P_oo ~ Wishart(lambda + l + 1, 1 / lambda) of size one.
    assert stats.kstest(1.5 / rest, stats.chi2(1.5 + 4).cdf).pvalue > LEVEL
    flags = tree["posterior_summary"]["model_prior_only"].values
    np.testing.assert_array_equal(flags, [[0, 0, 1], [0, 0, 1], [1, 1, 1]])
    assert tree["posterior_summary"]["completed_prior_only"].sum() == 10


@short
@pytest.mark.parametrize(("strength", "nu", "exists"), [(0.5, 1, 0), (0.5, 2, 1), (1.5, 1, 1)])
def test_entries_without_a_variance_are_flagged(strength, nu, exists):
    """Complete data: the inverse Wishart has a variance if its degrees exceed l + 3."""
    assert (strength + 2 + 1 + nu > 2 + 3) == bool(exists)
    stack = stack_kernels(np.ones((1, 2, 2)))
    options = dict(degrees_of_freedom=nu, sources="identical", strength=strength, **SHORT)
    if exists:
        tree = sample_posterior(stack, **options)
    else:
        with pytest.warns(IdentifiabilityWarning, match="3 entries have no variance"):
            tree = sample_posterior(stack, **options)
    summary = tree["posterior_summary"]
    assert (summary["model_has_variance"] == exists).all()
    assert (np.isfinite(summary["model_sd"]) == exists).all()
    assert np.isfinite(summary["model_quantile"]).all()


@short
@pytest.mark.parametrize(("strength", "exists"), [(0.9, False), (1.1, True)])
def test_an_unseen_object_beside_one_seen_often(strength, exists):
    """M_oo has tails like an inverse gamma of shape (lambda + l + 1) / 2, 2 at lambda = 1."""
    stack = stack_kernels(np.ones((2, 2, 2)), visible=[[1, 0], [1, 0]])
    with pytest.warns(IdentifiabilityWarning):
        tree = sample_posterior(
            stack, degrees_of_freedom=30, sources="identical", strength=strength, **SHORT
        )
    summary = tree["posterior_summary"]
    np.testing.assert_array_equal(summary["model_has_variance"], [[1, 1], [1, exists]])
    np.testing.assert_array_equal(summary["completed_has_variance"], [[[1, 1], [1, exists]]] * 2)


def test_visible_entries_are_constants_of_the_summary():
    stack = small_stack()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        tree = sample_posterior(stack, degrees_of_freedom=9, strength=1.0, **SHORT)
    summary = tree["posterior_summary"]
    seen = stack.notnull().values
    np.testing.assert_array_equal(summary["completed_mean"].values[seen], stack.values[seen])
    assert (summary["completed_sd"].values[seen] == 0).all()
    assert (summary["completed_sd"].values[~seen] > 0).all()
    np.testing.assert_array_equal(
        summary["completed_quantile"].sel(quantile=0.05).values[seen], stack.values[seen]
    )
    for label, values in tree["posterior"]["hidden"].groupby("hidden_entry"):
        kernel, one, two = label.split(", ")
        pair = {"kernel": kernel, "object": one, "object_bis": two}
        assert np.isnan(stack.sel(pair))
        assert float(summary["completed_mean"].sel(pair)) == pytest.approx(float(values.mean()))
        turned = {"kernel": kernel, "object": two, "object_bis": one}
        assert float(summary["completed_mean"].sel(turned)) == pytest.approx(float(values.mean()))
    assert (
        tree["posterior"].sizes["hidden_entry"]
        == np.tri(5, dtype=bool)[None].repeat(2, 0)[~seen].sum()
    )


# What is kept


@short
def test_running_summaries_are_those_of_all_draws():
    stack = small_stack(6)
    options = {"degrees_of_freedom": 9, "strength": 1.0, "draws": 130, "tune": 10, "seed": 2}
    whole = sample_posterior(stack, keep="all", **options)
    named = [("a", "b"), ("c", "c"), ("Q1", "d", "a")]
    hidden = whole["posterior"]["hidden_entry"].values.tolist()
    named[2] = tuple(hidden[3].split(", "))
    few = sample_posterior(stack, keep=named, quantile_draws=40, **options)
    assert few["posterior"].sizes["model_entry"] == 2
    for name, label in (("model", "b, a"), ("model", "c, c"), ("hidden", hidden[3])):
        np.testing.assert_array_equal(entry(few, name, label), entry(whole, name, label))
    np.testing.assert_array_equal(few["sample_stats"]["lp"], whole["sample_stats"]["lp"])
    for name in ("model_mean", "model_sd", "completed_mean", "completed_sd"):
        one, two = few["posterior_summary"][name], whole["posterior_summary"][name]
        np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-12)
    thinned = few["thinned_posterior"]
    assert thinned.sizes["draw"] * thinned.sizes["chain"] <= 40
    every = int(thinned["draw"][1])
    expected = whole["posterior"].to_dataset().isel(draw=slice(None, None, every))
    np.testing.assert_array_equal(thinned["model"], expected["model"])
    np.testing.assert_array_equal(thinned["hidden"], expected["hidden"])
    np.testing.assert_allclose(
        few["posterior_summary"]["model_quantile"].sel(object="b", object_bis="a"),
        expected["model"].sel(model_entry="b, a").quantile([0.05, 0.5, 0.95]),
    )
    np.testing.assert_array_equal(posterior_models(few), posterior_models(whole)[:, ::every])


@short
def test_where_there_are_many_entries_some_are_spread_over_all(monkeypatch):
    monkeypatch.setattr("mkmc_prob.posterior.sampling.ALL_BYTES", 1000)
    monkeypatch.setattr("mkmc_prob.posterior.sampling.SPREAD", 7)
    tree = sample_posterior(small_stack(), degrees_of_freedom=9, strength=1.0, **SHORT)
    sizes = tree["posterior"].sizes
    assert sizes["model_entry"] + sizes["hidden_entry"] == 7
    assert min(sizes["model_entry"], sizes["hidden_entry"]) > 0


@short
def test_nothing_need_be_kept():
    tree = sample_posterior(small_stack(), degrees_of_freedom=9, strength=1.0, keep=[], **SHORT)
    assert list(tree["posterior"].data_vars) == ["constant"]
    assert continue_posterior(tree, draws=5)["sample_stats"].sizes["draw"] == 65


@short
def test_labels_that_would_read_alike_are_told_apart():
    kernels = np.array([random_covariance(np.random.default_rng(0), 4)] * 2)
    objects = ["a", "a, a", "a, a, a", "b"]
    stack = stack_kernels(kernels, visible=[[1, 1, 0, 1], [1, 1, 1, 1]], objects=objects)
    tree = sample_posterior(stack, degrees_of_freedom=5, strength=1.0, **SHORT)
    labels = tree["posterior"]["model_entry"].values.tolist()
    assert len(set(labels)) == len(labels) == 10


# ArviZ


@pytest.fixture(scope="module")
def mixed():
    stack = small_stack()
    return sample_posterior(stack, degrees_of_freedom=12, strength=3.0, draws=1000, seed=1)


def test_the_tree_follows_arvizs_schema(mixed):
    assert {"posterior", "sample_stats", "observed_data", "constant_data"} < set(mixed.children)
    assert mixed["posterior"]["model"].dims == ("chain", "draw", "model_entry")
    assert mixed["sample_stats"]["lp"].dims == ("chain", "draw")
    assert mixed.attrs["inference_library"] == "mkmc_prob"


def test_arviz_stats_diagnoses_the_tree(mixed):
    import arviz_stats

    table = arviz_stats.summary(mixed, round_to="none")
    assert len(table) == 15 + mixed["posterior"].sizes["hidden_entry"] + 2
    assert "model[b, a]" in table.index
    assert (table["r_hat"].astype(float) < 1.01).all()
    assert (table["ess_bulk"].astype(float) > 400).all()
    mean = float(mixed["posterior_summary"]["model_mean"].sel(object="a", object_bis="b"))
    assert float(table.loc["model[b, a]", "mean"]) == pytest.approx(mean)
    for function in (arviz_stats.rhat, arviz_stats.ess):
        found = function(mixed)
        assert np.isfinite(found["model"]).all()
        assert np.isfinite(found["hidden"]).all()


def test_arviz_itself_summarises_and_draws_the_tree(mixed):
    """ArviZ 0.23 takes InferenceData, which a DataTree becomes; ArviZ 1 takes the DataTree."""
    import matplotlib.pyplot as plt

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ArviZ's own
        import arviz

        data = mixed
        if hasattr(arviz.InferenceData, "from_datatree"):
            data = arviz.InferenceData.from_datatree(mixed)
        table = arviz.summary(data, var_names=["model"])
        assert table.index[1] == "model[b, a]"
        assert np.isfinite(arviz.rhat(data)["hidden"]).all()
        assert (arviz.ess(data)["hidden"] > 400).all()
        arviz.plot_rank(data, var_names=["model"], coords={"model_entry": ["a, a", "b, a"]})
    plt.close("all")


def test_chains_that_have_not_mixed_are_warned_of():
    """Two objects never observed together, at a strength far below the degrees of freedom."""
    kernels = np.array([random_covariance(np.random.default_rng(1), 3)] * 2)
    stack = stack_kernels(kernels, visible=[[1, 1, 0], [0, 1, 1]])
    with pytest.warns(ConvergenceWarning, match=r"R-hat is up to .*effective sample size is down"):
        sample_posterior(stack, degrees_of_freedom=200, strength=0.1, draws=100, tune=0, seed=1)


def test_one_chain_has_no_r_hat_but_is_measured():
    with pytest.warns(ConvergenceWarning, match="effective sample size") as caught:
        sample_posterior(small_stack(), degrees_of_freedom=9, strength=0.1, chains=1, **SHORT)
    assert "R-hat" not in str(caught[0].message)


@short
def test_one_entry_by_its_labels_in_any_order():
    stack = small_stack()
    options = {"degrees_of_freedom": 9, "strength": 1.0} | SHORT
    tree = sample_posterior(stack, **options)
    k, i, j = np.argwhere(np.isnan(stack.values))[0].tolist()
    kernel, i, j = f"Q{k + 1}", *stack["object"].values[[i, j]].tolist()
    one, other = (posterior_entry(tree, (kernel, *pair)) for pair in ((i, j), (j, i)))
    assert one.identical(other)
    np.testing.assert_array_equal(one, tree["posterior"]["hidden"].sel(hidden_entry=one.name))
    model = posterior_entry(tree, ("a", "b"))
    np.testing.assert_array_equal(model, posterior_models(tree).sel(object="a", object_bis="b"))
    thin = sample_posterior(stack, keep=[("a", "b")], quantile_draws=8, **options)
    at = thin["thinned_posterior"]["draw"]
    np.testing.assert_array_equal(posterior_entry(thin, (kernel, i, j)), one.sel(draw=at))
    np.testing.assert_array_equal(posterior_entry(thin, ("b", "a")), model)
    assert one.attrs == model.attrs == posterior_entry(thin, ("b", "a")).attrs == {}
    said = posterior_entry(thin, (kernel, i, j)).attrs["thinned"]
    assert said.startswith("8 of 240 draws, evenly spaced, from thinned_posterior; keep=[entry]")
    assert thin["thinned_posterior"]["hidden"].attrs == {}
    longer = continue_posterior(thin, draws=30)
    said = posterior_entry(longer, (kernel, i, j)).attrs["thinned"]
    assert said.startswith(f"{longer['thinned_posterior'].sizes['draw'] * 4} of 360 draws")
    with pytest.raises(LabelError, match=r"^entry: .* there is no object 'nobody'"):
        posterior_entry(tree, ("a", "nobody"))
    with pytest.raises(KernelError, match=r"^entry: 'ab' found"):
        posterior_entry(tree, "ab")


@short
@pytest.mark.parametrize(("most", "draws", "kept"), [(5, 10, 1), (5, 101, 1), (8, 60, 2)])
def test_no_more_draws_are_kept_for_quantiles_than_asked_for(most, draws, kept):
    options = {"degrees_of_freedom": 9, "strength": 1.0, "tune": 0, "seed": 1, "keep": []}
    tree = sample_posterior(small_stack(), draws=draws, quantile_draws=most, **options)
    assert tree["thinned_posterior"].sizes["draw"] == kept
    longer = continue_posterior(tree, draws=3 * draws)
    assert longer["thinned_posterior"].sizes["draw"] * 4 <= most


@short
@pytest.mark.parametrize("keep", ["all", []])
def test_the_memory_is_what_the_formula_says(keep):
    size, kernels, chains, draws, most = 30, 3, 4, 40, 40
    stack = small_stack(size, kernels)
    hides = [int(np.isnan(np.diagonal(kernel)).sum()) for kernel in stack.values]
    entries = size * (size + 1) // 2 + sum((size - m) * m + m * (m + 1) // 2 for m in hides)
    options = {"degrees_of_freedom": 40, "strength": 9.0, "tune": 0, "seed": 1}
    tree = sample_posterior(stack, keep=keep, draws=draws, quantile_draws=most, **options)
    full = entries if keep == "all" else 0
    formula = chains * draws * (full + 1) + (6 * kernels + 5 + 3 * chains) * size**2
    if keep != "all":
        formula += entries * (most + 2 * chains)
    numbers = sum(
        values.nbytes
        for group in tree.subtree
        for values in group.to_dataset(inherit=False).variables.values()
        if values.dtype.kind == "f"
    )
    assert numbers == pytest.approx(8 * formula, rel=0.02)


# Sources


def offset_stack():
    """Return `small_stack` in other units, with constants."""
    stack = small_stack()
    stack[1] *= 100.0
    return stack + np.array([0.5, 30.0])[:, None, None]


@short
def test_constants_are_drawn_kept_and_summarized():
    options = {"degrees_of_freedom": 12, "strength": 5.0} | SHORT
    tree = sample_posterior(offset_stack(), **options)
    draws = tree["posterior"]["constant"]
    assert draws.dims == ("chain", "draw", "kernel")
    assert draws["kernel"].values.tolist() == ["Q1", "Q2"]
    assert (draws > 0.0).all()
    summary = tree["posterior_summary"]
    np.testing.assert_allclose(summary["constant_mean"], draws.mean(("chain", "draw")))
    np.testing.assert_allclose(
        summary["constant_quantile"], draws.quantile([0.05, 0.5, 0.95], ("chain", "draw"))
    )
    assert summary["constant_has_variance"].all()
    assert np.isnan(tree["sources"]["constant"]).all()
    assert tree["sources"]["sharing"].values.tolist() == [1.0, 1.0]
    # The log posterior: that of a fit with these constants, less the half-Cauchy's log(1 + c).
    models, stack = posterior_models(tree).values, offset_stack()
    for chain, draw in [(0, 0), (2, 47)]:
        c = draws.values[chain, draw]
        held = tree["sources"].to_dataset().assign(constant=("kernel", c))
        em = EM(stack, WishartPrior(5.0), 12, held)
        objects = stack["object"].values
        level = em.penalized_log_likelihood(GaussianModel(models[chain, draw], objects=objects))
        expected = level - np.log1p(c).sum()
        assert tree["sample_stats"]["lp"].values[chain, draw] == pytest.approx(expected, rel=1e-9)


@short
def test_constants_that_are_held_are_constants():
    sources = fit(offset_stack()).sources
    options = {"degrees_of_freedom": 12, "strength": 2.0} | SHORT
    tree = sample_posterior(offset_stack(), sources=sources, **options)
    assert "constant" not in tree["posterior"]
    assert "constant_mean" not in tree["posterior_summary"]
    np.testing.assert_array_equal(tree["sources"]["constant"], sources["constant"])
    sources["constant"][0] = np.nan
    tree = sample_posterior(offset_stack(), sources=sources, **options)
    assert tree["posterior"]["constant"]["kernel"].values.tolist() == ["Q1"]
    summary = tree["posterior_summary"]
    assert (summary["constant_sd"].values > 0).tolist() == [True, False]
    assert summary["constant_mean"].values[1] == sources["constant"].values[1]


@short
@pytest.mark.parametrize(("nu", "mean", "variance"), [(1, 0, 0), (3, 1, 0), (4, 1, 1)])
def test_constants_without_moments_are_flagged(nu, mean, variance):
    """The density of c falls as c^-(3 + nu) / 2."""
    stack = stack_kernels(np.ones((2, 3, 3)) + np.eye(3))
    options = {"degrees_of_freedom": [nu, 9], "strength": 3.0} | SHORT
    reduced = reduce_rank(stack, [nu, 3])
    summary = sample_posterior(reduced, **options)["posterior_summary"]
    assert np.isfinite(summary["constant_mean"].values[0]) == mean
    assert np.isfinite(summary["constant_sd"].values[0]) == variance
    assert summary["constant_has_variance"].values.tolist() == [variance, True]
    assert np.isfinite(summary["constant_quantile"]).all()


@short
def test_a_fit_hands_its_model_on():
    model = {"degrees_of_freedom": 12, "strength": 2.0, "sharing": [1.0, 0.5]}
    tree = fit(offset_stack(), **model).sample_posterior(**SHORT)
    options = model | SHORT
    expected = sample_posterior(offset_stack(), **options)
    xr.testing.assert_allclose(tree["posterior"].to_dataset(), expected["posterior"].to_dataset())
    paper = fit(small_stack(), strength=2.0, degrees_of_freedom=12, sources="identical")
    assert "constant" not in paper.sample_posterior(**SHORT)["posterior"]
    few = fit(offset_stack(), structure="PPCA(2)", **model)
    assert few.sources.attrs["shared_constant"] > 0.0
    tree = few.sample_posterior(**SHORT)
    expected = sample_posterior(offset_stack(), structure="PPCA(2)", **options)
    xr.testing.assert_allclose(tree["posterior"].to_dataset(), expected["posterior"].to_dataset())
    assert tree.attrs["structure"] == "PPCA(2)"
    with pytest.raises(KernelError, match="degrees_of_freedom of kernel 'Q1': 1 found"):
        fit(offset_stack()).sample_posterior(**SHORT)
    for option in ({"prior": None}, {"strength": 2.0}, {"sources": "identical"}):
        with pytest.raises(KernelError, match=r"found, but the posterior is that of the fit"):
            few.sample_posterior(**option, **SHORT)


@short
def test_pooling_takes_a_posterior_with_sources():
    options = {"degrees_of_freedom": 12, "strength": 2.0} | SHORT
    tree = sample_posterior(offset_stack(), sharing=[1.0, 0.5], **options)
    completed = sample_completed(tree, draws=20, observed=offset_stack())
    assert np.linalg.eigvalsh(completed.values).min() > -1e-10
    pooled = pool_estimates(lambda stack: stack.mean(("object", "object_bis")), completed)
    incomplete = offset_stack().isnull().any(("object", "object_bis"))
    np.testing.assert_array_equal(pooled["lower"] < pooled["upper"], incomplete)


@pytest.mark.parametrize(
    ("structure", "strength", "exists"),
    [
        ("FactorAnalysis(1)", 1.8, False),
        ("FactorAnalysis(1)", 2.0, True),
        ("PPCA(1)", 1.8, True),
    ],
)
def test_sampling_few_factors_flags_objects_that_nothing_shows(structure, strength, exists):
    """d_i is inverse gamma with shape (lambda + a) / 2 + 1 there, 2 at lambda = 2 - a = 1.9."""
    kernels = np.array([random_covariance(np.random.default_rng(0), 4)] * 2)
    stack = stack_kernels(kernels, visible=[[1, 1, 1, 0], [1, 1, 1, 0]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = sample_posterior(
            stack, structure=structure, degrees_of_freedom=5, strength=strength, **SHORT
        )
    flags = tree["posterior_summary"]["model_has_variance"].values
    assert flags[3, 3] == exists
    assert flags[~np.eye(4, dtype=bool)].all()
    assert flags[:3].all()
    flags = tree["posterior_summary"]["completed_has_variance"].values
    assert (flags[:, 3, 3] == exists).all()
    assert flags[:, :, :3].all()


@short
@pytest.mark.parametrize(("strength", "exists"), [(0.9, False), (1.1, True)])
def test_loadings_without_a_variance_are_flagged(strength, exists):
    """One observation in all: loadings have tails of shape 1 + (lambda + 1) / 2, as those of M."""
    stack = stack_kernels(np.ones((1, 2, 2)))
    options = {"degrees_of_freedom": 1, "sources": "identical", "strength": strength} | SHORT
    for structure in ("PPCA(1)", "full"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = sample_posterior(stack, structure=structure, **options)
        assert (tree["posterior_summary"]["model_has_variance"] == exists).all()
