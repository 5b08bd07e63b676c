"""Asking for choices: the prompts of items in their orders, and what answers or scores decide.

    from posbias.choice import choose

    answer = choose(lambda prompt: my_model(prompt), "items.jsonl")

Whoever scores endings is asked for scores, and the likeliest option is the choice; else for an answer, in which
the label or option is looked for that it names.
"""

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int

from posbias.asking.kept import AnswerFile
from posbias.asking.opening import is_model, opened
from posbias.asking.requests import Place, PromptParts, Request, ScoresWritten, specification_of
from posbias.choice.answer import ChoiceAnswer
from posbias.choice.items import LETTERS, NAMES, Item, Kind, kind_of, read_items
from posbias.choice.orders import labels_of, orders_of
from posbias.core.errors import InvalidValueError, wrong
from posbias.core.matching import final_answer, is_right
from posbias.core.progress import OnEvent
from posbias.core.spec import Count, NaturalNumber, encode, value
from posbias.profiles.decisions import REFUSED, TIE, Decisions

if TYPE_CHECKING:
    from posbias.measurement.models.loading import Treatment

LABELLED = ("question", "judge")
"""Kinds of items whose options are shown with labels."""
AGAIN = 20
"""The number of items whose first order is asked a second time, unless another is wanted: the floor of flips."""
_TIE = re.compile(r"(?i)\b(?:tied?|a draw|equal(?:ly)?|both|neither)\b|^\W*draw\b")
_LABEL = r"([A-Z])(?![\w'])(?!\s(?!is\b|was\b|wins\b)[a-z])"
"""A letter that stands alone, and is no article ("A better answer")."""
_FIRST = re.compile(rf"(?i:\W*(?:the )?(?:\w+ )?(?:answer|option|choice|verdict)?\W*(?:is\W*)?){_LABEL}")
_ANY = re.compile(rf"(?<![\w']){_LABEL}")


@value
class ChoiceJob:
    """What is asked of a model about items: all that decides its prompts but for the items themselves.

    `orders`: of an item at most; None for all of a design (`orders_of`). `again`: items whose first order is asked
    a second time. `criteria`: what a judge or rater goes by. Raises `InvalidValueError` for those of other kinds.
    """

    kind: Kind
    orders: Count | None = None
    again: NaturalNumber = AGAIN
    criteria: str = ""

    def __post_init__(self):
        if self.criteria and "criteria" not in NAMES["kinds"][self.kind]:
            raise wrong("criteria", f"none with the kind {self.kind}", self.criteria)


@dataclass(frozen=True)
class Presentation:
    """An item's options in one order: its request and its parts, and by slot the option, its label and what is
    scored."""

    request: Request
    parts: PromptParts
    order: Int[np.ndarray, "slot"]
    labels: Int[np.ndarray, "slot"]
    endings: tuple[str, ...]


def presentations(items: Sequence[Item], job: ChoiceJob) -> Iterator[Presentation]:
    """Every prompt of every item. Raises `InvalidValueError` for items with other numbers of options."""
    if not items:
        raise wrong("items", "one or more", got="none")
    if len(sizes := {len(item.options) for item in items}) != 1:
        raise InvalidValueError(f"items: expected the same number of options in all, got {sorted(sizes)}")
    (count,) = sizes
    orders, words = orders_of(count, job.orders), NAMES["kinds"][job.kind]
    criteria = words["criteria"].format(job.criteria) if job.criteria else ""
    for number, item in enumerate(items):
        labels, details = labels_of(count, number), item.details or ("",) * count
        shown = [LETTERS[label] for label in labels]
        opening = words["opening"].format(question=item.question, criteria=criteria)
        for index, order in enumerate([*orders, *orders[: number < job.again]]):
            listed = [
                words["option"].format(label=label, text=item.options[option], detail=details[option])
                for label, option in zip(shown, order, strict=True)
            ]
            parts = PromptParts(opening, tuple(listed), f"{words['asks']}\n", words["reply"])
            endings = shown if job.kind in LABELLED else [item.options[option] for option in order]
            place = Place("order", index % len(orders))
            request = Request(number, place, parts.text, again=int(index == len(orders)))
            yield Presentation(request, parts, order, labels, tuple(f" {one}" for one in endings))


