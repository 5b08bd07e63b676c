"""What one curve by place has more than another of the same trials, or of others.

What another way to ask changes (a system message, a chat template, another model) is a `CurveDifference`:

    plain, brief = (ask(Endpoint(URL, "m", system=text), job) for text in (None, "Answer in one word."))
    print(*curve_differences({"plain": plain, "brief": brief})[0].sentences(), sep="\n")

Differences are taken within trials, where these are the same. Several are looked at together, so their intervals
are wider than one alone (Bonferroni): all of them hold at once in at least 95 % of experiments.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from posbias.core.errors import wrong
from posbias.profiles.estimate import Estimate
from posbias.profiles.gaps import ENDS, EQUIVALENCE, MEAN, compared, gaps_of, resampled, share_size, signed
from posbias.profiles.places import DIFFERENCE, SHARE, Key, Places
from posbias.profiles.profile import Profile


@dataclass(frozen=True)
class CurveDifference:
    """What `way` changes against `against`: `numbers` are differences in accuracy, way − against.

    `MEAN` is that of the mean over places, each of `GAPS` that of a gap between places. Their intervals hold
    together, with those of all differences made at once. `dull`: the ways not above chance, of which
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
        """The gaps that surely differ."""
        return [name for name, gap in self._gaps.items() if gap.sign]

    @property
    def _gaps(self) -> dict[str, Estimate]:
        return {name: gap for name, gap in self.numbers.items() if name != MEAN}

    @property
    def verdict(self) -> str:
        """`changes the bias`, `no difference` (90 % intervals within ± `equivalence`), or `inconclusive`."""
        if self.changed:
            return "changes the bias"
        alike = all(gap.within(self.equivalence) for gap in self._gaps.values())
        return "no difference" if alike else "inconclusive"

    def sentences(self) -> list[str]:
        """In words: what it does to accuracy, and what to the effect of position."""
        mean, effort = self.numbers[MEAN], " and ".join(map(str, self.trials[: 2 - self.paired]))
        words = (compared({MEAN: mean}, self.equivalence)[MEAN], "finds more", "finds less")
        lines = [f"{self.way} against {self.against}: {signed(mean, self.unit)}: {words[mean.sign]}"]
        for name in self.changed:
            gap = self.numbers[name]
            lines.append(f"{name} is {'larger' if gap.sign > 0 else 'smaller'} by {signed(gap, self.unit)}")
        if self.verdict == "no difference":
            lines.append(
                f"position matters as much to both: no gap differs by more than {self.equivalence:g}"
            )
        elif not self.changed:
            least = max(gap.detectable for gap in self._gaps.values())
            lines.append(
                f"inconclusive whether position matters more to one: {effort} trials miss changes of a gap "
                f"under {share_size(least, min(self.trials))}"
            )
        same = "the same trials, so differences are taken within them"
        if self.paired and not any(one.value or one.se for one in self.numbers.values()):
            same = "the same, with the same results"
        lines.append(f"{effort} trials: {same if self.paired else 'not known to be the same, so unpaired'}")
        if self.dull:
            lines.append(f"not above chance: {', '.join(self.dull)}; gaps may be of what is copied there")
        return lines


def curve_differences(curves: Mapping[str, Places], *, together: int = 1) -> list[CurveDifference]:
    """What each way to ask changes against the first; `curves` by the name of the way.

    All must be of the same trials, scored by the same rule. `together` such tables (one for each size of a list,
    say) are looked at, and all their intervals hold at once.

    Raises `InvalidValueError` for fewer than two curves, and for other trials.
    """
    if len(curves) < 2:
        raise wrong("curves", "at least two", len(curves))
    if together < 1:
        raise wrong("together", "a whole number of at least 1", together)
    (first, base), *others = ((name, curve.profile()) for name, curve in curves.items())
    for name, profile in others:
        if not same_trials(profile, base):
            what = f"the trials of {first!r}, in words and scored by the same rule"
            raise wrong("curves", what, got=f"others in {name!r}")
    about: Any = {"together": len(others) * together, "equivalence": curves[first].equivalence or EQUIVALENCE}
    return [_difference_of(profile, base, name, first, **about) for name, profile in others]


def ways_differences(curves: Mapping[Key, Places]) -> list[list[CurveDifference]]:
    """By length of what was asked, what each way to ask changes against the first; all intervals hold together.

    Raises as `curve_differences`.
    """
    sizes = by_size(curves.values())
    return [curve_differences(ways, together=len(sizes)) for ways in sizes]


