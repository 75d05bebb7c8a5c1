"""What `stack_kernels` and `check_stack` accept, and what they make of it."""

import copy
import warnings

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from problems import PAPER

from mkmc_prob import MKMCWarning, fit, stack_kernels, visible_objects
from mkmc_prob.stacks.stack import DIMS, check_stack

FLOAT32_EPS = 2.0**-23
FLOAT64_EPS = 2.0**-52


def frame(values, labels, columns=None):
    return pd.DataFrame(values, index=labels, columns=labels if columns is None else columns)


@pytest.fixture
def small():
    """Two kernels that see different objects, in different orders."""
    a = frame([[2.0, 1.0, 0.5], [1.0, 3.0, 0.0], [0.5, 0.0, 4.0]], ["x", "y", "z"])
    b = frame([[5.0, 0.3], [0.3, 1.0]], ["w", "y"])
    return stack_kernels({"a": a, "b": b})


# -- alignment ----------------------------------------------------------------------------------


def test_union_in_order_of_first_appearance(small):
    assert small.dims == DIMS == ("kernel", "object", "object_bis")
    assert small["object"].values.tolist() == ["x", "y", "z", "w"]
    assert small["object_bis"].values.tolist() == ["x", "y", "z", "w"]
    assert small["kernel"].values.tolist() == ["a", "b"]
    assert small.dtype == np.float64
    nan = np.nan
    assert np.array_equal(
        small.values,
        [
            [[2, 1, 0.5, nan], [1, 3, 0, nan], [0.5, 0, 4, nan], [nan] * 4],
            [[nan] * 4, [nan, 1, nan, 0.3], [nan] * 4, [nan, 0.3, nan, 5]],
        ],
        equal_nan=True,
    )
    assert visible_objects(small).values.tolist() == [[1, 1, 1, 0], [0, 1, 0, 1]]
    assert visible_objects(small).dims == ("kernel", "object")


def test_objects_are_the_order_and_may_add():
    a = frame([[2.0, 1.0], [1.0, 3.0]], ["x", "y"])
    stack = stack_kernels({"a": a}, objects=["new", "y", "x"])
    assert stack["object"].values.tolist() == ["new", "y", "x"]
    assert np.isnan(stack.values[0, 0]).all()
    assert np.isnan(stack.values[0, :, 0]).all()
    assert stack.values[0, 1:, 1:].tolist() == [[3, 1], [1, 2]]


def test_frames_and_arrays_of_labels_align_alike(small):
    a = frame([[2.0, 1.0, 0.5], [1.0, 3.0, 0.0], [0.5, 0.0, 4.0]], ["x", "y", "z"])
    b = xr.DataArray(
        [[1.0, 0.3], [0.3, 5.0]],
        dims=("row", "column"),
        coords={"row": ["y", "w"], "column": ["y", "w"]},
    )
    xr.testing.assert_identical(stack_kernels({"a": a, "b": b}, objects=list("xyzw")), small)


def test_columns_in_another_order_than_rows():
    mixed = frame([[1.0, 2.0], [3.0, 1.0]], ["x", "y"], ["y", "x"])  # Q_xy 1, Q_xx 2, Q_yy 3
    assert stack_kernels({"a": mixed}).values[0].tolist() == [[2, 1], [1, 3]]


def test_a_dataset_is_a_mapping():
    labels = {"object": ["x", "y"], "object_bis": ["x", "y"]}
    dataset = xr.Dataset(
        {
            "a": (("object", "object_bis"), [[2.0, 1.0], [1.0, 2.0]]),
            "b": (("object", "object_bis"), [[3.0, np.nan], [np.nan, np.nan]]),
        },
        coords=labels,
    )
    stack = stack_kernels(dataset)
    assert stack["kernel"].values.tolist() == ["a", "b"]
    assert visible_objects(stack).values.tolist() == [[True, True], [True, False]]


def test_plain_arrays_in_each_form():
    values = [[[2.0, 1.0], [1.0, 2.0]], [[1.0, 0.0], [0.0, 1.0]]]
    expected = stack_kernels(np.array(values))
    assert expected["kernel"].values.tolist() == ["Q1", "Q2"]
    assert expected["object"].values.tolist() == [0, 1]
    assert expected.values.tolist() == values
    for same in (
        values,
        tuple(map(np.array, values)),
        {"Q1": values[0], "Q2": np.array(values[1])},
    ):
        xr.testing.assert_identical(stack_kernels(same), expected)
    named = stack_kernels(values, names=[7, 8], objects=("u", "v"))
    assert named["kernel"].values.tolist() == [7, 8]
    assert named.sel(kernel=7, object="u", object_bis="v") == 1.0


