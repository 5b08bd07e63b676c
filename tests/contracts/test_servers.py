"""What servers really reply: thoughts, parts, streams, refusals, errors; other parameters; keys and proxies."""

import gzip
import json

import pytest
from http_servers import prompt_of, serving
from readers import reads

from posbias.asking import AnswerFile, Endpoint, Place, Request, read_answers
from posbias.asking import endpoint as module
from posbias.core.errors import InvalidValueError, ModelError
from posbias.core.matching import CutOff, Refused, ToolCall
from posbias.retrieval import ask, retrieval_job

JOB = retrieval_job("keys", pairs=4, positions=3, prompts=3)


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """No key and no pause."""
    monkeypatch.delenv(module.KEY, raising=False)
    monkeypatch.setattr(module.time, "sleep", lambda seconds: None)


def reply(message, reason="stop"):
    return ("bytes", json.dumps({"choices": [{"message": message, "finish_reason": reason}]}).encode())


def stream(*pieces, api="chat", end="data: [DONE]\n\n"):
    """Server-sent events, as they come whether asked for or not."""
    choices = [{"delta": {"content": piece}} if api == "chat" else {"text": piece} for piece in pieces]
    choices += [
        {"delta": {}, "finish_reason": "stop"} if api == "chat" else {"text": "", "finish_reason": "stop"}
    ]
    lines = [f"data: {json.dumps({'choices': [choice]}, ensure_ascii=False)}\n\n" for choice in choices]
    return (
        "bytes",
        (": hello\n\n" + "".join(lines) + 'data: {"choices": [], "usage": {}}\n\n' + end).encode(),
    )


def answered(action, api="chat", **about):
    with serving(lambda number, body: action) as server:
        return Endpoint(server.url, "m", api=api, **about)("?")


THINKING = {"type": "thinking", "thinking": [{"type": "text", "text": "chair"}]}


@pytest.mark.parametrize(
    ("action", "said", "kind"),
    [
        ("<think>chair</think>\n\nlamp", "lamp", str),
        ("chair</think>lamp", "lamp", str),
        ("<think>chair", "", CutOff),
        (reply({"content": "lamp", "reasoning_content": "chair"}), "lamp", str),
        (reply({"content": None, "reasoning": "chair"}, "length"), "", CutOff),
        (reply({"content": [THINKING, {"type": "text", "text": "lamp"}]}), "lamp", str),
        (reply({"content": [THINKING]}), "", CutOff),
        (reply({"content": "The"}, "max_tokens"), "The", CutOff),
        (reply({"content": ""}, "MAX_TOKENS"), "", CutOff),
        (reply({"content": None, "refusal": "I cannot."}), "I cannot.", Refused),
        (reply({"content": ""}, "content_filter"), "", Refused),
        (reply({"content": "Sorry"}, "SAFETY"), "Sorry", Refused),
        (reply({"content": None, "tool_calls": [{"id": "1"}]}, "tool_calls"), "", ToolCall),
        (("status", 400, {}, b'{"error": {"code": "content_filter"}}'), "", Refused),
        (("status", 400, {}, b'{"error": {"message": "Content Exists Risk"}}'), "", Refused),
        (("status", 400, {}, b"Input data may contain inappropriate content."), "", Refused),
        (("status", 400, {}, b"litellm.ContentPolicyViolationError: AzureException"), "", Refused),
        (("status", 400, {}, b"Invalid prompt: your prompt was flagged"), "", Refused),
        (("status", 403, {}, b"o3 requires moderation. Your input was flagged for violence"), "", Refused),
        (("status", 400, {}, b"Could not finish the message because max_tokens was reached"), "", CutOff),
        (("bytes", gzip.compress(reply({"content": "lamp"})[1], mtime=0)), "lamp", str),
        (("status", 400, {}, gzip.compress(b"Content Exists Risk", mtime=0)), "", Refused),
        (stream("la", "mp\u2028"), "lamp\u2028", str),
        (stream("<think>chair", "</think>", "lamp", end=""), "lamp", str),
        (("bytes", b'\xef\xbb\xbf{"choices": [{"message": {"content": "lamp"}}]}'), "lamp", str),
        (("bytes", b'{"message": {"content": "lamp"}, "done_reason": "length"}'), "lamp", CutOff),
    ],
    ids=lambda part: str(part)[:50],
)
def test_an_answer_is_what_was_said_and_as_what_it_ended(tmp_path, action, said, kind):
    found = answered(action)
    assert (found, type(found)) == (said, kind)
    request = Request(0, Place("position", 0), "?")
    AnswerFile(tmp_path / "a.jsonl", {}).add(request, found)
    for kept in (AnswerFile(tmp_path / "a.jsonl", {}).known, read_answers(tmp_path / "a.jsonl")):
        assert (kept[request.id], type(kept[request.id])) == (said, kind)


