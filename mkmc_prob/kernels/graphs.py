"""Kernels of graphs."""

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree


def laplacian_kernel(
    features: NDArray[np.float64], *, n_neighbors: int, reach: float
) -> NDArray[np.float64]:
    """Return (I + reach L)^-1 plus a constant, with L the Laplacian of the nearest-neighbor graph.

    The graph joins each row of `features` to its `n_neighbors` nearest rows. The constant vanishes
    if the kernel is centered.
    """
    size = len(features)
    nearest = np.asarray(cKDTree(features).query(features, k=min(n_neighbors + 1, size))[1])
    spread = np.zeros((size, size))  # I + reach L
    for neighbors in nearest[:, 1:].T:  # the first is the row itself
        spread[np.arange(size), neighbors] = spread[neighbors, np.arange(size)] = -reach
    np.fill_diagonal(spread, 1.0 - spread.sum(axis=0))
    # Shifts only the eigenvalue of the constant vector: centering then cancels no large constant.
    spread += reach
    return np.asarray(np.linalg.inv(spread), dtype=np.float64)
