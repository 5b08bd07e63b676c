"""Answers of predict, order, design, explore and presets."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

from posbias.core.answers import Answer, Number, Numbers, Part, Table, Texts, entry
from posbias.profiles.calibration import Calibration
from posbias.profiles.profile import harmonic
from posbias.profiles.summary import Summary
from posbias.reports.answers.numbers import Bounded, ToTell, Under
from posbias.theory.cache import Cache


class Band(Part):
    """Where λ was not given: the prediction under every known λ."""

    low: Numbers
    high: Numbers
    models: Texts = entry("whose λ low and high are over")
    checks: Texts = entry("models whose λ is of another definition")
    verdicts: dict[str, str | None] = entry("as computed, by the model that λ is of, or the assumed schedule")


class Profile(Part):
    """The influence of every position on one token; `posbias compare` reads it."""

    tokens: int = entry("positions")
    query: int = entry("the position that is influenced, from 0")
    measures: str = entry("what the numbers are: rollout")
    profile: Numbers = entry("by position", of="mass")
    summary: Summary | None = entry("null of what is no mass")
    lost: float = entry("mass that learned sinks took", of="missing_mass")
    left_out: Texts = entry("what decides the shape and is not covered; with any, there is no verdict")
    profile_is: str = entry("what the profile is where something is left out", of="remainder")
    kind: Literal["mass", "rate", "signed"] = entry("what is a mass sums to 1 − lost")
    band: Band | None = None
    calibration: Calibration | None = entry("what an extrapolated profile (--calibrate) rests on", None)

    @classmethod
    def of(cls, result: Any = None, **more: Any) -> Self:
        """The profile; what is no mass has no summary."""
        shape = {} if result.kind == "mass" else {"summary": None, "profile_is": ""}
        return super().of(result, **shape | more)


class WithArchitecture(Part):
    """What was predicted from."""

    architecture: dict[str, Any] = entry("as a specification file has it (predict.md)")
    assumptions: Texts = entry("what the input did not say and was taken for granted")


class Prediction(WithArchitecture, Profile):
    """A profile and what it was predicted from."""

    exact: bool = entry("whether no layer was approximated")
    method: dict[str, int] = entry("layers by engine")
    mixing: Numbers | None = entry("λ by layer, bottom first; null with --calibrate")
    cache: Cache = entry("what is kept for the next token")


class Predict(Prediction, Answer):
    """The predicted influence of every position."""


class NamedPrediction(Prediction):
    """One of several predictions."""

    name: str = entry("the architecture's, else its file's")


class Decision(Part):
    """Which prediction keeps most of the middle half of the text, under which λ, and by how much."""

    said: str = entry("in a sentence")
    keeper: str = entry("that which leads under most λ, and of those that whose smallest lead is the largest")
    leads: dict[str, float] = entry("by λ: how much larger its share is than the largest of the others")
    shares: dict[str, Table] = entry(
        "by λ: what the first 5 %, the middle half and the last 5 % hold, and flatness, of each prediction"
    )


class PredictSeveral(Answer):
    """Predictions from several architectures or at several lengths, the flattest first."""

    version = 2
    decision: Decision
    predictions: list[NamedPrediction]


class PredictVaried(WithArchitecture, Answer):
    """Predictions for many values of one quantity (--vary), or after every layer (--depth-trajectory)."""

    varied: str = entry("the quantity")
    values: list[float]
    profiles: list[Profile] = entry("one for each value")
    measured: Texts = entry("what other values did to models that were measured, by model")


class PredictMap(WithArchitecture, Answer):
    """Predictions over two quantities (--vary given twice): rows by the first, columns by the second."""

    varied: tuple[str, str] = entry("the quantities")
    values: tuple[list[float], list[float]]
    summaries: list[list[Summary]]
    left_out: list[list[Texts]] = entry("what decides the shape and each prediction does not cover")


class DistanceCurve(Part):
    """Critical distances by depth."""

    name: str = entry("the encoding")
    depth: list[int] = entry("layers")
    predicted: Numbers = entry(
        "x* (Wu et al. 2025, Theorems 4.5, 4.7), tokens from the query; null: infinite"
    )
    modal: list[int] = entry("the whole distance where walks × envelope peak")
    rollout: list[int] = entry("the distance where the rollout peaks, its first token left out")
    drift: Numbers = entry("where the rollout's mean and skewness put that peak, far from the first token")


class PredictCritical(WithArchitecture, Answer):
    """Critical distances by depth (--critical-distance), for each value of a quantity."""

    tokens: int = entry("length of the text whose last token's rollout is taken")
    curves: list[DistanceCurve]


class Order(Answer):
    """The order of documents that a profile calls best, and what it gains over the usual ones."""

    version = 2
    permutation: list[int] = entry("documents as given, from 0, in the order that the profile calls best")
    recommended: list[int] = entry(
        "in the order to put them: that, a usual one that is not worse, or as given"
    )
    instead: str | None = entry("the usual order that is recommended instead of the one found")
    verdict: Literal["reorder", "no difference", "not known"]
    worth: float = entry("mean worth of the documents' places, weighed by score")
    unit: str = entry("of worth and gains")
    basis: str = entry("what the profile is")
    gains: dict[str, Bounded] = entry(
        "over the usual orders: of orders judged on prompts that did not choose them; of `instead` on all prompts"
    )
    loss_at_most: float = entry("by how much no other order can be worth more under this profile", of="loss")
    prompts_to_tell: ToTell = entry("behind the profile; where it is extrapolated, with these documents")
    extrapolated: Texts = entry("in what the documents differ from those behind the profile; then no verdict")
    warnings: Texts
    lengths_in: Literal["tokens", "characters"] | None = entry("null: not known, taken to be equal")
    scores: str = entry("how scores were read as weights; empty where they are weights")
    read_as: dict[str, str] = entry("what a file of results made elsewhere was taken for")


class Target(Part):
    """What a design is to meet."""

    kind: Literal["curve", "middle", "reach"]
    name: str
    within: float = entry("the distance that meets the target")


class Nearness(Part):
    """How near a curve is to the target."""

    distance: float = entry("to the target: Wasserstein's of a curve, else what falls short as a share")
    reach: int = entry("fewest of the last tokens that hold 90 % of the mass")
    meets: bool


class Candidate(Nearness):
    """An architecture; where λ was not given, under the known λ that is worst for it."""

    values: dict[str, float] = entry("of what may change; none of the baseline")
    cache: int = entry("pairs of a key and a value vector that are kept for the next token")
    read: int = entry("those that the last token attends to")
    size: Number = entry("bytes of the cache; null where the size of heads is not known")
    shares: tuple[float, float, float] = entry("of the first 5 %, the middle half, the last 5 %")
    left_out: Texts
    under: dict[str, float] = entry("distance under each known λ; empty where λ was given")
    nearer: Under = entry("whether nearer to the target than the baseline, where λ was not given")
    file: str = entry("the architecture, in the folder of the answer", "")


class Design(Answer):
    """Architectures that meet a target, or come near: the Pareto front of distance, cache and reach."""

    version = 2
    verdict: Literal["met", "no difference", "not met", "not known"]
    said: str = entry("the verdict in a sentence")
    target: Target = entry(of="target.specification")
    tokens: int = entry("of the text")
    varied: dict[str, list[float]] = entry("the values of each quantity that may change")
    space: int = entry("combinations of them", of="space.size")
    looked_at: int = entry("architectures that were predicted")
    impossible: int = entry("combinations whose values do not go together")
    exhaustive: bool = entry("whether all of the space was looked at")
    seed: int
    fingerprint: str = entry("of the job; equal jobs give equal designs")
    baseline: Candidate
    baselines: dict[Literal["recency_only"], Nearness] = entry("what needs no architecture")
    front: list[Candidate] = entry("by rising distance")
    assumptions: Texts

    @classmethod
    def of(cls, result: Any = None, *, files: Sequence[str] = (), **more: Any) -> Self:
        """What was found, with the names of the front's files."""
        recency, target = harmonic(result.tokens), result.target
        distance = target.distance(recency)
        recency_only = Nearness.of(
            distance=distance, reach=recency.summary.effective_range, meets=distance <= target.within
        )

        def candidate(one: Any, file: str = "") -> Candidate:
            return Candidate.of(one, meets=result.meets(one), nearer=result.nearer(one), file=file)

        about = {"baseline": candidate(result.baseline), "front": list(map(candidate, result.front, files))}
        about["varied"] = {name: result.space.varied[name] for name in result.space.names}
        return super().of(result, baselines={"recency_only": recency_only}, **about, **more)


class Explore(Answer):
    """The page that was written."""

    page: Path = entry("the HTML")
    opened: bool = entry("whether a browser took it")
    begins_from: str | None = entry("the file or name that was given")


class Preset(Part):
    """An architecture that has a name."""

    name: str
    depth: int
    heads: int
    context: int = entry("tokens")
    window: int | None = entry("tokens; null for none")
    exact: str = entry("what the configuration determines")
    assumed: Texts
    mixing: dict[str, Any] | None = entry("λ by layer, with length and text of its measurement")


class Presets(Answer):
    """Architectures that have a name."""

    presets: list[Preset]
