"""Ctrl-C during a fit returns what there is, wherever it strikes."""

import signal
import subprocess
import sys

import numpy as np
import plain
import pytest
from problems import PAPER, both_models, small_stack

from mkmc_prob import ConvergenceWarning, fit
from mkmc_prob.em.full import FullEM
from mkmc_prob.em.methods import OF_FULL


def interrupt(monkeypatch, name, at):
    """Let Ctrl-C strike in the `at`-th call of one of EM's methods, before it does anything."""
    original = getattr(FullEM, name)

    def interrupted(self, model):
        interrupted.calls += 1
        if interrupted.calls == at:
            raise KeyboardInterrupt
        return original(self, model)

    interrupted.calls = 0
    monkeypatch.setattr(FullEM, name, interrupted)


@pytest.mark.parametrize("at", [1, 2, 3, 6])
@both_models
def test_an_interrupt_returns_what_there_is(monkeypatch, model, at):
    interrupt(monkeypatch, "e_step", at)
    with pytest.warns(ConvergenceWarning, match="interrupted after"):
        result = fit(small_stack(), **model, method="em")
    monkeypatch.undo()
    assert result.interrupted
    assert not result.converged
    # The step that was broken off is finished, and the final EM step taken.
    assert result.n_iter == at
    plain_result = fit(small_stack(), **model, method="em", tol=0, max_iter=at)
    assert result.completed.identical(plain_result.completed)
    # The evaluation that was broken off is counted, too.
    assert result.trace.drop_vars(["evaluations", "seconds"]).identical(
        plain_result.trace.drop_vars(["evaluations", "seconds"])
    )


@pytest.mark.parametrize("method", sorted(OF_FULL))
@pytest.mark.parametrize("at", [1, 2, 4, 9])
def test_an_interrupt_ends_with_an_em_step(monkeypatch, method, at):
    interrupt(monkeypatch, "e_step", at)
    paper = {"sources": "identical", "strength": 0.01}
    with pytest.warns(ConvergenceWarning, match="interrupted after"):
        result = fit(small_stack(size=10), **paper, method=method)
    again = plain.m_step(result.completed.values, np.ones(3), 0.01, np.eye(10))
    np.testing.assert_allclose(result.model.matrix, again, rtol=1e-9, atol=1e-9)
    assert (np.diff(result.trace["penalized_log_likelihood"]) > 0).all()


@pytest.mark.filterwarnings("ignore::mkmc_prob.IdentifiabilityWarning")
def test_an_interrupt_while_completing_unseen_objects_does_not_lose_the_fit(monkeypatch):
    interrupt(monkeypatch, "complete", 1)
    stack = small_stack()
    stack = stack.where(stack["object"] != "p5").where(stack["object_bis"] != "p5")
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        result = fit(stack, **PAPER)
    assert result.converged
    assert result.interrupted
    assert not result.completed.isnull().any()


LONG_FIT = """
import signal, warnings
import numpy as np
from mkmc_prob import fit, stack_kernels
# A shell may start its background jobs deaf to Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
features = np.random.default_rng(0).standard_normal((2, 60, 70))
visible = np.ones((2, 60), dtype=int)
visible[0, :20] = visible[1, 40:] = 0
stack = stack_kernels(features @ features.transpose(0, 2, 1) / 70, visible=visible)
warnings.simplefilter("ignore")
print("fitting", flush=True)
result = fit(stack, strength=1e-3, tol=0, max_iter=10_000_000, progress=True)
print(result.interrupted, bool(result.completed.isnull().any()))
"""


@pytest.mark.parametrize("place", ["_completed", "trace_of", "_solution"])
@both_models
def test_an_interrupt_after_the_ascent_does_not_lose_the_fit(monkeypatch, model, place):
    module = sys.modules["mkmc_prob.fitting.solve"]
    original = getattr(module, place)

    def interrupted(*arguments, **options):
        monkeypatch.setattr(module, place, original)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, place, interrupted)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        result = fit(small_stack(), **model)
    assert result.converged
    assert result.interrupted
    assert not result.completed.isnull().any()


def test_an_interrupt_in_the_progress_bar_does_not_lose_the_fit(monkeypatch):
    from mkmc_prob.em import ascent

    class Bar(ascent.tqdm):
        closed = False

        def close(self):
            super().close()
            if not Bar.closed:
                Bar.closed = True
                raise KeyboardInterrupt

    monkeypatch.setattr(ascent, "tqdm", Bar)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        assert fit(small_stack(), progress=True).interrupted


def test_a_real_signal_ends_a_real_fit():
    with subprocess.Popen(
        [sys.executable, "-c", LONG_FIT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout.readline() == "fitting\n"
            told = ""  # the progress bar, until the first steps are done
            while "log-likelihood" not in told:
                told += process.stderr.read(1)
                assert process.poll() is None, told
            process.send_signal(signal.SIGINT)
            printed, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert printed == "True False\n", errors
