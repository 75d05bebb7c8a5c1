"""Arguments are declared once, and what they refuse is named."""

import fractions
import inspect

import numpy as np
import pytest
import xarray as xr

import mkmc_prob
from mkmc_prob import KernelError
from mkmc_prob.utils.arguments import (
    checked,
    choice,
    optional,
    positive,
    real_number,
    seed,
    several,
    share,
    tolerance,
    whole,
)


@pytest.mark.parametrize(
    "value", [1, np.int64(1), np.float32(1), np.float64(1), fractions.Fraction(1)]
)
def test_real_numbers_of_every_kind_are_numbers(value):
    assert type(positive(value, "strength")) is float
    assert positive(value, "strength") == 1.0


@pytest.mark.parametrize(
    "value",
    [True, np.True_, "1", None, 1j, np.nan, np.inf, 10**400, np.ones(1), np.timedelta64(1, "s")],
)
@pytest.mark.parametrize("check", [positive, tolerance, share, whole(least=0)])
def test_other_things_are_not(check, value):
    with pytest.raises(KernelError, match=r"^number: .* found; .* is needed"):
        check(value, "number")
    assert real_number(value) is None


@pytest.mark.parametrize(
    ("check", "value", "needed"),
    [
        (positive, 0, r"a finite number > 0 \(1e-100 to 1e\+100\)"),
        (tolerance, -1e-9, "a finite number of nats >= 0"),
        (share, 1, "a number between 0 and 1"),
        (whole(least=2), 1, "a whole number >= 2"),
        (whole(least=1, most=3), 4, "a whole number from 1 to 3"),
        (whole(least=1), 1.5, "a whole number >= 1"),
        (choice("a", "b", "c"), "d", "'a', 'b' or 'c'"),
        (choice("a", "b"), ["a"], "'a' or 'b'"),
    ],
)
def test_what_is_needed_is_said(check, value, needed):
    with pytest.raises(KernelError, match=f"^given: .* found; {needed} is needed"):
        check(value, "given")


@pytest.mark.parametrize(
    "value",
    [True, -1, 1.0, None, "0", [1, 2], np.random.SeedSequence(1), np.random.PCG64(1), np.ones(2)],
)
def test_a_seed_is_a_whole_number_or_a_generator(value):
    with pytest.raises(KernelError, match=r"(?s)^seed: .* a whole number >= 0 or a numpy"):
        seed(value, "seed")


def test_seeds_that_are_taken():
    generator = np.random.default_rng(3)
    assert seed(generator, "seed") is generator
    assert seed(np.uint8(3), "seed") == 3
    assert optional(seed)(None, "seed") is None


def test_several_values_each_once():
    assert several(positive)([3, np.float32(1)], "strengths") == [3.0, 1.0]
    assert several(positive)(2, "strengths") == [2.0]
    for values in (
        (3.0, 1.0),
        iter([3, 1]),
        np.array([3, 1]),
        xr.DataArray([3, 1]),
        {3: 0, 1: 0}.keys(),
    ):
        assert several(positive)(values, "strengths") == [3.0, 1.0]
    for values in (xr.Dataset(), {1.0: 2.0}, "12", [[1.0, 2.0]], np.ones((2, 2))):
        with pytest.raises(KernelError, match=r"(?s)strengths: .* > 0"):
            several(positive)(values, "strengths")
    for values in ([], [1, 1.0]):
        with pytest.raises(KernelError, match=r"strengths: .* at least one, each once"):
            several(positive)(values, "strengths")


def test_a_declared_function_is_checked_however_it_is_called():
    @checked(draws=whole(least=1), strength=positive)
    def sample(stack, draws=10, *, strength=-1.0):
        """Say what it got."""
        return stack, draws, strength

    assert sample(0) == (0, 10, -1.0)  # defaults are not checked
    assert sample(0, np.int8(2), strength=1) == (0, 2, 1.0)
    assert sample.__doc__ == "Say what it got."
    assert list(inspect.signature(sample).parameters) == ["stack", "draws", "strength"]
    for call in (
        lambda: sample(0, 0),
        lambda: sample(0, draws=0),
        lambda: sample(draws=0, stack=0),
    ):
        with pytest.raises(KernelError, match="draws: 0 found"):
            call()
    with pytest.raises(TypeError, match="unexpected keyword argument 'x'"):
        sample(0, x=1)
    with pytest.raises(TypeError, match="positional argument"):
        sample(0, 1, 2)


NUMBERS = {
    "seed", "tol", "max_iter", "folds", "draws", "tune", "chains", "workers", "random_starts",
    "repetitions", "quantile_draws", "n_per_class", "n_objects", "n_kernels", "positive_share",
    "confidence", "method", "protocol", "selection_tol", "train_sizes",
}  # fmt: skip
FUNCTIONS = [
    (f"{module.__name__}.{name}", getattr(module, name))
    for module in (mkmc_prob, mkmc_prob.datasets, mkmc_prob.io, mkmc_prob.experiments)
    for name in module.__all__
    if inspect.isfunction(getattr(module, name))
]


@pytest.mark.parametrize(("name", "function"), FUNCTIONS, ids=[name for name, _ in FUNCTIONS])
def test_public_functions_declare_their_numbers_choices_and_seeds(name, function):
    if name.endswith((".mkmc", ".mkmc_chosen", ".comparison_table", "mkmc_prob.complete")):
        return  # they pass theirs on to functions that declare them
    wanted = NUMBERS & set(inspect.signature(function).parameters)
    assert wanted <= set(getattr(function, "checks", {})), name
