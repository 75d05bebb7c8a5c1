"""Growth with the number of objects.

Seconds per evaluation of the EM map in climbs of ten steps, by `method="em"` and
`method="geodesic"`, at K = 7, 50 % missing, strength 0.1, and the peak of memory beyond the stack
and the visible blocks, in MB. The last row is the slope of a straight line through the logarithms:
3 is what the operations of an EM step would give, 2 the size of a matrix.
"""

from functools import partial

import numpy as np
from work import climb, in_turns, incomplete, peak_of_steps

from mkmc_prob import EM, WishartPrior


def test_growth(full, benchmark, report):
    sizes = (250, 500, 1000, 2000, 4000) if full else (20, 30)
    methods = ("em", "geodesic")
    calls, peaks = {}, {}
    for size in sizes:
        stack = incomplete(size, 0.5)
        for method in methods:
            peaks[method, size] = peak_of_steps(stack, method, 12) * 8e-6 * size**2
        em = EM(stack, WishartPrior(0.1))
        calls |= {(method, size): partial(climb, em, method, 10) for method in methods}
    seconds = in_turns(benchmark, 1, calls)
    columns = {
        f"{method}, {unit}": [values[method, size] for size in sizes]
        for unit, values in (("seconds", seconds), ("MB", peaks))
        for method in methods
    }
    for i, size in enumerate(sizes):
        report({"l": str(size), **{name: three_digits(at[i]) for name, at in columns.items()}})
    slopes = {
        name: f"{np.polyfit(np.log(sizes), np.log(at), 1)[0]:.2f}" for name, at in columns.items()
    }
    report({"l": "exponent", **slopes})


def three_digits(value: float) -> str:
    """Return a number of three digits without an exponent."""
    return np.format_float_positional(value, 3, unique=False, fractional=False, trim="-")
