"""All claims with their verdicts: from statements, from results, and of what is not there."""

import json
import math
import os
import shutil
from dataclasses import replace

import pytest

from posbias import __version__
from posbias.core.errors import InputFileError, InvalidValueError
from posbias.core.running import InProcess
from posbias.core.store import Header, JsonCodec, save_json
from posbias.profiles.claims import Claim, count, judged
from posbias.profiles.estimate import Estimate
from posbias.profiles.evidence import Evidence
from posbias_papers import explaining, theorems
from posbias_papers.collect import collect
from posbias_papers.everything import make_all
from posbias_papers.herasimchyk2026.printed import CORPORA, TABLE1, TABLE4
from posbias_papers.herasimchyk2026.standing import stand_in
from posbias_papers.records import Records
from posbias_papers.registry import STUDIES
from posbias_papers.statements import STATEMENTS
from posbias_papers.statements.run import cell_of, plain
from posbias_papers.study import ELSEWHERE
from posbias_papers.theorems import slug, tried_already, try_statements
from posbias_papers.wu2025 import recorded

FEW = {"instances": 2, "engine": InProcess()}
ASKED = ("id", "paper", "claim", "number", "se", "verdict", "why", "seen", "alias_of")
KIM = sum(one.source == "kim2026" for one in STATEMENTS)
FILLED = ("provenance", "place", "strength", "scope", "effort")


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


@pytest.fixture
def explained(monkeypatch):
    """Explanations that a test gives."""
    given: dict[str, str] = {}
    monkeypatch.setattr(explaining, "explanations", lambda: given)
    return given


def write(folder, key, claims, **more):
    study = STUDIES[key]
    about = {"name": study.name, "version": __version__, "effort": "quick"}
    named = [
        one if one.id else replace(one, claim=replace(one.claim, id=f"{key}/{place}"))
        for place, one in enumerate(claims, start=1)
    ]
    about |= {"claims": [one.as_dict() for one in named]}
    return save_json(about | more, study.file(folder))


def claim(sentence, value, se=0.01):
    return judged(Claim("", "", sentence), (Evidence("here", Estimate(value, se, 10)),))


# --- all of them -------------------------------------------------------------------------------------------


def test_everything_has_an_id_a_verdict_and_a_reason(folder):
    rulings = collect(folder, **FEW)
    assert len(rulings) >= 60
    assert len({one.id for one in rulings}) == len(rulings)
    told = json.loads(json.dumps([one.as_dict() for one in rulings], allow_nan=False))
    for one in told:
        assert all(name in one for name in ASKED)
        assert all(one[name] for name in FILLED), one["id"]
        if one["verdict"] != "undecided":
            assert one["seen"] is (one["verdict"] == "holds")
        assert one["verdict"] in ("holds", "fails", "undecided")
        assert one["why"].strip()
        assert one["claim"].strip()
        assert one["id"].startswith(f"{one['paper']}/")
        assert one["study"] in STUDIES
    assert sum(count(rulings).values()) == len(rulings)
    # a study that has parts speaks through them, an index of claims has none of its own, every other is there
    silent = {key for key, study in STUDIES.items() if study.parts} | {"wu2025/table1"}
    # the text says of these together what Figure 13 is judged on
    silent |= {f"wu2025/fig{number}" for number in range(15, 19)}
    assert {one.study for one in rulings} == {*STUDIES} - silent


def test_what_is_not_made_is_undecided_and_says_what_makes_it(folder):
    claims = collect(folder, papers=["wu2025/fig5"], **FEW)
    assert [one.id for one in claims] == [claim.id for claim in STUDIES["wu2025/fig5"].claims]
    for one in claims:
        assert (one.verdict, one.seen) == ("undecided", None)
        assert "not made here; `posbias paper wu2025 fig5` makes it (about" in one.why
        assert one.as_dict()["number"] is None


def test_a_paper_alone(folder):
    assert {one.paper for one in collect(folder, papers=["kim2026"], **FEW)} == {"kim2026"}
    with pytest.raises(InvalidValueError, match="did you mean 'kim2026'"):
        collect(folder, papers=["kim2025"], **FEW)


# --- statements --------------------------------------------------------------------------------------------


