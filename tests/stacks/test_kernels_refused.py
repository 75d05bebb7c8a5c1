"""What `stack_kernels` and `check_stack` refuse: the error, the kernel, the object, the remedy."""

import contextlib
import enum
import re
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from mkmc_prob import IndefiniteKernelError, KernelError, LabelError, MKMCWarning, stack_kernels
from mkmc_prob.stacks.definite import check_definite
from mkmc_prob.stacks.labels import as_labels
from mkmc_prob.stacks.stack import check_stack

GOOD = np.array([[2.0, 1.0, 0.5], [1.0, 3.0, 0.0], [0.5, 0.0, 4.0]])
XYZ = ["x", "y", "z"]


def frame(values, labels, columns=None):
    return pd.DataFrame(values, index=labels, columns=labels if columns is None else columns)


def spoilt(value, *places):
    """Return `GOOD` with `value` at `places`."""
    matrix = GOOD.copy()
    for i, j in places:
        matrix[i, j] = value
    return matrix


@contextlib.contextmanager
def refused(error, *texts):
    """Expect exactly `error`, with every one of `texts` in its message, in this order."""
    with pytest.raises(error, match="(?s)" + ".*".join(map(re.escape, texts))) as raised:
        yield
    assert raised.type is error


# -- entries ------------------------------------------------------------------------------------

NAN, INF = np.nan, np.inf
BAD_ENTRIES = {
    "asymmetric": (spoilt(0.7, (0, 2)), ["symmetric", "'x'", "'z'", "0.7", "0.5", "(Q + Q.T) / 2"]),
    "asymmetric beyond 1e-8": (spoilt(1 + 1e-7, (0, 1)), ["symmetric", "'x'", "'y'"]),
    "inf": (spoilt(INF, (1, 2), (2, 1)), ["'y'", "'z'", "inf", "hide the object"]),
    "-inf": (spoilt(-INF, (0, 0)), ["'x'", "'x'", "-inf"]),
    "one nan": (spoilt(NAN, (1, 1)), ["'y'", "NaN in 1", "whole row and column"]),
    "a pair nan": (spoilt(NAN, (0, 1), (1, 0)), ["'x'", "NaN in 1", "out of 3"]),
    "row nan, not column": (
        spoilt(NAN, (1, 0), (1, 1), (1, 2)),
        ["'y'", "3 entries", "not in all"],
    ),
    "negative diagonal": (spoilt(-0.5, (2, 2)), ["diagonal", "'z'", "-0.5", "add a constant"]),
    "huge": (spoilt(1e200, (0, 1), (1, 0)), ["'x'", "'y'", "1e+200", "Rescale"]),
    "tiny": (GOOD * 1e-200, ["largest entry is 4e-200", "vanish", "Rescale"]),
    "too long a double": (
        np.array([["1", "0", "0"], ["0", "1e400", "0"], ["0", "0", "1"]]).astype(np.longdouble),
        ["'y'", "inf"],
    ),
    "complex": (GOOD + 0j, ["complex128", "real numbers", ".real"]),
    "text": (GOOD.astype(str), ["real numbers", "astype(float)"]),
    "object": (GOOD.astype(object), ["dtype object", "astype(float)"]),
    "dates": (GOOD.astype("M8[s]"), ["datetime64", "real numbers"]),
}


@pytest.mark.parametrize("case", BAD_ENTRIES)
def test_bad_entries_are_refused_by_name(case):
    matrix, texts = BAD_ENTRIES[case]
    with refused(KernelError, "kernel 'bad'", *texts):
        stack_kernels({"good": frame(GOOD, XYZ), "bad": frame(matrix, XYZ)})
    with refused(KernelError, "kernel 'bad'", *texts):
        stack_kernels({"good": GOOD, "bad": matrix}, objects=XYZ)
    good = stack_kernels([GOOD, GOOD], names=["bad", "good"], objects=XYZ)
    stack = good.astype(matrix.dtype)  # a dtype belongs to the stack: the first kernel is named
    stack[0] = matrix
    with refused(KernelError, "kernel 'bad'", *texts):
        check_stack(stack)


def test_no_object_in_front_of_the_fault_is_named():
    """The labels of the message are those of the visible block, not of the whole matrix."""
    matrix = np.full((4, 4), np.nan)
    matrix[1:, 1:] = spoilt(-0.5, (2, 2))
    with refused(KernelError, "kernel 'bad'", "'z'", "-0.5"):
        stack_kernels({"bad": matrix}, objects=["hidden", *XYZ])


