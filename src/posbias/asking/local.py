"""A model that is opened here: how likely endings are behind a prompt, and what it writes.

One forward pass reads a prompt and gives the first token of every ending; a second one, over all endings together,
gives the rest. Keys and values of the tokens that a prompt shares with the one before it are kept: under a causal
mask they cannot depend on what follows, so nothing is approximated. That this holds for the model at hand, cache
and all, is tried on the first prompts (`LocalModel.try_reuse`), and plain passes are used where it does not.
"""

import copy
import inspect
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from posbias.asking.replies import answer_of
from posbias.asking.requests import PromptParts, Scores, messages_of
from posbias.core.errors import ModelError, wrong
from posbias.core.matching import CutOff
from posbias.measurement.models.loading import LoadedModel
from posbias.measurement.quantities.influence import gradients, predict


class LocalModel:
    """A loaded model that scores endings and writes answers; one thread at a time may ask it.

    `api`: chat puts a prompt into the tokenizer's chat template before the model writes; completion leaves it as
    it is. `special`: whether a prompt gets the special tokens that the tokenizer adds by itself. `most_out`:
    tokens of an answer at most. Decoding is greedy. Raises `ModelError` for hooks that no treatment names.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        *,
        api: Literal["chat", "completion"] = "completion",
        special: bool = True,
        most_out: int = 32,
    ):
        _ = loaded.treated  # hooks that no treatment names are refused now
        self.loaded, self.special, self.most_out = loaded, special, most_out
        self.api: Literal["chat", "completion"] = api
        self.reader, self._tried = Reader(loaded.model, reuse=False), 0

    @property
    def asked_of(self) -> dict[str, Any]:
        """What decides an answer apart from the prompt."""
        about = {"model": self.loaded.name, "checksum": self.loaded.checksum, **self.loaded.treated}
        return {**about, "api": self.api, "most_out": self.most_out, "temperature": 0}

    def score(self, prompt: str, endings: Sequence[str]) -> Scores:
        """The scores of some endings behind a prompt. Raises as `split` and `Reader.endings`."""
        asked = self.split(prompt, endings)
        if self._tried < min(2, max(map(len, asked[1]))):
            self.try_reuse([asked])
        return self.reader.endings(*asked)

    @torch.no_grad()
    def write(self, prompt: str) -> str:
        """What the model writes behind a prompt, without thoughts and special tokens.

        A `CutOff` of thoughts alone, and in a chat where its tokens ran out.

        Raises `InvalidValueError` where the context does not hold prompt and answer.
        """
        tokenizer, (text, special) = self.loaded.tokenizer, self.in_template(prompt)
        ids = tokenizer(text, add_special_tokens=special, verbose=False)["input_ids"]
        self._check(len(ids) + self.most_out)
        if not self._tried:
            self.try_reuse([(ids, [ids[-1:]])])
        own, written = getattr(self.loaded.model.config, "eos_token_id", None), []
        ends = {tokenizer.eos_token_id, *(own if isinstance(own, list) else [own])}
        for _ in range(self.most_out):
            token = int(self.reader.following([*ids, *written]).argmax())
            if token in ends:
                break
            written.append(token)
        # marks of thoughts may be special tokens: thoughts go before those do
        answer = answer_of(tokenizer.decode(written))
        text = str(answer)
        for token in tokenizer.added_tokens_decoder.values():
            text = text.replace(token.content, "") if token.special else text
        ran_out = self.api == "chat" and (len(written) == self.most_out or not text.strip())
        return CutOff(text) if ran_out or isinstance(answer, CutOff) else text

    def influence(self, prompt: PromptParts, ending: str) -> Float[np.ndarray, "piece"]:
        """The gradient influence of the pieces of a prompt on the first token of `ending`, by one more pass.

        That of a piece is the sum over tokens that begin in it (`influence_target` of a measurement); the
        tokenizer says where they begin. Pieces follow each other as they are. Raises as `split`.
        """
        text, special = prompt.text, self.special
        ids, ((target, *_),) = self.split(text, [ending])
        bounds = text.index(prompt.opening) + np.cumsum([len(prompt.opening), *map(len, prompt.pieces)])
        tokens = self.loaded.tokenizer(text, add_special_tokens=special, return_offsets_mapping=True)
        pieces = np.digitize([begin for begin, _ in tokens["offset_mapping"]], bounds)[: len(ids)]
        given = torch.tensor(ids)
        found = gradients(predict(self.loaded.model, given), given, ("target",), target)["influence_target"]
        return np.bincount(pieces, found[: len(pieces)], len(bounds) + 1)[1:-1]

    def in_template(self, prompt: str) -> tuple[str, bool]:
        """What the model reads before it writes, and whether special tokens are added to it."""
        if self.api == "completion":
            return prompt, self.special
        template = self.loaded.tokenizer.apply_chat_template
        return template(messages_of(prompt), tokenize=False, add_generation_prompt=True), False

    def try_reuse(self, asked: Sequence[tuple[list[int], list[list[int]]]]) -> None:
        """Read what prompts share once if that is exact on some prompts with their endings, as token ids.

        The first prompt is tried by itself, and the first whose endings have several tokens.
        """
        self.loaded.check_ids(max(max(*prompt, *map(max, endings)) for prompt, endings in asked))
        # two endings tell, the longest: a plain pass for each of many would take longer than a trial
        tried = [(prompt, sorted(endings, key=len)[-2:]) for prompt, endings in asked]
        reuse = reuse_is_exact(self.loaded.model, tried)
        self.reader = Reader(self.loaded.model, reuse=reuse)
        self._tried = min(2, max(len(ending) for _, endings in asked for ending in endings))

    def split(self, prompt: str, endings: Sequence[str]) -> tuple[list[int], list[list[int]]]:
        """Token ids of a prompt, and by ending the ids that follow it.

        Text and ending are tokenised together: where tokens straddle the joint, they belong to the ending. Raises
        `InvalidValueError` where the context does not hold them.
        """
        texts = [prompt, *(prompt + ending for ending in endings)]
        tokens = self.loaded.tokenizer(texts, add_special_tokens=self.special, verbose=False)
        alone, *whole = tokens["input_ids"]
        shared = common(alone, *whole)
        # one token at least is read, and one at least is scored
        shared = max(1, min(shared, *(len(ids) - 1 for ids in whole)))
        self._check(max(map(len, whole)))
        return whole[0][:shared], [ids[shared:] for ids in whole]

    def _check(self, tokens: int) -> None:
        context = self.loaded.context
        if context is not None and tokens > context:
            most = f"at most the {context} tokens of context of {self.loaded.name}"
            raise wrong("length", most, got=f"prompts of {tokens} with their answers")


# --- endings of prompts that begin alike ---------------------------------------------------------------------

_COPIES = 256 << 20
"""Bytes of keys and values that the endings of one pass may take together."""


class Reader:
    """Reads prompts with a causal language model (`transformers`, evaluation mode) and scores their endings.

    With `reuse`, what consecutive prompts share is read once.
    """

    def __init__(self, model: Any, *, reuse: bool = True):
        self._model, self.reuse = model, reuse
        known = inspect.signature(model.forward).parameters
        self._last_only = {"logits_to_keep": 1} if "logits_to_keep" in known else {}
        self.forget()

    def forget(self) -> None:
        """Start anew: the next prompt is read whole."""
        self._read: list[int] = []
        self._cache: Any = None

    @torch.no_grad()
    def endings(self, prompt: Sequence[int], endings: Sequence[Sequence[int]]) -> Scores:
        """Score `endings` (token ids, one or more each) behind `prompt` (token ids, one or more).

        Raises `ModelError` when the model's outputs are not finite.
        """
        if not self.reuse:
            return _scored([[self._plain(prompt, ending)] for ending in endings])
        first = self._first(list(prompt))
        scores = [[_own(first, ending[:1])] for ending in endings]
        if max(map(len, endings)) > 1:
            for parts, rest in zip(scores, self._rest(endings), strict=True):
                parts.append(rest)
        return _scored(scores)

    def following(self, prompt: Sequence[int]) -> Float[Tensor, "word"]:
        """The logits of the token behind `prompt`, with gradients where they are on."""
        if not self.reuse:
            return self._model(self._tensor([[*prompt]]), use_cache=False, **self._last_only).logits[0, -1]
        return self._first(list(prompt))[0]

    def _plain(self, prompt: Sequence[int], ending: Sequence[int]) -> tuple[float, bool]:
        """The score of one ending by one pass over all tokens."""
        ids = self._tensor([[*prompt, *ending]])
        return _own(self._model(ids, use_cache=False).logits[0, -len(ending) - 1 : -1], ending)

    def _first(self, prompt: list[int]) -> Float[Tensor, "one word"]:
        """Logits of what follows `prompt`, whose keys and values are then in the cache."""
        # the last token is read in any case: its output is what is wanted
        shared = min(common(self._read, prompt), len(prompt) - 1)
        if shared == 0:
            from transformers import DynamicCache

            # without a configuration every layer keeps all keys: windows are then the mask's matter
            self._cache = DynamicCache()
        elif shared < len(self._read):
            self._cache.crop(shared - len(self._read))
        # an interruption inside the pass must not leave half a cache believed in
        self._read = []
        rest = self._tensor([prompt[shared:]])
        logits = self._model(rest, past_key_values=self._cache, use_cache=True, **self._last_only).logits
        self._read = prompt
        return logits[0, -1:]

    def _rest(self, endings: Sequence[Sequence[int]]) -> Iterator[tuple[float, bool]]:
        """By ending, the score of its second and later tokens."""
        longest = max(map(len, endings))
        # shorter endings are filled up behind their last token, which nothing before it can see
        filled = [[*ending, *[ending[-1]] * (longest - len(ending))][:-1] for ending in endings]
        size = sum(layer.keys.nbytes + layer.values.nbytes for layer in self._cache.layers)
        step = max(1, _COPIES // max(1, size))
        for start in range(0, len(filled), step):
            some = self._tensor(filled[start : start + step])
            cache = copy.deepcopy(self._cache)
            cache.batch_repeat_interleave(len(some))
            logits = self._model(some, past_key_values=cache, use_cache=True).logits
            for row, ending in zip(logits, endings[start : start + step], strict=True):
                yield _own(row[: len(ending) - 1], ending[1:])

    def _tensor(self, ids: list[list[int]]) -> Tensor:
        return torch.tensor(ids, device=self._model.get_input_embeddings().weight.device)


def common(*rows: Sequence[int]) -> int:
    """Length of what sequences begin with in common."""
    return sum(1 for _ in takewhile(lambda ids: ids.count(ids[0]) == len(ids), zip(*rows, strict=False)))


def reuse_is_exact(model: Any, asked: Sequence[tuple[Sequence[int], Sequence[Sequence[int]]]]) -> bool:
    """Whether reading with a cache gives what plain passes give, tried on prompts with their endings.

    Equal to 1e-3 nats in float32, .1 in half precision. A model that has no cache of this kind is answered
    with False, not with an error.
    """
    tolerance = 1e-3 if model.dtype in (torch.float32, torch.float64) else 0.1
    plain, cached = Reader(model, reuse=False), Reader(model)
    for prompt, endings in asked:
        expected, _ = plain.endings(prompt, endings)
        try:
            found, _ = cached.endings(prompt, endings)
        except (AttributeError, LookupError, RuntimeError, TypeError, ValueError):
            return False
        if not np.allclose(found, expected, rtol=0, atol=tolerance):
            return False
    return True


def _own(logits: Float[Tensor, "token word"], ids: Sequence[int]) -> tuple[float, bool]:
    """Log-probability of `ids` at their places, summed in float64, and whether each is the most likely one."""
    own = torch.tensor(list(ids), device=logits.device)
    chosen = logits.double().log_softmax(dim=-1).gather(1, own[:, None])
    return float(chosen.sum()), bool((logits.argmax(dim=-1) == own).all())


def _scored(parts: Sequence[Sequence[tuple[float, bool]]]) -> Scores:
    """Endings from the scores of their parts."""
    total = np.array([sum(score for score, _ in ending) for ending in parts])
    if not np.isfinite(total).all():
        raise ModelError("model: its outputs are not finite")
    return total, np.array([all(hit for _, hit in ending) for ending in parts])
