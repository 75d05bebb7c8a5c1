"""Stacks of kernels: incomplete kernel matrices aligned by label in one array, and their checks.

A stack has dims ``(kernel, object, object_bis)``; hidden objects have rows and columns of NaN.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from ..errors import KernelError, LabelError, warn
from ..linalg.blocks import Indices
from ..linalg.lazy import MOST_ENTRIES, is_lazy
from ..utils.memory import check_memory, in_words
from .labels import Labels, as_labels, lookalike, name_some
from .matrix import LabeledMatrix, check_rows_are_columns, input_eps, visible_block
from .visibility import visible_row

DIMS = ("kernel", "object", "object_bis")
TOO_LARGE = (
    "Pass kernels that are not in memory: dask, zarr or memory-mapped arrays, or kernels.Features."
)

#: The largest ratio of the kernels' mean diagonals without a warning.
SCALE_FACTOR = 10.0


def check_stack(stack: xr.DataArray, *, what: str = "stack") -> xr.DataArray:
    """Return a copy of `stack`, checked in the same way as the kernels of `stack_kernels`.

    Stacks are ordinary arrays, which users may have subset or modified, so every public function
    checks them first. The name, the attributes and other coordinates are kept; the order of the
    dims is restored.

    Raises
    ------
    KernelError, LabelError
        If `stack` is not a valid stack, as for `stack_kernels`.
    """
    names, objects = check_labels(stack, what=what)
    if is_lazy(stack.data) and stack.size > MOST_ENTRIES:
        raise KernelError(
            f"{what}: {len(names)} kernels of {len(objects)} objects, "
            f"{in_words(8.0 * stack.size)}, are not in memory, which this needs. Take some "
            "objects: .sel(object=some, object_bis=some)."
        )
    stack = stack.transpose(*DIMS)
    eps = input_eps(stack)
    parts = [
        LabeledMatrix(f"kernel {name!r}", values, objects, own)
        for name, values, own in zip(names.tolist(), stack.values, eps, strict=True)
    ]
    checked = align(names, parts, objects, None)
    checked.name = checked.name if stack.name is None else stack.name
    checked.attrs.update(stack.attrs)
    more = {name: stack.coords[name].variable for name in stack.coords.keys() - checked.coords}
    return checked.assign_coords(more)


def check_complete(stack: xr.DataArray, *, what: str, remedy: str) -> xr.DataArray:
    """Return a copy of `stack`, checked; raise KernelError if an object is hidden in a kernel."""
    stack = check_stack(stack, what=what)
    for name, visible in visible_objects(stack).to_pandas().iterrows():
        if not visible.all():
            hidden = name_some(visible.index[~visible].tolist())
            raise KernelError(f"{what}, kernel {name!r}: {hidden} hidden (NaN). {remedy}")
    return stack


def not_in_memory(what: str, stack: Any) -> KernelError:
    """Return the error that a function needs the kernels of a `LazyStack` in memory."""
    return KernelError(
        f"{what}: its kernels are not in memory, which this needs. Pass stack.load(objects) with "
        f"some of the {len(stack.objects)} objects; fit takes all with a structure of few factors, "
        "like structure=PPCA(20)."
    )


def check_labels(stack: xr.DataArray, *, what: str = "stack") -> tuple[Labels, Labels]:
    """Return the checked labels of the kernels and of the objects of `stack`."""
    if not getattr(stack, "in_memory", True):
        raise not_in_memory(what, stack)
    if not isinstance(stack, xr.DataArray):
        raise KernelError(
            f"{what}: a labeled stack (xarray.DataArray) is expected, not "
            f"{type(stack).__name__}. Build one with stack_kernels(...)."
        )
    if set(stack.dims) != set(DIMS):
        raise LabelError(
            f"{what}: dims {tuple(stack.dims)} found, {DIMS} expected. Build it with "
            "stack_kernels(...); use sel(kernel=[name]) to select one kernel and keep the dim."
        )
    for dim in DIMS:
        if dim not in stack.indexes:
            raise LabelError(f"{what}: no labels on {dim!r}. Build it with stack_kernels(...).")
    names, objects, other = (as_labels(stack.indexes[dim], f"{what}, {dim} labels") for dim in DIMS)
    remedy = "Select the same objects on object and object_bis."
    check_rows_are_columns(objects, other, what, remedy=remedy)
    for dim, labels in (("kernels", names), ("objects", objects)):
        if not len(labels):
            raise KernelError(f"{what}: there are no {dim}; at least one is needed.")
    return names, objects


def visible_objects(stack: xr.DataArray) -> xr.DataArray:
    """Return which objects are visible in each kernel: bool, dims ``(kernel, object)``.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import stack_kernels, visible_objects
    >>> stack = stack_kernels(np.ones((1, 2, 2)), visible=[[1, 0]])
    >>> visible_objects(stack).values
    array([[ True, False]])
    """
    if hasattr(stack, "in_memory"):
        return stack.shown  # type: ignore[no-any-return]
    names, objects = check_labels(stack)
    if is_lazy(stack.data) and "visible" in stack.coords:
        shown = stack["visible"].transpose(*DIMS[:2]).values  # nothing is read
    else:
        values = stack.transpose(*DIMS).values
        shown = ~np.isnan(np.diagonal(values, axis1=1, axis2=2))
    return visibility(names, objects, shown)


def visibility(names: Labels, objects: Labels, visible: NDArray[np.bool_]) -> xr.DataArray:
    """Return which objects are visible in each kernel, labeled."""
    return xr.DataArray(
        visible,
        dims=DIMS[:2],
        coords={"kernel": names, "object": objects},
        name="visible",
    )


def warn_of_scales(stack: xr.DataArray) -> None:
    """Warn if the mean diagonals of the kernels differ by more than a factor of 10."""
    names = pd.Index(stack["kernel"].values.tolist(), dtype=object)
    diagonals = pd.DataFrame(np.diagonal(stack.values, axis1=1, axis2=2), index=names)
    scale = diagonals.mean(axis=1).dropna()
    if scale.max() > SCALE_FACTOR * max(scale.min(), 0.0):
        warn(
            f"the kernels' scales differ by more than a factor of {SCALE_FACTOR:g}: the mean "
            f"diagonal of {scale.idxmax()!r} is {scale.max():.3g}, of {scale.idxmin()!r} "
            f"{scale.min():.3g}. The paper's model follows the largest. Use fit with "
            'sources="adaptive", its default, or normalize(stack), which gives them the same scale.'
        )


def align(
    names: Labels, parts: list[LabeledMatrix], order: Labels | None, table: pd.DataFrame | None
) -> xr.DataArray:
    """Check each kernel and write it to the rows and columns of its objects among all objects."""
    order = common_order(parts, order)
    size = len(order)
    check_memory(8.0 * len(parts) * size**2, f"a stack of {size} objects", TOO_LARGE)
    values = np.full((len(parts), size, size), np.nan)
    for k, (name, part) in enumerate(zip(names.tolist(), parts, strict=True)):
        places = places_among(order, part)
        row = None if table is None else visible_row(table, name, part.objects)
        block, visible = visible_block(part, row)
        values[k][np.ix_(places[visible], places[visible])] = block
    meaning = "machine epsilon of the precision in which the kernel came"
    eps = [part.eps for part in parts]
    return xr.DataArray(
        values,
        dims=DIMS,
        coords={
            "kernel": names,
            "object": order,
            "object_bis": order,
            "rounding": ("kernel", eps, {"long_name": meaning}),
        },
        name="kernels",
        attrs={"long_name": "kernel matrices, NaN for hidden objects"},
    )


def common_order(parts: Sequence[Any], order: Labels | None) -> Labels:
    """Return `order`, or all objects of the parts; raise LabelError if their labels do not mix."""
    kinds = {part.objects.dtype.kind: part for part in parts if len(part.objects)}
    if len(kinds) > 1:
        text, whole = kinds["U"], kinds["i"]
        raise LabelError(
            f"objects: labels of mixed types, text in {text.what} ({text.objects.tolist()[0]!r}) "
            f"and integers in {whole.what} ({whole.objects.tolist()[0]!r}). Convert them all with "
            "str() or all with int()."
        )
    if order is None:
        union = dict.fromkeys(label for part in parts for label in part.objects.tolist())
        order = as_labels(union, "objects")
    if not len(order):
        raise KernelError("kernels: there are no objects; at least one is needed.")
    return order


def places_among(order: Labels, part: Any) -> Indices:
    """Return the positions of a kernel's objects among all; raise LabelError if one is absent."""
    places = pd.Index(order).get_indexer(pd.Index(part.objects))
    absent = part.objects[places < 0].tolist()
    if absent:
        other = lookalike(absent[0], order)
        renamed = "" if other is None else f", or rename them, if {absent[0]!r} is {other!r}"
        raise LabelError(
            f"objects: {name_some(absent)} of {part.what} are not among them. Add them, or "
            f"drop them from the kernel{renamed}."
        )
    return places
