"""A numbered statement of a paper as one record: its place, its margin as printed and as corrected, its erratum.

A statement is written as the function that measures its margin. The docstring is the printed claim; further
paragraphs are the reading that holds ("Corrected: …"), what the statement asserts beyond constants or equations
that are tried ("Asserts: …"), of what it speaks ("Scope: …"), which number of its counterexample is compared with
the bound ("Shows: …"), and a note.

    @statement("herasimchyk-A.3", "Lemma A.3", draws.stack, tolerance=ROUNDING)
    def lemma_a_3(kernels, mixing, width):
        ...

Where the printed reading fails the function takes `corrected` as well. Slack is how far a claim is from failing on
an instance: ≥ 0 where it holds, with that margin, < 0 at a counterexample. It is relative wherever the claim
compares two numbers: (bound − value)/bound for value ≤ bound. An equality in exact arithmetic passes up to
`tolerance`.
"""

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from posbias.core.errors import InvalidValueError, nearest
from posbias.profiles.claims import Above, Claim
from posbias_papers.errata import find_erratum

Instance = Mapping[str, Any]
"""What one trial needs, as numbers, strings, lists and arrays; it can be saved and tried again."""
Draw = Callable[[np.random.Generator, bool], Instance]
"""A random instance that satisfies the hypotheses, at their edge where the second argument says so."""
ROUNDING = 1e-12
"""What prefix masses of a few layers in float64 may be off by."""
STEP: Mapping[str, Any] = {"strength": "constant"}
"""Of a statement that is a step or an equation of a proof."""
OURS: Mapping[str, Any] = {"provenance": "ours", "strength": "observation"}
"""Of a statement that is a reading of ours."""
LABELS = ("Corrected", "Asserts", "Scope", "Shows")
_SOURCES = {"wu": "wu2025", "herasimchyk": "herasimchyk2026", "kim": "kim2026"}


@dataclass(frozen=True)
class Reading:
    """A statement as printed or as corrected: its claim, draws of instances, the margin of their fields."""

    claim: str
    draw: Draw
    margin: Callable[..., Any]
    tolerance: float = 1e-9

    def slack(self, instance: Instance) -> float:
        """The margin of an instance, lists as arrays of floats."""
        return float(self.margin(**fields(instance)))


@dataclass(frozen=True)
class Statement:
    """A numbered statement: where it stands, both readings, its erratum, and what is claimed.

    `witness` is an instance on which the statement as printed is known to fail, if it does, and `shows` says what
    number of it is compared with the bound. `asserts` is what the statement itself says where the printed reading
    tries no more than its proof, constants or equations: that the corrected ones support it is then a claim of its
    own. `about` are further fields of its claims (`Claim`), and in "proof" those of the claim on its proof.
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

    @property
    def claims(self) -> Iterator[Claim]:
        """What is claimed: what the statement asserts, and what is printed of its proof; or one claim for both."""
        key, printed, more = f"{self.source}/{_slug(self.name)}", self.as_printed, dict(self.about)
        of_proof = {"strength": "constant"} | more.pop("proof", {})
        about: dict[str, Any] = {"strength": "theorem", "evidence": "a proof", "bar": "paper"} | more
        about.setdefault("scope", "whatever satisfies its hypotheses")
        test = Above(math.nextafter(-printed.tolerance, -math.inf), least=0.0)
        if not self.asserts:
            yield Claim(key, self.name, f"{self.name}: {printed.claim}", test=test, **about)
            return
        bound = Above(math.nextafter(-(self.corrected or printed).tolerance, -math.inf), least=0.0)
        yield Claim(key, self.name, f"{self.name}: {self.asserts}", test=bound, **about)
        words = f"{self.name}, as its proof has it: {printed.claim}"
        yield Claim(f"{key}-proof", f"{self.name}, proof", words, test=test, **about | of_proof)


def statement(
    key: str,
    name: str,
    draw: Draw | tuple[Draw, Draw],
    *,
    tolerance: float | tuple[float, float] = 1e-9,
    erratum: str = "",
    witness: Instance | None = None,
    **about: Any,
) -> Callable[[Callable[..., Any]], Statement]:
    """A decorator that makes a margin function the statement `key` of the paper that the key begins with.

    `draw` and `tolerance` are those of both readings, or one for each. With an `erratum` (its name among those of
    the paper) the note is what that says.
    """
    source = _SOURCES[key.partition("-")[0]]
    found = find_erratum(f"{source}/{erratum}") if erratum else None

    def record(margin: Callable[..., Any]) -> Statement:
        text = _paragraphs(margin)
        draws = draw if isinstance(draw, tuple) else (draw, draw)
        tolerances = tolerance if isinstance(tolerance, tuple) else (tolerance, tolerance)
        readings = [Reading(text["Printed"], draws[0], margin, tolerances[0])]
        if "Corrected" in text:
            readings[0] = Reading(text["Printed"], draws[0], partial(margin, corrected=False), tolerances[0])
            corrected = partial(margin, corrected=True)
            readings.append(Reading(text["Corrected"], draws[1], corrected, tolerances[1]))
        return Statement(
            key,
            name,
            source,
            *readings,
            note=f"{found.holds}." if found else text["Note"],
            witness=witness,
            asserts=text.get("Asserts", ""),
            erratum=found.key if found else "",
            shows=text.get("Shows", ""),
            about=({"scope": text["Scope"]} if "Scope" in text else {}) | about,
        )

    return record


def select(statements: Iterable[Statement], keys: Iterable[str]) -> list[Statement]:
    """The statements with these keys, or all of a paper by its key. Raises `InvalidValueError`."""
    known, chosen = list(statements), []
    for key in keys:
        meant = [one for one in known if key in (one.key, one.source)]
        if not meant:
            choices = [*(one.key for one in known), *sorted({one.source for one in known})]
            raise InvalidValueError(
                f"statement: expected a key such as wu-4.1, or a paper, got {key!r}{nearest(key, choices)}"
            )
        chosen += [one for one in meant if one not in chosen]
    return chosen


def fields(instance: Instance) -> dict[str, Any]:
    """The fields of an instance, lists as arrays of floats."""
    return {
        name: np.asarray(value, dtype=float) if isinstance(value, list | tuple | np.ndarray) else value
        for name, value in instance.items()
    }


def _by_key(key: str) -> Statement:
    from posbias_papers.statements import STATEMENTS

    return next(one for one in STATEMENTS if one.key == key)


def _paragraphs(margin: Callable[..., Any]) -> dict[str, str]:
    """The paragraphs of a docstring by their label, each in one line: the first is printed, the rest a note."""
    printed, *others = (" ".join(part.split()) for part in (inspect.getdoc(margin) or "").split("\n\n"))
    labelled = {label: part for part in others for label in LABELS if part.startswith(f"{label}: ")}
    note = " ".join(part for part in others if part not in labelled.values())
    parts = {label: part.partition(": ")[2] for label, part in labelled.items()}
    return {"Printed": printed, "Note": note} | parts


def _slug(name: str) -> str:
    """'Theorem 4.5, critical distance' as 'theorem-4.5-critical-distance'."""
    words = name.lower().replace("§", "section ")
    return "-".join("".join(sign if sign.isalnum() or sign == "." else " " for sign in words).split())
