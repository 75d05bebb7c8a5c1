"""The paper's study of completion: methods compared on stacks with rows removed on purpose."""

import hashlib
import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from tqdm.auto import tqdm

from ..errors import ConvergenceWarning, MKMCError, warn
from ..stacks.stack import warn_of_scales
from ..utils.arguments import checked, optional, positive, several, tolerance, whole
from ..utils.processes import PoolError, in_processes, need_joblib
from ..utils.version import __version__
from . import arguments
from .cells import Cell, Missingness, Outcome, Study
from .classification import EXTRA, need_sklearn
from .folder import LAYOUT, Folder
from .methods import METHODS, PAPER_STRENGTH, Method, NamedMethod, definition, named_methods

#: The paper's ratios of missing entries.
RATIOS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
#: The variables of a study, with their dimensions after those of the cells.
VARIABLES: dict[str, tuple[tuple[str, ...], str]] = {
    "roc": (("matrix", "train_size"), "area under the ROC curve"),
    "correlation_matrix_distance": (("kernel",), "correlation matrix distance"),
    "relative_error": (("kernel",), "mean relative error of missing rows"),
    "strength": ((), "strength of the prior, lambda"),
    "converged": ((), "whether the fit converged"),
    "evaluations": ((), "evaluations of the EM map"),
}


