"""What people do to kernels before completing them: center, normalize, repair; and a first look.

Enters: a labelled stack. Leaves: a new stack with the same labels, changed on the visible block of
each kernel only and exactly symmetric; a table; or an error that names the kernel.
"""

from collections.abc import Hashable, Iterator
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
import scipy.linalg
import xarray as xr
from numpy.typing import NDArray
from scipy.linalg import lapack

from .checks import eps_of_share, rounding_share
from .errors import IndefiniteKernelError, KernelError, warn
from .kernels import check_stack, visible_objects
from .linalg import Matrix, symmetrize

#: How `repair_spectrum` treats eigenvalues below zero.
Method = Literal["clip", "shift", "flip"]


class _Kernel(NamedTuple):
    """One kernel of a stack: its visible block, whose objects it is, and how exact it is."""

    k: int
    name: Hashable
    objects: list[Hashable]
    place: tuple[NDArray[np.intp], ...]
    block: Matrix
    rounding: float


def center(stack: xr.DataArray) -> xr.DataArray:
    """Center each kernel in its feature space: H Q H with H = I - 11'/n, over its visible objects.

    The n objects that a kernel sees then have mean zero in its feature space, and every row of
    the block sums to zero. Kernels that see different objects are centered on different means.

    Parameters
    ----------
    stack
        Kernels, as `stack_kernels` builds them.

    Returns
    -------
    xarray.DataArray
        The centered stack. The coordinate `rounding` grows by ||Q||_F / ||H Q H||_F, the digits
        that cancel where the mean is large beside the spread; where none is left, the block is 0.

    Warns
    -----
    MKMCWarning
        Where nothing is left of a kernel beyond rounding.

    Raises
    ------
    KernelError, LabelError
        Where the stack is not one, see `check_stack`.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob.kernels import stack_kernels
    >>> from mkmc_prob import center
    >>> center(stack_kernels(np.array([[[4.0, 2.0], [2.0, 4.0]]]))).values
    array([[[ 1., -1.],
            [-1.,  1.]]])
    """
    result = check_stack(stack)  # a copy
    rounding = result["rounding"].values.copy()
    for kernel in _kernels(result):
        mean = kernel.block.mean(axis=0)
        # The sum of two row means is the same both ways round, so the result is symmetric.
        centered = kernel.block - (mean[:, None] + mean) + mean.mean()
        # The absolute error stays, the tolerance of the block at most; the block shrinks.
        before, after = _frobenius(kernel.block), _frobenius(centered)
        error = _tolerance(kernel.block, kernel.rounding)
        if after > error:
            grown = eps_of_share(len(mean), error / after)
            rounding[kernel.k] = max(kernel.rounding, grown)
        elif before:
            centered[:] = 0.0  # what is left has any sign
            warn(
                f"kernel {kernel.name!r}: centering leaves nothing of it beyond rounding (norm "
                f"{after:.3g} of {before:.3g}), so zeros: its {len(mean)} visible objects are all "
                "alike, or their mean is too large for the precision. Leave the kernel out, or "
                "center its features before computing it."
            )
        result.values[kernel.k][kernel.place] = centered
    return _with_rounding(result, rounding)


