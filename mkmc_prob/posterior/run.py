"""`PosteriorRun`: chains, what they sample and what was drawn, as an `xarray.DataTree` and back."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..em.em import EM
from ..em.problem import Problem
from ..errors import MKMCError
from ..model.prior import WishartPrior
from ..model.structures import structure_of
from ..stacks.labels import with_labels
from ..stacks.matrix import labelled
from ..stacks.stack import visible_objects
from ..utils.version import __version__
from .chains import Chains, Draws, Moments, Plan, State
from .entries import Entries, Places
from .sampler import Parameters, Sampler
from .samplers import sampler_of

#: The version of the layout of the trees: 1 had no sources.
LAYOUT, FIRST_LAYOUT = 2, 1
QUANTILES = (0.05, 0.5, 0.95)


@dataclass
class PosteriorRun:
    """A run of chains: what they sample, what is kept, and what was drawn."""

    stack: xr.DataArray
    sampler: Sampler
    entries: Entries
    plan: Plan
    #: The most draws of all entries that are kept over all chains, unless all draws are.
    most: int
    starts: list[Parameters]
    chains: Chains
    interrupted: bool = False

    def find(self, entry: Any, what: str) -> tuple[str, int]:
        """Return the group of an entry, ``"model"`` or ``"hidden"``, and its place there."""
        places = self.entries.find([entry], what)
        return "model" if len(places[0]) else "hidden", int(np.concatenate(places)[0])

    def draws(self, group: str, place: int) -> NDArray[np.float64]:
        """Return the draws of an entry, shape (chains, draws): all, or else the thinned ones."""
        kept: Places = getattr(self.plan, group)
        at = int(np.searchsorted(kept, place))
        if at < len(kept) and kept[at] == place:
            draws: NDArray[np.float64] = getattr(self.chains.draws, group)[:, :, at]
            return draws
        place += self.entries.size_model if group == "hidden" else 0
        return self.chains.draws.thinned[:, :, place]

    def thin(self, length: int) -> None:
        """Thin the draws of all entries further, for chains of `length` draws in all."""
        times = 1
        while -(-length // (self.plan.every * times)) > self.most // len(self.starts):
            times *= 2
        self.plan = self.plan._replace(every=self.plan.every * times)
        draws = self.chains.draws
        thinned = draws._replace(thinned=draws.thinned[:, ::times])
        self.chains = self.chains._replace(blocks=[thinned])

    def to_datatree(self) -> xr.DataTree:
        """Return the whole run, as `sample_posterior` describes it."""
        em, plan, draws = self.sampler.em, self.plan, self.chains.draws
        self.chains = self.chains._replace(blocks=[draws])  # which frees the separate blocks
        objects = self.stack["object"].values
        chain = {"chain": np.arange(len(self.starts))}
        sampled = chain | {"draw": np.arange(self.chains.drawn)}
        pairs: dict[str, Any] = {"object": objects, "object_bis": objects}
        labels = self.entries.labels(plan.model, plan.hidden)
        posterior = xr.Dataset(coords=sampled)
        for name, values in (("model", draws.model), ("hidden", draws.hidden)):
            if values.size:  # ArviZ takes no variable without entries
                posterior[name] = (("chain", "draw", f"{name}_entry"), values)
                # The label alone: further coordinates of one variable stop ArviZ's summary.
                posterior[f"{name}_entry"] = labels[f"{name}_entry"]
        names = self.stack["kernel"].values
        if draws.constant.size:
            posterior["constant"] = ("chain", "draw", "kernel"), draws.constant
            posterior["kernel"] = names[em.sources.is_estimated]
        constants = labels.assign(
            visible=visible_objects(self.stack),
            degrees_of_freedom=("kernel", em.degrees_of_freedom),
            rank=("kernel", self.sampler.ranks),
            strength=em.prior.strength,
        )
        if em.prior.scale is not None and not em.sources.shared_constant:
            constants["scale"] = labelled(em.prior.scale_matrix(objects), objects, "scale")
        lp = ("chain", "draw"), draws.lp
        states = self.chains.states
        state = {
            "drawn": ("chain", np.array([own.drawn for own in states])),
            "random": ("chain", np.array([json.dumps(own.random) for own in states])),
            **_variables([own.parameters for own in states]),
        }
        models = np.stack([self.sampler.model_at(own).matrix for own in self.starts])
        start = {"model": (("chain", *pairs), models), **_variables(self.starts)}
        groups = {
            "posterior": posterior,
            "sample_stats": xr.Dataset({"lp": lp}, coords=sampled),
            "observed_data": xr.Dataset({"kernels": self.stack}),
            "constant_data": constants,
            "sources": em.sources.dataset.assign_coords(kernel=names),
            "start": xr.Dataset(start, coords=chain | pairs),
        }
        if plan.every:
            values = draws.thinned
            for name in ("mean", "squares"):
                own = np.stack([getattr(moments, name) for moments in self.chains.moments])
                state[name] = ("chain", "place"), own
            moments = reduce(Moments.merged, self.chains.moments)
            mean, sd = moments.mean, np.sqrt(moments.squares / (moments.number - 1))
            # Without labels, which would take as much memory as the draws: in the order of Entries.
            model, hidden = np.split(values, [self.entries.size_model], axis=2)
            groups["thinned_posterior"] = xr.Dataset(
                {
                    "model": (("chain", "draw", "place"), model),
                    "hidden": (("chain", "draw", "hidden_place"), hidden),
                },
                coords=chain | {"draw": sampled["draw"][:: plan.every]},
            )
        else:
            values = np.concatenate([draws.model, draws.hidden], axis=2)
            mean, sd = values.mean(axis=(0, 1)), values.std(axis=(0, 1), ddof=1)
        quantiles = np.quantile(values, QUANTILES, axis=(0, 1))
        summary = self._summary(np.stack([mean, sd, *quantiles]))
        groups["posterior_summary"] = summary.assign_coords(
            kernel=names, quantile=list(QUANTILES), **pairs
        )
        groups["state"] = xr.Dataset(state, coords=chain)
        tree = xr.DataTree.from_dict(groups)
        tree.attrs = {
            "inference_library": "mkmc_prob",
            "inference_library_version": __version__,
            "mkmc_prob_posterior_layout": LAYOUT,
            "interrupted": int(self.interrupted),
            "every": plan.every,
            "quantile_draws": self.most,
            "structure": em.structure.name,
        }
        return tree

    def _summary(self, values: NDArray[np.float64]) -> xr.Dataset:
        """Return mean, sd and quantiles of all entries as matrices, and what the data say of each.

        `values` has them along its first axis.
        """
        entries, observed = self.entries, self.stack.values
        cut, hidden = entries.size_model, np.isnan(observed)
        of_model, of_kernels = entries.has_variance
        model = entries.model_matrix(values[:, :cut])
        completed = entries.kernel_matrices(values[:, cut:], observed)
        completed[1][~hidden] = 0.0
        pair = ("object", "object_bis")
        summary: dict[str, Any] = {}
        tied = entries.prior_only
        for name, dims, found, alone, exists in (
            ("model", pair, model, tied[0], of_model),
            ("completed", ("kernel", *pair), completed, hidden & tied[1], of_kernels),
        ):
            found[1][~exists] = np.inf
            summary[f"{name}_mean"] = dims, found[0]
            summary[f"{name}_sd"] = dims, found[1]
            summary[f"{name}_quantile"] = ("quantile", *dims), found[2:]
            summary[f"{name}_prior_only"] = dims, alone
            summary[f"{name}_has_variance"] = dims, exists
        if self.sampler.em.sources.is_estimated.any():
            summary |= self._summary_of_constants()
        return xr.Dataset(summary)

    def _summary_of_constants(self) -> dict[str, Any]:
        """Return mean, sd and quantiles of the constants; those that are held have sd 0.

        The density of c falls as c^-(3 + nu) / 2, so that a mean needs nu > 1, a variance nu > 3.
        """
        em, draws = self.sampler.em, self.chains.draws.constant
        drawn, degrees = em.sources.is_estimated, em.degrees_of_freedom[em.sources.is_estimated]
        mean, sd = em.sources.constant.copy(), np.zeros(len(drawn))
        quantiles = np.tile(mean, (len(QUANTILES), 1))
        exists = np.ones(len(drawn), dtype=bool)
        mean[drawn] = np.where(degrees > 1.0, draws.mean(axis=(0, 1)), np.inf)
        exists[drawn] = degrees > 3.0
        sd[drawn] = np.where(exists[drawn], draws.std(axis=(0, 1), ddof=1), np.inf)
        quantiles[:, drawn] = np.quantile(draws, QUANTILES, axis=(0, 1))
        return {
            "constant_mean": ("kernel", mean),
            "constant_sd": ("kernel", sd),
            "constant_quantile": (("quantile", "kernel"), quantiles),
            "constant_has_variance": ("kernel", exists),
        }

    @classmethod
    def from_datatree(cls, tree: xr.DataTree) -> "PosteriorRun":
        """Return the run that `to_datatree` made `tree` of.

        Raises
        ------
        MKMCError
            If the tree is another one, or was changed: it does not hold all draws, for instance.
        """
        attrs: dict[Any, Any] = tree.attrs if isinstance(tree, xr.DataTree) else {}
        layout: Any = attrs.get("mkmc_prob_posterior_layout")
        if np.ndim(layout) or layout not in (FIRST_LAYOUT, LAYOUT):
            raise MKMCError(
                f"not a posterior of this version of mkmc_prob (layout {LAYOUT}). Pass what "
                "sample_posterior returns or load_posterior reads."
            )
        try:
            return cls._from_datatree(tree)
        except Exception as error:  # what was changed or damaged can raise nearly anything
            what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise MKMCError(
                f"the posterior is damaged, or not whole: {what}. Pass the whole tree that "
                "sample_posterior returned, and select from its groups."
            ) from error

    @classmethod
    def _from_datatree(cls, tree: xr.DataTree) -> "PosteriorRun":
        constants = with_labels(tree["constant_data"].to_dataset())
        state = tree["state"].to_dataset()
        observed = with_labels(tree["observed_data"].to_dataset())["kernels"]
        prior = WishartPrior(float(constants["strength"]), constants.get("scale"))
        sources = None
        if tree.attrs["mkmc_prob_posterior_layout"] != FIRST_LAYOUT:
            sources = with_labels(tree["sources"].to_dataset())
        degrees, structure = constants["degrees_of_freedom"], tree.attrs.get("structure", "full")
        problem = Problem.of(observed, prior, degrees, sources, structure=structure_of(structure))
        stack, em = problem.stack.array, EM.of(problem)
        entries = Entries(em)
        every, most, interrupted = (
            int(tree.attrs[name]) for name in ("every", "quantile_draws", "interrupted")
        )
        plan = Plan(*_places(entries, constants), every=every)
        (drawn,) = set(state["drawn"].values.tolist())
        count = state.sizes["chain"]
        if most < count or every < 0 or bool(every) != ("thinned_posterior" in tree):
            raise ValueError("every, quantile_draws")

        def numbers(path: str, *shape: int) -> NDArray[np.float64]:
            if not shape[-1]:  # there is no variable of no entries
                return np.empty((count, *shape))
            values: NDArray[Any] = tree[path].to_numpy()
            if values.shape != (count, *shape):
                raise ValueError(f"{path} has shape {values.shape}, not {(count, *shape)}")
            if values.dtype.kind != "f" or not np.isfinite(values).all():
                raise ValueError(f"{path} does not hold finite numbers only")
            return np.asarray(values, dtype=np.float64)

        lp = numbers("sample_stats/lp", drawn)
        model = numbers("posterior/model", drawn, len(plan.model))
        hidden = numbers("posterior/hidden", drawn, len(plan.hidden))
        constant = numbers("posterior/constant", drawn, int(em.sources.is_estimated.sum()))
        sampler = sampler_of(em)
        shapes = sampler.shapes
        current, starts = (
            [dict(zip(shapes, own, strict=True)) for own in zip(*found, strict=True)]
            for found in (
                [numbers(f"{group}/{name}", *shape) for name, shape in shapes.items()]
                for group in ("state", "start")
            )
        )
        sizes = (entries.size_model, entries.size_hidden) if every else (0, 0)
        number = -(-drawn // max(every, 1))
        thinned = [
            numbers(f"thinned_posterior/{name}", number, own)
            for name, own in zip(("model", "hidden"), sizes, strict=True)
        ]
        means, squares = (numbers(f"state/{name}", sum(sizes)) for name in ("mean", "squares"))
        number = drawn if every else 0
        moments = [Moments(number, *own) for own in zip(means, squares, strict=True)]
        states = []
        for own, text in zip(current, state["random"].values.tolist(), strict=True):
            np.random.PCG64().state = json.loads(text)  # raises if it is no state
            states.append(State(own, json.loads(text), drawn))
        chains = Chains(
            states, moments, [Draws(lp, model, hidden, constant, np.concatenate(thinned, axis=2))]
        )
        return cls(stack, sampler, entries, plan, most, starts, chains, bool(interrupted))


def _variables(parameters: list[Parameters]) -> dict[str, Any]:
    """Return the parameters of the chains as variables of a Dataset."""
    dims: dict[str, tuple[str, ...]] = {"factor": ("row", "column"), "constant": ("kernel",)}
    dims |= {"loadings": ("row", "column"), "noise": ("row",)}
    return {
        name: (("chain", *dims[name]), np.stack([own[name] for own in parameters]))
        for name in parameters[0]
    }


def _places(entries: Entries, constants: xr.Dataset) -> tuple[Places, Places]:
    """Return which entries are kept in full."""
    if constants.sizes["model_entry"] + constants.sizes["hidden_entry"] == entries.size:
        return entries.spread(entries.size)

    def named(*columns: str) -> Iterable[Any]:
        return zip(*(constants[column].values.tolist() for column in columns), strict=True)

    model = named("model_object", "model_object_bis")
    return entries.find([*model, *named("hidden_kernel", "hidden_object", "hidden_object_bis")])
