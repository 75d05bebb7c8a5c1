"""Multiple imputation: draws against the posterior, Rubin's rules against a hand computation."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from test_posterior import short, small_stack

from mkmc_prob import (
    EM,
    KernelError,
    LabelError,
    MKMCError,
    MKMCWarning,
    fit,
    pool_estimates,
    reduce_rank,
    sample_completed,
    sample_posterior,
    stack_kernels,
)

OPTIONS = {"degrees_of_freedom": 9, "strength": 1.0, "seed": 1}
plug_in = pytest.mark.filterwarnings("ignore:these completions are drawn at the estimated model")


def made(estimates, drawn_from="posterior"):
    """Return stacks of one 1 x 1 kernel whose entries are `estimates`."""
    return xr.DataArray(
        np.asarray(estimates, dtype=float)[:, None, None, None],
        dims=("imputation", "kernel", "object", "object_bis"),
        coords={"drawn_from": ("imputation", [drawn_from] * len(estimates))},
    )


def entry(stack):
    return stack.values[0, 0, 0]


# Draws


@short
@pytest.mark.parametrize("keep", ["all", [("a", "b")]])
def test_draws_of_the_posterior_are_its_own(keep):
    stack = small_stack()
    posterior = sample_posterior(stack, draws=60, tune=10, keep=keep, **OPTIONS)
    completed = sample_completed(posterior, draws=8)
    assert (completed["drawn_from"] == "posterior").all()
    assert not completed.isnull().any()
    np.testing.assert_array_equal(
        completed, completed.transpose("imputation", "kernel", "object_bis", "object")
    )
    shown = stack.notnull()
    for one in completed:
        np.testing.assert_array_equal(one.where(shown), stack)
    if keep == "all":  # entry by entry they are draws, by name, from all chains
        hidden = posterior["posterior"]["hidden"].stack(sample=("chain", "draw"))
        chosen = []
        for label in hidden["hidden_entry"].values.tolist():
            kernel, i, j = label.split(", ")
            values = completed.sel(kernel=kernel, object=i, object_bis=j).values
            draws = hidden.sel(hidden_entry=label).values
            places = [int(np.flatnonzero(draws == value)[0]) for value in values]
            chosen.append(places)
        assert (np.array(chosen) == chosen[0]).all()  # jointly
        assert {place // 60 for place in chosen[0]} == {0, 1, 2, 3}
        assert np.ptp(np.diff(chosen[0])) <= 1  # evenly spaced


@short
def test_no_more_draws_than_there_are():
    posterior = sample_posterior(small_stack(), draws=5, tune=10, **OPTIONS)
    assert sample_completed(posterior, draws=20).sizes["imputation"] == 20
    with pytest.raises(MKMCError, match="draws: 21 found, but the posterior has 20"):
        sample_completed(posterior, draws=21)
    thin = sample_posterior(
        small_stack(), draws=50, tune=10, keep=[("a", "b")], quantile_draws=8, **OPTIONS
    )
    with pytest.raises(MKMCError, match=r"quantile_draws="):
        sample_completed(thin, draws=50)


def test_plug_in_draws_have_the_closed_form_of_one_hidden_object():
    """Given M, S_hv is normal with mean nu Q_vv A and variance nu Q_vv C; nu Q_hh is known, too."""
    stack = stack_kernels(
        [[[2.0, 0.0], [0.0, 0.0]], [[1.0, 0.6], [0.6, 1.5]]], visible=[[1, 0], [1, 1]]
    )
    result = fit(stack, strength=1.0, sources="identical")
    m, nu = result.model.matrix, 12
    with pytest.warns(MKMCWarning, match="vary too little"):
        completed = sample_completed(result, draws=5_000, degrees_of_freedom=nu, seed=0)
    assert (completed["drawn_from"] == "estimate").all()
    cross = completed.sel(kernel="Q1", object=1, object_bis=0).values
    slope, spread = m[1, 0] / m[0, 0], m[1, 1] - m[1, 0] ** 2 / m[0, 0]
    assert stats.kstest(cross, stats.norm(2 * slope, np.sqrt(2 * spread / nu)).cdf).pvalue > 1e-3
    # S_hh - S_hv^2 / S_vv ~ C chi2(nu - 1).
    rest = nu * (completed.sel(kernel="Q1", object=1, object_bis=1).values - cross**2 / 2)
    assert stats.kstest(rest / spread, stats.chi2(nu - 1).cdf).pvalue > 1e-3


@plug_in
def test_plug_in_draws_depend_on_the_seed_alone_and_scatter_less():
    stack = small_stack()
    result = fit(stack, strength=1.0, degrees_of_freedom=9, sources="identical")
    options = {"draws": 400, "degrees_of_freedom": 9}
    one = sample_completed(result, seed=3, **options)
    assert one.identical(sample_completed(result, seed=np.random.default_rng(3), **options))
    posterior = sample_posterior(stack, draws=2000, sources="identical", **OPTIONS)
    proper = sample_completed(posterior, draws=400)
    hidden = stack.isnull().values & np.eye(5, dtype=bool)
    ratio = one.var("imputation").values[hidden] / proper.var("imputation").values[hidden]
    assert np.median(ratio) < 0.8


@short
def test_arguments_that_do_not_belong_are_refused():
    posterior = sample_posterior(small_stack(), draws=5, tune=10, **OPTIONS)
    with pytest.raises(KernelError, match="seed: the posterior has its own"):
        sample_completed(posterior, draws=2, seed=1)
    with pytest.raises(KernelError, match="degrees_of_freedom: the posterior has its own"):
        sample_completed(posterior, draws=2, degrees_of_freedom=3)
    for draws in (0, 1.5, "many", True):
        with pytest.raises(MKMCError, match="draws"):
            sample_completed(posterior, draws=draws)
    with pytest.raises(MKMCError, match="not a posterior"):
        sample_completed(small_stack(), draws=2)
    result = fit(small_stack(), strength=1.0, sources="identical")
    with pytest.raises(KernelError, match="degrees_of_freedom: a fit does not say"):
        sample_completed(result, draws=2, seed=1)
    with pytest.raises(KernelError, match="seed: draws from a fit need one"):
        sample_completed(result, draws=2, degrees_of_freedom=9)
    with pytest.raises(KernelError, match=r"degrees_of_freedom of kernel 'Q1': 1.5 found"):
        sample_completed(result, draws=2, degrees_of_freedom=1.5, seed=1)


@plug_in
@pytest.mark.parametrize("model", [{}, {"sharing": [0.5, 1.0]}, {"structure": "PPCA(2)"}])
def test_plug_in_draws_of_a_fit_with_sources_have_its_expectations(model):
    result = fit(small_stack(), strength=2.0, **model)
    given = {"structure": result.structure, "sources": result.sources}
    expected = EM(result.observed, result.prior, **given).complete(result.model)
    drawn = sample_completed(result, draws=2000, degrees_of_freedom=9, seed=1)
    error = drawn.std("imputation").values / np.sqrt(2000)
    np.testing.assert_array_less(np.abs(drawn.mean("imputation") - expected), 5 * error + 1e-12)


@short
def test_what_a_reduced_kernel_showed_comes_back():
    stack = small_stack()
    reduced = reduce_rank(stack, 2)
    posterior = sample_posterior(reduced, draws=20, tune=10, **OPTIONS | {"degrees_of_freedom": 2})
    plain = sample_completed(posterior, draws=6)
    whole = sample_completed(posterior, draws=6, observed=stack)
    shown = stack.notnull()
    for one in whole:
        np.testing.assert_array_equal(one.where(shown), stack)
    np.testing.assert_array_equal(plain.where(~shown), whole.where(~shown))
    assert np.linalg.eigvalsh(whole.values).min() > -1e-13
    other = stack.copy()
    other[0, 0], other[0, :, 0] = np.nan, np.nan
    for wrong, error, message in (
        (stack.isel(kernel=[1, 0]), LabelError, "observed: its kernels, or their order"),
        (stack[:, ::-1, ::-1], LabelError, "observed: its objects, or their order"),
        (other, KernelError, "observed: kernel 'Q1' shows object 'a' in one of the stacks only"),
        (stack.values, MKMCError, "observed"),
        (0.01 * stack, KernelError, "not of an approximation of kernel 'Q1'"),
        (1000.0 * stack, KernelError, "not of an approximation of kernel 'Q1'"),
        (stack**2, KernelError, "not of an approximation of kernel 'Q1'"),
    ):
        with pytest.raises(error, match=message):
            sample_completed(posterior, draws=2, observed=wrong)


def test_complete_kernels_leave_nothing_to_draw():
    stack = stack_kernels([np.eye(2), np.eye(2)])
    options = {"sources": "identical", "strength": 2.0, "draws": 400, "tune": 100, "seed": 1}
    posterior = sample_posterior(stack, degrees_of_freedom=9, **options)
    with pytest.raises(MKMCError, match="hide nothing"):
        sample_completed(posterior, draws=2)
    paper = fit(stack, strength=0.1, sources="identical")
    with pytest.raises(MKMCError, match="hide nothing"):
        sample_completed(paper, draws=2, degrees_of_freedom=9, seed=1)


# Rubin's rules


def test_rubins_rules_by_hand():
    """m = 3, estimates 1, 2, 6 with variances 1, 2, 3: q = 3, W = 2, B = 7, T = 2 + 28/3 = 34/3."""
    answers = iter([(1.0, 1.0), (2.0, 2.0), (6.0, 3.0)])
    pooled = pool_estimates(lambda _: next(answers), made([0, 0, 0]))
    total, share = 34 / 3, (28 / 3) / (34 / 3)
    nu = 2 / share**2
    r = (28 / 3) / 2
    expected = {
        "estimate": 3.0,
        "within": 2.0,
        "between": 7.0,
        "standard_error": np.sqrt(total),
        "missing_share": share,
        "degrees_of_freedom": nu,
        "missing_information": (r + 2 / (nu + 3)) / (r + 1),
        "lower": 3 - stats.t.ppf(0.975, nu) * np.sqrt(total),
        "upper": 3 + stats.t.ppf(0.975, nu) * np.sqrt(total),
    }
    assert set(pooled.data_vars) == set(expected)
    for name, value in expected.items():
        assert pooled[name].item() == pytest.approx(value, rel=1e-13)
    assert pooled.attrs == {"imputations": 3, "confidence": 0.95}


@given(
    st.lists(st.floats(-5, 5), min_size=2, max_size=6),
    st.floats(0.01, 3),
    st.floats(1, 100),
)
def test_barnard_and_rubins_degrees_of_freedom(estimates, variance, complete):
    pooled = pool_estimates(
        lambda stack: (entry(stack), variance),
        made(estimates),
        complete_degrees_of_freedom=complete,
        confidence=0.8,
    )
    m = len(estimates)
    between = np.var(estimates, ddof=1)
    total = variance + (1 + 1 / m) * between
    share = (1 + 1 / m) * between / total
    observed = complete * (complete + 1) / (complete + 3) * (1 - share)
    nu = 1 / ((share**2 / (m - 1)) + 1 / observed)
    assert pooled["degrees_of_freedom"].item() == pytest.approx(nu, rel=1e-12)
    assert pooled["degrees_of_freedom"].item() <= min(complete, observed) * (1 + 1e-12)
    width = (pooled["upper"] - pooled["lower"]).item()
    assert width == pytest.approx(2 * stats.t.ppf(0.9, nu) * np.sqrt(total), rel=1e-9)


def test_without_a_variance_all_is_missing_and_without_scatter_nothing_is():
    alone = pool_estimates(entry, made([1.0, 2.0, 3.0, 4.0]), complete_degrees_of_freedom=10)
    assert alone["missing_share"].item() == 1.0
    assert alone["missing_information"].item() == 1.0
    assert alone["degrees_of_freedom"].item() == 3
    equal = pool_estimates(lambda stack: (entry(stack), 4.0), made([1.0, 1.0]))
    assert equal["standard_error"].item() == 2.0
    assert np.isinf(equal["degrees_of_freedom"].item())
    assert equal["upper"].item() == pytest.approx(1 + 2 * stats.norm.ppf(0.975))
    constant = pool_estimates(entry, made([1.0, 1.0]))
    assert constant["standard_error"].item() == 0.0
    assert constant["lower"].item() == constant["upper"].item() == 1.0
    assert constant["missing_information"].item() == 0.0


@short
def test_pooled_entries_are_the_posteriors_mean_and_sd():
    """Pooled entries have the mean and, except for the factor 1 + 1/m, the variance."""
    posterior = sample_posterior(small_stack(), draws=200, tune=50, **OPTIONS)
    completed = sample_completed(posterior, draws=800)
    pooled = pool_estimates(lambda stack: stack, completed)
    summary = posterior["posterior_summary"]
    assert pooled["estimate"].dims == ("kernel", "object", "object_bis")
    np.testing.assert_allclose(pooled["estimate"], summary["completed_mean"], rtol=1e-12)
    np.testing.assert_allclose(
        pooled["standard_error"], np.sqrt(1 + 1 / 800) * summary["completed_sd"], rtol=1e-10
    )
    assert pooled["estimate"]["object"].values.tolist() == list("abcde")


def test_intervals_of_a_proper_imputation_cover_as_they_say():
    """The mean of n normal values, half of them missing at random and properly imputed."""
    rng = np.random.default_rng(0)
    n, seen, m, inside = 40, 20, 10, 0
    for _ in range(300):
        values = rng.standard_normal(seen)
        mean, spread = values.mean(), values.var(ddof=1)
        stacks = []
        for _ in range(m):
            variance = spread * (seen - 1) / rng.chisquare(seen - 1)
            centre = rng.normal(mean, np.sqrt(variance / seen))
            whole = np.concatenate([values, rng.normal(centre, np.sqrt(variance), n - seen)])
            stacks.append((whole.mean(), whole.var(ddof=1) / n))
        answers = iter(stacks)
        pooled = pool_estimates(
            lambda _, answers=answers: next(answers),
            made(np.zeros(m)),
            complete_degrees_of_freedom=n - 1,
            confidence=0.9,
        )
        inside += bool(pooled["lower"] <= 0.0 <= pooled["upper"])
    assert stats.binomtest(inside, 300, 0.9).pvalue > 1e-3


def test_draws_at_an_estimate_are_not_pooled():
    with pytest.raises(MKMCError, match="not all drawn from a posterior"):
        pool_estimates(entry, made([1.0, 2.0], drawn_from="estimate"))
    with pytest.raises(MKMCError, match="not all drawn from a posterior"):
        pool_estimates(entry, made([1.0, 2.0]).drop_vars("drawn_from"))
    with pytest.raises(MKMCError, match="one stack has no variance"):
        pool_estimates(entry, made([1.0]))
    for other in (made([1.0, 2.0])[0], np.zeros((2, 1, 1, 1)), None):
        with pytest.raises(MKMCError, match="completed: dims"):
            pool_estimates(entry, other)


def test_labels_are_not_lost_and_must_not_change():
    completed = made([1.0, 3.0, 2.0, 6.0])
    index = pd.Index(["x", "y"], name="point")
    pooled = pool_estimates(
        lambda s: (pd.Series([entry(s), 0.0], index), pd.Series([1.0, 1.0], index)), completed
    )
    assert pooled["estimate"].dims == ("point",)
    assert pooled["estimate"].sel(point="x").item() == 3.0
    table = pool_estimates(lambda s: pd.DataFrame([[entry(s)]], ["r"], ["c"]), completed)
    assert table["estimate"].item() == 3.0
    ranked = iter([["a", "b"], ["a", "b"], ["b", "a"], ["a", "b"]])
    with pytest.raises(MKMCError, match=r"for imputation 2 the labels of 'who'.*not those"):
        pool_estimates(
            lambda s: xr.DataArray([1.0, 2.0], dims="who", coords={"who": next(ranked)}), completed
        )
    value = xr.DataArray([1.0, 2.0], dims="who", coords={"who": ["a", "b"]})
    with pytest.raises(MKMCError, match="labels of 'who'"):
        pool_estimates(lambda s: (value, value[::-1]), completed)
    with pytest.raises(MKMCError, match=r"a dim 'within'.*Rename"):
        pool_estimates(lambda s: xr.DataArray([1.0], dims="within"), completed)


def test_a_function_may_change_what_it_gets():
    def spoil(stack):
        stack.values[...] *= 2.0
        return stack.mean()

    completed = made([1.0, 3.0])
    before = completed.copy(deep=True)
    assert pool_estimates(spoil, completed)["estimate"].item() == 4.0
    assert completed.identical(before)


def test_a_draw_counts_once():
    completed = made([1.0, 3.0]).assign_coords(imputation=[0, 1])
    with pytest.raises(MKMCError, match="occurs more than once"):
        pool_estimates(entry, completed.isel(imputation=[0, 0, 1]))
    mixed = xr.concat(
        [completed, made([1.0], drawn_from="estimate").assign_coords(imputation=[2])], "imputation"
    )
    with pytest.raises(MKMCError, match="not all drawn from a posterior"):
        pool_estimates(entry, mixed)
    assert pool_estimates(entry, completed * 2.0)["estimate"].item() == 4.0


@pytest.mark.parametrize("scale", [1e-145, 1e145])
def test_scales_within_the_range_of_numbers_do_not_matter(scale):
    one = pool_estimates(lambda s: (entry(s), 1.0), made([1.0, 3.0, 2.0]))
    other = pool_estimates(lambda s: (scale * entry(s), scale**2), made([1.0, 3.0, 2.0]))
    ratio = other["standard_error"] / one["standard_error"]
    assert ratio.item() == pytest.approx(scale, rel=1e-12)
    assert other["missing_share"].item() == pytest.approx(one["missing_share"].item(), rel=1e-12)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_scales_beyond_it_are_refused(scale):
    with pytest.raises(MKMCError, match="Rescale"):
        pool_estimates(lambda s: scale * entry(s), made([1.0, 3.0]))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (5, "a function of a stack is needed"),
        (None, "a function of a stack is needed"),
        (lambda stack: xr.DataArray([1 + 1j]), "numbers are needed"),
        (lambda stack: xr.DataArray(["1.5"]), "numbers are needed"),
        (lambda stack: np.zeros(0), "returned no number"),
        (lambda stack: np.nan, "not finite"),
        (lambda stack: (1.0, -1.0), "variance is negative"),
        (lambda stack: (1.0, np.inf), "not finite"),
        (lambda stack: "high", "numbers are needed"),
        (lambda stack: None, "numbers are needed"),
        (lambda stack: np.zeros(int(entry(stack))), r"shape \(2,\).*for imputation 1"),
        (lambda stack: (np.zeros(2), np.zeros(3)), r"shape \(3,\)"),
    ],
)
def test_answers_that_cannot_be_pooled_are_named(function, message):
    with pytest.raises(MKMCError, match=message):
        pool_estimates(function, made([1.0, 2.0]))


@pytest.mark.parametrize(
    "options",
    [
        {"confidence": 0.0},
        {"confidence": 1.0},
        {"confidence": "95%"},
        {"confidence": np.nan},
        {"complete_degrees_of_freedom": 0},
        {"complete_degrees_of_freedom": np.nan},
        {"complete_degrees_of_freedom": "n - 1"},
        {"complete_degrees_of_freedom": np.array([3.0, 4.0])},
        {"complete_degrees_of_freedom": -np.inf},
    ],
)
def test_options_that_are_none_are_refused(options):
    with pytest.raises(MKMCError, match=next(iter(options))):
        pool_estimates(entry, made([1.0, 2.0]), **options)
