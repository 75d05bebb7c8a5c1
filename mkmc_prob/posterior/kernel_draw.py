"""The draw of one kernel given the model: its constants, then its hidden entries."""

import math
from typing import NamedTuple

import numpy as np
from scipy.linalg import blas

from ..linalg.blocks import Workspace, add_rows, inner_of_block
from ..linalg.cholesky import cholesky, half_solve, log_determinant
from ..linalg.products import inner, product
from ..linalg.symmetric import Matrix, Vector, mirror
from ..model.conditional import TOO_SINGULAR
from ..model.sources import Constant
from .augmented import AugmentedKernel
from .constants import draw_constant
from .wishart import bartlett


class ConstantDraw(NamedTuple):
    """The constants g of a kernel's observations, and their variance c, drawn given the model.

    Attributes
    ----------
    variance : float
        c.
    level : float
        What it adds to the log-likelihood per degree of freedom (`Constant.level`).
    values : ndarray
        g of the rho observations that are not zero at the visible objects. If there are more, one
        number for all of these follows, the square root of the sum of their g^2: they are rotated
        so that g is zero in all but one. Empty if the kernel has no constant.
    """

    variance: float
    level: float
    values: Vector

    @classmethod
    def of(
        cls, own: AugmentedKernel, weights: Vector, before: float, rng: np.random.Generator
    ) -> "ConstantDraw":
        """Draw the constants; `weights` is q = G^-1 1, `before` the variance before.

        The variance is drawn first if it is not held.
        """
        part = own.part
        found = Constant.of(weights, part.centered, 1.0)
        c = part.source.constant
        if math.isnan(c):
            c = draw_constant(found, part.degrees, before, rng)
        e = c / (1.0 + c * found.total)
        values = e * (own.root.T @ weights)
        values += math.sqrt(e) * rng.standard_normal(len(values))
        if own.rest > 0.0:
            values = np.append(values, math.sqrt(e * rng.chisquare(own.rest)))
        return cls(c, found.level(c), values)

    def shift(self, own: AugmentedKernel) -> Vector:
        """Return u, if the visible block without its constants is nu Q_vv / d + u 1' + 1 u'."""
        rank, g = own.root.shape[1], self.values
        shift: Vector = 0.5 * (g @ g) - own.root @ g[:rank]
        return shift


#: That of a kernel without a constant.
NO_CONSTANT = ConstantDraw(0.0, 0.0, np.empty(0))


class KernelDraw(NamedTuple):
    """What a draw of one kernel says of its log-likelihood, and its constants.

    `log_det_hidden` is log det P_hh, and `trace` is tr G^-1 (Q_vv / d - z J), with G = P^-1 over
    the visible objects and z the mean off-diagonal entry if the kernel has a constant, 0 otherwise.
    """

    log_det_hidden: float
    trace: float
    constant: ConstantDraw


def draw_kernel(
    own: AugmentedKernel,
    precision: Matrix,
    before: float,
    rng: np.random.Generator,
    moment: Matrix,
    hidden: Vector,
    space: Workspace,
) -> KernelDraw:
    """Draw a kernel's constants, and its hidden entries given them and the model.

    Equations :eq:`eq-draw-completed` and :eq:`eq-draw-constant` of the derivation.

    Parameters
    ----------
    own
        The kernel.
    precision
        P, the precision of r = x / sqrt(d) - g 1 over all objects.
    before
        The variance of its constants before this draw.
    rng
        The random numbers.
    moment
        To its rows of hidden objects sum r r' is added, half of it between hidden objects.
    hidden
        All hidden entries; the kernel's are overwritten.
    space
        The memory to work in.
    """
    part, root = own.part, own.root
    kernel, source, nu = part.kernel, part.source, part.degrees
    v, h, m, (n, rank) = kernel.v, kernel.h, len(kernel.h), root.shape
    trace = inner_of_block(precision, v, v, kernel.moment)
    if not m and source.constant == 0.0:
        return KernelDraw(0.0, trace, NO_CONSTANT)
    block = space.factored.block(precision, h, h)
    what = f"kernel {kernel.name!r}, model precision"
    labels = kernel.objects[h]
    factor = cholesky(block, what, labels, TOO_SINGULAR, overwrite=True, clean=False)
    # Transposes throughout: BLAS works on columns, which are the rows of NumPy's arrays.
    across = space.across.block(precision, v, h)
    explained = product(root.T, across, space.explained.array(rank, m)).T
    explained = half_solve(factor, explained, overwrite=True)
    trace -= inner(explained.T, explained.T) / nu
    constant, half = NO_CONSTANT, np.zeros(m)
    if source.constant != 0.0:
        sums = precision @ kernel.visible.astype(np.float64)
        half = half_solve(factor, sums[h, None])[:, 0]  # L^-1 P_hv 1
        weights = sums[v] - across @ half_solve(factor, half[:, None], transposed=True)[:, 0]
        trace += part.off_diagonal * float(half @ half)  # as kernel.moment is without z J
        constant = ConstantDraw.of(own, weights, before, rng)
    g = constant.values
    count = max(rank, len(g))
    noise = space.noise.array(count + own.extra, m)
    rng.standard_normal(out=noise[:count])
    noise[:rank] -= explained.T
    if len(g):
        noise[:count] += np.outer(g, half)
    if len(own.diagonal):
        bartlett(own.diagonal, rng, noise[count:])
    else:
        rng.standard_normal(out=noise[count:])
    drawn = half_solve(factor, noise.T, transposed=True, overwrite=True)
    cross = product(drawn[:, :rank], root.T, space.cross.array(m, n))
    inside = mirror(blas.dsyrk(1.0, drawn, lower=1)).T if drawn.size else np.zeros((m, m))
    lower = np.tri(m, dtype=bool)
    if len(g):  # x = r + g 1, in units of sqrt(d)
        moved = drawn[:, :count] @ g
        hidden[own.cross] = (cross + root @ g[:rank]).reshape(-1)
        hidden[own.triangle] = (inside + moved + moved[:, None] + g @ g)[lower]
        cross -= moved[:, None]
    else:
        hidden[own.cross] = cross.reshape(-1)
        hidden[own.triangle] = inside[lower]
    hidden[own.cross.start : own.triangle.stop] /= nu / source.scale
    add_rows(moment, 1.0, h, kernel.order, cross, 0.5 * inside)
    return KernelDraw(log_determinant(factor), trace, constant)
