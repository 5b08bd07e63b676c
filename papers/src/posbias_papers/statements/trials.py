"""Try statements: draw instances, keep the least margin, stop a reading at its first counterexample.

The printed reading is tried on the witness against it, where there is one, and the corrected one on instances
drawn; a statement without a witness is tried on these as it is printed.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import methodcaller
from pathlib import Path
from typing import Any, Literal

from posbias.core.errors import whole, wrong
from posbias.core.files import write_text
from posbias.core.formats import Header
from posbias.core.machine import stream
from posbias.core.progress import Event, OnEvent
from posbias.core.store import Cell
from posbias_papers.claims import AMENDED
from posbias_papers.statements.draws import Instance, Sampler
from posbias_papers.statements.margins import Margin
from posbias_papers.statements.record import Statement

EDGE_EVERY = 4
"""Every fourth instance is drawn at the edge of the hypotheses."""
TrialVerdict = Literal["holds", "fails"]


@dataclass(frozen=True)
class Trial:
    """One reading tried: number of instances, the least slack, and the first counterexample if any."""

    instances: int
    slack: float
    counterexample: Instance | None = None

    @property
    def verdict(self) -> TrialVerdict:
        """holds: every instance satisfied the claim."""
        return "holds" if self.counterexample is None else "fails"


@dataclass(frozen=True)
class Finding:
    """What trying a statement gave, as printed and as corrected; every page and command prints this verdict."""

    statement: Statement
    as_printed: Trial
    corrected: Trial | None = None

    @property
    def verdict(self) -> TrialVerdict:
        """fails: a counterexample to the printed claim was found."""
        return self.as_printed.verdict

    @property
    def standing(self) -> Trial:
        """The trial of the reading that is to hold: the corrected one, if there is another than the printed."""
        return self.corrected or self.as_printed

    @property
    def mark(self) -> str:
        """The verdict in words, as amended too."""
        *_, claim = self.statement.claims
        amended = self.corrected is not None and self.corrected.verdict == "holds"
        return AMENDED[claim.provenance] if amended else self.verdict

    @property
    def name(self) -> str:
        """What the verdict is on: the statement, or its proof where it asserts more."""
        return f"{self.statement.name}, proof" if self.statement.asserts else self.statement.name

    @property
    def asserted(self) -> Literal["holds", "undecided"] | None:
        """The verdict on what the statement asserts beyond its proof: it holds with the constants of a reading."""
        if not self.statement.asserts:
            return None
        return "holds" if self.standing.verdict == "holds" else "undecided"

    @cached_property
    def compared(self) -> Margin | None:
        """The counterexample's margin, with the numbers that refute the printed claim; None without one."""
        instance = self.as_printed.counterexample
        margin = None if instance is None else self.statement.slack(instance)
        return margin if isinstance(margin, Margin) else None

    def as_dict(self) -> dict[str, Any]:
        """The row of the table, ready for JSON; `slack` is that of the reading that holds."""
        statement = self.statement
        return {
            "key": statement.key,
            "statement": self.name,
            "source": statement.source,
            "verdict": self.verdict,
            "amended": self.corrected and self.corrected.verdict,
            "asserts": {"claim": statement.asserts, "verdict": self.asserted} if self.asserted else None,
            "counterexample": self.compared and self.compared.as_dict(),
            "instances": self.standing.instances,
            "slack": self.standing.slack,
            "note": statement.note,
            "claim": statement.corrected or statement.claim,
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
        names = ("key", "claim", "corrected", "tolerance")
        return {name: getattr(self.statement, name) for name in names} | {"seed": self.seed}

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

    def from_content(self, header: Header | None, content: Mapping[str, Any]) -> Finding:
        """The finding again."""
        trials = (content[name] and Trial(**content[name]) for name in ("as_printed", "corrected"))
        return Finding(self.statement, *trials)


def check(statement: Statement, instances: int, seed: int, corrected: bool = False) -> Trial:
    """Try one reading of a statement; stop at a counterexample.

    Raises `InvalidValueError` for instances < 1 or a slack that is not a number.
    """
    # the name of the stream decides what is drawn
    rng, least = stream(seed, f"verify/{statement.key}/{'amended' if corrected else 'published'}"), math.inf
    witness = None if corrected else statement.witness
    tries = whole("instances", instances, 1) if witness is None else 1
    for number in range(tries):
        instance = witness or statement.draw(Sampler(rng, number % EDGE_EVERY == EDGE_EVERY - 1))
        slack = float(statement.slack(instance, corrected))
        if math.isnan(slack):
            raise wrong("slack", "a number for every instance", got=f"NaN for {statement.key}")
        least = min(least, slack)
        if slack < -statement.tolerance:
            return Trial(number + 1, slack, instance)
    return Trial(tries, least)


def verify(
    statements: Iterable[Statement], *, instances: int = 1000, seed: int = 0, on_event: OnEvent | None = None
) -> list[Finding]:
    """Try every statement on `instances` random instances per reading; `on_event` counts statements.

    Raises `InvalidValueError` for instances < 1 or seed < 0.
    """
    whole("instances", instances, 1)
    whole("seed", seed, 0)
    findings, statements = [], list(statements)
    for statement in statements:
        printed = check(statement, instances, seed)
        corrected = check(statement, instances, seed, corrected=True) if statement.corrected else None
        findings.append(Finding(statement, printed, corrected))
        if on_event:
            on_event(Event(len(findings), len(statements), "statement"))
    return findings


def save_counterexamples(findings: Iterable[Finding], folder: Path) -> list[Path]:
    """Write each counterexample to `folder`/<key>-<reading>.json, to be tried again by `Statement.slack`."""
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
    """Arrays as lists: numbers that JSON writes without loss."""
    return json.loads(json.dumps(value, default=methodcaller("tolist")))
