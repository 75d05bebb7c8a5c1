"""Files that are read whole, and appear whole or not at all; work that Ctrl-C cannot break off."""

import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import xarray as xr

from .errors import MKMCError


def a_path(given: Any) -> Path:
    """Return `given` as a path; raise MKMCError where it is none."""
    try:
        return Path(given)
    except TypeError as error:
        raise MKMCError(f"path: {given!r} found; the name of a file is needed.") from error


def open_tree(path: Any) -> xr.DataTree:
    """Return the whole tree of a netCDF file; raise where there is none to be read."""
    path = a_path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file.")
    try:
        # Entries are taken as they stand: no attribute scales them.
        with xr.open_datatree(path, engine="h5netcdf", mask_and_scale=False) as opened:
            return opened.load()
    except Exception as error:  # decoders raise nearly anything
        raise MKMCError(f"{path}: not a netCDF file that can be read: {error}") from error


@contextmanager
def interrupts_held() -> Iterator[list[Any]]:
    """Hold back Ctrl-C while the block runs; where it struck the list it gets is not empty."""
    struck: list[Any] = []
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield struck  # no handler can be set, or Ctrl-C is not listened to
        return
    signal.signal(signal.SIGINT, lambda *what: struck.append(what))
    try:
        yield struck
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def replace_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a draft to write; put it in the place of `path` once the block ends without an error.

    An interrupted or failed write leaves an older file as it was.
    """
    path = a_path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path}: there is no folder {str(path.parent)!r}. Make it first.")
    if path.is_dir():
        raise IsADirectoryError(f"{path}: is a folder. Name a file.")
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        draft = Path(folder) / path.name
        yield draft
        os.replace(draft, path)