def normalize(stack: xr.DataArray) -> xr.DataArray:
    """Divide each kernel by the lengths of its objects: Q_ij / sqrt(Q_ii Q_jj), diagonal 1.

    Parameters
    ----------
    stack
        Kernels, as `stack_kernels` builds them.

    Returns
    -------
    xarray.DataArray
        The normalized stack; its diagonals are exactly 1. The division keeps the signs of the
        eigenvalues (Sylvester's law of inertia), but may enlarge a zero one's rounding error where
        lengths differ widely; where it did, the coordinate `rounding` grows as much as explains
        it, so that what `check_definite` accepts it accepts after.

    Raises
    ------
    KernelError
        Where a diagonal entry is zero to rounding: at most n * rounding times the largest of the
        kernel (sqrt(rounding) times, where that is less), what rounding in n terms can leave of a
        zero.
    LabelError
        Where the stack is not one, see `check_stack`.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob.kernels import stack_kernels
    >>> from mkmc_prob import normalize
    >>> normalize(stack_kernels(np.array([[[4.0, 1.0], [1.0, 1.0]]]))).values
    array([[[1. , 0.5],
            [0.5, 1. ]]])
    """
    result = check_stack(stack)  # a copy
    rounding = result["rounding"].values.copy()
    for kernel in _kernels(result):
        diagonal = np.diagonal(kernel.block)
        share = rounding_share(len(diagonal), kernel.rounding)
        tolerance = share * float(np.abs(diagonal).max())
        worst = int(np.argmin(diagonal))
        if diagonal[worst] <= tolerance:
            raise KernelError(
                f"kernel {kernel.name!r}: the diagonal entry of object {kernel.objects[worst]!r} "
                f"is {diagonal[worst]:.3g}, zero to rounding (up to {tolerance:.3g}), and cannot "
                "be normalized to 1. Hide the object in this kernel (its whole row and column "
                "NaN), or do not center if that made it zero."
            )
        length = np.sqrt(diagonal)
        normalized = kernel.block / np.outer(length, length)
        np.fill_diagonal(normalized, 1.0)
        result.values[kernel.k][kernel.place] = normalized
        negative = _negative_spectrum(normalized, kernel.rounding)
        if negative is not None and _negative_spectrum(kernel.block, kernel.rounding) is None:
            # The rounding whose tolerance is a little beyond the smallest eigenvalue.
            share = 1.01 * -negative[0] / _frobenius(normalized)
            rounding[kernel.k] = eps_of_share(len(diagonal), share)
    return _with_rounding(result, rounding)


def check_definite(stack: xr.DataArray) -> None:
    """Raise where a kernel's visible block is not positive semidefinite to rounding.

    An eigenvalue below zero counts as zero down to ``-n * rounding * ||Q||_F``: the usual tolerance
    of a numerical rank, n * eps * the largest eigenvalue, with n the size of the visible block,
    eps the kernel's coordinate `rounding` (the precision it came in) and the Frobenius norm, which
    bounds the largest eigenvalue and costs no decomposition; for coarse numbers (float16) and many
    objects down to ``-sqrt(rounding) * ||Q||_F``, half of the digits. A Cholesky factorisation of
    Q + tolerance I proves most kernels; eigenvalues are computed only where it stops, and decide.

    Parameters
    ----------
    stack
        Kernels, as `stack_kernels` builds them.

    Raises
    ------
    IndefiniteKernelError
        Where an eigenvalue is really negative: the block is no covariance and has no likelihood.
    KernelError, LabelError
        Where the stack is not one, see `check_stack`.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob.kernels import stack_kernels
    >>> from mkmc_prob.preprocessing import check_definite
    >>> check_definite(stack_kernels(np.array([[[1.0, 2.0], [2.0, 1.0]]])))
    Traceback (most recent call last):
        ...
    mkmc_prob.errors.IndefiniteKernelError: kernel 'Q1': its visible block is indefinite: ...
    """
    for kernel in _kernels(check_stack(stack)):
        spectrum = _negative_spectrum(kernel.block, kernel.rounding)
        if spectrum is not None:
            remedy = "repair_spectrum(stack) makes it one, and says what it changes."
            if not np.diagonal(kernel.block).any():
                remedy = (
                    "Its diagonal is zero, so these look like distances D or a graph's weights: "
                    "pass a kernel of them, np.exp(-(D**2) / (2 * scale**2)), say, or of a graph's "
                    "Laplacian L, scipy.linalg.expm(-scale * L)."
                )
            raise IndefiniteKernelError(
                f"kernel {kernel.name!r}: its visible block is indefinite: of "
                f"{len(spectrum)} eigenvalues the smallest is {spectrum[0]:.6g} (the largest "
                f"{spectrum[-1]:.6g}; down to -{_tolerance(kernel.block, kernel.rounding):.2g} "
                f"counts as rounding). It is not a covariance. {remedy}"
            )


