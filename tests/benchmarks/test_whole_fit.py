"""A whole fit.

`fit(stack, strength=...)`, all else left at its default, at l = 2318, K = 7, 50 % missing, against
the naive EM of the first table. The naive time is extrapolated: seconds per naive iteration,
measured here, times the iterations that plain EM needs, counted with `fit(method="em")`: until the
same stopping rule is met, or the log-likelihood reached at which the default fit stopped, whichever
comes first. Where neither comes within 1,000 iterations it says "more than", and the last column
how many nats EM was then still short of the default fit.
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
    cap = 1_000 if full else 5
    options = {"strength": strength} if full else {"strength": strength, "max_iter": cap}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the table says it
        start = time.perf_counter()
        ours = benchmark.pedantic(partial(fit, stack, **options), rounds=1)
        seconds = time.perf_counter() - start
        plain = ours
        if ours.method != "em":
            plain = fit(stack, strength=strength, method="em", max_iter=cap)
    kernels, visible = np.nan_to_num(stack.values), visible_objects(stack).values
    start = time.perf_counter()
    for _ in range(3):
        naive.iteration(kernels, visible, ours.model.matrix, strength)
    each = (time.perf_counter() - start) / 3

    levels = plain.trace["penalized_log_likelihood"].values
    goal = float(ours.trace["penalized_log_likelihood"][-1])
    there = np.flatnonzero(levels >= goal)
    more = "" if plain.converged or len(there) else "more than "
    needed = int(there[0]) if len(there) else plain.n_iter
    report(
        {
            "strength": f"{strength:g}",
            "method": ours.method + ("" if ours.converged else " (not converged)"),
            "evaluations": f"{int(ours.trace['evaluations'][-1]):,}",
            "seconds": f"{seconds:.0f}",
            "EM iterations": f"{more}{needed:,}",
            "naive, each": f"{each:.2f}",
            "naive, extrapolated": f"{more}{each * needed:.0f}",
            "naive / package": f"{more}{each * needed / seconds:.1f}",
            "EM ends lower by": f"{goal - levels[-1]:.3f} nats",
        }
    )
