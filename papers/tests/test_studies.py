"""Studies of the papers: what there is, what shows it, results read, every claim judged, the commands on them; all
made by one call, where a part that fails stops no other, and their page.
"""

import csv
import importlib
import json
import math
import re
import shlex
import shutil
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from answers import answered  # noqa: F401
from browser import alone, plain, read
from project import ROOT

import paper_sentences
from posbias import __version__
from posbias.cli import app
from posbias.core.errors import InputFileError, InvalidValueError, OutputFileError
from posbias.core.formats import dump_json, save_json
from posbias.core.running import InProcess, Processes
from posbias.profiles.estimate import Estimate
from posbias_papers import theorems
from posbias_papers.claims import Claim, Evidence, count, judged
from posbias_papers.cli.answers import FigureClaim
from posbias_papers.errata import find_erratum
from posbias_papers.readings import compare_readings
from posbias_papers.registry import PAPERS, STUDIES
from posbias_papers.reproduction import make_all, page_of, reproduce
from posbias_papers.results import collect, read_result, sentences, state, write_page
from posbias_papers.statements import STATEMENTS
from posbias_papers.study import Tables
from posbias_papers.theorems import tried_already, try_statements
from posbias_papers.wu2025.settings import EMBEDDINGS

FEW = {"instances": 2, "engine": InProcess()}
STATED = [f"{paper}/statements" for paper in PAPERS]


@pytest.fixture(scope="module")
def tried(tmp_path_factory):
    """A folder in which all statements have been tried."""
    folder = tmp_path_factory.mktemp("tried")
    try_statements(folder, **FEW)
    return folder


@pytest.fixture
def folder(tried, tmp_path):
    return shutil.copytree(tried, tmp_path / "results")


def write(folder, key, *values, **more):
    """A study's JSON whose claims have these numbers, each with a standard error of .01."""
    claims = [
        judged(Claim(f"{key}/{place}", "", "It rises"), (Evidence("here", Estimate(value, 0.01, 10)),))
        for place, value in enumerate(values, start=1)
    ]
    study = STUDIES[key]
    about = {"name": study.name, "version": __version__, "effort": "quick"} | more
    return save_json(about | {"claims": [one.as_dict() for one in claims]}, study.file(folder))


# --- what there is -----------------------------------------------------------------------------------------


FOLDER = ROOT / "papers/src/posbias_papers"
ITEMS = [
    item
    for paper in PAPERS
    for item in csv.DictReader((FOLDER / paper / "items.csv").read_text(encoding="utf-8").splitlines())
]
"""What the three papers contain."""


def test_all_claims_of_items_are_there():
    claims = [claim.id for one in (*STUDIES.values(), *STATEMENTS) for claim in one.claims]
    assert len(ITEMS) == 224
    assert {claim for item in ITEMS for claim in item["claims"].split()} <= {*claims}


@pytest.mark.parametrize("shown_by", sorted({item["shown_by"] for item in ITEMS} - {""}))
def test_what_shows_an_item_is_a_command_or_a_name(shown_by):
    if not shown_by.startswith("python: "):
        app.parse_args(shlex.split(shown_by)[1:], exit_on_error=False, print_error=False)
        return
    module, _, attribute = shown_by.removeprefix("python: ").rpartition(".")
    try:
        owner = importlib.import_module(module)
    except ModuleNotFoundError:  # an attribute of a class
        parent, _, name = module.rpartition(".")
        owner = getattr(importlib.import_module(parent), name)
    assert hasattr(owner, attribute)


# --- results -----------------------------------------------------------------------------------------------


def test_a_result_is_read_with_its_state(tmp_path):
    study = STUDIES["wu2025/fig13"]
    assert not state(study, tmp_path).made
    assert state(study, tmp_path).data is None
    path = write(tmp_path, study.key, 0.2, -0.3, 0.011)
    found = state(study, tmp_path)
    assert (found.made, found.effort) == (True, "quick")
    assert found.claims == {"holds": 1, "fails": 1, "undecided": 1}
    assert [one["verdict"] for one in found.data["claims"]] == ["holds", "fails", "undecided"]
    whole = json.loads(path.read_text())
    for wrong in ({"name": "fig2"}, {"version": "0.0.1"}, {"claims": 3}, {"claims": [{"id": "x"}]}):
        path.write_text(json.dumps(whole | wrong))
        assert "fig13.json" in state(study, tmp_path).damaged
        with pytest.raises(InputFileError, match=r"fig13\.json"):
            read_result(path, "fig13")
        open_, unmade = ([*collect(one, papers=[study.key])] for one in (tmp_path, tmp_path / "none"))
        assert [(one.id, one.verdict) for one in open_] == [(one.id, one.verdict) for one in unmade]


