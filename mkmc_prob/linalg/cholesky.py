"""Cholesky factors of positive definite matrices, with determinants, inverses and solutions."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from ..errors import IndefiniteKernelError
from .symmetric import Matrix, mirror


def cholesky(
    matrix: Matrix,
    what: str,
    labels: NDArray[Any] | None = None,
    remedy: str = "",
    *,
    overwrite: bool = False,
    clean: bool = True,
    kind: str = "object",
) -> Matrix:
    """Return the lower triangular L with L L' = `matrix`, in its memory if `overwrite` is True.

    If `clean` is False, the entries above the diagonal of L are arbitrary.

    Raises
    ------
    IndefiniteKernelError
        If `matrix` is not positive definite to working precision. The message names the object
        (or what `kind` says) at which the factorization stopped.
    """
    if not matrix.size:
        return np.zeros_like(matrix)
    variances = np.diagonal(matrix).copy()
    # A symmetric matrix is its own transpose; the transpose is in LAPACK's order without a copy.
    factor, info = lapack.dpotrf(matrix.T, lower=1, clean=int(clean), overwrite_a=int(overwrite))
    if not info and not factor[-1, -1] > 0.0:  # OpenBLAS accepts NaN, which propagates to here
        info = 1 + int(np.argmax(~(np.diagonal(factor) > 0.0)))
    if info:
        row: Any = info - 1
        at = row if labels is None else labels.tolist()[row]
        raise IndefiniteKernelError(
            f"{what}: not positive definite to working precision: its Cholesky factorization "
            f"stops at {kind} {at!r}, whose conditional variance given the {kind}s before it is "
            f"zero or negative up to rounding (its variance is {variances[row]:.3g}). {remedy}"
        )
    return factor  # type: ignore[no-any-return]


def semidefinite_root(matrix: Matrix) -> Matrix:
    """Return K with K K' = `matrix`, positive semidefinite, of as many columns as its rank.

    By pivoted Cholesky decomposition. It stops when no remaining variance is above l eps times the
    largest, which is the rounding of l products (Higham 1990, in *Reliable Numerical Computation*,
    161), so that K K' differs from the matrix by rounding alone.
    """
    if not matrix.size:
        return np.zeros_like(matrix)
    factor, pivots, rank, _ = lapack.dpstrf(matrix, lower=1)
    root = np.empty((len(matrix), rank))
    root[pivots - 1] = np.tril(factor)[:, :rank]
    return root


def log_determinant(factor: Matrix) -> float:
    """Return log det(L L') for a Cholesky factor L."""
    return 2.0 * float(np.log(np.diagonal(factor)).sum())


def inverse(factor: Matrix, *, overwrite: bool = False) -> Matrix:
    """Return (L L')^-1 for a Cholesky factor L, exactly symmetric."""
    if not factor.size:
        return np.zeros_like(factor)
    lower, _ = lapack.dpotri(factor, lower=1, overwrite_c=int(overwrite))
    return mirror(lower).T  # transposed to NumPy's order; the matrix is symmetric


def solve(factor: Matrix, right: Matrix) -> Matrix:
    """Return (L L')^-1 `right` for a Cholesky factor L."""
    if not right.size:
        return np.zeros_like(right)
    solution, _ = lapack.dpotrs(factor, right, lower=1)
    return solution  # type: ignore[no-any-return]


def half_solve(
    factor: Matrix, right: Matrix, *, transposed: bool = False, overwrite: bool = False
) -> Matrix:
    """Return L^-1 `right` for a Cholesky factor L, or L'^-1 `right` if `transposed`."""
    if not right.size:
        return np.zeros_like(right)
    return blas.dtrsm(
        1.0, factor, right, lower=1, trans_a=int(transposed), overwrite_b=int(overwrite)
    )
