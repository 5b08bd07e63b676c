"""What is asked of a model in a retrieval experiment: a frozen value, checked before anything is loaded."""

from typing import Literal

from pydantic import Field

from posbias.core import seeds
from posbias.core.arguments import shortened
from posbias.core.errors import InvalidValueError, nearest
from posbias.core.spec import Count, NaturalNumber, value
from posbias.retrieval.templates import WORDINGS

_PAIRS, _LENGTH, POSITIONS = 5, 256, 5
"""What a job has where nothing is said."""


@value
class RetrievalJob:
    """What is asked of a model: all that decides the numbers, but for the model and the text.

    `task` is `keys` (a list of `pairs`, or as many as `length` tokens hold) or `needle` (running text of
    `length` tokens), where one of `pairs` and `length` is given, or `documents` (one's own, which decide both).
    Raises `InvalidValueError` for what cannot be right.
    """

    task: Literal["keys", "needle", "documents"]
    pairs: Count | None
    length: Count | None
    wording: str
    positions: int = Field(ge=3)
    prompts: int = Field(ge=2)
    seed: NaturalNumber = 0

    def __post_init__(self):
        if self.task == "needle" and self.pairs is not None:
            raise InvalidValueError(f"pairs: {self.pairs} given, none needed: the task needle has one fact")
        if self.task == "documents":
            if self.pairs is not None or self.length is not None:
                name = "length" if self.pairs is None else "pairs"
                raise InvalidValueError(f"{name}: given with the task documents, whose files decide it")
        elif (self.pairs is None) == (self.length is None):
            raise InvalidValueError("length: given together with pairs, one of the two needed")
        if self.pairs is not None and self.positions > self.pairs:
            raise InvalidValueError(
                f"positions: {self.positions} given, at most the {self.pairs} pairs of the list can be told apart"
            )
        known = WORDINGS[self.task]
        if self.wording not in known:
            raise InvalidValueError(
                f"wording: {shortened(self.wording)} given, "
                f"one of {', '.join(known)} needed for the task {self.task}"
                f"{nearest(self.wording, known)}"
            )


def check_text(task: str, text: object) -> None:
    """Raise `InvalidValueError` for a `text`, not None, that no task but needle has."""
    if task != "needle" and text is not None:
        raise InvalidValueError(f"text: given with the task {task}, which has none; leave it out")


def retrieval_job(
    task: str = "keys",
    *,
    pairs: int | None = None,
    length: int | None = None,
    wording: str | None = None,
    positions: int | None = None,
    prompts: int = 64,
    seed: int = 0,
) -> RetrievalJob:
    """A job with what is not given filled in: 5 pairs, or 256 tokens around a needle, and 5 positions at most.

    Of `documents` nothing of the kind is filled in.

    Raises `InvalidValueError` for values that cannot be right.
    """
    if task not in WORDINGS:
        raise InvalidValueError(
            f"task: {shortened(task)} given, keys, needle or documents needed{nearest(task, WORDINGS)}"
        )
    if pairs is None and length is None and task != "documents":
        pairs, length = (_PAIRS, None) if task == "keys" else (None, _LENGTH)
    if positions is None:
        positions = POSITIONS if pairs is None else max(3, min(POSITIONS, pairs))
    seeds.stream(seed, "retrieval")
    first = next(iter(WORDINGS[task]))
    asked = (task, pairs, length, first if wording is None else wording, positions, prompts, seed)
    try:
        return RetrievalJob(*asked)  # type: ignore[arg-type]
    except InvalidValueError as error:
        # the arguments are this function's own: who calls it need not know the class
        raise InvalidValueError(str(error).removeprefix(f"{RetrievalJob.__name__}: ")) from None
