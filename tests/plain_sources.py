"""Item 12 of the derivation written plainly, with explicit inverses: sources as a second opinion.

The vector of kernel k is x = sqrt(d) (sqrt(s) y + sqrt(1 - s) o + g 1), with y ~ N(0, M),
o ~ N(0, T) and g ~ N(0, c). Everything is conditioned in one joint Gaussian distribution.
"""

from typing import NamedTuple

import numpy as np
import plain
import xarray as xr
from scipy.linalg import block_diag

from mkmc_prob import EM, Sources, WishartPrior, fit, stack_kernels
from mkmc_prob.diagnostics import check_monotone


class Setting(NamedTuple):
    """A problem in plain arrays; `constant` holds c_k, NaN if it is to be estimated."""

    kernels: np.ndarray
    visible: np.ndarray
    scale: np.ndarray
    constant: np.ndarray
    sharing: np.ndarray
    degrees: np.ndarray
    strength: float
    prior_scale: np.ndarray

    @property
    def total(self) -> float:
        """N, over the kernels that share anything."""
        return float(self.degrees[self.sharing > 0].sum())

    @property
    def weight(self) -> float:
        """Lambda + N."""
        return self.strength + self.total

    def block(self, k: int) -> np.ndarray:
        """S, the visible block in units of the scale."""
        seen = self.visible[k]
        return self.kernels[k][np.ix_(seen, seen)] / self.scale[k]

    def at(self, constant) -> "Setting":
        """The same with these constants."""
        return self._replace(constant=np.array(constant, dtype=float))

    def best(self, model: np.ndarray) -> "Setting":
        """The same with the constants that are NaN at their maximum for this model."""
        found = [best_constant(self, k, model) for k in range(len(self.kernels))]
        return self.at(np.where(np.isnan(self.constant), found, self.constant))


def setting_of(em: EM) -> Setting:
    """The problem that an EM was given: scales, sharings and T are its own, the rest is not."""
    sources, stack = em.sources, em.stack
    return Setting(
        stack.values,
        ~np.isnan(np.diagonal(stack.values, axis1=1, axis2=2)),
        sources.scale,
        sources.constant,
        sources.sharing,
        em.degrees_of_freedom,
        em.prior.strength,
        em.prior.scale_matrix(em.objects),
    )


def moments(block: np.ndarray) -> tuple[float, float]:
    """d and the mean off-diagonal entry of a visible block, without its special cases."""
    n = len(block)
    off = block[~np.eye(n, dtype=bool)].mean()
    return float(np.diagonal(block).mean() - off), float(off)


def visible_covariance(setting: Setting, k: int, model: np.ndarray) -> np.ndarray:
    """B_k = s M_vv + (1 - s) T_vv + c J."""
    s, c, seen = setting.sharing[k], setting.constant[k], setting.visible[k]
    base = s * model + (1.0 - s) * setting.prior_scale
    return base[np.ix_(seen, seen)] + c


def log_likelihood(setting: Setting, k: int, model: np.ndarray) -> float:
    """nu_k E_q[log N(x_v | 0, d B)]."""
    covariance = setting.scale[k] * visible_covariance(setting, k, model)
    block = setting.scale[k] * setting.block(k)
    return setting.degrees[k] * plain.log_gaussian(block, covariance)


def penalized_log_likelihood(setting: Setting, model: np.ndarray) -> float:
    """L(M), with the constants as they are."""
    kernels = sum(log_likelihood(setting, k, model) for k in range(len(setting.kernels)))
    return kernels + plain.log_prior(model, setting.strength, setting.prior_scale)


def best_constant(setting: Setting, k: int, model: np.ndarray) -> float:
    """max(0, r/t^2 - 1/t)."""
    zero = setting.at(np.zeros(len(setting.kernels)))
    if not setting.visible[k].any():
        return 0.0
    q = np.linalg.inv(visible_covariance(zero, k, model)).sum(axis=1)
    t, r = q.sum(), q @ setting.block(k) @ q
    return max(0.0, r / t**2 - 1.0 / t)


