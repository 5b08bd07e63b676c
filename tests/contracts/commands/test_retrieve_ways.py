"""`posbias retrieve` of one model in several ways: templates and system messages, over real connections."""

import json
import re
from pathlib import Path

import pytest
from answers import faults
from command import called
from http_servers import prompt_of, serving

import posbias
from posbias.core.errors import PosbiasError

LISTS = ("--positions", 3, "--wording", "json")
SMALL = (*LISTS, "--pairs", 6, "--prompts", 16)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def answer(number, body):
    """Reads the first two and the last two of a list in JSON; with the message to take care, all of it."""
    owner = re.findall(r'"([\w ]+)": "\s*$', prompt_of(body))[0]
    pairs = re.findall(r'"([\w ]+)": "([\w ]+)"', prompt_of(body))
    careful = body.get("messages", [{}])[0].get("content") == "Take care."
    return dict(pairs if careful else [*pairs[:2], *pairs[-2:]]).get(owner, "nobody knows")


def asked(server, *words):
    done = called("retrieve", "toy/model", "--endpoint", server.url, *words, "--json")
    assert done.returncode == 0, done.stderr
    reply = json.loads(done.stdout)
    assert not faults(reply)
    return reply, done.stderr


@pytest.mark.slow
def test_templates_and_system_messages_are_held_against_the_first_on_the_same_trials():
    ways = ("--api", "completion", "--api", "chat", "--system", "", "--system", "Take care.")
    with serving(answer) as server:
        reply, said = asked(server, *SMALL, *ways)
        assert len(server.asked) == 3 * 16 * 6
        again, _ = asked(server, *SMALL, *ways)
        assert len(server.asked) == 3 * 16 * 6
        turned, _ = asked(
            server,
            *SMALL,
            "--system",
            "Take care.",
            "--system",
            "",
            "--out",
            reply["ways"][0]["folder"] + "/..",
        )
        assert len(server.asked) == 3 * 16 * 6, "a way is known by what it is, not by its number"
    assert again == reply
    assert said.count("to ask: 96 requests") == 3
    assert [one["name"] for one in reply["ways"]] == ["completion", "chat", "chat, system message 1"]
    assert [one["asked"]["system"] for one in reply["ways"]] == [None, None, "Take care."]
    (template, careful), (back,) = reply["differences"][0], turned["differences"][0]
    assert template["verdict"] == "inconclusive"
    assert all(one["value"] == 0 for one in template["differences"].values())
    assert careful["verdict"] == "changes the bias"
    assert careful["differences"]["first - middle"]["value"] == -1
    assert careful["differences"]["mean"]["value"] == pytest.approx(1 / 3)
    assert back["differences"]["last - middle"]["value"] == 1
    assert reply["pictures"] == [f"results/model-ways-keys/retrieval.{kind}" for kind in ("svg", "png")]
    drawn = Path(reply["pictures"][0]).read_text()
    assert "chat, system message 1" in drawn, "the last ways that were asked"
    for one in reply["ways"]:
        alone = json.loads(Path(one["folder"], "retrieval.json").read_text())
        assert not faults({key: alone[key] for key in alone if key != "digest"})
        assert alone["curves"] == one["curves"]
        assert posbias.read(one["folder"]).mass.tolist() == [
            place["accuracy"]["value"] for place in one["curves"][0]["positions"]
        ]
    with pytest.raises(PosbiasError, match="expected the folder of one way to ask, got 'several ways'"):
        posbias.read("results/model-ways-keys")


def test_ways_to_ask_are_a_table_and_sentences():
    with serving(answer) as server:
        done = called(
            "retrieve", "toy", "--endpoint", server.url, *LISTS, "--sizes", "6,7", "--prompts", 16,
            "--system", "", "--system", "Take care.",
        )  # fmt: skip
    assert done.stdout.count("asked as") == 2
    assert re.search(
        r"^chat, system message 1 +1\.00 \[0\.\d\d, 1\.00\] .* at ceiling$", done.stdout, re.MULTILINE
    )
    assert "first - middle is smaller by -1.000" in done.stdout
    assert "chat, system message 1: 'Take care.'" in done.stdout
