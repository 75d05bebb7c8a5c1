"""How much of a change of the penalized log-likelihood can be rounding."""

import math

import numpy as np

from ..model.conditional import LOG_2_PI
from ..model.gaussian import GaussianModel

EPS = float(np.finfo(np.float64).eps)


def rounding_bound(
    model: GaussianModel,
    *,
    weight: float,
    update_trace: float,
    n_kernels: int,
    of_kernels: float = 0.0,
) -> float:
    """Return by how much rounding can change the penalized log-likelihood at a model, in nats.

    With P = M^-1 and the variance inflation factors f_i = M_ii P_ii, the bound is

        eps sqrt(l) (lambda + N + t / l) (sum_i sqrt(f_i))^2
        + eps (sqrt(l) + K + 4) [(lambda + N) sum_i (abs(log d_i) + log 2 pi) + t],

    with t = tr P (lambda T + S) and d_i either M_ii or 1 / P_ii, whichever has the larger
    abs(log). The first line bounds the effect of rounding in the factor: a Cholesky factor is exact
    for M + E with abs(E_ij) <= g sqrt(M_ii M_jj); g grows like sqrt(l) eps if roundings are
    independent (Higham and Mary 2019, SIAM J. Sci. Comput. 41, A2815). To first order E changes
    log det M by tr P E and tr P S by tr P S P E, and abs(P_ij) <= sqrt(P_ii P_jj) bounds the sum
    over i, j of abs(P_ij E_ij). Each of the lambda + N log determinants carries one such error, and
    each trace t / l on average, which at a fixed point is lambda + N. The second line bounds the
    rounding of the sums of the terms of L, by their sizes: the pivots lie between 1 / P_ii and
    M_ii.

    Parameters
    ----------
    model
        M.
    weight
        lambda + N.
    update_trace
        t / (lambda + N), as `EM.update_trace` gives it. Its sign is lost if the model is beyond
        double precision; its size is still right.
    n_kernels
        K.
    of_kernels
        The sum of the kernels' own bounds; see `marginal_rounding`.
    """
    size = len(model.objects)
    variance, precision = np.diagonal(model.matrix), np.diagonal(model.precision)
    inflation = np.sqrt(variance * precision).sum() ** 2
    logs = np.maximum(np.abs(np.log(variance)), np.abs(np.log(precision))) + LOG_2_PI
    trace = weight * abs(update_trace)
    factor = np.sqrt(size) * (weight + trace / size) * inflation
    terms = (np.sqrt(size) + n_kernels + 4) * (weight * logs.sum() + trace)
    return float(EPS * (factor + terms)) + of_kernels


def marginal_rounding(
    size: int,
    log_det: float,
    trace: float,
    lost: float,
    inflation: float,
    cancelling: float = 0.0,
) -> float:
    """Bound the rounding of a kernel's log-likelihood beyond what `rounding_bound` covers.

    With a constant, log det B = log det G + log(1 + c t) and tr B^-1 S are sums of a few terms,
    which can be larger than the result; `Constant.cancelling` bounds their sizes, and sums over n
    objects round by sqrt(n) eps of them. With a sharing below 1, G has a factor of its own, whose
    rounding is that of M with G's variance inflation factors in place of M's.

    Parameters
    ----------
    size
        n, the number of visible objects.
    log_det, trace
        log det G and tr G^-1 S, S without the constant.
    lost
        (n/2) log d and the divergence of the constant, in nats.
    inflation
        (sum_i sqrt(G_ii (G^-1)_ii))^2 if G has its own factor, else 0.
    cancelling
        The size of the terms that the constant adds, 0 without one.
    """
    root = math.sqrt(size)
    terms = abs(log_det) + size * LOG_2_PI + 2.0 * abs(trace) + 2.0 * abs(lost)
    own = root * ((1.0 + abs(trace) / max(size, 1)) * inflation + cancelling)
    return EPS * ((root + 4.0) * terms + own)
