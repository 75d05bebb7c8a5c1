"""One kernel matrix from a file: of text, or of one NumPy array.

Enters: a file of tab-, comma- or blank-separated numbers, plain or gzipped, with or without labels;
or a ``.npy`` file. Leaves: one square matrix, its labels exactly the text in the file; or an error
that names the file, the row, the column and what stands there. Whether the matrix is a kernel
(symmetric, objects missing as a whole) is looked at where matrices become a stack.
"""

import csv
import gzip
import io
import math
import os
import re
import zlib
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..errors import KernelError, LabelError, MKMCError
from ..stacks.labels import Labels, as_labels, positions
from ..stacks.matrix import check_rows_are_columns
from ..utils.files import a_path
from .arrays import ARRAY_SUFFIXES, read_npy

#: How a line of comment above the matrix begins; a corner cell "#id" does not.
COMMENT = re.compile(r"#[# ]|#\s*$")


Row = tuple[int, list[str]]  # the number of its line, its cells


def read_kernel(path: str | os.PathLike[str]) -> xr.DataArray:
    r"""Read one square matrix from a text file, or from a ``.npy`` file.

    Parameters
    ----------
    path
        A text file in UTF-8, plain or gzipped. The cells are separated by tabs if there are any in
        the first two lines (outside quotes), or else by commas, or else by blanks. ``NA``, ``NaN``
        and an empty cell stand for what is missing. Lines above the matrix that begin with ``# ``
        or ``##`` are comments. Or a ``.npy`` file of one array (n, n).

    Returns
    -------
    xarray.DataArray
        Shape (n, n), dims ``("object", "object_bis")``, float64 (every number the double nearest
        to its text; the numbers of a ``.npy`` file stay of their type), columns in the order of
        the rows. Labels are text exactly as written, without the quotes: an object may be called
        ``NA`` or ``007``. An unlabelled matrix has no coordinates: to `stack_kernels` it is a
        plain array, whose objects ``objects=`` names.

    Raises
    ------
    KernelError
        Where the file is not text, its cells are separated by semicolons, the matrix is not square
        or a cell is not a number; where it looks like a list of edges.
    LabelError
        Where a label is empty or repeated, or where rows and columns have different labels.
    FileNotFoundError
        Where there is no such file.

    Notes
    -----
    The first row tells whether there are labels:

    - it has one cell fewer than the next row (as R's ``write.table`` leaves it): labels;
    - all its cells are numbers or missing, the first one a number: a matrix without labels;
    - all its cells are one and the same mark for missing: a matrix without labels, whose first
      object is missing;
    - anything else (the corner cell is empty or text): labels, integers among them.

    What R's ``write.csv`` makes of a matrix without labels (columns ``V1``, ``V2``, ..., rows
    ``1``, ``2``, ...) counts as unlabelled.

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
        return _kernel(None, values)
    if path.suffix.lower() in ARRAY_SUFFIXES:
        raise KernelError(
            f"{path}: read_kernel reads text and .npy; read_stack reads {path.suffix.lower()}."
        )
    text = _decode(path.read_bytes(), str(path))
    try:
        return _parse(text, str(path))
    except MKMCError as error:
        if _has_semicolons(text):
            raise KernelError(
                f"{path}: the cells are separated by semicolons. Save it with tabs or commas "
                "between the cells, and a decimal point (R: write.csv, not write.csv2)."
            ) from error
        if _is_edge_list(text):
            raise KernelError(
                f"{path}: it looks like a list of edges (two IDs and at most a weight in a line), "
                "not like a matrix. Read it with pandas.read_csv, build the adjacency matrix "
                "(pivot_table, reindex to the IDs that were covered, fillna(0), the maximum of it "
                "and its transpose), and take a kernel of the graph's Laplacian L, "
                "scipy.linalg.expm(-c * L), say."
            ) from error
        if text.startswith("#"):
            raise type(error)(
                f"{error} (The file begins with #. A comment begins with '# ', a hash and a blank.)"
            ) from error
        raise


def _decode(raw: bytes, where: str) -> str:
    try:
        if raw.startswith(b"\x1f\x8b"):  # gzip's mark, whatever the file is called
            raw = gzip.decompress(raw)
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise KernelError(
            f"{where}: not text in UTF-8 (byte {error.start} is {raw[error.start]:#04x}). Save the "
            "matrix as tab- or comma-separated text in UTF-8."
        ) from error
    except (OSError, EOFError, zlib.error) as error:
        raise KernelError(
            f"{where}: the compressed file is damaged ({error}). Make or fetch it again."
        ) from error


def _lines(text: str) -> list[str]:
    """Return the lines of `text`, empty ones in place of the comments above the matrix."""
    lines = list(io.StringIO(text, newline=""))
    for i, line in enumerate(lines):
        if COMMENT.match(line):
            lines[i] = "\n"
        elif line.strip():
            break
    return lines


def _unquoted(lines: list[str], count: int) -> str:
    """Return the first lines that are not blank, without what stands in quotes."""
    start = islice((line for line in lines if line.strip()), count)
    return re.sub('"[^"]*"', "", "".join(start))


def _has_semicolons(text: str) -> bool:
    """Return whether, decimal commas aside, only semicolons can separate the first row's cells."""
    first = _unquoted(_lines(text), 1)
    return ";" in first and not re.search("[\t,]", re.sub(r"\d,\d", "", first))


