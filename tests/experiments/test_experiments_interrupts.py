"""A completion study that is killed or interrupted: what is finished stays, nobody is left."""

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import xarray as xr
from test_experiments import problem
from test_experiments_runs import SMALL, states

from mkmc_prob import fit, zero_impute
from mkmc_prob.datasets import make_fusion_problem
from mkmc_prob.experiments import mkmc, mkmc_chosen, run_study
from mkmc_prob.fitting import solve

posix = pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs POSIX signals")

#: More than anybody waits for; one of the methods tells who computes.
ENDLESS = """
import os, pathlib, signal, sys
from mkmc_prob import zero_impute
from mkmc_prob.datasets import make_fusion_problem
from mkmc_prob.experiments import run_study
signal.signal(signal.SIGINT, signal.default_int_handler)
folder = pathlib.Path(sys.argv[1])
def who(stack):
    (folder / f"pid_{os.getpid()}").touch()
    return zero_impute(stack)
if __name__ == "__main__":
    stack, classes = make_fusion_problem(24, 2, positive_share=0.5)
    options = {"ratios": [0.0, 0.3], "repetitions": 500, "strength": 1.0, "seed": 7}
    methods = ["zero", "mkmc", {"who": who}]
    try:
        run_study(stack, classes, methods=methods, folder=folder, workers=2, **options)
    except KeyboardInterrupt:
        print("interrupted")
"""


@pytest.fixture
def running(tmp_path):
    """Start an endless study of several processes in a group of its own, some cells ago."""
    script, folder = tmp_path / "endless.py", tmp_path / "study"
    script.write_text(ENDLESS)
    process = subprocess.Popen(
        [sys.executable, str(script), str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            until = time.monotonic() + 60
            while len(states(folder)) < 6 or len(workers_of(folder)) < 2:
                assert process.poll() is None, process.communicate()[1]
                assert time.monotonic() < until
                time.sleep(0.02)
            yield process, folder
        finally:
            process.kill()
            with contextlib.suppress(ProcessLookupError):  # a worker that had not begun
                os.killpg(process.pid, signal.SIGKILL)


def workers_of(folder):
    return [int(file.name.removeprefix("pid_")) for file in folder.glob("pid_*")]


def is_alive(pid):
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except FileNotFoundError:  # gone meanwhile, or a system without /proc
        return not Path("/proc/self").exists()


def nobody_is_left(folder):
    until = time.monotonic() + 15
    while any(map(is_alive, workers_of(folder))) and time.monotonic() < until:
        time.sleep(0.1)
    return not any(map(is_alive, workers_of(folder)))


@posix
def test_a_killed_study_goes_on(running):
    """SIGKILL, to the process that was started only: its workers end by themselves."""
    process, folder = running
    process.kill()
    process.wait()
    assert nobody_is_left(folder)
    before = states(folder)
    # In order, but for the cells in flight.
    repetitions = len(before) // 6 + 2
    options = SMALL | {"methods": ["mkmc", "zero"], "repetitions": repetitions}
    stack, classes = make_fusion_problem(24, 2, positive_share=0.5)
    study = run_study(stack, classes, folder=folder, **options)
    xr.testing.assert_identical(study, run_study(stack, classes, **options))
    after = states(folder)
    assert {name: after[name] for name in before} == before
    assert len(after) > len(before)


@posix
def test_a_real_signal_ends_a_real_study(running):
    """To the whole group of processes, as a terminal sends it."""
    process, folder = running
    os.killpg(process.pid, signal.SIGINT)
    printed, errors = process.communicate(timeout=60)
    assert printed == "interrupted\n", errors
    assert nobody_is_left(folder)


def interrupted_by_itself(stack):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(1.0)
    raise AssertionError("nothing came")


def test_an_interrupt_that_a_method_answers_goes_on_to_the_caller(tmp_path, listening):
    """`fit` returns what there is at Ctrl-C: that is no finished cell."""

    def swallows(stack):
        try:
            interrupted_by_itself(stack)
        except KeyboardInterrupt:
            return zero_impute(stack)

    stack, classes = problem(kernels=2)
    handler = signal.getsignal(signal.SIGINT)
    for method in (swallows, interrupted_by_itself):
        for folder in (tmp_path, None):
            with pytest.raises(KeyboardInterrupt):
                run_study(
                    stack,
                    classes,
                    methods=["zero", {method.__name__: method}],
                    folder=folder,
                    **SMALL,
                )
    assert list(states(tmp_path)) == ["cell_0_0.0_zero.json"]
    assert signal.getsignal(signal.SIGINT) is handler


@pytest.mark.filterwarnings("ignore:interrupted after:mkmc_prob.ConvergenceWarning")
@pytest.mark.parametrize("method", [mkmc, mkmc_chosen, fit])
def test_half_a_fit_is_no_completion(monkeypatch, method):
    original, calls = solve._completed, itertools.count()

    def struck(*arguments):
        if next(calls) == 0:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(solve, "_completed", struck)
    with pytest.raises(KeyboardInterrupt):
        run_study(*problem(kernels=2), methods={"own": method}, **SMALL)
