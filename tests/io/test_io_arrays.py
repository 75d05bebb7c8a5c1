"""Arrays that others saved: NumPy, SciPy (MATLAB to 7.2) and h5py (MATLAB 7.3)."""

import re
from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.io
import scipy.sparse

from mkmc_prob import stack_kernels
from mkmc_prob.errors import KernelError, LabelError, MKMCError
from mkmc_prob.io.stacks import read_stack


def chars(rows: list[str]) -> np.ndarray:
    """Return texts of one length as MATLAB's char matrix: UTF-16 code units."""
    return np.stack([np.frombuffer(row.encode("utf-16-le"), np.uint16) for row in rows])


def write_mat73(path: Path, **arrays: np.ndarray) -> None:
    """Write arrays as MATLAB 7.3 does: HDF5 after 512 bytes of its own, the axes reversed.

    Text becomes a char matrix, objects a cell array of what they are.
    """

    def write(where: h5py.Group, name: str, array: np.ndarray) -> h5py.Dataset:
        if array.dtype == object:
            references = np.empty(array.shape, dtype=h5py.ref_dtype)
            for i, cell in enumerate(array.ravel()):
                inner = write(where.require_group("#refs#"), f"{name}{i}", np.atleast_1d(cell))
                references.ravel()[i] = inner.ref
            array, kind = references, "cell"
        elif array.dtype.kind == "U":
            width = max(map(len, array.tolist()))
            array, kind = chars([row.ljust(width) for row in array.tolist()]), "char"
        else:
            kind = "double"
        empty = kind == "char" and not array.size
        dataset = where.create_dataset(name, data=np.zeros(2, np.uint64) if empty else array.T)
        dataset.attrs["MATLAB_class"] = np.bytes_(kind)
        if empty:
            dataset.attrs["MATLAB_empty"] = 1
        return dataset

    with h5py.File(path, "w", userblock_size=512) as file:
        for name, array in arrays.items():
            write(file, name, array)
        file.require_group("#refs#")
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
        ({"a": np.ones((3, 4))}, {}, ["0 arrays", "'a' (3, 4) float64"]),
        ({"a": np.ones((2, 3, 4)), "b": np.eye(3)}, {}, ["0 arrays", "'b' (3, 3) float64"]),
        ({"n": np.ones((1, 1))}, {}, ["0 arrays", "'n' (1, 1) float64"]),
        ({"a": np.ones((2, 3, 4))}, {}, ["0 arrays", "'a' (2, 3, 4) float64"]),
        ({}, {}, ["no variables"]),
        ({"a": np.ones((2, 3, 3))}, {"kernels": "K"}, ["no variable 'K'", "'a' (2, 3, 3)"]),
        ({"a": np.ones((2, 3, 4))}, {"kernels": "a"}, ["'a'", "(2, 3, 4)"]),
        ({"a": np.ones((3, 4))}, {"kernels": "a"}, ["'a'", "(3, 4)", "(K, n, n)"]),
        ({"a": np.ones((2, 3, 3))}, {"kernels": []}, ["kernels=[]"]),
        (
            {"a": np.ones((2, 3, 3)), "b": np.eye(3)},
            {"kernels": ["b", "a"]},
            ["'a'", "(2, 3, 3)", "(n, n)"],
        ),
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
            ["'Q1'", "0.5", "0 (hidden)"],
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


