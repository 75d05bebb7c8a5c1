"""Standard errors against Hessians by finite differences, closed forms and the posterior."""

import numpy as np
import plain_sources
import pytest
import xarray as xr
from hypothesis import given, settings
from problems import PAPER, both_models, small_stack
from scipy import stats
from strategies import problems, random_covariance

from mkmc_prob import (
    ConvergenceWarning,
    IdentifiabilityWarning,
    KernelError,
    LabelError,
    WishartPrior,
    datasets,
    fit,
    remove_objects,
    sample_posterior,
    stack_kernels,
    standard_errors,
)
from mkmc_prob.fitting import model_functions
from mkmc_prob.fitting import standard_errors as module
from mkmc_prob.fitting.information import EMDerivative
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


@pytest.fixture(params=[False, True], ids=["dense", "conjugate gradients"])
def solved_by(request, monkeypatch):
    """Run a test by factorization and by conjugate gradients."""
    if request.param:
        monkeypatch.setattr(module, "FEW", 0)


@pytest.mark.usefixtures("solved_by")
@pytest.mark.parametrize("name", MODELS)
def test_the_inverse_of_a_hessian_by_differences_says_the_same(name):
    stack = overlapping_stack(alike=name == "identical")
    result = fit(stack, **MODELS[name], **TIGHT)
    pairs, covariance = covariance_by_differences(result)
    labels = [*"abcde"]
    found = standard_errors(result, [(labels[i], labels[j]) for i, j in pairs])
    np.testing.assert_allclose(found["standard_error"] ** 2, np.diagonal(covariance), rtol=1e-6)
    np.testing.assert_array_equal(found["value"], [result.model.matrix[pair] for pair in pairs])


@pytest.mark.parametrize("name", MODELS)
def test_missing_information_is_never_negative(name):
    """All eigenvalues of DF are in [0, 1), which the accuracy of conjugate gradients rests on."""
    result = fit(overlapping_stack(alike=name == "identical"), **MODELS[name])
    em, _ = seen_problem(problem_of_result(result))
    derivative = EMDerivative(em, result.model.cholesky)
    values = np.linalg.eigvalsh([derivative(column) for column in np.eye(15)])
    assert -1e-12 < values[0] < values[-1] < 1.0


@pytest.mark.usefixtures("solved_by")
@pytest.mark.parametrize("sources", ["identical", "adaptive"])
def test_entries_that_no_kernel_shows_are_free_in_the_others_errors(sources):
    stack = overlapping_stack(alike=True).sel(kernel=["x", "z"])
    result = fit(stack, sources=sources, strength=0.5, degrees_of_freedom=3.0, **TIGHT)
    pairs, covariance = covariance_by_differences(result)
    seen = [(i, j) not in {(4, 0), (4, 3)} for i, j in pairs]
    named = [(f"{'abcde'[i]}", "abcde"[j]) for i, j in pairs]
    found = errors(result, [pair for pair, kept in zip(named, seen, strict=True) if kept])
    np.testing.assert_allclose(found**2, np.diagonal(covariance)[seen], rtol=1e-6)


def labelled_weights(values, objects):
    coords = {"object": objects, "object_bis": objects}
    return xr.DataArray(values, coords, ("object", "object_bis"))


