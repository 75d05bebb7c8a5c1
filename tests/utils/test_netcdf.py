"""netCDF files: back without loss, and whole or not at all."""

import errno
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from mkmc_prob.errors import KernelError, MKMCError
from mkmc_prob.utils.netcdf import open_tree, read_netcdf, write_netcdf

VALUES = np.random.default_rng(0).normal(size=(2, 3, 3))
VALUES[0, 1] = np.nan


def dataset() -> xr.Dataset:
    return xr.Dataset(
        {
            "kernels": (("kernel", "object", "object_bis"), VALUES, {"source": "a study"}),
            "seen": (("kernel", "object"), VALUES[..., 0] > 0),
            "label": ("kernel", ["é", "NA"]),
            "strength": 0.1,
            "none": ("empty", np.empty(0)),
        },
        coords={"object": ["x", "y", "z"], "kernel": [2, 1], "weight": ("object", [0.1, 0.2, 0.3])},
        attrs={"version": 3},
    )


def tree() -> xr.DataTree:
    groups = {"/": xr.Dataset(attrs={"tol": 1e-9}), "one": dataset(), "one/inner": dataset()}
    return xr.DataTree.from_dict(groups)


@pytest.mark.parametrize("checksums", [False, True])
def test_what_is_written_comes_back(checksums: bool, tmp_path: Path) -> None:
    path = tmp_path / "k.nc"
    write_netcdf(dataset(), path, what="stack", checksums=checksums)
    xr.testing.assert_identical(read_netcdf(path), dataset())
    write_netcdf(tree(), str(path), what="result", checksums=checksums)
    xr.testing.assert_identical(open_tree(path), tree())
    xr.testing.assert_identical(read_netcdf(path), xr.Dataset(attrs={"tol": 1e-9}))
    assert [p.name for p in tmp_path.iterdir()] == ["k.nc"]


@pytest.mark.parametrize("data", [dataset(), tree()], ids=["dataset", "tree"])
def test_files_of_xarray_are_read_too(data: xr.Dataset | xr.DataTree, tmp_path: Path) -> None:
    data.to_netcdf(tmp_path / "k.nc", engine="h5netcdf")
    found = open_tree(tmp_path / "k.nc")
    expected = data if isinstance(data, xr.DataTree) else xr.DataTree(data)
    for group in expected.subtree:
        back = found[group.path].to_dataset()
        xr.testing.assert_equal(back, group.to_dataset())


def test_a_damaged_array_with_a_checksum_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "k.nc"
    write_netcdf(tree(), path, what="posterior", checksums=True)
    data = path.read_bytes()
    damaged = bytearray(data)
    damaged[data.index(VALUES.tobytes()) + 11] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(KernelError, match=r"k\.nc: not readable as a netCDF file"):
        open_tree(path)


def test_lazy_arrays_are_computed(tmp_path: Path) -> None:
    dataset().to_netcdf(
        tmp_path / "old.nc", engine="h5netcdf", encoding={"kernels": {"zlib": True}}
    )
    with xr.open_dataset(tmp_path / "old.nc", engine="h5netcdf") as lazy:
        write_netcdf(lazy, tmp_path / "new.nc", what="stack")
        xr.testing.assert_equal(read_netcdf(tmp_path / "new.nc"), dataset())


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data.assign_attrs(x=None),
        lambda data: data.assign_attrs(x={"y": 1}),
        lambda data: data.assign(x=("object", [1, "a", None])),
        lambda data: data.assign(x=((), 1.0, {"units": "days since 2000-01-01"})),
        lambda data: data.assign(x=((), 1.0, {"dtype": "bool"})),
        lambda data: data.assign({"a/b": 1}),
    ],
)
def test_what_netcdf_would_change_is_refused(spoil, tmp_path: Path) -> None:
    spoiled = spoil(dataset())
    with pytest.raises(MKMCError, match=r"k\.nc: netCDF cannot hold this stack \(.*attributes"):
        write_netcdf(spoiled, tmp_path / "k.nc", what="stack")
    if "a/b" not in spoiled:  # no name in a tree
        deep = xr.DataTree.from_dict({"one/inner": spoiled})
        with pytest.raises(MKMCError, match="netCDF cannot hold this result"):
            write_netcdf(deep, tmp_path / "k.nc", what="result")
    assert not list(tmp_path.iterdir())


