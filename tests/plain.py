"""The paper's formulas written plainly from the page, with explicit inverses: a second opinion."""

import numpy as np


def log_gaussian(second_moment: np.ndarray, covariance: np.ndarray) -> float:
    """E_q[log N(x | 0, covariance)] for a q with this second moment."""
    n = len(covariance)
    _, log_det = np.linalg.slogdet(covariance) if n else (1, 0.0)
    trace = np.trace(np.linalg.inv(covariance) @ second_moment) if n else 0.0
    return -0.5 * (n * np.log(2 * np.pi) + log_det + trace)


def kl(a: np.ndarray, b: np.ndarray) -> float:
    """The paper's KL(a, b) = (tr b^-1 a + logdet b - logdet a - l) / 2."""
    return 0.5 * (
        np.trace(np.linalg.inv(b) @ a) + np.linalg.slogdet(b)[1] - np.linalg.slogdet(a)[1] - len(a)
    )


def log_prior(model: np.ndarray, strength: float, scale: np.ndarray) -> float:
    return -0.5 * strength * (np.linalg.slogdet(model)[1] + np.trace(np.linalg.inv(model) @ scale))


def penalized_log_likelihood(kernels, visible, nu, strength, scale, model) -> float:
    """L(M), kernel by kernel from the visible blocks."""
    total = log_prior(model, strength, scale)
    for kernel, seen, weight in zip(kernels, visible, nu, strict=True):
        block = np.ix_(seen, seen)
        total += weight * log_gaussian(kernel[block], model[block])
    return total


def e_step(kernels, visible, model) -> np.ndarray:
    """Algorithm 1, lines 5 to 10."""
    completed = np.array(kernels)
    for kernel, seen in zip(completed, visible, strict=True):
        hidden = ~seen
        vv, vh, hh = np.ix_(seen, seen), np.ix_(seen, hidden), np.ix_(hidden, hidden)
        regression = np.linalg.inv(model[vv]) @ model[vh]
        kernel[vh] = kernel[vv] @ regression
        kernel[np.ix_(hidden, seen)] = kernel[vh].T
        kernel[hh] = model[hh] - model[vh].T @ regression + regression.T @ kernel[vv] @ regression
    return completed


def m_step(completed, nu, strength, scale) -> np.ndarray:
    """Algorithm 1, line 11."""
    weighted = np.einsum("k,kij->ij", nu, completed)
    return (strength * scale + weighted) / (strength + np.sum(nu))
