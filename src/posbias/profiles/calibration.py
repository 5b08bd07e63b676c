"""What an extrapolated profile rests on: a measurement of fewer tokens, a rule, and how that rule fared before.

`posbias.comparison.extrapolation` makes such profiles; `extrapolation.toml` there has the trials.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

Interval = tuple[float, float]


@dataclass(frozen=True)
class ExtrapolationTrial:
    """Rules held against a measurement at the longer length: Spearman and Wasserstein by rule, and verdicts.

    `verdict` is that of the measurement, `even` the Wasserstein distance to uniform, `recency` the scores
    of mass as 1/(distance + 1), `halves` those of half the target's prompts against the other half (noise alone),
    and `ceiling` the noise ceiling. `leads`: by rule and by what it is held against ("stretched", "recency"), how
    much higher its Spearman and how much smaller its Wasserstein distance is, 95 % intervals over the target's
    prompts (`posbias.comparison.scores.Difference`).
    """

    model: str
    measured: int
    tokens: int
    prompts: int
    even: float
    recency: tuple[float, float]
    halves: tuple[float, float]
    ceiling: tuple[float, float]
    scores: Mapping[str, tuple[float, float]]
    verdict: str
    verdicts: Mapping[str, str]
    leads: Mapping[str, Mapping[str, tuple[Interval, Interval]]] = field(default_factory=dict)

    def surely(self, rule: str) -> bool:
        """Whether a rule that won did so beyond the noise of the target's prompts: no interval reaches zero."""
        return self.won(rule) and all(low > 0 for two in self.leads[rule].values() for low, _ in two)

    @property
    def factor(self) -> float:
        """How many times the measured length was predicted."""
        return self.tokens / self.measured

    def won(self, rule: str) -> bool:
        """Whether a rule was better by both scores than the stretched curve and recency alone, nearer than an even
        spread, and its verdict right."""
        if rule not in self.scores or self.verdicts[rule] != self.verdict:
            return False
        (rank, distance), others = self.scores[rule], (self.scores["stretched"], self.recency)
        return rank > max(other for other, _ in others) and distance < min(self.even, *(d for _, d in others))


@dataclass(frozen=True)
class Calibration:
    """What an extrapolated profile rests on: model, text, tokens measured, the rule, its nearest trial."""

    model: str
    text: str
    tokens: int
    rule: str
    trial: ExtrapolationTrial | None

    def lines(self) -> list[str]:
        """In words: what was measured, and how the rule fared."""
        of = f" of {self.text}" if self.text else ""
        said = f"calibrated by {self.model or 'a model'} on {self.tokens:,} tokens{of}, rule {self.rule!r}"
        if self.trial is None:
            return [f"{said}; no trial of it on this model"]
        trial = self.trial
        scores = {name: trial.scores[name] for name in (self.rule, "stretched") if name in trial.scores}
        scores |= {"recency only": trial.recency, "noise ceiling": trial.ceiling}
        fared = ", ".join(f"{name} {rank:.2f} / {distance:.3f}" for name, (rank, distance) in scores.items())
        expected = trial.verdicts.get(self.rule)
        wrong = f"; its verdict there, {expected}, was wrong: {trial.verdict} was measured"
        lengths = (
            f"nearest trial, from {trial.measured:,} to {trial.tokens:,} tokens (Spearman / Wasserstein)"
        )
        ending = wrong if expected not in (None, trial.verdict) else ""
        return [said, f"{lengths}: {fared}, uniform – / {trial.even:.3f}{ending}"]
