"""Simple imputation: by zeros and by the mean, the paper's baselines, and by nearest neighbors."""

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ..errors import KernelError
from ..linalg.symmetric import Matrix, symmetrize
from ..stacks.kernel_stack import KernelStack
from ..stacks.moments import block_moments
from ..stacks.stack import check_stack
from ..utils.arguments import checked, whole

#: Distances are rounded to this share of the largest one, so that ties do not depend on rounding.
RESOLUTION = 2.0**-40


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
    >>> from mkmc_prob import stack_kernels
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
    >>> from mkmc_prob import stack_kernels
    >>> from mkmc_prob import mean_impute
    >>> stack = stack_kernels([[[4.0, 2.0, 0.0], [2.0, 6.0, 0.0], [0.0, 0.0, 0.0]]],
    ...                       visible=[[1, 1, 0]])
    >>> mean_impute(stack).values
    array([[[4. , 2. , 3. ],
            [2. , 6. , 4. ],
            [3. , 4. , 3.5]]])
    """
    return impute_means(KernelStack.of(stack))


@checked(n_neighbors=whole(least=1))
def knn_impute(stack: xr.DataArray, *, n_neighbors: int = 5) -> xr.DataArray:
    """Return `stack` with each missing object at the mean of its nearest visible objects.

    Unlike `zero_impute` and `mean_impute`, this method uses the other kernels: they determine which
    objects are near. It is k-nearest-neighbor imputation with the rows of all kernels as features.

    Parameters
    ----------
    stack
        From `stack_kernels`: dims ``("kernel", "object", "object_bis")``, NaN where an object is
        missing.
    n_neighbors
        The number of neighbors, at least 1.

    Returns
    -------
    xarray.DataArray
        The completed stack, each kernel exactly symmetric, and positive semidefinite (up to
        rounding) if its visible block is.

    Raises
    ------
    KernelError
        If `n_neighbors` is not a whole number >= 1.
    KernelError, LabelError
        If a kernel has no visible object, or the stack is invalid, see `check_stack`.

    Notes
    -----
    *Distance.* The features of an object are its rows of all kernels. The squared distance of two
    objects is the mean squared difference of their rows over the kernels in which both are visible
    and the visible objects of each. It is the distance of scikit-learn's
    ``nan_euclidean_distances`` up to a constant factor. To make kernels comparable, each is first
    divided by its variance within the kernel: the mean diagonal entry minus the mean off-diagonal
    entry of the visible block. (If that is zero up to rounding, or only one object is visible, by
    the mean diagonal entry.) Multiplying a kernel by a constant multiplies its completion and does
    not change those of the others.

    *Completion.* A hidden object i of a kernel has the same weight, ``1 / n_neighbors``, on each of
    the `n_neighbors` nearest objects that are visible in this kernel. If fewer of them share a
    kernel with i, those are used; if none does, all visible objects, as in `mean_impute`. Of
    objects at the same distance, the first are chosen. With W the matrix of the weights, v the
    visible and h the hidden objects::

        Q_hv = W Q_vv
        Q_hh = W Q_vv W'

    which are the inner products if each hidden object is the mean of its neighbors in the kernel's
    feature space.

    Examples
    --------
    The second kernel shows that object 2 is similar to object 1:

    >>> import numpy as np
    >>> from mkmc_prob import stack_kernels
    >>> from mkmc_prob import knn_impute
    >>> first = np.diag([4.0, 6.0, 0.0])
    >>> second = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.9], [0.0, 0.9, 1.0]])
    >>> stack = stack_kernels([first, second], visible=[[1, 1, 0], [1, 1, 1]])
    >>> knn_impute(stack, n_neighbors=1).values[0]
    array([[4., 0., 0.],
           [0., 6., 6.],
           [0., 6., 6.]])
    """
    return impute_neighbors(KernelStack.of(stack), n_neighbors=n_neighbors)


def impute_means(stack: KernelStack) -> xr.DataArray:
    """Return a checked stack with each missing object at the mean; see `mean_impute`."""
    completed = stack.array.copy()
    completed.attrs = {"long_name": "kernel matrices, missing objects at the mean"}
    _check_visible(stack)
    for matrix, v in zip(completed.values, stack.visible, strict=True):
        rows = matrix[np.ix_(v, v)].mean(axis=1)
        matrix[np.ix_(v, ~v)] = rows[:, None]
        matrix[np.ix_(~v, v)] = rows
        matrix[np.ix_(~v, ~v)] = rows.mean()
    return completed


def impute_neighbors(stack: KernelStack, *, n_neighbors: int = 5) -> xr.DataArray:
    """Return a checked stack with each missing object at its neighbors' mean; see `knn_impute`."""
    completed = stack.array.copy()
    completed.attrs = {"long_name": "kernel matrices, missing objects at their neighbors' mean"}
    _check_visible(stack)
    distances = _squared_distances(stack)
    for matrix, kernel in zip(completed.values, stack.kernels(), strict=True):
        v, h = kernel.v, kernel.h
        weights = csr_array(_neighbor_weights(distances[np.ix_(h, v)], n_neighbors))
        rows = weights @ kernel.moment
        matrix[np.ix_(h, v)] = rows
        matrix[np.ix_(v, h)] = rows.T
        matrix[np.ix_(h, h)] = symmetrize(np.asarray(weights @ rows.T))
    return completed


def _check_visible(stack: KernelStack) -> None:
    """Raise KernelError if no object is visible in a kernel."""
    for name, v in zip(stack.names, stack.visible, strict=True):
        if not v.any():
            raise KernelError(
                f"kernel {name!r}: no object is visible, so there is no mean to impute. Leave "
                "the kernel out of the stack, or use zero_impute."
            )


def _squared_distances(stack: KernelStack) -> Matrix:
    """Return the mean squared differences of the objects' rows, relative to the largest.

    They are infinite for two objects that are never visible together.
    """
    size = len(stack.objects)
    total, columns = np.zeros((size, size)), np.zeros((size, size))
    for kernel in stack.kernels():
        rows = kernel.moment / (block_moments(kernel.moment).scale or 1.0)
        rows -= rows.mean(axis=0)  # less cancels below
        length = np.square(rows).sum(axis=1)
        both = np.ix_(kernel.v, kernel.v)
        total[both] += length[:, None] + length - 2.0 * (rows @ rows.T)
        columns[both] += len(kernel.v)
    shared = columns > 0
    squared = np.divide(total, columns, out=np.full_like(total, np.inf), where=shared)
    largest = squared[shared].max()
    if largest > 0.0:
        squared[shared] = np.rint(squared[shared] / (largest * RESOLUTION)) * RESOLUTION
    return squared


def _neighbor_weights(distances: Matrix, n_neighbors: int) -> Matrix:
    """Return the weight of each visible object (column) in the mean for each hidden one (row)."""
    chosen = _nearest(distances, n_neighbors) & np.isfinite(distances)
    chosen[~chosen.any(axis=1)] = True
    return np.asarray(chosen / chosen.sum(axis=1, keepdims=True))


def _nearest(distances: Matrix, number: int) -> NDArray[np.bool_]:
    """Mark the `number` smallest entries of each row, of equal ones the first."""
    if number >= distances.shape[1]:
        return np.ones(distances.shape, dtype=bool)
    last = np.partition(distances, number - 1, axis=1)[:, number - 1 : number]
    closer, tied = distances < last, distances == last
    free = number - closer.sum(axis=1, keepdims=True)
    return np.asarray(closer | (tied & (tied.cumsum(axis=1) <= free)))
