"""Remedies: other prompts in place of one, and one answer from theirs; or other decisions from the same scores.

    Twice().prompts(parts)          # what is asked in place of the prompt of these parts
    Divide().merged(parts, said)    # the answer that these make, or the prompt that is still to be asked
    PriorRemoved().decided(held)    # choices that ask nothing else

A remedy is a frozen value whose `kind` names it. `treat` gives who is asked under it: of a remedy of text whoever
is asked otherwise (`Treated`), which any server can be.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from posbias.asking.requests import PromptParts, specification_of
from posbias.core import machine
from posbias.core.errors import wrong
from posbias.core.files import data_table
from posbias.core.matching import final_answer, normalised, place_in
from posbias.core.spec import Count, NaturalNumber, encode, tag, value
from posbias.ordering import STRATEGIES
from posbias.profiles.decisions import TIE, Decisions

ABOUT = data_table(__file__)
"""By name the `source` of a remedy, with what it reports, and the `tasks` that it can treat."""
CUE = "\nAnswer:"
"""What may end a question: it stays behind what a remedy adds."""
NONE = '\nIf this does not say it, answer "none".'
"""What `Divide` adds to a question about one document."""


@dataclass(frozen=True)
class Treated:
    """Who is asked under a remedy, prompt by prompt; `parts` of each prompt by its text.

    It scores where `who` does: of several prompts each ending has its mean probability, and is written where most
    write it.
    """

    who: Any
    remedy: "TextRemedy"
    parts: Mapping[str, PromptParts]

    @property
    def asked_of(self) -> dict[str, Any]:
        """What decides answers apart from prompts: that of `who`, and the remedy with its parameters."""
        treated = {} if isinstance(self.remedy, Plain) else {"remedy": encode(self.remedy)}
        return specification_of(self.who) | treated

    def __getattr__(self, name: str) -> Any:
        held = getattr(self.who, name)
        return self._scores if name in ("score", "bounded") else held

    def write(self, prompt: str) -> str:
        """The answer under the remedy. Raises as `who`."""
        parts, write = self.parts[prompt], getattr(self.who, "write", self.who)
        merged = self.remedy.merged(parts, [write(one.text) for one in self.remedy.prompts(parts)])
        return write(merged.text) if isinstance(merged, PromptParts) else merged

    def _scores(self, prompt: str, endings: Sequence[str]) -> tuple[Any, ...]:
        """By ending its log-probability, whether it is written and, where `who` says so, whether it is a bound."""
        score = getattr(self.who, "bounded", self.who.score)
        scored = [score(one.text, endings) for one in self.remedy.prompts(self.parts[prompt])]
        own, greedy, *bounds = (np.array(part) for part in zip(*scored, strict=True))
        mean = np.logaddexp.reduce(own, axis=0) - np.log(len(own))
        return mean, greedy.mean(axis=0) > 0.5, *(one.any(axis=0) for one in bounds)


class TextRemedy:
    """What remedies of text share: one prompt in place of another, whose answer is the answer."""

    kind: Any

    def prompts(self, parts: PromptParts) -> Sequence[PromptParts]:
        """What is asked in place of the prompt of these parts."""
        return [parts]

    def merged(self, parts: PromptParts, said: Sequence[str]) -> str | PromptParts:
        """The answer that the answers to `prompts` make, or a last prompt whose answer it is."""
        return said[0]

    def treat(self, who: Any, parts: Mapping[str, PromptParts]) -> Any:
        """`who` under this remedy; `parts` of all prompts."""
        return Treated(who, self, parts)


@value
class Plain(TextRemedy):
    """No remedy: the baseline."""

    kind: Literal["plain"] = tag(default="plain")


@value
class Twice(TextRemedy):
    """The whole prompt twice, one copy behind the other."""

    kind: Literal["twice"] = tag(default="twice")

    def prompts(self, parts: PromptParts) -> Sequence[PromptParts]:
        return [replace(parts, opening=f"{parts.body.removesuffix(CUE)}\n\n{parts.opening}")]


@value
class QuestionFirst(TextRemedy):
    """The question before the documents too."""

    kind: Literal["question-first"] = tag(default="question-first")

    def prompts(self, parts: PromptParts) -> Sequence[PromptParts]:
        # where there is no question, what the reply begins with says what is asked for
        question = parts.question.removesuffix(CUE).strip() or parts.reply.strip(' ":')
        return [replace(parts, opening=f"{question}\n\n{parts.opening}")]


@value
class TaskLast(TextRemedy):
    """A copy of the task and the question at the end."""

    kind: Literal["task-last"] = tag(default="task-last")

    def prompts(self, parts: PromptParts) -> Sequence[PromptParts]:
        copy = f"\n\n{parts.opening}{parts.question.lstrip()}"
        return [replace(parts, question=parts.question.removesuffix(CUE) + copy)]


@value
class BestPlaced(TextRemedy):
    """The documents that share most words with the question at both ends, or last."""

    kind: Literal["both-ends", "best-last"] = tag(default="both-ends")

    def prompts(self, parts: PromptParts) -> Sequence[PromptParts]:
        return [_in_order(parts, STRATEGIES[self.kind.replace("-", " ")](shared_words(parts)))]


@value
class Vote(TextRemedy):
    """The commonest answer over shuffled documents."""

    kind: Literal["vote"] = tag(default="vote")
    shuffles: Count = 5
    seed: NaturalNumber = 0

    def prompts(self, parts: PromptParts) -> Sequence[PromptParts]:
        random = np.random.default_rng(machine.sequence(self.seed, parts.text))
        return [_in_order(parts, random.permutation(len(parts.pieces))) for _ in range(self.shuffles)]

    def merged(self, parts: PromptParts, said: Sequence[str]) -> str | PromptParts:
        # what a model writes on behind its answer has no vote
        votes = [normalised(re.split(r"[.\n]", final_answer(one).strip())[0]) for one in said]
        return said[votes.index(Counter(votes).most_common(1)[0][0])]


@value
class Divide(TextRemedy):
    """Each document alone, which may answer "none"; then those that did not, in one prompt."""

    kind: Literal["divide"] = tag(default="divide")

    def prompts(self, parts: PromptParts) -> Sequence[PromptParts]:
        question = parts.question.removesuffix(CUE) + NONE + CUE * parts.question.endswith(CUE)
        return [replace(parts, pieces=(piece,), question=question) for piece in parts.pieces]

    def merged(self, parts: PromptParts, said: Sequence[str]) -> str | PromptParts:
        kept = [k for k, answer in enumerate(said) if place_in(final_answer(answer), ["none"]) is None]
        return said[kept[0]] if len(kept) == 1 else _in_order(parts, kept) if kept else parts


@value
class InPasses(TextRemedy):
    """An intervention in every pass of a model that is opened here (`posbias.measurement.interventions`).

    `parameters`: its own, in JSON's terms, but bounds; a dummy document is a text.
    """

    parameters: dict[str, Any]
    kind: str

    def treat(self, who: Any, parts: Mapping[str, PromptParts]) -> Any:
        """`who` under this remedy.

        Raises `InvalidValueError` for whoever is not opened here, `ModelError` for families that it does not fit.
        """
        if not hasattr(who, "loaded"):
            raise wrong("remedy", "one of text for a model that is not opened here", self.kind)
        from posbias.remedies.opened import TreatedModel

        return TreatedModel(who, self.kind, self.parameters, parts)


def _in_order(parts: PromptParts, order: Sequence[int] | np.ndarray) -> PromptParts:
    return replace(parts, pieces=tuple(parts.pieces[k] for k in order))


def shared_words(parts: PromptParts) -> Float[np.ndarray, "piece"]:
    """How many words each piece shares with the question; those of fewer pieces count for more."""
    asked, *held = ({*normalised(text).split()} for text in (parts.question + parts.reply, *parts.pieces))
    rarity = {word: np.log(len(held) / max(1, sum(word in own for own in held))) for word in asked}
    return np.array([sum(rarity[word] for word in asked & own) for own in held], dtype=np.float64)


# --- of choices -----------------------------------------------------------------------------------------------


@value
class OrdersAveraged:
    """One decision for each item from all orders: the option chosen most often; of scores, the likeliest."""

    kind: Literal["orders-averaged"] = tag(default="orders-averaged")

    def decided(self, held: Decisions) -> Decisions:
        """The decisions, in every order the same."""
        worth = np.eye(held.slots)[np.maximum(held.chosen, 0)] * (held.chosen >= 0)[:, None]
        if held.scores is not None:
            worth = np.exp(_log_shares(held.scores))
        total = np.zeros((len(held.options), held.slots))
        np.add.at(total, held.item, np.take_along_axis(worth, held.slot_of, axis=1) * held.first[:, None])
        return _by_worth(held, np.take_along_axis(total[held.item], held.order, axis=1))


@value
class PriorRemoved:
    """Scores without what slots and labels add to them in the mean over the other half of the items."""

    kind: Literal["prior-removed"] = tag(default="prior-removed")

    def decided(self, held: Decisions) -> Decisions:
        """The decisions, which have scores, without the prior."""
        scores, slots = _log_shares(np.asarray(held.scores)), np.eye(held.slots)
        labels = slots if held.labels is None else slots[held.labels]
        design = np.concatenate(np.broadcast_arrays(slots, labels, scores[..., None] + slots)[:2], axis=-1)
        half, prior = held.sets[held.item] % 2, np.zeros_like(scores)
        for own in (half == 0, half == 1):
            rows = design[~own].reshape(-1, 2 * held.slots)
            prior[own] = design[own] @ np.linalg.lstsq(rows, scores[~own].ravel(), rcond=None)[0]
        return _by_worth(held, scores - prior)


def _log_shares(scores: Float[np.ndarray, "decision slot"]) -> Float[np.ndarray, "decision slot"]:
    return scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)


def _by_worth(held: Decisions, worth: Float[np.ndarray, "decision slot"]) -> Decisions:
    """The slot that is worth most; a tie where several are."""
    several = np.isclose(worth, worth.max(axis=1, keepdims=True), rtol=0, atol=1e-12).sum(axis=1) > 1
    return replace(held, chosen=np.where(several, TIE, worth.argmax(axis=1)))


Remedy = TextRemedy | OrdersAveraged | PriorRemoved
"""Any remedy; those with a name are in `REMEDIES`."""

_OWN = Plain, Twice, QuestionFirst, TaskLast, BestPlaced, Vote, Divide, OrdersAveraged, PriorRemoved
_OPENED = [InPasses(one["parameters"], kind=name) for name, one in ABOUT.items() if "parameters" in one]
REMEDIES: Mapping[str, Remedy] = {
    one.kind: one for one in (*(own() for own in _OWN), BestPlaced(kind="best-last"), *_OPENED)
}
"""Remedies by name, as they are by default."""
