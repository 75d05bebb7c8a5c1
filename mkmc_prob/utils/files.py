"""Paths, unreadable files, and files that appear whole or not at all."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import KernelError, MKMCError


def a_path(given: Any) -> Path:
    """Return `given` as a path; raise MKMCError if it is not a path."""
    try:
        return Path(given)
    except TypeError as error:
        raise MKMCError(f"path: {given!r} found; the name of a file is needed.") from error


@contextmanager
def decoding(path: Path, kind: str) -> Iterator[None]:
    """Turn whatever a decoder raises (nearly anything) into a KernelError that names the file."""
    with path.open("rb"):
        pass  # an OSError if the file cannot be opened; errors below concern its content
    try:
        yield
    except Exception as error:
        raise KernelError(
            f"{path}: not readable as {kind} ({type(error).__name__}: {error}). It is damaged or "
            "of another kind; save it again."
        ) from error


@contextmanager
def replace_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield the path of a draft, which replaces `path` if the block ends without an error.

    If writing fails or is interrupted, an existing file stays as it was.
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


@contextmanager
def replace_folder(path: Path, *, is_replaceable: Callable[[Path], bool]) -> Iterator[Path]:
    """Yield the path of a draft folder, which replaces `path` if the block ends without an error.

    What stands there already is replaced only if `is_replaceable` says so.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path}: there is no folder {str(path.parent)!r}. Make it first.")
    if path.exists() and not is_replaceable(path):
        raise FileExistsError(f"{path}: something else stands there. Choose another name.")
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".draft.") as folder:
        draft = Path(folder) / path.name
        yield draft
        if path.exists():
            os.replace(path, Path(folder) / "old")
        os.replace(draft, path)