@checked(
    kernels=arguments.complete_kernels,
    ratios=arguments.different_ratios,
    repetitions=whole(least=1),
    train_sizes=optional(several(whole(least=1))),
    C=arguments.error_weights,
    missingness=optional(arguments.function),
    strength=positive,
    tol=tolerance,
    max_iter=whole(least=1),
    seed=whole(least=0, most=arguments.LARGEST_SEED),
    workers=whole(least=1),
    folder=optional(arguments.folder_path),
)
def run_study(
    kernels: xr.DataArray,
    classes: "xr.DataArray | pd.Series[Any] | Mapping[Any, Any]",
    *,
    methods: Sequence[str | Mapping[str, str | Method]] | Mapping[str, str | Method] = METHODS,
    ratios: Sequence[float] | NDArray[np.float64] = RATIOS,
    repetitions: int = 10,
    train_sizes: Sequence[int] | None = None,
    C: float | Sequence[float] = 1.0,
    missingness: Missingness | None = None,
    strength: float = PAPER_STRENGTH,
    tol: float = 1e-3,
    max_iter: int = 10_000,
    seed: int,
    workers: int = 1,
    folder: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> xr.Dataset:
    """Compare methods of completion as the paper does (section 5).

    In every repetition rows and columns are removed from complete kernels, nested over the ratios,
    and each method completes them. Support vector machines then learn the classes on each completed
    kernel and on the model matrix that combines them, and the completed kernels are compared with
    the true ones. A cell is one repetition, ratio and method; cells are independent of one another.

    Parameters
    ----------
    kernels
        A complete stack, dims ``("kernel", "object", "object_bis")``, without a kernel called
        ``"model"``.
    classes
        The class of every object, labeled by object: two or more classes of any kind. Further
        objects are ignored.
    methods
        Names of built-in methods, and mappings from a name to a function from an incomplete stack
        to a complete one, or to an `MKMCResult`. Built in are:

        - ``"mkmc"``: `fit` at `strength`; see `mkmc`,
        - ``"mkmc_chosen"``: `fit` at the strength that `select_strength` finds best for the
          incomplete stack; see `mkmc_chosen`,
        - ``"zero"``, ``"mean"``: `zero_impute`, `mean_impute`.

        A function gets its own copy of the stack, and returns the same labels and no NaN. It may
        change visible entries, as some methods do. If it draws random numbers, it must seed them.
    ratios
        The shares of rows to remove, 0 to below 1, each once. At 0 nothing is removed.
    repetitions
        The number of repetitions.
    train_sizes
        The numbers of training objects, by default the paper's 200 and 1,000 of 1,200 objects or
        more, and a sixth and five sixths of fewer. They are the first objects of one random order
        per repetition; all others test. The order is drawn again if a training or test set lacks a
        class.
    C
        The weight of training errors, in units of 1/(mean diagonal of the training block), so that
        a kernel's scale does not matter. The paper does not say how it chose C. Of a sequence, the
        best value by 5-fold stratified cross-validation within the training set is used, for each
        matrix and size; training sets are then drawn with 5 objects of each class or more.
    missingness
        A function that removes rows, of the stack, the ratio and ``seed`` (keyword, an integer that
        depends on the repetition only); by default `remove_objects`, the paper's protocol. It sets
        whole rows and columns to NaN and changes nothing else; its removals need not be nested. All
        ratios are tried once before anything is computed.
    strength
        lambda of ``"mkmc"``, and of the model matrix of methods that do not return an `MKMCResult`,
        (lambda I + sum_k Q_k) / (lambda + K); by default the paper's 0.001.
    tol, max_iter
        As in `fit`, for the built-in methods.
    seed
        A whole number. The random numbers of a repetition depend on it and the repetition only.
    workers
        How many cells are computed at a time, each in its own process (needs joblib). The result
        does not depend on it: every cell runs on one BLAS thread.
    folder
        A folder to which each finished cell is written at once. Run again with the same folder,
        after a kill or with more repetitions, ratios or methods, a study computes missing cells
        only. Other settings are refused. A function is recognized by its name, its attribute
        ``version`` (text, optional) and, if it is a `functools.partial`, its arguments (numbers,
        text and tuples by value, others by type). A changed body, closure, global or attribute is
        not detected: change ``version``, or use another folder. Damaged files are named, not
        replaced. None keeps the cells in memory.
    progress
        Whether to show a progress bar over the cells.

    Returns
    -------
    Dataset
        ``roc`` (repetition, ratio, completion, matrix, train_size), the area under the ROC curve;
        of more than two classes the mean of each against the others.
        ``correlation_matrix_distance`` and ``relative_error`` (repetition, ratio, completion,
        kernel), NaN if no row of the kernel is missing. ``strength`` (repetition, ratio,
        completion), NaN for methods without, ``converged``, and ``evaluations`` of the EM map (of
        the final fit), 0 for methods without. The labels of ``matrix`` are the names of the kernels
        as text, then ``"model"``. For times see `study_times`.

    Raises
    ------
    MKMCError, KernelError, LabelError
        If an argument cannot be used; if a method fails or does not return what is described above
        (the message names the cell, and the cause is the method's own error); if the folder holds a
        study of other settings; if scikit-learn, or joblib for several workers, is not installed.
        Finished cells are kept.
    KeyboardInterrupt
        On Ctrl-C. Finished cells are kept.

    Warns
    -----
    ConvergenceWarning
        If fits ended before they converged; once, with their number by method.
    MKMCWarning
        If the scales of the kernels differ by more than a factor of 10.

    Notes
    -----
    On small problems zero imputation can leave a training block of zeros. All decision values are
    then equal, and the area is 1/2. A ratio at which a kernel loses all objects is an error,
    because the correlation of the zero matrix is not defined.

    The dimension is called ``completion`` because ``method`` is an option of xarray's ``sel``.

    Examples
    --------
    >>> from mkmc_prob import datasets
    >>> from mkmc_prob.experiments import run_study
    >>> kernels, classes = datasets.make_fusion_problem(30, 2, positive_share=0.5)
    >>> options = {"ratios": [0.3], "repetitions": 2, "strength": 1.0}
    >>> study = run_study(kernels, classes, methods=["mkmc", "zero"], seed=0, **options)
    >>> dict(study["roc"].sizes)
    {'repetition': 2, 'ratio': 1, 'completion': 2, 'matrix': 3, 'train_size': 2}
    >>> study["relative_error"].mean(["repetition", "ratio", "kernel"]).round(2).values
    array([0.69, 1.  ])
    """
    need_sklearn()
    if workers > 1:
        need_joblib(EXTRA)
    found = named_methods(methods, strength=strength, tol=tol, max_iter=max_iter)
    codes = arguments.class_codes(classes, kernels["object"].values)
    sizes = arguments.training_sizes(train_sizes, len(codes))
    study = Study(kernels, codes, sizes, C, seed, strength, missingness)
    warn_of_scales(kernels)
    study.check(repetitions, ratios)
    cells = list(itertools.starmap(Cell, itertools.product(range(repetitions), ratios, found)))
    settings = _settings(study, found, tol, max_iter)
    outcomes: dict[Cell, Outcome] = {}
    store = None if folder is None else Folder(folder)  # type: ignore[arg-type]  # checked
    if store is not None:
        store.open(settings)
        outcomes = store.load(cells, (kernels.sizes["kernel"] + 1, len(sizes)))
    todo = [cell for cell in cells if cell not in outcomes]
    in_flight: set[Cell] = set()

    def tasks() -> Iterator[tuple[Study, Cell, Method]]:
        for cell in todo:
            in_flight.add(cell)
            yield study, cell, found[cell.completion][0]

    workers = min(workers, len(todo)) or 1
    computed = in_processes(_attempt, tasks(), workers=workers, ordered=False, install=EXTRA)
    # Cells differ by method and ratio: the overall rate (smoothing=0) predicts best.
    options: dict[str, Any] = {"initial": len(outcomes), "total": len(cells), "smoothing": 0}
    options |= {"desc": "study", "unit": " cells", "disable": not progress}
    with tqdm(**options) as bar, closing(computed):
        try:
            for cell, outcome in computed:
                in_flight.discard(cell)
                if store is not None:
                    store.save(cell, outcome)
                outcomes[cell] = outcome
                bar.update()
        except PoolError as error:
            raise MKMCError(
                f"{error} Finished cells stay in the folder, if there is one. In flight were "
                f"{'; '.join(map(str, in_flight))}."
            ) from error
    outcomes = {cell: outcomes[cell] for cell in cells}
    dataset = _dataset(study, outcomes, settings)
    _warn_of_unfinished(dataset["converged"])
    return dataset


def _attempt(study: Study, cell: Cell, function: Method) -> tuple[Cell, Outcome]:
    """Compute a cell; raise MKMCError that names it if that fails."""
    try:
        return cell, study.run(cell, function)
    except SystemExit as error:
        raise MKMCError(f"{cell}: it called sys.exit({error.code!r}); raise an error.") from error
    except Exception as error:
        raise MKMCError(f"{cell}: {type(error).__name__}: {error}") from error


def _settings(
    study: Study, methods: dict[str, NamedMethod], tol: float, max_iter: int
) -> dict[str, Any]:
    """Return the settings that cells depend on, in JSON's types."""
    data = hashlib.sha256(np.ascontiguousarray(study.kernels.values).tobytes())
    data.update(study.kernels["rounding"].values.tobytes())
    labels = [study.kernels[dim].values.tolist() for dim in ("kernel", "object")]
    data.update(json.dumps(labels).encode())
    return {
        "layout": LAYOUT,
        "version": __version__,
        "kernels": data.hexdigest()[:16],
        "classes": hashlib.sha256(study.codes.astype(np.int64).tobytes()).hexdigest()[:16],
        "train_sizes": list(study.train_sizes),
        "C": study.C,
        "missingness": definition(study.missingness),
        "strength": study.strength,
        "tol": tol,
        "max_iter": max_iter,
        "seed": study.seed,
        "methods": {name: text for name, (_, text) in methods.items()},
    }


def _warn_of_unfinished(converged: xr.DataArray) -> None:
    """Warn once of fits that ended before they converged, with their number by method."""
    late = (~converged).sum(["repetition", "ratio"]).to_series()
    if late.any():
        of = converged.size // len(late)
        listed = ", ".join(f"{n} of {of} by {name!r}" for name, n in late[late > 0].items())
        warn(
            f"fits that ended before they converged: {listed}; their scores are those of the "
            "models reached (see `converged`). Raise max_iter.",
            ConvergenceWarning,
        )


def _dataset(
    study: Study, outcomes: Mapping[Cell, Outcome], settings: dict[str, Any]
) -> xr.Dataset:
    """Return the outcomes of all cells, in the order of the cells."""
    axes = [list(dict.fromkeys(values)) for values in zip(*outcomes, strict=True)]
    variables = {}
    for name, (dims, text) in VARIABLES.items():
        values = np.array([getattr(outcome, name) for outcome in outcomes.values()])
        values = values.reshape(*map(len, axes), *values.shape[1:])
        variables[name] = ((*Cell._fields, *dims), values, {"long_name": text, "units": "1"})
    kernels, sizes = study.kernels["kernel"].values, np.array(study.train_sizes, dtype=np.int64)
    coords = {
        "repetition": np.array(axes[0], dtype=np.int64),
        "ratio": ("ratio", axes[1], {"long_name": "share of rows removed", "units": "1"}),
        "completion": np.array(axes[2], dtype=str),
        "matrix": np.array([*map(str, kernels.tolist()), arguments.MODEL]),
        "kernel": kernels,
        "train_size": ("train_size", sizes, {"long_name": "training objects", "units": "1"}),
    }
    attrs = {
        "title": "completion study",
        "mkmc_prob_version": settings["version"],
        "n_objects": len(study.codes),
        "n_kernels": len(kernels),
        "n_classes": int(study.codes.max()) + 1,
    }
    recorded = ("seed", "C", "strength", "tol", "max_iter", "missingness")
    return xr.Dataset(variables, coords, attrs | {name: settings[name] for name in recorded})
