"""Log-probabilities of a server: what it gives is found out by counting, and equals that of the opened model."""

import contextlib
import json
import socket
import subprocess
from typing import Any

import numpy as np
import pytest
from answers import faults
from command import called
from http_servers import serving
from project import ROOT
from scoring_server import answers_of
from tiny import llama, write_gguf

from posbias.asking import AnswerFile, Endpoint, LocalModel, scorer_of
from posbias.core.errors import InvalidValueError, ModelError
from posbias.measurement import load_model
from posbias.retrieval import Session, retrieval_job

PROMPT = '{"Anna": "lamp", "Peter": "chair", "Anna": "'
WORDS = ["lamp", "chair", "lam", "umbrella"]


@pytest.fixture(scope="module")
def model():
    opened = LocalModel(load_model("tiny-alibi", tokens=64))
    opened.try_reuse([opened.split(PROMPT, WORDS)])
    return opened


def scorer(server, api: Any = "completion", **about) -> Any:
    return scorer_of(Endpoint(server.url, "m", api=api, retries=0, **about))


@pytest.mark.parametrize("prompt", [PROMPT, "Où 😀? The capital of France is", "The"])
def test_an_echo_gives_what_the_opened_model_gives(model, prompt):
    with serving(answers_of(model.loaded, "echo")) as server:
        found = scorer(server)
        assert found.echoes
        assert len(server.asked) == 1
        own, greedy, bounds = found.bounded(prompt, [*WORDS, " a"])
        assert len(server.asked) == 6
    expected, written = model.score(prompt, [*WORDS, " a"])
    np.testing.assert_allclose(own - own[0], expected - expected[0], rtol=0, atol=1e-3)
    np.testing.assert_allclose(own, expected, rtol=0, atol=1e-3)
    assert (greedy.tolist(), bounds.any()) == (written.tolist(), False)


@pytest.mark.parametrize("how", ["generated", "refused", "content", "shifted"])
@pytest.mark.parametrize("api", ["completion", "chat"])
def test_of_first_tokens_those_listed_are_exact_and_all_else_is_bounded(model, how, api):
    ids = model.loaded.tokenizer(PROMPT)["input_ids"]
    ranked = [
        model.loaded.tokenizer.decode([k]) for k in model.reader.following(ids).argsort(descending=True)
    ]
    # words alone: a chat leaves out white space before a reply
    words = [one for one in ranked if one.isalpha()]
    endings = [words[0], ranked[0], words[0] + "ffff", words[-1], "umbrella"]
    with serving(answers_of(model.loaded, how)) as server:
        found = scorer(server, api)
        assert not found.echoes
        asked = len(server.asked)
        own, greedy, bounds = found.bounded(PROMPT, endings)
        assert len(server.asked) == asked + 1
    exact, written = model.score(PROMPT, endings)
    listed = [one.strip() if api == "chat" else one for one in ranked[:20]]
    known = [(one.strip() if api == "chat" else one) in listed for one in endings]
    assert known[1]
    assert not all(known)
    assert (~bounds).tolist() == known
    if api == "completion":
        np.testing.assert_allclose(own[~bounds], exact[~bounds], rtol=0, atol=1e-3)
        assert greedy[1]
    assert (own[bounds] >= exact[bounds] - 1e-6).all()
    assert (greedy <= written).all()


def test_a_server_that_drops_them_is_said_to_and_has_no_scorer(model, caplog):
    for api in ("completion", "chat"):
        with serving(answers_of(model.loaded, "dropped")) as server:
            assert scorer(server, api) is None
    assert "drops them without a word" in caplog.text
    with serving(lambda number, body: ("status", 422, {}, b"logprobs: not permitted")) as server:
        assert scorer(server) is None
    assert "not permitted" in caplog.text


def test_a_server_that_changes_its_mind_is_an_error(model):
    how = ["echo", "generated"]
    with serving(lambda number, body: answers_of(model.loaded, how[number > 1])(number, body)) as server:
        found = scorer(server)
        with pytest.raises(ModelError, match="tokens that hold the prompt"):
            found.score(PROMPT, WORDS)


def margins(who, job, answers=None, **how):
    session = Session((job,), equivalence=None, margins=True, **how)
    return session.ask(who, job, AnswerFile(answers, who.asked_of), lambda event: None)


