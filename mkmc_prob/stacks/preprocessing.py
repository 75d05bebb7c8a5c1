"""What people do to kernels before completing them: center, normalize, repair; and a first look.

Enters: a labelled stack. Leaves: a new stack with the same labels, changed on the visible block of
each kernel only and exactly symmetric; a table; or an error that names the kernel.
"""

import numpy as np
import pandas as pd
import xarray as xr

from ..errors import KernelError, warn
from ..linalg.rounding import eps_of_share, rounding_share
from ..linalg.spectra import eigenvalue_tolerance, eigenvalues, frobenius_norm, negative_spectrum
from .checked import KernelStack

#: The columns of `describe`, and those that it adds with `spectrum`.
COLUMNS = ("mean_diagonal", "mean_entry", "smallest", "largest")
SPECTRUM = ("smallest_eigenvalue", "largest_eigenvalue", "rank")


def center(stack: xr.DataArray) -> xr.DataArray:
    """Center each kernel in its feature space: H Q H with H = I - 11'/n, over its visible objects.

    The n objects that a kernel sees then have mean zero in its feature space, and every row of
    the block sums to zero. Kernels that see different objects are centered on different means.

    Parameters
    ----------
    stack
        Kernels, as `stack_kernels` builds them.

    Returns
    -------
    xarray.DataArray
        The centered stack. The coordinate `rounding` grows by ||Q||_F / ||H Q H||_F, the digits
        that cancel where the mean is large beside the spread; where none is left, the block is 0.

    Warns
    -----
    MKMCWarning
        Where nothing is left of a kernel beyond rounding.

    Raises
    ------
    KernelError, LabelError
        Where the stack is not one, see `check_stack`.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob.stacks.stack import stack_kernels
    >>> from mkmc_prob import center
    >>> center(stack_kernels(np.array([[[4.0, 2.0], [2.0, 4.0]]]))).values
    array([[[ 1., -1.],
            [-1.,  1.]]])
    """
    result = KernelStack.of(stack)  # a copy
    eps = result.array["rounding"].values
    for k, kernel in enumerate(result.kernels()):
        block = kernel.moment
        if not block.size:
            continue
        mean = block.mean(axis=0)
        # The sum of two row means is the same both ways round, so the result is symmetric.
        centered = block - (mean[:, None] + mean) + mean.mean()
        # The absolute error stays, the tolerance of the block at most; the block shrinks.
        before, after = frobenius_norm(block), frobenius_norm(centered)
        error = eigenvalue_tolerance(block, kernel.eps)
        if after > error:
            eps[k] = max(kernel.eps, eps_of_share(len(mean), error / after))
        elif before:
            centered[:] = 0.0  # what is left has any sign
            warn(
                f"kernel {kernel.name!r}: centering leaves nothing of it beyond rounding (norm "
                f"{after:.3g} of {before:.3g}), so zeros: its {len(mean)} visible objects are all "
                "alike, or their mean is too large for the precision. Leave the kernel out, or "
                "center its features before computing it."
            )
        result.array.values[k][np.ix_(kernel.v, kernel.v)] = centered
    return result.array


