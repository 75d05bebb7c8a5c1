"""The yardstick: one iteration of the paper's Algorithm 1 as a reader would type it in.

Enters: kernels, who is visible, a model matrix. Leaves: the log-likelihood there, and the next
model. Nothing is shared with the package, and nothing is clever.
"""

import numpy as np


def iteration(kernels, visible, model, strength):
    """Return the penalized log-likelihood at `model`, and the model after an E- and an M-step."""
    _, log_det = np.linalg.slogdet(model)
    level = -0.5 * strength * (log_det + np.trace(np.linalg.inv(model)))
    total = strength * np.eye(len(model))
    for kernel, seen in zip(kernels, visible, strict=True):
        vv, vh = np.ix_(seen, seen), np.ix_(seen, ~seen)
        hv, hh = np.ix_(~seen, seen), np.ix_(~seen, ~seen)
        inverse = np.linalg.inv(model[vv])
        _, log_det = np.linalg.slogdet(model[vv])
        trace = np.trace(inverse @ kernel[vv])
        level -= 0.5 * (seen.sum() * np.log(2 * np.pi) + log_det + trace)
        regression = inverse @ model[vh]
        completed = kernel.copy()
        completed[vh] = kernel[vv] @ regression
        completed[hv] = completed[vh].T
        completed[hh] = model[hh] - model[hv] @ regression + regression.T @ kernel[vv] @ regression
        total += completed
    return level, total / (strength + len(kernels))
