"""The report of a study, in Markdown, and the files of its data, tables and figures."""

import os
from pathlib import Path

import pandas as pd
import xarray as xr

from ..errors import MKMCError
from ..utils.arguments import checked, real
from ..utils.files import replace_file
from ..utils.netcdf import write_netcdf
from .arguments import folder_path
from .comparisons import comparison_table, study_summary
from .figures import FIGURES, write_figures
from .scores import SCORES, method_name, score_of
from .tables import study_table
from .yeast import PAPER_SCORES

number = real(lambda value: True, "a number")

#: The columns of the comparison in the report, and their headings.
COLUMNS = {
    "mean": "mean ROC",
    "sd": "sd",
    "difference": "difference",
    "p_two_sample": "p, two-sample",
    "p_paired": "p, paired",
    "p_corrected": "p, corrected",
    "cohens_d": "d",
    "cohens_dz": "d, paired",
}


@checked(ratio=number)
def study_report(study: xr.Dataset, *, ratio: float = 0.5, paper: bool = False) -> str:
    """Return a study's tables as Markdown.

    Parameters
    ----------
    study
        What `run_study` returns.
    ratio
        The ratio of the comparison.
    paper
        Whether to add the paper's numbers (`PAPER_SCORES`, at ratio 0.5).

    Returns
    -------
    str
        The comparison of the methods on the model matrix at `ratio`, the means of all scores by
        ratio, the strengths of the fits and their evaluations of the EM map, and the settings. If
        the methods cannot be compared, because there is one method, one repetition, or no such
        ratio, the report says so.

    Raises
    ------
    MKMCError, LabelError
        If `study` is not a study, or `ratio` not a number.

    Examples
    --------
    >>> from mkmc_prob import datasets
    >>> from mkmc_prob.experiments import run_study, study_report
    >>> kernels, classes = datasets.make_fusion_problem(30, 2, positive_share=0.5)
    >>> options = {"ratios": [0.5], "repetitions": 3, "strength": 1.0}
    >>> study = run_study(kernels, classes, methods=["mkmc", "zero"], seed=0, **options)
    >>> print(study_report(study).splitlines()[0])
    # Completion study: 30 objects, 2 kernels, 2 classes, 3 repetitions
    """
    for score in SCORES:
        score_of(study, score)
    attrs = study.attrs
    words = {"n_objects": "objects", "n_kernels": "kernels", "n_classes": "classes"}
    counts = [f"{attrs[key]} {word}" for key, word in words.items() if key in attrs]
    counts.append(f"{study.sizes['repetition']} repetitions")
    parts = [f"# Completion study: {', '.join(counts)}"]
    parts.append(f"## ROC scores of the model matrix, {100 * ratio:g} % of the rows removed")
    known = study["completion"].values.tolist()
    baseline = "mkmc" if "mkmc" in known else known[0]
    try:
        parts += [
            _markdown(_compared(study, ratio, baseline, paper), study),
            f"Differences are relative to {method_name(study, baseline)}. The two-sample "
            "test is the paper's; the paired one uses that all methods see the same removals and "
            "divisions; the corrected one (Nadeau and Bengio 2003) accounts for the objects that "
            "repetitions share. d is Cohen's d, pooled and paired.",
        ]
    except MKMCError as error:
        parts.append(f"The methods are not compared: {error}")
    parts.append("## Means over the repetitions (standard errors)")
    try:
        means = _markdown(_means(study), study)
        parts += [means, "Distances are means over the kernels with missing rows."]
    except MKMCError as error:  # there is no model matrix
        parts.append(f"Left out: {error}")
    took = {"strength", "evaluations", "converged"} <= set(study.data_vars)
    if took and study["strength"].notnull().any():
        parts += ["## Fits: medians over the repetitions", _markdown(_fits(study), study)]
    parts += ["## Settings", "\n".join(f"- {name}: {value}" for name, value in attrs.items())]
    return "\n\n".join(parts) + "\n"


