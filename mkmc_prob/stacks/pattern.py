"""What the pattern of visible objects leaves to the prior, and the warning that says so."""

from collections.abc import Hashable

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from ..errors import IdentifiabilityWarning, KernelError, warn
from .labels import name_some
from .pairs import count_of_unseen_pairs, number_of_pairs


def unseen_objects(visible: xr.DataArray) -> list[Hashable]:
    """Return the objects that are hidden in every kernel."""
    return visible["object"][~visible.any("kernel")].values.tolist()  # type: ignore[no-any-return]


def empty_kernels(visible: xr.DataArray) -> list[Hashable]:
    """Return the kernels in which no object is visible."""
    return visible["kernel"][~visible.any("object")].values.tolist()  # type: ignore[no-any-return]


def related(visible: xr.DataArray, sharing: NDArray[np.float64]) -> xr.DataArray:
    """Return the rows of the kernels that share anything with the others; all if none does."""
    shares = np.asarray(sharing) > 0.0
    return visible.isel(kernel=shares) if shares.any() else visible


def tied_groups(visible: xr.DataArray) -> list[list[Hashable]]:
    """Return the groups of visible objects that chains of kernels connect, largest first.

    Two objects are connected if both are visible in some kernel; groups are the connected
    components of the bipartite graph of kernels and objects.

    Examples
    --------
    >>> import xarray as xr
    >>> from mkmc_prob.stacks.pattern import tied_groups
    >>> visible = xr.DataArray([[1, 1, 0], [0, 0, 1]], dims=("kernel", "object"),
    ...                        coords={"kernel": ["a", "b"], "object": ["x", "y", "z"]})
    >>> tied_groups(visible.astype(bool))
    [['x', 'y'], ['z']]
    """
    table = visible.transpose("kernel", "object").values
    kernels, objects = table.shape
    k, i = np.nonzero(table)
    edges = csr_array((np.ones(len(k)), (k, kernels + i)), shape=(kernels + objects,) * 2)
    _, component = connected_components(edges, directed=False)
    visible_in_some = np.unique(i)
    labels = pd.Series(visible["object"].values[visible_in_some], dtype=object)
    groupby = labels.groupby(component[kernels + visible_in_some])
    groups = [group.tolist() for _, group in groupby]
    return sorted(groups, key=len, reverse=True)


def group_numbers(groups: list[list[Hashable]], objects: NDArray[np.generic]) -> NDArray[np.intp]:
    """Return the number of the group of each object, -1 for objects that are in none."""
    numbers = {label: number for number, group in enumerate(groups) for label in group}
    return np.array([numbers.get(label, -1) for label in objects.tolist()], dtype=np.intp)


def pairs_between(groups: list[list[Hashable]], size: int) -> int:
    """Return how many pairs of `size` objects are not within a group: no kernels connect them."""
    return number_of_pairs(size) - sum(number_of_pairs(len(group)) for group in groups)


def named_groups(groups: list[list[Hashable]]) -> str:
    """Return the groups as text for a message: the first labels of the first groups."""
    named = "; ".join(f"({name_some(group, 3)})" for group in groups[:4])
    return named if len(groups) <= 4 else f"{named} and {len(groups) - 4} more"


def need_visible(visible: xr.DataArray) -> None:
    """Raise KernelError if no object is visible in any kernel."""
    if not visible.values.any():
        raise KernelError(
            f"stack: no object is visible in any kernel ({name_some(empty_kernels(visible))}). "
            "There is nothing to complete the kernels from."
        )


def warn_of_what_is_not_identified(
    visible: xr.DataArray, sharing: NDArray[np.float64] | None = None
) -> None:
    """Give one warning of what the kernels leave to the prior, if there is anything.

    `sharing` is that of the kernels in order, 1 if left out. Raise KernelError if no object is
    visible at all.
    """
    visible = visible.transpose("kernel", "object")
    need_visible(visible)
    sharing = np.ones(visible.sizes["kernel"]) if sharing is None else np.asarray(sharing)
    showing = related(visible, sharing)
    groups, empty = tied_groups(showing), empty_kernels(visible)
    unseen, alone = unseen_objects(visible), unseen_objects(showing)
    sentences = []
    if empty:
        one = len(empty) == 1
        sentences.append(
            f"{'kernel' if one else 'kernels'} {name_some(empty)} "
            f"{'shows no object: it is' if one else 'show no object: they are'} completed by the "
            "model matrix, which the other kernels determine."
        )
    if unseen:
        one = len(unseen) == 1
        sentences.append(
            f"{'object' if one else 'objects'} {name_some(unseen)} {'is' if one else 'are'} "
            f"missing in every kernel: {'it is' if one else 'they are'} completed from the prior "
            "alone."
        )
    if len(alone) > len(unseen):
        hidden = set(unseen)
        only = [label for label in alone if label not in hidden]
        sentences.append(
            f"{'object' if len(only) == 1 else 'objects'} {name_some(only)} "
            f"{'is' if len(only) == 1 else 'are'} visible only in kernels that share nothing with "
            f"the others ({name_some(visible['kernel'].values[sharing == 0.0])}): the "
            "corresponding rows of the other kernels come from the prior alone."
        )
    if len(groups) > 1:
        sentences.append(
            f"the objects fall into {len(groups)} groups that no kernel ties together: "
            f"{named_groups(groups)}. Entries between groups come from the prior alone; the values "
            "reached from another start can be arbitrary, including their signs (see "
            "explore_maxima). If kernels should share objects, their labels may not match."
        )
    if never := count_of_unseen_pairs(showing):
        pairs = number_of_pairs(showing.sizes["object"])
        sentences.append(
            f"{never} of {pairs} pairs of objects {'is' if never == 1 else 'are'} never observed "
            "together: the kernels only bound their entries. See result.unseen_pairs()."
        )
    if sentences:
        first, *others = sentences
        text = " ".join([first, *(sentence[0].upper() + sentence[1:] for sentence in others)])
        warn(text, IdentifiabilityWarning)
