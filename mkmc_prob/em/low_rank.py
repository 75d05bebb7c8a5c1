"""EM for a model matrix of a few factors, M = W W' + D.

The missing data are the factors of every kernel, and what a kernel does not share with the others;
hidden objects need not be filled in. A step costs one product of each visible block with as many
columns as there are factors.
"""

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import xarray as xr
from threadpoolctl import threadpool_limits

from ..errors import IndefiniteKernelError, KernelError
from ..linalg.operators import is_operator
from ..linalg.symmetric import Matrix, Vector
from ..model.conditional import LOG_2_PI, gaussian_entropy, gaussian_log_likelihood
from ..model.factors import (
    REMEDY,
    FactorStatistics,
    KernelFactors,
    Patterns,
    factor_cholesky,
)
from ..model.gaussian import GaussianModel
from ..model.low_rank import LowRankModel
from ..model.sources import SourceKernel, Sources
from ..model.structures import PPCA, LowRank
from .completion import FactorCompletion
from .em import EM
from .expected import Expectation, KernelExpectations
from .problem import Problem
from .rounding import EPS

#: The subspace iteration of the start: further columns, and passes over the kernels.
FURTHER, PASSES = 10, 4
#: The noise at the start is at least this share of an object's variance.
LEAST_NOISE = 0.05
#: An accelerated step may lead to variances this many times the largest that was observed.
FARTHEST = 1e3
#: Zeros in the loadings of a start are moved by about this share of the noise's deviation.
SHAKE = 0.01
#: A product with a kernel of more multiplications than this is worth a second BLAS thread.
WORTH_THREADS = 2e9


class LowRankStatistics(KernelExpectations):
    """The expected sufficient statistics at a model of low rank; see `FactorStatistics`.

    Attributes
    ----------
    factors : FactorStatistics
    of_prior : Expectation
        Of the prior as one more kernel: log p(M) without the prior of the noise, and lambda times
        the entropy of its factors, in nats.
    """

    def __init__(
        self,
        problem: Problem,
        model: LowRankModel,
        kernels: list[Expectation],
        factors: FactorStatistics,
        of_prior: Expectation,
    ) -> None:
        super().__init__(problem, model, kernels)
        self.model: LowRankModel = model
        self.factors, self.of_prior = factors, of_prior

    @property
    def completed(self) -> xr.DataArray:
        """The completed kernels as a stack, by expectations at the model."""
        return FactorCompletion(self.problem.stack, self.sources, self.model).stack()


