"""Try statements: draw instances, keep the least margin, stop a reading at its first counterexample."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from posbias.core.errors import InvalidValueError, whole
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
    """One reading tried: number of instances, the least slack, and the first counterexample if any."""

    instances: int
    slack: float
    counterexample: Instance | None = None

    @property
    def verdict(self) -> Verdict:
        """holds: every instance satisfied the claim."""
        return "holds" if self.counterexample is None else "fails"


@dataclass(frozen=True)
class Finding:
    """What trying a statement gave, as printed and as corrected; every page and command prints this verdict."""

    statement: Statement
    as_printed: Trial
    corrected: Trial | None

    @property
    def verdict(self) -> Verdict:
        """fails: a counterexample to the printed claim was found."""
        return self.as_printed.verdict

    @property
    def corrected_verdict(self) -> Verdict | None:
        """The same of the corrected reading, where the printed one fails and there is another."""
        return self.corrected.verdict if self.verdict == "fails" and self.corrected else None

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
        return "holds" if (self.corrected or self.as_printed).verdict == "holds" else "undecided"

    @cached_property
    def compared(self) -> Compared | None:
        """Of the counterexample to the printed claim, the numbers that refute it; None without one."""
        instance = self.as_printed.counterexample
        return None if instance is None else compared_in(self.statement.as_printed.slack, instance)

    def as_dict(self) -> dict[str, Any]:
        """The row of the table, ready for JSON; `slack` is that of the reading that holds."""
        statement, amended = self.statement, self.corrected_verdict
        standing = self.corrected if amended and self.corrected else self.as_printed
        reading = statement.corrected if amended and statement.corrected else statement.as_printed
        return {
            "key": statement.key,
            "statement": self.name,
            "source": statement.source,
            "verdict": self.verdict,
            "amended": amended,
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
    """A statement tried on `amount` instances from a seed; another claim or tolerance makes another cell."""

    statement: Statement
    seed: int = 0
    amount: int | None = None

    kind = unit = "statement"

    @property
    def specification(self) -> dict[str, Any]:
        """What is claimed, and the seed."""
        printed, corrected = self.statement.as_printed, self.statement.corrected
        return {
            "statement": self.statement.key,
            "as_printed": printed.claim,
            "corrected": corrected and corrected.claim,
            "tolerance": printed.tolerance,
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
        trials = (content[name] and Trial(**content[name]) for name in ("as_printed", "corrected"))
        return Finding(self.statement, *trials)


def check(reading: Reading, instances: int, seed: int, name: str, witness: Instance | None = None) -> Trial:
    """Try a reading on `witness` (if any) and on `instances` drawn ones; stop at a counterexample.

    Raises `InvalidValueError` for instances < 1 or a slack that is not a number.
    """
    whole("instances", instances, 1)
    rng, least, tried = stream(seed, f"verify/{name}"), math.inf, 0
    for number in range(-1 if witness is not None else 0, instances):
        at_edge = number % EDGE_EVERY == EDGE_EVERY - 1
        instance = witness if number < 0 and witness is not None else reading.draw(rng, at_edge)
        slack, tried = reading.slack(instance), tried + 1
        if math.isnan(slack):
            raise InvalidValueError(f"slack: expected a number for every instance, got NaN for {name}")
        least = min(least, slack)
        if slack < -reading.tolerance:
            return Trial(tried, slack, instance)
    return Trial(tried, least)


def verify(
    statements: Iterable[Statement], *, instances: int = 1000, seed: int = 0, on_event: OnEvent | None = None
) -> list[Finding]:
    """Try every statement on `instances` random instances per reading; `on_event` counts statements.

    Raises `InvalidValueError` for instances < 1 or seed < 0.
    """
    whole("seed", seed, 0)
    findings, statements = [], list(statements)
    for statement in statements:
        # the names of the streams decide what is drawn
        printed = check(
            statement.as_printed, instances, seed, f"{statement.key}/published", statement.witness
        )
        corrected = statement.corrected and check(
            statement.corrected, instances, seed, f"{statement.key}/amended"
        )
        findings.append(Finding(statement, printed, corrected))
        if on_event:
            on_event(Event(len(findings), len(statements), "statement"))
    return findings


def save_counterexamples(findings: Iterable[Finding], folder: Path) -> list[Path]:
    """Write each counterexample to `folder`/<key>-<reading>.json, to be tried again by `Reading.slack`."""
    written = []
    for finding in findings:
        key = finding.statement.key
        for name, trial in (("published", finding.as_printed), ("amended", finding.corrected)):
            if trial is not None and trial.counterexample is not None:
                instance = plain(trial.counterexample)
                data = {"statement": key, "reading": name, "slack": trial.slack, "instance": instance}
                written.append(write_text(folder / f"{key}-{name}.json", json.dumps(data, indent=1) + "\n"))
    return written


def plain(value: Any) -> Any:
    """Arrays and mappings as lists and dictionaries of numbers that JSON writes without loss."""
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
