"""What dependent features are worth: effective degrees of freedom, and kernels of so small a rank.

Enters: an incomplete stack. Leaves: one number per kernel, how many independent features would
scatter as much; and the stack with kernels of a rank that so many features can have.
"""

import numpy as np
import scipy.linalg
import xarray as xr

from ..errors import KernelError
from ..linalg.spectra import frobenius_norm
from ..linalg.symmetric import Matrix, symmetrize
from ..utils.arguments import real
from .checked import KernelStack
from .degrees import DegreesOfFreedom, degrees_per_kernel

#: A rank, which may be a float if it is whole.
WHOLE = real(lambda number: number >= 1 and number == round(number), "a whole number >= 1")


def effective_degrees_of_freedom(stack: xr.DataArray) -> xr.DataArray:
    """Return how many independent features each kernel is worth, by its spectrum.

    With Q_vv the visible block,

        nu_k = (tr Q_vv)^2 / tr Q_vv^2,

    between 1 and the rank of Q_vv, which it is where all eigenvalues but the zeros are equal.

    Parameters
    ----------
    stack
        Kernels, as `stack_kernels` builds them.

    Returns
    -------
    DataArray
        Over ``kernel``; numbers >= 1, in general not whole. A Wishart matrix has a whole number
        below its size: ``effective_degrees_of_freedom(stack).round()`` and `reduce_rank` go
        together.

    Raises
    ------
    KernelError
        Where a kernel shows no object, or is zero.

    Notes
    -----
    Features that are normal with covariance S among themselves and M among the objects make a
    kernel X X' / d whose variance is that of (tr S)^2 / tr S^2 independent ones (Satterthwaite
    1946, *Biometrics Bulletin* 2, 110): for independent objects that is what is estimated. Objects
    that are alike make the spectrum steep, too: with rho = tr M_vv^2 / (tr M_vv)^2,

        E tr Q_vv^2 / E (tr Q_vv)^2 = (1/nu + rho (1 + 1/nu)) / (1 + 2 rho/nu),

    so that the formula gives less than nu, at most about 1/rho. It errs to the side of wide
    intervals. Where the features are known to be independent, their number is the better choice.

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
        found.append(float(np.trace(block) / norm) ** 2)
    # At least 1 but for rounding, as (tr Q)^2 >= tr Q^2 for every positive semidefinite Q.
    return xr.DataArray(
        np.maximum(found, 1.0),
        dims="kernel",
        coords={"kernel": checked.array["kernel"].values},
        name="degrees_of_freedom",
        attrs={"long_name": "effective degrees of freedom, (tr Q)^2 / tr Q^2"},
    )


def reduce_rank(stack: xr.DataArray, rank: DegreesOfFreedom) -> xr.DataArray:
    """Replace the visible blocks by their best approximations of a smaller rank.

    For `sample_posterior` with fewer degrees of freedom than a visible block has rank: nu_k
    features make a matrix of rank nu_k at most. The nu_k largest eigenvalues and their vectors are
    kept, which is nearest in the Frobenius norm (Eckart and Young 1936, *Psychometrika* 1, 211).
    What is left out makes the kernel smaller, by 10 to 35 % of its trace often: so are then the
    hidden entries on the diagonal that are drawn for it. From about a quarter on, intervals
    are too low as well: divide the visible block by the share that was kept,
    for hidden entries one by one: whole stacks of such draws are not to be pooled.

    Parameters
    ----------
    stack
        Kernels, as `stack_kernels` builds them. Not changed.
    rank
        A whole number, at least 1: one for all kernels, one per kernel, or labelled by kernel. A
        kernel that shows no more objects than its number comes back bit for bit.

    Returns
    -------
    DataArray
        The stack, each visible block exactly symmetric and positive semidefinite. What share of
        each kernel's trace was kept is in ``attrs["reduce_rank"]``, one line of text a kernel.

    Raises
    ------
    KernelError
        Where a number is not whole, or below 1.
    LabelError
        Where numbers are labelled by other kernels than the stack's.

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
