"""Matrix products and inner products by the BLAS library that LAPACK uses."""

from scipy.linalg import blas

from .symmetric import Matrix


def product(left: Matrix, right: Matrix, out: Matrix, *, add: float | None = None) -> Matrix:
    """Put `left` @ `right` into `out`, or `add` this multiple of it; return `out`.

    By SciPy's BLAS, like all of LAPACK here: NumPy's own is a second library with threads of its
    own, and two pools of threads that wait for work in turn take the cores from each other.
    """
    if not (left.size and right.size):
        out[...] = 0.0 if add is None else out
        return out
    # out' = right' left', in LAPACK's order.
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
    """Put `weight` times `symmetric` @ `other` into `out`; return it."""
    if out.size:
        blas.dsymm(weight, symmetric.T, other.T, side=1, lower=1, c=out.T, overwrite_c=1)
    return out


def inner(one: Matrix, two: Matrix) -> float:
    """Return the sum of the products of the entries, <A, B>; by SciPy's BLAS, see `product`."""
    return float(blas.ddot(one.ravel(), two.ravel())) if one.size else 0.0
