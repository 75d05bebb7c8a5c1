"""Made-up data for data fusion: several sources look at the same objects of two classes.

Enters: sizes and a seed. Leaves: complete kernel matrices of different kinds as a labelled stack,
and the classes: a stand-in of any size for the paper's yeast proteins.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import xarray as xr
from scipy.spatial.distance import pdist, squareform

from ..errors import MKMCError
from ..kernels.features import linear_kernel
from ..kernels.graphs import laplacian_kernel
from ..linalg.symmetric import Matrix
from ..stacks.stack import stack_kernels
from ..utils.arguments import generator, real_number, whole_number

#: How far apart the classes are in the first source and in the last, in standard deviations of
#: the source's own noise.
SEPARATION = (3.0, 0.1)
#: The standard deviation of that noise, where all sources' shared structure has 1.
NOISE = (0.3, 1.0)
#: How many latent variables, the class beside, all sources see.
SHARED = 5
#: Source k has k times as many features.
FEATURES = 10
#: How many nearest neighbours an object is joined to in a graph, and how far that carries.
NEIGHBOURS, REACH = 10, 10.0


class FusionProblem(NamedTuple):
    """What `make_fusion_problem` returns.

    Parameters
    ----------
    kernels
        A complete stack: dims ``("kernel", "object", "object_bis")``, one kernel a source.
    classes
        The class of each object, +1 or -1: integers over ``object``, labelled alike.

    Examples
    --------
    >>> from mkmc_prob.datasets import make_fusion_problem
    >>> problem = make_fusion_problem(10, 2, positive_share=0.3)
    >>> problem.kernels.sizes["kernel"], problem.classes.sum().item()
    (2, -4)
    """

    kernels: xr.DataArray
    classes: xr.DataArray


def make_fusion_problem(
    n_objects: int = 2318,
    n_kernels: int = 7,
    *,
    positive_share: float = 497 / 2318,
    seed: int | np.random.Generator = 0,
) -> FusionProblem:
    """Make kernel matrices of several sources that look at the same objects of two classes.

    The default sizes are those of the paper's yeast proteins (section 5): 2,318 objects, 497 of
    them positive, seven kernels. Source k of K measures 10 k features of an object of class c::

        x = W u + s (d c w / 2 + e),    u ~ N(0, I), e ~ N(0, I)

    with u five latent variables that all sources share, W the source's own random loadings (a
    feature's share of W u has variance 1 on average), w its own random unit vector, e its own
    noise. From the first source to the last, d (how far apart the classes are, in standard
    deviations of the noise) falls evenly from 3 to 0.1, and s rises evenly from 0.3 to 1: the last
    says next to nothing about the class. The kinds of kernel take turns, and all are centered, then
    normalized, as `center` and `normalize` do, which leaves rank `n_objects` - 1 at most:

    - ``"rbf_k"``: exp(-||x - y||^2 / (2 m)), m the median squared distance: rank `n_objects` - 1.
    - ``"linear_k"``: x'y: rank 10 k, or `n_objects` - 1 if that is less.
    - ``"graph_k"``: (I + 10 L)^-1, the regularized Laplacian kernel of the graph that joins each
      object to the 10 nearest to it, L the graph's Laplacian: rank `n_objects` - 1.

    Parameters
    ----------
    n_objects
        How many objects, at least 4.
    n_kernels
        How many sources, at least 1. A single one is like the first of several.
    positive_share
        The share of objects of class +1, between 0 and 1; rounded to whole objects, at least one
        of each class.
    seed
        An integer draws the same every time; a `numpy.random.Generator` is advanced.

    Returns
    -------
    FusionProblem
        ``kernels``, a complete stack, each kernel exactly symmetric, positive semidefinite and
        with unit diagonal; and ``classes``. `remove_objects` makes kernels incomplete.

    Raises
    ------
    MKMCError
        Where an argument is not as described; the message names it.

    Notes
    -----
    Three kernels are not the first three of seven: d and s always span their whole range. The
    classes are the same for any number of kernels. Beside the result it takes the memory of a few
    kernels.

    Examples
    --------
    >>> from mkmc_prob.datasets import make_fusion_problem
    >>> kernels, classes = make_fusion_problem(50, 4, seed=1)
    >>> kernels["kernel"].values.tolist()
    ['rbf_1', 'linear_2', 'graph_3', 'rbf_4']
    >>> (classes == 1).sum().item()
    11
    """
    size = whole_number(n_objects, "n_objects", least=4)
    count = whole_number(n_kernels, "n_kernels", least=1)
    share = real_number(positive_share)
    if share is None or not 0 < share < 1:
        raise MKMCError(
            f"positive_share: {positive_share!r} found; a number between 0 and 1 is needed, the "
            "share of objects of class +1."
        )
    rng = generator(seed)
    classes = np.full(size, -1)
    classes[rng.permutation(size)[: min(max(round(share * size), 1), size - 1)]] = 1
    shared = rng.standard_normal((size, SHARED))
    kinds = [KINDS[k % len(KINDS)] for k in range(count)]
    names = [f"{name}_{k + 1}" for k, (name, _) in enumerate(kinds)]
    objects = [f"object_{i:0{len(str(size - 1))}d}" for i in range(size)]
    # The stack's frame first, each kernel into its place then: all of them exist only once.
    frame = np.broadcast_to(1.0, (size, size))
    kernels = stack_kernels(dict.fromkeys(names, frame), objects=objects)
    levels = zip(np.linspace(*SEPARATION, count), np.linspace(*NOISE, count), strict=True)
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
    """Do what `normalize(center(...))` does, in place and without its checks."""
    matrix += matrix.T  # exactly symmetric; the factor 2 goes with the lengths
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
    return laplacian_kernel(features, n_neighbors=NEIGHBOURS, reach=REACH)


#: The kinds of kernel, in their turn.
KINDS: tuple[tuple[str, Callable[[Matrix], Matrix]], ...] = (
    ("rbf", _rbf),
    ("linear", linear_kernel),
    ("graph", _graph),
)
