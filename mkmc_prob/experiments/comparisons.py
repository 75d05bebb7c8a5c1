"""Comparisons of the methods of a study: tests, intervals and effect sizes over repetitions."""

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy import stats

from ..errors import MKMCError
from ..utils.arguments import checked, share
from .scores import DISTANCES, check_pairs, mean_and_sd, n_objects, place, score_of

#: The tests of a table, the last of which it adjusts for their number.
_P_VALUES = ("p_two_sample", "p_welch", "p_paired", "p_corrected")
#: Reasons why a test is NaN.
TOO_FEW = "fewer than two repetitions have a score"
EQUAL = "all differences are equal"


@checked(confidence=share)
def compare_methods(
    study: xr.Dataset, *, score: str = "roc", baseline: str = "mkmc", confidence: float = 0.95
) -> xr.Dataset:
    """Compare each method of a study with a baseline: tests, intervals and effect sizes.

    A difference is method minus baseline. The baseline is better if differences of ROC scores are
    negative, or those of distances positive. All p-values are two-sided and not adjusted for
    multiple comparisons (`comparison_table` adjusts those of its rows).

    Parameters
    ----------
    study
        What `run_study` returns.
    score
        ``"roc"``; or ``"correlation_matrix_distance"`` or ``"relative_error"``, of which the mean
        over the kernels with missing rows is compared, as in the paper.
    baseline
        The method with which the others are compared.
    confidence
        The level of the intervals.

    Returns
    -------
    Dataset
        Over (ratio, completion, matrix, train_size) for ``"roc"``, over (ratio, completion) for a
        distance, ``completion`` being the others:

        - ``repetitions``, the number of repetitions with a score; ``mean``, ``sd``,
          ``baseline_mean``, ``baseline_sd``, over these;
        - ``difference``, ``difference_sd``, ``difference_low``, ``difference_high``: the mean and
          the standard deviation of the differences within repetitions, with a t interval;
        - ``t_two_sample``, ``p_two_sample``: the paper's test (section 5), Student's for two
          independent samples of equal variance; ``p_welch``, Welch's for unequal variances (its t
          is the same, because both samples have the same size);
        - ``t_paired``, ``p_paired``: Student's for pairs. In a repetition all methods see the same
          removals and splits, whose common effect cancels;
        - ``t_corrected``, ``p_corrected``, ``corrected_low``, ``corrected_high`` (``"roc"`` only):
          the corrected resampled t-test, see the notes;
        - ``cohens_d``, the difference over the pooled standard deviation, and ``cohens_dz``, over
          the standard deviation of the differences;
        - ``reason``: empty, or why tests are NaN. There are no tests of fewer than two repetitions.
          If all differences are equal (at ratio 0 nothing is completed), there is no paired test,
          interval or ``cohens_dz``; if the scores do not vary either, there is no two-sample test
          or ``cohens_d``.

    Raises
    ------
    MKMCError
        If `study` is not a study, or has no such score, fewer than two repetitions or only one
        method; if a method has no score in a repetition in which another has one; if `score` or
        `confidence` cannot be used; if ``n_objects`` is not an attribute of the study or a training
        set leaves nothing to test (``"roc"``).
    LabelError
        If the study has no method `baseline`.

    Notes
    -----
    The repetitions of a study share their objects. The two-sample and the paired test treat them as
    independent: they concern further removals and splits of *these objects*, and with enough
    repetitions any difference is significant. The performance on *other objects* of the same
    population is less certain. For R repetitions whose differences have the variance s^2, Nadeau
    and Bengio (2003, Machine Learning 52, 239-281) estimate the variance of the mean by::

        (1/R + n_test/n_train) s^2

    and use t with R - 1 degrees of freedom. This is correct if the correlation of two repetitions
    is the share of objects that two test sets have in common. Training sets and removals are drawn
    anew, which lowers the correlation, so the test is conservative; very much so with few training
    objects (200 of 2,318, say), for which n_test/n_train is large.

    Examples
    --------
    >>> import numpy as np
    >>> import xarray as xr
    >>> from mkmc_prob.experiments.comparisons import compare_methods
    >>> roc = [[0.80, 0.76], [0.82, 0.77], [0.81, 0.79]]
    >>> study = xr.Dataset(
    ...     {"roc": (["repetition", "completion"], roc)}, {"completion": ["mkmc", "zero"]}
    ... ).expand_dims(ratio=[0.5], matrix=["model"], train_size=[50])
    >>> found = compare_methods(study.assign_attrs(n_objects=100)).squeeze()
    >>> round(found["difference"].item(), 4), round(found["p_paired"].item(), 4)
    (-0.0367, 0.0533)
    >>> round(found["p_corrected"].item(), 4)
    0.1732
    """
    values = score_of(study, score)
    place(values, "completion", baseline, what="baseline")
    if values.sizes["repetition"] < 2:
        raise MKMCError("study: it has one repetition. Run it with more: repetitions=10, say.")
    if values.sizes["completion"] < 2:
        raise MKMCError(f"study: {baseline!r} is its only method. Run it with another one.")
    check_pairs(values)
    if score != "roc":
        values = values.mean("kernel")
    own, reference = xr.broadcast(
        values.drop_sel(completion=baseline), values.sel(completion=baseline, drop=True)
    )
    count = own.count("repetition")
    n = count.where(count > 1)
    # A spread below the rounding of the scores is an sd of exactly 0.
    size = abs(values).max(["repetition", "completion"])
    mean, sd = mean_and_sd(own, size)
    reference_mean, reference_sd = mean_and_sd(reference, size)
    difference, difference_sd = mean_and_sd(own - reference, size)
    spread = difference_sd.where(difference_sd > 0)
    pooled = ((sd**2 + reference_sd**2) / 2) ** 0.5
    pooled = pooled.where(pooled > 0)
    samples = (mean, sd.where(pooled > 0), n, reference_mean, reference_sd, n)
    student, welch = (
        xr.apply_ufunc(stats.ttest_ind_from_stats, *samples, equal, output_core_dims=[[], []])
        for equal in (True, False)
    )
    low, high, t_paired, p_paired = _t_test(difference, spread, 1 / n, n, confidence)
    reasons = np.where(count < 2, TOO_FEW, np.where(difference_sd > 0, "", EQUAL))
    found = {
        "repetitions": (count, "repetitions compared"),
        "mean": (mean, "mean over the repetitions"),
        "sd": (sd, "standard deviation over the repetitions"),
        "baseline_mean": (reference_mean, "mean of the baseline"),
        "baseline_sd": (reference_sd, "standard deviation of the baseline"),
        "difference": (difference, "mean of method - baseline"),
        "difference_sd": (difference_sd, "standard deviation of method - baseline"),
        "difference_low": (low, "lower end of its confidence interval, paired"),
        "difference_high": (high, "upper end of its confidence interval, paired"),
        "t_two_sample": (student[0], "t of the two-sample test, equal variances"),
        "p_two_sample": (student[1], "p of the two-sample test, equal variances"),
        "p_welch": (welch[1], "p of the two-sample test, unequal variances"),
        "t_paired": (t_paired, "t of the paired test"),
        "p_paired": (p_paired, "p of the paired test"),
        "cohens_d": (difference / pooled, "difference / pooled standard deviation"),
        "cohens_dz": (difference / spread, "difference / standard deviation of the differences"),
        "reason": (count.copy(data=reasons), "why a test is NaN"),
    }
    if score == "roc":
        train = values["train_size"]
        factor = 1 / n + (n_objects(study, train.values) - train) / train
        low, high, t, p = _t_test(difference, spread, factor, n, confidence)
        of = "corrected for shared objects"
        found |= {
            "corrected_low": (low, f"lower end of the confidence interval, {of}"),
            "corrected_high": (high, f"upper end of the confidence interval, {of}"),
            "t_corrected": (t, "t of the corrected resampled paired test"),
            "p_corrected": (p, "p of the corrected resampled paired test"),
        }
    dims = [dim for dim in values.dims if dim in count.dims]
    compared = {
        name: variable.transpose(*dims).assign_attrs(long_name=text)
        for name, (variable, text) in found.items()
    }
    settings = {"score": score, "baseline": baseline, "confidence": confidence}
    return xr.Dataset(compared, attrs=settings)


