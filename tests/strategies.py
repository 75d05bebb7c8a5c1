"""Random problems for the property tests: stacks, features, priors, degrees of freedom."""

from typing import NamedTuple

import numpy as np
import xarray as xr
from hypothesis import strategies as st

from mkmc_prob import WishartPrior, stack_kernels


class Problem(NamedTuple):
    """A random completion problem, and the feature matrices its kernels are made of."""

    stack: xr.DataArray
    prior: WishartPrior
    degrees_of_freedom: np.ndarray
    features: list[np.ndarray]
    visible: np.ndarray

    @property
    def scale(self) -> np.ndarray:
        return self.prior.scale_matrix(self.stack.sizes["object"])


@st.composite
def problems(draw, *, full_rank=False, largest=6, kernels=4, identity=None, paper=False):
    """Draw a problem: Q = X X' / d on the visible objects of each kernel, often rank-deficient."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    size, count = draw(st.integers(1, largest)), draw(st.integers(1, kernels))
    visible = rng.random((count, size)) < draw(st.sampled_from([0.3, 0.6, 0.9, 1.0]))
    visible[rng.integers(count, size=size), np.arange(size)] = True  # each object somewhere
    common = rng.standard_normal((size, size))
    features, matrices = [], []
    for _ in range(count):
        rank = size + 2 if full_rank else int(rng.integers(1, size + 3))
        own = common @ rng.standard_normal((size, rank)) + rng.standard_normal((size, rank))
        features.append(own / np.sqrt(size))
        matrices.append(features[-1] @ features[-1].T / rank)
    strength = draw(st.sampled_from([0.05, 0.5, 2.0]))
    scale = None
    if not (draw(st.booleans()) if identity is None else identity):
        root = rng.standard_normal((size, size + 2))
        scale = root @ root.T / size
    nu = np.ones(count) if paper else rng.uniform(0.3, 3.0, size=count)
    # Random kernels may differ in scale; equalize so that no warning is due.
    matrices = [
        matrix / max(np.trace(matrix[np.ix_(there, there)]) / max(there.sum(), 1), 1e-3)
        for matrix, there in zip(matrices, visible, strict=True)
    ]
    features = [
        own * np.sqrt(np.trace(matrix) / np.trace(own @ own.T / own.shape[1]))
        for own, matrix in zip(features, matrices, strict=True)
    ]
    stack = stack_kernels(np.array([(m + m.T) / 2 for m in matrices]), visible=visible)
    return Problem(stack, WishartPrior(strength, scale), nu, features, visible)


def random_covariance(rng: np.random.Generator, size: int) -> np.ndarray:
    """Return a well-conditioned random covariance matrix."""
    root = rng.standard_normal((size, size + 3))
    return root @ root.T / (size + 3) + 0.1 * np.eye(size)
