"""Check: a gate that fails a build where position matters by more than a limit."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml
from command import called, started
from http_servers import prompt_of, serving
from piecework import wait_for
from planted import finds, questions
from project import ROOT

import posbias
from posbias.choice import Item
from posbias.testing import assert_position_robust


def gate(server, *words):
    return called("check", "rag", "--endpoint", server.url, "--trials", "mine.jsonl", *words)


def test_sixty_questions_pass_at_a_fifth_and_are_too_few_at_a_tenth(folder):
    """Exit 0, and 4 with the number that would do; what was asked for one is not asked for the other."""
    questions(60)
    with serving(finds((0.8, 0.8, 0.8))) as server:
        done = gate(server, "--max-gap", 0.2)
        assert (done.returncode, "no gap above 0.2" in done.stdout) == (0, True)
        assert "earlier runs" not in done.stdout
        asked = len(server.asked)
        done = gate(server, "--max-gap", 0.1, "--json")
        answer = json.loads(done.stdout)
        assert (done.returncode, answer["status"], answer["questions"]) == (4, 4, 60)
        assert answer["kept"] == asked
        assert any("are of earlier runs" in line for line in answer["answer"])
        assert 100 < answer["needed"] < 1000
        assert gate(server, "--max-gap", 0.1, "--undecided", "pass").returncode == 0
        assert gate(server).returncode == 4  # without a limit: the gaps
        assert gate(server, "--max-gap", 1.2).returncode == 2
        called("retrieve", "rag", "--endpoint", server.url, "--trials", "mine.jsonl")
        assert len(server.asked) == asked
    with serving(finds((0.8, 0.1, 0.8))) as other:  # a server of the same name elsewhere is asked itself
        assert gate(other, "--max-gap", 0.2, "--out", "results/other").returncode == 1
        assert "of this model elsewhere" in gate(other, "--max-gap", 0.2).stderr


def test_of_few_questions_no_gap_is_said_to_be_above_one(folder):
    questions(4)
    with serving(finds((0.9, 0.3, 0.9))) as server:
        gaps = json.loads(gate(server, "--max-gap", 0.1, "--json").stdout)["gaps"].values()
        assert max(gap["at_most"] for gap in gaps) == 1


def test_a_gap_above_fails_early_and_says_so_everywhere(answered):
    """One document of three is found half as often: not all questions are asked."""
    questions(200)
    with serving(finds((0.9, 0.3, 0.9))) as server:
        line = ("check", "rag", "--endpoint", server.url, "--trials", "mine.jsonl", "--out", "gate")
        done = called(*line, "--max-gap", 0.2)
        assert done.returncode == 1
        before = called(*line[:-1], "again", "--max-gap", 0.2, "--baseline", "gate/retrieval.json", "--json")
    assert before.returncode == 0
    assert json.loads(before.stdout)["paired"] is True
    kept = json.loads(Path("gate/retrieval.json").read_text())["content"]["curves"][0]
    assert kept["job"]["prompts"] < 200
    suite = ElementTree.fromstring(Path("gate/check.xml").read_text())
    assert (suite.get("failures"), len(suite.findall("testcase"))) == ("2", 3)
    assert "gap above 0.2" in Path("gate/check.md").read_text()


def test_the_action_of_the_page_ends_as_the_check_does_and_writes_its_summary(folder):
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    action = yaml.safe_load(re.search(r"```yaml\n(.+?)```", page, re.S)[1])
    step = action["runs"]["steps"][0]
    script = step["run"].removeprefix("pip install posbias\n")
    assert "pip" not in script
    questions(60)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for chances, limit, code in (
        ((0.9, 0.1, 0.9), "", 1),
        ((0.8, 0.8, 0.8), "0.2", 0),
        ((0.8,) * 3, "1.2", 2),
    ):
        Path(str(code)).mkdir()
        with serving(finds(chances)) as server:
            given = {"model": "rag", "endpoint": server.url, "trials": "../mine.jsonl", "max-gap": limit}
            inputs = {name: given[name] or of["default"] for name, of in action["inputs"].items()}
            filled = {
                name: re.sub(r"\${{ inputs\.(\S+) }}", lambda found, inputs=inputs: inputs[found[1]], cell)
                for name, cell in step["env"].items()
            }
            environment = os.environ | filled | {"PATH": path, "GITHUB_STEP_SUMMARY": "summary.md"}
            line = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script)
            done = subprocess.run(line, cwd=str(code), env=environment, capture_output=True)
            assert done.returncode == code, done.stderr
    assert "gap above 0.1" in Path("1/summary.md").read_text()
    assert "no gap above 0.2" in Path("0/summary.md").read_text()
    assert not Path("2/summary.md").exists()


def test_a_killed_check_resumes(folder):
    questions(40)
    plain = finds((1, 1, 1))

    def slowly(number, body):
        time.sleep(0.02)
        return plain(number, body)

    with serving(slowly) as server:
        line = ("check", "rag", "--endpoint", server.url, "--trials", "mine.jsonl", "--max-gap", "0.2")
        run = started(*line, cwd=folder)
        wait_for(lambda: len(server.asked) >= 30)
        os.kill(run.pid, signal.SIGKILL)
        run.communicate()
        lines = Path("results/rag-check/answers.jsonl").read_text().splitlines()[1:-1]
        kept, asked = {json.loads(line)["prompt"] for line in lines}, len(server.asked)
        assert called(*line).returncode == 0
        assert kept
        assert not kept & {prompt_of(body) for _, _, body in server.asked[asked:]}


def test_choices_that_flip(folder):
    """Whoever always says A flips with every order; who knows never does; who never chooses decides nothing."""
    items = [Item(f"Is {n} even?", (f"even {n}", f"odd {n}")) for n in range(60)]
    answer = posbias.check(lambda prompt: "A", items, 0.1)
    assert (answer.status, answer.gaps["flips"].value.value, answer.questions) == (1, 1, 15)
    assert answer.gaps["flips"].value.interval == pytest.approx((0.05 ** (1 / 15), 1))
    pairs = [Item(f"{n}", (f"even {n // 2}", f"odd {n // 2}")) for n in range(60)]  # two items a set
    random, said = np.random.default_rng(0), dict[str, str]()
    some = posbias.check(lambda prompt: said.setdefault(prompt, "AB"[random.integers(2)]), pairs, 0.6)
    assert (some.status, some.gaps["flips"].value.n) == (4, 30)
    assert (some.needed or 1) % 2 == 0
    rows = [{"question": one.question, "options": one.options} for one in items]
    Path("items.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, said, status in (("judge", "even ", 0), ("mute", "who knows ", 4)):
        with serving(
            lambda _, body, said=said: said + prompt_of(body).partition(" even?")[0][-2:].strip()
        ) as server:
            words = ("--endpoint", server.url, "--items", "items.jsonl", "--max-flip", 0.2)
            assert called("check", name, *words).returncode == status
    words = ("--items", "items.jsonl", "--max-flip", 0.2, "--baseline", "results/judge-check/decisions.json")
    with serving(lambda number, body: "A") as server:
        done = called("check", "other", "--endpoint", server.url, *words, "--json")
    assert (done.returncode, json.loads(done.stdout)["paired"]) == (1, True)


def test_a_gate_in_pytest(folder):
    """Who finds everything passes; who loses the middle does not; who never finds anything decides nothing."""
    questions(40)

    def asked(accuracies):
        server = finds(accuracies)
        return lambda prompt: server(0, {"prompt": prompt})

    assert_position_robust(asked((1, 1, 1)), "mine.jsonl", max_gap=0.2)
    for accuracies, said in (((1, 0, 1), "gap above"), ((0, 0, 0), "at chance")):
        with pytest.raises(AssertionError, match=said):
            assert_position_robust(asked(accuracies), "mine.jsonl", max_gap=0.2, folder=said)
    assert ElementTree.fromstring(Path("at chance/check.xml").read_text()).get("errors") == "3"
