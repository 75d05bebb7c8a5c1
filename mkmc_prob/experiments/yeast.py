"""The paper's yeast proteins (section 5): a reader of the original download, and the scores."""

import gzip
import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import xarray as xr

from ..datasets import FusionProblem
from ..errors import IndefiniteKernelError, KernelError, LabelError, MKMCError, warn
from ..io.text import read_kernel
from ..stacks.build import stack_kernels
from ..stacks.definite import Method, check_definite, repair_spectrum
from ..stacks.labels import as_labels, name_some
from ..stacks.preprocessing import center, normalize
from ..stacks.stack import visible_objects
from ..utils.arguments import checked, choice, optional
from ..utils.files import a_path, decoding

#: The kernels, in the order of the original download: BLAST, Smith-Waterman, Pfam, hydropathy FFT
#: (the four from sequences), linear interactions, diffusion (from interactions), expression.
KERNELS = ("B", "SW", "Pfam", "FFT", "LI", "D", "E")
#: The kernels that are centered before they are normalized.
CENTERED = ("B", "SW", "FFT", "LI", "E")
#: The paper's numbers of annotated proteins, and of membrane proteins among them.
PROTEINS, POSITIVE = 2318, 497
#: The suffixes of files named after a kernel; each may be followed by .gz.
SUFFIXES = (".txt", ".tsv", ".tab")

_DIMS = ("train_size", "completion")
#: The published numbers (section 5, "Classification Performance"): `roc`, the mean ROC score of the
#: model matrix, by the number of training proteins and by method; and `p_two_sample`, of t-tests of
#: MKMC against the method (NaN for MKMC itself). About half of the rows and columns were missing.
#: The paper states lambda = 0.001 with its scores by missing ratio (200 training proteins), and no
#: lambda with these.
PAPER_SCORES = xr.Dataset(
    {
        "roc": (_DIMS, [[0.779, 0.721, 0.745], [0.848, 0.836, 0.832]]),
        "p_two_sample": (_DIMS, [[np.nan, 8.32e-5, 1.40e-3], [np.nan, 3.45e-2, 4.60e-3]]),
    },
    coords={"train_size": [200, 1000], "completion": ["mkmc", "zero", "mean"]},
    attrs={"ratio": 0.5, "strength": 0.001},
)


