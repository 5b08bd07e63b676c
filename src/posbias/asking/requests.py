"""Requests: a prompt and the place that it is about, who can be asked, and what asking takes.

A `Writer` answers a prompt in words: a server, a function, a file of answers, a model here. A `Scorer` says how
likely given endings are: a model here. A `Request` carries every task: its place says whether a fact stands at a
position, an option in a slot or under a label, or whether it is a control arm.
"""

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.pool import ThreadPool
from typing import Any, Literal, Protocol

import numpy as np
from jaxtyping import Bool, Float

from posbias.core.errors import ModelError, shortened, wrong
from posbias.core.matching import TOKENS_A_WORD, words_in

Scores = tuple[Float[np.ndarray, "ending"], Bool[np.ndarray, "ending"]]
"""Of each ending: the log-probability of all its tokens, in nats, and whether greedy decoding writes it."""


class Writer(Protocol):
    """Who answers a prompt in words."""

    def write(self, prompt: str) -> str:
        """The answer to a prompt; a `CutOff` where its tokens ran out."""
        ...


class Scorer(Protocol):
    """Who says how likely endings are."""

    def score(self, prompt: str, endings: Sequence[str]) -> Scores:
        """The scores of some endings behind a prompt."""
        ...


class ScoresWritten:
    """A scorer as a writer: its answer has, as JSON, log-probabilities of the endings of a prompt, whether greedy
    decoding writes them, and which are but upper bounds.

    `parts`: of prompts whose pieces' influence on the likeliest ending is written too (`LocalModel.influence`).
    """

    def __init__(
        self, scorer: Any, endings: Mapping[str, Sequence[str]], parts: Mapping[str, "PromptParts"] = {}
    ):
        self._scorer, self._endings, self._parts = scorer, endings, parts
        self.url = getattr(scorer, "url", None)

    def write(self, prompt: str) -> str:
        """The scores of the endings of `prompt`."""
        if (reader := getattr(self._scorer, "reader", None)) is not None:
            reader.forget()  # whether a run is resumed here must not show in any bit
        own, *rest = getattr(self._scorer, "bounded", self._scorer.score)(prompt, self._endings[prompt])
        rows = [own, *rest, np.zeros_like(own)][:3]
        if prompt in self._parts:
            rows.append(self._scorer.influence(self._parts[prompt], self._endings[prompt][own.argmax()]))
        return json.dumps([row.astype(float).tolist() for row in rows])


Generator = Writer | Callable[[str], str]
"""What answers a prompt: a `Writer`, or a function from prompt to text."""


TURN = re.compile(r"\n+(?=(?:System|User|Assistant):)")
"""What parts the turns of a conversation."""


class Transcript(str):
    """A prompt of several turns, each behind its role; the last one, "Assistant:", opens the answer."""


def messages_of(prompt: str, system: str | None = None) -> list[dict[str, str]]:
    """A prompt as messages of a chat: a user's, or those of a `Transcript`; `system` goes before them."""
    turns = [("user", prompt)]
    if isinstance(prompt, Transcript):
        parts = (turn.partition(":") for turn in TURN.split(prompt))
        turns = [(role.lower(), text.strip()) for role, _, text in parts if text.strip()]
    if system is not None and turns[0][0] == "system":
        turns[0] = ("system", f"{system}\n\n{turns[0][1]}")
    elif system is not None:
        turns.insert(0, ("system", system))
    return [{"role": role, "content": text} for role, text in turns]


def specification_of(generator: Any) -> dict[str, Any]:
    """What decides answers apart from prompts, as the generator says it; empty where it says nothing."""
    return dict(getattr(generator, "asked_of", {}))


@dataclass(frozen=True)
class Place:
    """Where what a request is about stands: a position or slot by number, a label, or a control arm by name.

    control: a position, where something else is asked for.
    """

    kind: Literal["position", "control", "slot", "label", "order", "arm"]
    at: int | str


