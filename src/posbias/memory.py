"""How much memory can be had, asked before a large array is made."""

import os
from pathlib import Path

from posbias.errors import InvalidValueError


def available() -> int:
    """Bytes that can be allocated now without swapping; 8 GB where the system does not say."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 8_000_000_000


def require(needed: int, argument: str, given: object) -> None:
    """Raise `InvalidValueError` naming `argument` if `needed` bytes are more than can be had."""
    free = available()
    if needed > free:
        raise InvalidValueError(
            f"{argument}: {given} given; that takes about {needed / 1e9:,.1f} GB and {free / 1e9:,.1f} GB are free"
        )