class Posterior(NamedTuple):
    """z given x_v: z = R x_v + noise, with E over x_v of second moment S."""

    regression: np.ndarray
    covariance: np.ndarray
    block: np.ndarray

    @property
    def moment(self) -> np.ndarray:
        """E[z z']."""
        return self.covariance + self.regression @ self.block @ self.regression.T

    @property
    def entropy(self) -> float:
        if not len(self.covariance):
            return 0.0
        return 0.5 * np.linalg.slogdet(2 * np.pi * np.e * self.covariance)[1]


def condition(joint: np.ndarray, across: np.ndarray, seen: np.ndarray, block) -> Posterior:
    """z given x_v from Cov(z), Cov(z, x_v) and Cov(x_v)."""
    regression = across @ np.linalg.inv(seen)
    return Posterior(regression, joint - regression @ across.T, block)


def latent(setting: Setting, k: int, model: np.ndarray) -> Posterior:
    """(y, g) given x_v, in units of sqrt(d)."""
    s, c, seen = setting.sharing[k], setting.constant[k], setting.visible[k]
    across = np.vstack([np.sqrt(s) * model[:, seen], np.full(seen.sum(), c)])
    joint = block_diag(model, [[c]])
    return condition(joint, across, visible_covariance(setting, k, model), setting.block(k))


def free_part(setting: Setting, k: int) -> np.ndarray:
    """Which of (y, g) are random given x_v: y_v is not if s = 1, because x_v and g give it."""
    hidden = ~setting.visible[k] if setting.sharing[k] == 1.0 else np.ones(len(setting.visible[k]))
    return np.append(hidden, setting.constant[k] > 0.0).astype(bool)


def missing(setting: Setting, k: int, model: np.ndarray) -> Posterior:
    """The missing data of kernel k given x_v: (y_h, g) if s = 1, (y, g) otherwise."""
    found, free = latent(setting, k, model), free_part(setting, k)
    covariance = found.covariance[np.ix_(free, free)]
    return Posterior(found.regression[free], covariance, found.block)


def e_step(setting: Setting, model: np.ndarray) -> np.ndarray:
    """sum_k nu_k E[y y'] over the kernels that share anything."""
    size, total = len(model), np.zeros_like(model)
    for k in np.flatnonzero(setting.sharing > 0):
        total += setting.degrees[k] * latent(setting, k, model).moment[:size, :size]
    return total


def m_step(setting: Setting, moment: np.ndarray) -> np.ndarray:
    return (setting.strength * setting.prior_scale + moment) / setting.weight


def em_map(setting: Setting, model: np.ndarray) -> np.ndarray:
    """F(M), with the constants that are NaN at their maximum first."""
    return m_step(setting, e_step(setting.best(model), model))


def gradient(setting: Setting, model: np.ndarray) -> np.ndarray:
    """dL/dM = (1/2) [sum nu s W - lambda (P - P T P)]."""
    precision = np.linalg.inv(model)
    total = -setting.strength * (precision - precision @ setting.prior_scale @ precision)
    for k in range(len(setting.kernels)):
        inverse = np.linalg.inv(visible_covariance(setting, k, model))
        score = inverse @ setting.block(k) @ inverse - inverse
        seen = np.ix_(setting.visible[k], setting.visible[k])
        total[seen] += setting.degrees[k] * setting.sharing[k] * score
    return 0.5 * total


def q_function(setting: Setting, model: np.ndarray, moment: np.ndarray) -> float:
    """E[sum nu log N(y | 0, M)] + log p(M)."""
    level = 0.0
    if setting.total:
        level = setting.total * plain.log_gaussian(moment / setting.total, model)
    return level + plain.log_prior(model, setting.strength, setting.prior_scale)


