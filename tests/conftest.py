"""What all tests share: the Hypothesis profile and a Matplotlib that draws to no screen."""

import matplotlib as mpl
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