def test_the_suffix_is_nc(tmp_path: Path) -> None:
    with pytest.raises(MKMCError, match=r"k\.npz: results are netCDF files, .*'k\.nc'"):
        write_netcdf(dataset(), tmp_path / "k.npz", what="result")
    with pytest.raises(MKMCError, match="path: 3 found"):
        write_netcdf(dataset(), 3, what="result")  # type: ignore[arg-type]
    write_netcdf(dataset(), tmp_path / "k.NC", what="result")


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))], ids=repr
)
def test_an_existing_file_stays_whole(error, tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "k.nc"
    write_netcdf(dataset(), path, what="stack")

    def stops(draft: Path, data: memoryview) -> None:
        with draft.open("wb") as file:
            file.write(data[: len(data) // 2])
        raise error

    monkeypatch.setattr(Path, "write_bytes", stops)
    with pytest.raises(type(error)):
        write_netcdf(tree(), path, what="result")
    assert [p.name for p in tmp_path.iterdir()] == ["k.nc"]
    xr.testing.assert_identical(read_netcdf(path), dataset())


def test_an_interrupt_while_the_file_is_built(tmp_path: Path, monkeypatch, listening) -> None:
    path = tmp_path / "k.nc"
    write_netcdf(dataset(), path, what="stack")
    dump = xr.Dataset.dump_to_store

    def interrupted(*args, **kwargs):
        signal.raise_signal(signal.SIGINT)
        return dump(*args, **kwargs)

    monkeypatch.setattr(xr.Dataset, "dump_to_store", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_netcdf(tree(), path, what="result")
    assert [p.name for p in tmp_path.iterdir()] == ["k.nc"]
    xr.testing.assert_identical(read_netcdf(path), dataset())


def test_too_little_memory_is_an_error(tmp_path: Path) -> None:
    endless = xr.Dataset({"kernels": (("a", "b"), np.broadcast_to(1.0, (2**24, 2**20)))})
    with pytest.raises(MemoryError):
        write_netcdf(endless, tmp_path / "k.nc", what="stack")
    assert not list(tmp_path.iterdir())


#: Writes a stack of two kernels over an older file, and says how that ended.
WRITER = """
import sys
import numpy as np
import xarray as xr
from mkmc_prob.io import read_stack, write_stack
from mkmc_prob import stack_kernels
path = sys.argv[1]
old = read_stack(path)
{before}
try:
    write_stack(stack_kernels(np.stack([np.eye(100)] * 2)), path)
except OSError as error:
    print(type(error).__name__, end=" ")
print(read_stack(path).identical(old))
"""


def outcome(before: str, path: Path) -> str:
    command = [sys.executable, "-c", WRITER.format(before=before), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def old_stack(path: Path) -> None:
    from mkmc_prob import stack_kernels
    from mkmc_prob.io import write_stack

    write_stack(stack_kernels(np.eye(3)[None]), path)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit on the size of files")
def test_a_write_that_the_system_breaks_off(tmp_path: Path) -> None:
    """A limit on the size of files stops a write in the middle, as a full disk does."""
    old_stack(tmp_path / "k.nc")
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2**15, 2**15))"
    assert outcome(limit, tmp_path / "k.nc") == "OSError True"
    assert [p.name for p in tmp_path.iterdir()] == ["k.nc"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no read-only folders")
def test_a_folder_that_is_read_only() -> None:
    with tempfile.TemporaryDirectory() as name:  # not in pytest's folder, which only root enters
        folder = Path(name)
        old_stack(folder / "k.nc")
        folder.chmod(0o555)
        no_root = "import os; os.getuid() or os.setuid(65534)"
        assert outcome(no_root, folder / "k.nc") == "PermissionError True"
        folder.chmod(0o755)
        assert [p.name for p in folder.iterdir()] == ["k.nc"]
