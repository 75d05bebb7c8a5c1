"""A stack that has been checked: what functions pass to one another inside the package."""

from collections.abc import Hashable, Iterator
from typing import NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..linalg.blocks import Indices
from ..linalg.symmetric import Matrix
from .labels import Labels
from .stack import check_stack


class VisibleKernel(NamedTuple):
    """What one kernel shows: which objects are visible (v) or hidden (h), and Q_vv.

    `objects` are the labels of all objects, `order` puts a vector over (v, h) into their order, and
    `eps` is the machine epsilon of the precision the kernel came in.
    """

    name: Hashable
    objects: Labels
    visible: NDArray[np.bool_]
    v: Indices
    h: Indices
    order: Indices
    moment: Matrix
    eps: float


class KernelStack:
    """A checked stack, with its labels and its pattern of visible objects as plain arrays.

    Public functions build one with `KernelStack.of` and pass it on, so that a stack is checked
    once per call.

    Parameters
    ----------
    array
        What `check_stack` returned.

    Attributes
    ----------
    array : DataArray
        The labeled stack, NaN in the rows and columns of hidden objects.
    names : list
        The kernels' names.
    objects : ndarray
        The objects' labels.
    visible : ndarray of bool, shape (K, l)
        Which objects each kernel shows.
    """

    def __init__(self, array: xr.DataArray) -> None:
        self.array = array
        self.names: list[Hashable] = array["kernel"].values.tolist()
        self.objects: Labels = array["object"].values
        self.visible = ~np.isnan(np.diagonal(array.values, axis1=1, axis2=2))

    @classmethod
    def of(cls, stack: xr.DataArray, *, what: str = "stack") -> "KernelStack":
        """Return `stack` checked, in a copy; raise KernelError or LabelError as `check_stack`."""
        return cls(check_stack(stack, what=what))

    def kernels(self) -> Iterator[VisibleKernel]:
        """Yield what each kernel shows, with a copy of its visible block."""
        eps = self.array["rounding"].values.tolist()
        for k, visible in enumerate(self.visible):
            v, h = np.flatnonzero(visible), np.flatnonzero(~visible)
            order = np.argsort(np.concatenate([v, h]))
            block = self.array.values[k][np.ix_(v, v)]
            yield VisibleKernel(self.names[k], self.objects, visible, v, h, order, block, eps[k])

    def with_objects(self, places: Indices) -> "KernelStack":
        """Return the stack of some of the objects, given by their positions."""
        if len(places) == len(self.objects):
            return self
        return KernelStack(self.array.isel(object=places, object_bis=places))

    def with_kernels(self, places: Indices) -> "KernelStack":
        """Return the stack of some of the kernels, given by their positions."""
        return KernelStack(self.array.isel(kernel=places))

    def hiding(self, hidden: NDArray[np.bool_]) -> "KernelStack":
        """Return the stack with more objects hidden, those of a mask of shape (K, l)."""
        array = self.array.copy()
        rest = self.visible & ~hidden
        array.values[~(rest[:, :, None] & rest[:, None, :])] = np.nan
        return KernelStack(array)