def repair_spectrum(stack: xr.DataArray, *, method: Method = "clip") -> xr.DataArray:
    """Make indefinite kernels positive semidefinite, and say exactly what that changed.

    Only the visible blocks of kernels with an eigenvalue really below zero, as `check_definite`
    judges it, are touched; the others come back bit for bit.

    Parameters
    ----------
    stack
        Kernels, as `stack_kernels` builds them.
    method
        What becomes of the eigenvalues: ``"clip"`` sets negative ones to 0 (the nearest positive
        semidefinite matrix in the Frobenius norm), ``"shift"`` adds the size of the smallest to
        the diagonal, so to all, ``"flip"`` takes absolute values.

    Returns
    -------
    xarray.DataArray
        The repaired stack, which `check_definite` accepts; what was changed is in
        ``attrs["repair_spectrum"]``, one line of text a kernel.

    Raises
    ------
    KernelError, LabelError
        Where the stack is not one, see `check_stack`, or `method` is none of the three.

    Warns
    -----
    MKMCWarning
        For each kernel changed: how many eigenvalues were below zero by more than rounding and
        the smallest; the change relative to the kernel (Frobenius norms); the entry that changed
        most.

    Examples
    --------
    >>> import warnings
    >>> import numpy as np
    >>> from mkmc_prob.kernels import stack_kernels
    >>> from mkmc_prob import repair_spectrum
    >>> stack = stack_kernels(np.array([[[1.0, 2.0], [2.0, 1.0]]]))
    >>> with warnings.catch_warnings(action="ignore"):
    ...     repaired = repair_spectrum(stack, method="shift")
    >>> repaired.values
    array([[[2., 2.],
            [2., 2.]]])
    """
    if method not in ("clip", "shift", "flip"):
        raise KernelError(f"method: {method!r} found; 'clip', 'shift' or 'flip' expected.")
    result = check_stack(stack)  # a copy
    lines = [result.attrs["repair_spectrum"]] if "repair_spectrum" in result.attrs else []
    for kernel in _kernels(result):
        spectrum = _negative_spectrum(kernel.block, kernel.rounding)
        if spectrum is None:
            continue
        repaired = kernel.block + _correction(kernel.block, method)
        # Where the result is much smaller than the kernel was, the rounding error of the kernel
        # may count beside it. Each turn adds more than the diagonal's last digit, so this ends.
        while (left := _negative_spectrum(repaired, kernel.rounding)) is not None:
            repaired.flat[:: len(repaired) + 1] -= left[0]
        result.values[kernel.k][kernel.place] = repaired
        lines.append(_what_changed(kernel, spectrum, repaired, method))
        warn(lines[-1])
    result.attrs["repair_spectrum"] = "\n".join(
        lines or ["no kernel has an eigenvalue below zero by more than rounding: nothing changed"]
    )
    return result


def describe(stack: xr.DataArray, *, spectrum: bool = False) -> pd.DataFrame:
    """Return what a person looks at first, one row a kernel.

    Parameters
    ----------
    stack
        Kernels, as `stack_kernels` builds them.
    spectrum
        Whether to compute the eigenvalues of the visible blocks too (some n^3 operations each).

    Returns
    -------
    pandas.DataFrame
        Indexed by kernel: `visible` and `missing` objects; of the visible block `mean_diagonal`,
        `mean_entry`, `smallest` and `largest` entry; with `spectrum` also `smallest_eigenvalue`,
        `largest_eigenvalue` and the numerical `rank`, the eigenvalues beyond the tolerance of
        `check_definite`. NaN where a kernel sees no object.

        `mean_entry` is relative: the mean of the entries off the diagonal divided by
        `mean_diagonal`. It shows the constant that all entries share: 1 where there is nothing
        else, -1/(n - 1) after `center`. NaN where there is one object or a zero diagonal.

    Raises
    ------
    KernelError, LabelError
        Where the stack is not one, see `check_stack`.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob.kernels import stack_kernels
    >>> from mkmc_prob import describe
    >>> describe(stack_kernels(np.array([[[4.0, 1.0], [1.0, 2.0]]]))).T
    kernel               Q1
    visible        2.000000
    missing        0.000000
    mean_diagonal  3.000000
    mean_entry     0.333333
    smallest       1.000000
    largest        4.000000
    """
    stack = check_stack(stack)
    seen = visible_objects(stack).values
    table = pd.DataFrame(
        {"visible": seen.sum(axis=1), "missing": (~seen).sum(axis=1)},
        index=pd.Index(stack["kernel"].values, name="kernel"),
    )
    columns = ["mean_diagonal", "mean_entry", "smallest", "largest"]
    if spectrum:
        columns += ["smallest_eigenvalue", "largest_eigenvalue", "rank"]
    figures = np.full((len(table), len(columns)), np.nan)
    for kernel in _kernels(stack):
        block = kernel.block
        diagonal = float(np.diagonal(block).mean())
        others = ~np.eye(len(block), dtype=bool)
        if diagonal > 0.0 and len(block) > 1:
            figures[kernel.k, 1] = block[others].mean() / diagonal
        figures[kernel.k, [0, 2, 3]] = diagonal, np.min(block), np.max(block)
        if spectrum:
            values = _eigenvalues(block)
            rank = (np.abs(values) > _tolerance(block, kernel.rounding)).sum()
            figures[kernel.k, 4:] = values[0], values[-1], rank
    return table.join(pd.DataFrame(figures, index=table.index, columns=columns))


