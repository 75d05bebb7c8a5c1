"""A stack of kernels that are not in memory: on disk, sparse, by features, or on a cluster."""

from collections.abc import Hashable, Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..linalg.blocks import Indices
from ..linalg.lazy import lazy_stack
from ..linalg.operators import SymmetricOperator
from ..linalg.symmetric import Matrix
from ..utils.memory import check_memory
from .kernel_stack import KernelStack, VisibleKernel
from .labels import Labels, as_labels, match
from .stack import DIMS, not_in_memory


class LazyKernel(NamedTuple):
    """One kernel: the positions of its visible objects among all, and its visible block."""

    v: Indices
    block: SymmetricOperator
    eps: float


class LazyStack(KernelStack):
    """Incomplete kernels that are read, or computed, while they are used.

    `stack_kernels` returns one if a kernel is a dask, zarr or memory-mapped array, a
    `scipy.sparse` matrix or `kernels.Features`. `fit` takes it with a structure of few factors;
    other functions take `load`, the kernels of some objects in memory.

    Attributes
    ----------
    names : list
        The names of the kernels.
    objects : ndarray
        The labels of the objects.
    visible : ndarray of bool, shape (K, l)
        Which objects are visible in each kernel.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import kernels, stack_kernels
    >>> features = np.random.default_rng(0).standard_normal((5, 8))
    >>> stack = stack_kernels({"a": kernels.Features(features, objects=list("vwxyz"))})
    >>> stack.load(["v", "w"]).shape
    (1, 2, 2)
    """

    in_memory = False

    def __init__(
        self, names: Sequence[Hashable], objects: Labels, kernels: Sequence[LazyKernel]
    ) -> None:
        self.names, self.objects = list(names), objects
        self._kernels = list(kernels)
        self.visible = np.zeros((len(self.names), len(objects)), dtype=bool)
        for own, kernel in zip(self.visible, self._kernels, strict=True):
            own[kernel.v] = True

    def __repr__(self) -> str:
        head = f"LazyStack of {len(self.names)} kernels over {len(self.objects)} objects"
        lines = [
            f"{name!r}: {len(kernel.v)} objects, {kernel.block.form}"
            for name, kernel in zip(self.names, self._kernels, strict=True)
        ]
        return "\n  ".join([head, *lines])

    @property
    def norms(self) -> NDArray[np.float64]:
        """The Frobenius norms of the visible blocks: they tell stacks from each other."""
        return np.array([kernel.block.norm for kernel in self._kernels])

    def kernel(self, k: int) -> VisibleKernel:
        """Return the kernel at this position, with an operator for its visible block."""
        own, visible = self._kernels[k], self.visible[k]
        h = np.flatnonzero(~visible)
        order = np.argsort(np.concatenate([own.v, h]))
        return VisibleKernel(
            self.names[k], self.objects, visible, own.v, h, order, own.block, own.eps
        )

    def with_kernels(self, places: Indices) -> "LazyStack":
        """Return the stack restricted to the kernels at these positions."""
        names = [self.names[place] for place in places]
        return LazyStack(names, self.objects, [self._kernels[place] for place in places])

    def with_objects(self, places: Indices) -> KernelStack:
        """Return the stack itself if these are all objects; otherwise load them."""
        if len(places) == len(self.objects):
            return self
        return KernelStack(self.load(self.objects[places]))

    def hiding(self, hidden: NDArray[np.bool_]) -> "KernelStack":
        """Raise KernelError: objects are held out of kernels in memory."""
        raise not_in_memory("stack", self)

    @cached_property
    def array(self) -> xr.DataArray:  # type: ignore[override]
        """The stack as a dask array with NaN for hidden objects, computed where it is asked for."""
        size = len(self.objects)
        return self._labelled(lazy_stack(len(self.names), size, self._block), self.objects)

    def load(self, objects: Iterable[Hashable] | None = None) -> xr.DataArray:
        """Return the kernels of these objects (all by default) in memory, as an ordinary stack.

        Raises
        ------
        LabelError
            If an object is not in the stack.
        MKMCError
            If there is not enough memory.
        """
        labels = self.objects
        places = np.arange(len(labels))
        if objects is not None:
            wanted = as_labels(objects, "objects")
            places = match(wanted, labels, "objects: the stack has no object {}.")
        size = 8.0 * len(self.names) * len(places) ** 2
        check_memory(size, f"loading {len(places)} objects", "Load fewer objects.")
        values = np.stack([self._entries(k, places, places) for k in range(len(self.names))])
        return self._labelled(values, labels[places]).drop_vars("visible")

    def _labelled(self, values: object, objects: Labels) -> xr.DataArray:
        meaning = "machine epsilon of the precision in which the kernel came"
        places = match(objects, self.objects, "{}")
        return xr.DataArray(
            values,
            dims=DIMS,
            coords={
                "kernel": np.array(self.names),
                "object": objects,
                "object_bis": objects,
                "rounding": (
                    "kernel",
                    [kernel.eps for kernel in self._kernels],
                    {"long_name": meaning},
                ),
                "visible": (DIMS[:2], self.visible[:, places]),
            },
            name="kernels",
            attrs={"long_name": "kernel matrices, NaN for hidden objects"},
        )

    def _block(self, k: int, rows: slice, columns: slice) -> Matrix:
        everything = np.arange(len(self.objects))
        return self._entries(k, everything[rows], everything[columns])

    def _entries(self, k: int, rows: Indices, columns: Indices) -> Matrix:
        """Return entries of a kernel, NaN where an object is hidden."""
        own = self._kernels[k]
        place = np.full(len(self.objects), -1)
        place[own.v] = np.arange(len(own.v))
        found = np.full((len(rows), len(columns)), np.nan)
        below, beside = place[rows], place[columns]
        shown = np.ix_(below >= 0, beside >= 0)
        if found[shown].size:
            found[shown] = own.block.block(below[below >= 0], beside[beside >= 0])
        return found
