"""Labels for a matrix that has none: of scipy.sparse, zarr, dask or a memory-mapped file."""

from collections.abc import Hashable, Iterable
from typing import Any


class Labeled:
    """A kernel matrix with the labels of its objects.

    Parameters
    ----------
    matrix
        Square, of any kind that `stack_kernels` takes.
    objects
        The labels of its rows and columns, in order.

    Examples
    --------
    >>> import scipy.sparse
    >>> from mkmc_prob import kernels, stack_kernels
    >>> matrix = scipy.sparse.eye_array(3)
    >>> stack = stack_kernels({"a": kernels.Labeled(matrix, ["x", "y", "z"])})
    >>> stack.objects.tolist()
    ['x', 'y', 'z']
    """

    def __init__(self, matrix: Any, objects: Iterable[Hashable]) -> None:
        self.matrix, self.objects = matrix, list(objects)

    def __repr__(self) -> str:
        return f"Labeled({type(self.matrix).__name__}, {len(self.objects)} objects)"
