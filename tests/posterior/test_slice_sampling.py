"""Slice sampling leaves the distributions of SciPy invariant, and finds them from afar."""

import numpy as np
import pytest
from scipy import stats

from mkmc_prob import KernelError
from mkmc_prob.posterior.slice_sampling import slice_sample

#: What the p-values of tests with fixed seeds must exceed.
LEVEL = 1e-3


class Mixture:
    """Two normal distributions, far apart."""

    parts = (stats.norm(-2.0, 0.5), stats.norm(3.0, 1.0))

    def logpdf(self, x):
        return np.log(0.3 * self.parts[0].pdf(x) + 0.7 * self.parts[1].pdf(x))

    def cdf(self, x):
        return 0.3 * self.parts[0].cdf(x) + 0.7 * self.parts[1].cdf(x)

    def rvs(self, size, random_state):
        first = random_state.random(size) < 0.3
        return np.where(first, *(part.rvs(size, random_state) for part in self.parts))


DISTRIBUTIONS = [stats.norm(5.0, 0.1), stats.loggamma(0.5), stats.gamma(2.0), stats.t(2), Mixture()]


@pytest.mark.parametrize("width", [0.3, 30.0])
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_a_step_leaves_the_distribution_invariant(distribution, width):
    """One step from each of independent exact draws; the pairs are exchangeable."""
    rng = np.random.default_rng(0)
    before = distribution.rvs(600, random_state=rng)
    after = np.array([slice_sample(distribution.logpdf, x, rng, width=width) for x in before])
    assert stats.kstest(after, distribution.cdf).pvalue > LEVEL
    assert stats.wilcoxon(after - before).pvalue > LEVEL
    assert (after != before).all()


def test_a_chain_finds_the_distribution_from_afar():
    rng, x, draws = np.random.default_rng(1), 1e3, []
    for _ in range(1500):
        x = slice_sample(stats.norm.logpdf, x, rng)
        draws.append(x)
    assert stats.kstest(draws[100::5], stats.norm.cdf).pvalue > LEVEL


def test_a_density_with_an_end_and_one_too_peaked_for_the_level():
    rng = np.random.default_rng(2)
    x = 0.5
    for _ in range(200):
        x = slice_sample(lambda x: 0.0 if 0.0 < x < 1.0 else -np.inf, x, rng)
        assert 0.0 < x < 1.0
    # The level is lost in rounding: the interval shrinks to the start, and the loop ends.
    assert slice_sample(lambda x: 1e20 if x == 0.5 else -1e20, 0.5, rng) == 0.5


@pytest.mark.parametrize("height", [-np.inf, np.nan, np.inf])
def test_a_start_without_a_density_is_refused(height):
    with pytest.raises(KernelError, match=r"start: 0\.0 found, with log density"):
        slice_sample(lambda _: height, 0.0, np.random.default_rng(0))