# --- claims ------------------------------------------------------------------------------------------------


def test_every_claim_is_judged_with_place_strength_scope_and_effort(folder):
    claims = collect(folder, **FEW)
    assert sum(one.claim.provenance == "paper" and not one.claim.alias_of for one in claims) == 158
    for one in json.loads(json.dumps([one.as_dict() for one in claims], allow_nan=False)):
        about = ("claim", "why", "provenance", "place", "strength", "scope", "evidence", "bar", "effort")
        assert all(one[name] for name in about), one["id"]
        assert one["verdict"] == "undecided" or one["seen"] is (one["verdict"] == "holds")
        assert one["id"].startswith(f"{one['paper']}/")
    explained = {claim.id: claim.explanation for study in STUDIES.values() for claim in study.claims}
    failed = [one for one in claims if one.verdict == "fails" and one.id in explained]
    assert all(one.explanation == explained[one.id] for one in failed)
    assert any(explained[one.id] for one in failed)
    assert sum(count(claims).values()) == len(claims)
    # the text says of Figures 15 to 18 together what Figure 13 is judged on
    silent = {"wu2025/table1", *(f"wu2025/fig{number}" for number in range(15, 19))}
    assert {one.study for one in claims} == {*STUDIES} - silent
    with pytest.raises(InvalidValueError, match=r"^instances: "):
        collect(folder, instances=0)


def test_what_needs_no_computation_is_judged_and_all_else_is_open(tmp_path):
    (one,) = collect(tmp_path, papers=["wu2025/fig1"])
    assert one.verdict == "holds"
    # three of whose five settings are on record, and no claim's
    (one,) = {(one.verdict, one.seen) for one in collect(tmp_path, papers=["wu2025/normalisers"])}
    assert one == ("undecided", None)


# --- statements --------------------------------------------------------------------------------------------


def test_statements_that_were_tried_enough_are_not_tried_again(folder):
    events = []
    try_statements(folder, **FEW, on_event=events.append)
    assert events == []
    try_statements(folder, ["wu2025"], instances=3, engine=InProcess(), on_event=events.append)
    assert events[-1].done == events[-1].total == sum(one.source == "wu2025" for one in STATEMENTS)
    kept = {
        paper: {one.header.amount for one in tried_already(folder, paper)} for paper in ("wu2025", "kim2026")
    }
    assert kept == {"wu2025": {3}, "kim2026": {FEW["instances"]}}


def test_a_statement_that_has_changed_or_was_tried_elsewhere(folder, monkeypatch):
    shutil.rmtree(folder / theorems.STATEMENTS)
    afar = try_statements(folder, ["wu2025"], instances=2, engine=Processes(1))
    assert len(afar) == sum(one.source == "wu2025" for one in STATEMENTS)
    first = STATEMENTS[0]
    changed = (replace(first, claim="other", margin=lambda **instance: math.nan), *STATEMENTS[1:])
    monkeypatch.setattr("posbias_papers.statements.STATEMENTS", changed)
    events = []
    try_statements(folder, [first.source], instances=2, engine=InProcess(), on_event=events.append)
    assert [(event.done, event.total) for event in events] == [(1, 1)]
    claims = collect(folder, papers=[f"{first.source}/statements"], **FEW)
    (one,) = (one for one in claims if one.statement == first.key)
    assert (one.verdict, one.seen) == ("undecided", None)


# --- commands ----------------------------------------------------------------------------------------------


def test_list_has_every_study_and_its_state(answered, folder):
    write(folder, "wu2025/fig3", 0.2, -0.3)
    data = answered("paper", "list", "--out", folder)["studies"]
    assert [one["study"] for one in data] == [*STUDIES]
    states = {one["study"]: one["state"] for one in data}
    made = {"wu2025/fig3", *(key for key in STUDIES if key.endswith("/statements"))}
    assert {key for key, one in states.items() if one["made"]} == made
    assert states["wu2025/fig3"]["claims"] == {"holds": 1, "fails": 1, "undecided": 0}
    assert states["wu2025/fig2"]["recorded"].startswith("18 of 18 cells")
    STUDIES["wu2025/fig3"].file(folder).write_text("{")
    (one,) = answered("paper", "list", "wu2025/fig3", "--out", folder)["studies"]
    assert "fig3.json" in one["state"]["damaged"]


