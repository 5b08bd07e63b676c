"""Designs that were trained: they are the search's own, the document has their numbers, and they train again."""

import pytest
from project import ROOT

from posbias.designs import design
from posbias.theory.architecture import Architecture, Layer
from posbias.theory.encodings import DecayBias
from posbias.theory.masks import SlidingWindow
from posbias.theory.mixing import AttentionOnly
from posbias_papers.extensions import EXTENSIONS
from posbias_papers.extensions.designed import (
    CAUSAL,
    CELLS,
    DECAY,
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


def test_the_document_has_the_numbers_on_record():
    (table,) = EXTENSIONS["designed"].tables(EXTENSIONS["designed"].recorded())
    lines, rows = page().splitlines(), table.rows
    assert len(rows) == len(CELLS)
    for row in rows:
        assert f"| {' | '.join(row)} |" in lines


@pytest.mark.slow
def test_what_is_on_record_is_trained_again():
    """Two networks of ten: float32 on another machine may have other last bits, which 2,500 steps make larger."""
    stored = EXTENSIONS["designed"].recorded()[NARROW]
    again = DesignedCell(NARROW.window, NARROW.decay).compute(networks=2)
    assert again["predicted"] == pytest.approx(stored["predicted"], abs=1e-12)
    assert again["gaps"] == pytest.approx(stored["gaps"][:2], abs=0.03)
