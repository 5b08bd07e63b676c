"""From an architecture to the influence of every position: the rollout P = R_T ⋯ R_1.

Row i of P says how much of each input token reaches token i through all layers. One row costs
O(tokens · heads · depth) time and O(tokens) memory; the whole matrix is its rows, one by one.
"""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from jaxtyping import Float

from posbias import memory
from posbias.errors import InvalidValueError
from posbias.profile import Profile
from posbias.spec import fingerprint
from posbias.theory import scan
from posbias.theory.architecture import Architecture


def influence(
    architecture: Architecture, tokens: int, query: int = -1, *, threads: int | None = None
) -> Profile:
    """The rollout's row of one token: the influence p(j) of every position j on `query`.

    `tokens` is the length of the text, `query` a 0-based position (negative counts from the end), `threads`
    the number of cores to use (default: all; the result does not depend on it). The profile's mass is
    float64, sums to 1, and every entry is within 1e-12 relative of the dense product (below 1e-250 it may be
    0). Raises `InvalidValueError` for tokens < 1, a query outside, or a size that memory cannot hold.
    Source: Herasimchyk et al. 2026, Eqs. (2) to (4).
    """
    _check_tokens(tokens, scan.plan_bytes(architecture, tokens) if _is_count(tokens) else 0)
    position = _check_query(query, tokens)
    # no token after the query can reach it
    row = np.zeros(position + 1)
    row[position] = 1.0
    plan = scan.plan(architecture, position + 1)
    mass = np.zeros(tokens)
    mass[: position + 1] = scan.sweep(plan, row, _cores(threads))
    about = {
        "architecture": architecture.name or fingerprint(architecture),
        "assumptions": list(architecture.assumptions),
        "exact": all(layer.positional.exact for layer in architecture.layers),
    }
    return Profile(mass, query=position, measures="rollout", about=about)


def rollout(
    architecture: Architecture, tokens: int, *, threads: int | None = None
) -> Float[np.ndarray, "query key"]:
    """The rollout matrix P, n×n float64: row i is the influence of every position on token i.

    Rows sum to 1 and entries above the diagonal are zero. `threads` as in `influence`. Raises
    `InvalidValueError` for tokens < 1 or a matrix that memory cannot hold. Source: Herasimchyk et al. 2026, §3.
    """
    _check_tokens(tokens, 8 * tokens * tokens if _is_count(tokens) else 0)
    matrix = np.zeros((tokens, tokens))
    plan = scan.plan(architecture, tokens)

    def fill(query: int) -> None:
        row = np.zeros(query + 1)
        row[query] = 1.0
        matrix[query, : query + 1] = scan.sweep(plan, row)

    with ThreadPoolExecutor(_cores(threads)) as pool:
        list(pool.map(fill, range(tokens)))
    return matrix


def _is_count(tokens: object) -> bool:
    return isinstance(tokens, int | np.integer) and not isinstance(tokens, bool) and int(tokens) >= 1


def _check_tokens(tokens: int, needed: int) -> None:
    if not _is_count(tokens):
        raise InvalidValueError(f"tokens: {tokens!r} given, an integer ≥ 1 needed")
    memory.require(needed, "tokens", tokens)


def _check_query(query: int, tokens: int) -> int:
    valid = isinstance(query, int | np.integer) and not isinstance(query, bool)
    if not valid or not -tokens <= query < tokens:
        raise InvalidValueError(
            f"query: {query!r} given, a position from {-tokens} to {tokens - 1} needed for {tokens} tokens"
        )
    return int(query) % tokens


def _cores(threads: int | None) -> int:
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not _is_count(threads):
        raise InvalidValueError(f"threads: {threads!r} given, an integer ≥ 1 needed")
    return threads
