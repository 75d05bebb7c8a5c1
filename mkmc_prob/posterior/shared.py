"""The part of the kernels' vectors that is common to all, drawn if the sharing is below 1."""

import math

import numpy as np
from scipy.linalg import blas

from ..linalg.cholesky import cholesky, semidefinite_root
from ..linalg.products import symmetric_product
from ..linalg.symmetric import Matrix, mirror
from ..model.conditional import TOO_SINGULAR
from ..model.gaussian import GaussianModel
from .wishart import bartlett


def draw_shared(
    model: GaussianModel,
    own: GaussianModel,
    sharing: float,
    moment: Matrix,
    degrees: float,
    rng: np.random.Generator,
) -> Matrix:
    """Draw the second moment sum y y' of observations r = sqrt(s) y + sqrt(1 - s) o.

    Given r, y is normal with precision F F' = M^-1 + s/(1-s) T^-1 and mean
    (F F')^-1 sqrt(s)/(1-s) T^-1 r. With K K' = sum r r' over `degrees` observations,
    sum y y' = Y Y' + Omega with Y = F'^-1 (F^-1 sqrt(s)/(1-s) T^-1 K + Z), Z standard normal, and
    Omega ~ Wishart(degrees - rank, (F F')^-1). It depends on the sum over all kernels of one
    sharing alone. Equation :eq:`eq-draw-shared` of the derivation.

    Parameters
    ----------
    model, own
        N(0, M) and N(0, T).
    moment
        sum r r', symmetric.

    Raises
    ------
    IndefiniteKernelError
        If the precision of y is too close to singular.
    """
    size, odds = len(moment), sharing / (1.0 - sharing)
    total = own.precision * odds
    total += model.precision
    what = "precision of the shared part"
    factor = cholesky(total, what, model.objects, TOO_SINGULAR, overwrite=True, clean=False)
    root = semidefinite_root(moment)
    rank = min(root.shape[1], math.floor(degrees))
    rest = degrees - rank
    extra = size if rest > size - 1 else int(rest)
    weight = math.sqrt(sharing) / (1.0 - sharing)
    root = np.ascontiguousarray(root[:, :rank])
    mean = symmetric_product(own.precision, root, np.empty_like(root), weight)
    mean = blas.dtrsm(1.0, factor, mean, lower=1) if mean.size else mean
    noise = np.empty((rank + extra, size))
    rng.standard_normal(out=noise[:rank])
    noise[:rank] += mean.T
    if rest > size - 1:
        bartlett(rest - np.arange(size), rng, noise[rank:])
    else:
        rng.standard_normal(out=noise[rank:])
    drawn = blas.dtrsm(1.0, factor, noise.T, lower=1, trans_a=1, overwrite_b=1)
    return mirror(blas.dsyrk(1.0, drawn, lower=1)).T
