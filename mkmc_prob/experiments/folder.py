"""The files of a study: what was computed stays, whatever ends the run.

Enters: settings, and finished cells. Leaves: one small JSON file each, and the cells again. How a
cell is computed is not known here.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from ..errors import MKMCError
from ..files import replace_file
from .cells import Cell, Outcome

#: The layout of the files that `Folder` writes.
LAYOUT = 1
SETTINGS = "settings.json"
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
        self.path = Path(path)

    def open(self, settings: dict[str, Any]) -> None:
        """Put the settings on record, or compare them with those on record.

        New methods, under ``settings["methods"]``, are added.

        Raises
        ------
        MKMCError
            Where a setting differs (it is named), or the file is damaged.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        file = self.path / SETTINGS
        if not file.exists():
            if any(self.path.glob("cell_*.json")):
                raise MKMCError(
                    f"folder: {self.path} holds cells, but no {SETTINGS}, so that nobody can tell "
                    "whose they are. Use another folder."
                )
            self._write(file, settings)
            return
        known = self.settings()
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
        if methods != known["methods"]:
            self._write(file, here)

    def settings(self) -> dict[str, Any]:
        """Return the settings on record; raise MKMCError where there are none to be read."""
        file = self.path / SETTINGS
        if not file.is_file():
            raise MKMCError(
                f"folder: there is no {SETTINGS} in {self.path}. Name a study's folder."
            )
        try:
            known = json.loads(file.read_text(encoding="utf-8"))
            if isinstance(known["methods"], dict):
                return dict(known)
            raise TypeError("methods")
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
    for name in Outcome._fields[:3]:
        values[name] = np.array(values[name], dtype=np.float64)
    strength = values["strength"]
    values["strength"] = np.nan if strength is None else float(strength)
    kernels = len(values["roc"]) - 1
    if any(values[name].shape != (kernels,) for name in Outcome._fields[1:3]):
        raise ValueError("shapes")
    for name, kind in (("converged", bool), ("evaluations", int), ("seconds", float)):
        if type(values[name]) is not kind:
            raise TypeError(name)
    return cell, Outcome(**values)