@checked(repair=optional(choice(*get_args(Method))))
def load_yeast(
    folder: str | os.PathLike[str],
    *,
    files: Mapping[str, str | os.PathLike[str]] | None = None,
    label_column: str | None = None,
    preprocess: bool = True,
    repair: Method | None = None,
) -> FusionProblem:
    r"""Read the yeast proteins of the paper's study from the files of the original download.

    The data are those of Lanckriet, De Bie, Cristianini, Jordan and Noble, "A statistical framework
    for genomic data fusion", Bioinformatics 20 (2004), 2626-2635; the supplement at
    http://noble.gs.washington.edu/proj/sdp-svm offers the kernels. As its text says, the annotated
    proteins are selected first; then B, SW, FFT, LI and E are centered and normalized, Pfam and D
    only normalized, as `center` and `normalize` do. So means are over annotated proteins only.

    Parameters
    ----------
    folder
        The folder of the files. A kernel is tab-delimited text with text IDs in the first row and
        the first column, as `read_kernel` reads it, plain or gzipped. The labels are tab-delimited
        text, too: the protein's ID, then +1 (membrane), -1 (not) or 0 (unknown); a first row whose
        label is not a number is a header.
    files
        The names of the files, by kernel (``"B"``, ``"SW"``, ``"Pfam"``, ``"FFT"``, ``"LI"``,
        ``"D"``, ``"E"``) and ``"labels"``: ``{"B": "blast.txt.gz", ...}``, relative to `folder`.
        By default the file of ``"B"`` is ``B.txt``, ``B.tsv`` or ``B.tab``, with or without
        ``.gz``, in upper or lower case, and so on.
    label_column
        The header of the column of labels, needed if there are several besides the IDs.
    preprocess
        False returns the annotated proteins' kernels as they are in the files: neither centered
        nor normalized, nor checked to be positive semidefinite.
    repair
        How to treat a kernel with an eigenvalue below zero by more than rounding (a few printed
        digits suffice): None refuses it; ``"clip"``, ``"shift"`` or ``"flip"`` is the `method` of
        `repair_spectrum`, applied after centering and before normalizing, so that the diagonal
        remains 1.

    Returns
    -------
    FusionProblem
        ``kernels``, a stack in the order of the download; and ``classes``, +1 or -1. The objects
        are the annotated proteins (+1 or -1), in the order of the file of labels; kernels may have
        theirs in any order. A protein without a label counts as unknown. The stack is complete
        unless a kernel lacks annotated proteins, which is warned of.

    Raises
    ------
    FileNotFoundError
        If files are missing: all of them are named.
    KernelError
        If a kernel is not square, an entry is not a number or cannot be normalized, a kernel
        contains no annotated protein, or `repair` is unknown; and as raised by `stack_kernels`.
    IndefiniteKernelError
        If a kernel is not positive semidefinite and `repair` is None.
    LabelError
        If IDs are absent or repeated, a label is not +1, -1 or 0, the column of labels is
        ambiguous, or annotated proteins are in no kernel.
    MKMCError
        If two files could be the one looked for, or `repair` is given with ``preprocess=False``.

    Warns
    -----
    MKMCWarning
        If there are not 2,318 annotated proteins, 497 of them positive, as in the paper; if a
        kernel lacks some; and as `center` and `repair_spectrum` warn.

    Notes
    -----
    Reading a kernel of the original size, 6,112 x 6,112 (about 0.3 GB of text), takes some 15
    seconds and 2 GB of memory; the rows and columns of the 2,318 annotated proteins, which are
    kept, take 43 MB. All seven take two minutes (with `repair` up to a minute more) and at most
    2.6 GB. To do this only once, save the stack with `write_stack`.

    Examples
    --------
    >>> import tempfile, warnings
    >>> from pathlib import Path
    >>> from mkmc_prob.experiments.yeast import KERNELS, load_yeast
    >>> kernel = "ID\tYAL1\tYAL2\tYAL3\nYAL1\t4\t1\t0\nYAL2\t1\t1\t0\nYAL3\t0\t0\t9\n"
    >>> with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")  # these are not the paper's 2,318 proteins
    ...     for name in KERNELS:
    ...         _ = (Path(folder) / f"{name}.txt").write_text(kernel)
    ...     _ = (Path(folder) / "labels.txt").write_text("YAL1\t-1\nYAL2\t1\nYAL3\t0\n")
    ...     kernels, classes = load_yeast(folder)
    >>> kernels.sel(kernel="Pfam").values
    array([[1. , 0.5],
           [0.5, 1. ]])
    >>> classes.to_series().to_dict()
    {'YAL1': -1, 'YAL2': 1}
    """
    if repair is not None and not preprocess:
        raise MKMCError(
            f"repair={repair!r}: preprocess=False returns the kernels as in the files. Leave it "
            "out, and call repair_spectrum on the result."
        )
    paths = _find(a_path(folder), files or {})
    labels = _read_labels(paths["labels"], label_column)
    classes = labels[labels != 0]
    kernels = _stack(paths, classes.index, centered=preprocess)
    _check_visible(kernels, paths)
    counts = (len(classes), int((classes == 1).sum()))
    if counts != (PROTEINS, POSITIVE):
        warn(
            f"{paths['labels']}: {counts[0]:,} annotated proteins, {counts[1]:,} of them positive; "
            f"the paper has {PROTEINS:,} and {POSITIVE:,}. Scores do not compare with the paper's."
        )
    if preprocess:
        kernels = _normalized(kernels, repair)
    coords, attrs = (
        {"object": kernels["object"].values},
        {"long_name": "class, +1 (membrane) or -1"},
    )
    return FusionProblem(kernels, xr.DataArray(classes, coords, name="class", attrs=attrs))


def _find(folder: Path, files: Mapping[str, str | os.PathLike[str]]) -> dict[str, Path]:
    """Return the file of each kernel and of the labels."""
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{folder}: there is no such folder. Download the yeast kernels into it: "
            "http://noble.gs.washington.edu/proj/sdp-svm."
        )
    wanted = (*KERNELS, "labels")
    if unknown := [name for name in files if name not in wanted]:
        raise LabelError(
            f"files: {name_some(unknown)} found. Name the files of {', '.join(wanted)}."
        )
    held = sorted(path.name for path in folder.iterdir() if path.is_file())
    found: dict[str, Any] = {}
    for name in wanted:
        known = [f"{name}{suffix}".casefold() for suffix in SUFFIXES]
        fitting = [own for own in held if own.casefold().removesuffix(".gz") in known]
        if len(fitting) > 1 and name not in files:
            raise MKMCError(
                f"{folder}: {name_some(fitting)} could be the file of {name!r}. Name one: "
                f"files={{{name!r}: {fitting[0]!r}}}."
            )
        found[name] = files[name] if name in files else [*fitting, f"{name}.txt"][0]
    missing = [f"{name!r} ({own})" for name, own in found.items() if not (folder / own).is_file()]
    if missing:
        raise FileNotFoundError(
            f"{folder}: no file for {', '.join(missing)}. A file ends in "
            f"{', '.join(SUFFIXES)}, with or without .gz, or has a name of its own: "
            f"files={{'B': 'blast.txt', ...}}. The folder holds "
            f"{name_some(held, most=20) or 'no files'}."
        )
    return {name: folder / own for name, own in found.items()}


