"""The files of a study: its settings, and one small JSON file for each finished cell."""

import json
import math
from collections.abc import Callable, Iterable
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
        methods = known["methods"] | settings["methods"]
        here = _flat(settings | {"methods": methods})
        there = _flat(known | {"methods": methods | known["methods"]})
        for key in here | there:
            if here.get(key) != there.get(key):
                raise MKMCError(
                    f"folder: {self.path} holds cells of other settings: {key} is "
                    f"{there.get(key)!r} there and {here.get(key)!r} here. Use another folder."
                )
        if methods != known["methods"]:
            self._write(file, known | {"methods": methods})

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
        kinds: tuple[Callable[[Any], Any], ...]
        kinds = (int, float, str, _array, _array, _array, _number, bool, int, float)
        names = (*Cell._fields, *Outcome._fields)
        values = [kind(content[name]) for kind, name in zip(kinds, names, strict=True)]
        cell, outcome = Cell(*values[:3]), Outcome(*values[3:])
        written = json.dumps(_content(cell, outcome), sort_keys=True)
        if written != json.dumps(content, sort_keys=True) or file != self._file(cell):
            raise ValueError("other types than those written, or another cell")
        roc = outcome.roc
        numbers = np.hstack([np.ravel(value) for value in outcome])
        if roc.ndim != 2 or {len(roc) - 1} != {*map(len, outcome[1:3])}:
            raise ValueError("other shapes")
        if not (roc <= 1).all() or np.isinf(numbers).any() or (numbers < 0).any():
            raise ValueError("numbers out of range")
        return cell, outcome

    def _write(self, file: Path, content: dict[str, Any]) -> None:
        with replace_file(file) as draft:
            draft.write_text(json.dumps(content, indent=1), encoding="utf-8")


def _flat(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings by what an error calls them."""
    methods = {f"the definition of method {n!r}": d for n, d in settings["methods"].items()}
    return {key: value for key, value in settings.items() if key != "methods"} | methods


def _content(cell: Cell, outcome: Outcome) -> dict[str, Any]:
    """Return what a cell's file holds. Python writes the shortest text that reads as the float."""
    return cell._asdict() | {name: _plain(value) for name, value in outcome._asdict().items()}


def _plain(value: Any) -> Any:
    """Return `value` in JSON's types."""
    if isinstance(value, np.ndarray | list):
        return [_plain(item) for item in value]
    if isinstance(value, float | np.floating):
        return None if np.isnan(value) else float(value)
    return value


def _array(value: Any) -> Any:
    return np.array(value, dtype=np.float64)  # null becomes NaN


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)
