"""Fits with sources: maxima of the reference, invariances, limits, ascent, bad input, results."""

from unittest.mock import patch

import numpy as np
import plain_sources
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_sources import Setting, check_fit, draw_problem, fit_drawn, with_constants_of_their_own
from problems import reference, small_stack
from scipy import stats

from mkmc_prob import (
    EM,
    GaussianModel,
    IdentifiabilityWarning,
    KernelError,
    LabelError,
    Sources,
    WishartPrior,
    explore_maxima,
    fit,
    load_result,
    stack_kernels,
    visible_objects,
)
from mkmc_prob.diagnostics import check_monotone, kernel_agreement, object_predictive
from mkmc_prob.em.full import FullEM
from mkmc_prob.em.methods import OF_FULL
from mkmc_prob.fitting import maxima
from mkmc_prob.fitting.solve import problem_of_result

REFERENCE = reference("sources.json")
seeds = st.integers(0, 2**32 - 1)
not_identified = pytest.mark.filterwarnings("ignore::mkmc_prob.IdentifiabilityWarning")
not_converged = pytest.mark.filterwarnings("ignore::mkmc_prob.ConvergenceWarning")


def reference_stack():
    return stack_kernels(np.array(REFERENCE["kernels"]), visible=REFERENCE["visible"])


@pytest.mark.parametrize("method", OF_FULL)
@pytest.mark.parametrize("name", ["rho_0", "rho_fixed", "rho_learned_from_0.9"])
def test_the_maxima_of_the_reference(name, method):
    case = REFERENCE[name]
    steps = {"tol": 0, "max_iter": 40} if method == "em" else {"tol": 1e-11}
    result = fit(reference_stack(), sharing=1.0 - np.array(case["rho"]), method=method, **steps)
    assert result.penalized_log_likelihood == pytest.approx(case["L"], abs=1e-8)
    np.testing.assert_allclose(result.model.matrix, case["M"], rtol=1e-6)
    np.testing.assert_allclose(result.sources["constant"], case["c"], rtol=1e-6)
    np.testing.assert_array_equal(result.sources["sharing"], 1.0 - np.array(case["rho"]))
    np.testing.assert_allclose(result.sources["scale"], REFERENCE["d"], rtol=1e-10)
    assert result.sources.attrs["shared_constant"] == pytest.approx(REFERENCE["b"])
    for found, kernel in zip(result.completed.values, case["completed"], strict=True):
        np.testing.assert_allclose(found, kernel, atol=1e-6 * np.abs(kernel).max())
    if method == "em" and "learned" not in name:  # there the first steps learned the sharings
        first = result.trace["penalized_log_likelihood"].values[:3]
        np.testing.assert_allclose(first, case["L_first"], rtol=1e-9)


def relative(found, expected):
    return np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-300)


@settings(max_examples=25)
@given(seeds, st.floats(-8.0, 8.0))
@not_identified
def test_the_unit_of_a_kernel_is_only_its_own(seed, decades):
    rng = np.random.default_rng(seed)
    drawn = draw_problem(rng)
    k, factor = int(rng.choice(drawn.seen)), 10.0**decades
    scaled = drawn.stack.copy()
    scaled.values[k] *= factor
    one, two = (
        fit_drawn(drawn._replace(stack=stack), method="em", tol=0, max_iter=20)
        for stack in (drawn.stack, scaled)
    )
    assert relative(two.model.matrix, one.model.matrix) < 1e-12
    np.testing.assert_allclose(
        two.sources["constant"], one.sources["constant"], rtol=1e-11, atol=1e-12
    )
    np.testing.assert_array_equal(two.sources["sharing"], one.sources["sharing"])
    factors = np.where(np.arange(len(drawn.sharing)) == k, factor, 1.0)
    np.testing.assert_allclose(two.sources["scale"], factors * one.sources["scale"], rtol=1e-12)
    for before, after, by in zip(one.completed.values, two.completed.values, factors, strict=True):
        assert relative(after, by * before) < 1e-12
    moved = two.penalized_log_likelihood - one.penalized_log_likelihood
    n = int(visible_objects(drawn.stack).values[k].sum())
    expected = -0.5 * drawn.degrees[k] * n * np.log(factor)
    assert moved == pytest.approx(expected, abs=1e-11 * (1.0 + abs(one.penalized_log_likelihood)))


