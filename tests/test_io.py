"""Files in and out, against what other writers (pandas, NumPy, SciPy, h5py, R's text) make."""

import csv
import gzip
import re
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse
import xarray as xr
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from mkmc_prob.errors import KernelError, LabelError, MKMCError
from mkmc_prob.io import read_kernel, read_stack, write_stack
from mkmc_prob.kernels import stack_kernels

LAYOUTS = {
    "empty corner": ",a,b\na,1.5,0.1\nb,0.1,2\n",
    "named corner": "id,a,b\na,1.5,0.1\nb,0.1,2\n",
    "numeric corner, text labels": "0,a,b\na,1.5,0.1\nb,0.1,2\n",
    "tabs": "\ta\tb\na\t1.5\t0.1\nb\t0.1\t2\n",
    "R write.csv": '"","a","b"\n"a",1.5,0.1\n"b",0.1,2\n',
    "R write.table": '"a" "b"\n"a" 1.5 0.1\n"b" 0.1 2\n',
    "R write.table, tabs": "a\tb\na\t1.5\t0.1\nb\t0.1\t2\n",
    "Windows": "\ufeff,a,b\r\na,1.5,0.1\r\nb,0.1,2\r\n",
    "Windows, no corner": "\ufeffa,b\r\na,1.5,0.1\r\nb,0.1,2\r\n",
    "blanks around numbers": ",a,b\na, 1.5, 0.1\nb, 0.1, 2 \n\n",
    "no last line end": ",a,b\na,1.5,1e-1\nb,.1,+2.0",
    "other order": ",b,a\na,0.1,1.5\nb,2,0.1\n",
}


@pytest.mark.parametrize("text", LAYOUTS.values(), ids=LAYOUTS)
def test_layouts_of_one_labelled_matrix(text: str, tmp_path: Path) -> None:
    plain, packed = tmp_path / "k.txt", tmp_path / "k.txt.gz"
    plain.write_text(text, encoding="utf-8", newline="")
    packed.write_bytes(gzip.compress(text.encode()))
    for path in plain, packed:
        kernel = read_kernel(path)
        assert kernel.dims == ("object", "object_bis")
        assert kernel["object"].values.tolist() == ["a", "b"]
        assert kernel["object_bis"].values.tolist() == ["a", "b"]
        assert kernel.values.tolist() == [[1.5, 0.1], [0.1, 2.0]]


UNLABELLED = {
    "R write.csv": '"","V1","V2"\n"1",1.5,0.1\n"2",0.1,2\n',
    "R write.table": '"V1" "V2"\n"1" 1.5 0.1\n"2" 0.1 2\n',
    "blanks": "   1.5   1.0e-1\n   0.1   2.0\n",
    "commas": "1.5,0.1\n0.1,2\n",
    "tabs": "1.5\t0.1\n0.1\t2\n",
    "Windows": "\ufeff1.5,0.1\r\n0.1,2\r\n",
}


@pytest.mark.parametrize("text", UNLABELLED.values(), ids=UNLABELLED)
def test_unlabelled_matrices_count_from_zero(text: str, tmp_path: Path) -> None:
    path = tmp_path / "k.txt"
    path.write_text(text)
    kernel = read_kernel(path)
    assert kernel["object"].values.tolist() == [0, 1]
    assert kernel["object"].dtype == np.int64
    assert kernel.values.tolist() == [[1.5, 0.1], [0.1, 2.0]]


@pytest.mark.parametrize("mark", ["NA", "NaN", "nan", ""])
def test_unlabelled_matrix_whose_first_object_is_missing(mark: str, tmp_path: Path) -> None:
    path = tmp_path / "k.csv"
    path.write_text(f"{mark},{mark},{mark}\n{mark},2,1\n{mark},1,2\n")
    kernel = read_kernel(path)
    assert kernel["object"].values.tolist() == [0, 1, 2]
    assert np.isnan(kernel.values[0]).all()
    assert kernel.values[1:, 1:].tolist() == [[2.0, 1.0], [1.0, 2.0]]


