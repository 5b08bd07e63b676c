"""Log-probabilities from a server: how likely given endings are behind a prompt, of a model that is not opened.

    scorer = scorer_of(Endpoint("http://localhost:8000/v1", "smollm2", api="completion"))    # None: it gives none
    log_probabilities, greedy = scorer.score("The capital of France is", [" Paris", " Rome"])

Two ways are known. With `echo` a server of completions returns every token of prompt and ending with its own
log-probability: endings of any length, one request each. Else the alternatives to the first token of the answer
(`top_logprobs`) hold those endings that are one token, all in one request; what is not among them has a bound.
Servers drop parameters without a word (llama.cpp's issue 27174: `echo` returns the generated tokens alone), so
what comes back is counted.
"""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool

from posbias.asking.endpoint import Endpoint
from posbias.asking.requests import Scores
from posbias.core.errors import ModelError, shortened, wrong

log = logging.getLogger(__name__)
PROBE = "One, two, three, four, five, six, seven, eight,"
"""What a server is asked to find out what it gives."""
_TRIED: dict[str, tuple[dict[str, Any], ...]] = {
    "completion": ({"echo": True, "logprobs": 1}, {"logprobs": 20}, {"logprobs": 5}),
    "chat": ({"logprobs": True, "top_logprobs": 20}, {"logprobs": True, "top_logprobs": 5}),
}
"""By api, the parameters that are tried, in this order: some servers refuse more than 5 alternatives."""
_ROUNDING = 1e-6
"""The least that is left to tokens that are not listed: probabilities of float32 do not sum to 1 exactly."""


class _Token(NamedTuple):
    """A token of a reply, its log-probability, and the alternatives to it with theirs, in nats."""

    text: str
    own: float
    others: list[tuple[str, float]]


@dataclass(frozen=True)
class ServerScorer:
    """A server that scores endings; `parameters` are what it is asked with besides the prompt.

    It samples at temperature 1, which changes no log-probability; what it writes is not used.
    """

    endpoint: Endpoint
    parameters: Mapping[str, Any]

    @property
    def url(self) -> str:
        """The address of the server."""
        return self.endpoint.url

    @property
    def asked_of(self) -> dict[str, Any]:
        """What decides the scores apart from prompt and endings."""
        return self.endpoint.asked_of | {"temperature": 1, **self.parameters}

    @property
    def echoes(self) -> bool:
        """Whether endings of any length have their log-probability: there are no bounds then."""
        return "echo" in self.parameters

    def score(self, prompt: str, endings: Sequence[str]) -> Scores:
        """The scores of some endings behind a prompt, bounds among them. Raises as `bounded`."""
        return self.bounded(prompt, endings)[:2]

    def bounded(self, prompt: str, endings: Sequence[str]) -> tuple[*Scores, Bool[np.ndarray, "ending"]]:
        """The scores of some endings, and whether each is but an upper bound.

        Greedy decoding is not known to write an ending that has a bound. Raises `ModelError` as
        `Endpoint.choice`, and where what comes back does not hold the prompt or has no log-probabilities.
        """
        if not self.echoes:
            tokens = _tokens(self._reply(prompt))
            if not _answers(tokens):
                got = f"none to {shortened(prompt)}"
                raise wrong("endpoint", "top_logprobs of an answer", got=got, kind=ModelError)
            scored = [_first(tokens[0], ending, self.endpoint.api == "chat") for ending in endings]
        else:
            # text and ending are tokenised together: where tokens straddle the joint, they belong to the ending
            spans = [self._echoed(prompt, ending) for ending in endings]
            alike = zip(*([token.text for token in tokens] for tokens, _, _ in spans), strict=False)
            shared = next((k for k, texts in enumerate(alike) if len({*texts}) > 1), np.inf)
            begin = max(1, int(min(shared, *(first for _, first, _ in spans))))
            scored = [_all(tokens[begin:end]) for tokens, _, end in spans]
        own, greedy, bounds = (np.array(column) for column in zip(*scored, strict=True))
        if not np.isfinite(own).all():
            raise ModelError(f"endpoint: expected log-probabilities, got {shortened(own.tolist())}")
        return own, greedy, bounds

    def _reply(self, prompt: str) -> dict[str, Any]:
        return self.endpoint.choice(prompt, temperature=1, **self.parameters)

    def _echoed(self, prompt: str, ending: str) -> tuple[list[_Token], int, int]:
        """All tokens of prompt and ending, the first that has a part of the ending, and the one behind it."""
        choice = self._reply(prompt + ending)
        tokens, written = _tokens(choice), str(choice.get("text")).removeprefix(prompt + ending)
        # a token may be a part of a character, which no text holds: what stands behind the last of those counts
        known = re.split(r"[^\x00-\x7f]", prompt)[-1]
        text = "".join(token.text for token in tokens)
        begin = text.rfind(known + ending + written)
        if begin < 0 or not known:
            raise ModelError(f"endpoint: expected tokens that hold the prompt, got {shortened(text)}")
        begin += len(known)
        ends = np.cumsum([len(token.text) for token in tokens])
        first, last = np.searchsorted(ends, (begin, begin + len(ending) - 1), "right").tolist()
        return tokens, first, last + 1


