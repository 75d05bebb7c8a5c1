"""M = W W' + D written plainly: factors and objects in one dense joint distribution.

As in `plain_sources`, of which this takes the kernels, y ~ N(0, M) and x = sqrt(d) (sqrt(s) y +
sqrt(1 - s) o + g 1); here y = W z + e. `LowRankEM` never forms what is written out here.
"""

from typing import NamedTuple

import numpy as np
import plain_sources
from plain_sources import (
    Drawn,
    Setting,
    condition,
    draw_problem,
    setting_of,
    visible_covariance,
)

from mkmc_prob import EM, PPCA, FactorAnalysis
from mkmc_prob.model.low_rank import LowRankModel

LOG_2_PI = np.log(2.0 * np.pi)
STRUCTURES = [PPCA, FactorAnalysis]


def dense(loadings, noise) -> np.ndarray:
    """M = W W' + D."""
    return loadings @ loadings.T + np.diag(noise)


def log_noise_prior(structure, noise) -> float:
    """-(a/2) sum_i (log d_i + tau / d_i)."""
    terms = np.log(noise) + structure.noise_scale / noise
    return -0.5 * structure.noise_strength * terms.sum()


def level(setting: Setting, structure, loadings, noise) -> float:
    """L, with the constants that are NaN at their maximum."""
    model = dense(loadings, noise)
    found = plain_sources.penalized_log_likelihood(setting.best(model), model)
    return found + log_noise_prior(structure, noise)


class Sums(NamedTuple):
    """A_i, b_i, c_i and N_i of the derivation, and sum nu E[z z'] with sum nu over all."""

    moments: np.ndarray
    cross: np.ndarray
    squares: np.ndarray
    counts: np.ndarray
    total: np.ndarray
    weight: float


def statistics(setting: Setting, loadings, noise) -> Sums:
    """E[(z, y) (z, y)' | x_v], kernel by kernel, by conditioning; the prior is one more kernel."""
    size, rank = loadings.shape
    model = dense(loadings, noise)
    setting = setting.best(model)
    joint = np.block([[np.eye(rank), loadings.T], [loadings, model]])
    everywhere = np.ones(size, dtype=bool)
    parts = [(setting.strength, everywhere, joint[:, rank:], model, setting.prior_scale)]
    for k in np.flatnonzero(setting.sharing > 0.0):
        seen = setting.visible[k]
        across = np.sqrt(setting.sharing[k]) * joint[:, rank:][:, seen]
        covariance = visible_covariance(setting, k, model)
        parts.append((setting.degrees[k], seen, across, covariance, setting.block(k)))
    moments, cross = np.zeros((size, rank, rank)), np.zeros((size, rank))
    squares, counts = np.zeros((2, size))
    total, weight = np.zeros((rank, rank)), 0.0
    for nu, seen, across, covariance, block in parts:
        found = nu * condition(joint, across, covariance, block).moment
        moments[seen] += found[:rank, :rank]
        cross[seen] += found[rank:, :rank][seen]
        squares[seen] += np.diagonal(found)[rank:][seen]
        counts[seen] += nu
        total += found[:rank, :rank]
        weight += nu
    return Sums(moments, cross, squares, counts, total, weight)


def residuals(sums: Sums, loadings) -> np.ndarray:
    """The sums of nu E (y_i - w_i' z)^2."""
    return np.array(
        [
            c - 2.0 * w @ b + w @ a @ w
            for a, b, c, w in zip(sums.moments, sums.cross, sums.squares, loadings, strict=True)
        ]
    )


def m_step(sums: Sums, structure) -> tuple[np.ndarray, np.ndarray]:
    """w_i = A_i^-1 b_i, d_i = (E (y_i - w_i' z)^2 + a tau) / (N_i + a), pooled for PPCA."""
    pairs = zip(sums.moments, sums.cross, strict=True)
    loadings = np.array([np.linalg.solve(a, b) for a, b in pairs])
    above = residuals(sums, loadings) + structure.noise_strength * structure.noise_scale
    below = sums.counts + structure.noise_strength
    if isinstance(structure, PPCA):
        return loadings, np.full(len(above), above.sum() / below.sum())
    return loadings, above / below


def q_function(sums: Sums, setting: Setting, structure, loadings, noise) -> float:
    """E[log p(y_v | z) + log p(z)] of all kernels and the prior, whose y has no 2 pi."""
    found = -0.5 * (sums.counts * np.log(noise) + residuals(sums, loadings) / noise).sum()
    found -= 0.5 * LOG_2_PI * (sums.counts - setting.strength).sum()
    found -= 0.5 * (sums.weight * loadings.shape[1] * LOG_2_PI + np.trace(sums.total))
    return found + log_noise_prior(structure, noise)


class Case(NamedTuple):
    """A random problem and a random model of low rank, and the same plainly."""

    em: EM
    setting: Setting
    model: LowRankModel
    loadings: np.ndarray
    noise: np.ndarray

    @property
    def structure(self):
        return self.em.structure


def drawn_em(rng: np.random.Generator, kind, drawn: Drawn, *, noise_strengths=(0.1, 1.0)) -> EM:
    """An EM of low rank: the paper's model or sources, constants free or held, a prior's scale."""
    size = drawn.stack.sizes["object"]
    structure = kind(
        int(rng.integers(1, min(size, 5))),
        noise_strength=rng.choice(noise_strengths),
        noise_scale=rng.uniform(0.3, 3.0),
    )
    if (drawn.sharing < 1.0).any():
        drawn = drawn._replace(scale=None)  # refused together
    sources = drawn.sources
    if rng.random() < 0.25:  # the paper's, for which the units must be alike
        stack = drawn.stack / sources.scale[:, None, None]
        return EM(stack, drawn.prior, drawn.degrees, structure=structure)
    if rng.random() < 0.3:
        held = rng.choice([0.0, 1.0], size=len(sources)) * rng.exponential(size=len(sources))
        sources = sources.with_constants(held)
    return EM(drawn.stack, drawn.prior, sources=sources, structure=structure)


def random_model(rng: np.random.Generator, em: EM) -> LowRankModel:
    size = len(em.objects)
    noise = rng.uniform(0.2, 2.0, size=size)
    if isinstance(em.structure, PPCA):
        noise[:] = noise[0]
    loadings = rng.standard_normal((size, em.structure.rank))
    return LowRankModel(loadings, noise, em.objects)


def drawn_case(seed: int, kind) -> Case:
    rng = np.random.default_rng(seed)
    drawn = draw_problem(rng, regular=True)
    em = drawn_em(rng, kind, drawn, noise_strengths=(0.0, 0.1, 1.0))
    model = random_model(rng, em)
    return Case(em, setting_of(em), model, model.factor_loadings, model.noise_variances)
