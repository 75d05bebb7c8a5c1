"""Plots: each function draws on given or new Matplotlib axes and returns them."""

from .coverage import plot_coverage
from .diagnostics import plot_agreement, plot_calibration, plot_disagreement, plot_strength
from .kernels import MISSING, plot_kernels, plot_pair_counts, plot_pattern, plot_spectra
from .loadings import plot_loadings
from .missingness import plot_mcar_test, plot_sensitivity
from .posterior import plot_estimate_on_posterior, plot_intervals
from .rate import plot_rate, plot_slowest
from .selection import plot_selection
from .trace import plot_gain_parts, plot_increments, plot_trace
from .uncertainty import plot_uncertainty
from .unseen_pairs import plot_unseen_pairs

__all__ = [
    "MISSING",
    "plot_agreement",
    "plot_calibration",
    "plot_coverage",
    "plot_disagreement",
    "plot_estimate_on_posterior",
    "plot_gain_parts",
    "plot_increments",
    "plot_intervals",
    "plot_kernels",
    "plot_loadings",
    "plot_mcar_test",
    "plot_pair_counts",
    "plot_pattern",
    "plot_rate",
    "plot_selection",
    "plot_sensitivity",
    "plot_slowest",
    "plot_spectra",
    "plot_strength",
    "plot_trace",
    "plot_uncertainty",
    "plot_unseen_pairs",
]
