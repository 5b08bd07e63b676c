"""The command `posbias explore`, and the tables that come with its page."""

import json
import re

import numpy as np
import pytest
from command import called
from measured import measurement

from posbias.comparison.extrapolation import BUNDLED as SMOLLM2
from posbias.core.formats import save_json
from posbias.core.packages import bundled
from posbias.imports import read
from posbias.measurement import measure
from posbias.profiles.measurements import load_measurement, save_measurement
from posbias.profiles.profile import measured_influence
from posbias.reports.answers.retrievals import AnswerCurve
from posbias.reports.explore.menu import menu
from posbias.reports.explore.page import known_curves
from posbias.retrieval import ask, retrieval_job


def test_the_command_begins_from_what_is_given(tmp_path):
    save_measurement(measurement("tiny-alibi", positional="alibi"), tmp_path / "m.nc")
    (tmp_path / "a.json").write_text(
        json.dumps(
            {"schema": "measure/1", "model": "x", "influence": [0.5, 0.2, 0.3] * 4, "mixing": [0.5, 0.1]}
        )
    )
    assert called("predict", "tiny-rope", "--tokens", 64, "-o", "p.json", cwd=tmp_path).returncode == 0
    begins = {"m.nc": "tiny-alibi: m.nc", "a.json": "x: a.json", "p.json": '"title":"p.json"'}
    for given, said in {None: "24 layers", **begins}.items():
        answer = called("explore", *filter(None, [given]), "--no-open", "--json", cwd=tmp_path)
        assert answer.returncode == 0, answer.stderr
        found = json.loads(answer.stdout)
        assert (found["schema"], found["page"], found["opened"]) == ("explore/1", "explore.html", False)
        assert found["begins_from"] == given
        assert said in (tmp_path / "explore.html").read_text(encoding="utf-8")


def test_a_retrieval_is_drawn_as_shares_and_a_folder_of_nothing_is_refused(tmp_path):
    job = retrieval_job("keys", pairs=4, positions=3, prompts=9)
    for name, answers in (
        ("R", lambda prompt: re.findall(r'"([\w ]+)"', prompt)[-2]),
        ("none", lambda _: "no"),
    ):
        curve = AnswerCurve.of(ask(answers, job, asked_of={"model": "asked"})).model_dump(mode="json")
        save_json({"schema": "retrieve-answers/1", "curves": [curve]}, tmp_path / name / "retrieval.json")
    accuracy = read(tmp_path / "R").mass
    shares = json.dumps((accuracy / accuracy.sum()).tolist(), separators=(",", ":"))
    for given in ("R", "R/retrieval.json"):
        answer = called("explore", given, "--no-open", cwd=tmp_path)
        assert answer.returncode == 0, answer.stderr
        page = (tmp_path / "explore.html").read_text(encoding="utf-8")
        assert "asked: accuracy by place, as shares" in page
        assert shares in page
    (tmp_path / "empty").mkdir()
    for given in ("empty", "none"):
        answer = called("explore", given, "--no-open", cwd=tmp_path)
        assert answer.returncode == 2
        assert given in answer.stderr.splitlines()[-1]


@pytest.mark.parametrize("tokens", [16, pytest.param(6, marks=pytest.mark.slow)])
def test_a_report_links_the_page_that_begins_from_its_measurement(tokens, tmp_path):
    words = ("report", "tiny-nope", "--tokens", tokens, "--prompts", 3, "--out", "r", "--json")
    answer = called(*words, cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    linked = 'href="explore.html"' in (tmp_path / "r" / "report.html").read_text(encoding="utf-8")
    if tokens < 8:  # fewer than the page shows
        assert json.loads(answer.stdout)["explore"] is None
        assert not linked
    else:
        page = (tmp_path / json.loads(answer.stdout)["explore"]).read_text(encoding="utf-8")
        assert linked
        assert "tiny-nope: measurement.nc" in page
        assert str(tmp_path) not in page


@pytest.mark.parametrize(
    ("words", "named"),
    [("nowhere", "nowhere"), ("--out page.txt", "out"), ("--tokens 7", "tokens"), ("bad.json", "influence")],
)
def test_the_command_refuses_in_a_line_and_writes_nothing(tmp_path, words, named):
    (tmp_path / "bad.json").write_text('{"schema": "measure/1", "influence": "x"}')
    answer = called("explore", *words.split(), "--no-open", cwd=tmp_path)
    assert answer.returncode == 2
    assert named in answer.stderr
    assert answer.stderr.count("\n") == 1
    assert not (tmp_path / "explore.html").exists()


def test_what_is_said_of_a_choice_is_a_whole_sentence():
    said = [one["words"] for choices in menu().values() if isinstance(choices, list) for one in choices]
    assert len(said) > 30
    assert all(words.count("(") == words.count(")") for words in said)


def test_curves_that_come_along_are_those_of_the_models_that_come_along():
    (smollm2,) = (one for one in known_curves() if one["key"] == "smollm2-135m")
    np.testing.assert_allclose(smollm2["mass"], measured_influence(load_measurement(SMOLLM2)).mass, rtol=6e-5)
    assert {one["key"] for one in known_curves()} == {"smollm2-135m", *bundled()}
    for one in known_curves():
        assert sum(one["mass"]) == pytest.approx(1, abs=1e-4)


@pytest.mark.slow
def test_a_curve_that_comes_along_is_measured_again():
    (kept,) = (one for one in known_curves() if one["key"] == "tiny-nope")
    again = measured_influence(measure("tiny-nope", tokens=256, prompts=32))
    np.testing.assert_allclose(kept["mass"], again.mass, rtol=1e-3)
