"""Matrix products and inner products by SciPy's BLAS."""

from scipy.linalg import blas

from .symmetric import Matrix


def product(left: Matrix, right: Matrix, out: Matrix, *, add: float | None = None) -> Matrix:
    """Write `left` @ `right` to `out`, or add `add` times the product to `out`; return `out`.

    This uses SciPy's BLAS, like all LAPACK calls here. NumPy brings a second BLAS with its own
    threads, and two pools of threads that are used in turn compete for the cores.
    """
    if not (left.size and right.size):
        out[...] = 0.0 if add is None else out
        return out
    # out' = right' left', in Fortran order
    a, b = right.T, left.T
    blas.dgemm(
        1.0 if add is None else add,
        a if a.flags.f_contiguous else a.T,
        b if b.flags.f_contiguous else b.T,
        trans_a=not a.flags.f_contiguous,
        trans_b=not b.flags.f_contiguous,
        beta=float(add is not None),
        c=out.T,
        overwrite_c=1,
    )
    return out


def symmetric_product(symmetric: Matrix, other: Matrix, out: Matrix, weight: float = 1.0) -> Matrix:
    """Write `weight` times `symmetric` @ `other` to `out`; return `out`."""
    if out.size:
        blas.dsymm(weight, symmetric.T, other.T, side=1, lower=1, c=out.T, overwrite_c=1)
    return out


def inner(one: Matrix, two: Matrix) -> float:
    """Return <A, B>, the sum of the products of the entries, by SciPy's BLAS (see `product`)."""
    return float(blas.ddot(one.ravel(), two.ravel())) if one.size else 0.0
