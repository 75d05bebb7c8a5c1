"""Labels of kernels and objects: checked, matched, and named in messages.

`stack_kernels` (in `stack`) uses them to align kernels.
"""

import re
import unicodedata
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from ..errors import LabelError, MKMCError, warn

Labels = NDArray[Any]


#: Separators between the parts of a name. A dot between digits is a decimal point.
SEPARATORS = re.compile(r"(?:[\s_/:\-\u2010-\u2015]|\.(?!\d)|(?<!\d)\.)+")


def as_labels(values: Iterable[Hashable], what: str) -> Labels:
    """Return `values` as an array of labels, all text or all integers, without repeats.

    Parameters
    ----------
    values
        The labels, in order.
    what
        The name of the labels in error messages, for example "kernel 'a', rows".

    Raises
    ------
    LabelError
        If a label is neither text nor an integer, both occur, one is repeated, or `values` is a
        single text or has no order.

    Examples
    --------
    >>> from mkmc_prob.stacks.labels import as_labels
    >>> as_labels(["p1", "p2"], "objects")
    array(['p1', 'p2'], dtype='<U2')
    """
    listed = [_plain(label) for label in _in_order(values, what)]
    text = [label for label in listed if isinstance(label, str)]
    integers = [label for label in listed if isinstance(label, int) and not isinstance(label, bool)]
    for label in listed:
        if not isinstance(label, str | int) or isinstance(label, bool):
            raise LabelError(
                f"{what}: label {label!r} is of type {type(label).__name__}; labels are all text "
                "or all integers. Convert them with str() or int()."
            )
    for label in text:
        if any(letter == "\0" or "\ud800" <= letter <= "\udfff" for letter in label):
            raise LabelError(
                f"{what}: label {label!r} contains a NUL character or half a surrogate pair, "
                "which cannot be saved to netCDF. Remove it."
            )
    if text and integers:
        raise LabelError(
            f"{what}: labels of mixed types, text ({text[0]!r}) and integers ({integers[0]!r}). "
            "Convert them all with str() or all with int()."
        )
    repeated = pd.Index(listed, dtype=object).duplicated()
    if repeated.any():
        raise LabelError(
            f"{what}: label {listed[int(repeated.argmax())]!r} occurs more than once. Labels must "
            "be unique; rename or drop the repeats."
        )
    if integers and not -(2**63) <= min(integers) <= max(integers) < 2**63:
        raise LabelError(
            f"{what}: an integer label does not fit in 64 bits. Convert the labels with str()."
        )
    return np.array(text) if text else np.array(integers, dtype=np.int64)


def warn_of_lookalikes(groups: Iterable[Labels], what: str) -> None:
    """Warn of labels in different groups that are spelled differently but seem to mean the same.

    They differ only in case, blanks, separators, leading zeros or Unicode form, like ``PT-001`` and
    ``pt01``. If a single group has both, they are taken to be distinct on purpose.
    """
    sets = [set(group.tolist()) for group in groups if group.dtype.kind == "U"]
    alike: dict[str, str] = {}
    pairs = []
    for label in dict.fromkeys(label for group in sets for label in sorted(group)):
        first = alike.setdefault(_gist(label), label)
        if first != label and not any(first in group and label in group for group in sets):
            pairs.append(f"{first!r} and {label!r}")
    if pairs:
        more = f" and {len(pairs) - 3} more pairs" if len(pairs) > 3 else ""
        warn(
            f"{what}: {'; '.join(pairs[:3])}{more} differ only in case, blanks, separators, "
            "leading zeros or Unicode form, and count as different. Rename them if they mean the "
            "same."
        )


def lookalike(label: Hashable, within: Labels) -> str | None:
    """Return the label among those `within` that seems to mean the same as `label`, or None."""
    if not isinstance(label, str) or within.dtype.kind != "U":
        return None
    gist = _gist(label)
    return next((other for other in within.tolist() if _gist(other) == gist), None)


def _gist(label: str) -> str:
    """Return `label` without case, Unicode form, blanks, separators and leading zeros."""
    spaced = SEPARATORS.sub(" ", unicodedata.normalize("NFKC", label).casefold()).strip()
    joined = re.sub(r"(?<!\d) | (?!\d)", "", spaced)  # 1 23 keeps its blank: it is not 12 3
    return re.sub(r"(?<![\d.])0+(?=\d)", "", joined)


def match(
    wanted: Labels,
    within: Labels,
    unmatched: str,
    *,
    exact: bool = False,
    error: type[MKMCError] = LabelError,
) -> NDArray[np.intp]:
    """Return the positions of the labels `wanted` among those `within`.

    Parameters
    ----------
    wanted, within
        Labels, each without repeats.
    unmatched
        The message if a label is not found; ``{}`` in it stands for the labels.
    exact
        Whether `within` must hold no other labels. If it does, they are named, too.
    error
        The class of the error that is raised.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob.stacks.labels import match
    >>> match(np.array(["c", "a"]), np.array(["a", "b", "c"]), "no object {}")
    array([2, 0])
    """
    places = pd.Index(within).get_indexer(pd.Index(wanted))
    odd = wanted[places < 0].tolist()
    if exact:
        odd += pd.Index(within).difference(pd.Index(wanted), sort=False).tolist()
    if odd:
        raise error(unmatched.replace("{}", name_some(odd)))
    return places


def name_some(labels: Sequence[Hashable] | Labels, most: int = 5) -> str:
    """Return the first few `labels` as text for a message, and the number of the others."""
    listed = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
    first = ", ".join(repr(label) for label in listed[:most])
    return first if len(listed) <= most else f"{first} and {len(listed) - most} more"


def _in_order(values: Iterable[Hashable], what: str) -> list[Hashable]:
    """Return `values` as a list; raise LabelError if it is one text or is not a sequence."""
    if isinstance(values, xr.DataArray):
        values = values.values  # iterating over the DataArray itself gives arrays, not labels
    try:
        if not isinstance(values, str | bytes | set | frozenset):
            return list(values)
    except TypeError:  # a number, or an array without dimensions
        pass
    raise LabelError(f"{what}: {values!r} is not a sequence of labels. Pass a list of them.")


def _plain(label: Hashable) -> Hashable:
    """Return NumPy text and integers, and subclasses of str and int, as plain str and int."""
    if isinstance(label, str):
        return str.__str__(label)  # str() of an enum member is not its text
    if isinstance(label, int | np.integer) and not isinstance(label, bool | np.timedelta64):
        return int(label)
    return label


def with_labels(dataset: xr.Dataset) -> xr.Dataset:
    """Return `dataset` with the labels of its dims as `as_labels` returns them."""
    found = {
        dim: as_labels(dataset[dim].values.tolist(), dim)
        for dim in ("kernel", "object", "object_bis")
        if dim in dataset.indexes
    }
    return dataset.assign_coords(found)