@pytest.mark.parametrize("name", ["k.npy", "k.npz", "k.mat", "k.nc"])
def test_damaged_and_missing_files(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    with pytest.raises(FileNotFoundError):
        read_stack(path)
    for content in (b"", b"not an archive at all" * 20, b"\x89HDF\r\n\x1a\n" + b"\0" * 100):
        path.write_bytes(content)
        with pytest.raises(KernelError, match=re.escape(str(path))):
            read_stack(path)


def test_other_suffixes_and_options(tmp_path: Path) -> None:
    with pytest.raises(MKMCError, match=r"k\.csv.*\.npy, \.npz, \.mat, \.nc.*read_kernel"):
        read_stack(tmp_path / "k.csv")
    with pytest.raises(MKMCError, match=r"k\.pkl.*\.npy, \.npz, \.mat, \.nc"):
        read_stack(tmp_path / "k.pkl")
    np.savez(tmp_path / "k.npz", K=np.ones((2, 3, 3)))
    with pytest.raises(LabelError, match=r"k\.npz: names: 1 names for 2"):
        read_stack(tmp_path / "k.npz", names=["a"])


def cells(labels: list[str], shape: tuple[int, ...]) -> np.ndarray:
    return np.array(labels, dtype=object).reshape(shape)


IDS, SOURCES = ["p1", "é b", "x "], ["fac", "Q"]


@pytest.mark.parametrize(("write", "name"), WRITERS)
@pytest.mark.parametrize("shape", [(-1,), (-1, 1), (1, -1)], ids=str)
def test_labels_stand_beside_the_kernels(write, name, shape, tmp_path: Path) -> None:
    path = tmp_path / name
    ids, sources = (cells(labels, shape) for labels in (IDS, SOURCES))
    if write is write_npz:
        ids, sources = ids.astype(str), sources.astype(str)
    write(path, K=kernels(2, 3), ids=ids, sources=sources)
    stack = read_stack(path, objects="ids", names="sources")
    assert stack["object"].values.tolist() == IDS
    assert stack["object_bis"].values.tolist() == IDS
    assert stack["kernel"].values.tolist() == SOURCES
    write(path, K=kernels(2, 3), ids=np.array([[10.0, 7.0, -2.0]]), n=np.array([1, 2]))
    stack = read_stack(path, objects="ids", names="n")  # MATLAB's numbers are doubles
    assert stack["object"].values.tolist() == [10, 7, -2]
    assert stack["object"].dtype == np.int64
    assert stack["kernel"].values.tolist() == [1, 2]
    assert read_stack(path, objects=iter("xyz"))["object"].values.tolist() == ["x", "y", "z"]


@pytest.mark.parametrize("write", [write_mat5, write_mat73])
def test_rows_of_a_char_matrix_are_labels(write, tmp_path: Path) -> None:
    path = tmp_path / "k.mat"
    write(path, K=kernels(2, 3), ids=np.array(["a", " bc", "d e"]), sources=np.array(["fac", "Q"]))
    stack = read_stack(path, objects="ids", names="sources")
    assert stack["object"].values.tolist() == ["a", " bc", "d e"]
    assert stack["kernel"].values.tolist() == ["fac", "Q"]
    write(path, K=kernels(2, 3), ids=cells(["a", "", "b"], (3, 1)))
    assert read_stack(path, objects="ids")["object"].values.tolist() == ["a", "", "b"]


def test_bytes_are_utf8(tmp_path: Path) -> None:
    path = tmp_path / "k.npz"
    np.savez(
        path, K=kernels(2, 3), ids=np.array([i.encode() for i in IDS]), bad=np.array([b"\xe9"])
    )
    assert read_stack(path, objects="ids")["object"].values.tolist() == IDS
    with pytest.raises(LabelError, match=r"k\.npz: objects='bad': not loaded: .*utf-8"):
        read_stack(path, objects="bad")


@pytest.mark.parametrize(
    ("labels", "parts"),
    [
        (np.array(["a", "b", "c"], dtype=object), ["np.array(ids, dtype=str)", "allow_pickle"]),
        (np.array("abc"), ["shape ()"]),
        (np.array([["a", "b"], ["c", "d"]]), ["shape (2, 2)"]),
        (np.array([0.5, 1, 2]), ["0.5", "float", "objects"]),
        (np.array([2.0**53, 1, 2]), ["float"]),
        (np.array([1, np.nan, 2]), ["float"]),
        (np.array([True, False, True]), ["bool"]),
        (np.array(["a", "b"]), ["2 labels for 3 objects"]),
        (np.array(["a", "b", "a"]), ["'a'", "more than once"]),
    ],
)
def test_label_errors(labels: np.ndarray, parts: list[str], tmp_path: Path) -> None:
    path = tmp_path / "k.npz"
    np.savez(path, K=np.ones((2, 3, 3)), ids=labels)
    with pytest.raises(LabelError) as caught:
        read_stack(path, objects="ids")
    for part in [str(path), *parts]:
        assert part in str(caught.value)
    with pytest.raises(LabelError, match=r"names='nams': there is no such variable.*list.*'ids'"):
        read_stack(path, names="nams")


@pytest.mark.parametrize("write", [write_mat5, write_mat73])
def test_cells_that_hold_something_else(write, tmp_path: Path) -> None:
    path = tmp_path / "k.mat"
    for odd in (np.array(1.5), np.array(["ab", "cd"])):
        ids = cells(["a", "b", ""], (3, 1))
        ids[2, 0] = odd
        write(path, K=np.ones((2, 3, 3)), ids=ids)
        with pytest.raises(LabelError, match=r"k\.mat: objects='ids': .*something other than text"):
            read_stack(path, objects="ids")


@pytest.mark.parametrize(("write", "name"), WRITERS)
def test_one_matrix_for_each_kernel(write, name, tmp_path: Path) -> None:
    path = tmp_path / name
    values = kernels(3, 4)
    values = (values + values.transpose(0, 2, 1)) / 2
    values[1, 2, :] = values[1, :, 2] = np.nan
    matrices = dict(zip("bac", values, strict=True))
    more = {"n": np.array([[3.0]]), "y": np.arange(4.0)[:, None], "X": np.full((4, 2), 2.0)}
    write(path, **matrices, **more, ids=np.array([*"wxyz"]))
    stack = read_stack(path, objects=[*"wxyz"])
    order = [*"abc"] if write is write_mat73 else [*"bac"]
    assert stack["kernel"].values.tolist() == order
    for kernel, matrix in matrices.items():
        np.testing.assert_array_equal(stack.sel(kernel=kernel).values, matrix)
    stack = read_stack(path, kernels=["c", "b"])
    np.testing.assert_array_equal(stack.values, values[[2, 0]])
    assert read_stack(path, kernels="c")["kernel"].values.tolist() == ["c"]
    with pytest.raises(LabelError, match="named already"):
        read_stack(path, names=["x", "y", "z"])
    with pytest.raises(KernelError, match="kernel_axis=0: the kernels are one matrix each"):
        read_stack(path, kernel_axis=0)


def test_visibility_of_separate_matrices_is_asked_for(tmp_path: Path) -> None:
    seen = np.array([[1, 0, 1], [1, 1, 0]], dtype=bool)
    values = np.ones((2, 3, 3))
    for write, name in ((write_npz, "k.npz"), (write_mat5, "k.mat"), (write_mat73, "k73.mat")):
        path = tmp_path / name
        for mask in (seen, seen.T):
            write(path, b=values[0], a=values[1], seen=mask.astype(float))
            with pytest.raises(KernelError, match=r"'seen'.*visible=\.\.\..*visible=False"):
                read_stack(path)
            assert not read_stack(path, visible=False).isnull().any()
            stack = read_stack(path, visible="seen", kernels=["b", "a"])
            np.testing.assert_array_equal(stack.values, masked(values, seen))
            if write is write_mat73:
                with pytest.raises(KernelError, match=r"order.*kernels=\['a', 'b'\]"):
                    read_stack(path, visible="seen")
            else:
                assert read_stack(path, visible="seen").identical(stack)
    square = np.array([[1, 0, 1], [1, 1, 0], [0, 1, 1]])  # as many kernels as objects
    np.savez(tmp_path / "k.npz", b=values[0], a=values[1], c=values[0], seen=square)
    stack = read_stack(tmp_path / "k.npz", visible="seen")
    assert stack["kernel"].values.tolist() == ["b", "a", "c"]
    np.testing.assert_array_equal(stack.values, masked(np.ones((3, 3, 3)), square.astype(bool)))


def test_matrices_of_different_sizes_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "k.npz"
    np.savez(path, a=np.eye(3), b=np.eye(4), c=np.ones((3, 3)))
    with pytest.raises(KernelError, match=r"'a' \(3, 3\).*'b' \(4, 4\).*kernels=\['a', .*stack_k"):
        read_stack(path)
    with pytest.raises(KernelError, match=r"k\.npz: kernel 'b': 4 objects, but kernel 'a' has 3"):
        read_stack(path, kernels=["a", "b"])
    assert read_stack(path, kernels=["a", "c"]).sizes["kernel"] == 2


def test_one_numpy_array(tmp_path: Path) -> None:
    path = tmp_path / "expression.npy"
    values = kernels(2, 3)
    np.save(path, values)
    expected = stack_kernels(values, names=["a", "b"])
    assert read_stack(path, names=["a", "b"]).identical(expected)
    np.save(path, np.eye(2))
    assert read_stack(path).identical(stack_kernels({"expression": np.eye(2)}))
    np.save(path, np.array([[None]], dtype=object))
    with pytest.raises(KernelError, match=r"expression\.npy: not readable.*allow_pickle=False"):
        read_stack(path)


def test_matlab_text_is_no_matrix_of_numbers(tmp_path: Path) -> None:
    write_mat73(tmp_path / "k.mat", K=np.ones((2, 3, 3)), ids=np.array(["abc", "def", "ghi"]))
    with pytest.raises(KernelError, match="'ids': not a full array of numbers"):
        read_stack(tmp_path / "k.mat", kernels="ids")
    with h5py.File(tmp_path / "k.mat", "r+") as file:
        file["ids"].attrs["MATLAB_class"] = np.bytes_("string")
    with pytest.raises(LabelError, match=r"'ids': of MATLAB's class string.*cellstr"):
        read_stack(tmp_path / "k.mat", objects="ids")