def _read_labels(path: Path, column: str | None) -> "pd.Series[int]":
    """Return the label of each protein, +1, -1 or 0; the index is named as in the header."""
    with decoding(path, "tab-delimited text"):
        text = io.StringIO(_unzipped(path).decode("utf-8-sig"))
        table = pd.read_csv(text, sep="\t", header=None, dtype=str, na_filter=False)
    table = table.apply(lambda cells: cells.str.strip())
    table = table.loc[:, (table != "").any()]  # lines that end in tabs have empty last columns
    header = table.iloc[0].tolist()
    if len(header) < 2:
        raise LabelError(f"{path}: one column found ({header[0]!r}). Write ID, a tab, and label.")
    headed = int(pd.isna(pd.to_numeric(header[1], errors="coerce")))
    names = header if headed else [f"column {i + 1}, no header" for i in range(len(header))]
    places = [i for i in range(1, len(names)) if column is None or names[i] == str(column)]
    if len(places) != 1:
        raise LabelError(
            f"{path}: which column holds the labels? label_column={column!r}; there are "
            f"{name_some(names[1:])}. Name one, or write a file of two columns."
        )
    ids = as_labels(table.iloc[headed:, 0], f"{path}, first column")
    cells = pd.Series(table.iloc[headed:, places[0]].tolist(), ids)
    values = pd.to_numeric(cells, errors="coerce")
    odd = cells[~values.isin([1, -1, 0])]
    if len(odd):
        raise LabelError(
            f"{path}: the label of {odd.index[0]!r} is {odd.iloc[0]!r}, not +1, -1 or 0."
        )
    if not values.any():
        raise LabelError(f"{path}: no protein has the label +1 or -1.")
    return values.astype(np.int64).rename_axis(header[0] if headed else None)


def _stack(paths: Mapping[str, Path], proteins: "pd.Index[str]", *, centered: bool) -> xr.DataArray:
    """Return the kernels of the annotated `proteins`, reading one whole kernel at a time."""
    parts = []
    for name in KERNELS:
        path = paths[name]
        whole = _read_kernel(path)
        objects = whole.indexes["object"]
        if proteins.name in objects:
            raise LabelError(
                f"{paths['labels']}: the first row, {proteins.name!r}, is no header but a protein "
                f"of kernel {name!r}. Its label must be +1, -1 or 0 (unknown)."
            )
        common = objects.intersection(proteins, sort=False)
        part = stack_kernels({name: whole.sel(object=common, object_bis=common)}, objects=proteins)
        del whole
        parts.append(center(part) if centered and name in CENTERED else part)
    return xr.concat(parts, "kernel", join="exact")


def _read_kernel(path: Path) -> xr.DataArray:
    """Return a kernel, its IDs without blanks around them; explain tabs at the ends of lines."""
    try:
        whole = read_kernel(path)
    except MKMCError as error:
        with decoding(path, "tab-delimited text"):
            first = _unzipped(path).partition(b"\n")[0].rstrip(b"\r")
        if first.endswith(b"\t"):
            raise type(error)(
                f"{error} (Its first line ends in a tab. Remove tabs at the ends of lines.)"
            ) from error
        raise
    if "object" not in whole.indexes:
        raise LabelError(f"{path}: no IDs found. They must be in the first row and first column.")
    ids = as_labels([str(label).strip() for label in whole["object"].values.tolist()], str(path))
    return whole.assign_coords(object=ids, object_bis=ids)


def _unzipped(path: Path) -> bytes:
    """Return the content of a file, gzipped or not, whatever its name."""
    raw = path.read_bytes()
    return gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw


def _check_visible(kernels: xr.DataArray, paths: Mapping[str, Path]) -> None:
    """Raise if a kernel or a protein is visible nowhere, warn if a kernel lacks proteins."""
    hidden, proteins = ~visible_objects(kernels).values, kernels["object"].values
    known, lines = f"{len(proteins):,} annotated proteins", []
    for name, row in zip(KERNELS, hidden, strict=True):
        if row.all():
            raise KernelError(
                f"{paths[name]}: kernel {name!r} has none of the {known} of "
                f"{paths['labels'].name} ({name_some(proteins)}). Unify the IDs."
            )
        if row.any():
            lines.append(f"{name!r} misses {row.sum():,} ({name_some(proteins[row], most=3)})")
    if hidden.all(axis=0).any():
        raise LabelError(
            f"{paths['labels']}: {name_some(proteins[hidden.all(axis=0)])} annotated, but in no "
            "kernel. Give labels and kernels the same IDs, or set the label to 0."
        )
    if lines:
        warn(f"of {known} {'; '.join(lines)}. The kernels are incomplete there.")


def _normalized(kernels: xr.DataArray, repair: Method | None) -> xr.DataArray:
    try:
        if repair is None:
            check_definite(kernels)
        else:
            kernels = repair_spectrum(kernels, method=repair)
        return normalize(kernels)
    except KernelError as error:
        remedy = "preprocess=False) returns the kernels as they are in the files."
        if isinstance(error, IndefiniteKernelError):
            remedy = "repair='clip') does so before normalizing."
        raise type(error)(f"{error} load_yeast(..., {remedy}") from error