def test_a_text_that_is_continued_streams_too():
    assert answered(stream("la", "mp", api="completion"), api="completion") == "lamp"


def test_kept_thoughts_are_not_scored(tmp_path):
    path, rows = tmp_path / "a.jsonl", []
    for k, answer in enumerate(
        ("<think>chair</think>lamp", [THINKING, {"type": "text", "text": "lamp"}], "[THINK]a")
    ):
        rows.append({"id": str(k), "answer": answer})
    path.write_text(
        "\n".join(map(json.dumps, [*rows, {"id": "0", "answer": "lamp", "finish_reason": "stop"}]))
    )
    found = read_answers(path)
    assert found == {"0": "lamp", "1": "lamp", "2": ""}
    assert isinstance(found["2"], CutOff)


@pytest.mark.parametrize(
    "error",
    [
        {"choices": None, "error": {"message": "Provider returned error", "code": 429}},
        {"error": "Provider returned error"},
        {"choices": [{"error": {"message": "Provider returned error"}, "message": {"content": ""}}]},
        {"choices": [{"finish_reason": "error", "message": {"content": ""}}]},
        {"choices": []},
        {"code": 500, "msg": "Provider returned error", "success": False},
    ],
)
def test_an_error_in_a_success_is_tried_again_and_said(error):
    content = json.dumps(error).encode()
    with serving(lambda number, body: ("bytes", content) if number == 1 else "lamp") as server:
        assert Endpoint(server.url, "m")("?") == "lamp"
    words = "Provider returned error|error in HTTP 200: error|choices"
    with pytest.raises(ModelError, match=words):
        answered(("bytes", content), retries=0)


def test_a_model_that_declines_has_no_curve_and_more_tokens_are_not_advised(caplog):
    for action, words in (
        (reply({"content": "", "refusal": "No."}), "refused"),
        (reply({"content": ""}, "tool_calls"), "tool"),
    ):
        caplog.clear()
        with serving(lambda number, body, action=action: action) as server:
            curve = ask(Endpoint(server.url, "m"), JOB)
        assert (curve.verdict, curve.able, curve.cut_off) == ("inconclusive", False, [0, 0, 0])
        assert f"9 of 9 answers: {words}" in caplog.text.replace("a tool", "tool")
        assert not any("--answer-tokens" in line for line in curve.sentences())


def test_a_model_that_thinks_has_the_curve_of_its_answers():
    with serving(
        lambda number, body: f"<think>It is not {reads(prompt_of(body))}</think>{reads(prompt_of(body))}"
    ) as server:
        assert ask(Endpoint(server.url, "m"), JOB).curves["accuracy"][0].value == 1
    with serving(lambda number, body: f"<think>{reads(prompt_of(body))}</think>none") as server:
        assert ask(Endpoint(server.url, "m"), JOB).curves["accuracy"][0].value == 0


# ── what servers want ──


def wants(words, wrong):
    """A server that refuses a body with these words as long as `wrong(body)`."""
    content = json.dumps({"error": {"message": words}}).encode()
    return lambda number, body: ("status", 400, {}, content) if wrong(body) else "lamp"


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        ("Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead.",
         lambda body: body.get("max_completion_tokens") != 32 or "max_tokens" in body),
        ("'temperature' does not support 0 with this model. Only the default (1) value is supported.",
         lambda body: body.get("temperature") != 1),
        ("Model incompatible request argument supplied: temperature", lambda body: "temperature" in body),
        ("`temperature` must be strictly positive", lambda body: "temperature" in body),
        ("This model only support stream mode", lambda body: not body["stream"]),
    ],
)  # fmt: skip
def test_a_server_is_asked_as_it_wants_and_that_is_remembered_and_said_once(words, wrong, caplog):
    with serving(wants(words, wrong)) as server:
        endpoint = Endpoint(server.url, "m")
        assert [endpoint("?"), endpoint("!")] == ["lamp", "lamp"]
        assert len(server.asked) == 3
    assert len(caplog.records) == 1


