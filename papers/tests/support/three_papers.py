"""Claims, studies, readings, errata and a result's page, as small as they can be."""

import math
from types import SimpleNamespace

from posbias.profiles.claims import Claim, Judged
from posbias.profiles.estimate import Estimate


def judged(
    id,
    verdict="holds",
    study="",
    sentence="the first token draws more than λ_t",
    number=0.638,
    se=0.0021,
    why="it does; 0.638 ± 0.002",
    **more,
):
    """A judged claim of a study, by default of the one that its id names."""
    study = study or id.rpartition("/")[0]
    return Judged(Claim(id, "", sentence), (), verdict, Estimate(number, se), why, study, more)


def study(key, **given):
    paper, name = key.split("/")
    known = {
        "title": f"Title of {name}",
        "question": "Does it?",
        "expected": (),
        "quick": "3 cells, 2 minutes",
    }
    known |= {"command": f"posbias paper {paper} {name}", "parts": ()}
    return SimpleNamespace(paper=paper, name=name, **(known | given))


STUDIES = {
    one: study(one)
    for one in ("wu2025/fig2", "wu2025/fig3", "wu2025/statements", "herasimchyk2026/table2", "kim2026/fig1")
}
EFFECTS = [
    {"where": "depth 2", "value": 0.1, "se": 0.01, "verdict": "holds", "flaw": ""},
    {"where": "depth 4", "value": None, "se": None, "verdict": "undecided", "flaw": "too few networks"},
]
CLAIMS = [
    judged("wu2025/theorem-4.1", study="wu2025/statements", number=1e-17, se=math.nan),
    judged("wu2025/fig2/1", "fails", number=-0.108, se=0.015, effects=EFFECTS),
    judged("wu2025/fig2/2", "undecided", number=math.nan, se=math.nan, why="too few networks"),
    judged("wu2025/fig3/1", "undecided", number=math.nan, se=math.nan, why="not made here"),
    judged("herasimchyk2026/table2/mpt-7b"),
    judged("kim2026/fig1/1"),
    judged("kim2026/stray", study="kim2026/unknown"),
]
READINGS = [
    SimpleNamespace(
        key="kim2026/eq-42",
        paper="kim2026",
        where="Eq. 42",
        quantity="S_98/S_90",
        published=SimpleNamespace(value=1.032, se=None),
        corrected=SimpleNamespace(value=1.0603, se=0.0002),
        difference=(0.0283, 0.0002),
        note="γ is `g`",
        erratum="kim2026/eq-42",
    )
]
ERRATA = [
    SimpleNamespace(
        key="kim2026/eq-42", paper="kim2026", where="Eq. 42", printed="*γ* = 1", holds="`g`", posbias="both"
    )
]
PAGE = {
    "effort": "quick",
    "note": "3 networks per cell.",
    "tables": [
        {"caption": "Gaps", "head": ["setting", "gap"], "rows": [["causal", "-0.105 ± 0.007"]]},
        {"caption": "Then `more`.\n\nAfterwards", "head": ["order"], "rows": [["last"]]},
    ],
    "claims": [{"claim": "a claim that the page says itself", "verdict": "fails"}],
}
