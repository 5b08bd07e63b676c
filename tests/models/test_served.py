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
import tokenizers
import torch
import transformers

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
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate([*alphabet, "<end>"])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    sizes = {"vocab_size": 257, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 2, "max_position_embeddings": 512, "initializer_range": 0.5}
    with torch.random.fork_rng():
        torch.manual_seed(2)
        ends = dict.fromkeys(("eos_token_id", "pad_token_id", "bos_token_id"), 256)
        made = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, **ends))
    # bytes that begin no word and end no text, so that answers are plain text
    odd = [number for letter, number in vocabulary.items() if not letter.isascii() or not letter.isalpha()]
    made.lm_head.weight.data[odd] = 0
    place = tmp_path_factory.mktemp("models") / "bytes"
    made.save_pretrained(place)
    ends = {"eos_token": "<end>", "pad_token": "<end>", "chat_template": CHAT}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **ends).save_pretrained(place)
    return place


@pytest.fixture(scope="module")
def server(folder):
    """The address of `transformers serve` of the folder, once it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [sys.executable, "-m", "transformers.cli.transformers", "serve", str(folder)]
    words += ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    quiet = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1"}
    given = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(words, env=os.environ | quiet, **given)
    try:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        end = time.monotonic() + 240
        while True:
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < end, "the server does not answer"
            with contextlib.suppress(OSError), opener.open(f"http://127.0.0.1:{port}/health", timeout=5):
                break
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def writes(folder):
    """What the weights of the folder write behind a prompt or in a chat, token by token, each the likeliest."""
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
    endpoint = Endpoint(server, str(folder), api=api, system=system, most_out=TOKENS)
    curve = ask(endpoint, JOB, answers=tmp_path / "a.jsonl", asked_of=endpoint.asked_of, concurrency=2)
    prompts = requests(trials_of(JOB), JOB.prompts)
    expected = {one.id: writes(one.prompt, system, chat=api == "chat").strip() for one in prompts}
    assert len(set(expected.values())) > 3, "the answers differ, so that a mix-up would show"
    assert {key: text.strip() for key, text in read_answers(tmp_path / "a.jsonl").items()} == expected
    # replies in a chat that end with their tokens are cut off; a text that is continued has no other end
    assert (curve.able, curve.verdict) == (False, "inconclusive")


def test_a_model_that_the_server_has_not_is_refused(server):
    with pytest.raises(ModelError, match=r"^endpoint: "):
        Endpoint(server, "no-such-model", retries=0)("?")
