"""Simulated kernels whose hidden objects differ by a known factor, and removal by size."""

import numpy as np


def shifted_kernels(
    rng, direction, delta, *, objects=30, kernels=6, features=300, missing=0.3, constant=0.0
):
    """Complete kernels, and which objects are visible: the others are shifted, feature by feature.

    With a constant, every feature has a mean of that variance over the objects, and the shift is
    about the mean of the visible objects.
    """
    loadings = rng.standard_normal((objects, 3))
    model = loadings @ loadings.T + np.eye(objects)
    deviations = np.sqrt(np.diag(model))
    model = model / np.outer(deviations, deviations)
    half, covariance = np.linalg.cholesky(model), model + constant
    visible = rng.random((kernels, objects)) > missing
    visible[rng.integers(kernels, size=objects), np.arange(objects)] = True
    found = []
    for v in visible:
        h = ~v
        x = half @ rng.standard_normal((objects, features))
        x += np.sqrt(constant) * rng.standard_normal(features)
        center = x[v].mean(axis=0) if constant else 0.0
        regression = np.linalg.solve(covariance[np.ix_(v, v)], covariance[np.ix_(v, h)])
        predicted = regression.T @ x[v] - center
        rest = x[h] - center - predicted
        if direction == "size":
            rest *= delta
        else:
            lost = np.sqrt((1.0 - delta**2) * (predicted**2).mean(axis=1, keepdims=True))
            rest += lost * rng.standard_normal(rest.shape)
        x[h] = center + delta * predicted + rest
        kernel = x @ x.T / features
        found.append(0.5 * (kernel + kernel.T))
    return np.array(found), visible


def log_ratio(truth, completed, visible, direction, *, centered=False):
    """The log of what is completed over the truth, averaged over kernels; 0 if they agree.

    For "size" of the mean squared lengths of hidden objects; for "ties" of the regression
    coefficient of the true on the completed entries between hidden and visible objects.
    """
    found = []
    for own, other, v in zip(truth, completed, visible, strict=True):
        h = ~v
        if not h.any():
            continue
        if centered:
            about = np.eye(len(v)) - np.where(v, 1.0 / v.sum(), 0.0)
            own, other = about @ own @ about.T, about @ other @ about.T
        if direction == "size":
            found.append(np.diag(other)[h].mean() / np.diag(own)[h].mean())
        else:
            true, seen = own[np.ix_(h, v)], other[np.ix_(h, v)]
            found.append((seen * seen).sum() / (true * seen).sum())
    return float(np.log(found).mean())


def remove_large(kernels, count, rng, power):
    """Remove `count` objects of each kernel, with odds of their squared length to this power."""
    incomplete = kernels.copy()
    for values in incomplete.values:
        odds = np.diag(values) ** power
        lost = rng.choice(len(values), count, replace=False, p=odds / odds.sum())
        values[lost] = np.nan
        values[:, lost] = np.nan
    return incomplete
