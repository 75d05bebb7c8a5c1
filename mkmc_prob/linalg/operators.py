"""Symmetric matrices that need not be in memory: products, diagonal and entries are enough.

`tiles` has those that are stored in tiles.
"""

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeGuard

import numpy as np
from numpy.typing import NDArray

from ..errors import ClusterError, KernelError, MKMCError
from .symmetric import Matrix, Vector

EPS = float(np.finfo(np.float64).eps)
RESTORE = "Restore its files, or make the stack again."
CHANGED = f"what is read now is not what was read when it was checked. {RESTORE}"
#: Rows of features that are worked on at a time.
ROWS = 4_096


class Sums(NamedTuple):
    """What is known of a matrix once all of it was read.

    Attributes
    ----------
    rows : ndarray, shape (n,)
        The sums of the rows.
    norm : float
        The Frobenius norm.
    sizes : ndarray, shape (n,)
        The sums of the absolute values of the rows, or upper bounds of the sums of the terms of
        which they are made. They bound the rounding of products.
    """

    rows: Vector
    norm: float
    sizes: Vector


@contextmanager
def readable(what: str, remedy: str) -> Iterator[None]:
    """Turn what a library says of files that it cannot read into a KernelError."""
    try:
        yield
    except (MKMCError, ClusterError):
        raise
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        raise KernelError(
            f"{what}: cannot be read ({type(error).__name__}: {error}). {remedy}"
        ) from error


