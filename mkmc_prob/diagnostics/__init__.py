"""Likelihood diagnostics: labeled tables and arrays computed from a result, a trace or a stack."""

from ..stacks.pairs import never_seen_together, pair_counts
from .agreement import disagreement, kernel_agreement, object_predictive
from .bounds import unseen_pairs
from .missingness_test import mcar_test
from .monotone import check_monotone, empirical_rate

__all__ = [
    "check_monotone",
    "disagreement",
    "empirical_rate",
    "kernel_agreement",
    "mcar_test",
    "never_seen_together",
    "object_predictive",
    "pair_counts",
    "unseen_pairs",
]
