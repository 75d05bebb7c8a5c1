"""Matrices as text, against what other writers (pandas, NumPy, R's text) make."""

import csv
import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from mkmc_prob import stack_kernels
from mkmc_prob.errors import KernelError, LabelError, MKMCError
from mkmc_prob.io.text import read_kernel

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
    "comments of NumPy's savetxt": "# made in May; a, b\n## by R\n#\n\n,a,b\na,1.5,0.1\nb,0.1,2\n",
    "corner with a hash": "#id,a,b\na,1.5,0.1\nb,0.1,2\n",
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
    "comment": "# two objects\r\n1.5 0.1\r\n0.1 2\r\n",
}


@pytest.mark.parametrize("text", UNLABELLED.values(), ids=UNLABELLED)
def test_unlabelled_matrices_have_no_labels(text: str, tmp_path: Path) -> None:
    path = tmp_path / "k.txt"
    path.write_text(text)
    kernel = read_kernel(path)
    assert kernel.dims == ("object", "object_bis")
    assert not kernel.coords
    assert kernel.values.tolist() == [[1.5, 0.1], [0.1, 2.0]]


@pytest.mark.parametrize("mark", ["NA", "NaN", "nan", ""])
def test_unlabelled_matrix_whose_first_object_is_missing(mark: str, tmp_path: Path) -> None:
    path = tmp_path / "k.csv"
    path.write_text(f"{mark},{mark},{mark}\n{mark},2,1\n{mark},1,2\n")
    kernel = read_kernel(path)
    assert not kernel.coords
    assert np.isnan(kernel.values[0]).all()
    assert kernel.values[1:, 1:].tolist() == [[2.0, 1.0], [1.0, 2.0]]


def test_savetxt_is_read_back_exactly(tmp_path: Path) -> None:
    values = np.random.default_rng(3).normal(size=(7, 7))
    for name, delimiter in (("a.txt", " "), ("b.csv.gz", ","), ("c.tsv", "\t")):
        np.savetxt(tmp_path / name, values, delimiter=delimiter)
        assert np.array_equal(read_kernel(tmp_path / name).values, values)


def test_one_object(tmp_path: Path) -> None:
    path = tmp_path / "k.tsv"
    for text, labels in (("a\na\t5\n", ["a"]), ("\ta\na\t5\n", ["a"]), ("5\n", None)):
        path.write_text(text)
        kernel = read_kernel(path)
        assert kernel.values.tolist() == [[5.0]]
        assert (kernel["object"].values.tolist() if kernel.coords else None) == labels


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


def test_unlabelled_files_are_never_aligned_by_position(tmp_path: Path) -> None:
    for name, size in (("a", 3), ("b", 3), ("c", 2)):
        np.savetxt(tmp_path / f"{name}.txt", np.eye(size))
    a, b, c = (read_kernel(path) for path in sorted(tmp_path.iterdir()))
    stack = stack_kernels({"a": a, "b": b}, objects=["x", "y", "z"], visible=[[1, 1, 1], [1, 0, 1]])
    assert stack["object"].values.tolist() == ["x", "y", "z"]
    assert np.isnan(stack.sel(kernel="b", object="y")).all()
    with pytest.raises(KernelError, match="kernel 'c': 2 objects, but kernel 'a' has 3"):
        stack_kernels({"a": a, "c": c})
    labelled = xr.DataArray(np.eye(2), {"object": ["x", "y"], "object_bis": ["x", "y"]})
    with pytest.raises(LabelError, match=r"is labeled and .* is a plain array"):
        stack_kernels({"a": a, "d": labelled.transpose("object", "object_bis")})


