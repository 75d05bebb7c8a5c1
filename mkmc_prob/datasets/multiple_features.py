"""The bundled *Multiple Features* data: six feature sets of the same 2,000 handwritten digits.

The files and their license are in ``mfeat/``.
"""

from collections.abc import Iterable
from importlib.resources import files
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from ..errors import LabelError
from ..kernels.features import linear_kernel, rbf_kernel
from ..stacks.build import stack_kernels
from ..stacks.labels import as_labels
from ..utils.arguments import checked, choice, optional, seed, whole

#: The six sources, in alphabetical order: profile correlations, Fourier coefficients,
#: Karhunen-Loeve coefficients, morphological features, pixel averages, Zernike moments.
SOURCES = ("fac", "fou", "kar", "mor", "pix", "zer")
CLASSES = 10
DIGITS_PER_CLASS = 200


class MultipleFeatures(NamedTuple):
    """The result of `load_multiple_features`.

    Parameters
    ----------
    kernels
        A complete stack: dims ``("kernel", "object", "object_bis")``, one kernel per source.
    classes
        The digit that each object shows, 0 to 9: integers over ``object`` with the same labels.

    Examples
    --------
    >>> from mkmc_prob.datasets import load_multiple_features
    >>> loaded = load_multiple_features(n_per_class=1, sources=["fac", "mor"])
    >>> loaded.kernels.sizes["kernel"], loaded.classes.values.tolist()
    (2, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    """

    kernels: xr.DataArray
    classes: xr.DataArray


@checked(
    n_per_class=whole(least=1, most=DIGITS_PER_CLASS),
    kernel=choice("rbf", "linear"),
    seed=optional(seed),
)
def load_multiple_features(
    n_per_class: int = 50,
    *,
    kernel: Literal["rbf", "linear"] = "rbf",
    sources: Iterable[str] | None = None,
    seed: int | np.random.Generator | None = None,
) -> MultipleFeatures:
    """Return kernel matrices of handwritten digits, one kernel per feature set.

    The features are standardized (mean 0, variance 1 over all 2,000 digits). With x and y the
    features of two digits, p the number of features and s the median distance between different
    selected digits, the kernels are::

        rbf     exp(-||x - y||^2 / (2 s^2))
        linear  x'y / p

    Parameters
    ----------
    n_per_class
        The number of digits per class, 1 to 200.
    kernel
        ``"rbf"``: unit diagonal, all entries positive. ``"linear"``: rank at most p, mean diagonal
        about 1.
    sources
        The sources, in order, by default all six: ``"fac"`` (216 profile correlations), ``"fou"``
        (76 Fourier coefficients), ``"kar"`` (64 Karhunen-Loeve coefficients), ``"mor"`` (6
        morphological features), ``"pix"`` (240 pixel averages), ``"zer"`` (47 Zernike moments).
    seed
        None selects the first `n_per_class` digits of each class. Otherwise the digits are drawn at
        random, the same ones for every source.

    Returns
    -------
    MultipleFeatures
        ``kernels``, a complete stack, and ``classes``. The label of an object consists of its class
        and its number within the class: ``"d3_017"`` is digit 3, number 17 of 0 to 199.

    Raises
    ------
    MKMCError
        If `n_per_class`, `kernel` or `seed` is invalid.
    LabelError
        If a source is unknown or repeated, or `sources` is empty.

    Notes
    -----
    A kernel is singular if two selected digits have the same features. Six digits occur twice in
    the data. In ``"mor"`` and ``"zer"``, which are invariant under rotation, some 6 and 9 also have
    the same features; these two kernels are singular for the default digits.

    The data are by R. Duin (UCI Machine Learning Repository, CC BY 4.0, doi:10.24432/C5HC70).

    Examples
    --------
    >>> from mkmc_prob.datasets import load_multiple_features
    >>> digits = load_multiple_features(2, sources=["fou", "pix"])
    >>> digits.kernels.sizes
    Frozen({'kernel': 2, 'object': 20, 'object_bis': 20})
    >>> digits.classes.sel(object="d3_001").item()
    3
    """
    if isinstance(sources, str):
        sources = [sources]
    wanted = as_labels(SOURCES if sources is None else sources, "sources")
    chosen = [_known(name) for name in wanted.tolist()]
    if not chosen:
        raise LabelError(f"sources: the list is empty. Choose from {', '.join(SOURCES)}.")
    rows = _choose(n_per_class, seed)
    similarities = {}
    for name in chosen:
        x = multiple_features(name).to_numpy()
        x = ((x - x.mean(axis=0)) / x.std(axis=0))[rows]  # no feature is constant
        similarities[name] = rbf_kernel(x) if kernel == "rbf" else linear_kernel(x) / x.shape[1]
    objects = _objects()[rows]
    classes = xr.DataArray(
        rows // DIGITS_PER_CLASS,
        dims="object",
        coords={"object": objects},
        name="class",
        attrs={"long_name": "digit"},
    )
    return MultipleFeatures(stack_kernels(similarities, objects=objects), classes)


def multiple_features(source: str) -> pd.DataFrame:
    """Return the raw features of one source for all 2,000 digits.

    Parameters
    ----------
    source
        ``"fac"``, ``"fou"``, ``"kar"``, ``"mor"``, ``"pix"`` or ``"zer"``, see
        `load_multiple_features`.

    Returns
    -------
    pandas.DataFrame
        One row per digit, labeled as in `load_multiple_features`; float64; not standardized.

    Raises
    ------
    LabelError
        If the source is unknown.

    Examples
    --------
    >>> from mkmc_prob.datasets import multiple_features
    >>> multiple_features("mor").loc["d0_000"].tolist()
    [1.0, 0.0, 0.0, 133.15, 1.3117, 1620.2]
    """
    path = files(__package__) / "mfeat" / f"mfeat-{_known(source)}.csv.gz"
    with path.open("rb") as file:
        table = pd.read_csv(file, compression="gzip", header=None, skiprows=1)
    # The last column is the class. The rows are sorted by class, 200 each, as are the labels.
    values = table.iloc[:, :-1].to_numpy(dtype=np.float64)
    columns = pd.RangeIndex(values.shape[1], name="feature")
    return pd.DataFrame(values, index=pd.Index(_objects(), name="object"), columns=columns)


def _known(source: str) -> str:
    if source not in SOURCES:
        raise LabelError(f"sources: {source!r} is unknown. Choose from {', '.join(SOURCES)}.")
    return str(source)


def _objects() -> NDArray[np.str_]:
    """Return the labels of all digits in the order of the files."""
    return np.array([f"d{c}_{i:03d}" for c in range(CLASSES) for i in range(DIGITS_PER_CLASS)])


def _choose(n_per_class: int, seed: int | np.random.Generator | None) -> NDArray[np.int64]:
    """Return the rows of the selected digits in the files, sorted."""
    if seed is None:
        within = np.tile(np.arange(n_per_class), (CLASSES, 1))
    else:
        rng = np.random.default_rng(seed)
        drawn = [rng.choice(DIGITS_PER_CLASS, n_per_class, replace=False) for _ in range(CLASSES)]
        within = np.sort(drawn, axis=1)
    return (DIGITS_PER_CLASS * np.arange(CLASSES)[:, None] + within).ravel()
