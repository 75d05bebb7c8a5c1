"""Coverage where reduce_rank leaves out much; a quarter of an hour, so run by its name alone.

    python tests/slow/left_out.py [repetitions]

Made kernels for which the model holds, but for features of unequal variance: a few strong ones and
hundreds of weak ones, whose part of the trace is what `reduce_rank` leaves out. How many of the
removed entries lie between the 5 % and 95 % quantiles, as they are, and with the visible blocks
divided by the share of the trace that was kept?
"""

import sys
import warnings

import numpy as np
import pandas as pd

from mkmc_prob import (
    effective_degrees_of_freedom,
    reduce_rank,
    remove_objects,
    sample_posterior,
    select_strength,
    stack_kernels,
)

OBJECTS, KERNELS, FEATURES, RATIO = 60, 4, 300, 0.3
STRENGTHS = [3, 10, 30, 100, 300]
#: What share of the variance the weak features have, of which reduce_rank keeps a little.
WEAK = (0.2, 0.35, 0.5, 0.6, 0.7)


def made(weak, repetition):
    """Return complete kernels over objects in ten classes."""
    rng = np.random.default_rng(repetition)
    classes = np.repeat(np.arange(10), OBJECTS // 10)
    model = 0.5 * (classes[:, None] == classes) + 0.5 * np.eye(OBJECTS)
    half = np.linalg.cholesky(model)
    strong = round(12 * (1 - weak) ** 2)
    rest = FEATURES - strong
    variances = np.r_[np.full(strong, (1 - weak) / strong), np.full(rest, weak / rest)]
    kernels = {}
    for k in range(KERNELS):
        features = half @ rng.standard_normal((OBJECTS, FEATURES)) * np.sqrt(variances)
        kernels[f"k{k}"] = features @ features.T
    return stack_kernels(kernels)


def covered(truth, stack, nu, seed):
    """Return the share of removed entries inside, off the diagonal and on it, and the errors."""
    chosen = select_strength(stack, strengths=STRENGTHS, degrees_of_freedom=nu, folds=3)
    posterior = sample_posterior(
        stack,
        sources="identical",
        strength=chosen.best,
        degrees_of_freedom=nu,
        draws=500,
        tune=200,
        seed=seed,
        keep=[],
    )
    quantiles = posterior["posterior_summary"]["completed_quantile"]
    low, middle, high = (quantiles.sel(quantile=q).values for q in (0.05, 0.5, 0.95))
    inside = (low <= truth.values) & (truth.values <= high)
    gone = np.isnan(stack.values)
    on = gone & np.eye(OBJECTS, dtype=bool)
    off = gone & np.tri(OBJECTS, k=-1, dtype=bool)
    return {
        "covered, off": inside[off].mean(),
        "covered, on": inside[on].mean(),
        "median / truth, on": (middle[on] / truth.values[on]).mean(),
        "error, off": np.sqrt(((middle - truth.values)[off] ** 2).mean()),
        "width, off": (high - low)[off].mean(),
    }


def main(repetitions):
    """Print a line for each share of weak features."""
    rows = []
    for weak in WEAK:
        for repetition in range(10, 10 + repetitions):
            truth = made(weak, repetition)
            stack = remove_objects(truth, RATIO, seed=repetition)
            nu = effective_degrees_of_freedom(stack).round()
            reduced = reduce_rank(stack, nu)
            traces = [
                np.trace(each.fillna(0.0).values, axis1=1, axis2=2) for each in (reduced, stack)
            ]
            kept = traces[0] / traces[1]
            scaled = reduced / kept[:, np.newaxis, np.newaxis]
            for what, used in (("as it is", reduced), ("divided", scaled)):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # short runs
                    found = covered(truth, used, nu, repetition)
                rows.append({"weak": weak, "block": what, "left out": 1.0 - kept.mean()} | found)
        table = pd.DataFrame(rows).groupby(["weak", "block"]).mean()
        print(table.loc[[weak]].round(3).to_string(), flush=True)


if __name__ == "__main__":
    main(*([int(text) for text in sys.argv[1:]] or [10]))
