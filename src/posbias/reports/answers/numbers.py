"""Numbers with their errors, scores and claims, as answers have them."""

from typing import Generic, Literal, TypeVar

from posbias.core.answers import Counted as Counted
from posbias.core.answers import Interval, Number, Part, entry
from posbias.core.answers import OverPrompts as OverPrompts
from posbias.core.answers import Value as Value
from posbias.profiles.claims import ClaimVerdict, Provenance, Strength

Of = TypeVar("Of")
ToTell = int | None
"""About how many prompts the 95 % interval needs to leave out 0, were the difference as seen: with that many, even
odds. null where it does already, or its error is not known; 10001 stands for more than 10,000."""
Under = dict[str, bool]
"""Whether it holds, by the model whose λ it is or the assumed schedule."""


class Bounded(Value):
    """A difference, its error and its 95 % interval; null where they are not known."""

    interval: Interval = entry(of="bounds")


class Score(Part):
    """A score, null where ranks are tied, and its 95 % interval, null with fewer than four prompts."""

    value: Number
    interval: Interval = entry(of="bounds")


class Scores(Part, Generic[Of]):
    """What there is of each score."""

    spearman: Of = entry("null where ranks are tied")
    wasserstein: Of = entry("in shares of the length; null for what is no mass")
    spearman_without_first: Of
    wasserstein_without_first: Of


class Agreement(Scores[Score]):
    """Two profiles compared: Spearman correlation, and 1-Wasserstein distance in shares of the length."""


class Difference(Part):
    """Scores of one predictor minus those of another, on the same prompts."""

    more: str = entry("the predictor whose scores are taken")
    less: str = entry("the predictor whose scores are subtracted")
    spearman: Score = entry(of="scores.spearman")
    wasserstein: Score = entry(of="scores.wasserstein")
    spearman_without_first: Score = entry(of="scores.spearman_without_first")
    wasserstein_without_first: Score = entry(of="scores.wasserstein_without_first")
    prompts_to_tell: dict[str, ToTell] = entry("by score")
    verdicts: dict[str, Literal["better", "worse", "open"]] = entry("more against less, by score", of="sides")


Baselines = dict[Literal["uniform", "recency_only"], Agreement]
"""The agreement of profiles that know nothing: even, and mass as 1/(distance + 1)."""


class Reliability(Part):
    """What noise in a reference of n prompts allows; intervals hold 95 % of such scores."""

    split_half: Agreement = entry("n/2 prompts against the n/2 others, mean over random splits")
    second_measurement: Agreement = entry("n prompts against n others, continued from smaller groups")
    noiseless: Agreement = entry("a noiseless predictor against the n prompts: the noise ceiling")
    noiseless_half: Agreement = entry("the same against n/2 prompts: the noise ceiling of held-out scores")


class HeldOut(Part):
    """Scores of predictors fitted on one half of the prompts and judged on the other, mean of both ways."""

    agreements: dict[str, Agreement] = entry("by predictor")
    baselines: Baselines
    differences: list[Difference]


class Comparison(Part):
    """How near each prediction is to a measurement."""

    prompts: int | None = entry("how many the intervals are over; null without")
    agreements: dict[str, Agreement] = entry("by predictor")
    baselines: Baselines
    reliability: Reliability | None = entry("null with fewer than four prompts")
    differences: list[Difference] = entry("of each pair of predictors once")
    leads: list[Difference] = entry("each predictor minus each baseline")
    held_out: HeldOut | None = entry("null where the measurement keeps no statistics of halves")


class Effect(Value):
    """A piece of a claim's evidence."""

    where: str
    p: Number = entry("null against a printed number")
    verdict: ClaimVerdict
    flaw: str = entry("why it decides nothing; empty if it may")


class Claim(Part):
    """A sentence, the number that decides it, and the verdict at 95 %."""

    id: str = entry("PAPER/STUDY/NAME, which never changes; empty of a claim that nobody named", "")
    claim: str = entry("the sentence")
    number: Number = entry("of the piece that decides")
    se: Number
    verdict: ClaimVerdict
    why: str
    seen: bool | None = entry("whether the evidence shows it, decided or not; null: it does not tell", None)
    provenance: Provenance = entry("whose claim it is", "ours")
    place: str = entry("where it stands in the paper", "")
    strength: Strength = entry("constant: of a proof; printed: a printed number", "observation")
    scope: str = entry("of what the text speaks", "")
    evidence: str = entry("what its numbers rest on there", "")
    bar: Literal["paper", "ours", ""] = entry("whose the bound of its test is", "")
    effort: str = entry("what the verdict rests on", "")
    alias_of: str = entry("the id of the same claim elsewhere, or empty", "")


class JudgedClaim(Claim):
    """A claim with its evidence."""

    effects: list[Effect]
