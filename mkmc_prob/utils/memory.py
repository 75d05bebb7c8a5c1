"""How much memory is free, and errors before more than that is asked for."""

import os

from ..errors import MKMCError


def free_memory() -> float:
    """Return the bytes of memory that are free, infinity where the system does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return 1024.0 * int(line.split()[1])
    except OSError:
        pass
    try:
        return float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return float("inf")


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

    >>> in_words(6.4e9)
    '6.4 GB'
    """
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1_000:
            return f"{size:.3g} {unit}"
        size /= 1_000
    return f"{size:.3g} TB"