def test_every_numbered_statement_is_ruled_on(folder):
    rulings = [one for one in collect(folder, **FEW) if "statement" in one.more]
    assert [*dict.fromkeys(one.more["statement"] for one in rulings)] == [one.key for one in STATEMENTS]
    for statement in STATEMENTS:
        *itself, one = (one for one in rulings if one.more["statement"] == statement.key)
        assert len(itself) == bool(statement.asserts)
        if statement.asserts:
            assert (itself[0].verdict, itself[0].claim.strength) == ("holds", "theorem")
            assert statement.asserts in itself[0].sentence
            strength = "constant" if one.claim.provenance == "paper" else "observation"
            assert (one.id, one.claim.strength) == (f"{itself[0].id}-proof", strength)
        assert one.study == f"{statement.source}/statements"
        assert statement.as_printed.claim in one.sentence
        assert math.isnan(one.estimate.se)
        if statement.corrected is None:
            assert one.verdict == "holds"
            assert "no counterexample in 2 random and adversarial instances, margin" in one.why
        else:
            assert one.verdict == "fails"
            assert one.estimate.value < 0
            assert statement.note in one.why
            assert f"What stands: {statement.corrected.claim} (no counterexample in" in one.why
            assert one.more["stands"] == statement.corrected.claim


def files(folder):
    return {path.name: path.stat().st_mtime_ns for path in (folder / theorems.STATEMENTS).iterdir()}


def test_statements_that_were_tried_enough_are_not_tried_again(folder):
    told, before = [], files(folder)
    again = try_statements(folder, **FEW, on_event=told.append)
    assert (files(folder), told) == (before, [])
    wu = [one.key for one in STATEMENTS if one.source == "wu2025"]
    try_statements(folder, ["wu2025"], instances=3, engine=InProcess(), on_event=told.append)
    assert (told[-1].done, told[-1].total) == (len(wu), len(wu))
    assert files(folder).items() >= before.items()
    tried = {paper: tried_already(folder, paper) for paper in ("wu2025", "herasimchyk2026", "kim2026")}
    asked = {paper: {one.header.amount for one in stored} for paper, stored in tried.items()}
    assert asked == {"wu2025": {3}, "herasimchyk2026": {2}, "kim2026": {2}}
    kept = [one.result for one in tried["kim2026"]]
    assert [plain(vars(one)) for one in kept] == [plain(vars(again[one.statement.key])) for one in kept]
    assert tried_already(folder, "kim2026", 3) is None


def test_a_statement_tried_in_a_worker_is_the_same(folder):
    from posbias.core.running import Processes

    shutil.rmtree(folder / theorems.STATEMENTS)
    afar = try_statements(folder, ["kim2026"], instances=2, engine=Processes(1))
    assert len(afar) == KIM
    for key, finding in afar.items():
        cell = cell_of(key, 0, 2)
        assert cell.to_content(cell.compute(print)) == cell.to_content(finding)


def test_a_counterexample_is_kept(folder):
    (finding,) = (one for one in try_statements(folder, **FEW).values() if one.statement.key == "wu-4.5")
    assert (
        finding.statement.as_printed.slack(finding.as_printed.counterexample) == finding.as_printed.slack < 0
    )


@pytest.mark.parametrize(
    ("reading", "changed"),
    [
        ("as_printed", {"claim": "other words"}),
        ("as_printed", {"tolerance": 0.5}),
        ("corrected", {"tolerance": 0.5}),
    ],
)
def test_a_statement_that_has_changed_is_tried_again(folder, monkeypatch, reading, changed):
    place = next(place for place, one in enumerate(STATEMENTS) if one.corrected)
    other = replace(STATEMENTS[place], **{reading: replace(getattr(STATEMENTS[place], reading), **changed)})
    monkeypatch.setattr(
        "posbias_papers.statements.STATEMENTS", (*STATEMENTS[:place], other, *STATEMENTS[place + 1 :])
    )
    told = []
    try_statements(folder, **FEW, on_event=told.append)
    assert [(event.done, event.total) for event in told] == [(1, 1)]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda text: text[:-30], "not valid JSON"),
        (lambda text: "{}", "holds no posbias result"),
        (lambda text: text.replace('"slack": ', '"slack": 1'), "does not match its digest"),
    ],
)
def test_statements_that_cannot_be_used_are_named_and_tried_anew(folder, spoil, said, caplog):
    (path,) = (folder / theorems.STATEMENTS).glob("kim-proposition-1-*.json")
    whole = path.read_text()
    path.write_text(spoil(whole))
    found = try_statements(folder, ["kim2026"], **FEW)
    (line,) = caplog.messages
    assert said in line
    assert "computed again" in line
    assert len(found) == KIM
    path.with_name(f"{path.stem}-2.json").rename(path)
    assert json.loads(path.read_text())["content"] == json.loads(whole)["content"]


