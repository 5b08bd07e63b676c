"""Answers of measure, models, compare and report."""

from pathlib import Path
from typing import Literal

from posbias.core.answers import Answer, Interval, Number, Numbers, Part, Texts, entry
from posbias.measurement.models.sources import ModelRecord
from posbias.profiles.summary import Summary
from posbias.reports.answers import numbers
from posbias.reports.answers.retrievals import CurveDifference

ReadAs = dict[str, str]
"""What files of results made elsewhere were taken for, by argument."""


class SelfCheck(Part):
    """The capture against the model's own numbers; deviations are the largest."""

    tokens: int
    layers: int
    attention: str
    max_deviation: float
    mixed_deviation: float
    rotation_deviation: float
    content: int = entry("layers whose content logits could be separated")
    causal: bool
    outputs_identical: bool


class Measure(Answer):
    """A measured model: means over its prompts."""

    file: Path = entry("the measurement's .nc, which has everything else")
    model: str
    tokens: int = entry("of each prompt")
    prompts: int
    influence: Numbers = entry("gradient influence by position; sums to 1", of="mass")
    summary: Summary
    doubts: Texts = entry("what of the verdict the prompts do not tell")
    mixing: Numbers = entry("weight of attention by layer")
    sink_share: float = entry("attention that token 0 receives, mean over layers, heads and later queries")
    selfcheck: SelfCheck
    skipped: dict[str, str] = entry("prompts that were left out, with the reason")
    bos: str | None = entry("special tokens that every prompt begins with")


class MeasureCost(Answer):
    """What a measurement would take (--dry-run)."""

    bytes: int = entry("at the peak, without the weights")
    seconds: float
    parts: dict[str, int] = entry("bytes by part")


class Heads(Answer):
    """Heads by what they attend to."""

    file: Path
    last: int = entry("queries at the end whose attention counts")
    parts: dict[str, list[tuple[int, int, float]]] = entry("layer, head, share; the most first")


class Models(Answer):
    """Models that can be named."""

    models: list[ModelRecord]


class ModelsFetch(Answer):
    """Where a fetched model lies."""

    model: str
    folder: Path


class Family(Part):
    """A family whose measurement is proven."""

    model_type: str
    attention: str = entry("the implementation taken")
    attentions: Texts = entry("all that are right")
    positional: str
    causal: bool
    parallel: bool
    window: bool
    sinks: bool
    soft_cap: bool
    defects: Texts
    checked: bool


class ModelsFamilies(Answer):
    """Model families whose measurement is proven."""

    families: list[Family]
    brought: dict[str, str] = entry("families of other packages → the package")


class PartDifference(Part):
    """What two measurements have of all influence in a part of the positions."""

    part: str
    p: float = entry("share of all influence")
    q: float
    difference: numbers.Bounded = entry("p less q; the intervals of all parts hold together in 95 %")
    significant: bool = entry("whether the interval leaves out 0")


class InfluenceDifferences(Part):
    """Shares of influence of two measurements in parts of the positions, p less q."""

    paired: bool = entry("whether both measured the same prompts, so that differences are within them")
    prompts: tuple[int, int] = entry("of each")
    parts: list[PartDifference]
    verdict: Literal["they differ", "inconclusive"]
    answer: str = entry("in a sentence")


class Residual(Part):
    """A position whose attribution is not what its place predicts."""

    position: int
    ratio: float = entry("attribution in units of what q predicts of the position", of="ratio.value")
    interval: Interval = entry("those of all positions hold together in 95 %", of="ratio.interval")


class Intervals(numbers.Scores[Interval]):
    """The 95 % intervals of the scores."""


class Compare(numbers.Scores[Number], Answer):
    """Two profiles compared: the scores, their intervals, and what profiles that know nothing would score."""

    intervals: Intervals
    prompts: int | None = entry("how many the intervals are over; null without")
    baselines: numbers.Baselines
    reliability: numbers.Reliability | None = entry("null with fewer than four prompts")
    leads: list[numbers.Difference] = entry("the profile, called p, minus each baseline")
    shares: int | None = entry("equal shares of the context that were compared; null of like lengths")
    left_out: Texts = entry("what decides the shape of a prediction and is not known")
    read_as: ReadAs
    beyond_position: list[Residual] | None = entry(
        "of attributions: positions whose interval leaves out 1", None
    )
    same_prompts: numbers.Agreement | None = entry(
        "noise ceiling of two measurements of the same prompts", None
    )
    between: CurveDifference | None = entry("of two curves of rates: what p has more than q", None)
    influence_differences: InfluenceDifferences | None = entry("of two measurements: where they differ", None)


class Report(numbers.Comparison, Answer):
    """A report's page, and how near each prediction is to the measurement."""

    page: Path
    measurement: Path
    answer: Texts = entry(
        "where the model looks, how sure that is, what its architecture implies, what follows"
    )
    verdicts: Texts = entry("what the scores say of the predictors, in sentences")
    explore: Path | None = entry("the page to turn it on; null where it cannot show the model")


class ProfilePage(Part):
    """The page of a curve."""

    page: Path
    answer: Texts = entry("what the curve shows, how sure that is, what follows")
    claims: list[numbers.JudgedClaim]
    read_as: ReadAs


class ReportProfile(ProfilePage, Answer):
    """The page of a retrieval, a prediction or results made elsewhere, and its claims on ends and middle."""

    lengths: list[ProfilePage] = entry("of several context lengths each; the keys above are of the first")
