"""Scores of completed kernels: correlation matrix distance, relative error, KL divergence."""

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..errors import IndefiniteKernelError, KernelError, LabelError
from ..linalg.cholesky import cholesky, half_solve
from ..linalg.symmetric import Matrix
from ..stacks.kernel_stack import KernelStack
from ..stacks.labels import Labels, match
from ..stacks.matrix import input_eps, square_matrix
from ..stacks.stack import check_complete


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
    >>> from mkmc_prob import stack_kernels
    >>> from mkmc_prob import correlation_matrix_distance
    >>> truth = stack_kernels([[[1.0, 1.0], [1.0, 1.0]]])
    >>> correlation_matrix_distance(truth, stack_kernels([[[1.0, 0.0], [0.0, 0.0]]])).item()
    0.5
    """
    of = KernelStack(_complete(truth, "truth"))
    estimate = aligned(_complete(estimate, "estimate"), of.array, "estimate")
    values = matrix_distances(of, estimate.values)
    return _per_kernel(values, of, "correlation_matrix_distance", "correlation matrix distance")


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
    >>> from mkmc_prob import stack_kernels
    >>> from mkmc_prob import relative_error
    >>> truth = stack_kernels([[[1.0, 0.0], [0.0, 4.0]]])
    >>> estimate = stack_kernels([[[1.0, 0.0], [0.0, 3.0]]])
    >>> incomplete = stack_kernels(truth.values, visible=[[1, 0]])
    >>> relative_error(truth, estimate, incomplete).item()
    0.25
    """
    of = KernelStack.of(truth, what="truth")
    estimate = aligned(_complete(estimate, "estimate"), of.array, "estimate")
    incomplete = KernelStack.of(incomplete, what="incomplete").array
    kept = KernelStack(aligned(incomplete, of.array, "incomplete")).visible
    if (kept & ~of.visible).any():
        k, i = np.argwhere(kept & ~of.visible)[0]
        raise KernelError(
            f"truth, kernel {of.names[k]!r}: object {of.objects[i].item()!r} is missing (NaN), but "
            "visible in `incomplete`. Pass the stack that objects were removed from."
        )
    values = row_errors(of, estimate.values, kept)
    return _per_kernel(values, of, "relative_error", "mean relative error of missing rows")


def matrix_distances(truth: KernelStack, estimate: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the correlation matrix distance of each complete kernel from its estimate."""
    # For unit vectors u and w, 1 - u'w = |u - w|^2 / 2, which does not cancel near 0.
    values = (truth.array.values, "truth"), (estimate, "estimate")
    one, other = (_unit(matrices, what, truth) for matrices, what in values)
    return np.asarray(0.5 * np.square(one - other).sum(axis=(1, 2)))


def row_errors(
    truth: KernelStack, estimate: NDArray[np.float64], kept: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return the mean relative error of each kernel's rows that are visible but not `kept`.

    It is NaN for a kernel without such rows.
    """
    values = np.full(len(kept), np.nan)
    for k, (visible, hidden) in enumerate(zip(truth.visible, truth.visible & ~kept, strict=True)):
        if not hidden.any():
            continue
        block = np.ix_(hidden, visible)
        rows = truth.array.values[k][block]
        size = np.abs(rows).max(axis=1, keepdims=True)  # squares of tiny entries would underflow
        if not size.all():
            label = truth.objects[hidden][int(np.argmin(size))].item()
            raise KernelError(
                f"truth, kernel {truth.names[k]!r}: the row of object {label!r} is all zero, so "
                "its relative error is undefined. Leave the object out."
            )
        errors = np.linalg.norm((estimate[k][block] - rows) / size, axis=1)
        values[k] = (errors / np.linalg.norm(rows / size, axis=1)).mean()
    return values


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
        place = _places(objects, others, "b: its objects", "a")
        b = b[np.ix_(place, place)]
    if len(a) != len(b):
        raise KernelError(f"kl_divergence: a has {len(a)} objects, b has {len(b)}.")
    # Both are checked first: there is no divergence if either is indefinite.
    singular = [
        _is_singular(matrix, float(input_eps(given)), name)
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


def aligned(
    stack: xr.DataArray, like: xr.DataArray, what: str, whose: str = "truth"
) -> xr.DataArray:
    """Return `stack` in the order of the labels of `like`, which an error calls `whose`."""
    places = {
        dim: _places(like[dim].values, stack[dim].values, f"{what}: its {dim}s", whose)
        for dim in ("kernel", "object")
    }
    return stack.isel(places | {"object_bis": places["object"]})


def _places(wanted: Labels, within: Labels, what: str, whose: str) -> Any:
    problem = f"{what} are not those of {whose}: {{}} in one only. Use the same labels in both."
    return match(wanted, within, problem, exact=True)


def _unit(values: NDArray[np.float64], what: str, stack: KernelStack) -> NDArray[np.float64]:
    """Return the matrices of the kernels of `stack`, each divided by its Frobenius norm."""
    size = np.abs(values).max(axis=(1, 2))
    if not size.all():
        name = stack.names[int(np.argmin(size))]
        raise KernelError(
            f"{what}, kernel {name!r}: all its entries are zero, so its correlation with another "
            "kernel is undefined. Leave the kernel out."
        )
    scaled = values / size[:, None, None]  # squares of tiny entries would underflow
    return np.asarray(scaled / np.linalg.norm(scaled, axis=(1, 2), keepdims=True))


def _per_kernel(values: Matrix, truth: KernelStack, name: str, long_name: str) -> xr.DataArray:
    return xr.DataArray(
        values,
        dims="kernel",
        coords={"kernel": truth.array["kernel"].values},
        name=name,
        attrs={"long_name": long_name},
    )
