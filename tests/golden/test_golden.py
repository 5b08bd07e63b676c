"""Nothing of version 0.1.0 is lost: its commands, names, claims and files do what was recorded of them.

A difference fails unless differences.toml lists it with a reason; README.md says how it is recorded.
"""

import re
from dataclasses import replace
from importlib import import_module

import answers
import pytest

from golden.compare import Compared, Difference, Listed, faults, moved, outcome_differences, read_listed
from golden.names import name_differences
from golden.record import published_claims, read, specification_differences, unmade_claims
from golden.replay import HERE, Outcome, Replay, read_commands

COMMANDS, LISTED = read_commands(), read_listed()
QUICK, SLOW = ([name for name, command in COMMANDS.items() if command.slow == slow] for slow in (False, True))


@pytest.fixture(scope="session")
def replay(tmp_path_factory):
    """The commands, each run once; a folder's commands find what those before them left."""
    return Replay(COMMANDS, tmp_path_factory.mktemp("golden"))


def check(id, differences):
    told = faults([id], differences, LISTED)
    assert not told, "\n".join(told)


def check_answer(outcome):
    """An answer in JSON is as the schema says that it names."""
    if outcome.exit == 0 and isinstance(outcome.stdout, dict):
        assert not answers.faults(outcome.stdout)


@pytest.mark.parametrize("name", QUICK)
def test_a_command_does_what_it_did(replay, name):
    """Exit code, stderr, answer, files and the arrays of figures are as version 0.1.0 left them."""
    check(name, outcome_differences(COMMANDS[name], Outcome.load(name), replay.outcome(name)))
    check_answer(replay.outcome(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_a_slow_command_does_what_it_did(replay, name):
    """The same of commands that measure, train or make a paper's figures."""
    check(name, outcome_differences(COMMANDS[name], Outcome.load(name), replay.outcome(name)))
    check_answer(replay.outcome(name))


def test_public_names_are_where_they_were():
    """Every public name can be had from the same place, takes what it took and has the members it had."""
    check("public-names", name_differences(read("public_names.json"), moved(LISTED)))


def test_specification_files_say_what_they_said():
    """Architectures, studies and experiments of documents and tests are read as before, or refused as before."""
    check("specifications", specification_differences(read("specifications.json")))


def test_claims_keep_their_ids_and_sentences(replay):
    """What `paper claims` lists where nothing is made has the ids and sentences it had."""
    compared = Compared("claims")
    now = unmade_claims(replay)
    # an id is for ever: that of every claim of 0.1.0 on what it had made is listed where nothing is made
    assert {claim["id"] for claim in read("claims_quick.json")} <= {*now}
    compared.data("claims", read("claims.json"), now)
    check("claims", compared.differences)


def test_the_published_page_has_every_claim():
    """All 292 claims of the quick run stand on the page, with the numbers and verdicts they had."""
    page = (HERE.parents[1] / "docs" / "papers.html").read_text()
    now = {claim["id"]: claim for claim in published_claims(page)}
    assert {claim["id"] for claim in read("claims_quick.json")} <= {*now}
    compared = Compared("claims-quick")
    compared.data("claims", {claim["id"]: claim for claim in read("claims_quick.json")}, now)
    check("claims-quick", compared.differences)


@pytest.mark.parametrize("paper", ["wu2025", "kim2026"])
def test_claims_of_studies_have_the_ids_and_sentences_they_had(paper):
    """Ids and sentences of the quick run's claims on figures are those written in the STUDY values."""
    studies = import_module(f"posbias.papers.{paper}").STUDIES
    written = {claim.id: claim.sentence for study in studies.values() for claim in study.claims}
    held = {claim["id"]: claim["claim"].replace("\xa0", " ") for claim in read("claims_quick.json")}
    names = {study.key for study in studies.values()}
    held = {id: words for id, words in held.items() if id.rpartition("/")[0] in names}
    known = {id.rpartition("/")[0] for id in held}
    # a study that 0.1.0 had not has claims of its own, and others may have more
    assert {*held} <= {*written}
    compared = Compared("claims-sentences")
    compared.data("claims", held, {id: words for id, words in written.items() if id in held})
    differences = [replace(one, where=one.where.removeprefix("claims/")) for one in compared.differences]
    listed = [entry for entry in LISTED if "claims-sentences" in entry.ids]
    assert not faults([], differences, listed)
    assert known <= names


def test_every_listed_difference_is_about_something_recorded():
    """An id of differences.toml is a command's, or one of the other records'."""
    others = {"public-names", "specifications", "claims", "claims-quick", "claims-sentences"}
    listed = {id for entry in LISTED for id in entry.ids}
    assert not listed - {*COMMANDS} - others
    assert all(entry.what and entry.reason for entry in LISTED)


def test_what_is_recorded_is_what_is_replayed():
    """No record without its command, no command without its record."""
    assert {path.stem for path in (HERE / "recorded").glob("*.json")} == {*COMMANDS}
    assert {path.stem for path in (HERE / "figures").glob("*.npz")} <= {*COMMANDS}


def test_every_result_is_described():
    """The fixtures of the converter stand in the table of their README, and the table names no other."""
    folder = HERE / "results"
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    named = set(re.findall(r"^\| `([^`]+)`", (folder / "README.md").read_text(), re.MULTILINE))
    assert files - {"README.md"} == named


# ── what tells two outcomes apart ──


def outcome(**changed):
    return Outcome(**{"exit": 0, "stderr": [], "stdout": {"a": [1.0, 2.0]}, "files": ["p.json"]} | changed)


@pytest.mark.parametrize(
    ("changed", "where"),
    [
        ({"exit": 2}, "exit"),
        ({"stderr": ["assumed: mixing"]}, "stderr"),
        ({"stdout": {"a": [1.0, 2.0 + 1e-6]}}, "stdout/a"),
        ({"stdout": {"a": [1.0, 2.0], "b": None}}, "stdout/b"),
        ({"stdout": {}}, "stdout/a"),
        ({"stdout": "U"}, "stdout"),
        ({"files": []}, "files/p.json"),
    ],
)
def test_a_change_is_found(changed, where):
    """Each part of an outcome is compared."""
    told = outcome_differences(COMMANDS["version"], outcome(), outcome(**changed))
    assert [difference.where for difference in told] == [where]


def test_an_unlisted_difference_and_a_stale_entry_are_faults():
    """A difference needs its entry, an entry its difference."""
    entry = Listed(("predict-json",), "stdout/*", "the profile", "a test")
    difference = Difference("predict-json", "stdout/profile", "1", "2")
    assert faults(["predict-json"], [difference], []) != []
    assert faults(["predict-json"], [difference], [entry]) == []
    assert "it is as recorded" in faults(["predict-json"], [], [entry])[0]


def test_numbers_in_a_text_may_differ_by_a_unit_of_their_last_digit():
    """0.1234 is 0.1235 after another rounding; 0.1236 is another number, and so is another whole number."""
    for now, alike in [("0.1235 of 7", True), ("0.1236 of 7", False), ("0.1234 of 8", False)]:
        compared = Compared("text")
        compared.text("stdout", "0.1234 of 7", now)
        assert (not compared.differences) == alike
