"""Complete six incomplete kernels over 500 handwritten digits, and measure the accuracy.

Half of the (object, kernel) pairs of the bundled UCI Multiple Features data are removed, and the
kernels are completed by `complete`, by `fit` with its defaults, by the paper's model and by simple
imputation. Each completion is compared with the truth. Run it with
``python examples/complete_digits.py`` or ``make demo``.
"""

import argparse
import time
import warnings
from pathlib import Path

import matplotlib as mpl
import pandas as pd

from mkmc_prob import (
    ConvergenceWarning,
    MKMCWarning,
    complete,
    correlation_matrix_distance,
    datasets,
    fit,
    knn_impute,
    mean_impute,
    relative_error,
    remove_objects,
    zero_impute,
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="output folder")
    parser.add_argument("--n-per-class", type=int, default=50, help="number of digits per class")
    parser.add_argument("--ratio", type=float, default=0.5, help="share of the pairs removed")
    parser.add_argument(
        "--paper", type=float, nargs="*", default=[0.1], help="strengths of the paper's model"
    )
    parser.add_argument("--method", default="geodesic", help="geodesic, em or squarem")
    parser.add_argument("--workers", type=int, default=1, help="processes of the selection")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    mpl.use("Agg")  # figures are written to files
    options.output.mkdir(parents=True, exist_ok=True)

    kernels, _ = datasets.load_multiple_features(n_per_class=options.n_per_class)
    incomplete = remove_objects(kernels, options.ratio, seed=options.seed)
    print(
        f"{kernels.sizes['kernel']} kernels over {kernels.sizes['object']} digits, "
        f"{options.ratio:.0%} of the (object, kernel) pairs removed\n"
    )
    common = {"method": options.method, "progress": True}
    methods = {
        "complete": lambda: complete(incomplete, workers=options.workers, **common),
        "fit, defaults": lambda: fit(incomplete, **common),
    }
    for strength in options.paper:
        methods[f"paper's model, strength {strength:g}"] = lambda strength=strength: fit(
            incomplete, strength=strength, sources="identical", **common
        )
    methods |= {
        "KNN imputation": lambda: knn_impute(incomplete),
        "mean imputation": lambda: mean_impute(incomplete),
        "zero imputation": lambda: zero_impute(incomplete),
    }
    results, rows = {}, {}
    for name, method in methods.items():
        started = time.perf_counter()
        results[name] = found = method()
        row = {"seconds": round(time.perf_counter() - started, 1)}
        if hasattr(found, "n_iter"):
            row["steps"], found = found.n_iter, found.completed
        rows[name] = {
            "relative error": float(relative_error(kernels, found, incomplete).mean()),
            "correlation matrix distance": float(
                correlation_matrix_distance(kernels, found).mean()
            ),
        } | row

    best = results["complete"]
    print(f"\n{best}\n\n{best.selection}\n\n{best.summary().round(3).to_string()}\n")
    table = pd.DataFrame(rows).T
    columns = dict.fromkeys(table.columns[:2], "{:.4f}".format)
    columns |= {name: lambda v: "" if pd.isna(v) else f"{v:g}" for name in table.columns[2:]}
    print(table.to_string(formatters=columns))

    pictures = {
        "trace.png": best.plot_trace(),
        "kernels.png": best.plot_kernels()[0, 0],
    }
    print()
    for name, ax in pictures.items():
        path = options.output / name
        ax.figure.savefig(path, dpi=150)
        print(f"wrote {path}")
    best.save(options.output / "result.nc")
    print(f"wrote {options.output / 'result.nc'}")


if __name__ == "__main__":
    # The paper's model warns of the constant that the entries of these kernels share.
    warnings.simplefilter("ignore", MKMCWarning)
    warnings.simplefilter("always", ConvergenceWarning)
    main()
