"""The derivation's worked example: three kernels over six objects, and L in plain NumPy.

It has the kernels, their visible objects and their `EM`, and the formulas written from their
definitions, with which the pages compare the package.
"""

import numpy as np

from mkmc_prob import EM, WishartPrior, stack_kernels

rng = np.random.default_rng(0)
shared = rng.standard_normal((6, 2)) @ rng.standard_normal((3, 2, 9))
features = shared + rng.standard_normal((3, 6, 9))  # three sources measure nine features each
kernels = features @ features.transpose(0, 2, 1) / 9  # Q(1), Q(2), Q(3), all of them complete
visible = np.array([[1, 1, 1, 1, 0, 0], [1, 1, 0, 0, 1, 1], [0, 1, 1, 1, 1, 0]]) == 1
missing = ~(visible[:, :, None] & visible[:, None, :])  # entry by entry

nu = np.array([1.0, 2.0, 1.0])  # how often each kernel counts
strength = 0.5  # lambda
scale = 0.8 * np.eye(6) + 0.2  # T
weight = strength + nu.sum()  # lambda + N

stack = stack_kernels(
    kernels, visible=visible, objects=list("abcdef"), names=["text", "image", "graph"]
)
em = EM(stack, WishartPrior(strength, scale), degrees_of_freedom=nu)


def blocks(matrix, seen):
    """Return the blocks vv, vh and hh of a matrix."""
    v, h = np.flatnonzero(seen), np.flatnonzero(~seen)
    return matrix[np.ix_(v, v)], matrix[np.ix_(v, h)], matrix[np.ix_(h, h)]


def regress(matrix, seen):
    """Return the regression of h on v, and the covariance that it leaves."""
    vv, vh, hh = blocks(matrix, seen)
    regression = np.linalg.solve(vv, vh)
    return regression, hh - vh.T @ regression


def log_det(matrix):
    """Return log det of a positive definite matrix."""
    return np.linalg.slogdet(matrix)[1]


def log_gaussian(moment, covariance):
    """Return E_q[log N(x | 0, covariance)] for a q with this second moment."""
    trace = np.trace(np.linalg.solve(covariance, moment))
    return -0.5 * (len(covariance) * np.log(2 * np.pi) + log_det(covariance) + trace)


def log_prior(model):
    """Return -(lambda/2) (log det M + tr T M^-1)."""
    return -0.5 * strength * (log_det(model) + np.trace(np.linalg.solve(model, scale)))


def penalized(model):
    """Return L(M), from the visible blocks alone."""
    shown = [
        log_gaussian(blocks(kernel, seen)[0], blocks(model, seen)[0])
        for kernel, seen in zip(kernels, visible, strict=True)
    ]
    return nu @ shown + log_prior(model)


def kl(one, other):
    """Return KL(N(0, one) || N(0, other))."""
    trace = np.trace(np.linalg.solve(other, one))
    return 0.5 * (trace + log_det(other) - log_det(one) - len(one))


def objective(completed, model):
    """Return the paper's J of completed kernels and a model."""
    return strength * kl(scale, model) + nu @ [kl(kernel, model) for kernel in completed]


def em_map(model):
    """Return F(M): E-step and M-step, kernel by kernel."""
    total = strength * scale
    for n, kernel, seen in zip(nu, kernels, visible, strict=True):
        shown, (regression, rest) = blocks(kernel, seen)[0], regress(model, seen)
        completed = np.empty_like(total)
        completed[np.ix_(seen, seen)] = shown
        completed[np.ix_(seen, ~seen)] = shown @ regression
        completed[np.ix_(~seen, seen)] = regression.T @ shown
        completed[np.ix_(~seen, ~seen)] = rest + regression.T @ shown @ regression
        total = total + n * completed
    return total / weight


def random_model(seed):
    """Return some positive definite matrix."""
    root = np.random.default_rng(seed).standard_normal((6, 12))
    return root @ root.T / 12
