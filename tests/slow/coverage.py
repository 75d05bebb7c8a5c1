"""Coverage of the posterior's 90 % intervals on real data; half an hour, so run by its name alone.

    python tests/slow/coverage.py [digits of each class] [repetitions]

From linear kernels of standardised features of handwritten digits objects are removed. How many of
the removed entries lie between the 5 % and 95 % quantiles, with nu_k the number of features, and
with the effective number and kernels of that rank? The strength is chosen by held-out likelihood.
Then the same of made kernels for which the model holds: independent normal features.
"""

import sys
import warnings

import numpy as np
import pandas as pd

from mkmc_prob import (
    ConvergenceWarning,
    datasets,
    effective_degrees_of_freedom,
    reduce_rank,
    remove_objects,
    sample_posterior,
    select_strength,
    stack_kernels,
)

RATIO = 0.3
STRENGTHS = np.geomspace(1.0, 1000.0, 7)
FEATURES = {"fac": 216, "fou": 76, "kar": 64, "mor": 6, "pix": 240, "zer": 47}


def digits(per_class, repetition):
    """Return complete kernels of real digits, and their numbers of features."""
    loaded = datasets.load_multiple_features(per_class, kernel="linear", seed=repetition)
    return loaded.kernels, FEATURES


def made(per_class, repetition):
    """Return kernels of as many independent features over as many objects in ten classes."""
    rng = np.random.default_rng(repetition)
    classes = np.repeat(np.arange(10), per_class)
    model = 0.5 * (classes[:, None] == classes) + 0.5 * np.eye(len(classes))
    half = np.linalg.cholesky(model)
    kernels = {}
    for name, count in FEATURES.items():
        features = half @ rng.standard_normal((len(classes), count))
        kernels[name] = features @ features.T / count
    return stack_kernels(kernels), FEATURES


def covered(truth, stack, nu, seed):
    """Return, kernel by kernel, the share of removed entries inside, their width, the error."""
    chosen = select_strength(stack, strengths=STRENGTHS, degrees_of_freedom=nu, folds=3)
    posterior = sample_posterior(
        stack,
        sources="identical",
        strength=chosen.best,
        degrees_of_freedom=nu,
        draws=1000,
        chains=4,
        seed=seed,
    )
    summary = posterior["posterior_summary"]
    low, middle, high = (
        summary["completed_quantile"].sel(quantile=q).values for q in (0.05, 0.5, 0.95)
    )
    inside = (low <= truth.values) & (truth.values <= high)
    lower = np.tri(stack.sizes["object"], dtype=bool)
    rows = []
    for k, name in enumerate(stack["kernel"].values.tolist()):
        gone = np.isnan(stack.values[k]) & lower  # each pair once
        shown = ~np.isnan(np.diagonal(stack.values[k]))
        half_gone = gone & (shown[:, None] | shown)
        rows.append(
            {
                "kernel": name,
                "nu": float(nu[name]),
                "strength": chosen.best,
                "covered": inside[k][gone].mean(),
                "hidden-visible": inside[k][half_gone].mean(),
                "hidden-hidden": inside[k][gone & ~half_gone].mean(),
                "width": (high - low)[k][gone].mean(),
                "error": np.sqrt(((middle - truth.values)[k][gone] ** 2).mean()),
            }
        )
    return rows


def main(per_class, repetitions):
    """Print a table for each kind of data and of degrees of freedom."""
    for source in (digits, made):
        rows, late = [], 0
        for repetition in range(repetitions):
            truth, features = source(per_class, repetition)
            stack = remove_objects(truth, RATIO, seed=repetition)
            effective = effective_degrees_of_freedom(stack).round().to_series()
            for what, used, nu in (
                ("features", stack, features),
                ("effective", reduce_rank(stack, effective), effective),
            ):
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    found = covered(truth, used, nu, repetition)
                late += any(issubclass(w.category, ConvergenceWarning) for w in caught)
                rows += [{"nu_k": what} | row for row in found]
            done = pd.DataFrame(rows).groupby(["nu_k", "kernel"], sort=False)
            print(f"\n{source.__name__}, {10 * per_class} objects, {repetition + 1} repetitions")
            table = done.mean()
            table["covered, sd"] = done["covered"].std()
            print(table.round(3).to_string(), flush=True)
        print(f"{late} of {2 * repetitions} runs did not mix as they should")


if __name__ == "__main__":
    sizes = [int(text) for text in sys.argv[1:]] or [10, 10]
    main(*sizes)
