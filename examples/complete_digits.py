"""Complete six incomplete kernels over 500 handwritten digits, and measure the accuracy.

Half of the (object, kernel) pairs of the bundled UCI Multiple Features data are removed. The
kernels are completed by MKMC and by the two baselines of the paper, and the completions are
compared with the truth. Run it with ``python examples/complete_digits.py`` or ``make demo``.
"""

import argparse
import time
import warnings
from pathlib import Path

import matplotlib as mpl
import pandas as pd

from mkmc_prob import (
    ConvergenceWarning,
    correlation_matrix_distance,
    datasets,
    fit,
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
    parser.add_argument("--strength", type=float, nargs="+", default=[0.1], help="of the prior")
    parser.add_argument("--method", default="geodesic", help="geodesic, em or squarem")
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

    def scores(completed):
        return {
            "relative error": float(relative_error(kernels, completed, incomplete).mean()),
            "correlation matrix distance": float(
                correlation_matrix_distance(kernels, completed).mean()
            ),
        }

    rows = {}
    for strength in options.strength:
        started = time.perf_counter()
        result = fit(incomplete, strength=strength, method=options.method, progress=True)
        rows[f"MKMC, strength {strength:g}"] = scores(result.completed) | {
            "steps": result.n_iter,
            "seconds": round(time.perf_counter() - started, 1),
        }
        if strength == options.strength[0]:
            first = result
    rows["mean imputation"] = scores(mean_impute(incomplete))
    rows["zero imputation"] = scores(zero_impute(incomplete))

    print(f"\n{first}\n\n{first.summary().round(3).to_string()}\n")
    table = pd.DataFrame(rows).T
    columns = dict.fromkeys(table.columns[:2], "{:.4f}".format)
    columns |= {name: lambda v: "" if pd.isna(v) else f"{v:g}" for name in table.columns[2:]}
    print(table.to_string(formatters=columns))

    pictures = {
        "trace.png": first.plot_trace(),
        "kernels.png": first.plot_kernels()[0, 0],
    }
    print()
    for name, ax in pictures.items():
        path = options.output / name
        ax.figure.savefig(path, dpi=150)
        print(f"wrote {path}")
    first.save(options.output / "result.nc")
    print(f"wrote {options.output / 'result.nc'}")


if __name__ == "__main__":
    warnings.simplefilter("always", ConvergenceWarning)
    main()