def test_a_server_that_wants_two_things_or_cannot_be_satisfied(tmp_path, caplog):
    def answer(number, body):
        bad = next((name for name in ("max_tokens", "temperature") if name in body), None)
        return ("status", 400, {}, f"Unsupported parameter: '{bad}'".encode()) if bad else "lamp"

    with serving(answer) as server:
        answers = tmp_path / "answers.jsonl"
        curve = ask(Endpoint(server.url, "m"), JOB, concurrency=3, answers=answers)
        assert {len(body) for _, _, body in server.asked[-3:]} == {4}
        asked = len(server.asked)
        # what was really sent is known of the kept answers too, and they serve whoever asks the same
        assert ask(Endpoint(server.url, "m"), JOB, answers=answers) == curve
        assert len(server.asked) == asked
    assert len(caplog.records) == 2
    assert curve.prompts == 3
    assert curve.asked["temperature"] is None
    assert curve.asked["model"] == "m"
    for words in ("max_tokens is too large: 32", "temperature is not supported"):
        with serving(wants(words, lambda body: True)) as server, pytest.raises(ModelError, match=words):
            Endpoint(server.url, "m")("?")
        assert len(server.asked) <= 2


def test_an_address_may_have_a_query_or_be_whole_and_messages_leave_the_query_out():
    with serving(lambda number, body: "lamp") as server:
        for url in (
            f"{server.url}?api-version=1&k=hidden",
            f"{server.url}/chat/completions?api-version=1&k=hidden",
        ):
            assert Endpoint(url, "m")("?") == "lamp"
        assert {asked for asked, _, _ in server.asked} == {"/v1/chat/completions?api-version=1&k=hidden"}
    with pytest.raises(ModelError) as caught:
        Endpoint("http://127.0.0.1:1/v1?k=hidden", "m")("?")
    assert "hidden" not in str(caught.value)


# ── keys and proxies ──


def test_a_key_is_stripped_and_never_said(monkeypatch):
    monkeypatch.setenv(module.KEY, " sk-hidden\n")
    with serving(lambda number, body: ("status", 401, {}, b"no such key: sk-hidden")) as server:
        with pytest.raises(ModelError, match=r"no such key: \*\*\*") as caught:
            Endpoint(server.url, "m")("?")
        assert server.asked[0][1]["Authorization"] == "Bearer sk-hidden"
    assert "hidden" not in str(caught.value)
    with pytest.raises(ModelError) as caught:
        answered(("bytes", b'{"error": "bad key sk-hidden"}'), retries=0)
    assert "hidden" not in str(caught.value)
    for key in ("sk-hid\nden", "sk-hidden\u2026", "\ufeffsk-hidden"):
        with pytest.raises(InvalidValueError, match=r"^key: expected") as caught:
            Endpoint("http://localhost/v1", "m", key=key)
        assert "hid" not in str(caught.value)
    monkeypatch.setenv(module.KEY, "\n")
    assert Endpoint("http://localhost/v1", "m").key is None


@pytest.mark.parametrize("proxy", ["http://user:hidden@127.0.0.1:1", "127.0.0.1:1"])
def test_a_proxy_that_fails_is_named_without_its_password(proxy, monkeypatch):
    monkeypatch.setenv("http_proxy", proxy)
    monkeypatch.delenv("no_proxy", raising=False)
    with pytest.raises(ModelError, match=r"proxy .*127\.0\.0\.1:1") as caught:
        Endpoint("http://server.invalid/v1", "m")("?")
    assert "hidden" not in str(caught.value)
    with serving(lambda number, body: ("status", 502, {}, b"")) as server:
        monkeypatch.setenv("http_proxy", server.url.removesuffix("/v1"))
        with pytest.raises(ModelError, match=r"HTTP 502.*through the proxy"):
            Endpoint("http://server.invalid/v1", "m", retries=0)("?")
