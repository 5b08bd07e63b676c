"""Asking in parts until a limit is surely kept, or surely exceeded: each look is a session or choice of its own.

What was asked for an earlier look, or before an interruption, is in the file of answers and not asked again.
"""

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from posbias.asking.kept import ANSWERS, AnswerFile
from posbias.asking.opening import opened
from posbias.asking.requests import specification_of
from posbias.checking.answer import VERDICTS, Check, Gap
from posbias.checking.boundaries import UNDECIDED, decided, limits, looks_at, questions_for
from posbias.choice import Item, choose
from posbias.choice.answer import read
from posbias.core import machine
from posbias.core.errors import counted, wrong
from posbias.core.files import write_text
from posbias.core.progress import OnEvent
from posbias.profiles.decisions import REFUSED, Decisions, save_decisions
from posbias.profiles.estimate import Estimate, otherwise_at_most
from posbias.profiles.gaps import gaps_of
from posbias.profiles.places import MOST_CUT_OFF, Places, save_places
from posbias.retrieval import DocumentSet, Session, read_document_sets
from posbias.retrieval.session import RESULT

Rows = Float[np.ndarray, "question number"]
ByGap = Mapping[str, Float[np.ndarray, "question"]]


def check(
    who: Any,
    trials: Session | Sequence[DocumentSet] | Sequence[Item] | str | os.PathLike[str] | None = None,
    max_gap: float | None = None,
    *,
    baseline: str | os.PathLike[str] | None = None,
    looks: int = 4,
    seed: int = 0,
    loading: Mapping[str, Any] = {},
    folder: str | os.PathLike[str] | None = None,
    concurrency: int = 1,
    on_event: OnEvent = lambda event: None,
) -> Check:
    """Ask until every gap between places is surely within a limit, or one surely above it, or questions run out.

    who: whoever writes answers, a function for instance; or a model, as of `posbias.measure`, which is opened.
    trials: questions with documents, or the file that has them (`read_document_sets`); a `Session`, whose first
        job is asked about (default: keys); or items to choose from (`read_items`), whose only gap is how often a
        choice flips with the order (`posbias.choose`).
    max_gap: the largest gap that passes, above 0 and below 1; without one nothing is decided.
    baseline: earlier results, as of `posbias.read`, or decisions.json: gaps may be larger than there by the limit.
    looks: how often answers are looked at, evenly; `seed` draws the order of questions in a file.
    loading: of a model that is opened; concurrency: threads that ask whom is not.
    folder: keeps answers, results, check.md and check.xml; the same call goes on after an interruption.
    on_event: hears of answered requests.

    Raises `InvalidValueError` for what cannot be right, and as `Session.ask` and `posbias.choose`.
    """
    if max_gap is not None and not 0 < max_gap < 1:
        raise wrong("max_gap", "a number above 0 and below 1", max_gap)
    if isinstance(trials, str | os.PathLike):
        trials = read_document_sets(trials)
    place, history = None if folder is None else Path(folder), list[list[Estimate]]()
    before: Any = None if baseline is None else read(baseline)
    if before is not None:
        before = next(iter(before.values())).decisions if isinstance(before, dict) else before.places
        if before is None:
            raise wrong("baseline", "results by place with their trials", str(baseline))
    with opened(who, loading=loading) as who:
        how: Any = {"concurrency": 1 if hasattr(who, "loaded") else concurrency, "on_event": on_event}
        how["answers"] = None if place is None else place / ANSWERS
        total, ask = _asking(who, trials, seed, **how)
        planned = looks_at(total, counted("looks", looks) if max_gap else 1)
        for count in planned:
            held = ask(count)
            numbers, rows, paired = _exceeding(held, before)
            history.append(numbers)
            parts = [[[one.value, one.se, one.freedom] for one in look] for look in history]
            low, high = limits(*np.moveaxis(np.array(parts), 2, 0), max_gap or 0.0, len(planned))
            doubts = _doubts(held)
            status = UNDECIDED if max_gap is None or doubts else int(decided(low, high, max_gap))
            if status != UNDECIDED:
                break
    gaps, (_, now), then = {}, _gaps(held), {} if before is None else _gaps(before)[1]
    each = len(numbers) // len(now)
    for k, (name, gap) in enumerate(now.items()):
        ends = [side[each * k : each * (k + 1)] for side in (low, high)]
        verdict = VERDICTS[UNDECIDED if max_gap is None else int(decided(*ends, max_gap))]
        about = {"at_least": ends[0].max(), "at_most": ends[1].max(), "verdict": verdict}
        gaps[name] = Gap.of(value=Estimate.of_mean(gap), before=then[name].mean() if then else None, **about)
    needed = None
    if max_gap is not None and status == UNDECIDED:
        needed = questions_for(np.cov(rows.T).reshape(len(numbers), -1), max_gap, looks)
    least = max(otherwise_at_most(count), *(one.detectable for one in numbers))
    about = {"status": status, "limit": max_gap, "needed": needed, "detectable": least, "paired": paired}
    about |= {"questions": count, "available": total, "looks": planned, "gaps": gaps, "doubts": doubts}
    answer = Check.of(model=str(held.asked.get("model", "")), **about)
    if place is not None:
        if isinstance(held, Places):
            save_places([held], place / RESULT)
        else:
            save_decisions(held, place / "decisions.json")
        write_text(place / "check.md", answer.markdown())
        write_text(place / "check.xml", answer.junit())
    return answer


