"""A numbered statement of a paper as one record: draws of instances, the margin of each reading, its erratum.

A statement is written as the function that measures its margin; the docstring is the printed claim and, in
further paragraphs, what is to be said of it:

    @statement("herasimchyk-A.3", "Lemma A.3", draws.stack, tolerance=ROUNDING)
    def lemma_a_3(kernels, mixing, width):
        ...

Where the printed reading does not survive, `corrected` is another such function, with the claim that does. Slack
is how far a claim is from failing on an instance: ≥ 0 where it holds, with that margin, < 0 at a counterexample.
It is relative wherever the claim compares two numbers: (bound − value)/bound for value ≤ bound. An equality in
exact arithmetic passes up to `tolerance`.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from posbias_papers.errata import find_erratum

Instance = Mapping[str, Any]
"""What one trial needs, as numbers, strings, lists and arrays; it can be saved and tried again."""
Draw = Callable[[np.random.Generator, bool], Instance]
"""A random instance that satisfies the hypotheses, adversarial where the second argument says so."""
Slack = Callable[..., Any]
"""The slack of an instance whose fields are given by name, lists as arrays of floats."""
ROUNDING = 1e-12
"""What prefix masses of a few layers in float64 may be off by."""
STEP: Mapping[str, Any] = {"strength": "constant"}
"""About a statement that is a step or an equation of a proof."""
OURS: Mapping[str, Any] = {"provenance": "ours", "strength": "observation"}
"""About a statement that is a reading of ours."""
_SOURCES = {"wu": "wu2025", "herasimchyk": "herasimchyk2026", "kim": "kim2026"}


@dataclass(frozen=True)
class Reading:
    """One reading of a statement: `claim` in a sentence, `draw` an instance, `slack` of an instance."""

    claim: str
    draw: Draw
    slack: Callable[[Instance], float]
    tolerance: float = 1e-9


@dataclass(frozen=True)
class Statement:
    """A numbered statement: where it stands, its readings, its erratum, and what is to be said about it.

    `witness` is an instance on which the statement as printed is known to fail, if it does, and `shows` says what
    number of it is compared with the bound. `asserts` is what the statement itself says where the printed reading
    tries no more than its proof, constants or equations: that the corrected ones bear it out is then a claim of
    its own. `about` are further fields of its claims (`Claim`), and in "proof" those of the claim on its proof.
    """

    key: str
    name: str
    source: str
    as_printed: Reading
    corrected: Reading | None = None
    note: str = ""
    witness: Instance | None = field(default=None, compare=False)
    asserts: str = ""
    erratum: str = ""
    shows: str = ""
    about: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def __reduce__(self) -> Any:
        """Another process finds a statement by its key: functions do not travel."""
        return _by_key, (self.key,)


def statement(
    key: str,
    name: str,
    draw: Draw | tuple[Draw, Draw],
    *,
    corrected: Slack | None = None,
    tolerance: float | tuple[float, float] = 1e-9,
    erratum: str = "",
    shows: str = "",
    witness: Instance | None = None,
    asserts: str = "",
    **about: Any,
) -> Callable[[Slack], Statement]:
    """A decorator that makes the printed reading's margin the statement `key` of the paper that the key begins
    with.

    `draw` and `tolerance` are those of both readings, or one for each. With an `erratum` (its name among those of
    the paper) the note is what that says.
    """
    source = _SOURCES[key.partition("-")[0]]
    about_erratum = find_erratum(f"{source}/{erratum}") if erratum else None

    def made(printed: Slack) -> Statement:
        draws = draw if isinstance(draw, tuple) else (draw, draw)
        tolerances = tolerance if isinstance(tolerance, tuple) else (tolerance, tolerance)
        readings = [
            Reading(_paragraphs(slack)[0], its_draw, _of_fields(slack), its_tolerance)
            for slack, its_draw, its_tolerance in zip((printed, corrected), draws, tolerances, strict=True)
            if slack
        ]
        return Statement(
            key,
            name,
            source,
            *readings,
            note=f"{about_erratum.holds}." if about_erratum else " ".join(_paragraphs(printed)[1:]),
            witness=witness,
            asserts=asserts,
            erratum=about_erratum.key if about_erratum else "",
            shows=shows,
            about=about,
        )

    return made


def fields(instance: Instance) -> dict[str, Any]:
    """The fields of an instance, lists as arrays of floats."""
    return {
        name: np.asarray(held, dtype=float) if isinstance(held, list | tuple | np.ndarray) else held
        for name, held in instance.items()
    }


def _by_key(key: str) -> Statement:
    from posbias_papers.statements import STATEMENTS

    return next(one for one in STATEMENTS if one.key == key)


def _of_fields(slack: Slack) -> Callable[[Instance], float]:
    return lambda instance: float(slack(**fields(instance)))


def _paragraphs(slack: Slack) -> list[str]:
    """The paragraphs of a function's docstring, each in one line."""
    return [" ".join(part.split()) for part in (inspect.getdoc(slack) or "").split("\n\n")]