def test_claims_can_be_those_of_one_verdict(answered, folder):
    write(folder, "wu2025/fig3", 0.2, -0.3)
    words = ("claims", "wu2025/fig3", "wu2025/statements", "--instances", 2, "--out", folder)
    data = answered("paper", *words, "--verdict", "fails")
    assert {one["verdict"] for one in data["claims"]} == {"fails"}
    assert data["counts"]["holds"] > 0
    once = [claim for claim in data["claims"] if not claim["alias_of"]]
    assert sum(kind["fails"] for kind in data["tallies"]["wu2025"].values()) == len(once)


def test_a_figure_that_is_whole_on_record_is_drawn_from_it(answered, tmp_path):
    made = answered("paper", "wu2025", "fig3", "--out", tmp_path)
    assert {row["members"] for row in made["cells"]} == {3}
    assert made["claims"]["fig3"]
    assert "100,000 iterations" in (tmp_path / "fig3.md").read_text("utf-8")


# --- all of it --------------------------------------------------------------------------------------------

RECORDED = ("kim2026/section3", "herasimchyk2026/table1", "wu2025/fig20", "wu2025/table1")


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Some studies, drawn from what is on record."""
    folder = tmp_path_factory.mktemp("results")
    ran = make_all(folder, RECORDED, engine=InProcess())
    assert ({*ran.made}, ran.left_out, ran.failed) == ({*RECORDED}, {}, {})
    return folder


def test_what_is_on_record_at_the_effort_or_a_greater_one_is_drawn(drawn):
    assert not [*drawn.rglob("*.nc")]
    wu = json.loads(STUDIES["wu2025/fig20"].file(drawn).read_text())
    assert (wu["effort"], wu["rests_on"]["recorded"]) == ("25,000 iterations, 3 networks", 2)
    assert wu["rests_on"]["inputs"] == EMBEDDINGS["variance"]
    assert "full" not in STUDIES["wu2025/fig20"].recorded(STUDIES["wu2025/fig20"]).serves


def test_a_part_that_fails_stops_no_other(tmp_path, monkeypatch):
    def broken(*_, **__):
        raise InvalidValueError("broken")

    monkeypatch.setitem(PAPERS, "kim2026", replace(PAPERS["kim2026"], tables=broken))
    wanted = ["kim2026/fig1", "wu2025/table1", "herasimchyk2026/fig4"]
    left = Tables({}, "quick", {"fig4": "one corpus only"})
    silent = replace(PAPERS["herasimchyk2026"], tables=lambda *_, **__: left)
    monkeypatch.setitem(PAPERS, "herasimchyk2026", silent)
    ran = make_all(tmp_path, wanted, again=True)
    assert ran.failed == {"kim2026/fig1": "broken"}
    assert ran.left_out == {"herasimchyk2026/fig4": "one corpus only"}
    assert ran.made == ("wu2025/table1",)


def test_nothing_to_make_and_nowhere_to_write_are_refused_before_any_work(tmp_path):
    for nothing in ([], iter(())):
        with pytest.raises(InvalidValueError, match=r"^what: "):
            reproduce("kim2026", nothing, out=tmp_path / "none")
    (tmp_path / "file").write_text("")
    for make in (make_all, lambda out: reproduce("kim2026", out=out)):
        with pytest.raises(OutputFileError):
            make(tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_all_answers_in_json_and_writes_the_page(tmp_path, monkeypatch, answered):
    monkeypatch.setattr("posbias_papers.reproduction.find_studies", lambda _: [STUDIES["wu2025/table1"]])
    monkeypatch.setattr("posbias_papers.results.collect", lambda _: [])
    monkeypatch.setattr("posbias_papers.readings.compare_readings", lambda **_: [])
    answer = answered("paper", "all", "--report", "--out", tmp_path)
    assert (answer["made"], answer["failed"]) == (["wu2025/table1"], {})
    assert (tmp_path / "papers.html").samefile(answer["page"])


def test_the_claims_of_every_record_have_a_place_in_an_answer():
    """Of figures whose cells are on record, as `posbias paper PAPER FIGURE --json` prints them."""
    checked = 0
    for study in STUDIES.values():
        record = study.recorded(study)
        for claim in page_of(study, record.table()).claims if record and record.whole else ():
            FigureClaim.model_validate_json(dump_json(claim.as_dict()))
            checked += 1
    assert checked > 100


# --- the page ----------------------------------------------------------------------------------------------

HOSTILE = "<script>alert(1)</script> & \"quoted\" '<img src=x onerror=alert(2)>' ![a](http://x/y.png)"


@pytest.fixture(scope="module")
def parts(drawn):
    """What a page is made of: claims on record, a reading and its erratum."""
    readings, errata = compare_readings("kim2026/eq-42"), [find_erratum("kim2026/eq-42")]
    return {"claims": collect(drawn, papers=RECORDED), "readings": readings, "errata": errata}


def check_structure(path):
    """Links lead somewhere, and nothing is loaded but figures."""
    reader = alone(
        path, lambda to: to.startswith(("#", "https://arxiv.org/")) or (path.parent / to).is_file()
    )
    inside = {to for _, name, to in reader.attributes if name == "href" and to[0] == "#"}
    inside |= {f"#{to}" for _, name, to in reader.attributes if name == "aria-labelledby"}
    assert inside <= {f"#{name}" for name in reader.ids}
    return reader


def test_the_page_has_every_claim_figure_reading_and_erratum(drawn, parts):
    path = write_page(drawn, drawn / "papers.html", **parts)
    reader, claims, (reading,) = check_structure(path), parts["claims"], parts["readings"]
    text = plain(reader)
    assert {*(one.id for one in claims), "erratum/kim2026/eq-42"} <= {*reader.ids}
    assert {key for key in STUDIES if not key.endswith("/statements")} <= {*reader.ids}
    assert [value for tag, name, value in reader.attributes if name == "src"] == ["wu2025/fig20.svg"]
    for number in (claims[0].estimate, reading.published, reading.corrected):
        assert str(number).replace("-", "−") in text
    assert "paper wu2025 fig13 makes it" in text
    assert "λ<sub>t</sub>" in path.read_text("utf-8")


def test_what_is_given_is_text_and_never_markup(tmp_path, parts):
    claim, reading, erratum = (part[0] for part in parts.values())
    hostile = {
        "claims": [replace(claim, claim=replace(claim.claim, sentence=HOSTILE))],
        "readings": [replace(reading, quantity=HOSTILE, note=HOSTILE)],
        "errata": [replace(erratum, **dict.fromkeys(("where", "printed", "holds", "posbias"), HOSTILE))],
    }
    path = write_page(tmp_path, tmp_path / "p.html", **hostile)
    assert "img" not in check_structure(path).tags
    assert plain(read(path)).count("<script>alert(1)</script>") == 8


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Every claim, from the record alone."""
    return collect(tmp_path_factory.mktemp("nothing"))


