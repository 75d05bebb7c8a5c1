"""The paper's study as importable code. Nothing enters this file but exports."""

from .classification import roc_area
from .comparisons import compare_methods, comparison_table, study_summary
from .figures import plot_distance_by_ratio, plot_roc_by_matrix, plot_roc_by_ratio, save_figures
from .methods import METHODS, mkmc, mkmc_chosen
from .report import study_report, write_study
from .study import run_study
from .tables import study_table, study_times
from .yeast import PAPER_SCORES, load_yeast

__all__ = [
    "METHODS",
    "PAPER_SCORES",
    "compare_methods",
    "comparison_table",
    "load_yeast",
    "mkmc",
    "mkmc_chosen",
    "plot_distance_by_ratio",
    "plot_roc_by_matrix",
    "plot_roc_by_ratio",
    "roc_area",
    "run_study",
    "save_figures",
    "study_report",
    "study_summary",
    "study_table",
    "study_times",
    "write_study",
]