def test_visible_hides_whatever_stands_there():
    values = np.array([[[1.0, np.inf, 0.2], [7.0, np.nan, -3.0], [0.2, 9.0, 2.0]]])
    stack = stack_kernels(values, visible=[[1, 0, 1]])
    nan = np.nan
    expected = [[1, nan, 0.2], [nan] * 3, [0.2, nan, 2]]
    assert np.array_equal(stack.values[0], expected, equal_nan=True)
    for same in (np.array([[True, False, True]]), [[1.0, 0.0, 1.0]], xr.DataArray([[1, 0, 1]])):
        xr.testing.assert_identical(stack_kernels(values, visible=same), stack)


def test_a_labelled_visible_is_aligned_for_plain_arrays_too():
    table = pd.DataFrame([[1, 1], [0, 1]], index=["b", "a"], columns=["y", "x"])
    plain = {"a": np.eye(2), "b": np.eye(2)}
    stacks = [
        stack_kernels(plain, objects=["x", "y"], visible=table),
        stack_kernels(np.ones((2, 2, 2)), names=["a", "b"], objects=["x", "y"], visible=table),
        stack_kernels({k: frame(np.eye(2), ["x", "y"]) for k in "ab"}, visible=table),
        stack_kernels(
            {k: frame(np.eye(2), ["x", "y"]) for k in "ab"},
            visible=xr.DataArray(table.rename_axis("kernel").rename_axis("object", axis=1)).T,
        ),
    ]
    for stack in stacks:
        assert visible_objects(stack).values.tolist() == [[True, False], [True, True]]


def test_an_object_with_wholly_nan_row_and_column_is_missing():
    hole = frame([[1.0, np.nan], [np.nan, np.nan]], ["x", "y"])
    full = frame(np.eye(2), ["x", "y"])
    assert visible_objects(stack_kernels({"a": hole, "b": full})).values.tolist() == [
        [1, 0],
        [1, 1],
    ]


def test_pandas_na_and_masked_entries_are_missing():
    na = pd.DataFrame(
        {"x": pd.array([1, None], "Int64"), "y": pd.array([None, None], "Float32")},
        index=["x", "y"],
    )
    assert visible_objects(stack_kernels({"a": na})).values.tolist() == [[True, False]]
    masked = np.ma.array([[1, 5], [5, 9]], mask=[[0, 1], [1, 1]])
    for form in ({"a": masked}, [masked], np.ma.array([masked])):
        assert visible_objects(stack_kernels(form)).values.tolist() == [[True, False]]


def test_a_kernel_that_sees_nothing_is_kept():
    empty = pd.DataFrame()
    stack = stack_kernels({"a": frame(np.eye(2), ["x", "y"]), "b": empty})
    assert np.isnan(stack.sel(kernel="b")).all()
    assert not visible_objects(check_stack(stack)).sel(kernel="b").any()


entries = st.floats(-1e6, 1e6).filter(lambda x: x == 0 or abs(x) > 1e-6)


