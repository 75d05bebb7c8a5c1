"""The process pool: results, errors, and what Ctrl-C does."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

from mkmc_prob import KernelError, MKMCError
from mkmc_prob.utils.processes import in_processes, interrupts_held

posix = pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs POSIX signals")
both = pytest.mark.parametrize("workers", [1, 2])


def power(base, exponent):
    return base**exponent


def after(seconds, value):
    time.sleep(seconds)
    return value


@both
def test_results_in_order(workers):
    found = in_processes(power, [(i, 2) for i in range(20)], workers=workers)
    assert list(found) == [i**2 for i in range(20)]
    assert list(in_processes(power, [], workers=workers)) == []


def after_the_others(folder, name):
    """Return the name; "slow" waits for the others, however late their process starts."""
    (folder / name).touch()
    while name == "slow" and len(list(folder.iterdir())) < 3:
        time.sleep(0.01)
    return name


def test_results_as_they_finish(tmp_path):
    tasks = [(tmp_path, name) for name in ("slow", "fast", "faster")]
    found = in_processes(after_the_others, tasks, workers=2, ordered=False)
    assert next(found) != "slow"
    assert sorted([*found])[-1] == "slow"


def test_large_arrays_are_handed_over():
    large = np.random.default_rng(0).standard_normal((300, 300))  # joblib maps 1 MB and more
    found = in_processes(np.add, [(large, i) for i in range(3)], workers=2)
    for i, value in enumerate(found):
        np.testing.assert_array_equal(value, large + i)


@both
def test_tasks_are_taken_as_they_are_needed(workers):
    taken = []

    def tasks():
        for i in range(1000):
            taken.append(i)
            yield 0.05, i

    found = in_processes(after, tasks(), workers=workers)
    assert next(found) == 0
    assert len(taken) < 100
    found.close()


def test_one_worker_is_this_process_and_needs_no_joblib(monkeypatch):
    monkeypatch.setitem(sys.modules, "joblib", None)
    assert list(in_processes(os.getpid, [()], workers=1)) == [os.getpid()]
    with pytest.raises(MKMCError, match=r"needs joblib.*pip install this"):
        list(in_processes(os.getpid, [()], workers=2, install="pip install this"))


def test_one_worker_does_not_import_joblib():
    code = (
        "import sys; from mkmc_prob.utils.processes import in_processes;"
        "assert list(in_processes(pow, [(2, 3)], workers=1)) == [8];"
        "assert 'joblib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# Errors


class OddError(Exception):
    """Does not survive pickling."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def fails(kind):
    if kind == "odd":
        raise OddError("this", "that")
    if kind == "exit":
        sys.exit(3)
    if kind == "die":
        os._exit(3)
    try:
        return 1 / 0
    except ZeroDivisionError as error:
        raise KernelError("kernel 'a': no") from error


@both
def test_an_exception_reaches_the_parent_with_its_cause(workers):
    with pytest.raises(KernelError, match=r"^kernel 'a': no") as caught:
        list(in_processes(fails, [("cause",)], workers=workers))
    cause = caught.value.__cause__
    assert isinstance(cause, ZeroDivisionError)
    if workers == 2:
        for error in (caught.value, cause):
            assert "in fails" in error.__notes__[0]
            assert error.__notes__[0].count("Traceback") == 1


def test_an_exception_that_cannot_be_pickled_is_named():
    with pytest.raises(OddError):
        list(in_processes(fails, [("odd",)], workers=1))
    with pytest.raises(RuntimeError, match="OddError: this and that") as caught:
        list(in_processes(fails, [("odd",)], workers=2))
    assert "in fails" in caught.value.__notes__[0]


@both
def test_a_function_that_exits(workers):
    with pytest.raises(SystemExit, match="3"):
        list(in_processes(fails, [("exit",)], workers=workers))


def test_a_process_that_dies():
    with pytest.raises(MKMCError, match=r"worker process died.*fewer workers"):
        list(in_processes(fails, [("die",)], workers=2))
    assert list(in_processes(power, [(2, 2)], workers=2)) == [4]  # the next pool is a new one


def test_what_cannot_be_pickled():
    with pytest.raises(MKMCError, match=r"cannot be passed.*lock.*workers=1"):
        list(in_processes(power, [(threading.Lock(), 1)], workers=2))


# Ctrl-C


def alive(pid):
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except FileNotFoundError:  # gone meanwhile, or a system without /proc
        return not Path("/proc/self").exists()