def _asking(who: Any, trials: Any, seed: int, **how: Any) -> tuple[int, Callable[[int], Places | Decisions]]:
    """The number of questions, and what asks about the first of them, in an order drawn once."""
    draw = machine.stream(seed, "check.order").permutation
    if isinstance(trials, Sequence) and isinstance(trials[0], Item):
        order = draw(len(trials)).tolist()
        return len(trials), lambda count: choose(who, trials, only=order[:count], **how).decisions
    session = trials if isinstance(trials, Session) else Session(documents=trials)
    if (sets := session.documents) is not None:
        drawn = tuple(replace(sets[number], number=number) for number in draw(len(sets)).tolist())
        session = replace(session, documents=drawn)
    session = replace(session, concurrency=how["concurrency"])
    session.announce()
    file = AnswerFile(how["answers"], specification_of(who) or {"model": "the function"})
    job, on_event = session.jobs[0], how["on_event"]
    return job.prompts, lambda count: session.ask(who, replace(job, prompts=count), file, on_event)


def _gaps(held: Places | Decisions) -> tuple[Sequence[Hashable], ByGap]:
    """Names of questions and their gaps; of choices, sets of contents and how often they flip with the order."""
    if isinstance(held, Places):
        return held.trials, gaps_of(held.results[held.measures])
    first, second = held.pairs[~held.same_order].T
    sets, row = np.unique(held.sets[held.item[first]], return_inverse=True)
    flips = np.bincount(row, held.option[first] != held.option[second]) / np.bincount(row)
    return [tuple(held.options[int((held.sets == one).argmax())]) for one in sets], {"flips": flips}


def _doubts(held: Places | Decisions) -> list[str]:
    """Why the answers say nothing of places."""
    if isinstance(held, Places):
        return [] if held.able else [held.verdict_in_words]
    refused = float((held.chosen == REFUSED).mean())
    return [f"{refused:.0%} of decisions are for no option"] if refused > MOST_CUT_OFF else []


def _exceeding(
    held: Places | Decisions, before: Places | Decisions | None
) -> tuple[list[Estimate], Rows, bool | None]:
    """What must not exceed the limit, its rows, and whether these are changes within questions: each gap, and the
    other way. A gap that surely had a sign before is larger by its size now less its size then."""
    names, gaps = _gaps(held)
    ways = [(name, sign) for name in gaps for sign in ((1,) if name == "flips" else (1, -1))]
    rows, paired = np.stack([sign * gaps[name] for name, sign in ways], axis=1), None
    if before is not None:
        others, then = _gaps(before)
        if then.keys() != gaps.keys():
            raise wrong("baseline", f"results with {', '.join(gaps)}", got=", ".join(then))
        sizes = np.stack(
            [(Estimate.of_mean(then[name]).sign or sign) * then[name] for name, sign in ways], axis=1
        )
        at = {name: row for row, name in enumerate(others)}
        both = [(row, at[name]) for row, name in enumerate(names) if name in at]
        if not (paired := len(both) >= max(2, min(len(names), len(at)))):
            pairs = zip(rows.T, sizes.T, strict=True)
            return [Estimate.of_mean(now) - Estimate.of_mean(one) for now, one in pairs], rows, paired
        rows = rows[[row for row, _ in both]] - sizes[[row for _, row in both]]
    return [Estimate.of_mean(column) for column in rows.T], rows, paired