@settings(max_examples=25)
@given(seeds)
@not_identified
@not_converged
def test_the_order_of_kernels_and_objects_does_not_matter(seed):
    rng = np.random.default_rng(seed)
    drawn = draw_problem(rng)
    # At small strengths the ascents may end in different maxima.
    drawn = drawn._replace(strength=max(drawn.strength, 0.1))
    kernels, objects = (rng.permutation(drawn.stack.sizes[dim]) for dim in ("kernel", "object"))
    scale = None if drawn.scale is None else drawn.scale[np.ix_(objects, objects)]
    other = drawn._replace(
        stack=drawn.stack.isel(kernel=kernels, object=objects, object_bis=objects),
        sharing=drawn.sharing[kernels],
        degrees=drawn.degrees[kernels],
        scale=scale,
    )
    one, two = (fit_drawn(each, method="em", tol=0, max_iter=20) for each in (drawn, other))
    assert relative(two.model.matrix, one.model.matrix[np.ix_(objects, objects)]) < 1e-10
    expected = one.completed.values[kernels][:, objects][:, :, objects]
    for found, kernel in zip(two.completed.values, expected, strict=True):
        assert relative(found, kernel) < 1e-10
    one, two = (fit_drawn(each, tol=1e-4).penalized_log_likelihood for each in (drawn, other))
    assert one == pytest.approx(two, abs=2e-4)


@settings(max_examples=25)
@given(seeds)
@not_identified
def test_a_strong_prior_and_sharing_nothing_are_mean_imputation(seed):
    """Freed of the self-entries, in closed form."""
    drawn = draw_problem(np.random.default_rng(seed), regular=True)
    stack, visible = drawn.stack, visible_objects(drawn.stack).values
    setting = Setting(stack.values, visible, *[None] * 6)
    count = len(visible)
    expected = [plain_sources.mean_imputation(setting, k) for k in range(count)]
    strong = fit(stack, strength=1e10, method="em", tol=0, max_iter=2)
    alone = fit(stack, strength=drawn.strength, sharing=0.0, method="em")
    for result, accuracy in ((strong, 1e-8), (alone, 1e-12)):
        for found, kernel in zip(result.completed.values, expected, strict=True):
            assert relative(found, kernel) < accuracy
    prior = alone.prior.scale_matrix(alone.model.objects)
    np.testing.assert_allclose(alone.model.matrix, prior, rtol=1e-12)
    first = np.arange(count) > 0
    mixed = fit(stack, strength=drawn.strength, sharing=1.0 * first, method="em", tol=0, max_iter=3)
    assert relative(mixed.completed.values[0], expected[0]) < 1e-12


@not_identified
def test_identical_sources_are_the_em_without_sources():
    stack, degrees = small_stack(seed=3), [0.5, 1.0, 2.0]
    result = fit(
        stack,
        strength=0.1,
        sources="identical",
        degrees_of_freedom=degrees,
        method="em",
        tol=0,
        max_iter=5,
    )
    em = EM(stack, WishartPrior(0.1), degrees)
    model = em.initial_model()
    for _ in range(5):
        statistics = em.e_step(model)
        model = em.m_step(statistics)
    np.testing.assert_array_equal(result.model.matrix, model.matrix)
    np.testing.assert_array_equal(result.completed, statistics.completed)
    assert Sources.of_dataset(result.sources, em.names).is_identical


@pytest.mark.parametrize("seed", range(12))
@not_identified
@not_converged
def test_every_step_rises_on_kernels_of_all_kinds(seed):
    """`tests/slow/sources.py` takes a thousand of them."""
    drawn = draw_problem(np.random.default_rng(seed))
    for method in OF_FULL:
        check_fit(drawn, method=method, max_iter=60)


@pytest.mark.parametrize("decades", [2, 4, 6, 8])
@not_identified
@not_converged
def test_large_constants_cost_no_ascent(decades):
    rng = np.random.default_rng(decades)
    for _ in range(3):
        drawn = with_constants_of_their_own(draw_problem(rng), rng, decades)
        for method in OF_FULL:
            check_fit(drawn, method=method, max_iter=60)


def test_every_step_rises_where_the_constant_hides_a_singular_model():
    """Found by a search: the likelihood fell by 6e-11 nats, half as much again as its bound."""
    blocks = {
        "a": [[3.0613096213732881e-06, 3.400674749829767e-07], [3.400674749829767e-07, 3.78e-08]],
        "b": [[7.541430178335348e-04, -1.30541137638e-04], [-1.30541137638e-04, 2.1294867550e-04]],
        "c": [[2.34999768e-05, 2.34999768e-05], [2.34999768e-05, 2.34999768e-05]],
        "d": [[245.78275012636786, 253.37077362863388], [253.37077362863388, 266.95993386621331]],
    }
    stack = stack_kernels({name: np.array(block) for name, block in blocks.items()})
    degrees = [2.392195265051458, 1.0799653398461877, 1.4800899480502496, 0.780999994371063]
    result = fit(stack, strength=3.935e-05, degrees_of_freedom=degrees, tol=0, max_iter=30)
    check_monotone(result.trace)


