"""Evaluations of the EM map.

How many E-steps each method needs until it is within 0.005 nats of the maximum that it ends in
itself, in brackets that maximum, in the paper's model (`sources="identical"`). Six RBF kernels of
200 digits. The fits stop when 1e-5 nats are still to come by their own estimate, or after 20,000
steps of EM (5,000 of another method). Where more than 0.005 nats were then still to come, by that
estimate, the count says "more than". The likelihood has several maxima: compare the brackets too.
One BLAS thread.
"""

import warnings

import numpy as np
import pytest
from problems import digits_kernels
from threadpoolctl import threadpool_limits

from mkmc_prob import fit, stack_kernels
from mkmc_prob.em.methods import OF_FULL
from mkmc_prob.errors import MKMCWarning

NEAR = 0.005


@pytest.mark.parametrize("missing", [10, 30, 60])
@pytest.mark.parametrize("strength", [0.1, 0.01, 0.001])
def test_evaluations(strength, missing, full, benchmark, report):
    kernels, patterns = digits_kernels()
    size = 200 if full else 20
    visible = patterns[f"visible_{missing}"][:, :size]
    stack = stack_kernels(kernels[:, :size, :size], visible=visible)
    steps = {name: (20_000 if name == "em" else 5_000) if full else 20 for name in OF_FULL}

    def counted() -> dict[str, str]:
        return {name: count(stack, strength, name, steps[name]) for name in OF_FULL}

    with threadpool_limits(1):
        counts = benchmark.pedantic(counted, rounds=1)
        report({"strength": f"{strength:g}", "missing": f"{missing}%", **counts})


def count(stack, strength: float, method: str, steps: int) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MKMCWarning)  # not converged, which the table says
        options = {"sources": "identical", "tol": 1e-5, "max_iter": steps}
        trace = fit(stack, strength=strength, method=method, **options).trace
    levels, spent = trace["penalized_log_likelihood"].values, trace["evaluations"].values
    end = levels[-1] + trace["gain_to_come"].values[-1]
    near = np.flatnonzero(levels >= end - NEAR)
    evaluations = f"{spent[near[0]]:,}" if len(near) else f"more than {spent[-1]:,}"
    return f"{evaluations} ({levels[-1]:.3f})"
