"""The bundled digits against values typed in, closed forms and brute force."""

import math
from importlib.resources import files
from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from mkmc_prob.datasets import load_multiple_features, multiple_features
from mkmc_prob.errors import LabelError, MKMCError

SIZES = {"fac": 216, "fou": 76, "kar": 64, "mor": 6, "pix": 240, "zer": 47}
FOLDER = files("mkmc_prob.datasets") / "mfeat"


def standardised(source):
    x = multiple_features(source)
    return (x - x.mean()) / x.std(ddof=0)


def test_files_are_small_and_licensed():
    found = {path.name: len(path.read_bytes()) for path in FOLDER.iterdir()}
    assert set(found) == {f"mfeat-{source}.csv.gz" for source in SIZES} | {"LICENSE.md"}
    assert sum(found.values()) <= 2_000_000
    # gzip -n: no file name and no time in the header, so that the bytes are reproducible.
    for source in SIZES:
        header = (FOLDER / f"mfeat-{source}.csv.gz").read_bytes()[:8]
        assert header[3] == 0
        assert header[4:] == bytes(4)
    licence = (FOLDER / "LICENSE.md").read_text(encoding="utf-8")
    for part in ("Duin", "UCI Machine Learning Repository", "CC BY 4.0", "10.24432/C5HC70"):
        assert part in licence


@pytest.mark.parametrize("source", SIZES)
def test_raw_features(source):
    table = multiple_features(source)
    assert table.shape == (2000, SIZES[source])
    assert np.isfinite(table.to_numpy()).all()
    assert (table.dtypes == np.float64).all()
    assert table.index[0] == "d0_000"
    assert table.index[617] == "d3_017"
    assert table.index[-1] == "d9_199"
    assert (table.std(ddof=0) > 0).all()  # what standardising relies on


def test_raw_values():
    assert multiple_features("fac").loc["d0_000"].tolist()[:5] == [98, 236, 531, 673, 607]
    assert multiple_features("mor").loc["d0_000"].tolist() == [1, 0, 0, 133.15, 1.3117, 1620.2]
    pixels = multiple_features("pix")
    assert np.isin(pixels.to_numpy(), range(7)).all()
    # A 0 is empty in its middle and a 1 is not: the rows belong to the classes that they name.
    # (15 rows of 16 pixel averages, cut to 240 = 16 rows of 15.)
    middle = pixels.to_numpy().reshape(2000, 16, 15)[:, 7:9, 6:9].mean(axis=(1, 2))
    assert middle[:200].mean() < 1 < 4 < middle[200:400].mean()


def test_rows_are_the_classes_of_the_files():
    # The class is the files' last column, which multiple_features replaces by the labels.
    for source in SIZES:
        with (FOLDER / f"mfeat-{source}.csv.gz").open("rb") as file:
            table = pd.read_csv(file, compression="gzip")
        assert table.iloc[:, -1].tolist() == [
            int(name[1]) for name in multiple_features("mor").index
        ]


def test_stack_is_labelled():
    kernels, classes = load_multiple_features(3)
    assert kernels.dims == ("kernel", "object", "object_bis")
    assert kernels["kernel"].values.tolist() == list(SIZES)
    expected = [f"d{c}_{i:03d}" for c in range(10) for i in range(3)]
    assert kernels["object"].values.tolist() == expected
    assert kernels["object_bis"].values.tolist() == expected
    assert classes.dims == ("object",)
    assert classes["object"].values.tolist() == expected
    assert classes.dtype.kind == "i"
    assert classes.values.tolist() == np.repeat(range(10), 3).tolist()
    assert not np.isnan(kernels.values).any()


def test_rbf_against_brute_force():
    kernels, _ = load_multiple_features(2, sources=["zer"])
    x = standardised("zer").loc[kernels["object"].values].to_numpy()
    distances = [math.dist(x[i], x[j]) for i in range(20) for j in range(i)]
    s = sorted(distances)[94:96]  # 190 pairs: the median is between the two in the middle
    s = sum(s) / 2
    for i in range(20):
        for j in range(20):
            expected = math.exp(-(math.dist(x[i], x[j]) ** 2) / (2 * s**2))
            assert kernels.values[0, i, j] == pytest.approx(expected, rel=1e-12)


def test_rbf_properties():
    kernels, _ = load_multiple_features(20, seed=3)
    assert (np.diagonal(kernels.values, axis1=1, axis2=2) == 1).all()
    assert (kernels.values == kernels.values.transpose(0, 2, 1)).all()
    assert (kernels.values > 0).all()
    assert np.linalg.eigvalsh(kernels.values).min() > -1e-12
    # At the median distance the kernel is exp(-1/2), so half of the entries are above that.
    pairs = kernels.values[:, *np.triu_indices(200, 1)]
    np.testing.assert_allclose(np.median(pairs, axis=1), math.exp(-0.5), rtol=1e-4)


