"""Labelled kernel stacks: align incomplete kernel matrices by label and check them once.

Enters: K square matrices over (subsets of) the same objects, labelled or plain. Leaves: one
`xarray.DataArray` with dims ``(kernel, object, object_bis)``, float64, exactly symmetric, whole
rows and columns of NaN where an object is missing. Every other room takes such a stack.
"""

import warnings
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from .checks import LabelledMatrix, as_mask, check_matrix, check_rows_are_columns, eps_of
from .errors import KernelError, LabelError, MKMCWarning
from .labels import Labels, as_labels, name_some, positions, union

DIMS = ("kernel", "object", "object_bis")
#: Kernels whose mean diagonals differ by more than this factor are warned about.
SCALE_FACTOR = 10.0


def stack_kernels(
    kernels: Mapping[Hashable, Any] | ArrayLike | xr.DataArray,
    *,
    objects: Iterable[Hashable] | None = None,
    names: Iterable[Hashable] | None = None,
    visible: ArrayLike | xr.DataArray | pd.DataFrame | None = None,
) -> xr.DataArray:
    """Align kernel matrices by label into one stack, NaN where an object is missing.

    Parameters
    ----------
    kernels
        One of

        - a mapping from kernel names to labelled square matrices (`pandas.DataFrame`,
          `xarray.DataArray`) that may cover different objects in different orders,
        - a mapping from kernel names to plain square arrays that all cover the same objects,
        - one array of shape (K, l, l), or a stack made before.

        An object is missing from a kernel that has no row for it, or whose row and column for it
        are wholly NaN.
    objects
        For labelled matrices: the order of the objects; it may add objects and must contain all.
        For plain arrays: the labels of their axes, 0 to l - 1 if left out. All text or all
        integers.
    names
        For an array of shape (K, l, l): the names of the kernels, ``"Q1"`` to ``"QK"`` (as in the
        paper) if left out.
    visible
        Shape (K, l), entries 0/1 or bool: which objects each kernel sees. What stands in the rows
        and columns of the others is ignored. For labelled matrices it must be labelled too
        (`DataFrame` or `DataArray`, kernels x objects).

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
        object; where `visible` has the wrong shape or other entries than 0 and 1.
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
        kernels = {name: kernels.sel(kernel=name) for name in check_labels(kernels)[0].tolist()}
    if isinstance(kernels, Mapping):
        if names is not None:
            raise LabelError(
                "names: the keys of a mapping are the kernels' names already. Leave it out."
            )
        labels = as_labels(kernels, "the kernels' names")
        matrices = list(kernels.values())
    else:
        array = np.asarray(kernels)
        if array.ndim != 3:
            raise KernelError(
                f"kernels: an array of shape {array.shape} was given; a stack has shape (K, l, l). "
                "For named or labelled matrices pass a mapping from names to matrices."
            )
        default = [f"Q{k + 1}" for k in range(len(array))]
        labels = as_labels(default if names is None else names, "names")
        if len(labels) != len(array):
            raise LabelError(f"names: {len(labels)} names for {len(array)} kernels.")
        matrices = list(array)
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
    return _align(parts, order)


def check_stack(stack: xr.DataArray, *, what: str = "stack") -> xr.DataArray:
    """Return `stack`, checked as `stack_kernels` checks what it builds.

    Stacks are ordinary arrays that a person may have cut or computed with, so every function that
    takes one looks at it first.

    Raises
    ------
    KernelError, LabelError
        As `stack_kernels` does.
    """
    if not isinstance(stack, xr.DataArray):
        raise KernelError(
            f"{what}: a labelled stack (xarray.DataArray) is expected, not "
            f"{type(stack).__name__}. Build one with stack_kernels(...)."
        )
    names, objects = check_labels(stack, what=what)
    stack = stack.transpose(*DIMS)
    eps = _input_eps(stack)
    matrices = [
        check_matrix(LabelledMatrix(name, values, objects, None), rounding)
        for name, values, rounding in zip(names.tolist(), stack.values, eps, strict=True)
    ]
    return _build(names, objects, np.stack(matrices), eps)


def check_labels(stack: xr.DataArray, *, what: str = "stack") -> tuple[Labels, Labels]:
    """Return the labels of the kernels and of the objects of `stack`, checked."""
    if set(stack.dims) != set(DIMS):
        raise LabelError(
            f"{what}: dims {tuple(stack.dims)} found, {DIMS} expected. Build it with "
            "stack_kernels(...)."
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
    return names, objects


def visible_objects(stack: xr.DataArray) -> xr.DataArray:
    """Return which objects each kernel of `stack` sees: bool, dims ``(kernel, object)``.

    Examples
    --------
    >>> import numpy as np
    >>> stack = stack_kernels(np.ones((1, 2, 2)), visible=[[1, 0]])
    >>> visible_objects(stack).values
    array([[ True, False]])
    """
    stack = stack.transpose(*DIMS)
    seen = ~np.isnan(np.diagonal(stack.values, axis1=1, axis2=2))
    return xr.DataArray(
        seen,
        dims=DIMS[:2],
        coords={dim: stack.indexes[dim] for dim in DIMS[:2]},
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
        warnings.warn(
            f"the kernels' scales differ by more than a factor of {SCALE_FACTOR:g}: the mean "
            f"diagonal of {largest!r} is {scale[largest]:.3g}, of {smallest!r} "
            f"{scale[smallest]:.3g}. The model follows the largest; normalize(stack) puts them "
            "on one scale.",
            MKMCWarning,
            stacklevel=3,
        )


def _is_labelled(matrix: Any) -> bool:
    if isinstance(matrix, xr.DataArray):
        return matrix.ndim == 2 and all(dim in matrix.indexes for dim in matrix.dims)
    return isinstance(matrix, pd.DataFrame)


def _from_labelled(names: Labels, matrices: list[Any], visible: Any) -> Iterator[LabelledMatrix]:
    if visible is not None:
        if isinstance(visible, xr.DataArray):
            visible = visible.transpose("kernel", ...).to_pandas()
        if not isinstance(visible, pd.DataFrame):
            raise LabelError(
                "visible: with labelled kernels it must say which objects it means. Pass a "
                "DataFrame (kernels x objects), or leave it out: what a kernel lacks is missing."
            )
    for name, matrix in zip(names.tolist(), matrices, strict=True):
        if isinstance(matrix, xr.DataArray):
            rows, columns = (matrix.indexes[dim] for dim in matrix.dims)
            values = matrix.values
        else:
            rows, columns, values = matrix.index, matrix.columns, matrix.to_numpy()
        what = f"kernel {name!r}"
        objects = as_labels(rows, f"{what}, rows")
        other = as_labels(columns, f"{what}, columns")
        if values.shape[0] != values.shape[1]:
            raise KernelError(f"{what}: shape {values.shape} is not square. Pass a square matrix.")
        place = positions(objects, other)
        if (place < 0).any():
            check_rows_are_columns(
                objects, other, what, remedy="Give rows and columns the same labels."
            )
        if not np.array_equal(place, np.arange(len(place))):
            values = values[:, place]
        there = None
        if visible is not None:
            there = _visible_row(visible, name, objects)
        yield LabelledMatrix(name, values, objects, there)


def _visible_row(visible: pd.DataFrame, name: Hashable, objects: Labels) -> NDArray[np.bool_]:
    """Return the row of a labelled visibility table that belongs to one kernel."""
    row = positions(np.array([name]), as_labels(visible.index, "visible, kernels"))[0]
    if row < 0:
        raise LabelError(f"visible: there is no row for kernel {name!r}. Add one.")
    place = positions(objects, as_labels(visible.columns, "visible, objects"))
    if (place < 0).any():
        raise LabelError(
            f"visible: there is no column for {name_some(objects[place < 0])}. Add it."
        )
    return as_mask(visible.to_numpy()[row, place], f"visible, kernel {name!r}")


def _from_plain(
    names: Labels, matrices: list[Any], order: Labels | None, visible: Any
) -> Iterator[LabelledMatrix]:
    arrays = [np.asarray(matrix) for matrix in matrices]
    for name, array in zip(names.tolist(), arrays, strict=True):
        if array.ndim != 2 or array.shape[0] != array.shape[1]:
            raise KernelError(
                f"kernel {name!r}: shape {array.shape} is not square. Pass a square matrix."
            )
        if array.shape != arrays[0].shape:
            raise KernelError(
                f"kernel {name!r}: {len(array)} objects, but kernel {names[0]!r} has "
                f"{len(arrays[0])}. Plain arrays cover the same objects; label the matrices "
                "(pandas.DataFrame) to align different ones."
            )
    size = len(arrays[0])
    objects = as_labels(range(size), "objects") if order is None else order
    if len(objects) != size:
        raise LabelError(f"objects: {len(objects)} labels for {size} objects.")
    masks: list[NDArray[np.bool_] | None] = [None] * len(arrays)
    if visible is not None:
        mask = np.asarray(visible)
        if mask.shape != (len(arrays), size):
            raise KernelError(
                f"visible: shape {mask.shape} found, ({len(arrays)}, {size}) expected: one row a "
                "kernel, one column an object."
            )
        masks = [as_mask(row, f"visible, kernel {n!r}") for n, row in zip(names, mask, strict=True)]
    for name, array, there in zip(names.tolist(), arrays, masks, strict=True):
        yield LabelledMatrix(name, array, objects, there)


def _align(parts: Iterable[LabelledMatrix], order: Labels | None) -> xr.DataArray:
    """Check each kernel and write it into its place among all objects."""
    parts = list(parts)
    found = union(part.objects for part in parts)
    if order is None:
        order = as_labels(found, "the objects of all kernels")
    else:
        absent = [label for label in found if label not in set(order.tolist())]
        if absent:
            raise LabelError(
                f"objects: {name_some(absent)} of the kernels are not among them. Add them, or "
                "drop them from the kernels."
            )
    if not len(order):
        raise KernelError("kernels: there are no objects; at least one is needed.")
    names = as_labels([part.name for part in parts], "the kernels' names")
    stack = np.full((len(parts), len(order), len(order)), np.nan)
    eps = np.empty(len(parts))
    for k, part in enumerate(parts):
        place = positions(part.objects, order)
        eps[k] = eps_of(part.values.dtype)
        stack[k][np.ix_(place, place)] = check_matrix(part, eps[k])
    aligned = _build(names, order, stack, eps)
    warn_of_scales(aligned)
    return aligned


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
    """Return the machine epsilon each kernel of `stack` came with."""
    if "rounding" in stack.coords and stack["rounding"].dims == ("kernel",):
        return np.asarray(stack["rounding"].values, dtype=np.float64)
    return np.full(stack.sizes["kernel"], eps_of(stack.dtype))
