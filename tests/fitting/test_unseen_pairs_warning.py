"""One warning per call of what the kernels leave to the prior."""

import warnings

import numpy as np
import pytest
from problems import PAPER, small_stack

from mkmc_prob import (
    PPCA,
    IdentifiabilityWarning,
    MKMCWarning,
    complete,
    datasets,
    explore_maxima,
    fit,
    missing_information,
    remove_objects,
    select_model,
    stack_kernels,
)
from mkmc_prob.experiments import mkmc, run_study

PLAIN = "pairs of objects are never observed together: the kernels only bound their entries"


def said(function, *args, **options):
    """The identifiability warnings of a call, whatever the filters of the test run."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = function(*args, **options)
    found = [w for w in caught if issubclass(w.category, IdentifiabilityWarning)]
    assert all(w.filename == __file__ for w in found)
    return result, [str(w.message) for w in found]


@pytest.mark.parametrize("options", [{}, PAPER, {"structure": PPCA(2)}, {"prior": PPCA(2)}])
def test_fit_counts_the_pairs_once(options):
    stack = small_stack(size=8)
    result, (message,) = said(fit, stack, **options)
    never = int(np.triu(result.never_seen_together(), 1).sum())
    assert message.startswith(f"{never} of 28 {PLAIN}")
    assert message.endswith("See result.unseen_pairs().")
    assert result.unseen_pairs().attrs["unseen_pairs"] == never


def test_fit_says_everything_in_one_warning():
    stack = stack_kernels(
        np.stack([np.eye(6) + 0.5] * 4),
        visible=[[1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0], [0] * 6, [1, 1, 1, 1, 1, 0]],
    )
    _, (message,) = said(fit, stack, sharing=[1.0, 1.0, 1.0, 0.0])
    for part in (
        "kernel 'Q3' shows no object",
        "5 is missing in every kernel",
        "4 is visible only in kernels that share nothing with the others ('Q4')",
        "2 groups that no kernel ties together",
        f"13 of 15 {PLAIN}",
    ):
        assert part in message


def test_nothing_is_said_where_every_pair_is_observed():
    kernels, _ = datasets.make_fusion_problem(12, 3)
    assert said(fit, kernels)[1] == []


def test_other_functions_warn_once_or_not_at_all():
    kernels, classes = datasets.make_fusion_problem(20, 3)
    stack = remove_objects(kernels, 0.5, seed=0)
    quick = {"draws": 2, "strengths": [1.0], "sharing": [1.0]}
    assert len(said(complete, stack, priors=(None, PPCA(2)), **quick)[1]) == 1
    assert said(select_model, stack, **quick)[1] == []
    assert len(said(explore_maxima, stack, starts=["zeros", "means"], strength=1.0)[1]) == 1
    assert len(said(mkmc, stack)[1]) == 1
    result, (message,) = said(fit, stack)
    assert PLAIN in message
    assert said(missing_information, result, without_each_kernel=True)[1] == []
    for view in (
        repr,
        lambda r: r.summary(),
        lambda r: r.unseen_pairs(),
        lambda r: r.to_datatree(),
    ):
        assert said(view, result)[1] == []
    options = {"ratios": [0.5], "repetitions": 2, "seed": 0}
    _, found = said(run_study, kernels, classes, methods=["mkmc"], **options)
    assert found == []


def test_the_filter_of_the_test_run_hides_the_plain_count_only():
    fit(small_stack())
    stack = stack_kernels(np.stack([np.eye(3)] * 2), visible=[[1, 1, 0], [1, 0, 0]])
    with pytest.warns(MKMCWarning, match=f"2 is missing in every kernel.* 2 of 3 {PLAIN}"):
        fit(stack)
