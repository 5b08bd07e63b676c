"""`posbias retrieve` of a model that is only asked, over real connections: files, answers, kills, wrong input."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from answers import faults
from command import called
from http_servers import prompt_of, serving

from posbias.retrieval.answers import Request

POSBIAS = Path(sys.executable).with_name("posbias")
LISTS = ("--pairs", 6, "--positions", 3, "--wording", "json")
SMALL = (*LISTS, "--prompts", 8)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    return tmp_path


def reads(prompt):
    """Reads the first two and the last two of a list in JSON."""
    owner = re.findall(r'"([\w ]+)": "\s*$', prompt)[0]
    pairs = re.findall(r'"([\w ]+)": "([\w ]+)"', prompt)
    return dict([*pairs[:2], *pairs[-2:]]).get(owner, "nobody knows")


def answer(number, body):
    return reads(prompt_of(body))


def asked(server, *words, model="toy/model"):
    done = called("retrieve", model, "--endpoint", server.url, *words, "--json")
    assert done.returncode == 0, done.stderr
    reply = json.loads(done.stdout)
    assert not faults(reply)
    return reply, done.stderr


def lines(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def test_a_server_is_asked_once_and_everything_is_kept():
    with serving(answer) as server:
        reply, said = asked(server, *SMALL, "--api", "completion")
        assert len(server.asked) == 8 * 6
        assert server.most_together <= 4
        again, said_again = asked(server, *SMALL, "--api", "completion")
        assert len(server.asked) == 8 * 6
        more, _ = asked(server, *LISTS, "--api", "completion", "--prompts", 10)
        assert len(server.asked) == 10 * 6
    folder = Path("results/model-completion-keys")
    assert reply["file"] == str(folder / "answers.jsonl")
    assert {path.name for path in folder.iterdir()} == {
        "answers.jsonl", "retrieval.json", "retrieval.png", "retrieval.svg",
    }  # fmt: skip
    assert again == reply
    assert json.loads((folder / "retrieval.json").read_text())["curves"] == more["curves"]
    assert "48 requests" in said
    assert "nothing" in said_again
    curve = reply["curves"][0]
    assert [place["accuracy"]["value"] for place in curve["positions"]] == [1, 0, 1]
    assert (curve["verdict"], curve["chance"]) == ("U", pytest.approx(1 / 6))


def test_prompts_are_written_answered_by_somebody_and_read():
    done = called("retrieve", "--write-prompts", "prompts.jsonl", *SMALL, "--json")
    reply = json.loads(done.stdout)
    assert not faults(reply)
    rows = lines("prompts.jsonl")
    assert reply["prompts"] == len(rows) == 48
    Path("answers.jsonl").write_text(
        "".join(json.dumps({"id": row["id"], "answer": reads(row["prompt"])}) + "\n" for row in rows)
    )
    read = called("retrieve", "--answers", "answers.jsonl", *SMALL, "--json", "--out", "there")
    reply = json.loads(read.stdout)
    assert not faults(reply)
    assert reply["asked"]["model"] == "answers of answers.jsonl"
    with serving(answer) as server:
        served, _ = asked(server, *SMALL)
    assert reply["curves"][0]["positions"] == served["curves"][0]["positions"]
    left_out = called("retrieve", "--answers", "answers.jsonl", *LISTS, "--prompts", 9)
    assert left_out.returncode == 2


def test_documents_of_ones_own_a_system_message_and_a_chat():
    """The form of Liu et al. 2023; the server knows what stands in the first document alone."""
    with Path("sets.jsonl").open("w") as file:
        for k in range(12):
            entries = [
                {"title": f"T{j}", "text": f"text {k}.{j}", "isgold": j == 1, "hasanswer": j == 1}
                for j in range(5)
            ]
            json.dump({"question": f"what is {k}?", "answers": [f"text {k}.1"], "ctxs": entries}, file)
            file.write("\n")

    def first_document(number, body):
        return "It is " + re.findall(r"\) (.*)", prompt_of(body))[0]

    with serving(first_document) as server:
        reply, _ = asked(server, "--trials", "sets.jsonl", "--positions", 3, "--system", "Answer.")
    curve = reply["curves"][0]
    job = ("task", "pairs", "length", "wording", "positions", "prompts", "seed")
    assert tuple(curve["job"][key] for key in job) == ("documents", None, None, "chat", 3, 12, 0)
    assert [place["accuracy"]["value"] for place in curve["positions"]] == [1, 0, 0]
    assert (curve["rule"], curve["verdict"]) == ("contains", "primacy")
    assert server.asked[0][2]["messages"][0] == {"role": "system", "content": "Answer."}
    assert reply["file"] == "results/model-chat-system-documents/answers.jsonl"


def test_of_several_gold_documents_the_moved_one_and_all_are_counted():
    """The server reads the first two documents; the second gold one keeps its place."""
    row = {"documents": [f"It is w{k}." for k in range(6)], "gold": [0, 3], "answers": [["w0"], ["w3"]]}
    Path("sets.jsonl").write_text(
        "".join(json.dumps({"question": f"what {k}?"} | row) + "\n" for k in range(20))
    )

    def first_two(number, body):
        return " ".join(re.findall(r"It is (w\d)", prompt_of(body))[:2])

    words = ("--trials", "sets.jsonl", "--positions", 3)
    with serving(first_two) as server:
        reply, _ = asked(server, *words)
        said = called("retrieve", "toy/model", "--endpoint", server.url, *words)
    places = reply["curves"][0]["positions"]
    assert [place["accuracy"]["value"] for place in places] == [1, 0, 0]
    assert 0 < places[0]["all_found"]["value"] < 0.6, "where the second is next to it"
    assert [place["all_found"]["value"] for place in places[1:]] == [0, 0]
    assert "position  place  found              all found" in said.stdout


def test_several_sizes_are_a_map_and_asking_stops_when_it_is_known():
    with serving(answer) as server:
        reply, _ = asked(
            server, "--sizes", "4,8", "--wording", "json", "--positions", 3, "--prompts", 60, "--until", 0.12
        )
    assert [curve["job"]["pairs"] for curve in reply["curves"]] == [4, 8]
    for curve in reply["curves"]:
        assert curve["half_width"] <= 0.12
        assert 32 <= curve["prompts"] < 60
    assert Path(reply["pictures"][1]).read_bytes().startswith(b"\x89PNG")
    drawn = Path(reply["pictures"][0]).read_text()
    assert "pairs" in drawn


def test_another_system_message_does_not_go_on_in_the_same_file():
    with serving(answer) as server:
        asked(server, *SMALL, "--out", "one")
        before = Path("one/answers.jsonl").read_bytes()
        done = called(
            "retrieve", "toy/model", "--endpoint", server.url, *SMALL, "--out", "one", "--system", "x"
        )
    assert done.returncode == 2
    assert "one/answers.jsonl" in done.stderr
    assert Path("one/answers.jsonl").read_bytes() == before


@pytest.mark.waits
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_what_was_answered_before_a_kill_is_not_asked_again(how):
    with serving(lambda number, body: ("late", 0.03, reads(prompt_of(body)))) as server:
        words = [
            "retrieve",
            "toy",
            "--endpoint",
            server.url,
            *map(str, LISTS),
            "--prompts",
            "30",
            "--out",
            "r",
        ]
        process = subprocess.Popen([POSBIAS, *words], stderr=subprocess.PIPE, text=True)
        end = time.monotonic() + 60
        while len(server.asked) < 40 and time.monotonic() < end and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(how)
        said = process.communicate(timeout=30)[1]
        if how == signal.SIGINT:
            assert process.returncode == 130, said
            assert re.search(r"interrupted: \d+ of 180 prompts are kept", said)
        kept = Path("r/answers.jsonl").read_bytes()
        whole = kept[: kept.rfind(b"\n") + 1].splitlines()[1:]
        assert 30 <= len(whole) < 180
    # a server of its own at the same address: what the killed one had sent may still arrive at the first
    with serving(lambda _, body: reads(prompt_of(body)), port=int(server.url.split(":")[2][:-3])) as second:
        done = called(*words, "--json")
        assert done.returncode == 0, done.stderr
        assert len(second.asked) == 180 - len(whole)
    with serving(answer) as server:
        plain = called("retrieve", "toy", "--endpoint", server.url, *LISTS, "--prompts", 30, "--json")
    assert json.loads(done.stdout)["curves"] == json.loads(plain.stdout)["curves"]


BAD = """
--answers a --endpoint URL | answers
--write-prompts a --endpoint URL | write_prompts
--system x | system
--endpoint URL | model
m --endpoint localhost:80 | endpoint
m --endpoint URL --dtype float16 | dtype
m --endpoint URL --threads 2 | threads
m --endpoint URL --sizes 4,5 --pairs 4 | pairs
m --endpoint URL --concurrency 0 | concurrency
m --endpoint URL --system x --api completion | system
m --endpoint URL --until 2 | until
m --endpoint URL --system x --system x | system
m --endpoint URL --system x --system '' --until .1 | until
m --endpoint URL --text x.txt | text
m --endpoint URL --rerun | --out
--answers missing.jsonl | missing.jsonl
--write-prompts p.jsonl --task needle --length 9 | length
"""


@pytest.mark.parametrize("line", BAD.strip().splitlines())
def test_bad_input_is_one_clear_line_and_leaves_nothing(line, here):
    words, named = line.split(" | ")
    done = called("retrieve", *shlex.split(words.replace("URL", "http://localhost/v1")))
    assert done.returncode == 2
    assert named in done.stderr
    assert done.stderr.count("\n") == 1
    assert not [path for path in here.rglob("*") if path.is_file()]


def test_a_server_that_refuses_leaves_no_folder(here):
    with serving(
        lambda number, body: ("status", 401, {}, b'{"error": {"message": "no such key"}}')
    ) as server:
        done = called("retrieve", "m", "--endpoint", server.url, *SMALL, "-q")
    assert done.returncode == 2
    assert "no such key" in done.stderr
    assert not list(here.iterdir())


def test_a_refusal_in_between_says_what_is_kept():
    def tired(number, body):
        return (
            ("status", 401, {}, b'{"error": {"message": "quota"}}') if number > 20 else answer(number, body)
        )

    with serving(tired) as server:
        done = called("retrieve", "m", "--endpoint", server.url, *SMALL, "-q")
    assert done.returncode == 2
    assert len(lines("results/m-chat-keys/answers.jsonl")) >= 20


def test_no_server_is_one_clear_line(monkeypatch):
    import socket

    from posbias.retrieval import endpoint

    monkeypatch.setattr(endpoint.time, "sleep", lambda seconds: None)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    done = called("retrieve", "m", "--endpoint", f"http://127.0.0.1:{port}/v1", *SMALL, "-q")
    assert done.returncode == 2
    assert f"expected a server at http://127.0.0.1:{port}/v1, got " in done.stderr.splitlines()[-1]


def test_the_key_is_written_nowhere(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "very-secret")
    with serving(answer) as server:
        asked(server, *SMALL)
        assert server.asked[0][1]["Authorization"] == "Bearer very-secret"
    for path in Path().rglob("*"):
        assert not path.is_file() or b"very-secret" not in path.read_bytes()
    assert os.environ["OPENAI_API_KEY"] == "very-secret"


def own_questions():
    """60 questions, each with one document of ten that holds the answer."""
    for k in range(60):
        row = {
            "question": f"where is {k}?",
            "documents": [f"It is at w{k}x."],
            "gold": 0,
            "answers": [f"w{k}x"],
        }
        row["documents"] += [f"Report {j}: nothing." for j in range(9)]
        yield json.dumps(row) + "\n"


def finds(rate):
    """Finds what stands at a place (from 0; None alone) with this rate, by a draw of the prompt's own."""

    def answer(number, body):
        prompt = prompt_of(body)
        listed = re.findall(r"Document \[\d+\] (.*)", prompt)
        place = next((k for k, text in enumerate(listed) if text.startswith("It is at")), None)
        if place is None or int(Request(0, "", None, prompt).id, 16) / 2**64 >= rate(
            place if len(listed) > 1 else None
        ):
            return ("reason", "stop", "I do not know.")
        return ("reason", "stop", re.findall(r"w\d+x", listed[place])[0])

    return answer


