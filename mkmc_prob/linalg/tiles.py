"""Symmetric matrices in tiles: on disk, in a compressed array, or on the workers of a cluster.

The tasks are products with one tile each, which dask schedules: in the threads of this process, or
on a cluster if a `dask.distributed` client is active. Sums are taken in a fixed order, so that the
result does not depend on which task ends first.
"""

import functools
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import ClusterError, MKMCError
from .operators import Sums, SymmetricOperator
from .symmetric import Matrix, Vector

T = TypeVar("T")

#: The rows and columns of a tile where the array does not say.
TILE = 1_500
#: Rows of a tile that are multiplied at a time.
ROWS = 128
#: The client that `fit` was given.
CLIENT: ContextVar[Any] = ContextVar("client", default=None)
#: The modules whose errors say that a cluster, or a worker, is gone.
CLUSTER = ("distributed.", "asyncio.")
#: How often a product is tried if workers die.
TRIES = 3
#: Tiles with fewer or more rows than this are read as others.
LEAST_TILE, LARGEST_TILE = 250, 4_096


def compute(tasks: list[Any]) -> list[Any]:
    """Return the results of delayed tasks, in order.

    Raises
    ------
    ClusterError
        If the cluster is gone, or workers died repeatedly over a task.
    """
    from dask.base import compute as by_dask

    given = CLIENT.get()
    options = {} if given is None else {"scheduler": given}
    with answering():
        return list(by_dask(*tasks, **options))  # type: ignore[no-untyped-call]


def active_client() -> Any:
    """Return the client of `fit` or the active one of `dask.distributed`, None if there is none."""
    if CLIENT.get() is not None:
        return CLIENT.get()
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        return distributed.default_client()
    except ValueError:
        return None


@contextmanager
def on_cluster(client: Any) -> Iterator[None]:
    """Compute products with tiles on the cluster of `client`; on the active one if it is None."""
    if client is None:
        yield
        return
    if not hasattr(client, "scatter") or isinstance(client, type):
        raise MKMCError(
            f"client: {type(client).__name__} found; pass dask.distributed.Client(address)."
        )
    token = CLIENT.set(client)  # of this thread only
    try:
        yield
    finally:
        CLIENT.reset(token)


def shared(values: list[Any]) -> list[Any]:
    """Return arrays that many tasks take; a cluster gets them once, not with each task."""
    client = active_client()
    if client is None:
        return values
    with answering():
        return list(client.scatter(values, hash=False))


@contextmanager
def answering() -> Iterator[None]:
    """Turn the errors of a cluster that does not answer into a ClusterError."""
    client = active_client()
    try:
        yield
    except Exception as error:
        lost = isinstance(error, CancelledError | TimeoutError | ConnectionError)
        lost = lost or type(error).__module__.startswith(CLUSTER)
        if client is None or not (lost or client.status != "running"):
            raise
        raise ClusterError(
            f"the cluster does not answer ({type(error).__name__}: {error}). Start it again, and "
            "continue from the last iterate: fit(..., initial=error.model)."
        ) from error


def again_if_workers_died(product: Callable[..., T]) -> Callable[..., T]:
    """Repeat a product if a worker died with the arrays that were sent to it, and others live."""

    @functools.wraps(product)
    def repeated(*args: Any) -> T:
        for _ in range(TRIES - 1):
            try:
                return product(*args)
            except ClusterError:
                client = active_client()
                if client is None or client.status != "running":
                    raise
        return product(*args)

    return repeated


def as_tiles(array: Any) -> Any:
    """Return a square array of any kind as a dask array with the same chunks on both axes."""
    import dask.array

    da: Any = dask.array
    size = array.shape[0]
    if not isinstance(array, da.Array):
        chunks = getattr(array, "chunks", None)  # of zarr
        array = da.from_array(array, chunks=_sides(chunks, size), asarray=False)
    rows, columns = array.chunks
    side = max(rows, default=0)
    if side > LARGEST_TILE or (side < LEAST_TILE and len(rows) > 1):
        rows = TILE
    return array if rows == columns else array.rechunk((rows, rows))


