"""What a step costs, counted: floating point operations in BLAS and LAPACK, and memory."""

import tracemalloc

import numpy as np
import pytest

from mkmc_prob import EM, WishartPrior, stack_kernels
from mkmc_prob.em import full, geodesic, lbfgs
from mkmc_prob.em.ascent import Ascent
from mkmc_prob.em.geodesic import Geodesic
from mkmc_prob.em.methods import method_of
from mkmc_prob.linalg import cholesky, products
from mkmc_prob.model import conditional, marginal

#: Operations of one call, from its arguments: what each routine does on paper.
OPERATIONS = {
    "dgemm": lambda _, a, b, **o: 2 * a.size * b.shape[0 if o.get("trans_b") else 1],
    "dpotrf": lambda a, **_: len(a) ** 3 / 3,
    "dpotri": lambda a, **_: 2 * len(a) ** 3 / 3,
    "dpotrs": lambda a, b, **_: 2 * len(a) * b.size,
    "dsygst": lambda a, b, **_: len(a) ** 3,
    "dsymm": lambda _, a, b, **o: 2 * len(a) ** 2 * b.shape[1],
    "dsyrk": lambda _, a, **o: len(a) ** 2 * a.shape[1],
    "dtrmm": lambda _, a, b, **o: len(a) * b.size,
    "dtrsm": lambda _, a, b, **o: len(a) * b.size,
    "dgemv": lambda *_, **__: 0,  # l^2 a kernel
    "dsymv": lambda *_, **__: 0,
    "ddot": lambda *_, **__: 0,  # l^2 at most, as daxpy
    "daxpy": lambda *_, **__: 0,
    "dnrm2": lambda *_, **__: 0,
}


class Counted:
    """SciPy's blas or lapack, counting."""

    total = 0.0

    def __init__(self, module):
        self.module = module

    def __getattr__(self, name):
        def call(*arguments, **options):
            Counted.total += OPERATIONS[name](*arguments, **options)
            return getattr(self.module, name)(*arguments, **options)

        return call


@pytest.fixture
def counted(monkeypatch):
    for module in (cholesky, products, conditional, marginal, full, lbfgs, geodesic):
        for library in ("blas", "lapack"):
            if hasattr(module, library):
                monkeypatch.setattr(module, library, Counted(getattr(module, library)))
    monkeypatch.setattr(Counted, "total", 0.0)


def problem(size, missing, kernels=2):
    """Kernels of which the first `missing` and the last `missing` objects are hidden, in turn."""
    rng = np.random.default_rng(0)
    features = rng.standard_normal((kernels, size, size))
    stack = features @ features.transpose(0, 2, 1) / size
    visible = np.ones((kernels, size), dtype=bool)
    visible[::2, :missing] = False
    visible[1::2, size - missing :] = False
    return stack_kernels((stack + stack.transpose(0, 2, 1)) / 2, visible=visible)


def operations_of_a_step(size, m, kernels):
    """Count those of a step's E-step and log-likelihood; return them and what they are on paper."""
    n = size - m
    em = EM(problem(size, m, kernels), WishartPrior(0.1))
    start = em.initial_model()
    Counted.total = 0.0
    em.penalized_log_likelihood(start, em.e_step(start))
    regression = min(m**3 + 2 * n * m**2, n**3 / 3 + 2 * n**2 * m + n * m**2)
    return Counted.total, size**3 + kernels * (regression + 2 * n**2 * m + n * m**2)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7, 0.8])
def test_an_em_step_does_no_more_than_the_operations_of_its_formulas(counted, share):
    counted, on_paper = operations_of_a_step(1000, int(share * 1000), kernels=2)
    assert counted <= 1.05 * on_paper


def test_scores_do_faster_operations_not_fewer(counted):
    # Products of whole matrices, 4 l^3 for all kernels; the rest is small.
    counted, on_paper = operations_of_a_step(1000, 800, kernels=7)
    assert counted <= 4.5 * 1000**3 <= 1.25 * on_paper


def test_a_geodesic_step_adds_less_than_four_cubes(counted):
    size = 200
    em = EM(problem(size, 80), WishartPrior(0.1))
    start = em.initial_model()
    Counted.total = 0.0
    em.e_step(start)
    plain = Counted.total
    ascent = Ascent(Geodesic(em), start, tol=0)
    for _ in range(5):
        ascent.advance()
    before, evaluations = Counted.total, ascent.evaluations
    for _ in range(10):
        ascent.advance()
    assert ascent.evaluations == evaluations + 10  # no step was shortened
    added = (Counted.total - before) / 10 - plain
    assert 0 < added < 4 * size**3


@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
@pytest.mark.parametrize(("method", "most"), [("em", 5), ("geodesic", 5 + 2 * 10)])
def test_the_memory_of_an_ascent(method, most, share):
    """In l x l arrays beyond the visible blocks; L-BFGS keeps 10 pairs."""
    size = 500
    stack = problem(size, int(share * size))
    tracemalloc.start()
    try:
        em = EM(stack, WishartPrior(0.1))
        # The checked stack, which a result keeps, its copy without NaN, and the visible blocks.
        blocks = 2 * em.stack.nbytes + sum(kernel.moment.nbytes for kernel in em.kernels)
        tracemalloc.reset_peak()
        ascent = Ascent(method_of(method, em), em.initial_model(), tol=0)
        for _ in range(3 if method == "em" else 14):
            ascent.advance()
        peak = tracemalloc.get_traced_memory()[1] - blocks
    finally:
        tracemalloc.stop()
    assert peak / (8 * size**2) <= most
