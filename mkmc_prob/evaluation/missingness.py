"""Artificial missingness: hide objects of a stack, to see how well they are recovered.

Enters: a labelled stack, a ratio and a seed. Leaves: the same stack with whole rows and columns
NaN. Here is what a person may ask for, checked; which rows go first is decided in `removal`, how
well they are recovered in `metrics`.
"""

from collections.abc import Hashable, Mapping
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from ..errors import LabelError, MKMCError
from ..stacks.labels import Labels, as_labels, name_some, positions
from ..stacks.stack import check_stack, visible_objects
from ..utils.arguments import generator, positive_number, real_number, whole_number
from .protocols import PROTOCOLS, Indices, Pairs, rows_to_remove

#: Something said of each object: which class it is of, which batch it came in.
PerObject: TypeAlias = "xr.DataArray | pd.Series[Any] | Mapping[Any, Any]"


Batches: TypeAlias = "int | PerObject"


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
    """Hide a share of the visible rows and columns of `stack`, at random.

    What is removed is a pair of an object and a kernel: the object's row and column of that kernel
    become NaN. The paper (section 5) can be read in more than one way, and each way is a
    `protocol`: an order of all visible pairs, of which the first ones are removed. So with one
    seed the removals are nested, what is missing at 10% is missing at 20% too, and so on.

    =============  ==========================================================================
    ``"pairs"``    pairs at random (the default)
    ``"objects"``  objects at random; each loses one kernel, picked at random, and no more
    ``"rounds"``   the same again and again: when all objects have lost one kernel, each loses a
                   second, in a new random order, and so on
    ``"kernels"``  pairs at random, the same share of each kernel
    ``"blocks"``   a whole batch of objects at once from one kernel, batch and kernel at random
    ``"classes"``  not at random: the next pair is drawn with a probability proportional to the
                   odds of its object's class
    =============  ==========================================================================

    Parameters
    ----------
    stack
        From `stack_kernels`: dims ``("kernel", "object", "object_bis")``, complete or not.
    ratio
        The share to remove, 0 <= ratio < 1, see Notes.
    seed
        An integer draws the same order every time: that makes the ratios nested. A
        `numpy.random.Generator` is advanced by each call, so two calls with it are two
        independent draws.
    protocol
        A name from the table above.
    of
        What `ratio` is a share of: the visible ``"rows"``, or the visible matrix ``"entries"``. A
        kernel without a share p of its rows lacks 1 - (1 - p)^2 of its entries.
    keep_one
        Whether the pair of each object that comes last in the order is moved to the end of it, so
        that every object stays visible in some kernel as long as the ratio allows, see Notes.
    batches
        For ``"blocks"``: the batch of each object, labelled by object, or the size of batches of
        consecutive objects (the last may be smaller).
    classes, odds
        For ``"classes"``: the class of each object, labelled by object; and a positive number for
        each class, of which only the ratios matter.

    Returns
    -------
    xarray.DataArray
        The stack with more NaN. `stack` itself is not modified.

    Raises
    ------
    MKMCError
        Where `ratio` is not a number from 0 up to but not including 1, or more entries than
        ``"objects"`` can remove; where `seed` is None; where `protocol` or `of` is unknown, or an
        option is missing or belongs to another protocol.
    KernelError, LabelError
        Where the stack is not one, see `check_stack`; where an object has no batch or class, a
        class no odds, odds are not positive, or a batch size is not a whole number >= 1.

    Notes
    -----
    *How many.* Of the n visible rows exactly ``round(ratio * n)`` are removed (Python's `round`:
    halves to the even number). In ``"kernels"`` n are the rows of one kernel, and it holds for each
    kernel. In ``"objects"`` n counts the objects that any kernel sees. Blocks and entries do not
    come in ones: then as many units of the order are removed as come nearest to the ratio (of two
    as near, an even number). A block, that is the visible objects of one batch in one kernel, is
    never cut.

    *How long every object is kept.* With `keep_one`, up to (K - 1)/K of the rows of a complete
    stack of K kernels, in general up to 1 - (visible objects)/(visible pairs). Beyond that whole
    objects vanish. In ``"blocks"`` it is the blocks with the last pair of some object that go
    last. In ``"kernels"`` it holds within each kernel: the pairs that are kept are spread over the
    kernels at random, and the kernel with most of them sets the limit. A kernel may lose all its
    objects at any ratio that is large enough for it.

    *What the odds mean.* The odds are those among the pairs that are still there. With `keep_one`
    the classes become more alike as the ratio nears (K - 1)/K, where every object of a complete
    stack has one kernel left; without it the odds hold to the end.

    Examples
    --------
    >>> from mkmc_prob.stacks.stack import stack_kernels, visible_objects
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
    share = real_number(ratio)
    if share is None or not 0 <= share < 1:
        raise MKMCError(
            f"ratio: {ratio!r} is not a number in [0, 1). It is the share of the visible rows (or "
            "entries) to remove."
        )
    if seed is None:
        raise MKMCError(
            "seed: None draws differently each time, and ratios would not be nested. Pass an "
            "integer."
        )
    _check_options(protocol, of, {"batches": batches, "classes": classes, "odds": odds})
    removed = check_stack(stack)  # a copy
    rng = generator(seed)
    pairs = _visible_pairs(removed, batches, classes, odds)
    gone = rows_to_remove(pairs, share, rng, protocol=protocol, of=of, keep_one=keep_one)
    removed.values[pairs.kernels[gone], pairs.objects[gone], :] = np.nan
    removed.values[pairs.kernels[gone], :, pairs.objects[gone]] = np.nan
    return removed


def _check_options(protocol: str, of: str, given: dict[str, Any]) -> None:
    """Raise where a name is unknown, or an option is missing or would make no difference."""
    if protocol not in list(PROTOCOLS):
        raise MKMCError(
            f"protocol: {protocol!r} is none. Pass one of {name_some([*PROTOCOLS], 9)}."
        )
    if of not in ("rows", "entries"):
        raise MKMCError(f"of: {of!r} found. Pass 'rows' or 'entries', what the ratio counts.")
    needs = PROTOCOLS[protocol].needs
    for option, value in given.items():
        if value is None and option in needs:
            raise MKMCError(
                f"{option}: protocol {protocol!r} needs it. Pass {' and '.join(needs)}."
            )
        if value is not None and option not in needs:
            of_others = [name for name, other in PROTOCOLS.items() if option in other.needs]
            raise MKMCError(
                f"{option}: protocol {protocol!r} has no use for it. Leave it out, or pass "
                f"protocol={name_some(of_others)}."
            )


def _visible_pairs(
    stack: xr.DataArray,
    batches: "Batches | None",
    classes: "PerObject | None",
    odds: Mapping[Any, float] | None,
) -> Pairs:
    """Return the visible pairs of `stack`, with their units and odds."""
    labels = stack.indexes["object"].to_numpy()
    kernels, objects = np.nonzero(visible_objects(stack).values)
    units, weights = np.arange(len(objects)), np.ones(len(objects))
    if batches is not None:
        batch = _batch_per_object(batches, labels)
        blocks = kernels * len(labels) + batch[objects]
        units = np.unique(blocks, return_inverse=True)[1]
    if classes is not None and odds is not None:
        weights = _odds_per_object(classes, odds, labels)[objects]
    return Pairs(kernels, objects, units, weights)


def _batch_per_object(batches: Batches, objects: Labels) -> Indices:
    """Return the number of the batch that each object is in."""
    if isinstance(batches, xr.DataArray | pd.Series | Mapping):
        table = _table(batches, objects, "batches")
        return pd.factorize(np.fromiter((table[label] for label in objects.tolist()), object))[0]
    if real_number(batches) is None:
        raise LabelError(
            f"batches: {type(batches).__name__} found. Pass the batch of each object as a mapping, "
            "a pandas.Series or a DataArray labelled by object, or the size of consecutive batches."
        )
    return np.arange(len(objects)) // whole_number(batches, "batches", least=1)


def _odds_per_object(
    classes: PerObject, odds: Mapping[Any, float], objects: Labels
) -> NDArray[np.float64]:
    """Return the odds of each object's class."""
    table = _table(classes, objects, "classes")
    found = [table[label] for label in objects.tolist()]
    if not isinstance(odds, Mapping):
        raise MKMCError(f"odds: {odds!r} found. Pass a mapping from each class to a number > 0.")
    weights = {
        name: positive_number(value, f"odds of class {name!r}") for name, value in odds.items()
    }
    if unknown := [name for name in weights if name not in table.values()]:
        raise LabelError(
            f"odds: no object is of class {name_some(unknown)}; there are "
            f"{name_some(list(dict.fromkeys(found)))}. Leave it out, or mend its name."
        )
    for label, name in zip(objects.tolist(), found, strict=True):
        if name not in weights:
            raise LabelError(
                f"odds: none for class {name!r}, which object {label!r} is of. Add it."
            )
    return np.array([weights[name] for name in found])


def _table(given: Any, objects: Labels, what: str) -> dict[Hashable, Hashable]:
    """Return what `given` says of each object by label; raise where it leaves one out."""
    if isinstance(given, xr.DataArray) and given.ndim == 1 and given.indexes:
        given = given.to_series()
    if not isinstance(given, pd.Series | Mapping):
        raise LabelError(
            f"{what}: {type(given).__name__} without labels found. Pass a mapping, a pandas.Series "
            "or a one-dimensional DataArray labelled by object."
        )
    labels = as_labels(given.keys(), f"{what}, objects")
    values = [value for _, value in given.items()]
    table = dict(zip(labels.tolist(), values, strict=True))
    if (absent := objects[positions(objects, labels) < 0]).size:
        raise LabelError(f"{what}: none for object {name_some(absent)}. Add it.")
    for label in objects.tolist():
        value = table[label]
        if not isinstance(value, Hashable) or value is None or value != value:  # NaN
            raise LabelError(
                f"{what}: {value!r} for object {label!r}. Give each object text or a number."
            )
    return table
