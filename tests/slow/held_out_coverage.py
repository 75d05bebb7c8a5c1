"""Coverage of intervals of removed entries; minutes, so run by its name alone.

    python tests/slow/held_out_coverage.py [--seeds 10] [stacks.npz ...]

Objects are removed from complete kernels. How many of the removed entries lie within the interval
completed -+ 1.645 `MKMCResult.standard_deviation`, which should cover 90 %? The degrees of freedom
are the numbers of features (for linear kernels of features), the effective numbers, or those of
``degrees_of_freedom="auto"``. The files, if any, hold more complete kernels in one array "kernels".
"""

import argparse
import collections
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.stats

from mkmc_prob import (
    datasets,
    effective_degrees_of_freedom,
    fit,
    remove_objects,
    sample_posterior,
    stack_kernels,
)

MISSING = (0.2, 0.5, 0.8)
LEVELS = (0.5, 0.9, 0.95, 0.99)
FIRST_SEED = 100
FEATURES = {"fac": 216, "fou": 76, "kar": 64, "mor": 6, "pix": 240, "zer": 47}


def problems(files):
    """Yield the name of each data set, its complete kernels and the numbers of features."""
    yield "digits, RBF", datasets.load_multiple_features(10).kernels, None
    linear = datasets.load_multiple_features(10, kernel="linear").kernels
    yield "digits, linear", linear, FEATURES
    yield "fusion", datasets.make_fusion_problem(200, 6).kernels, None
    for path in files:
        with np.load(path) as file:
            yield path.stem, stack_kernels(file["kernels"]), None


def fitted(stack, rule, features):
    """Return a fit whose degrees of freedom follow a rule, with strength 1 per kernel."""
    if rule == "auto":
        return fit(stack, degrees_of_freedom="auto")
    nu = features if rule == "features" else effective_degrees_of_freedom(stack).to_series()
    mean = float(np.mean(list(dict(nu).values())))
    return fit(stack, degrees_of_freedom=nu, strength=mean)


def covered(truth, stack, result):
    """Return the number of removed entries per kernel, and the share inside by level."""
    quantiles = scipy.stats.norm.ppf(0.5 + 0.5 * np.array(LEVELS))
    lower = np.tri(stack.sizes["object"], dtype=bool)  # each pair once
    columns, rows = ["entries", *LEVELS, "diagonal"], {}
    for name in stack["kernel"].values.tolist():
        true, given, completed, sd = (
            each.sel(kernel=name).values
            for each in (truth, stack, result.completed, result.standard_deviation)
        )
        gone = np.isnan(given) & lower
        inside = np.abs(true - completed) <= quantiles[:, None, None] * sd
        own = inside[LEVELS.index(0.9)][gone & np.eye(len(gone), dtype=bool)]
        rows[name] = (gone.sum(), *inside[:, gone].mean(axis=1), own.mean())
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns)


def main(files, seeds):
    """Print a table for each data set, and one of all of them."""
    totals, told = [], collections.Counter()
    for data, truth, features in problems(files):
        rules = ["effective", "auto"] if features is None else ["features", "effective", "auto"]
        found = []
        for missing in MISSING:
            for seed in range(FIRST_SEED, FIRST_SEED + seeds):
                stack = remove_objects(truth, missing, seed=seed)
                for rule in rules:
                    with warnings.catch_warnings(record=True) as caught:
                        warnings.simplefilter("always")
                        table = covered(truth, stack, fitted(stack, rule, features))
                    messages = (str(each.message) for each in caught)
                    told.update(
                        f"{data}, {missing:.0%} missing: {message}"
                        for message in messages
                        if message.startswith("degrees_of_freedom")
                    )
                    about = {"missing": missing, "rule": rule, "seed": seed, "kernel": table.index}
                    found.append(table.assign(**about))
        found = pd.concat(found)
        by_kernel = found.pivot_table(index="kernel", columns=["rule", "missing"], values=0.9)
        print(f"\n{data}: {truth.sizes['object']} objects, coverage of 90 % intervals")
        print(by_kernel[rules].round(2).to_string(), flush=True)
        for (rule, missing), part in found.groupby(["rule", "missing"], sort=False):
            weights = part["entries"] / part["entries"].sum()
            total = {level: (part[level] * weights).sum() for level in LEVELS}
            total["diagonal"] = part["diagonal"].mean()
            total["sd"] = part.groupby("kernel")[0.9].std().mean()
            least = by_kernel[rule][missing].min()
            totals.append({"data": data, "rule": rule, "missing": missing, **total, "least": least})
    totals = pd.DataFrame(totals).set_index(["data", "rule", "missing"])
    print("\nall kernels, by level; at 90 %: diagonal entries, the standard deviation")
    print("of the coverage of a kernel over the repetitions, and the least covered kernel")
    print(totals.round(3).to_string())
    print("\nwarnings")
    for message, count in told.items():
        print(f"{count} x {message}")
    print("\nkernels for which the model holds: against the posterior")
    print(against_the_posterior().round(2).to_string())


def made(nu, seed, size=40):
    """Return four kernels of nu independent features over objects in five classes."""
    rng = np.random.default_rng(seed)
    classes = np.repeat(np.arange(5), size // 5)
    half = np.linalg.cholesky(0.5 * (classes[:, None] == classes) + 0.5 * np.eye(size))
    drawn = [half @ rng.standard_normal((size, nu)) for _ in range(4)]
    return stack_kernels([x @ x.T / nu for x in drawn])


def against_the_posterior(strength=10.0, seeds=3):
    """Return the coverage of 90 % intervals, and the posterior's standard deviations over others.

    The posterior knows the degrees of freedom, and so does "given M", a fit with them. Medians, and
    for "given M" two quantiles.
    """
    rows = []
    for nu in (50, 200):
        for missing in MISSING:
            for seed in range(seeds):
                truth = made(nu, seed)
                stack = remove_objects(truth, missing, seed=seed)
                gone = np.isnan(stack.values) & np.tri(stack.sizes["object"], dtype=bool)
                given = {"strength": strength, "degrees_of_freedom": nu}
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    plug_in = fit(stack, sources="identical", **given)
                    auto = {"strength": strength / nu, "degrees_of_freedom": "auto"}
                    calibrated = fit(stack, sources="identical", **auto)
                    given |= {"draws": 500, "tune": 200, "seed": seed, "sources": "identical"}
                    posterior = sample_posterior(stack, **given)
                summary = posterior["posterior_summary"]
                low, high = (summary["completed_quantile"].sel(quantile=q) for q in (0.05, 0.95))
                inside = (low.values <= truth.values) & (truth.values <= high.values)
                row = {"nu": nu, "missing": missing, "posterior": inside[gone].mean()}
                sd = summary["completed_sd"].values[gone]
                for name, result in (("given M", plug_in), ("auto", calibrated)):
                    own = result.standard_deviation.values[gone]
                    apart = np.abs(truth - result.completed).values[gone]
                    row[name] = (apart <= scipy.stats.norm.ppf(0.95) * own).mean()
                    row[f"sd / {name}"] = np.median(sd / own)
                row["5 %"], row["95 %"] = np.quantile(
                    sd / plug_in.standard_deviation.values[gone], [0.05, 0.95]
                )
                row["nu, auto"] = calibrated.degrees_of_freedom.mean().item()
                rows.append(row)
    return pd.DataFrame(rows).groupby(["nu", "missing"]).mean()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    main(**vars(parser.parse_args()))
