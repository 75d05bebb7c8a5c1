"""Functions of the model matrix, with values and gradients: entries, correlations, any others."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..errors import KernelError, LabelError
from ..linalg.symmetric import Matrix, Vector
from ..stacks.labels import Labels, as_labels, match
from ..utils.arguments import real_number

#: A function of the model matrix: its weights, or itself.
ModelFunction: TypeAlias = xr.DataArray | Callable[[xr.DataArray], float]

#: Functions of more objects than this are not differentiated numerically, entry by entry.
DIFFERENTIATED = 200
#: The step of central differences, relative to sqrt(M_ii M_jj): the truncation error, of the order
#: step^2, and the rounding error, of the order epsilon / step, are then alike (4e-11).
STEP = float(np.cbrt(np.finfo(np.float64).eps))


class Estimands(NamedTuple):
    """Functions of the model matrix at a model.

    Attributes
    ----------
    names : list
        For messages.
    values : ndarray
    gradients : iterator of ndarray, shape (l, l)
        Symmetric matrices D: the function changes by <D, dM>.
    coords : dict
        The coordinates of a Dataset over ``entry``.
    """

    names: list[Hashable]
    values: Vector
    gradients: Iterator[Matrix]
    coords: dict[str, Any]


def entries_of(
    model: xr.DataArray,
    entries: Iterable[tuple[Hashable, Hashable]] | None,
    together: NDArray[np.bool_],
    *,
    correlation: bool,
    most: int,
) -> Estimands:
    """Return entries of the model matrix, or the correlations of these pairs.

    Parameters
    ----------
    model
        M.
    entries
        Pairs of objects; all that some kernel shows together if None.
    together
        Which pairs some kernel shows together.
    correlation
        Whether M_ij / sqrt(M_ii M_jj) is meant.
    most
        The most objects for which `entries` can be None.

    Raises
    ------
    KernelError, LabelError
        As `standard_errors` does.
    """
    objects, matrix = model["object"].values, model.values
    if entries is None:
        if len(objects) > most:
            raise KernelError(
                f"entries: None, for all of them, is for at most {most} objects; {len(objects)} "
                "found. Name the entries: [(object, object), ...]."
            )
        rows, columns = np.nonzero(np.tril(together, -1 if correlation else 0))
    else:
        rows, columns = _places(entries, objects).T
        _need_together("entries", rows, columns, objects, together)
    values = matrix[rows, columns]
    if correlation:
        if (rows == columns).any():
            label = objects[rows[rows == columns][0]].item()
            raise KernelError(
                f"entries: {(label, label)!r}: the correlation of an object with itself is 1. "
                "Leave it out."
            )
        values = values / np.sqrt(matrix[rows, rows] * matrix[columns, columns])

    def gradients() -> Iterator[Matrix]:
        for i, j, value in zip(rows, columns, values, strict=True):
            gradient = np.zeros_like(matrix)
            size = np.sqrt(matrix[i, i] * matrix[j, j]) if correlation else 1.0
            gradient[i, j] += 0.5 / size
            gradient[j, i] += 0.5 / size
            if correlation:
                gradient[i, i] -= 0.5 * value / matrix[i, i]
                gradient[j, j] -= 0.5 * value / matrix[j, j]
            yield gradient

    one, other = objects[rows], objects[columns]
    names: list[Hashable] = list(zip(one.tolist(), other.tolist(), strict=True))
    coords = {"object": ("entry", one), "object_bis": ("entry", other)}
    return Estimands(names, values, gradients(), coords)


def functions_of(
    model: xr.DataArray, functions: Mapping[str, ModelFunction], together: NDArray[np.bool_]
) -> Estimands:
    """Return functions of the model matrix, by name.

    Raises
    ------
    KernelError, LabelError
        As `standard_errors` does.
    """
    if not isinstance(functions, Mapping) or not functions:
        raise KernelError(
            f"functions: {functions!r} found; a mapping from names to functions is needed."
        )
    names = as_labels(functions, "functions")
    values, gradients = np.empty(len(names)), []
    for k, (name, function) in enumerate(functions.items()):
        what = f"functions, {name!r}"
        if isinstance(function, xr.DataArray):
            gradient = _weights(what, function, model["object"].values)
            values[k] = np.vdot(gradient, model.values)
        elif callable(function):
            values[k], gradient = _differentiated(what, function, model)
        else:
            raise KernelError(
                f"{what}: {type(function).__name__} found; a DataArray of weights or a callable is "
                "needed."
            )
        rows, columns = np.nonzero(gradient)
        _need_together(what, rows, columns, model["object"].values, together)
        gradients.append(gradient)
    return Estimands(names.tolist(), values, iter(gradients), {"entry": names})


def _places(entries: Iterable[tuple[Hashable, Hashable]], objects: Labels) -> NDArray[np.intp]:
    """Return the rows and columns of named entries, shape (number, 2)."""
    form = "a list of (object, object) is needed"
    if isinstance(entries, str | Mapping) or not isinstance(entries, Iterable):
        raise KernelError(f"entries: {entries!r} found; {form}.")
    listed = list(entries)
    if not listed:
        raise KernelError(f"entries: none found; {form}.")
    places = {label: i for i, label in enumerate(objects.tolist())}
    found = []
    for entry in listed:
        if not isinstance(entry, tuple | list) or len(entry) != 2:
            raise KernelError(f"entries: {entry!r} found; {form}.")
        for label in entry:
            try:
                found.append(places[label])
            except (KeyError, TypeError) as error:  # TypeError: not hashable
                raise LabelError(f"entries: there is no object {label!r}.") from error
    return np.array(found, dtype=np.intp).reshape(-1, 2)


def _need_together(
    what: str,
    rows: NDArray[np.intp],
    columns: NDArray[np.intp],
    objects: Labels,
    together: NDArray[np.bool_],
) -> None:
    """Raise KernelError if no kernel shows the objects of one of these entries together."""
    apart = np.flatnonzero(~together[rows, columns])
    if not len(apart):
        return
    i, j = rows[apart[0]], columns[apart[0]]
    hidden = [k for k in (i, j) if not together[k, k]]
    if hidden:
        raise KernelError(
            f"{what}: object {objects[hidden[0]].item()!r} is hidden in every kernel with a "
            "sharing above 0. Its row of the model matrix comes from the prior alone and has no "
            "standard errors. Leave it out."
        )
    raise KernelError(
        f"{what}: no kernel with a sharing above 0 shows {objects[i].item()!r} and "
        f"{objects[j].item()!r} together. The kernels only bound their entry of the model matrix, "
        "and its standard error would be that of the prior. Leave the pair out (from weights by a "
        "0); result.unseen_pairs() gives the bounds."
    )


def _weights(what: str, given: xr.DataArray, objects: Labels) -> Matrix:
    """Return weights over all objects, as a symmetric matrix."""
    dims = ("object", "object_bis")
    if set(given.dims) != {*dims} or not {*dims} <= {*given.indexes}:
        raise KernelError(
            f"{what}: weights of dims {given.dims!r} found; labeled dims {dims!r} are needed."
        )
    given = given.transpose(*dims)
    if given.dtype.kind not in "biuf" or not np.isfinite(given.values).all():
        raise KernelError(f"{what}: not all weights are finite real numbers. Replace them.")
    unknown = f"{what}: there is no object {{}}. Remove it from the weights."
    places = [
        match(as_labels(given[dim].values, f"{what}, {dim}"), objects, unknown) for dim in dims
    ]
    weights = np.zeros((len(objects), len(objects)))
    weights[np.ix_(*places)] = given.values
    return 0.5 * (weights + weights.T)


def _differentiated(
    what: str, function: Callable[[xr.DataArray], float], model: xr.DataArray
) -> tuple[float, Matrix]:
    """Return the value of a function and its gradient by central differences."""
    size = model.sizes["object"]
    if size > DIFFERENTIATED:
        raise KernelError(
            f"{what}: a callable is differentiated for at most {DIFFERENTIATED} objects; {size} "
            "found. Pass its gradient at result.model.covariance, as a DataArray of weights."
        )

    def evaluate(matrix: Matrix) -> float:
        returned: Any = function(model.copy(data=matrix))
        array = isinstance(returned, np.ndarray | xr.DataArray) and returned.ndim == 0
        number = real_number(returned.item() if array else returned)
        if number is None:
            raise KernelError(f"{what}: it returns {returned!r}; a finite number is needed.")
        return number

    value = evaluate(model.values.copy())
    deviations = np.sqrt(np.diagonal(model.values))
    # If a function does not depend on an entry, differences of this size are its rounding.
    rounding = 4.0 * float(np.finfo(np.float64).eps) * abs(value)
    gradient = np.zeros((size, size))
    for i, j in zip(*np.tril_indices(size), strict=True):
        ends, step = [], STEP * float(deviations[i] * deviations[j])
        for moved in (step, -step):
            matrix = model.values.copy()
            matrix[i, j] += moved
            matrix[j, i] = matrix[i, j]
            ends.append(evaluate(matrix))
        difference = ends[0] - ends[1]
        if abs(difference) > rounding:
            slope = difference / (2.0 * step)
            gradient[i, j] = gradient[j, i] = slope if i == j else 0.5 * slope
    return value, gradient
