"""The same trials or items plain and under remedies, and what each remedy changes within trials.

All differences hold together: each interval (Student's t over trials) is as wide as the number of remedies times
that of gaps needs it to be (Bonferroni).
"""

import logging
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from posbias.asking.kept import ANSWERS, AnswerFile
from posbias.asking.opening import opened
from posbias.asking.requests import PromptParts, specification_of
from posbias.choice import ChoiceAnswer, ChoiceJob, Item, choose
from posbias.choice.asking import presentations
from posbias.choice.items import kind_of, read_items
from posbias.core.errors import one_of, wrong
from posbias.core.matching import words_in
from posbias.core.progress import OnEvent
from posbias.profiles.decisions import Decisions
from posbias.profiles.estimate import EXACT, Estimate, otherwise_at_most
from posbias.profiles.gaps import EQUIVALENCE, MEAN, gaps_of
from posbias.profiles.places import NATS, Places
from posbias.remedies.values import ABOUT, REMEDIES, OrdersAveraged, Plain, Remedy, TextRemedy
from posbias.retrieval import Session

log = logging.getLogger(__name__)
PLAIN = Plain().kind


@dataclass(frozen=True)
class RemedyResult:
    """Results under a remedy, and what an answer takes: requests, words in them, seconds.

    `change`: what the mean over places and each gap have more than plain; empty of plain. Costs leave out a last
    prompt of `divide`; kept answers take no seconds.
    """

    name: str
    places: Places
    requests: float
    words: float
    seconds: float = math.nan
    change: Mapping[str, Estimate] = field(default_factory=dict)
    equivalence: float = EQUIVALENCE

    @property
    def curve(self) -> list[Estimate]:
        """What gaps are of (accuracy, margin, share chosen), at every place."""
        return self.places.curves[self.places.measures]

    @property
    def effect(self) -> str:
        """Less or more bias, bias moved, no difference, or inconclusive; of plain the verdict on its curve.

        A gap has changed where its interval leaves out 0, and is less where it is nearer to 0 than plain's.
        """
        if not self.change:
            return self.places.verdict
        gaps = {name: one for name, one in self.change.items() if name != MEAN}
        after = {name: self.places.deciding[name].value for name, one in gaps.items() if one.sign}
        less = [abs(held) < abs(held - gaps[name].value) for name, held in after.items()]
        if less:
            return "less bias" if all(less) else "bias moved" if any(less) else "more bias"
        alike = all(one.within(self.equivalence) for one in gaps.values())
        return "no difference" if alike else "inconclusive"

    @property
    def at_most(self) -> float:
        """What no gap changes by more than, by 90 % intervals that all hold together; NaN of plain."""
        return max((one.at_most for name, one in self.change.items() if name != MEAN), default=math.nan)


class Task(NamedTuple):
    """What remedies treat: its kind (as `ABOUT` has tasks), the parts of its prompts, and how it is asked.

    `ask` takes who is asked, a file that keeps answers, and who hears of them; of items, decisions come.
    """

    kind: str
    parts: Mapping[str, PromptParts]
    ask: Callable[[Any, Path | None, OnEvent], Places | Decisions]


def remedy(
    who: Any,
    asked: Session | Sequence[Item] | str | os.PathLike[str],
    remedies: Sequence[str | Remedy] = (),
    *,
    job: ChoiceJob | None = None,
    loading: Mapping[str, Any] = {},
    threads: int | None = None,
    folder: str | os.PathLike[str] | None = None,
    concurrency: int = 1,
    equivalence: float = EQUIVALENCE,
    on_event: OnEvent = lambda event: None,
) -> dict[str, RemedyResult]:
    """Ask the same trials plain and under each remedy: results by name, plain first, and what each changes.

    who: whoever scores or writes, a function from prompt to text, or a model, as of `posbias.measure`, which is
        opened with `loading` and scores on `threads`.
    asked: a `Session` of one job, of keys or documents (of keys whoever scores gives margins); or items, or
        the file that has them.
    remedies: names of `REMEDIES` or values; without any, all that can treat it, but those inside a model.
    job: how items are asked. folder: where answers are kept, a folder for each remedy.
    concurrency: threads that ask whom is not opened.
    equivalence: the difference (of shares, or in nats) that counts as none.
    on_event: hears of answered requests, remedy by remedy.

    Raises `InvalidValueError` for what cannot be right, and as `choose` and `posbias.retrieval.ask`.
    """
    results, found = dict[str, RemedyResult](), dict[str, Any]()
    with opened(who, threads, loading=loading) as who:
        task = task_of(asked, hasattr(who, "score"), 1 if hasattr(who, "loaded") else concurrency, job)
        chosen = fitting(remedies, task)
        # whoever cannot be treated is refused before anything is asked
        ways = {one.kind: one.treat(who, task.parts) for one in chosen if isinstance(one, TextRemedy)}
        for one in chosen:
            log.info("%s", one.kind)
            began, orders = time.monotonic(), 1.0
            if isinstance(one, TextRemedy):
                file = None if folder is None else Path(folder, one.kind, ANSWERS)
                found[one.kind] = held = task.ask(ways[one.kind], file, on_event)
            else:
                found[one.kind] = held = one.decided(found[PLAIN])
                orders = len(held.item) / len(held.options) if isinstance(one, OrdersAveraged) else 1.0
            seconds = (time.monotonic() - began) / len(task.parts)
            places = held if isinstance(held, Places) else by_slot(held)
            change = changes(results[PLAIN].places, places, len(chosen) - 1) if results else {}
            requests, words = (orders * cost for cost in cost_of(one, task.parts))
            results[one.kind] = RemedyResult(one.kind, places, requests, words, seconds, change, equivalence)
    return results