def reasons(number, body):
    """Thinks aloud before it answers, for 40 tokens."""
    if body["max_tokens"] < 64:
        return ("reason", "length", "Let me look at each of the documents in turn" if number % 2 else None)
    return finds(lambda place: 1.0)(number, body)


@pytest.mark.parametrize(
    ("server", "verdict"),
    [
        (finds(lambda place: 0.9 if place in (None, 8, 9) else 0.4), "recency"),
        (finds(lambda place: 1.0), "at ceiling"),
        (reasons, "inconclusive"),
    ],
    ids=["recency", "ceiling", "cut off"],
)
def test_sixty_questions_and_a_server_of_ones_own(here, server, verdict):
    (here / "q.jsonl").write_text("".join(own_questions()))
    words = ("--trials", "q.jsonl", "--positions", 10)
    with serving(server) as running:
        reply, _ = asked(running, *words)
        again = called("retrieve", "toy/model", "--endpoint", running.url, *words)
        more, _ = asked(running, *words, "--answer-tokens", 64) if server is reasons else (reply, "")
    (curve,) = reply["curves"]
    assert (curve["verdict"], curve["job"]["positions"]) == (verdict, 10)
    found = np.array(curve["found"])
    gap = (found[:, -1] - found[:, 1:-1].mean(axis=1)).mean()
    assert curve["differences"]["last - middle"]["value"] == pytest.approx(gap)
    assert curve["answer"][-1] in again.stdout
    assert more["curves"][0]["verdict"] == ("at ceiling" if server is reasons else verdict)
