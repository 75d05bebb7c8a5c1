"""Gibbs sampling by data augmentation: EM with draws in place of expectations.

`GibbsSampler` draws completed kernels given the model, of which the E-step is the expectation, and
a model given completed kernels, of which the M-step is the mode.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas
from threadpoolctl import threadpool_limits

from ..em.em import EM
from ..errors import KernelError
from ..linalg.blocks import Workspace, add_rows, inner_of_block
from ..linalg.cholesky import cholesky, half_solve, log_determinant
from ..linalg.products import inner, product
from ..linalg.rounding import rounding_share
from ..linalg.symmetric import Matrix, add_transpose, mirror
from ..model.conditional import TOO_SINGULAR, gaussian_log_likelihood
from ..model.gaussian import GaussianModel
from ..stacks.kernel_stack import VisibleKernel
from .wishart import UnseenRows, bartlett, diagonal, inverse_wishart_factor


class CompletedDraw(NamedTuple):
    """Completed kernels drawn given a model, the counterpart of `ExpectedStatistics`.

    Attributes
    ----------
    model : GaussianModel
        M, the model given which they were drawn.
    second_moment : ndarray, shape (l, l)
        sum_k S(k) = sum_k nu_k Q(k), exactly symmetric.
    hidden : ndarray
        The hidden entries of every Q(k), each pair once: for each kernel Q_hv row by row, then
        the lower triangle of Q_hh row by row.
    log_likelihood : ndarray, shape (K,)
        nu_k E_q[log N(v_k | 0, M_vv)] per kernel at the model, in nats, as in the E-step.
    """

    model: GaussianModel
    second_moment: Matrix
    hidden: NDArray[np.float64]
    log_likelihood: NDArray[np.float64]


class _Augmented(NamedTuple):
    """What the draws of one kernel need: V with V V' = nu Q_vv, and further noise columns."""

    kernel: VisibleKernel
    degrees_of_freedom: float
    root: Matrix
    #: The number of columns that make Wishart(nu - rank, C): m in a triangle, or fewer, nu - rank.
    extra: int
    #: The degrees of freedom of the triangle's diagonal; empty if there is no triangle.
    diagonal: NDArray[np.float64]
    #: The places of Q_hv and of the triangle of Q_hh among the hidden entries.
    cross: slice
    triangle: slice


