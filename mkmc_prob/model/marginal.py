"""The score of a kernel's visible block, an E-step without the conditional distribution.

It costs less than the conditional distribution if most objects are hidden.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..linalg.blocks import Workspace, add_rows, inner_of_block, strips
from ..linalg.cholesky import cholesky, inverse, log_determinant
from ..linalg.products import inner, product, symmetric_product
from ..linalg.symmetric import Matrix, Vector, add_transpose, mirror
from ..stacks.labels import Labels
from .conditional import TOO_SINGULAR
from .costs import covariance_form_cost, precision_form_cost
from .sources import Centered, Constant, Source, SourceKernel


def cheaper_by_score(
    sizes: Sequence[tuple[int, int]], needed: NDArray[np.bool_] | None = None
) -> NDArray[np.bool_]:
    """Return which kernels, with (n visible, m hidden) objects each, are cheaper by their scores.

    A score costs 4 n^3 operations; the two products with M, shared by all, cost 3 l^3. Kernels that
    are `needed` take their scores whatever it costs.
    """
    saved = np.array(
        [min(precision_form_cost(n, m), covariance_form_cost(n, m)) - 4 * n**3 for n, m in sizes]
    )
    by_score = saved > 0
    size = sum(sizes[0])
    if needed is not None and needed.any():
        return by_score | needed
    return by_score if saved[by_score].sum() > 3 * size**3 else np.zeros_like(by_score)


class MarginalScore:
    """The visible objects' log-likelihood E_q[log N(v | 0, M_vv)], and its derivative by M.

    With R = M_vv^-1 the derivative is Z / 2, Z = R Q_vv R - R in the visible rows and columns and
    0 elsewhere. By Fisher's identity it is the expected score of the complete data, and so

        E[x x'] = M + M Z M,

    an E-step without a regression. The Z of all kernels are summed before the products with M.
    Equations :eq:`eq-score` and :eq:`eq-score-form` of the derivation.

    A kernel with a `source` has G = s M_vv + (1 - s) T_vv in place of M_vv, and its constant is
    integrated out: Q_vv is then its second moment without the constant, in units of its scale, and
    E[y y'] = M + s M Z M. Equation :eq:`eq-source-score` of the derivation.

    Parameters
    ----------
    matrix
        M, over all objects.
    visible
        The positions of the visible objects.
    objects
        The labels of all objects.
    visible_moment
        Q_vv; if `source` is given, as `Centered` holds it.
    space
        The memory to work in.
    source, off_diagonal, scale
        The kernel's relation to the model, z of `Centered`, and T (None for the identity).

    Attributes
    ----------
    log_determinant : float
        log det M_vv.
    trace : float
        tr M_vv^-1 Q_vv, the expected squared Mahalanobis length of v.
    constant : Constant or None
        The kernel's constant, if it has one.
    deviations : ndarray, shape (n,)
        sqrt(R_ii), for the bound on rounding, as is `inflation`.
    inflation : float
        (sum_i sqrt(G_ii R_ii))^2.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob.model.marginal import MarginalScore
    >>> score = MarginalScore(np.eye(2), np.array([0]), np.array(["a", "b"]), np.array([[3.0]]))
    >>> score.score, score.trace
    (array([[2.]]), 3.0)
    """

    def __init__(
        self,
        matrix: Matrix,
        visible: NDArray[np.intp],
        objects: Labels,
        visible_moment: Matrix,
        space: Workspace | None = None,
        *,
        source: Source | None = None,
        off_diagonal: float = 0.0,
        scale: Matrix | None = None,
    ) -> None:
        self._space = space = Workspace() if space is None else space
        n = len(visible)
        block = space.factored.block(matrix, visible, visible)
        if source is not None and source.sharing < 1.0:
            own = None if scale is None else space.cross.block(scale, visible, visible)
            block = source.base(block, own)
        variances = np.diagonal(block).copy()
        labels = objects[visible]
        factor = cholesky(block, "model matrix", labels, TOO_SINGULAR, overwrite=True, clean=False)
        self.log_determinant = log_determinant(factor)
        # R itself is needed, and products with it are faster than two-sided solves.
        self._inverse = inverse(factor, overwrite=True)
        self.deviations = np.sqrt(np.diagonal(self._inverse))
        self.inflation = float(np.sqrt(variances) @ self.deviations) ** 2
        self.constant: Constant | None = None
        if source is not None and source.constant != 0.0:
            weights = self._inverse.sum(axis=1)
            centered = Centered(visible_moment, off_diagonal)
            self.constant = Constant.of(weights, centered, source.constant)
            visible_moment = self.constant.without(centered, space.cross.array(n, n))
        out = space.whitened.array(n, n)
        self._left = symmetric_product(self._inverse, visible_moment, out)
        self.trace = inner(self._inverse, visible_moment)

    @classmethod
    def of(
        cls, matrix: Matrix, part: SourceKernel, scale: Matrix | None, space: Workspace
    ) -> "MarginalScore":
        """Return the score of a kernel under M, `matrix`; `scale` is T, None for the identity."""
        kernel, z = part.kernel, part.off_diagonal
        options: Any = {"source": part.source, "off_diagonal": z, "scale": scale}
        return cls(matrix, kernel.v, kernel.objects, kernel.moment, space, **options)

    def summary(self, own: float = 0.0) -> "Marginal":
        """Return what the score says of the log-likelihood; `own` is tr T_vv Z."""
        return Marginal(
            self.log_determinant, self.trace, own, self.constant, self.inflation, self.deviations
        )

    def rows_of_score(self) -> Iterator[tuple[slice, Matrix]]:
        """Yield some rows of Z at a time, each up to its diagonal block."""
        for rows in strips(len(self._inverse)):
            count, end = rows.stop - rows.start, rows.stop
            out = self._space.strip.array(count, end)
            block = product(self._left[rows], self._inverse[:end].T, out)
            block -= self._inverse[rows, :end]
            yield rows, block

    @property
    def score(self) -> Matrix:
        """Z, exactly symmetric, of the visible objects."""
        score = np.empty_like(self._inverse)
        for rows, block in self.rows_of_score():
            score[rows, : rows.stop] = block
        return mirror(score)


class Marginal(NamedTuple):
    """What one kernel's score says of its log-likelihood.

    `own` is tr T_vv Z, computed if the sharing is below 1; the rest is as in `MarginalScore`, or an
    upper bound in the case of `deviations`.
    """

    log_determinant: float
    trace: float
    own: float
    constant: Constant | None
    inflation: float
    deviations: Vector


def add_moments_by_scores(
    matrix: Matrix,
    kernels: Sequence[SourceKernel],
    scale: Matrix | None,
    moment: Matrix,
    space: Workspace,
) -> list[Marginal]:
    """Add the lower half of sum_k nu_k (M + s_k M Z_k M) to `moment`.

    Diagonal blocks are halved, because the transpose will be added. `scale` is T, None for the
    identity.
    """
    score = space.score.array(*matrix.shape)
    score[...] = 0.0
    found = []
    for part in kernels:
        kernel, sharing = part.kernel, part.source.sharing
        marginal = MarginalScore.of(matrix, part, scale, space)
        own = 0.0
        for rows, block in marginal.rows_of_score():
            block[:, rows.start :] *= 0.5
            if sharing < 1.0:
                own += _inner_with(scale, kernel.v[rows], kernel.v[: rows.stop], block)
            weight = part.degrees * sharing
            add_rows(score, weight, kernel.v[rows], kernel.order, block, block[:, :0])
        found.append(marginal.summary(2.0 * own))
    add_transpose(score)
    total = float(sum(part.degrees for part in kernels))
    for rows in strips(len(matrix)):
        count, end = rows.stop - rows.start, rows.stop
        moved = product(matrix[rows], score, space.cross.array(count, len(matrix)))
        strip = product(moved, matrix[:end].T, space.strip.array(count, end))
        strip += total * matrix[rows, :end]
        strip[:, rows.start :] *= 0.5
        moment[rows, :end] += strip
    return found


def _inner_with(
    scale: Matrix | None, rows: NDArray[np.intp], columns: NDArray[np.intp], block: Matrix
) -> float:
    """Return <T, block> over these rows and columns; T = I if `scale` is None."""
    if scale is None:
        return float(np.trace(block[:, len(columns) - len(rows) :]))
    return inner_of_block(scale, rows, columns, block)
