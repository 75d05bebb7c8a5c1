"""Pairs of objects that no kernel shows together: how far the kernels bound their entries."""

from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..errors import IndefiniteKernelError, KernelError, LabelError
from ..linalg.cholesky import cholesky, inverse
from ..linalg.lazy import is_lazy
from ..linalg.rounding import rounding_share
from ..linalg.symmetric import Matrix, Vector, symmetrize
from ..model.conditional import TOO_SINGULAR
from ..model.gaussian import GaussianModel
from ..model.low_rank import LowRankModel
from ..model.structures import Full
from ..stacks.labels import Labels, name_some
from ..stacks.matrix import input_eps
from ..stacks.pairs import count_of_unseen_pairs, number_of_pairs
from ..stacks.pattern import (
    group_numbers,
    named_groups,
    pairs_between,
    related,
    tied_groups,
    unseen_objects,
)
from ..stacks.stack import visible_objects
from ..utils.arguments import checked, whole
from .protocol import FitResult, as_result

Places = NDArray[np.intp]

#: An interval is wide if it covers at least this many units of correlation, half of -1 to 1.
WIDE = 1.0
MODEL = "model matrix"
#: Objects whose pairs with all others are ranked at a time.
ROWS = 128


@checked(result=as_result, most=whole(least=1))
def unseen_pairs(
    result: FitResult,
    pairs: Iterable[tuple[Hashable, Hashable]] | None = None,
    *,
    most: int = 1000,
) -> xr.Dataset:
    """Return the bounds on the entries of pairs of objects that no kernel shows together.

    The likelihood does not depend on such an entry of the model matrix M: the kernels only bound
    it, because M must be positive definite. With all other entries held at their values, and
    P = M^-1, the bounds are

        M_ij - 1 / (s + P_ij)  and  M_ij + 1 / (s - P_ij),   s = sqrt(P_ii P_jj).

    Within the bounds, the prior chooses the entry of the full structure, and the factors choose it
    in a model of few factors. Its place in the interval is the partial correlation of the two
    objects given all others, -P_ij / s: 0 in the middle, -1 and 1 at the ends.

    Parameters
    ----------
    result
        A fit.
    pairs
        Pairs of labels of objects, none of which a kernel shows together. If left out, the pairs
        with the widest intervals.
    most
        The largest number of pairs if `pairs` is left out.

    Returns
    -------
    Dataset
        Over ``pair``, with the labels ``object`` and ``object_bis``, and over ``kernel``. The pairs
        are in the order of `pairs`, otherwise by decreasing ``relative_width``.

        - ``value``, ``lower``, ``upper``: the entry of the model matrix and its bounds.
        - ``relative_width``: (upper - lower) / sqrt(M_ii M_jj), between 0 and 2: the width in units
          of correlation.
        - ``partial_correlation``: where the choice lies, between -1 and 1.
        - ``wide``: whether ``relative_width`` is at least 1, half of the largest width.
        - ``prior_alone``: whether no chain of kernels connects the two objects, so that the prior
          alone determines the entry, also if one of them is hidden in every kernel.
        - ``kernel_value``, ``kernel_lower``, ``kernel_upper``: the same for the entry of each
          completed kernel, in the kernel's own units. Left out if the completed kernels are not in
          memory.

        The attributes say how many such pairs there are in all (``unseen_pairs``), for how many of
        them the prior alone determines the entry (``prior_alone_pairs``), and, in words, what
        chooses within the bounds (``description``), which groups of objects no chain of kernels
        connects (``groups``), and which objects no kernel says anything about (``hidden``).

    Raises
    ------
    KernelError
        If a kernel shows a pair of `pairs`, or an entry of `pairs` is no pair of two objects.
    LabelError
        If there is no such object.
    IndefiniteKernelError
        If the model matrix, or what a kernel hides, is singular to working precision.

    Notes
    -----
    Kernels with sharing 0 do not count, unless all kernels have it: they say nothing about the
    model matrix. Such a kernel can show a pair; its own interval is then a point.

    The interval belongs to one entry, with all others held at their observed or completed values.
    Several entries can move together beyond their intervals, so that the truth is often outside:
    the intervals are no error bars. `MKMCResult.standard_deviation` and `sample_posterior` say how
    uncertain an entry is.

    A completed kernel Q is positive semidefinite and may be singular. The bounds are those of the
    Schur complement of its other objects, the limit of the formula above for Q + eps I as eps goes
    to 0. Only combinations of visible objects can have variance zero. If the other visible objects
    determine a visible object exactly, its entry with a hidden object cannot change: the interval
    is a point, and ``kernel_lower`` and ``kernel_upper`` are equal. This is the rule if a kernel
    has fewer features than visible objects. An object counts as determined if eigenvalues of the
    visible block within rounding of zero, at most n eps times the largest (eps of the precision in
    which the kernel came), contribute most of its precision.

    Equation :eq:`eq-unseen-pairs` of the derivation.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import diagnostics, fit, stack_kernels
    >>> kernels = np.stack([0.5 * np.eye(3) + 0.5] * 2)
    >>> stack = stack_kernels(kernels, visible=[[1, 1, 0], [0, 1, 1]], objects=["a", "b", "c"])
    >>> found = diagnostics.unseen_pairs(fit(stack, sources="identical", strength=0.1))
    >>> found[["object", "object_bis", "value", "lower", "upper"]].to_dataframe().round(2)
         object object_bis  value  lower  upper
    pair
    0         a          c   0.31  -0.58    1.0
    """
    visible = visible_objects(result.observed)
    sharing = result.sources["sharing"].sel(kernel=visible["kernel"].values).values
    showing = related(visible, sharing)
    groups, objects = tied_groups(showing), showing["object"].values
    covariance, precision = _entries(result.model)
    if pairs is None:
        i, j = _widest(covariance, precision, showing.values, most, objects)
    else:
        i, j = _named(pairs, showing)
    value = covariance.at(i, j)
    variances = covariance.diagonal[i] * covariance.diagonal[j]
    interval = Interval.of(precision.diagonal, precision.at(i, j), i, j, MODEL, objects)
    lower, upper = interval.around(value)
    relative = interval.width / np.sqrt(variances)
    group = group_numbers(groups, objects)
    found = xr.Dataset(
        {
            "value": ("pair", value),
            "lower": ("pair", lower),
            "upper": ("pair", upper),
            "relative_width": ("pair", relative),
            "partial_correlation": ("pair", interval.partial_correlation),
            "wide": ("pair", relative >= WIDE),
            "prior_alone": ("pair", (group[i] != group[j]) | (group[i] < 0)),
        },
        coords={
            "pair": np.arange(len(i)),
            "object": ("pair", objects[i]),
            "object_bis": ("pair", objects[j]),
        },
    )
    if not is_lazy(result.completed.data):
        found = found.merge(_completed_intervals(result, visible, i, j))
    return found.assign_attrs(_about(result, showing, groups))


