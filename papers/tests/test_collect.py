"""All claims with their verdicts: from statements, from results, and of what is not there."""

import json
import math
import shutil
from dataclasses import replace

import pytest

from posbias import __version__
from posbias.core.errors import InvalidValueError
from posbias.core.formats import save_json
from posbias.core.running import InProcess, Processes
from posbias.profiles.claims import Claim, Evidence, count, judged
from posbias.profiles.estimate import Estimate
from posbias_papers import theorems
from posbias_papers.collect import collect
from posbias_papers.records import Records
from posbias_papers.registry import STUDIES
from posbias_papers.statements import STATEMENTS
from posbias_papers.statements.run import StatementCell
from posbias_papers.theorems import tried_already, try_statements
from posbias_papers.wu2025 import recorded

FEW = {"instances": 2, "engine": InProcess()}
KIM = sum(one.source == "kim2026" for one in STATEMENTS)


@pytest.fixture(scope="module")
def tried(tmp_path_factory):
    """A folder where all statements have been tried on a few instances, and nothing else is made."""
    folder = tmp_path_factory.mktemp("tried")
    try_statements(folder, **FEW)
    return folder


@pytest.fixture
def folder(tried, tmp_path, monkeypatch):
    """The same, to write to, and nothing on record."""
    monkeypatch.setattr(recorded, "RECORDS", Records(tmp_path / "none"))
    shutil.copytree(tried / theorems.STATEMENTS, tmp_path / theorems.STATEMENTS)
    return tmp_path


def write(folder, key, *values, **more):
    """A study's JSON, with a claim for each number."""
    study = STUDIES[key]
    claims = [
        judged(Claim(f"{key}/{place}", "", ""), [Evidence("here", Estimate(value, 0.01, 10))]).as_dict()
        for place, value in enumerate(values, start=1)
    ]
    about = {"name": study.name, "version": __version__, "effort": "quick", "claims": claims}
    return save_json(about | more, study.file(folder))


def test_everything_has_an_id_a_verdict_and_a_reason(folder):
    claims = collect(folder, **FEW)
    assert len({one.id for one in claims}) == len(claims) >= 60
    for one in json.loads(json.dumps([one.as_dict() for one in claims], allow_nan=False)):
        assert all(
            one[name] for name in ("claim", "why", "provenance", "place", "strength", "scope", "effort")
        )
        assert one["verdict"] == "undecided" or one["seen"] is (one["verdict"] == "holds")
        assert one["id"].startswith(f"{one['paper']}/")
    assert sum(count(claims).values()) == len(claims)
    # a study that has parts speaks through them, an index of claims has none of its own, every other is there
    silent = {key for key, study in STUDIES.items() if study.parts} | {"wu2025/table1"}
    # the text says of these together what Figure 13 is judged on
    silent |= {f"wu2025/fig{number}" for number in range(15, 19)}
    assert {one.study for one in claims} == {*STUDIES} - silent


def test_what_is_not_made_is_undecided_and_says_what_makes_it(folder):
    claims = collect(folder, papers=["wu2025/fig5"], **FEW)
    assert [one.id for one in claims] == [claim.id for claim in STUDIES["wu2025/fig5"].claims]
    for one in claims:
        assert (one.verdict, one.seen) == ("undecided", None)
        assert "`posbias paper wu2025 fig5` makes it" in one.why


def test_a_paper_alone(folder):
    assert {one.paper for one in collect(folder, papers=["kim2026"], **FEW)} == {"kim2026"}
    with pytest.raises(InvalidValueError, match="did you mean 'kim2026'"):
        collect(folder, papers=["kim2025"], **FEW)
    with pytest.raises(InvalidValueError, match=r"^instances: "):
        collect(folder, instances=0)


# --- statements --------------------------------------------------------------------------------------------


def test_every_numbered_statement_is_judged(folder):
    claims = [one for one in collect(folder, **FEW) if "statement" in one.more]
    assert [*dict.fromkeys(one.more["statement"] for one in claims)] == [one.key for one in STATEMENTS]
    for statement in STATEMENTS:
        *itself, one = (one for one in claims if one.more["statement"] == statement.key)
        assert [(own.verdict, own.claim.strength) for own in itself] == [("holds", "theorem")] * bool(
            statement.asserts
        )
        assert one.verdict == ("holds" if statement.corrected is None else "fails")
        if one.verdict == "fails":
            assert one.estimate.value < 0
            assert one.more["stands"] == statement.corrected.claim


def test_statements_that_were_tried_enough_are_not_tried_again(folder):
    events, before = [], {path.name for path in (folder / theorems.STATEMENTS).iterdir()}
    try_statements(folder, **FEW, on_event=events.append)
    assert (events, {path.name for path in (folder / theorems.STATEMENTS).iterdir()}) == ([], before)
    try_statements(folder, ["wu2025"], instances=3, engine=InProcess(), on_event=events.append)
    assert events[-1].done == events[-1].total == sum(one.source == "wu2025" for one in STATEMENTS)
    amounts = {
        paper: {one.header.amount for one in tried_already(folder, paper)} for paper in ("wu2025", "kim2026")
    }
    assert amounts == {"wu2025": {3}, "kim2026": {2}}
    assert tried_already(folder, "kim2026", 3) is None