def test_statements_of_another_version_are_named_and_tried_anew(folder, caplog, monkeypatch):
    monkeypatch.setattr("posbias.core.store.cells.VERSION", "9.9.9")
    told = []
    try_statements(folder, ["kim2026"], **FEW, on_event=told.append)
    assert told[-1].total == KIM
    assert "this is 9.9.9; kept, computed again" in caplog.messages[0]


def test_a_statement_that_cannot_be_tried_is_named_and_undecided(folder, caplog, monkeypatch):
    def broken(instance):
        return math.nan

    first = replace(STATEMENTS[0], as_printed=replace(STATEMENTS[0].as_printed, claim="other", slack=broken))
    monkeypatch.setattr("posbias_papers.statements.STATEMENTS", (first, *STATEMENTS[1:]))
    (one,) = (one for one in collect(folder, **FEW) if one.more.get("statement") == first.key)
    assert one.seen is None
    assert one.verdict == "undecided"
    assert f"could not be tried; `posbias verify {first.key}` says why" in one.why
    assert f"{first.key}: failed: {first.key}/published: the slack" in caplog.text


def test_the_state_of_statements_is_of_the_file_written_last(folder):
    study = STUDIES["kim2026/statements"]
    assert study.file(folder) == folder / theorems.STATEMENTS
    paths = sorted((folder / theorems.STATEMENTS).glob("kim-*.json"))
    for path in paths:
        os.utime(path, (1e9, 1e9))
    os.utime(paths[0], (1.5e9, 1.5e9))
    state = study.state(folder)
    assert (state.made, state.effort) == (True, "2 instances")
    assert state.when[:4] == "2017"


def test_statements_of_another_schema_are_damaged_and_do_not_stop_a_list(folder):
    (path,) = (folder / theorems.STATEMENTS).glob("kim-proposition-1-*.json")
    told = json.loads(path.read_text())
    content = told.pop("content")
    JsonCodec().write(path, replace(Header.of(told, path), schema=9), content)
    study = STUDIES["kim2026/statements"]
    assert str(path) in study.state(folder).damaged
    assert STUDIES["wu2025/statements"].state(folder).made
    ran = make_all(folder, ["wu2025/statements", "kim2026/statements"], effort=2, engine=InProcess())
    assert (ran.found, [*ran.failed]) == (("wu2025/statements",), ["kim2026/statements"])
    assert str(path) in ran.failed["kim2026/statements"]


def test_a_statement_that_cannot_be_tried_was_neither_made_nor_found(folder, monkeypatch):
    def broken(instance):
        return math.nan

    first = replace(STATEMENTS[0], as_printed=replace(STATEMENTS[0].as_printed, claim="other", slack=broken))
    monkeypatch.setattr("posbias_papers.statements.STATEMENTS", (first, *STATEMENTS[1:]))
    make_all(folder, "wu2025/statements", **FEW)
    record = json.loads((folder / "papers.json").read_text())["studies"]["wu2025/statements"]
    others = sum(one.source == "wu2025" for one in STATEMENTS) - 1
    assert (record["cells_made"], record["cells_found"]) == (0, others)


def test_instances_have_to_be_some(tmp_path):
    with pytest.raises(InvalidValueError, match="instances: 0 given, an integer ≥ 1 needed"):
        collect(tmp_path, instances=0)


def test_ids_of_statements_say_where_they_stand():
    assert slug("Theorem 4.5, critical distance") == "theorem-4.5-critical-distance"
    assert slug("Lemma 5.3 (i)") == "lemma-5.3-i"
    assert slug("§5.1, multi-head averaging") == "section-5.1-multi-head-averaging"


# --- figures and tables ------------------------------------------------------------------------------------


def test_claims_of_a_figure_come_with_their_numbers(folder, explained):
    write(folder, "wu2025/fig2", [claim("It rises", 0.2), claim("It falls", -0.3), claim("It may", 0.011)])
    rises, falls, may = collect(folder, papers=["wu2025/fig2"], **FEW)
    assert [one.id for one in (rises, falls, may)] == [f"wu2025/fig2/{place}" for place in (1, 2, 3)]
    assert [one.verdict for one in (rises, falls, may)] == ["holds", "fails", "undecided"]
    assert (rises.estimate.value, rises.estimate.se) == (0.2, 0.01)
    assert rises.more["effort"] == "quick"
    assert rises.more["effects"][0]["where"] == "here"
    assert "−0.300" in falls.why
    assert "`posbias paper wu2025 fig2 --effort full` gives it more" in may.why


def test_a_claim_keeps_its_id_where_others_are_left_out(folder):
    third = judged(Claim("wu2025/fig2/3", "", "It rises"), (Evidence("here", Estimate(0.2, 0.01, 10)),))
    write(folder, "wu2025/fig2", [third])
    (one,) = collect(folder, papers=["wu2025/fig2"], **FEW)
    assert one.id == "wu2025/fig2/3"


