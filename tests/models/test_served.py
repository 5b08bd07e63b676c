"""Retrieval asked of a real server: `transformers serve` on loopback, with a tiny random model that reads bytes.

What comes over the wire is held against what the same weights write here, greedily, token by token. The packages
of the extra `serving` are needed; where they are not installed, these tests are skipped.
"""

import contextlib
import importlib.util
import os
import socket
import subprocess
import sys
import time
import urllib.request

import pytest
import torch

from posbias.core.errors import ModelError
from posbias.retrieval.answers import ask, read_answers, requests, trials_of
from posbias.retrieval.endpoint import Endpoint
from posbias.retrieval.trials import retrieval_job

_MISSING = [name for name in ("fastapi", "uvicorn", "openai") if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.waits,
    pytest.mark.skipif(
        bool(_MISSING), reason=f"{', '.join(_MISSING)} not installed: pip install 'posbias[serving]'"
    ),
]
JOB = retrieval_job("keys", pairs=4, positions=3, prompts=3)
TOKENS = 6
CHAT = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<reply>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A random Llama of two layers with a tokenizer of bytes and a chat template."""
    import tokenizers
    import transformers

    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.BPE({c: k for k, c in enumerate([*alphabet, "<end>"])}, [])
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    with torch.random.fork_rng():
        torch.manual_seed(2)
        config = transformers.LlamaConfig(
            vocab_size=257, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
            max_position_embeddings=512, initializer_range=0.5, eos_token_id=256, pad_token_id=256,
            bos_token_id=256,
        )  # fmt: skip
        made = transformers.LlamaForCausalLM(config)
        # bytes that begin no word and end no text, so that answers are plain text
        made.lm_head.weight.data[
            [k for k, c in enumerate(alphabet) if not c.isascii() or not c.isalpha()]
        ] = 0
        made.lm_head.weight.data[256] = 0
    place = tmp_path_factory.mktemp("models") / "bytes"
    made.save_pretrained(place)
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<end>", pad_token="<end>", chat_template=CHAT
    )
    fast.save_pretrained(place)
    return place


@contextlib.contextmanager
def served(folder, port=0):
    """`transformers serve` of a folder, once it answers: its address and process."""
    if not port:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
    words = ["serve", str(folder), "--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    quiet = {
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "DO_NOT_TRACK": "1",
        "OMP_NUM_THREADS": "1",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "transformers.cli.transformers", *words],
        env=os.environ | quiet, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        end = time.monotonic() + 240
        while True:
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < end, "the server does not answer"
            with contextlib.suppress(OSError), opener.open(f"http://127.0.0.1:{port}/health", timeout=5):
                break
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/v1", process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def server(folder):
    with served(folder) as (url, _):
        yield url


@pytest.fixture(scope="module")
def writes(folder):
    """What the weights of the folder write behind a prompt or in a chat, token by token, each the likeliest."""
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)

    def write(prompt, system=None, chat=False):
        if chat:
            turns = [{"role": "system", "content": system}] if system else []
            turns.append({"role": "user", "content": prompt})
            prompt = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
        begin = ids.shape[1]
        with torch.no_grad():
            for _ in range(TOKENS):
                ids = torch.cat([ids, model(ids).logits[:, -1:].argmax(-1)], dim=1)
        return tokenizer.decode(ids[0, begin:])

    return write


@pytest.mark.parametrize(("api", "system"), [("completion", None), ("chat", None), ("chat", "Be short.")])
def test_a_real_server_gives_what_the_weights_write(server, folder, writes, tmp_path, api, system):
    asked = Endpoint(server, str(folder), api=api, system=system, most_out=TOKENS)
    kept = tmp_path / "a.jsonl"
    curve = ask(asked, JOB, answers=kept, asked_of=asked.asked_of, concurrency=2)
    answers = read_answers(kept)
    prompts = requests(trials_of(JOB), JOB.prompts)
    expected = {one.id: writes(one.prompt, system, chat=api == "chat") for one in prompts}
    assert len(set(expected.values())) > 3, "the answers differ, so that a mix-up would show"
    assert {key: text.strip() for key, text in answers.items()} == {
        key: text.strip() for key, text in expected.items()
    }
    # replies in a chat that end with their tokens are cut off; a text that is continued has no other end
    assert (curve.able, curve.verdict) == (False, "inconclusive")


def test_a_server_that_is_killed_and_comes_back_is_asked_for_the_rest(folder, tmp_path, monkeypatch):
    from posbias.retrieval import endpoint

    kept = tmp_path / "a.jsonl"
    with served(folder) as (url, process):
        asked = Endpoint(url, str(folder), api="completion", most_out=TOKENS, retries=1)
        port = int(url.split(":")[2].split("/")[0])

        def dies_after_five(prompt):
            if kept.exists() and len(kept.read_text().splitlines()) == 6 and process.poll() is None:
                process.kill()
                process.wait()
            return asked(prompt)

        with monkeypatch.context() as patience:
            patience.setattr(endpoint.time, "sleep", lambda seconds: None)
            with pytest.raises(ModelError, match="was asked 2 times"):
                ask(dies_after_five, JOB, answers=kept, asked_of=asked.asked_of)
    before = read_answers(kept)
    assert len(before) == 5
    with served(folder, port) as (_, process):
        calls = []
        ask(
            lambda prompt: (calls.append(prompt), asked(prompt))[1],
            JOB,
            answers=kept,
            asked_of=asked.asked_of,
        )
    prompts = {one.id for one in requests(trials_of(JOB), JOB.prompts)}
    assert len(calls) == len(prompts) - 5
    assert before.items() <= read_answers(kept).items()


def test_a_model_that_the_server_has_not_is_named_in_one_line(server):
    with pytest.raises(
        ModelError, match=r"^endpoint: http\S+ (refused|was asked 1 times|was asked once): [^\n]*$"
    ):
        Endpoint(server, "no-such-model", retries=0)("?")
