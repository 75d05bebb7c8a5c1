"""What is read from the tree of a posterior: draws of the model matrix and of single entries."""

from typing import Any

import numpy as np
import xarray as xr

from .run import PosteriorRun


def posterior_models(tree: xr.DataTree) -> xr.DataArray:
    """Return the draws of the model matrix, dims ``(chain, draw, object, object_bis)``.

    They are made from the draws of its lower triangle: all draws if all entries are kept in full,
    otherwise those in ``thinned_posterior``.

    Raises
    ------
    MKMCError
        If the tree is not one that `sample_posterior` returned.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import stack_kernels
    >>> from mkmc_prob.posterior.sampling import sample_posterior
    >>> from mkmc_prob.posterior.tree import posterior_models
    >>> stack = stack_kernels(np.stack([np.eye(2)] * 2), visible=[[1, 1], [1, 0]])
    >>> options = dict(degrees_of_freedom=9, strength=10.0, draws=300, tune=100, seed=1)
    >>> tree = sample_posterior(stack, **options)
    >>> posterior_models(tree).sizes
    Frozen({'chain': 4, 'draw': 300, 'object': 2, 'object_bis': 2})
    """
    run = PosteriorRun.from_datatree(tree)
    group = tree["thinned_posterior" if run.plan.every else "posterior"].to_dataset()
    objects = run.stack["object"].values
    return xr.DataArray(
        run.entries.model_matrix(group["model"].values),
        {"chain": group["chain"], "draw": group["draw"], "object": objects, "object_bis": objects},
        ("chain", "draw", "object", "object_bis"),
        name="model",
    )


def posterior_entry(tree: xr.DataTree, entry: tuple[Any, ...]) -> xr.DataArray:
    """Return the draws of one entry, dims ``(chain, draw)``.

    All draws if the entry is kept in full (``keep=`` of `sample_posterior`), otherwise those in
    ``thinned_posterior``; then ``attrs["thinned"]`` says how many of how many they are.

    Parameters
    ----------
    tree
        What `sample_posterior` returned.
    entry
        ``(object, object)`` of the model, or ``(kernel, object, object)`` of a kernel; the objects
        in any order.

    Raises
    ------
    MKMCError
        If the tree is not one that `sample_posterior` returned.
    KernelError
        If the entry has another form, or is visible: a constant.
    LabelError
        If there is no such kernel or object.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import posterior_entry, sample_posterior, stack_kernels
    >>> stack = stack_kernels(np.stack([np.eye(2)] * 2), visible=[[1, 1], [1, 0]])
    >>> options = dict(degrees_of_freedom=9, strength=10.0, draws=300, tune=100, seed=1)
    >>> tree = sample_posterior(stack, **options)
    >>> draws = posterior_entry(tree, ("Q2", 0, 1))
    >>> draws.name, dict(draws.sizes)
    ('Q2, 1, 0', {'chain': 4, 'draw': 300})
    """
    run = PosteriorRun.from_datatree(tree)
    group, place = run.find(entry, "entry")
    values = run.draws(group, place)
    places = {"model": np.empty(0, int), "hidden": np.empty(0, int)} | {group: np.array([place])}
    label = run.entries.labels(**places)[f"{group}_entry"].item()
    thinned = values.shape[1] < run.chains.drawn
    draws = tree["thinned_posterior" if thinned else "posterior"]["draw"]
    found = xr.DataArray(
        values, {"chain": tree["posterior"]["chain"], "draw": draws}, ("chain", "draw"), label
    )
    if thinned:
        found.attrs["thinned"] = (
            f"{found.size} of {len(run.starts) * run.chains.drawn} draws, evenly spaced, from "
            "thinned_posterior; keep=[entry] of sample_posterior keeps all"
        )
    return found