def test_linear_against_brute_force():
    kernels, _ = load_multiple_features(2, kernel="linear", sources=["fou"])
    x = standardised("fou").loc[kernels["object"].values].to_numpy()
    for i in range(20):
        for j in range(20):
            expected = math.fsum(x[i] * x[j]) / 76
            assert kernels.values[0, i, j] == pytest.approx(expected, rel=1e-12, abs=1e-14)


def test_linear_properties():
    kernels, _ = load_multiple_features(200, kernel="linear", sources=["mor"])
    matrix = kernels.values[0]
    assert (matrix == matrix.T).all()
    # Standardised over all 2,000: the diagonal sums to 2,000, every row to zero.
    assert np.trace(matrix) == pytest.approx(2000, rel=1e-12)
    np.testing.assert_allclose(matrix.sum(axis=0), 0, atol=1e-8)
    assert np.linalg.matrix_rank(matrix[::20, ::20]) == 6


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_one_digit_a_class_makes_no_warning(kernel):
    for seed in (None, 0, 1):
        kernels, _ = load_multiple_features(1, kernel=kernel, seed=seed)
        assert kernels.shape == (6, 10, 10)


def test_sources_keep_their_order():
    kernels, _ = load_multiple_features(1, sources=["zer", "fac"])
    assert kernels["kernel"].values.tolist() == ["zer", "fac"]
    alone, _ = load_multiple_features(1, sources="fac")
    assert (alone.sel(kernel="fac").values == kernels.sel(kernel="fac").values).all()


def test_seed_draws_the_same_digits_for_every_source():
    kernels, classes = load_multiple_features(5, kernel="linear", sources=["mor", "zer"], seed=11)
    again, _ = load_multiple_features(5, kernel="linear", sources=["mor", "zer"], seed=11)
    assert kernels.identical(again)
    other, _ = load_multiple_features(5, sources=["mor"], seed=12)
    chosen = kernels["object"].values.tolist()
    assert chosen != other["object"].values.tolist()
    assert chosen != load_multiple_features(5, sources=["mor"]).classes["object"].values.tolist()
    assert [int(name[1]) for name in chosen] == np.repeat(range(10), 5).tolist()
    assert classes.values.tolist() == np.repeat(range(10), 5).tolist()
    assert len(set(chosen)) == 50
    for source in ("mor", "zer"):
        x = standardised(source).loc[chosen].to_numpy()
        expected = x @ x.T / x.shape[1]
        np.testing.assert_allclose(kernels.sel(kernel=source).values, expected, atol=1e-12)


def test_all_digits_do_not_depend_on_the_seed():
    drawn = load_multiple_features(200, kernel="linear", sources=["mor"], seed=5).classes
    expected = [f"d{c}_{i:03d}" for c in range(10) for i in range(200)]
    assert drawn["object"].values.tolist() == expected


def test_generator_is_advanced():
    rng = np.random.default_rng(0)
    first = load_multiple_features(5, sources=["mor"], seed=rng).classes["object"].values
    second = load_multiple_features(5, sources=["mor"], seed=rng).classes["object"].values
    assert first.tolist() != second.tolist()


@pytest.mark.parametrize("number", [0, -1, 201, 2.0, True, "5", None])
def test_n_per_class_is_checked(number):
    with pytest.raises(MKMCError, match=r"n_per_class: .*from 1 to 200"):
        load_multiple_features(number)


def test_kernel_is_checked():
    with pytest.raises(MKMCError, match="kernel: 'poly' found; 'rbf' or 'linear'"):
        load_multiple_features(1, kernel="poly")


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        (["fac", "foo"], "'foo' is unknown. Choose from fac, fou"),
        (["fac", "fac"], "'fac' occurs more than once"),
        ([], "the list is empty. Choose from fac, fou"),
        ([3], "3 is unknown"),
    ],
)
def test_sources_are_checked(sources, message):
    with pytest.raises(LabelError, match=message):
        load_multiple_features(1, sources=sources)


def test_source_of_raw_features_is_checked():
    with pytest.raises(LabelError, match="'foo' is unknown"):
        multiple_features("foo")


def test_digits_that_agree():
    # What the docstring says: six digits twice in every source; else a 6 and a 9, in mor and zer.
    twins = {}
    for source in SIZES:
        same = {}
        for name, row in multiple_features(source).iterrows():
            same.setdefault(tuple(row), []).append(name)
        twins[source] = {pair for names in same.values() for pair in combinations(names, 2)}
    everywhere = set.intersection(*twins.values())
    assert len(everywhere) == 6
    for source, pairs in twins.items():
        assert (pairs > everywhere) == (source in ("mor", "zer"))
        assert {(a[1], b[1]) for a, b in pairs - everywhere} <= {("6", "9")}