def choose(
    who: Any,
    items: Sequence[Item] | str | os.PathLike[str],
    job: ChoiceJob | None = None,
    *,
    only: Collection[int] | None = None,
    tokenizer: Any = None,
    treatment: "Treatment | None" = None,
    loading: Mapping[str, Any] = {},
    threads: int | None = None,
    answers: str | os.PathLike[str] | None = None,
    concurrency: int = 1,
    influence: bool = False,
    on_event: OnEvent = lambda event: None,
) -> ChoiceAnswer:
    """Ask for a choice in every order of every item: what slots and labels add to an option's being chosen.

    who: whoever has `score` gives log-probabilities of options; who has `write`, or is a function, an answer in
    words; else a model, as of `posbias.measure`, which is opened and scores.
    items: what is chosen from, or the file that has it (`read_items`).
    job: how (`ChoiceJob`); by default what items look like, in all orders, of a scorer none twice.
    only: the numbers of the items that are asked about.
    tokenizer, treatment, loading: of a model, as of `posbias.measure`; `threads`: of torch.
    answers: a file that keeps answers and is asked first; the same call goes on after an interruption.
    concurrency: threads that ask whom is not opened.
    influence: of a model that is opened, also how much each option's tokens move the choice, by gradient.
    on_event: hears of answered requests.

    Raises `InvalidValueError` for what cannot be right, `ModelError` where there is no answer, as `AnswerFile`;
    and as `posbias.measure` where a model cannot be opened.
    """
    held = read_items(items)
    scored = (model := is_model(who)) or hasattr(who, "score")
    if influence and not model:
        raise InvalidValueError("influence: expected a model that is opened, got one that is asked")
    job = job or ChoiceJob(kind_of(held), again=0 if scored else AGAIN)
    asked = [one for one in presentations(held, job) if only is None or one.request.trial in only]
    with opened(who, threads, tokenizer=tokenizer, treatment=treatment, loading=loading) as who:
        if model:
            concurrency = 1
            who.try_reuse([who.split(one.request.prompt, one.endings) for one in asked[:2]])
        of = specification_of(who) or {"model": "the generator"}
        file = AnswerFile(answers, of | dict.fromkeys(["scores"] * scored + ["influence"] * influence, True))
        parts = {one.request.prompt: one.parts for one in asked if influence}
        endings = {one.request.prompt: one.endings for one in asked}
        writer = ScoresWritten(who, endings, parts) if scored else who
        requests = [one.request for one in asked]
        file.announce(requests, writer, None if scored else of.get("most_out"))
        file.answer(writer, requests, concurrency, on_event)
    return ChoiceAnswer(decided(asked, held, file.known, job, of if scored else file.asked_of, scored=scored))


def decided(
    asked: Sequence[Presentation],
    items: Sequence[Item],
    known: Mapping[str, str],
    job: ChoiceJob,
    of: Mapping[str, Any],
    *,
    scored: bool = False,
) -> Decisions:
    """The decisions that answers make. `known`: answers, or scores as JSON, by the id of their request."""
    labelled, scores, influence = job.kind in LABELLED, None, []
    answers = [known[one.request.id] for one in asked]
    if scored:
        scores, _, bounds, *influence = np.moveaxis(np.array([*map(json.loads, answers)]), 1, 0)
        # an option that is but bounded may be less likely than any other
        likeliest = scores == scores.max(axis=1, keepdims=True)
        open_ = (likeliest.sum(axis=1) > 1) | (likeliest & (bounds > 0)).any(axis=1)
        chosen, of = np.where(open_, TIE, scores.argmax(axis=1)), {**of, "bounds": int(bounds.sum())}
    else:
        shown = [[LETTERS[label] for label in one.labels] if labelled else [] for one in asked]
        options = [[items[one.request.trial].options[option] for option in one.order] for one in asked]
        chosen = np.array([*map(_chosen, answers, shown, options)])
    return Decisions(
        np.array([one.request.trial for one in asked]),
        np.array([one.order for one in asked]),
        chosen,
        [item.options for item in items],
        labels=np.array([one.labels for one in asked]) if labelled else None,
        scores=scores,
        influence=influence[0] if influence else None,
        names=[item.name or str(number) for number, item in enumerate(items)],
        right=[item.right for item in items] if any(item.right >= 0 for item in items) else (),
        sides=[item.sides for item in items] if any(item.sides for item in items) else (),
        label_names=[*LETTERS[: len(asked[0].order)]] if labelled else (),
        shared=job.kind != "rating",
        asked=of,
        job=encode(job),
    )


def _chosen(answer: str, labels: Sequence[str], options: Sequence[str]) -> int:
    """The slot whose label or option an answer names, `TIE`, or `REFUSED` where it names none, or several."""
    said = final_answer(answer)
    first = _FIRST.match(said)
    named = re.findall(r"\[\[([A-Z])\]\]", said) or ([first[1]] if first else _ANY.findall(said))
    if len(known := {one for one in named if one in labels}) == 1:
        return labels.index(known.pop())
    for slot, option in enumerate(options):
        if not known and is_right(said, [[option]], [*options[:slot], *options[slot + 1 :]], "first")[0]:
            return slot
    return TIE if _TIE.search(said) else REFUSED
