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
from functools import partial
from typing import Any

import numpy as np

Instance = Mapping[str, Any]
"""What one trial needs, as numbers, strings, lists and arrays; it can be saved and tried again."""
Draw = Callable[[np.random.Generator, bool], Instance]
Slack = Callable[..., Any]
"""The slack of an instance whose fields are given by name."""
ROUNDING = 1e-12
"""What prefix masses of a few layers in float64 may be off by."""
STEP: Mapping[str, Any] = {"strength": "constant"}
"""About a statement that is a step or an equation of a proof."""
OURS: Mapping[str, Any] = {"provenance": "ours", "strength": "observation"}
"""About a statement that is a reading of ours."""
_SOURCES = {"wu": "wu2025", "herasimchyk": "herasimchyk2026", "kim": "kim2026"}


@dataclass(frozen=True)
class Reading:
    """One reading of a statement: `claim` in a sentence, `draw` an instance, `slack` of an instance.

    `draw(rng, edge)` gives a random instance that satisfies the hypotheses, adversarial where `edge`.
    """

    claim: str
    draw: Draw
    slack: Callable[[Instance], float]
    tolerance: float = 1e-9


@dataclass(frozen=True)
class Statement:
    """A numbered statement: where it stands, its readings, and what is to be said about it.

    `witness` is an instance on which the statement as printed is known to fail, if it does; `note` says which
    step or printed formula goes wrong, and what holds instead. `asserts` is what the statement itself says where
    the printed reading tries no more than its proof, constants or equations: that the corrected ones bear it out
    is then a claim of its own. `about` are further fields of its claims (`Claim`), and in "proof"
    those of the claim on its proof.
    """

    key: str
    name: str
    source: str
    as_printed: Reading
    corrected: Reading | None = None
    note: str = ""
    witness: Instance | None = field(default=None, compare=False)
    asserts: str = ""
    about: Mapping[str, Any] = field(default_factory=dict, compare=False)


def statement(
    key: str,
    name: str,
    as_printed: str,
    draw: Draw | tuple[Draw, Draw],
    slack: Slack | tuple[Slack, Slack],
    *,
    corrected: str = "",
    tolerance: float | tuple[float, float] = 1e-9,
    **about: Any,
) -> Statement:
    """The statement `key` of the paper that the key begins with, from the sentences of its readings.

    `draw`, `slack` and `tolerance` are those of both readings, or one for each; `slack` takes the fields of an
    instance by name, lists as arrays of floats.
    """
    pairs = (both if isinstance(both, tuple) else (both, both) for both in (draw, slack, tolerance))
    printed, other = (
        Reading(claim, its_draw, partial(_slack_of, its_slack), its_tolerance)
        for claim, its_draw, its_slack, its_tolerance in zip((as_printed, corrected), *pairs, strict=True)
    )
    return Statement(
        key, name, _SOURCES[key.partition("-")[0]], printed, other if corrected else None, **about
    )


def both_readings(slack: Slack, **fixed: Any) -> tuple[Slack, Slack]:
    """A slack with the argument `corrected` as that of either reading."""
    return partial(slack, corrected=False, **fixed), partial(slack, corrected=True, **fixed)


def fields(instance: Instance) -> dict[str, Any]:
    """The fields of an instance, lists as arrays of floats."""
    return {
        name: np.asarray(held, dtype=float) if isinstance(held, list | tuple | np.ndarray) else held
        for name, held in instance.items()
    }


def _slack_of(slack: Slack, instance: Instance) -> float:
    return float(slack(**fields(instance)))