def test_one_numpy_array(tmp_path: Path) -> None:
    path = tmp_path / "k.npy"
    np.save(path, np.array([[2, 1], [1, 2]], dtype=np.float32))
    kernel = read_kernel(path)
    assert kernel.dims == ("object", "object_bis")
    assert not kernel.coords
    assert kernel.values.tolist() == [[2.0, 1.0], [1.0, 2.0]]
    assert stack_kernels({"a": kernel})["rounding"].item() == 2.0**-23
    for wrong in (np.ones((2, 3)), np.ones((2, 3, 3))):
        np.save(path, wrong)
        with pytest.raises(KernelError, match=r"k\.npy: shape \(2, 3.*read_stack"):
            read_kernel(path)
    np.save(path, np.array([[None]], dtype=object))
    with pytest.raises(KernelError, match=r"k\.npy: not readable.*allow_pickle=False"):
        read_kernel(path)
    with pytest.raises(FileNotFoundError):
        read_kernel(tmp_path / "none.npy")


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
        (
            "a,b\n1,0\n0,1\n",
            KernelError,
            ["2 rows and 1 columns", "row labels seem", "index=False"],
        ),
        ("0,1\n1,0\n0,1\n", KernelError, ["3 rows and 2 columns", "row labels seem"]),
        ('"";"a";"b"\n"a";1,5;0,1\n"b";0,1;2\n', KernelError, ["semicolons", "decimal point"]),
        (";a;b\na;1.5;0.1\nb;0.1;2\n", KernelError, ["semicolons", "tabs or commas"]),
        ("1,5;0,1\n0,1;2,0\n", KernelError, ["semicolons"]),
        ("1;0\n0;1\n", KernelError, ["semicolons"]),
        ("# of us\n;a\na;5,0\n", KernelError, ["semicolons"]),
        ("id,p;q,b\np;q,1,0\nb,0,l\n", KernelError, ["row 'b', column 'b'", "'l'"]),
        ("#made by R\na,b\na,1,0\nb,0,1\n", KernelError, ["begins with #", "'# '"]),
        ("# nothing\n", KernelError, ["empty"]),
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


EDGES = [("p1", "p2", 0.7), ("p1", "p3", 1.0), ("p2", "p3", 2.5), ("p4", "p1", 1.0)]
EDGES.append(("p5", "p6", 3.0))  # five lines: four columns of numbers are then no square
NUMBERED = [(int(a[1:]), int(b[1:]), weight) for a, b, weight in EDGES]


@pytest.mark.parametrize("edges", [EDGES, EDGES[:2], NUMBERED], ids=["text", "two", "integers"])
@pytest.mark.parametrize("columns", [["one", "other", "weight"], ["one", "other"]])
@pytest.mark.parametrize("sep", [",", "\t", " "])
@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("index", [True, False])
def test_a_list_of_edges_is_told_so(edges, columns, sep, header, index, tmp_path: Path) -> None:
    table = pd.DataFrame([edge[: len(columns)] for edge in edges], columns=columns)
    path = tmp_path / "edges.txt"
    table.to_csv(path, sep=sep, header=header, index=index)
    with pytest.raises(KernelError, match=r"looks like a list of edges.*pandas.*Laplacian") as said:
        read_kernel(path)
    assert str(path) in str(said.value)


NO_EDGES = {
    "a matrix, letters for digits": "id,a,b\na,O,l\nb,l,l\n",
    "a matrix, a column of letters": "id,a,b\na,O.5,1\nb,l,2\n",
    "a matrix, one letter": "id,x,y\nx,1,0.5\ny,O.5,1\n",
    "two features": "id,f,g\np1,5,2\np2,6,1\np3,1,1\n",
    "counts, an ID before each": "id,f,g\n11,5,2\n12,6,1\n13,1,1\n",
    "counts": "5 3 1\n5 1 0\n4 4 1\n1 2 3\n",
    "zeros and ones": "a,b\n1,0\n0,1\n1,1\n1,0\n",
    "longer lines": "a,b,c,d\nx,y,1,2\nx,z,1,2\n",
    "one cell a line": "nothing\nis\nhere\n",
}


@pytest.mark.parametrize("text", NO_EDGES.values(), ids=NO_EDGES)
def test_what_is_no_list_of_edges_is_not_called_one(text: str, tmp_path: Path) -> None:
    path = tmp_path / "k.csv"
    path.write_text(text)
    with pytest.raises(MKMCError) as caught:
        read_kernel(path)
    assert "list of edges" not in str(caught.value)


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


def test_semicolons_in_labels_separate_nothing(tmp_path: Path) -> None:
    path = tmp_path / "k.txt"
    for text in ("id,p;q,b\np;q,1,0\nb,0,1\n", "p;q b\np;q 1 0\nb 0 1\n"):
        path.write_text(text)
        assert read_kernel(path)["object"].values.tolist() == ["p;q", "b"]


def test_what_is_no_path_is_said_to_be_none():
    with pytest.raises(MKMCError, match="path: 3 found"):
        read_kernel(3)
