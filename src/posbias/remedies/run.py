"""From who is asked to what remedies change: the same trials or items plain, then under each remedy."""

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from posbias.asking.kept import AnswerFile
from posbias.asking.requests import PromptParts, specification_of
from posbias.choice import ChoiceAnswer, ChoiceJob, Item, choose
from posbias.choice.asking import presentations
from posbias.choice.effects import LEAST_SETS
from posbias.choice.items import kind_of
from posbias.core.errors import one_of, wrong
from posbias.core.matching import words_in
from posbias.core.progress import OnEvent
from posbias.profiles.decisions import Decisions
from posbias.profiles.gaps import EQUIVALENCE
from posbias.profiles.places import Places
from posbias.remedies.answer import PLAIN, RemedyAnswer, Took
from posbias.remedies.values import ABOUT, REMEDIES, OrdersAveraged, Plain, Remedy, TextRemedy
from posbias.retrieval import Session
from posbias.retrieval.margins import ask_margins

log = logging.getLogger(__name__)


class Task(NamedTuple):
    """What remedies treat: its kind (as `ABOUT` has tasks), the parts of its prompts, and how it is asked.

    `ask` takes who is asked, a file that keeps answers, and who hears of them; of items, decisions come.
    """

    kind: str
    parts: Mapping[str, PromptParts]
    ask: Callable[[Any, Path | None, OnEvent], Places | Decisions]


def remedy(
    who: Any,
    asked: Session | Sequence[Item],
    remedies: Sequence[str | Remedy] = (),
    *,
    job: ChoiceJob | None = None,
    folder: str | os.PathLike[str] | None = None,
    concurrency: int = 1,
    equivalence: float = EQUIVALENCE,
    on_event: OnEvent = lambda event: None,
) -> RemedyAnswer:
    """Ask the same trials plain and under each remedy: what each changes, within trials.

    who: whoever scores or writes (`LocalModel`, `Endpoint`), or a function from prompt to text.
    asked: a `Session` of one job, of keys or documents (of keys whoever scores gives margins); or items.
    remedies: names of `REMEDIES` or values; without any, all that can treat it.
    job: how items are asked. folder: where answers are kept, a file for each remedy.
    concurrency: threads that ask. equivalence: the difference (of shares, or in nats) that counts as none.
    on_event: hears of answered requests, remedy by remedy.

    Raises `InvalidValueError` for what cannot be right, and as `choose` and `posbias.retrieval.ask`.
    """
    task = task_of(asked, job, hasattr(who, "score"), concurrency)
    found, took = dict[str, Any](), dict[str, Took]()
    for one in fitting(remedies, task.kind):
        log.info("%s", one.kind)
        began, cost = time.monotonic(), cost_of(one, task.parts)
        if isinstance(one, TextRemedy):
            file = None if folder is None else Path(folder, f"{one.kind}.jsonl")
            with one.treat(who, task.parts) as treated:
                found[one.kind] = task.ask(treated, file, on_event)
        else:
            found[one.kind], decided = one.decided(found[PLAIN]), found[PLAIN]
            orders = len(decided.item) / len(decided.options) if isinstance(one, OrdersAveraged) else 1
            cost = Took(orders * cost.requests, orders * cost.words)
        took[one.kind] = cost._replace(seconds=(time.monotonic() - began) / len(task.parts))
    places = {name: one if isinstance(one, Places) else by_slot(one) for name, one in found.items()}
    return RemedyAnswer(places, took, equivalence)


def fitting(remedies: Sequence[str | Remedy], kind: str) -> list[Remedy]:
    """Plain, and the remedies of these names, or all, that can treat a task. Raises `InvalidValueError`."""
    named = [REMEDIES[one_of("remedy", one, REMEDIES)] if isinstance(one, str) else one for one in remedies]
    able = [name for name in REMEDIES if kind in ABOUT[name]["tasks"]]
    if unfit := [one.kind for one in named if one.kind not in able]:
        raise wrong("remedy", f"those for {kind}: {', '.join(able)}", unfit[0])
    return [*{one.kind: one for one in (Plain(), *(named or [REMEDIES[name] for name in able]))}.values()]


def task_of(asked: Any, job: ChoiceJob | None, scored: bool, concurrency: int = 1) -> Task:
    """What remedies treat. Raises `InvalidValueError` for several jobs, another task, a question without words."""
    if not isinstance(asked, Session):
        how: Any = job or ChoiceJob(kind_of(asked), again=0)
        parts = {one.request.prompt: one.parts for one in presentations(asked, how)}

        def decide(who: Any, file: Path | None, hear: OnEvent) -> Decisions:
            return choose(who, asked, how, answers=file, concurrency=concurrency, on_event=hear).decisions

        return Task("scored choices" if scored else "choices", parts, decide)
    session, (how, *others) = replace(asked, concurrency=concurrency), asked.jobs
    if others or how.task not in ("keys", "documents"):
        raise wrong("task", "one job, of keys or documents", ", ".join(one.task for one in asked.jobs))
    margins, trials = scored and how.task == "keys", [*map(session.trials(how).trial, range(how.prompts))]
    prompts = [(one, (*one.asked, *(one.control if margins else one.arms.values()))) for one in trials]
    parts = {text: one.parts[text] for one, texts in prompts for text in texts}
    if not all(one.question.strip() for one in parts.values()):
        raise wrong("wording", "one with a question", how.wording)

    def ask(who: Any, file: Path | None, hear: OnEvent) -> Places:
        if margins:
            return ask_margins(who, how, answers=file, concurrency=concurrency, on_event=hear)
        of = specification_of(who) or {"model": "the generator"}
        return session.ask(who, how, AnswerFile(file, of), hear)

    return Task("margins" if margins else "answers", parts, ask)


def cost_of(one: Remedy, parts: Mapping[str, PromptParts]) -> Took:
    """What each answer takes under a remedy of text, before it is asked; of others as plain."""
    each = [one.prompts(own) if isinstance(one, TextRemedy) else [own] for own in parts.values()]
    words = sum(words_in(asked.text) for prompts in each for asked in prompts)
    return Took(sum(map(len, each)) / len(each), words / len(each))


def by_slot(held: Decisions) -> Places:
    """By set of contents and slot: accuracy where the right option stands there, else how often it is chosen.

    Raises `InvalidValueError` for fewer than `LEAST_SETS` sets.
    """
    sets = held.sets[held.item]
    if (count := np.unique(sets).size) < LEAST_SETS:
        raise wrong("items", f"at least {LEAST_SETS} that share no option", count)
    if held.right and (places := ChoiceAnswer(held).places) is not None:
        return places
    chosen = np.eye(held.slots)[np.maximum(held.chosen, 0)] * (held.chosen >= 0)[:, None]
    shares = np.array([chosen[sets == one].mean(axis=0) for one in np.unique(sets)])
    about: dict[str, Any] = {"asked": held.asked, "job": held.job, "rows": "sets of contents"}
    return Places({"chosen": shares}, np.arange(held.slots), **about)
