"""What servers of log-probabilities send: of a model in memory, in the form of each, with what each leaves out."""

import itertools
import json
from typing import Any

import torch


def answers_of(loaded: Any, how: str):
    """What `http_servers.serving` takes. `how` is what it does with echo and log-probabilities.

    echo: gives every token. shifted: each with what is known of the next one, as llama-cpp-python does where
    prompts get no token for their beginning. generated: the generated one alone, without a word (llama.cpp's issue
    27174). refused: a request with echo is an error. content: as chats do, also for completions. dropped: gives
    none.
    """

    def answer(number: int, body: dict[str, Any]):
        if how == "refused" and body.get("echo"):
            return "status", 400, {}, b'{"error": {"message": "Only no echo is allowed"}}'
        prompt = body["messages"][-1]["content"] if "messages" in body else body["prompt"]
        tokens = _tokens(loaded, prompt, body.get("top_logprobs") or body.get("logprobs") or 1, body)
        echo = how in ("echo", "shifted") and body.get("echo")
        tokens, text = (tokens, prompt + tokens[-1][0]) if echo else (tokens[-1:], tokens[-1][0])
        if echo and how == "shifted":
            rest = [(one[0], *after[1:]) for one, after in itertools.pairwise(tokens[1:])]
            tokens = [tokens[0], *rest]
        choice: dict[str, Any] = {"text": text, "message": {"content": text}, "finish_reason": "length"}
        if "messages" in body or how == "content":
            listed = [
                [{"token": t, "logprob": p} for t, p in (others or {}).items()] for *_, others in tokens
            ]
            content = [
                {"token": text, "logprob": own, "top_logprobs": others}
                for (text, own, _), others in zip(tokens, listed, strict=True)
            ]
            choice["logprobs"] = {"content": content}
        else:
            names = ("tokens", "token_logprobs", "top_logprobs")
            choice["logprobs"] = dict(zip(names, map(list, zip(*tokens, strict=True)), strict=True))
        if how == "dropped":
            del choice["logprobs"]
        return "bytes", json.dumps({"choices": [choice]}).encode()

    return answer


@torch.no_grad()
def _tokens(
    loaded: Any, prompt: str, most: int, body: Any
) -> list[tuple[str, float | None, dict[str, float] | None]]:
    """Text, log-probability and alternatives of each token of a prompt, and of one behind it."""
    ids = loaded.tokenizer(prompt)["input_ids"]
    known = loaded.model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
    # a server draws: what it draws may be none of the likeliest
    ids = [*ids, int(known[-1].argmax() if body.get("temperature") == 0 else known[-1].argmin())]
    rows: list[Any] = [(loaded.tokenizer.decode(ids[:1]), None, None)]
    for row, token in zip(known, ids[1:], strict=True):
        top = {loaded.tokenizer.decode([k]): float(row[k]) for k in row.topk(most).indices.tolist()}
        text = loaded.tokenizer.decode([token])
        rows.append((text, float(row[token]), top | {text: float(row[token])}))
    return rows
