"""The tree of a posterior: ArviZ's groups and this package's own.

Enters: a run of chains, finished or not. Leaves: an `xarray.DataTree` that holds all of it;
`posterior_run` leads back.
"""

import json
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..stacks.labels import Labels
from ..stacks.matrix import labelled
from ..stacks.stack import visible_objects
from ..utils.version import __version__
from .chains import Moments
from .entries import Entries, Places
from .run import LAYOUT, Run, joined, run_of

QUANTILES = (0.05, 0.5, 0.95)


def tree_of(run: Run, *, interrupted: bool) -> xr.DataTree:
    """Return everything that a run has, as `sample_posterior` describes it."""
    stack, sampler, entries, plan = run.stack, run.sampler, run.entries, run.plan
    names, objects = stack["kernel"].values, stack["object"].values
    chains = [joined(chain) for chain in run.chains]
    sampled = {
        "chain": np.arange(len(chains)),
        "draw": np.arange(len(chains[0].lp)),
    }
    model = np.stack([block.model for block in chains])
    hidden = np.stack([block.hidden for block in chains])
    labels = entries.labels(plan.model, plan.hidden)
    constants: dict[str, Any] = {
        "visible": visible_objects(stack),
        "degrees_of_freedom": xr.DataArray(
            sampler.em.degrees_of_freedom, dims="kernel", coords={"kernel": names}
        ),
        "rank": xr.DataArray(sampler.ranks, dims="kernel", coords={"kernel": names}),
        "strength": sampler.em.prior.strength,
    }
    if sampler.em.prior.scale is not None:
        constants["scale"] = labelled(sampler.em.prior.scale_matrix(objects), objects, "scale")
    of_chain = {
        "drawn": ("chain", [chain.state.drawn for chain in run.chains]),
        "factor": (("chain", "row", "column"), np.stack([c.state.factor for c in run.chains])),
        "random": ("chain", [json.dumps(chain.state.random) for chain in run.chains]),
    }
    groups = {
        "posterior": _posterior(labels, {"model": model, "hidden": hidden}, sampled),
        "sample_stats": xr.Dataset(
            {"lp": (("chain", "draw"), np.stack([block.lp for block in chains]))}, coords=sampled
        ),
        "observed_data": xr.Dataset({"kernels": stack}),
        "constant_data": xr.merge([xr.Dataset(constants), *labels.values()]),
        "start": xr.Dataset(
            {
                "model": (
                    ("chain", "object", "object_bis"),
                    run.starts @ run.starts.swapaxes(1, 2),
                ),
                "factor": (("chain", "row", "column"), run.starts),
            },
            coords={"chain": sampled["chain"], "object": objects, "object_bis": objects},
        ),
    }
    if plan.every:
        thinned = np.stack([np.stack(block.thinned) for block in chains])
        moments = [chain.moments for chain in run.chains]
        # Without labels, which would take as much as the draws: in the order of `Entries`.
        groups["thinned_posterior"] = xr.Dataset(
            {
                "model": (("chain", "draw", "place"), thinned[..., : entries.size_model]),
                "hidden": (("chain", "draw", "hidden_place"), thinned[..., entries.size_model :]),
            },
            coords={
                "chain": sampled["chain"],
                "draw": sampled["draw"][:: plan.every],
            },
        )
        of_chain["mean"] = ("chain", "place"), np.stack([m.mean for m in moments])
        of_chain["squares"] = ("chain", "place"), np.stack([m.squares for m in moments])
        mean, sd, quantiles = _summaries(moments, thinned)
    else:
        everything = np.concatenate([model, hidden], axis=2)
        mean = everything.mean(axis=(0, 1))
        sd = everything.std(axis=(0, 1), ddof=1)
        quantiles = np.quantile(everything, QUANTILES, axis=(0, 1))
    groups["posterior_summary"] = _summary_of(entries, stack, mean, sd, quantiles)
    groups["state"] = xr.Dataset(of_chain, coords={"chain": sampled["chain"]})
    tree = xr.DataTree.from_dict(groups)
    tree.attrs = {
        "inference_library": "mkmc_prob",
        "inference_library_version": __version__,
        "mkmc_prob_posterior_layout": LAYOUT,
        "interrupted": int(interrupted),
        "every": plan.every,
        "quantile_draws": run.most,
    }
    return tree


def posterior_models(tree: xr.DataTree) -> xr.DataArray:
    """Return the draws of the model matrix, dims ``(chain, draw, object, object_bis)``.

    All of them where all entries are kept, else those of ``thinned_posterior``; made from the
    posterior draws of its lower triangle.

    Raises
    ------
    MKMCError
        Where the tree is not one that `sample_posterior` returned.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import stack_kernels
    >>> from mkmc_prob.posterior.sampling import sample_posterior
    >>> from mkmc_prob.posterior.tree import posterior_models
    >>> stack = stack_kernels(np.stack([np.eye(2)] * 2), visible=[[1, 1], [1, 0]])
    >>> tree = sample_posterior(stack, degrees_of_freedom=9, strength=2.0, draws=2000, seed=1)
    >>> posterior_models(tree).sizes
    Frozen({'chain': 4, 'draw': 2000, 'object': 2, 'object_bis': 2})
    """
    run = run_of(tree)
    group = tree["thinned_posterior" if run.plan.every else "posterior"].to_dataset()
    objects = run.stack["object"].values
    return xr.DataArray(
        run.entries.model_matrix(group["model"].values),
        dims=("chain", "draw", "object", "object_bis"),
        coords={
            "chain": group["chain"],
            "draw": group["draw"],
            "object": objects,
            "object_bis": objects,
        },
        name="model",
    )