def comparison_table(
    study: xr.Dataset,
    *,
    ratio: float,
    score: str = "roc",
    matrix: str = "model",
    baseline: str = "mkmc",
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Return the paper's table: each method at one ratio, compared with the baseline.

    Parameters
    ----------
    study
        What `run_study` returns.
    ratio
        The ratio of missing rows, one of the study's.
    score, baseline, confidence
        As for `compare_methods`, which explains the tests.
    matrix
        The matrix of the ROC scores: ``"model"`` or a kernel's name. Distances are of all kernels.

    Returns
    -------
    pandas.DataFrame
        A row per training size and method, the baseline first (for a distance, per method):
        ``mean`` and ``sd`` of the score; ``difference``, method minus baseline, and its confidence
        interval, paired; the p-values ``p_two_sample`` (the paper's), ``p_welch``, ``p_paired``
        and, for ROC scores, ``p_corrected``; ``p_adjusted``, the last of these adjusted by Holm's
        method for the rows of this table; the effect sizes ``cohens_d`` and ``cohens_dz``;
        ``reason``, why some are NaN. The row of the baseline has only ``mean`` and ``sd``.

    Raises
    ------
    MKMCError, LabelError
        As raised by `compare_methods`; if the study has no such ratio or matrix.

    Examples
    --------
    >>> import numpy as np
    >>> import xarray as xr
    >>> from mkmc_prob.experiments.comparisons import comparison_table
    >>> roc = [[0.80, 0.76, 0.75], [0.82, 0.77, 0.80], [0.81, 0.79, 0.78]]
    >>> study = xr.Dataset(
    ...     {"roc": (["repetition", "completion"], roc)}, {"completion": ["mkmc", "zero", "mean"]}
    ... ).expand_dims(ratio=[0.5], matrix=["model"], train_size=[50]).assign_attrs(n_objects=100)
    >>> comparison_table(study, ratio=0.5)[["mean", "difference", "p_two_sample"]].round(3)
                            mean  difference  p_two_sample
    train_size completion
    50         mkmc        0.810         NaN           NaN
               zero        0.773      -0.037         0.025
               mean        0.777      -0.033         0.100
    """
    values = score_of(study, score)
    chosen, rows = {"ratio": [place(values, "ratio", ratio)]}, ["completion"]
    if score == "roc":
        chosen["matrix"], rows = [place(values, "matrix", matrix)], ["train_size", "completion"]
    options: dict[str, Any] = {"score": score, "baseline": baseline, "confidence": confidence}
    compared = compare_methods(study.isel(chosen), **options).squeeze(list(chosen), drop=True)
    tests = [name for name in _P_VALUES if name in compared]
    own = compared.isel(completion=[0]).assign_coords(completion=[baseline])
    own = own[["baseline_mean", "baseline_sd"]].rename(baseline_mean="mean", baseline_sd="sd")
    both = xr.concat([own, compared], "completion", join="outer", data_vars="all")
    table = both.to_dataframe(dim_order=rows).fillna({"reason": ""})
    p = table[tests[-1]].dropna().sort_values()
    holm = (p * np.arange(len(p), 0, -1)).cummax().clip(upper=1.0)
    wanted = ["mean", "sd", "difference", "difference_low", "difference_high", *tests]
    return table.assign(p_adjusted=holm)[[*wanted, "p_adjusted", "cohens_d", "cohens_dz", "reason"]]


def study_summary(study: xr.Dataset, *, matrix: str = "model") -> pd.DataFrame:
    """Return the mean and its standard error, over the repetitions, of every score of a study.

    Parameters
    ----------
    study
        What `run_study` returns.
    matrix
        The matrix of the ROC scores: ``"model"`` or a kernel's name.

    Returns
    -------
    pandas.DataFrame
        A row per ratio and method. Columns in two levels: ``roc_200`` (with the training size),
        ``correlation_matrix_distance``, ``relative_error``, each with ``mean`` and
        ``standard_error``. The distances are means over the kernels with missing rows, NaN if there
        are none; a standard error is NaN if fewer than two repetitions have a score.

    Raises
    ------
    MKMCError
        If `study` is not a study.
    LabelError
        If it has no such matrix.

    Examples
    --------
    >>> import xarray as xr
    >>> from mkmc_prob.experiments.comparisons import study_summary
    >>> roc = xr.DataArray([0.8, 0.9], dims="repetition").expand_dims(
    ...     ratio=[0.5], completion=["mkmc"], matrix=["model"], train_size=[50]
    ... )
    >>> distance = (0.1 * roc).isel(train_size=0, matrix=0, drop=True).expand_dims(kernel=["text"])
    >>> study = xr.Dataset(
    ...     {"roc": roc, "correlation_matrix_distance": distance, "relative_error": 2 * distance}
    ... )
    >>> study_summary(study)["roc_50"].round(3)
    statistic         mean  standard_error
    ratio completion
    0.5   mkmc        0.85            0.05
    """
    roc = score_of(study, "roc")
    roc = roc.isel(matrix=place(roc, "matrix", matrix), drop=True)
    parts = {f"roc_{size}": roc.sel(train_size=size) for size in roc["train_size"].values.tolist()}
    parts |= {score: score_of(study, score).mean("kernel") for score in DISTANCES}
    columns = {}
    for name, part in parts.items():
        mean, sd = mean_and_sd(part)
        columns[name, "mean"] = mean.to_series()
        columns[name, "standard_error"] = (sd / np.sqrt(part.count("repetition"))).to_series()
    return pd.DataFrame(columns).rename_axis(columns=["score", "statistic"])


def _t_test(
    difference: xr.DataArray, sd: xr.DataArray, factor: Any, n: xr.DataArray, level: float
) -> tuple[xr.DataArray, xr.DataArray, xr.DataArray, xr.DataArray]:
    """Return interval, t and p of a mean whose variance is `factor` times that of the values."""
    error = sd * np.sqrt(factor)
    t = difference / error
    width = xr.apply_ufunc(stats.t.ppf, (1 + level) / 2, n - 1) * error
    p = 2 * xr.apply_ufunc(stats.t.sf, np.abs(t), n - 1)
    return difference - width, difference + width, t, p
