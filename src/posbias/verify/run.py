"""Try statements: draw instances, keep the tightest margin, stop a reading at its first counterexample."""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from posbias.errors import InvalidValueError, nearest
from posbias.events import Event, OnEvent
from posbias.files import write_text
from posbias.seeds import stream
from posbias.verify.statement import Instance, Reading, Statement, Verdict

EDGE_EVERY = 4
"""Every fourth instance is drawn at the edge of the hypotheses."""


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


@dataclass(frozen=True)
class Finding:
    """What trying a statement gave: `holds` as printed, holds as `amended`, or `fails`."""

    statement: Statement
    published: Trial
    amended: Trial | None

    @property
    def verdict(self) -> Verdict:
        """holds: no counterexample to the printed claim; amended: only to the printed one; else fails."""
        if self.published.survived:
            return "holds"
        return "amended" if self.amended is not None and self.amended.survived else "fails"

    def as_dict(self) -> dict[str, Any]:
        """The row of the table, ready for JSON; `slack` is that of the reading that stands."""
        standing = self.published if self.verdict == "holds" or self.amended is None else self.amended
        return {
            "key": self.statement.key,
            "statement": self.statement.name,
            "source": self.statement.source,
            "verdict": self.verdict,
            "instances": standing.instances,
            "slack": standing.slack,
            "note": self.statement.note,
            "claim": (self.statement.amended if standing is self.amended else self.statement.published).claim,  # type: ignore[union-attr]
            "published_slack": self.published.slack,
            "published_instances": self.published.instances,
        }


def check(reading: Reading, instances: int, seed: int, name: str, witness: Instance | None = None) -> Trial:
    """Try a reading on `witness` (if any) and on `instances` drawn ones; stop at a counterexample.

    Raises `InvalidValueError` for instances < 1 or a slack that is not a number.
    """
    if instances < 1:
        raise InvalidValueError(f"instances: {instances} given, an integer ≥ 1 needed")
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
    """Try every statement on `instances` random instances per reading; `on_event` counts statements."""
    findings, statements = [], list(statements)
    if on_event:
        on_event(Event(0, len(statements), "statement"))
    for statement in statements:
        published = check(
            statement.published, instances, seed, f"{statement.key}/published", statement.witness
        )
        amended = None
        if statement.amended is not None:
            amended = check(statement.amended, instances, seed, f"{statement.key}/amended")
        findings.append(Finding(statement, published, amended))
        if on_event:
            on_event(Event(len(findings), len(statements), "statement"))
    return findings


def select(statements: Iterable[Statement], keys: Iterable[str]) -> list[Statement]:
    """The statements with these keys, or all of a paper by its key. Raises `InvalidValueError`."""
    known = list(statements)
    chosen = []
    for key in keys:
        found = [one for one in known if key in (one.key, one.source)]
        if not found:
            choices = [one.key for one in known] + sorted({one.source for one in known})
            raise InvalidValueError(f"statement: {key!r} is not one of them{nearest(key, choices)}")
        chosen += [one for one in found if one not in chosen]
    return chosen


def save_counterexamples(findings: Iterable[Finding], folder: Path) -> list[Path]:
    """Write each counterexample to `folder`/<key>-<reading>.json; docs/theorems.md says how to try it again."""
    written = []
    for finding in findings:
        for name, trial in (("published", finding.published), ("amended", finding.amended)):
            if trial is not None and trial.counterexample is not None:
                data = {
                    "statement": finding.statement.key,
                    "reading": name,
                    "slack": trial.slack,
                    "instance": _plain(trial.counterexample),
                }
                path = folder / f"{finding.statement.key}-{name}.json"
                written.append(write_text(path, json.dumps(data, indent=1) + "\n"))
    return written


def _plain(value: Any) -> Any:
    """Arrays and mappings as lists and dictionaries of numbers that JSON spells without loss."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value.item() if isinstance(value, np.generic) else value
