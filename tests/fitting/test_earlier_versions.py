"""What version 0.1.0 computed and saved: its model is the paper's, now `sources="identical"`."""

import numpy as np
import pytest
from problems import REFERENCE

from mkmc_prob import WishartPrior, fit, load_result, stack_kernels
from mkmc_prob.diagnostics import check_monotone

STORED = dict(np.load(REFERENCE / "version_0_1_0.npz"))
SAVED = REFERENCE / "result_of_version_0_1_0.nc"


def fitted(problem, method):
    """As version 0.1.0 fitted: "unseen" has an object that no kernel shows and a prior scale."""
    stack = stack_kernels(STORED[f"{problem}_kernels"], visible=STORED[f"{problem}_visible"])
    prior = WishartPrior(float(STORED[f"{problem}_strength"]), STORED.get(f"{problem}_scale"))
    degrees = STORED[f"{problem}_degrees"]
    options = {"method": method, "tol": 0, "max_iter": 6}
    return fit(stack, prior=prior, degrees_of_freedom=degrees, sources="identical", **options)


@pytest.mark.parametrize("method", ["em", "geodesic", "squarem"])
@pytest.mark.parametrize("problem", ["seen", "unseen", "hidden"])  # the last is solved by scores
@pytest.mark.filterwarnings("ignore::mkmc_prob.IdentifiabilityWarning")
def test_the_papers_model_is_as_it_was(problem, method):
    """The same bits where it was computed; elsewhere OpenBLAS rounds differently."""
    result = fitted(problem, method)
    found = {
        "level": result.trace["penalized_log_likelihood"].values,
        "log_likelihood": result.trace["log_likelihood"].values[-1],
        "model": result.model.matrix,
        "completed": result.completed.values,
    }
    for name, ours in found.items():
        stored = STORED.get(f"{problem}_{method}_{name}")
        if stored is not None:
            np.testing.assert_allclose(ours, stored, rtol=0, atol=1e-12 * np.abs(stored).max())


def test_a_result_that_version_0_1_0_saved_is_loaded(tmp_path):
    result = load_result(SAVED)
    stored = {name: STORED[f"unseen_em_{name}"] for name in ("level", "model", "completed")}
    np.testing.assert_array_equal(result.trace["penalized_log_likelihood"], stored["level"])
    np.testing.assert_array_equal(result.model.matrix, stored["model"])
    np.testing.assert_array_equal(result.completed, stored["completed"])
    np.testing.assert_array_equal(result.prior.scale_matrix(6), STORED["unseen_scale"])
    np.testing.assert_array_equal(result.degrees_of_freedom, STORED["unseen_degrees"])
    assert (result.method, result.tol, result.n_iter) == ("em", 0.0, 6)
    for name, paper in {"scale": 1.0, "constant": 0.0, "sharing": 1.0}.items():
        assert (result.sources[name] == paper).all()
    assert result.sources.attrs["shared_constant"] == 0.0
    assert set(result.summary().columns).isdisjoint(result.sources.data_vars)
    result.save(tmp_path / "again.nc")
    assert load_result(tmp_path / "again.nc").identical(result)


@pytest.mark.filterwarnings("ignore::mkmc_prob.IdentifiabilityWarning")
def test_a_result_that_version_0_1_0_saved_is_one_of_this_version():
    result, ours = load_result(SAVED), fitted("unseen", "em")
    assert result.observed.identical(ours.observed)
    assert result.sources.identical(ours.sources)
    assert set(result.trace.data_vars) == set(ours.trace.data_vars)
    steps = check_monotone(result.trace)
    assert len(steps) == 6
    assert steps["clear"].all()
    again = fit(
        result.observed,
        prior=result.prior,
        sources=result.sources,
        degrees_of_freedom=result.degrees_of_freedom,
        initial=result,
        tol=0,
        max_iter=1,
    )
    assert again.penalized_log_likelihood >= result.penalized_log_likelihood
