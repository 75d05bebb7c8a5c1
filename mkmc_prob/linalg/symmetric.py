"""Symmetric matrices: made exactly symmetric, or written as vectors."""

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]


class Triangle:
    """Symmetric matrices as vectors with the same inner products, half as long.

    The vector holds the lower triangle, what lies off the diagonal times sqrt(2).
    """

    def __init__(self, size: int) -> None:
        self.shape = (size, size)
        self._upper = np.tri(size, dtype=bool).T

    def vector(self, lower: Matrix) -> Vector:
        """Return the vector of a matrix in LAPACK's order; only its lower triangle is read.

        The matrix is overwritten.
        """
        scaled = np.multiply(lower, np.sqrt(2.0), out=lower)
        scaled.T.flat[:: len(lower) + 1] /= np.sqrt(2.0)
        vector: Vector = scaled.T[self._upper]
        return vector

    def matrix(self, vector: Vector, out: Matrix | None = None) -> Matrix:
        """Return the triangular X with X + X' = W, W the symmetric matrix of `vector`.

        In LAPACK's order, in the memory of `out` where it is given.
        """
        x = np.empty(self.shape) if out is None else out
        x[...] = 0.0
        x[self._upper] = vector
        x *= np.sqrt(0.5)
        x.flat[:: len(x) + 1] *= np.sqrt(0.5)
        return x.T


#: Rows and columns that are transposed at a time: two such blocks fit in a core's own cache.
BLOCK = 128


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
