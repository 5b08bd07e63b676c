"""What another way to ask changes: a system message, a chat template, another model, asked the same trials.

    plain, told = (ask(Endpoint(URL, "m", system=text), job) for text in (None, "Answer in one word."))
    print(*curve_differences({"plain": plain, "told": told})[0].sentences(), sep="\n")

All differences are taken within trials: what makes a trial hard cancels. Several are looked at together, so their
intervals are wider than one alone (Bonferroni): all of them hold at once in at least 95 % of experiments.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from posbias.errors import InvalidValueError
from posbias.retrieval.answer_curve import GAPS, AnswerCurve, gaps_of, signed
from posbias.retrieval.resampling import Resampled, resampled
from posbias.signatures import typed

MEAN = "mean"
"""The difference in accuracy over all places; the others are those of the ends."""


@dataclass(frozen=True)
class CurveDifference:
    """What `way` changes against `against`: `numbers` are differences in accuracy, way − against.

    `MEAN` is that of the mean over places, each of `GAPS` that of a gap between places. Their intervals hold
    together, with those of all differences made at once. `dull`: the ways that are not told from chance, of which
    a gap may show where is copied from.
    """

    way: str
    against: str
    numbers: Mapping[str, Resampled]
    dull: tuple[str, ...]

    @property
    def changed(self) -> list[str]:
        """The gaps that are told to differ."""
        return [name for name in GAPS if self.numbers[name].sign]

    @property
    def at_most(self) -> float:
        """The largest change of a gap, up or down, that the intervals leave."""
        return max(abs(end) for name in GAPS for end in self.numbers[name].interval)

    @property
    def verdict(self) -> str:
        """`changes the bias`, or `no difference told`."""
        return "changes the bias" if self.changed else "no difference told"

    def sentences(self) -> list[str]:
        """In words: what it does to accuracy, and what to the effect of position."""
        mean, trials = self.numbers[MEAN], self.numbers[MEAN].n
        words = ("no difference told", "finds more", "finds less")
        said = [f"{self.way} against {self.against}: {signed(mean)}: {words[mean.sign]}"]
        for name in self.changed:
            gap = self.numbers[name]
            said.append(f"{name} is {'larger' if gap.sign > 0 else 'smaller'} by {signed(gap)}")
        if not self.changed:
            said.append(
                f"position makes no difference that {trials} trials tell between the two: its gaps differ by "
                f"{self.at_most:.2f} at most"
            )
        if self.dull:
            said.append(
                f"at chance, or not told from it: {', '.join(self.dull)}; gaps may be of what is copied there"
            )
        return said

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain dictionaries and lists, ready for JSON."""
        return {
            "way": self.way,
            "against": self.against,
            "differences": {name: one.as_dict() for name, one in self.numbers.items()},
            "verdict": self.verdict,
            "at_chance": list(self.dull),
            "answer": self.sentences(),
        }


@typed
def curve_differences(curves: Mapping[str, AnswerCurve], *, together: int = 1) -> list[CurveDifference]:
    """What each way to ask changes against the first; `curves` by the name of the way.

    All must be of the same trials, scored by the same rule. `together`: so many such tables (one for each size of
    a list, say) are looked at, and all their intervals hold at once.

    Raises `InvalidValueError` for fewer than two curves, and for other trials.
    """
    if len(curves) < 2:
        raise InvalidValueError(f"curves: {len(curves)} given, at least two needed")
    if together < 1:
        raise InvalidValueError(f"together: {together} given, a whole number of at least 1 needed")
    (first, base), *others = curves.items()
    for name, curve in others:
        if _trials(curve) != _trials(base):
            raise InvalidValueError(
                f"curves: {name!r} is of other trials than {first!r} or scored by another rule, the same needed"
            )
    columns = [
        column - of_base for _, curve in others for column, of_base in zip(*_ways(curve, base), strict=True)
    ]
    names = (MEAN, *GAPS)
    limits = [(-1.0, 1.0), *[(-2.0, 2.0)] * len(GAPS)] * len(others)
    seed = int(base.job.get("seed", 0))
    table = resampled(np.stack(columns, axis=1), limits, seed, len(columns) * together)
    return [
        CurveDifference(
            name,
            first,
            dict(zip(names, table[k * len(names) : (k + 1) * len(names)], strict=True)),
            tuple(one for one, held in ((first, base), (name, curve)) if not held.able),
        )
        for k, (name, curve) in enumerate(others)
    ]


def _trials(curve: AnswerCurve) -> tuple[Any, ...]:
    """What two curves of the same trials share; the files of documents are not known, their words are counted."""
    return dict(curve.job), curve.rule, curve.prompts, curve.words, curve.depth.tolist()


def _ways(*curves: AnswerCurve) -> list[list[np.ndarray]]:
    """For each curve, by trial, the mean over places and the gaps."""
    found = [curve.found.astype(float) for curve in curves]
    return [[one.mean(axis=1), *gaps_of(one)] for one in found]
