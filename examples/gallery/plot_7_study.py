"""
The paper's study at small size
===============================

Section 5 of the paper measures how well completed kernels serve a classifier, and how close they
are to the truth, as more and more rows are missing. The paper uses yeast proteins; here the data
are 80 handwritten digits, and a user-defined method is compared with the others.
"""

# %%
# A method is a function that takes an incomplete stack and returns a complete one. This one uses
# the other kernels: if an object is missing from a kernel, its row is the mean row of the three
# objects that are most similar to it in the other kernels.

import warnings

import numpy as np

from mkmc_prob import ConvergenceWarning, datasets, experiments, mean_impute, visible_objects


def neighbors(stack):
    """Complete each missing row by the rows of the most similar objects in the other kernels."""
    visible = visible_objects(stack).values
    similarity = np.nan_to_num(np.nanmean(stack.values, axis=0), nan=-np.inf)
    completed = mean_impute(stack)
    for k, (matrix, shown) in enumerate(zip(stack.values, visible, strict=True)):
        nearest = np.arange(len(shown))[:, None].repeat(3, axis=1)  # visible objects: themselves
        for i in np.flatnonzero(~shown):
            order = np.argsort(-np.where(shown, similarity[i], -np.inf))
            nearest[i] = order[:3]
        known = np.nan_to_num(matrix)
        completed.values[k] = known[nearest].mean(axis=1)[:, nearest].mean(axis=2)
    return completed


# %%
# All methods are compared on the same removals and the same training and test objects. The cells of
# the study (a repetition, a ratio and a method) are independent of each other: ``workers=``
# computes several at a time, and ``folder=`` saves each as soon as it is finished.

kernels, digits = datasets.load_multiple_features(8, sources=["fou", "kar", "zer"])
with warnings.catch_warnings():
    # The mean above is empty for pairs of objects that are never observed together.
    warnings.filterwarnings("ignore", "Mean of empty slice", RuntimeWarning)
    warnings.simplefilter("ignore", ConvergenceWarning)
    study = experiments.run_study(
        kernels,
        digits,
        methods=["mkmc", "zero", "mean", {"neighbors": neighbors}],
        ratios=[0.2, 0.4, 0.6],
        repetitions=3,
        train_sizes=[30, 60],
        strength=0.1,
        tol=0.1,
        seed=0,
    )
print(study)

# %%
# The paper's three figures. The first shows the ROC scores on each kernel and on the model matrix,

axes = experiments.plot_roc_by_matrix(study, ratio=0.4)

# %%
# the second the ROC scores of the model matrix by ratio of missing rows,

ax = experiments.plot_roc_by_ratio(study)

# %%
# and the third the distance of the completed kernels from the true ones.

ax = experiments.plot_distance_by_ratio(study)

# %%
# The paper's two-sample test, a paired test (methods share the data of a repetition), and a paired
# test corrected for the objects that repetitions share.

table = experiments.comparison_table(study, ratio=0.4)
table[["mean", "difference", "p_two_sample", "p_paired", "p_corrected"]].round(4)

# %%
# ``python -m mkmc_prob.experiments digits --output study`` runs the full study on the bundled
# digits, and writes the dataset, the table, the figures and a report.