def changed(change, name="Q2"):
    """A stack that fits, with the visible block of one kernel changed."""
    stack = small_stack()
    k = stack["kernel"].values.tolist().index(name)
    seen = visible_objects(stack).values[k]
    places = np.ix_(seen, seen)
    stack.values[k][places] = change(stack.values[k][places])
    return stack


def hidden(stack, name, objects):
    """The stack with these objects hidden in a kernel."""
    stack = stack.copy()
    k = stack["kernel"].values.tolist().index(name)
    stack.values[k][objects] = stack.values[k][:, objects] = np.nan
    return stack


def without_common_objects():
    return stack_kernels(
        np.stack([np.eye(6) + 1.5] * 3), visible=np.kron(np.eye(3), np.ones((1, 2)))
    )


def hidden_everywhere():
    stack = small_stack()
    for name in ("Q1", "Q2", "Q3"):
        stack = hidden(stack, name, [5])
    return stack


UNUSUAL = {
    "one visible object": lambda: hidden(small_stack(), "Q2", slice(2, None)),
    "no visible object": lambda: hidden(small_stack(), "Q2", slice(None)),
    "no common objects": without_common_objects,
    "constant": lambda: changed(lambda block: np.full_like(block, 3.0)),
    "rank one": lambda: changed(lambda block: np.outer(block[0], block[0])),
    "centered": lambda: changed(lambda block: np.eye(len(block)) - 1.0 / len(block)),
    "1e-140": lambda: changed(lambda block: 1e-140 * block),
    "1e140": lambda: changed(lambda block: 1e140 * block),
    "all 1e-140": lambda: 1e-140 * small_stack(),
    "nothing hidden": lambda: stack_kernels(np.stack([np.eye(4) + 1.5] * 3)),
    "one kernel": lambda: small_stack().isel(kernel=[0, 0, 0]).assign_coords(kernel=[*"abc"]),
    "hidden everywhere": hidden_everywhere,
}


@pytest.mark.parametrize("sharing", [1.0, 0.4, 0.0, [0.0, 1.0, 0.5]], ids=str)
@pytest.mark.parametrize("unusual", UNUSUAL)
@not_identified
@not_converged
def test_unusual_kernels_are_completed(unusual, sharing):
    stack = UNUSUAL[unusual]()
    for method in OF_FULL:
        result = fit(stack, sharing=sharing, method=method, max_iter=30)
        check_monotone(result.trace)
        assert np.isfinite(result.completed.values).all()
        seen = ~np.isnan(stack.values)
        np.testing.assert_array_equal(result.completed.values[seen], stack.values[seen])
        assert np.isfinite(result.penalized_log_likelihood)
    kernel_agreement(result)
    object_predictive(result)
    assert "sharing" in result.summary()


@pytest.mark.parametrize("sharing", [1.0, 0.5, 0.0])
@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.filterwarnings("ignore::mkmc_prob.IdentifiabilityWarning")
def test_a_single_kernel(size, sharing):
    visible = np.arange(size) < max(1, size - 1)
    stack = stack_kernels(7.0 * np.eye(size)[None] + 1.0, visible=visible[None])
    result = fit(stack, sharing=sharing)
    check_monotone(result.trace)
    assert np.isfinite(result.completed.values).all()


