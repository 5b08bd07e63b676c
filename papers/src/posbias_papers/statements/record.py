"""A numbered statement of a paper as one record: its place, its margin as printed and as corrected, its erratum.

A statement is written as the function that measures its margin. The docstring is the printed claim; further
paragraphs are the reading that holds ("Corrected: …"), what the statement asserts beyond constants or equations
that are tried ("Asserts: …"), of what it speaks ("Scope: …"), what it rests on in the paper ("Evidence: …"), as
which claim what is printed is counted ("Alias: …"), which number of its counterexample is compared with the bound
("Shows: …"), the erratum on it, by its name among those of the paper ("Erratum: …"), and a note.

    @statement("herasimchyk-A.3", "Lemma A.3", Sampler.stack, tolerance=ROUNDING)
    def lemma_a_3(kernels, mixing, width):
        ...

Where the printed reading fails there is a counterexample, the `witness`, and the function takes `corrected`. Slack
is how far a claim is from failing on an instance: ≥ 0 where it holds, with that margin, < 0 at a counterexample.
It is relative wherever the claim compares two numbers: (bound − value)/bound for value ≤ bound. An equality in
exact arithmetic passes up to `tolerance`.
"""

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from posbias.core.files import data_table
from posbias.profiles.claims import Above
from posbias_papers import choose
from posbias_papers.claims import Claim
from posbias_papers.errata import find_erratum
from posbias_papers.statements.draws import Instance, Sampler

ROUNDING = 1e-12
"""What prefix masses of a few layers in float64 may be off by."""
STEP: Mapping[str, Any] = {"strength": "constant"}
"""Of a statement that is a step or an equation of a proof."""
REMARK: Mapping[str, Any] = {"strength": "observation"}
"""Of a statement that the text makes in passing."""
OURS: Mapping[str, Any] = {"provenance": "ours", "strength": "observation"}
"""Of a statement that is a reading of ours."""
LABELS = ("Corrected", "Asserts", "Scope", "Evidence", "Alias", "Shows", "Erratum")
COUNTEREXAMPLES: dict[str, Instance] = data_table(__file__, "counterexamples.toml")
"""Instances on which statements fail as printed, by their keys."""
_SOURCES = {"wu": "wu2025", "herasimchyk": "herasimchyk2026", "kim": "kim2026"}


@dataclass(frozen=True)
class Statement:
    """A numbered statement: where it stands, what is claimed as printed and as corrected, and how it is tried.

    `draw` gives a random instance that satisfies the hypotheses (of the corrected reading, if there is one),
    `margin` measures the slack from its fields. `witness` is an instance on which the statement as printed fails,
    if it does, and `shows` says what number of it is compared with the bound. `asserts` is what the statement
    itself says where the printed reading tries no more than its proof, constants or equations: that the corrected
    ones support it is then a claim of its own. `about` are further fields of its claims (`Claim`), and in "proof"
    those of the claim on its proof.
    """

    key: str
    name: str
    source: str
    claim: str
    draw: Callable[[Sampler], Instance]
    margin: Callable[..., Any]
    tolerance: float = 1e-9
    corrected: str = ""
    witness: Instance | None = field(default=None, compare=False)
    note: str = ""
    asserts: str = ""
    erratum: str = ""
    shows: str = ""
    about: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def __reduce__(self) -> Any:
        """Another process finds a statement by its key: functions do not travel."""
        return find_statement, (self.key,)

    def slack(self, instance: Instance, corrected: bool = False) -> float:
        """The margin of an instance, as printed or as `corrected`; lists are arrays of floats.

        A `Margin`, where it compares a value with a bound.
        """
        fields = {
            name: np.asarray(value, dtype=float) if isinstance(value, list | tuple | np.ndarray) else value
            for name, value in instance.items()
        }
        return self.margin(**fields, **({"corrected": corrected} if self.corrected else {}))

    @property
    def claims(self) -> tuple[Claim, ...]:
        """What is claimed: what the statement asserts, and what is printed of its proof; or one claim for both."""
        key = f"{self.source}/{_slug(self.name)}"
        test = Above(math.nextafter(-self.tolerance, -math.inf), least=0.0)
        about: dict[str, Any] = {"strength": "theorem", "evidence": "a proof", "bar": "paper", "test": test}
        about |= {"scope": "whatever satisfies its hypotheses", **self.about}
        of_proof, alias = about.pop("proof", {}), {"alias_of": about.pop("alias", "")}
        if not self.asserts:
            return (Claim(key, self.name, f"{self.name}: {self.claim}", **about, **alias),)
        words = f"{self.name}, as its proof {'is read' if of_proof else 'has it'}: {self.claim}"
        printed = about | {"strength": "constant"} | of_proof | alias
        return (
            Claim(key, self.name, f"{self.name}: {self.asserts}", **about),
            Claim(f"{key}-proof", f"{self.name}, proof", words, **printed),
        )


def statement(
    key: str,
    name: str,
    draw: Callable[[Sampler], Instance],
    *,
    tolerance: float = 1e-9,
    witness: Instance | None = None,
    **about: Any,
) -> Callable[[Callable[..., Any]], Statement]:
    """A decorator that makes a margin function the statement `key` of the paper that the key begins with.

    With an erratum the note is what that says. The `witness` is by default that of `COUNTEREXAMPLES`.
    """
    witness = COUNTEREXAMPLES.get(key, witness)
    source = _SOURCES[key.partition("-")[0]]

    def record(margin: Callable[..., Any]) -> Statement:
        text = _paragraphs(margin)
        found = find_erratum(f"{source}/{text['erratum']}") if "erratum" in text else None
        fields = {name: text[name] for name in ("corrected", "asserts", "shows") if name in text}
        fields |= {"note": f"{found.holds}.", "erratum": found.key} if found else {"note": text["note"]}
        own = {name: text[name] for name in ("scope", "evidence", "alias") if name in text}
        claim = text["printed"]
        return Statement(
            key, name, source, claim, draw, margin, tolerance, witness=witness, about=own | about, **fields
        )

    return record


def select(statements: Iterable[Statement], keys: Iterable[str]) -> list[Statement]:
    """The statements of these keys, or of whole papers; none given: all. Raises `InvalidValueError`."""
    expected = "statement: expected a key such as wu-4.1, or a paper"
    return choose(expected, statements, keys, lambda one: (one.key, one.source))


def find_statement(key: str) -> Statement:
    """The statement of this key. Raises `InvalidValueError` naming the nearest."""
    from posbias_papers.statements import STATEMENTS

    (found,) = choose("statement: expected a key such as wu-4.1", STATEMENTS, key, lambda one: (one.key,))
    return found


def _paragraphs(margin: Callable[..., Any]) -> dict[str, str]:
    """The paragraphs of a docstring by their label, each in one line: the first is printed, the rest a note."""
    printed, *others = (" ".join(part.split()) for part in (inspect.getdoc(margin) or "").split("\n\n"))
    labelled = {part.partition(": ")[0]: part for part in others if part.partition(": ")[0] in LABELS}
    note = " ".join(part for part in others if part not in labelled.values())
    parts = {label.lower(): part.partition(": ")[2] for label, part in labelled.items()}
    return {"printed": printed, "note": note} | parts


def _slug(name: str) -> str:
    """'Theorem 4.5, critical distance' as 'theorem-4.5-critical-distance'."""
    words = name.lower().replace("§", "section ")
    return "-".join("".join(sign if sign.isalnum() or sign == "." else " " for sign in words).split())