def by_size(curves: Iterable[Places]) -> list[dict[str, Places]]:
    """For each length, and of rules each kind, the curve of each way."""
    sizes: dict[tuple[float | None, str], dict[str, Places]] = {}
    for curve in curves:
        sizes.setdefault((curve.key.length, curve.kind), {})[str(curve.asked.get("way", ""))] = curve
    return [*sizes.values()]


def profile_difference(
    p: Profile, q: Profile, *, way: str = "p", against: str = "q"
) -> CurveDifference | None:
    """What two curves by place differ in, `p` less `q`, whoever made them; None unless both are rates with trials.

    Where both are known to be of the same trials (`shared_trials`), differences are taken within them, as by
    `curve_differences`; else the two are compared as unpaired. Their numbers of places may differ.
    """
    for one in (p, q):
        if one.kind != "rate" or one.tokens < 2 or one.samples is None or len(one.samples) < 2:
            return None
    return _difference_of(p, q, way, against, copies=True) if p.measures == q.measures else None


def _difference_of(
    p: Profile,
    q: Profile,
    way: str,
    against: str,
    *,
    together: int = 1,
    equivalence: float = EQUIVALENCE,
    copies: bool = False,
) -> CurveDifference:
    """What two rates with trials differ in; `together` such differences hold at once.

    `copies`: the same results of one model are one result, not two ways to ask that happened to agree.
    """
    rows = [np.asarray(one.samples, dtype=np.float64) for one in (p, q)]
    if (shared := shared_trials(p, q)) is not None:
        rows = [one[list(at)] for one, at in zip(rows, shared, strict=True)]
    means, gaps = [{MEAN: one.mean(axis=1)} for one in rows], [gaps_of(one) for one in rows]
    if min(p.tokens, q.tokens) == 2:  # two places have no middle
        gaps = [{ENDS: one[ENDS]} for one in gaps]
    count, paired = together * (1 + len(gaps[0])), shared is not None
    if paired and copies and _are_copies(rows, p, q):
        numbers = dict.fromkeys([MEAN, *gaps[0]], Estimate(0.0, 0.0, len(rows[0])))
    elif paired:
        mean, gap = ({name: one[name] - other[name] for name in one} for one, other in (means, gaps))
        seed = int(p.places.job.get("seed", 0)) if p.places else 0
        numbers = resampled({(-1.0, 1.0): mean, (-2.0, 2.0): gap}, seed, count)
    else:
        sides = zip(means, gaps, strict=True)
        each = [resampled({SHARE: mean, DIFFERENCE: gap}, 0, count) for mean, gap in sides]
        numbers = {name: one - each[1][name] for name, one in each[0].items()}
    dull = tuple(
        name for name, one in ((against, q), (way, p)) if one.places is not None and not one.places.able
    )
    trials = (len(rows[0]), len(rows[1]))
    return CurveDifference(way, against, numbers, dull, trials, paired, p.measures, equivalence)


def shared_trials(p: Profile, q: Profile) -> tuple[Sequence[int], Sequence[int]] | None:
    """The trials of two profiles that are known to be the same, by their numbers in each; None where none are.

    Those of one job, those of one name (a question's, say) if all of the shorter are in the longer, and copies.
    """
    if same_trials(p, q) or _are_copies([p.samples, q.samples], p, q):
        rows = range(len(p.samples if p.samples is not None else ()))
        return rows, rows
    if p.places is None or q.places is None or p.places.depth.tolist() != q.places.depth.tolist():
        return None
    at = {name: place for place, name in enumerate(q.places.trials)}
    both = [(row, at[name]) for row, name in enumerate(p.places.trials) if name in at]
    enough = len(both) >= max(2, min(len(p.places.trials), len(at)))
    return ([row for row, _ in both], [row for _, row in both]) if enough else None


def _are_copies(rows: Sequence[np.ndarray | None], p: Profile, q: Profile) -> bool:
    """Whether rows of two profiles are the same results of one model; where all are alike, nobody knows."""
    about = [one.places and replace(one.places, results={}, trials=()) for one in (p, q)]
    one, other = rows
    if one is None or other is None or about[0] != about[1]:
        return False
    return np.array_equal(one, other) and bool(np.ptp(one))


def same_trials(p: Profile, q: Profile) -> bool:
    """Whether two profiles are known to be of the same trials, by what a retrieval of ours keeps of them."""
    if p.places is None or q.places is None or p.samples is None or q.samples is None:
        return False
    about, other = (
        (one.job, one.rule, one.length, one.unit, one.depth.tolist(), one.asked.get("text_sha256"))
        for one in (p.places, q.places)
    )
    return bool(p.places.job) and about == other and len(p.samples) == len(q.samples)
