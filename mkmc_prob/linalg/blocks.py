"""Blocks of rows and columns of symmetric matrices: gathering, scattering and adding."""

import threading
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from .products import inner
from .symmetric import Matrix

Indices = NDArray[np.intp]

#: Rows gathered or scattered at a time: two such blocks fit in the cache of one core.
STRIP = 32
#: The smallest number of rows of a strip that is multiplied: products with fewer are slower.
THIN = 192


class Buffer:
    """Reusable memory for one matrix at a time.

    Allocating a large array costs as much as the arithmetic with it. A matrix taken from the buffer
    is valid until the next one is taken.
    """

    def __init__(self) -> None:
        self._memory = np.empty(0)

    def array(self, rows: int, columns: int) -> Matrix:
        """Return a matrix of this shape with arbitrary entries."""
        if self._memory.size < rows * columns:
            self._memory = np.empty(0)  # freed before the larger one is allocated
            self._memory = np.empty(rows * columns)
        return self._memory[: rows * columns].reshape(rows, columns)

    def block(self, matrix: Matrix, rows: Indices, columns: Indices) -> Matrix:
        """Return ``matrix[np.ix_(rows, columns)]``."""
        out = self.array(len(rows), len(columns))
        for i in range(0, len(rows), STRIP):
            strip = slice(i, i + STRIP)
            np.take(matrix[rows[strip]], columns, axis=1, out=out[strip], mode="clip")
        return out


class Workspace(threading.local):
    """The buffers of an E-step, shared by all kernels; each thread has its own."""

    def __init__(self) -> None:
        self.factored, self.across, self.regression = Buffer(), Buffer(), Buffer()
        self.cross, self.strip = Buffer(), Buffer()
        self.whitened, self.score = Buffer(), Buffer()
        self.explained, self.noise = Buffer(), Buffer()

    def __reduce__(self) -> tuple[type["Workspace"], tuple[()]]:
        return Workspace, ()  # a copy, or another process, gets its own buffers


def strips(size: int) -> Iterator[slice]:
    """Yield the rows of a symmetric matrix in about six strips, large enough for fast products.

    Each strip needs only the columns before its end, little more than half of the matrix in all.
    """
    rows = max(THIN, -(-size // 6))
    for i in range(0, size, rows):
        yield slice(i, min(i + rows, size))


def inner_of_block(matrix: Matrix, rows: Indices, columns: Indices, block: Matrix) -> float:
    """Return <A, B> for A = ``matrix[np.ix_(rows, columns)]`` and B = `block`."""
    total = 0.0
    for i in range(0, len(rows), STRIP):
        j = min(i + STRIP, len(rows))
        strip = np.take(matrix[rows[i:j]], columns, axis=1, mode="clip")
        total += inner(strip, block[i:j])
    return total


def add_rows(
    out: Matrix,
    weight: float,
    rows: Indices,
    order: Indices,
    left: Matrix,
    right: Matrix,
) -> None:
    """Add `weight` times [`left`, `right`, 0] to these `rows` of `out`, with columns reordered.

    Column ``order[j]`` is added to column j of `out`.
    """
    padded = np.zeros((STRIP, out.shape[1]))
    width = left.shape[1] + right.shape[1]
    for i in range(0, len(rows), STRIP):
        strip = slice(i, i + STRIP)
        part = padded[: len(rows[strip])]
        np.concatenate([left[strip], right[strip]], axis=1, out=part[:, :width])
        if weight != 1.0:
            part[:, :width] *= weight
        out[rows[strip]] += np.take(part, order, axis=1, mode="clip")
