"""Try statements: draw instances, keep the tightest margin, stop a reading at its first counterexample."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from posbias.core.errors import InvalidValueError, nearest, whole
from posbias.core.files import write_text
from posbias.core.formats import Header
from posbias.core.machine import stream
from posbias.core.progress import Event, OnEvent
from posbias.core.store import Cell
from posbias.profiles.claims import AMENDED
from posbias_papers.statements.margins import Compared, compared_in
from posbias_papers.statements.record import Instance, Reading, Statement

EDGE_EVERY = 4
"""Every fourth instance is drawn at the edge of the hypotheses."""
Verdict = Literal["holds", "fails"]


@dataclass(frozen=True)
class Trial:
    """One reading tried: instances drawn, the tightest slack seen, and the first counterexample if any."""

    instances: int
    slack: float
    counterexample: Instance | None = None

    @property
    def survived(self) -> bool:
        """Whether every instance satisfied the claim."""
        return self.counterexample is None

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> Self:
        """A trial from JSON. Raises KeyError or TypeError for what is not whole."""
        slack = -math.inf if content["slack"] is None else float(content["slack"])
        return cls(int(content["instances"]), slack, content["counterexample"])


@dataclass(frozen=True)
class Finding:
    """What trying a statement gave: whether it holds `as_printed`, and else as `corrected`.

    Verdicts, names and counterexamples of a statement are these, wherever they are printed.
    """

    statement: Statement
    as_printed: Trial
    corrected: Trial | None

    @property
    def verdict(self) -> Verdict:
        """fails: a counterexample to the printed claim was found."""
        return "holds" if self.as_printed.survived else "fails"

    @property
    def corrected_verdict(self) -> Verdict | None:
        """The same of the corrected reading, where the printed one fails and there is another."""
        if self.as_printed.survived or self.corrected is None:
            return None
        return "holds" if self.corrected.survived else "fails"

    @property
    def mark(self) -> str:
        """The verdict in words, as amended too."""
        return AMENDED if self.corrected_verdict == "holds" else self.verdict

    @property
    def name(self) -> str:
        """What the verdict is on: the statement, or its proof where it asserts more."""
        return f"{self.statement.name}, proof" if self.statement.asserts else self.statement.name

    @property
    def asserted(self) -> Literal["holds", "undecided"] | None:
        """The verdict on what the statement asserts beyond its proof: it holds with the constants of a reading."""
        if not self.statement.asserts:
            return None
        return "holds" if (self.corrected or self.as_printed).survived else "undecided"

    @cached_property
    def compared(self) -> Compared | None:
        """Of the counterexample to the printed claim, the numbers that refute it; None without one."""
        found = self.as_printed.counterexample
        return None if found is None else compared_in(self.statement.as_printed.slack, found)

    def as_dict(self) -> dict[str, Any]:
        """The row of the table, ready for JSON; `slack` is that of the reading that stands."""
        statement, corrected = self.statement, None if self.as_printed.survived else self.corrected
        standing = corrected or self.as_printed
        reading = statement.corrected if corrected and statement.corrected else statement.as_printed
        return {
            "key": statement.key,
            "statement": self.name,
            "source": statement.source,
            "verdict": self.verdict,
            "amended": self.corrected_verdict,
            "asserts": {"claim": statement.asserts, "verdict": self.asserted} if self.asserted else None,
            "counterexample": self.compared and plain(asdict(self.compared)),
            "instances": standing.instances,
            "slack": standing.slack,
            "note": statement.note,
            "claim": reading.claim,
            "published_slack": self.as_printed.slack,
            "published_instances": self.as_printed.instances,
        }


@dataclass(frozen=True, eq=False)
class StatementCell(Cell):
    """A statement tried on `amount` instances drawn from a seed.

    Other words or another tolerance make another cell.
    """

    statement: Statement
    seed: int = 0
    amount: int | None = None

    kind = unit = "statement"

    @property
    def specification(self) -> dict[str, Any]:
        """What is claimed, and the seed."""
        statement, corrected = self.statement, self.statement.corrected
        return {
            "statement": statement.key,
            "as_printed": statement.as_printed.claim,
            "corrected": corrected and corrected.claim,
            "tolerance": statement.as_printed.tolerance,
            "corrected_tolerance": corrected and corrected.tolerance,
            "seed": self.seed,
        }

    @property
    def name(self) -> str:
        """The statement's key."""
        return self.statement.key

    def compute(self, on_event: OnEvent) -> Finding:
        """Try it. Raises as `verify`."""
        (finding,) = verify([self.statement], instances=self.amount or 0, seed=self.seed)
        return finding

    def to_content(self, result: Finding) -> dict[str, Any]:
        """Both trials in JSON's terms."""
        both = {"as_printed": result.as_printed, "corrected": result.corrected}
        return {name: trial and plain(vars(trial)) for name, trial in both.items()}

    def from_content(self, header: Header, content: Mapping[str, Any]) -> Finding:
        """The finding again."""
        corrected = content["corrected"]
        return Finding(self.statement, Trial.read(content["as_printed"]), corrected and Trial.read(corrected))