def test_objects_seen_only_where_nothing_is_shared_count_as_hidden():
    """Their rows of M are the prior's given the others; their kernel is completed from itself."""
    kernels = np.stack([np.eye(5) + c for c in (0.5, 1.5, 2.5)])
    visible = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [0, 1, 1, 1, 0]])
    stack = stack_kernels(kernels, visible=visible)
    with pytest.warns(IdentifiabilityWarning, match=r"object 4 is visible only .*'Q1'"):
        result = fit(stack, sharing=[0.0, 1.0, 1.0], strength=0.3, tol=1e-9)
    model, prior = result.model.matrix, result.prior.scale_matrix(5)
    regression = np.linalg.solve(prior[:4, :4], prior[:4, 4])
    np.testing.assert_allclose(model[4, :4], model[:4, :4] @ regression, rtol=1e-12)
    given = prior[4, 4] - prior[4, :4] @ regression
    expected = given + regression @ model[:4, :4] @ regression
    assert model[4, 4] == pytest.approx(expected, rel=1e-12)
    # L counts the kernel that shares nothing, at its own maximum, in every entry of the trace.
    own = result.trace["log_likelihood"].sel(kernel="Q1").values
    assert (own == own[0]).all()
    covariance = result.sources["scale"].values[0] * (prior + result.sources["constant"].values[0])
    expected = plain_sources.plain.log_gaussian(kernels[0], covariance)
    assert own[0] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"sharing": -0.1}, KernelError, r"sharing of kernel 'Q1': -0.1 .* from 0 to 1"),
        ({"sharing": [1.0, 1.0, 1.5]}, KernelError, r"sharing of kernel 'Q3': 1.5"),
        ({"sharing": np.nan}, KernelError, r"sharing of kernel 'Q1': nan"),
        ({"sharing": [1.0]}, KernelError, r"sharing: 1 numbers for 3 kernels"),
        ({"sharing": {"Q1": 1.0}}, LabelError, r"sharing: none for kernel 'Q2', 'Q3'. Add it"),
        ({"sharing": {"z": 1.0, "Q1": 1, "Q2": 1, "Q3": 1}}, LabelError, "no kernel 'z'"),
        ({"sources": "adaptiv"}, KernelError, r"'adaptiv' found; .* Dataset like result.sources"),
        ({"sources": None}, KernelError, r"sources: NoneType found"),
        ({"sources": {"scale": 1.0}}, KernelError, r"sources: dict found"),
        ({"sources": "identical", "sharing": 0.5}, KernelError, r"sharing: 0.5 .* Leave it out"),
        ({"structure": "ppca"}, KernelError, r"structure: 'ppca' found; 'full'"),
    ],
)
def test_arguments_that_no_fit_takes(given, error, message):
    with pytest.raises(error, match=message):
        fit(small_stack(), **given)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda d: d.drop_vars("scale"), KernelError, "no variable 'scale'"),
        (lambda d: d.isel(kernel=[0, 1]), LabelError, "none for kernel 'Q3'"),
        (lambda d: d.assign(constant=d.constant - 9.0), KernelError, "constant of kernel 'Q1'"),
    ],
)
def test_datasets_that_no_fit_takes(change, error, message):
    dataset = fit(small_stack(), max_iter=10, tol=0).sources
    with pytest.raises(error, match=message):
        fit(small_stack(), sources=change(dataset))
    with pytest.raises(KernelError, match=r"sharing: 0.5 found, but sources holds it"):
        fit(small_stack(), sources=dataset, sharing=0.5)


def test_a_kernel_without_a_scale_is_refused_by_name():
    with pytest.raises(KernelError, match=r"kernel 'Q2': its visible block is zero.*Leave"):
        fit(changed(np.zeros_like))


@pytest.mark.parametrize("factor", [1e-300, 1e300])
def test_kernels_beyond_the_range_are_refused_by_name(factor):
    with pytest.raises(KernelError, match=r"kernel 'far': .*Rescale the kernel"):
        stack_kernels({"far": factor * np.eye(2), "near": np.eye(2)})
    with pytest.raises(KernelError, match=r"kernel 'Q2': .*Rescale the kernel"):
        fit(changed(lambda block: factor * block))


@pytest.fixture(scope="module")
def fitted():
    """A fit of the reference's kernels, with a sharing of each kind."""
    return fit(reference_stack(), sharing=[1.0, 0.7, 0.0], degrees_of_freedom=[1.0, 2.0, 3.0])


def covariances(result):
    """d (s M + (1 - s) T + c J) of each kernel, from what the result says."""
    table = result.sources
    model, prior = result.model.matrix, result.prior.scale_matrix(result.model.objects)
    for name in table["kernel"].values:
        d, c, s = (float(table[part].sel(kernel=name)) for part in ("scale", "constant", "sharing"))
        kernel = result.observed.sel(kernel=name).values
        seen = ~np.isnan(np.diagonal(kernel))
        places = np.ix_(seen, seen)
        yield name, seen, kernel[places], d * (s * model + (1.0 - s) * prior + c)[places]


