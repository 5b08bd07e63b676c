"""A figure, table or section of a paper as a study: cells computed once, claims judged, a drawing, a page.

    from posbias_papers.registry import STUDIES

    study = STUDIES["wu2025/fig2"]
    print(study.question, study.quick, study.state("results"), sep="\n")

The paper's package computes the cells; `posbias_papers.reproduction` judges, draws and writes what they found. A
study knows its files under a folder of results: `state` says whether they are there.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from posbias.core.errors import InvalidValueError
from posbias.core.sources import cite
from posbias.profiles.claims import ELSEWHERE, Claim, Judged, judged, undecided
from posbias.reports.pages import Table
from posbias_papers import find_figures
from posbias_papers.claims import AtHand
from posbias_papers.contrasts import Rows
from posbias_papers.results import Recorded, State, best_result, state_of

MACHINE = "2 cores, x86-64"
"""What costs are of."""
HERE = "the models and texts measured here, which are not the paper's"
"""The scope of what is judged of them."""
PICTURES = ("svg", "png")
Results = Mapping[Any, Any]
"""What the cells of a study found, by cell. A study without cells of its own may have results of another type."""
Places = Mapping[str, Path]
"""Folders of papers that lie elsewhere than in the folder of results."""


@dataclass(frozen=True)
class Expected:
    """A number that a paper prints: of what, its value, how far ours may lie from it, and where it stands."""

    what: str
    value: float
    tolerance: float
    where: str


@dataclass(frozen=True)
class Cost:
    """What a study takes when nothing is there yet: cells, minutes, and the machine these are of."""

    cells: int
    minutes: float
    machine: str = MACHINE

    def __str__(self) -> str:
        return f"{self.cells} cells, {minutes_text(self.minutes)}"


@dataclass(frozen=True, eq=False)
class Study:
    """A question about some cells, and what a paper says of the answer.

    `key` is PAPER/NAME; `effort` what is spent on each cell at the efforts quick and full, counted in `unit` (a
    number as effort is one of these, where it is one alone), and `minutes` what that takes on two cores; `tables`
    are those of the page and `data` the numbers of its JSON, from results, and `note` says what these rest on.
    `draw` makes the figure of results, if there is one; where it is `captioned` it takes the note as a `caption`
    beneath it. `needs` is "" (nothing beyond posbias[report]), "torch"
    or "models" (a language model; those of the paper that cannot be had are read from the authors' rollout files,
    or stood in for). `parts` are the studies of a number that is the caption of others; `uses` are sources beyond
    the paper and those of its cells, each with what is used of it.

    A claim without evidence in some results is left out there, and `missing` says why there is nothing to show at
    all ("" if there is). Where cells are asked for at each run,
    `cells` are none, all results are the study's, and `counts` says how many there are at each effort by default;
    `options` are those of its command. `table` makes the tidy table of results, which claims are put to and which
    is written as NAME.csv; of a `tidy` study all the rest are functions of it too. `expected` are the numbers that
    the paper prints of it, and `row_claims` claims about what it prints that are judged on the study's JSON, made
    or not (then an empty one). `recorded` says what is on record of its cells; None where nothing is. `of_number`
    is what is spent on each cell where the effort is a number.

    `withholds` says, of a claim and the rows of the table it is about, why these results decide nothing of it (""
    if they do).
    Where `stand_in` names models in place of the paper's, results are `parted` into what is of the paper's models
    (None: nothing) and what is not: a claim is judged on the first, else stays open, and on the second as one of
    ours. `decided_by` says what would decide such claims.
    """

    key: str
    title: str
    question: str
    cells: tuple[Any, ...]
    claims: tuple[Claim, ...]
    effort: Mapping[str, Any]
    unit: str
    minutes: Mapping[str, float]
    tables: Callable[[Any], Iterable[Table]] = lambda results: ()
    data: Callable[[Any], Mapping[str, Any]] = lambda results: {}
    note: Callable[[Any], str] = lambda results: ""
    draw: Callable[..., Any] | None = None
    captioned: bool = False
    needs: str = ""
    parts: "tuple[Study, ...]" = ()
    uses: tuple[tuple[str, str], ...] = ()
    missing: Callable[[Any], str] = lambda results: ""
    counts: Mapping[str, int] | None = None
    options: str = ""
    expected: tuple[Expected, ...] = ()
    table: Callable[[Any], Any] | None = None
    tidy: bool = False
    row_claims: tuple[Claim, ...] = ()
    recorded: "Callable[[Study], Recorded | None]" = lambda study: None
    of_number: Callable[[int], Any] = lambda number: number
    withholds: Callable[[Claim, Any], str] | None = None
    stand_in: Callable[[Any], str] = lambda results: ""
    parted: Callable[[Any], tuple[Any, Any]] = lambda results: (None, results)
    decided_by: str = ""

    @property
    def paper(self) -> str:
        """The paper's key."""
        return self.key.partition("/")[0]

    @property
    def source(self) -> str:
        """The paper as a page names it."""
        return cite(self.paper).short

    @property
    def name(self) -> str:
        """Its name within the paper."""
        return self.key.partition("/")[2]

    @property
    def quick(self) -> Cost:
        """What it takes at the effort quick."""
        return self._cost("quick")

    @property
    def full(self) -> Cost:
        """What it takes at the effort full."""
        return self._cost("full")

    def _cost(self, effort: str) -> Cost:
        return Cost(self.counts[effort] if self.counts else len(self.cells), self.minutes[effort])

    @property
    def made_of(self) -> "tuple[Study, ...]":
        """Itself, or the studies that it is the caption of."""
        return self.parts or (self,)

    @property
    def shared_out(self) -> bool:
        """Whether its cells are a matter of an engine: processes here or a cluster may share them."""
        return self.needs == "torch"

    @property
    def command(self) -> str:
        """What makes it."""
        return f"posbias paper {self.paper} {self.name} {self.options}".rstrip()

    @property
    def made_by(self) -> str:
        """'`posbias paper wu2025 fig5` makes it (about 14 minutes)'."""
        return f"`{self.command}` makes it (about {minutes_text(self.quick.minutes)})"

    @property
    def writes(self) -> tuple[str, ...]:
        """The names of its files."""
        kinds = () if self.parts else (*(PICTURES if self.draw else ()), "md", "json")
        return tuple(f"{self.name}.{kind}" for kind in kinds)

    def file(self, folder: str | Path, at: Places | None = None) -> Path:
        """Its JSON in a folder of results, or in that of its paper where `at` has one."""
        return (at or {}).get(self.paper, Path(folder) / self.paper) / f"{self.name}.json"

    def state(self, folder: str | Path, at: Places | None = None) -> State:
        """Whether it is made in a folder of results, with which effort, when, and its claims by verdict.

        Never raises for a file that cannot be used: that is what `State.damaged` is for.
        """
        if self.parts:
            return State.joined([part.state(folder, at) for part in self.made_of])
        file = self.file(folder, at)
        # what is simulated in a minute counts as made, whatever is on record
        record = self.recorded(self) if self.shared_out or not file.exists() else None
        return state_of(file, self.name, record)

    def told(self, folder: str | Path, at: Places | None = None) -> Mapping[str, Any]:
        """Its JSON: what was made in a folder of results, or, of more effort, what is on record.

        Raises `InputFileError` when neither is there, or what was made is damaged or of another version.
        """
        return best_result(self.file(folder, at), self.name, self.recorded(self))

    def judged(self, results: Any) -> tuple[Judged, ...]:
        """Its claims that have evidence in these results, judged."""
        stand_in = self.stand_in(results)
        results = self.table(results) if self.table and not self.tidy else results
        verdicts: list[Judged] = []
        for claim in self.claims:
            if stand_in and _extends(claim):
                verdicts += self._extended(claim, stand_in, *self.parted(results))
            else:
                verdicts += self._verdict(claim, results)
        return tuple(verdicts)

    def _verdict(self, claim: Claim, results: Any) -> Iterator[Judged]:
        """A claim judged, if there is evidence."""
        if claim.quantity and (evidence := tuple(claim.quantity(results))):
            verdict = judged(claim, evidence)
            reason = ""
            if self.withholds and isinstance(claim.quantity, Rows):
                reason = self.withholds(claim, claim.quantity.rows(results))
            yield verdict.withheld(reason and f"{reason}; {self.decided_by}")

    def _extended(self, claim: Claim, stand_in: str, own: Any, others: Any) -> Iterator[Judged]:
        """A claim judged on what is of the paper's models, or left open, and on other models as one of ours."""
        ours = replace(claim, id=f"{claim.id}{ELSEWHERE}", provenance="ours", scope=HERE, alias_of="")
        extended = [*self._verdict(ours, others)]
        decided = [] if own is None else [*self._verdict(claim, own)]
        told = [stand_in, *([f"measured on these, see {ours.id}"] if extended else []), self.decided_by]
        reason = "; ".join(part for part in told if part)
        if extended and not decided:
            decided = [undecided(claim, reason, "")]
        for verdict in decided:
            left_open = verdict.evidence and verdict.verdict == "undecided"
            yield replace(verdict, why=f"{verdict.why}; {reason}") if left_open else verdict
        yield from extended


