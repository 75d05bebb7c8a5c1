"""Blocks of rows and columns of a symmetric matrix: gathered, scattered, taken in strips."""

import threading
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from .products import inner
from .symmetric import Matrix

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


def strips(size: int) -> Iterator[slice]:
    """Yield the rows of a symmetric matrix in some six strips, not too thin for fast products.

    Each needs only what lies left of its end: together little more than half of the matrix.
    """
    rows = max(THIN, -(-size // 6))
    for i in range(0, size, rows):
        yield slice(i, min(i + rows, size))


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
