"""Kernels of feature vectors."""

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist, squareform


def rbf_kernel(features: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return exp(-||x - y||^2 / (2 s^2)) for all pairs of rows, with s their median distance."""
    distances = pdist(features)  # of pairs i < j; squareform adds an exactly zero diagonal
    width = np.median(distances)
    return np.asarray(np.exp(-0.5 * np.square(squareform(distances / width))))


def linear_kernel(features: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return X X', the inner products of all pairs of rows."""
    return features @ features.T
