"""Linear algebra of symmetric positive definite matrices, on plain arrays."""

from .blocks import Workspace, add_rows, inner_of_block, strips
from .cholesky import cholesky, half_solve, inverse, log_determinant, solve
from .products import inner, product, symmetric_product
from .symmetric import Matrix, add_transpose, mirror, symmetrize

__all__ = [
    "Matrix",
    "Workspace",
    "add_rows",
    "add_transpose",
    "cholesky",
    "half_solve",
    "inner",
    "inner_of_block",
    "inverse",
    "log_determinant",
    "mirror",
    "product",
    "solve",
    "strips",
    "symmetric_product",
    "symmetrize",
]