def entropy(setting: Setting, k: int, model: np.ndarray) -> float:
    """nu times what the Q-function leaves out of the log-likelihood of kernel k at `model`.

    The entropy of the missing data, the constant's log prior, log p(x_v | y, g), the unit.
    """
    s, c, d, seen = (
        part[k] for part in (setting.sharing, setting.constant, setting.scale, setting.visible)
    )
    if s == 0.0:
        return log_likelihood(setting, k, model)
    found = latent(setting, k, model)
    level = missing(setting, k, model).entropy - 0.5 * seen.sum() * np.log(d)
    if c > 0.0:
        level += plain.log_gaussian(found.moment[-1:, -1:], np.array([[c]]))
    if s < 1.0:  # the residual x_v - sqrt(s) y_v - g 1 is N(0, (1 - s) T_vv)
        n, own = seen.sum(), (1.0 - s) * setting.prior_scale[np.ix_(seen, seen)]
        take = np.hstack([np.sqrt(s) * np.eye(len(seen))[seen], np.ones((n, 1))])
        left = np.eye(n) - take @ found.regression
        residual = left @ found.block @ left.T + take @ found.covariance @ take.T
        level += plain.log_gaussian(residual, own)
    return setting.degrees[k] * level


def divergence(before: Posterior, after: Posterior) -> float:
    """E KL(p(z | x_v) before || after)."""
    size = len(before.covariance)
    if not size:
        return 0.0
    change = before.regression - after.regression
    spread = before.covariance + change @ before.block @ change.T
    trace = np.trace(np.linalg.inv(after.covariance) @ spread)
    logs = np.linalg.slogdet(after.covariance)[1] - np.linalg.slogdet(before.covariance)[1]
    return 0.5 * (trace - size + logs)


def gain_parts(setting: Setting, before: np.ndarray, after: np.ndarray) -> tuple[float, ...]:
    """The rise of Q, the divergences at the constants held, the rise by new constants."""
    held, moved = setting.best(before), setting.best(after)
    ratio = np.linalg.inv(before) @ after
    rise = np.trace(ratio) - len(ratio) - np.linalg.slogdet(ratio)[1]
    fell = sum(
        setting.degrees[k] * divergence(missing(held, k, before), missing(held, k, after))
        for k in np.flatnonzero(setting.sharing > 0)
    )
    constants = penalized_log_likelihood(moved, after) - penalized_log_likelihood(held, after)
    return 0.5 * setting.weight * rise, fell, constants


def completed(setting: Setting, model: np.ndarray) -> np.ndarray:
    """Every kernel by conditioning N(0, d (s M + (1 - s) T + c J))."""
    found = setting.kernels.copy()
    for k, seen in enumerate(setting.visible):
        hidden, d, s = ~seen, setting.scale[k], setting.sharing[k]
        whole = d * (s * model + (1.0 - s) * setting.prior_scale + setting.constant[k])
        parts = [whole[np.ix_(one, two)] for one, two in ((hidden, hidden), (hidden, seen))]
        given = condition(*parts, whole[np.ix_(seen, seen)], d * setting.block(k))
        cross = given.regression @ given.block
        found[k][np.ix_(hidden, seen)], found[k][np.ix_(seen, hidden)] = cross, cross.T
        found[k][np.ix_(hidden, hidden)] = given.moment
    return found


def mean_imputation(setting: Setting, k: int) -> np.ndarray:
    """Mean imputation of kernel k, freed of the self-entries: the limit of a strong prior."""
    seen, kernel = setting.visible[k], setting.kernels[k].copy()
    hidden, n = ~seen, seen.sum()
    block = kernel[np.ix_(seen, seen)]
    d, off = moments(block)
    beta = max(0.0, off / d)
    kernel[np.ix_(hidden, seen)] = block.mean(axis=0) * n * beta / (1.0 + n * beta)
    kernel[np.ix_(seen, hidden)] = kernel[np.ix_(hidden, seen)].T
    kernel[np.ix_(hidden, hidden)] = d * (beta + np.eye(hidden.sum()))
    return kernel


