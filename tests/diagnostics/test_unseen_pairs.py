"""Bounds on the entries of pairs never observed together, against searches by eigenvalues."""

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from problems import PAPER, beyond_double_precision
from strategies import problems, random_covariance

from mkmc_prob import (
    PPCA,
    FactorAnalysis,
    IndefiniteKernelError,
    KernelError,
    LabelError,
    WishartPrior,
    datasets,
    fit,
    plots,
    remove_objects,
    stack_kernels,
)
from mkmc_prob.diagnostics.bounds import CompletedBounds, unseen_pairs
from mkmc_prob.stacks.stack import visible_objects

not_identified = pytest.mark.filterwarnings("ignore::mkmc_prob.IdentifiabilityWarning")


def smallest(matrix, i, j, value):
    moved = matrix.copy()
    moved[i, j] = moved[j, i] = value
    return np.linalg.eigvalsh(moved)[0]


def end_by_bisection(matrix, i, j, sign, floor=0.0):
    """The farthest value of entry (i, j) at which no eigenvalue is below -floor."""
    inside = matrix[i, j]
    outside = inside + sign * 4.0 * np.sqrt(matrix[i, i] * matrix[j, j])
    for _ in range(48):
        middle = 0.5 * (inside + outside)
        if smallest(matrix, i, j, middle) >= -floor:
            inside = middle
        else:
            outside = middle
    return inside


def random_problem(rng, size=5, kernels=2, features=None):
    """Kernels that hide objects at random, such that a pair is never observed together."""
    while True:
        visible = rng.random((kernels, size)) < 0.6
        never = visible.T.astype(int) @ visible == 0
        if visible.any(axis=1).all() and np.triu(never, 1).any():
            break
    matrices = np.array([random_covariance(rng, size) for _ in range(kernels)])
    if features:
        factors = rng.standard_normal((kernels, size, features))
        matrices = factors @ factors.swapaxes(1, 2)
    return stack_kernels(matrices, visible=visible)


@not_identified
@pytest.mark.parametrize("features", [None, 2])
def test_the_bounds_are_those_that_bisection_finds(features):
    """200 random problems: the model, and completed kernels of full and of low rank."""
    rng = np.random.default_rng(5)
    for case in range(100):
        model = [{}, PAPER, {"sharing": 0.6}][case % 3]
        stack = random_problem(rng, features=features)
        result = fit(stack, **model, tol=0, max_iter=3)
        found = unseen_pairs(result)
        assert found.attrs["unseen_pairs"] == found.sizes["pair"] > 0
        matrix, pair = result.model.matrix, int(rng.integers(found.sizes["pair"]))
        own = found.sel(pair=pair)
        i, j = int(own["object"]), int(own["object_bis"])
        assert float(own["value"]) == matrix[i, j]
        scale = np.sqrt(matrix[i, i] * matrix[j, j])
        for name, sign in (("lower", -1), ("upper", 1)):
            end = float(own[name])
            assert end == pytest.approx(end_by_bisection(matrix, i, j, sign), abs=1e-8 * scale)
            assert abs(smallest(matrix, i, j, end)) < 1e-8 * np.linalg.eigvalsh(matrix)[-1]
        middle, half = (own["upper"] + own["lower"]) / 2, (own["upper"] - own["lower"]) / 2
        assert float(own["partial_correlation"]) == pytest.approx(
            float((own["value"] - middle) / half), abs=1e-8
        )
        assert float(own["relative_width"]) == pytest.approx(2 * float(half) / scale)
        for k, completed in enumerate(result.completed.values):
            assert float(own["kernel_value"][k]) == completed[i, j]
            # Eigenvalues that are zero up to rounding let the search go too far by the root of it.
            variances, vectors = np.linalg.eigh(completed)
            floor = 1e-13 * variances[-1]
            zero = (vectors[:, variances < 10 * floor] ** 2).sum(axis=1)
            size = np.sqrt(completed[i, i] * completed[j, j])
            beyond = 1e-8 * size
            for a, b in ((i, j), (j, i)):
                if zero[a] > 1e-9:
                    beyond += 2 * np.sqrt(floor * completed[b, b] / zero[a])
            for name, sign in (("kernel_lower", -1), ("kernel_upper", 1)):
                end = end_by_bisection(completed, i, j, sign, floor)
                assert float(own[name][k]) == pytest.approx(end, abs=beyond)
            point = float(own["kernel_lower"][k]) == float(own["kernel_upper"][k])
            assert point == (max(zero[i], zero[j]) > 1e-9)