class GibbsSampler:
    """Gibbs sampler for the posterior of a model matrix M, the stochastic counterpart of EM.

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

    Parameters
    ----------
    em
        The `EM` of the kernels, the prior and the degrees of freedom nu_k.

    Attributes
    ----------
    ranks : ndarray of int, shape (K,)
        The numerical rank of each Q_vv: the number of eigenvalues above n eps ||Q_vv||_F, with
        eps the machine epsilon of the kernel's input precision. (A kernel with an eigenvalue below
        minus that is indefinite.)
    size : int
        The number of hidden entries.

    Raises
    ------
    KernelError
        If some nu_k is neither a whole number that is at least the rank of Q_vv nor above l - 1:
        then there is no Wishart distribution of such matrices.

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
        if not em.sources.is_identical:
            raise KernelError("em: it has sources; pass one without, that of the paper's model.")
        self.em = em
        size = len(em.objects)
        scale = em.prior.scale_matrix(em.objects)
        self._prior_moment = em.prior.strength * scale
        self._degrees = em.prior.strength + size + 1 + em.total_degrees_of_freedom
        visible = np.any([kernel.visible for kernel in em.kernels], axis=0)
        self._unseen = None if visible.all() else UnseenRows(em.prior, em.objects, visible)
        self._space = Workspace()
        # Half of the visible entries: the hidden rows and the transpose complete it.
        self._half_visible = np.zeros((size, size))
        self.size, self._parts = 0, []
        for kernel, nu in zip(em.kernels, em.degrees_of_freedom.tolist(), strict=True):
            with threadpool_limits(1):  # the same bits whatever the number of threads outside
                part = _augmented(kernel, nu, size, self.size)
            self._half_visible[np.ix_(kernel.v, kernel.v)] += 0.5 * nu * kernel.moment
            self.size = part.triangle.stop
            self._parts.append(part)
        self.ranks = np.array([part.root.shape[1] for part in self._parts])

    def __repr__(self) -> str:
        return f"GibbsSampler({self.em!r}, {self.size} hidden entries)"

    def draw_completed(self, model: GaussianModel, rng: np.random.Generator) -> CompletedDraw:
        """Draw the completed kernels given `model`: the counterpart of `EM.e_step`.

        With P = M^-1 and P_hh = L L' the conditional covariance is C = L'^-1 L^-1, and
        A' V = -L'^-1 U with U = L^-1 P_hv V. So [Y, Omega^(1/2)] = L'^-1 [Z - U, B], with Z
        standard normal and B B' ~ Wishart(nu - rho, I) by Bartlett's decomposition. Neither A nor C
        is formed, and the cost does not depend on nu. The trace
        tr M_vv^-1 Q_vv = tr P_vv Q_vv - ||U||^2 / nu is a by-product.
        Equations :eq:`eq-draw-completed` and :eq:`eq-precision-trace` of the derivation.

        Raises
        ------
        KernelError, LabelError
            If `model` is not a model, or its objects are not those of the kernels.
        IndefiniteKernelError
            If the model is too close to singular to condition on.
        """
        precision = self.em.own(model).precision
        moment = self._half_visible.copy()
        hidden = np.empty(self.size)
        log_likelihood = np.empty(len(self._parts))
        for k, part in enumerate(self._parts):
            kernel = part.kernel
            trace = inner_of_block(precision, kernel.v, kernel.v, kernel.moment)
            log_det = model.log_determinant
            if len(kernel.h):
                log_det_hidden, explained = self._draw_hidden(part, precision, rng, moment, hidden)
                log_det += log_det_hidden  # log det M_vv = log det M + log det P_hh
                trace -= explained
            level = gaussian_log_likelihood(len(kernel.v), log_det, trace)
            log_likelihood[k] = part.degrees_of_freedom * level
        return CompletedDraw(model, add_transpose(moment), hidden, log_likelihood)

    def _draw_hidden(
        self,
        part: _Augmented,
        precision: Matrix,
        rng: np.random.Generator,
        moment: Matrix,
        hidden: NDArray[np.float64],
    ) -> tuple[float, float]:
        """Draw one kernel's hidden part into `moment` and `hidden`.

        Returns log det P_hh and tr P_hh A' Q_vv A.
        """
        kernel, space = part.kernel, self._space
        v, h, nu = kernel.v, kernel.h, part.degrees_of_freedom
        m, (n, rank) = len(h), part.root.shape
        block = space.factored.block(precision, h, h)
        what = f"kernel {kernel.name!r}, model precision"
        labels = self.em.objects[h]
        factor = cholesky(block, what, labels, TOO_SINGULAR, overwrite=True, clean=False)
        # Transposes throughout: BLAS works on columns, which are the rows of NumPy's arrays.
        across = space.across.block(precision, v, h)
        explained = product(part.root.T, across, space.explained.array(rank, m)).T
        explained = half_solve(factor, explained, overwrite=True)
        noise = space.noise.array(rank + part.extra, m)
        rng.standard_normal(out=noise[:rank])
        noise[:rank] -= explained.T
        if len(part.diagonal):
            bartlett(part.diagonal, rng, noise[rank:])
        else:
            rng.standard_normal(out=noise[rank:])
        drawn = half_solve(factor, noise.T, transposed=True, overwrite=True)
        cross = product(drawn[:, :rank], part.root.T, space.cross.array(m, n))
        inside = mirror(blas.dsyrk(1.0, drawn, lower=1)) if drawn.size else np.zeros((m, m))
        hidden[part.cross] = cross.reshape(-1)
        hidden[part.triangle] = inside.T[np.tri(m, dtype=bool)]
        hidden[part.cross.start : part.triangle.stop] /= nu
        add_rows(moment, 1.0, h, kernel.order, cross, 0.5 * inside.T)
        return log_determinant(factor), inner(explained.T, explained.T) / nu

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
        their degrees of freedom.
        """
        share = 0.25
        degrees = self.em.degrees_of_freedom
        visible = np.stack([kernel.visible for kernel in self.em.kernels])
        variances = 2.0 * np.diagonal(self._half_visible)
        counted = degrees @ visible
        prior = np.diagonal(self._prior_moment) / self.em.prior.strength
        variance = np.where(counted > 0, variances / np.where(counted > 0, counted, 1.0), prior)
        moment = 2.0 * share * self._half_visible
        factors = 4.0 ** rng.uniform(-1.0, 1.0, size=visible.shape)
        filled = share * (degrees[:, None] * ~visible * factors).sum(axis=0) * variance
        diagonal(moment)[...] += filled
        fewer = self._degrees - (1.0 - share) * self.em.total_degrees_of_freedom
        return self._draw_model(moment, fewer, rng)


def _augmented(kernel: VisibleKernel, nu: float, size: int, start: int) -> _Augmented:
    """Return what the draws of one kernel need; raise if it has no Wishart distribution."""
    n, m = len(kernel.v), len(kernel.h)
    values, vectors = np.linalg.eigh(kernel.moment) if n else (np.empty(0), np.empty((0, 0)))
    zero = rounding_share(n, kernel.eps) * np.linalg.norm(kernel.moment) if n else 0.0
    above = values > zero
    root = np.ascontiguousarray(vectors[:, above] * np.sqrt(nu * values[above]))
    rank = root.shape[1]
    whole = nu == np.round(nu) and nu >= rank
    if not whole and not nu > size - 1:
        raise KernelError(
            f"degrees_of_freedom of kernel {kernel.name!r}: {nu:g} found, but the rank of its "
            f"visible block is {rank}, and there are {size} objects. A Wishart matrix has a whole "
            f"number of at least {rank}, such as the number of features, or any number above "
            f"{size - 1}. reduce_rank makes blocks of a smaller rank."
        )
    rest = nu - rank
    extra = m if rest > m - 1 else int(rest)
    falling = rest - np.arange(m) if rest > m - 1 else np.empty(0)
    cross = slice(start, start + n * m)
    triangle = slice(cross.stop, cross.stop + m * (m + 1) // 2)
    return _Augmented(kernel, nu, root, extra, falling, cross, triangle)