class Drawn(NamedTuple):
    """A random problem: the stack and what `fit` and `EM` take with it."""

    stack: xr.DataArray
    strength: float
    sharing: np.ndarray
    degrees: np.ndarray
    scale: np.ndarray | None = None

    @property
    def sources(self) -> Sources:
        return Sources.estimated(self.stack, sharing=self.sharing, degrees_of_freedom=self.degrees)

    @property
    def seen(self) -> np.ndarray:
        """The kernels with visible objects."""
        return np.flatnonzero(~np.isnan(self.stack.values).all(axis=(1, 2)))

    @property
    def prior(self) -> WishartPrior:
        return WishartPrior(self.strength, self.scale)

    def em(self, *, held: bool = False, rng: np.random.Generator | None = None) -> EM:
        """The EM; with `held` its constants are drawn, not estimated, some of them 0."""
        sources = self.sources
        if held:
            drawn = rng.choice([0.0, 1.0], size=len(sources)) * rng.exponential(size=len(sources))
            sources = sources.with_constants(drawn)
        return EM(self.stack, self.prior, sources=sources)


#: What `drawn` makes kernels of.
KINDS = ("full", "low rank", "rank one", "constant")


def draw_problem(rng: np.random.Generator, *, largest: int = 8, regular: bool = False) -> Drawn:
    """Kernels of other units, constants and ranks; patterns with nothing in common, too.

    `regular`: two objects at least per kernel, and no scale by the fallback, as the plain
    formulas of `moments` take them.
    """
    size, count = int(rng.integers(2, largest + 1)), int(rng.integers(1, 5))
    visible = rng.random((count, size)) < rng.choice([0.3, 0.6, 0.9])
    if rng.random() < 0.15:  # no object in common, and kernels of one object
        visible = rng.integers(count, size=size) == np.arange(count)[:, None]
    if rng.random() < 0.8:
        visible[rng.integers(count, size=size), np.arange(size)] = True
    if rng.random() < 0.3:
        visible[rng.integers(count)] = True  # nothing is hidden in it
    if not visible.any() or rng.random() < 0.5 or regular:
        visible[:, :2] = True
    common = rng.standard_normal((size, 2 * size))
    matrices = []
    for _ in range(count):
        kind = "full" if regular else rng.choice(KINDS, p=(0.4, 0.4, 0.1, 0.1))
        rank = {"full": 2 * size, "low rank": int(rng.integers(2, 4))}.get(kind, 1)
        features = common[:, :rank] * rng.random() + rng.standard_normal((size, rank))
        if kind == "constant":
            features[:] = features[0]
        matrix = features @ features.T / rank
        if kind != "constant" and rng.random() < 0.5:
            matrix += 10.0 ** rng.uniform(-2, 3 if not regular else 1)  # a constant of its own
        matrices.append(matrix * 10.0 ** rng.uniform(-6, 6))
    stack = stack_kernels(np.array([(one + one.T) / 2 for one in matrices]), visible=visible)
    sharing = rng.choice([0.0, 0.3, 0.9, 1.0], size=count, p=(0.15, 0.2, 0.15, 0.5))
    scale = None
    if rng.random() < 0.2:
        root = rng.standard_normal((size, size + 3))
        scale = root @ root.T / size + 0.1 * np.eye(size)
    return Drawn(
        stack, 10.0 ** rng.uniform(-3, 1.5), sharing, rng.uniform(0.3, 3.0, size=count), scale
    )


def with_constants_of_their_own(drawn: Drawn, rng: np.random.Generator, decades: float) -> Drawn:
    """Add to each kernel a constant of up to so many decades above its largest variance."""
    stack = drawn.stack.copy()
    for kernel in stack.values:
        if not np.isnan(kernel).all():
            kernel += 10.0 ** rng.uniform(0, decades) * np.nanmax(np.abs(kernel))
    return drawn._replace(stack=stack)


def fit_drawn(drawn: Drawn, **options):
    return fit(
        drawn.stack,
        prior=drawn.prior,
        sharing=drawn.sharing,
        degrees_of_freedom=drawn.degrees,
        **options,
    )


def check_fit(drawn: Drawn, **options):
    """Fit, and check that every step rose and that the completion is one; return the result."""
    result = fit_drawn(drawn, **options)
    check_monotone(result.trace)
    assert np.isfinite(result.completed.values).all()
    seen = ~np.isnan(drawn.stack.values)
    np.testing.assert_array_equal(result.completed.values[seen], drawn.stack.values[seen])
    return result