def test_an_indefinite_block_is_refused_with_its_eigenvalue():
    stack = stack_kernels({"bad": frame([[1.0, 3.0], [3.0, 1.0]], ["x", "y"])}, objects=XYZ)
    with refused(IndefiniteKernelError, "kernel 'bad'", "-2", "4", "repair_spectrum"):
        check_definite(stack)


# -- shapes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernels", "texts"),
    [
        ({"a": GOOD, "bad": GOOD[:2]}, ["kernel 'bad'", "(2, 3)", "not square"]),
        ({"a": GOOD, "bad": GOOD[0]}, ["kernel 'bad'", "(3,)", "not square"]),
        ({"a": GOOD, "bad": None}, ["kernel 'bad'", "()", "not square"]),
        ({"a": GOOD, "bad": [[1, 2], [3]]}, ["kernel 'bad'", "different lengths"]),
        (
            {"a": GOOD, "bad": GOOD[:2, :2]},
            ["kernel 'bad'", "2 objects", "kernel 'a'", "3", "label"],
        ),
        ([GOOD, GOOD[:2, :2]], ["kernel 'Q2'", "2 objects", "kernel 'Q1'", "label"]),
        ({"bad": frame(GOOD[:2], ["x", "y"], XYZ)}, ["kernel 'bad'", "(2, 3)", "not square"]),
        (np.ones((2, 3, 4)), ["kernel 'Q1'", "(3, 4)", "not square"]),
        (GOOD, ["kernels[0]", "(3,)", "{name: Q}"]),
        (GOOD.tolist(), ["kernels[0]", "(3,)", "{name: Q}"]),
        (frame(GOOD, XYZ), ["kernels[0]", "(3,)", "{name: Q}"]),
        (3.0, ["kernels[0]", "()"]),
        (np.ones((1, 2, 2, 2)), ["kernels[0]", "(2, 2, 2)"]),
        ({}, ["no kernels"]),
        ([], ["no kernels"]),
        (np.ones((0, 3, 3)), ["no kernels"]),
        (np.ones((2, 0, 0)), ["no objects"]),
        ({"a": pd.DataFrame(), "b": pd.DataFrame()}, ["no objects"]),
        ({"a": frame(np.ones((0, 0)), pd.Index([], dtype=str))}, ["no objects"]),
    ],
)
def test_shapes_are_refused(kernels, texts):
    with refused(KernelError, *texts):
        stack_kernels(kernels)


# -- labels -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "texts"),
    [
        (["x", "y", "x"], ["'x'", "more than once"]),
        ([1, 2, 1], ["label 1 ", "more than once"]),
        (["x", "y", 3], ["mixed", "'x'", "3"]),
        ([1.0, 2.0, 3.0], ["label 1.0", "float", "int()"]),
        ([True, False, "z"], ["True", "bool"]),
        (["x", "y", None], ["type"]),
        (["x", "y", np.nan], ["type"]),
        (pd.date_range("2020", periods=3), ["2020", "Timestamp"]),
        (pd.MultiIndex.from_tuples([("x", 1), ("y", 1), ("z", 1)]), ["('x', 1)", "tuple"]),
        ([2**63, 1, 2], ["64 bits", "str()"]),
        (["x", "y", "z\0"], ["NUL", "netCDF"]),
        (["x", "y", "\ud800"], ["surrogate", "netCDF"]),
    ],
)
def test_labels_are_refused_by_name(labels, texts):
    with refused(LabelError, "kernel 'bad'", *texts):
        stack_kernels({"good": frame(GOOD, XYZ), "bad": frame(GOOD, labels)})
    with refused(LabelError, "objects", *texts):
        stack_kernels([GOOD], objects=labels)
    with refused(LabelError, "names", *texts):
        stack_kernels([GOOD] * 3, names=labels)


@pytest.mark.parametrize(
    ("columns", "texts"),
    [
        (["x", "y", "w"], ["'w', 'z'", "same labels"]),
        ([0, 1, 2], ["text ('x')", "integers (0)", "same labels"]),
    ],
)
def test_rows_and_columns_must_have_the_same_labels(columns, texts):
    with refused(LabelError, "kernel 'bad'", *texts):
        stack_kernels({"bad": frame(GOOD, XYZ, columns)})


def test_labels_of_mixed_types_across_kernels():
    with refused(LabelError, "text in kernel 'a' ('x')", "integers in kernel 'b' (0)", "str()"):
        stack_kernels({"a": frame(GOOD, XYZ), "b": pd.DataFrame(GOOD)})
    with refused(LabelError, "0, 1, 2", "kernel 'b'", "not among them"):
        stack_kernels({"b": pd.DataFrame(GOOD)}, objects=["0", "1", "2"])
    with refused(LabelError, "names", "mixed", "'a'", "1"):
        stack_kernels({"a": GOOD, 1: GOOD})


