"""Scores of completed kernels: correlation matrix distance, relative error, KL divergence."""

from typing import Any

import numpy as np
import xarray as xr

from ..errors import IndefiniteKernelError, KernelError, LabelError
from ..linalg.cholesky import cholesky, half_solve
from ..linalg.symmetric import Matrix
from ..stacks.labels import Labels, name_some, positions
from ..stacks.matrix import rounding_of, square_matrix
from ..stacks.stack import check_complete, check_stack, visible_objects


def correlation_matrix_distance(truth: xr.DataArray, estimate: xr.DataArray) -> xr.DataArray:
    """Return the correlation matrix distance of each kernel from its estimate.

    The paper (section 5) reports the mean over the kernels of::

        1 - tr(Q Qhat) / (|Q|_F |Qhat|_F)

    It is 0 if the estimate is a positive multiple of the truth, and at most 1 for positive
    semidefinite matrices. Visible entries count too.

    Parameters
    ----------
    truth, estimate
        Complete stacks, dims ``("kernel", "object", "object_bis")``, with the same kernels and
        objects in any order.

    Returns
    -------
    xarray.DataArray
        One value per kernel, dims ``("kernel",)``, in the order of `truth`.

    Raises
    ------
    KernelError
        If a stack has missing objects or a kernel is the zero matrix.
    LabelError
        If the kernels or the objects of the stacks differ.

    Examples
    --------
    >>> from mkmc_prob.stacks.stack import stack_kernels
    >>> from mkmc_prob import correlation_matrix_distance
    >>> truth = stack_kernels([[[1.0, 1.0], [1.0, 1.0]]])
    >>> correlation_matrix_distance(truth, stack_kernels([[[1.0, 0.0], [0.0, 0.0]]])).item()
    0.5
    """
    truth = _complete(truth, "truth")
    estimate = _aligned(_complete(estimate, "estimate"), truth, "estimate")
    # For unit vectors u and w, 1 - u'w = |u - w|^2 / 2, which does not cancel near 0.
    difference = _unit(truth, "truth") - _unit(estimate, "estimate")
    values = 0.5 * np.square(difference).sum(axis=(1, 2))
    return _per_kernel(values, truth, "correlation_matrix_distance", "correlation matrix distance")


def relative_error(
    truth: xr.DataArray, estimate: xr.DataArray, incomplete: xr.DataArray
) -> xr.DataArray:
    """Return the relative error of the estimated rows of each kernel.

    The value of a kernel is the mean over its missing objects i of::

        |Qhat_i - Q_i|_2 / |Q_i|_2

    with Q_i the whole row of object i. It is 1 for zero imputation.

    Parameters
    ----------
    truth
        A stack, dims ``("kernel", "object", "object_bis")``. If it has missing objects itself, only
        its visible objects are compared: the rows of those that are hidden in `incomplete`, at
        those that are visible in `truth`. Incomplete kernels can thus be the truth for what
        `remove_objects` hides of them.
    estimate
        A complete stack.
    incomplete
        The stack that was completed; its missing rows are compared. All three stacks have the same
        kernels and objects in any order.

    Returns
    -------
    xarray.DataArray
        One value per kernel, dims ``("kernel",)``, in the order of `truth`; NaN if nothing that is
        visible in the truth is missing from the kernel, so that ``.mean()`` is over the others.

    Raises
    ------
    KernelError
        If `estimate` has missing objects, an object is visible in `incomplete` but not in `truth`,
        or a row of the truth to compare with is zero.
    LabelError
        If the kernels or the objects of the stacks differ.

    Examples
    --------
    >>> from mkmc_prob.stacks.stack import stack_kernels
    >>> from mkmc_prob import relative_error
    >>> truth = stack_kernels([[[1.0, 0.0], [0.0, 4.0]]])
    >>> estimate = stack_kernels([[[1.0, 0.0], [0.0, 3.0]]])
    >>> incomplete = stack_kernels(truth.values, visible=[[1, 0]])
    >>> relative_error(truth, estimate, incomplete).item()
    0.25
    """
    truth = check_stack(truth, what="truth")
    estimate = _aligned(_complete(estimate, "estimate"), truth, "estimate")
    incomplete = _aligned(check_stack(incomplete, what="incomplete"), truth, "incomplete")
    names, objects = truth["kernel"].values.tolist(), truth["object"].values
    masks = visible_objects(truth).values, visible_objects(incomplete).values
    values = np.full(len(names), np.nan)
    for k, (visible, kept) in enumerate(zip(*masks, strict=True)):
        if (kept & ~visible).any():
            raise KernelError(
                f"truth, kernel {names[k]!r}: object {objects[kept & ~visible].tolist()[0]!r} is "
                "missing (NaN), but visible in `incomplete`. Pass the stack that objects were "
                "removed from."
            )
        hidden = visible & ~kept
        if not hidden.any():
            continue
        block = np.ix_(hidden, visible)
        rows = truth.values[k][block]
        size = np.abs(rows).max(axis=1, keepdims=True)  # squares of tiny entries would underflow
        if not size.all():
            label = objects[hidden].tolist()[int(np.argmin(size))]
            raise KernelError(
                f"truth, kernel {names[k]!r}: the row of object {label!r} is all zero, so its "
                "relative error is undefined. Leave the object out."
            )
        errors = np.linalg.norm((estimate.values[k][block] - rows) / size, axis=1)
        values[k] = (errors / np.linalg.norm(rows / size, axis=1)).mean()
    return _per_kernel(values, truth, "relative_error", "mean relative error of missing rows")


