"""Chains of a `Sampler`, run in blocks in this process or in several.

A block depends only on the state of its chain, so that neither the number of processes nor an
interruption changes a draw.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from tqdm.auto import tqdm

from ..utils.processes import in_processes
from .entries import Places
from .sampler import Parameters, Sampler

#: Operations of a block: a few seconds at most, which is what an interruption discards.
BLOCK_OPERATIONS = 1e10
LONGEST_BLOCK = 50


class State(NamedTuple):
    """The state of a chain: the parameters, the bit generator's state, the draws so far."""

    parameters: Parameters
    random: dict[str, Any]
    drawn: int


class Plan(NamedTuple):
    """Which entries are kept in full; of all others, moments and every `every`-th draw.

    `every` is 0 if all entries are kept in full.
    """

    model: Places
    hidden: Places
    every: int


class Moments(NamedTuple):
    """Number, means and sums of squared deviations of draws."""

    number: int
    mean: NDArray[np.float64]
    squares: NDArray[np.float64]

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


class Draws(NamedTuple):
    """What is kept of consecutive draws, of one chain or of all (along a first axis)."""

    lp: NDArray[np.float64]
    model: NDArray[np.float64]
    hidden: NDArray[np.float64]
    #: Those constants of the kernels that are drawn.
    constant: NDArray[np.float64]
    #: All entries of every `Plan.every`-th draw.
    thinned: NDArray[np.float64]


class Chains(NamedTuple):
    """Chains of equal length: their states and moments, and what is kept of them, in blocks."""

    states: list[State]
    moments: list[Moments]
    blocks: list[Draws]

    @property
    def drawn(self) -> int:
        """The number of draws of each chain."""
        return self.states[0].drawn

    @property
    def draws(self) -> Draws:
        """All draws that are kept, shape (chains, draws, ...)."""
        if len(self.blocks) == 1:
            return self.blocks[0]
        return Draws(*(np.concatenate(part, axis=1) for part in zip(*self.blocks, strict=True)))

    def after(self, found: list[tuple[State, Moments, Draws]]) -> "Chains":
        """Return the chains after a further block of each."""
        states, moments, blocks = zip(*found, strict=True)
        merged = [one.merged(two) for one, two in zip(self.moments, moments, strict=True)]
        block = Draws(*(np.stack(part) for part in zip(*blocks, strict=True)))
        return Chains(list(states), merged, [*self.blocks, block])


def start_chain(sampler: Sampler, rng: np.random.Generator) -> State:
    """Return a dispersed start of a chain."""
    with threadpool_limits(1):
        parameters = sampler.start(rng)
    return State(parameters, dict(rng.bit_generator.state), 0)


def run_block(
    sampler: Sampler, state: State, plan: Plan, skip: int, draws: int
) -> tuple[State, Moments, Draws]:
    """Take `skip` steps, and then `draws` steps that are kept.

    A step draws the completed kernels given the model; that model and these kernels are the draw.
    It then draws the next parameters given the kernels. Moments are Welford's (1962,
    *Technometrics* 4, 419).
    """
    rng = np.random.Generator(np.random.PCG64())
    rng.bit_generator.state = state.random
    lower = np.tri(len(sampler.em.objects), dtype=bool)
    estimated = sampler.em.sources.is_estimated
    size = np.count_nonzero(lower) + sampler.size if plan.every else 0
    mean, squares = np.zeros(size), np.zeros(size)
    lp = np.empty(draws)
    of_model, of_kernels = np.empty((draws, len(plan.model))), np.empty((draws, len(plan.hidden)))
    constants = np.empty((draws, np.count_nonzero(estimated)))
    thinned = []
    parameters = state.parameters
    with threadpool_limits(1):  # the same bits whatever the number of threads outside
        for step in range(-skip, draws):
            drawn, parameters = sampler.step(parameters, rng)
            if step < 0:
                continue
            values = drawn.model.matrix[lower]
            lp[step], constants[step] = drawn.lp, drawn.constants[estimated]
            of_model[step] = values[plan.model]
            of_kernels[step] = drawn.hidden[plan.hidden]
            if plan.every:
                values = np.concatenate([values, drawn.hidden])
                deviation = values - mean
                mean += deviation / (step + 1)
                squares += deviation * (values - mean)
                if (state.drawn + step) % plan.every == 0:
                    thinned.append(values)
    after = State(parameters, dict(rng.bit_generator.state), state.drawn + draws)
    block = Draws(lp, of_model, of_kernels, constants, np.reshape(thinned, (len(thinned), size)))
    return after, Moments(draws, mean, squares), block


def block_length(sampler: Sampler) -> int:
    """Return the number of steps of a block, which depends on the size of the problem alone."""
    size, kernels = len(sampler.em.objects), len(sampler.em.kernels)
    return int(np.clip(BLOCK_OPERATIONS / (4.0 * (kernels + 1) * size**3), 1, LONGEST_BLOCK))


def run_chains(
    sampler: Sampler,
    chains: Chains,
    plan: Plan,
    tune: int,
    draws: int,
    *,
    workers: int,
    progress: bool,
) -> tuple[Chains, bool]:
    """Return the chains after `tune` and `draws` further steps, and whether Ctrl-C ended the run.

    Chains run in rounds of one block each. A round that is interrupted counts for no chain.
    """
    length = block_length(sampler)
    rounds = [(min(length, tune - i), 0) for i in range(0, tune, length)]
    rounds += [(0, min(length, draws - i)) for i in range(0, draws, length)]
    total = (tune + draws) * len(chains.states)
    try:
        with tqdm(total=total, disable=not progress, desc="posterior", unit=" draws") as bar:
            for skip, count in rounds:
                tasks = [(sampler, state, plan, skip, count) for state in chains.states]
                found = []
                for one in in_processes(run_block, tasks, workers=workers):
                    found.append(one)
                    bar.update(skip + count)
                chains = chains.after(found)
    except KeyboardInterrupt:  # complete rounds are kept
        return chains, True
    return chains, False
