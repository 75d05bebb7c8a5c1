"""Chains of a `GibbsSampler`: run in blocks, here or in other processes, and put on record.

Enters: a sampler, where each chain stands, and what is to be kept. Leaves: where the chains stand
then, the draws that were kept, and running moments of all others. A block depends on nothing but
the chain's state, so that neither the number of processes nor an interruption changes a draw.
"""

import signal
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from tqdm.auto import tqdm

from ..linalg.symmetric import Matrix
from ..model.gaussian import GaussianModel
from ..utils.processes import need_joblib
from .entries import Places
from .gibbs import GibbsSampler

#: Operations of a block: some seconds at most, what an interruption throws away.
BLOCK_OPERATIONS = 1e10


LONGEST_BLOCK = 50


Vector = NDArray[np.float64]


class State(NamedTuple):
    """Where a chain stands: the model's Cholesky factor, the random numbers', the draws so far."""

    factor: Matrix
    random: dict[str, Any]
    drawn: int


class Plan(NamedTuple):
    """What is kept: these entries in full; of all entries moments and every so many-th draw.

    `every` is 0 where nothing but the named entries is kept.
    """

    model: Places
    hidden: Places
    every: int


class Moments(NamedTuple):
    """Number, means and sums of squared deviations (Welford 1962, *Technometrics* 4, 419)."""

    number: int
    mean: Vector
    squares: Vector

    @classmethod
    def none(cls, size: int) -> "Moments":
        """Return the moments of no draw."""
        return cls(0, np.zeros(size), np.zeros(size))

    def with_draw(self, draw: Vector) -> "Moments":
        """Return the moments with one more draw, in the place of these."""
        count, deviation = self.number + 1, draw - self.mean
        self.mean[...] += deviation / count
        self.squares[...] += deviation * (draw - self.mean)
        return Moments(count, self.mean, self.squares)

    def merged(self, other: "Moments") -> "Moments":
        """Return the moments of both (Chan, Golub and LeVeque 1983, *Am. Stat.* 37, 242)."""
        count = self.number + other.number
        if not count:
            return self
        deviation = other.mean - self.mean
        share = other.number / count
        return Moments(
            count,
            self.mean + share * deviation,
            self.squares + other.squares + self.number * share * deviation**2,
        )


class Block(NamedTuple):
    """What one chain leaves of some consecutive draws."""

    lp: Vector
    model: Matrix
    hidden: Matrix
    moments: Moments
    thinned: list[Vector]


def start_chain(sampler: GibbsSampler, rng: np.random.Generator) -> State:
    """Return a dispersed start of a chain."""
    with threadpool_limits(1):
        model = sampler.draw_start(rng)
    return State(model.cholesky, dict(rng.bit_generator.state), 0)