def test_savetxt_is_read_back_exactly(tmp_path: Path) -> None:
    values = np.random.default_rng(3).normal(size=(7, 7))
    for name, delimiter in (("a.txt", " "), ("b.csv.gz", ","), ("c.tsv", "\t")):
        np.savetxt(tmp_path / name, values, delimiter=delimiter)
        assert np.array_equal(read_kernel(tmp_path / name).values, values)


def test_one_object(tmp_path: Path) -> None:
    path = tmp_path / "k.tsv"
    for text, label in (("a\na\t5\n", "a"), ("\ta\na\t5\n", "a"), ("5\n", 0)):
        path.write_text(text)
        kernel = read_kernel(path)
        assert kernel["object"].values.tolist() == [label]
        assert kernel.values.tolist() == [[5.0]]


@pytest.mark.parametrize("corner", ["", "id", None])
def test_labels_stay_text_as_written(corner: str | None, tmp_path: Path) -> None:
    labels = ["NA", "nan", "007", "1", "1e5", "TRUE", " x", "it's", 'say "no"', "a,b", "V1", "é"]
    path = tmp_path / "k.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(labels if corner is None else [corner, *labels])
        writer.writerows([label, *range(len(labels))] for label in labels)
    assert read_kernel(path)["object"].values.tolist() == labels


@pytest.mark.parametrize("sep", [",", "\t", " "])
def test_quoted_labels_may_hold_separators(sep: str, tmp_path: Path) -> None:
    labels = ["a,b", "c\td", "e f"]
    path = tmp_path / "k.txt"
    pd.DataFrame(np.eye(3), labels, labels).to_csv(path, sep=sep, quoting=csv.QUOTE_NONNUMERIC)
    assert read_kernel(path)["object"].values.tolist() == labels


def test_integers_label_where_the_corner_is_not_a_number(tmp_path: Path) -> None:
    path = tmp_path / "k.csv"
    for text in (",10,2\n10,1,0\n2,0,1\n", "10,2\n10,1,0\n2,0,1\n", "NA,10,2\n10,1,0\n2,0,1\n"):
        path.write_text(text)
        assert read_kernel(path)["object"].values.tolist() == ["10", "2"]


def test_what_is_missing_is_nan(tmp_path: Path) -> None:
    path = tmp_path / "k.csv"
    path.write_text(",a,b,c,d,e\n" + "".join(f"{x},1,NA,,NaN, NA \n" for x in "abcde"))
    assert np.isnan(read_kernel(path).values[:, 1:]).all()
    assert (read_kernel(path).values[:, 0] == 1).all()


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n"), min_size=1, max_size=5)
LABELS = st.lists(TEXT.filter(lambda s: s.strip() != ""), min_size=1, max_size=5, unique=True)


@settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(
    labels=LABELS,
    data=st.data(),
    sep=st.sampled_from([",", "\t"]),
    na_rep=st.sampled_from(["", "NA", "NaN"]),
    packed=st.booleans(),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_NONNUMERIC]),
)
def test_what_pandas_writes_is_read_back_exactly(
    tmp_path: Path,
    labels: list[str],
    data: st.DataObject,
    sep: str,
    na_rep: str,
    packed: bool,
    quoting: int,
) -> None:
    # An unquoted tab separates cells, whatever else does.
    assume(sep == "\t" or quoting == csv.QUOTE_NONNUMERIC or "\t" not in "".join(labels))
    size = len(labels)
    entry = st.floats(allow_infinity=True, allow_nan=True)
    values = np.array(data.draw(st.lists(entry, min_size=size**2, max_size=size**2)))
    frame = pd.DataFrame(values.reshape(size, size), labels, labels)
    shuffled = frame[data.draw(st.permutations(labels))]
    path = tmp_path / ("k.txt.gz" if packed else "k.txt")
    shuffled.to_csv(path, sep=sep, na_rep=na_rep, quoting=quoting)
    kernel = read_kernel(path)
    assert kernel["object"].values.tolist() == labels
    assert np.array_equal(kernel.values, frame.to_numpy(), equal_nan=True)


