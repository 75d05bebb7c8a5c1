"""What the data do not determine, seen from the pattern of visible objects alone.

Enters: a (kernel, object) visibility. Leaves: the objects that no kernel shows, the kernels that
show nothing, the groups of objects that no kernel ties together; and the warnings that name them.
"""

from collections.abc import Hashable

import numpy as np
import xarray as xr
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from ..errors import IdentifiabilityWarning, KernelError, warn
from .labels import name_some


def unseen_objects(visible: xr.DataArray) -> list[Hashable]:
    """Return the objects that are hidden in every kernel."""
    unseen = ~visible.transpose("kernel", "object").values.any(axis=0)
    return visible["object"].values[unseen].tolist()  # type: ignore[no-any-return]


def empty_kernels(visible: xr.DataArray) -> list[Hashable]:
    """Return the kernels that show no object."""
    empty = ~visible.transpose("kernel", "object").values.any(axis=1)
    return visible["kernel"].values[empty].tolist()  # type: ignore[no-any-return]


def tied_groups(visible: xr.DataArray) -> list[list[Hashable]]:
    """Return the groups of visible objects that chains of kernels tie together, largest first.

    Two objects are tied where a kernel shows both; groups are the connected components of that
    relation (of the bipartite graph of kernels and objects).

    Examples
    --------
    >>> import xarray as xr
    >>> from mkmc_prob.stacks.pattern import tied_groups
    >>> seen = xr.DataArray([[1, 1, 0], [0, 0, 1]], dims=("kernel", "object"),
    ...                     coords={"kernel": ["a", "b"], "object": ["x", "y", "z"]})
    >>> tied_groups(seen.astype(bool))
    [['x', 'y'], ['z']]
    """
    seen = visible.transpose("kernel", "object").values
    kernels, objects = seen.shape
    k, i = np.nonzero(seen)
    edges = csr_array((np.ones(len(k)), (k, kernels + i)), shape=(kernels + objects,) * 2)
    _, component = connected_components(edges, directed=False)
    labels = visible["object"].values
    groups = [
        labels[(component[kernels:] == c) & seen.any(axis=0)].tolist()
        for c in np.unique(component[kernels + i])
    ]
    return sorted(groups, key=len, reverse=True)


def _nouns(noun: str, labels: list[Hashable]) -> str:
    """Return `labels` with what they are, one or several, for a message."""
    return f"{noun if len(labels) == 1 else noun + 's'} {name_some(labels)}"


def warn_of_what_is_not_identified(visible: xr.DataArray) -> None:
    """Warn of unseen objects, empty kernels and untied groups; raise where nothing is visible."""
    empty, unseen, groups = empty_kernels(visible), unseen_objects(visible), tied_groups(visible)
    if not groups:
        raise KernelError(
            f"stack: no object is visible in any kernel ({name_some(empty)}). There is nothing to "
            "complete from."
        )
    messages = []
    if empty:
        shows = "shows no object: it is" if len(empty) == 1 else "show no object: they are"
        messages.append(
            f"{_nouns('kernel', empty)} {shows} completed by the model matrix, which the other "
            "kernels determine."
        )
    if unseen:
        verb, pronoun = ("is", "it is") if len(unseen) == 1 else ("are", "they are")
        messages.append(
            f"{_nouns('object', unseen)} {verb} missing in every kernel: {pronoun} left out of the "
            "iterations and filled in from the prior alone. "
            "visible_objects(stack).any('kernel') tells which objects some kernel does show."
        )
    if len(groups) > 1:
        named = "; ".join(f"({name_some(group, 3)})" for group in groups[:4])
        more = "" if len(groups) <= 4 else f" and {len(groups) - 4} more"
        messages.append(
            f"the objects fall into {len(groups)} groups that no kernel ties together: {named}"
            f"{more}. Entries between groups come from the prior alone. Left at what it says they "
            "can be a saddle of the likelihood, and what another start finds there is arbitrary, "
            "to its sign: see explore_maxima. If kernels should share objects, their labels may "
            "not match."
        )
    for message in messages:
        warn(message, IdentifiabilityWarning)
