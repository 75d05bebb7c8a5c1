"""Artificial missingness: hide objects of a stack to see how well they are recovered."""

from collections.abc import Hashable, Mapping
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from ..errors import LabelError, MKMCError
from ..stacks.labels import Labels, as_labels, name_some
from ..stacks.stack import check_stack, visible_objects
from ..utils.arguments import checked, choice, optional, positive, real, real_number, seed, whole
from .protocols import PROTOCOLS, Indices, Pairs, rows_to_remove

#: An attribute of each object, such as its class or its batch.
PerObject: TypeAlias = "xr.DataArray | pd.Series[Any] | Mapping[Any, Any]"


Batches: TypeAlias = "int | PerObject"


def _batches(value: Any, what: str) -> Any:
    """Check batches: labeled by object, or the size of consecutive ones."""
    if isinstance(value, xr.DataArray | pd.Series | Mapping):
        return value
    if real_number(value) is None:
        raise LabelError(
            f"{what}: {type(value).__name__} found. Pass the batch of each object as a mapping, "
            "a pandas.Series or a DataArray labeled by object, or the size of consecutive batches."
        )
    return whole(least=1)(value, what)


def _odds(value: Any, what: str) -> dict[Any, float]:
    """Check the odds of each class."""
    if not isinstance(value, Mapping):
        raise MKMCError(f"{what}: {value!r} found. Pass a mapping from each class to a number > 0.")
    return {name: positive(odds, f"{what} of class {name!r}") for name, odds in value.items()}


@checked(
    ratio=real(lambda number: 0 <= number < 1, "a number in [0, 1), the share to remove,"),
    seed=seed,
    protocol=choice(*PROTOCOLS),
    of=choice("rows", "entries"),
    batches=optional(_batches),
    odds=optional(_odds),
)
def remove_objects(
    stack: xr.DataArray,
    ratio: float,
    *,
    seed: int | np.random.Generator,
    protocol: str = "pairs",
    of: str = "rows",
    keep_one: bool = True,
    batches: "Batches | None" = None,
    classes: "PerObject | None" = None,
    odds: Mapping[Any, float] | None = None,
) -> xr.DataArray:
    """Hide a share of the visible rows and columns of `stack` at random.

    The unit of removal is a pair of an object and a kernel: the object's row and column of that
    kernel become NaN. The paper (section 5) can be read in several ways, and each of them is a
    `protocol`: an order of all visible pairs, of which the first ones are removed. For a given
    seed the removals are therefore nested: what is missing at 10% is also missing at 20%.

    =============  ==========================================================================
    ``"pairs"``    pairs at random (the default)
    ``"objects"``  objects at random; each loses one kernel, chosen at random, and no more
    ``"rounds"``   the same repeatedly: when all objects have lost one kernel, each loses a
                   second one, in a new random order, and so on
    ``"kernels"``  pairs at random, the same share of each kernel
    ``"blocks"``   whole batches of objects from one kernel, batch and kernel at random
    ``"classes"``  not at random: the next pair is drawn with probability proportional to the
                   odds of its object's class
    =============  ==========================================================================

    Parameters
    ----------
    stack
        From `stack_kernels`: dims ``("kernel", "object", "object_bis")``, complete or not.
    ratio
        The share to remove, 0 <= ratio < 1, see Notes.
    seed
        An integer draws the same order each time, so that the ratios are nested. A
        `numpy.random.Generator` is advanced by each call, so that calls are independent draws.
    protocol
        A name from the table above.
    of
        Whether `ratio` is a share of the visible ``"rows"`` or of the visible matrix ``"entries"``.
        A kernel without a share p of its rows lacks 1 - (1 - p)^2 of its entries.
    keep_one
        Whether the last pair of each object is moved to the end of the order, so that every object
        stays visible in some kernel as long as the ratio allows, see Notes.
    batches
        For ``"blocks"``: the batch of each object, labeled by object, or the size of batches of
        consecutive objects (the last may be smaller).
    classes, odds
        For ``"classes"``: the class of each object, labeled by object; and a positive number for
        each class, of which only the ratios matter.

    Returns
    -------
    xarray.DataArray
        The stack with more NaN. `stack` itself is not modified.

    Raises
    ------
    MKMCError
        If `ratio` is not a number in [0, 1) or exceeds the entries that ``"objects"`` can remove;
        if `seed`, `protocol` or `of` is invalid; if an option is missing or belongs to another
        protocol.
    KernelError, LabelError
        If the stack is invalid, see `check_stack`; if an object has no batch or class, a class has
        no odds, odds are not positive, or a batch size is not a whole number >= 1.

    Notes
    -----
    *Number of rows.* Exactly ``round(ratio * n)`` of the n visible rows are removed (Python's
    `round`: halves to the even number). For ``"kernels"`` this holds within each kernel, and for
    ``"objects"`` n is the number of objects visible in any kernel. For blocks and entries, the
    number of units removed is the one that comes nearest to the ratio (the even one of two equally
    near). A block, the visible objects of one batch in one kernel, is never split.

    *Objects that are kept.* With `keep_one`, all objects stay visible up to (K - 1)/K of the rows
    of a complete stack of K kernels, in general up to 1 - (visible objects)/(visible pairs). Beyond
    that, whole objects vanish. For ``"blocks"``, the blocks that contain an object's last pair go
    last. For ``"kernels"``, the pairs that are kept are spread over the kernels at random, and the
    kernel with most of them sets the limit. A kernel may lose all its objects if the ratio is large
    enough for it.

    *Meaning of the odds.* The odds apply to the pairs that remain at each draw. With `keep_one` the
    classes become more alike as the ratio approaches (K - 1)/K, at which every object of a complete
    stack has one kernel left; without it the odds hold to the end.

    Examples
    --------
    >>> from mkmc_prob import stack_kernels, visible_objects
    >>> import numpy as np
    >>> from mkmc_prob import remove_objects
    >>> stack = stack_kernels([np.eye(5), np.eye(5)])
    >>> fewer = remove_objects(stack, 0.3, seed=1)
    >>> visible_objects(fewer).sum().item()
    7
    >>> same_share = remove_objects(stack, 0.4, seed=1, protocol="kernels")
    >>> visible_objects(same_share).sum("object").values
    array([3, 3])
    >>> in_runs = remove_objects(stack, 0.5, seed=1, protocol="blocks", batches=5)
    >>> sorted(visible_objects(in_runs).sum("object").values.tolist())
    [0, 5]
    """
    needs = PROTOCOLS[protocol].needs
    for option, value in {"batches": batches, "classes": classes, "odds": odds}.items():
        if value is None and option in needs:
            raise MKMCError(
                f"{option}: protocol {protocol!r} needs it. Pass {' and '.join(needs)}."
            )
        if value is not None and option not in needs:
            others = [name for name, other in PROTOCOLS.items() if option in other.needs]
            raise MKMCError(
                f"{option}: protocol {protocol!r} does not use it. Leave it out, or pass "
                f"protocol={name_some(others)}."
            )
    removed = check_stack(stack)  # a copy
    rng = np.random.default_rng(seed)
    pairs = _visible_pairs(removed, batches, classes, odds)
    gone = rows_to_remove(pairs, ratio, rng, protocol=protocol, of=of, keep_one=keep_one)
    removed.values[pairs.kernels[gone], pairs.objects[gone], :] = np.nan
    removed.values[pairs.kernels[gone], :, pairs.objects[gone]] = np.nan
    return removed


