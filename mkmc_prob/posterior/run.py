"""A run of chains, and the way back to it from the tree of a posterior.

Enters: a tree that `posterior_tree` made, perhaps read from a file, perhaps edited. Leaves: the
run, which can go on; or an error that says what is damaged.
"""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..em.em import EM
from ..em.problem import Problem
from ..errors import MKMCError
from ..linalg.symmetric import Matrix
from ..model.prior import WishartPrior
from ..stacks.labels import with_labels
from .chains import Block, Chain, Moments, Plan, State
from .entries import Entries, Places
from .gibbs import GibbsSampler

#: The version of the layout of these trees.
LAYOUT = 1


@dataclass
class Run:
    """A run of chains: what they sample, what is kept, and what was drawn."""

    stack: xr.DataArray
    sampler: GibbsSampler
    entries: Entries
    plan: Plan
    #: How many draws of all entries are kept at most, over all chains, where not all are.
    most: int
    starts: Matrix
    chains: list[Chain]

    def thin(self, draws: int) -> None:
        """Widen the spacing of the draws of all entries, for chains of so many draws in all."""
        times = 1
        while -(-draws // (self.plan.every * times)) > self.most // len(self.chains):
            times *= 2
        self.plan = self.plan._replace(every=self.plan.every * times)
        for c, chain in enumerate(self.chains):
            block = joined(chain)._replace(thinned=chain.thinned[::times])
            self.chains[c] = chain._replace(blocks=(block,))


def run_of(tree: xr.DataTree) -> Run:
    """Return the run that `tree_of` made `tree` of.

    Raises
    ------
    MKMCError
        Where the tree is another one, or was changed: it holds less than all draws, say.
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
        return _run_of(tree)
    except Exception as error:  # what was changed or damaged can raise nearly anything
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise MKMCError(
            f"the posterior is damaged, or not whole: {what}. Pass the whole tree that "
            "sample_posterior returned; select from its groups."
        ) from error


def joined(chain: Chain) -> Block:
    """Return all that was kept of a chain as one block."""
    return Block(chain.lp, chain.model, chain.hidden, Moments.none(0), chain.thinned)


def _run_of(tree: xr.DataTree) -> Run:
    observed = with_labels(tree["observed_data"].to_dataset())
    constants = with_labels(tree["constant_data"].to_dataset())
    posterior, state = tree["posterior"].to_dataset(), tree["state"].to_dataset()
    prior = WishartPrior(float(constants["strength"]), constants.get("scale"))
    problem = Problem.of(observed["kernels"], prior, constants["degrees_of_freedom"])
    stack, em = problem.stack.array, EM.of(*problem)
    sampler, entries = GibbsSampler(em), Entries(em)
    every, most = (int(tree.attrs[name]) for name in ("every", "quantile_draws"))
    int(tree.attrs["interrupted"])
    plan = Plan(*_places(entries, constants), every=every)
    size, count = len(em.objects), posterior.sizes["chain"]
    (drawn,) = set(state["drawn"].values.tolist())
    lp = _values(tree["sample_stats"].to_dataset(), "lp", (count, drawn))
    model = _kept(posterior, "model", (count, drawn, len(plan.model)))
    hidden = _kept(posterior, "hidden", (count, drawn, len(plan.hidden)))
    factors = _values(state, "factor", (count, size, size))
    starts = _values(tree["start"].to_dataset(), "factor", (count, size, size))
    if most < count or every < 0 or bool(every) != ("thinned_posterior" in tree):
        raise ValueError("every, quantile_draws")
    if every:
        group = tree["thinned_posterior"].to_dataset()
        number = -(-drawn // every)
        thinned = np.concatenate(
            [
                _values(group, "model", (count, number, entries.size_model)),
                _values(group, "hidden", (count, number, entries.size_hidden)),
            ],
            axis=2,
        )
        means = _values(state, "mean", (count, entries.size))
        squares = _values(state, "squares", (count, entries.size))
    chains = []
    for c in range(count):
        random = json.loads(state["random"].values[c])
        np.random.PCG64().state = random  # raises where it is none
        moments, kept = Moments.none(0), []
        if every:
            moments, kept = Moments(drawn, means[c], squares[c]), list(thinned[c])
        block = Block(lp[c], model[c], hidden[c], Moments.none(0), kept)
        chains.append(Chain(State(factors[c], random, drawn), moments, (block,)))
    return Run(stack, sampler, entries, plan, most, starts, chains)


def _kept(posterior: xr.Dataset, name: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return the draws that are kept; there is no variable where they are of no entry."""
    return _values(posterior, name, shape) if shape[-1] else np.empty(shape)


def _values(group: xr.Dataset, name: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return a variable's values; raise where it is of another shape, or not all numbers."""
    values = group[name].values
    if values.shape != shape:
        raise ValueError(f"{name} has shape {values.shape} instead of {shape}")
    if values.dtype.kind != "f" or not np.isfinite(values).all():
        raise ValueError(f"{name} is not all finite numbers")
    return np.asarray(values, dtype=np.float64)


def _places(entries: Entries, constants: xr.Dataset) -> tuple[Places, Places]:
    """Return which entries a posterior has draws of."""
    sizes = constants.sizes["model_entry"], constants.sizes["hidden_entry"]
    if sizes == (entries.size_model, entries.size_hidden):
        return np.arange(entries.size_model), np.arange(entries.size_hidden)
    named: list[tuple[Any, ...]] = []
    for group, parts in (
        ("model", ("object", "object_bis")),
        ("hidden", ("kernel", "object", "object_bis")),
    ):
        columns = [constants[f"{group}_{part}"].values.tolist() for part in parts]
        named += zip(*columns, strict=True)
    return entries.find(named)
