"""`PosteriorRun`: chains, what they sample and what was drawn, as an `xarray.DataTree` and back."""

import json
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..em.em import EM
from ..errors import MKMCError
from ..linalg.symmetric import Matrix
from ..model.prior import WishartPrior
from ..stacks.labels import with_labels
from ..stacks.matrix import labelled
from ..stacks.stack import check_stack, visible_objects
from ..utils.version import __version__
from .chains import Chain, Draws, Moments, Plan, State
from .entries import Entries, Places
from .gibbs import GibbsSampler

#: The version of the layout of the trees.
LAYOUT = 1
QUANTILES = (0.05, 0.5, 0.95)
GROUPS = ("model", "hidden")


@dataclass
class PosteriorRun:
    """A run of chains: what they sample, what is kept, and what was drawn."""

    stack: xr.DataArray
    sampler: GibbsSampler
    entries: Entries
    plan: Plan
    #: The most draws of all entries that are kept over all chains, unless all draws are.
    most: int
    starts: Matrix
    chains: list[Chain]
    interrupted: bool = False

    @property
    def drawn(self) -> int:
        """How many draws each chain has."""
        return self.chains[0].state.drawn

    def find(self, entry: Any, what: str) -> tuple[str, int]:
        """Return the group of an entry, ``"model"`` or ``"hidden"``, and its place there."""
        places = self.entries.find([entry], what)
        return "model" if len(places[0]) else "hidden", int(np.concatenate(places)[0])

    def draws(self, group: str, place: int) -> NDArray[np.float64]:
        """Return the draws of an entry, shape (chains, draws): all, or else the thinned ones."""
        kept: Places = getattr(self.plan, group)
        at = int(np.searchsorted(kept, place))
        if at < len(kept) and kept[at] == place:
            return np.stack([getattr(chain.draws, group)[:, at] for chain in self.chains])
        place += self.entries.size_model if group == "hidden" else 0
        return np.stack([chain.draws.thinned[:, place] for chain in self.chains])

    def thin(self, draws: int) -> None:
        """Thin the draws of all entries further, for chains of `draws` draws in all."""
        times = 1
        while -(-draws // (self.plan.every * times)) > self.most // len(self.chains):
            times *= 2
        self.plan = self.plan._replace(every=self.plan.every * times)
        kept = [chain.draws for chain in self.chains]
        self.chains = [
            chain._replace(blocks=(own._replace(thinned=own.thinned[::times]),))
            for chain, own in zip(self.chains, kept, strict=True)
        ]

    def to_datatree(self) -> xr.DataTree:
        """Return the whole run, as `sample_posterior` describes it."""
        em, plan, chains = self.sampler.em, self.plan, self.chains
        draws = [chain.draws for chain in chains]
        objects = self.stack["object"].values
        chain, draw = {"chain": np.arange(len(chains))}, {"draw": np.arange(self.drawn)}
        pairs: dict[str, Any] = {"object": objects, "object_bis": objects}
        labels = self.entries.labels(plan.model, plan.hidden)
        kept = {name: np.stack([getattr(own, name) for own in draws]) for name in GROUPS}
        posterior = xr.Dataset(coords=chain | draw)
        for name, values in kept.items():
            if values.size:  # ArviZ takes no variable without entries
                posterior[name] = (("chain", "draw", f"{name}_entry"), values)
                # The label alone: further coordinates of one variable stop ArviZ's summary.
                posterior[f"{name}_entry"] = labels[f"{name}_entry"]
        constants = labels.assign(
            visible=visible_objects(self.stack),
            degrees_of_freedom=("kernel", em.degrees_of_freedom),
            rank=("kernel", self.sampler.ranks),
            strength=em.prior.strength,
        )
        if em.prior.scale is not None:
            constants["scale"] = labelled(em.prior.scale_matrix(objects), objects, "scale")
        state = {
            "drawn": ("chain", [chain.state.drawn for chain in chains]),
            "factor": (("chain", "row", "column"), np.stack([c.state.factor for c in chains])),
            "random": ("chain", [json.dumps(chain.state.random) for chain in chains]),
        }
        models = self.starts @ self.starts.swapaxes(1, 2)
        start = {
            "model": (("chain", "object", "object_bis"), models),
            "factor": (("chain", "row", "column"), self.starts),
        }
        lp = np.stack([own.lp for own in draws])
        groups = {
            "posterior": posterior,
            "sample_stats": xr.Dataset({"lp": (("chain", "draw"), lp)}, coords=chain | draw),
            "observed_data": xr.Dataset({"kernels": self.stack}),
            "constant_data": constants,
            "start": xr.Dataset(start, coords=chain | pairs),
        }
        if plan.every:
            values = np.stack([own.thinned for own in draws])
            moments = reduce(Moments.merged, (chain.moments for chain in chains))
            mean, sd = moments.mean, np.sqrt(moments.squares / (moments.number - 1))
            for name in ("mean", "squares"):
                own = np.stack([getattr(chain.moments, name) for chain in chains])
                state[name] = (("chain", "place"), own)
            # Without labels, which would take as much memory as the draws: in the order of Entries.
            cut = self.entries.size_model
            groups["thinned_posterior"] = xr.Dataset(
                {
                    "model": (("chain", "draw", "place"), values[..., :cut]),
                    "hidden": (("chain", "draw", "hidden_place"), values[..., cut:]),
                },
                coords=chain | {"draw": draw["draw"][:: plan.every]},
            )
        else:
            values = np.concatenate(list(kept.values()), axis=2)
            mean, sd = values.mean(axis=(0, 1)), values.std(axis=(0, 1), ddof=1)
        quantiles = np.quantile(values, QUANTILES, axis=(0, 1))
        groups["posterior_summary"] = self._summary(np.stack([mean, sd, *quantiles])).assign_coords(
            kernel=self.stack["kernel"].values, quantile=list(QUANTILES), **pairs
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
        for name, dims, found, alone, exists in (
            ("model", pair, model, entries.prior_only, of_model),
            ("completed", ("kernel", *pair), completed, hidden & entries.prior_only, of_kernels),
        ):
            summary[f"{name}_mean"] = dims, found[0]
            summary[f"{name}_sd"] = dims, np.where(exists, found[1], np.inf)
            summary[f"{name}_quantile"] = ("quantile", *dims), found[2:]
            summary[f"{name}_prior_only"] = dims, alone
            summary[f"{name}_has_variance"] = dims, exists
        return xr.Dataset(summary)

    @classmethod
    def from_datatree(cls, tree: xr.DataTree) -> "PosteriorRun":
        """Return the run that `to_datatree` made `tree` of.

        Raises
        ------
        MKMCError
            If the tree is another one, or was changed: it does not hold all draws, for instance.
        """
        layout: Any = None
        if isinstance(tree, xr.DataTree):
            layout = tree.attrs.get("mkmc_prob_posterior_layout")
        if np.ndim(layout) or layout != LAYOUT:
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
        observed, constants, state = (
            with_labels(tree[name].to_dataset())
            for name in ("observed_data", "constant_data", "state")
        )
        stack = check_stack(observed["kernels"])
        prior = WishartPrior(float(constants["strength"]), constants.get("scale"))
        em = EM.of(stack.copy(), prior, constants["degrees_of_freedom"])
        entries = Entries(em)
        every, most, interrupted = (
            int(tree.attrs[name]) for name in ("every", "quantile_draws", "interrupted")
        )
        plan = Plan(*_places(entries, constants), every=every)
        (drawn,) = set(state["drawn"].values.tolist())
        count, size = state.sizes["chain"], len(em.objects)
        if most < count or every < 0 or bool(every) != ("thinned_posterior" in tree):
            raise ValueError("every, quantile_draws")

        def numbers(path: str, *shape: int) -> NDArray[np.float64]:
            return _numbers(tree, path, (count, *shape))

        lp = numbers("sample_stats/lp", drawn)
        model = numbers("posterior/model", drawn, len(plan.model))
        hidden = numbers("posterior/hidden", drawn, len(plan.hidden))
        factors, starts = numbers("state/factor", size, size), numbers("start/factor", size, size)
        thinned, means, squares = (
            np.empty((count, 0, 0)),
            np.empty((count, 0)),
            np.empty((count, 0)),
        )
        if every:
            parts = {"model": entries.size_model, "hidden": entries.size_hidden}
            thinned = np.concatenate(
                [
                    numbers(f"thinned_posterior/{k}", -(-drawn // every), n)
                    for k, n in parts.items()
                ],
                axis=2,
            )
            means, squares = (numbers(f"state/{k}", entries.size) for k in ("mean", "squares"))
        chains = []
        for c, text in enumerate(state["random"].values):
            np.random.PCG64().state = json.loads(text)  # raises if it is no state
            chains.append(
                Chain(
                    State(factors[c], json.loads(text), drawn),
                    Moments(drawn if every else 0, means[c], squares[c]),
                    (Draws(lp[c], model[c], hidden[c], thinned[c]),),
                )
            )
        sampler = GibbsSampler(em)
        return cls(stack, sampler, entries, plan, most, starts, chains, bool(interrupted))


def _numbers(tree: xr.DataTree, path: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return the values of a variable; raise unless it has this shape and finite numbers only."""
    if not shape[-1]:  # there is no variable of no entries
        return np.empty(shape)
    values: NDArray[Any] = tree[path].to_numpy()
    if values.shape != shape:
        raise ValueError(f"{path} has shape {values.shape} instead of {shape}")
    if values.dtype.kind != "f" or not np.isfinite(values).all():
        raise ValueError(f"{path} does not hold finite numbers only")
    return np.asarray(values, dtype=np.float64)


def _places(entries: Entries, constants: xr.Dataset) -> tuple[Places, Places]:
    """Return which entries are kept in full."""
    sizes = constants.sizes["model_entry"], constants.sizes["hidden_entry"]
    if sizes == (entries.size_model, entries.size_hidden):
        return np.arange(entries.size_model), np.arange(entries.size_hidden)
    named: list[tuple[Any, ...]] = []
    for group, parts in (("model", 2), ("hidden", 3)):
        columns = [f"{group}_{part}" for part in ("kernel", "object", "object_bis")[3 - parts :]]
        named += zip(*(constants[column].values.tolist() for column in columns), strict=True)
    return entries.find(named)