def kl_divergence(a: Any, b: Any) -> float:
    """Return the Kullback-Leibler divergence KL(N(0, a) || N(0, b)) in nats.

    Equations :eq:`eq-kl` and :eq:`eq-j-infinite` of the derivation.

    For n x n covariance matrices (section 3 of the paper)::

        (1/2) [tr(b^-1 a) + logdet b - logdet a - n]

    computed from Cholesky factors, without an inverse. It is infinite if `a` or `b` is singular,
    because such a Gaussian has no density. An eigenvalue counts as zero, being indistinguishable
    from rounding, up to n times the machine epsilon (of the precision of the input) times the
    largest eigenvalue.

    Parameters
    ----------
    a, b
        Square matrices of the same size, either both arrays or both labeled (`xarray.DataArray`,
        `pandas.DataFrame`), in which case they are aligned by label.

    Returns
    -------
    float
        0 or more, or ``inf``.

    Raises
    ------
    IndefiniteKernelError
        If a matrix has an eigenvalue below zero by more than rounding (the same tolerance).
    KernelError
        If a matrix is not square, not finite, not symmetric or has a negative diagonal, or the
        sizes differ.
    LabelError
        If only one matrix is labeled, or their objects differ.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import kl_divergence
    >>> round(kl_divergence(2 * np.eye(2), np.eye(2)), 6)  # 1 - log 2
    0.306853
    >>> kl_divergence(np.ones((2, 2)), np.eye(2))
    inf
    """
    given_a, given_b = a, b
    a, objects = square_matrix(given_a, "a")
    b, others = square_matrix(given_b, "b")
    if (objects is None) != (others is None):
        raise LabelError(
            "kl_divergence: one matrix is labeled and one is a plain array, which cannot be "
            "aligned. Label both (pandas.DataFrame) or neither."
        )
    if objects is not None and others is not None:
        place = _places(objects, others, "b: its objects are not those of a")
        b = b[np.ix_(place, place)]
    if len(a) != len(b):
        raise KernelError(f"kl_divergence: a has {len(a)} objects, b has {len(b)}.")
    # Both are checked first: there is no divergence if either is indefinite.
    singular = [
        _is_singular(matrix, rounding_of(given), name)
        for matrix, given, name in ((a, given_a, "a"), (b, given_b, "b"))
    ]
    if any(singular):
        return np.inf
    # X = L_b^-1 L_a is lower triangular, tr(b^-1 a) = |X|_F^2, and its diagonal d gives the
    # logdets: a sum of squares and of terms d^2 - 1 - log d^2, which are negative only by rounding.
    x = half_solve(cholesky(b, "kernel 'b'"), cholesky(a, "kernel 'a'"))
    d = np.diagonal(x)
    terms = np.maximum((d - 1.0) * (d + 1.0) - 2.0 * np.log(d), 0.0)
    return 0.5 * float(terms.sum() + np.square(np.tril(x, -1)).sum())


def _is_singular(matrix: Matrix, eps: float, what: str) -> bool:
    """Return whether an eigenvalue of `matrix` is zero up to rounding; raise if one is negative."""
    eigenvalues = np.linalg.eigvalsh(matrix)
    tolerance = len(matrix) * eps * float(np.abs(eigenvalues).max())
    if eigenvalues[0] < -tolerance:
        raise IndefiniteKernelError(
            f"kernel {what!r}: an eigenvalue is {eigenvalues[0]:.6g} (the largest is "
            f"{eigenvalues[-1]:.6g}), so it is not a covariance. Use repair_spectrum(stack)."
        )
    return bool(eigenvalues[0] <= tolerance)


def _complete(stack: xr.DataArray, what: str) -> xr.DataArray:
    """Return `stack`, checked; raise KernelError if an object is missing from a kernel."""
    remedy = "Complete the stack first, with fit, zero_impute or mean_impute."
    return check_complete(stack, what=what, remedy=remedy)


def _aligned(stack: xr.DataArray, truth: xr.DataArray, what: str) -> xr.DataArray:
    """Return `stack` with its kernels and objects in the order of `truth`."""
    kernels, objects = (
        _places(truth[dim].values, stack[dim].values, f"{what}: its {dim}s are not those of truth")
        for dim in ("kernel", "object")
    )
    return stack.isel(kernel=kernels, object=objects, object_bis=objects)


def _places(wanted: Labels, within: Labels, problem: str) -> Any:
    """Return the positions of `wanted` in `within`; raise LabelError if the labels differ."""
    here, there = positions(wanted, within), positions(within, wanted)
    odd = wanted[here < 0].tolist() + within[there < 0].tolist()
    if odd:
        raise LabelError(f"{problem}: {name_some(odd)} in one only. Select the same ones in both.")
    return here


def _unit(stack: xr.DataArray, what: str) -> Matrix:
    """Return the kernels of `stack`, each divided by its Frobenius norm."""
    size = np.abs(stack.values).max(axis=(1, 2))
    if not size.all():
        name = stack["kernel"].values[int(np.argmin(size))].item()
        raise KernelError(
            f"{what}, kernel {name!r}: all its entries are zero, so its correlation with another "
            "kernel is undefined. Leave the kernel out."
        )
    scaled = stack.values / size[:, None, None]  # squares of tiny entries would underflow
    return np.asarray(scaled / np.linalg.norm(scaled, axis=(1, 2), keepdims=True))


def _per_kernel(values: Matrix, truth: xr.DataArray, name: str, long_name: str) -> xr.DataArray:
    return xr.DataArray(
        values,
        dims="kernel",
        coords={"kernel": truth["kernel"].values},
        name=name,
        attrs={"long_name": long_name},
    )
