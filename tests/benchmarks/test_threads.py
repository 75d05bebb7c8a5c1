"""Threads of BLAS in models of few factors.

Seconds per evaluation of an accelerated fit with one and with two threads of BLAS, in turns, by the
multiplications of the largest product of a kernel with the factors. `fit` uses one thread up to
10^9 of them, and all beyond; of kernels in tiles, each thread multiplies tiles of its own.
"""

from functools import partial

from threadpoolctl import threadpool_limits
from work import climb, in_turns, incomplete

from mkmc_prob import EM, PPCA, Sources, WishartPrior


def test_threads(full, benchmark, report):
    cases = (
        [(500, 5), (1000, 5), (1000, 20), (2000, 20), (4000, 20), (4000, 50), (6000, 50)]
        if full
        else [(20, 2)]
    )
    steps = 8 if full else 2

    def limited(em, count):
        with threadpool_limits(count):
            em.threads = partial(threadpool_limits, None)
            return climb(em, "geodesic", steps)

    calls, works = {}, {}
    for size, rank in cases:
        stack = incomplete(size, 0.5)
        em = EM(stack, WishartPrior(1.0), sources=Sources.estimated(stack), structure=PPCA(rank))
        works[size, rank] = max(len(part.kernel.v) for part in em.source_kernels) ** 2 * rank
        calls |= {(size, rank, n): partial(limited, em, n) for n in (1, 2)}
    taken = in_turns(benchmark, 3 if full else 1, calls)
    for (size, rank), work in works.items():
        one, two = (taken[size, rank, n] for n in (1, 2))
        report(
            {
                "l": f"{size:,}",
                "rank": str(rank),
                "10^9 multiplications": f"{work / 1e9:.3g}",
                "one thread": f"{one:.4f}",
                "two threads": f"{two:.4f}",
                "one / two": f"{one / two:.2f}",
            }
        )
