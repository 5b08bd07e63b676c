"""How much memory can be had, asked before a large array is made; and how many cores."""

import os
from pathlib import Path
from typing import Any

from posbias.core.arguments import shortened, whole
from posbias.core.errors import InvalidValueError

SMALL = 2**16
"""Bytes that are always there: to ask the system takes longer than to fill them."""


def available() -> int | None:
    """Bytes that this process may still take without swapping; None where the system does not say."""
    limits = [_free_of_the_machine(), _free_of_the_group()]
    return min((limit for limit in limits if limit is not None), default=None)


def require(needed: int, argument: str, given: object, free: int | None = None, where: str = "") -> None:
    """Raise `InvalidValueError` naming `argument` if `needed` bytes are more than can be had.

    `free` are the bytes that can be had `where`, on a device; by default those of this machine.
    """
    if not where:
        free = available() if needed > SMALL else None
    if free is not None and needed > free:
        giga = min(needed, 10**300) / 1e9
        taken = f"{giga:,.1f}" if giga < 1e12 else f"{giga:.1e}"
        # callers say in words what is not one value
        shown = given if isinstance(given, str) else shortened(given)
        place = f" on {where}" if where else ""
        raise InvalidValueError(
            f"{argument}: {shown} given; that takes about {taken} GB and {free / 1e9:,.1f} GB are free{place}"
        )


def length(name: str, given: Any, least: int = 1, *, each: int = 8, squared: bool = False) -> int:
    """A whole number ≥ `least` of entries that take `each` bytes, or of rows and columns of such (`squared`).

    Raises `InvalidValueError` naming the argument for another, and for more than can be had.
    """
    count = whole(name, given, least)
    require(each * count * (count if squared else 1), name, given)
    return count


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _free_of_the_machine() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _free_of_the_group() -> int | None:
    """What a container's control group (version 2) still allows."""
    group = Path("/sys/fs/cgroup")
    try:
        most = (group / "memory.max").read_text().strip()
        used = int((group / "memory.current").read_text())
        return None if most == "max" else max(0, int(most) - used)
    except (OSError, ValueError):
        return None
