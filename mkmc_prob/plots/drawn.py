"""What is drawn of a posterior: entries with their draws and names, and values to compare."""

from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from ..diagnostics.protocol import FitResult, as_result
from ..errors import KernelError, LabelError, MKMCError
from ..model.sources import Sources
from ..posterior.entries import FORM
from ..posterior.run import PosteriorRun
from ..stacks.labels import name_some
from ..stacks.stack import check_labels, check_stack


class Entry(NamedTuple):
    """An entry that is drawn; `kernel` is None if it is the model's."""

    kernel: Hashable | None
    pair: tuple[Hashable, Hashable]
    draws: NDArray[np.float64]
    #: Whether the prior alone determines it.
    alone: bool


class Point(NamedTuple):
    """Something with one value for each entry that is drawn, NaN if it has none."""

    what: str
    name: str
    values: NDArray[np.float64]


def drawn_entries(
    run: PosteriorRun, wanted: Any, kernel: Hashable | None, most: int
) -> list[Entry]:
    """Return the entries named, once each and in their order, or else at most `most` of them."""
    objects, names = run.entries.em.objects.tolist(), run.entries.em.names
    found: dict[tuple[str, int], Entry] = {}
    for named in _spread(run, kernel, most) if wanted is None else _listed(wanted, kernel):
        group, place = run.find(named, "entries")
        i, j = (objects.index(label) for label in named[-2:])
        k = names.index(named[0]) if len(named) == 3 else None
        of_model, of_kernels = run.entries.prior_only
        entry = Entry(
            kernel=None if k is None else names[k],
            pair=(objects[i], objects[j]),
            draws=run.draws(group, place).ravel(),
            alone=bool(of_model[i, j] if k is None else of_kernels[k, i, j]),
        )
        found.setdefault((group, place), entry)
    return list(found.values())


def _listed(wanted: Any, kernel: Hashable | None) -> list[Any]:
    """Return the named entries as a list."""
    if kernel is not None:
        raise KernelError("entries, kernel: both found. Name entries, or a kernel to select from.")
    if isinstance(wanted, str) or not isinstance(wanted, Iterable):
        raise KernelError(f"entries: {wanted!r} found; a list of entries is needed: {FORM}.")
    listed = list(wanted)
    if not listed:
        raise KernelError("entries: there is nothing to draw. Name at least one.")
    return listed


def _spread(run: PosteriorRun, kernel: Hashable | None, most: int) -> list[tuple[Any, ...]]:
    """Return at most `most` hidden entries, evenly spread over those that are kept in full."""
    objects, names = run.entries.em.objects.tolist(), run.entries.em.names
    if kernel is not None and kernel not in names:
        raise LabelError(f"kernel: there is none called {kernel!r}. Choose one of {names}.")
    entries = np.stack(run.entries.hidden_pairs(), axis=1)
    own = np.full(len(entries), True) if kernel is None else entries[:, 0] == names.index(kernel)
    kept = own & np.isin(np.arange(len(entries)), run.plan.hidden)
    entries = entries[kept if kept.any() else own]
    if not len(entries):
        why = "no kernel hides an" if kernel is None else f"kernel {kernel!r} hides no"
        raise MKMCError(
            f"there is nothing to draw: {why} entry. Name entries of the model: (object, object)."
        )
    at = np.linspace(0, len(entries) - 1, min(most, len(entries))).astype(np.intp)
    return [(names[k], objects[i], objects[j]) for k, i, j in entries[at].tolist()]


def names_of(run: PosteriorRun, drawn: list[Entry], width: int) -> list[str]:
    """Return the entries' names, on one line of `width` letters or else shortened on two.

    They have quotation marks if they would not be unique without.
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
    """Return the name of an entry: on two lines, kernel and objects, if one is too short."""
    whole = f"{kernel}: {one}, {other}"
    if len(whole) <= width:
        return whole
    half = (width - 2) // 2
    shorter = _shortened(one, max(half, width - 2 - len(other)))
    other = _shortened(other, max(half, width - 2 - len(one)))
    return f"{_shortened(kernel, width - 1)}:\n{shorter}, {other}"


def _shortened(text: str, width: int) -> str:
    """Return `text`, without its middle if it has more than `width` letters."""
    if len(text) <= width:
        return text
    return f"{text[: width // 2].rstrip()}…{text[len(text) - (width - 1) // 2 :].lstrip()}"


def points_of(
    run: PosteriorRun, drawn: list[Entry], estimate: Any, truth: xr.DataArray | None
) -> list[Point]:
    """Return what is drawn in addition to the draws: EM's estimate and the truth."""
    points = []
    if estimate is not None:
        result = as_result(estimate)
        _check_labels(run, result.completed, "result")
        values = _values(drawn, result.completed, result.model.covariance)
        other = "" if _of_the_same_model(run, result) else "\n(other prior, ν or data)"
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
    """Return the values of the entries, NaN for the model's if there is no model."""
    values = np.full(len(drawn), np.nan)
    for place, (kernel, (i, j), *_) in enumerate(drawn):
        matrix = model if kernel is None else stack.sel(kernel=kernel)
        if matrix is not None:
            values[place] = matrix.sel(object=i, object_bis=j)
    return values


def _check_labels(run: PosteriorRun, stack: xr.DataArray, what: str) -> None:
    """Raise LabelError if `stack` has other kernels or objects than the posterior."""
    for dim, found in zip(("kernel", "object"), check_labels(stack, what=what), strict=True):
        odd = pd.Index(run.stack[dim].values).symmetric_difference(pd.Index(found), sort=False)
        if len(odd):
            raise LabelError(
                f"{what}: its {dim}s are not the posterior's: {name_some(odd.tolist())} in one "
                "only. Pass that of the same stack."
            )


def _of_the_same_model(run: PosteriorRun, result: FitResult) -> bool:
    """Return whether a fit has the posterior's data, prior, sources and degrees of freedom.

    Constants that are drawn may have any value.
    """
    stack, em = run.stack, run.entries.em
    names, objects = stack["kernel"].values, stack["object"].values
    sources = Sources.of_dataset(result.sources, names.tolist())
    constants = np.where(em.sources.is_estimated, np.nan, sources.constant)
    observed = result.observed.sel(kernel=names, object=objects, object_bis=objects)
    return (
        np.array_equal(observed.transpose(*stack.dims).values, stack.values, equal_nan=True)
        and np.array_equal(result.degrees_of_freedom.sel(kernel=names), em.degrees_of_freedom)
        and result.structure == em.structure
        and sources.with_constants(constants).dataset.equals(em.sources.dataset)
        and result.prior.strength == em.prior.strength
        and np.array_equal(result.prior.scale_matrix(objects), em.prior.scale_matrix(objects))
    )
