"""One way to compile: numba's machine code, kept on disk, that gives the same bits whenever it was compiled.

A compiled function is there several times: as its own machine code, and as a copy in each compiled function that
calls it, optimised once more. Which of them runs is decided by what was loaded first. Without liberties all give
the same bits. A compiler that may contract a·b + c or reorder a sum uses that freedom otherwise in each copy, so
such a function is `inlined` where it is called: then there is no other copy for the caller to run. And numba lets
a function inherit the options it does not state from whoever called it first, so all are stated here.

Arrays are copied entry by entry: `a[:] = b` has its shapes compared, and compiling that message takes a second.
"""

from typing import Any, Literal

from numba import njit

SUMS = ("reassoc", "contract", "nsz", "nnan", "ninf")
"""Liberties of innermost sums of finite terms; none that could drop a small one."""


def compiled(
    *liberties: str, inlined: bool = False, error_model: Literal["python", "numpy"] = "python"
) -> Any:
    """A decorator: compile at the first call, keep the machine code on disk, release the lock while it runs.

    `liberties` are LLVM's fast-math flags; a function that has any and that compiled ones call must be `inlined`.
    `error_model` "numpy" divides by zero as NumPy does, which vector instructions need.
    """
    return njit(
        cache=True,
        nogil=True,
        error_model=error_model,
        fastmath=set(liberties) or False,
        forceinline=inlined,
    )
