"""Check that kernels are positive semidefinite, and repair those that are not."""

from typing import Literal

import numpy as np
import scipy.linalg
import xarray as xr

from ..errors import IndefiniteKernelError, warn
from ..linalg.spectra import eigenvalue_tolerance, frobenius_norm, negative_spectrum
from ..linalg.symmetric import Matrix, Vector, symmetrize
from ..utils.arguments import checked, choice
from .kernel_stack import KernelStack, VisibleKernel

#: How `repair_spectrum` treats negative eigenvalues.
Method = Literal["clip", "shift", "flip"]


def check_definite(stack: xr.DataArray | KernelStack) -> None:
    """Raise an error unless every visible block is positive semidefinite up to rounding.

    A negative eigenvalue counts as zero down to ``-n * eps * ||Q||_F``, with n the size of the
    visible block and eps the machine epsilon of the precision in which the kernel came (its
    coordinate `rounding`). This is the usual tolerance of a numerical rank, n * eps * the largest
    eigenvalue, with the Frobenius norm as an upper bound that needs no decomposition. With low
    precision (float16) and many objects the limit is ``-sqrt(eps) * ||Q||_F``, half of the digits.
    Most kernels are accepted by a Cholesky factorization of Q + tolerance I; eigenvalues are
    computed, and decide, only if it fails.

    Parameters
    ----------
    stack
        Kernels, as `stack_kernels` builds them.

    Raises
    ------
    IndefiniteKernelError
        If an eigenvalue is negative beyond rounding: the block is not a covariance, and it has no
        likelihood.
    KernelError, LabelError
        If `stack` is not a valid stack, see `check_stack`.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import stack_kernels
    >>> from mkmc_prob.stacks.definite import check_definite
    >>> check_definite(stack_kernels(np.array([[[1.0, 2.0], [2.0, 1.0]]])))
    Traceback (most recent call last):
        ...
    mkmc_prob.errors.IndefiniteKernelError: kernel 'Q1': its visible block is indefinite: ...
    """
    checked_stack = stack if isinstance(stack, KernelStack) else KernelStack.of(stack)
    for kernel in checked_stack.kernels():
        block, spectrum = kernel.moment, negative_spectrum(kernel.moment, kernel.eps)
        if spectrum is None:
            continue
        remedy = (
            "It is not a covariance, or its entries were rounded to a few digits: "
            "complete(stack, repair=True) or repair_spectrum(stack) repairs it and reports what "
            "that changes."
        )
        if not np.diagonal(block).any():
            remedy = (
                "It is not a covariance. Its diagonal is zero, so its entries look like distances "
                "D or the weights of a graph: pass a kernel computed from them, for example "
                "np.exp(-(D**2) / (2 * scale**2)), or scipy.linalg.expm(-scale * L) with the "
                "graph's Laplacian L."
            )
        tolerance = eigenvalue_tolerance(block, kernel.eps)
        raise IndefiniteKernelError(
            f"kernel {kernel.name!r}: its visible block is indefinite: of {len(spectrum)} "
            f"eigenvalues the smallest is {spectrum[0]:.6g} (the largest {spectrum[-1]:.6g}; down "
            f"to -{tolerance:.2g} counts as rounding of double precision). {remedy}"
        )


@checked(method=choice("clip", "shift", "flip"))
def repair_spectrum(stack: xr.DataArray, *, method: Method = "clip") -> xr.DataArray:
    """Make indefinite kernels positive semidefinite, and report what changed.

    Only visible blocks that `check_definite` refuses are changed; the others are returned
    bit for bit.

    Parameters
    ----------
    stack
        Kernels, as `stack_kernels` builds them.
    method
        How the eigenvalues are changed: ``"clip"`` sets negative ones to 0 (the nearest positive
        semidefinite matrix in the Frobenius norm), ``"shift"`` adds the absolute value of the
        smallest to the diagonal and so to every eigenvalue, ``"flip"`` takes absolute values.

    Returns
    -------
    xarray.DataArray
        The repaired stack, which `check_definite` accepts. The changes are listed in
        ``attrs["repair_spectrum"]``, one line of text per changed kernel.

    Raises
    ------
    KernelError, LabelError
        If `stack` is not a valid stack, see `check_stack`, or `method` is none of the three.

    Warns
    -----
    MKMCWarning
        For each changed kernel: the number of eigenvalues that were negative beyond rounding and
        the smallest one, the size of the change relative to the kernel (in Frobenius norms), and
        the entry that changed most.

    Examples
    --------
    >>> import warnings
    >>> import numpy as np
    >>> from mkmc_prob import stack_kernels
    >>> from mkmc_prob import repair_spectrum
    >>> stack = stack_kernels(np.array([[[1.0, 2.0], [2.0, 1.0]]]))
    >>> with warnings.catch_warnings(action="ignore"):
    ...     repaired = repair_spectrum(stack, method="shift")
    >>> repaired.values
    array([[[2., 2.],
            [2., 2.]]])
    """
    result = KernelStack.of(stack)  # a copy
    attrs = result.array.attrs
    lines = [attrs["repair_spectrum"]] if "repair_spectrum" in attrs else []
    for k, kernel in enumerate(result.kernels()):
        spectrum = negative_spectrum(kernel.moment, kernel.eps)
        if spectrum is None:
            continue
        repaired = kernel.moment + _correction(kernel.moment, method)
        # If the result is much smaller than the kernel, the kernel's rounding error may still
        # count. Each pass adds more than the last digit of the diagonal, so the loop ends.
        while (left := negative_spectrum(repaired, kernel.eps)) is not None:
            repaired.flat[:: len(repaired) + 1] -= left[0]
        result.array.values[k][np.ix_(kernel.v, kernel.v)] = repaired
        lines.append(_what_changed(kernel, spectrum, repaired, method))
        warn(lines[-1])
    nothing = "no kernel has an eigenvalue below zero by more than rounding: nothing changed"
    attrs["repair_spectrum"] = "\n".join(lines or [nothing])
    return result.array


def _correction(block: Matrix, method: Method) -> Matrix:
    """Return what to add to an indefinite `block` to make it positive semidefinite."""
    # Divide and conquer: the default driver (MRRR) is less accurate for eigenvalues near zero.
    values, vectors = scipy.linalg.eigh(block, driver="evd", check_finite=False)
    if method == "shift":
        return np.diag(np.full(len(block), -values[0]))
    negative = values < 0.0
    half = vectors[:, negative] * np.sqrt(-values[negative])
    once = symmetrize(half @ half.T)  # minus the negative part of the block
    return once if method == "clip" else 2.0 * once


def _what_changed(kernel: VisibleKernel, spectrum: Vector, repaired: Matrix, method: Method) -> str:
    block, objects = kernel.moment, kernel.objects[kernel.v].tolist()
    change = repaired - block
    i, j = np.unravel_index(int(np.argmax(np.abs(change))), change.shape)
    below = int((spectrum < -eigenvalue_tolerance(block, kernel.eps)).sum())
    share = frobenius_norm(change) / frobenius_norm(block)
    return (
        f"kernel {kernel.name!r}: {below} of {len(spectrum)} eigenvalues below zero, the smallest "
        f"{spectrum[0]:.6g} (the largest {spectrum[-1]:.6g}); method {method!r} changed the kernel "
        f"by {share:.3g} of its Frobenius norm; the entry of objects {objects[i]!r} and "
        f"{objects[j]!r} changed most, from {block[i, j]:.6g} to {repaired[i, j]:.6g}"
    )
