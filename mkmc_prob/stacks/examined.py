"""The checks of a kernel that is not in memory, in one pass over its tiles."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from ..errors import IndefiniteKernelError, KernelError
from ..linalg.operators import FeatureOperator, SparseOperator, Sums, SymmetricOperator
from ..linalg.rounding import rounding_share
from ..linalg.spectra import negative_spectrum
from ..linalg.symmetric import Vector
from ..linalg.tiles import FeatureTiles, Strip, TiledOperator, compute, inside_of, strips_of
from .labels import Labels
from .matrix import ASYMMETRY_TOLERANCE, LARGEST_ENTRY

Mask = NDArray[np.bool_]
#: Restarts of Lanczos, and its vectors, in the thorough check.
RESTARTS, VECTORS = 20, 24
#: Of so many objects all eigenvalues are computed instead.
FEW = 1_000


class Given(NamedTuple):
    """A kernel before it is checked: what it is called, its matrix, objects and precision."""

    what: str
    matrix: Any
    objects: Labels
    eps: float


def tiled_operator(
    given: Given, row: Mask | None, advance: Callable[[], Any]
) -> tuple[SymmetricOperator, Mask]:
    """Return a kernel in tiles, checked, and which of its objects are visible.

    Every tile is read once, and those on the diagonal once before. An object is hidden if `row`
    says so or, without it, if its diagonal entry is NaN: then its row and column must be NaN.
    `advance` is called after each row of tiles.

    Raises
    ------
    KernelError
        As `stack_kernels` does; of several faults the one that comes first is named.
    """
    what, array, labels = given.what, given.matrix, given.objects
    lengths = _diagonal(array)
    visible = row if row is not None else ~np.isnan(lengths)
    places = np.flatnonzero(visible)
    strips, n = strips_of(array.chunks[0], places), len(places)
    diagonal, sizes, sums = np.empty(n), np.zeros(n), np.zeros(n)
    norm, largest, worst = 0.0, 0.0, Asymmetry(0.0, 0, 0, 0.0, 0.0)
    lengths, beyond = np.sqrt(np.fmax(lengths[places], 0.0)), worst
    tiles = array.to_delayed()
    for i, one in enumerate(strips):
        tasks = []
        for two in strips[i:]:
            at, across = (one.number, two.number), (two.number, one.number)
            lower = tiles[across] if at != across else None
            sides = lengths[one.places], lengths[two.places]
            tasks.append(_examine(tiles[at], lower, one, two, row is None, sides))
        for two, found in zip(strips[i:], compute(tasks), strict=True):
            _raise_of_entries(found, given, places, one, two)
            sizes[one.places] += found.rows
            sums[one.places] += found.sums_of_rows
            norm = float(np.hypot(norm, found.norm * (1.0 if one is two else np.sqrt(2.0))))
            largest = max(largest, found.largest)
            moved = found.asymmetry.moved(one.places.start, two.places.start)
            worst = max(worst, moved, key=lambda found: found.size)
            moved = found.beyond.moved(one.places.start, two.places.start)
            beyond = max(beyond, moved, key=lambda found: found.size)
            if one is two:
                diagonal[one.places] = found.diagonal
            else:
                sizes[two.places] += found.columns
                sums[two.places] += found.sums_of_columns
        advance()
    if row is None:
        _check_all_hidden(given, {strip.number for strip in strips}, advance)
    names = labels[places].tolist()
    _check_largest(what, largest)
    if worst.size > max(ASYMMETRY_TOLERANCE, 16 * given.eps) * largest:
        raise KernelError(
            f"{what}: not symmetric: the entry of objects {names[worst.row]!r} and "
            f"{names[worst.column]!r} is {worst.entry:.9g}, its transpose {worst.transposed:.9g} "
            f"(rows {places[worst.row]} and {places[worst.column]} of the array). If the average "
            "is meant, store (Q + Q.T) / 2; if only one triangle was written, write both. A chunk "
            "that is missing, or another shape or dtype than that of the file, does this too."
        )
    _check_diagonal(what, diagonal, names, largest, given.eps)
    _check_pair(what, beyond, names, diagonal, rounding_share(n, given.eps) * norm)
    return TiledOperator(array, places, diagonal, Sums(sums, norm, sizes)), visible


def sparse_operator(given: Given, row: Mask | None) -> tuple[SymmetricOperator, Mask]:
    """Return a sparse kernel, checked, and which of its objects are visible."""
    from scipy.sparse import csr_array

    matrix, what = csr_array(given.matrix).astype(np.float64), given.what
    visible = np.ones(matrix.shape[0], dtype=bool) if row is None else row
    places = np.flatnonzero(visible)
    matrix = matrix[places][:, places]
    names = given.objects[places].tolist()
    sizes = np.abs(matrix.data)
    if not (sizes <= LARGEST_ENTRY).all():
        at = int(np.argmin(sizes <= LARGEST_ENTRY))
        i, j = (int(where[at]) for where in matrix.tocoo().coords)
        raise KernelError(
            f"{what}: the entry of objects {names[i]!r} and {names[j]!r} is {matrix.data[at]:.6g}. "
            "Replace it, or hide the object: visible= says which objects are visible."
        )
    largest = float(sizes.max(initial=0.0))
    _check_largest(what, largest)
    apart = abs(matrix - matrix.T).tocoo()
    if apart.nnz and apart.data.max() > max(ASYMMETRY_TOLERANCE, 16 * given.eps) * largest:
        i, j = (int(where[int(apart.data.argmax())]) for where in apart.coords)
        raise KernelError(
            f"{what}: not symmetric: the entry of objects {names[i]!r} and {names[j]!r} is "
            f"{matrix[i, j]:.9g}, its transpose {matrix[j, i]:.9g}. If the average is meant, pass "
            "(Q + Q.T) / 2."
        )
    matrix = csr_array(0.5 * (matrix + matrix.T))
    diagonal, stored = matrix.diagonal(), matrix.tocoo()
    _check_diagonal(what, diagonal, names, largest, given.eps)
    if stored.nnz:
        lengths = np.sqrt(np.fmax(diagonal, 0.0))
        limits = lengths[stored.coords[0]] * lengths[stored.coords[1]]
        at = int(np.argmax(np.abs(stored.data) - limits))
        i, j = (int(where[at]) for where in stored.coords)
        beyond = Asymmetry(0.0, i, j, float(stored.data[at]), float(limits[at]))
        norm = float(np.linalg.norm(stored.data))
        _check_pair(what, beyond, names, diagonal, rounding_share(len(names), given.eps) * norm)
    return SparseOperator(matrix), visible


def feature_operator(given: Given, row: Mask | None) -> tuple[SymmetricOperator, Mask]:
    """Return a kernel given by its features, checked, and which of its objects are visible."""
    values = given.matrix.values
    tiled = not isinstance(values, np.ndarray)
    if tiled:
        values = values.rechunk({1: -1})
        counts = compute([_count_of_nan(part) for part in values.to_delayed()[:, 0]])
        missing = np.concatenate(counts)
    else:
        missing = np.concatenate(
            [np.isnan(values[i : i + 4096]).sum(axis=1) for i in range(0, len(values), 4096)]
            or [np.zeros(0, dtype=np.intp)]
        )
    count = values.shape[1]
    visible = missing < count if row is None else row
    partly = np.flatnonzero(visible & (missing > 0))
    if len(partly):
        at = int(partly[0])
        raise KernelError(
            f"{given.what}: {missing[at]} of {count} features of object "
            f"{given.objects.tolist()[at]!r} are NaN. Fill them in, leave these features out, or "
            "hide the object (all its features NaN)."
        )
    places = np.flatnonzero(visible)
    operator: SymmetricOperator
    with np.errstate(over="ignore", invalid="ignore"):  # what is too large is refused below
        if tiled:
            operator = FeatureTiles(values, places)
        else:
            operator = FeatureOperator(values if visible.all() else values[places])
    diagonal = operator.diagonal()
    if not (diagonal <= LARGEST_ENTRY).all():
        at = int(np.argmin(diagonal <= LARGEST_ENTRY))
        raise KernelError(
            f"{given.what}: the features of object {given.objects[places].tolist()[at]!r} are "
            "infinite or too large. Replace them, or rescale the features."
        )
    _check_largest(given.what, float(diagonal.max(initial=0.0)))
    return operator, visible


def check_spectrum(operator: SymmetricOperator, what: str, eps: float) -> None:
    """Raise IndefiniteKernelError if an eigenvalue is found that is negative beyond rounding.

    Of few objects all eigenvalues are computed, of many the smallest by Lanczos iteration. A Ritz
    value is never below the smallest eigenvalue: what is refused is indefinite, but an indefinite
    kernel can pass.
    """
    n, tolerance = len(operator), rounding_share(len(operator), eps) * operator.norm
    if n <= FEW:
        everything = np.arange(n)
        spectrum = negative_spectrum(operator.block(everything, everything), eps)
        if spectrum is not None:
            raise indefinite(what, float(spectrum[0]), tolerance)
        return
    if not operator.norm:
        return
    product = LinearOperator((n, n), matvec=operator.__matmul__, dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(n)
    try:
        (smallest,) = eigsh(
            product,
            k=1,
            which="SA",
            v0=start,
            ncv=min(VECTORS, n),
            maxiter=RESTARTS,
            tol=0.01,
            return_eigenvectors=False,
        )
    except ArpackNoConvergence:
        return
    if smallest < -tolerance:
        raise indefinite(what, float(smallest), tolerance)


def indefinite(what: str, smallest: float, tolerance: float) -> IndefiniteKernelError:
    """Return the error that a kernel has a negative eigenvalue."""
    return IndefiniteKernelError(
        f"{what}: its visible block is indefinite: an eigenvalue is at most {smallest:.6g} (down "
        f"to -{tolerance:.2g} counts as rounding). It is not a covariance: repair it, for example "
        "by adding a constant to its diagonal."
    )


class Asymmetry(NamedTuple):
    """The largest difference between an entry and its transpose, and where it is."""

    size: float
    row: int
    column: int
    entry: float
    transposed: float

    def moved(self, row: int, column: int) -> "Asymmetry":
        """Return it with its place among all visible objects."""
        return self._replace(row=self.row + row, column=self.column + column)


class Tile(NamedTuple):
    """What the checks need of a tile and of its transpose.

    Attributes
    ----------
    rows, columns : ndarray
        The sums of the absolute values.
    sums_of_rows, sums_of_columns : ndarray
        The sums of the entries.
    norm, largest : float
        The Frobenius norm and the largest absolute value of the entries.
    beyond : Asymmetry
        The entry that is furthest above the square root of the product of its diagonal entries,
        that root in place of the transpose.
    diagonal : ndarray or None
    asymmetry : Asymmetry
    bad : tuple or None
        Row, column and value of an entry that is not a number in range.
    shown : tuple or None
        A hidden object that has entries other than NaN: 0 if it is one of the tile's rows, 1 if
        one of its columns, and its place among them.
    """

    rows: Vector
    columns: Vector
    sums_of_rows: Vector
    sums_of_columns: Vector
    norm: float
    largest: float
    diagonal: Vector | None
    asymmetry: Asymmetry
    beyond: Asymmetry
    bad: tuple[int, int, float] | None
    shown: tuple[int, int] | None


def _examine(
    tile: Any, lower: Any, one: Strip, two: Strip, by_nan: bool, sides: tuple[Vector, Vector]
) -> Any:
    from dask.delayed import delayed

    return delayed(examine)(tile, lower, one.inside, two.inside, by_nan, *sides)


@np.errstate(over="ignore", invalid="ignore")  # infinite and too large entries are refused
def examine(
    tile: Any, lower: Any, rows: Any, columns: Any, by_nan: bool, left: Vector, right: Vector
) -> Tile:
    """Return what the checks need of a tile; `lower` is the tile across the diagonal, if another.

    With `by_nan`, hidden objects are those with NaN, and must have nothing else. `left` and `right`
    are the square roots of the diagonal entries of the rows and columns.
    """
    block = inside_of(tile, (rows, columns)).astype(np.float64)
    other = block if lower is None else inside_of(lower, (columns, rows)).astype(np.float64)
    absolute = np.abs(block)
    bad = _bad(block) or (None if lower is None else _bad(other))
    if bad and not _bad(block):
        bad = bad[1], bad[0], bad[2]
    shown = None
    if by_nan and not bad:
        shown = numbers_of_hidden(tile, rows, columns)
        if shown is None and lower is not None:
            shown = numbers_of_hidden(np.asarray(lower).T, rows, columns)
    difference = np.abs(block - other.T)
    i, j = np.unravel_index(int(np.argmax(difference)), difference.shape)
    size = float(difference[i, j])
    place = Asymmetry(size, int(i), int(j), float(block[i, j]), float(other[j, i]))
    above = absolute - np.outer(left, right)
    i, j = np.unravel_index(int(np.argmax(above)), above.shape)
    beyond = Asymmetry(
        float(above[i, j]), int(i), int(j), float(block[i, j]), float(left[i] * right[j])
    )
    mean = block if lower is not None else 0.5 * (block + block.T)
    return Tile(
        absolute.sum(axis=1),
        absolute.sum(axis=0),
        mean.sum(axis=1),
        mean.sum(axis=0),
        float(np.linalg.norm(mean)),
        float(absolute.max()),
        np.diagonal(block).copy() if lower is None else None,
        place,
        beyond,
        bad,
        shown,
    )


def numbers_of_hidden(tile: Any, rows: Any, columns: Any) -> tuple[int, int] | None:
    """Return an object that is not visible, but has entries other than NaN; see `Tile.shown`."""
    block = np.asarray(tile)
    for axis, inside in enumerate((rows, columns)):
        if inside is None:
            continue
        hidden = np.setdiff1d(np.arange(block.shape[axis]), inside)
        numbers = ~np.isnan(block.take(hidden, axis=axis)).all(axis=1 - axis)
        if numbers.any():
            return axis, int(hidden[int(numbers.argmax())])
    return None


def _check_all_hidden(given: Given, seen: set[int], advance: Callable[[], Any]) -> None:
    """Raise KernelError if rows of tiles without visible objects have entries other than NaN."""
    from dask.delayed import delayed

    tiles, task, nobody = given.matrix.to_delayed(), delayed(numbers_of_hidden), np.zeros(0, int)
    for i in (i for i in range(len(tiles)) if i not in seen):
        others = [j for j in range(len(tiles)) if j in seen or j >= i]
        tasks = [task(tiles[i, j], nobody, None) for j in others]
        tasks += [task(tiles[j, i], None, nobody) for j in others if j != i]
        for found in compute(tasks):
            if found is not None:
                raise _numbers_elsewhere(given, i, found[1])
        advance()


def _bad(block: NDArray[np.float64]) -> tuple[int, int, float] | None:
    """Return row, column and value of the first entry that is not a number in range."""
    good = np.abs(block) <= LARGEST_ENTRY
    if good.all():
        return None
    i, j = np.unravel_index(int(np.argmin(good)), good.shape)
    return int(i), int(j), float(block[i, j])


def _raise_of_entries(
    found: Tile, given: Given, places: NDArray[np.intp], one: Strip, two: Strip
) -> None:
    """Raise KernelError if a tile has an entry that is no number, or a hidden object has one."""
    labels = given.objects.tolist()
    if found.bad is not None:
        i, j, value = found.bad
        row, column = places[one.places][i], places[two.places][j]
        remedy = "Replace it, or hide the object (its whole row and column NaN)."
        if np.isnan(value):
            remedy = (
                "Objects are hidden as a whole: set the whole row and column to NaN, or fill in "
                "the entry. NaN in a whole tile can be a chunk that was never written."
            )
        raise KernelError(
            f"{given.what}: the entry of objects {labels[row]!r} and {labels[column]!r} is "
            f"{value:.6g} (rows {row} and {column} of the array). {remedy}"
        )
    if found.shown is not None:
        axis, place = found.shown
        raise _numbers_elsewhere(given, (one, two)[axis].number, place)


def _numbers_elsewhere(given: Given, number: int, place: int) -> KernelError:
    """Return the error about a hidden object, at this place in the row of tiles `number`."""
    at = place + sum(given.matrix.chunks[0][:number])
    return KernelError(
        f"{given.what}: object {given.objects.tolist()[at]!r} (row {at} of the array) has NaN on "
        "the diagonal, but numbers elsewhere. Objects are hidden as a whole: set the whole row and "
        "column to NaN, or fill in the entry. NaN in a whole tile can be a chunk that was never "
        "written."
    )


def _check_largest(what: str, largest: float) -> None:
    if 0.0 < largest < 1.0 / LARGEST_ENTRY:
        raise KernelError(
            f"{what}: its largest entry is {largest:.3g}; below {1 / LARGEST_ENTRY:g}, products of "
            "entries vanish. Rescale the kernel."
        )


def _check_diagonal(
    what: str, diagonal: Vector, names: list[Any], largest: float, eps: float
) -> None:
    if not len(diagonal):
        return
    worst = int(np.argmin(diagonal))
    if diagonal[worst] < -rounding_share(len(names), eps) * largest:
        raise KernelError(
            f"{what}: the diagonal entry of object {names[worst]!r} is {diagonal[worst]:.6g}. The "
            "diagonal of a kernel holds squared lengths."
        )


def _check_pair(
    what: str, beyond: Asymmetry, names: list[Any], diagonal: Vector, tolerance: float
) -> None:
    """Raise IndefiniteKernelError if two objects alone make a negative eigenvalue."""
    if not len(diagonal):
        return
    one, two = diagonal[beyond.row], diagonal[beyond.column]
    smallest = 0.5 * (one + two) - np.hypot(0.5 * (one - two), beyond.entry)
    if beyond.row == beyond.column or smallest >= -tolerance:
        return
    remedy = "It is not a covariance: repair it, for example by a constant on its diagonal."
    if not diagonal.any():
        remedy = (
            "Its diagonal is zero, so its entries look like distances D: pass a kernel computed "
            "from them, for example exp(-D**2 / (2 * scale**2))."
        )
    elif one == 0.0 or two == 0.0:
        remedy = "Zeros on the diagonal can be a chunk that was never written."
    raise IndefiniteKernelError(
        f"{what}: the entry of objects {names[beyond.row]!r} and {names[beyond.column]!r} is "
        f"{beyond.entry:.6g}, with diagonal entries {one:.6g} and {two:.6g}: in absolute value it "
        f"is above {beyond.transposed:.6g}, the square root of their product. {remedy}"
    )


def _diagonal(array: Any) -> Vector:
    """Return the diagonal, for which only the tiles on it are read."""
    from dask.delayed import delayed

    tiles = array.to_delayed()
    parts = compute([delayed(_diagonal_of)(tiles[i, i]) for i in range(len(tiles))])
    diagonal: Vector = np.concatenate(parts) if parts else np.zeros(0)
    return diagonal


def _diagonal_of(tile: Any) -> Vector:
    return np.diagonal(np.asarray(tile)).astype(np.float64)


def _count_of_nan(part: Any) -> Any:
    from dask.delayed import delayed

    return delayed(_nan_by_row)(part)


def _nan_by_row(part: Any) -> NDArray[np.intp]:
    return np.asarray(np.isnan(np.asarray(part)).sum(axis=1))