def run_block(
    sampler: GibbsSampler, state: State, plan: Plan, skip: int, draws: int
) -> tuple[State, Block]:
    """Take `skip` steps and then `draws` steps that are kept.

    A step draws the completed kernels given the model, which is the draw of both that is kept, and
    the next model given these.
    """
    rng = np.random.Generator(np.random.PCG64())
    rng.bit_generator.state = state.random
    objects = sampler.em.objects
    lower = np.tri(len(objects), dtype=bool)
    block = Block(
        np.empty(draws),
        np.empty((draws, len(plan.model))),
        np.empty((draws, len(plan.hidden))),
        Moments.none(len(objects) * (len(objects) + 1) // 2 + sampler.size if plan.every else 0),
        [],
    )
    moments = block.moments
    with threadpool_limits(1):  # the same bits whatever the number of threads outside
        model = GaussianModel.of_factor(state.factor, objects)
        for step in range(-skip, draws):
            completed = sampler.draw_completed(model, rng)
            if step >= 0:
                values = model.matrix[lower]
                log_prior = sampler.em.prior.log_density(model)
                block.lp[step] = completed.log_likelihood.sum() + log_prior
                block.model[step] = values[plan.model]
                block.hidden[step] = completed.hidden[plan.hidden]
                if plan.every:
                    values = np.concatenate([values, completed.hidden])
                    moments = moments.with_draw(values)
                    if (state.drawn + step) % plan.every == 0:
                        block.thinned.append(values)
            model = sampler.draw_model(completed.second_moment, rng)
            model = sampler.draw_unseen(model, rng)
    after = State(model.cholesky, dict(rng.bit_generator.state), state.drawn + draws)
    return after, block._replace(moments=moments)


class Chain(NamedTuple):
    """One chain: where it stands, and what was kept of it."""

    state: State
    moments: Moments
    blocks: tuple[Block, ...] = ()

    def after(self, state: State, block: Block) -> "Chain":
        """Return the chain with the draws that led to `state`."""
        # What is merged need not be held by the block.
        bare = block._replace(moments=Moments.none(0))
        return Chain(state, self.moments.merged(block.moments), (*self.blocks, bare))

    @property
    def lp(self) -> Vector:
        """The log-posterior, draw by draw."""
        return np.concatenate([block.lp for block in self.blocks])

    @property
    def model(self) -> Matrix:
        """The entries of the model that are kept, shape (draws, entries)."""
        return np.concatenate([block.model for block in self.blocks])

    @property
    def hidden(self) -> Matrix:
        """The hidden entries that are kept, shape (draws, entries)."""
        return np.concatenate([block.hidden for block in self.blocks])

    @property
    def thinned(self) -> list[Vector]:
        """All entries of every so many-th draw."""
        return [draw for block in self.blocks for draw in block.thinned]


def block_length(sampler: GibbsSampler) -> int:
    """Return how many steps a block has: by the problem's size alone, not by time."""
    size, kernels = len(sampler.em.objects), len(sampler.em.kernels)
    return int(np.clip(BLOCK_OPERATIONS / (4.0 * (kernels + 1) * size**3), 1, LONGEST_BLOCK))


def run_chains(
    sampler: GibbsSampler,
    chains: list[Chain],
    plan: Plan,
    *,
    tune: int,
    draws: int,
    workers: int,
    progress: bool,
) -> bool:
    """Run all `chains`, in place, by rounds of a block each; return whether Ctrl-C ended that.

    A round that is broken off counts for no chain: they stay equally long.
    """
    length = block_length(sampler)
    rounds = [(min(length, tune - i), 0) for i in range(0, tune, length)]
    rounds += [(0, min(length, draws - i)) for i in range(0, draws, length)]
    total = (tune + draws) * len(chains)
    if workers > 1:
        parallel, delayed = need_joblib()
    try:
        with tqdm(total=total, disable=not progress, desc="posterior", unit=" draws") as bar:
            if workers > 1:
                with parallel(n_jobs=workers, return_as="generator") as pool:
                    for skip, count in rounds:
                        tasks = [(sampler, chain.state, plan, skip, count) for chain in chains]
                        found = pool(delayed(_block_of_worker)(*task) for task in tasks)
                        chains[:] = _after(chains, _counted(found, bar, skip + count))
            else:
                for skip, count in rounds:
                    found = (run_block(sampler, c.state, plan, skip, count) for c in chains)
                    chains[:] = _after(chains, _counted(found, bar, skip + count))
    except KeyboardInterrupt:  # the rounds that are complete are kept
        return True
    return False


def _block_of_worker(*task: Any) -> tuple[State, Block]:
    """Run a block deaf to Ctrl-C, which is for the process that handed it out."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return run_block(*task)


def _counted(
    blocks: Iterable[tuple[State, Block]], bar: Any, steps: int
) -> Iterator[tuple[State, Block]]:
    for block in blocks:
        bar.update(steps)
        yield block


def _after(chains: list[Chain], found: Iterable[tuple[State, Block]]) -> list[Chain]:
    """Return the chains after a round."""
    return [chain.after(*one) for chain, one in zip(chains, found, strict=True)]
