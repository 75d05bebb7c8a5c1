"""The paper's two baselines, which complete each kernel without the other kernels."""

import numpy as np
import xarray as xr

from ..errors import KernelError
from ..stacks.kernel_stack import KernelStack
from ..stacks.stack import check_stack


def zero_impute(stack: xr.DataArray) -> xr.DataArray:
    """Return `stack` with 0 in place of every missing entry.

    A missing object becomes the zero vector in the kernel's feature space. Algorithm 1 of the paper
    starts from these matrices.

    Parameters
    ----------
    stack
        From `stack_kernels`: dims ``("kernel", "object", "object_bis")``, NaN where an object is
        missing.

    Returns
    -------
    xarray.DataArray
        The completed stack, each kernel exactly symmetric, and positive semidefinite if its visible
        block is. A kernel without visible objects becomes zero.

    Raises
    ------
    KernelError, LabelError
        If the stack is invalid, see `check_stack`.

    Examples
    --------
    >>> from mkmc_prob.stacks.stack import stack_kernels
    >>> from mkmc_prob import zero_impute
    >>> stack = stack_kernels([[[4.0, 2.0, 0.0], [2.0, 6.0, 0.0], [0.0, 0.0, 0.0]]],
    ...                       visible=[[1, 1, 0]])
    >>> zero_impute(stack).values
    array([[[4., 2., 0.],
            [2., 6., 0.],
            [0., 0., 0.]]])
    """
    completed = check_stack(stack).fillna(0.0)
    completed.attrs = {"long_name": "kernel matrices, missing entries 0"}
    return completed


def mean_impute(stack: xr.DataArray) -> xr.DataArray:
    """Return `stack` with each missing object at the mean of the kernel's visible objects.

    The mean is taken in the kernel's feature space (see the paper's appendix on mean imputation).
    With v the n visible and h the hidden objects of a kernel, and i in h::

        Q_ji = (1/n) sum_k Q_jk          (j in v)
        Q_ii' = (1/n^2) sum_jk Q_jk      (i, i' in h)

    Parameters
    ----------
    stack
        From `stack_kernels`: dims ``("kernel", "object", "object_bis")``, NaN where an object is
        missing.

    Returns
    -------
    xarray.DataArray
        The completed stack, each kernel exactly symmetric, and positive semidefinite (up to
        rounding) if its visible block is.

    Raises
    ------
    KernelError, LabelError
        If a kernel has no visible object, and thus no mean, or the stack is invalid, see
        `check_stack`.

    Examples
    --------
    >>> from mkmc_prob.stacks.stack import stack_kernels
    >>> from mkmc_prob import mean_impute
    >>> stack = stack_kernels([[[4.0, 2.0, 0.0], [2.0, 6.0, 0.0], [0.0, 0.0, 0.0]]],
    ...                       visible=[[1, 1, 0]])
    >>> mean_impute(stack).values
    array([[[4. , 2. , 3. ],
            [2. , 6. , 4. ],
            [3. , 4. , 3.5]]])
    """
    return impute_means(KernelStack.of(stack))


def impute_means(stack: KernelStack) -> xr.DataArray:
    """Return a checked stack with each missing object at the mean; see `mean_impute`."""
    completed = stack.array.copy()
    completed.attrs = {"long_name": "kernel matrices, missing objects at the mean"}
    for name, matrix, v in zip(stack.names, completed.values, stack.visible, strict=True):
        if not v.any():
            raise KernelError(
                f"kernel {name!r}: no object is visible, so there is no mean to impute. Leave "
                "the kernel out of the stack, or use zero_impute."
            )
        rows = matrix[np.ix_(v, v)].mean(axis=1)
        matrix[np.ix_(v, ~v)] = rows[:, None]
        matrix[np.ix_(~v, v)] = rows
        matrix[np.ix_(~v, ~v)] = rows.mean()
    return completed
