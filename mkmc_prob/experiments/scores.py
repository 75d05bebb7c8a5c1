"""The scores of a study: one of them as a checked array, and its mean and spread."""

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..errors import LabelError, MKMCError
from ..stacks.labels import name_some
from ..utils.arguments import choice, real_number
from .arguments import RATIO_DIGITS

#: The scores of a study and their dimensions.
SCORES = {
    "roc": ("repetition", "ratio", "completion", "matrix", "train_size"),
    "correlation_matrix_distance": ("repetition", "ratio", "completion", "kernel"),
    "relative_error": ("repetition", "ratio", "completion", "kernel"),
}
#: The scores that compare completed kernels with the true ones.
DISTANCES = ("correlation_matrix_distance", "relative_error")
#: Differences of scores that spread by no more than this share of the scores are equal: each of
#: two differences carries the rounding of two scores, an eps of each.
ROUNDING = 4 * float(np.finfo(np.float64).eps)
#: The built-in methods as figures and reports name them, in the order of their colors.
METHOD_NAMES = {
    "mkmc": "MKMC",
    "mkmc_chosen": "MKMC, chosen strength",
    "zero": "zero imputation",
    "mean": "mean imputation",
}


def score_of(study: Any, score: Any) -> xr.DataArray:
    """Return one score of a study, its dimensions in order; raise if the study does not have it."""
    choice(*SCORES)(score, "score")
    remedy = "Pass the Dataset that run_study returns."
    if not isinstance(study, xr.Dataset):
        raise MKMCError(f"study: {type(study).__name__} found. {remedy}")
    if score not in study:
        raise MKMCError(f"study: it has no variable {score!r}. {remedy}")
    values, dims = study[score], SCORES[score]
    labeled = (dim for dim in dims if dim == "repetition" or dim in values.indexes)
    if {*values.dims} != {*labeled} or not values.size or len(values.dims) < len(dims):
        raise LabelError(
            f"study: {score} has dims {dict(values.sizes)}; {dims} are needed, none of them empty, "
            "all but the first labeled. Select a single label as a list: .sel(ratio=[0.5])."
        )
    found: xr.DataArray = values.transpose(*dims).astype(np.float64)
    return found


def place(values: xr.DataArray, dim: str, label: Any, *, what: str = "") -> int:
    """Return the position of `label` along `dim`, of a ratio up to rounding; raise if none."""
    known: list[Any] = values[dim].values.tolist()
    wanted, compared = label, known
    if dim == "matrix":
        wanted = str(label)  # kernels named by numbers are text among the matrices
    elif dim == "ratio":
        number = real_number(label)
        wanted = None if number is None else round(number, RATIO_DIGITS)
        compared = [round(ratio, RATIO_DIGITS) for ratio in known]
    if wanted not in compared:
        raise LabelError(
            f"{what or dim}: the study has no {dim.replace('_', ' ')} {label!r}. "
            f"Choose one of {name_some(known, most=12)}."
        )
    return compared.index(wanted)


def check_pairs(values: xr.DataArray) -> None:
    """Raise if a method has no score in a repetition in which another method has one."""
    missing = values.isnull()
    odd = missing.any("completion") & ~missing.all("completion")
    if odd.any():
        places = {dim: place.item() for dim, place in odd.argmax(...).items()}
        at = (f"{dim} {odd[dim][place].item()!r}" for dim, place in places.items())
        absent = name_some(values["completion"].values[missing.isel(places).values])
        raise MKMCError(
            f"study: {values.name} of {absent} is NaN at {', '.join(at)}, but other methods "
            "have a value. Leave one out: study.drop_sel(completion=...), or repetition=..."
        )


def n_objects(study: xr.Dataset, train_sizes: NDArray[Any]) -> int:
    """Return the number of objects; raise if a training set leaves none to test."""
    given, largest = study.attrs.get("n_objects"), train_sizes.max()
    number = real_number(given)
    if number is None or number <= largest:
        raise MKMCError(
            f"study: its attribute n_objects is {given!r}; the corrected test needs the number of "
            f"objects, more than the train_size {largest}. Set it: study.assign_attrs("
            "n_objects=2318), say."
        )
    return int(number)


def mean_and_sd(
    values: xr.DataArray, size: xr.DataArray | float = 0.0
) -> tuple[xr.DataArray, xr.DataArray]:
    """Return the mean and the standard deviation over the repetitions that have a value.

    The deviation is NaN of fewer than two, and 0 if the values spread by no more than the rounding
    of scores of this `size`.
    """
    spread = values.max("repetition") - values.min("repetition")
    several = values.count("repetition") > 1
    sd = values.std("repetition", ddof=1).where(several)
    return values.mean("repetition"), sd.where(spread > ROUNDING * size, 0.0).where(several)


def method_name(study: xr.Dataset, method: str) -> str:
    """Return a method's name in a legend; of MKMC with the strength of its fits, if it is one.

    A study without the strengths of its fits has it as an attribute.
    """
    if method != "mkmc":
        return METHOD_NAMES.get(method, method)
    strengths = [study.attrs.get("strength")]
    if "strength" in study and "completion" in study["strength"].dims:
        strengths = np.unique(study["strength"].sel(completion=method)).tolist()
    strength = real_number(strengths[0]) if len(strengths) == 1 else None
    return METHOD_NAMES[method] + (f", strength {strength:g}" if strength else "")
