"""Tests of the posterior examine fewer entries for mixing, which takes longer than short runs."""

import pytest

from mkmc_prob.posterior import mixing

#: Instead of 500.
EXAMINED = 60


@pytest.fixture(autouse=True, scope="module")
def _few_entries_are_examined():
    before = mixing.EXAMINED
    mixing.EXAMINED = EXAMINED
    yield
    mixing.EXAMINED = before
