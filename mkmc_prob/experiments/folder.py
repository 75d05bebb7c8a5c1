"""The files of a study: what was computed stays, whatever ends the run.

Enters: settings, and finished cells. Leaves: one small JSON file each, and the cells again. How a
cell is computed is not known here.
"""

import json
import math
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
from numpy.typing import NDArray

from ..errors import MKMCError
from ..stacks.labels import name_some
from ..utils.files import replace_file
from .cells import Cell, Outcome

#: The layout of the files that `Folder` writes.
LAYOUT = 1
SETTINGS = "settings.json"
#: Is there while a run writes the settings, which takes no time; and for how long others wait.
LOCK, PATIENCE = "settings.lock", 10.0
#: Longer ones are no file's name everywhere.
LONGEST_NAME = 150


class Folder:
    """The files of a study: one with its settings, and one for each finished cell.

    Every file appears whole or not at all. A cell's file is never written again.

    Parameters
    ----------
    path
        Where; made if it is not there.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = folder_path(path)

    def open(self, settings: dict[str, Any]) -> None:
        """Put the settings on record, or compare them with those on record.

        New methods, under ``settings["methods"]``, are added. Of several runs that begin at once
        only one writes; the others compare.

        Raises
        ------
        MKMCError
            Where a setting differs (it is named), or the file is damaged; where there are cells of
            a method that the settings do not name.
        OSError
            Where the folder cannot be made.
        """
        make_folder(self.path)
        if self._to_add(settings) is not None:
            with self._locked():
                wanted = self._to_add(settings)  # another run may have written meanwhile
                if wanted is not None:
                    self._write(self.path / SETTINGS, wanted)

    def _to_add(self, settings: dict[str, Any]) -> dict[str, Any] | None:
        """Return the settings to be written, None where they are; raise where others are."""
        cells = [unquote(f.stem.split("_", 3)[-1]) for f in self.path.glob("cell_*.json")]
        file = self.path / SETTINGS
        if not file.exists():
            if cells:
                raise MKMCError(
                    f"folder: {self.path} holds cells, but no {SETTINGS}, so that nobody can tell "
                    "whose they are. Use another folder."
                )
            return settings
        known = self.settings()  # read after the cells were listed: their method came before them
        if stray := sorted(set(cells) - set(known["methods"])):
            raise MKMCError(
                f"folder: {self.path} holds cells of method {name_some(stray)}, which {SETTINGS} "
                "does not name, so that nobody can tell which method that was. Delete these cells."
            )
        methods = known["methods"] | settings["methods"]
        here = settings | {"methods": methods}
        for key in here | known:
            ours, theirs = here.get(key), known.get(key)
            if key == "methods":
                changed = [n for n, d in known["methods"].items() if methods[n] != d]
                if not changed:
                    continue
                key = f"the definition of method {changed[0]!r}"
                ours, theirs = methods[changed[0]], known["methods"][changed[0]]
            if ours != theirs:
                raise MKMCError(
                    f"folder: {self.path} holds cells of other settings: {key} is {theirs!r} there "
                    f"and {ours!r} here. Use another folder, or the settings of {file.name}."
                )
        return here if methods != known["methods"] else None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other runs from writing the settings meanwhile."""
        lock, until = self.path / LOCK, time.monotonic() + PATIENCE
        while True:
            try:
                os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
                break
            except FileExistsError as error:
                if time.monotonic() > until:
                    raise MKMCError(
                        f"folder: {lock} is there, as while another run begins. If none does (one "
                        "was killed just then), delete the file."
                    ) from error
                time.sleep(0.02)
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)

    def settings(self) -> dict[str, Any]:
        """Return the settings on record; raise MKMCError where there are none to be read."""
        file = self.path / SETTINGS
        if not file.is_file():
            raise MKMCError(
                f"folder: there is no {SETTINGS} in {self.path}. Name a study's folder."
            )
        try:
            known = json.loads(file.read_text(encoding="utf-8"))
            if not isinstance(known["methods"], dict):
                raise TypeError("methods")
            return dict(known)
        except (ValueError, KeyError, TypeError) as error:
            raise MKMCError(
                f"{file}: damaged ({error}), so that nobody can tell whose the cells beside it "
                "are. Use another folder."
            ) from error

    def save(self, cell: Cell, outcome: Outcome) -> None:
        """Write the file of a finished cell. Floats are written exactly, NaN as null."""
        self._write(self._file(cell), cell._asdict() | _plain(outcome._asdict()))

    def load(self, cells: Iterable[Cell], shape: tuple[int, int]) -> dict[Cell, Outcome]:
        """Return those of the cells that have a file; `shape` is that of `Outcome.roc`.

        Raises
        ------
        MKMCError
            Where files are damaged; it names them. Nothing is done again behind a person's back.
        """
        found, damaged = {}, []
        for cell in cells:
            file = self._file(cell)
            if not file.exists():
                continue
            try:
                read, outcome = _read(file)
                if read != cell or outcome.roc.shape != shape:
                    raise ValueError("another cell's")
                found[cell] = outcome
            except (ValueError, KeyError, TypeError):
                damaged.append(file)
        if damaged:
            raise MKMCError(
                f"damaged cell files: {', '.join(map(str, damaged))}. Delete them: these cells are "
                "then computed again, and no others."
            )
        return found

    def seconds(self) -> dict[Cell, float]:
        """Return what the completion of each finished cell took; raise where a file is damaged."""
        found = {}
        for file in sorted(self.path.glob("cell_*.json")):
            try:
                cell, outcome = _read(file)
                if file != self._file(cell):
                    raise ValueError("another cell's")
            except (ValueError, KeyError, TypeError) as error:
                raise MKMCError(f"damaged cell file: {file}. Delete it.") from error
            found[cell] = outcome.seconds
        return found

    def _file(self, cell: Cell) -> Path:
        method = quote(cell.completion, safe=" ")
        if len(method) > LONGEST_NAME:
            raise MKMCError(f"methods: {cell.completion!r} is too long to name a file. Shorten it.")
        return self.path / f"cell_{cell.repetition}_{cell.ratio!r}_{method}.json"

    def _write(self, file: Path, content: dict[str, Any]) -> None:
        with replace_file(file) as draft:
            draft.write_text(json.dumps(content, indent=1), encoding="utf-8")


