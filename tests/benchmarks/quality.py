"""Completion quality: the data sets, the methods, and the errors of one removal of objects.

From the root of the repository, with a process pool::

    python -m tests.benchmarks.quality --workers 2 --seeds 3

prints a line per removal to standard error, and at the end the table and all errors as JSON.
"""

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from threadpoolctl import threadpool_limits

from mkmc_prob import (
    complete,
    fit,
    knn_impute,
    mean_impute,
    relative_error,
    remove_objects,
    stack_kernels,
    zero_impute,
)
from mkmc_prob.datasets import load_multiple_features, make_fusion_problem, multiple_features
from mkmc_prob.errors import MKMCWarning
from mkmc_prob.kernels.features import linear_kernel, rbf_kernel
from mkmc_prob.utils.processes import in_processes

#: Kernels that are not part of the repository, in a folder next to it.
MIXED = Path(__file__).parents[3] / "shared" / "data" / "mixed"
MIXED_SETS = ("mice", "drugs", "jejunum")
#: The shares of rows removed; with two kernels every object stays visible up to a half.
MISSING, MISSING_OF_TWO = (0.2, 0.5, 0.8), (0.1, 0.2, 0.35, 0.5, 0.8)
#: The feature sets of the digits with a linear kernel, if the others have RBF kernels.
LINEAR = ("fac", "fou", "kar")


def digits() -> xr.DataArray:
    """Six RBF kernels of 100 digits."""
    return load_multiple_features(n_per_class=10).kernels


def digits_mixed() -> xr.DataArray:
    """Three centered linear kernels of the raw features of 100 digits, and three RBF kernels."""
    rbf = digits()
    kernels = {}
    for source in rbf["kernel"].values.tolist():
        if source in LINEAR:
            features = multiple_features(source).loc[rbf["object"].values].to_numpy()
            kernels[source] = linear_kernel(features - features.mean(axis=0))
        else:
            kernels[source] = rbf.sel(kernel=source).values
    return stack_kernels(kernels, objects=rbf["object"].values)


def digits_with_noise() -> xr.DataArray:
    """Six RBF kernels of 100 digits, and one of 20 independent normal features."""
    rbf = digits()
    kernels = dict(zip(rbf["kernel"].values.tolist(), rbf.values, strict=True))
    features = np.random.default_rng(0).standard_normal((rbf.sizes["object"], 20))
    return stack_kernels(kernels | {"noise": rbf_kernel(features)}, objects=rbf["object"].values)


def data_sets() -> dict[str, xr.DataArray]:
    """Return the complete stacks by name; those of `MIXED` are left out if it does not exist."""
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MKMCWarning)  # the scales differ, which is intended
        for name in MIXED_SETS:
            if (MIXED / f"{name}.npz").exists():
                with np.load(MIXED / f"{name}.npz") as file:
                    found[name] = stack_kernels(file["kernels"])
        found["digits, RBF"] = digits()
        found["digits, linear and RBF"] = digits_mixed()
        found["digits and noise"] = digits_with_noise()
        found["fusion"] = make_fusion_problem(100, 6).kernels
    return found


def _paper(stack: xr.DataArray) -> xr.DataArray:
    return fit(stack, strength=0.1, sources="identical", max_iter=300).completed


def _complete(stack: xr.DataArray) -> xr.DataArray:
    return complete(stack).completed


METHODS: dict[str, Callable[[xr.DataArray], xr.DataArray]] = {
    "zero": zero_impute,
    "mean": mean_impute,
    "knn": knn_impute,
    "paper": _paper,
    "complete": _complete,
}


def tasks(
    sets: dict[str, xr.DataArray], seeds: int, missing: Iterable[float] = ()
) -> Iterator[tuple[str, xr.DataArray, float, int]]:
    """Yield the removals, as arguments of `errors`; `missing` replaces the default shares."""
    for name, kernels in sets.items():
        default = MISSING_OF_TWO if kernels.sizes["kernel"] == 2 else MISSING
        for share in missing or default:
            for seed in range(seeds):
                yield name, kernels, share, seed