def fitting(remedies: Sequence[str | Remedy], task: Task) -> list[Remedy]:
    """Plain, and the remedies of these names, or all but those inside a model; raises `InvalidValueError`."""
    asks = all(one.question.strip() for one in task.parts.values())
    able = [name for name, one in ABOUT.items() if task.kind in one["tasks"] and asks >= ("question" in one)]
    named = [REMEDIES[one_of("remedy", one, REMEDIES)] if isinstance(one, str) else one for one in remedies]
    if unfit := [one.kind for one in named if one.kind not in able]:
        raise wrong("remedy", f"those for {task.kind}: {', '.join(able)}", unfit[0])
    all_of_text = [REMEDIES[name] for name in able if "parameters" not in ABOUT[name]]
    return [*{one.kind: one for one in (Plain(), *(named or all_of_text))}.values()]


def task_of(asked: Any, scored: bool, concurrency: int = 1, job: ChoiceJob | None = None) -> Task:
    """What remedies treat. Raises `InvalidValueError` for several jobs, or another task."""
    if not isinstance(asked, Session):
        asked = read_items(asked)
        how: Any = job or ChoiceJob(kind_of(asked), again=0)
        parts = {one.request.prompt: one.parts for one in presentations(asked, how)}

        def decide(who: Any, file: Path | None, hear: OnEvent) -> Decisions:
            return choose(who, asked, how, answers=file, concurrency=concurrency, on_event=hear).decisions

        return Task("scored choices" if scored else "choices", parts, decide)
    how, *others = asked.jobs
    if others or how.task not in ("keys", "documents"):
        raise wrong("task", "one job, of keys or documents", ", ".join(one.task for one in asked.jobs))
    margins, trials = scored and how.task == "keys", [*map(asked.trials(how).trial, range(how.prompts))]
    about: Any = {"margins": margins, **(dict.fromkeys(("equivalence", "rule")) if margins else {})}
    session = replace(asked, concurrency=concurrency, **about)
    each = [(one, request) for k, one in enumerate(trials) for request in session.requests_of(one, k)]
    parts = {request.prompt: one.parts[request.prompt] for one, request in each}

    def ask(who: Any, file: Path | None, hear: OnEvent) -> Places:
        of = specification_of(who) or {"model": "the generator"}
        return session.ask(who, how, AnswerFile(file, of), hear)

    return Task("margins" if margins else "answers", parts, ask)


def cost_of(one: Remedy, parts: Mapping[str, PromptParts]) -> list[float]:
    """Requests, and words in them, that each answer takes under a remedy of text; of others as plain."""
    each = [one.prompts(own) if isinstance(one, TextRemedy) else [own] for own in parts.values()]
    words = sum(words_in(asked.text) for prompts in each for asked in prompts)
    return [sum(map(len, each)) / len(each), words / len(each)]


def changes(plain: Places, treated: Places, remedies: int) -> dict[str, Estimate]:
    """What a remedy, one of several, changes of the mean over places and of each gap.

    What is the same in all trials has the interval of their number alone (`otherwise_at_most`).
    """
    rows = treated.results[treated.measures] - plain.results[plain.measures]
    columns, widest = {MEAN: rows.mean(axis=1), **gaps_of(rows)}, math.inf if plain.measures in NATS else 2.0
    together, found = remedies * len(columns), dict[str, Estimate]()
    for name, column in columns.items():
        found[name] = one = Estimate.of_mean(column).jointly(together)
        if one.se < EXACT:
            reach = widest * otherwise_at_most(len(column), 0.05 / together)
            ends = (one.value - reach, one.value + reach)
            found[name] = replace(one, se=math.nan, ends=ends, narrow=ends)
    return found


def by_slot(held: Decisions) -> Places:
    """By set of contents and slot: accuracy where the right option stands there, else how often it is chosen."""
    if held.right and (places := ChoiceAnswer(held).places) is not None:
        return places
    sets, chosen = held.sets[held.item], np.eye(held.slots)[held.chosen] * (held.chosen >= 0)[:, None]
    shares = np.array([chosen[sets == one].mean(axis=0) for one in np.unique(sets)])
    return Places({"chosen": shares}, np.arange(held.slots), held.asked, held.job, rows="sets of contents")