@dataclass(frozen=True)
class PromptParts:
    """What a prompt is made of: `text` is the prompt.

    `opening`: what stands first. `pieces`: facts, documents or options in their order. `question`: what is asked
    behind them. `reply`: what begins the answer. `join` makes one text of pieces, `wrap` puts all but the reply
    into a chat template, where there is one.
    """

    opening: str
    pieces: tuple[str, ...]
    question: str
    reply: str = ""
    join: Callable[[Sequence[str]], str] = "".join
    wrap: Callable[[str], str] = str

    @property
    def body(self) -> str:
        """Opening, pieces and question."""
        return self.opening + self.join(self.pieces) + self.question

    @property
    def text(self) -> str:
        """The prompt."""
        wrapped = self.wrap(self.body)
        return wrapped + self.reply if self.reply else wrapped


@dataclass(frozen=True)
class Request:
    """A prompt to be answered: of which trial, and at which place."""

    trial: int
    place: Place
    prompt: str
    again: int = 0

    @property
    def id(self) -> str:
        """Sixteen hexadecimal digits of the prompt: equal prompts are asked once, unless `again` counts them."""
        return f"{id_of(self.prompt)}-{self.again}" if self.again else id_of(self.prompt)

    def line(self, **answer: Any) -> str:
        """The line of a file, without an answer or with one."""
        about = {name: held for name, held in asdict(self).items() if name != "again" or held}
        return json_line({"id": self.id, **about, **answer})


def id_of(prompt: str) -> str:
    """The id of a prompt."""
    return hashlib.sha256(prompt.encode(errors="surrogatepass")).hexdigest()[:16]


def json_line(row: Mapping[str, Any]) -> str:
    """A line of a file of requests or answers."""
    return json.dumps(row, ensure_ascii=True) + "\n"


@dataclass(frozen=True)
class RequestCost:
    """What is to be asked: requests, words and marks of punctuation in them, tokens that come back at most."""

    requests: int
    words_in: int
    most_out: int | None

    def __str__(self) -> str:
        out = "" if self.most_out is None else f", at most {self.most_out:,} tokens out"
        tokens = f"{self.words_in * TOKENS_A_WORD:,.0f} tokens in ({TOKENS_A_WORD} a word)"
        return f"{self.requests:,} requests, about {tokens}{out}"


def cost(asked: Iterable[Request], known: Mapping[str, str], most_out: int | None = None) -> RequestCost:
    """What asking takes, less what is `known`; `most_out`: tokens of an answer at most."""
    left = {one.id: one.prompt for one in asked if one.id not in known}
    words = sum(words_in(prompt) for prompt in left.values())
    return RequestCost(len(left), words, None if most_out is None else most_out * len(left))


def each_answer(
    generator: Generator, asked: Sequence[Request], concurrency: int
) -> Iterator[tuple[Request, str]]:
    """Requests with their answers, as they come; `concurrency` threads call the generator (1: this one does).

    After an error no further request begins; those under way are waited for and yielded, then it is raised. After
    an interruption nothing is waited for. Raises `ModelError` where the generator returns no text,
    `InvalidValueError` where it is none.
    """
    stopped, errors = threading.Event(), list[BaseException]()
    write: Any = getattr(generator, "write", generator)
    if not callable(write):
        raise wrong("generator", "a function from prompt to text, or what has `write`", generator)

    def answer(request: Request) -> str | None:
        if stopped.is_set():
            return None
        try:
            text = write(request.prompt)
            if not isinstance(text, str):
                raise ModelError(f"generator: expected a text, got {shortened(text)}")
            return text
        except BaseException as error:
            stopped.set()
            errors.append(error)
            return None

    if concurrency == 1 or len(asked) < 2:
        for request in asked:
            if (text := answer(request)) is not None:
                yield request, text
    else:
        # its threads are daemons: what waits for a server does not keep an interrupted process
        with ThreadPool(min(concurrency, len(asked))) as pool:
            try:
                pairs = pool.imap_unordered(lambda request: (request, answer(request)), asked)
                yield from ((request, text) for request, text in pairs if text is not None)
            finally:
                stopped.set()
    if errors:
        raise errors[0]
