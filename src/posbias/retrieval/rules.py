"""One rule at one place after another, among rules that the request does not touch; is it kept?

    curves = [ask(my_model, retrieval_job("rules", kind=kind)) for kind in KINDS]

What must be and what must not be are two jobs and two curves: prohibitions may be forgotten where requirements
stay. Of an answer a function decides (`checks`), no model. The arm without the rule says how often it is kept by
chance.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from posbias.asking.requests import TURN, Transcript
from posbias.core.errors import errors_of, one_of, wrong
from posbias.core.files import data_table
from posbias.core.matching import ENDINGS, final_answer
from posbias.core.tables import table_lines, unexpected
from posbias.retrieval.checks import CHECKS, EARLY, check_value
from posbias.retrieval.jobs import KINDS, RetrievalJob
from posbias.retrieval.trials import Keys, Trial

_HELD = data_table(__file__)
REQUEST, OTHERS = _HELD["request"], _HELD["others"]


@dataclass(frozen=True)
class Instruction:
    """A rule, the check (`CHECKS`) that must or must not be met, its value, and the request that is answered.

    In each {word} is a drawn word and {thing} a drawn thing. Raises `InvalidValueError` for what cannot be right.
    """

    rule: str
    check: str
    value: str = ""
    kind: str = KINDS[0]
    request: str = REQUEST

    def __post_init__(self):
        one_of("check", self.check, CHECKS)
        one_of("kind", self.kind, KINDS)
        for name in ("rule", "request"):
            if not (text := getattr(self, name)).strip() or TURN.search(text):
                raise wrong(name, "a text without turns of a conversation", text)
        check_value(self.check, self.value)

    def about(self, word: str, thing: str) -> "Instruction":
        """This rule of a word and a thing."""

        def put(text: str) -> str:
            return text.replace("{word}", word).replace("{thing}", thing)

        return replace(self, rule=put(self.rule), value=put(self.value), request=put(self.request))

    def kept(self, answer: str) -> bool:
        """Whether an answer keeps the rule; one that is none keeps none."""
        return not self.missing(answer) and self._met(answer) == (self.kind == KINDS[0])

    def missing(self, answer: str) -> str:
        """Why an answer is none, a name of `ENDINGS`; empty where it is one, or no more of it would matter."""
        if self.check in EARLY and self._met(answer):
            return ""
        nothing = "" if _said(answer).strip() else "cut_off"
        return next((name for name, kind in ENDINGS.items() if isinstance(answer, kind)), nothing)

    def _met(self, answer: str) -> bool:
        return CHECKS[self.check](_said(answer), self.value)


def _said(answer: str) -> str:
    """An answer without thoughts, and without the turns that a plain completion makes up behind it."""
    return TURN.split(final_answer(answer))[0]


INSTRUCTIONS = tuple(Instruction(**row) for row in _HELD["rules"])
"""The rules that are asked about unless others are given."""


class Rules(Keys):
    """Lists of `pairs` rules, or of as many as fit into `length` tokens: one to be kept, the others not touched.

    The rules of the job's kind take turns. Raises `InvalidValueError` where there is none, and as `Keys`.
    """

    def __init__(self, tokenizer: Any, job: RetrievalJob, instructions: Sequence[Instruction] = INSTRUCTIONS):
        self.instructions = [one for one in instructions if one.kind == job.kind]
        if not self.instructions:
            raise wrong("kind", f"that of a rule among the {len(instructions)}", job.kind)
        super().__init__(tokenizer, job)

    def trial(self, index: int) -> Trial:
        """The variants of trial `index`: the rule at each place, the others in one order."""
        random, count = self._random(index), self.pairs - 1
        names, things = self._names.of(count), self._things.of(count + 2)
        keys = [names[k] for k in random.choice(len(names), count, replace=False)]
        word, thing, *values = [things[k] for k in random.choice(len(things), count + 2, replace=False)]
        instruction = self.instructions[index % len(self.instructions)].about(word, thing)
        texts = [random.choice(OTHERS).format(key=k, value=v) for k, v in zip(keys, values, strict=True)]
        fact, *others = [self._wording.item.format(value=text) for text in (instruction.rule, *texts)]
        slots = np.linspace(0, count, self.positions).round().astype(int).tolist()
        trial = self._moving(index, fact, others, slots, [instruction.request], [], within=self._within(""))
        return replace(trial, instruction=instruction)

    def _wrapped(self, body: str) -> str:
        return Transcript(body)


def read_instructions(path: str | os.PathLike[str]) -> tuple[Instruction, ...]:
    """Read rules from a file of JSON lines, JSON or CSV. Raises `InputFileError` naming line and key.

    A row has `rule` (its text), `check` (a name of `CHECKS`) and its `value`; `kind` (must, the default, or must
    not) and `request` where wanted.
    """
    rules, names = list[Instruction](), [one.name for one in fields(Instruction)]
    for where, row in table_lines(Path(path)):
        cells = {name: str(cell) for name, cell in row.items() if cell is not None}
        if not {"rule", "check"} <= cells.keys() <= {*names}:
            raise unexpected(where, f"rule and check among {', '.join(names)}", ", ".join(cells))
        with errors_of(where):
            rules.append(Instruction(**cells))
    return tuple(rules)