class Interval(NamedTuple):
    """Where an entry x_ij of a positive definite X may lie if the others are held.

    Attributes
    ----------
    below, above : ndarray
        How far the entry may fall and rise, 1 / (s + P_ij) and 1 / (s - P_ij), with P = X^-1 and
        s = sqrt(P_ii P_jj).
    partial_correlation : ndarray
        -P_ij / s, the place of the entry in the interval: 0 in the middle, -1 and 1 at the ends.
    """

    below: Vector
    above: Vector
    partial_correlation: Vector

    @classmethod
    def of(
        cls, diagonal: Vector, p_ij: Vector, i: Places, j: Places, what: str, objects: Labels
    ) -> "Interval":
        """Return the intervals of the pairs (i, j), given the diagonal of P and its entries there.

        det(X + t (e_i e_j' + e_j e_i')) / det X = (1 + t P_ij)^2 - t^2 P_ii P_jj vanishes at both
        ends.
        """
        with np.errstate(invalid="ignore"):
            root = np.sqrt(diagonal[i] * diagonal[j])
        wrong = ~(np.abs(p_ij) < root)  # also if it is NaN
        if wrong.any():
            at = int(wrong.argmax())
            raise IndefiniteKernelError(
                f"{what}: objects {objects[[i[at], j[at]]].tolist()} are perfectly correlated up "
                f"to rounding, given the others. {TOO_SINGULAR}"
            )
        return cls(1.0 / (root + p_ij), 1.0 / (root - p_ij), -p_ij / root)

    @property
    def width(self) -> Vector:
        """The length of the interval."""
        return self.below + self.above

    def around(self, value: Vector) -> tuple[Vector, Vector]:
        """Return the ends of the intervals of entries with these values."""
        return value - self.below, value + self.above


class _Dense(NamedTuple):
    """Entries of a symmetric matrix that is in memory."""

    matrix: Matrix

    @property
    def diagonal(self) -> Vector:
        return np.diagonal(self.matrix)

    def rows(self, places: Places) -> Matrix:
        return self.matrix[places]

    def at(self, i: Places, j: Places) -> Vector:
        return self.matrix[i, j]


class _Factored(NamedTuple):
    """Entries of a symmetric matrix that is `left` `right`' off its `diagonal`: nothing l x l."""

    left: Matrix
    right: Matrix
    diagonal: Vector

    def rows(self, places: Places) -> Matrix:
        """Return rows, right off the diagonal."""
        found: Matrix = self.left[places] @ self.right.T
        return found

    def at(self, i: Places, j: Places) -> Vector:
        found: Vector = np.einsum("pq,pq->p", self.left[i], self.right[j])
        return found


