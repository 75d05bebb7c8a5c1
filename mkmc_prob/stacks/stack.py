"""Stacks of kernels: incomplete kernel matrices aligned by label in one array, and their checks.

A stack has dims ``(kernel, object, object_bis)``; hidden objects have rows and columns of NaN.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike

from ..errors import KernelError, LabelError, warn
from ..linalg.rounding import eps_of
from .labels import Labels, as_labels, lookalike, name_some, warn_of_lookalikes
from .matrix import (
    LabeledMatrix,
    as_array,
    check_rows_are_columns,
    check_square,
    input_eps,
    labeled_matrix,
    visible_block,
)
from .visibility import visibility_table, visible_row

DIMS = ("kernel", "object", "object_bis")


#: The largest ratio of the kernels' mean diagonals without a warning.
SCALE_FACTOR = 10.0


def stack_kernels(
    kernels: Mapping[Any, Any] | ArrayLike | xr.DataArray,
    *,
    objects: Iterable[Hashable] | None = None,
    names: Iterable[Hashable] | None = None,
    visible: ArrayLike | xr.DataArray | pd.DataFrame | None = None,
) -> xr.DataArray:
    """Align kernel matrices by label in one stack, with NaN for hidden objects.

    Equations :eq:`eq-partition` and :eq:`eq-observed` of the derivation.

    Parameters
    ----------
    kernels
        One of

        - a mapping from kernel names to labeled square matrices (`pandas.DataFrame`,
          `xarray.DataArray`), which may cover different objects in different orders,
        - a mapping from kernel names to plain square arrays, which all cover the same objects,
        - one array of shape (K, l, l), or an existing stack.

        An object is hidden in a kernel if the kernel has no row for it, or if its whole row and
        column are NaN (pandas NA and masked entries count as NaN).
    objects
        For labeled matrices: the order of the objects. It must contain all objects and may add
        others. For plain arrays: the labels of the axes, 0 to l - 1 by default. All text or all
        integers.
    names
        For an array of shape (K, l, l): the names of the kernels, by default ``"Q1"`` to ``"QK"``
        as in the paper.
    visible
        Shape (K, l), entries 0/1 or bool: which objects are visible in each kernel. Entries in the
        rows and columns of hidden objects are ignored. A `DataFrame` or labeled `DataArray`
        (kernels x objects) is aligned by its labels; for labeled matrices one of these is needed.

    Returns
    -------
    xarray.DataArray
        Dims ``("kernel", "object", "object_bis")``, float64, each kernel exactly symmetric, with
        a coordinate ``rounding(kernel)``, which holds the eps of each kernel: the machine epsilon
        of the precision in which it came.

    Raises
    ------
    KernelError
        If a matrix is not square, not numeric or not symmetric (beyond ``1e-8`` of its largest
        entry, or 16 eps of it if that is more), or has infinite entries, a row that is only partly
        NaN or a negative diagonal entry; if there is no kernel or no object; if `visible` has the
        wrong shape, entries other than 0 and 1, or a 1 for an object that the kernel does not have.
    LabelError
        If labels are repeated, of mixed types, or do not match.

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
        eps = input_eps(kernels.transpose(*DIMS))
        kernels = kernels.assign_coords(rounding=("kernel", eps))
        kernels = {name: kernels.sel(kernel=name) for name in found.tolist()}
    if isinstance(kernels, Mapping):
        if names is not None:
            raise LabelError("names: the kernels are named already. Omit it.")
        names, matrices = kernels, list(kernels.values())
    else:
        matrices = _unnamed(kernels)
        names = [f"Q{k + 1}" for k in range(len(matrices))] if names is None else names
    labels = as_labels(names, "kernel names")
    if len(labels) != len(matrices):
        raise LabelError(f"names: {len(labels)} names for {len(matrices)} kernels.")
    if not matrices:
        raise KernelError("kernels: there are no kernels; at least one is needed.")
    order = None if objects is None else as_labels(objects, "objects")
    is_labeled = [_is_labeled(matrix) for matrix in matrices]
    if all(is_labeled):
        whats = [f"kernel {name!r}" for name in labels.tolist()]
        parts = list(map(labeled_matrix, matrices, whats))
        table = visibility_table(visible, labels, None)
    elif not any(is_labeled):
        parts = _plain_parts(labels, matrices, order)
        table = visibility_table(visible, labels, parts[0].objects)
    else:
        labeled, plain = (labels.tolist()[is_labeled.index(kind)] for kind in (True, False))
        raise LabelError(
            f"kernels: {labeled!r} is labeled and {plain!r} is a plain array, which cannot be "
            "aligned. Label all of them (pandas.DataFrame) or none."
        )
    stack = _align(labels, parts, order, table)
    warn_of_lookalikes([part.objects for part in parts], "objects")
    return stack


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
    stack = stack.transpose(*DIMS)
    eps = input_eps(stack)
    parts = [
        LabeledMatrix(f"kernel {name!r}", values, objects, own)
        for name, values, own in zip(names.tolist(), stack.values, eps, strict=True)
    ]
    checked = _align(names, parts, objects, None)
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


