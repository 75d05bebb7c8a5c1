"""Tables of a study: its scores in long form, and the times of its cells."""

import os

import numpy as np
import pandas as pd
import xarray as xr

from ..errors import LabelError
from ..stacks.labels import name_some
from ..utils.arguments import checked
from .arguments import folder_path
from .folder import Folder
from .scores import SCORES, score_of


@checked(folder=folder_path)
def study_times(folder: str | os.PathLike[str]) -> xr.DataArray:
    """Return how long the completions of a study took, in seconds.

    Parameters
    ----------
    folder
        The folder to which `run_study` writes its cells, finished or not.

    Returns
    -------
    DataArray
        Dims ``("repetition", "ratio", "completion")``: the method's own time on one BLAS thread,
        which depends on the load of the machine; NaN for cells that are not finished. Ratios
        ascend.

    Raises
    ------
    MKMCError
        If it is not the folder of a study, or a file is damaged.

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
    store = Folder(folder)  # type: ignore[arg-type]  # checked
    names = ["repetition", "ratio", "completion"]
    seconds = {cell: outcome.seconds for cell, outcome in store.load().items()}
    index = pd.MultiIndex.from_tuples(list(seconds), names=names)
    times = xr.DataArray.from_series(pd.Series(list(seconds.values()), index, dtype=np.float64))
    known = times["completion"].values.tolist()
    order = np.array([name for name in store.settings()["methods"] if name in known], dtype=str)
    times = times.sel(completion=order).assign_coords(completion=order).rename("seconds")
    return times.assign_attrs(long_name="time of the completion", units="s")


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
        If `dataset` is not a study, or a kernel is not among its matrices.

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
