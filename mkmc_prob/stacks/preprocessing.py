"""Preprocessing of kernels before completion: centering, normalizing, and a summary table."""

import numpy as np
import pandas as pd
import xarray as xr

from ..errors import KernelError, warn
from ..linalg.rounding import eps_of_share, rounding_share
from ..linalg.spectra import eigenvalue_tolerance, eigenvalues, frobenius_norm, negative_spectrum
from .kernel_stack import KernelStack

#: The numeric columns of `describe`, and those added with `spectrum=True`.
COLUMNS = ("mean_diagonal", "mean_entry", "smallest", "largest")
SPECTRUM = ("smallest_eigenvalue", "largest_eigenvalue", "rank")


def center(stack: xr.DataArray) -> xr.DataArray:
    """Center each kernel in its feature space: H Q H with H = I - 11'/n, over its visible objects.

    The n visible objects of a kernel then have mean zero in its feature space, and every row of the
    visible block sums to zero. Kernels with different visible objects have different means.

    Parameters
    ----------
    stack
        Kernels, as `stack_kernels` builds them.

    Returns
    -------
    xarray.DataArray
        The centered stack. The coordinate `rounding`, which holds the eps of each kernel, grows by
        the factor ||Q||_F / ||H Q H||_F, because digits cancel if the mean is large relative to
        the spread. If no digit is left, the block is set to 0.

    Warns
    -----
    MKMCWarning
        If nothing is left of a kernel beyond rounding.

    Raises
    ------
    KernelError, LabelError
        If `stack` is not a valid stack, see `check_stack`.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import stack_kernels
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
        # A sum of two means does not depend on their order, so the result is symmetric.
        centered = block - (mean[:, None] + mean) + mean.mean()
        # The absolute error, at most the tolerance of the block, stays; the block shrinks.
        before, after = frobenius_norm(block), frobenius_norm(centered)
        error = eigenvalue_tolerance(block, kernel.eps)
        if after > error:
            eps[k] = max(kernel.eps, eps_of_share(len(mean), error / after))
        elif before:
            centered[:] = 0.0  # what is left is rounding of either sign
            warn(
                f"kernel {kernel.name!r}: centering leaves nothing of it beyond rounding (norm "
                f"{after:.3g} of {before:.3g}), so it is set to zero: its {len(mean)} visible "
                "objects are all alike, or their mean is too large for the precision. Leave the "
                "kernel out, or center its features before computing it."
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
        The normalized stack, with a diagonal of exactly 1. The division keeps the signs of the
        eigenvalues (Sylvester's law of inertia), but if lengths differ widely it may enlarge the
        rounding error of an eigenvalue that is zero. The coordinate `rounding` then grows
        accordingly, so that `check_definite` accepts after `normalize` what it accepted before.

    Raises
    ------
    KernelError
        If a diagonal entry is zero up to rounding: at most n * eps times the largest one, or
        sqrt(eps) times if that is less, with eps the coordinate `rounding`. Rounding in n terms can
        leave that much of a zero.
    LabelError
        If `stack` is not a valid stack, see `check_stack`.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import stack_kernels
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
                f"is {diagonal[worst]:.3g}, zero up to rounding ({tolerance:.3g}), and cannot "
                "be normalized to 1. Hide the object in this kernel (its whole row and column "
                "NaN), or do not center the kernel if that made it zero."
            )
        length = np.sqrt(diagonal)
        normalized = kernel.moment / np.outer(length, length)
        np.fill_diagonal(normalized, 1.0)
        result.array.values[k][np.ix_(kernel.v, kernel.v)] = normalized
        negative = negative_spectrum(normalized, kernel.eps)
        if negative is not None and negative_spectrum(kernel.moment, kernel.eps) is None:
            # The eps whose tolerance lies slightly beyond the smallest eigenvalue.
            share = 1.01 * -negative[0] / frobenius_norm(normalized)
            eps[k] = eps_of_share(len(diagonal), share)
    return result.array


def describe(stack: xr.DataArray, *, spectrum: bool = False) -> pd.DataFrame:
    """Return a summary table of the kernels, one row per kernel.

    Parameters
    ----------
    stack
        Kernels, as `stack_kernels` builds them.
    spectrum
        Whether to compute the eigenvalues of the visible blocks, too (about n^3 operations each).

    Returns
    -------
    pandas.DataFrame
        Indexed by kernel: the numbers of `visible` and `missing` (hidden) objects; of the visible
        block the `mean_diagonal`, `mean_entry`, `smallest` and `largest` entry; with `spectrum`
        also the `smallest_eigenvalue`, `largest_eigenvalue` and the numerical `rank`, which counts
        the eigenvalues beyond the tolerance of `check_definite`. NaN if no object is visible.

        `mean_entry` is relative: the mean of the off-diagonal entries divided by `mean_diagonal`.
        It shows the constant that all entries share: 1 if there is nothing else, -1/(n - 1) after
        `center`. NaN if there is only one object or the diagonal is zero.

    Raises
    ------
    KernelError, LabelError
        If `stack` is not a valid stack, see `check_stack`.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import stack_kernels
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
        row |= dict.fromkeys(COLUMNS + (SPECTRUM if spectrum else ()), np.nan)
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