def test_objects_must_contain_all():
    with refused(LabelError, "'z'", "kernel 'b'", "not among them", "Add them"):
        stack_kernels({"a": frame(GOOD[:2, :2], XYZ[:2]), "b": frame(GOOD, XYZ)}, objects=XYZ[:2])
    with refused(LabelError, "2 labels", "3 objects"):
        stack_kernels([GOOD], objects=XYZ[:2])
    with refused(LabelError, "1 names", "2 kernels"):
        stack_kernels([GOOD, GOOD], names=["a"])


def test_names_go_with_unnamed_kernels_only():
    for kernels in ({"a": GOOD}, stack_kernels([GOOD])):
        with refused(LabelError, "names", "named already"):
            stack_kernels(kernels, names=["b"])


@pytest.mark.parametrize("labels", ["xyz", b"xyz", {"x", "y", "z"}, 3])
def test_what_is_no_sequence_of_labels(labels):
    with refused(LabelError, "objects", "Pass a list"):
        stack_kernels([GOOD], objects=labels)


def test_labels_that_only_look_like_numbers_or_text():
    with refused(LabelError, "objects", "timedelta64"):
        as_labels(np.array([1, 2], dtype="m8[s]"), "objects")

    class Color(str, enum.Enum):  # noqa: UP042 - text whose str() is not itself
        RED = "red"

    assert as_labels([Color.RED, np.str_("blue")], "objects").tolist() == ["red", "blue"]
    with refused(LabelError, "label 'a' occurs"):
        as_labels(np.array(["a", "a"]), "objects")


def test_labelled_and_plain_matrices_do_not_mix():
    labeled = frame(GOOD, XYZ)
    with refused(LabelError, "kernels: 'a' is labeled and 'b' is a plain array", "none"):
        stack_kernels({"a": labeled, "b": GOOD})
    with refused(LabelError, "kernels: 3 is labeled and 1 is a plain array", "none"):
        stack_kernels({1: GOOD, 2: GOOD, 3: labeled, 4: labeled})
    half = xr.DataArray(GOOD, dims=("p", "q"), coords={"p": XYZ})
    with refused(LabelError, "kernel 'bad'", "'q'"):
        stack_kernels({"bad": half})
    # a list would lose the labels without a word
    with refused(LabelError, "without names", "mapping"):
        stack_kernels([frame(GOOD, XYZ), frame(GOOD, XYZ[::-1])])


# -- visibility ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("visible", "texts"),
    [
        ([[1, 1]], ["(1, 2)", "(2, 3)"]),
        (np.ones((3, 2)), ["(3, 2)", "(2, 3)"]),
        ([1, 1, 1], ["(3,)", "(2, 3)"]),
        ([[1, 1, 1], [1, 1]], ["different lengths"]),
        ([[1, 1, 1], [1, 2, 1]], ["kernel 'b'", "2 found", "0 (hidden)"]),
        ([[1, 1, 1], [1, NAN, 1]], ["kernel 'b'", "nan found"]),
        ([[1, 1, 1], [1, None, 1]], ["kernel 'b'", "None found"]),
        ([["1", "1", "1"], ["1", "0", "1"]], ["kernel 'a'", "'1' found"]),
        (np.ones((2, 3)) * 1j, ["kernel 'a'", "1j found"]),
    ],
)
def test_visibility_masks_are_refused(visible, texts):
    with refused(KernelError, "visible", *texts):
        stack_kernels({"a": GOOD, "b": GOOD}, objects=XYZ, visible=visible)


def test_labelled_visibility_is_checked_against_the_labels():
    kernels = {"a": frame(GOOD, XYZ), "b": frame(GOOD[:2, :2], XYZ[:2])}
    table = pd.DataFrame(1, index=["a", "b"], columns=XYZ)
    with refused(KernelError, "visible, kernel 'b'", "1 for 'z'", "no row"):
        stack_kernels(kernels, visible=table)
    table.loc["b", "z"] = 0
    stack_kernels(kernels, visible=table)
    with refused(LabelError, "visible", "must say which objects"):
        stack_kernels(kernels, visible=table.to_numpy())
    with refused(LabelError, "visible", "kernel 'b'", "Add one"):
        stack_kernels(kernels, visible=table.drop(index="b"))
    with refused(LabelError, "visible", "'y'", "Add it"):
        stack_kernels(kernels, visible=table.drop(columns="y"))
    with refused(KernelError, "visible, kernel 'a'", "<NA> found"):
        stack_kernels(kernels, visible=table.astype("Int64").replace(1, pd.NA))
    with refused(LabelError, "visible", "('p', 'q')", "'kernel'"):
        stack_kernels(
            kernels, visible=xr.DataArray(table.to_numpy(), dims=("p", "q"), coords={"q": XYZ})
        )
    with refused(LabelError, "visible", "more than once"):
        stack_kernels(kernels, visible=pd.concat([table, table]))


