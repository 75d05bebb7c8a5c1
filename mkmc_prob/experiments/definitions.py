"""What tells one function from another: a short text with a digest of all it consists of.

Enters: a function that a person wrote, or any object that can be called. Leaves: its name and a
digest of its code and of the data it carries, the same in every process. Nothing is called here.
"""

import copyreg
import functools
import hashlib
import inspect
import sys
import types
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import Any

import numpy as np
import xarray as xr

from ..errors import MKMCError
from ..evaluation.missingness import remove_objects

#: Values whose `repr` says all.
_CONSTANTS = (type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented))
#: What `missingness=None` stands for.
PAPER_MISSINGNESS = "built-in remove_objects"


def definition(function: Any, what: str = "function") -> str:
    """Return a text that tells one function from another: its name and a digest of its content.

    Looked at are the code, default arguments, closures, the object of a bound method, the type and
    the attributes of an object that can be called, all arguments of a `functools.partial`; and of
    the globals that the code names, the functions, classes, numbers and texts. Functions of
    installed packages, this one included, are their name and the package's version. The code is
    the compiled one, so the text of one's own function also names the Python version. An object
    that changes as it is called is another one afterwards.

    Parameters
    ----------
    function
        Anything that can be called.
    what
        How an error names it.

    Raises
    ------
    MKMCError
        Where it carries something that cannot be compared, an open file for instance.

    Examples
    --------
    >>> from functools import partial
    >>> from mkmc_prob.experiments.definitions import definition
    >>> definition(partial(max, 0, key=abs)) == definition(partial(max, 0, key=abs))
    True
    >>> definition(lambda stack: stack) == definition(lambda stack: 2 * stack)
    False
    """
    content = _Content()
    function = _without_defaults(function)
    try:
        content.add(function)
    except Exception as error:  # what is pickled may raise anything
        raise MKMCError(
            f"{what}: it carries something that cannot be compared with what another run has "
            f"({type(error).__name__}: {error}), so a folder's cells might not be its own. Pass no "
            "folder, or make it a function at the top of a module that carries nothing."
        ) from error
    python = f", Python {sys.version_info[0]}.{sys.version_info[1]}" if content.compiled else ""
    return f"{name_of(function)} {content.hexdigest()}{python}"


def missingness_definition(missingness: Any) -> str:
    """Return the definition of what removes rows; None is `remove_objects` with its defaults."""
    plain = _without_defaults(missingness)
    if plain is None or plain is remove_objects:
        return PAPER_MISSINGNESS
    return definition(plain, "missingness")


def name_of(function: Any) -> str:
    """Return the name of a function, or of the class of an object that can be called."""
    if isinstance(function, functools.partial):
        return f"partial {name_of(function.func)}"
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def _without_defaults(function: Any) -> Any:
    """Return a partial without the arguments that are the function's defaults anyway."""
    if not isinstance(function, functools.partial) or function.args:
        return function
    try:
        known = inspect.signature(function.func).parameters
    except (TypeError, ValueError):  # some built-in functions have none
        return function
    kept = {
        key: value
        for key, value in function.keywords.items()
        if key not in known or not _same(value, known[key].default)
    }
    return functools.partial(function.func, **kept) if kept else function.func


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and isinstance(one, _CONSTANTS) and repr(one) == repr(other)


