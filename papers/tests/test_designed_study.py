"""Designs that were trained: they are the search's own, the document has their numbers, and they train again."""

import numpy as np
import pytest
from project import ROOT

from posbias.designs import design
from posbias.profiles.claims import judge
from posbias.theory.architecture import Architecture, Layer
from posbias.theory.encodings import DecayBias
from posbias.theory.masks import SlidingWindow
from posbias.theory.mixing import AttentionOnly
from posbias_papers.extensions import on_record, reproduce
from posbias_papers.extensions.designed import (
    CAUSAL,
    CELLS,
    DECAY,
    DESIGNS,
    FLAT,
    NARROW,
    TOKENS,
    DesignedCell,
)


def test_the_designs_are_those_that_the_search_finds():
    base = Architecture(2, (Layer(),), AttentionOnly())
    varied = {"window": range(5, TOKENS + 1), "decay": [k / 100 for k in range(31)]}
    found = design(base, varied, tokens=TOKENS)
    assert found.exhaustive
    values = [dict(one.values) for one in found.front]
    assert values[0] == {"window": FLAT.window, "decay": FLAT.decay}
    assert next(one for one in values if one["window"] <= 13) == {
        "window": NARROW.window,
        "decay": NARROW.decay,
    }


@pytest.mark.parametrize(
    ("cell", "distance"),
    [(FLAT, 0.022), (NARROW, 0.040), (CAUSAL, 0.250), (DECAY, 0.080)],
    ids=lambda one: str(one),
)
def test_the_document_has_their_distances(cell, distance):
    layer = Layer(mask=SlidingWindow(cell.window), positional=DecayBias(cell.decay))
    found = design(Architecture(2, (layer,), AttentionOnly()), {"mixing": [1.0]}, tokens=TOKENS)
    assert found.baseline.distance == pytest.approx(distance, abs=5e-4)
    assert f"({'distance ' if cell == FLAT else ''}{f'{distance:.3f}'.removeprefix('0')})" in page()


def page() -> str:
    return (ROOT / "docs" / "design.md").read_text(encoding="utf-8")


def test_what_is_on_record_serves_the_quick_effort_and_the_document_has_its_numbers(tmp_path):
    made = reproduce("designed", out=tmp_path)
    assert not made.new
    lines = page().splitlines()
    for number, claim in enumerate(made.claims["designed"], start=1):
        assert f"| {number} | {claim.claim.sentence} | {claim.verdict} |" in lines
    rows = made.pages["designed"].tables[0].rows
    assert len(rows) == len(CELLS)
    for row in rows:
        assert f"| {' | '.join(row)} |" in lines


def test_a_claim_that_designs_are_less_biased_is_of_both_signs(tmp_path):
    """Gaps as large as the control's fail it, whichever way they point; smaller ones hold."""
    (claim,) = (
        one for one in reproduce("designed", out=tmp_path).claims["designed"] if one.claim.id.endswith("/2")
    )
    noise = np.random.default_rng(0).normal(0.0, 0.01, 10)

    def verdict(gap: float) -> str:
        results = {cell: {"predicted": 0.0, "gaps": (gap + noise[::-1]).tolist()} for cell in DESIGNS}
        results[CAUSAL] = {"predicted": 0.9, "gaps": (0.3 + noise).tolist()}
        return judge(claim.claim, results).verdict

    assert [verdict(gap) for gap in (0.1, -0.1, 0.6, -0.6)] == ["holds", "holds", "fails", "fails"]


@pytest.mark.slow
def test_what_is_on_record_is_trained_again():
    """Two networks of ten: float32 on another machine may have other last bits, which 2,500 steps make larger."""
    stored = on_record(NARROW).result
    again = DesignedCell(NARROW.window, NARROW.decay).run(2)
    assert again["predicted"] == pytest.approx(stored["predicted"], abs=1e-12)
    assert again["gaps"] == pytest.approx(stored["gaps"][:2], abs=0.03)
