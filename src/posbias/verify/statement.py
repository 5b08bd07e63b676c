"""A numbered statement of a paper as something that can be tried: instances, a check, a margin.

A statement has one or two readings: `as_printed` and, where that does not survive, `corrected`, what does. Each
reading draws random instances that satisfy the hypotheses (and adversarial ones at their edge), and measures on
each how far the claim is from failing:

    slack ≥ 0   the claim holds on this instance, with that margin
    slack < 0   it fails: a counterexample

Slack is relative wherever the claim compares two numbers: (bound − value)/bound for value ≤ bound. Rounding is
part of the reading: a claim that is an equality in exact arithmetic passes up to `tolerance`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Instance = Mapping[str, Any]
"""What one trial needs, as numbers, strings, lists and arrays; it can be saved and tried again."""


@dataclass(frozen=True)
class Reading:
    """One reading of a statement: `claim` in a sentence, `draw` an instance, `slack` of an instance.

    `draw(rng, edge)` gives a random instance that satisfies the hypotheses, adversarial where `edge`.
    """

    claim: str
    draw: Callable[[np.random.Generator, bool], Instance]
    slack: Callable[[Instance], float]
    tolerance: float = 1e-9


@dataclass(frozen=True)
class Statement:
    """A numbered statement: where it stands, its readings, and what is to be said about it.

    `witness` is an instance on which the statement as printed is known to fail, if it does; `note` says which
    step or printed formula goes wrong, and what holds instead.
    """

    key: str
    name: str
    source: str
    as_printed: Reading
    corrected: Reading | None = None
    note: str = ""
    witness: Instance | None = field(default=None, compare=False)