def test_left_out_objects_have_their_conditional_densities(fitted):
    """By SciPy's joint densities, averaged over vectors whose second moment is the kernel."""
    scores = object_predictive(fitted)
    for name, seen, block, covariance in covariances(fitted):
        vectors = np.linalg.cholesky(block).T * np.sqrt(len(block))
        joint = stats.multivariate_normal(cov=covariance).logpdf(vectors)
        for at, i in enumerate(np.flatnonzero(seen)):
            rest = np.arange(len(block)) != at
            others = stats.multivariate_normal(cov=covariance[np.ix_(rest, rest)])
            density = np.mean(joint - others.logpdf(vectors[:, rest]))
            assert scores.sel(kernel=name)[i] == pytest.approx(density, rel=1e-8)
        assert scores.sel(kernel=name)[~seen].isnull().all()


def test_tables_compare_kernels_with_their_own_covariances(fitted):
    table, summary = kernel_agreement(fitted), fitted.summary()
    for k, (name, seen, block, covariance) in enumerate(covariances(fitted)):
        solved = np.linalg.solve(covariance, block)
        n = len(block)
        divergence = np.trace(solved) - n - np.linalg.slogdet(solved)[1]
        overlap = np.vdot(block, covariance)
        overlap /= np.linalg.norm(block) * np.linalg.norm(covariance)
        for found in (table.loc[name], summary.loc[name]):
            if summary.loc[name, "sharing"] == 0.0:  # nothing in common with the model
                assert np.isnan(found[["mahalanobis", "correlation"]].to_numpy(float)).all()
                continue
            assert found["mahalanobis"] == pytest.approx(np.trace(solved) / n, rel=1e-9)
            assert found["correlation"] == pytest.approx(overlap, rel=1e-9)
        assert table.loc[name, "kl_divergence"] == pytest.approx(0.5 * divergence, rel=1e-9)
        vectors = np.linalg.cholesky(block).T * np.sqrt(n)
        level = stats.multivariate_normal(cov=covariance).logpdf(vectors).mean()
        nu = [1.0, 2.0, 3.0][k]
        assert summary.loc[name, "log_likelihood"] == pytest.approx(nu * level, rel=1e-9)
        assert summary.loc[name, "sharing"] == [1.0, 0.7, 0.0][k]
        assert summary.loc[name, "visible"] == seen.sum()
    total = summary["log_likelihood"].sum() + float(fitted.trace["log_prior"][-1])
    assert total == pytest.approx(fitted.penalized_log_likelihood, rel=1e-12)


def test_results_keep_their_sources(fitted, tmp_path):
    fitted.save(tmp_path / "result.nc")
    again = load_result(tmp_path / "result.nc")
    assert again.identical(fitted)
    assert again.sources.identical(fitted.sources)
    tree = fitted.to_datatree(diagnostics=True)
    assert tree["sources"].to_dataset().identical(fitted.sources)
    assert {"gain_constants", "gain_divergence"} <= set(tree["sample_stats"].data_vars)


@pytest.mark.parametrize("method", OF_FULL)
def test_held_sources_give_the_same_fit(method):
    stack = reference_stack()
    steps = {"method": method, "tol": 1e-11}
    free = fit(stack, sharing=[1.0, 0.7, 0.4], **steps)
    held = fit(stack, sources=free.sources, **steps)
    assert not held.sources["estimated"].any()
    both = (held.sources, free.sources)
    xr.testing.assert_equal(*(each.drop_vars("estimated") for each in both))
    np.testing.assert_allclose(held.model.matrix, free.model.matrix, rtol=1e-5)
    level = pytest.approx(free.penalized_log_likelihood, abs=1e-9)
    assert held.penalized_log_likelihood == level
    assert (held.trace["gain_constants"].dropna("iteration") == 0.0).all()
    # Where the constants are free, L is at each model's best constants, so higher on the way.
    levels = [each.trace["penalized_log_likelihood"].values for each in (held, free)]
    assert levels[0][0] <= levels[1][0]


def test_a_warm_start_goes_on_where_the_fit_ended(fitted):
    options = {"sharing": [1.0, 0.7, 0.0], "degrees_of_freedom": [1.0, 2.0, 3.0]}
    again = fit(fitted.observed, initial=fitted, **options)
    first = float(again.trace["penalized_log_likelihood"][0])
    assert first == pytest.approx(fitted.penalized_log_likelihood, rel=1e-12)
    check_monotone(again.trace)
    assert again.penalized_log_likelihood >= first


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize(("method", "each"), [("em", 1), ("geodesic", 1), ("squarem", 2)])
def test_a_step_evaluates_the_em_map_once(fitted, method, each, held):
    """Estimating the constants takes no further E-step: they are a by-product of its factors."""
    stack = fitted.observed
    model = {"sources": fitted.sources} if held else {"sharing": [1.0, 0.7, 0.0]}
    with patch.object(FullEM, "e_step", autospec=True, side_effect=FullEM.e_step) as counted:
        result = fit(stack, method=method, tol=0, max_iter=8, **model)
    taken = result.trace["evaluations"].values
    alone = 1  # the kernel that shares nothing is evaluated once, after the ascent
    assert counted.call_count == taken[-1] + alone
    if method != "geodesic":
        assert (np.diff(taken) == each).sum() >= 6
    assert taken[-1] <= 1 + each * 8 + (5 if method == "geodesic" else 0)