def test_a_statement_tried_in_a_worker_is_the_same(folder):
    shutil.rmtree(folder / theorems.STATEMENTS)
    afar = try_statements(folder, ["kim2026"], instances=2, engine=Processes(1))
    assert len(afar) == KIM
    for key, finding in afar.items():
        cell = StatementCell(next(one for one in STATEMENTS if one.key == key), 0, 2)
        assert cell.to_content(cell.compute(print)) == cell.to_content(finding)


@pytest.mark.parametrize(
    ("reading", "changed"), [("as_printed", {"claim": "other"}), ("corrected", {"tolerance": 0.5})]
)
def test_a_statement_that_has_changed_is_tried_again(folder, monkeypatch, reading, changed):
    place = next(place for place, one in enumerate(STATEMENTS) if one.corrected)
    other = replace(STATEMENTS[place], **{reading: replace(getattr(STATEMENTS[place], reading), **changed)})
    changed = (*STATEMENTS[:place], other, *STATEMENTS[place + 1 :])
    monkeypatch.setattr("posbias_papers.statements.STATEMENTS", changed)
    events = []
    try_statements(folder, **FEW, on_event=events.append)
    assert [(event.done, event.total) for event in events] == [(1, 1)]


def test_a_statement_that_cannot_be_tried_is_undecided(folder, monkeypatch):
    broken = replace(STATEMENTS[0].as_printed, claim="other", slack=lambda instance: math.nan)
    first = replace(STATEMENTS[0], as_printed=broken)
    monkeypatch.setattr("posbias_papers.statements.STATEMENTS", (first, *STATEMENTS[1:]))
    (one,) = (one for one in collect(folder, **FEW) if one.more.get("statement") == first.key)
    assert (one.verdict, one.seen) == ("undecided", None)


# --- figures and tables ------------------------------------------------------------------------------------


def test_claims_of_a_figure_come_with_their_numbers(folder):
    write(folder, "wu2025/fig2", 0.2, -0.3, 0.011)
    rises, falls, may = claims = collect(folder, papers=["wu2025/fig2"], **FEW)
    assert [one.id for one in claims] == [f"wu2025/fig2/{place}" for place in (1, 2, 3)]
    assert [one.verdict for one in claims] == ["holds", "fails", "undecided"]
    assert (rises.estimate.value, rises.estimate.se) == (0.2, 0.01)
    assert (falls.more["effort"], falls.more["effects"][0]["where"]) == ("quick", "here")
    assert "`posbias paper wu2025 fig2 --effort full`" in may.why


def test_what_fails_is_explained(folder):
    known = {claim.id: claim.explanation for claim in STUDIES["kim2026/fig2"].claims}
    found = {one.id: one for one in collect(folder, papers=["kim2026/fig2"], **FEW)}
    assert found["kim2026/fig2/6"].more["explanation"] == known["kim2026/fig2/6"] != ""
    assert found["kim2026/fig2/1"].more["explanation"] == ""
    key = "herasimchyk2026/table6"
    write(folder, key, -0.3)
    assert collect(folder, papers=[key], **FEW)[0].more["explanation"]


def test_a_result_that_cannot_be_used_is_named_and_undecided(folder, caplog):
    path = write(folder, "wu2025/fig2", 0.2)
    data = json.loads(path.read_text())
    for text in (path.read_text()[:-20], json.dumps(data | {"version": "0.0.1"}), '{"name": "fig2"}'):
        path.write_text(text)
        one, *_ = collect(folder, papers=["wu2025/fig2"], **FEW)
        assert (one.id, one.verdict) == ("wu2025/fig2/1", "undecided")
        assert "`posbias paper wu2025 fig2` makes it" in one.why
    assert all("fig2.json" in line for line in caplog.messages)


def test_results_of_a_paper_may_lie_elsewhere(folder):
    elsewhere = write(folder, "wu2025/fig2", 0.2).parent.rename(folder / "other")
    assert {one.verdict for one in collect(folder, papers=["wu2025/fig2"], **FEW)} == {"undecided"}
    (one,) = collect(folder, papers=["wu2025/fig2"], at={"wu2025": elsewhere}, **FEW)
    assert one.verdict == "holds"


def test_what_is_at_hand_needs_nothing_made(folder):
    found = {one.id: one for one in collect(folder, papers=["herasimchyk2026/table4", "wu2025/fig1"], **FEW)}
    assert found["herasimchyk2026/table4/5"].verdict == found["wu2025/fig1/1"].verdict == "holds"
