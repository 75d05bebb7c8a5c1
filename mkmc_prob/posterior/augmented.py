"""What the draws of one kernel need: a root of its visible block, and the columns of noise."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import KernelError
from ..linalg.rounding import rounding_share
from ..linalg.symmetric import Matrix
from ..model.sources import SourceKernel
from ..stacks.kernel_stack import VisibleKernel


class AugmentedKernel(NamedTuple):
    """A kernel as nu observations, rho of which are not zero at the visible objects.

    Attributes
    ----------
    part : SourceKernel
        Its visible block, source and degrees of freedom nu.
    place : int
        Its place among the kernels.
    root : ndarray, shape (n, rho)
        V with V V' = nu Q_vv / d.
    rest : float
        nu - rho, the observations that are zero at all visible objects.
    extra : int
        The columns of noise that make Omega of `GibbsSampler`: m in a triangle, or fewer.
    diagonal : ndarray
        The degrees of freedom of the triangle's diagonal; empty if there is no triangle.
    cross, triangle : slice
        The places of Q_hv and of the triangle of Q_hh among the hidden entries.
    """

    part: SourceKernel
    place: int
    root: Matrix
    rest: float
    extra: int
    diagonal: NDArray[np.float64]
    cross: slice
    triangle: slice

    @classmethod
    def of(
        cls, part: SourceKernel, place: int, block: Matrix, size: int, start: int
    ) -> "AugmentedKernel":
        """Return the kernel of `block` = Q_vv / d, whose hidden entries begin at `start`.

        Raises
        ------
        KernelError
            If there is no Wishart distribution of its complete data.
        """
        kernel, nu, source = part.kernel, part.degrees, part.source
        n, m = len(kernel.v), len(kernel.h)
        root = visible_root(kernel, nu, block)
        rank = root.shape[1]
        # The complete data: x or y, the constant, and both x and y if they differ.
        dimension = size + (source.constant != 0.0) + size * (0.0 < source.sharing < 1.0)
        _check_degrees(kernel, nu, rank, size, dimension - 1)
        rest = nu - rank
        # One observation less if the constants of the others are in one of them.
        inside = max(rest - 1.0, 0.0) if source.constant != 0.0 else rest
        extra = m if inside > m - 1 else int(inside)
        falling = inside - np.arange(m) if inside > m - 1 else np.empty(0)
        cross = slice(start, start + n * m)
        triangle = slice(cross.stop, cross.stop + m * (m + 1) // 2)
        return cls(part, place, root, rest, extra, falling, cross, triangle)


def visible_root(kernel: VisibleKernel, nu: float, block: Matrix) -> Matrix:
    """Return V with V V' = nu `block`, of as many columns as the block has eigenvalues above 0."""
    n = len(kernel.v)
    values, vectors = np.linalg.eigh(block) if n else (np.empty(0), np.empty((0, 0)))
    zero = rounding_share(n, kernel.eps) * np.linalg.norm(block) if n else 0.0
    above = values > zero
    return np.ascontiguousarray(vectors[:, above] * np.sqrt(nu * values[above]))


def _check_degrees(kernel: VisibleKernel, nu: float, rank: int, size: int, least: int) -> None:
    """Raise KernelError unless nu observations make the kernel, or nu is above `least`."""
    if (nu == np.round(nu) and nu >= rank) or nu > least:
        return
    raise KernelError(
        f"degrees_of_freedom of kernel {kernel.name!r}: {nu:g} found, but the rank of its "
        f"visible block is {rank}, and there are {size} objects. A Wishart matrix has a whole "
        f"number of at least {rank}, such as the number of features, or any number above "
        f"{least}. For fewer degrees of freedom the kernels need a smaller rank: choose whole "
        "numbers nu, and pass reduce_rank(stack, nu) and nu."
    )
