"""The score of a kernel's visible block, an E-step without the conditional distribution.

It costs less than the conditional distribution if most objects are hidden.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ..linalg.blocks import Workspace, add_rows, strips
from ..linalg.cholesky import cholesky, inverse, log_determinant
from ..linalg.products import inner, product, symmetric_product
from ..linalg.symmetric import Matrix, add_transpose, mirror
from ..stacks.kernel_stack import VisibleKernel
from ..stacks.labels import Labels
from .conditional import TOO_SINGULAR
from .costs import covariance_form_cost, precision_form_cost


def cheaper_by_score(sizes: Sequence[tuple[int, int]]) -> NDArray[np.bool_]:
    """Return which kernels, with (n visible, m hidden) objects each, are cheaper by their scores.

    A score costs 4 n^3 operations; the two products with M, shared by all, cost 3 l^3.
    """
    saved = np.array(
        [min(precision_form_cost(n, m), covariance_form_cost(n, m)) - 4 * n**3 for n, m in sizes]
    )
    by_score = saved > 0
    size = sum(sizes[0])
    return by_score if saved[by_score].sum() > 3 * size**3 else np.zeros_like(by_score)


class MarginalScore:
    """The visible objects' log-likelihood E_q[log N(v | 0, M_vv)], and its derivative by M.

    With R = M_vv^-1 the derivative is Z / 2, Z = R Q_vv R - R in the visible rows and columns and
    0 elsewhere. By Fisher's identity it is the expected score of the complete data, and so

        E[x x'] = M + M Z M,

    an E-step without a regression. The Z of all kernels are summed before the products with M.
    Equations :eq:`eq-score` and :eq:`eq-score-form` of the derivation.

    Attributes
    ----------
    log_determinant : float
        log det M_vv.
    trace : float
        tr M_vv^-1 Q_vv, the expected squared Mahalanobis length of v.

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
    ) -> None:
        self._space = space = Workspace() if space is None else space
        n = len(visible)
        block = space.factored.block(matrix, visible, visible)
        labels = objects[visible]
        factor = cholesky(block, "model matrix", labels, TOO_SINGULAR, overwrite=True, clean=False)
        self.log_determinant = log_determinant(factor)
        # R itself is needed, and products with it are faster than two-sided solves.
        self._inverse = inverse(factor, overwrite=True)
        out = space.whitened.array(n, n)
        self._left = symmetric_product(self._inverse, visible_moment, out)
        self.trace = inner(self._inverse, visible_moment)

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


def add_moments_by_scores(
    matrix: Matrix,
    kernels: Sequence[VisibleKernel],
    degrees: NDArray[np.float64],
    moment: Matrix,
    space: Workspace,
) -> list[tuple[float, float]]:
    """Add the lower half of sum_k nu_k (M + M Z_k M) to `moment`.

    Diagonal blocks are halved, because the transpose will be added.

    Returns
    -------
    list of tuple
        log det M_vv and tr M_vv^-1 Q_vv per kernel.
    """
    score = space.score.array(*matrix.shape)
    score[...] = 0.0
    total, found = 0.0, []
    for kernel, nu in zip(kernels, degrees, strict=True):
        marginal = MarginalScore(matrix, kernel.v, kernel.objects, kernel.moment, space)
        for rows, block in marginal.rows_of_score():
            block[:, rows.start :] *= 0.5
            add_rows(score, nu, kernel.v[rows], kernel.order, block, block[:, :0])
        total += nu
        found.append((marginal.log_determinant, marginal.trace))
    add_transpose(score)
    for rows in strips(len(matrix)):
        count, end = rows.stop - rows.start, rows.stop
        moved = product(matrix[rows], score, space.cross.array(count, len(matrix)))
        strip = product(moved, matrix[:end].T, space.strip.array(count, end))
        strip += total * matrix[rows, :end]
        strip[:, rows.start :] *= 0.5
        moment[rows, :end] += strip
    return found
