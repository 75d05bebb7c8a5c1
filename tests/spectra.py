"""Stacks for the tests of preprocessing: random ones, and kernels whose eigenvalues are known."""

import warnings

import numpy as np
import pandas as pd
import scipy.linalg
from hypothesis import strategies as st

from mkmc_prob import MKMCWarning, stack_kernels, visible_objects
from mkmc_prob.stacks.definite import check_definite

EPS = 2.0**-52
FLOAT32_EPS = 2.0**-23
METHODS = ("clip", "shift", "flip")


def with_eigenvalues(values, seed=0):
    """Return a symmetric matrix with the given eigenvalues, and its eigenvectors."""
    size = len(values)
    vectors = scipy.linalg.qr(np.random.default_rng(seed).standard_normal((size, size)))[0]
    matrix = (vectors * values) @ vectors.T
    return (matrix + matrix.T) / 2, vectors


def embedded(block, *, hidden=1, dtype=float):
    """Return `block` as the kernel 'a' of a stack, behind and before hidden objects."""
    labels = [f"o{i}" for i in range(len(block))]
    frame = pd.DataFrame(np.asarray(block, dtype=dtype), labels, labels)
    objects = [*(f"h{i}" for i in range(hidden)), *labels, *(f"g{i}" for i in range(hidden))]
    return stack_kernels({"a": frame}, objects=objects)


def block_of(stack, name="a"):
    seen = visible_objects(stack).sel(kernel=name).values
    return stack.sel(kernel=name).values[np.ix_(seen, seen)]


@st.composite
def stacks(draw):
    """Draw a stack of kernels of random features, often rank-deficient, float32 or float64."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    size, count = draw(st.integers(1, 7)), draw(st.integers(1, 3))
    visible = rng.random((count, size)) < draw(st.sampled_from([0.4, 0.8, 1.0]))
    features = rng.standard_normal((count, size, draw(st.integers(1, 8))))
    features += draw(st.sampled_from([0.0, 1.0, 30.0]))
    kernels = features @ features.swapaxes(1, 2)
    kernels /= np.trace(kernels, axis1=1, axis2=2)[:, None, None] / size
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MKMCWarning)
        return stack_kernels(
            kernels.astype(draw(st.sampled_from(["f4", "f8"]))), visible=visible
        ).assign_attrs(source="drawn")


def accepted(stack):
    check_definite(stack)
    return stack


def quiet(function, stack, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MKMCWarning)
        return function(stack, **options)