def test_said_to_be_visible_but_nan():
    hole = spoilt(NAN, *((1, j) for j in range(3)), *((j, 1) for j in range(3)))
    with refused(KernelError, "kernel 'a'", "'y'", "said to be visible", "Set its visibility to 0"):
        stack_kernels({"a": hole}, objects=XYZ, visible=[[1, 1, 1]])


# -- stacks ---------------------------------------------------------------------------------------


@pytest.fixture
def stack():
    return stack_kernels({"a": frame(GOOD, XYZ), "b": frame(GOOD, XYZ)})


@pytest.mark.parametrize(
    "what", [GOOD, [GOOD], {"a": GOOD}, None, "stack", xr.Dataset(), GOOD[None]]
)
def test_what_is_no_stack(what):
    with refused(KernelError, "a labeled stack", type(what).__name__, "stack_kernels"):
        check_stack(what)


def test_stacks_cut_or_renamed_beyond_recognition(stack):
    both = (
        (
            stack.isel(object=[0, 1]),
            ["row and column labels differ", "'z'", "and object_bis"],
        ),
        (stack.isel(object=[1, 0, 2]), ["the orders differ", "and object_bis"]),
        (stack.rename(object="gene"), ["gene", "expected"]),
        (stack.sel(kernel="a"), ["expected", "sel(kernel=[name])"]),
        (stack.drop_vars("object"), ["no labels on 'object'"]),
        (stack.drop_vars("kernel"), ["no labels on 'kernel'"]),
        (stack.assign_coords(object_bis=[1, 2, 3]), ["text ('x')", "integers (1)"]),
        (stack.assign_coords(kernel=["a", "a"]), ["'a'", "more than once"]),
        (stack.assign_coords(kernel=[0.5, 1.5]), ["0.5", "float"]),
    )
    for spoilt_stack, texts in both:
        with refused(LabelError, *texts):
            check_stack(spoilt_stack)
        if spoilt_stack.ndim == 3:
            with refused(LabelError, *texts):
                stack_kernels(spoilt_stack)


@pytest.mark.parametrize("rounding", [[0.1, -1.0], [0.1, 2.0], [np.inf, 0.0], ["a", "b"]])
def test_a_rounding_that_is_none(stack, rounding):
    stack = stack.assign_coords(rounding=("kernel", rounding))
    for function in (check_stack, stack_kernels):
        with refused(KernelError, "'rounding'", str(rounding), "between 0 and 1"):
            function(stack)


def test_empty_stacks(stack):
    with refused(KernelError, "no kernels"):
        check_stack(stack.isel(kernel=[]))
    with refused(KernelError, "no objects"):
        check_stack(stack.isel(object=[], object_bis=[]))


def test_the_stack_is_called_what_the_caller_calls_it(stack):
    with refused(LabelError, "truth: dims"):
        check_stack(stack.sel(kernel="a"), what="truth")


@pytest.mark.parametrize(
    ("matrix", "match"),
    [
        (np.ones((5, 3)), r"kernel 'a': shape \(5, 3\) is not square\. Of a table of features"),
        ("kernel.csv", r"kernel 'a': shape \(\) is not square\. Read a file first"),
        (np.triu(np.ones((3, 3))), r"kernel 'a': not symmetric.* looks like one triangle"),
        (np.tril(np.ones((3, 3))), r"kernel 'a': not symmetric.* looks like one triangle"),
    ],
)
def test_what_looks_like_something_else_is_told_so(matrix, match):
    with pytest.raises(KernelError, match=match):
        stack_kernels({"a": matrix})


