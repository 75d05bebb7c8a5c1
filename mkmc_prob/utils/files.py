"""Files that are read whole, and appear whole or not at all; work that Ctrl-C cannot break off."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import MKMCError


def a_path(given: Any) -> Path:
    """Return `given` as a path; raise MKMCError where it is none."""
    try:
        return Path(given)
    except TypeError as error:
        raise MKMCError(f"path: {given!r} found; the name of a file is needed.") from error


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
