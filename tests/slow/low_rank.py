"""Every step of a model of low rank rises on 500 random stacks; run by its name alone (minutes).

    python -m pytest -s tests/slow/low_rank.py

Kernels of units, constants and ranks of all kinds, with patterns of every kind, for both structures
and all their methods: at ordinary strengths, at small ones, with constants of up to 1e8 times the
variance, and with a weak prior of the noise. The largest fall of the likelihood is printed as a
share of what rounding explains.
"""

import numpy as np
import pytest
from plain_factors import STRUCTURES, drawn_em
from plain_sources import draw_problem, with_constants_of_their_own

from mkmc_prob.em.ascent import Ascent
from mkmc_prob.em.methods import OF_LOW_RANK, method_of

STACKS = 500
STEPS = 100


def drawn_of_kind(rng, what):
    """A random problem, changed as the name says."""
    drawn = draw_problem(rng)
    if what == "weak prior":
        return drawn._replace(strength=10.0 ** rng.uniform(-6, -3))
    if what == "large constants":
        return with_constants_of_their_own(drawn, rng, 8.0)
    return drawn


@pytest.mark.parametrize("what", ["ordinary", "weak prior", "large constants", "weak noise prior"])
@pytest.mark.parametrize("kind", STRUCTURES)
def test_every_step_rises(kind, what):
    worst = dict.fromkeys(OF_LOW_RANK, (-np.inf, -1))
    strengths = [1e-3, 1e-2] if what == "weak noise prior" else [0.1, 1.0]
    for seed in range(STACKS):
        rng = np.random.default_rng(seed)
        em = drawn_em(rng, kind, drawn_of_kind(rng, what), noise_strengths=strengths)
        for method in OF_LOW_RANK:
            ascent = Ascent(method_of(method, em), em.initial_model(), tol=1e-4)
            ascent.run(max_iter=STEPS, progress=False)  # raises if a step fell
            ascent.complete()
            gains = np.diff([record.penalized_log_likelihood for record in ascent.records])
            bounds = np.array([record.rounding_bound for record in ascent.records])
            assert np.isfinite(em.complete(ascent.model).values).all()
            share = float((-gains / (bounds[1:] + bounds[:-1])).max())
            worst[method] = max(worst[method], (share, seed))
    print(f"\n{kind.__name__}, {what}: the largest fall as a share of its bound: {worst}")
