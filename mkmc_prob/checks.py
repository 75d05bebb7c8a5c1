"""One kernel matrix, looked at before anything is computed from it.

Enters: the values of one kernel as a person gave them, its labels, and what is said to be visible.
Leaves: a float64 copy, exactly symmetric, NaN in whole rows and columns; or an error that names
the kernel, the object, the value and the remedy.
"""

from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .errors import KernelError, LabelError
from .labels import Labels, name_some

#: Asymmetry below this share of the kernel's largest entry is rounding and is averaged away.
ASYMMETRY_TOLERANCE = 1e-8
#: Beyond this size products of entries overflow.
LARGEST_ENTRY = 1e150


class LabelledMatrix(NamedTuple):
    """One kernel before alignment: its values, its objects, and what is said to be visible."""

    name: Hashable
    values: NDArray[Any]
    objects: Labels
    visible: NDArray[np.bool_] | None


def eps_of(dtype: np.dtype[Any]) -> float:
    """Return the machine epsilon of the precision that `dtype` carries, float64's at best."""
    if dtype.kind == "f":
        return max(float(np.finfo(dtype).eps), float(np.finfo(np.float64).eps))
    return float(np.finfo(np.float64).eps)


def as_mask(values: NDArray[Any], what: str) -> NDArray[np.bool_]:
    """Return 0/1 `values` as bool; raise where they are anything else."""
    if values.dtype.kind not in "biufO" or not np.isin(values, (0, 1)).all():
        odd = next((v for v in values.tolist() if v not in (0, 1)), values.dtype)
        raise KernelError(f"{what}: {odd!r} found; entries are 0 (missing) or 1 (visible).")
    return values.astype(bool)


def check_rows_are_columns(rows: Labels, columns: Labels, what: str, *, remedy: str) -> None:
    """Raise where the labels of the rows are not those of the columns, in the same order."""
    if np.array_equal(rows, columns):
        return
    odd = [label for label in rows.tolist() if label not in set(columns.tolist())]
    odd += [label for label in columns.tolist() if label not in set(rows.tolist())]
    found = f"{name_some(odd)} occur in one only" if odd else "the orders differ"
    raise LabelError(f"{what}: row and column labels differ ({found}). {remedy}")


def check_matrix(part: LabelledMatrix, eps: float) -> NDArray[np.float64]:
    """Return one kernel as float64, exactly symmetric, NaN in the rows of missing objects."""
    what = f"kernel {part.name!r}"
    if part.values.dtype.kind not in "biuf":
        kind = {"c": "complex", "O": "mixed (object)"}.get(part.values.dtype.kind, "text")
        raise KernelError(
            f"{what}: its entries are {kind} (dtype {part.values.dtype}); kernels hold real "
            "numbers. Convert it with astype(float)."
        )
    values = part.values.astype(np.float64)  # a copy: the caller's array stays as it is
    if part.visible is None:
        nan = np.isnan(values)
        seen = ~(nan.all(axis=0) & nan.all(axis=1))
    else:
        seen = part.visible
    values[~seen, :] = np.nan
    values[:, ~seen] = np.nan
    block = values if seen.all() else values[np.ix_(seen, seen)]
    labels = part.objects[seen].tolist()
    if not labels:
        return values
    _check_entries(block, labels, what)
    largest = float(np.abs(block).max())
    _symmetrize(block, labels, what, max(ASYMMETRY_TOLERANCE, 16 * eps) * largest)
    diagonal = np.diagonal(block)
    worst = int(diagonal.argmin())
    if diagonal[worst] < -len(labels) * eps * largest:
        raise KernelError(
            f"{what}: the diagonal entry of object {labels[worst]!r} is {diagonal[worst]:.6g}. A "
            "kernel's diagonal holds squared lengths; if this is a similarity score, add a "
            "constant to the diagonal first."
        )
    if block is not values:
        values[np.ix_(seen, seen)] = block
    return values


def _check_entries(block: NDArray[np.float64], labels: list[Hashable], what: str) -> None:
    """Raise where the visible block of a kernel has entries that are not finite numbers."""
    if (np.abs(block) <= LARGEST_ENTRY).all():  # False for NaN too
        return
    infinite = np.argwhere(np.isinf(block))
    if len(infinite):
        i, j = infinite[0]
        raise KernelError(
            f"{what}: the entry of objects {labels[i]!r} and {labels[j]!r} is {block[i, j]}. "
            "Replace infinite similarities, or hide the object (its whole row and column NaN)."
        )
    huge = np.argwhere(np.abs(block) > LARGEST_ENTRY)
    if len(huge):
        i, j = huge[0]
        raise KernelError(
            f"{what}: the entry of objects {labels[i]!r} and {labels[j]!r} is {block[i, j]:.6g}; "
            f"beyond {LARGEST_ENTRY:g} products overflow. Rescale the kernel."
        )
    holes = np.isnan(block).sum(axis=1) + np.isnan(block).sum(axis=0)
    worst = int(holes.argmax())
    row, column = np.isnan(block[worst]).sum(), np.isnan(block[:, worst]).sum()
    raise KernelError(
        f"{what}: object {labels[worst]!r} is NaN in {row} entries of its row and {column} of its "
        f"column, out of {len(labels)}, but not in all. Objects are missing as a whole: set its "
        "whole row and column to NaN, or fill the entries in."
    )


def _symmetrize(
    block: NDArray[np.float64], labels: list[Hashable], what: str, tolerance: float
) -> None:
    """Average away the rounding asymmetry of `block` in place; raise where it is more."""
    difference = np.abs(block - block.T)
    if not difference.any():
        return
    i, j = np.unravel_index(int(difference.argmax()), difference.shape)
    if difference[i, j] > tolerance:
        raise KernelError(
            f"{what}: not symmetric: the entry of objects {labels[i]!r} and {labels[j]!r} is "
            f"{block[i, j]:.9g}, the other way round {block[j, i]:.9g}. If the average is meant, "
            "pass (Q + Q.T) / 2."
        )
    block += block.T.copy()
    block *= 0.5
