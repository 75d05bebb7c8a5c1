"""When an ascent may stop: estimates of the gain in log-likelihood that is still to come.

Enters: the log-likelihoods so far, one per model. Leaves: nats, which is what `tol` is compared
with whatever the method: small steps alone are not convergence.
"""

import math
from collections.abc import Sequence

#: How far back the increments are compared with today's, as a share of the steps taken.
LOOK_BACK = (0.9, 0.5)


#: The most by which slower rates, not seen yet, may enlarge the gain still to come.
LARGEST_MIXTURE = 3.0


#: Before so many steps the increments may still be those of a bad start.
FEWEST_STEPS = 10


#: The rise over this share of the steps taken, and over this many at least, is looked at.
RECENT_SHARE, RECENT_STEPS = 0.25, 5


def estimated_gain(trace: Sequence[float]) -> float:
    """Estimate how much the log-likelihood would still rise, in nats, from its trace so far.

    Equation :eq:`eq-aitken` of the derivation.

    Were there one rate, EM's increments would shrink by the same factor q every w steps, and of
    the rise D over the last w steps D q / (1 - q) would still be to come (Aitken). But they are a
    mixture of rates, whose slower parts show later: locally the increments shrink like t^-p in
    the number t of steps, and p / (p - 1) times as much is to come. q and p are read off the rise
    over a short window now and at 0.9 t and at 0.5 t; the larger estimate counts. The factor
    p / (p - 1) is held to 3: right after a warm start t says nothing.

    Returns
    -------
    float
        Infinite before the tenth step or where the increments do not shrink; 0 where the
        trace no longer rises at all, which only rounding lets happen.

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


def recent_rise(trace: Sequence[float]) -> float:
    """Estimate the same for methods whose steps differ too much in length to have a rate.

    What rose in the last quarter of the steps (five at least) is taken for what is still to come:
    all of it, even where the quarter before rose far more; and more where it did not. With q the
    ratio of the two rises, D q / (1 - q) would come were q to stay (Aitken), so that a method of
    small, even steps does not pass for converged.

    Returns
    -------
    float
        Infinite before the tenth step, or where the last quarter rose as much as the one
        before.

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
    window = max(RECENT_STEPS, int(steps * RECENT_SHARE))
    if steps < 2 * window:
        return math.inf
    recent = trace[-1] - trace[-1 - window]
    earlier = trace[-1 - window] - trace[-1 - 2 * window]
    if recent <= 0:
        return 0.0
    return max(recent, recent**2 / (earlier - recent)) if earlier > recent else math.inf