def _is_edge_list(text: str) -> bool:
    """Return whether the lines of what is no matrix hold two IDs and at most a weight.

    IDs that are whole numbers may be features as well; these come in equal pairs, and hardly ever
    is there a first one that comes again while no pair does.
    """
    try:
        rows = [[cell.strip() for cell in cells] for _, cells in _rows(text, "")]
    except KernelError:
        return False
    first = rows[0] if rows else []
    header = not any(cell and _is_number(cell) for cell in first)  # the corner may be empty
    edges = rows[1:] if header else rows
    numbers = [str(i) for i in range(len(edges) + 1)]
    if [cells[0] for cells in edges] in (numbers[1:], numbers[:-1]):
        edges = [cells[1:] for cells in edges]  # what R and pandas write before each row
    if {len(cells) for cells in edges} not in ({2}, {3}):
        return False
    one, two = [cells[0] for cells in edges], [cells[1] for cells in edges]
    weights = [cell for cells in edges for cell in cells[2:]]
    if one == first[-len(one) :] or not all(_is_number(weight) for weight in weights):
        return False
    if not any(_is_number(name) for name in two):
        return True
    pairs = list(zip(one, two, strict=True))
    repeated = len(set(one)) < len(one) and len(set(pairs)) == len(pairs)
    return repeated and all(a.isdecimal() and b.isdecimal() and a != b for a, b in pairs)


def _rows(text: str, where: str) -> Iterator[Row]:
    """Split `text` into rows of cells, quotes removed, blank lines left out."""
    lines = _lines(text)
    unquoted = _unquoted(lines, 2)
    if "\t" in unquoted or "," in unquoted:
        reader = csv.reader(lines, delimiter="\t" if "\t" in unquoted else ",", strict=True)
    else:
        stripped = (line.strip() for line in lines)
        reader = csv.reader(stripped, delimiter=" ", skipinitialspace=True, strict=True)
    try:
        for cells in reader:
            if len(cells) > 1 or (cells and cells[0].strip()):
                yield reader.line_num, cells
    except csv.Error as error:
        raise KernelError(
            f"{where}: line {reader.line_num} cannot be split into cells ({error}). Separate them "
            'by tabs or commas; inside quotes write "" for a quote.'
        ) from error


def _number(cell: str) -> float:
    """Return the number that `cell` holds, NaN where it says missing; ValueError otherwise."""
    cell = cell.strip()
    if cell in ("", "NA"):
        return math.nan
    if "_" in cell:  # Python would read 1_2 as 12
        raise ValueError(cell)
    return float(cell)


def _is_data(first: list[str]) -> bool:
    """Return whether the first row of a file holds entries, not labels."""
    if not all(_is_number(cell) for cell in first):
        return False
    return len(set(first)) == 1 or not math.isnan(_number(first[0]))


def _parse(text: str, where: str) -> xr.DataArray:
    rows = _rows(text, where)
    start = list(islice(rows, 2))
    if not start:
        raise KernelError(f"{where}: the file is empty.")
    first = start[0][1]
    short = len(start) == 2 and len(first) == len(start[1][1]) - 1
    labelled = short or not _is_data(first)
    if not labelled:
        values = _entries(chain(start, rows), range(len(first)), None, where)
        return _kernel(None, values)
    columns = first if short else first[1:]
    names: list[str] = []
    values = _entries(chain(start[1:], rows), columns, names, where)
    counted = range(len(names))
    if columns == [f"V{i + 1}" for i in counted] and names == [str(i + 1) for i in counted]:
        return _kernel(None, values)  # R's names for what has none
    for kind, labels in ("row", names), ("column", columns):
        if not all(label.strip() for label in labels):
            raise LabelError(f"{where}: there is a {kind} without a label. Label it, or remove it.")
    objects, other = as_labels(names, f"{where}, rows"), as_labels(columns, f"{where}, columns")
    place = positions(objects, other)
    if (place < 0).any():
        check_rows_are_columns(
            objects,
            other,
            where,
            remedy="The first row and the first column name the same objects.",
        )
    return _kernel(objects, values[:, place])


def _entries(
    rows: Iterator[Row], columns: range | list[str], names: list[str] | None, where: str
) -> NDArray[np.float64]:
    """Return the square matrix in `rows`; put the labels that lead them, if any, into `names`."""
    values: list[NDArray[np.float64]] = []
    expected = len(columns) + (names is not None)
    for line, cells in rows:
        if len(cells) != expected:
            raise KernelError(
                f"{where}: line {line} has {len(cells)} cells where {expected} are expected (the "
                f"first row makes {len(columns)} columns). Separate the cells by tabs or commas "
                "and write NA for what is missing."
            )
        if names is not None:
            names.append(cells.pop(0))
        try:
            values.append(np.array([_number(cell) for cell in cells]))
        except ValueError as error:
            row = len(values) if names is None else names[-1]
            odd = next(j for j, cell in enumerate(cells) if not _is_number(cell))
            raise KernelError(
                f"{where}: row {row!r}, column {columns[odd]!r} (line {line}): {cells[odd]!r} is "
                "not a number. Write numbers with a decimal point, and NA for what is missing."
            ) from error
    if len(values) == len(columns) + 1:
        raise KernelError(
            f"{where}: {len(values)} rows and {len(columns)} columns (the first row and the first "
            "column may be labels) are not a square matrix. The row labels seem to be absent: save "
            "with them (pandas: to_csv without index=False; R: row.names=TRUE)."
        )
    if len(values) != len(columns) or not values:
        raise KernelError(
            f"{where}: {len(values)} rows and {len(columns)} columns are not a square matrix. Give "
            "one row and one column for each object, and labels to both or to neither."
        )
    return np.stack(values)


def _is_number(cell: str) -> bool:
    try:
        _number(cell)
    except ValueError:
        return False
    return True


def _kernel(objects: Labels | None, values: NDArray[Any]) -> xr.DataArray:
    kernel = xr.DataArray(values, dims=("object", "object_bis"), name="kernel")
    return kernel if objects is None else kernel.assign_coords(object=objects, object_bis=objects)
