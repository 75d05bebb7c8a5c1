"""The files of a study: its settings, and one small JSON file for each finished cell."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np

from ..errors import MKMCError
from ..stacks.labels import name_some
from ..utils.files import replace_file
from .cells import Cell, Outcome

#: The version of the files' format.
LAYOUT = 1
SETTINGS = "settings.json"
#: The longest file name of a method that every file system takes.
LONGEST_NAME = 150


def _array(value: Any) -> Any:
    return np.array(value, dtype=np.float64)  # null becomes NaN


#: The values of a cell's file, and what reads them.
NAMES = (*Cell._fields, *Outcome._fields)
KINDS: Any = (int, float, str, *[_array] * 3, lambda value: _array(value).item(), bool, int, float)


class Folder:
    """The files of a study. Each is written as a whole or not at all, a cell's only once."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self, settings: dict[str, Any]) -> None:
        """Write the settings, or compare them with those on record, to which methods are added.

        Raises
        ------
        MKMCError
            If a setting differs, the file is damaged, or there are cells of unknown methods.
        OSError
            If the folder cannot be made.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        file = self.path / SETTINGS
        known = self.settings() if file.exists() else settings | {"methods": {}}
        names = {unquote(path.stem.split("_", 3)[-1]) for path in self.path.glob("cell_*.json")}
        if stray := sorted(names - known["methods"].keys()):
            raise MKMCError(
                f"folder: {self.path} holds cells of method {name_some(stray)}, which is not in "
                f"{SETTINGS}. Delete these cells."
            )
        methods = settings["methods"] | known["methods"]
        pairs = {key: (known.get(key), settings.get(key)) for key in known | settings}
        del pairs["methods"]
        for name, own in settings["methods"].items():
            pairs[f"the definition of method {name!r}"] = (methods[name], own)
        for key, (there, here) in pairs.items():
            if there != here:
                raise MKMCError(
                    f"folder: {self.path} holds cells of other settings: {key} is {there!r} there "
                    f"and {here!r} here. Use another folder."
                )
        if methods != known["methods"]:
            self._write(file, known | {"methods": known["methods"] | methods})

    def settings(self) -> dict[str, Any]:
        """Return the settings on record; raise MKMCError if there are none."""
        file = self.path / SETTINGS
        if not file.is_file():
            raise MKMCError(f"folder: there is no {SETTINGS} in {self.path}. Name another.")
        try:
            known: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            known["methods"].keys()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise MKMCError(f"{file}: damaged ({error}). Use another folder.") from error
        return known

    def save(self, cell: Cell, outcome: Outcome) -> None:
        """Write a finished cell. Floats are written exactly, NaN as null."""
        self._write(self._file(cell), _content(cell, outcome))

    def load(
        self, cells: Iterable[Cell] | None = None, shape: tuple[int, int] | None = None
    ) -> dict[Cell, Outcome]:
        """Return all finished cells, or those of `cells`; `shape` is that of `Outcome.roc`.

        Raises
        ------
        MKMCError
            If files are damaged; it names them.
        """
        files = self.path.glob("cell_*.json") if cells is None else map(self._file, cells)
        found, damaged = {}, []
        for file in filter(Path.exists, files):
            try:
                cell, outcome = self._read(file)
                if shape and outcome.roc.shape != shape:
                    raise ValueError("another study")
                found[cell] = outcome
            except (ValueError, KeyError, TypeError):
                damaged.append(file)
        if damaged:
            raise MKMCError(
                f"damaged cell files: {', '.join(map(str, damaged))}. Delete them to compute "
                "these cells again."
            )
        return found

    def _file(self, cell: Cell) -> Path:
        method = quote(cell.completion, safe=" ")
        if len(method) > LONGEST_NAME:
            raise MKMCError(f"methods: {cell.completion!r} is too long to name a file. Shorten it.")
        return self.path / f"cell_{cell.repetition}_{cell.ratio!r}_{method}.json"

    def _read(self, file: Path) -> tuple[Cell, Outcome]:
        """Return a finished cell; raise ValueError, KeyError or TypeError if `file` is damaged."""
        content = json.loads(file.read_text(encoding="utf-8"))
        values = [kind(content[name]) for name, kind in zip(NAMES, KINDS, strict=True)]
        cell, outcome = Cell(*values[:3]), Outcome(*values[3:])
        roc, *distances = outcome[:3]
        numbers = np.hstack([np.ravel(value) for value in outcome])
        if (
            json.dumps(_content(cell, outcome), sort_keys=True)
            != json.dumps(content, sort_keys=True)  # other types than those written
            or file != self._file(cell)
            or {len(roc) - 1} != {*map(len, distances)}
            or not (roc <= 1).all()
            or np.isinf(numbers).any()
            or (numbers < 0).any()
        ):
            raise ValueError("other types, shapes, numbers or labels than a study writes")
        return cell, outcome

    def _write(self, file: Path, content: dict[str, Any]) -> None:
        with replace_file(file) as draft:
            draft.write_text(json.dumps(content, indent=1), encoding="utf-8")


def _content(cell: Cell, outcome: Outcome) -> Any:
    """Return what a cell's file holds. Python writes the shortest text that reads as the float."""
    text = json.dumps(cell._asdict() | outcome._asdict(), default=lambda array: array.tolist())
    return json.loads(text, parse_constant=lambda _: None)  # NaN is null