def test_text_files_make_a_stack(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(",x,y\nx,2,1\ny,1,2\n")
    (tmp_path / "b.tsv").write_text("z\ty\nz\t1\t0.3\ny\t0.3\t1\n")
    stack = stack_kernels({p.stem: read_kernel(p) for p in sorted(tmp_path.iterdir())})
    assert stack["object"].values.tolist() == ["x", "y", "z"]
    assert stack.sel(kernel="b", object="z", object_bis="y") == 0.3
    assert np.isnan(stack.sel(kernel="b", object="x")).all()


@pytest.mark.parametrize(
    ("text", "error", "parts"),
    [
        ("id,a,b,a\na,1,0,0\nb,0,1,0\nc,0,0,1\n", LabelError, ["columns", "'a'", "more than once"]),
        ("id,a,b,c\na,1,0,0\nb,0,1,0\nb,0,0,1\n", LabelError, ["rows", "'b'", "more than once"]),
        ("id,a,b\na,1,0\nc,0,1\n", LabelError, ["differ", "'b'", "'c'"]),
        ('"","V1","V2"\n"a",1,0\n"b",0,1\n', LabelError, ["differ", "'a'", "'b'", "'V1'", "'V2'"]),
        ("id,a,\na,1,0\nb,0,1\n", LabelError, ["column without a label"]),
        ("id,a,b\na,1,0\n ,0,1\n", LabelError, ["row without a label"]),
        ("id,a,b\na,1,0\n", KernelError, ["1 rows and 2 columns", "square"]),
        ("a,b\n1,0\n0,1\n", KernelError, ["2 rows and 1 columns", "square"]),
        ("id,a,b\n", KernelError, ["0 rows and 2 columns"]),
        ("1 0\n0 1\n1 1\n", KernelError, ["3 rows and 2 columns"]),
        ("id,a,b\na,1,0\nb,0\n", KernelError, ["line 3 has 2 cells", "3 are expected"]),
        ("1 0 0\n0 1 0\n0 1\n", KernelError, ["line 3 has 2 cells", "first row makes 3"]),
        ("id,a,b\na,1,0\nb,0,l\n", KernelError, ["row 'b', column 'b' (line 3)", "'l'"]),
        ("id,a,b\na,1,1_0\nb,0,1\n", KernelError, ["row 'a', column 'b'", "'1_0'"]),
        ("id\ta\tb\na\t1\t0,5\nb\t0,5\t1\n", KernelError, ["'0,5'", "decimal point"]),
        ("1 0\n0 one\n", KernelError, ["row 1, column 1 (line 2)", "'one'"]),
        ('id,a,b\na,1,"0\nb,0,1\n', KernelError, ["line", "quote"]),
        ('id,"a"x,b\na,1,0\nb,0,1\n', KernelError, ["line 1", "quote"]),
        ("", KernelError, ["empty"]),
        ("\n\n", KernelError, ["empty"]),
        ("nothing\n", KernelError, ["square"]),
    ],
)
def test_text_errors(text: str, error: type[Exception], parts: list[str], tmp_path: Path) -> None:
    path = tmp_path / "bad kernel.txt"
    path.write_text(text)
    with pytest.raises(error) as caught:
        read_kernel(path)
    for part in [str(path), *parts]:
        assert part in str(caught.value)


def test_text_files_that_are_no_text(tmp_path: Path) -> None:
    latin, damaged, other = tmp_path / "a.csv", tmp_path / "b.gz", tmp_path / "c.mat"
    latin.write_bytes(",\xe9\n\xe9,1\n".encode("latin-1"))
    damaged.write_bytes(gzip.compress(b"1 0\n0 1\n")[:-9])
    other.write_bytes(b"")
    for path, part in ((latin, "UTF-8"), (damaged, "damaged"), (other, "read_stack")):
        with pytest.raises(KernelError, match=part) as caught:
            read_kernel(path)
        assert str(path) in str(caught.value)
    with pytest.raises(FileNotFoundError):
        read_kernel(tmp_path / "none.csv")


def write_mat73(path: Path, **arrays: np.ndarray) -> None:
    """Write arrays as MATLAB 7.3 does: HDF5 after 512 bytes of its own, the axes reversed."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, array in arrays.items():
            dataset = file.create_dataset(name, data=array.T)
            dataset.attrs["MATLAB_class"] = np.bytes_("double")
        file.create_group("#refs#")
        file.create_dataset("cell", data=np.array([file["#refs#"].ref], dtype=h5py.ref_dtype))
    with path.open("r+b") as raw:
        raw.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\0\2IM")


def write_npz(path: Path, **arrays: np.ndarray) -> None:
    np.savez(path, **arrays)


def write_mat5(path: Path, **arrays: np.ndarray) -> None:
    extra = {"cell": np.array(["a", 1], dtype=object), "sparse": scipy.sparse.csc_array(np.eye(3))}
    scipy.io.savemat(path, {**arrays, **extra, "struct": {"x": 1.0}})


WRITERS = [
    pytest.param(write_npz, "k.npz", id="npz"),
    pytest.param(write_mat5, "k.mat", id="mat"),
    pytest.param(write_mat73, "k.mat", id="mat 7.3"),
]


def kernels(count: int, size: int) -> np.ndarray:
    factors = np.random.default_rng(count).normal(size=(count, size, size))
    return factors @ factors.transpose(0, 2, 1)


def masked(values: np.ndarray, seen: np.ndarray) -> np.ndarray:
    return np.where(seen[:, :, None] & seen[:, None, :], values, np.nan)


@pytest.mark.parametrize(("write", "name"), WRITERS)
@pytest.mark.parametrize("kernels_first", [True, False])
@pytest.mark.parametrize("mask_first", [True, False])
def test_arrays_either_way_round(write, name, kernels_first, mask_first, tmp_path: Path) -> None:
    values, seen = kernels(2, 4), np.array([[1, 0, 1, 1], [1, 1, 1, 0]], dtype=bool)
    array = values if kernels_first else np.moveaxis(values, 0, 2)
    mask = seen if mask_first else seen.T
    write(tmp_path / name, Q=array, seen=mask.astype(float), z=np.arange(4.0)[:, None])
    expected = masked((values + values.transpose(0, 2, 1)) / 2, seen)
    for options in (
        {},
        {"kernels": "Q", "visible": "seen", "kernel_axis": 2 * (not kernels_first)},
    ):
        stack = read_stack(tmp_path / name, names=["a", "b"], objects=[*"wxyz"], **options)
        assert stack["kernel"].values.tolist() == ["a", "b"]
        assert stack["object_bis"].values.tolist() == ["w", "x", "y", "z"]
        np.testing.assert_array_equal(stack.values, expected)
    whole = read_stack(tmp_path / name, visible=False)
    assert whole["kernel"].values.tolist() == ["Q1", "Q2"]
    assert not np.isnan(whole.values).any()


@pytest.mark.parametrize(("write", "name"), WRITERS)
def test_as_many_kernels_as_objects(write, name, tmp_path: Path) -> None:
    path = tmp_path / name
    values, seen = kernels(3, 3), np.array([[1, 0, 1], [1, 1, 1], [0, 0, 1]], dtype=bool)
    values = (values + values.transpose(0, 2, 1)) / 2
    for axis, array, mask in ((0, values, seen), (2, np.moveaxis(values, 0, 2), seen.T)):
        write(path, Q=array, seen=mask.astype(float))
        for asked in (axis, axis - 3):
            stack = read_stack(path, kernel_axis=asked)
            np.testing.assert_array_equal(stack.values, masked(values, seen))
    with pytest.raises(KernelError, match=r"'Q'.*\(3, 3, 3\).*kernel_axis=0.*kernel_axis=2") as e:
        read_stack(path)
    assert str(path) in str(e.value)
    with pytest.raises(KernelError, match="kernel_axis=1"):
        read_stack(path, kernel_axis=1)


def test_single_precision_keeps_its_rounding(tmp_path: Path) -> None:
    values = np.ones((2, 3, 3), dtype=np.float32)
    np.savez(tmp_path / "k.npz", values)
    scipy.io.savemat(tmp_path / "k.mat", {"K": values})
    for path in tmp_path.iterdir():
        assert read_stack(path)["rounding"].values.tolist() == [2.0**-23] * 2


def test_nan_alone_says_what_is_missing(tmp_path: Path) -> None:
    values = np.ones((2, 3, 3))
    values[1, 0, :] = values[1, :, 0] = np.nan
    np.savez(tmp_path / "k.npz", K=values, weights=np.full((2, 3), 0.5))  # not 0/1: no visibility
    np.testing.assert_array_equal(read_stack(tmp_path / "k.npz").values, values)


@pytest.mark.parametrize(
    ("arrays", "options", "parts"),
    [
        ({"a": np.ones((2, 3, 3)), "b": np.ones((3, 3, 2))}, {}, ["2 arrays", "kernels=", "'b'"]),
        ({"a": np.ones((3, 3))}, {}, ["0 arrays", "'a' (3, 3) float64"]),
        ({"a": np.ones((2, 3, 4))}, {}, ["0 arrays", "'a' (2, 3, 4) float64"]),
        ({}, {}, ["no variables"]),
        ({"a": np.ones((2, 3, 3))}, {"kernels": "K"}, ["no variable 'K'", "'a' (2, 3, 3)"]),
        ({"a": np.ones((2, 3, 4))}, {"kernels": "a"}, ["'a'", "(2, 3, 4)"]),
        ({"a": np.ones((3, 3))}, {"kernels": "a"}, ["'a'", "(3, 3)", "(K, n, n)"]),
        ({"a": np.ones((2, 3, 3))}, {"kernel_axis": 2}, ["kernel_axis=2", "kernel_axis=0"]),
        ({"a": np.ones((2, 3, 3))}, {"visible": "v"}, ["no variable 'v'"]),
        (
            {"a": np.ones((2, 3, 3)), "v1": np.ones((2, 3)), "v2": np.ones((3, 2))},
            {},
            ["2 arrays", "visible=", "'v1'", "'v2'"],
        ),
        (
            {"a": np.ones((2, 3, 3)), "v": np.full((2, 3), 0.5)},
            {"visible": "v"},
            ["'Q1'", "0.5", "0 (missing)"],
        ),
        (
            {"a": np.ones((2, 3, 3)), "v": np.ones(3)},
            {"visible": "v"},
            ["(3,) found", "(2, 3) expected"],
        ),
        ({"a": np.arange(18.0).reshape(2, 3, 3)}, {}, ["'Q1'", "not symmetric"]),
        ({"a": np.ones((2, 3, 3), dtype=complex)}, {}, ["'Q1'", "complex"]),
        ({"a": np.array([["x"]])}, {"kernels": "a"}, ["'a'", "not a full array of numbers"]),
    ],
)
def test_array_errors(arrays, options, parts, tmp_path: Path) -> None:
    path = tmp_path / "bad.npz"
    np.savez(path, **arrays)
    with pytest.raises(KernelError) as caught:
        read_stack(path, **options)
    for part in [str(path), *parts]:
        assert part in str(caught.value)


def test_variables_that_are_no_arrays_are_named(tmp_path: Path) -> None:
    write_mat5(tmp_path / "a.mat", K=np.ones((2, 3, 3)))
    write_mat73(tmp_path / "b.mat", K=np.ones((2, 3, 3)))
    for path in tmp_path.iterdir():
        with pytest.raises(KernelError, match="'cell'") as caught:
            read_stack(path, kernels="cell")
        assert str(path) in str(caught.value)
        assert read_stack(path).sizes["kernel"] == 2
    with pytest.raises(KernelError, match=r"'sparse'.*class sparse"):
        read_stack(tmp_path / "a.mat", visible="sparse")


class Trap:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (self.path.write_text, ("executed",))


def test_pickles_are_not_executed(tmp_path: Path) -> None:
    mark, path = tmp_path / "mark", tmp_path / "trap.npz"
    trap = np.array([Trap(mark)], dtype=object)
    np.savez(path, K=trap)
    np.load(path, allow_pickle=True)["K"]
    assert mark.exists()  # the trap works
    mark.unlink()
    with pytest.raises(KernelError, match=r"'K': not loaded.*allow_pickle=False") as caught:
        read_stack(path, kernels="K")
    assert str(path) in str(caught.value)
    with pytest.raises(KernelError, match=r"0 arrays.*'K'"):
        read_stack(path)
    np.savez(path, K=np.ones((2, 3, 3)), trap=trap)
    assert read_stack(path).sizes["kernel"] == 2
    trap.dump(path)  # a bare pickle that is called .npz
    with pytest.raises(KernelError, match=re.escape(str(path))):
        read_stack(path)
    assert not mark.exists()


@pytest.mark.parametrize("name", ["k.npz", "k.mat", "k.nc"])
def test_damaged_and_missing_files(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    with pytest.raises(FileNotFoundError):
        read_stack(path)
    for content in (b"", b"not an archive at all" * 20, b"\x89HDF\r\n\x1a\n" + b"\0" * 100):
        path.write_bytes(content)
        with pytest.raises(KernelError, match=re.escape(str(path))):
            read_stack(path)


def test_other_suffixes_and_options(tmp_path: Path) -> None:
    with pytest.raises(MKMCError, match=r"k\.csv.*\.npz, \.mat, \.nc.*read_kernel"):
        read_stack(tmp_path / "k.csv")
    with pytest.raises(MKMCError, match=r"k\.pkl.*\.npz, \.mat, \.nc"):
        read_stack(tmp_path / "k.pkl")
    np.savez(tmp_path / "k.npz", K=np.ones((2, 3, 3)))
    with pytest.raises(LabelError, match="objects: 'labels'"):
        read_stack(tmp_path / "k.npz", objects="labels")
    with pytest.raises(LabelError, match=r"k\.npz: names: 1 names for 2"):
        read_stack(tmp_path / "k.npz", names=["a"])


LABELLINGS = {
    "text": (["x", "é", "007", "NA", "a b"], ["expression", "sequence"]),
    "integers": ([3, -1, 2**62, 0, 7], [2, 1]),
    "both": (["x", "y", "z", "u", "v"], [10, 20]),
}


@pytest.mark.parametrize(("objects", "names"), LABELLINGS.values(), ids=LABELLINGS)
def test_netcdf_is_read_back_without_loss(objects, names, tmp_path: Path) -> None:
    values, seen = kernels(2, 5), np.array([[1, 0, 1, 1, 1], [0, 1, 0, 1, 1]], dtype=bool)
    mapping = dict(zip(names, (values[0].astype(np.float32), values[1]), strict=True))
    stack = stack_kernels(mapping, objects=objects, visible=seen)
    stack = stack.assign_attrs(source="a study", version=3, scale_factor=0.5)
    stack = stack.assign_coords(weight=("object", [0.1, 0.2, np.nan, 0.4, 0.5]))
    path = tmp_path / "stack.nc"
    write_stack(stack, str(path))
    back = read_stack(str(path))
    assert back["object"].values.tolist() == objects
    assert back["kernel"].values.tolist() == names
    assert back["object"].dtype == stack["object"].dtype
    np.testing.assert_array_equal(back.values, stack.values)
    assert back["rounding"].values.tolist() == [2.0**-23, 2.0**-52]
    assert back.attrs == stack.attrs
    xr.testing.assert_identical(back, stack)
    with h5py.File(path) as file:  # and what others find in it
        np.testing.assert_array_equal(file["kernels"][()], stack.values)
    write_stack(back, path)
    xr.testing.assert_identical(read_stack(path), stack)
    assert [p.name for p in tmp_path.iterdir()] == ["stack.nc"]


def test_netcdf_ignores_old_encodings_and_the_order_of_dims(tmp_path: Path) -> None:
    stack = stack_kernels(kernels(2, 3), objects=["a", "b", "c"])
    stack = stack.assign_coords(weight=("object", [0.12, 0.34, 0.56]))
    stack["weight"].encoding = {"dtype": "int16", "scale_factor": 0.1}
    expected = stack.copy(deep=True)
    stack.encoding = {"dtype": "int16", "scale_factor": 0.1, "_FillValue": -1}
    write_stack(stack.transpose("object_bis", "object", "kernel"), tmp_path / "k.nc")
    xr.testing.assert_identical(read_stack(tmp_path / "k.nc"), expected)
    assert stack.encoding["dtype"] == "int16"  # the caller's stays as it was


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "k.nc"
    old = stack_kernels(kernels(2, 3))
    write_stack(old, path)

    def interrupted(self, target, **options) -> None:
        Path(target).write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(xr.Dataset, "to_netcdf", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_stack(2 * old, path)
    assert [p.name for p in tmp_path.iterdir()] == ["k.nc"]
    xr.testing.assert_identical(read_stack(path), old)


@pytest.mark.parametrize(
    "attrs",
    [
        {"x": None},
        {"x": {"y": 1}},
        {"x": True},
        {"units": "days since 2000-01-01"},
        {"dtype": "bool"},
    ],
)
def test_attributes_that_netcdf_would_change(attrs: dict[str, object], tmp_path: Path) -> None:
    stack = stack_kernels(kernels(2, 3)).assign_attrs(attrs)
    with pytest.raises(MKMCError, match=r"k\.nc: netCDF cannot hold this stack.*attributes"):
        write_stack(stack, tmp_path / "k.nc")
    assert not list(tmp_path.iterdir())


def test_write_errors(tmp_path: Path) -> None:
    stack = stack_kernels(kernels(2, 3), objects=["a", "b", "c"])
    with pytest.raises(MKMCError, match=r"k\.npz: .*\.nc.*'k\.nc'"):
        write_stack(stack, tmp_path / "k.npz")
    with pytest.raises(FileNotFoundError):
        write_stack(stack, tmp_path / "none" / "k.nc")
    bad = stack.copy(deep=True)
    bad.loc["Q2", "a", "b"] = np.nan
    with pytest.raises(KernelError, match=r"'Q2'.*object '[ab]'"):
        write_stack(bad, tmp_path / "k.nc")
    with pytest.raises(KernelError, match="stack_kernels"):
        write_stack(stack.values, tmp_path / "k.nc")
    assert not list(tmp_path.iterdir())


def test_netcdf_files_that_hold_no_stack(tmp_path: Path) -> None:
    path = tmp_path / "k.nc"
    stack = stack_kernels(kernels(2, 3), objects=["a", "b", "c"])
    write_stack(stack, path)
    for option in ({"kernels": "kernels"}, {"names": ["a", "b"]}, {"visible": False}):
        with pytest.raises(MKMCError, match=r"k\.nc.*options"):
            read_stack(path, **option)
    xr.Dataset({"z": ("x", [1.0])}).to_netcdf(path, engine="h5netcdf")
    with pytest.raises(KernelError, match=r"k\.nc: 0 variables.*'z' \(1,\)"):
        read_stack(path)
    bad = stack.copy(deep=True)
    bad.loc["Q2", "a", "b"] += 1
    bad.to_netcdf(path, engine="h5netcdf")
    with pytest.raises(KernelError, match=r"k\.nc: .*'Q2'.*not symmetric"):
        read_stack(path)
