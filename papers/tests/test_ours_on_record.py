"""Studies of ours on language models: what they compute of what was measured, and the records that come along."""

from pathlib import Path

import numpy as np
import pytest

from posbias.core.errors import SchemaError
from posbias.ordering.known import profile_of
from posbias_papers.extensions import RECORDS, STUDIES, on_record, reproduce
from posbias_papers.extensions.jacobian import JacobianCell
from posbias_papers.extensions.ordering import ABLE, SEEN, OrderCell, measured, ordered, scores
from posbias_papers.extensions.value_variance import ValueCell, by_rank
from posbias_papers.extensions.window import CELLS, InfluenceCell, ends, share

NUMBERS = {
    "jacobian": (1, 2, 3, 5, 7, 9, 10),
    "value_variance": (1, 2, 3, 4, 6),
    "window": (4,),
    "ordering": (1, 2, 3, 4),
}
"""The columns of each study's first table that its document has."""
DOCS = Path(__file__).parents[2] / "docs"
PAGES = dict.fromkeys(NUMBERS, "theory-since.md") | {"ordering": "order.md"}
LEFT_OUT = {"ordering": [f"tiny-{encoding}" for encoding in ("nope", "alibi", "rope", "learned", "window")]}
"""Rows that the document sums up in words."""
ELSEWHERE = ("designed",)
"""Studies on record whose numbers stand in another document, and are tested with it."""


@pytest.fixture(autouse=True)
def nothing_long_is_run(request, monkeypatch):
    """A record that is not found fails at once, rather than after an hour of measuring."""
    if "cell" not in request.fixturenames:
        for cell in (OrderCell, JacobianCell, ValueCell, InfluenceCell):
            monkeypatch.setattr(cell, "run", None)


def test_ranks_over_heads_have_an_error_over_layers():
    share_of = np.random.default_rng(2).uniform(size=(20, 4))
    found = {
        "sink_share": share_of,
        "value_norm": -share_of,
        "other": np.random.default_rng(3).normal(size=(20, 4)),
    }
    assert by_rank(found, "value_norm").value == pytest.approx(-1.0)
    assert by_rank(found, "value_norm").se == pytest.approx(0.0, abs=1e-12)
    other = by_rank(found, "other")
    assert 0.05 < other.se < 0.25
    assert other.n == 20


def test_ends_are_means_relative_to_the_middle_fifth():
    rows = np.ones((2, 100))
    rows[0, :5] = np.e
    rows[1, -5:] = np.e**2
    found = ends(rows)
    assert found["first"] == pytest.approx([1.0, 0.0])
    assert found["last"] == pytest.approx([0.0, 2.0])
    assert share(InfluenceCell("tiny-nope", 128)) == 0.5


@pytest.mark.parametrize(
    "name",
    [
        name if name in ("window", "ordering") else pytest.param(name, marks=pytest.mark.slow)
        for name in NUMBERS
    ],
)
def test_what_is_on_record_serves_the_quick_effort_and_the_document_has_its_numbers(name, tmp_path):
    made = reproduce(name, out=tmp_path)
    assert not made.new
    lines = (DOCS / PAGES[name]).read_text(encoding="utf-8").splitlines()
    for number, claim in enumerate(made.claims[name], start=1):
        assert f"| {number} | {claim.claim.sentence} | {claim.verdict} |" in lines
    for row in made.pages[name].tables[0].rows:
        numbers = [row[column] for column in NUMBERS[name]]
        assert row[0] in LEFT_OUT.get(name, []) or any(
            line.startswith(f"| {row[0]} |") and all(one in line for one in numbers) for line in lines
        )


def test_an_order_that_a_profile_calls_best_is_judged_on_other_trials():
    """By hand: one hit in three at the last of ten places and none elsewhere, on trials that say the same."""
    hits = np.zeros((30, 10))
    hits[::3, 9] = 1.0
    found = {"hits": hits.tolist()}
    weights = scores("Zipf")
    best = ordered(found, "Zipf", "retrieval")
    assert best.permutation[-1] == np.argmax(weights)
    gain = measured(found, "Zipf", best, "best first")
    assert gain.value == pytest.approx((weights.max() - weights.min()) / 3)
    assert gain.value == pytest.approx(best.gains["best first"].value)


def test_the_profile_that_comes_along_is_of_the_trials_on_record():
    stored = on_record(OrderCell(ABLE, SEEN))
    np.testing.assert_array_equal(profile_of(ABLE).samples, stored.result["hits"])


@pytest.mark.parametrize("version", ["0.0.9", "9.9.9"])
def test_records_serve_any_version(version, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("posbias.core.store.store.VERSION", version)
    assert version not in {on_record(cell).header.version for cell in CELLS}
    assert not reproduce("window", out=tmp_path).new
    assert not (tmp_path / "cells").exists()
    assert not caplog.messages


def test_a_record_of_another_schema_is_an_error_and_nothing_is_run():
    newer = type("InfluenceCell", (InfluenceCell,), {"schema": 2})("tiny-window", 64)
    with pytest.raises(SchemaError, match="schema version 1, this posbias reads and writes 2"):
        on_record(newer)


def test_no_record_is_left_that_no_study_has():
    cells = [cell for name in (*NUMBERS, *ELSEWHERE) for cell in STUDIES[name].cells]
    there = {on_record(cell).header.fingerprint for cell in cells}
    assert there == {header.fingerprint for header in RECORDS.headers()}
    assert len(there) == len(cells)
    assert RECORDS.path.stat().st_size < 300_000


SMALL = [
    JacobianCell("tiny-rope", "untrained"),
    ValueCell("tiny-alibi", True),
    InfluenceCell("tiny-window", 64),
]
LARGE = [CELLS[0], ValueCell("smollm2-135m", False)]


@pytest.mark.parametrize(
    "cell",
    [*SMALL, *(pytest.param(cell, marks=[pytest.mark.real_model, pytest.mark.slow]) for cell in LARGE)],
    ids=lambda cell: cell.name,
)
def test_what_is_on_record_is_measured_again(cell):
    """In float32, of which other machines may have other last bits; medians are kept to four digits."""
    stored = on_record(cell)
    again = cell.run(stored.header.amount)
    assert again.keys() == stored.result.keys()
    for name, values in again.items():
        np.testing.assert_allclose(values, stored.result[name], rtol=5e-3, atol=5e-3, err_msg=name)
