"""Asking in parts until a limit is surely kept, or surely exceeded: each look is a session or choice of its own.

What was asked for an earlier look, or before an interruption, is in the file of answers and not asked again.
"""

import math
import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from posbias.asking.kept import ANSWERS, AnswerFile
from posbias.asking.opening import opened
from posbias.asking.requests import specification_of
from posbias.checking.answer import VERDICTS, Check, Gap
from posbias.checking.boundaries import UNDECIDED, Numbers, decided, limits, looks_at, questions_for
from posbias.choice import Item, choose
from posbias.choice.answer import read
from posbias.choice.effects import LEAST_SETS
from posbias.core import machine
from posbias.core.errors import counted, wrong
from posbias.core.files import write_text
from posbias.core.progress import Event, OnEvent
from posbias.profiles.decisions import REFUSED, Decisions, save_decisions
from posbias.profiles.estimate import MOST_DRAWS, Estimate, otherwise_at_most
from posbias.profiles.gaps import gaps_of
from posbias.profiles.places import MOST_CUT_OFF, Places, save_places
from posbias.retrieval import DocumentSet, Session, read_document_sets
from posbias.retrieval.session import RESULT

Rows = Float[np.ndarray, "question number"]


class _Seen(NamedTuple):
    """Names of questions, their gaps, and why these say nothing of places."""

    names: Sequence[Hashable]
    gaps: Mapping[str, Float[np.ndarray, "question"]]
    doubts: list[str]


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
    place, before, history = None if folder is None else Path(folder), _earlier(baseline), []
    with opened(who, loading=loading) as who:
        how: Any = {"concurrency": 1 if hasattr(who, "loaded") else concurrency}
        how["answers"] = None if place is None else place / ANSWERS
        total, ask, heard = _asking(who, trials, seed, on_event, **how)
        planned = looks_at(total, counted("looks", looks) if max_gap else 1)
        while True:
            count = planned[len(history)]
            seen = _seen(held := ask(count))
            numbers, rows, paired = _exceeding(seen, before)
            history.append([(one.value, one.se, one.freedom) for one in numbers])
            means, errors, freedom = np.moveaxis(np.array(history), 2, 0)
            low, high = limits(means, errors, freedom, max_gap or 0.0, len(planned))
            limit = math.nan if max_gap is None or seen.doubts else max_gap
            status = int(decided(low, high, limit))
            if status != UNDECIDED or len(history) == len(planned):
                break
    gaps = _sizes(seen, before, low, high, limit)
    about: Any = {"limit": max_gap, "status": status, "gaps": gaps, "doubts": seen.doubts, "paired": paired}
    if status == UNDECIDED and limit > 0:
        # items may share a set: rows came of `count` questions
        needed = questions_for(np.cov(rows.T).reshape(rows.shape[1], -1), limit, looks)
        about["needed"] = min(MOST_DRAWS + 1, -(-needed * count // len(rows)))
    least = max(otherwise_at_most(len(rows)), *(one.jointly(len(seen.gaps)).detectable for one in numbers))
    about |= {"questions": count, "available": total, "looks": planned, "detectable": least}
    about["kept"] = _kept(place, len(heard) - len(history))
    answer = Check.of(model=str(held.asked.get("model", "")), **about)
    _keep(place, held, answer)
    return answer


def _kept(place: Path | None, asked: int) -> int:
    """Answers in a folder, which has a line for each and one before, but for those that were asked for now."""
    lines = 0 if place is None else (place / ANSWERS).read_bytes().count(b"\n")
    return max(0, lines - 1 - asked)


def _sizes(seen: _Seen, before: _Seen | None, low: Numbers, high: Numbers, limit: float) -> dict[str, Gap]:
    """By gap, the larger of what its two directions surely are at least, and at most."""
    least, most = (ends.reshape(len(seen.gaps), -1).max(axis=1) for ends in (low, high))
    if before is None:  # a size
        least, most = np.maximum(least, 0.0), np.minimum(most, 1.0)
    gaps, each = {}, zip(least, most, decided(least[:, None], most[:, None], limit), strict=True)
    for (name, gap), (at_least, at_most, verdict) in zip(seen.gaps.items(), each, strict=True):
        about: Any = {"at_least": at_least, "at_most": at_most, "verdict": VERDICTS[int(verdict)]}
        then, one = None if before is None else before.gaps[name].mean(), Estimate.of_mean(gap)
        # what is the same in all questions has the interval of their number, of a difference none
        value = one.as_share() if name == "flips" else one if one.se else replace(one, se=math.nan)
        gaps[name] = Gap.of(value=value, before=then, **about)
    return gaps


def _keep(place: Path | None, held: Places | Decisions, answer: Check) -> None:
    """Write results and the answer into a folder if there is one. Raises `OutputFileError`."""
    if place is None:
        return
    if isinstance(held, Places):
        save_places([held], place / RESULT)
    else:
        save_decisions(held, place / "decisions.json")
    write_text(place / "check.md", answer.markdown())
    write_text(place / "check.xml", answer.junit())


def _asking(
    who: Any, trials: Any, seed: int, on_event: OnEvent, **how: Any
) -> tuple[int, Callable[[int], Places | Decisions], list[Event]]:
    """The number of questions, what asks about the first of them, in an order drawn once, and events so far."""
    draw, heard = machine.stream(seed, "check.order").permutation, list[Event]()

    def hear(event: Event) -> None:
        heard.append(event)
        on_event(event)

    if isinstance(trials, Sequence) and isinstance(trials[0], Item):
        order = draw(len(trials)).tolist()
        how["on_event"] = hear
        return len(trials), lambda count: choose(who, trials, only=order[:count], **how).decisions, heard
    own = None if trials is None or isinstance(trials, Session) else tuple(trials)
    session = trials if isinstance(trials, Session) else Session(documents=own)
    if session.margins:
        raise wrong("trials", "a session of answers, whose gaps are shares", got="one of margins")
    if (sets := session.documents) is not None:
        drawn = tuple(replace(sets[number], number=number) for number in draw(len(sets)).tolist())
        session = replace(session, documents=drawn)
    session = replace(session, concurrency=how["concurrency"])
    session.announce()
    file = AnswerFile(how["answers"], specification_of(who) or {"model": "the function"})
    job = session.jobs[0]
    return job.prompts, lambda count: session.ask(who, replace(job, prompts=count), file, hear), heard


def _seen(held: Places | Decisions) -> _Seen:
    """Of results by place, or of decisions: by set of contents, how often they flip with the order."""
    if isinstance(held, Places):
        gaps = gaps_of(held.results[held.measures])
        return _Seen(held.trials, gaps, [] if held.able else [held.verdict_in_words])
    others = ~held.same_order
    sets, row = np.unique(held.sets[held.item[held.pairs[others, 0]]], return_inverse=True)
    flips = np.bincount(row, held.differ[others]) / np.bincount(row)
    names = [tuple(held.options[int((held.sets == one).argmax())]) for one in sets]
    refused = float((held.chosen == REFUSED).mean())
    doubts = [f"{refused:.0%} of decisions are for no option"] if refused > MOST_CUT_OFF else []
    doubts += [f"below {LEAST_SETS} sets of items that share no option"] if len(sets) < LEAST_SETS else []
    return _Seen(names, {"flips": flips}, doubts)


def _earlier(path: str | os.PathLike[str] | None) -> _Seen | None:
    """What there was earlier. Raises `InvalidValueError` for results without trials, and as `posbias.read`."""
    if path is None:
        return None
    kept: Any = read(path)
    kept = next(iter(kept.values())).decisions if isinstance(kept, dict) else kept.places
    if kept is None:
        raise wrong("baseline", "results by place with their trials", str(path))
    return _seen(kept)


def _exceeding(now: _Seen, before: _Seen | None) -> tuple[list[Estimate], Rows, bool | None]:
    """What must not exceed the limit, its rows, and whether these are changes within questions: each gap, and the
    other way. A gap that surely (99 %) had a sign before is larger by its size now less its size then."""
    ways = [(name, sign) for name in now.gaps for sign in ((1,) if name == "flips" else (1, -1))]
    rows, paired = np.stack([sign * now.gaps[name] for name, sign in ways], axis=1), None
    if before is not None:
        if before.gaps.keys() != now.gaps.keys():
            raise wrong("baseline", f"results with {', '.join(now.gaps)}", got=", ".join(before.gaps))
        signs = {name: Estimate.of_mean(gap).jointly(5).sign for name, gap in before.gaps.items()}
        then = np.stack([(signs[name] or sign) * before.gaps[name] for name, sign in ways], axis=1)
        at = {name: row for row, name in enumerate(before.names)}
        both = [(row, at[name]) for row, name in enumerate(now.names) if name in at]
        if not (paired := len(both) >= max(2, min(len(now.names), len(at)))):
            pairs = zip(rows.T, then.T, strict=True)
            return [Estimate.of_mean(one) - Estimate.of_mean(other) for one, other in pairs], rows, paired
        rows = rows[[row for row, _ in both]] - then[[row for _, row in both]]
    return [Estimate.of_mean(column) for column in rows.T], rows, paired