def _sides(chunks: Any, size: int) -> tuple[int, int]:
    """Return the sides of a tile of whole chunks."""
    side = max(chunks) if chunks else TILE
    if chunks and side < LEAST_TILE:
        side *= -(-TILE // side)
    side = min(side, LARGEST_TILE, size) or 1
    return side, side


class Strip(NamedTuple):
    """The visible objects of one row of tiles: where they are in the tile and in Q."""

    number: int
    inside: NDArray[np.intp] | None  # None if all of the tile's
    places: slice


class TiledOperator(SymmetricOperator):
    """The visible block of a symmetric matrix in tiles, of which the upper triangle is read.

    Parameters
    ----------
    array
        A square dask array with the same chunks on both axes.
    visible
        The positions of the visible objects, increasing.
    diagonal, sums
        Of the visible block.
    """

    def __init__(self, array: Any, visible: NDArray[np.intp], diagonal: Vector, sums: Sums) -> None:
        super().__init__(diagonal, sums)
        self.array, self.visible = array, visible
        self.strips = strips_of(array.chunks[0], visible)
        self._tiles = array.to_delayed()

    @property
    def form(self) -> str:
        """See `SymmetricOperator`."""
        return f"blocks of {self.array.chunks[0][0]}, {self.array.dtype}"

    @again_if_workers_died
    def _product(self, columns: Matrix, shift: float) -> Matrix:
        from dask.delayed import delayed

        pieces = shared([columns[strip.places] for strip in self.strips])
        parts: list[list[Any]] = [[] for _ in self.strips]
        task, total = delayed(tile_product, nout=2), delayed(added)
        for i, one in enumerate(self.strips):
            for j, two in enumerate(self.strips[i:], start=i):
                tile = self._tiles[one.number, two.number]
                inside = (one.inside, two.inside)
                right, left = task(tile, inside, pieces[j], pieces[i] if j > i else None, shift)
                parts[i].append(right)
                if j > i:
                    parts[j].append(left)
        found = compute([total(own) for own in parts])
        return np.concatenate(found) if found else np.zeros_like(columns)

    def _block(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> Matrix:
        block = np.empty((len(rows), len(columns)))
        starts = np.array([strip.places.start for strip in self.strips], dtype=np.intp)
        of_rows, of_columns = (
            np.searchsorted(starts, at, side="right") - 1 for at in (rows, columns)
        )
        tasks, where = [], []
        for i in np.unique(of_rows):
            for j in np.unique(of_columns):
                own, beside = np.flatnonzero(of_rows == i), np.flatnonzero(of_columns == j)
                first, second = self.visible[rows[own]], self.visible[columns[beside]]
                low = i <= j  # entries below the diagonal are those above it
                tasks.append(self._entries(*((first, second) if low else (second, first)), i == j))
                where.append((own, beside, low))
        for (own, beside, low), found in zip(where, compute(tasks), strict=True):
            block[np.ix_(own, beside)] = found if low else found.T
        return block

    def _entries(self, rows: NDArray[np.intp], columns: NDArray[np.intp], same: bool) -> Any:
        from dask.delayed import delayed

        if not same:
            return delayed(chosen)(self.array[rows][:, columns], None)
        # Within a tile on the diagonal the mean of both triangles counts.
        return delayed(chosen)(self.array[rows][:, columns], self.array[columns][:, rows])


class FeatureTiles(SymmetricOperator):
    """Q = X X' / p with X in tiles of rows, on disk or on a cluster.

    Parameters
    ----------
    features
        A dask array of shape (n, p) with one chunk of columns.
    visible
        The positions of the visible objects, increasing.
    """

    def __init__(self, features: Any, visible: NDArray[np.intp]) -> None:
        from dask.delayed import delayed

        self.features, self.visible, self.count = features, visible, features.shape[1]
        self.strips = strips_of(features.chunks[0], visible)
        tiles = features.to_delayed()[:, 0]
        self._tiles = [(tiles[strip.number], strip.inside) for strip in self.strips]
        parts = compute([delayed(feature_sums)(*tile) for tile in self._tiles])
        within, absolute, gram = np.zeros(self.count), np.zeros(self.count), 0.0
        for own, sizes, own_gram, _ in parts:
            within, absolute, gram = within + own, absolute + sizes, gram + own_gram
        diagonal = np.concatenate([part[3] for part in parts]) if parts else np.zeros(0)
        found = compute([delayed(row_sums)(*tile, within, absolute) for tile in self._tiles])
        norm = float(np.linalg.norm(gram)) / self.count
        whole, sums = np.concatenate(found).T / self.count if found else np.zeros((2, 0))
        super().__init__(diagonal / self.count, Sums(sums, norm, whole))

    @property
    def form(self) -> str:
        """See `SymmetricOperator`."""
        return f"{self.count} features, {self.features.dtype}, in blocks of rows"

    @again_if_workers_died
    def _product(self, columns: Matrix, shift: float) -> Matrix:
        from dask.delayed import delayed

        pieces = shared([columns[strip.places] for strip in self.strips])
        within = [
            delayed(feature_product)(*tile, piece, True)
            for tile, piece in zip(self._tiles, pieces, strict=True)
        ]
        if not within:
            return np.zeros_like(columns)
        (across,) = shared([compute([delayed(added)(within)])[0] / self.count])
        found = compute([delayed(feature_product)(*tile, across, False) for tile in self._tiles])
        product: Matrix = np.concatenate(found)
        if shift:
            product -= shift * columns.sum(axis=0)
        return product

    def _block(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> Matrix:
        from dask.delayed import delayed

        parts = [self.features[self.visible[at]] for at in (rows, columns)]
        left, right = compute([delayed(chosen)(part, None) for part in parts])
        block: Matrix = left @ right.T / self.count
        return block


def _rows(part: Any, inside: NDArray[np.intp] | None) -> Matrix:
    """Return the features of the visible objects of a tile as float64."""
    block = np.asarray(part) if inside is None else np.asarray(part)[inside]
    return np.asarray(block, dtype=np.float64)


@np.errstate(over="ignore", invalid="ignore")  # what is too large is refused later
def feature_sums(part: Any, inside: Any) -> tuple[Vector, Vector, Matrix, Vector]:
    """Return sums of the features, of their absolute values, X'X, and the squares of each row."""
    rows = _rows(part, inside)
    squares = np.einsum("ij,ij->i", rows, rows)
    return rows.sum(axis=0), np.abs(rows).sum(axis=0), rows.T @ rows, squares


@np.errstate(over="ignore", invalid="ignore")
def row_sums(part: Any, inside: Any, within: Vector, absolute: Vector) -> Matrix:
    """Return abs(X) a and X w, as two columns."""
    rows = _rows(part, inside)
    return np.column_stack([np.abs(rows) @ absolute, rows @ within])


def feature_product(part: Any, inside: Any, columns: Matrix, transposed: bool) -> Matrix:
    """Return X' C or X C."""
    rows = _rows(part, inside)
    product: Matrix = rows.T @ columns if transposed else rows @ columns
    return product


def strips_of(sides: tuple[int, ...], visible: NDArray[np.intp]) -> list[Strip]:
    """Return the rows of tiles with visible objects."""
    found, start = [], 0
    ends = np.cumsum(sides)
    for number, (end, side) in enumerate(zip(ends, sides, strict=True)):
        low, high = np.searchsorted(visible, [end - side, end])
        if high > low:
            inside = None if high - low == side else visible[low:high] - (end - side)
            found.append(Strip(number, inside, slice(start, start + int(high - low))))
            start += int(high - low)
    return found


def inside_of(
    tile: Any, inside: tuple[NDArray[np.intp] | None, NDArray[np.intp] | None]
) -> NDArray[Any]:
    """Return the visible entries of a tile."""
    block: NDArray[Any] = np.asarray(tile)
    rows, columns = inside
    if rows is not None or columns is not None:
        rows = np.arange(block.shape[0]) if rows is None else rows
        columns = np.arange(block.shape[1]) if columns is None else columns
        block = block[np.ix_(rows, columns)]
    return block


def tile_product(
    tile: Any, inside: Any, right: Matrix, left: Matrix | None, shift: float
) -> tuple[Matrix, Matrix | None]:
    """Return (T - shift J) R, and (T - shift J)' L; a tile on the diagonal has no `left`."""
    block = inside_of(tile, inside)
    one, two = both_products(block, right, right if left is None else left, shift)
    return (0.5 * (one + two), None) if left is None else (one, two)


def both_products(
    tile: NDArray[Any], right: Matrix, left: Matrix, shift: float
) -> tuple[Matrix, Matrix]:
    """Return (T - shift J) R and (T - shift J)' L, both while a few rows are in the cache."""
    one, two = np.empty((len(tile), right.shape[1])), np.zeros((left.shape[1], tile.shape[1]))
    across, buffer = np.ascontiguousarray(left.T), np.empty((ROWS, tile.shape[1]))
    for start in range(0, len(tile), ROWS):
        rows = slice(start, start + ROWS)
        block = np.subtract(tile[rows], shift, out=buffer[: len(tile[rows])], dtype=np.float64)
        np.matmul(block, right, out=one[rows])
        two += across[:, rows] @ block
    return one, two.T


def added(parts: list[Matrix]) -> Matrix:
    """Return the sum of the parts, in their order."""
    total = parts[0].copy()
    for part in parts[1:]:
        total += part
    return total


def chosen(block: Any, transposed: Any) -> Matrix:
    """Return entries as float64, the mean with their transposes if these are given."""
    found = np.asarray(block, dtype=np.float64)
    if transposed is None:
        return found
    return 0.5 * (found + np.asarray(transposed, dtype=np.float64).T)