class _Content:
    """A digest of values, one after the other. What occurs again is a number, so circles end."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        # The values are held: the id of one that is gone may become another's.
        self._seen: dict[int, tuple[int, Any]] = {}
        #: Whether compiled code was among them, which is another's in another Python version.
        self.compiled = False

    def hexdigest(self) -> str:
        return self._digest.hexdigest()[:16]

    def add(self, value: Any) -> None:
        """Add a value and all that it consists of."""
        if type(value) in _CONSTANTS:
            self._note(type(value).__name__, repr(value))
        elif isinstance(value, tuple) and type(value) is tuple:
            self._several("tuple", value)
        elif isinstance(value, np.ndarray) and type(value) in (np.ndarray, np.memmap):
            self._array(np.asarray(value))
        elif type(value) in (set, frozenset):
            self._note("set", *sorted(map(_alone, value)))
        elif id(value) in self._seen:
            self._note("again", str(self._seen[id(value)][0]))
        else:
            self._seen[id(value)] = (len(self._seen), value)
            self._object(value)

    def _object(self, value: Any) -> None:
        """Add what is not told from another of its kind by its `repr`."""
        if (name := _installed_name(value)) is not None:
            self._note("installed", name)
        elif isinstance(value, functools.partial):
            self._several("partial", (value.func, value.args, value.keywords))
        elif isinstance(value, types.FunctionType):
            self._function(value)
        elif isinstance(value, types.CodeType):
            self._code(value)
        elif isinstance(value, types.MethodType):
            self._several("method", (value.__func__, value.__self__))
        elif isinstance(value, types.BuiltinMethodType) and value.__self__ is not None:
            self._several("method", (value.__name__, value.__self__))
        elif isinstance(value, types.ModuleType):
            self._note("module", value.__name__)
        elif isinstance(value, type):
            self._class(value)
        elif type(value) in (list, dict):
            self._several("list", value) if type(value) is list else self._mapping(value)
        elif isinstance(value, xr.DataArray):
            coords = {str(name): coord.variable for name, coord in value.coords.items()}
            self._several("DataArray", (value.name, value.variable, coords))
        elif isinstance(value, xr.Variable):  # how an index keeps its values is no matter
            self._several("Variable", (value.dims, np.asarray(value.values), dict(value.attrs)))
        elif isinstance(getattr(value, "__wrapped__", None), types.FunctionType):
            self._several("wrapped", (type(value), value.__wrapped__))
        else:
            reduce = copyreg.dispatch_table.get(type(value))
            parts: Any = reduce(value) if reduce else value.__reduce_ex__(4)
            # As pickle would keep it: a name, or maker, arguments, state, items.
            parts = (parts,) if isinstance(parts, str) else parts
            listed = (list(p) if isinstance(p, Iterator) else p for p in parts)
            self._several("object", (type(value).__qualname__, *listed))

    def _note(self, *texts: str) -> None:
        for text in texts:
            raw = text.encode("utf-8", "surrogatepass")
            self._digest.update(f"{len(raw)}:".encode() + raw)

    def _several(self, kind: str, values: Iterable[Any]) -> None:
        listed = list(values)
        self._note(kind, str(len(listed)))
        for value in listed:
            self.add(value)

    def _mapping(self, value: dict[Any, Any]) -> None:
        # Keywords and attributes have no order that matters.
        keys = sorted(value) if all(isinstance(key, str) for key in value) else list(value)
        self._several("dict", ((key, value[key]) for key in keys))

    def _array(self, value: Any) -> None:
        self._note("array", str(value.dtype), str(value.shape))
        if value.dtype.hasobject:
            self._several("entries", value.ravel().tolist())
        else:
            self._note(hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest())

    def _function(self, value: types.FunctionType) -> None:
        self._note("function", value.__qualname__)
        self.add(value.__code__)
        own = {key: item for key, item in vars(value).items() if key != "__wrapped__"}
        self._several("defaults", (value.__defaults__, value.__kwdefaults__, own))
        for cell in value.__closure__ or ():
            try:
                self.add(cell.cell_contents)
            except ValueError:
                self._note("empty cell")
        for name in sorted(_names(value.__code__)):
            found = value.__globals__.get(name)
            if isinstance(found, types.FunctionType | type) or type(found) in _CONSTANTS:
                self._several("global", (name, found))

    def _code(self, value: types.CodeType) -> None:
        self.compiled = True
        parts = (value.co_code, value.co_names, value.co_varnames, value.co_freevars)
        counts = (value.co_argcount, value.co_posonlyargcount, value.co_kwonlyargcount)
        table = value.co_exceptiontable
        self._several("code", (*parts, *counts, value.co_flags, table, value.co_consts))

    def _class(self, value: type) -> None:
        self._note("class", value.__qualname__)
        self._several("bases", value.__bases__)
        for name, member in sorted(vars(value).items()):
            if name in ("__doc__", "__module__", "__firstlineno__"):
                continue
            for part in ("__func__", "fget", "func"):  # static, class, property, cached property
                member = getattr(member, part, member)
            if isinstance(member, types.FunctionType) or type(member) in _CONSTANTS:
                self._several("member", (name, member))


def _alone(value: Any) -> str:
    content = _Content()
    content.add(value)
    return content.hexdigest()


def _names(code: types.CodeType) -> set[str]:
    """Return the names that a function and the functions in it look up."""
    inner = (part for part in code.co_consts if isinstance(part, types.CodeType))
    return set(code.co_names).union(*map(_names, inner))


def _installed_name(value: Any) -> str | None:
    """Return name and version of what an installed module holds under that name, else None."""
    module, name = (getattr(value, part, None) for part in ("__module__", "__qualname__"))
    if not isinstance(module, str) or not isinstance(name, str) or module not in sys.modules:
        return None
    found: Any = sys.modules[module]
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not value:  # a function in a function, or one that bears another's name
        return None
    top = module.partition(".")[0]
    file = PurePath(getattr(sys.modules[module], "__file__", None) or "")
    own = __name__.partition(".")[0]
    if top in sys.stdlib_module_names and top != "__main__":
        return f"{module}.{name}"
    if top != own and not {"site-packages", "dist-packages"} & set(file.parts):
        return None
    version = getattr(sys.modules.get(top), "__version__", "")
    return f"{module}.{name} {version}"