def all_end(pids):
    until = time.monotonic() + 15
    while any(map(alive, pids)) and time.monotonic() < until:
        time.sleep(0.1)
    return not any(map(alive, pids))


def whoever(folder, number):
    (folder / f"pid_{os.getpid()}").touch()
    if number > 3:
        time.sleep(60)
    return number


def pids(folder):
    return [int(file.name.removeprefix("pid_")) for file in folder.glob("pid_*")]


def use(found):
    with contextlib.closing(found):
        for _ in found:
            raise ValueError("mine")


@pytest.mark.parametrize("how", ["close", "raise"])
def test_closing_ends_the_tasks_in_flight_without_warnings(tmp_path, how):
    tasks = [(tmp_path, number) for number in range(100)]
    found = in_processes(whoever, tasks, workers=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if how == "close":
            next(found)
            found.close()
        else:
            with pytest.raises(ValueError, match="mine"):
                use(found)
    assert pids(tmp_path)
    assert all_end(pids(tmp_path))


def test_closing_while_a_task_is_submitted(monkeypatch):
    from joblib.externals.loky.process_executor import ProcessPoolExecutor

    submit, failed = ProcessPoolExecutor.submit, []

    def slow_to_return(*task, **options):
        future = submit(*task, **options)
        if threading.current_thread() is not threading.main_thread():
            time.sleep(0.2)
        return future

    monkeypatch.setattr(ProcessPoolExecutor, "submit", slow_to_return)
    monkeypatch.setattr(threading, "excepthook", failed.append)
    for pause in (0.0, 0.05, 0.2):
        found = in_processes(after, [(0.01, number) for number in range(100)], workers=2)
        next(found)
        time.sleep(pause)
        found.close()
    assert not failed


def test_a_caught_interrupt_is_raised_again(listening):
    def catches():
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)

    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        list(in_processes(catches, [()], workers=1))
    assert signal.getsignal(signal.SIGINT) is handler


def test_interrupts_are_held_back(listening):
    with interrupts_held() as struck:
        assert not struck
        signal.raise_signal(signal.SIGINT)
        assert struck
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


SCRIPT = """
import os, pathlib, signal, sys, time
from mkmc_prob.utils.processes import in_processes
signal.signal(signal.SIGINT, signal.default_int_handler)
folder, workers = pathlib.Path(sys.argv[1]), int(sys.argv[2])
def endless(number):
    (folder / f"pid_{os.getpid()}").touch()
    try:
        time.sleep(0.1 if number < 4 else 60)
    except KeyboardInterrupt:
        pass
    return number
if __name__ == "__main__":
    try:
        for number in in_processes(endless, [(i,) for i in range(9)], workers=workers):
            (folder / f"done_{number}").touch()
    except KeyboardInterrupt:
        print("interrupted")
"""


#: joblib does not wait for the thread that feeds its workers. If Python exits when that thread has
#: removed a semaphore but not yet told the process that keeps a list of them, that process warns.
TOLD_OF_SEMAPHORES = re.compile(
    r".*: resource_tracker: There appear to be 1 leaked semlock objects .*\n  warnings\.warn\(.*\n"
    r".*: resource_tracker: /loky-\S+: FileNotFoundError\(.*\n  warnings\.warn\(.*\n"
)


def run_script(folder, workers):
    """Start an endless pool in a process group of its own; return when all its workers are busy.

    A worker that has not begun its first task does not ignore Ctrl-C yet.
    """
    script = folder / "endless.py"
    script.write_text(SCRIPT)
    process = subprocess.Popen(
        [sys.executable, str(script), str(folder), str(workers)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    until = time.monotonic() + 60
    while len(list(folder.glob("done_*"))) < 4 or len(pids(folder)) < workers:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < until
        time.sleep(0.02)
    return process


@posix
@both
def test_a_real_interrupt_of_the_process_group(tmp_path, workers):
    """As a terminal sends it."""
    process = run_script(tmp_path, workers)
    os.killpg(process.pid, signal.SIGINT)
    printed, errors = process.communicate(timeout=30)
    assert (printed, TOLD_OF_SEMAPHORES.sub("", errors)) == ("interrupted\n", "")
    assert all_end(pids(tmp_path))


@posix
def test_workers_end_after_a_killed_parent(tmp_path):
    process = run_script(tmp_path, 2)
    process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=10)
    assert len(pids(tmp_path)) == 2
    assert all_end(pids(tmp_path))