def errors(
    data: str, kernels: xr.DataArray, missing: float, seed: int, methods: Iterable[str] = METHODS
) -> list[dict[str, Any]]:
    """Remove objects from `kernels`; return the error and the seconds of each method.

    The error is the mean over the kernels of their `relative_error`.
    """
    incomplete = remove_objects(kernels, missing, seed=seed)
    records = []
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", MKMCWarning)
        for method in methods:
            start = time.perf_counter()
            completed = METHODS[method](incomplete)
            seconds = time.perf_counter() - start
            error = relative_error(kernels, completed, incomplete).mean().item()
            records.append(
                {"data": data, "missing": missing, "seed": seed, "method": method}
                | {"error": error, "seconds": round(seconds, 3)}
            )
    return records


def table(records: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Return the rows of the table: errors relative to those of mean imputation.

    The last rows are geometric means over the data sets. `complete` is worse than another method if
    its error is larger by more than one standard error of the mean difference over the seeds.
    """
    frame = pd.DataFrame(records)
    each = frame.pivot(index=["data", "missing", "seed"], columns="method", values="error")
    each = each.loc[frame["data"].unique()]  # not sorted by name
    methods = [name for name in METHODS if name in each and name != "mean"]
    by_cell = each.groupby(["data", "missing"], sort=False)
    mean = by_cell.mean()
    ratios = mean[methods].div(mean["mean"], axis=0)
    worse = {}
    if "complete" in each:
        for rival in ("mean", "knn"):
            excess = (each["complete"] - each[rival]).groupby(["data", "missing"])
            worse[rival] = excess.mean() > excess.sem().fillna(0.0)
    rows = []
    for (data, missing), row in ratios.iterrows():
        cell = data, missing
        rivals = [rival for rival, is_worse in worse.items() if is_worse[cell]]
        rows.append(_row(data, missing, f"{mean['mean'][cell]:.3f}", row, rivals))
    by_missing = np.log(ratios).groupby("missing")
    for missing, row in np.exp(by_missing.mean()).iterrows():
        rows.append(_row(f"geometric mean of {by_missing.size()[missing]}", missing, "-", row, []))
    return rows


def _row(
    data: str, missing: float, error: str, ratios: pd.Series, rivals: list[str]
) -> dict[str, str]:
    return {
        "data": data,
        "missing": f"{missing:.0%}",
        "error of mean": error,
        **{f"{name} / mean": f"{ratio:.3f}" for name, ratio in ratios.items()},
        "complete is worse than": ", ".join(rivals) or "-",
    }


def main() -> None:
    sets = data_sets()
    parser = argparse.ArgumentParser(description="Measure completion quality.")
    parser.add_argument("--workers", type=int, default=1, help="processes (default: 1)")
    parser.add_argument("--seeds", type=int, default=5, help="removals per share (default: 5)")
    parser.add_argument("--sets", nargs="+", choices=sets, default=list(sets))
    parser.add_argument("--missing", nargs="+", type=float, default=[], help="shares of rows")
    parser.add_argument(
        "--methods",
        nargs="+",
        choices=METHODS,
        default=list(METHODS),
        help="mean and knn always run",
    )
    options = parser.parse_args()
    for name in MIXED_SETS:
        if name not in sets:
            print(f"{name}: skipped, there is no {MIXED / name}.npz", file=sys.stderr)
    methods = list(dict.fromkeys(["mean", "knn", *options.methods]))
    chosen = {name: sets[name] for name in options.sets}
    calls = [(*task, methods) for task in tasks(chosen, options.seeds, options.missing)]
    records = []
    for done in in_processes(errors, calls, workers=options.workers):
        records += done
        found = ", ".join(f"{record['method']} {record['error']:.4f}" for record in done)
        first = done[0]
        print(
            f"{first['data']}, {first['missing']:.0%}, seed {first['seed']}: {found}",
            file=sys.stderr,
        )
    print(pd.DataFrame(table(records)).to_string(index=False))
    print(json.dumps(records))


if __name__ == "__main__":
    main()