def _kernels(stack: xr.DataArray) -> Iterator[_Kernel]:
    """Yield the kernels of a checked stack that see any object."""
    objects = stack["object"].values
    roundings = stack["rounding"].values.tolist()
    for k, name in enumerate(stack["kernel"].values.tolist()):
        seen = ~np.isnan(np.diagonal(stack.values[k]))
        if seen.any():
            place = np.ix_(seen, seen)
            block = stack.values[k][place]
            yield _Kernel(k, name, objects[seen].tolist(), place, block, roundings[k])


def _with_rounding(stack: xr.DataArray, rounding: NDArray[np.float64]) -> xr.DataArray:
    return stack.assign_coords(rounding=("kernel", rounding, stack["rounding"].attrs))


def _frobenius(block: Matrix) -> float:
    return float(scipy.linalg.norm(block, check_finite=False))  # LAPACK's scales, so no overflow


def _eigenvalues(block: Matrix) -> NDArray[np.float64]:
    return np.asarray(scipy.linalg.eigvalsh(block, check_finite=False), dtype=np.float64)


def _tolerance(block: Matrix, rounding: float) -> float:
    """Return the size up to which a negative eigenvalue of `block` is rounding."""
    return rounding_share(len(block), rounding) * _frobenius(block)


def _negative_spectrum(block: Matrix, rounding: float) -> NDArray[np.float64] | None:
    """Return the eigenvalues of `block`, ascending, if the first is really negative, else None."""
    tolerance = _tolerance(block, rounding)
    shifted = block.copy()
    shifted.flat[:: len(block) + 1] += tolerance
    if not lapack.dpotrf(shifted.T, lower=1, clean=0, overwrite_a=1)[1]:
        return None
    values = _eigenvalues(block)
    return values if values[0] < -tolerance else None


def _correction(block: Matrix, method: Method) -> Matrix:
    """Return what to add to an indefinite `block` to make it positive semidefinite."""
    # Divide and conquer: the default driver (MRRR) is less exact for eigenvalues close to zero.
    values, vectors = scipy.linalg.eigh(block, driver="evd", check_finite=False)
    if method == "shift":
        return np.diag(np.full(len(block), -values[0]))
    below = values < 0.0
    half = vectors[:, below] * np.sqrt(-values[below])
    once = symmetrize(half @ half.T)  # the negative part of the block, its sign turned
    return once if method == "clip" else 2.0 * once


def _what_changed(
    kernel: _Kernel, spectrum: NDArray[np.float64], repaired: Matrix, method: Method
) -> str:
    change = repaired - kernel.block
    i, j = np.unravel_index(int(np.argmax(np.abs(change))), change.shape)
    below = int((spectrum < -_tolerance(kernel.block, kernel.rounding)).sum())
    return (
        f"kernel {kernel.name!r}: {below} of {len(spectrum)} eigenvalues below zero, the smallest "
        f"{spectrum[0]:.6g} (the largest {spectrum[-1]:.6g}); method {method!r} changed the kernel "
        f"by {_frobenius(change) / _frobenius(kernel.block):.3g} of its Frobenius norm, most the "
        f"entry of objects {kernel.objects[i]!r} and {kernel.objects[j]!r}, from "
        f"{kernel.block[i, j]:.6g} to {repaired[i, j]:.6g}"
    )
