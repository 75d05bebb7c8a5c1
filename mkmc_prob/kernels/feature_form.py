"""A kernel given by its features, for so many objects that the kernel itself is not formed."""

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from ..errors import KernelError
from ..linalg.lazy import dask_array, without_mask


class Features:
    """The linear kernel Q = X X' / p of n objects with p features, which is never formed.

    Memory and time per product grow with n p instead of n^2: a stack with 100,000 objects and 200
    features takes 160 MB. `stack_kernels` takes it like a matrix; `fit` then needs a structure of
    few factors.

    Parameters
    ----------
    values
        X, objects x features: a `DataFrame`, whose index holds the objects; a 2-D `DataArray`,
        whose first dim does; an array; or a dask or zarr array in chunks of rows. float32 stays
        float32 in memory; products are computed in float64. An object whose whole row is NaN is
        hidden. Center and scale the columns before, if their means and units should not count.
    objects
        The labels of the rows, if X has none.

    Raises
    ------
    KernelError
        If X is not a table of real numbers.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from mkmc_prob import PPCA, fit, kernels, stack_kernels
    >>> values = np.random.default_rng(0).standard_normal((6, 20))
    >>> table = pd.DataFrame(values, index=list("abcdef"))
    >>> parts = {"one": table.iloc[:5], "two": table.iloc[1:]}
    >>> stack = stack_kernels({name: kernels.Features(part) for name, part in parts.items()})
    >>> fit(stack, structure=PPCA(2)).rows("one", ["f"]).shape
    (1, 6)
    """

    def __init__(self, values: Any, *, objects: Iterable[Hashable] | None = None) -> None:
        labels: Any = None if objects is None else list(objects)
        if isinstance(values, pd.DataFrame):
            if objects is not None:
                raise KernelError("objects: the table has labels already. Leave objects out.")
            labels, values = values.index, values.to_numpy()
        elif isinstance(values, xr.DataArray):
            if values.ndim == 2 and values.dims[0] in values.indexes:
                if objects is not None:
                    raise KernelError("objects: the array has labels already. Leave objects out.")
                labels = values.indexes[values.dims[0]]
            values = values.data
        if not hasattr(values, "dtype") or isinstance(values, np.matrix):
            values = np.asarray(values)
        if hasattr(values, "toarray"):
            raise KernelError(
                f"features: sparse matrix ({type(values).__name__}) found. Pass its .toarray(), or "
                "the sparse kernel X @ X.T / p itself."
            )
        if values.ndim != 2 or not values.shape[1]:
            raise KernelError(
                f"features: shape {values.shape} found; a table of objects x features is needed."
            )
        if values.dtype.kind not in "biuf":
            raise KernelError(f"features: dtype {values.dtype} found; real numbers are needed.")
        if type(values).__module__.partition(".")[0] == "zarr":
            chunks = (values.chunks[0], values.shape[1])
            values = dask_array("features", values).from_array(values, chunks=chunks)
        values = without_mask(values)
        if values.dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
            values = values.astype(np.float64)
        self.values, self.objects = values, labels

    def __repr__(self) -> str:
        size, count = self.values.shape
        return f"Features of {size} objects: X X' / {count}, {self.values.dtype}"
