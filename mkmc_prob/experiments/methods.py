"""The methods that a study compares: built-in ones, and functions of the user."""

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..em.problem import problem_of
from ..errors import MKMCError
from ..evaluation.baselines import mean_impute, zero_impute
from ..evaluation.missingness import remove_objects
from ..evaluation.scores import aligned
from ..fitting.result import MKMCResult
from ..fitting.solve import solve
from ..fitting.strengths import STRENGTHS, score_strengths
from ..linalg.symmetric import Matrix
from ..model.prior import WishartPrior
from ..stacks.labels import as_labels, name_some
from ..stacks.pattern import warn_of_what_is_not_identified
from ..stacks.stack import check_complete, visible_objects

#: lambda of the paper's study.
PAPER_STRENGTH = 0.001
#: The built-in methods.
METHODS = ("mkmc", "mkmc_chosen", "zero", "mean")

Method: TypeAlias = Callable[[xr.DataArray], xr.DataArray | MKMCResult]


def mkmc(
    stack: xr.DataArray,
    *,
    strength: float = PAPER_STRENGTH,
    sources: str = "identical",
    method: str = "geodesic",
    tol: float = 1e-3,
    max_iter: int = 10_000,
) -> MKMCResult:
    """Complete `stack` as `fit` does at one strength, by default by the paper's model.

    Parameters
    ----------
    stack
        The incomplete kernels.
    strength, sources, method, tol, max_iter
        As in `fit`; "identical" is the paper's model.

    Returns
    -------
    MKMCResult

    Raises
    ------
    KeyboardInterrupt
        On Ctrl-C; `fit` itself returns the model it has reached, which would be a false comparison.
    KernelError, LabelError, IndefiniteKernelError, MonotonicityError
        As raised by `fit`.

    Examples
    --------
    >>> from functools import partial
    >>> from mkmc_prob import datasets, remove_objects
    >>> from mkmc_prob.experiments import mkmc
    >>> kernels, _ = datasets.make_fusion_problem(20, 2)
    >>> stronger = partial(mkmc, strength=1.0)  # a method for a study
    >>> stronger(remove_objects(kernels, 0.3, seed=0)).converged
    True
    """
    problem = problem_of(stack, WishartPrior(strength), sources=sources)
    warn_of_what_is_not_identified(visible_objects(problem.stack.array))
    result = MKMCResult.of(solve(problem, method=method, tol=tol, max_iter=max_iter))
    if result.interrupted:
        raise KeyboardInterrupt
    return result


def mkmc_chosen(
    stack: xr.DataArray,
    *,
    strengths: Sequence[float] | NDArray[np.float64] = STRENGTHS,
    folds: int = 5,
    seed: int = 0,
    selection_tol: float = 1e-2,
    method: str = "geodesic",
    tol: float = 1e-3,
    max_iter: int = 10_000,
) -> MKMCResult:
    """Complete `stack` by `fit` at the strength that `select_strength` finds best for it.

    The choice depends on the incomplete stack alone, by the likelihood of visible objects that are
    held out. It uses neither the classes nor the missing entries.

    Parameters
    ----------
    stack
        The incomplete kernels.
    strengths, folds, seed
        As in `select_strength`.
    selection_tol
        The tolerance of the fits that score the strengths, in nats.
    method, tol, max_iter
        As in `fit`.

    Returns
    -------
    MKMCResult
        The fit at the chosen strength, ``result.prior.strength``.

    Raises
    ------
    KeyboardInterrupt
        On Ctrl-C.
    KernelError, LabelError, IndefiniteKernelError, MonotonicityError
        As raised by `select_strength` and `fit`.

    Examples
    --------
    >>> from mkmc_prob import datasets, remove_objects
    >>> from mkmc_prob.experiments import mkmc_chosen
    >>> kernels, _ = datasets.make_fusion_problem(20, 2)
    >>> incomplete = remove_objects(kernels, 0.3, seed=0)
    >>> mkmc_chosen(incomplete, strengths=[0.1, 1.0, 10.0], folds=2).prior.strength
    1.0
    """
    options: dict[str, Any] = {"method": method, "max_iter": max_iter}
    choosing: dict[str, Any] = {"strengths": strengths, "folds": folds, "seed": seed}
    best = score_strengths(stack, tol=selection_tol, **choosing, **options).best
    return mkmc(stack, strength=best, tol=tol, **options)


#: A method, and the text by which a folder recognizes it.
NamedMethod: TypeAlias = tuple[Method, str]