def _plain(value: Any) -> Any:
    """Return `value` in JSON's types; Python writes the shortest text that reads as the float."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | list):
        return [_plain(item) for item in value]
    if isinstance(value, float | np.floating):
        return None if np.isnan(value) else float(value)
    return value


def _read(file: Path) -> tuple[Cell, Outcome]:
    """Return what a cell's file holds; raise ValueError, KeyError or TypeError where it is odd."""
    content = json.loads(file.read_text(encoding="utf-8"))
    cell = Cell(*(content[name] for name in Cell._fields))
    values = {name: content[name] for name in Outcome._fields}
    kinds = (int, float, str, bool, int)
    for name, kind in zip((*Cell._fields, "converged", "evaluations"), kinds, strict=True):
        if type(content[name]) is not kind:
            raise TypeError(name)
    for name in ("roc", "correlation_matrix_distance", "relative_error", "strength", "seconds"):
        values[name] = _numbers(content[name])
    roc, kernels = values["roc"], len(values["roc"]) - 1
    if roc.ndim != 2 or any(values[name].shape != (kernels,) for name in Outcome._fields[1:3]):
        raise ValueError("shapes")
    inside = [(roc >= 0) & (roc <= 1), values["seconds"] >= 0, values["evaluations"] >= 0]
    # NaN where nothing is missing, and where a method has no strength.
    inside += [~(values[name] < 0) for name in Outcome._fields[1:3]] + [~(values["strength"] <= 0)]
    if not all(np.all(part) for part in inside):
        raise ValueError("out of range")
    for name in ("strength", "seconds"):
        values[name] = float(values[name])
    return cell, Outcome(**values)


def _numbers(value: Any) -> NDArray[np.float64]:
    """Return finite numbers in lists as an array, null as NaN; raise TypeError for other types."""
    if isinstance(value, list):
        return np.array([_numbers(item) for item in value], dtype=np.float64)
    if value is None:
        return np.array(np.nan)
    if type(value) not in (int, float) or not math.isfinite(value):
        raise TypeError(repr(value))
    return np.array(value, dtype=np.float64)


def folder_path(given: Any) -> Path:
    """Return a folder's path; raise MKMCError where it is none."""
    if isinstance(given, str | os.PathLike) and "\0" not in os.fspath(given):
        return Path(given)
    raise MKMCError(f"folder: {given!r} found; the name of a folder is needed.")


def make_folder(path: Path) -> None:
    """Make a folder; raise OSError of the kind it is where that cannot be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise type(error)(f"folder: {path} cannot be made ({error}). Name another.") from error
