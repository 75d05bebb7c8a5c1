"""Stacks in netCDF: out and back in without loss, and what is refused."""

from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

from mkmc_prob import fit, stack_kernels
from mkmc_prob.errors import KernelError, MKMCError
from mkmc_prob.io.stacks import read_stack, write_stack


def kernels(count: int, size: int) -> np.ndarray:
    factors = np.random.default_rng(count).normal(size=(count, size, size))
    return factors @ factors.transpose(0, 2, 1)


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

    def interrupted(draft: Path, data: memoryview) -> None:
        with draft.open("wb") as file:
            file.write(data[: len(data) // 2])
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_bytes", interrupted)
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


def test_a_saved_result_is_no_stack(tmp_path: Path) -> None:
    path = tmp_path / "result.nc"
    fit(stack_kernels(kernels(2, 3))).save(path)
    with pytest.raises(KernelError, match=r"result\.nc: .*load_result\(path\).*`completed`"):
        read_stack(path)