def definition(function: Any) -> str:
    """Return the name and the version of a function: what a folder records of it.

    None means `remove_objects`, the default of a study's `missingness`. The version is the
    function's attribute ``version``, if it has one. Of a `functools.partial` the arguments are
    recorded, too: numbers, text and tuples by value, others by type.

    Examples
    --------
    >>> from functools import partial
    >>> from mkmc_prob.experiments.methods import definition, mkmc
    >>> definition(partial(mkmc, strength=1.0))
    'mkmc_prob.experiments.methods.mkmc(strength=1.0)'
    >>> def soft(stack): ...
    >>> soft.version = "2"
    >>> definition(soft).endswith("soft, version 2")
    True
    """
    if function is None or function is remove_objects:
        return "built-in remove_objects"
    inner, given = function, ""
    if isinstance(function, functools.partial):
        inner = function.func
        keywords = [f"{key}={_value(value)}" for key, value in sorted(function.keywords.items())]
        given = f"({', '.join([*map(_value, function.args), *keywords])})"
    named = inner if hasattr(inner, "__qualname__") else type(inner)
    version = getattr(function, "version", "") or getattr(inner, "version", "")
    return f"{named.__module__}.{named.__qualname__}{given}" + (version and f", version {version}")


def _value(argument: Any) -> str:
    simple = isinstance(argument, bool | int | float | str | tuple | None)
    return repr(argument) if simple else type(argument).__name__


def named_methods(
    given: Any, *, strength: float, tol: float, max_iter: int
) -> dict[str, NamedMethod]:
    """Return the methods that `given` specifies, by name.

    Raises
    ------
    MKMCError
        If it is not a sequence of built-in names and of mappings from a name to a function or a
        built-in name; if a name is repeated, cannot be saved, or is a built-in one that is given to
        another function.
    """
    options: dict[str, Any] = {"tol": tol, "max_iter": max_iter}
    built_in: dict[str, Any] = {
        "mkmc": functools.partial(mkmc, strength=strength, **options),
        "mkmc_chosen": functools.partial(mkmc_chosen, **options),
        "zero": zero_impute,
        "mean": mean_impute,
    }
    found: dict[str, NamedMethod] = {}
    single = isinstance(given, str | Mapping) or not isinstance(given, Iterable)
    listed = [given] if single else given
    items = (item.items() if isinstance(item, Mapping) else [(item, item)] for item in listed)
    pairs = list(itertools.chain.from_iterable(items))
    if odd := [name for name, _ in pairs if not isinstance(name, str) or not name]:
        raise MKMCError(f"methods: name {odd[0]!r} found; a text is needed.")
    as_labels([name for name, _ in pairs], "methods")
    for name, what in pairs:
        function = built_in.get(what, what) if isinstance(what, str) else what
        if not callable(function):
            raise MKMCError(
                f"methods: {what!r} found for {name!r}; a function of a stack is needed, or one of "
                f"the built-in {name_some(METHODS)}."
            )
        if name in built_in and _inner(function) is not _inner(built_in[name]):
            raise MKMCError(
                f"methods: {name!r} is the name of a built-in method. Give the other one a name of "
                "its own."
            )
        found[name] = function, f"built-in {what}" if isinstance(what, str) else definition(what)
    if not found:
        raise MKMCError("methods: there are none; at least one is needed.")
    return found


def _inner(function: Any) -> Any:
    """Return the function within a partial."""
    return getattr(function, "func", function)


class Completion(NamedTuple):
    """What a method made of an incomplete stack; without a fit, `model` is None, `strength` NaN."""

    completed: xr.DataArray
    model: Matrix | None = None
    strength: float = math.nan
    converged: bool = True
    evaluations: int = 0


def read_completion(returned: Any, incomplete: xr.DataArray) -> Completion:
    """Check what a method returned, and bring it into the order of the labels of `incomplete`.

    Visible entries may have changed: some methods smooth them.

    Raises
    ------
    KernelError, LabelError
        If it is neither a complete stack of the same kernels and objects nor an `MKMCResult`.
    KeyboardInterrupt
        If it is a fit that was interrupted.
    """
    fitted = isinstance(returned, MKMCResult)
    if fitted and returned.interrupted:
        raise KeyboardInterrupt
    stack = returned.completed if fitted else returned
    what, remedy = "what it returned", "A method fills in all entries."
    stack = check_complete(stack, what=what, remedy=remedy)
    stack = aligned(stack, incomplete, what, "the stack it got")
    if not fitted:
        return Completion(stack)
    model = returned.model.covariance.sel(object=stack["object"], object_bis=stack["object_bis"])
    evaluations = int(returned.trace["evaluations"][-1])
    return Completion(stack, model.values, returned.prior.strength, returned.converged, evaluations)
