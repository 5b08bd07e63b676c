"""Log-probabilities of a server: what it gives is found out by counting, and equals that of the opened model."""

import numpy as np
import pytest
from http_servers import serving
from scoring_server import answers_of

from posbias.asking import Endpoint, LocalModel, scorer_of
from posbias.core.errors import ModelError
from posbias.measurement import load_model

PROMPT = '{"Anna": "lamp", "Peter": "chair", "Anna": "'
WORDS = ["lamp", "chair", "lam", "umbrella"]


@pytest.fixture(scope="module")
def model():
    opened = LocalModel(load_model("tiny-alibi", tokens=64))
    opened.try_reuse([opened.split(PROMPT, WORDS)])
    return opened


def scorer(server, api="completion", **about):
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


@pytest.mark.parametrize("how", ["generated", "refused", "content"])
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