def check(reading: Reading, instances: int, seed: int, name: str, witness: Instance | None = None) -> Trial:
    """Try a reading on `witness` (if any) and on `instances` drawn ones; stop at a counterexample.

    Raises `InvalidValueError` for instances < 1 or a slack that is not a number.
    """
    whole("instances", instances, 1)
    rng = stream(seed, f"verify/{name}")
    tightest = math.inf
    for number in range(instances + (witness is not None)):
        drawn = number - (witness is not None)
        instance = witness if drawn < 0 else reading.draw(rng, drawn % EDGE_EVERY == EDGE_EVERY - 1)
        assert instance is not None
        slack = float(reading.slack(instance))
        if math.isnan(slack):
            raise InvalidValueError(f"{name}: the slack of an instance is not a number")
        tightest = min(tightest, slack)
        if slack < -reading.tolerance:
            return Trial(number + 1, slack, instance)
    return Trial(instances + (witness is not None), tightest)


def verify(
    statements: Iterable[Statement],
    *,
    instances: int = 1000,
    seed: int = 0,
    on_event: OnEvent | None = None,
) -> list[Finding]:
    """Try every statement on `instances` random instances per reading; `on_event` counts statements.

    Raises `InvalidValueError` for instances < 1 or seed < 0.
    """
    whole("instances", instances, 1)
    whole("seed", seed, 0)
    findings, statements = [], list(statements)
    for done, statement in enumerate(statements, 1):
        if on_event:
            on_event(Event(done - 1, len(statements), "statement"))
        # the names of the streams decide what is drawn
        printed, key = statement.as_printed, statement.key
        as_printed = check(printed, instances, seed, f"{key}/published", statement.witness)
        corrected = statement.corrected and check(statement.corrected, instances, seed, f"{key}/amended")
        findings.append(Finding(statement, as_printed, corrected))
    if on_event:
        on_event(Event(len(findings), len(statements), "statement"))
    return findings


def select(statements: Iterable[Statement], keys: Iterable[str]) -> list[Statement]:
    """The statements with these keys, or all of a paper by its key. Raises `InvalidValueError`."""
    known = list(statements)
    chosen = []
    for key in keys:
        meant = [statement for statement in known if key in (statement.key, statement.source)]
        if not meant:
            choices = [
                *(statement.key for statement in known),
                *sorted({statement.source for statement in known}),
            ]
            raise InvalidValueError(f"statement: {key!r} is not one of them{nearest(key, choices)}")
        chosen += [statement for statement in meant if statement not in chosen]
    return chosen


def save_counterexamples(findings: Iterable[Finding], folder: Path) -> list[Path]:
    """Write each counterexample to `folder`/<key>-<reading>.json; docs/theorems.md says how to try it again."""
    written = []
    for finding in findings:
        key = finding.statement.key
        for name, trial in (("published", finding.as_printed), ("amended", finding.corrected)):
            if trial is not None and not trial.survived:
                instance = plain(trial.counterexample)
                data = {"statement": key, "reading": name, "slack": trial.slack, "instance": instance}
                written.append(write_text(folder / f"{key}-{name}.json", json.dumps(data, indent=1) + "\n"))
    return written


def plain(value: Any) -> Any:
    """Arrays and mappings as lists and dictionaries of numbers that JSON spells without loss."""
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
