"""What is measured, and how: problems, steps as `fit` takes them, times in turns, peaks.

Enters: sizes and calls. Leaves: seconds, bytes, and the operations that a step has on paper.
"""

import time
import tracemalloc
from collections.abc import Callable

import numpy as np
import xarray as xr

from mkmc_prob import EM, WishartPrior, remove_objects, visible_objects
from mkmc_prob.datasets import make_fusion_problem
from mkmc_prob.em.ascent import Ascent
from mkmc_prob.em.methods import method_of


def incomplete(size: int, ratio: float) -> xr.DataArray:
    """Return seven kernels over `size` objects with this share of rows missing."""
    return remove_objects(make_fusion_problem(size).kernels, ratio, seed=0)


def climb(em: EM, method: str, steps: int) -> int:
    """Ascent as `fit` does, trace and all; return how many evaluations of the EM map it took."""
    ascent = Ascent(method_of(method, em), em.initial_model(), tol=0.0)
    ascent.run(max_iter=steps, progress=False)
    return ascent.records[-1].evaluations


def operations(stack: xr.DataArray) -> float:
    """Return the floating point operations of an EM step with its log-likelihood."""
    size = stack.sizes["object"]
    total = float(size) ** 3
    for n in visible_objects(stack).sum("object").values.astype(float):
        m = size - n
        regression = min(m**3 + 2 * n * m**2, n**3 / 3 + 2 * n**2 * m + n * m**2)
        total += regression + 2 * n**2 * m + n * m**2
    return total


def products(size: int, flops: float) -> Callable[[], int]:
    """Return a call that makes l x l products, the last one narrower: `flops` operations."""
    left, right = np.random.default_rng(0).standard_normal((2, size, size))
    out = np.empty((size, size))
    whole, columns = divmod(round(flops / (2 * size**2)), size)

    def call() -> int:
        for _ in range(whole):
            np.matmul(left, right, out=out)
        np.matmul(left, right[:, :columns], out=out[:, :columns])
        return 1

    return call


def in_turns(
    benchmark, rounds: int, calls: dict[str, Callable[[], int]], *, settle: bool = False
) -> dict[str, float]:
    """Time `calls` one after the other, again and again; return medians, in seconds per unit.

    A call returns how many units of work it did. The first of the rounds is not counted. To
    `settle`, each call is made twice in a turn, of which the second counts: the threads of the
    library that worked before it still wait for work, and take a core from it.
    """
    seconds: dict[str, list[float]] = {name: [] for name in calls}

    def one_round() -> None:
        for name, call in calls.items():
            if settle:
                call()
            start = time.perf_counter()
            units = call()
            seconds[name].append((time.perf_counter() - start) / units)

    benchmark.pedantic(one_round, rounds=rounds + 1)
    return {name: float(np.median(taken[1:] or taken)) for name, taken in seconds.items()}


def peak_of(call: Callable[[], object]) -> int:
    """Return the largest number of bytes that were allocated at once during `call`."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def peak_of_steps(stack: xr.DataArray, method: str, steps: int) -> float:
    """Return the peak of `steps` steps beyond the stack and the visible blocks, in l x l arrays."""
    kept = [0]

    def call() -> None:
        em = EM(stack, WishartPrior(0.1))  # keeps a copy of the stack
        blocks = 8 * (visible_objects(stack).sum("object") ** 2).sum()
        kept[0] = em.stack.nbytes + int(blocks)
        tracemalloc.reset_peak()
        climb(em, method, steps)

    return (peak_of(call) - kept[0]) / (8 * stack.sizes["object"] ** 2)
