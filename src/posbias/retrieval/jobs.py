"""What is asked of a model: the job, with what is not given filled in."""

from typing import Any, Literal

from pydantic import Field

from posbias.core.errors import InvalidValueError, one_of, whole, wrong
from posbias.core.spec import Count, NaturalNumber, later, value
from posbias.retrieval.wordings import WORDINGS

PAIRS, LENGTH, POSITIONS = {"keys": 5, "rules": 20}, 256, 5
"""The defaults of a job."""
KINDS = ("must", "must not")
"""Kinds of rules, the curves of which are never one."""


@value
class RetrievalJob:
    """What is asked of a model: all that decides the numbers, but for the model and the text.

    `task` is `keys` (a list of `pairs`, or as many as `length` tokens hold) or `needle` (running text of
    `length` tokens), where one of `pairs` and `length` is given, or `documents` (one's own, which decide both),
    or `rules` of a `kind` (a list, as `keys`).
    Raises `InvalidValueError` for what cannot be right.
    """

    task: Literal["keys", "needle", "documents", "rules"]
    pairs: Count | None
    length: Count | None
    wording: str
    positions: int = Field(ge=3)
    prompts: int = Field(ge=2)
    seed: NaturalNumber = 0
    kind: Literal["must", "must not"] | None = later(default=None)

    def __post_init__(self):
        sizes = {name: held for name in ("pairs", "length") if (held := getattr(self, name)) is not None}
        if (self.kind is None) == (self.task == "rules"):
            raise wrong("kind", f"{' or '.join(KINDS)} with the task rules alone", self.kind)
        wanted, right = {
            **dict.fromkeys(PAIRS, ("pairs or length", len(sizes) == 1)),
            "needle": ("length alone", [*sizes] == ["length"]),
            "documents": ("neither, as files decide", not sizes),
        }[self.task]
        if not right:
            name = next(iter(sizes), "length")
            raise wrong(name, f"{wanted} with the task {self.task}", got=str(sizes or "none"))
        if self.pairs is not None:
            check_fit(self.positions, self.pairs)
        one_of("wording", self.wording, WORDINGS[self.task])


def check_fit(positions: int, pairs: int) -> None:
    """Raise `InvalidValueError` for more positions than pairs."""
    if positions > pairs:
        raise wrong("positions", f"at most the {pairs} pairs of the list", positions)


def retrieval_job(
    task: str = "keys",
    *,
    pairs: int | None = None,
    length: int | None = None,
    wording: str | None = None,
    positions: int | None = None,
    prompts: int = 64,
    seed: int = 0,
    kind: str | None = None,
) -> RetrievalJob:
    """A job with what is not given filled in: 5 pairs, or 256 tokens around a needle, and 5 positions at most.

    Of `documents` nothing of the kind is filled in; of `rules` 20, and the `kind` "must".

    Raises `InvalidValueError` for values that cannot be right.
    """
    one_of("task", task, WORDINGS)
    if pairs is None and length is None:
        pairs, length = PAIRS.get(task), {"needle": LENGTH}.get(task)
    if positions is None:
        positions = POSITIONS if pairs is None else max(3, min(POSITIONS, whole("pairs", pairs, 1)))
    wording = next(iter(WORDINGS[task])) if wording is None else wording
    kind = kind or {"rules": KINDS[0]}.get(task)
    parts: Any = (task, pairs, length, wording, positions, prompts, seed, kind)
    try:
        return RetrievalJob(*parts)
    except InvalidValueError as error:
        # the arguments are this function's own: who calls it need not know the class
        raise InvalidValueError(str(error).removeprefix(f"{RetrievalJob.__name__}: ")) from None
