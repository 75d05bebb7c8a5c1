"""Draw the figure of the README: the likelihood by iteration, and kernels before and after.

``python examples/overview_picture.py docs/images/overview.png``
"""

import sys

import matplotlib as mpl
import matplotlib.pyplot as plt

from mkmc_prob import complete, datasets, remove_objects


def main(path: str, n_per_class: int = 20) -> None:
    truth, _ = datasets.load_multiple_features(n_per_class=n_per_class)
    result = complete(remove_objects(truth, 0.5, seed=0))
    figure = plt.figure(figsize=(11, 3.6), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[1.0, 2.4])
    result.plot_trace(ax=left.subplots()).set_title("every step raises the likelihood", fontsize=10)
    result.plot_kernels(
        kernels=["fac", "kar", "mor", "zer"], axes=right.subplots(2, 4, squeeze=False)
    )
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    mpl.use("Agg")
    main(sys.argv[1] if len(sys.argv) > 1 else "overview.png")
