"""What a kernel's visible block says of the model matrix: the score, another way to the E-step.

Enters: the model matrix M, which objects are visible, and the visible block Q_vv. Leaves: the
derivative of the kernel's expected log-likelihood by M, and that log-likelihood. Where most objects
are hidden, this costs less than the conditional distribution of them.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..linalg.blocks import Workspace, strips
from ..linalg.cholesky import cholesky, inverse, log_determinant
from ..linalg.products import inner, product, symmetric_product
from ..linalg.symmetric import Matrix, mirror
from ..stacks.labels import Labels
from .conditional import TOO_SINGULAR, covariance_form_cost, precision_form_cost


def cheaper_by_score(sizes: Sequence[tuple[int, int]]) -> NDArray[np.bool_]:
    """Return which kernels, of n visible and m hidden objects each, to do by their scores.

    A score costs 4 n^3 operations, the two products with M together 3 l^3, whoever shares them.
    """
    saved = np.array(
        [min(precision_form_cost(n, m), covariance_form_cost(n, m)) - 4 * n**3 for n, m in sizes]
    )
    by_score = saved > 0
    size = sum(sizes[0])
    return by_score if saved[by_score].sum() > 3 * size**3 else np.zeros_like(by_score)


class Strip(NamedTuple):
    """Some rows of Z: what lies left of the strip's end."""

    rows: slice
    block: Matrix


class MarginalScore:
    """The visible objects' log-likelihood E_q[log N(v | 0, M_vv)], and its derivative by M.

    With R = M_vv^-1 the derivative is Z / 2, Z = R Q_vv R - R in the visible rows and columns and
    0 elsewhere. By Fisher's identity it is the expected score of the complete data, and so

        E[x x'] = M + M Z M:

    the E-step without a regression. The kernels' Z add up before the two products with M.
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
        block = space.block("factored", matrix, visible, visible)
        labels = objects[visible]
        factor = cholesky(block, "model matrix", labels, TOO_SINGULAR, overwrite=True, clean=False)
        self.log_determinant = log_determinant(factor)
        # R is half of the score itself; products with it are faster than two-sided solves.
        self._inverse = inverse(factor, overwrite=True)
        out = space.array("whitened", n, n)
        self._left = symmetric_product(self._inverse, visible_moment, out)
        self.trace = inner(self._inverse, visible_moment)

    def strips(self) -> Iterator[Strip]:
        """Yield Z, strip by strip: of each what lies left of its end."""
        for rows in strips(len(self._inverse)):
            count, end = rows.stop - rows.start, rows.stop
            out = self._space.array("strip", count, end)
            block = product(self._left[rows], self._inverse[:end].T, out)
            block -= self._inverse[rows, :end]
            yield Strip(rows, block)

    @property
    def score(self) -> Matrix:
        """Z, exactly symmetric, of the visible objects."""
        score = np.empty_like(self._inverse)
        for rows, block in self.strips():
            score[rows, : rows.stop] = block
        return mirror(score)