def _extends(claim: Claim) -> bool:
    """Whether a claim is about the paper's models, so that others extend it."""
    told = claim.strength == "printed" or isinstance(claim.quantity, AtHand)
    return claim.provenance == "paper" and not told


def minutes_text(minutes: float) -> str:
    """'20 seconds', '14 minutes', '3 hours', '6 days'."""
    for size, limit, unit in ((1 / 60, 1, "second"), (1, 90, "minute"), (60, 2880, "hour")):
        if minutes < limit:
            count = max(1, round(minutes / size))
            return f"{count} {unit}{'s' * (count > 1)}"
    return f"{round(minutes / 1440)} days"


class Studies(dict[str, Study]):
    """The studies of a paper by their names in it."""

    def __init__(self, studies: Iterable[Study]):
        super().__init__({study.name: study for study in studies})

    def find(self, what: str | Iterable[str]) -> list[str]:
        """The names that `what` means, captions taken apart, in their order.

        Raises `InvalidValueError` for nothing, and for an unknown name, naming the nearest.
        """
        asked = [what] if isinstance(what, str) else list(what)
        if not asked:
            raise InvalidValueError(f"what: nothing given, some of {', '.join(self)} or all needed")
        chosen = {name for target in asked for name in find_figures(target, self)}
        made = {part.name for name in chosen for part in self[name].made_of}
        return [name for name in self if name in made]
