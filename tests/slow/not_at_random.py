"""Known factors and known missingness, in many draws; some minutes, so run by its name alone.

    PYTHONPATH=tests python tests/slow/not_at_random.py [repetitions] [trials]

Made kernels whose hidden objects really have a factor: at which delta do the completed values agree
with the truth? And how often does `diagnostics.mcar_test` reject, on ignorable data and on data in
which large objects are missing? The numbers are in docs/missing-not-at-random.md.
"""

import sys

import numpy as np
import pandas as pd
from not_ignorable import log_ratio, remove_large, shifted_kernels

from mkmc_prob import datasets, diagnostics, fit, remove_objects, sensitivity, stack_kernels

#: Of a statistic's mean, 99 %.
NORMAL = 2.576
MODELS = {
    "identical": {"sources": "identical", "strength": 0.01},
    "adaptive": {"sources": "adaptive", "strength": 0.01},
    "adaptive, strength 1": {"sources": "adaptive"},
}


def covered(direction, true, options, repetitions):
    """Return by delta the mean log ratio of completed and true values, and its error."""
    constant = 0.0 if options["sources"] == "identical" else 0.5
    deltas = [round(true + change, 1) for change in (-0.2, -0.1, 0.0, 0.1, 0.2)] + [1.0]
    rows = []
    for seed in range(repetitions):
        rng = np.random.default_rng(seed)
        truth, visible = shifted_kernels(rng, direction, true, constant=constant)
        result = fit(stack_kernels(truth, visible=visible), **options)

        def ratio(shifted, truth=truth, visible=visible):
            values = shifted.completed.values
            return log_ratio(truth, values, visible, direction, centered=constant > 0.0)

        found = sensitivity(result, direction, deltas=deltas, quantity=ratio)
        rows.append(found["quantity"].values)
    table = (
        pd.DataFrame(rows, columns=pd.Index(sorted(deltas), name="delta")).agg(["mean", "std"]).T
    )
    table["error"] = NORMAL * table.pop("std") / np.sqrt(repetitions)
    table["covered"] = table["mean"].abs() <= table["error"]
    return table


def rejections(remove, trials, permutations=499):
    """Return how often kernels are rejected at 5 %, and stacks after adjustment, over trials."""
    each, some = [], []
    for seed in range(trials):
        # Another seed than that of the removal, which permutes objects, too.
        found = diagnostics.mcar_test(remove(seed), permutations=permutations, seed=trials + seed)
        each.append(float((found["p_value"] <= 0.05).mean()))
        some.append(bool((found["p_adjusted"] <= 0.05).any()))
    return {"a kernel": np.mean(each), "some kernel, adjusted": np.mean(some)}


def main(repetitions, trials):
    """Print a table of each."""
    for direction, true in (("size", 0.7), ("ties", 0.6)) if repetitions else ():
        for name, options in MODELS.items():
            table = covered(direction, true, options, repetitions)
            print(f"\n{direction} {true}, {name}\n{table.round(4).to_string()}", flush=True)
    digits, _ = datasets.load_multiple_features(n_per_class=10, kernel="linear")
    removals = {
        f"at random ({protocol})": lambda seed, protocol=protocol: remove_objects(
            digits, 0.4, seed=seed, protocol=protocol
        )
        for protocol in ("pairs", "kernels", "rounds")
    }
    for power in (1.0, 2.0, 4.0):
        removals[f"odds: squared length to the {power:g}"] = lambda seed, power=power: remove_large(
            digits, 40, np.random.default_rng(seed), power
        )
    table = pd.DataFrame({name: rejections(each, trials) for name, each in removals.items()}).T
    print(f"\nrejected in {trials} trials\n{table.round(3).to_string()}")


if __name__ == "__main__":
    main(*([int(text) for text in sys.argv[1:]] or [100, 500]))
