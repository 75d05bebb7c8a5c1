"""Models of few factors.

`fit(stack, structure=...)` and `complete(stack, workers=2)` with their default options, on
`make_fusion_problem(l, 7)` with 50 % of the rows missing: the evaluations, the seconds, those of
the full structure as a multiple, and the mean relative error of the completed rows. For more than
1,000 objects `complete` searches models of few factors instead of the full structure. 5,000 objects
are too many for the full structure in a benchmark.
"""

import time
import warnings
from functools import partial

from mkmc_prob import (
    PPCA,
    FactorAnalysis,
    complete,
    fit,
    relative_error,
    remove_objects,
)
from mkmc_prob.datasets import make_fusion_problem
from mkmc_prob.errors import MKMCWarning

MOST_FULL = 2500


def test_few_factors(full, benchmark, report):
    sizes = (500, 1000, 2318, 5000) if full else (20,)
    ranks = (5, 20) if full else (2,)
    few = [kind(rank) for rank in ranks for kind in (PPCA, FactorAnalysis)]

    def measured():
        for size in sizes:
            truth = make_fusion_problem(size, 7).kernels
            stack = remove_objects(truth, 0.5, seed=0)
            calls = {one.name: partial(fit, stack, structure=one) for one in few}
            if size <= MOST_FULL:
                calls = {"full": partial(fit, stack)} | calls
            if not full or size == 2318:
                calls["complete"] = partial(complete, stack, workers=2 if full else 1)
            for name, call in calls.items():
                start = time.perf_counter()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", MKMCWarning)
                    result = call()
                seconds = time.perf_counter() - start
                error = float(relative_error(truth, result.completed, stack).mean())
                yield size, name, result, seconds, error

    of_full = {}
    for size, name, result, seconds, error in benchmark.pedantic(
        lambda: list(measured()), rounds=1
    ):
        if name == "full":
            of_full[size] = seconds
        what = name
        if name == "complete":
            chosen = result.selection.chosen
            what = f"complete: {chosen.structure.name}, strength {chosen.strength:g}"
        report(
            {
                "l": f"{size:,}",
                "structure": what,
                "evaluations": str(int(result.trace["evaluations"][-1])),
                "seconds": f"{seconds:.1f}",
                "full / this": f"{of_full[size] / seconds:.2g}" if size in of_full else "",
                "relative error": f"{error:.3f}",
            }
        )