def scorer_of(endpoint: Endpoint) -> ServerScorer | None:
    """A scorer of what a server gives, found out by counting what comes back; None where it gives nothing.

    What was found is logged. A server that refuses the parameters is asked with others, then left.
    """
    said = "it drops them without a word"
    asked = replace(endpoint, most_out=1, retries=min(1, endpoint.retries))
    for parameters in _TRIED[endpoint.api]:
        try:
            choice = asked.choice(PROBE, temperature=int("echo" not in parameters), **parameters)
        except ModelError as error:
            said = str(error).removeprefix("endpoint: ")
            continue
        tokens = _tokens(choice)
        whole = _echoes(tokens, str(choice.get("text")))
        if whole if "echo" in parameters else _answers(tokens):
            what = "of every token" if whole else f"of {len(tokens[0].others)} first tokens of an answer"
            log.info("%s gives log-probabilities %s", endpoint.model, what)
            return ServerScorer(replace(endpoint, most_out=1), parameters)
    log.warning("%s gives no log-probabilities (%s): answers in words are used", endpoint.model, said)
    return None


def _echoes(tokens: Sequence[_Token], text: str) -> bool:
    """Whether tokens rebuild the probe and what greedy decoding wrote behind it, which is the likeliest there, and
    each but the first has a log-probability and an alternative.

    Else each token may have what is known of the next one: llama-cpp-python does so where prompts get no token
    for their beginning.
    """
    scored = all(np.isfinite(token.own) and token.others for token in tokens[1:])
    whole = PROBE in text and not text.endswith(PROBE) and text in "".join(token.text for token in tokens)
    return len(tokens) > 2 and scored and whole and _all(tokens[-1:])[1]


def _answers(tokens: Sequence[_Token]) -> bool:
    """Whether the first token has alternatives besides itself."""
    return bool(tokens) and len(tokens[0].others) > 1


def _tokens(choice: Mapping[str, Any]) -> list[_Token]:
    """The tokens in a reply, in the form of chats or of completions; none where it has no log-probabilities."""
    held = choice.get("logprobs") or {}
    try:
        if content := held.get("content"):
            rows = [(one["token"], one["logprob"], one["top_logprobs"]) for one in content]
            rows = [(*row, [(one["token"], one["logprob"]) for one in others]) for *row, others in rows]
        else:
            columns = (held[name] for name in ("tokens", "token_logprobs", "top_logprobs"))
            rows = [(*row, [*(others or {}).items()]) for *row, others in zip(*columns, strict=True)]
        return [_Token(text, np.nan if own is None else float(own), others) for text, own, others in rows]
    except (ValueError, LookupError, TypeError, AttributeError):
        return []


def _all(tokens: Sequence[_Token]) -> tuple[float, bool, bool]:
    """The score of an ending's tokens, whether each is the likeliest, and that it is no bound."""
    likeliest = all(token.own >= max(held for _, held in token.others) for token in tokens)
    return sum(token.own for token in tokens), likeliest, False


def _first(token: _Token, ending: str, chat: bool) -> tuple[float, bool, bool]:
    """The score of an ending by the alternatives to the first token, whether it is the likeliest, and but a bound.

    A reply in a chat begins anew, so that white space before it does not count.
    """
    listed = {token.text: token.own} | dict(token.others)
    words = [(text.strip(), held) for text, held in listed.items()] if chat else [*listed.items()]
    wanted = ending.strip() if chat else ending
    if own := [held for text, held in words if text == wanted]:
        return float(np.logaddexp.reduce(own)), max(own) >= max(listed.values()), False
    # what was drawn may be less likely than tokens that are not listed
    least = min((held for text, held in token.others if text != token.text), default=np.inf)
    rest = np.log(max(_ROUNDING, 1.0 - np.exp([*listed.values()]).sum()))
    begun = [held for text, held in words if text and wanted.startswith(text)]
    return float(max(min(least, rest), *begun)) if begun else float(min(least, rest)), False, True