@given(data=st.data())
def test_visible_values_come_back_bit_for_bit(data):
    size = data.draw(st.integers(1, 6))
    labels = np.array(data.draw(st.permutations([f"o{i}" for i in range(size)])))
    square = data.draw(hnp.arrays(np.float64, (2, size, size), elements=entries))
    square = np.triu(square) + np.swapaxes(np.triu(square, 1), 1, 2)
    for matrix in square:
        np.fill_diagonal(matrix, np.abs(np.diagonal(matrix)) + 1.0)
    frames, kept = {}, {}
    for name, matrix in zip("ab", square, strict=True):
        order = data.draw(st.permutations(range(size)))
        kept[name] = order[: data.draw(st.integers(1, size))]
        columns = data.draw(st.permutations(kept[name]))
        frames[name] = frame(
            matrix[np.ix_(kept[name], columns)], labels[kept[name]], labels[columns]
        )
    order = data.draw(st.permutations(labels.tolist()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MKMCWarning)  # the scales are random
        stack = stack_kernels(frames, objects=order)
        again = stack_kernels(stack)
    for name, matrix in zip("ab", square, strict=True):
        there = labels[kept[name]]
        block = stack.sel(kernel=name, object=there, object_bis=there).values
        assert block.tobytes() == matrix[np.ix_(kept[name], kept[name])].tobytes()
        assert np.isnan(stack.sel(kernel=name)).sum() == size**2 - len(there) ** 2
    xr.testing.assert_identical(again, stack)
    xr.testing.assert_identical(check_stack(stack), stack)


# -- numbers ------------------------------------------------------------------------------------


def test_rounding_asymmetry_is_averaged():
    given = np.array([[[1.0, 0.5], [0.5 + 1e-9, 1.0]]])
    values = stack_kernels(given).values[0]
    assert values[0, 1] == values[1, 0] == (0.5 + (0.5 + 1e-9)) / 2
    # 16 roundings of float32 are more than 1e-8 of the largest entry
    single = np.array([[[1.0, 0.5], [0.5 + 2.0**-20, 1.0]]], dtype=np.float32)
    values = stack_kernels(single).values[0]
    assert values[0, 1] == values[1, 0] == 0.5 + 2.0**-21


@pytest.mark.parametrize(
    ("dtype", "rounding"),
    [
        ("float64", FLOAT64_EPS),
        ("float32", FLOAT32_EPS),
        (">f4", FLOAT32_EPS),
        ("float16", 2.0**-10),
        ("longdouble", FLOAT64_EPS),
        ("int8", FLOAT64_EPS),
        ("uint64", FLOAT64_EPS),
        ("bool", FLOAT64_EPS),
    ],
)
def test_any_real_dtype_becomes_float64_and_its_rounding_is_kept(dtype, rounding):
    given = np.array([[[1, 0], [0, 1]]], dtype=dtype)
    for stack in (stack_kernels(given), stack_kernels({"a": frame(given[0], ["x", "y"])})):
        assert stack.dtype == np.float64
        assert stack.dtype.isnative
        assert stack.values.tolist() == [[[1, 0], [0, 1]]]
        assert stack["rounding"].values.tolist() == [rounding]


def test_rounding_survives_every_way_back_in():
    stack = stack_kernels(
        {"a": frame(np.eye(2, dtype="f4"), ["x", "y"]), "b": frame(np.eye(1), ["y"])}
    )
    roundings = [FLOAT32_EPS, FLOAT64_EPS]
    for again in (
        check_stack(stack),
        check_stack(stack * 2),
        stack_kernels(stack, objects=["y", "z", "x"]),
        stack_kernels({name: stack.sel(kernel=name) for name in "ab"}),
    ):
        assert again["rounding"].values.tolist() == roundings
    # cast down by hand, or added by hand: the dtype tells
    assert check_stack(stack.astype("f4"))["rounding"].values.tolist() == [FLOAT32_EPS] * 2
    more = check_stack(stack.reindex(kernel=["a", "new"]))
    assert more["rounding"].values.tolist() == [FLOAT32_EPS, FLOAT64_EPS]
    assert check_stack(stack.drop_vars("rounding"))["rounding"].values.tolist() == [FLOAT64_EPS] * 2


def test_pandas_own_number_types():
    base = frame([[1.0, 0.5], [0.5, 1.0]], ["x", "y"])
    for dtype, rounding in (("Float64", FLOAT64_EPS), ("Float32", FLOAT32_EPS)):
        stack = stack_kernels({"a": base.astype(dtype)})
        assert stack.values[0].tolist() == base.to_numpy().tolist()
        assert stack["rounding"].item() == rounding
    mixed = pd.DataFrame({"x": [True, False], "y": [0.0, 2.0]}, index=["x", "y"])
    assert stack_kernels({"a": mixed}).values[0].tolist() == [[1, 0], [0, 2]]


@pytest.mark.parametrize("form", ["frames", "arrays", "array", "stack"])
def test_what_is_handed_in_is_never_modified(form):
    matrix = np.array([[1.0, 0.5], [0.5 + 1e-9, 1.0]])  # would be symmetrized
    given = {
        "frames": {"a": frame(matrix, ["x", "y"]), "b": frame(matrix, ["y", "x"])},
        "arrays": {"a": matrix, "b": matrix.copy()},
        "array": np.array([matrix, matrix]),
        "stack": stack_kernels([matrix, matrix]).copy(data=[matrix, matrix]),
    }[form]
    before = copy.deepcopy(given)
    visible = None if form in ("frames", "stack") else np.array([[1, 0], [1, 1]])
    stack = stack_kernels(given, visible=visible)
    stack[:] = -1.0
    if form == "stack":
        check_stack(given)[:] = -1.0
        xr.testing.assert_identical(given, before)
    elif form == "array":
        assert np.array_equal(given, before)
    else:
        assert all(np.array_equal(given[name], before[name]) for name in before)


def test_a_frozen_array_is_fine():
    given = np.eye(2)[None]
    given.flags.writeable = False
    assert stack_kernels(given, visible=[[1, 0]]).values[0, 0, 0] == 1.0


# -- labels -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "labels",
    [
        pd.Index(["p", "q"], dtype="string"),
        pd.Index(["p", "q"], dtype=object),
        pd.CategoricalIndex(["p", "q"]),
        np.array(["p", "q"]),
        ["αβγ-蛋白", "é 🧬"],
        ["", " "],
        ["1", "2"],
        pd.Index([3, -1]),
        np.array([3, 1], dtype=np.uint8),
    ],
)
def test_labels_of_every_usual_kind_survive_netcdf(labels, tmp_path):
    stack = stack_kernels({"a": frame([[2.0, 1.0], [1.0, 2.0]], labels)})
    assert stack["object"].dtype.kind in "Ui"
    assert stack["object"].values.tolist() == list(labels)
    stack.to_netcdf(tmp_path / "stack.nc", engine="h5netcdf")
    loaded = xr.load_dataarray(tmp_path / "stack.nc", engine="h5netcdf")
    xr.testing.assert_identical(check_stack(loaded), stack)


