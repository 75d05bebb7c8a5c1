"""What all tests share: the Hypothesis profile, a Matplotlib without a screen, and Ctrl-C."""

import signal
import sys

import matplotlib as mpl
import pytest
from hypothesis import HealthCheck, settings

mpl.use("Agg")
# Times on shared machines say nothing; examples are the same in every run.
settings.register_profile(
    "mkmc",
    deadline=None,
    derandomize=True,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("mkmc")


@pytest.fixture(autouse=True)
def _no_figure_stays_open():
    """Close what a test drew: the next test in this process may count the open figures."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture
def listening():
    """Listen to Ctrl-C; tests that a shell runs in the background inherit that nobody does."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
