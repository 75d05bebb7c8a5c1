"""Cells of a study computed: one after another here, or several at a time in other processes.

Enters: tasks. Leaves: each cell with its outcome, or with the error that stopped it, in any order.
At Ctrl-C, or where the caller asks for no more, no process stays behind.
"""

import functools
import os
import pickle
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple

from ..errors import MKMCError
from ..utils.processes import need_joblib
from .cells import Cell, Outcome, Study
from .classification import EXTRA
from .methods import Method


class Task(NamedTuple):
    """A cell that is to be computed, and by what."""

    study: Study
    cell: Cell
    function: Method


def compute(
    tasks: Sequence[Task], workers: int
) -> Generator[tuple[Cell, Outcome | Exception], None, None]:
    """Compute cells, in any order; close the generator to end the processes of those in flight."""
    if workers == 1 or len(tasks) < 2:
        for task in tasks:
            with _interrupts_pass():
                found = _attempt(task)
            yield found
        return
    parallel, delayed = need_joblib(EXTRA)
    _check_portable(tasks)
    handed: set[Cell] = set()

    def hand_out() -> Iterator[Any]:
        for task in tasks:
            handed.add(task.cell)
            yield delayed(_attempt_of_worker)(task)

    # In batches a kill would cost more cells than those in flight.
    pool = parallel(
        n_jobs=min(workers, len(tasks)),
        backend="loky",
        batch_size=1,
        return_as="generator_unordered",
    )
    computed = pool(hand_out())
    try:
        for found in computed:  # not `yield from`: it would close it with joblib's warning
            handed.discard(found[0])
            yield found
    except BrokenExecutor as error:
        raise MKMCError(
            f"a process that computed one of these cells ended: {'; '.join(map(str, handed))}. "
            "Was there too little memory? Finished cells stay in the folder, if there is one; try "
            f"fewer workers. ({error})"
        ) from error
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it ended early is meant
            computed.close()


def _check_portable(tasks: Sequence[Task]) -> None:
    """Raise where what is to be handed to other processes cannot be."""
    try:
        dumps = import_module("joblib.externals.cloudpickle").dumps
    except ImportError:  # a package of its own since joblib 1.6
        dumps = import_module("cloudpickle").dumps
    functions: dict[str, Any] = {f"methods, {t.cell.completion!r}": t.function for t in tasks}
    functions["missingness"] = tasks[0].study.missingness
    for what, function in functions.items():
        try:
            dumps(function)
        except Exception as error:  # what is pickled may raise anything
            raise MKMCError(
                f"{what}: it cannot be handed to other processes ({type(error).__name__}: {error})."
                " Run with workers=1, or make it a function that carries no such thing."
            ) from error


def _attempt(task: Task) -> tuple[Cell, Outcome | Exception]:
    try:
        return task.cell, task.study.run(task.cell, task.function)
    except Exception as error:
        return task.cell, error
    except SystemExit as error:
        return task.cell, RuntimeError(f"it called sys.exit({error.code!r}); raise an error")


def _attempt_of_worker(task: Task) -> tuple[Cell, Outcome | Exception]:
    """Compute a cell deaf to Ctrl-C, which is for the process that handed it out."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _end_with_parent()
    cell, found = _attempt(task)
    return cell, _portable(found) if isinstance(found, Exception) else found


@functools.cache  # once in a process
def _end_with_parent() -> None:
    """End this process soon after the one that started it was killed: nobody awaits its cell."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _portable(error: Exception) -> Exception:
    """Return an error that reaches another process; its traceback, which does not, is a note."""
    told = "".join(traceback.format_exception(error))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.add_note(told)
    return error


@contextmanager
def _interrupts_pass() -> Iterator[None]:
    """Raise KeyboardInterrupt at the end where Ctrl-C struck and what runs here answered it.

    `fit` does, with what there is: a method that returns its completed kernels would be taken for
    done.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield  # no handler can be set, or Ctrl-C is not listened to
        return
    struck = False

    def note(number: int, frame: Any) -> Any:
        nonlocal struck
        struck = True
        return before(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if struck:
            raise KeyboardInterrupt