@checked(folder=folder_path, ratio=number)
def write_study(
    study: xr.Dataset, folder: str | os.PathLike[str], *, ratio: float = 0.5, paper: bool = False
) -> list[Path]:
    """Write a study: the dataset, the tidy table, the three figures and the report.

    Parameters
    ----------
    study
        What `run_study` returns.
    folder
        The folder to write to, made if it does not exist. Files of these names are replaced.
    ratio, paper
        As for `study_report`.

    Returns
    -------
    list of Path
        ``study.nc``, ``table.csv``, ``report.md``, and the figures as PDF and PNG. A figure that
        cannot be drawn, because the study does not have the ratio, is left out; the report says
        why.

    Raises
    ------
    MKMCError, LabelError
        If `study` is not a study, before anything is written, or `ratio` is not a number; if netCDF
        cannot hold one of its attributes.
    OSError
        If the folder cannot be made or written to.

    Examples
    --------
    >>> import tempfile
    >>> from mkmc_prob import datasets
    >>> from mkmc_prob.experiments import run_study, write_study
    >>> kernels, classes = datasets.make_fusion_problem(30, 2, positive_share=0.5)
    >>> options = {"ratios": [0.5], "repetitions": 3, "strength": 1.0}
    >>> study = run_study(kernels, classes, methods=["mkmc", "zero"], seed=0, **options)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(*(path.name for path in write_study(study, folder)))
    study.nc table.csv report.md roc_by_matrix.pdf roc_by_matrix.png roc_by_ratio.pdf \
roc_by_ratio.png distance_by_ratio.pdf distance_by_ratio.png
    """
    table, folder = study_table(study), Path(folder)
    report = study_report(study, ratio=ratio, paper=paper)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / name for name in ("study.nc", "table.csv", "report.md")]
    write_netcdf(study, paths[0], what="study")
    with replace_file(paths[1]) as draft:
        table.to_csv(draft, index=False)
    absent, formats = [], ("pdf", "png")
    for name in FIGURES:
        try:
            paths += write_figures([name], study, folder, formats=formats, ratio=ratio, bars="se")
        except MKMCError as error:
            absent.append(f"- {name}: {error}")
    if absent:
        report += "\n".join(["", "## Figures that are left out", "", *absent, ""])
    with replace_file(paths[2]) as draft:
        draft.write_text(report, encoding="utf-8")
    return paths


def _compared(study: xr.Dataset, ratio: float, baseline: str, paper: bool) -> pd.DataFrame:
    """Return the comparison at one ratio as text, with the paper's means if `paper`."""
    table = comparison_table(study, ratio=ratio, baseline=baseline)
    shown = table[list(COLUMNS)].rename(columns=COLUMNS)
    for name in COLUMNS.values():
        form = "{:.2g}" if name.startswith("p,") else "{:.3f}"
        shown[name] = shown[name].map(form.format)
    if paper:
        scores = PAPER_SCORES["roc"].to_series().reindex(shown.index)
        shown.insert(0, "the paper's", scores.map("{:.3f}".format))
    return shown.replace("nan", "")


def _means(study: xr.Dataset) -> pd.DataFrame:
    """Return every score's mean and standard error, as text."""
    table = study_summary(study).map("{:.3f}".format)
    mean, error = (table.xs(name, axis=1, level=1) for name in ("mean", "standard_error"))
    text = pd.DataFrame(mean + " (" + error + ")")
    return text.replace({r" \(nan\)": "", "nan": ""}, regex=True)


def _fits(study: xr.Dataset) -> pd.DataFrame:
    """Return medians of the fits, of the methods that fit."""
    took = (
        study[["strength", "evaluations"]]
        .median("repetition")
        .to_dataframe(["ratio", "completion"])
    )
    took["converged"] = study["converged"].mean("repetition").to_series().map("{:.0%}".format)
    return took[took["strength"].notna()]


def _markdown(table: pd.DataFrame, study: xr.Dataset) -> str:
    """Return a table and its index as Markdown, with the methods' names as figures show them."""
    names = {name: method_name(study, name) for name in study["completion"].values.tolist()}
    table = table.rename(names, level="completion").reset_index()
    rows = [[str(name).replace("_", " ") for name in table], ["---"] * table.shape[1]]
    rows += [[f"{v:g}" if isinstance(v, float) else str(v) for v in row] for row in table.values]
    return "\n".join("| " + " | ".join(c.replace("|", r"\|") for c in row) + " |" for row in rows)