def posterior_entry(tree: xr.DataTree, entry: tuple[Any, ...]) -> xr.DataArray:
    """Return the draws of one entry, dims ``(chain, draw)``.

    All of them where it is kept in full (``keep=`` of `sample_posterior`), else those of
    ``thinned_posterior``: ``attrs["thinned"]``, which is there only then, says how many of how
    many.

    Parameters
    ----------
    tree
        What `sample_posterior` returned.
    entry
        ``(object, object)`` of the model, ``(kernel, object, object)`` of a kernel; the objects in
        any order.

    Raises
    ------
    MKMCError
        Where the tree is not one that `sample_posterior` returned.
    KernelError
        Where the entry has another form, or is visible: a constant.
    LabelError
        Where there is no such kernel or object.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import posterior_entry, sample_posterior, stack_kernels
    >>> stack = stack_kernels(np.stack([np.eye(2)] * 2), visible=[[1, 1], [1, 0]])
    >>> tree = sample_posterior(stack, degrees_of_freedom=9, strength=2.0, draws=2000, seed=1)
    >>> draws = posterior_entry(tree, ("Q2", 0, 1))
    >>> draws.name, dict(draws.sizes)
    ('Q2, 1, 0', {'chain': 4, 'draw': 2000})
    """
    run = run_of(tree)
    places = run.entries.find([entry], "entry")
    group = "model" if len(places[0]) else "hidden"
    found = draws_of(tree, run, group, int(np.concatenate(places)[0]))
    text = run.entries.labels(*places)[group][f"{group}_entry"].values[0]
    drawn = run.chains[0].state.drawn
    if found.sizes["draw"] < drawn:
        found = found.assign_attrs(
            thinned=f"{found.size} of {len(run.chains) * drawn} draws, evenly spaced, from "
            "thinned_posterior; keep=[entry] of sample_posterior keeps all"
        )
    return found.rename(str(text))


def draws_of(tree: xr.DataTree, run: Run, group: str, place: int) -> xr.DataArray:
    """Return the draws of an entry by its place: all where they are kept, else the thinned."""
    kept: Places = getattr(run.plan, group)
    at = int(np.searchsorted(kept, place))
    whole = at < len(kept) and kept[at] == place
    draws = tree["posterior" if whole else "thinned_posterior"].to_dataset()[group]
    return draws[:, :, at if whole else place].reset_coords(drop=True)


def _posterior(
    labels: dict[str, xr.Dataset], draws: dict[str, NDArray[np.float64]], sampled: dict[str, Any]
) -> xr.Dataset:
    """Return the draws that are kept, labelled; without a variable that has no entries."""
    kept = xr.Dataset(coords=sampled)
    for name, values in draws.items():
        if values.shape[2]:
            dim = f"{name}_entry"
            kept = kept.assign({name: (("chain", "draw", dim), values)})
            # Only these: further coordinates of one variable stop ArviZ's summary of all.
            kept = kept.assign_coords({dim: labels[name][dim]})
    return kept


def _summary_of(
    entries: Entries,
    stack: xr.DataArray,
    mean: NDArray[np.float64],
    sd: NDArray[np.float64],
    quantiles: NDArray[np.float64],
) -> xr.Dataset:
    """Return every entry's mean, sd and quantiles as matrices, and what the data say of it."""
    cut = entries.size_model
    shown = stack.values
    kernels, pair = ("kernel", "object", "object_bis"), ("object", "object_bis")
    of_model, of_kernels = entries.has_variance
    objects: Labels = stack["object"].values
    hidden = np.isnan(shown)
    return xr.Dataset(
        {
            "model_mean": (pair, entries.model_matrix(mean[:cut])),
            "model_sd": (pair, np.where(of_model, entries.model_matrix(sd[:cut]), np.inf)),
            "model_quantile": (("quantile", *pair), entries.model_matrix(quantiles[:, :cut])),
            "model_prior_only": (pair, entries.prior_only),
            "model_has_variance": (pair, of_model),
            "completed_mean": (kernels, entries.kernel_matrices(mean[cut:], shown)),
            "completed_sd": (
                kernels,
                np.where(of_kernels, entries.kernel_matrices(sd[cut:], 0.0), np.inf),
            ),
            "completed_quantile": (
                ("quantile", *kernels),
                entries.kernel_matrices(quantiles[:, cut:], shown),
            ),
            "completed_prior_only": (kernels, hidden & entries.prior_only),
            "completed_has_variance": (kernels, of_kernels),
        },
        coords={
            "kernel": stack["kernel"].values,
            "object": objects,
            "object_bis": objects,
            "quantile": list(QUANTILES),
        },
    )


def _summaries(
    moments: list[Moments], thinned: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return means, sds and quantiles of all entries: by running moments and by thinned draws."""
    whole = moments[0]
    for other in moments[1:]:
        whole = whole.merged(other)
    sd = np.sqrt(whole.squares / (whole.number - 1))
    return whole.mean, sd, np.quantile(thinned, QUANTILES, axis=(0, 1))
