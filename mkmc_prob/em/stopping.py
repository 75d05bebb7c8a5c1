"""Estimates of the remaining gain in log-likelihood; `Ascent` stops when they are below `tol`."""

import math
from collections.abc import Sequence

#: Points of the trace at which earlier increments are taken, as shares of the number of steps.
LOOK_BACK = (0.9, 0.5)
#: The largest factor by which slower rates may enlarge the estimated remaining gain.
LARGEST_MIXTURE = 3.0
#: With fewer steps, the increments may still reflect a bad start.
FEWEST_STEPS = 10
#: `recent_rise` takes this share of the steps, but at least this many.
RECENT_SHARE, RECENT_STEPS = 0.25, 5


def estimated_gain(trace: Sequence[float]) -> float:
    """Estimate the remaining gain in log-likelihood, in nats, from its trace.

    Equation :eq:`eq-aitken` of the derivation.

    If EM had a single rate of convergence, its increments would shrink by the same factor q every
    w steps, and the remaining gain would be D q / (1 - q), with D the rise over the last w steps
    (Aitken). In fact several rates are mixed, and the slower ones dominate later: locally the
    increments shrink like t^-p in the number t of steps, and the remaining gain is p / (p - 1)
    times as large. q and p are computed from the rise over a short window that ends now, compared
    with the rise over a window that ends at step 0.9 t, and a second time with one that ends at
    step 0.5 t; the larger of the two estimates is returned. The factor p / (p - 1) is limited to 3,
    because t is not informative right after a warm start.

    Returns
    -------
    float
        Infinite before the tenth step or if the increments do not shrink; 0 if the trace has
        stopped rising, which happens only through rounding.

    Examples
    --------
    >>> from mkmc_prob.em.stopping import estimated_gain
    >>> round(estimated_gain([-(0.5**t) for t in range(31)]) * 2**30, 1)
    1.1
    """
    steps = len(trace) - 1
    window = max(1, steps // 20)
    if steps < 1:
        return math.inf
    recent = trace[-1] - trace[-1 - window]
    if recent <= 0:
        return 0.0
    if steps < FEWEST_STEPS:
        return math.inf
    estimates = []
    for share in LOOK_BACK:
        then = min(int(steps * share), steps - 1)
        earlier = trace[then] - trace[then - window] if then >= window else 0.0
        if not earlier > recent:
            return math.inf
        shrinkage = math.log(earlier / recent)
        factor = math.exp(-shrinkage * window / (steps - then))
        power = shrinkage / math.log((steps - window / 2) / (then - window / 2))
        mixture = min(power / (power - 1), LARGEST_MIXTURE) if power > 1 else LARGEST_MIXTURE
        estimates.append(mixture * recent * factor / (1 - factor))
    return max(estimates)


def recent_rise(trace: Sequence[float], fewest: int = RECENT_STEPS) -> float:
    """Estimate the remaining gain for methods whose steps are too uneven to have a rate.

    With D the rise over the last quarter of the steps (at least `fewest`) and q its ratio to the
    rise over the quarter before, the remaining gain would be D q / (1 - q) if q stayed constant
    (Aitken). The estimate is the larger of this and D. It is at least D, so that one large rise in
    the quarter before does not suggest convergence; and a method that takes small, even steps is
    not declared converged, because q is close to 1.

    Returns
    -------
    float
        Infinite before step 2 `fewest` (the tenth), or if the trace rose as much in the last
        quarter as in the one before; 0 if it has stopped rising.

    Examples
    --------
    >>> from mkmc_prob.em.stopping import recent_rise
    >>> recent_rise([*[0.0] * 5, 8.0, *[8.0] * 4, 9.0])
    1.0
    >>> round(recent_rise([-(0.99**t) for t in range(101)]), 3), round(0.99**100, 3)
    (0.366, 0.366)
    >>> recent_rise([0.0])
    inf
    """
    steps = len(trace) - 1
    window = max(fewest, int(steps * RECENT_SHARE))
    if steps < 2 * window:
        return math.inf
    recent = trace[-1] - trace[-1 - window]
    earlier = trace[-1 - window] - trace[-1 - 2 * window]
    if recent <= 0:
        return 0.0
    return max(recent, recent**2 / (earlier - recent)) if earlier > recent else math.inf