def check_labels(stack: xr.DataArray, *, what: str = "stack") -> tuple[Labels, Labels]:
    """Return the checked labels of the kernels and of the objects of `stack`."""
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
    names, objects = check_labels(stack)
    values = stack.transpose(*DIMS).values
    return xr.DataArray(
        ~np.isnan(np.diagonal(values, axis1=1, axis2=2)),
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


def _unnamed(kernels: Any) -> list[Any]:
    """Return the kernels of an array of shape (K, l, l), or of a list of plain matrices."""
    if isinstance(kernels, Sequence) and not isinstance(kernels, str):
        if any(_is_labeled(matrix) for matrix in kernels):
            raise LabelError(
                "kernels: labeled matrices without names. Pass a mapping from names to matrices."
            )
        matrices = [as_array(matrix, f"kernels[{k}]") for k, matrix in enumerate(kernels)]
    else:
        array = as_array(kernels, "kernels")
        matrices = list(array) if array.ndim else [array]
    for k, matrix in enumerate(matrices):
        if matrix.ndim != 2:
            raise KernelError(
                f"kernels[{k}]: shape {matrix.shape} is not a matrix; kernels has shape (K, l, l). "
                "Pass a single matrix as a mapping, {name: Q}."
            )
    return matrices


def _is_labeled(matrix: Any) -> bool:
    if isinstance(matrix, xr.DataArray):
        return matrix.ndim == 2 and len(matrix.indexes) > 0
    return isinstance(matrix, pd.DataFrame)


def _plain_parts(names: Labels, matrices: list[Any], order: Labels | None) -> list[LabeledMatrix]:
    """Return plain kernels, which all cover the objects of `order` (0 to l - 1 if None)."""
    parts: list[LabeledMatrix] = []
    for name, matrix in zip(names.tolist(), matrices, strict=True):
        what = f"kernel {name!r}"
        array = as_array(matrix, what)
        check_square(array, what)
        if parts and len(array) != len(parts[0].values):
            raise KernelError(
                f"{what}: {len(array)} objects, but {parts[0].what} has {len(parts[0].values)}. "
                "Plain arrays cover the same objects; label the matrices (pandas.DataFrame) to "
                "align different ones."
            )
        objects = np.arange(len(array)) if order is None else order
        parts.append(LabeledMatrix(what, array, objects, eps_of(array.dtype)))
    if len(objects) != len(array):
        raise LabelError(f"objects: {len(objects)} labels for {len(array)} objects.")
    return parts


def _align(
    names: Labels, parts: list[LabeledMatrix], order: Labels | None, table: pd.DataFrame | None
) -> xr.DataArray:
    """Check each kernel and write it to the rows and columns of its objects among all objects."""
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
    values = np.full((len(parts), len(order), len(order)), np.nan)
    for k, (name, part) in enumerate(zip(names.tolist(), parts, strict=True)):
        places = pd.Index(order).get_indexer(pd.Index(part.objects))
        absent = part.objects[places < 0].tolist()
        if absent:
            other = lookalike(absent[0], order)
            renamed = "" if other is None else f", or rename them, if {absent[0]!r} is {other!r}"
            raise LabelError(
                f"objects: {name_some(absent)} of {part.what} are not among them. Add them, or "
                f"drop them from the kernel{renamed}."
            )
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
