"""A permutation test of whether objects are missing completely at random."""

from typing import NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.stats import rankdata

from ..linalg.symmetric import Vector
from ..stacks.kernel_stack import KernelStack
from ..utils.arguments import checked, seed, whole

#: What is compared of an object in another kernel.
FEATURES = ("size", "similarity")
#: Both groups need so many objects that another kernel shows.
FEWEST = 3
#: Features that differ by less than this share of the largest one are tied.
RESOLUTION = 2.0**-40
#: Statistics that differ by less are equal: permutations repeat the same sums in another order.
EQUAL = 1e-9
#: Permutations that are examined at a time.
STRIP = 1_000


class Ranks(NamedTuple):
    """One feature of the objects that a kernel shows: its ranks less their mean.

    Attributes
    ----------
    places : ndarray of int
        The objects.
    ranks : ndarray
        Their ranks (mean ranks if tied), less the mean.
    """

    places: NDArray[np.intp]
    ranks: Vector

    @classmethod
    def of(cls, places: NDArray[np.intp], values: Vector) -> "Ranks":
        """Return the ranks of the values of these objects."""
        largest = float(np.abs(values).max(initial=0.0))
        if largest > 0.0:
            values = np.rint(values / (largest * RESOLUTION))
        ranks = rankdata(values)
        return cls(places, ranks - ranks.mean() if len(ranks) else ranks)

    def differences(self, missing: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return the standardized differences of mean ranks, a row of `missing` each.

        Of m missing and n - m other objects, the sum of the ranks of the missing ones, less its
        expectation if they are drawn at random, over its standard deviation. NaN if a group has
        fewer than 3 objects, or all ranks are tied.
        """
        own = missing[:, self.places]
        n, m = own.shape[1], own.sum(axis=1)
        squares = float(self.ranks @ self.ranks)
        found = np.full(len(own), np.nan)
        enough = (m >= FEWEST) & (n - m >= FEWEST)
        if squares and enough.any():
            m = m[enough]
            found[enough] = (own[enough] @ self.ranks) / np.sqrt(
                squares * m * (n - m) / (n * (n - 1.0))
            )
        return found


@checked(permutations=whole(least=1), seed=seed)
def mcar_test(
    stack: xr.DataArray, *, permutations: int = 999, seed: int | np.random.Generator = 0
) -> xr.Dataset:
    """Test per kernel whether its objects are missing completely at random.

    For each kernel, the objects that it misses are compared with those that it shows, by what each
    other kernel shows of them: their size (the diagonal entry) and their similarity (the mean of
    the row, without the diagonal). The statistic is the largest absolute difference of mean ranks
    over kernels and features, each divided by its standard deviation. Which objects are missing is
    permuted among those that some other kernel shows.

    Parameters
    ----------
    stack
        The incomplete kernels.
    permutations
        B, the number of permutations. The smallest possible p-value is 1 / (1 + B).
    seed
        The seed of the permutations.

    Returns
    -------
    Dataset
        Over ``kernel``: ``statistic``; ``p_value``,
        (1 + number of permutations at least as extreme) / (1 + B); ``p_adjusted``, adjusted for the
        number of tested kernels by Holm's method; and ``reason``, why a kernel is not testable
        (the numbers are NaN then), "" if it is. ``difference`` over ``kernel``, ``other`` and
        ``feature`` ("size", "similarity"), positive if the missing objects have the larger values
        in the other kernel; NaN if they were not compared there.

    Raises
    ------
    KernelError, LabelError
        If the stack cannot be used.

    Notes
    -----
    The p-value is exact if the objects that some other kernel shows are exchangeable: whatever the
    other kernels show, every set of as many of them is equally likely to be missing from this one.
    A small value means that this does not hold: usually, that missingness depends on something that
    the other kernels show. `fit` may still be right, because
    it only assumes that missingness is ignorable (missing at random): it may depend on anything
    visible. Conversely, a large value does not mean that missingness is ignorable. Whether it
    depends on what is hidden cannot be tested from what is visible; `sensitivity` shows how much
    the conclusions would change if it did.

    Groups with fewer than 3 objects in another kernel are not compared there. The test only depends
    on ranks within each kernel, and so not on the kernels' units. If objects are missing in batches
    of similar ones, they are not exchangeable, even if each is equally likely to be missing, and
    the test can reject for that reason alone.

    Examples
    --------
    >>> from mkmc_prob import datasets, diagnostics, remove_objects
    >>> kernels, _ = datasets.make_fusion_problem(40, 3)
    >>> found = diagnostics.mcar_test(remove_objects(kernels, 0.3, seed=0))
    >>> bool((found["p_adjusted"] > 0.05).all())
    True
    """
    checked_stack = KernelStack.of(stack)
    rng = np.random.default_rng(seed)
    features = [_features(checked_stack, k) for k in range(len(checked_stack.names))]
    count = len(features)
    difference = np.full((count, count, len(FEATURES)), np.nan)
    statistic, p_value = np.full(count, np.nan), np.full(count, np.nan)
    reasons = [_reason(checked_stack.visible, k) for k in range(count)]
    for k in range(count):
        others = [j for j in range(count) if j != k]
        missing = ~checked_stack.visible[k]
        for j in others:
            difference[k, j] = [ranks.differences(missing[None])[0] for ranks in features[j]]
        if reasons[k] or np.isnan(difference[k]).all():
            reasons[k] = reasons[k] or "the other kernels show no differences between objects"
            continue
        statistic[k] = np.nanmax(np.abs(difference[k]))
        ranks = [own for j in others for own in features[j]]
        extreme = _count(ranks, checked_stack.visible, k, statistic[k], permutations, rng)
        p_value[k] = (1 + extreme) / (1 + permutations)
    names = np.array(checked_stack.names)
    return xr.Dataset(
        {
            "statistic": ("kernel", statistic),
            "p_value": ("kernel", p_value),
            "p_adjusted": ("kernel", holm(p_value)),
            "reason": ("kernel", np.array(reasons, dtype=str)),
            "difference": (
                ("kernel", "other", "feature"),
                difference,
                {"long_name": "standardized difference of mean ranks, missing less visible"},
            ),
        },
        coords={"kernel": names, "other": names, "feature": list(FEATURES)},
        attrs={"permutations": permutations},
    )


def _features(stack: KernelStack, k: int) -> list[Ranks]:
    """Return the ranks of the visible objects of a kernel by size and by mean similarity."""
    kernel = stack.kernel(k)
    n, diagonal = len(kernel.v), np.diagonal(kernel.moment)
    rows = (kernel.moment.sum(axis=1) - diagonal) / max(n - 1, 1)
    return [Ranks.of(kernel.v, diagonal), Ranks.of(kernel.v, rows)]


def _reason(visible: NDArray[np.bool_], k: int) -> str:
    """Return why a kernel cannot be tested; "" if nothing is known against it."""
    hidden = int((~visible[k]).sum())
    if hidden < FEWEST or len(visible[k]) - hidden < FEWEST:
        what = "misses" if hidden < FEWEST else "shows"
        return f"it {what} fewer than {FEWEST} objects"
    others = np.delete(visible, k, axis=0)
    missing, shown = (others & ~visible[k]).sum(axis=1), (others & visible[k]).sum(axis=1)
    if not ((missing >= FEWEST) & (shown >= FEWEST)).any():
        return f"no other kernel shows {FEWEST} of its missing and {FEWEST} of its visible objects"
    return ""


def _count(
    ranks: list[Ranks],
    visible: NDArray[np.bool_],
    k: int,
    statistic: float,
    permutations: int,
    rng: np.random.Generator,
) -> int:
    """Return how many permutations are at least as extreme as the statistic."""
    places = np.flatnonzero(np.delete(visible, k, axis=0).any(axis=0))
    own, extreme = ~visible[k][places], 0
    for start in range(0, permutations, STRIP):
        size = min(STRIP, permutations - start)
        missing = np.zeros((size, visible.shape[1]), dtype=bool)
        missing[:, places] = rng.permuted(np.tile(own, (size, 1)), axis=1)
        largest = np.zeros(size)
        for each in ranks:
            np.fmax(largest, np.abs(each.differences(missing)), out=largest)
        extreme += int((largest >= statistic - EQUAL).sum())
    return extreme


def holm(p_values: Vector) -> Vector:
    """Return p-values adjusted for their number by Holm's method; NaN stay and do not count.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob.diagnostics.missingness_test import holm
    >>> holm(np.array([0.01, np.nan, 0.04, 0.03]))
    array([0.03,  nan, 0.06, 0.06])
    """
    adjusted = np.full_like(p_values, np.nan)
    places = np.flatnonzero(~np.isnan(p_values))
    order = places[np.argsort(p_values[places], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(factors * p_values[order]), 1.0)
    return adjusted