def _visible_pairs(
    stack: xr.DataArray,
    batches: "Batches | None",
    classes: "PerObject | None",
    odds: Mapping[Any, float] | None,
) -> Pairs:
    """Return the visible pairs of `stack` with their units and odds."""
    labels = stack.indexes["object"].to_numpy()
    kernels, objects = np.nonzero(visible_objects(stack).values)
    units, weights = np.arange(len(objects)), np.ones(len(objects))
    if batches is not None:
        blocks = kernels * len(labels) + _batch_per_object(batches, labels)[objects]
        units = np.unique(blocks, return_inverse=True)[1]
    if classes is not None and odds is not None:
        weights = _odds_per_object(classes, odds, labels)[objects]
    return Pairs(kernels, objects, units, weights)


def _batch_per_object(batches: Batches, objects: Labels) -> Indices:
    """Return the number of each object's batch."""
    if isinstance(batches, int):
        return np.arange(len(objects)) // batches
    table = _table(batches, objects, "batches")
    return pd.factorize(np.fromiter((table[label] for label in objects.tolist()), object))[0]


def _odds_per_object(
    classes: PerObject, odds: Mapping[Any, float], objects: Labels
) -> NDArray[np.float64]:
    """Return the odds of each object's class."""
    table = _table(classes, objects, "classes")
    found = {label: table[label] for label in objects.tolist()}
    if unknown := [name for name in odds if name not in table.values()]:
        raise LabelError(
            f"odds: no object is of class {name_some(unknown)}; there are "
            f"{name_some(list(dict.fromkeys(found.values())))}. Leave it out, or correct its name."
        )
    for label, name in found.items():
        if name not in odds:
            raise LabelError(
                f"odds: none for class {name!r}, the class of object {label!r}. Add it."
            )
    return np.array([odds[name] for name in found.values()])


def _table(given: Any, objects: Labels, what: str) -> dict[Hashable, Hashable]:
    """Return the attribute of each object by label; raise LabelError if one has none."""
    if isinstance(given, xr.DataArray) and given.ndim == 1 and given.indexes:
        given = given.to_series()
    if not isinstance(given, pd.Series | Mapping):
        raise LabelError(
            f"{what}: {type(given).__name__} without labels found. Pass a mapping, a pandas.Series "
            "or a one-dimensional DataArray labeled by object."
        )
    labels = as_labels(given.keys(), f"{what}, objects").tolist()
    table = dict(zip(labels, (value for _, value in given.items()), strict=True))
    if absent := [label for label in objects.tolist() if label not in table]:
        raise LabelError(f"{what}: none for object {name_some(absent)}. Add it.")
    for label in objects.tolist():
        value = table[label]
        if not isinstance(value, Hashable) or value is None or value != value:  # NaN
            raise LabelError(
                f"{what}: {value!r} for object {label!r}. Give each object text or a number."
            )
    return table
