"""`posbias paper list|claims|readings|all` as a user runs them: answers, wrong input, exit codes."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from posbias import __version__
from posbias.cli import main
from posbias.core.errors import InvalidValueError
from posbias.core.formats import save_json
from posbias.core.running import InProcess
from posbias.profiles.claims import Claim, Evidence, judged
from posbias.profiles.estimate import Estimate
from posbias_papers.registry import STUDIES
from posbias_papers.reproduction import Spent
from posbias_papers.statements.run import StatementCell
from posbias_papers.theorems import STATEMENTS, try_statements

COMPUTE = StatementCell.compute
POSBIAS = Path(sys.executable).with_name("posbias")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A folder with the statements tried, and one figure of two claims."""
    folder = tmp_path_factory.mktemp("command") / "results"
    with pytest.MonkeyPatch.context() as patch:
        # as if on as many instances as the commands ask for
        patch.setattr(
            StatementCell, "compute", lambda cell, on_event: COMPUTE(replace(cell, amount=2), on_event)
        )
        try_statements(folder, instances=1000, engine=InProcess())
    claims = [
        judged(Claim("wu2025/fig3/1", "", "It rises"), (Evidence("here", Estimate(0.2, 0.01, 10)),)),
        judged(Claim("wu2025/fig3/2", "", "It falls"), (Evidence("x", Estimate(-0.3, 0.01, 10)),)),
    ]
    about = {"name": "fig3", "version": __version__, "effort": "quick"}
    save_json(about | {"claims": [one.as_dict() for one in claims]}, folder / "wu2025" / "fig3.json")
    return folder


def answer(capsys, *words):
    main([*map(str, ("paper", *words))])
    return capsys.readouterr().out


def refused(capsys, *words):
    with pytest.raises(SystemExit) as stopped:
        main([*map(str, ("paper", *words))])
    assert stopped.value.code == 2
    lines = capsys.readouterr().err.strip().splitlines()
    return lines[-1]


# --- list --------------------------------------------------------------------------------------------------


def test_list_has_every_study_and_its_state(capsys, results):
    data = json.loads(answer(capsys, "list", "--out", results, "--json"))["studies"]
    assert [one["study"] for one in data] == [*STUDIES]
    states = {one["study"]: one["state"]["made"] for one in data}
    assert {key for key, made in states.items() if made} == {
        "wu2025/fig3",
        *(key for key in STUDIES if key.endswith("/statements")),
    }
    shown = answer(capsys, "list", "wu2025", "--out", results).splitlines()
    assert shown[0].split()[:1] == ["study"]
    (row,) = (line for line in shown if line.startswith("wu2025/fig3 "))
    assert "6 cells" in row
    assert "quick, 1 holds, 1 fails" in row
    (row,) = (line for line in shown if line.startswith("wu2025/fig6 "))
    assert row.endswith("not made")


def test_list_names_what_cannot_be_used(capsys, tmp_path):
    save_json({"version": __version__, "claims": 3}, tmp_path / "wu2025" / "fig3.json")
    shown = answer(capsys, "list", "wu2025/fig3", "--out", tmp_path).splitlines()
    assert shown[1].endswith("cannot be used")
    assert "fig3.json" in shown[-1]
    assert "`posbias paper wu2025 fig3` makes it" in shown[-1]


# --- claims ------------------------------------------------------------------------------------------------


def test_claims_are_json_on_stdout_and_progress_on_stderr(results):
    command = [POSBIAS, "paper", "claims", "--paper", "wu2025", "--out", results, "--json"]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=300, check=True)
    data = json.loads(done.stdout)
    for one in data["claims"]:
        assert {"id", "paper", "claim", "number", "se", "verdict", "why"} <= one.keys()
    verdicts = [one["verdict"] for one in data["claims"]]
    assert data["counts"] == {kind: verdicts.count(kind) for kind in ("holds", "fails", "undecided")}
    assert {one["id"]: one["verdict"] for one in data["claims"] if one["study"] == "wu2025/fig3"} == {
        "wu2025/fig3/1": "holds",
        "wu2025/fig3/2": "fails",
    }


def test_claims_can_be_those_of_one_verdict(capsys, results):
    words = ("claims", "--paper", "wu2025", "--out", results)
    data = json.loads(answer(capsys, *words, "--verdict", "fails", "--json"))
    assert {one["verdict"] for one in data["claims"]} == {"fails"}
    assert data["counts"]["holds"] > 0
    shown = answer(capsys, *words, "--verdict", "fails")
    assert "wu2025/fig3/2  −0.3 ± 0.01" in shown
    assert "wu2025/fig3/1" not in shown
    for counts in data["tallies"]["wu2025"].values():
        words = f"{counts['holds']} hold, {counts['fails']} fail, {counts['undecided']} undecided"
        assert words in shown.splitlines()[0]


def test_a_paper_s_own_command_prints_its_claims(capsys, results, tmp_path):
    elsewhere = tmp_path / "mine"
    elsewhere.mkdir()
    shutil.copy(results / "wu2025" / "fig3.json", elsewhere)
    shutil.copytree(results / STATEMENTS, tmp_path / STATEMENTS)
    data = json.loads(answer(capsys, "wu2025", "claims", "--out", elsewhere, "--json"))
    assert {one["paper"] for one in data["claims"]} == {"wu2025"}
    assert "wu2025/fig3/1" in {one["id"] for one in data["claims"]}
    for paper in ("wu2025", "herasimchyk2026", "kim2026"):
        assert "what: " in refused(capsys, paper, "fig3", "claims", "--out", elsewhere)


def test_wrong_words_are_refused(capsys, tmp_path):
    out = ("--out", tmp_path / "none")
    assert "did you mean 'kim2026'?" in refused(capsys, "claims", "--paper", "kim2025", *out)
    assert "effort: " in refused(capsys, "claims", "--effort", "100", *out)
    assert "instances: " in refused(capsys, "claims", "--instances", "0", *out)
    assert "effort: " in refused(capsys, "all", "--effort", "100", *out)
    assert "workers" in refused(capsys, "all", "--workers", "2", "--ray", "auto", *out)
    assert "configs: " in refused(capsys, "all", "--configs", tmp_path / "nowhere", *out)
    assert not (tmp_path / "none").exists()


# --- readings and all --------------------------------------------------------------------------------------


@pytest.fixture
def parts(monkeypatch):
    """No part makes anything; those named here fail."""
    failing: set[str] = set()

    def make(asked, studies):
        if studies[0].paper in failing:
            raise InvalidValueError(f"{studies[0].paper} is broken")
        return [Spent(one.name, 1.0, 1, 0) for one in studies], {}

    monkeypatch.setattr("posbias_papers.everything._make", make)
    return failing


def test_all_can_write_the_page(capsys, parts, results, monkeypatch):
    from posbias_papers.readings import compare_readings

    one = compare_readings("kim2026/eq-35")
    monkeypatch.setattr("posbias_papers.readings.compare_readings", lambda **_: one)
    data = json.loads(answer(capsys, "all", "--out", results, "--report", "--json"))
    page = Path(data["page"]).read_text()
    assert Path(data["page"]) == results / "papers.html"
    there = {"wu2025/fig3", *(key for key in STUDIES if key.endswith("/statements"))}
    assert ({*data["found"]}, data["failed"]) == (there, {})
    assert {*data["made"]} == {key for key, one in STUDIES.items() if not one.parts} - there
    parts.add("kim2026")
    assert "kim2026/fig1: kim2026 is broken" in refused(capsys, "all", "--out", results)
    assert "It rises" in page
    assert "wu2025/lemma-4.4" in page
