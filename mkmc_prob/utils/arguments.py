"""What an argument may be, declared once per function and checked before its body runs.

A check is a function of a value and of the argument's name. It returns the value in the form that
the function works with, or raises a `KernelError` that names the argument, the value and what is
needed instead. Booleans are no numbers; NumPy scalars are. ::

    @checked(strength=positive, folds=whole(least=2), method=choice("em", "geodesic"), seed=seed)
    def select(stack, *, strength=0.1, folds=5, method="geodesic", seed=0): ...
"""

import functools
import inspect
import numbers
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeAlias, TypeVar

import numpy as np
import xarray as xr

from ..errors import KernelError

P = ParamSpec("P")
R = TypeVar("R")
Check: TypeAlias = Callable[[Any, str], Any]

#: Products of strengths or degrees of freedom above this overflow; below its inverse they vanish.
LARGEST_WEIGHT = 1e100


def checked(**checks: Check) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Check the named arguments of the decorated function. Defaults are not checked.

    Examples
    --------
    >>> from mkmc_prob.utils.arguments import checked, whole
    >>> @checked(draws=whole(least=1))
    ... def sample(draws):
    ...     return draws
    >>> sample(draws=0)
    Traceback (most recent call last):
        ...
    mkmc_prob.errors.KernelError: draws: 0 found; a whole number >= 1 is needed.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        names = list(inspect.signature(function).parameters)
        assert checks.keys() <= set(names), (
            f"{function.__name__} has no {checks.keys() - set(names)}"
        )

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            placed: list[Any] = list(args)
            for name, check in checks.items():
                if name in kwargs:
                    kwargs[name] = check(kwargs[name], name)
                elif names.index(name) < len(placed):
                    placed[names.index(name)] = check(placed[names.index(name)], name)
            return function(*placed, **kwargs)

        call.checks = checks  # type: ignore[attr-defined]
        return call

    return decorate


def real_number(value: Any) -> float | None:
    """Return `value` as a float if it is one finite real number, else None."""
    if isinstance(value, bool | np.bool_ | np.timedelta64) or not isinstance(value, numbers.Real):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if np.isfinite(number) else None


def real(inside: Callable[[float], bool], needed: str) -> Check:
    """Return a check for finite real numbers `inside` the range that `needed` describes."""

    def check(value: Any, what: str) -> float:
        number = real_number(value)
        if number is None or not inside(number):
            raise KernelError(f"{what}: {value!r} found; {needed} is needed.")
        return number

    return check


#: A strength, or degrees of freedom: a number > 0 whose products stay in range.
positive = real(
    lambda number: 1 / LARGEST_WEIGHT <= number <= LARGEST_WEIGHT,
    f"a finite number > 0 ({1 / LARGEST_WEIGHT:g} to {LARGEST_WEIGHT:g})",
)
#: A number >= 0 whose products stay in range.
not_negative = real(
    lambda number: 0 <= number <= LARGEST_WEIGHT, f"a number >= 0 (at most {LARGEST_WEIGHT:g})"
)
#: A tolerance in nats.
tolerance = real(lambda number: number >= 0, "a finite number of nats >= 0")
#: A probability or share, both ends excluded.
share = real(lambda number: 0 < number < 1, "a number between 0 and 1")


def whole(*, least: int, most: int | None = None) -> Check:
    """Return a check for whole numbers from `least` to `most`, both included."""
    needed = (
        f"a whole number >= {least}" if most is None else f"a whole number from {least} to {most}"
    )

    def check(value: Any, what: str) -> int:
        number = None if real_number(value) is None else value
        if (
            not isinstance(number, numbers.Integral)
            or int(number) < least
            or (most is not None and int(number) > most)
        ):
            raise KernelError(f"{what}: {value!r} found; {needed} is needed.")
        return int(number)

    return check


def choice(*options: str) -> Check:
    """Return a check for one of several texts."""
    listed = " or ".join([", ".join(map(repr, options[:-1])), repr(options[-1])])

    def check(value: Any, what: str) -> str:
        if not isinstance(value, str) or value not in options:
            raise KernelError(f"{what}: {value!r} found; {listed} is needed.")
        return str(value)

    return check


def seed(value: Any, what: str) -> int | np.random.Generator:
    """Check a seed: a whole number >= 0 or a `numpy.random.Generator`, and nothing else."""
    if isinstance(value, np.random.Generator):
        return value
    if real_number(value) is None or not isinstance(value, numbers.Integral) or value < 0:
        raise KernelError(
            f"{what}: {value!r} found; a whole number >= 0 or a numpy.random.Generator is needed."
        )
    return int(value)


def several(check: Check) -> Check:
    """Return a check for one value, or an iterable of them: at least one and each once."""

    def check_all(values: Any, what: str) -> list[Any]:
        if isinstance(values, xr.DataArray):
            values = values.values
        one = isinstance(values, str | Mapping) or not np.iterable(values)
        found = [check(value, what) for value in ([values] if one else values)]
        if not found or len(set(found)) < len(found):
            raise KernelError(f"{what}: {values!r} found; pass at least one, each once.")
        return found

    return check_all


def optional(check: Check) -> Check:
    """Return a check that also lets None pass."""
    return lambda value, what: None if value is None else check(value, what)
