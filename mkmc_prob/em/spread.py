"""The standard deviation of each completed entry, given the model.

If kernel k is the second moment of nu independent draws of its vector, h given v is normal with
regression A and covariance C, and with G = A' Q_vv A

    Var Q_ij = Q_ii C_jj / nu                                            (i visible, j hidden)
    Var Q_ij = (G_ii C_jj + G_jj C_ii + 2 G_ij C_ij + C_ii C_jj + C_ij^2) / nu    (both hidden).
"""

import numpy as np
import xarray as xr

from ..linalg.symmetric import Matrix, Vector
from ..model.gaussian import GaussianModel
from ..model.sources import Sources
from ..stacks.kernel_stack import KernelStack


def spread_across(variances: Vector, covariances: Vector) -> Matrix:
    """Return the standard deviations for nu = 1, visible by hidden objects.

    Parameters
    ----------
    variances, covariances
        The diagonals of Q_vv and of C.
    """
    return np.outer(np.sqrt(variances), np.sqrt(covariances))


def spread_among(
    explained: Matrix,
    covariance: Matrix,
    diagonals: tuple[tuple[Vector, Vector], tuple[Vector, Vector]] | None = None,
) -> Matrix:
    """Return the standard deviations for nu = 1 of entries whose objects are both hidden.

    Parameters
    ----------
    explained, covariance
        The entries of G and C.
    diagonals
        Of G and C, for the rows and for the columns; if left out, those of the matrices.
    """
    if diagonals is None:
        own = np.maximum(np.diagonal(explained), 0.0), np.diagonal(covariance)
        diagonals = own, own
    (g, c), (g_bis, c_bis) = diagonals
    # In units of the deviations of C, so that the squares stay in range.
    units = np.outer(np.sqrt(c), np.sqrt(c_bis))
    variance: Matrix = np.add.outer(g / c, g_bis / c_bis)
    correlation = covariance / units
    product = explained / units
    product *= correlation
    product *= 2.0
    variance += product
    correlation *= correlation
    correlation += 1.0
    variance += correlation
    np.sqrt(variance, out=variance)
    variance *= units
    return variance


def standard_deviations(
    stack: KernelStack, sources: Sources, scale: Matrix | None, model: GaussianModel
) -> xr.DataArray:
    """Return the standard deviation of every completed entry, 0 for visible ones.

    Equation :eq:`eq-spread` of the derivation.

    Parameters
    ----------
    stack
        The incomplete kernels.
    sources
        Their relation to the model, with the constants at the model and the degrees of freedom.
    scale
        T, None for the identity.
    model
        The model matrix.
    """
    found = stack.array.copy(data=np.zeros(stack.array.shape))
    for values, kernel, source, nu in zip(
        found.values, stack.kernels(), sources, sources.degrees_of_freedom, strict=True
    ):
        if kernel.visible.all():
            continue
        conditional = source.condition(model, scale, kernel.visible)
        _, hidden = conditional.expected_second_moments(kernel.moment)
        covariance = conditional.covariance
        across = spread_across(np.diagonal(kernel.moment), np.diagonal(covariance)) / np.sqrt(nu)
        values[np.ix_(kernel.v, kernel.h)] = across
        values[np.ix_(kernel.h, kernel.v)] = across.T
        among = spread_among(hidden - covariance, covariance)
        values[np.ix_(kernel.h, kernel.h)] = among / np.sqrt(nu)
    return described(found)


def described(found: xr.DataArray) -> xr.DataArray:
    """Return standard deviations with their name."""
    found.attrs["long_name"] = "standard deviation of each completed entry, given the model"
    return found.rename("standard_deviation")
