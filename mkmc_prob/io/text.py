"""Reading one kernel matrix from a text file or a ``.npy`` file."""

import csv
import gzip
import io
import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..errors import KernelError, LabelError, MKMCError
from ..stacks.labels import Labels, as_labels, match
from ..stacks.matrix import check_rows_are_columns
from ..utils.files import a_path, decoding
from .arrays import ARRAY_SUFFIXES, read_npy

#: The start of a comment line above the matrix; a corner cell such as "#id" is not a comment.
COMMENT = re.compile(r"#[# ]|#\s*$")


Row = tuple[int, list[str]]  # the number of the line, its cells


def read_kernel(path: str | os.PathLike[str]) -> xr.DataArray:
    r"""Read one square matrix from a text file or a ``.npy`` file.

    Parameters
    ----------
    path
        A text file in UTF-8, plain or gzipped. The separator is the tab if there is one in the
        first two lines (outside quotes), otherwise the comma, otherwise the blank. ``NA``, ``NaN``
        and empty cells are missing values. Lines above the matrix that begin with ``# `` or ``##``
        are comments. Alternatively, a ``.npy`` file with one array of shape (n, n).

    Returns
    -------
    xarray.DataArray
        Shape (n, n), dims ``("object", "object_bis")``, float64 (each number is the double nearest
        to its text; the array of a ``.npy`` file keeps its dtype), columns in the order of the
        rows. Labels are text exactly as written, without the quotes: an object may be called
        ``NA`` or ``007``. An unlabeled matrix has no coordinates; `stack_kernels` treats it as a
        plain array, whose objects are named by ``objects=``.

    Raises
    ------
    KernelError
        If the file is not text, the cells are separated by semicolons, the matrix is not square, a
        cell is not a number, or the file looks like an edge list.
    LabelError
        If a label is empty or repeated, or the labels of rows and columns differ.
    FileNotFoundError
        If the file does not exist.

    Notes
    -----
    The first row shows whether the matrix has labels:

    - one cell fewer than in the next row (as written by R's ``write.table``): labels;
    - all cells are numbers or missing, and the first one is a number: a matrix without labels;
    - all cells are the same mark for a missing value: a matrix without labels whose first object
      is missing;
    - anything else (the corner cell is empty or text): labels, which may be integers.

    Columns ``V1``, ``V2``, ... and rows ``1``, ``2``, ..., which R's ``write.csv`` adds to a matrix
    without labels, are ignored.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from mkmc_prob.io import read_kernel
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "expression.csv"
    ...     _ = path.write_text("id,x,007\nx,2,0.1\n007,0.1,NA\n")
    ...     kernel = read_kernel(path)
    >>> kernel["object"].values
    array(['x', '007'], dtype='<U3')
    >>> kernel.values
    array([[2. , 0.1],
           [0.1, nan]])
    """
    path = a_path(path)
    if path.suffix.lower() == ".npy":
        values = read_npy(path)
        if values.ndim != 2 or values.shape[0] != values.shape[1]:
            raise KernelError(
                f"{path}: shape {values.shape} is not a square matrix. read_stack reads arrays of "
                "shape (K, n, n) or (n, n, K)."
            )
        return _kernel(values)
    if path.suffix.lower() in ARRAY_SUFFIXES:
        raise KernelError(
            f"{path}: read_kernel reads text and .npy; read_stack reads {path.suffix.lower()}."
        )
    raw = path.read_bytes()
    with decoding(path, "text in UTF-8"):
        # Gzip is recognized by its first bytes, whatever the name of the file.
        text = (gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw).decode("utf-8-sig")
    try:
        return _parse(text, path)
    except MKMCError as error:
        if _has_semicolons(text):
            raise KernelError(
                f"{path}: the cells are separated by semicolons. Save the matrix with tabs or "
                "commas between the cells and with a decimal point (R: write.csv, not write.csv2)."
            ) from error
        if _is_edge_list(text):
            raise KernelError(
                f"{path}: this looks like a list of edges (two IDs and at most a weight per line), "
                "not like a matrix. Read it with pandas.read_csv, build the adjacency matrix "
                "(pivot_table, reindex to the IDs that were covered, fillna(0), the maximum of it "
                "and its transpose), and compute a kernel from the graph's Laplacian L, such as "
                "scipy.linalg.expm(-c * L)."
            ) from error
        if text.startswith("#"):
            raise type(error)(
                f"{error} (The file begins with #. A comment begins with '# ', a hash and a blank.)"
            ) from error
        raise


def _lines(text: str) -> list[str]:
    """Return the lines of `text`, with the comments above the matrix replaced by empty lines."""
    lines = list(io.StringIO(text, newline=""))
    for i, line in enumerate(lines):
        if COMMENT.match(line):
            lines[i] = "\n"
        elif line.strip():
            break
    return lines


def _unquoted(lines: list[str], count: int) -> str:
    """Return the first nonblank lines without quoted text."""
    start = islice((line for line in lines if line.strip()), count)
    return re.sub('"[^"]*"', "", "".join(start))


def _has_semicolons(text: str) -> bool:
    """Return whether the cells of the first row can only be separated by semicolons.

    Commas between digits count as decimal commas.
    """
    first = _unquoted(_lines(text), 1)
    return ";" in first and not re.search("[\t,]", re.sub(r"\d,\d", "", first))


