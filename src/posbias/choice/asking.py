"""Asking for choices: the prompts of items in their orders, and what answers or scores decide.

    from posbias.choice import ChoiceJob, ask_choices, read_items

    decisions = ask_choices(lambda prompt: my_model(prompt), read_items("items.jsonl"))

Whoever scores endings is asked for scores, and the likeliest option is the choice; else for an answer, in which
the label or option is looked for that it names.
"""

import itertools
import json
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int

from posbias.asking.kept import AnswerFile
from posbias.asking.requests import Generator, Place, Request, Scorer, cost, each_answer, specification_of
from posbias.choice.answer import ChoiceAnswer
from posbias.choice.items import LETTERS, NAMES, Item, Kind, kind_of, read_items
from posbias.choice.orders import labels_of, orders_of
from posbias.core.errors import InvalidValueError
from posbias.core.machine import leaving_a_core, torch_threads
from posbias.core.matching import final_answer, is_right
from posbias.core.progress import Event, OnEvent
from posbias.core.spec import Count, NaturalNumber, encode, value
from posbias.profiles.decisions import REFUSED, TIE, Decisions

if TYPE_CHECKING:
    from posbias.measurement.models.loading import Treatment

log = logging.getLogger(__name__)
LABELLED = ("question", "judge")
"""Kinds of items whose options are shown with labels."""
AGAIN = 20
"""The number of items whose first order is asked a second time, unless another is wanted: the floor of flips."""
_TIE = re.compile(r"(?i)\b(?:tied?|draw|equal(?:ly)?|both|neither)\b")
_LABEL = r"([A-Z])(?![\w'])(?!\s(?!is\b|was\b|wins\b)[a-z])"
"""A letter that stands alone, and is no article ("A better answer")."""
_FIRST = re.compile(rf"(?i:\W*(?:the )?(?:\w+ )?(?:answer|option|choice|verdict)?\W*(?:is\W*)?){_LABEL}")
_ANY = re.compile(rf"(?<![\w']){_LABEL}")


@value
class ChoiceJob:
    """What is asked of a model about items: all that decides its prompts but for the items themselves.

    `orders`: of an item at most; None for all of a design (`orders_of`). `again`: items whose first order is asked
    a second time. `criteria`: what a judge or rater goes by.
    """

    kind: Kind
    orders: Count | None = None
    again: NaturalNumber = AGAIN
    criteria: str = ""


@dataclass(frozen=True)
class Presentation:
    """An item's options in one order: its request, and by slot the option, its label and what is scored."""

    request: Request
    order: Int[np.ndarray, "slot"]
    labels: Int[np.ndarray, "slot"]
    endings: tuple[str, ...]


def presentations(items: Sequence[Item], job: ChoiceJob) -> Iterator[Presentation]:
    """Every prompt of every item. Raises `InvalidValueError` for items with other numbers of options."""
    if len(sizes := {len(item.options) for item in items}) != 1:
        raise InvalidValueError(f"items: expected the same number of options in all, got {sorted(sizes)}")
    (count,) = sizes
    orders = orders_of(count, job.orders)
    for number, item in enumerate(items):
        labels = labels_of(count, number)
        for index, order in enumerate([*orders, *orders[: number < job.again]]):
            again = int(index == len(orders))
            yield _presented(item, number, order, labels, job, Place("order", index % len(orders)), again)


def _presented(
    item: Item, number: int, order: Any, labels: Any, job: ChoiceJob, place: Place, again: int
) -> Presentation:
    words = NAMES["kinds"][job.kind]
    criteria = f" Go by: {job.criteria}." if job.criteria and job.kind == "judge" else job.criteria
    details = item.details or ("",) * len(item.options)
    shown = [LETTERS[label] for label in labels]
    listed = [
        words["option"].format(label=label, text=item.options[option], detail=details[option])
        for label, option in zip(shown, order, strict=True)
    ]
    opening = words["opening"].format(question=item.question, criteria=criteria)
    prompt = f"{opening}{''.join(listed)}{words['asks']}\n{words['reply']}"
    endings = shown if job.kind in LABELLED else [item.options[option] for option in order]
    return Presentation(
        Request(number, place, prompt, again), order, labels, tuple(f" {one}" for one in endings)
    )


