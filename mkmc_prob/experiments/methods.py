"""What a study compares: methods that make a complete stack of an incomplete one.

Enters: names, or functions that a person wrote. Leaves: functions by name, and what such a function
returned, checked. Nothing here knows of cells or classes.
"""

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..errors import KernelError, LabelError, MKMCError
from ..evaluation.baselines import mean_impute, zero_impute
from ..fitting.fit import fit
from ..fitting.result import MKMCResult
from ..fitting.selection import STRENGTHS, select_strength
from ..linalg.symmetric import Matrix
from ..stacks.labels import as_labels, name_some, positions
from ..stacks.stack import check_stack, visible_objects
from .definitions import definition

#: lambda in the paper's study.
PAPER_STRENGTH = 0.001
#: What a study compares where nothing else is said.
METHODS = ("mkmc", "mkmc_chosen", "zero", "mean")

Method: TypeAlias = Callable[[xr.DataArray], xr.DataArray | MKMCResult]


def mkmc(
    stack: xr.DataArray,
    *,
    strength: float = PAPER_STRENGTH,
    method: str = "geodesic",
    tol: float = 1e-3,
    max_iter: int = 10_000,
) -> MKMCResult:
    """Complete `stack` by `fit` at one strength, the paper's if left out.

    Parameters
    ----------
    stack
        The incomplete kernels.
    strength, method, tol, max_iter
        As in `fit`.

    Returns
    -------
    MKMCResult

    Raises
    ------
    KeyboardInterrupt
        At Ctrl-C, which `fit` answers with what there is: half a fit is nothing to compare.
    KernelError, LabelError, IndefiniteKernelError, MonotonicityError
        As `fit` does.

    Examples
    --------
    >>> from functools import partial
    >>> from mkmc_prob import datasets, remove_objects
    >>> from mkmc_prob.experiments import mkmc
    >>> kernels, _ = datasets.make_fusion_problem(20, 2)
    >>> stronger = partial(mkmc, strength=1.0)  # a method of one's own for a study
    >>> stronger(remove_objects(kernels, 0.3, seed=0)).converged
    True
    """
    result = fit(stack, strength=strength, method=method, tol=tol, max_iter=max_iter)
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

    The incomplete stack alone decides, by the likelihood of visible objects that are held out:
    neither classes nor missing entries are looked at.

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
        The fit at the strength that was chosen; ``result.prior.strength`` says which.

    Raises
    ------
    KeyboardInterrupt
        At Ctrl-C.
    KernelError, LabelError, IndefiniteKernelError, MonotonicityError
        As `select_strength` and `fit` do.

    Examples
    --------
    >>> from mkmc_prob import datasets, remove_objects
    >>> from mkmc_prob.experiments import mkmc_chosen
    >>> kernels, _ = datasets.make_fusion_problem(20, 2)
    >>> incomplete = remove_objects(kernels, 0.3, seed=0)
    >>> mkmc_chosen(incomplete, strengths=[0.1, 1.0, 10.0], folds=2).prior.strength
    1.0
    """
    chosen = select_strength(
        stack,
        strengths=strengths,
        folds=folds,
        seed=seed,
        method=method,
        tol=selection_tol,
        max_iter=max_iter,
    )
    return mkmc(stack, strength=chosen.best, method=method, tol=tol, max_iter=max_iter)


class NamedMethod(NamedTuple):
    """A method as a study calls it; `built_in` is the name of a built-in one."""

    name: str
    function: Method
    built_in: str | None

    def definition(self) -> str:
        """Return a text that differs where the definition does; see `definitions.definition`."""
        if self.built_in is not None:
            return f"built-in {self.built_in}"
        return definition(self.function, f"methods, {self.name!r}")


def named_methods(
    given: Any, *, strength: float, tol: float, max_iter: int
) -> dict[str, NamedMethod]:
    """Return the methods that `given` means, by name.

    Raises
    ------
    MKMCError
        Where it is not a sequence of built-in names and mappings from a name to a function or a
        built-in name; where a name is repeated, cannot be saved, or is a built-in one that is given
        to another function.
    """
    options = {"tol": tol, "max_iter": max_iter}
    built_in: dict[str, Method] = {
        "mkmc": functools.partial(mkmc, strength=strength, **options),  # type: ignore[arg-type]
        "mkmc_chosen": functools.partial(mkmc_chosen, **options),  # type: ignore[arg-type]
        "zero": zero_impute,
        "mean": mean_impute,
    }
    found: dict[str, NamedMethod] = {}
    for name, what in _pairs(given):
        if not isinstance(name, str) or not name:
            raise MKMCError(f"methods: name {name!r} found; a text is needed.")
        as_labels([name], "methods")  # what cannot be saved is refused now
        if name in found:
            raise MKMCError(f"methods: {name!r} occurs more than once. Give each its own name.")
        if isinstance(what, str) and what in built_in:
            found[name] = NamedMethod(name, built_in[what], what)
        elif callable(what):
            same = [key for key, own in built_in.items() if what is own and key in ("zero", "mean")]
            found[name] = NamedMethod(name, what, same[0] if same else None)
        else:
            known = ", ".join(map(repr, built_in))
            raise MKMCError(
                f"methods: {what!r} found for {name!r}. Built in are {known}; a method of your own "
                "is a mapping from its name to a function that takes and returns a stack."
            )
        if name in built_in and _inner(found[name].function) is not _inner(built_in[name]):
            raise MKMCError(
                f"methods: {name!r} names a built-in method, and reports call it so, but another "
                "one is given for it. Give it a name of its own."
            )
    if not found:
        raise MKMCError("methods: there are none; at least one is needed.")
    return found


def _inner(function: Any) -> Any:
    """Return the function within a partial."""
    return function.func if isinstance(function, functools.partial) else function


def _pairs(given: Any) -> Iterable[tuple[Any, Any]]:
    """Return names and what they stand for; a built-in name stands for itself."""
    if isinstance(given, str | Mapping):
        given = [given]
    try:
        listed = list(given)
    except TypeError as error:
        raise MKMCError(
            f"methods: {given!r} found; names of built-in ones, or a mapping from names to "
            "functions, are needed."
        ) from error
    for item in listed:
        if isinstance(item, Mapping):
            yield from item.items()
        else:
            yield item, item


class Completion(NamedTuple):
    """What a method made of an incomplete stack.

    `model` is None, and `strength` NaN, for a method that has none.
    """

    completed: xr.DataArray
    model: Matrix | None
    strength: float
    converged: bool
    evaluations: int


def read_completion(returned: Any, incomplete: xr.DataArray) -> Completion:
    """Return what a method returned, in the order of the labels of `incomplete`.

    Visible entries may have changed: some methods smooth them.

    Raises
    ------
    KernelError, LabelError
        Where it is neither a stack nor an `MKMCResult`; where the kernels or the objects are other
        ones; where entries are missing, infinite or not symmetric.
    KeyboardInterrupt
        Where it is a fit that Ctrl-C ended.
    """
    stack = returned
    if isinstance(returned, MKMCResult):
        if returned.interrupted:
            raise KeyboardInterrupt
        stack = returned.completed
    stack = check_stack(stack, what="what it returned")
    places = [_places(incomplete, stack, dim) for dim in ("kernel", "object")]
    stack = stack.isel(kernel=places[0], object=places[1], object_bis=places[1])
    for name, seen in zip(
        stack["kernel"].values.tolist(), visible_objects(stack).values, strict=True
    ):
        if not seen.all():
            raise KernelError(
                f"what it returned, kernel {name!r}: {name_some(stack['object'].values[~seen])} "
                "missing (NaN). A method fills in all entries."
            )
    if not isinstance(returned, MKMCResult):
        return Completion(stack, None, math.nan, True, 0)
    place = _places(incomplete, returned.model.covariance, "object")
    return Completion(
        stack,
        returned.model.matrix[np.ix_(place, place)],
        returned.prior.strength,
        returned.converged,
        int(returned.trace["evaluations"][-1]),
    )


def _places(wanted: xr.DataArray, found: xr.DataArray, dim: str) -> Any:
    """Return where the labels of `wanted` stand in `found`; raise where they are not the same."""
    here = positions(wanted[dim].values, found[dim].values)
    there = positions(found[dim].values, wanted[dim].values)
    odd = wanted[dim].values[here < 0].tolist() + found[dim].values[there < 0].tolist()
    if odd:
        raise LabelError(
            f"what it returned: its {dim}s are not those of the stack it got: {name_some(odd)} in "
            "one only. Return the same labels."
        )
    return here