class LowRankEM(EM, structure=LowRank):
    """EM over the matrices W W' + D; `EM` says what each step is.

    The prior is one more kernel, T, that shows every object and counts lambda times. The noise has
    a prior of its own, -(a/2) sum_i (log d_i + tau / d_i).
    """

    structure: LowRank

    def _prepare(self) -> None:
        self._problem.check_structure()
        self._shared = self.sources.shared_constant
        related = self.sources.sharing > 0.0
        self._patterns = Patterns.of(self._stack.visible & related[:, None])
        self._scale: Matrix | None = None
        if not (self._shared or self.prior.is_identity):
            self._scale = self.prior.scale_matrix(self.objects)
        variances = [part.kernel.moment.diagonal() for part in self.source_kernels]
        prior = 1.0 + self._shared if self._scale is None else float(self._scale.diagonal().max())
        observed = max((float(own.max(initial=0.0)) for own in variances), default=0.0)
        self._largest = max(observed, prior, self.structure.noise_scale)
        # The sums of the absolute values of the rows of T.
        size = len(self.objects)
        self._sizes = np.full(size, 1.0 + size * self._shared)
        if self._scale is not None:
            self._sizes = np.abs(self._scale).sum(axis=1)

    def initial_model(self) -> LowRankModel:
        """Return the leading components of the visible entries, zeros in place of hidden ones.

        They are found by randomized subspace iteration (Halko, Martinsson and Tropp 2011). The
        noise is what they leave of each object's mean variance, at least 5 % of it.
        """
        size, rank = len(self.objects), self.structure.rank
        related = [part for part in self.source_kernels if part.source.sharing > 0.0]
        weight, variances = np.zeros(size), np.zeros(size)
        for part in related:
            weight[part.kernel.v] += part.degrees
            variances[part.kernel.v] += part.degrees * self._variances(part)
        total = float(sum(part.degrees for part in related)) or 1.0
        variances = np.where(weight > 0.0, variances / np.maximum(weight, 1e-300), 1.0)
        variances[~(variances > 0.0)] = 1.0
        columns = np.random.default_rng(0).standard_normal((size, min(rank + FURTHER, size)))
        for _ in range(PASSES):
            basis, _ = np.linalg.qr(columns)
            columns = np.zeros_like(basis)
            for part in related:
                v = part.kernel.v
                rest = part.degrees / total * self._product(part, basis[v])
                columns[v] += rest
        within = basis.T @ columns
        values, vectors = np.linalg.eigh(0.5 * (within + within.T))
        values, vectors = values[::-1][:rank], (basis @ vectors)[:, ::-1][:, :rank]
        left = (variances.sum() - values.sum()) / (size - rank)
        left = max(left, LEAST_NOISE * float(variances.mean()))
        loadings = vectors * np.sqrt(np.maximum(values - left, LEAST_NOISE * left))
        noise = np.full(size, left)
        if not isinstance(self.structure, PPCA):
            noise = np.maximum(variances - (loadings**2).sum(axis=1), LEAST_NOISE * variances)
        return LowRankModel.of(loadings, noise, self.objects)

    def _variances(self, part: SourceKernel) -> Vector:
        """Return the variances of a kernel without its own constant, in units of its scale."""
        kept = min(max(part.off_diagonal, 0.0), self._shared)
        variances: Vector = part.kernel.moment.diagonal() + kept
        return variances

    def _product(self, part: SourceKernel, columns: Matrix) -> Matrix:
        """Return S X, S the kernel without its own constant, in units of its scale."""
        kept = min(max(part.off_diagonal, 0.0), self._shared)
        moved: Matrix = part.kernel.moment @ columns + kept * columns.sum(axis=0)
        return moved

    def adapted(self, model: GaussianModel) -> LowRankModel:
        """Return a model of this rank near any model over the objects, to start from."""
        model, rank = super().own(model), self.structure.rank
        if isinstance(model, LowRankModel) and model.rank == rank:
            noise = model.noise_variances
            loadings = _off_zero(model.factor_loadings, noise)
            if isinstance(self.structure, PPCA):
                noise = np.full(len(noise), noise.mean())
            return LowRankModel.of(loadings, noise, self.objects)
        values, vectors = np.linalg.eigh(model.matrix)
        left = float(values[:-rank].mean())
        # Above zero: loadings of zero are a saddle point, which no step leaves.
        above = np.maximum(values[-rank:] - left, LEAST_NOISE * left)
        loadings = vectors[:, -rank:] * np.sqrt(above)
        noise = np.full(len(values), left)
        if not isinstance(self.structure, PPCA):
            variances = np.diagonal(model.matrix)
            noise = np.maximum(variances - (loadings**2).sum(axis=1), LEAST_NOISE * variances)
        return LowRankModel.of(_off_zero(loadings, noise), noise, self.objects)

    def own(self, model: GaussianModel) -> LowRankModel:
        """Return `model` if it is of low rank over these objects in this order; raise otherwise."""
        model = super().own(model)
        if not isinstance(model, LowRankModel):
            raise KernelError(
                f"model: {type(model).__name__} found; {self.structure.name} needs a LowRankModel, "
                "as initial_model or m_step returns it."
            )
        return model

    def e_step(self, model: GaussianModel) -> LowRankStatistics:
        """Return the expected statistics of the factors and of y = W z + e; `FactorStatistics`.

        Equations :eq:`eq-factor-moments` and :eq:`eq-factor-statistics` of the derivation.
        """
        model = self.own(model)
        loadings, noise = model.factor_loadings, model.noise_variances
        related = self.sources.sharing > 0.0
        statistics = FactorStatistics(self._patterns, model.rank)
        kernels = []
        for k, part in enumerate(self.source_kernels):
            found = KernelFactors.of(part, loadings, noise, self._shared)
            kernels.append(self._expectation(part, found, noise))
            if related[k]:
                statistics.add(k, found, part, loadings, noise)
        of_prior = KernelFactors.of_prior(self._scale, self._shared, loadings, noise)
        statistics.add_prior(of_prior, self.prior.strength)
        return LowRankStatistics(
            self._problem, model, kernels, statistics, self._expectation_of_prior(of_prior, noise)
        )

    def _expectation(self, part: SourceKernel, found: KernelFactors, noise: Vector) -> Expectation:
        """Return a kernel's log-likelihood, entropy and rounding, times nu_k."""
        source, nu, n = part.source, part.degrees, len(part.kernel.v)
        posterior, trace = found.posterior, found.trace
        p = posterior.loadings.shape[1]
        level = gaussian_log_likelihood(n, posterior.log_determinant, trace)
        lost = 0.5 * n * math.log(source.scale)
        if found.constant is not None:
            lost += found.constant.divergence()
        log_det_factors = posterior.log_determinant - float(np.log(posterior.noise).sum())
        entropy = gaussian_entropy(p, -log_det_factors)
        share = source.sharing
        if share < 1.0:
            entropy += self._entropy_of_own(found, share, noise[part.kernel.v], self.structure.rank)
        if not share:
            entropy = level
        terms = found.rounding_terms(part.sizes)
        if found.constant is not None:
            deviations = np.sqrt(1.0 / posterior.noise)  # above those of the inverse
            terms += found.constant.cancelling(deviations, part.sizes)
        bound = self._rounding(n, posterior.log_determinant, trace, lost, terms, posterior.noise)
        return Expectation(nu * (level - lost), nu * (entropy - lost), found.constant, nu * bound)

    @staticmethod
    def _rounding(
        n: int, log_det: float, trace: float, lost: float, terms: float, noise: Vector
    ) -> float:
        """Bound the rounding of a kernel's log-likelihood; see `KernelFactors.rounding_terms`."""
        root = math.sqrt(n) + 4.0
        size = np.abs(np.log(noise)).sum() + n * LOG_2_PI + abs(log_det) + 2.0 * abs(trace)
        return float(EPS * root * (size + 2.0 * abs(lost) + terms))

    @staticmethod
    def _entropy_of_own(found: KernelFactors, share: float, noise: Vector, rank: int) -> float:
        """Return what the Q-function leaves out of a kernel with a sharing below 1.

        The entropy of y given (z, g) and x, the expected log density of x given y and g, and that
        of g, the shared constant of the kernel's own part.
        """
        psi, p = found.posterior.noise, found.posterior.loadings.shape[1]
        own = 1.0 - share
        entropy = 0.5 * float((LOG_2_PI + 1.0 + np.log(noise * own / psi)).sum()) if share else 0.0
        squares = (own / psi) ** 2 * found.residual_squares + share * noise * own / psi
        entropy -= 0.5 * float((LOG_2_PI + math.log(own) + squares / own).sum())
        if p > rank:
            entropy -= 0.5 * (LOG_2_PI + float(found.moment[-1, -1]))
        return entropy

    def _expectation_of_prior(self, found: KernelFactors, noise: Vector) -> Expectation:
        """Return log p(M) without the noise's prior, the entropy of its factors, and rounding."""
        strength, posterior = self.prior.strength, found.posterior
        log_det, trace = posterior.log_determinant, found.trace
        log_det_factors = log_det - float(np.log(noise).sum())
        entropy = gaussian_entropy(posterior.loadings.shape[1], -log_det_factors)
        terms = found.rounding_terms(self._sizes)
        bound = self._rounding(len(noise), log_det, trace, 0.0, terms, noise)
        level = -0.5 * strength * (log_det + trace)
        return Expectation(level, strength * entropy, None, strength * bound)

    def _log_noise_prior(self, noise: Vector) -> float:
        """Return -(a/2) sum_i (log d_i + tau / d_i)."""
        structure = self.structure
        terms = np.log(noise) + structure.noise_scale / noise
        return -0.5 * structure.noise_strength * float(terms.sum())

    def log_prior(self, model: GaussianModel, statistics: Any = None) -> float:
        """Return log p(M), the noise's prior included, without constants, in nats."""
        model = self.own(model)
        loadings, noise = model.factor_loadings, model.noise_variances
        if statistics is None:
            of_prior = KernelFactors.of_prior(self._scale, self._shared, loadings, noise)
            found = self._expectation_of_prior(of_prior, noise)
        else:
            found = statistics.of_prior
        return found.log_likelihood + self._log_noise_prior(noise)

    def _factors(self, statistics: LowRankStatistics) -> FactorStatistics:
        own: LowRankStatistics = self._taken(statistics)
        return own.factors

    def entropy(self, statistics: LowRankStatistics) -> float:
        """Return the sum of nu_k times the entropy of the factors given x_k, the prior's included.

        With `sources`, what the Q-function leaves out; see `EM.entropy`.
        """
        own: LowRankStatistics = self._taken(statistics)
        return float(own.entropy.sum()) + own.of_prior.entropy

    def q_function(self, model: GaussianModel, statistics: LowRankStatistics) -> float:
        """Return -(1/2) sum_i [N_i log d_i + (c_i - 2 w_i'b_i + w_i'A_i w_i) / d_i] and constants.

        Equation :eq:`eq-factor-q` of the derivation.
        """
        model, own = self.own(model), self._factors(statistics)
        loadings, noise = model.factor_loadings, model.noise_variances
        terms = own.counts * np.log(noise) + own.residuals(loadings) / noise
        return -0.5 * (float(terms.sum()) + own.constant) + self._log_noise_prior(noise)

    def m_step(self, statistics: LowRankStatistics) -> LowRankModel:
        """Return w_i = A_i^-1 b_i and d_i = (c_i - w_i'b_i + a tau) / (N_i + a).

        PPCA pools the numerators and the denominators of all objects.
        Equation :eq:`eq-factor-m-step` of the derivation.
        """
        own = self._factors(statistics)
        loadings = own.regression()
        residuals = own.squares - np.einsum("ij,ij->i", loadings, own.cross)
        return LowRankModel.of(loadings, self._noise(residuals, own.counts), self.objects)

    def _noise(self, residuals: Vector, counts: Vector) -> Vector:
        structure = self.structure
        # Rounding can leave a residual below zero.
        above = np.maximum(residuals, 0.0) + structure.noise_strength * structure.noise_scale
        below = counts + structure.noise_strength
        if isinstance(structure, PPCA):
            above, below = np.full(len(above), above.sum()), np.full(len(below), below.sum())
        noise: Vector = above / below
        if not (noise > 0.0).all():
            at = self.objects.tolist()[int(np.argmin(noise > 0.0))]
            raise IndefiniteKernelError(
                f"factors of the model matrix: the noise of object {at!r} is {noise.min():.3g}: "
                f"the factors reproduce it exactly. {REMEDY}"
            )
        return noise

    def expanded_m_step(self, statistics: LowRankStatistics) -> LowRankModel:
        """Return the M-step of parameter-expanded EM: W chol(sum nu E / (N + lambda)), same D.

        The variance of the factors is a parameter, too (Liu, Rubin and Wu 1998): it is estimated,
        and taken into the loadings.
        Equation :eq:`eq-expanded` of the derivation.
        """
        model, own = self.m_step(statistics), self._factors(statistics)
        factor = factor_cholesky(own.total / own.weight)
        loadings = model.factor_loadings @ factor
        return LowRankModel.of(loadings, model.noise_variances, self.objects)

    def gradient(self, statistics: LowRankStatistics) -> tuple[Matrix, Vector]:
        """Return dL/dW and dL/d(log d), for PPCA with one entry, at the model of `statistics`.

        Equation :eq:`eq-factor-gradient` of the derivation.
        """
        model, own = self._taken(statistics).model, statistics.factors
        loadings, noise = model.factor_loadings, model.noise_variances
        structure = self.structure
        by_loadings = (own.cross - own.moved(loadings)) / noise[:, None]
        by_noise = 0.5 * (own.residuals(loadings) / noise - own.counts)
        by_noise += 0.5 * structure.noise_strength * (structure.noise_scale / noise - 1.0)
        if isinstance(structure, PPCA):
            by_noise = by_noise.sum(keepdims=True)
        return by_loadings, by_noise

    def update_constants(self, model: GaussianModel) -> Sources:
        """Return the sources with every constant at its maximum for this model; see `EM`."""
        model, found = self.own(model), []
        for kernel, source in zip(self._stack.kernels(), self.sources, strict=True):
            free = SourceKernel.of(kernel, source._replace(constant=math.nan), 1.0)
            factors = KernelFactors.of(
                free, model.factor_loadings, model.noise_variances, self._shared
            )
            found.append(0.0 if factors.constant is None else factors.constant.variance)
        return self.sources.with_constants(np.array(found))

    @staticmethod
    def completed(problem: Problem, sources: Sources, model: GaussianModel) -> xr.DataArray:
        """Return the kernels completed by the expectations of their factors; see `EM.complete`."""
        assert isinstance(model, LowRankModel)
        return FactorCompletion(problem.stack, sources, model).stack()

    def rounding_bound(self, statistics: LowRankStatistics) -> float:
        """Return by how much rounding can change the penalized log-likelihood, in nats."""
        noise = self._taken(statistics).model.noise_variances
        structure = self.structure
        of_noise = np.abs(np.log(noise)) + structure.noise_scale / noise
        root = math.sqrt(len(noise)) + len(self.names) + 4.0
        sizes = structure.noise_strength * float(of_noise.sum())
        sizes += float(np.abs(statistics.log_likelihood).sum()) + abs(
            statistics.of_prior.log_likelihood
        )
        return EPS * root * sizes + statistics.rounding + statistics.of_prior.rounding

    def threads(self) -> AbstractContextManager[Any]:
        """Return a context of one BLAS thread, unless the products with the kernels are large.

        Most operations are on matrices as small as the rank, where a second thread only waits.
        Tiles are multiplied in threads of their own, and by features the products are not the
        larger part.
        """
        blocks = [part.kernel.moment for part in self.source_kernels]
        largest = max((len(block) for block in blocks if not is_operator(block)), default=0)
        if largest**2 * self.structure.rank > WORTH_THREADS:
            return nullcontext()
        limited: AbstractContextManager[Any] = threadpool_limits(1)
        return limited

    def is_sound(self, statistics: LowRankStatistics) -> bool:
        """Return whether no variance of the model is far beyond those that were observed.

        L is nearly flat in the noise of an object of which the kernels say little: a long step
        could carry it away, and the completed kernels with it.
        """
        model = self._taken(statistics).model
        largest = float((model.noise_variances + (model.factor_loadings**2).sum(axis=1)).max())
        return largest <= FARTHEST * self._largest

    @property
    def metric_weight(self) -> float:
        """1, in EM's own metric."""
        return 1.0

    def level_of_q(self, statistics: LowRankStatistics) -> Any:
        """Return the statistics themselves, which are small."""
        return statistics

    def rise_of_q(self, level: LowRankStatistics, model: GaussianModel) -> float:
        """Return the difference of the Q-function at the two models."""
        return self.q_function(model, level) - self.q_function(level.model, level)


def _off_zero(loadings: Matrix, noise: Vector) -> Matrix:
    """Return the loadings with zeros moved a little: they can be a saddle, which no step leaves."""
    draws = np.random.default_rng(0).standard_normal(loadings.shape)
    return np.where(loadings == 0.0, SHAKE * np.sqrt(noise)[:, None] * draws, loadings)