def _is_edge_list(text: str) -> bool:
    """Return whether each line of a text that is not a matrix has two IDs and at most a weight.

    Whole numbers may be features instead of IDs. They count as IDs only if some first ID is
    repeated, no pair is repeated, and no pair joins an ID to itself.
    """
    try:
        rows = [[cell.strip() for cell in cells] for _, cells in _rows(text, "")]
    except KernelError:
        return False
    first = rows[0] if rows else []
    if not any(cell and _number(cell) is not None for cell in first):  # the corner may be empty
        rows = rows[1:]  # without the header
    numbers = [str(i) for i in range(len(rows) + 1)]
    if [cells[0] for cells in rows] in (numbers[1:], numbers[:-1]):
        rows = [cells[1:] for cells in rows]  # without the row numbers of R or pandas
    if {len(cells) for cells in rows} not in ({2}, {3}):
        return False
    one, two, *weights = map(list, zip(*rows, strict=True))
    if one == first[-len(one) :] or any(None in map(_number, column) for column in weights):
        return False
    if all(_number(name) is None for name in two):
        return True
    pairs = set(zip(one, two, strict=True))
    return (len(set(one)) < len(one) == len(pairs)) and all(
        a.isdecimal() and b.isdecimal() and a != b for a, b in pairs
    )


def _rows(text: str, where: str | Path) -> Iterator[Row]:
    """Split `text` into rows of cells without quotes; blank lines are left out."""
    lines = _lines(text)
    unquoted = _unquoted(lines, 2)
    if "\t" in unquoted or "," in unquoted:
        reader = csv.reader(lines, delimiter="\t" if "\t" in unquoted else ",", strict=True)
    else:
        stripped = (line.strip() for line in lines)
        reader = csv.reader(stripped, delimiter=" ", skipinitialspace=True, strict=True)
    try:
        for cells in reader:
            if len(cells) > 1 or "".join(cells).strip():
                yield reader.line_num, cells
    except csv.Error as error:
        raise KernelError(
            f"{where}: line {reader.line_num} cannot be split into cells ({error}). Separate them "
            'by tabs or commas; inside quotes write "" for a quote.'
        ) from error


def _number(cell: str) -> float | None:
    """Return the number in `cell`, NaN if it is missing, None if the cell is not a number."""
    cell = cell.strip()
    if cell in ("", "NA"):
        return math.nan
    try:
        return None if "_" in cell else float(cell)  # Python would read 1_2 as 12
    except ValueError:
        return None


def _is_data(first: list[str]) -> bool:
    """Return whether the first row of a file holds entries instead of labels."""
    numbers: list[Any] = [_number(cell) for cell in first]
    return None not in numbers and (len(set(first)) == 1 or not math.isnan(numbers[0]))


def _parse(text: str, where: Path) -> xr.DataArray:
    rows = _rows(text, where)
    start = list(islice(rows, 2))
    if not start:
        raise KernelError(f"{where}: the file is empty.")
    first = start[0][1]
    short = len(start) == 2 and len(first) == len(start[1][1]) - 1
    if not short and _is_data(first):
        return _kernel(_entries(chain(start, rows), range(len(first)), None, where))
    columns = first if short else first[1:]
    names: list[str] = []
    values = _entries(chain(start[1:], rows), columns, names, where)
    numbers = [str(i + 1) for i in range(len(names))]
    if names == numbers and columns == [f"V{number}" for number in numbers]:
        return _kernel(values)  # R adds these names if there are none
    for kind, labels in ("row", names), ("column", columns):
        if not all(label.strip() for label in labels):
            raise LabelError(f"{where}: there is a {kind} without a label. Label or remove it.")
    objects, other = as_labels(names, f"{where}, rows"), as_labels(columns, f"{where}, columns")
    if set(objects.tolist()) != set(other.tolist()):
        remedy = "The first row and the first column must name the same objects."
        check_rows_are_columns(objects, other, str(where), remedy=remedy)
    return _kernel(values[:, match(objects, other, "{}")], objects)


def _entries(
    rows: Iterable[Row], columns: Sequence[int | str], names: list[str] | None, where: Path
) -> NDArray[np.float64]:
    """Return the square matrix in `rows`; append the labels of the rows, if any, to `names`."""
    values: list[NDArray[np.float64]] = []
    expected = len(columns) + (names is not None)
    for line, cells in rows:
        if len(cells) != expected:
            raise KernelError(
                f"{where}: line {line} has {len(cells)} cells, but {expected} are expected (the "
                f"first row makes {len(columns)} columns). Separate the cells by tabs or commas "
                "and write NA for missing values."
            )
        if names is not None:
            names.append(cells.pop(0))
        numbers = [_number(cell) for cell in cells]
        if None in numbers:
            row, odd = names[-1] if names else len(values), numbers.index(None)
            raise KernelError(
                f"{where}: row {row!r}, column {columns[odd]!r} (line {line}): {cells[odd]!r} is "
                "not a number. Write numbers with a decimal point, and NA for missing values."
            )
        values.append(np.array(numbers, dtype=np.float64))
    if len(values) != len(columns) or not values:
        remedy = "Give one row and one column per object, and labels to both or to neither."
        if len(values) == len(columns) + 1:
            remedy = (
                "The row labels seem to be missing: save with them (pandas: to_csv without "
                "index=False; R: row.names=TRUE)."
            )
        raise KernelError(
            f"{where}: {len(values)} rows and {len(columns)} columns (the first row and the first "
            f"column may be labels) are not a square matrix. {remedy}"
        )
    return np.stack(values)


def _kernel(values: NDArray[Any], objects: Labels | None = None) -> xr.DataArray:
    kernel = xr.DataArray(values, dims=("object", "object_bis"), name="kernel")
    return kernel if objects is None else kernel.assign_coords(object=objects, object_bis=objects)
