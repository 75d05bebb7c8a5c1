"""Eigenvalues of symmetric blocks, and which of them are negative beyond rounding."""

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.linalg import lapack

from .rounding import rounding_share
from .symmetric import Matrix


def frobenius_norm(block: Matrix) -> float:
    """Return the Frobenius norm of `block`."""
    return float(scipy.linalg.norm(block, check_finite=False))  # LAPACK's scales, so no overflow


def eigenvalues(block: Matrix) -> NDArray[np.float64]:
    """Return the eigenvalues of a symmetric `block`, ascending."""
    return np.asarray(scipy.linalg.eigvalsh(block, check_finite=False), dtype=np.float64)


def eigenvalue_tolerance(block: Matrix, rounding: float) -> float:
    """Return the size up to which a negative eigenvalue of `block` is rounding."""
    return rounding_share(len(block), rounding) * frobenius_norm(block)


def negative_spectrum(block: Matrix, rounding: float) -> NDArray[np.float64] | None:
    """Return the eigenvalues of `block`, ascending, if the first is really negative, else None."""
    if not block.size:
        return None
    tolerance = eigenvalue_tolerance(block, rounding)
    shifted = block.copy()
    shifted.flat[:: len(block) + 1] += tolerance
    if not lapack.dpotrf(shifted.T, lower=1, clean=0, overwrite_a=1)[1]:
        return None
    values = eigenvalues(block)
    return values if values[0] < -tolerance else None
