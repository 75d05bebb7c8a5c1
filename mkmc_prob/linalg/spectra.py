"""Eigenvalues of symmetric blocks, and whether some are negative beyond rounding."""

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.linalg import lapack

from .rounding import rounding_share
from .symmetric import Matrix


def frobenius_norm(block: Matrix) -> float:
    """Return the Frobenius norm of `block`."""
    return float(scipy.linalg.norm(block, check_finite=False))  # LAPACK scales, so no overflow


def eigenvalues(block: Matrix) -> NDArray[np.float64]:
    """Return the eigenvalues of a symmetric `block` in ascending order."""
    return np.asarray(scipy.linalg.eigvalsh(block, check_finite=False), dtype=np.float64)


def eigenvalue_tolerance(block: Matrix, eps: float) -> float:
    """Return the absolute value up to which a negative eigenvalue of `block` is rounding."""
    return rounding_share(len(block), eps) * frobenius_norm(block)


def negative_spectrum(block: Matrix, eps: float) -> NDArray[np.float64] | None:
    """Return the eigenvalues in ascending order if one is negative beyond rounding, else None."""
    if not block.size:
        return None
    tolerance = eigenvalue_tolerance(block, eps)
    shifted = block.copy()
    shifted.flat[:: len(block) + 1] += tolerance
    if not lapack.dpotrf(shifted.T, lower=1, clean=0, overwrite_a=1)[1]:
        return None
    values = eigenvalues(block)
    return values if values[0] < -tolerance else None