def ask_choices(
    who: Generator | Scorer,
    items: Sequence[Item],
    job: ChoiceJob | None = None,
    *,
    answers: str | os.PathLike[str] | None = None,
    concurrency: int = 1,
    on_event: OnEvent = lambda event: None,
) -> Decisions:
    """Ask for a choice in every order of every item.

    who: whoever has `score` gives log-probabilities; who has `write`, or is a function, an answer in words.
    items: what is chosen from (`read_items`).
    job: how (`ChoiceJob`); by default what items look like, in all orders.
    answers: a file that keeps answers and is asked first; the same call goes on after an interruption.
    concurrency: threads that ask.
    on_event: hears of answered requests.

    Raises `InvalidValueError` for what cannot be right, `ModelError` where there is no answer, as `AnswerFile`.
    """
    job = job or ChoiceJob(kind_of(items))
    asked = [*presentations(items, job)]
    of = specification_of(who) or {"model": "the generator"}
    scored = hasattr(who, "score")
    file = AnswerFile(answers, of | {"scores": scored} if scored else of)
    endings = {one.request.prompt: one.endings for one in asked}
    writer: Any = _Scores(who, endings) if scored else who  # type: ignore[arg-type]
    left = [one.request for one in asked if one.request.id not in file.known]
    log.info("%s: to ask: %s", of.get("model"), cost(left, {}, of.get("most_out") if not scored else None))
    on_event(Event(len(asked) - len(left), len(asked), "request"))
    for done, (request, answer) in enumerate(
        each_answer(writer, left, concurrency), len(asked) - len(left) + 1
    ):
        file.add(request, answer, getattr(who, "sent", {}))
        on_event(Event(done, len(asked), "request"))
    return decided(asked, items, file.known, job, of if scored else file.asked_of, scored=scored)


def choose(
    who: Any,
    items: Sequence[Item] | str | os.PathLike[str],
    job: ChoiceJob | None = None,
    *,
    tokenizer: Any = None,
    treatment: "Treatment | None" = None,
    threads: int | None = None,
    answers: str | os.PathLike[str] | None = None,
    concurrency: int = 1,
    on_event: OnEvent = lambda event: None,
) -> ChoiceAnswer:
    """Measure what an option's slot and label add to its being chosen.

    who: a model, as of `posbias.measure`, which is opened and scores the options; or whom `ask_choices` asks.
    items: what is chosen from, or the file that has it (`read_items`).
    job: how (`ChoiceJob`); by default what items look like, in all orders, and of a model that is opened, whose
    scores are the same again, none twice. `tokenizer`, `treatment`: as of `posbias.measure`; `threads` of torch.

    Other arguments, and what is raised, as of `ask_choices`; also as `posbias.measure` where a model cannot be
    opened, and `InvalidValueError` where a prompt does not fit its context.
    """
    held = read_items(items) if isinstance(items, str | os.PathLike) else items
    how: dict[str, Any] = {"answers": answers, "on_event": on_event}
    if hasattr(who, "score") or hasattr(who, "write") or (callable(who) and not hasattr(who, "parameters")):
        return ChoiceAnswer(ask_choices(who, held, job, concurrency=concurrency, **how))
    from posbias.asking.local import LocalModel
    from posbias.measurement.models.loading import ready

    job = job or ChoiceJob(kind_of(held), again=0)
    tried = [*itertools.islice(presentations(held, job), 2)]
    with ready(who, tokenizer, treatment) as loaded:
        model = LocalModel(loaded)
        with torch_threads(leaving_a_core() if threads is None else threads):
            model.try_reuse([model.split(one.request.prompt, one.endings) for one in tried])
            return ChoiceAnswer(ask_choices(model, held, job, **how))


class _Scores:
    """A scorer as a writer: its answer to a prompt is the list of scores of the endings, as JSON."""

    def __init__(self, scorer: Scorer, endings: Mapping[str, Sequence[str]]):
        self._scorer, self._endings = scorer, endings

    def write(self, prompt: str) -> str:
        """The scores behind a prompt."""
        if (reader := getattr(self._scorer, "reader", None)) is not None:
            reader.forget()  # whether a run is resumed here must not show in any bit
        return json.dumps(self._scorer.score(prompt, self._endings[prompt])[0].tolist())


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
    labelled, scores = job.kind in LABELLED, None
    answers = [known[one.request.id] for one in asked]
    if scored:
        scores = np.array([json.loads(answer) for answer in answers])
        chosen = scores.argmax(axis=1)
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