def test_labels_may_come_as_data_arrays_and_generators(small):
    again = stack_kernels(small, objects=small["object"])
    xr.testing.assert_identical(again, small)
    values = np.ones((2, 3, 3))
    stack = stack_kernels(values, objects=(f"o{i}" for i in range(3)), names=small["kernel"])
    assert stack["object"].values.tolist() == ["o0", "o1", "o2"]
    assert stack["kernel"].values.tolist() == ["a", "b"]


# -- stacks that a person worked on ---------------------------------------------------------------


def test_a_stack_goes_back_in_with_another_order(small):
    order = ["w", "v", "z", "y", "x"]
    again = stack_kernels(small, objects=order)
    xr.testing.assert_identical(stack_kernels(again), again)
    back = again.sel(object=list("xyzw"), object_bis=list("xyzw"))
    assert np.array_equal(back.values, small.values, equal_nan=True)
    assert again["object"].values.tolist() == order


def test_stacks_cut_transposed_and_computed_with_still_pass(small):
    cut = check_stack(small.isel(object=[2, 1], object_bis=[2, 1]))
    assert cut.values[0].tolist() == [[4, 0], [0, 3]]
    one = check_stack(small.sel(kernel=["b"]))
    assert np.array_equal(one.values, small.values[1:], equal_nan=True)
    for turned in (small.T, small.transpose("object", "kernel", "object_bis")):
        xr.testing.assert_identical(check_stack(turned), small)
    assert np.array_equal(check_stack(small * 2).values, 2 * small.values, equal_nan=True)
    both = small + small
    assert np.array_equal(check_stack(both).values, 2 * small.values, equal_nan=True)
    joined = xr.concat([small, small.assign_coords(kernel=["c", "d"])], dim="kernel", join="outer")
    assert check_stack(joined).sizes["kernel"] == 4


def test_name_attributes_and_further_coordinates_are_kept(small):
    mine = small.rename("mine").assign_attrs(source="me")
    mine = mine.assign_coords(species=("object", ["h", "h", "m", "m"]), day=3)
    xr.testing.assert_identical(check_stack(mine), mine)
    assert check_stack(mine.rename(None)).name == "kernels"


def test_the_notebook_picture_names_kernels_and_dims(small):
    html = small._repr_html_()
    for text in ("kernel", "object", "object_bis", "rounding", "&#x27;a&#x27;", "&#x27;b&#x27;"):
        assert text in html


# -- scales -------------------------------------------------------------------------------------


def test_scales_that_differ_by_more_than_ten_are_warned_about_in_the_papers_model():
    stack = stack_kernels({"small": np.eye(2), "big": 11.0 * np.eye(2)})
    with pytest.warns(MKMCWarning, match=r"'big' is 11, of 'small' 1\. .*normalize") as caught:
        fit(stack, **PAPER)
    assert [w.filename for w in caught] == [__file__]  # the caller's line, not the package's
    stack = stack_kernels({"one": np.eye(2), "none": np.zeros((2, 2))})
    with pytest.warns(MKMCWarning, match="'none' 0"):
        fit(stack, **PAPER)


@pytest.mark.parametrize("factor", [1.0, 9.0, 10.0])
def test_smaller_differences_of_scale_are_not(factor):
    fit(stack_kernels({"small": np.eye(2), "big": factor * np.eye(2)}), **PAPER)
    fit(stack_kernels({"a": np.zeros((2, 2)), "b": np.zeros((2, 2))}), **PAPER)


def test_scales_are_those_of_the_visible_objects():
    kernels = np.array([np.eye(2), np.diag([1.0, 99.0])])
    fit(stack_kernels(kernels, visible=[[1, 1], [1, 0]]), **PAPER)
