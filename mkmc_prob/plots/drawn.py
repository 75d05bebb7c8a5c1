"""What of a posterior is drawn: entries and their draws, and the values that are set beside them.

Enters: the tree that `sample_posterior` returns, the entries that a person names, a fit, the truth.
Leaves: draws and values of each entry, and what it is called.
"""

from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..diagnostics.fitted import FitResult, as_result
from ..errors import KernelError, LabelError, MKMCError
from ..posterior.run import PosteriorRun
from ..stacks.labels import name_some, positions
from ..stacks.stack import check_labels, check_stack
from ..utils.arguments import real_number


class Entry(NamedTuple):
    """An entry that is drawn; `kernel` is None where it is the model's."""

    kernel: Hashable | None
    pair: tuple[Hashable, Hashable]
    draws: NDArray[np.float64]
    #: Whether the prior alone determines it.
    alone: bool


class Point(NamedTuple):
    """Something with one value for each entry that is drawn, NaN where it has none."""

    what: str
    name: str
    values: NDArray[np.float64]


def drawn_entries(
    posterior: xr.DataTree, run: PosteriorRun, wanted: Any, kernel: Hashable | None, most: int
) -> list[Entry]:
    """Return the entries wanted, in their order and once; at most so many where none is named."""
    objects, names = run.entries.em.objects.tolist(), run.entries.em.names
    found: dict[tuple[str, int], Entry] = {}
    for named in _spread(run, kernel, most) if wanted is None else _listed(wanted, kernel):
        group, place = run.find(named, "entries")
        if (group, place) in found:
            continue
        i, j = (objects.index(label) for label in named[-2:])
        found[group, place] = Entry(
            kernel=names[names.index(named[0])] if len(named) == 3 else None,
            pair=(objects[i], objects[j]),
            draws=np.ravel(run.draws(group, place)),
            alone=bool(run.entries.prior_only[i, j]),
        )
    return list(found.values())


def _listed(wanted: Any, kernel: Hashable | None) -> list[Any]:
    """Return the entries named as a list."""
    if kernel is not None:
        raise KernelError(
            "entries, kernel: both found. Name entries, or the kernel to spread over."
        )
    if isinstance(wanted, str) or not isinstance(wanted, Iterable):
        raise KernelError(
            f"entries: {wanted!r} found; a list of entries is needed: (object, object) for the "
            "model's, (kernel, object, object) for a kernel's."
        )
    listed = list(wanted)
    if not listed:
        raise KernelError("entries: there is nothing to draw. Name at least one.")
    return listed


def _spread(run: PosteriorRun, kernel: Hashable | None, most: int) -> list[tuple[Any, ...]]:
    """Return at most so many hidden entries, evenly spread over those that are kept in full."""
    objects, names = run.entries.em.objects.tolist(), run.entries.em.names
    if kernel is not None and kernel not in names:
        raise LabelError(f"kernel: there is none called {kernel!r}. Choose one of {names}.")
    for places in (run.plan.hidden, np.arange(run.entries.size_hidden)):
        parts = tuple(part[places] for part in run.entries.hidden_pairs())
        if kernel is not None:
            own = parts[0] == names.index(kernel)
            parts = tuple(part[own] for part in parts)
        if len(parts[0]):
            break
    else:
        why = "no kernel hides an" if kernel is None else f"kernel {kernel!r} hides no"
        raise MKMCError(
            f"there is nothing to draw: {why} entry. Name entries of the model: (object, object)."
        )
    at = np.linspace(0, len(parts[0]) - 1, min(most, len(parts[0]))).astype(np.intp)
    triples = zip(*(part[at].tolist() for part in parts), strict=True)
    return [(names[k], objects[i], objects[j]) for k, i, j in triples]


def names_of(run: PosteriorRun, drawn: list[Entry], width: int) -> list[str]:
    """Return what the entries are called: on one line of so many letters, else on two, shortened.

    With quotation marks where names are not unique without.
    """
    model = "model matrix" if "model" in run.entries.em.names else "model"
    for text in (str, repr):
        parts = [
            (model if kernel is None else text(kernel), text(pair[0]), text(pair[1]))
            for kernel, pair, *_ in drawn
        ]
        if len({"{}: {}, {}".format(*part) for part in parts}) == len(parts):
            break
    return [_two_lines(*part, width) for part in parts]


