"""A checked stack as functions pass it to one another; `stack_kernels` in `stack` builds stacks."""

from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..linalg.blocks import Indices
from .labels import Labels
from .stack import check_stack, not_in_memory, visibility


class VisibleKernel(NamedTuple):
    """One kernel: its visible objects (v), its hidden objects (h) and its visible block Q_vv.

    `objects` are the labels of all objects, `order` rearranges a vector over (v, h) to their order,
    `moment` is Q_vv, an array or, if it is not in memory, a `SymmetricOperator`; `eps` is the
    machine epsilon of the precision in which the kernel came.
    """

    name: Hashable
    objects: Labels
    visible: NDArray[np.bool_]
    v: Indices
    h: Indices
    order: Indices
    moment: Any
    eps: float


class KernelStack:
    """A checked stack, with its labels and its visible objects as plain arrays.

    Public functions build it with `KernelStack.of` and pass it on, so that a stack is checked only
    once per call.

    Parameters
    ----------
    array
        A stack returned by `check_stack`.

    Attributes
    ----------
    array : DataArray
        The labeled stack, with NaN in the rows and columns of hidden objects.
    names : list
        The names of the kernels.
    objects : ndarray
        The labels of the objects.
    visible : ndarray of bool, shape (K, l)
        Which objects are visible in each kernel.
    """

    in_memory = True

    def __init__(self, array: xr.DataArray) -> None:
        self.array = array
        self.names: list[Hashable] = array["kernel"].values.tolist()
        self.objects: Labels = array["object"].values
        self.visible = ~np.isnan(np.diagonal(array.values, axis1=1, axis2=2))

    @classmethod
    def of(cls, stack: "xr.DataArray | KernelStack", *, what: str = "stack") -> "KernelStack":
        """Return a checked copy of `stack`; raise the errors of `check_stack`.

        What is a `KernelStack` already is returned as it is.
        """
        if not isinstance(stack, KernelStack):
            return cls(check_stack(stack, what=what))
        if not stack.in_memory:
            raise not_in_memory(what, stack)
        return stack

    @property
    def shown(self) -> xr.DataArray:
        """Which objects are visible in each kernel: bool, dims ``(kernel, object)``."""
        return visibility(np.array(self.names), self.objects, self.visible)

    def kernels(self) -> Iterator[VisibleKernel]:
        """Yield each kernel, with a copy of its visible block."""
        for k in range(len(self.names)):
            yield self.kernel(k)

    def kernel(self, k: int) -> VisibleKernel:
        """Return the kernel at this position, with a copy of its visible block."""
        visible = self.visible[k]
        v, h = np.flatnonzero(visible), np.flatnonzero(~visible)
        order = np.argsort(np.concatenate([v, h]))
        block = self.array.values[k][np.ix_(v, v)]
        eps = float(self.array["rounding"].values[k])
        return VisibleKernel(self.names[k], self.objects, visible, v, h, order, block, eps)

    def with_objects(self, places: Indices) -> "KernelStack":
        """Return the stack restricted to the objects at these positions."""
        if len(places) == len(self.objects):
            return self
        return KernelStack(self.array.isel(object=places, object_bis=places))

    def with_kernels(self, places: Indices) -> "KernelStack":
        """Return the stack restricted to the kernels at these positions."""
        return KernelStack(self.array.isel(kernel=places))

    def hiding(self, hidden: NDArray[np.bool_]) -> "KernelStack":
        """Return the stack with additional objects hidden, given by a mask of shape (K, l)."""
        array = self.array.copy()
        visible = self.visible & ~hidden
        array.values[~(visible[:, :, None] & visible[:, None, :])] = np.nan
        return KernelStack(array)
