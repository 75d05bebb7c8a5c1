"""Effective degrees of freedom of kernels with dependent features, and kernels of reduced rank."""

import numpy as np
import scipy.linalg
import xarray as xr

from ..errors import KernelError
from ..linalg.spectra import frobenius_norm
from ..linalg.symmetric import Matrix, symmetrize
from ..utils.arguments import real
from .degrees import DegreesOfFreedom, degrees_per_kernel
from .kernel_stack import KernelStack

#: A rank, which may be a float if it is whole.
WHOLE = real(lambda number: number >= 1 and number == round(number), "a whole number >= 1")


def effective_degrees_of_freedom(stack: xr.DataArray) -> xr.DataArray:
    """Estimate from its spectrum how many independent features each kernel is worth.

    With Q_vv the visible block, the estimate is

        nu_k = (tr Q_vv)^2 / tr Q_vv^2.

    It lies between 1 and the rank of Q_vv, which it reaches if all nonzero eigenvalues are equal.

    Parameters
    ----------
    stack
        Kernels, as `stack_kernels` builds them.

    Returns
    -------
    DataArray
        Over ``kernel``; numbers >= 1, in general not whole. A Wishart matrix with fewer degrees
        of freedom than rows has a whole number of them: round the estimates,
        ``effective_degrees_of_freedom(stack).round()``, for use with `reduce_rank`.

    Raises
    ------
    KernelError
        If a kernel shows no object, or is zero.

    Notes
    -----
    If X is normal with covariance S between the features and M between the objects, the kernel
    X X' / d has the variance of one with (tr S)^2 / tr S^2 independent features (Satterthwaite
    1946, *Biometrics Bulletin* 2, 110). The formula estimates that number if the objects are
    independent. Similarity between objects makes the spectrum steeper as well: with
    rho = tr M_vv^2 / (tr M_vv)^2,

        E tr Q_vv^2 / E (tr Q_vv)^2 = (1/nu + rho (1 + 1/nu)) / (1 + 2 rho/nu),

    so the formula underestimates nu, and its result is at most about 1/rho. The error is on the
    side of wide intervals. If the features are known to be independent, use their number instead.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import effective_degrees_of_freedom, stack_kernels
    >>> features = np.random.default_rng(0).standard_normal((200, 10))
    >>> twice = np.hstack([features, features])  # twenty features, ten of them copies
    >>> stack = stack_kernels({"a": features @ features.T, "b": twice @ twice.T})
    >>> effective_degrees_of_freedom(stack).round().values
    array([9., 9.])
    """
    checked = KernelStack.of(stack)
    found = []
    for kernel in checked.kernels():
        block = kernel.moment
        norm = frobenius_norm(block) if block.size else 0.0
        if not norm > 0.0:
            fault = "is zero" if block.size else "shows no object"
            raise KernelError(
                f"kernel {kernel.name!r}: it {fault}, so that its degrees of freedom cannot be "
                "estimated. Leave it out of the stack."
            )
        found.append(effective_number(block))
    return xr.DataArray(
        np.array(found),
        dims="kernel",
        coords={"kernel": checked.array["kernel"].values},
        name="degrees_of_freedom",
        attrs={"long_name": "effective degrees of freedom, (tr Q)^2 / tr Q^2"},
    )


def effective_number(block: Matrix) -> float:
    """Return (tr Q)^2 / tr Q^2 of a block that is not zero."""
    # At least 1 but for rounding, as (tr Q)^2 >= tr Q^2 for every positive semidefinite Q.
    return max(float(np.trace(block) / frobenius_norm(block)) ** 2, 1.0)


def reduce_rank(stack: xr.DataArray, rank: DegreesOfFreedom) -> xr.DataArray:
    """Replace the visible blocks by their best approximations of lower rank.

    `sample_posterior` needs this if a visible block has a higher rank than the kernel has degrees
    of freedom, because nu_k features give a matrix of rank nu_k at most. The nu_k largest
    eigenvalues and their eigenvectors are kept, which gives the nearest matrix in the Frobenius
    norm (Eckart and Young 1936, *Psychometrika* 1, 211).

    The approximation reduces the trace of a kernel, often by 10 to 35 %, and the hidden diagonal
    entries drawn for it become smaller accordingly. If a quarter or more is lost, intervals are too
    low as well. Then divide the visible block by the share that was kept. Do this only to examine
    hidden entries one at a time; do not pool whole stacks of such draws.

    Parameters
    ----------
    stack
        Kernels, as `stack_kernels` builds them. Not changed.
    rank
        A whole number, at least 1: one for all kernels, one per kernel, or labeled by kernel. A
        kernel with no more visible objects than its number is returned bit for bit.

    Returns
    -------
    DataArray
        The stack, with each visible block exactly symmetric and positive semidefinite. The share
        of each kernel's trace that was kept is in ``attrs["reduce_rank"]``, one line per kernel.

    Raises
    ------
    KernelError
        If a number is not whole, or below 1.
    LabelError
        If the numbers are labeled by other kernels than those of the stack.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import reduce_rank, stack_kernels
    >>> reduced = reduce_rank(stack_kernels([np.diag([3.0, 2.0, 1.0])]), 2)
    >>> np.diagonal(reduced.values[0]).round(12)
    array([3., 2., 0.])
    >>> reduced.attrs["reduce_rank"]
    "kernel 'Q1': rank 2 of 3 objects, 83.3 % of the trace kept"
    """
    reduced = KernelStack.of(stack)  # a copy
    ranks = degrees_per_kernel(rank, reduced.names, what="rank", check=WHOLE)
    lines = []
    for k, kernel in enumerate(reduced.kernels()):
        block, wanted, kept = kernel.moment, int(ranks[k]), 1.0
        if wanted < len(block):
            nearest, trace = _best_of_rank(block, wanted), float(np.trace(block))
            kept = float(np.trace(nearest)) / trace if trace else 1.0
            reduced.array.values[k][np.ix_(kernel.v, kernel.v)] = nearest
        lines.append(
            f"kernel {kernel.name!r}: rank {min(wanted, len(block))} of {len(block)} objects, "
            f"{100.0 * kept:.1f} % of the trace kept"
        )
    reduced.array.attrs["reduce_rank"] = "\n".join(lines)
    return reduced.array


def _best_of_rank(block: Matrix, rank: int) -> Matrix:
    largest = (len(block) - rank, len(block) - 1)
    values, vectors = scipy.linalg.eigh(
        block, subset_by_index=largest, driver="evr", check_finite=False
    )
    half = vectors * np.sqrt(np.maximum(values, 0.0))  # below zero is rounding
    return symmetrize(half @ half.T)
