"""How much memory is free, and errors before more than that is asked for."""

import math
import os
from pathlib import Path

from ..errors import MKMCError


def free_memory() -> float:
    """Return the bytes of memory that are free, infinity where the system does not say."""
    return min(_of_the_system(), _of_the_group())


def _of_the_system() -> float:
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemAvailable:"):
            return 1024.0 * int(line.split()[1])
    try:
        return float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return math.inf


def _of_the_group() -> float:
    """Return what a container may still take."""
    limit, used = (_lines(f"/sys/fs/cgroup/memory.{name}") for name in ("max", "current"))
    if not (limit and used) or not limit[0].strip().isdigit():
        return math.inf
    return float(int(limit[0]) - int(used[0]))


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return []


def check_memory(needed: float, what: str, remedy: str) -> None:
    """Raise MKMCError if `needed` bytes are not free."""
    free = free_memory()
    if needed > free:
        raise MKMCError(
            f"{what} needs {in_words(needed)} of memory, of which {in_words(free)} are free. "
            + remedy
        )


def in_words(size: float) -> str:
    """Return a number of bytes with a unit.

    >>> from mkmc_prob.utils.memory import in_words
    >>> in_words(6.4e9)
    '6.4 GB'
    """
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1_000:
            return f"{size:.3g} {unit}"
        size /= 1_000
    return f"{size:.3g} TB"
