"""What the pattern of visible objects leaves to the prior, and the warnings that say so."""

from collections.abc import Hashable

import numpy as np
import pandas as pd
import xarray as xr
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from ..errors import IdentifiabilityWarning, KernelError, warn
from .labels import name_some


def unseen_objects(visible: xr.DataArray) -> list[Hashable]:
    """Return the objects that are hidden in every kernel."""
    return visible["object"][~visible.any("kernel")].values.tolist()  # type: ignore[no-any-return]


def empty_kernels(visible: xr.DataArray) -> list[Hashable]:
    """Return the kernels in which no object is visible."""
    return visible["kernel"][~visible.any("object")].values.tolist()  # type: ignore[no-any-return]


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


def warn_of_what_is_not_identified(visible: xr.DataArray) -> None:
    """Warn of what only the prior determines; raise KernelError if no object is visible at all."""
    empty, unseen, groups = empty_kernels(visible), unseen_objects(visible), tied_groups(visible)
    if not groups:
        raise KernelError(
            f"stack: no object is visible in any kernel ({name_some(empty)}). There is "
            "nothing to complete the kernels from."
        )
    if empty:
        one = len(empty) == 1
        warn(
            f"{'kernel' if one else 'kernels'} {name_some(empty)} "
            f"{'shows no object: it is' if one else 'show no object: they are'} completed by the "
            "model matrix, which the other kernels determine.",
            IdentifiabilityWarning,
        )
    if unseen:
        one = len(unseen) == 1
        warn(
            f"{'object' if one else 'objects'} {name_some(unseen)} {'is' if one else 'are'} "
            f"missing in every kernel: {'it is' if one else 'they are'} completed from the prior "
            "alone. "
            "visible_objects(stack).any('kernel') shows which objects are visible in some kernel.",
            IdentifiabilityWarning,
        )
    if len(groups) > 1:
        named = "; ".join(f"({name_some(group, 3)})" for group in groups[:4])
        more = "" if len(groups) <= 4 else f" and {len(groups) - 4} more"
        warn(
            f"the objects fall into {len(groups)} groups that no kernel ties together: {named}"
            f"{more}. Entries between groups come from the prior alone. At the prior's values they "
            "can be a saddle point of the likelihood, and the values reached from another start "
            "are arbitrary, including their signs: see explore_maxima. If kernels should share "
            "objects, their labels may not match.",
            IdentifiabilityWarning,
        )