def over(*groups):
    """Return a kernel over each group of labels."""
    return {f"k{k}": pd.DataFrame(np.eye(len(g)), g, g) for k, g in enumerate(groups)}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("p 1", "P1 "),
        ("PT-001", "PT-01"),
        ("PT-001", "PT_001"),
        ("PT-001", "pt1"),
        ("PT.001", "PT/1"),
        ("001", "1"),
        ("a-b", "AB"),
        ("a\u2013b", "a b"),
        ("P1-23", "p01_023"),
        ("Zo\u00eb", "Zoe\u0308"),
    ],
)
def test_labels_that_look_alike_are_warned_about(one, other):
    match = rf"objects: {one!r} and {other!r} differ only in case, blanks, separators, leading"
    with pytest.warns(MKMCWarning, match=match) as caught:
        stack = stack_kernels(over([one, "z"], [other, "z"]))
    assert len(caught) == 1
    assert stack.sizes["object"] == 3


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("P1-23", "P12-3"),
        ("1.5", "15"),
        ("0.05", "0.5"),
        ("CD4+", "CD4-"),
        ("a10", "a1"),
        ("a100", "a10"),
        ("a0", "a"),
        ("TP53", "TP63"),
    ],
)
def test_labels_that_say_different_things_are_not(one, other):
    stack_kernels(over([one, "z"], [other, "z"]))


def test_labels_that_one_kernel_tells_apart_are_not():
    stack_kernels(over(["a1", "a01", "A-1"], ["a1", "z"], ["a01", "z"], ["A-1", "z"]))


def test_an_object_that_is_not_among_those_named_may_be_spelled_otherwise():
    kernels = over(["S-012", "S-3"], ["S012", "S-3"])
    with refused(LabelError, "objects: 'S012' of kernel", "or rename them, if 'S012' is 'S-012'."):
        stack_kernels(kernels, objects=["S-012", "S-3"])
    with refused(LabelError, "or drop them from the kernel."):
        stack_kernels(over(["a", "b"], ["z"]), objects=["a", "b"])


def test_of_many_labels_that_look_alike_three_pairs_are_named():
    one, other = ([f"{sep}{i}" for i in range(9)] for sep in ("PT-0", "PT"))
    with pytest.warns(MKMCWarning, match="'PT-02' and 'PT2' and 6 more pairs differ"):
        stack_kernels(over([*one, "z"], [*other, "z"]))


@pytest.mark.parametrize(("keep", "side"), [(np.tril, "above"), (np.triu, "below")])
@pytest.mark.parametrize("size", [3, 5])
def test_a_triangle_whose_other_half_is_nan_has_a_remedy_that_works(keep, side, size):
    features = np.random.default_rng(size).standard_normal((size, 3))
    whole = pd.DataFrame(features @ features.T, list("hbxqa")[:size], list("hbxqa")[:size])
    table = whole.where(keep(np.ones((size, size))) > 0)
    missing = table.reindex(index=["u", *table.index], columns=["u", *table.index])
    for triangle in (table, missing):  # an object that is missing altogether changes nothing
        with refused(KernelError, "kernel 'a'", f"{side} the diagonal", "combine_first(table.T)"):
            stack_kernels({"a": triangle})
        mended = stack_kernels({"a": triangle.combine_first(triangle.T)})
        again = mended.sel(kernel="a", object=whole.index, object_bis=whole.index)
        assert np.array_equal(again.values, whole.to_numpy())
    values = table.to_numpy()
    with refused(KernelError, "np.where(np.isnan(Q), Q.T, Q)"):
        stack_kernels({"a": values})
    assert np.array_equal(np.where(np.isnan(values), values.T, values), whole.to_numpy())


def test_a_triangle_with_more_holes_or_fewer_is_no_triangle():
    table = np.where(np.tri(4), np.eye(4), np.nan)
    for i, j, entry in ((2, 1, np.nan), (0, 3, 0.0), (1, 1, np.nan)):
        other = table.copy()
        other[i, j] = entry
        with refused(KernelError, "but not in all"):
            stack_kernels({"a": other})
    with refused(KernelError, "but not in all"):  # of two objects it may be a hole
        stack_kernels({"a": [[1.0, np.nan], [0.0, 1.0]]})


def test_distances_are_told_apart_from_kernels():
    distances = np.abs(np.subtract.outer(np.arange(4.0), np.arange(4.0)))
    with pytest.raises(IndefiniteKernelError, match=r"'a'.* look like distances"):
        check_definite(stack_kernels({"a": distances}))


@pytest.mark.parametrize("objects", [np.array("a"), np.array(3), 3, "ab", {1, 2}])
def test_what_is_no_sequence_of_labels_is_named(objects):
    with pytest.raises(LabelError, match=r"objects: .* is not a sequence of labels"):
        stack_kernels(np.eye(2)[None], objects=objects)


@pytest.mark.parametrize("kernels", [Fraction(10**400), np.float64(1), np.ones(3), [np.ones(3)]])
def test_what_is_no_array_of_matrices_is_named(kernels):
    with pytest.raises(KernelError, match=r"kernels\[0\]: shape .* is not a matrix"):
        stack_kernels(kernels)
