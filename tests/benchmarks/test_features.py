"""Kernels by features.

Four kernels `kernels.Features` of 200 features each, float32, half of the objects missing in each,
and a model of 50 factors: seconds per evaluation (median of five), and the peak of the process, in
GB. The last row is the slope of a straight line through the logarithms of the seconds, of which the
aim is 1 within 10 %.
"""

import time

import numpy as np
from test_disk import Peak

from mkmc_prob import EM, PPCA, Sources, WishartPrior, kernels, stack_kernels


def test_features(full, benchmark, report):
    sizes = (25_000, 50_000, 100_000) if full else (100, 200)
    rank = 50 if full else 2
    seconds = []

    def once():
        for size in sizes:
            rng = np.random.default_rng(0)
            parts = {}
            for k in range(4):
                features = rng.standard_normal((size, 200), dtype=np.float32)
                features[rng.random(size) < 0.5] = np.nan
                parts[f"k{k}"] = kernels.Features(features)
            with Peak() as peak:
                stack = stack_kernels(parts)
                sources = Sources.estimated(stack)
                em = EM(stack, WishartPrior(1.0), sources=sources, structure=PPCA(rank))
                statistics = em.e_step(em.initial_model())
                taken = []
                with em.threads():
                    for _ in range(5 if full else 1):
                        start = time.perf_counter()
                        statistics = em.e_step(em.m_step(statistics))
                        taken.append(time.perf_counter() - start)
            seconds.append(float(np.median(taken)))
            report(
                {
                    "l": f"{size:,}",
                    "seconds": f"{seconds[-1]:.2f}",
                    "peak, GB": f"{peak.value:.2f}",
                    "aim": "at most 2",
                }
            )
            del stack, em, statistics, parts

    benchmark.pedantic(once, rounds=1)
    slope = float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
    report({"l": "exponent", "seconds": f"{slope:.2f}", "peak, GB": "", "aim": ""})
