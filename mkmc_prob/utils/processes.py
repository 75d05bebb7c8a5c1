"""The process pool of the package, and its handling of Ctrl-C."""

import functools
import os
import pickle
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, TypeVar

from ..errors import MKMCError

R = TypeVar("R")


class PoolError(MKMCError):
    """The pool itself failed, not the function that it runs."""


def need_joblib(install: str = "pip install mkmc-prob[parallel]") -> tuple[Any, Any]:
    """Return joblib's Parallel and delayed; raise MKMCError if joblib is not installed."""
    try:
        from joblib import Parallel, delayed
    except ImportError as error:
        raise MKMCError(f"workers: more than one needs joblib. Install it: {install}") from error
    return Parallel, delayed


def in_processes(
    function: Callable[..., R],
    tasks: Iterable[tuple[Any, ...]],
    *,
    workers: int,
    ordered: bool = True,
    install: str = "pip install mkmc-prob[parallel]",
) -> Generator[R, None, None]:
    """Yield ``function(*task)`` for each task, computed in `workers` processes.

    With one worker, this process computes, and joblib is not needed. Worker processes ignore
    Ctrl-C; here it raises KeyboardInterrupt, even if it came while `function` ran and `function`
    caught it. When the generator is closed, or an
    exception leaves it, the tasks in flight are terminated.

    Parameters
    ----------
    function
        Must not depend on the process it runs in.
    tasks
        The arguments of each call. They are taken one by one, a few ahead of the results.
    workers
        How many processes compute at a time.
    ordered
        Whether results come in the order of the tasks, or as soon as they are computed.
    install
        How to install joblib, for the error message.

    Raises
    ------
    MKMCError
        If joblib is not installed.
    PoolError
        If a worker process dies, or a task cannot be pickled.
    Exception
        What `function` raises, with its causes. From another process it carries the traceback as a
        note; exceptions that cannot be pickled become a RuntimeError that names them.
    """
    if workers == 1:
        for task in tasks:
            with _interrupts_raised():
                result = function(*task)
            yield result
        return
    parallel, delayed = need_joblib(install)
    # A batch would hold results back, and lose more of them if it is terminated.
    pool = parallel(
        n_jobs=workers,
        backend="loky",
        batch_size=1,
        return_as="generator" if ordered else "generator_unordered",
    )
    ended = threading.Event()
    unsent: set[int] = set()

    def submitted() -> Iterator[Any]:
        for number, arguments in enumerate(tasks):
            if ended.is_set():
                return
            unsent.add(number)
            task = _Task(arguments, functools.partial(unsent.discard, number))
            yield delayed(_in_worker)(function, task)

    results = pool(submitted())
    chain: list[BaseException] = []
    try:
        for chain, result in results:
            if chain:
                break
            yield result
        else:
            ended.set()
    except BrokenExecutor as error:
        ended.set()
        raise PoolError(
            "workers: a worker process died. If it ran out of memory, use fewer workers."
        ) from error
    except pickle.PicklingError as error:
        told = str(error.__cause__ or error).strip(' \n"').splitlines()[-1]
        raise PoolError(
            f"workers: a task cannot be passed to another process ({told}). Use workers=1, or pass "
            "functions and data that can be pickled."
        ) from error
    finally:
        try:
            if not ended.is_set():
                # If the pool is closed before its thread has sent on what was submitted, that
                # thread fails with a KeyError that Python prints. So wait for it.
                ended.set()
                _wait_until(lambda: not unsent, at_most=3.0)
        finally:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # joblib warns of generators that are closed early
                results.close()
    for effect, cause in pairwise(chain):
        effect.__cause__ = cause
    if chain:
        raise chain[0]


class _Task:
    """The arguments of a call: a tuple once unpickled. `sent` is called when they are pickled."""

    def __init__(self, task: tuple[Any, ...], sent: Callable[[], None]) -> None:
        self.task = task
        self.sent = sent

    def __reduce__(self) -> tuple[Any, ...]:
        self.sent()
        return tuple, (self.task,)


def _wait_until(condition: Callable[[], bool], *, at_most: float) -> None:
    """Wait until the condition holds, or for that many seconds if it never does."""
    end = time.monotonic() + at_most
    while not condition() and time.monotonic() < end:
        time.sleep(0.001)


def _in_worker(
    function: Callable[..., R], task: tuple[Any, ...]
) -> tuple[list[BaseException], R | None]:
    """Return what the call raised, with its causes, and its result."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    _end_with_parent()
    try:
        return [], function(*task)
    except BaseException as error:
        chain: list[BaseException] = []
        cause: BaseException | None = error
        while cause is not None:
            effect, cause = cause, cause.__cause__
            chain.append(_portable(effect))
        return chain, None


def _portable(error: BaseException) -> BaseException:
    """Return an exception that can be pickled; pickling loses its traceback, so that is a note."""
    told = "".join(traceback.format_exception(error, chain=error.__cause__ is None))
    # Some libraries make pickle take along what led to the error, which may not be portable.
    error = error.with_traceback(None)
    error.__cause__ = error.__context__ = None
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # whatever its class raises
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.add_note(told)
    return error


@functools.cache  # once per process
def _end_with_parent() -> None:
    """End this process soon after its parent was killed."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _handled(handler: Callable[..., Any]) -> Iterator[None]:
    """Handle Ctrl-C by ``handler(before, number, frame)`` while the block runs.

    `before` is the previous handler. Outside the main thread, and if Ctrl-C is ignored, nothing
    changes.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    signal.signal(signal.SIGINT, functools.partial(handler, before))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def interrupts_held() -> Iterator[list[Any]]:
    """Hold back Ctrl-C while the block runs; the list that is yielded records each."""
    struck: list[Any] = []
    with _handled(lambda before, *what: struck.append(what)):
        yield struck


@contextmanager
def _interrupts_raised() -> Iterator[None]:
    """Raise KeyboardInterrupt after the block if Ctrl-C came while it ran and it was caught there.

    `fit` catches it and returns the model it has reached, but then the task is not finished.
    """
    struck: list[Any] = []

    def note(before: Callable[..., Any], *what: Any) -> Any:
        struck.append(what)
        return before(*what)

    with _handled(note):
        yield
    if struck:
        raise KeyboardInterrupt
