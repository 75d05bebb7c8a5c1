"""`stack_kernels`: from kernels of any kind to a stack, in memory or not."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Literal, overload

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike

from ..errors import KernelError, LabelError
from ..kernels.feature_form import Features
from ..linalg.rounding import eps_of
from ..utils.arguments import checked, choice
from .definite import check_definite
from .labels import Labels, as_labels, warn_of_lookalikes
from .lazy_build import as_lazy_array, build_lazy_stack, is_out_of_memory
from .lazy_stack import LazyStack
from .matrix import (
    LabeledMatrix,
    as_array,
    check_square,
    input_eps,
    is_labeled,
    labeled_matrix,
)
from .stack import DIMS, align, check_labels
from .visibility import visibility_table


@overload
def stack_kernels(
    kernels: Mapping[Any, Features],
    *,
    objects: Iterable[Hashable] | None = None,
    names: None = None,
    visible: ArrayLike | xr.DataArray | pd.DataFrame | None = None,
    check: Literal["entries", "thorough"] = "entries",
    progress: bool = False,
) -> LazyStack: ...


@overload
def stack_kernels(
    kernels: Mapping[Any, Any] | ArrayLike | xr.DataArray,
    *,
    objects: Iterable[Hashable] | None = None,
    names: Iterable[Hashable] | None = None,
    visible: ArrayLike | xr.DataArray | pd.DataFrame | None = None,
    check: Literal["entries", "thorough"] = "entries",
    progress: bool = False,
) -> xr.DataArray: ...


@checked(check=choice("entries", "thorough"))
def stack_kernels(
    kernels: Mapping[Any, Any] | ArrayLike | xr.DataArray,
    *,
    objects: Iterable[Hashable] | None = None,
    names: Iterable[Hashable] | None = None,
    visible: ArrayLike | xr.DataArray | pd.DataFrame | None = None,
    check: Literal["entries", "thorough"] = "entries",
    progress: bool = False,
) -> xr.DataArray | LazyStack:
    """Align kernel matrices by label in one stack, with NaN for hidden objects.

    Equations :eq:`eq-partition` and :eq:`eq-observed` of the derivation.

    Parameters
    ----------
    kernels
        One of

        - a mapping from kernel names to labeled square matrices (`pandas.DataFrame`,
          `xarray.DataArray`), which may cover different objects in different orders,
        - a mapping from kernel names to plain square arrays, which all cover the same objects,
        - one array of shape (K, l, l), or an existing stack,
        - a mapping or a list in which some kernels are not in memory: dask, zarr or memory-mapped
          arrays (`numpy.memmap`), a `DataArray` over a dask array, which may be labeled,
          `scipy.sparse` matrices, `kernels.Features`, or any of these with labels, as
          `kernels.Labeled`.

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
    check
        "entries" checks the entries. "thorough" also checks whether the kernels are positive
        semidefinite. For kernels in memory, later functions check this in any case. A kernel that
        is not in memory, of more than 1,000 objects, is read up to a few hundred times (Lanczos
        iteration): if it is refused it is indefinite, but an indefinite one can pass.
    progress
        Whether to show a progress bar while kernels that are not in memory are checked.

    Returns
    -------
    xarray.DataArray or LazyStack
        A `LazyStack` if a kernel is not in memory. Otherwise an array with dims
        ``("kernel", "object", "object_bis")``, float64, each kernel exactly symmetric, with a
        coordinate ``rounding(kernel)``, which holds the eps of each kernel: the machine epsilon
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
    IndefiniteKernelError
        In the thorough check, if a kernel is not positive semidefinite; in any case, if an entry of
        a kernel that is not in memory is larger than its two diagonal entries allow.

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
    if isinstance(kernels, LazyStack):
        raise KernelError("kernels: a LazyStack, which is a stack already. Use it as it is.")
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
    if any(map(is_out_of_memory, matrices)):
        return build_lazy_stack(labels, matrices, order, visible, check, progress)
    labeled = [is_labeled(matrix) for matrix in matrices]
    if all(labeled):
        whats = [f"kernel {name!r}" for name in labels.tolist()]
        parts = list(map(labeled_matrix, matrices, whats))
        table = visibility_table(visible, labels, None)
    elif not any(labeled):
        parts = _plain_parts(labels, matrices, order)
        table = visibility_table(visible, labels, parts[0].objects)
    else:
        one, plain = (labels.tolist()[labeled.index(kind)] for kind in (True, False))
        raise LabelError(
            f"kernels: {one!r} is labeled and {plain!r} is a plain array, which cannot be "
            "aligned. Label all of them (pandas.DataFrame) or none."
        )
    stack = align(labels, parts, order, table)
    warn_of_lookalikes([part.objects for part in parts], "objects")
    if check == "thorough":
        check_definite(stack)
    return stack


def _unnamed(kernels: Any) -> list[Any]:
    """Return the kernels of an array of shape (K, l, l), or of a list of plain matrices."""
    if isinstance(kernels, Sequence) and not isinstance(kernels, str):
        if any(is_labeled(matrix) for matrix in kernels):
            raise LabelError(
                "kernels: labeled matrices without names. Pass a mapping from names to matrices."
            )
        matrices = [
            matrix if is_out_of_memory(matrix) else as_array(matrix, f"kernels[{k}]")
            for k, matrix in enumerate(kernels)
        ]
    else:
        array = as_lazy_array(kernels)
        array = as_array(kernels, "kernels") if array is None else array
        matrices = list(array) if array.ndim else [array]
    for k, matrix in enumerate(matrices):
        if not isinstance(matrix, Features) and matrix.ndim != 2:
            raise KernelError(
                f"kernels[{k}]: shape {matrix.shape} is not a matrix; kernels has shape (K, l, l). "
                "Pass a single matrix as a mapping, {name: Q}."
            )
    return matrices


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
