"""Simulated data fusion: complete kernels of several sources over objects of two classes."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import xarray as xr
from scipy.spatial.distance import pdist, squareform

from ..kernels.features import linear_kernel
from ..kernels.graphs import laplacian_kernel
from ..linalg.symmetric import Matrix
from ..stacks.build import stack_kernels
from ..utils.arguments import checked, seed, share, whole

#: The distance between the classes in the first and in the last source, in standard deviations of
#: the source's own noise.
SEPARATION = (3.0, 0.1)
#: The standard deviation of that noise, relative to the structure that all sources share.
NOISE = (0.3, 1.0)
#: The number of latent variables that all sources share, in addition to the class.
SHARED = 5
#: Source k has k times as many features.
FEATURES = 10
#: The number of nearest neighbors in a graph, and the weight of its Laplacian.
NEIGHBORS, REACH = 10, 10.0


class FusionProblem(NamedTuple):
    """The result of `make_fusion_problem`.

    Parameters
    ----------
    kernels
        A complete stack: dims ``("kernel", "object", "object_bis")``, one kernel per source.
    classes
        The class of each object, +1 or -1: integers over ``object`` with the same labels.

    Examples
    --------
    >>> from mkmc_prob.datasets import make_fusion_problem
    >>> problem = make_fusion_problem(10, 2, positive_share=0.3)
    >>> problem.kernels.sizes["kernel"], problem.classes.sum().item()
    (2, -4)
    """

    kernels: xr.DataArray
    classes: xr.DataArray


@checked(n_objects=whole(least=4), n_kernels=whole(least=1), positive_share=share, seed=seed)
def make_fusion_problem(
    n_objects: int = 2318,
    n_kernels: int = 7,
    *,
    positive_share: float = 497 / 2318,
    seed: int | np.random.Generator = 0,
) -> FusionProblem:
    """Simulate kernel matrices of several sources over the same objects of two classes.

    The default sizes are those of the paper's yeast proteins (section 5): 2,318 objects, 497 of
    them positive, seven kernels. Source k of K measures 10 k features of an object of class c::

        x = W u + s (d c w / 2 + e),    u ~ N(0, I), e ~ N(0, I)

    where all sources share the five latent variables u, and each source has its own random
    loadings W (the components of W u have variance 1 on average), random unit vector w and noise e.
    From the first source to the last, d (the distance between the classes, in standard deviations
    of the noise) falls evenly from 3 to 0.1 and s rises evenly from 0.3 to 1, so that the last
    source is almost uninformative about the class. Three types of kernel alternate. All are
    centered and then normalized, as by `center` and `normalize`, which leaves a rank of at most
    `n_objects` - 1:

    - ``"rbf_k"``: exp(-||x - y||^2 / (2 m)), m the median squared distance: rank `n_objects` - 1.
    - ``"linear_k"``: x'y: rank 10 k, or `n_objects` - 1 if that is less.
    - ``"graph_k"``: (I + 10 L)^-1, the regularized Laplacian kernel, with L the Laplacian of the
      graph that joins each object to its 10 nearest neighbors: rank `n_objects` - 1.

    Parameters
    ----------
    n_objects
        The number of objects, at least 4.
    n_kernels
        The number of sources, at least 1. A single source is like the first of several.
    positive_share
        The share of objects of class +1, between 0 and 1; rounded to whole objects, with at least
        one of each class.
    seed
        An integer gives the same draws each time; a `numpy.random.Generator` is advanced.

    Returns
    -------
    FusionProblem
        ``kernels``, a complete stack, each kernel exactly symmetric, positive semidefinite and with
        unit diagonal; and ``classes``. `remove_objects` makes the kernels incomplete.

    Raises
    ------
    MKMCError
        If an argument is invalid; the message names it.

    Notes
    -----
    Three kernels are not the first three of seven, because d and s always span their whole range.
    The classes are the same for any number of kernels. In addition to the result, a few kernels are
    held in memory.

    Examples
    --------
    >>> from mkmc_prob.datasets import make_fusion_problem
    >>> kernels, classes = make_fusion_problem(50, 4, seed=1)
    >>> kernels["kernel"].values.tolist()
    ['rbf_1', 'linear_2', 'graph_3', 'rbf_4']
    >>> (classes == 1).sum().item()
    11
    """
    size = n_objects
    rng = np.random.default_rng(seed)
    classes = np.full(size, -1)
    classes[rng.permutation(size)[: min(max(round(positive_share * size), 1), size - 1)]] = 1
    shared = rng.standard_normal((size, SHARED))
    kinds = [KINDS[k % len(KINDS)] for k in range(n_kernels)]
    names = [f"{name}_{k + 1}" for k, (name, _) in enumerate(kinds)]
    objects = [f"object_{i:0{len(str(size - 1))}d}" for i in range(size)]
    # The kernels are written into a stack made before, so that each is in memory only once.
    blank = np.broadcast_to(1.0, (size, size))
    kernels = stack_kernels(dict.fromkeys(names, blank), objects=objects)
    levels = zip(np.linspace(*SEPARATION, n_kernels), np.linspace(*NOISE, n_kernels), strict=True)
    for k, (separation, noise) in enumerate(levels):
        width = FEATURES * (k + 1)
        toward = rng.standard_normal(width)
        toward *= separation / (2 * np.linalg.norm(toward))
        features = np.outer(classes, toward) + rng.standard_normal((size, width))
        features *= noise
        features += shared @ rng.normal(scale=SHARED**-0.5, size=(SHARED, width))
        kernels.values[k] = _centered_and_normalized(kinds[k][1](features))
    return FusionProblem(
        kernels,
        xr.DataArray(
            classes,
            dims="object",
            coords={"object": objects},
            name="class",
            attrs={"long_name": "class, +1 or -1"},
        ),
    )


def _centered_and_normalized(matrix: Matrix) -> Matrix:
    """Compute `normalize(center(...))` in place and without its checks."""
    matrix += matrix.T  # exactly symmetric; normalizing removes the factor 2
    mean = matrix.mean(axis=0)
    matrix -= mean[:, None] + mean
    matrix += mean.mean()
    length = np.sqrt(np.diagonal(matrix))
    matrix /= np.outer(length, length)
    np.fill_diagonal(matrix, 1.0)
    return matrix


def _rbf(features: Matrix) -> Matrix:
    exponents = pdist(features, "sqeuclidean")
    exponents /= -2.0 * np.median(exponents)
    return np.asarray(np.exp(squareform(exponents)))


def _graph(features: Matrix) -> Matrix:
    return laplacian_kernel(features, n_neighbors=NEIGHBORS, reach=REACH)


#: The types of kernel, in the order in which they alternate.
KINDS: tuple[tuple[str, Callable[[Matrix], Matrix]], ...] = (
    ("rbf", _rbf),
    ("linear", linear_kernel),
    ("graph", _graph),
)
