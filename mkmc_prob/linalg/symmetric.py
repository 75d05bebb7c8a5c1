"""Symmetric matrices: making them exactly symmetric, and writing them as vectors."""

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]


class Triangle:
    """Symmetric matrices as vectors of half the length with the same inner products.

    The vector holds the lower triangle, with off-diagonal entries multiplied by sqrt(2).
    """

    def __init__(self, size: int) -> None:
        self.shape = (size, size)
        self._upper = np.tri(size, dtype=bool).T

    def vector(self, lower: Matrix) -> Vector:
        """Return the vector of a matrix in Fortran order; only its lower triangle is read.

        The matrix is overwritten.
        """
        scaled = np.multiply(lower, np.sqrt(2.0), out=lower)
        scaled.T.flat[:: len(lower) + 1] /= np.sqrt(2.0)
        vector: Vector = scaled.T[self._upper]
        return vector

    def matrix(self, vector: Vector, out: Matrix | None = None) -> Matrix:
        """Return the triangular X with X + X' = W, the symmetric matrix of `vector`.

        X is in Fortran order, and in the memory of `out` if it is given.
        """
        x = np.empty(self.shape) if out is None else out
        x[...] = 0.0
        x[self._upper] = vector
        x *= np.sqrt(0.5)
        x.flat[:: len(x) + 1] *= np.sqrt(0.5)
        return x.T


#: Rows and columns transposed at a time: two such blocks fit in the cache of one core.
BLOCK = 128


def mirror(lower: Matrix) -> Matrix:
    """Copy the lower triangle of `lower` to its upper triangle, in place; return it."""
    for i in range(0, len(lower), BLOCK):
        j = i + BLOCK
        lower[i:j, j:] = lower[j:, i:j].T
        corner = lower[i:j, i:j]
        corner[...] = np.tril(corner) + np.tril(corner, -1).T
    return lower


def symmetrize(matrix: Matrix) -> Matrix:
    """Replace A by (A + A') / 2 in place, exactly symmetric; return it."""
    matrix *= 0.5
    return add_transpose(matrix)


def add_transpose(matrix: Matrix) -> Matrix:
    """Replace A by A + A' in place, exactly symmetric; return it."""
    for i in range(0, len(matrix), BLOCK):
        rows = slice(i, i + BLOCK)
        for j in range(i, len(matrix), BLOCK):
            columns = slice(j, j + BLOCK)
            total = matrix[rows, columns] + matrix[columns, rows].T
            matrix[rows, columns] = total
            matrix[columns, rows] = total.T
    return matrix
