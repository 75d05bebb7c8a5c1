"""Files that appear whole or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replace_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a draft to write; put it in the place of `path` once the block ends without an error.

    An interrupted or failed write leaves an older file as it was.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path}: there is no folder {str(path.parent)!r}. Make it first.")
    if path.is_dir():
        raise IsADirectoryError(f"{path}: is a folder. Name a file.")
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        draft = Path(folder) / path.name
        yield draft
        os.replace(draft, path)
