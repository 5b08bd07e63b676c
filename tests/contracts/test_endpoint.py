"""An endpoint over real connections on loopback: servers are slow, die, refuse, redirect and talk nonsense."""

import email.utils
import logging
import re
import socket
import threading
import time

import pytest
from http_servers import prompt_of, serving

from posbias.core.errors import InvalidValueError, ModelError
from posbias.retrieval import endpoint as module
from posbias.retrieval.answers import AnswerFile, Request, ask, read_answers
from posbias.retrieval.endpoint import Endpoint
from posbias.retrieval.scoring import CutOff
from posbias.retrieval.trials import retrieval_job

JOB = retrieval_job("keys", pairs=5, positions=3, prompts=4)


@pytest.fixture(autouse=True)
def pauses(monkeypatch):
    """The pauses that were asked for, none of them waited for, and no key from outside."""
    waited = []
    monkeypatch.setattr(module.time, "sleep", waited.append)
    monkeypatch.delenv(module.KEY, raising=False)
    return waited


def says_the_last(number, body):
    return re.findall(r'"[\w ]+": "([\w ]+)"', prompt_of(body))[-1]


@pytest.mark.parametrize(
    ("api", "path"), [("chat", "/v1/chat/completions"), ("completion", "/v1/completions")]
)
def test_a_server_answers_as_a_function_does(api, path):
    second = threading.Event()

    def beside_another(number, body):
        # the first waits for a second, which only comes while the first is open
        second.wait(30) if number == 1 else second.set()
        return says_the_last(number, body)

    with serving(beside_another) as server:
        curve = ask(Endpoint(server.url, "m", api=api), JOB, concurrency=3)
    alone = ask(lambda prompt: re.findall(r'"[\w ]+": "([\w ]+)"', prompt)[-1], JOB)
    assert (curve.answers.found == alone.answers.found).all()
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


def test_trouble_that_stays_is_an_error_in_one_line(pauses):
    with (
        serving(lambda number, body: ("status", 502, {}, b"bad\ngateway")) as server,
        pytest.raises(
            ModelError, match=r"^endpoint: http.* was asked 3 times: HTTP 502 Bad Gateway .*bad.*gateway.*$"
        ),
    ):
        Endpoint(server.url, "m", retries=2)("?")
    assert len(server.asked) == 3


@pytest.mark.parametrize("code", [401, 404])
def test_a_refusal_is_told_at_once(code, pauses):
    with (
        serving(lambda number, body: ("status", code, {}, b'{"error": "no such model"}')) as server,
        pytest.raises(ModelError, match=rf"HTTP {code} .*no such model"),
    ):
        Endpoint(server.url, "m")("?")
    assert (len(server.asked), pauses) == (1, [])


def test_a_server_that_says_when_is_asked_then_but_not_in_a_year(pauses):
    waits = ["7", "31536000", email.utils.formatdate(time.time() + 30, usegmt=True), "nonsense"]

    def answer(number, body):
        return ("status", 429, {"Retry-After": waits[number - 1]}, b"") if number <= 4 else "fine"

    with serving(answer) as server:
        assert Endpoint(server.url, "m")("?") == "fine"
    assert pauses[:2] == [7, 60]
    assert 25 < pauses[2] <= 30
    assert pauses[3] == 8


def test_a_slow_server_is_given_up_after_the_timeout():
    import threading

    def slow(number, body):
        # the handler's own clock, not the one that the test has stopped
        threading.Event().wait(1.5)
        return "late"

    with serving(slow) as server, pytest.raises(ModelError, match="no answer in time"):
        Endpoint(server.url, "m", timeout=0.3, retries=0)("?")


def test_nobody_at_the_address_is_an_error(pauses):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(ModelError, match=r"expected a server at http://127.* refused \(tried 2 times\)"):
        Endpoint(f"http://127.0.0.1:{port}/v1", "m")("?")
    assert pauses == [0.5], "refused before any answer: within 3 s"
    with pytest.raises(ModelError, match=r"expected a server at https://no-such-host.invalid/v1"):
        Endpoint("https://no-such-host.invalid/v1", "m", retries=0)("?")


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
    request = Request(0, "placed", 0, "?")
    AnswerFile(tmp_path / "a.jsonl", {}).add(request, found)
    assert isinstance(AnswerFile(tmp_path / "a.jsonl", {}).known[request.id], CutOff) is cut
    assert isinstance(read_answers(tmp_path / "a.jsonl")[request.id], CutOff) is cut


@pytest.mark.parametrize(
    "url",
    ["", "localhost:8000", "ftp://h/v1", "http://", "http://h:0/v1", "http://h:99999/v1", "http://u:p@h/v1",
     "http://h/v1?a=b", "http://h/v1#a", "http://hö/v1", "file:///etc/passwd"],
)  # fmt: skip
def test_what_is_no_address_is_refused(url):
    with pytest.raises(InvalidValueError, match="endpoint"):
        Endpoint(url, "m")


def test_other_bad_settings_are_refused():
    url = "http://localhost/v1"
    for settings, named in (
        ({"model": ""}, "model"), ({"system": "x", "api": "completion"}, "system"), ({"most_out": 0}, "most_out"),
        ({"timeout": 0.0}, "timeout"), ({"retries": -1}, "retries"),
    ):  # fmt: skip
        with pytest.raises(InvalidValueError, match=named):
            Endpoint(**({"url": url, "model": "m"} | settings))


def test_a_key_that_would_go_unencrypted_over_a_network_is_warned_of(monkeypatch, caplog):
    monkeypatch.setenv(module.KEY, "secret")
    with caplog.at_level(logging.WARNING, "posbias"):
        Endpoint("https://example.org/v1", "m")
        Endpoint("http://localhost:8000/v1", "m")
        assert not caplog.records
        Endpoint("http://example.org/v1", "m")
    assert "without encryption" in caplog.text
    assert "secret" not in caplog.text
