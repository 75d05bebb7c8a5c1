"""Errors and warnings. An error names the kernel, the object, the value found and the remedy."""

import sys
import warnings
from typing import Any


class MKMCError(ValueError):
    """Base class of errors in the data or in the arguments."""


class KernelError(MKMCError):
    """A kernel matrix, or a number that belongs to it, cannot be used."""


class LabelError(MKMCError):
    """Labels of kernels or objects are missing, repeated, of mixed types, or do not match."""


class IndefiniteKernelError(KernelError):
    """A matrix that must be positive (semi)definite has an eigenvalue negative beyond rounding."""


class MonotonicityError(RuntimeError):
    """The penalized log-likelihood decreased by more than rounding explains."""


class ClusterError(RuntimeError):
    """A cluster that computed products with the kernels does not answer any more.

    Attributes
    ----------
    model : GaussianModel or None
        The last iterate of the fit, to continue from: ``fit(..., initial=error.model)``.
    """

    model: Any = None


class MKMCWarning(UserWarning):
    """Base class of the package's warnings."""


class ConvergenceWarning(MKMCWarning):
    """A fit ended before its stopping rule was met."""


class IdentifiabilityWarning(MKMCWarning):
    """Part of the result is determined by the prior alone."""


def warn(message: str, category: type[Warning] = MKMCWarning) -> None:
    """Issue a warning that points to the line of the user's code that called the package."""
    package = __name__.partition(".")[0]
    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
