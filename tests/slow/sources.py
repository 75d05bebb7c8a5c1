"""Every step rises on a thousand random stacks; some minutes, so it is run by its name alone.

    python -m pytest -s tests/slow/sources.py

Kernels of units, constants and ranks of all kinds, with patterns of every kind, are fitted by each
method: at ordinary strengths, at small ones, and with constants of up to 1e8 times the variance.
The largest fall of the likelihood is printed as a share of what rounding explains.
"""

import warnings

import numpy as np
import pytest
from plain_sources import check_fit, draw_problem, with_constants_of_their_own

from mkmc_prob import MKMCWarning
from mkmc_prob.em.methods import OF_FULL

STACKS = 1000


def largest_share(trace):
    """The largest fall, as a share of the bound; negative if every step rose."""
    gain = np.diff(trace["penalized_log_likelihood"].values)
    bound = trace["rounding_bound"].values
    return float((-gain / (bound[1:] + bound[:-1])).max())


@pytest.mark.parametrize("kind", ["ordinary", "weak prior", "large constants"])
def test_every_step_rises(kind):
    worst = dict.fromkeys(OF_FULL, (0.0, -1))
    for seed in range(STACKS):
        rng = np.random.default_rng(seed)
        drawn = draw_problem(rng)
        if kind == "weak prior":
            drawn = drawn._replace(strength=10.0 ** rng.uniform(-6, -3))
        elif kind == "large constants":
            drawn = with_constants_of_their_own(drawn, rng, 8.0)
        for method in OF_FULL:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", MKMCWarning)
                result = check_fit(drawn, method=method, max_iter=200)
            worst[method] = max(worst[method], (largest_share(result.trace), seed))
    print(f"\n{kind}: the largest fall as a share of its bound, and the stack: {worst}")
