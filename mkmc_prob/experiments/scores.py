"""The scores of a study, looked at before anything is computed from them or drawn.

Enters: the Dataset of a study as a person may have changed it. Leaves: one score with its
dimensions in order, places of labels along them, mean and standard deviation over the repetitions;
or an error that says what the study lacks.
"""

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..errors import LabelError, MKMCError
from ..stacks.labels import name_some
from ..utils.arguments import real_number

#: The scores of a study and their dimensions; a distance has one value a kernel.
SCORES = {
    "roc": ("repetition", "ratio", "completion", "matrix", "train_size"),
    "correlation_matrix_distance": ("repetition", "ratio", "completion", "kernel"),
    "relative_error": ("repetition", "ratio", "completion", "kernel"),
}
#: Ratios that differ by less are the same one, written differently (0.3 and 0.1 + 0.2).
SAME_RATIO = 1e-9
#: Differences of scores that spread by no more than this share of the scores are equal: each of
#: two differences carries the rounding of two scores, an eps of each.
ROUNDING = 4 * float(np.finfo(np.float64).eps)


def score_of(study: Any, score: Any) -> xr.DataArray:
    """Return one score of a study, its dimensions in order; raise where there is no such thing."""
    if not isinstance(score, str) or score not in SCORES:
        raise MKMCError(f"score: {score!r} found. Choose one of {name_some(list(SCORES))}.")
    remedy = "Pass the Dataset that run_study returns."
    if not isinstance(study, xr.Dataset):
        raise MKMCError(f"study: {type(study).__name__} found. {remedy}")
    if score not in study:
        raise MKMCError(f"study: it has no variable {score!r}. {remedy}")
    values, dims = study[score], SCORES[score]
    if set(values.dims) != set(dims):
        raise MKMCError(
            f"study: {score} has dims {values.dims}, {dims} expected. Where you chose one label, "
            "choose it as a list, .sel(ratio=[0.5]), so that its dimension stays."
        )
    if values.dtype.kind not in "fiu":
        raise MKMCError(f"study: {score} is of dtype {values.dtype}, not numbers. {remedy}")
    for dim in dims:
        if not values.sizes[dim]:
            raise MKMCError(f"study: {score} has no {dim}: its dimension is empty. {remedy}")
        if dim != "repetition" and dim not in values.indexes:
            raise LabelError(f"study: its dimension {dim!r} has no labels. {remedy}")
        if dim in values.indexes and not values.indexes[dim].is_unique:
            twice = values.indexes[dim][values.indexes[dim].duplicated()].tolist()
            raise LabelError(
                f"study: {dim} {name_some(twice)} occurs more than once. Rename or drop the "
                "repeats."
            )
    return values.transpose(*dims).astype(np.float64)


def place(values: xr.DataArray, dim: str, label: Any, *, what: str = "") -> int:
    """Return where `label` stands along `dim`, ratios to rounding; raise where it does not."""
    known = values[dim].values.tolist()
    found: list[int] = []
    number = real_number(label)
    if dim == "ratio" and number is not None:
        found = np.flatnonzero(np.abs(values[dim].values - number) <= SAME_RATIO).tolist()
    elif dim != "ratio" and (isinstance(label, str) or number is not None):
        # Kernels that are called by numbers are text among the matrices.
        labels = (label, str(label)) if dim == "matrix" else (label,)
        found = [i for i, name in enumerate(known) if name in labels]
    if not found:
        raise LabelError(
            f"{what or dim}: the study has no {dim.replace('_', ' ')} {label!r}. "
            f"Choose one of {name_some(known, most=12)}."
        )
    return found[0]


def check_pairs(values: xr.DataArray) -> None:
    """Raise where a method has no score in a repetition in which another method has one."""
    missing = values.isnull()
    odd = (missing.any("completion") & ~missing.all("completion")).values
    if not odd.any():
        return
    dims = [dim for dim in values.dims if dim != "completion"]
    at = dict(zip(dims, map(int, np.argwhere(odd)[0]), strict=True))
    absent = values["completion"].values[missing.isel(at).values]
    there = ", ".join(f"{dim} {values[dim].values[i].item()!r}" for dim, i in at.items())
    raise MKMCError(
        f"study: {values.name} of {name_some(absent)} is NaN at {there}, where other methods have "
        "a value, so there is no pair to compare. Leave the method or the repetition out: "
        "study.drop_sel(completion=...), or repetition=..."
    )


def n_objects(study: xr.Dataset, train_sizes: NDArray[Any]) -> int:
    """Return how many objects the study is about; raise where a training set leaves none."""
    given = study.attrs.get("n_objects")
    number = real_number(given)
    if number is None or number < 1:
        raise MKMCError(
            f"study: its attribute n_objects is {given!r}, and the corrected test needs the number "
            "of objects. Set it: study.assign_attrs(n_objects=2318), say."
        )
    for size in train_sizes.tolist():
        if not 0 < size < number:
            raise MKMCError(
                f"study: train_size {size!r} of n_objects {given!r} leaves no test set. One of "
                "the two is not this study's."
            )
    return int(number)


def mean_and_sd(
    values: xr.DataArray, size: xr.DataArray | float = 0.0
) -> tuple[xr.DataArray, xr.DataArray]:
    """Return the mean and the standard deviation over the repetitions that have a value.

    The deviation is NaN of fewer than two, and 0 where the values spread by no more than the
    rounding of scores of this `size`.
    """
    spread = values.max("repetition") - values.min("repetition")
    several = values.count("repetition") > 1
    sd = values.std("repetition", ddof=1).where(several)
    return values.mean("repetition"), sd.where(spread > ROUNDING * size, 0.0).where(several)
