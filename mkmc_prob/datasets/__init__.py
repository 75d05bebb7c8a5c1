"""Bundled data and simulated data."""

from .fusion import FusionProblem, make_fusion_problem
from .multiple_features import MultipleFeatures, load_multiple_features, multiple_features

__all__ = [
    "FusionProblem",
    "MultipleFeatures",
    "load_multiple_features",
    "make_fusion_problem",
    "multiple_features",
]