def _two_lines(kernel: str, one: str, other: str, width: int) -> str:
    """Return the name of an entry: the kernel above, the objects below, where one line is short."""
    whole = f"{kernel}: {one}, {other}"
    if len(whole) <= width:
        return whole
    half = (width - 2) // 2
    shorter = _shortened(one, max(half, width - 2 - len(other)))
    other = _shortened(other, max(half, width - 2 - len(one)))
    return f"{_shortened(kernel, width - 1)}:\n{shorter}, {other}"


def _shortened(text: str, width: int) -> str:
    """Return `text`, without its middle where it is longer than so many letters."""
    if len(text) <= width:
        return text
    return f"{text[: width // 2].rstrip()}…{text[len(text) - (width - 1) // 2 :].lstrip()}"


def points_of(
    run: PosteriorRun, drawn: list[Entry], estimate: Any, truth: xr.DataArray | None
) -> list[Point]:
    """Return what is drawn beside the draws: EM's estimate, the truth."""
    points = []
    if estimate is not None:
        result = as_result(estimate)
        _check_labels(run, result.completed, "result")
        values = _values(drawn, result.completed, result.model.covariance)
        other = "" if _is_mode(run, result) else "\n(other prior, ν or data)"
        points.append(Point("estimate", f"EM estimate{other}", values))
    if truth is not None:
        truth = check_stack(truth, what="truth")
        _check_labels(run, truth, "truth")
        values = _values(drawn, truth, None)
        for entry, value in zip(drawn, values, strict=True):
            if np.isnan(value) and entry.kernel is not None:
                raise KernelError(
                    f"truth, kernel {entry.kernel!r}: the entry {entry.pair!r} is missing (NaN). "
                    "Pass the complete stack."
                )
        if not np.isnan(values).all():
            points.append(Point("truth", "truth", values))
    return points


def _values(
    drawn: list[Entry], stack: xr.DataArray, model: xr.DataArray | None
) -> NDArray[np.float64]:
    """Return the values of the entries; NaN for the model's where there is no model."""
    values = np.full(len(drawn), np.nan)
    for i, (kernel, (row, column), *_) in enumerate(drawn):
        where = model if kernel is None else stack.sel(kernel=kernel)
        if where is not None:
            values[i] = where.sel(object=row, object_bis=column)
    return values


def _check_labels(run: PosteriorRun, stack: xr.DataArray, what: str) -> None:
    """Raise LabelError where `stack` has other kernels or objects than the posterior."""
    for dim, found in zip(("kernel", "object"), check_labels(stack, what=what), strict=True):
        known = run.stack[dim].values
        odd = known[positions(known, found) < 0].tolist()
        odd += found[positions(found, known) < 0].tolist()
        if odd:
            raise LabelError(
                f"{what}: its {dim}s are not the posterior's: {name_some(odd)} in one only. Pass "
                "that of the same stack."
            )


def _is_mode(run: PosteriorRun, result: FitResult) -> bool:
    """Return whether a fit is of the posterior's data, prior and degrees of freedom."""
    stack, em = run.stack, run.entries.em
    names, objects = stack["kernel"].values, stack["object"].values
    observed = result.observed.sel(kernel=names, object=objects, object_bis=objects)
    return (
        np.array_equal(observed.transpose(*stack.dims).values, stack.values, equal_nan=True)
        and np.array_equal(result.degrees_of_freedom.sel(kernel=names), em.degrees_of_freedom)
        and result.prior.strength == em.prior.strength
        and np.array_equal(result.prior.scale_matrix(objects), em.prior.scale_matrix(objects))
    )


def probability_of(value: Any, *, above: float) -> float:
    """Return `value` if it is a probability above `above`; raise KernelError otherwise."""
    number = real_number(value)
    if number is None or not above < number < 1.0:
        raise KernelError(
            f"probability: {value!r} found; a number above {above:g} and below 1 is needed."
        )
    return number
