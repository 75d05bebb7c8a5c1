"""Work in several processes, and what Ctrl-C does to it."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import MKMCError


def need_joblib(install: str = "pip install mkmc-prob[parallel]") -> tuple[Any, Any]:
    """Return joblib's Parallel and delayed; raise where it is missing."""
    try:
        from joblib import Parallel, delayed
    except ImportError as error:
        raise MKMCError(f"workers: more than one needs joblib. Install it: {install}") from error
    return Parallel, delayed


@contextmanager
def interrupts_held() -> Iterator[list[Any]]:
    """Hold back Ctrl-C while the block runs; where it struck the list it gets is not empty."""
    struck: list[Any] = []
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield struck  # no handler can be set, or Ctrl-C is not listened to
        return
    signal.signal(signal.SIGINT, lambda *what: struck.append(what))
    try:
        yield struck
    finally:
        signal.signal(signal.SIGINT, before)
