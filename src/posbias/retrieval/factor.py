"""What another way to ask changes: a system message, a chat template, another model, asked the same trials.

    plain, told = (ask(Endpoint(URL, "m", system=text), job) for text in (None, "Answer in one word."))
    print(*curve_differences({"plain": plain, "told": told})[0].sentences(), sep="\n")

Differences are taken within trials, where these are the same: what makes a trial hard cancels. Several are looked
at together, so their intervals are wider than one alone (Bonferroni): all of them hold at once in at least 95 % of
experiments.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from posbias.core.errors import InvalidValueError
from posbias.profiles.estimate import Estimate
from posbias.profiles.profile import Profile
from posbias.retrieval.curve import Answers, RetrievalCurve, signed
from posbias.retrieval.resampling import resampled
from posbias.retrieval.statistics import ENDS, EQUIVALENCE, GAPS, gap_words, gaps_of

MEAN = "mean"
"""The difference in accuracy over all places; the others are those of the ends."""


@dataclass(frozen=True)
class CurveDifference:
    """What `way` changes against `against`: `numbers` are differences in accuracy, way − against.

    `MEAN` is that of the mean over places, each of `GAPS` that of a gap between places. Their intervals hold
    together, with those of all differences made at once. `dull`: the ways that are not told from chance, of which
    a gap may show where is copied from. `trials`: how many each has; `paired` says that they are the same ones;
    `unit`: what is compared; `equivalence`: the difference that counts as none.
    """

    way: str
    against: str
    numbers: Mapping[str, Estimate]
    dull: tuple[str, ...]
    trials: tuple[int, int]
    paired: bool = True
    unit: str = "accuracy"
    equivalence: float = EQUIVALENCE

    @property
    def changed(self) -> list[str]:
        """The gaps that are told to differ."""
        return [name for name, gap in self._gaps.items() if gap.sign]

    @property
    def _gaps(self) -> dict[str, Estimate]:
        return {name: gap for name, gap in self.numbers.items() if name != MEAN}

    @property
    def at_most(self) -> float:
        """The largest change of a gap, up or down, that the intervals leave."""
        return max(abs(end) for gap in self._gaps.values() for end in gap.interval)

    @property
    def verdict(self) -> str:
        """`changes the bias`, `no difference` (90 % intervals within ± `equivalence`), or `inconclusive`."""
        if self.changed:
            return "changes the bias"
        alike = all(gap.within(self.equivalence) for gap in self._gaps.values())
        return "no difference" if alike else "inconclusive"

    @property
    def _effort(self) -> str:
        return str(self.trials[0]) if self.paired else f"{self.trials[0]} and {self.trials[1]}"

    def sentences(self) -> list[str]:
        """In words: what it does to accuracy, and what to the effect of position."""
        mean = self.numbers[MEAN]
        words = (gap_words(MEAN, mean, self.equivalence), "finds more", "finds less")
        said = [f"{self.way} against {self.against}: {signed(mean, self.unit)}: {words[mean.sign]}"]
        for name in self.changed:
            gap = self.numbers[name]
            said.append(f"{name} is {'larger' if gap.sign > 0 else 'smaller'} by {signed(gap, self.unit)}")
        if self.verdict == "no difference":
            said.append(f"position matters as much to both: no gap differs by more than {self.equivalence:g}")
        elif not self.changed:
            least = max(gap.detectable for gap in self._gaps.values())
            said.append(
                f"inconclusive whether position matters more to one: {self._effort} trials miss changes of a gap "
                f"under {least:.2g}; gaps differ by {self.at_most:.2f} at most"
            )
        how = "the same trials, so differences are taken within them"
        said.append(
            f"{self._effort} trials: {how if self.paired else 'not known to be the same, so compared as unpaired'}"
        )
        if self.dull:
            said.append(
                f"at chance, or not told from it: {', '.join(self.dull)}; gaps may be of what is copied there"
            )
        return said


def curve_differences(curves: Mapping[str, RetrievalCurve], *, together: int = 1) -> list[CurveDifference]:
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
            (curve.prompts, base.prompts),
        )
        for k, (name, curve) in enumerate(others)
    ]


def _trials(curve: RetrievalCurve) -> tuple[Any, ...]:
    """What two curves of the same trials share; the files of documents are not known, their words are counted."""
    answers = _answers(curve)
    return dict(curve.job), answers.rule, curve.prompts, answers.words, curve.depth.tolist()


def _answers(curve: RetrievalCurve) -> Answers:
    if curve.answers is None:
        raise InvalidValueError("curves: one of margins given, curves of answers in words needed")
    return curve.answers


def _ways(*curves: RetrievalCurve) -> list[list[np.ndarray]]:
    """For each curve, by trial, the mean over places and the gaps."""
    return [_told(_answers(curve).found.astype(float)) for curve in curves]


def _told(found: Float[np.ndarray, "prompt position"]) -> list[Float[np.ndarray, "prompt"]]:
    """By trial, the mean over places and the gaps."""
    return [found.mean(axis=1), *gaps_of(found).values()]


def profile_difference(
    p: Profile, q: Profile, *, way: str = "p", against: str = "q"
) -> CurveDifference | None:
    """What two curves by place differ in, `p` less `q`, whoever made them; None unless both are rates with trials.

    Where both are known to be of the same trials (`same_trials`), differences are taken within them, as by
    `curve_differences`; else the two are compared as unpaired. Their numbers of places may differ.
    """
    rows = [None if one.kind != "rate" or one.tokens < 2 else one.samples for one in (p, q)]
    if p.measures != q.measures or any(one is None or len(one) < 2 for one in rows):
        return None
    columns = [_told(np.asarray(one, dtype=np.float64)) for one in rows]
    # two places have no middle
    names: tuple[str, ...] = (MEAN, *GAPS) if min(p.tokens, q.tokens) > 2 else (MEAN, ENDS)
    columns, paired = [[one[0], *one[1 - len(names) :]] for one in columns], same_trials(p, q)
    seed = int(p.attrs["job"].get("seed", 0)) if paired else 0
    if paired:
        limits = [(-1.0, 1.0), *[(-2.0, 2.0)] * (len(names) - 1)]
        within = np.stack([one - other for one, other in zip(*columns, strict=True)], axis=1)
        numbers = resampled(within, limits, seed, len(names))
    else:
        limits = [(0.0, 1.0), *[(-1.0, 1.0)] * (len(names) - 1)]
        each = [resampled(np.stack(one, axis=1), limits, seed, len(names)) for one in columns]
        numbers = [one - other for one, other in zip(*each, strict=True)]
    dull = tuple(name for name, one in ((against, q), (way, p)) if one.attrs.get("able") is False)
    trials = (len(columns[0][0]), len(columns[1][0]))
    found: dict[str, Estimate] = dict(zip(names, numbers, strict=True))
    return CurveDifference(way, against, found, dull, trials, paired, p.measures)


def same_trials(p: Profile, q: Profile) -> bool:
    """Whether two profiles are known to be of the same trials, by what a retrieval of ours keeps of them."""
    known = ("job", "rule", "words", "tokens", "depth", "text_sha256")
    told, other = ([one.attrs.get(name) for name in known] for one in (p, q))
    counts = [None if one.samples is None else len(one.samples) for one in (p, q)]
    return p.attrs.get("job") is not None and told == other and counts[0] == counts[1]
