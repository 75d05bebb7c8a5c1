"""Memory.

The peak of what is allocated (`tracemalloc`), in arrays of l x l doubles, at l = 1000, K = 7, 50 %
missing, 15 steps. *Steps*: what the ascent holds beyond the stack and the visible blocks; the aim
is 5, and for `method="geodesic"`, which remembers ten pairs, 5 + 2 x 10. *Whole fit*: all that
`fit` allocates beyond the stack that it is given: its own copy, the visible blocks and the K
completed kernels that it returns are included.
"""

from functools import partial

import pytest
from work import incomplete, peak_of, peak_of_steps

from mkmc_prob import fit


@pytest.mark.parametrize(("method", "aim"), [("em", 5), ("geodesic", 25)])
def test_memory(method, aim, full, benchmark, report):
    size, steps = (1000, 15) if full else (40, 3)
    stack = incomplete(size, 0.5)
    during = benchmark.pedantic(partial(peak_of_steps, stack, method, steps), rounds=1)
    whole = peak_of(partial(fit, stack, method=method, tol=0, max_iter=steps))
    report(
        {
            "method": method,
            "steps": f"{during:.1f}",
            "aim": f"at most {aim}",
            "whole fit": f"{whole / (8 * size**2):.1f}",
        }
    )