def test_starts_of_other_ascents_are_in_the_kernels_units():
    """Kernels in units from 1e-6 to 1e6 have the starts, and the maximum, of those in one unit."""
    stack = reference_stack()
    scaled = stack * xr.DataArray([1e-6, 1.0, 1e6], {"kernel": stack["kernel"]}, ["kernel"])
    started, found = [], []

    def in_turn(run, tasks, workers):
        started.append([task[1] for task in tasks])
        return [run(*task) for task in tasks]

    with patch.object(maxima, "in_processes", in_turn):
        for kernels in (stack, scaled):
            found.append(explore_maxima(kernels, sharing=[1.0, 0.7, 0.4], random_starts=1))
    for one, two in zip(*started, strict=True):
        if isinstance(one, GaussianModel):
            np.testing.assert_allclose(two.matrix, one.matrix, rtol=1e-9, atol=1e-12)
    assert sum(isinstance(one, GaussianModel) for one in started[0]) == 5
    for one in found:
        assert len(one.results) == 1
        assert one.table["is_maximum"].all()
    models = [one.best.model.matrix for one in found]
    np.testing.assert_allclose(models[1], models[0], atol=1e-3)


@pytest.mark.parametrize("sharing", [1.0, 0.9])
def test_constants_that_all_kernels_share_do_not_cancel(sharing):
    """The completed kernels less the constant hardly change, whatever its size."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((12, 6))
    noise = 0.5 * rng.standard_normal((2, 12, 6))
    kernels = np.array([f @ f.T / 6 for f in (x, x + noise[0], x + noise[1])])
    visible = np.ones((3, 12), bool)
    visible[0, :4] = visible[1, 4:8] = visible[2, 8:] = False
    found = [
        fit(stack_kernels(kernels + z, visible=visible), sharing=sharing, tol=1e-9).completed - z
        for z in (1e3, 1e5, 1e8, 1e9)
    ]
    np.testing.assert_allclose(found[0], found[1], atol=1e-3)
    # From 1e6 on, the kernels' constants are their own, which is another model, not rounding.
    np.testing.assert_allclose(found[0], found[2], atol=0.4)
    np.testing.assert_allclose(found[0], found[3], atol=0.4)


def test_held_and_free_constants_stay_so_in_diagnostics():
    stack = small_stack(size=8)
    given = fit(stack).sources.copy(deep=True)
    given["constant"] = ("kernel", [np.nan, 5.0, np.nan])
    result = fit(stack, sources=given)
    assert result.sources["estimated"].values.tolist() == [True, False, True]
    constants = problem_of_result(result).sources.constant
    np.testing.assert_array_equal(np.isnan(constants), [True, False, True])
    assert constants[1] == 5.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda given: given.drop_attrs(), "shared_constant"),
        (lambda given: given.isel(kernel=0), "dims"),
    ],
)
def test_sources_that_are_not_whole_are_named(change, words):
    stack = small_stack()
    with pytest.raises(KernelError, match=words):
        fit(stack, sources=change(fit(stack).sources))


@pytest.mark.parametrize("dim", ["kernel", "k"])
def test_numbers_without_labels_are_by_position_also_if_names_are_integers(dim):
    stack = stack_kernels(np.array([np.eye(4), 2 * np.eye(4), 3 * np.eye(4)]), names=[2, 0, 1])
    shares, degrees = (xr.DataArray(values, dims=dim) for values in ([0.2, 0.5, 0.8], [3, 1, 2]))
    result = fit(stack, sharing=shares, degrees_of_freedom=degrees)
    assert result.sources["sharing"].values.tolist() == [0.2, 0.5, 0.8]
    assert result.degrees_of_freedom.values.tolist() == [3.0, 1.0, 2.0]
    assert result.sources["kernel"].values.tolist() == [2, 0, 1]
