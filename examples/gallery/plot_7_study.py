"""
The paper's study, small
========================

How well do completed kernels serve a classifier, and how close are they to the truth, as more and
more rows go missing? Section 5 of the paper asks this of yeast proteins. Here are 80 handwritten
digits, with a method of one's own among the others.
"""

# %%
# A method is a function from an incomplete stack to a complete one. This one knows the other
# kernels: where a kernel misses an object, it takes the mean row of the three objects that are
# most like it elsewhere.

import warnings

import numpy as np

from mkmc_prob import ConvergenceWarning, datasets, experiments, mean_impute, visible_objects


def neighbours(stack):
    """Complete each missing row by the rows of the objects that are most alike in other kernels."""
    seen = visible_objects(stack).values
    alike = np.nan_to_num(np.nanmean(stack.values, axis=0), nan=-np.inf)
    completed = mean_impute(stack)
    for k, (matrix, shown) in enumerate(zip(stack.values, seen, strict=True)):
        nearest = np.arange(len(shown))[:, None].repeat(3, axis=1)  # a visible object is its own
        for i in np.flatnonzero(~shown):
            order = np.argsort(-np.where(shown, alike[i], -np.inf))
            nearest[i] = order[:3]
        known = np.nan_to_num(matrix)
        completed.values[k] = known[nearest].mean(axis=1)[:, nearest].mean(axis=2)
    return completed


# %%
# Every method sees the same removals and divisions into training and test objects. Cells (a
# repetition, a ratio, a method) do not depend on each other: with ``workers=`` they are computed
# side by side, with ``folder=`` each is kept as soon as it is there.

kernels, digits = datasets.load_multiple_features(8, sources=["fou", "kar", "zer"])
with warnings.catch_warnings():
    # Where no object tells of another in any kernel, the mean above is of nothing.
    warnings.filterwarnings("ignore", "Mean of empty slice", RuntimeWarning)
    warnings.simplefilter("ignore", ConvergenceWarning)
    study = experiments.run_study(
        kernels,
        digits,
        methods=["mkmc", "zero", "mean", {"neighbours": neighbours}],
        ratios=[0.2, 0.4, 0.6],
        repetitions=3,
        train_sizes=[30, 60],
        strength=0.1,
        tol=0.1,
        seed=0,
    )
print(study)

# %%
# The paper's three figures. First the ROC scores on each kernel and on the model matrix:

axes = experiments.plot_roc_by_matrix(study, ratio=0.4)

# %%
# then of the model matrix as the ratio grows,

ax = experiments.plot_roc_by_ratio(study)

# %%
# and how far the completed kernels are from the true ones.

ax = experiments.plot_distance_by_ratio(study)

# %%
# The paper's two-sample test beside one for pairs, since repetitions share their data, and one
# that counts that they share their objects, too.

table = experiments.comparison_table(study, ratio=0.4)
table[["mean", "difference", "p_two_sample", "p_paired", "p_corrected"]].round(4)

# %%
# ``python -m mkmc_prob.experiments digits --output study`` runs the whole of it, and writes the
# dataset, the table, the figures and a report.
