"""Standard deviations of completed entries, entry by entry with explicit inverses."""

import numpy as np


def regress(covariance, v):
    """A and C of the hidden objects given the visible ones, v."""
    inverse = np.linalg.inv(covariance[np.ix_(v, v)])
    regression = inverse @ covariance[np.ix_(v, ~v)]
    return regression, covariance[np.ix_(~v, ~v)] - covariance[np.ix_(~v, v)] @ regression


def plain(covariance, block, v, nu):
    """The standard deviation of each entry of a kernel with the visible block `block`."""
    size = len(v)
    a, c = regress(covariance, v)
    found, position = np.zeros((size, size)), np.where(v, np.cumsum(v), np.cumsum(~v)) - 1
    for i in range(size):
        for j in range(size):
            p, q = position[i], position[j]
            if v[i] and not v[j]:
                found[i, j] = found[j, i] = block[p, p] * c[q, q]
            elif not v[i] and not v[j]:
                g = [[a[:, s] @ block @ a[:, t] for t in (p, q)] for s in (p, q)]
                found[i, j] = g[0][0] * c[q, q] + g[1][1] * c[p, p] + 2 * g[0][1] * c[p, q]
                found[i, j] += c[p, p] * c[q, q] + c[p, q] ** 2
    return np.sqrt(found / nu)
