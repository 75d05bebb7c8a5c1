"""Threads of BLAS in models of few factors.

Seconds per evaluation of an accelerated fit with one and with two threads of BLAS, in turns, by the
multiplications of the product of a kernel with the factors: two kernels of ten common factors, no
object missing. `fit` uses one thread up to 2 x 10^9 of them, and all beyond. With kernels in tiles,
each thread multiplies tiles of its own.
"""

from functools import partial

import numpy as np
from threadpoolctl import threadpool_limits
from work import climb, in_turns

from mkmc_prob import EM, PPCA, Sources, WishartPrior, stack_kernels


def kernels(size):
    """Return a stack of two kernels of 100 features."""
    rng = np.random.default_rng(0)
    common, found = rng.standard_normal((size, 10)), []
    for _ in range(2):
        table = common @ rng.standard_normal((10, 100)) + rng.standard_normal((size, 100))
        found.append(table @ table.T / 100)
    return stack_kernels(np.array(found))


def test_threads(full, benchmark, report):
    cases = [(500, 5), (1000, 20), (2000, 20), (4000, 50), (6000, 50), (8000, 50), (10_000, 50)]
    if not full:
        cases = [(20, 2)]

    def limited(em, count):
        with threadpool_limits(count):
            em.threads = partial(threadpool_limits, None)
            return climb(em, "geodesic", 6 if full else 2)

    calls = {}
    for size, rank in cases:
        stack = kernels(size)
        em = EM(stack, WishartPrior(1.0), sources=Sources.estimated(stack), structure=PPCA(rank))
        calls |= {(size, rank, n): partial(limited, em, n) for n in (1, 2)}
        del stack
    taken = in_turns(benchmark, 3 if full else 1, calls)
    for size, rank in cases:
        one, two = (taken[size, rank, n] for n in (1, 2))
        report(
            {
                "l": f"{size:,}",
                "rank": str(rank),
                "10^9 multiplications": f"{size**2 * rank / 1e9:.3g}",
                "one thread": f"{one:.4f}",
                "two threads": f"{two:.4f}",
                "one / two": f"{one / two:.2f}",
            }
        )
