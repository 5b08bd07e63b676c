"""Answers of retrieve."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from posbias.core.answers import Answer, Number, Part, Table, Texts, entry
from posbias.profiles.gaps import WIDTHS
from posbias.profiles.places import ARMS, EFFECTS
from posbias.profiles.summary import Verdict
from posbias.reports.answers.numbers import OverPrompts, ToTell

Against = Literal["favoured", "at a disadvantage", "no difference", "inconclusive"]


class Curve(Part):
    """Retrieval by position of what is asked for."""

    model: str
    job: dict[str, Any] = entry("what was asked: task, pairs or length, wording, positions, prompts, seed")
    prompts: int = entry("trials, each asked at every place")
    chance: float = entry("how often guessing or copying is right; 0: nothing to copy, or not known")
    able: bool = entry("whether it finds more than it guesses or copies")
    verdict: Verdict
    ends: dict[Literal["first", "last"], Against] = entry("against the middle, the mean of all inner places")
    equivalence: Number = entry("a difference up to this counts as none; null where none was named")
    detectable: dict[str, Number] = entry("by difference, the least true one shown in 80 % of experiments")
    doubts: Texts = entry("what the trials leave open of the verdict")
    answer: Texts = entry("in sentences")


def _positions(depth: Any, numbers: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Numbers by name and place as what each place has."""
    columns = {"position": range(len(depth)), "depth": depth, **numbers}
    return [dict(zip(columns, held, strict=True)) for held in zip(*columns.values(), strict=True)]


class Place(Part):
    """One place of the fact."""

    position: int = entry("from 0")
    depth: float = entry("place in the prompt, 0 to 1")
    token: Number = entry("mean token; null: behind a server")
    accuracy: OverPrompts = entry("share of prompts where it writes the answer")
    choice: OverPrompts = entry("share where it prefers the answer among candidates")
    margin: OverPrompts = entry("log-probability over the best other, nats")
    margin_mean: OverPrompts = entry("over the mean other, nats")
    control_margin: OverPrompts = entry("the margin when another is asked for, nats")
    lift: OverPrompts = entry("margin over the mean other less that of the control, nats")


class Retrieve(Curve, Answer):
    """Retrieval by position of the answer; margins, which the verdict rests on, in nats."""

    file: Path = entry("the retrieval's .nc, or the curve of a server")
    pictures: list[Path]
    bounded: Number = entry("share of margins that are bounds; null: of a model that is opened")
    candidates: int
    tokens: float = entry("mean length of the prompts")
    overall: dict[Literal["choice", "lift"], OverPrompts]
    positions: list[Place]
    differences: dict[str, dict[str, OverPrompts]] = entry("by quantity: of an end and the middle")
    prompts_to_tell: dict[str, ToTell] = entry("by difference, of the margins that the verdict rests on")

    @classmethod
    def of(cls, result: Any = None, **more: Any) -> Self:
        """A curve with its places one by one."""
        unknown = np.full_like(result.results["margin"], np.nan)
        about = {name: result.results.get(name, unknown) for name in ("token", "bounded")}
        numbers = {"token": about["token"].mean(axis=0), **result.curves}
        return super().of(
            result,
            bounded=about["bounded"].mean(),
            candidates=round(1 / result.chance),
            overall={name: result.overall[name] for name in ("choice", "lift")},
            positions=_positions(result.depth, numbers),
            differences=result.gaps,
            answer=result.sentences(),
            **more,
        )


class AskedPlace(Part):
    """One place of the moved fact."""

    position: int = entry("from 0")
    depth: float = entry("share of the other facts, words or documents before it")
    accuracy: OverPrompts = entry("share of trials with the moved fact in the answer")
    all_found: OverPrompts | None = entry("with all asked facts in it; null where they do not differ")


class AnswerCurve(Curve):
    """Accuracy of answers by place of what is asked for, and in the control arms."""

    rule: Literal["contains", "first", "check"] = entry("how answers are scored")
    words: float = entry("mean length of the prompts, in words and marks of punctuation", of="length")
    found: Table = entry("0 or 1: whether the moved fact was in the answer, by trial and position")
    cut_off: list[float] = entry("by position, the share of answers that were cut off")
    until: Number = entry("half-width of the gaps' intervals that was wanted")
    reached: bool | None = entry("whether it was reached before the trials ran out")
    positions: list[AskedPlace]
    controls: dict[str, OverPrompts] = entry("accuracy by control arm: no gold, gold alone, shuffled")
    differences: dict[str, OverPrompts] = entry("in accuracy, within trials: of places and control arms")
    half_width: float = entry("half the widest interval of the ends' differences")
    trials_for: dict[str, int] = entry("by half-width, about how many trials it takes; 10001: more")

    @classmethod
    def of(cls, result: Any = None, **more: Any) -> Self:
        """A curve with its places one by one."""
        accuracy, whole = (result.curves.get(name) for name in ("accuracy", "all_found"))
        numbers = {"accuracy": accuracy, "all_found": whole if result.several else [None] * len(result.depth)}
        return super().of(
            result,
            found=result.results["accuracy"].astype(int),
            positions=_positions(result.depth, numbers),
            controls={arm: result.overall[arm] for arm in ARMS},
            differences=result.deciding | {name: result.overall[name] for name in EFFECTS},
            trials_for={f"{width:g}": result.trials_for(width) for width in WIDTHS},
            answer=result.sentences(),
            **more,
        )


class AskedOf(Part):
    """What decides an answer apart from the prompt; of answers made elsewhere the name alone."""

    model: str
    api: Literal["chat", "completion"] | None = None
    system: str | None = None
    most_out: int | None = entry("tokens of an answer at most", None)
    temperature: float | None = None


class Asked(Part):
    """Answers of a model that was only asked."""

    file: Path = entry("the answers, as JSON lines")
    pictures: list[Path]
    asked: AskedOf
    curves: list[AnswerCurve] = entry("one for each size")


class RetrieveAnswers(Asked, Answer):
    """Retrieval by position of a model that was only asked: its answers are right or wrong."""


class Way(Asked):
    """One way to ask."""

    name: str
    folder: Path = entry("with this way alone, as retrieve-answers/1")


class CurveDifference(Part):
    """What one curve of retrieval by place has more than another."""

    way: str = entry("the way to ask, or the file")
    against: str = entry("what it is held against")
    paired: bool = entry("whether both are of the same trials, so that differences are within them")
    trials: tuple[int, int] = entry("of each")
    differences: dict[str, OverPrompts] = entry(
        "in accuracy, way less against: of the mean over places, and of the gaps between places; all intervals of "
        "an answer hold at once in 95 % of experiments",
        of="numbers",
    )
    verdict: Literal["changes the bias", "no difference", "inconclusive"]
    equivalence: float = entry("a difference of gaps up to this counts as none")
    at_chance: Texts = entry("those not shown to find more than is guessed or copied", of="dull")
    answer: Texts = entry("in sentences")


class RetrieveWays(Answer):
    """Retrieval by position of a model that was asked the same trials in several ways (api, system message)."""

    pictures: list[Path] = entry("all ways in one")
    ways: list[Way]
    differences: list[list[CurveDifference]] = entry("for each size, one for each way but the first")


class RetrievePrompts(Answer):
    """Prompts that were written for somebody to answer."""

    file: Path
    prompts: int = entry("prompts that differ")
    words: int = entry("words and marks of punctuation in them")
