"""Answers in JSON of the commands on papers: a pydantic model each, which makes its own schema."""

import sys
from pathlib import Path
from typing import Any, Literal

from posbias.core.answers import Answer, Number, Part, Texts, answers_in, entry
from posbias.profiles.claims import ClaimVerdict, Provenance
from posbias.reports.answers.numbers import Claim, Effect, JudgedClaim, Value
from posbias_papers.study import Cost

Files = list[Path]
Rows = list[dict[str, Any]]
Counts = dict[ClaimVerdict, int]
"""Claims by verdict."""


class State(Part):
    """Whether a study is made, with its claims by verdict."""

    made: bool
    effort: str
    when: str
    claims: dict[str, int]
    damaged: str = entry("what is wrong with its file")
    recorded: str = entry("what is on record, where nothing was made or that is of more effort")


class StudyPart(Part):
    """A figure, table or set of statements of a paper."""

    study: str = entry("PAPER/NAME", of="key")
    title: str
    question: str
    needs: str = entry("the extra, such as torch; empty for none")
    quick: Cost
    full: Cost
    unit: str = entry("what its effort is counted in")
    command: str = entry("that makes it")
    state: State


class PaperList(Answer):
    """The studies of the papers."""

    studies: list[StudyPart]


class PaperClaim(Claim):
    """A claim of a paper, as collected from its results."""

    paper: str
    study: str = entry("what it is judged on")
    tested_on: str = entry("the kind of evidence it was judged on")
    effects: list[Effect] = entry("where it was judged just now", [])
    explanation: str = entry("why it does not hold, as far as known", "")
    statement: str = entry("key of `posbias verify`", "")
    instances: int | None = entry("drawn", None)
    stands: str = entry("the reading that survives", "")
    model: str = entry("that it is about", "")
    stand_in: str = entry("models in place of the paper's", "")


class PaperClaims(Answer):
    """Claims of the papers; counts are of all that were judged, shown or not."""

    claims: list[PaperClaim]
    counts: Counts
    tallies: dict[str, dict[Provenance, Counts]] = entry("by paper; what is said twice once")
    by_evidence: dict[str, dict[str, Counts]] = entry("the papers' own, by paper and kind of evidence")
    page: Path | None = entry("null without --report", None)


class PaperAll(Answer):
    """What a run over all papers made."""

    made: Texts
    left_out: dict[str, str] = entry("with the reason")
    failed: dict[str, str] = entry("with the error")
    seconds: float
    counts: Counts
    page: Path | None = entry("null without --report")


class FigureClaim(JudgedClaim):
    """A claim of a figure or table, just judged."""

    tested_on: str = entry("the kind of evidence, where that is not the figure's", "")


class Reproduced(Part):
    """What was made of a paper; `claims` by figure or table."""

    figures: Files
    files: Files = entry("pages, tables, JSON")
    claims: dict[str, list[FigureClaim]]
    seconds: float
    cells: Rows


class PaperKim2026(Reproduced, Answer):
    """Figures of Kim et al. 2026; a cell is a simulated model with its recency probability by layer."""

    published: Rows = entry("printed numbers and ours, and how many standard errors they differ by")


class PaperWu2025(Reproduced, Answer):
    """Figures of Wu et al. 2025; a cell is a pair's gap in a setting."""


class PaperHerasimchyk2026(Reproduced, Answer):
    """Tables and figures of Herasimchyk et al. 2026; a cell is a model on a corpus."""

    version = 2
    tables: dict[str, dict[str, Any]] = entry("by table or figure: its rows, models in place of the paper's")


def reproduced(paper: str) -> type[Answer]:
    """The answer on a paper."""
    return {"kim2026": PaperKim2026, "wu2025": PaperWu2025, "herasimchyk2026": PaperHerasimchyk2026}[paper]


class OwnStudy(Part):
    """A study of our own: its question, the page that answers it, and minutes on two cores."""

    name: str
    question: str
    page: str
    minutes: float


class PaperExtensions(Answer):
    """Our own studies."""

    extensions: list[OwnStudy]


class PaperExtension(Answer):
    """The files of a study of our own."""

    name: str
    files: Files


class LayerOfNetworks(Part):
    """A layer, with errors over networks."""

    layer: int = entry("from 1")
    recency_probability: Value
    variance: Value = entry("over networks, without that of inputs")


class Variant(Part):
    """Random networks of one kind."""

    name: str
    variant: dict[str, Any] = entry("its specification", of="specification")
    networks: int
    inputs: int
    seed: int
    score: list[LayerOfNetworks] = entry("of scores", of="score.layers")
    content: list[LayerOfNetworks] = entry("of scores without what positions add", of="content.layers")


class SimulateVariants(Answer):
    """Recency of random networks with more than plain attention."""

    variants: list[Variant]


class Statement(Part):
    """A numbered statement, tried."""

    key: str
    statement: str
    source: str = entry("the paper")
    verdict: Literal["holds", "fails"] = entry("on the claim as printed")
    amended: Literal["holds", "fails"] | None = entry("on the corrected reading, where the printed one fails")
    asserts: dict[str, Any] | None = entry("what it asserts beyond its proof: claim, verdict")
    counterexample: dict[str, Any] | None = entry(
        "to the printed claim: slack, true value, printed bound and the matrix they are of"
    )
    instances: int
    slack: Number = entry("the tightest that was seen, relative; below 0 the claim is broken")
    note: str
    claim: str = entry("the reading that is judged")
    published_slack: Number = entry("of the printed reading")
    published_instances: int


class Verify(Answer):
    """Numbered statements, tried."""

    statements: list[Statement]
    seed: int
    counterexamples: Files


class Cited(Part):
    """A source, and why it is named."""

    key: str
    why: Texts
    authors: str
    title: str
    year: int
    bibtex: str
    arxiv: str = ""
    journal: str = ""
    venue: str = ""
    version_of: str = entry("the source of which it is another version", "")
    url: str = ""


class Cite(Answer):
    """The sources behind a spec or result."""

    sources: list[Cited]
    software: dict[str, str]


def paper_answers() -> list[type[Answer]]:
    """The answers of all commands on papers."""
    return answers_in(sys.modules[__name__])
