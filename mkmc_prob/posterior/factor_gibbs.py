"""Gibbs sampling for models of few factors, M = W W' + D: EM with draws in place of expectations.

Nothing of size l x l is formed, except for the hidden entries if they are wanted.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas
from scipy.special import gammaln, multigammaln
from threadpoolctl import threadpool_limits

from ..em.completion import kernel_factors
from ..em.low_rank import LowRankEM
from ..errors import KernelError
from ..linalg.cholesky import half_solve, inverse, log_determinant
from ..linalg.symmetric import Matrix, Vector, mirror, symmetrize
from ..model.conditional import gaussian_log_likelihood
from ..model.factors import FactorPosterior, Patterns, factor_cholesky, own_factors
from ..model.low_rank import LowRankModel
from ..model.sources import Constant, SourceKernel
from ..model.structures import PPCA
from ..stacks.kernel_stack import KernelStack
from .augmented import visible_root
from .constants import draw_constant
from .constants import log_prior as log_prior_of_constant
from .sampler import Drawn, Parameters
from .wishart import bartlett, inverse_wishart_factor


class FactorState(NamedTuple):
    """The parameters of a model of few factors, and the constants of the kernels.

    Attributes
    ----------
    loadings : ndarray, shape (l, q)
        W. It is identified up to a rotation of its columns.
    noise : ndarray, shape (l,)
        d, the diagonal of D; for PPCA all the same.
    constant : ndarray, shape (K,)
        c, in units of the kernels' scales; those that are held included.
    """

    loadings: Matrix
    noise: Vector
    constant: Vector

    def entries(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> Vector:
        """Return the entries of M = W W' + D at these positions, which do not depend on rotation.

        Examples
        --------
        >>> import numpy as np
        >>> from mkmc_prob.posterior.factor_gibbs import FactorState
        >>> state = FactorState(np.array([[1.0], [2.0]]), np.array([0.5, 0.5]), np.zeros(1))
        >>> state.entries(np.array([0, 1]), np.array([0, 0]))
        array([1.5, 2. ])
        """
        products = np.einsum("ij,ij->i", self.loadings[rows], self.loadings[columns])
        found: Vector = products + np.where(rows == columns, self.noise[rows], 0.0)
        return found


class FactorDraw(NamedTuple):
    """What was drawn given a state: the sums for the parameters, and the hidden entries.

    The sums are over the observations of the kernels that share anything: for object i, over those
    that show it. Their expectations are those of `FactorStatistics`, without the prior.

    Attributes
    ----------
    state : FactorState
        The state given which they were drawn.
    factor_moments : ndarray, shape (patterns, q, q)
        The sums of z z', by pattern of visibility.
    cross : ndarray, shape (l, q)
        The sums of y_i z.
    squares : ndarray, shape (l,)
        The sums of y_i^2.
    total : ndarray, shape (q, q)
        The sum of z z' over all observations.
    hidden : ndarray
        The hidden entries of every Q(k), as in `CompletedDraw`: for each kernel Q_hv row by row,
        then the lower triangle of Q_hh row by row. Empty if they were not wanted.
    log_likelihood : ndarray, shape (K,)
        That of the visible part of each kernel at the state, in nats, as in the E-step.
    """

    state: FactorState
    factor_moments: Matrix
    cross: Matrix
    squares: Vector
    total: Matrix
    hidden: Vector
    log_likelihood: Vector


class _Observations(NamedTuple):
    """The visible parts of the nu observations of one kernel, in units of its scale."""

    part: SourceKernel
    degrees: int
    #: V, shape (n, rank), with V V' = nu S. The other nu - rank observations are zero.
    root: Matrix
    #: The places of Q_hv and of the triangle of Q_hh among the hidden entries.
    cross: slice
    triangle: slice


class _Given(NamedTuple):
    """One kernel at a state."""

    #: Its loadings and noise over all objects, the constants included.
    loadings: Matrix
    noise: Vector
    #: C with C C' = G, the precision of the factors given the visible objects.
    factor: Matrix
    #: E[z | x] by observation, shape (p, rank).
    means: Matrix
    log_likelihood: float


class FactorGibbsSampler:
    """Gibbs sampler for the posterior of M = W W' + D, the stochastic counterpart of its EM.

    Kernel k is the second moment of nu_k observations x = sqrt(d_k) (sqrt(s_k) y +
    sqrt(1 - s_k) o + g 1) with y = W z + e; see `Sources` and `LowRankModel`. Its scale d_k and
    sharing s_k are held. A step of the chain draws what EM takes expectations or maxima of:

    ================ =================================== ==========================================
    step             EM                                  here
    ================ =================================== ==========================================
    E, given W, D, c R = V V' B / nu, E = G^-1 + B' R    Z = B' V + C'^-1 Xi, by observation; then
                                                         y given z and x, and sums of z z' and y z
    M, given y, z    w_i = A_i^-1 b_i,                   d_i inverse gamma,
                     d_i = (c_i - w_i' b_i + a tau)      w_i ~ N(A_i^-1 b_i, d_i A_i^-1)
                     / (N_i + a)
    expanded         W C, C C' = sum nu E / (N + lambda) W C, C C' inverse Wishart
    c_k, given W, D  the maximum of the likelihood       slice sampling, y and z integrated out
    ================ =================================== ==========================================

    **The prior** is proper for every strength lambda > 0, and like that of the full model a density
    of precisions. With a and tau of the structure, 1 / d_i is a gamma variable with shape
    (lambda + a) / 2 + 1 and rate (lambda t_i + a tau) / 2, where t_i is the variance that the
    prior's scale T gives to object i, without the constant that all objects share. (PPCA has one
    noise; lambda + a and the rate are summed over the objects.) Given D, w_i is N(0, d_i Phi) with
    Phi^-1 ~ Wishart(lambda + q + 1, (l / lambda) I), which is integrated out:

        p(W given D) ~ det(D)^(-q/2) det((lambda/l) I + W' D^-1 W)^(-(lambda + q + 1 + l)/2)

    The square root of a constant that is not held is half-Cauchy with scale 1, in units of the
    kernel's scale. With W = 0 this is the penalty of `fit`. Otherwise it is not: the penalty,
    det(M)^(-lambda/2) exp(-(lambda/2) tr T M^-1), is improper as a density of W if lambda <= l,
    because it falls with the loadings like det(W' D^-1 W)^(-lambda/2) only.

    Equations :eq:`eq-factor-prior` to :eq:`eq-draw-expanded` of the derivation.

    Parameters
    ----------
    em
        The `EM` of the kernels, with structure `PPCA` or `FactorAnalysis`.

    Attributes
    ----------
    ranks : ndarray of int, shape (K,)
        The numerical rank of each Q_vv, as in `GibbsSampler`.
    size : int
        The number of hidden entries.
    shapes : dict
        The shapes of the arrays of a `FactorState`.

    Raises
    ------
    KernelError
        If the structure is another one, if a kernel is not in memory, or if some nu_k is not a
        whole number that is at least the rank of Q_vv: such a kernel is no second moment of nu_k
        observations.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import EM, PPCA, FactorGibbsSampler, WishartPrior, stack_kernels
    >>> features = np.random.default_rng(0).standard_normal((2, 4, 9))
    >>> stack = stack_kernels(features @ features.transpose(0, 2, 1) / 9,
    ...                       visible=[[1, 1, 1, 0], [1, 0, 1, 1]])
    >>> em = EM(stack, WishartPrior(1.0), degrees_of_freedom=9, structure=PPCA(1))
    >>> sampler, rng = FactorGibbsSampler(em), np.random.default_rng(0)
    >>> state = sampler.draw_start(rng)
    >>> drawn = sampler.draw_completed(state, rng)
    >>> drawn.hidden.shape
    (8,)
    >>> state = sampler.draw_parameters(drawn, rng)
    >>> sampler.model(state).matrix.shape
    (4, 4)
    """

    def __init__(self, em: LowRankEM) -> None:
        if not isinstance(em, LowRankEM):
            raise KernelError(
                f"em: {em!r} found; pass EM(..., structure=PPCA(rank)) or FactorAnalysis(rank). "
                "GibbsSampler is for the full structure."
            )
        self.em = em
        self.size, self._kernels = 0, []
        blocks = KernelStack.of(em.problem.stack).kernels()
        for part, kernel in zip(em.source_kernels, blocks, strict=True):
            with threadpool_limits(1):  # the same bits whatever the number of threads outside
                own = _observations(part, kernel.moment / part.source.scale, self.size)
            self.size = own.triangle.stop
            self._kernels.append(own)
        self.ranks = np.array([own.root.shape[1] for own in self._kernels])
        related = em.sources.sharing > 0.0
        visible = np.array([kernel.visible for kernel in em.kernels]) & related[:, None]
        self._patterns = Patterns.of(visible)
        shape = len(em.objects), em.structure.rank
        self.shapes = {"loadings": shape, "noise": shape[:1], "constant": (len(em.kernels),)}
        lam, structure = em.prior.strength, em.structure
        unshared = np.ones(len(em.objects))
        if not (em.sources.shared_constant or em.prior.is_identity):
            unshared = np.diagonal(em.prior.scale_matrix(em.objects)).copy()
        a = structure.noise_strength
        # Twice the shape (less 1) and the rate of the noise's precision, and the observations.
        self._shape = np.full(len(unshared), lam + a)
        self._rate = lam * unshared + a * structure.noise_scale
        self._counts = em.degrees_of_freedom @ visible
        # Phi is inverse Wishart with these degrees of freedom and this multiple of I.
        self._degrees, self._unit = lam + structure.rank + 1.0, lam / len(unshared)

    def __repr__(self) -> str:
        return f"FactorGibbsSampler({self.em!r}, {self.size} hidden entries)"

    @property
    def _pooled(self) -> bool:
        """Whether all objects have the same noise."""
        return isinstance(self.em.structure, PPCA)

    def start(self, rng: np.random.Generator) -> Parameters:
        """Draw the start of a chain; see `draw_start`."""
        return self.draw_start(rng)._asdict()

    def step(self, parameters: Parameters, rng: np.random.Generator) -> tuple[Drawn, Parameters]:
        """Draw the completed kernels given the state, and the next state given them."""
        state = FactorState(**parameters)
        completed = self.draw_completed(state, rng)
        level = float(completed.log_likelihood.sum()) + self.log_prior(state)
        drawn = Drawn(level, self.model(state), completed.hidden, state.constant)
        return drawn, self.draw_parameters(completed, rng)._asdict()

    def model_at(self, parameters: Parameters) -> LowRankModel:
        """Return the model of `parameters`."""
        return self.model(FactorState(**parameters))

    def model(self, state: FactorState) -> LowRankModel:
        """Return the model of a state; its `loadings` are canonical."""
        return LowRankModel.of(state.loadings, state.noise, self.em.objects)

    def draw_completed(
        self, state: FactorState, rng: np.random.Generator, *, hidden: bool = True
    ) -> FactorDraw:
        """Draw the factors, y where it is visible, and the hidden entries: EM's E-step.

        With G = C C' the precision of the factors given the visible objects, the factors of the
        observations V are B' V + C'^-1 Xi, Xi standard normal. Of the observations that are zero
        only the second moment of the factors matters, C'^-1 Omega C^-1 with Omega a Wishart
        matrix, drawn by Bartlett's decomposition: the cost does not depend on nu.
        Equations :eq:`eq-draw-factors` and :eq:`eq-draw-factor-completion` of the derivation.

        Parameters
        ----------
        state
            The parameters and constants.
        rng
            The random numbers.
        hidden
            Whether the hidden entries are drawn, too. The parameters do not depend on them.
        """
        model, q = self.model(state), self.em.structure.rank
        moments = np.zeros((len(self._patterns.shown), q, q))
        cross, squares = np.zeros_like(state.loadings), np.zeros_like(state.noise)
        total = np.zeros((q, q))
        entries = np.empty(self.size if hidden else 0)
        levels = np.empty(len(self._kernels))
        for k, own in enumerate(self._kernels):
            given = self._given(k, state, model)
            levels[k] = given.log_likelihood
            factors = _draw_factors(own, given, rng)
            if own.part.source.sharing > 0.0:
                v, z = own.part.kernel.v, factors[:q]
                y, rest = _draw_shared(own, given, factors, state, rng)
                moment = symmetrize(z @ z.T)
                moments[self._patterns.shown[:, k]] += moment
                total += moment
                cross[v] += y @ z.T
                squares[v] += np.einsum("ij,ij->i", y, y) + rest
            if hidden:
                _draw_hidden(own, given, factors, rng, entries)
        return FactorDraw(state, moments, cross, squares, total, entries, levels)

    def _given(self, k: int, state: FactorState, model: LowRankModel) -> _Given:
        part, degrees, root, *_ = self._kernels[k]
        v, n = part.kernel.v, len(part.kernel.v)
        source = part.source._replace(constant=float(state.constant[k]))
        loadings, noise = kernel_factors(source, self.em.sources.shared_constant, model)
        posterior = FactorPosterior(loadings[v], noise[v])
        factor = factor_cholesky(posterior.precision)
        means = posterior.regression.T @ root
        # tr B^-1 S = tr Psi^-1 S - ||C' means||^2 / nu
        explained = float(np.sum((factor.T @ means) ** 2))
        trace = (float(np.sum(root**2 / noise[v][:, None])) - explained) / degrees
        level = gaussian_log_likelihood(n, posterior.log_determinant, trace)
        level -= 0.5 * n * math.log(source.scale)
        return _Given(loadings, noise, factor, means, degrees * level)

    def draw_parameters(self, draw: FactorDraw, rng: np.random.Generator) -> FactorState:
        """Draw loadings and noise given the factors and y, then the constants: EM's M-step.

        With A_i = sum z z' + Phi^-1, b_i = sum y_i z and c_i = sum y_i^2 over the N_i
        observations that show object i, 1 / d_i is a gamma variable with shape
        (N_i + lambda + a) / 2 + 1 and rate (c_i - b_i' A_i^-1 b_i + lambda t_i + a tau) / 2, and
        w_i given d_i is N(A_i^-1 b_i, d_i A_i^-1). PPCA sums N_i + lambda + a and the rates. Then
        W <- W C exchanges a linear map with the factors, as in parameter-expanded EM, and the
        constants are drawn given W and D alone. So the next draw must be `draw_completed`.
        Equations :eq:`eq-draw-loadings` and :eq:`eq-draw-expanded` of the derivation.
        """
        precision = self._draw_precision(draw.state, rng)
        whitened, loadings = np.empty_like(draw.cross), np.empty_like(draw.cross)
        normal = rng.standard_normal(draw.cross.shape)
        factors = [factor_cholesky(moment + precision) for moment in draw.factor_moments]
        for number, factor in enumerate(factors):
            own = self._patterns.of_object == number
            whitened[own] = half_solve(factor, draw.cross[own].T).T
        # Rounding can leave a residual below zero.
        residuals = np.maximum(draw.squares - np.einsum("ij,ij->i", whitened, whitened), 0.0)
        noise = self._draw_noise(self._counts, residuals, rng)
        whitened += np.sqrt(noise)[:, None] * normal
        for number, factor in enumerate(factors):
            own = self._patterns.of_object == number
            loadings[own] = half_solve(factor, whitened[own].T, transposed=True).T
        degrees = self.em.total_degrees_of_freedom + self._degrees
        expanded = factor_cholesky(draw.total + self._unit * precision)
        expanded = inverse_wishart_factor(expanded, degrees, rng)
        state = FactorState(loadings @ expanded, noise, draw.state.constant)
        return self._with_constants(state, rng)

    def _scaled_moment(self, state: FactorState) -> Matrix:
        """Return (lambda / l) I + W' D^-1 W."""
        weighted = state.loadings / np.sqrt(state.noise)[:, None]
        moment = symmetrize(weighted.T @ weighted)
        moment.flat[:: len(moment) + 1] += self._unit
        return moment

    def _draw_precision(self, state: FactorState, rng: np.random.Generator) -> Matrix:
        """Draw Phi^-1, the precision of w_i / sqrt(d_i), given W and D."""
        factor = factor_cholesky(self._scaled_moment(state))
        degrees = self._degrees + len(state.noise)
        return inverse(inverse_wishart_factor(factor, degrees, rng))

    def _draw_noise(self, counts: Vector, residuals: Vector, rng: np.random.Generator) -> Vector:
        shape, rate = 0.5 * (counts + self._shape), 0.5 * (residuals + self._rate)
        if self._pooled:
            return np.full(len(shape), rate.sum() / rng.standard_gamma(shape.sum() + 1.0))
        variances: Vector = rate / rng.standard_gamma(shape + 1.0)
        return variances

    def _with_constants(self, state: FactorState, rng: np.random.Generator) -> FactorState:
        """Return the state with new constants, where they are not held."""
        constant = state.constant.copy()
        for k in np.flatnonzero(self.em.sources.is_estimated):
            part, v = self._kernels[k].part, self._kernels[k].part.kernel.v
            loadings, noise = state.loadings[v], state.noise[v]
            shared = self.em.sources.shared_constant
            weights = FactorPosterior(*own_factors(part.source, loadings, noise, shared))
            found = Constant.of(weights.ones_solved(), part.centered, float(constant[k]))
            constant[k] = draw_constant(found, part.degrees, float(constant[k]), rng)
        return state._replace(constant=constant)

    def log_prior(self, state: FactorState) -> float:
        """Return the log density of the prior in W, d (one number for PPCA) and sqrt(c), in nats.

        The constant of the half-Cauchy distribution is left out.
        Equation :eq:`eq-factor-prior` of the derivation.
        """
        (size, q), d, degrees = state.loadings.shape, state.noise, self._degrees
        shape, rate, log_d = 0.5 * self._shape, 0.5 * self._rate, np.log(d)
        level = multigammaln(0.5 * (degrees + size), q) - multigammaln(0.5 * degrees, q)
        level -= 0.5 * q * (size * math.log(math.pi) - degrees * math.log(self._unit) + log_d.sum())
        log_det = log_determinant(factor_cholesky(self._scaled_moment(state)))
        level -= 0.5 * (degrees + size) * log_det
        if self._pooled:
            shape, rate, d, log_d = shape.sum(), rate.sum(), d[0], log_d[0]
        shape = shape + 1.0
        of_noise = shape * np.log(rate) - gammaln(shape) - (shape + 1.0) * log_d - rate / d
        level += np.sum(of_noise)
        free = state.constant[self.em.sources.is_estimated]
        return float(level) + math.fsum(log_prior_of_constant(c) for c in free.tolist())

    def log_posterior(self, state: FactorState) -> float:
        """Return the log-likelihood and `log_prior` at a state: its log density up to a constant.

        The log-likelihood is that of `FactorDraw` and of the E-step: of the kernels as second
        moments, without the terms that depend on the kernels alone.
        """
        model = self.model(state)
        levels = [self._given(k, state, model).log_likelihood for k in range(len(self._kernels))]
        return float(np.sum(levels)) + self.log_prior(state)

    def draw_start(self, rng: np.random.Generator) -> FactorState:
        """Draw a start that is more dispersed than the posterior.

        The loadings point in random directions and explain half of an object's mean variance over
        the kernels that show it and the prior. The noise is the other half, times a factor that is
        log-uniform between 1/4 and 4; a constant is the mean off-diagonal entry, at least 0.1,
        times such a factor.
        """
        em, q = self.em, self.em.structure.rank
        shared = em.sources.shared_constant
        sums = np.zeros(len(em.objects))
        constant = em.sources.constant.copy()
        for k, own in enumerate(self._kernels):
            part = own.part
            if np.isnan(constant[k]):
                constant[k] = max(part.off_diagonal, 0.1) * 4.0 ** rng.uniform(-1.0, 1.0)
            if part.source.sharing > 0.0:
                kept = min(max(part.off_diagonal, 0.0), shared)
                # Below zero if an object varies less than the constant of the others.
                without = np.maximum(part.kernel.moment.diagonal() + kept, 0.0)
                sums[part.kernel.v] += part.degrees * without
        variance = (sums + self._rate) / (self._counts + self._shape)
        noise = 0.5 * variance * 4.0 ** rng.uniform(-1.0, 1.0, size=len(variance))
        if self._pooled:
            noise = np.full(len(noise), noise.mean())
        loadings = rng.standard_normal((len(variance), q)) * np.sqrt(0.5 * variance / q)[:, None]
        return FactorState(loadings, noise, constant)


def _observations(part: SourceKernel, block: Matrix, start: int) -> _Observations:
    """Return the observations of a kernel; raise if there are not so many."""
    kernel, nu = part.kernel, part.degrees
    n, m = len(kernel.v), len(kernel.h)
    root = visible_root(kernel, nu, block)
    rank = root.shape[1]
    if nu != round(nu) or nu < rank:
        raise KernelError(
            f"degrees_of_freedom of kernel {kernel.name!r}: {nu:g} found, but the rank of its "
            f"visible block is {rank}: a whole number of at least {rank} is needed, such as the "
            "number of features. For fewer degrees of freedom the kernels need a smaller rank: "
            "choose whole numbers nu, and pass reduce_rank(stack, nu) and nu."
        )
    cross = slice(start, start + n * m)
    triangle = slice(cross.stop, cross.stop + m * (m + 1) // 2)
    return _Observations(part, int(nu), root, cross, triangle)


def _columns(size: int, number: int, rng: np.random.Generator) -> Matrix:
    """Return at most `size` columns with the second moment of `number` standard normal ones."""
    if number <= size:
        return rng.standard_normal((size, number))
    triangle = np.empty((size, size))
    bartlett(number - np.arange(size, dtype=float), rng, triangle)
    return triangle.T


def _draw_factors(own: _Observations, given: _Given, rng: np.random.Generator) -> Matrix:
    """Return the factors and constants by observation, shape (p, rank + extra).

    Those of the observations that are zero are rotated into at most p columns.
    """
    p, rank = given.means.shape
    noise = np.hstack([rng.standard_normal((p, rank)), _columns(p, own.degrees - rank, rng)])
    factors = half_solve(given.factor, noise, transposed=True)
    factors[:, :rank] += given.means
    return factors


def _draw_shared(
    own: _Observations, given: _Given, factors: Matrix, state: FactorState, rng: np.random.Generator
) -> tuple[Matrix, Vector]:
    """Return y of the visible objects by observation, and the squares of what has no factors.

    y = W z + e, and given x and the factors e_i is N(kappa_i r_i, d_i (1 - s) / psi_i), where r is
    the residual of x and kappa_i = sqrt(s) d_i / psi_i.
    """
    v, share = own.part.kernel.v, own.part.source.sharing
    q, noise, psi = state.loadings.shape[1], state.noise[v], given.noise[v]
    y = -(given.loadings[v] @ factors)
    y[:, : own.root.shape[1]] += own.root
    if share == 1.0:
        return y + state.loadings[v] @ factors[:q], np.zeros(len(v))
    y *= (math.sqrt(share) * noise / psi)[:, None]
    y += state.loadings[v] @ factors[:q]
    variance = (1.0 - share) * noise / psi
    y += np.sqrt(variance)[:, None] * rng.standard_normal(y.shape)
    left = own.degrees - y.shape[1]
    rest = variance * rng.chisquare(left, size=len(v)) if left else np.zeros(len(v))
    return y, rest


def _draw_hidden(
    own: _Observations, given: _Given, factors: Matrix, rng: np.random.Generator, out: Vector
) -> None:
    """Put the hidden entries of a kernel into `out`."""
    h, rank = own.part.kernel.h, own.root.shape[1]
    m, deviations = len(h), np.sqrt(given.noise[h])[:, None]
    x = given.loadings[h] @ factors
    x += deviations * rng.standard_normal(x.shape)
    left = deviations * _columns(m, own.degrees - x.shape[1], rng)
    unit = own.part.source.scale / own.degrees
    out[own.cross] = unit * (x[:, :rank] @ own.root.T).reshape(-1)
    drawn = np.hstack([x, left])
    inside = mirror(blas.dsyrk(unit, drawn, lower=1)) if drawn.size else np.zeros((m, m))
    out[own.triangle] = inside.T[np.tri(m, dtype=bool)]
