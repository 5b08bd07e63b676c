"""The machine: its memory and cores, threads of torch, compiled functions and streams of random numbers.

Threads: a thread of OpenMP that waits for others spins, for milliseconds. Where anything else runs, it takes the
core of the one it waits for, and two threads are up to ten times slower than one. So posbias has them sleep,
unless the environment says otherwise (OMP_WAIT_POLICY, or GOMP_SPINCOUNT, which goes before it).

Compiling: a compiled function is there as its own machine code, and as a copy in each compiled function that calls
it, optimised once more; which of them runs is decided by what was loaded first. A compiler that may contract
a·b + c or reorder a sum does so otherwise in each copy, so such a function is `inlined` where it is called. And
numba lets a function inherit the options it does not state from whoever called it first, so all are stated here.
Arrays are copied entry by entry: `a[:] = b` has its shapes compared, and compiling that message takes a second.

Random numbers: two parts of a run must not share a stream, else a draw more in one changes the other. Each part
names its stream; the same seed and name give the same numbers on every machine.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from posbias.core.errors import counted, shortened, whole, wrong

if TYPE_CHECKING:
    import numpy as np

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
        what = f"what fits the {free / 1e9:,.1f} GB that are free{place}"
        raise wrong(argument, what, got=f"{shown}, which takes about {taken} GB")


def length(name: str, given: Any, *, each: int) -> int:
    """A whole number ≥ 1 of entries that take `each` bytes.

    Raises `InvalidValueError` naming the argument for another, and for more than can be had.
    """
    count = whole(name, given, 1)
    require(each * count, name, given)
    return count


def cores(threads: int | None = None) -> int:
    """The threads asked for, or one for each core that this process may use.

    Raises `InvalidValueError` for fewer than one thread.
    """
    if threads is not None:
        return counted("threads", threads)
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


def sleep_while_waiting() -> None:
    """Have waiting threads of OpenMP sleep; takes effect where torch is not loaded yet, and in child processes."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """So many threads of torch in the block, as many as before for None.

    Raises `InvalidValueError` as `counted`.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(before if count is None else counted("threads", count))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def leaving_a_core() -> int:
    """All cores but one, or fewer where torch has fewer.

    With a thread on every core, anything else that runs stalls them all.
    """
    import torch

    return min(torch.get_num_threads(), max(1, cores() - 1))


def stream(seed: int, name: str) -> "np.random.Generator":
    """Return the generator called `name` under the root `seed` (an integer ≥ 0).

    Raises `InvalidValueError` for a seed that is no integer or negative.
    """
    import numpy as np

    return np.random.default_rng(sequence(seed, name))


def sequence(seed: int, name: str, *place: int) -> "np.random.SeedSequence":
    """Return the seeds of part `place` (one or more integers ≥ 0) of the stream `name`.

    For work cut into parts that may run in any order, each with a generator of its own. Raises as `stream`.
    """
    import numpy as np

    word = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
    return np.random.SeedSequence(entropy=whole("seed", seed, 0), spawn_key=(word, *place))


SUMS = ("reassoc", "contract", "nsz", "nnan", "ninf")
"""Liberties of innermost sums of finite terms; none that could drop a small one."""


def compiled(
    *liberties: str, inlined: bool = False, error_model: Literal["python", "numpy"] = "python"
) -> Any:
    """A decorator: compile at the first call, keep the machine code on disk, release the lock while it runs.

    `liberties` are LLVM's fast-math flags; a function that has any and that compiled ones call must be `inlined`.
    `error_model` "numpy" divides by zero as NumPy does, which vector instructions need.
    """
    from numba import njit
    from numba.np import linalg

    # Numba imports SciPy's linear algebra to see whether it is there, and again where a compiled product needs it
    needed, linalg.ensure_blas = linalg.ensure_blas, lambda: None
    import numba.np.arraymath  # noqa: F401

    linalg.ensure_blas = needed
    return njit(
        cache=True, nogil=True, error_model=error_model, fastmath=set(liberties) or False, forceinline=inlined
    )
