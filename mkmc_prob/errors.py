"""Errors and warnings: every way in which the package says that something is wrong.

Nothing enters this room but messages. An error names the kernel, the object, the value that was
found and the remedy; a warning says what the result then means.
"""

import sys
import warnings


class MKMCError(ValueError):
    """Base class of what is wrong with the data or the arguments handed in."""


class KernelError(MKMCError):
    """A kernel matrix, or a number that goes with it, is not usable as it is."""


class LabelError(MKMCError):
    """Labels of kernels or objects are missing, repeated, of mixed types, or do not match."""


class IndefiniteKernelError(KernelError):
    """A matrix that must be positive (semi)definite has an eigenvalue that is really negative."""


class MonotonicityError(RuntimeError):
    """The penalized log-likelihood fell by more than rounding can explain."""


class MKMCWarning(UserWarning):
    """Base class of the package's warnings."""


class ConvergenceWarning(MKMCWarning):
    """The fit ended before its stopping rule was met."""


class IdentifiabilityWarning(MKMCWarning):
    """The data leave part of the result to the prior."""


def warn(message: str, category: type[Warning] = MKMCWarning) -> None:
    """Warn at the line outside this package that led here, however deep the call is."""
    package = __name__.partition(".")[0]
    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
