"""Labelled kernel stacks: align incomplete kernel matrices by label and check them once.

Enters: K square matrices over (subsets of) the same objects, labelled or plain. Leaves: one
`xarray.DataArray` with dims ``(kernel, object, object_bis)``, float64, exactly symmetric, whole
rows and columns of NaN where an object is missing. Every other room takes such a stack.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from ..errors import KernelError, LabelError, warn
from ..linalg.rounding import eps_of
from .labels import Labels, as_labels, lookalike, name_some, positions, union, warn_of_lookalikes
from .matrix import (
    LabelledMatrix,
    as_array,
    check_matrix,
    check_rows_are_columns,
    check_square,
    frame_values,
)
from .visibility import as_mask, visibility_table, visible_row

DIMS = ("kernel", "object", "object_bis")


#: Kernels whose mean diagonals differ by more than this factor are warned about.
SCALE_FACTOR = 10.0


def stack_kernels(
    kernels: Mapping[Any, Any] | ArrayLike | xr.DataArray,
    *,
    objects: Iterable[Hashable] | None = None,
    names: Iterable[Hashable] | None = None,
    visible: ArrayLike | xr.DataArray | pd.DataFrame | None = None,
) -> xr.DataArray:
    """Align kernel matrices by label into one stack, NaN where an object is missing.

    Equations :eq:`eq-partition` and :eq:`eq-observed` of the derivation.

    Parameters
    ----------
    kernels
        One of

        - a mapping from kernel names to labelled square matrices (`pandas.DataFrame`,
          `xarray.DataArray`) that may cover different objects in different orders,
        - a mapping from kernel names to plain square arrays that all cover the same objects,
        - one array of shape (K, l, l), or a stack made before.

        An object is missing from a kernel that has no row for it, or whose row and column for it
        are wholly NaN (pandas' NA and masked entries count as NaN).
    objects
        For labelled matrices: the order of the objects; it may add objects and must contain all.
        For plain arrays: the labels of their axes, 0 to l - 1 if left out. All text or all
        integers.
    names
        For an array of shape (K, l, l): the names of the kernels, ``"Q1"`` to ``"QK"`` (as in the
        paper) if left out.
    visible
        Shape (K, l), entries 0/1 or bool: which objects each kernel sees. What stands in the rows
        and columns of the others is ignored. A `DataFrame` or labelled `DataArray` (kernels x
        objects) is aligned by its labels; for labelled matrices it must be one.

    Returns
    -------
    xarray.DataArray
        Dims ``("kernel", "object", "object_bis")``, float64, each kernel exactly symmetric, with
        a coordinate ``rounding(kernel)``: the machine epsilon of the precision the kernel came in.

    Raises
    ------
    KernelError
        Where a matrix is not square, not numeric, not symmetric (beyond ``1e-8`` of its largest
        entry, or 16 roundings of the precision it came in if that is more), has infinite entries,
        a row that is only partly NaN or a negative diagonal; where there is no kernel or no
        object; where `visible` has the wrong shape or other entries than 0 and 1, or sees what a
        kernel does not have.
    LabelError
        Where labels are repeated, of mixed types, or do not match.

    Warns
    -----
    MKMCWarning
        Where the kernels' mean diagonals differ by more than a factor of 10: the model then
        follows the largest.

    Examples
    --------
    >>> import pandas as pd
    >>> from mkmc_prob import stack_kernels
    >>> a = pd.DataFrame([[2.0, 1.0], [1.0, 2.0]], index=["x", "y"], columns=["x", "y"])
    >>> b = pd.DataFrame([[1.0, 0.3], [0.3, 1.0]], index=["z", "y"], columns=["z", "y"])
    >>> stack = stack_kernels({"a": a, "b": b})
    >>> stack.sizes
    Frozen({'kernel': 2, 'object': 3, 'object_bis': 3})
    >>> stack.sel(kernel="b").values
    array([[nan, nan, nan],
           [nan, 1. , 0.3],
           [nan, 0.3, 1. ]])
    """
    if isinstance(kernels, xr.DataArray) and kernels.ndim == 3:
        found, _ = check_labels(kernels, what="kernels")
        kernels = kernels.assign_coords(rounding=("kernel", _input_eps(kernels)))
        kernels = {name: kernels.sel(kernel=name) for name in found.tolist()}
    if isinstance(kernels, Mapping):
        if names is not None:
            raise LabelError("names: the kernels are named already. Leave it out.")
        labels = as_labels(kernels, "the kernels' names")
        matrices = list(kernels.values())
    else:
        matrices = _unnamed(kernels)
        default = [f"Q{k + 1}" for k in range(len(matrices))]
        labels = as_labels(default if names is None else names, "names")
        if len(labels) != len(matrices):
            raise LabelError(f"names: {len(labels)} names for {len(matrices)} kernels.")
    if not matrices:
        raise KernelError("kernels: there are no kernels; at least one is needed.")
    order = None if objects is None else as_labels(objects, "objects")
    if all(_is_labelled(matrix) for matrix in matrices):
        parts = _from_labelled(labels, matrices, visible)
    elif not any(_is_labelled(matrix) for matrix in matrices):
        parts = _from_plain(labels, matrices, order, visible)
    else:
        raise LabelError(
            "kernels: some matrices are labelled and some are plain arrays, which cannot be "
            "aligned. Label all of them (pandas.DataFrame) or none."
        )
    stack = _align(parts, order)
    warn_of_scales(stack)
    return stack


def check_stack(stack: xr.DataArray, *, what: str = "stack") -> xr.DataArray:
    """Return a copy of `stack`, checked as `stack_kernels` checks what it builds.

    Stacks are ordinary arrays that a person may have cut or computed with, so every function that
    takes one looks at it first. Name, attributes and further coordinates are kept; the order of
    the dims is restored.

    Raises
    ------
    KernelError, LabelError
        As `stack_kernels` does.
    """
    names, objects = check_labels(stack, what=what)
    stack = stack.transpose(*DIMS)
    eps = _input_eps(stack)
    matrices = [
        check_matrix(LabelledMatrix(name, values, objects, None), rounding)
        for name, values, rounding in zip(names.tolist(), stack.values, eps, strict=True)
    ]
    checked = _build(names, objects, np.stack(matrices), eps)
    checked.name = checked.name if stack.name is None else stack.name
    checked.attrs.update(stack.attrs)
    more = {name: stack.coords[name].variable for name in stack.coords.keys() - checked.coords}
    return checked.assign_coords(more)


def check_complete(stack: xr.DataArray, *, what: str, remedy: str) -> xr.DataArray:
    """Return a copy of `stack`, checked; raise where an object is missing from a kernel."""
    stack = check_stack(stack, what=what)
    seen = visible_objects(stack).values
    for name, row in zip(stack["kernel"].values.tolist(), seen, strict=True):
        if not row.all():
            raise KernelError(
                f"{what}, kernel {name!r}: {name_some(stack['object'].values[~row])} missing "
                f"(NaN). {remedy}"
            )
    return stack


def check_labels(stack: xr.DataArray, *, what: str = "stack") -> tuple[Labels, Labels]:
    """Return the labels of the kernels and of the objects of `stack`, checked."""
    if not isinstance(stack, xr.DataArray):
        raise KernelError(
            f"{what}: a labelled stack (xarray.DataArray) is expected, not "
            f"{type(stack).__name__}. Build one with stack_kernels(...)."
        )
    if set(stack.dims) != set(DIMS):
        raise LabelError(
            f"{what}: dims {tuple(stack.dims)} found, {DIMS} expected. Build it with "
            "stack_kernels(...); to select one kernel and keep the dim, sel(kernel=[name])."
        )
    for dim in DIMS:
        if dim not in stack.indexes:
            raise LabelError(f"{what}: no labels on {dim!r}. Build it with stack_kernels(...).")
    names = as_labels(stack.indexes["kernel"], f"{what}, kernels")
    objects = as_labels(stack.indexes["object"], f"{what}, objects")
    other = as_labels(stack.indexes["object_bis"], f"{what}, object_bis")
    if not len(names):
        raise KernelError(f"{what}: there are no kernels; at least one is needed.")
    check_rows_are_columns(objects, other, what, remedy="Select on object and object_bis alike.")
    if not len(objects):
        raise KernelError(f"{what}: there are no objects; at least one is needed.")
    return names, objects


def visible_objects(stack: xr.DataArray) -> xr.DataArray:
    """Return which objects each kernel of `stack` sees: bool, dims ``(kernel, object)``.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import stack_kernels, visible_objects
    >>> stack = stack_kernels(np.ones((1, 2, 2)), visible=[[1, 0]])
    >>> visible_objects(stack).values
    array([[ True, False]])
    """
    names, objects = check_labels(stack)
    stack = stack.transpose(*DIMS)
    seen = ~np.isnan(np.diagonal(stack.values, axis1=1, axis2=2))
    return xr.DataArray(
        seen,
        dims=DIMS[:2],
        coords={"kernel": names, "object": objects},
        name="visible",
    )


def warn_of_scales(stack: xr.DataArray) -> None:
    """Warn where the mean diagonals of the kernels differ by more than a factor of 10."""
    names = stack["kernel"].values.tolist()
    diagonals = np.diagonal(stack.values, axis1=1, axis2=2)
    seen = ~np.isnan(diagonals)
    scale = {
        name: float(diagonal[there].mean())
        for name, diagonal, there in zip(names, diagonals, seen, strict=True)
        if there.any()
    }
    if not scale:
        return
    largest, smallest = max(scale, key=scale.__getitem__), min(scale, key=scale.__getitem__)
    if scale[largest] > SCALE_FACTOR * max(scale[smallest], 0.0):
        warn(
            f"the kernels' scales differ by more than a factor of {SCALE_FACTOR:g}: the mean "
            f"diagonal of {largest!r} is {scale[largest]:.3g}, of {smallest!r} "
            f"{scale[smallest]:.3g}. The model follows the largest; normalize(stack) puts them "
            "on one scale."
        )


def _unnamed(kernels: Any) -> list[Any]:
    """Return the kernels of an array of shape (K, l, l), or of a list of plain matrices."""
    if isinstance(kernels, Sequence) and any(_is_labelled(matrix) for matrix in kernels):
        raise LabelError(
            "kernels: labelled matrices without names. Pass a mapping from names to matrices."
        )
    if isinstance(kernels, Sequence) and not isinstance(kernels, str):
        matrices = [as_array(matrix, f"kernels[{k}]") for k, matrix in enumerate(kernels)]
    else:
        array = as_array(kernels, "kernels")
        matrices = list(array) if array.ndim else [array]
    for k, matrix in enumerate(matrices):
        if matrix.ndim != 2:
            raise KernelError(
                f"kernels[{k}]: shape {matrix.shape} is not a matrix; kernels has shape (K, l, l). "
                "A single matrix goes into a mapping, {name: Q}."
            )
    return matrices


def _is_labelled(matrix: Any) -> bool:
    if isinstance(matrix, xr.DataArray):
        return matrix.ndim == 2 and len(matrix.indexes) > 0
    return isinstance(matrix, pd.DataFrame)


def _from_labelled(names: Labels, matrices: list[Any], visible: Any) -> Iterator[LabelledMatrix]:
    table = visibility_table(visible)
    if table is None and visible is not None:
        raise LabelError(
            "visible: with labelled kernels it must say which objects it means. Pass a "
            "DataFrame (kernels x objects), or leave it out: what a kernel lacks is missing."
        )
    for name, matrix in zip(names.tolist(), matrices, strict=True):
        what, rounding = f"kernel {name!r}", 0.0
        if isinstance(matrix, xr.DataArray):
            for dim in matrix.dims:
                if dim not in matrix.indexes:
                    raise LabelError(f"{what}: no labels on {dim!r}. Label rows and columns.")
            rows, columns = (matrix.indexes[dim] for dim in matrix.dims)
            values = matrix.values
            if "rounding" in matrix.coords and matrix["rounding"].ndim == 0:
                rounding = float(matrix["rounding"])  # a kernel of a stack
        else:
            rows, columns, values = matrix.index, matrix.columns, frame_values(matrix)
        objects = as_labels(rows, f"{what}, rows")
        other = as_labels(columns, f"{what}, columns")
        check_square(values, what)
        place = positions(objects, other)
        if (place < 0).any():
            check_rows_are_columns(
                objects, other, what, remedy="Give rows and columns the same labels."
            )
        if not np.array_equal(place, np.arange(len(place))):
            values = values[:, place]
        there = None if table is None else visible_row(table, name, objects)
        yield LabelledMatrix(name, values, objects, there, rounding)


def _from_plain(
    names: Labels, matrices: list[Any], order: Labels | None, visible: Any
) -> Iterator[LabelledMatrix]:
    named = list(zip(names.tolist(), matrices, strict=True))
    arrays = [as_array(matrix, f"kernel {name!r}") for name, matrix in named]
    for name, array in zip(names.tolist(), arrays, strict=True):
        check_square(array, f"kernel {name!r}")
        if array.shape != arrays[0].shape:
            raise KernelError(
                f"kernel {name!r}: {len(array)} objects, but kernel {names.tolist()[0]!r} has "
                f"{len(arrays[0])}. Plain arrays cover the same objects; label the matrices "
                "(pandas.DataFrame) to align different ones."
            )
    size = len(arrays[0])
    objects = as_labels(range(size), "objects") if order is None else order
    if len(objects) != size:
        raise LabelError(f"objects: {len(objects)} labels for {size} objects.")
    masks: list[NDArray[np.bool_] | None] = [None] * len(arrays)
    if (table := visibility_table(visible)) is not None:
        masks = [visible_row(table, name, objects) for name in names.tolist()]
    elif visible is not None:
        mask = as_array(visible, "visible")
        if mask.shape != (len(arrays), size):
            raise KernelError(
                f"visible: shape {mask.shape} found, ({len(arrays)}, {size}) expected: one row a "
                "kernel, one column an object."
            )
        masks = [
            as_mask(row, f"visible, kernel {name!r}")
            for name, row in zip(names.tolist(), mask, strict=True)
        ]
    for name, array, there in zip(names.tolist(), arrays, masks, strict=True):
        yield LabelledMatrix(name, array, objects, there)


def _align(parts: Iterable[LabelledMatrix], order: Labels | None) -> xr.DataArray:
    """Check each kernel and write it into its place among all objects."""
    parts = list(parts)
    kinds = {part.objects.dtype.kind: part for part in parts if len(part.objects)}
    if len(kinds) > 1:
        text, whole = kinds["U"], kinds["i"]
        raise LabelError(
            f"objects: labels of mixed types, text in kernel {text.name!r} "
            f"({text.objects.tolist()[0]!r}) and integers in kernel {whole.name!r} "
            f"({whole.objects.tolist()[0]!r}). Convert them all with str() or all with int()."
        )
    if order is None:
        order = as_labels(union(part.objects for part in parts), "objects")
    for part in parts:
        absent = part.objects[positions(part.objects, order) < 0]
        if len(absent):
            one = absent.tolist()[0]
            other = lookalike(one, order)
            renamed = "" if other is None else f", or rename them, if {one!r} is {other!r}"
            raise LabelError(
                f"objects: {name_some(absent)} of kernel {part.name!r} are not among them. Add "
                f"them, or drop them from the kernel{renamed}."
            )
    if not len(order):
        raise KernelError("kernels: there are no objects; at least one is needed.")
    warn_of_lookalikes([part.objects for part in parts], "objects")
    names = as_labels([part.name for part in parts], "the kernels' names")
    stack = np.full((len(parts), len(order), len(order)), np.nan)
    eps = np.empty(len(parts))
    for k, part in enumerate(parts):
        place = positions(part.objects, order)
        eps[k] = max(eps_of(part.values.dtype), part.rounding)
        stack[k][np.ix_(place, place)] = check_matrix(part, eps[k])
    return _build(names, order, stack, eps)


def _build(
    names: Labels, objects: Labels, values: NDArray[np.float64], eps: NDArray[np.float64]
) -> xr.DataArray:
    return xr.DataArray(
        values,
        dims=DIMS,
        coords={
            "kernel": names,
            "object": objects,
            "object_bis": objects,
            "rounding": ("kernel", eps, {"long_name": "machine epsilon the kernel came with"}),
        },
        name="kernels",
        attrs={"long_name": "kernel matrices, NaN where an object is missing"},
    )


def _input_eps(stack: xr.DataArray) -> NDArray[np.float64]:
    """Return the machine epsilon each kernel of `stack` came with, or that of its dtype if more."""
    eps = np.full(stack.sizes["kernel"], eps_of(stack.dtype))
    if "rounding" in stack.coords and stack["rounding"].dims == ("kernel",):
        own = stack["rounding"].values
        if own.dtype.kind not in "fiu" or not (np.isnan(own) | ((own >= 0) & (own <= 1))).all():
            raise KernelError(
                f"stack: its coordinate 'rounding' is {own.tolist()}; a machine epsilon between 0 "
                "and 1 for each kernel is expected. Drop it, or set it right."
            )
        eps = np.fmax(eps, own)  # fmax: NaN where a kernel was added by hand
    return eps
