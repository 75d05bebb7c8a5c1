"""A whole fit.

`fit(stack, strength=..., sources="identical", tol=10)` at l = 2318, K = 7, 50 % missing, against
the naive EM of the first table: seconds per naive iteration, measured here, times the iterations
that EM needs until it is where the default fit stopped. They are counted with `fit(method="em")`,
of which 300 are run; where it was not there by then, the rest is extrapolated: EM's increments
shrink like a power of the number of iterations, which is fitted to the second half of the 300 and
carried on. The last column says by how much EM's L after the 300 was below the default fit's
(above it, where negative). At 0.001 the aim is 30 times.
"""

import time
import warnings
from functools import partial

import naive
import numpy as np
import pytest
from work import incomplete

from mkmc_prob import fit, visible_objects
from mkmc_prob.errors import ConvergenceWarning


@pytest.mark.parametrize("strength", [0.1, 0.001])
def test_whole_fit(strength, full, benchmark, report):
    stack = incomplete(2318 if full else 40, 0.5)
    cap = 300 if full else 20
    model = {"strength": strength, "sources": "identical"}
    options = model | {"tol": 10.0, "max_iter": 10_000 if full else cap}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the table says it
        start = time.perf_counter()
        ours = benchmark.pedantic(partial(fit, stack, **options), rounds=1)
        seconds = time.perf_counter() - start
        plain = fit(stack, **options | {"method": "em", "tol": 0, "max_iter": cap})
    kernels, visible = np.nan_to_num(stack.values), visible_objects(stack).values
    start = time.perf_counter()
    for _ in range(3):
        naive.iteration(kernels, visible, ours.model.matrix, strength)
    each = (time.perf_counter() - start) / 3

    levels = plain.trace["penalized_log_likelihood"].values
    goal = float(ours.trace["penalized_log_likelihood"][-1])
    needed, extrapolated = iterations_until(goal, levels)
    about = "extrapolated: " if extrapolated else ""
    report(
        {
            "strength": f"{strength:g}",
            "method": ours.method + ("" if ours.converged else " (not converged)"),
            "evaluations": f"{int(ours.trace['evaluations'][-1]):,}",
            "seconds": f"{seconds:,.0f}",
            "EM iterations": f"{about}{needed:,.0f}",
            "naive, each": f"{each:.2f}",
            "naive, seconds": f"{each * needed:,.0f}",
            "naive / package": f"{each * needed / seconds:.0f}",
            "EM short by": f"{goal - levels[-1]:.3f} nats",
        }
    )


def iterations_until(goal: float, levels: np.ndarray) -> tuple[float, bool]:
    """Return after how many iterations EM is at `goal`, and whether that is extrapolated."""
    there = np.flatnonzero(levels >= goal)
    if len(there):
        return float(there[0]), False
    last = len(levels) - 1
    steps = np.arange(last // 2, last) + 1.0
    slope, height = np.polyfit(np.log(steps), np.log(np.diff(levels)[last // 2 :]), 1)
    # The sum of exp(height) t^slope from the last iteration on, by its integral.
    power = slope + 1
    reached = last**power + power * (goal - levels[-1]) / np.exp(height)
    return (float(reached ** (1 / power)) if reached > 0 else np.inf), True
