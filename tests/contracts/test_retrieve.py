"""`posbias retrieve` over real connections: servers that are slow, die, refuse, redirect; kept answers."""

import json
import signal
import threading
from pathlib import Path

import pytest
from answers import folder  # noqa: F401
from command import called, started
from http_servers import prompt_of, serving
from piecework import wait_for
from readers import reads_both_ends, says_the_last

from posbias.asking import AnswerFile, Endpoint, Place, Request, read_answers
from posbias.asking import endpoint as module
from posbias.core.errors import ModelError
from posbias.core.matching import CutOff
from posbias.retrieval import ask, retrieval_job

JOB = retrieval_job("keys", pairs=5, positions=3, prompts=4)


@pytest.fixture
def pauses(monkeypatch):
    """The pauses that were asked for, none of them waited for."""
    waited = []
    monkeypatch.setattr(module.time, "sleep", waited.append)
    return waited


@pytest.mark.parametrize(
    ("api", "path"), [("chat", "/v1/chat/completions"), ("completion", "/v1/completions")]
)
def test_a_server_answers_as_a_function_does(api, path):
    second = threading.Event()

    def beside_another(number, body):
        # the first waits for a second, which only comes while the first is open
        second.wait(30) if number == 1 else second.set()
        return says_the_last(prompt_of(body))

    with serving(beside_another) as server:
        curve = ask(Endpoint(server.url, "m", api=api), JOB, concurrency=3)
    alone = ask(says_the_last, JOB)
    assert (curve.results["accuracy"] == alone.results["accuracy"]).all()
    assert curve.overall == alone.overall
    assert len(server.asked) == 4 * 6
    assert 2 <= server.most_together <= 3
    for asked, headers, body in server.asked:
        assert asked == path
        assert "Authorization" not in headers
        assert (body["model"], body["temperature"], body["max_tokens"], body["stream"]) == ("m", 0, 32, False)


def test_a_system_message_goes_before_the_question_and_the_key_beside_it(monkeypatch):
    monkeypatch.setenv(module.KEY, "secret")
    with serving(lambda number, body: "yes") as server:
        asked = Endpoint(f"{server.url}/", "m", system="Be short.")
        assert asked("Well?") == "yes"
    _, headers, body = server.asked[0]
    assert body["messages"] == [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "Well?"},
    ]
    assert headers["Authorization"] == "Bearer secret"
    assert "secret" not in repr(asked)
    assert "secret" not in str(asked.asked_of)


@pytest.mark.parametrize(
    "trouble",
    [
        ("status", 500, {}, b"oh"), ("status", 429, {}, b""), "cut", "reset",
        ("bytes", b"<html>"), ("bytes", b'{"choices": [{"message": {"content": 3}}]}'),
    ],
    ids=lambda one: str(one)[:40],
)  # fmt: skip
def test_what_may_pass_is_tried_again_after_growing_pauses(trouble, pauses):
    with serving(lambda number, body: trouble if number < 4 else "fine") as server:
        assert Endpoint(server.url, "m")("?") == "fine"
    assert len(server.asked) == 4
    assert pauses == [1, 2, 4]


def test_a_server_that_says_when_is_asked_then_but_not_in_a_year(pauses):
    waits = ["7", "31536000", "nonsense"]

    def answer(number, body):
        return ("status", 429, {"Retry-After": waits[number - 1]}, b"") if number <= 3 else "fine"

    with serving(answer) as server:
        assert Endpoint(server.url, "m")("?") == "fine"
    assert pauses == [7, 60, 4]


@pytest.mark.parametrize("code", [401, 404])
def test_a_refusal_ends_it_with_the_servers_words(code, pauses):
    with (
        serving(lambda number, body: ("status", code, {}, b'{"error": "no such model"}')) as server,
        pytest.raises(ModelError, match=rf"HTTP {code} .*no such model"),
    ):
        Endpoint(server.url, "m")("?")
    assert (len(server.asked), pauses) == (1, [])


