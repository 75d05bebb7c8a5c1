"""Support vector machines on a kernel matrix, and their areas under the ROC curve."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import MKMCError
from ..linalg.symmetric import Matrix

#: Folds of the cross-validation that chooses C.
FOLDS = 5
#: How often a division is drawn before giving up.
MOST_DRAWS = 10_000

EXTRA = 'pip install "mkmc_prob[experiments]"'


def roc_area(
    matrix: Matrix,
    classes: ArrayLike,
    train: ArrayLike,
    test: ArrayLike,
    *,
    C: float | Sequence[float] = 1.0,
) -> float:
    """Train a support vector machine on a kernel matrix and return its ROC area on test objects.

    The area is that of the decision values. Of more than two classes each is separated from all
    others, and the mean of the areas is returned.

    Parameters
    ----------
    matrix
        Shape (l, l): the kernel over all objects.
    classes
        The classes of the l objects, two or more.
    train, test
        Positions of objects. Each class must occur in both.
    C
        The weight of training errors, in units of 1/(mean diagonal of the training block), so that
        the kernel's scale, which zero imputation reduces, does not matter. Of a sequence, the value
        with the best mean area in a 5-fold stratified cross-validation within the training objects
        is used, the smallest of equals; each class then needs 5 training objects.

    Returns
    -------
    float
        0 to 1; 1/2 if all decision values are equal, as they are if the training block is zero.

    Raises
    ------
    MKMCError
        If scikit-learn is not installed.

    Notes
    -----
    The solver, LIBSVM, stops at its usual tolerance of 1e-3 and keeps the kernel in single
    precision. On a low-rank kernel with many equal rows, as imputation leaves them, rounding can
    change the third digit of the area (0.005 was observed).

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob.experiments import roc_area
    >>> x = np.array([-2.0, 2.0, -1.0, 1.0])
    >>> roc_area(np.outer(x, x), ["no", "yes", "no", "yes"], train=[0, 1], test=[2, 3])
    1.0
    """
    svc, area, _ = need_sklearn()
    classes, train, test = np.asarray(classes), np.asarray(train), np.asarray(test)
    block, rows = matrix[np.ix_(train, train)], matrix[np.ix_(test, train)]
    if isinstance(C, Sequence):
        C = _best(block, classes[train], C)
    scale = float(block.diagonal().mean())
    if scale > 0:  # a positive semidefinite block with a zero diagonal is zero
        block, rows = block / scale, rows / scale
    labels, areas = np.unique(classes), []
    for label in labels[1:] if len(labels) == 2 else labels:
        machine = svc(kernel="precomputed", C=C).fit(block, classes[train] == label)
        areas.append(area(classes[test] == label, machine.decision_function(rows)))
    return float(np.mean(areas))


def _best(block: Matrix, classes: NDArray[Any], candidates: Sequence[float]) -> float:
    """Return the C with the best mean area over the folds of a training block."""
    # The training objects are in random order already.
    folds = list(need_sklearn()[2](FOLDS).split(block, classes))

    def mean_area(C: float) -> float:
        return float(np.mean([roc_area(block, classes, *fold, C=C) for fold in folds]))

    return max(sorted(candidates), key=mean_area)


def draw_order(
    codes: NDArray[np.intp], train_sizes: Sequence[int], rng: np.random.Generator, *, least: int = 1
) -> NDArray[np.intp]:
    """Draw a random order of the objects; the first n train, for each n of `train_sizes`.

    It is drawn again until every training set has `least` objects of every class, and every test
    set, which is all other objects, has one.

    Parameters
    ----------
    codes
        The classes, numbered from 0.
    train_sizes
        The sizes of the training sets.
    rng
        The generator, which is advanced.
    least
        How many objects of each class a training set needs.

    Raises
    ------
    MKMCError
        If no such order is found.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob.experiments.classification import draw_order
    >>> order = draw_order(np.array([0, 0, 1, 1]), [2], np.random.default_rng(0))
    >>> sorted(order[:2] // 2)  # one of each class
    [np.int64(0), np.int64(1)]
    """
    size, counts = len(codes), np.bincount(codes)
    smallest, largest = min(train_sizes), max(train_sizes)
    drawn = "the numbers do not allow one"
    if counts.min() > least and smallest >= least * len(counts) and size - largest >= len(counts):
        drawn = f"none was found in {MOST_DRAWS} draws"
        for _ in range(MOST_DRAWS):
            order = rng.permutation(size)
            first = np.bincount(codes[order[:smallest]], minlength=len(counts))
            last = np.bincount(codes[order[largest:]], minlength=len(counts))
            if first.min() >= least and last.min() >= 1:
                return order
    raise MKMCError(
        f"train_sizes: {list(train_sizes)} of {size} objects leave no division ({drawn}) with "
        f"{least} or more of each of the {len(counts)} classes in every training set and one in "
        f"every test set; the smallest has {counts.min()}. Give other sizes, or leave classes out."
    )


def need_sklearn() -> tuple[Any, Any, Any]:
    """Return SVC, roc_auc_score and StratifiedKFold; raise MKMCError if scikit-learn is missing."""
    try:
        svm, metrics, model_selection = (
            import_module(f"sklearn.{name}") for name in ("svm", "metrics", "model_selection")
        )
    except ImportError as error:
        raise MKMCError(f"a study needs scikit-learn. Install it: {EXTRA}") from error
    return svm.SVC, metrics.roc_auc_score, model_selection.StratifiedKFold