def _entries(model: GaussianModel) -> tuple[_Dense | _Factored, _Dense | _Factored]:
    """Return M and M^-1."""
    if not isinstance(model, LowRankModel):
        return _Dense(model.matrix), _Dense(model.precision)
    loadings, noise, posterior = model.factor_loadings, model.noise_variances, model.posterior
    variances = np.einsum("ij,ij->i", loadings, loadings) + noise
    explained = np.einsum("ij,ij->i", loadings, posterior.regression)
    return (
        _Factored(loadings, loadings, variances),
        _Factored(-posterior.weighted, posterior.regression, (1.0 - explained) / noise),
    )


def _widest(
    covariance: _Dense | _Factored,
    precision: _Dense | _Factored,
    shown: NDArray[np.bool_],
    most: int,
    objects: Labels,
) -> tuple[Places, Places]:
    """Return the unseen pairs with the widest intervals relative to the standard deviations.

    Pairs of equal width are in the order of their objects. Some rows of P are examined at a time,
    and no more than `most` pairs are kept.
    """
    indicator, size = shown.astype(np.float64), shown.shape[1]
    deviation = np.sqrt(covariance.diagonal)
    kept_width, kept = np.empty(0), np.empty((2, 0), dtype=np.intp)
    for start in range(0, size, ROWS):
        rows = np.arange(start, min(start + ROWS, size))
        never = indicator[:, rows].T @ indicator == 0.0
        i, j = np.nonzero(never & (rows[:, None] < np.arange(size)))
        p_ij = precision.rows(rows)[i, j]
        i = rows[i]
        interval = Interval.of(precision.diagonal, p_ij, i, j, MODEL, objects)
        width = interval.width / (deviation[i] * deviation[j])
        if len(kept_width) == most:  # the later of two equal pairs is left out anyway
            wider = width > kept_width[-1]
            i, j, width = i[wider], j[wider], width[wider]
        width, both = np.append(kept_width, width), np.append(kept, [i, j], axis=1)
        order = np.argsort(-width, kind="stable")[:most]
        kept_width, kept = width[order], both[:, order]
    return kept[0], kept[1]


def _named(pairs: Iterable[Any], showing: xr.DataArray) -> tuple[Places, Places]:
    """Return the places of the objects of named pairs, each of which no kernel may show."""
    if isinstance(pairs, str) or not isinstance(pairs, Iterable):
        raise KernelError(f"pairs: {pairs!r} found; a list of pairs (object, object) is needed.")
    places = {label: i for i, label in enumerate(showing["object"].values.tolist())}
    found: list[list[int]] = []
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise KernelError(f"pairs: {pair!r} found; a pair of two objects is needed.")
        for label in pair:
            if not isinstance(label, Hashable) or label not in places:
                raise LabelError(
                    f"pairs: {pair!r}: there is no object {label!r}. Correct the label, or remove "
                    "the pair."
                )
        found.append([places[label] for label in pair])
        if found[-1][0] == found[-1][1]:
            raise KernelError(f"pairs: {pair!r} found; a pair of two objects is needed.")
        both = showing.values[:, found[-1]].all(axis=1)
        if both.any():
            name = showing["kernel"].values.tolist()[int(both.argmax())]
            raise KernelError(
                f"pairs: {tuple(pair)!r}: kernel {name!r} shows both objects, so its entry is "
                "observed. Remove the pair; result.never_seen_together() shows which pairs are "
                "never observed together."
            )
    i, j = np.array(found, dtype=np.intp).reshape(-1, 2).T
    return i, j


def _completed_intervals(
    result: FitResult, visible: xr.DataArray, i: Places, j: Places
) -> xr.Dataset:
    """Return the entries of the completed kernels, and their bounds."""
    names, objects = visible["kernel"].values, visible["object"].values
    completed = result.completed.sel(kernel=names, object=objects, object_bis=objects)
    eps = input_eps(completed)
    values = completed.values
    found = np.empty((3, len(i), len(names)))
    for k, name in enumerate(names.tolist()):
        what = f"kernel {name!r}, completed"
        bounds = CompletedBounds.of(values[k], visible.values[k], float(eps[k]), what, objects)
        found[:, :, k] = bounds.at(i, j)
    parts = zip(("kernel_value", "kernel_lower", "kernel_upper"), found, strict=True)
    variables = {name: (("pair", "kernel"), part) for name, part in parts}
    return xr.Dataset(variables, coords={"kernel": names})