def test_nobody_at_the_address_or_no_answer_in_time_is_an_error(pauses, monkeypatch):
    closed = "http://127.0.0.1:1/v1"
    with pytest.raises(ModelError, match=r"^endpoint: .*refused \(tried 2 times\)"):
        Endpoint(closed, "m")("?")
    assert pauses == [0.5]
    silent = threading.Event()
    with serving(lambda number, body: silent.wait(20) and "late") as server:
        with pytest.raises(ModelError, match=r"no answer in time \(tried 2 times\)"):
            Endpoint(server.url, "m", timeout=0.2, retries=1)("?")
        silent.set()
    # a server that fails twice, then is gone
    with serving(lambda number, body: ("status", 503, {}, b"")) as server:
        asked = Endpoint(server.url, "m")
        gone = lambda pause: pause == 2 and object.__setattr__(asked, "url", closed)  # noqa: E731
        monkeypatch.setattr(module.time, "sleep", gone)
        with pytest.raises(ModelError, match=r"^endpoint: .*refused \(tried 3 times\)"):
            asked("?")


def test_redirections_are_refused_and_proxies_are_those_of_the_environment(monkeypatch):
    with serving(lambda number, body: "elsewhere") as other:
        moved = ("status", 307, {"Location": f"{other.url}/chat/completions"}, b"")
        with (
            serving(lambda number, body: moved) as server,
            pytest.raises(ModelError, match=r"HTTP 307 .*not followed"),
        ):
            Endpoint(server.url, "m")("?")
        assert other.asked == []
        monkeypatch.setenv("http_proxy", other.url.removesuffix("/v1"))
        with serving(lambda number, body: "here") as server:
            monkeypatch.setenv("no_proxy", "127.0.0.1")
            assert Endpoint(server.url, "m")("?") == "here"
            monkeypatch.delenv("no_proxy")
            assert Endpoint(server.url, "m")("?") == "elsewhere"


@pytest.mark.parametrize(
    ("api", "text", "reason", "cut"),
    [
        ("chat", None, "stop", True), ("chat", " ", None, True), ("chat", "The", "length", True),
        ("chat", "The lamp.", "stop", False), ("completion", "The lamp and", "length", False),
        ("completion", "", "stop", False),
    ],
)  # fmt: skip
def test_an_answer_that_was_cut_off_is_known_as_such_and_kept_so(tmp_path, api, text, reason, cut):
    with serving(lambda number, body: ("reason", reason, text)) as server:
        found = Endpoint(server.url, "m", api=api)("?")
    assert (found, isinstance(found, CutOff)) == (text or "", cut)
    request = Request(0, Place("position", 0), "?")
    AnswerFile(tmp_path / "a.jsonl", {}).add(request, found)
    assert isinstance(AnswerFile(tmp_path / "a.jsonl", {}).known[request.id], CutOff) is cut
    assert isinstance(read_answers(tmp_path / "a.jsonl")[request.id], CutOff) is cut


LISTS = ("--pairs", 6, "--positions", 3, "--wording", "json")


@pytest.fixture(autouse=True)
def no_key(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.mark.waits
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_what_was_answered_before_a_kill_is_not_asked_again(how):
    with serving(lambda number, body: ("late", 0.03, reads_both_ends(prompt_of(body)))) as server:
        words = ("retrieve", "toy", "--endpoint", server.url, *LISTS, "--prompts", 30, "--out", "r", "--json")
        process = started(*words)
        wait_for(lambda: len(server.asked) >= 40 or process.poll() is not None)
        process.send_signal(how)
        process.communicate(timeout=30)
        assert process.returncode == (130 if how == signal.SIGINT else -how)
        kept = Path("r/answers.jsonl").read_bytes()
        whole = kept[: kept.rfind(b"\n") + 1].splitlines()[1:]
        assert 30 <= len(whole) < 180
    # a server of its own at the same address: what the killed one had sent may still arrive at the first
    with serving(
        lambda _, body: reads_both_ends(prompt_of(body)), port=int(server.url.split(":")[2][:-3])
    ) as second:
        done = called(*words)
        assert len(second.asked) == 180 - len(whole)
        plain = called(*words[:-2], "plain", "--json")
    assert json.loads(done.stdout)["curves"] == json.loads(plain.stdout)["curves"]