class SymmetricOperator:
    """A symmetric matrix Q of n rows, used as S = Q / d - z J, with J a matrix of ones.

    Subclasses pass the diagonal and the sums of Q, and compute `_product` and `_block`.

    Attributes
    ----------
    unit, shift : float
        d and z: 1 and 0 unless `in_units` set them.
    what : str
        What it is called in messages.
    """

    def __init__(self, diagonal: Vector, sums: Sums, what: str = "kernel") -> None:
        self._diagonal, self._sums, self.what = diagonal, sums, what
        self.unit, self.shift = 1.0, 0.0

    @property
    def form(self) -> str:
        """What is kept of the matrix, in words."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self._diagonal)

    def in_units(self, unit: float, shift: float) -> "SymmetricOperator":
        """Return Q / unit - shift J."""
        other = copy.copy(self)
        other.unit, other.shift = unit, shift
        return other

    def __matmul__(self, columns: Matrix) -> Matrix:
        """Return S X."""
        whole = columns if columns.ndim == 2 else columns[:, None]  # also of no rows
        shift = self.unit * self.shift
        with readable(self.what, RESTORE):
            found = self._product(whole, shift)
        self._check(whole, found, shift)
        found /= self.unit
        return found.reshape(columns.shape)

    def _check(self, columns: Matrix, product: Matrix, shift: float) -> None:
        """Raise KernelError unless the sums of a product are those that the sums of Q give.

        1'(Q X) = (Q 1)'X up to rounding, at most n eps of the sizes of the terms: what was read
        for the product is what was read when the kernel was checked.
        """
        n = len(self)
        expected = (self._sums.rows - n * shift) @ columns
        terms = (self._sums.sizes + n * abs(shift)) @ np.abs(columns)
        apart = np.abs(product.sum(axis=0) - expected)
        if not (apart <= 4.0 * n * EPS * terms).all():  # also if it is NaN
            raise KernelError(f"{self.what}: {CHANGED}")

    def diagonal(self) -> Vector:
        """Return the diagonal of S; a copy."""
        diagonal: Vector = self._diagonal / self.unit - self.shift
        return diagonal

    def block(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> Matrix:
        """Return the entries of S in these rows and columns."""
        with readable(self.what, RESTORE):
            found = self._block(rows, columns)
        _, own, beside = np.intersect1d(rows, columns, return_indices=True)
        diagonal = self._diagonal[rows[own]]
        apart = np.abs(found[own, beside] - diagonal)
        # By features an entry is a sum of p terms, at most as large as the diagonal entries.
        if np.isnan(found).any() or not (apart <= 1e-6 * np.abs(diagonal)).all():
            raise KernelError(f"{self.what}: {CHANGED}")
        return found / self.unit - self.shift

    @property
    def rows(self) -> Vector:
        """The sums of the rows of Q."""
        return self._sums.rows

    @property
    def total(self) -> float:
        """The sum of the entries of Q."""
        return float(self._sums.rows.sum())

    @property
    def trace(self) -> float:
        """The trace of Q."""
        return float(self._diagonal.sum())

    @property
    def norm(self) -> float:
        """The Frobenius norm of Q."""
        return self._sums.norm

    @property
    def sizes(self) -> Vector:
        """Bounds of the sums of the absolute values of the rows of S."""
        sizes: Vector = self._sums.sizes / self.unit + len(self) * abs(self.shift)
        return sizes

    def _product(self, columns: Matrix, shift: float) -> Matrix:
        """Return (Q - shift J) X."""
        raise NotImplementedError

    def _block(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> Matrix:
        """Return entries of Q."""
        raise NotImplementedError


class FeatureOperator(SymmetricOperator):
    """Q = X X' / p of n objects with p features, never formed: Q B = X (X' B) / p.

    Parameters
    ----------
    features
        X, shape (n, p), finite; any float type. It is not copied.
    """

    def __init__(self, features: NDArray[Any]) -> None:
        self.features = features
        size, count = features.shape
        diagonal, within = np.empty(size), np.zeros(count)
        absolute, gram = np.zeros(count), np.zeros((count, count))
        for rows, part in self._parts():
            diagonal[rows] = np.einsum("ij,ij->i", part, part) / count
            within += part.sum(axis=0)
            absolute += np.abs(part).sum(axis=0)
            gram += part.T @ part
        sizes, sums = np.empty(size), np.empty(size)
        for rows, part in self._parts():
            sizes[rows] = np.abs(part) @ absolute / count
            sums[rows] = part @ within / count
        norm = float(np.linalg.norm(gram)) / count
        super().__init__(diagonal, Sums(sums, norm, sizes))

    @property
    def form(self) -> str:
        """See `SymmetricOperator`."""
        return f"{self.features.shape[1]} features, {self.features.dtype}"

    def _parts(self) -> Any:
        """Yield slices of rows, and the features of these rows as float64."""
        for start in range(0, len(self.features), ROWS):
            rows = slice(start, start + ROWS)
            yield rows, np.asarray(self.features[rows], dtype=np.float64)

    def _product(self, columns: Matrix, shift: float) -> Matrix:
        count = self.features.shape[1]
        within = np.zeros((count, columns.shape[1]))
        for rows, part in self._parts():
            within += part.T @ columns[rows]
        within /= count
        found = np.empty_like(columns)
        for rows, part in self._parts():
            np.matmul(part, within, out=found[rows])
        if shift:
            found -= shift * columns.sum(axis=0)
        return found

    def _block(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> Matrix:
        left, right = (np.asarray(self.features[at], np.float64) for at in (rows, columns))
        block: Matrix = left @ right.T / self.features.shape[1]
        return block


class SparseOperator(SymmetricOperator):
    """A symmetric `scipy.sparse` matrix; what it does not store is zero.

    Parameters
    ----------
    matrix
        A float64 CSR array, exactly symmetric and finite.
    """

    def __init__(self, matrix: Any) -> None:
        self.matrix = matrix
        sizes = np.asarray(abs(matrix).sum(axis=1)).reshape(-1)
        norm = math.sqrt(float((matrix.data**2).sum())) if matrix.nnz else 0.0
        sums = np.asarray(matrix.sum(axis=1)).reshape(-1)
        super().__init__(matrix.diagonal(), Sums(sums, norm, sizes))

    @property
    def form(self) -> str:
        """See `SymmetricOperator`."""
        return f"{self.matrix.nnz} entries, sparse"

    def _product(self, columns: Matrix, shift: float) -> Matrix:
        found: Matrix = self.matrix @ columns
        if shift:
            found = found - shift * columns.sum(axis=0)
        return found

    def _block(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> Matrix:
        block: Matrix = self.matrix[rows][:, columns].toarray()
        return block


def is_operator(matrix: Any) -> TypeGuard[SymmetricOperator]:
    """Return whether a matrix is given by its products, rather than by its entries."""
    return isinstance(matrix, SymmetricOperator)


def norm_of(matrix: Any) -> float:
    """Return the Frobenius norm of an array or an operator, in the operator's own units."""
    return matrix.norm if is_operator(matrix) else float(np.linalg.norm(matrix))


def entries(matrix: Any, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> Matrix:
    """Return these rows and columns of an array or an operator."""
    if is_operator(matrix):
        return matrix.block(rows, columns)
    found: Matrix = matrix[np.ix_(rows, columns)]
    return found
