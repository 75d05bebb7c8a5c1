"""Positive definite matrices: factor them, and say by name where that cannot be done.

Enters: exactly symmetric float64 arrays. Leaves: Cholesky factors, log determinants, inverses and
solves made from the factors. Plain arrays and LAPACK only; labels serve messages.
"""

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from .errors import IndefiniteKernelError
from .labels import Labels

Matrix = NDArray[np.float64]
#: Rows and columns that are transposed at a time: two such blocks fit in a core's own cache.
BLOCK = 128
#: Rows that are gathered or scattered at a time, for the same reason.
STRIP = 32
#: Rows of a strip that is multiplied: with fewer, products are slower.
THIN = 192


class Workspace(threading.local):
    """Buffers by name, allocated once and reused; each thread has its own.

    Fresh large arrays cost as much as the arithmetic done with them. What is taken under a name
    is good until the name is taken again.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, Matrix] = {}

    def __reduce__(self) -> tuple[type["Workspace"], tuple[()]]:
        return Workspace, ()  # a copy, or another process, has buffers of its own

    def array(self, name: str, rows: int, columns: int) -> Matrix:
        """Return an array of this shape whose entries are whatever they were."""
        buffer = self._buffers.get(name)
        if buffer is None or buffer.size < rows * columns:
            del buffer  # before the new one comes
            self._buffers.pop(name, None)
            buffer = self._buffers[name] = np.empty(rows * columns)
        return buffer[: rows * columns].reshape(rows, columns)

    def block(
        self, name: str, matrix: Matrix, rows: NDArray[np.intp], columns: NDArray[np.intp]
    ) -> Matrix:
        """Return ``matrix[np.ix_(rows, columns)]``."""
        out = self.array(name, len(rows), len(columns))
        for i in range(0, len(rows), STRIP):
            strip = slice(i, i + STRIP)
            np.take(matrix[rows[strip]], columns, axis=1, out=out[strip], mode="clip")
        return out


def cholesky(
    matrix: Matrix,
    what: str,
    labels: Labels | None = None,
    remedy: str = "",
    *,
    overwrite: bool = False,
    clean: bool = True,
) -> Matrix:
    """Return the lower triangular L with L L' = `matrix`, in its place if it may be overwritten.

    Only the lower triangle of L holds anything good where it need not be `clean`.

    Raises
    ------
    IndefiniteKernelError
        Where `matrix` is not positive definite to working precision; names the object at which
        the factorisation stopped.
    """
    if not matrix.size:
        return np.zeros_like(matrix)
    variances = np.diagonal(matrix).copy()
    # A symmetric matrix is its own transpose; the transpose is in LAPACK's order without a copy.
    factor, info = lapack.dpotrf(matrix.T, lower=1, clean=int(clean), overwrite_a=int(overwrite))
    if not info and not factor[-1, -1] > 0.0:  # OpenBLAS lets NaN through, and it gets this far
        info = 1 + int(np.argmax(~(np.diagonal(factor) > 0.0)))
    if info:
        row: Any = info - 1
        at = row if labels is None else labels.tolist()[row]
        raise IndefiniteKernelError(
            f"{what}: not positive definite to working precision: its Cholesky factorisation "
            f"stops at object {at!r}, whose conditional variance given the objects before it is "
            f"zero or negative to rounding (its variance is {variances[row]:.3g}). {remedy}"
        )
    return factor  # type: ignore[no-any-return]


def log_determinant(factor: Matrix) -> float:
    """Return log det(L L') of a Cholesky factor L."""
    return 2.0 * float(np.log(np.diagonal(factor)).sum())


def inverse(factor: Matrix, *, overwrite: bool = False) -> Matrix:
    """Return (L L')^-1 of a Cholesky factor L, exactly symmetric."""
    if not factor.size:
        return np.zeros_like(factor)
    lower, _ = lapack.dpotri(factor, lower=1, overwrite_c=int(overwrite))
    return mirror(lower).T  # LAPACK's order is NumPy's after transposing, which changes nothing


def solve(factor: Matrix, right: Matrix) -> Matrix:
    """Return (L L')^-1 `right` of a Cholesky factor L."""
    if not right.size:
        return np.zeros_like(right)
    solution, _ = lapack.dpotrs(factor, right, lower=1)
    return solution  # type: ignore[no-any-return]


def half_solve(
    factor: Matrix, right: Matrix, *, transposed: bool = False, overwrite: bool = False
) -> Matrix:
    """Return L^-1 `right`, or L'^-1 `right` where `transposed`, of a Cholesky factor L."""
    if not right.size:
        return np.zeros_like(right)
    return blas.dtrsm(
        1.0, factor, right, lower=1, trans_a=int(transposed), overwrite_b=int(overwrite)
    )


def product(left: Matrix, right: Matrix, out: Matrix, *, add: float | None = None) -> Matrix:
    """Put `left` @ `right` into `out`, or `add` this multiple of it; return `out`.

    By SciPy's BLAS, like all of LAPACK here: NumPy's own is a second library with threads of its
    own, and two pools of threads that wait for work in turn take the cores from each other.
    """
    if not (left.size and right.size):
        out[...] = 0.0 if add is None else out
        return out
    # out' = right' left', in LAPACK's order.
    a, b = right.T, left.T
    blas.dgemm(
        1.0 if add is None else add,
        a if a.flags.f_contiguous else a.T,
        b if b.flags.f_contiguous else b.T,
        trans_a=not a.flags.f_contiguous,
        trans_b=not b.flags.f_contiguous,
        beta=float(add is not None),
        c=out.T,
        overwrite_c=1,
    )
    return out


def symmetric_product(symmetric: Matrix, other: Matrix, out: Matrix, weight: float = 1.0) -> Matrix:
    """Put `weight` times `symmetric` @ `other` into `out`; return it."""
    if out.size:
        blas.dsymm(weight, symmetric.T, other.T, side=1, lower=1, c=out.T, overwrite_c=1)
    return out


def strips(size: int) -> Iterator[slice]:
    """Yield the rows of a symmetric matrix in some six strips, not too thin for fast products.

    Each needs only what lies left of its end: together little more than half of the matrix.
    """
    rows = max(THIN, -(-size // 6))
    for i in range(0, size, rows):
        yield slice(i, min(i + rows, size))


def inner(one: Matrix, two: Matrix) -> float:
    """Return the sum of the products of the entries, <A, B>; by SciPy's BLAS, see `product`."""
    return float(blas.ddot(one.ravel(), two.ravel())) if one.size else 0.0


def inner_of_block(
    matrix: Matrix, rows: NDArray[np.intp], columns: NDArray[np.intp], block: Matrix
) -> float:
    """Return <A, B> of A = ``matrix[np.ix_(rows, columns)]`` and `block`."""
    total = 0.0
    for i in range(0, len(rows), STRIP):
        j = min(i + STRIP, len(rows))
        strip = np.take(matrix[rows[i:j]], columns, axis=1, mode="clip")
        total += inner(strip, block[i:j])
    return total


def add_rows(
    out: Matrix,
    weight: float,
    rows: NDArray[np.intp],
    order: NDArray[np.intp],
    left: Matrix,
    right: Matrix,
) -> None:
    """Add `weight` times [`left`, `right`, 0] to these `rows` of `out`, in its order of columns.

    Column j of `out` gets column ``order[j]``.
    """
    beside = np.zeros((STRIP, out.shape[1]))
    width = left.shape[1] + right.shape[1]
    for i in range(0, len(rows), STRIP):
        strip = slice(i, i + STRIP)
        part = beside[: len(rows[strip])]
        np.concatenate([left[strip], right[strip]], axis=1, out=part[:, :width])
        if weight != 1.0:
            part[:, :width] *= weight
        out[rows[strip]] += np.take(part, order, axis=1, mode="clip")


def mirror(lower: Matrix) -> Matrix:
    """Copy the lower triangle of `lower` over its upper one, in place; return it."""
    for i in range(0, len(lower), BLOCK):
        j = i + BLOCK
        lower[i:j, j:] = lower[j:, i:j].T
        corner = lower[i:j, i:j]
        corner[...] = np.tril(corner) + np.tril(corner, -1).T
    return lower


def symmetrize(matrix: Matrix) -> Matrix:
    """Replace A by (A + A') / 2, exactly symmetric, in place; return it."""
    matrix *= 0.5
    return add_transpose(matrix)


def add_transpose(matrix: Matrix) -> Matrix:
    """Replace A by A + A', exactly symmetric, in place; return it."""
    for i in range(0, len(matrix), BLOCK):
        rows = slice(i, i + BLOCK)
        for j in range(i, len(matrix), BLOCK):
            columns = slice(j, j + BLOCK)
            total = matrix[rows, columns] + matrix[columns, rows].T
            matrix[rows, columns] = total
            matrix[columns, rows] = total.T
    return matrix