@pytest.mark.usefixtures("solved_by")
def test_functions_by_the_delta_method():
    result = fit(overlapping_stack(), sharing={"x": 1.0, "y": 0.6, "z": 0.8}, **TIGHT)
    pairs, covariance = covariance_by_differences(result)
    rng = np.random.default_rng(2)
    weights = rng.standard_normal((3, 3))  # not symmetric, over some of the objects
    few = labelled_weights(weights, ["d", "a", "c"]).transpose("object_bis", "object")
    whole = np.zeros((5, 5))
    whole[np.ix_([3, 0, 2], [3, 0, 2])] = weights
    matrix = result.model.matrix

    def correlation(model):
        block = model.sel(object=["d", "b"], object_bis=["d", "b"]).values
        return block[0, 1] / np.sqrt(block[0, 0] * block[1, 1])

    slopes = np.zeros((2, len(pairs)))
    for p, (i, j) in enumerate(pairs):
        slopes[0, p] = whole[i, j] + (whole[j, i] if i != j else 0.0)
    value = matrix[3, 1] / np.sqrt(matrix[3, 3] * matrix[1, 1])
    slopes[1, pairs.index((3, 1))] = value / matrix[3, 1]
    slopes[1, pairs.index((3, 3))] = -0.5 * value / matrix[3, 3]
    slopes[1, pairs.index((1, 1))] = -0.5 * value / matrix[1, 1]
    found = standard_errors(result, functions={"weights": few, "correlation": correlation})
    assert found["entry"].values.tolist() == ["weights", "correlation"]
    np.testing.assert_allclose(found["value"], [(whole * matrix).sum(), value], rtol=1e-12)
    expected = np.sqrt(np.einsum("fp,pq,fq->f", slopes, covariance, slopes))
    np.testing.assert_allclose(found["standard_error"], expected, rtol=1e-6)
    own = standard_errors(result, [("d", "b")], correlation=True)
    np.testing.assert_allclose(own["standard_error"], expected[1:], rtol=1e-6)
    np.testing.assert_allclose(own["value"], [value], rtol=1e-12)


# Closed forms


def complete_problem(nu):
    rng = np.random.default_rng(3)
    kernels = stack_kernels(np.array([random_covariance(rng, 4) for _ in range(3)]))
    return fit(kernels, **PAPER, degrees_of_freedom=nu, tol=1e-10)


@pytest.mark.usefixtures("solved_by")
def test_complete_kernels_have_the_errors_of_a_sample_covariance():
    """(M_ii M_jj + M_ij^2) / n, (1 - rho^2) / sqrt(n), and 2 l / n for log det, n = lambda + N."""
    nu = np.array([3.0, 10.0, 7.0])
    result, count = complete_problem(nu), 0.1 + nu.sum()
    matrix = result.model.matrix
    rows, columns = np.tril_indices(4)
    squares = matrix[rows, rows] * matrix[columns, columns] + matrix[rows, columns] ** 2
    pairs = list(zip(rows.tolist(), columns.tolist(), strict=True))
    np.testing.assert_allclose(errors(result, pairs), np.sqrt(squares / count), rtol=1e-10)
    rho = matrix / np.sqrt(np.outer(np.diagonal(matrix), np.diagonal(matrix)))
    apart = [pair for pair in pairs if pair[0] != pair[1]]
    found = standard_errors(result, apart, correlation=True)
    expected = np.array([rho[pair] for pair in apart])
    np.testing.assert_allclose(found["value"], expected, rtol=1e-12)
    np.testing.assert_allclose(
        found["standard_error"], (1 - expected**2) / np.sqrt(count), rtol=1e-10
    )
    size = errors(result, functions={"log det": lambda model: np.linalg.slogdet(model)[1]})
    np.testing.assert_allclose(size, np.sqrt(2 * 4 / count), rtol=1e-8)


def test_by_default_all_pairs_that_are_shown_in_the_order_of_the_objects():
    result = complete_problem(1.0)
    every = standard_errors(result)
    pairs = list(zip(every["object"].values, every["object_bis"].values, strict=True))
    assert pairs == [(i, j) for i in range(4) for j in range(i + 1)]
    np.testing.assert_allclose(errors(result, pairs), every["standard_error"], rtol=1e-12)
    off = standard_errors(result, correlation=True)
    assert off.sizes["entry"] == 6
    table = every.to_dataframe()
    assert table.columns.tolist() == ["value", "standard_error", "object", "object_bis"]