def normalize(stack: xr.DataArray) -> xr.DataArray:
    """Divide each kernel by the lengths of its objects: Q_ij / sqrt(Q_ii Q_jj), diagonal 1.

    Parameters
    ----------
    stack
        Kernels, as `stack_kernels` builds them.

    Returns
    -------
    xarray.DataArray
        The normalized stack; its diagonals are exactly 1. The division keeps the signs of the
        eigenvalues (Sylvester's law of inertia), but may enlarge a zero one's rounding error where
        lengths differ widely; where it did, the coordinate `rounding` grows as much as explains
        it, so that what `check_definite` accepts it accepts after.

    Raises
    ------
    KernelError
        Where a diagonal entry is zero to rounding: at most n * rounding times the largest of the
        kernel (sqrt(rounding) times, where that is less), what rounding in n terms can leave of a
        zero.
    LabelError
        Where the stack is not one, see `check_stack`.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob.stacks.stack import stack_kernels
    >>> from mkmc_prob import normalize
    >>> normalize(stack_kernels(np.array([[[4.0, 1.0], [1.0, 1.0]]]))).values
    array([[[1. , 0.5],
            [0.5, 1. ]]])
    """
    result = KernelStack.of(stack)  # a copy
    eps = result.array["rounding"].values
    for k, kernel in enumerate(result.kernels()):
        if not kernel.moment.size:
            continue
        diagonal = np.diagonal(kernel.moment)
        share = rounding_share(len(diagonal), kernel.eps)
        tolerance = share * float(np.abs(diagonal).max())
        worst = int(np.argmin(diagonal))
        if diagonal[worst] <= tolerance:
            label = result.objects[kernel.v].tolist()[worst]
            raise KernelError(
                f"kernel {kernel.name!r}: the diagonal entry of object {label!r} "
                f"is {diagonal[worst]:.3g}, zero to rounding (up to {tolerance:.3g}), and cannot "
                "be normalized to 1. Hide the object in this kernel (its whole row and column "
                "NaN), or do not center if that made it zero."
            )
        length = np.sqrt(diagonal)
        normalized = kernel.moment / np.outer(length, length)
        np.fill_diagonal(normalized, 1.0)
        result.array.values[k][np.ix_(kernel.v, kernel.v)] = normalized
        negative = negative_spectrum(normalized, kernel.eps)
        if negative is not None and negative_spectrum(kernel.moment, kernel.eps) is None:
            # The rounding whose tolerance is a little beyond the smallest eigenvalue.
            share = 1.01 * -negative[0] / frobenius_norm(normalized)
            eps[k] = eps_of_share(len(diagonal), share)
    return result.array


def describe(stack: xr.DataArray, *, spectrum: bool = False) -> pd.DataFrame:
    """Return what a person looks at first, one row a kernel.

    Parameters
    ----------
    stack
        Kernels, as `stack_kernels` builds them.
    spectrum
        Whether to compute the eigenvalues of the visible blocks too (some n^3 operations each).

    Returns
    -------
    pandas.DataFrame
        Indexed by kernel: `visible` and `missing` objects; of the visible block `mean_diagonal`,
        `mean_entry`, `smallest` and `largest` entry; with `spectrum` also `smallest_eigenvalue`,
        `largest_eigenvalue` and the numerical `rank`, the eigenvalues beyond the tolerance of
        `check_definite`. NaN where a kernel sees no object.

        `mean_entry` is relative: the mean of the entries off the diagonal divided by
        `mean_diagonal`. It shows the constant that all entries share: 1 where there is nothing
        else, -1/(n - 1) after `center`. NaN where there is one object or a zero diagonal.

    Raises
    ------
    KernelError, LabelError
        Where the stack is not one, see `check_stack`.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob.stacks.stack import stack_kernels
    >>> from mkmc_prob import describe
    >>> describe(stack_kernels(np.array([[[4.0, 1.0], [1.0, 2.0]]]))).T
    kernel               Q1
    visible        2.000000
    missing        0.000000
    mean_diagonal  3.000000
    mean_entry     0.333333
    smallest       1.000000
    largest        4.000000
    """
    checked = KernelStack.of(stack)
    rows = []
    for kernel in checked.kernels():
        block = kernel.moment
        row: dict[str, float] = {"visible": len(kernel.v), "missing": len(kernel.h)}
        row |= dict.fromkeys(COLUMNS + SPECTRUM * spectrum, np.nan)
        if block.size:
            diagonal = float(np.diagonal(block).mean())
            row |= {"mean_diagonal": diagonal, "smallest": block.min(), "largest": block.max()}
            if diagonal > 0.0 and len(block) > 1:
                row["mean_entry"] = block[~np.eye(len(block), dtype=bool)].mean() / diagonal
        if block.size and spectrum:
            values = eigenvalues(block)
            rank = (np.abs(values) > eigenvalue_tolerance(block, kernel.eps)).sum()
            row |= dict(zip(SPECTRUM, (values[0], values[-1], float(rank)), strict=True))
        rows.append(row)
    return pd.DataFrame(rows, index=pd.Index(checked.names, name="kernel"))