@pytest.mark.parametrize("key", ["wu2025/fig2/2", "wu2025/fig2: It falls", "wu2025: It falls"])
def test_an_explanation_follows_the_reason(folder, explained, key):
    explained[key] = "Networks this\n  shallow do not."
    write(folder, "wu2025/fig2", [claim("It rises", 0.2), claim("It falls", -0.3)])
    rises, falls = collect(folder, papers=["wu2025/fig2"], **FEW)
    assert falls.why.endswith(". Networks this shallow do not.")
    assert falls.more["explanation"] == "Networks this shallow do not."
    assert "Networks" not in rises.why


def test_a_claim_that_holds_needs_no_explanation(folder, explained):
    explained["wu2025/fig2/1"] = "Never shown."
    write(folder, "wu2025/fig2", [claim("It rises", 0.2)])
    (one,) = collect(folder, papers=["wu2025/fig2"], **FEW)
    assert "Never shown" not in one.why


def test_a_claim_without_a_number_has_none(folder):
    write(folder, "wu2025/fig2", [judged(Claim("", "", "It rises"), (Evidence("here", flaw="one network"),))])
    (one,) = collect(folder, papers=["wu2025/fig2"], **FEW)
    told = one.as_dict()
    assert (told["number"], told["se"], told["verdict"]) == (None, None, "undecided")
    assert "one network" in told["why"]


def test_a_result_that_cannot_be_used_is_named_and_undecided(folder, caplog):
    path = write(folder, "wu2025/fig2", [claim("It rises", 0.2)])
    path.write_text(path.read_text()[:-20])
    one, *_ = collect(folder, papers=["wu2025/fig2"], **FEW)
    assert (one.id, one.verdict) == ("wu2025/fig2/1", "undecided")
    assert "fig2.json: not valid JSON" in one.why
    assert "`posbias paper wu2025 fig2` makes it" in one.why
    assert ["fig2.json" in line for line in caplog.messages] == [True]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda data: data.pop("version"), "fig2.json: of an earlier posbias, this is"),
        (lambda data: data["claims"][0].update(number="much"), "fig2.json: number 'much' of a claim"),
    ],
)
def test_a_result_of_0_1_or_of_words_says_what_makes_it_again(folder, spoil, said):
    path = write(folder, "wu2025/fig2", [claim("It rises", 0.2)])
    data = json.loads(path.read_text())
    spoil(data)
    save_json(data, path)
    one, *_ = collect(folder, papers=["wu2025/fig2"], **FEW)
    assert one.verdict == "undecided"
    assert said in one.why
    assert "`posbias paper wu2025 fig2` makes it" in one.why


def test_results_of_a_paper_may_lie_elsewhere(folder):
    path = write(folder, "wu2025/fig2", [claim("It rises", 0.2)])
    elsewhere = path.parent.rename(folder / "other")
    assert {one.verdict for one in collect(folder, papers=["wu2025/fig2"], **FEW)} == {"undecided"}
    (one,) = collect(folder, papers=["wu2025/fig2"], at={"wu2025": elsewhere}, **FEW)
    assert one.verdict == "holds"


def test_what_the_papers_own_numbers_decide_needs_nothing_made(folder):
    found = {one.id: one for one in collect(folder, papers=["herasimchyk2026/table4"], **FEW)}
    often = found["herasimchyk2026/table4/5"]
    assert (often.verdict, often.more["effort"]) == ("holds", "the paper's own numbers")
    assert "9 of 15" in often.why
    # nor does an older version's judgement stand
    old = claim("(the paper's own numbers) (b) is higher than (c)", -0.3)
    write(folder, "herasimchyk2026/table4", [replace(old, claim=Claim(often.id, "", "(b) is higher"))])
    text = STUDIES["herasimchyk2026/table4"].file(folder).read_text()
    STUDIES["herasimchyk2026/table4"].file(folder).write_text(text.replace('"provenance"', '"was"'))
    again = next(
        one for one in collect(folder, papers=["herasimchyk2026/table4"], **FEW) if one.id == often.id
    )
    assert (again.verdict, again.sentence) == ("holds", often.sentence)


def test_what_would_decide_an_open_claim_is_said(folder):
    for one in collect(folder, papers=["herasimchyk2026/fig2"], **FEW):
        if one.verdict == "undecided" and one.claim.provenance == "paper":
            assert "decided by falcon-rw-7b, mpt-7b" in one.why
            assert "--models tiiuae/falcon-rw-7b,mosaicml/mpt-7b" in one.why


