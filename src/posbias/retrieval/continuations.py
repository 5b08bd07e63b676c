"""How likely each of some endings is to follow a prompt, for prompts that begin alike.

One forward pass reads a prompt and gives the first token of every ending; a second one, over all endings side
by side, gives the rest. Keys and values of the tokens that a prompt shares with the one before it are kept:
under a causal mask they cannot depend on what follows, so nothing is approximated. That this holds for the
model at hand, cache and all, is tried on the first prompts, and plain passes are used where it does not.
"""

import copy
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from posbias.core.errors import ModelError

_COPIES = 256 << 20
"""Bytes of keys and values that the endings of one pass may take together."""
_TOLERANCES = {torch.float32: 1e-3, torch.float64: 1e-3}
_HALF = 0.1
"""Least agreement, in nats, of cached and plain passes: in full precision, and in any other."""


@dataclass(frozen=True)
class Endings:
    """Of each ending: the log-probability of all its tokens, in nats, and whether greedy decoding writes it."""

    log_probability: Float[np.ndarray, "ending"]
    greedy: Bool[np.ndarray, "ending"]


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
    def endings(self, prompt: Sequence[int], endings: Sequence[Sequence[int]]) -> Endings:
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

    def _plain(self, prompt: Sequence[int], ending: Sequence[int]) -> tuple[float, bool]:
        """The score of one ending by one pass over all tokens."""
        ids = self._tensor([[*prompt, *ending]])
        return _own(self._model(ids, use_cache=False).logits[0, -len(ending) - 1 : -1], ending)

    def _first(self, prompt: list[int]) -> Float[Tensor, "one word"]:
        """Logits of what follows `prompt`, whose keys and values are then in the cache."""
        # the last token is read in any case: its output is what is wanted
        shared = min(common(self._read, prompt), len(prompt) - 1)
        if shared == 0:
            self._cache = _fresh_cache()
        elif shared < len(self._read):
            self._cache.crop(shared - len(self._read))
        # an interruption inside the pass must not leave half a cache believed in
        self._read = []
        logits = self._model(
            self._tensor([prompt[shared:]]), past_key_values=self._cache, use_cache=True, **self._last_only
        ).logits
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


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of what two sequences begin with in common."""
    return next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )


def reuse_is_exact(model: Any, asked: Sequence[tuple[Sequence[int], Sequence[Sequence[int]]]]) -> bool:
    """Whether reading with a cache gives what plain passes give, tried on prompts with their endings.

    Equal to 1e-3 nats in float32, .1 in half precision. A model that has no cache of this kind is answered
    with False, not with an error.
    """
    tolerance = _TOLERANCES.get(model.dtype, _HALF)
    plain, cached = Reader(model, reuse=False), Reader(model)
    for prompt, endings in asked:
        expected = plain.endings(prompt, endings)
        try:
            found = cached.endings(prompt, endings)
        except (
            AttributeError,
            IndexError,
            KeyError,
            NotImplementedError,
            RuntimeError,
            TypeError,
            ValueError,
        ):
            return False
        if not np.allclose(found.log_probability, expected.log_probability, rtol=0, atol=tolerance):
            return False
    return True


def _fresh_cache() -> Any:
    from transformers import DynamicCache

    # without a configuration every layer keeps all keys: windows are then the mask's matter
    return DynamicCache()


def _own(logits: Float[Tensor, "token word"], ids: Sequence[int]) -> tuple[float, bool]:
    """Log-probability of `ids` at their places, summed in float64, and whether each is the most likely one."""
    own = torch.tensor(list(ids), device=logits.device)
    chosen = logits.double().log_softmax(dim=-1).gather(1, own[:, None])
    return float(chosen.sum()), bool((logits.argmax(dim=-1) == own).all())


def _scored(parts: Sequence[Sequence[tuple[float, bool]]]) -> Endings:
    """Endings from the scores of their parts."""
    total = np.array([sum(score for score, _ in ending) for ending in parts])
    if not np.isfinite(total).all():
        raise ModelError("model: its outputs are not finite")
    return Endings(total, np.array([all(hit for _, hit in ending) for ending in parts]))