class CompletedBounds(NamedTuple):
    """A completed kernel, and its precision as far as unseen pairs need it.

    With v the visible and h the hidden objects, Q_vh = Q_vv A and Q_hh = C + A' Q_vv A. C is
    positive definite, so only Q_vv can be singular. With Q_vv + eps I in place of Q_vv the
    precision is

        P_hh = C^-1,  P_hv = -C^-1 A',  P_vv = (Q_vv + eps I)^-1 + A C^-1 A',

    in which only diagonal entries of P_vv grow beyond all bounds as eps goes to 0.

    Attributes
    ----------
    matrix : ndarray, shape (l, l)
        Q.
    visible : ndarray of bool
    hidden_rows : ndarray, shape (m, l)
        The rows of P of the hidden objects.
    diagonal : ndarray, shape (l,)
        The diagonal of P, infinite for visible objects that the other visible objects determine.
    what : str
        The name of the kernel in messages.
    """

    matrix: Matrix
    visible: NDArray[np.bool_]
    hidden_rows: Matrix
    diagonal: Vector
    what: str
    objects: Labels

    @classmethod
    def of(
        cls, matrix: Matrix, visible: NDArray[np.bool_], eps: float, what: str, objects: Labels
    ) -> "CompletedBounds":
        """Return the bounds of a completed kernel that came in a precision of this epsilon."""
        v, h = np.flatnonzero(visible), np.flatnonzero(~visible)
        across = matrix[np.ix_(v, h)]
        variances, vectors = np.linalg.eigh(matrix[np.ix_(v, v)])
        smallest = rounding_share(max(len(v), 1), eps) * variances.max(initial=0.0)
        zero = variances <= smallest
        kept, null = vectors[:, ~zero], vectors[:, zero]
        scaled = kept / np.sqrt(variances[~zero])
        visible_precision = np.einsum("ij,ij->i", scaled, scaled)  # of the pseudo-inverse
        # Zero eigenvalues, which are at most `smallest`, add at least this to the precision.
        at_least = np.einsum("ij,ij->i", null, null)
        determined = at_least > smallest * visible_precision
        half = scaled.T @ across
        regression = scaled @ half
        conditional = matrix[np.ix_(h, h)] - symmetrize(half.T @ half)
        precision = inverse(cholesky(conditional, what, objects[h], TOO_SINGULAR))
        rows = np.empty((len(h), len(matrix)))
        rows[:, h], rows[:, v] = precision, -(precision @ regression.T)
        diagonal = np.empty(len(matrix))
        diagonal[h] = np.diagonal(precision)
        diagonal[v] = visible_precision - np.einsum("ij,ji->i", regression, rows[:, v])
        diagonal[v[determined]] = np.inf
        return cls(matrix, visible, rows, diagonal, what, objects)

    def at(self, i: Places, j: Places) -> tuple[Vector, Vector, Vector]:
        """Return the entries (i, j) and the ends of their intervals."""
        hidden, other = np.where(self.visible[i], j, i), np.where(self.visible[i], i, j)
        value = self.matrix[i, j]
        free = ~self.visible[hidden] & np.isfinite(self.diagonal[other])
        row = np.cumsum(~self.visible) - 1
        p_ij = self.hidden_rows[row[hidden[free]], other[free]]
        interval = Interval.of(
            self.diagonal, p_ij, hidden[free], other[free], self.what, self.objects
        )
        lower, upper = value.copy(), value.copy()
        lower[free], upper[free] = interval.around(value[free])
        return value, lower, upper


def _about(
    result: FitResult, showing: xr.DataArray, groups: list[list[Hashable]]
) -> dict[str, Any]:
    """Return the attributes of the table: how many unseen pairs there are, and what chooses."""
    total, size = count_of_unseen_pairs(showing), showing.sizes["object"]
    alone, hidden = pairs_between(groups, size), unseen_objects(showing)
    full = isinstance(result.structure, Full)
    chosen_by = "the prior chooses" if full else "the factors of the model choose"
    about: dict[str, Any] = {"unseen_pairs": total, "prior_alone_pairs": alone}
    about["description"] = (
        f"{total} of {number_of_pairs(size)} pairs of objects are never observed together: the "
        f"kernels only bound their entries, and {chosen_by} within the bounds. The bounds hold "
        "with all other entries fixed, so they are not error bars."
    )
    if len(groups) > 1:
        about["groups"] = (
            f"no chain of kernels connects {named_groups(groups)}: the prior alone determines the "
            "whole blocks of entries between them"
        )
    if hidden:
        about["hidden"] = (
            f"no kernel says anything about {name_some(hidden)}: the prior alone determines the "
            "whole rows"
        )
    return about