# --- rows of printed tables --------------------------------------------------------------------------------


def rows(folder, table):
    found = collect(folder, papers=[f"herasimchyk2026/{table}"], **FEW)
    return {one.more["model"]: one for one in found if "model" in one.more}


def test_table_1_is_held_against_the_models_own_configurations(folder):
    found = rows(folder, "table1")
    assert [*found] == [*TABLE1]
    assert {one.verdict for one in found.values()} == {"holds"}
    assert found["bloom-176b"].estimate.value == 70


def test_rows_of_models_that_were_not_measured_are_undecided(folder):
    found = rows(folder, "table4")
    assert [*found] == [*TABLE4]
    assert {one.verdict for one in found.values()} == {"undecided"}
    assert "−0.57 / 0.91 / 0.83 on FineWeb-Edu" in found["bloom-176b"].sentence
    assert "--models bigscience/bloom " in found["bloom-176b"].why
    assert [*rows(folder, "table2")] == ["bloom-176b", "mpt-7b"]


@pytest.mark.parametrize(("off", "verdict"), [(0.0, "holds"), (0.012, "holds"), (0.05, "fails")])
def test_a_row_that_was_measured_is_compared(folder, off, verdict):
    beside = [
        {"model": "bloom-7b", "corpus": CORPORA[0], "what": f"({letter})", "here": value + off, "se": 0.005}
        for letter, value in zip("abc", TABLE4["bloom-7b"][CORPORA[0]], strict=True)
    ]
    write(folder, "herasimchyk2026/table4", [claim("(b) is higher", 0.2)], printed_beside=beside)
    found = rows(folder, "table4")
    assert found["bloom-7b"].verdict == verdict
    assert found["mpt-7b"].verdict == "undecided"
    assert found["bloom-7b"].estimate.value in [entry["here"] for entry in beside]
    assert f"{3 if verdict == 'holds' else 0} of 3 hold" in found["bloom-7b"].why or verdict == "fails"


def test_which_models_stand_in():
    assert stand_in(["tiny-alibi", "smollm2-135m"]) == (
        "tiny-alibi and smollm2-135m stand in for the paper's models (BLOOM, MPT, Falcon), "
        "none of which was measured here"
    )
    assert stand_in(["bigscience/bloom-7b1", "tiny-alibi"]) == (
        "tiny-alibi stands in for falcon-rw-7b, mpt-7b, mpt-30b and bloom-176b of the paper, not measured here"
    )
    with_files = stand_in(["tiny-alibi"], ["mpt-7b"])
    assert with_files.endswith("; levels of mpt-7b are from the authors' rollout files")
    assert stand_in([*TABLE1]) == ""


# --- explanations ------------------------------------------------------------------------------------------


def test_explanations_are_texts_of_things_that_exist():
    known = explaining.explanations()
    for key, text in known.items():
        place = key.partition(": ")[0].removesuffix(ELSEWHERE)
        study = place if place in STUDIES else place.rpartition("/")[0]
        assert study in STUDIES or place in {one.paper for one in STUDIES.values()}, key
        assert text.strip().endswith((".", "?", ")")), key


def test_a_result_that_an_older_version_judged_is_left_open(folder):
    path = write(folder, "wu2025/fig2", [claim("It rises", 0.2), claim("It falls", -0.2)])
    data = json.loads(path.read_text())
    for one in data["claims"]:
        for name in ("provenance", "place", "strength", "scope", "effort", "alias_of", "seen"):
            del one[name]
    save_json(data, path)
    rises, falls = collect(folder, papers=["wu2025/fig2"], **FEW)
    assert [(one.verdict, one.seen) for one in (rises, falls)] == [("undecided", True), ("undecided", False)]
    assert "judged by an older version; `posbias paper wu2025 fig2` judges it again" in rises.why
    assert rises.claim.provenance == "paper"
    assert rises.claim.scope


def test_an_explanation_that_is_no_text_is_refused(tmp_path, monkeypatch):
    (tmp_path / "explanations.toml").write_text('"wu2025/fig2/1" = 3')
    monkeypatch.setattr(explaining, "files", lambda _: tmp_path)
    with pytest.raises(InputFileError, match=r"'wu2025/fig2/1' is no text"):
        explaining.explanations.__wrapped__()
    (tmp_path / "kim2026").mkdir()
    for place in (tmp_path, tmp_path / "kim2026"):
        (place / "explanations.toml").write_text('"wu2025/fig2/1" = "So."')
    with pytest.raises(InputFileError, match="explained twice"):
        explaining.explanations.__wrapped__()