@not_identified
def test_a_kernel_of_few_features_fixes_the_entries_of_what_it_shows():
    """Three objects of two features: each is determined by the others, unless it is unrelated."""
    factors = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 2.0]])  # 0 and 1 are copies, 2 is on its own
    kernel = np.zeros((5, 5))
    kernel[:3, :3] = factors @ factors.T
    visible = np.array([[1, 1, 1, 0, 0], [0, 0, 0, 1, 1]])
    stack = stack_kernels(np.stack([kernel, np.eye(5)]), visible=visible)
    prior_scale = random_covariance(np.random.default_rng(0), 5)
    result = fit(stack, prior=WishartPrior(1.0, prior_scale), sources="identical")
    found = unseen_pairs(result).sel(kernel="Q1").to_dataframe()
    found = found.set_index(["object", "object_bis"])
    width = found["kernel_upper"] - found["kernel_lower"]
    assert (width[[0, 1]] == 0).all()
    assert (width[2] > 0.1).all()
    completed = result.completed.values[0]
    end = end_by_bisection(completed, 2, 3, 1, 1e-14)
    assert found["kernel_upper"][2, 3] == pytest.approx(end, abs=1e-6)


def test_the_limit_is_that_of_a_small_multiple_of_the_identity():
    """Bounds of singular matrices are limits; the width of a point falls with the root of eps."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        factors, regression = rng.standard_normal((3, 2)), rng.standard_normal((3, 2))
        factors[2] *= [1.0, 0.0]
        factors[:2] *= [0.0, 1.0]  # 0 and 1 are multiples of each other, 2 is on its own
        block = factors @ factors.T
        conditional = random_covariance(rng, 2)
        matrix = np.block(
            [
                [block, block @ regression],
                [regression.T @ block, conditional + regression.T @ block @ regression],
            ]
        )
        visible = np.array([1, 1, 1, 0, 0], dtype=bool)
        bounds = CompletedBounds.of(matrix, visible, 2.2e-16, "kernel", np.arange(5))
        i, j = np.array([0, 2, 3]), np.array([3, 4, 4])
        value, lower, upper = bounds.at(i, j)
        precision = np.linalg.inv(matrix + 1e-8 * np.eye(5))
        diagonal = np.diagonal(precision)
        root = np.sqrt(diagonal[i] * diagonal[j])
        for ours, limit in (
            (lower, value - 1 / (root + precision[i, j])),
            (upper, value + 1 / (root - precision[i, j])),
        ):
            np.testing.assert_allclose(ours[0], limit[0], atol=0.01)
            np.testing.assert_allclose(ours[1:], limit[1:], atol=1e-5)
        assert lower[0] == upper[0]
        assert (upper[1:] - lower[1:] > 1e-3).all()


@not_identified
@pytest.mark.parametrize("structure", [PPCA(2), FactorAnalysis(2)])
@pytest.mark.parametrize("rows", [3, 128])
def test_a_model_of_few_factors_has_the_bounds_of_its_matrix(structure, rows, monkeypatch):
    kernels, _ = datasets.make_fusion_problem(40, 3)
    result = fit(remove_objects(kernels, 0.6, seed=0), structure=structure)
    monkeypatch.setattr("mkmc_prob.diagnostics.bounds.ROWS", rows)
    found = unseen_pairs(result, most=50)
    assert found.sizes["pair"] == 50 < found.attrs["unseen_pairs"]
    assert "factors of the model choose" in found.attrs["description"]
    matrix = result.model.matrix
    precision = np.linalg.inv(matrix)
    root = np.sqrt(np.outer(np.diagonal(precision), np.diagonal(precision)))
    np.fill_diagonal(precision, 0.0)  # only pairs of different objects count
    ends = matrix - 1 / (root + precision), matrix + 1 / (root - precision)
    labels = {label: i for i, label in enumerate(result.model.objects.tolist())}
    i, j = ([labels[a] for a in found[dim].values.tolist()] for dim in ("object", "object_bis"))
    for name, expected in zip(("lower", "upper"), ends, strict=True):
        np.testing.assert_allclose(found[name], expected[i, j], rtol=1e-9)
    np.testing.assert_allclose(found["value"], matrix[i, j], rtol=1e-12)
    width = (ends[1] - ends[0]) / np.sqrt(np.outer(np.diagonal(matrix), np.diagonal(matrix)))
    never = np.triu(result.never_seen_together().values, 1)
    np.testing.assert_allclose(found["relative_width"], np.sort(width[never])[::-1][:50], rtol=1e-9)


def test_kernels_on_disk_have_the_bounds_of_the_model_only():
    da = pytest.importorskip("dask.array")
    kernels, _ = datasets.make_fusion_problem(30, 3)
    stack = remove_objects(kernels, 0.6, seed=0)
    visible = visible_objects(stack).to_pandas()
    whole = {name: kernels.sel(kernel=name).values for name in visible.index}
    labels = {"objects": visible.columns.tolist(), "visible": visible}
    lazy = stack_kernels({n: da.from_array(v, chunks=10) for n, v in whole.items()}, **labels)
    options = {"structure": PPCA(2), "tol": 1e-8}
    found, dense = fit(lazy, **options).unseen_pairs(), fit(stack, **options).unseen_pairs()
    assert set(dense.data_vars) - set(found.data_vars) == {
        "kernel_value",
        "kernel_lower",
        "kernel_upper",
    }
    np.testing.assert_allclose(found["upper"], dense["upper"], rtol=1e-4)
    assert found.attrs == dense.attrs


@not_identified
@given(problems(largest=7))
def test_at_the_bounds_the_matrices_are_still_positive_semidefinite(problem):
    result = fit(problem.stack, prior=problem.prior, sources="identical", tol=0, max_iter=2)
    found = result.unseen_pairs()
    assert ((found["lower"] < found["value"]) & (found["value"] < found["upper"])).all()
    assert (abs(found["partial_correlation"]) < 1).all()
    assert ((found["relative_width"] > 0) & (found["relative_width"] <= 2 + 1e-12)).all()
    assert (found["kernel_lower"] <= found["kernel_value"]).all()
    assert (found["kernel_value"] <= found["kernel_upper"]).all()
    pairs = zip(found["object"].values, found["object_bis"].values, strict=True)
    for number, (i, j) in enumerate(pairs):
        own = found.isel(pair=number)
        assert not problem.visible[:, [i, j]].all(axis=1).any()
        for k, matrix in enumerate([*result.completed.values, result.model.matrix]):
            at = {} if k == found.sizes["kernel"] else {"kernel": k}
            for end in ("lower", "upper"):
                bound = own[f"kernel_{end}"].isel(at) if at else own[end]
                least = smallest(matrix, i, j, float(bound))
                assert least >= -1e-9 * np.linalg.eigvalsh(matrix)[-1]


def three_groups():
    """a-b and b-c are seen together, d is tied to none, and no kernel shows e."""
    return stack_kernels(
        np.stack([np.eye(5) + 0.5] * 3),
        visible=[[1, 1, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 0, 1, 0]],
        objects=list("abcde"),
    )


@not_identified
def test_what_the_prior_alone_determines_is_flagged():
    found = fit(three_groups(), sources="identical").unseen_pairs()
    alone = {
        a + b: bool(flag)
        for a, b, flag in zip(
            found["object"].values, found["object_bis"].values, found["prior_alone"], strict=True
        )
    }
    assert alone == {"ac": False} | dict.fromkeys(("ad", "ae", "bd", "be", "cd", "ce", "de"), True)
    assert found.attrs["unseen_pairs"] == 8
    assert found.attrs["prior_alone_pairs"] == 7
    assert "('a', 'b', 'c'); ('d'): the prior alone determines the whole" in found.attrs["groups"]
    assert "about 'e': the prior alone" in found.attrs["hidden"]
    # Between what only the prior ties, the identity is the middle of the interval.
    prior = found.isel(pair=found["prior_alone"].values)
    np.testing.assert_array_equal(prior["partial_correlation"], 0)
    np.testing.assert_allclose(prior["value"], 0)
    assert prior["wide"].all()


@not_identified
def test_kernels_that_share_nothing_do_not_count():
    kernels = np.stack([np.eye(4) + 0.5] * 3)
    stack = stack_kernels(
        kernels, visible=[[1, 1, 1, 1], [1, 1, 1, 0], [0, 1, 1, 1]], objects=list("abcd")
    )
    result = fit(stack, sharing=[0.0, 1.0, 1.0])
    found = result.unseen_pairs()
    assert [found[dim].values.tolist() for dim in ("object", "object_bis")] == [["a"], ["d"]]
    own = found.sel(kernel="Q1").isel(pair=0)
    assert own["kernel_lower"] == own["kernel_value"] == own["kernel_upper"] == 0.5
    never = result.never_seen_together()
    assert never.sel(object="a", object_bis="d")
    assert never.sum() == 2
    assert (result.summary()["apart"] == 1).all()
    # The counts and the pictures have the same pairs.
    assert result.pair_counts().sel(object="a", object_bis="d") == 0
    assert result.plot_pair_counts().get_title().startswith("17 %")
    for ax in result.plot_kernels()[1]:
        (dots,) = ax.lines
        places = list(zip(dots.get_xdata(), dots.get_ydata(), strict=True))
        assert sorted(places) == [(0, 3), (3, 0)]
    assert not result.plot_kernels(mark=False)[1, 0].lines
    assert not plots.plot_kernels(result.observed, result.completed)[1, 0].lines
    with pytest.raises(KernelError, match=r"\('b', 'd'\): kernel 'Q3' shows both objects"):
        result.unseen_pairs([("b", "d")])
    # If none shares anything, the kernels themselves are what is counted.
    assert fit(stack, sharing=0.0).unseen_pairs().sizes["pair"] == 0


@not_identified
def test_named_pairs_are_returned_in_their_order():
    result = fit(three_groups())
    named = result.unseen_pairs([("d", "a"), ["a", "c"], ("c", "a")], most=1)
    assert named["object"].values.tolist() == ["d", "a", "c"]
    assert named["object_bis"].values.tolist() == ["a", "c", "a"]
    assert named.attrs["unseen_pairs"] == 8
    for name in ("value", "lower", "upper", "kernel_lower", "kernel_upper"):
        np.testing.assert_allclose(named[name][1], named[name][2], rtol=1e-12)
    assert result.unseen_pairs([]).sizes["pair"] == 0
    table = named.to_dataframe()
    assert len(table) == 9
    assert table.loc[(1, "Q1"), ["object", "object_bis"]].tolist() == ["a", "c"]


@not_identified
@pytest.mark.parametrize(
    ("pairs", "error", "message"),
    [
        ("ab", KernelError, "pairs: 'ab' found; a list"),
        (3, KernelError, "pairs: 3 found; a list"),
        (["ac"], KernelError, "pairs: 'ac' found; a pair of two objects"),
        ([("a", "b", "c")], KernelError, "a pair of two objects"),
        ([("a", "a")], KernelError, "a pair of two objects"),
        ([("a", "x")], LabelError, "no object 'x'"),
        ([("a", ["x"])], LabelError, r"no object \['x'\]"),
        ([(np.zeros(0), "a")], LabelError, "no object array"),
        ([("a", "b")], KernelError, r"\('a', 'b'\): kernel 'Q1' shows both"),
    ],
)
def test_other_pairs_are_refused(pairs, error, message):
    result = fit(three_groups())
    with pytest.raises(error, match=message):
        result.unseen_pairs(pairs)


@not_identified
def test_other_arguments_are_refused():
    with pytest.raises(KernelError, match="result: Dataset found"):
        unseen_pairs(xr.Dataset())
    with pytest.raises(KernelError, match="most: 0 found"):
        fit(three_groups()).unseen_pairs(most=0)


def test_nothing_is_left_where_every_pair_is_observed():
    found = fit(stack_kernels(np.stack([np.eye(3)] * 2))).unseen_pairs()
    assert found.sizes == {"pair": 0, "kernel": 2}
    assert found.attrs["unseen_pairs"] == 0
    assert found.to_dataframe().empty


def test_a_model_beyond_double_precision_is_an_error():
    with pytest.raises(IndefiniteKernelError, match="model matrix"):
        unseen_pairs(beyond_double_precision())


@not_identified
def test_the_table_can_be_saved(tmp_path):
    result = fit(three_groups())
    found = result.unseen_pairs()
    found.to_netcdf(tmp_path / "pairs.nc", engine="h5netcdf")
    again = xr.load_dataset(tmp_path / "pairs.nc", engine="h5netcdf")
    xr.testing.assert_identical(again, found)
    visible = visible_objects(result.observed)
    assert found.attrs["unseen_pairs"] == int(np.triu(result.never_seen_together(), 1).sum())
    assert visible.sizes["kernel"] == found.sizes["kernel"]
