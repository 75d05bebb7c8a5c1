"""Tables of a study: its scores, tidy, and the times that its cells took.

Enters: the Dataset of a study, or its folder. Leaves: a table or an array, labelled. Means and
tests are `comparisons`' business.
"""

import itertools
import os

import numpy as np
import pandas as pd
import xarray as xr

from ..errors import LabelError
from ..stacks.labels import name_some
from .cells import Cell
from .folder import Folder
from .scores import SCORES, score_of


def study_times(folder: str | os.PathLike[str]) -> xr.DataArray:
    """Return how long the completions of a study took, in seconds.

    Parameters
    ----------
    folder
        Where `run_study` keeps its cells, finished or not.

    Returns
    -------
    DataArray
        Dims ``("repetition", "ratio", "completion")``: the method's own time on one BLAS thread,
        beside what else the machine did; NaN for cells that are not there. Ratios ascend.

    Raises
    ------
    MKMCError
        Where it is not the folder of a study, or a file is damaged.

    Examples
    --------
    >>> import tempfile
    >>> from mkmc_prob import datasets
    >>> from mkmc_prob.experiments import run_study, study_times
    >>> kernels, classes = datasets.make_fusion_problem(30, 2, positive_share=0.5)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     options = {"ratios": [0.1, 0.2], "repetitions": 1, "folder": folder}
    ...     study = run_study(kernels, classes, methods=["zero", "mean"], seed=0, **options)
    ...     times = study_times(folder)
    >>> times.shape, bool((times > 0).all())
    ((1, 2, 2), True)
    """
    store = Folder(folder)
    order = list(store.settings()["methods"])
    seconds = store.seconds()
    repetitions = sorted({cell.repetition for cell in seconds})
    ratios = sorted({cell.ratio for cell in seconds})
    methods = [name for name in order if any(cell.completion == name for cell in seconds)]
    cells = itertools.starmap(Cell, itertools.product(repetitions, ratios, methods))
    values = [seconds.get(cell, np.nan) for cell in cells]
    return xr.DataArray(
        np.array(values, dtype=np.float64).reshape(len(repetitions), len(ratios), len(methods)),
        dims=("repetition", "ratio", "completion"),
        coords={
            "repetition": np.array(repetitions, dtype=np.int64),
            "ratio": np.array(ratios, dtype=np.float64),
            "completion": np.array(methods, dtype=str),
        },
        name="seconds",
        attrs={"long_name": "time of the completion", "units": "s"},
    )


def study_table(dataset: xr.Dataset) -> pd.DataFrame:
    """Return a study as a tidy table.

    Parameters
    ----------
    dataset
        From `run_study`.

    Returns
    -------
    DataFrame
        One row for each repetition, ratio, method, matrix and training size, in columns of these
        names; then ``roc``, ``correlation_matrix_distance`` and ``relative_error``. The last two
        do not depend on the training size, and are NaN for the model matrix.

    Raises
    ------
    MKMCError, LabelError
        Where `dataset` is no study; where a kernel has no place among its matrices.

    Examples
    --------
    >>> from mkmc_prob import datasets
    >>> from mkmc_prob.experiments import run_study, study_table
    >>> kernels, classes = datasets.make_fusion_problem(30, 2, positive_share=0.5)
    >>> options = {"ratios": [0.3], "repetitions": 1, "train_sizes": [20]}
    >>> study = run_study(kernels, classes, methods=["zero"], seed=0, **options)
    >>> study_table(study)[["completion", "matrix", "train_size", "relative_error"]]
      completion    matrix  train_size  relative_error
    0       zero     rbf_1          20             1.0
    1       zero  linear_2          20             1.0
    2       zero     model          20             NaN
    """
    scores = {name: score_of(dataset, name) for name in SCORES}
    roc, dims = scores.pop("roc"), list(SCORES["roc"])
    distances = xr.Dataset(scores).rename(kernel="matrix")
    names = [str(name) for name in distances["matrix"].values.tolist()]
    if unknown := [name for name in names if name not in roc["matrix"].values.tolist()]:
        raise LabelError(
            f"study: kernel {name_some(unknown)} is none of its matrices. Select the same of both."
        )
    distances = distances.assign_coords(matrix=names).reindex(matrix=roc["matrix"].values)
    whole = distances.assign(roc=roc).to_dataframe(dim_order=dims)
    return whole.reset_index()[[*dims, "roc", *distances.data_vars]]
