"""Named random streams from one root seed.

Two parts of a run that draw random numbers must not share a stream, else adding a draw in one changes the
other. Each part names its stream; the same seed and name give the same numbers on every machine.
"""

import hashlib

import numpy as np

from posbias.core.arguments import whole


def stream(seed: int, name: str) -> np.random.Generator:
    """Return the generator called `name` under the root `seed` (an integer ≥ 0).

    Raises `InvalidValueError` for a seed that is no integer or negative.
    """
    return np.random.default_rng(sequence(seed, name))


def sequence(seed: int, name: str, *place: int) -> np.random.SeedSequence:
    """Return the seeds of part `place` (one or more integers ≥ 0) of the stream `name`.

    For work cut into parts that may run in any order, each with a generator of its own. Raises as `stream`.
    """
    word = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
    return np.random.SeedSequence(entropy=whole("seed", seed, 0), spawn_key=(word, *place))
