"""Data to try the package on. Nothing enters this file but exports."""

from .multiple_features import MultipleFeatures, load_multiple_features, multiple_features

__all__ = ["MultipleFeatures", "load_multiple_features", "multiple_features"]