def test_margins_behind_a_server_are_those_of_the_opened_model(model):
    job = retrieval_job("keys", pairs=4, positions=3, prompts=2)
    with serving(answers_of(model.loaded, "echo")) as server:
        found = margins(scorer(server), job, concurrency=2)
        assert len(server.asked) == 1 + 2 * 2 * 3 * 4
    expected = margins(model, job)
    assert found.verdict == expected.verdict
    assert not found.results["bounded"].any()
    for name, held in expected.results.items():
        np.testing.assert_allclose(found.results[name], held, rtol=0, atol=1e-3)


def test_bounded_margins_are_counted_and_have_no_verdict(model, tmp_path):
    job = retrieval_job("keys", pairs=4, positions=3, prompts=2)
    with serving(answers_of(model.loaded, "generated")) as server:
        kept = [margins(scorer(server), job, tmp_path / "a.jsonl") for _ in range(2)]
        assert len(server.asked) == 2 + 12 + 2
    assert kept[0] == kept[1]
    assert (kept[0].verdict, kept[0].able) == ("inconclusive", False)
    assert "6 of 6 margins are bounds" in kept[0].verdict_in_words
    for task in ("documents", "rules"):
        with pytest.raises(InvalidValueError, match=r"^task: expected keys or needle"):
            margins(model, retrieval_job(task, positions=3, prompts=2))


@pytest.mark.parametrize(("how", "schema"), [("echo", "retrieve/1"), ("dropped", "retrieve-answers/1")])
def test_the_command_takes_what_the_server_gives(model, tmp_path, how, schema):
    line = [
        "retrieve",
        "m",
        "--api",
        "completion",
        "--pairs",
        "4",
        "--positions",
        "3",
        "--prompts",
        "2",
        "--logprobs",
        "--json",
    ]
    with serving(answers_of(model.loaded, how)) as server:
        answer = json.loads(called(*line, "--endpoint", server.url, "--out", str(tmp_path)).stdout)
    assert (answer["schema"], faults(answer)) == (schema, [])
    if how == "echo":
        assert (answer["bounded"], answer["positions"][0]["token"]) == (0, None)


@pytest.fixture(scope="module", params=[True, False])
def llama_server(request, tmp_path_factory):
    """A server of llama-cpp-python with a tiny model that is not quantised: its address, the model's file, and
    whether its prompts begin with a token of their own."""
    python = ROOT / ".venv-server/bin/python"
    if (
        not python.exists()
        or subprocess.run([python, "-c", "import llama_cpp.server.app"], check=False).returncode
    ):
        pytest.skip("llama-cpp-python is not built: make .venv-server/.tried")
    # token 288 is a space: byte-pair tokenizers have it as a letter
    tiny = llama(vocab_size=300, max_position_embeddings=256)
    tiny.lm_head.weight.data[94:288] *= 0.1  # parts of characters are hardly written
    begins = lambda writer: writer.add_add_bos_token(request.param)  # noqa: E731
    file = write_gguf(tiny, tmp_path_factory.mktemp("g") / "m.gguf", said=begins)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # keys and values in float32, as those of the opened model
    options = {"model": file, "port": port, "logits_all": True, "n_ctx": 256, "type_k": 0, "type_v": 0}
    words = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
    with subprocess.Popen([python, "-m", "llama_cpp.server", *words]) as process:
        while process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
        yield f"http://127.0.0.1:{port}/v1", file, request.param
        process.terminate()


@pytest.mark.slow
def test_llama_cpp_gives_what_the_opened_model_gives(llama_server):
    url, file, begins = llama_server
    opened = LocalModel(load_model(file, tokens=64))
    opened.try_reuse([opened.split(PROMPT, WORDS)])
    expected, written = opened.score(PROMPT, WORDS)
    found = scorer_of(Endpoint(url, "m", api="completion"))
    assert found is not None
    assert found.echoes == begins
    own, greedy, bounds = found.bounded(PROMPT, WORDS)
    np.testing.assert_allclose(own[~bounds], expected[~bounds], rtol=0, atol=1e-3)
    assert (own[bounds] >= expected[bounds]).all()
    assert (greedy <= written).all()
    chat = scorer_of(Endpoint(url, "m", api="chat"))
    assert chat is None or np.isfinite(chat.score(PROMPT, WORDS)[0]).all()
