"""Gibbs sampling by data augmentation: EM with draws in place of expectations.

`GibbsSampler` draws completed kernels given the model, of which the E-step is the expectation, and
a model given completed kernels, of which the M-step is the mode.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from ..em.em import EM
from ..errors import KernelError
from ..linalg.blocks import Workspace
from ..linalg.cholesky import cholesky
from ..linalg.products import product
from ..linalg.symmetric import Matrix, Vector, add_transpose
from ..model.conditional import TOO_SINGULAR, gaussian_log_likelihood
from ..model.gaussian import GaussianModel
from ..model.sources import Source
from ..model.structures import FULL
from .augmented import AugmentedKernel
from .constants import log_prior
from .kernel_draw import draw_kernel
from .sampler import Drawn, Parameters
from .shared import draw_shared
from .wishart import UnseenRows, diagonal, inverse_wishart_factor


class CompletedDraw(NamedTuple):
    """Completed kernels drawn given a model, the counterpart of `ExpectedStatistics`.

    Attributes
    ----------
    model : GaussianModel
        M, the model given which they were drawn.
    second_moment : ndarray, shape (l, l)
        The sum over the kernels of sum y y' over their nu_k observations, exactly symmetric; for
        the paper's model sum_k nu_k Q(k).
    hidden : ndarray
        The hidden entries of every Q(k), each pair once: for each kernel Q_hv row by row, then
        the lower triangle of Q_hh row by row.
    log_likelihood : ndarray, shape (K,)
        nu_k E_q[log N(v_k | 0, d B)] per kernel at the model and the constants, in nats, as in the
        E-step.
    constants : ndarray, shape (K,)
        c_k, drawn or held.
    """

    model: GaussianModel
    second_moment: Matrix
    hidden: NDArray[np.float64]
    log_likelihood: NDArray[np.float64]
    constants: Vector


class _Group(NamedTuple):
    """The kernels of one sharing s: their vectors r = x / sqrt(d) - g 1 have one covariance.

    `half_visible` is half of their visible entries, sum_k nu_k Q_vv / d; the hidden rows and the
    transpose complete it.
    """

    sharing: float
    kernels: list[AugmentedKernel]
    half_visible: Matrix
    #: Which objects are visible, by kernel.
    masks: Matrix

    @classmethod
    def of(cls, sharing: float, kernels: list[AugmentedKernel], half_visible: Matrix) -> "_Group":
        masks = np.stack([own.part.kernel.visible for own in kernels], axis=1)
        return cls(sharing, kernels, half_visible, masks.astype(np.float64))


class GibbsSampler:
    r"""Gibbs sampler for the posterior of a model matrix M, the stochastic counterpart of EM.

    With S(k) = nu_k Q(k) ~ Wishart(nu_k, M) and the prior P = M^-1 ~ Wishart(lambda + l + 1,
    (lambda T)^-1), both conditional distributions are known exactly:

    ============= ==================================== ===========================================
    step          EM                                   here
    ============= ==================================== ===========================================
    E, given M    S_vh = nu Q_vv A,                    S_vh = V Y', S_hh = Y Y' + Omega with
                  S_hh = nu (C + A' Q_vv A)            Y = A' V + Xi, Omega ~ Wishart(nu - rho, C)
    M, given S    M = (lambda T + S) / (lambda + N)    P ~ Wishart(lambda + l + 1 + N,
                                                       (lambda T + S)^-1)
    ============= ==================================== ===========================================

    V has rho = rank(Q_vv) columns with V V' = nu Q_vv, the columns of Xi are N(0, C), and
    S = sum_k S(k). The expectation of the first draw is EM's E-step; the mode of the second, as a
    density of P, is its M-step.
    Equations :eq:`eq-wishart` and :eq:`eq-posterior` of the derivation.

    With `sources`, an observation of kernel k is x = sqrt(d) (sqrt(s) y + sqrt(1 - s) o + g 1).
    The scale d, the sharing s and T are held. Given M, the following are drawn in turn, each given
    those before it:

    ============= ==================================== ===========================================
    drawn         EM                                   here
    ============= ==================================== ===========================================
    c             its maximum                          slice sampling, the prior being
                                                       half-Cauchy(1) on sqrt(c)
    g             e q' x_v, with variance e            N(e q' x_v, e), e = c / (1 + c t)
    r = x - g 1   as Q(k) above, with sM + (1-s)T      as S(k) above, with sM + (1-s)T
                  in place of M                        in place of M
    y, if s < 1   regression on r                      regression on r and Wishart noise
    ============= ==================================== ===========================================

    and S is the sum of y y' over the observations of all kernels with s > 0.
    Equations :eq:`eq-draw-constant` and :eq:`eq-draw-shared` of the derivation.

    Parameters
    ----------
    em
        The `EM` of the kernels, the prior, the degrees of freedom nu_k and the sources. Constants
        of its sources that are NaN are drawn, the others are held.

    Attributes
    ----------
    ranks : ndarray of int, shape (K,)
        The numerical rank of each Q_vv: the number of eigenvalues above n eps ||Q_vv||_F, with
        eps the machine epsilon of the kernel's input precision. (A kernel with an eigenvalue below
        minus that is indefinite.)
    size : int
        The number of hidden entries.
    shapes : dict
        The shapes of the parameters of `start` and `step`: ``factor``, the Cholesky factor of M,
        and ``constant`` if any constant is drawn.

    Raises
    ------
    KernelError
        If some nu_k is neither a whole number that is at least the rank of Q_vv nor above
        dim - 1, dim being the dimension of the kernel's complete data: l, one more with a constant,
        and l more with a sharing between 0 and 1. Then they have no Wishart distribution.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import EM, WishartPrior, stack_kernels
    >>> from mkmc_prob.posterior.gibbs import GibbsSampler
    >>> stack = stack_kernels(np.eye(3)[None], visible=[[1, 1, 0]])
    >>> em = EM(stack, WishartPrior(2.0), degrees_of_freedom=20)
    >>> sampler, rng = GibbsSampler(em), np.random.default_rng(0)
    >>> drawn = sampler.draw_completed(em.initial_model(), rng)
    >>> drawn.hidden.shape
    (3,)
    >>> model = sampler.draw_model(drawn.second_moment, rng)
    >>> model.matrix.shape
    (3, 3)
    """

    def __init__(self, em: EM) -> None:
        if not isinstance(em, EM):
            raise KernelError(f"em: {type(em).__name__} found; pass EM(stack, prior, degrees).")
        if em.structure != FULL:
            raise KernelError(
                f'em: the structure {em.structure.name} found; "full" is needed. '
                "Pass EM(stack, prior, degrees)."
            )
        self.em = em
        size = len(em.objects)
        self._scale = None if em.prior.is_identity else em.prior.scale_matrix(em.objects)
        self._prior_moment = em.prior.strength * em.prior.scale_matrix(em.objects)
        self._degrees = em.prior.strength + size + 1 + em.total_degrees_of_freedom
        self._shown = np.stack([kernel.visible for kernel in em.kernels])
        #: N = sum nu_k counts the kernels that share anything with the others.
        self._counted = np.where(em.sources.sharing > 0.0, em.degrees_of_freedom, 0.0)
        visible: NDArray[np.bool_] = np.any(self._shown[self._counted > 0.0], axis=0)
        self._unseen = None if visible.all() else UnseenRows(em.prior, em.objects, visible)
        self._space = Workspace()
        # Half of the visible entries of the kernels of one sharing; and all as draw_start has them.
        sharings = np.unique(em.sources.sharing)[::-1].tolist()
        halves = {sharing: np.zeros((size, size)) for sharing in sharings}
        self._start_visible = np.zeros((size, size))
        self.size, kernels = 0, []
        raw = em.problem.stack.kernels()
        for k, (part, kernel) in enumerate(zip(em.source_kernels, raw, strict=True)):
            source, block, v = part.source, kernel.moment, np.ix_(kernel.v, kernel.v)
            if source.scale != 1.0:
                block = block / source.scale
            with threadpool_limits(1):  # the same bits whatever the number of threads outside
                kernels.append(AugmentedKernel.of(part, k, block, size, self.size))
            self.size = kernels[-1].triangle.stop
            halves[source.sharing][v] += 0.5 * part.degrees * block
            if source.sharing > 0.0:
                own = _centered(block) if source.constant != 0.0 else block
                self._start_visible[v] += part.degrees * own
        self.ranks = np.array([own.root.shape[1] for own in kernels])
        self._groups = [
            _Group.of(sharing, [own for own in kernels if own.part.source.sharing == sharing], half)
            for sharing, half in halves.items()
        ]
        self.shapes: dict[str, tuple[int, ...]] = {"factor": (size, size)}
        if em.sources.is_estimated.any():
            self.shapes["constant"] = (len(kernels),)
        self._alone = GaussianModel.of(em.prior.scale_matrix(em.objects).copy(), em.objects)

    def __repr__(self) -> str:
        return f"GibbsSampler({self.em!r}, {self.size} hidden entries)"

    def start(self, rng: np.random.Generator) -> Parameters:
        """Draw the start of a chain; see `draw_start`.

        Constants start at 1 plus the mean off-diagonal entry, in units of the scale, times a factor
        that is log-uniform between 1/4 and 4.
        """
        parameters = {"factor": self.draw_start(rng).cholesky}
        drawn = self.em.sources.is_estimated
        if drawn.any():
            found = [max(part.off_diagonal, 0.0) for part in self.em.source_kernels]
            starts = (1.0 + np.array(found)) * 4.0 ** rng.uniform(-1.0, 1.0, size=len(found))
            parameters["constant"] = np.where(drawn, starts, self.em.sources.constant)
        return parameters

    def step(self, parameters: Parameters, rng: np.random.Generator) -> tuple[Drawn, Parameters]:
        """Draw the completed kernels given the model, and the next model given them."""
        model = self.model_at(parameters)
        completed = self.draw_completed(model, rng, parameters.get("constant"))
        level = float(completed.log_likelihood.sum()) + self.em.prior.log_density(model)
        after = self.draw_unseen(self.draw_model(completed.second_moment, rng), rng)
        constants, following = completed.constants, {"factor": after.cholesky}
        if (drawn := self.em.sources.is_estimated).any():
            level += sum(map(log_prior, constants[drawn].tolist()))
            following["constant"] = constants
        return Drawn(level, model, completed.hidden, constants), following

    def model_at(self, parameters: Parameters) -> GaussianModel:
        """Return the model of `parameters`."""
        return GaussianModel.of_factor(parameters["factor"], self.em.objects)

    def draw_completed(
        self, model: GaussianModel, rng: np.random.Generator, constants: Vector | None = None
    ) -> CompletedDraw:
        """Draw the completed kernels given `model`: the counterpart of `EM.e_step`.

        With P = M^-1 and P_hh = L L' the conditional covariance is C = L'^-1 L^-1, and
        A' V = -L'^-1 U with U = L^-1 P_hv V. So [Y, Omega^(1/2)] = L'^-1 [Z - U, B], with Z
        standard normal and B B' ~ Wishart(nu - rho, I) by Bartlett's decomposition. Neither A nor C
        is formed, and the cost does not depend on nu. The trace
        tr M_vv^-1 Q_vv = tr P_vv Q_vv - ||U||^2 / nu is a by-product.
        Equations :eq:`eq-draw-completed` and :eq:`eq-precision-trace` of the derivation.

        A constant is taken from V, which becomes V - 1 g'. The other nu - rho observations are zero
        at the visible objects before that. Rotated, all but one of them have g = 0.

        Parameters
        ----------
        model
            M.
        rng
            The random numbers.
        constants
            The constants before, c_k; needed if any of them is drawn.

        Raises
        ------
        KernelError, LabelError
            If `model` is not a model, or its objects are not those of the kernels; if constants are
            needed.
        IndefiniteKernelError
            If the model is too close to singular to condition on.
        """
        model = self.em.own(model)
        drawn = self.em.sources.constant.copy()
        if constants is None and np.isnan(drawn).any():
            raise KernelError(
                "constants: none found, but some are drawn, by a Markov chain. Pass the constants "
                "before, start(rng)['constant'] at first."
            )
        hidden, log_likelihood = np.empty(self.size), np.empty(len(drawn))
        total = np.zeros_like(self._prior_moment)
        for group in self._groups:
            base = self._base(group, model)
            precision = base.precision
            moment, shifts = group.half_visible.copy(), np.zeros_like(group.masks)
            for place, own in enumerate(group.kernels):
                k, kernel, source = own.place, own.part.kernel, own.part.source
                before = drawn[k] if constants is None else float(constants[k])
                found = draw_kernel(own, precision, before, rng, moment, hidden, self._space)
                n, log_det = len(kernel.v), base.log_determinant + found.log_det_hidden
                level = gaussian_log_likelihood(n, log_det, found.trace) + found.constant.level
                level -= 0.5 * n * math.log(source.scale)
                log_likelihood[k], drawn[k] = own.part.degrees * level, found.constant.variance
                if found.constant.values.size:
                    shifts[kernel.v, place] = found.constant.shift(own)
            if group.sharing > 0.0:
                if shifts.any():
                    product(shifts, group.masks.T, moment, add=1.0)
                total += self._moment_of_model(group, model, add_transpose(moment), rng)
        return CompletedDraw(model, total, hidden, log_likelihood, drawn)

    def _base(self, group: _Group, model: GaussianModel) -> GaussianModel:
        """Return the model of r = x / sqrt(d) - g 1, N(0, s M + (1 - s) T)."""
        if group.sharing in (0.0, 1.0):
            return model if group.sharing else self._alone
        source = Source(1.0, 0.0, group.sharing)
        return GaussianModel.of(source.base(model.matrix, self._scale), self.em.objects)

    def _moment_of_model(
        self, group: _Group, model: GaussianModel, moment: Matrix, rng: np.random.Generator
    ) -> Matrix:
        """Return the sum of y y' over the observations of the group's kernels."""
        if group.sharing == 1.0:
            return moment
        degrees = sum(own.part.degrees for own in group.kernels)
        return draw_shared(model, self._alone, group.sharing, moment, degrees, rng)

    def draw_model(self, second_moment: Matrix, rng: np.random.Generator) -> GaussianModel:
        """Draw the model given completed kernels, S = `second_moment`: the counterpart of `m_step`.

        P ~ Wishart(lambda + l + 1 + N, (lambda T + S)^-1). With lambda T + S = L L' and U upper
        triangular, U U' ~ Wishart(., I), F = L U'^-1 is lower triangular and M = F F'. So M comes
        with its Cholesky factor, and nothing is inverted.
        Equation :eq:`eq-draw-model` of the derivation.

        Raises
        ------
        IndefiniteKernelError
            If lambda T + S is not positive definite to working precision.
        """
        return self._draw_model(second_moment, self._degrees, rng)

    def _draw_model(
        self, second_moment: Matrix, degrees: float, rng: np.random.Generator
    ) -> GaussianModel:
        what = "the sum of the prior's scale and the completed kernels"
        if np.shape(second_moment) != self._prior_moment.shape:
            raise KernelError(
                f"second_moment: shape {np.shape(second_moment)} found, "
                f"{self._prior_moment.shape} expected. Pass that of draw_completed."
            )
        total = second_moment + self._prior_moment
        factor = cholesky(total, what, self.em.objects, TOO_SINGULAR, overwrite=True)
        factor = inverse_wishart_factor(factor, degrees, rng)
        return GaussianModel.of_factor(factor, self.em.objects)

    def draw_unseen(self, model: GaussianModel, rng: np.random.Generator) -> GaussianModel:
        """Redraw the rows of objects that are hidden in every kernel, given those of the others.

        Returns the model itself if there are none. `UnseenRows` says why this is needed.
        """
        if self._unseen is None:
            return model
        # By its factor, since a chain continues from the factor alone.
        matrix = self._unseen.draw(model.matrix, rng)
        factor = cholesky(matrix, "model matrix", self.em.objects, TOO_SINGULAR, overwrite=True)
        return GaussianModel.of_factor(factor, self.em.objects)

    def draw_start(self, rng: np.random.Generator) -> GaussianModel:
        """Draw a start that is more dispersed than the posterior.

        Hidden entries are zero except on the diagonal. There an object has its mean variance in the
        kernels in which it is visible (the prior's if there is none), times a factor that is
        log-uniform between 1/4 and 4. Then a model is drawn given these kernels, with a quarter of
        their degrees of freedom. With `sources`, kernels are in units of their scales, centered if
        they have a constant, and left out if their sharing is 0.
        """
        share = 0.25
        variances = np.diagonal(self._start_visible)
        counted = self._counted @ self._shown
        prior = np.diagonal(self._prior_moment) / self.em.prior.strength
        variance = np.where(counted > 0, variances / np.where(counted > 0, counted, 1.0), prior)
        moment = share * self._start_visible
        factors = 4.0 ** rng.uniform(-1.0, 1.0, size=self._shown.shape)
        filled = share * (self._counted[:, None] * ~self._shown * factors).sum(axis=0) * variance
        diagonal(moment)[...] += filled
        fewer = self._degrees - (1.0 - share) * self.em.total_degrees_of_freedom
        return self._draw_model(moment, fewer, rng)


def _centered(block: Matrix) -> Matrix:
    """Return the block with rows and columns of mean zero, still positive semidefinite."""
    means = block.mean(axis=0) if len(block) else np.empty(0)
    return block - means - means[:, None] + (means.mean() if len(means) else 0.0)