def test_every_statement_is_on_record_and_its_verdict_is_that_of_trying_it_again(recorded, tried):
    again = {claim.id: claim.verdict for claim in collect(tried, papers=STATED, **FEW)}
    found = {claim.id: claim for claim in recorded if claim.statement}
    assert {claim.instances or 1000 for claim in found.values()} <= {1, 1000}
    assert {key: claim.verdict for key, claim in found.items()} == again


def test_sentences_to_remember_say_numbers_of_their_claims(recorded):
    said = sentences(recorded)
    assert Counter(claim.paper for _, claim in said) == dict.fromkeys(PAPERS, 3)
    for text, claim in said:
        known = plain_numbers(f"{claim.sentence} {claim.claim.scope} {claim.why}")
        assert {*plain_numbers(text)} <= {*known}, text
        assert claim.verdict != "undecided"


def plain_numbers(text):
    return [number.lstrip("0").rstrip("0") for number in re.findall(r"\d*\.?\d+", text)]


def test_the_document_opens_with_what_the_record_says(recorded):
    assert paper_sentences.page(recorded) == paper_sentences.PAGE.read_text("utf-8")


def test_claims_can_be_one_page_from_the_record_alone(tmp_path, answered):
    answer = answered("paper", "claims", "--report", "--out", tmp_path)
    page = check_structure(tmp_path / "papers.html")
    assert (tmp_path / "papers.html").samefile(answer["page"])
    assert {claim["id"] for claim in answer["claims"]} <= {*page.ids}
    assert not (tmp_path / "statements").exists()


def test_the_document_counts_what_the_records_say():
    text = (ROOT / "docs" / "papers.md").read_text("utf-8")
    rows = re.findall(r"^\|[^|]*\| [a-z][^|]* \| (\d+) \| (\d+) \| (\d+) \|$", text, re.MULTILINE)
    counted = np.array(rows, int).sum(axis=0)
    reference = json.loads((ROOT / "tests" / "reference.json").read_text("utf-8"))
    counts = Counter(row[0] for row in reference["claims"].values())
    assert counted.tolist() == [counts["holds"], counts["fails"], counts["undecided"]]