@pytest.mark.parametrize("more", [20.0, 500.0])
def test_complete_kernels_against_their_posterior(more):
    """The posterior of M is inverse-Wishart, with more than the normal variance: n / (n - 2)."""
    nu = np.full(3, more / 3)
    result, size = complete_problem(nu), 4
    count = 0.1 + nu.sum()
    law = stats.invwishart(count + size + 1, count * result.model.matrix)
    ratio = np.sqrt(np.diagonal(law.var())) / errors(result, [(i, i) for i in range(size)])
    np.testing.assert_allclose(ratio, np.sqrt(count / (count - 2)), rtol=1e-6)


@settings(max_examples=12)
@given(problems(largest=4))
@pytest.mark.filterwarnings("ignore::mkmc_prob.IdentifiabilityWarning")
def test_hidden_objects_only_add_to_the_error_and_observations_take_from_it(problem):
    """Against complete data, against more observations, by either solver."""
    nu, strength = problem.degrees_of_freedom, problem.prior.strength
    total = strength + nu.sum()
    options = {"sources": "identical", "tol": 1e-9, "max_iter": 20_000}
    result = fit(problem.stack, prior=problem.prior, degrees_of_freedom=nu, **options)
    found = standard_errors(result)
    matrix = result.model.covariance
    i, j = found["object"], found["object_bis"]
    squares = matrix.sel(object=i, object_bis=j) ** 2 + matrix.sel(
        object=i, object_bis=i
    ) * matrix.sel(object=j, object_bis=j)
    variance = found["standard_error"].values ** 2
    assert (variance >= squares.values / total * (1 - 1e-9)).all()
    stronger = WishartPrior(4 * strength, problem.prior.scale)
    more = fit(
        problem.stack, prior=stronger, degrees_of_freedom=4 * nu, initial=result.model, **options
    )
    np.testing.assert_allclose(errors(more) ** 2, variance / 4, rtol=1e-3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FEW", 0)
        pairs = list(zip(i.values.tolist(), j.values.tolist(), strict=True))
        np.testing.assert_allclose(errors(result, pairs) ** 2, variance, rtol=1e-7)


def test_units_of_the_kernels_and_the_order_of_the_objects_do_not_matter():
    stack = overlapping_stack()
    options = {"sharing": {"x": 1.0, "y": 0.6, "z": 0.8}, **TIGHT}
    result = fit(stack, **options)
    pairs = [("a", "b"), ("c", "c"), ("e", "b")]
    expected = errors(result, pairs)
    units = xr.DataArray([3.0, 0.01, 7.0], dims="kernel")
    np.testing.assert_allclose(errors(fit(stack * units, **options), pairs), expected, rtol=1e-6)
    other = stack.isel(object=[3, 1, 4, 0, 2], object_bis=[3, 1, 4, 0, 2])
    turned = [(j, i) for i, j in pairs]
    np.testing.assert_allclose(errors(fit(other, **options), turned), expected, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:R-hat|the effective:mkmc_prob.ConvergenceWarning")
def test_the_posterior_of_few_digits_varies_as_much():
    """Some 400 independent draws, so each ratio is known to 4 %; the posterior is nearly normal."""
    kernels, _ = datasets.load_multiple_features(1, kernel="linear", sources=["fou", "kar", "zer"])
    stack = remove_objects(kernels, 0.2, seed=0)
    options = {"strength": 100.0, "degrees_of_freedom": [76.0, 64.0, 47.0]}
    options["sources"] = "identical"
    posterior = sample_posterior(stack, **options, draws=400, tune=50, seed=1, keep=[])
    found = standard_errors(fit(stack, **options))
    assert found.sizes["entry"] == 53
    places = {"object": found["object"], "object_bis": found["object_bis"]}
    sd = posterior["posterior_summary"]["model_sd"].sel(places)
    ratio = (sd / found["standard_error"]).values
    assert 0.97 < np.median(ratio) < 1.03
    assert (np.abs(ratio - 1) < 0.15).all()


# What is refused


def apart_stack():
    """No kernel shows 'a' and 'd' together; 'e' is hidden everywhere."""
    visible = [[1, 1, 1, 0, 0], [0, 1, 1, 1, 0]]
    rng = np.random.default_rng(7)
    kernels = np.array([random_covariance(rng, 5) for _ in range(2)])
    return stack_kernels(kernels, visible=visible, objects=[*"abcde"], names=["x", "y"])


@pytest.fixture(scope="module")
def apart():
    with pytest.warns(IdentifiabilityWarning, match="'e'"):
        return fit(apart_stack(), degrees_of_freedom=5.0, tol=1e-9)


@both_models
@pytest.mark.filterwarnings("ignore::mkmc_prob.IdentifiabilityWarning")
def test_pairs_that_no_kernel_shows_are_left_out_or_refused(model):
    result = fit(apart_stack(), **model)
    found = standard_errors(result)
    pairs = {*zip(found["object"].values, found["object_bis"].values, strict=True)}
    assert ("d", "a") not in pairs
    assert not any("e" in pair for pair in pairs)
    assert len(pairs) == 9
    with pytest.raises(KernelError, match=r"shows 'a' and 'd' together.*unseen_pairs"):
        standard_errors(result, [("b", "b"), ("a", "d")])
    with pytest.raises(KernelError, match="object 'e' is hidden in every kernel"):
        standard_errors(result, [("e", "e")])
    with pytest.raises(KernelError, match="object 'e' is hidden in every kernel"):
        standard_errors(result, [("a", "e")], correlation=True)
    ones = labelled_weights(np.ones((2, 2)), ["a", "d"])
    for function in (ones, lambda model: float(model.sel(object="a", object_bis="d"))):
        with pytest.raises(
            KernelError, match=r"functions, 'sum': .*'d' and 'a' together|'a' and 'd'"
        ):
            standard_errors(result, functions={"sum": function})
    standard_errors(result, functions={"sum": ones * np.eye(2)})


def test_kernels_of_sharing_0_do_not_show_a_pair():
    stack = overlapping_stack()
    result = fit(stack, sharing={"x": 1.0, "y": 0.0, "z": 0.5})
    assert standard_errors(result, [("a", "b")]).sizes["entry"] == 1
    with pytest.raises(KernelError, match="above 0 shows 'a' and 'e' together"):
        standard_errors(result, [("a", "e")])
    with pytest.raises(KernelError, match="the prior alone determines the model matrix"):
        standard_errors(fit(stack, sharing=0.0))


@pytest.mark.filterwarnings("ignore::mkmc_prob.MKMCWarning")
@pytest.mark.usefixtures("solved_by")
def test_a_saddle_has_no_standard_errors():
    """Not even for the diagonal, whose gradient has no part along the rising direction.

    Two kernels call one object each large and a third both small: L is even in the correlation, and
    the fit stops at 0.
    """
    kernels = np.array([np.diag([1.0, 10.0]), np.diag([10.0, 1.0]), np.diag([0.1, 0.1])])
    stack = stack_kernels(kernels, visible=[[0, 1], [1, 0], [1, 1]])
    result = fit(stack, strength=0.01, sources="identical", tol=1e-10)
    with pytest.raises(KernelError, match=r"not a maximum .*explore_maxima\(stack\)"):
        standard_errors(result, [(0, 0)])


def test_conjugate_gradients_that_do_not_get_there_warn(monkeypatch):
    result = fit(small_stack(), strength=0.05, tol=1e-8)
    expected = errors(result, [("p0", "p0")])
    monkeypatch.setattr(module, "FEW", 0)
    monkeypatch.setattr(module, "MOST_STEPS", 3)
    with pytest.warns(ConvergenceWarning) as caught:
        found = errors(result, [("p0", "p0")])
    messages = [str(one.message) for one in caught]
    assert messages[0].startswith("whether the model matrix is a maximum is unknown")
    assert messages[1].startswith("the standard error of ('p0', 'p0') is a lower bound")
    assert 0 < found < expected


def test_a_fit_that_did_not_converge_warns():
    result = fit(overlapping_stack(), tol=0, max_iter=15)
    with pytest.warns(ConvergenceWarning, match="the fit did not converge"):
        standard_errors(result, [("a", "a")])


def test_wrong_entries_are_named(apart):
    cases = [
        ("ab", KernelError, "entries: 'ab' found; a list of"),
        (5, KernelError, "entries: 5 found; a list of"),
        ([], KernelError, "entries: none found"),
        (["ab"], KernelError, "entries: 'ab' found"),
        ([("a", "b", "c")], KernelError, r"entries: \('a', 'b', 'c'\) found"),
        ([("a", "z")], LabelError, "entries: there is no object 'z'"),
        ([("a", ["b"])], LabelError, r"entries: there is no object \['b'\]"),
    ]
    for entries, error, message in cases:
        with pytest.raises(error, match=message):
            standard_errors(apart, entries)
    with pytest.raises(KernelError, match="correlation of an object with itself is 1"):
        standard_errors(apart, [("a", "b"), ("c", "c")], correlation=True)
    with pytest.raises(KernelError, match=r"result: ndarray found"):
        standard_errors(np.eye(2))
    with pytest.raises(KernelError, match="seed: None found"):
        standard_errors(apart, seed=None)


def test_wrong_functions_are_named(apart):
    ones = labelled_weights(np.ones((2, 2)), ["a", "b"])
    cases = [
        ({}, KernelError, "functions: {} found"),
        ([ones], KernelError, "a mapping from names to functions"),
        ({"f": 3.0}, KernelError, "functions, 'f': float found"),
        ({"f": ones.rename(object="row")}, KernelError, "functions, 'f': weights of dims"),
        ({"f": ones.drop_vars("object")}, KernelError, "functions, 'f': weights of dims"),
        ({"f": ones * np.nan}, KernelError, "functions, 'f': not all weights are finite"),
        ({"f": ones.assign_coords(object=["a", "z"])}, LabelError, "'f': there is no object 'z'"),
        ({"f": lambda model: np.nan}, KernelError, "functions, 'f': it returns nan"),
        ({"f": lambda model: model}, KernelError, "functions, 'f': it returns"),
        ({"f": lambda model: None}, KernelError, "functions, 'f': it returns"),
        ({"f": lambda model: True}, KernelError, "functions, 'f': it returns True"),
        ({"f": lambda model: xr.Dataset()}, KernelError, "functions, 'f': it returns"),
    ]
    for functions, error, message in cases:
        with pytest.raises(error, match=message):
            standard_errors(apart, functions=functions)
    for options in ({"entries": [("a", "a")]}, {"correlation": True}):
        with pytest.raises(KernelError, match="Call standard_errors once for each"):
            standard_errors(apart, functions={"f": ones}, **options)


def test_many_objects_need_named_entries_and_gradients(apart, monkeypatch):
    monkeypatch.setattr(module, "FEW", 4)
    with pytest.raises(KernelError, match=r"at most 4 objects; 5 found\. Name the entries"):
        standard_errors(apart)
    monkeypatch.setattr(model_functions, "DIFFERENTIATED", 4)
    with pytest.raises(KernelError, match=r"at most 4 objects; 5 found\. Pass its gradient"):
        standard_errors(apart, functions={"f": lambda model: model[0, 0]})


def test_the_result_and_what_is_passed_stay_as_they_are(apart, capsys):
    before = apart.model.matrix.copy()
    weights = labelled_weights(np.array([[1.0, 2.0], [0.0, 1.0]]), ["a", "b"])
    given_weights = weights.copy(deep=True)

    def spoils(model):
        answer = float(model[0, 0])
        model.values[:] = np.nan
        return answer

    one = standard_errors(apart, functions={"w": weights, "f": spoils}, progress=True)
    assert "standard_errors" in capsys.readouterr().err
    np.testing.assert_array_equal(apart.model.matrix, before)
    xr.testing.assert_identical(weights, given_weights)
    assert one.identical(standard_errors(apart, functions={"w": weights, "f": spoils}))
    assert one["standard_error"][1] == pytest.approx(errors(apart, [("a", "a")])[0], rel=1e-7)
