"""Answers of simulate, train and study."""

from collections.abc import Iterable
from itertools import repeat
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from jaxtyping import Float
from pydantic import Field

from posbias.core.answers import Answer, Number, Numbers, Part, Table, Texts, entry
from posbias.core.spec import encode, fingerprint
from posbias.profiles.claims import ClaimVerdict
from posbias.reports.answers.numbers import JudgedClaim, Value


class Layer(Value):
    """A number of a layer."""

    layer: int = entry("from 1")


class Recency(Layer):
    """How often a key scores higher than an earlier one; ½ is no preference."""

    plain: Value = entry("without control variates")


class Definition1(Part):
    """Whether mean scores show recency bias (Kim et al. 2026, Definition 1)."""

    layer: int = entry("from 1")
    verdict: Literal["yes", "no", "undecided"]
    least_step: Value = entry("the step of mean scores that decides", of="least")
    query: int
    key: int


class ByLayer(Part):
    """Means over samples and their standard errors; null where nothing is defined."""

    layer: int = entry("from 1")
    value: Table
    se: Table


class SimulateLayernorm(Answer):
    """Recency of attention without parameters over random embeddings."""

    model: dict[str, Any] = entry("as simulate.md has it; with its mask where that is not the causal one")
    samples: int
    seed: int
    engine: Literal["gram", "token_space"]
    recency_probability: list[Recency]
    adjacency_probability: list[Layer] = entry("of the key before the query against an earlier one")
    definition_1: list[Definition1]
    by_query: list[ByLayer]
    by_distance: list[ByLayer]
    by_gap: list[ByLayer]
    mean_scores: list[ByLayer]
    mean_attention: list[ByLayer]
    interrupted: bool = entry("by Ctrl-C; what is counted is right", False)

    @classmethod
    def of(cls, result: Any = None, **more: Any) -> Self:
        """A simulation, layer by layer."""
        names = "by_query", "by_distance", "by_gap", "mean_scores", "mean_attention"
        arrays = {name: getattr(result, name) for name in names}
        by_layer = {name: _by_layer(ByLayer, value=one.value, se=one.se) for name, one in arrays.items()}
        recency, plain = result.recency_probability, result.plain_recency_probability
        by_layer["recency_probability"] = _by_layer(Recency, recency, plain=plain)
        by_layer["adjacency_probability"] = _by_layer(Layer, result.adjacency_probability)
        by_layer["definition_1"] = _by_layer(Definition1, result.exhibits_recency())
        return super().of(result, model=encode(result.model), **by_layer, **more)


def _by_layer(kind: type[Part], results: Iterable[Any] = repeat(None), **columns: Iterable[Any]) -> list[Any]:
    """A part for each layer, of its result and its number of each column."""
    rows = enumerate(zip(results, *columns.values(), strict=False), 1)
    named = ((layer, one, dict(zip(columns, held, strict=True))) for layer, (one, *held) in rows)
    return [kind.of(one, layer=layer, **held) for layer, one, held in named]


class Average(Part):
    """A mean over networks."""

    value: Number = entry(of="over_members.value")
    se: Number = entry("over networks", of="over_members.se")
    se_sequences: Number = entry("over sequences", of="over_sequences.se")
    members: Numbers = entry("each network's own; null of a stopped one", of="values")


class Informative(Average):
    """On sequences where the pair differs."""

    share: Number = entry("of sequences")


class Gap(Average):
    """Accuracy where the first item is asked for minus where the second is."""

    informative: Informative
    items: tuple[int, int] = entry("places of the pair")


class Averages(Part):
    """Means over networks by place."""

    value: Numbers
    se: Numbers
    members: list[Numbers]

    @classmethod
    def over(cls, values: Float[np.ndarray, "member place"]) -> Self:
        """The means of the members that were not stopped."""
        from posbias.training.probes import estimate_members

        places = [estimate_members(column) for column in values.T]
        return cls.of(value=[one.value for one in places], se=[one.se for one in places], members=values)


class SinkMetric(Part):
    """Share of queries that give a token more than the threshold, by token."""

    trained: Averages
    untrained: Averages
    uniform: Numbers = entry("of even attention")

    @classmethod
    def at(cls, sinks: Any, layer: int | None, first: int, **more: Any) -> Self:
        """At the usual threshold, of one layer or all, from a query on."""
        from posbias.training.sinks import THRESHOLD

        trained, untrained = (sinks.metric(THRESHOLD, layer, first, of) for of in ("trained", "untrained"))
        means = {"trained": Averages.over(trained), "untrained": Averages.over(untrained)}
        return cls.of(sinks, uniform=sinks.metric(THRESHOLD, None, first, "uniform")[0], **means, **more)


class LaterQueries(SinkMetric):
    """The same of queries from a position on."""

    start: int = Field(serialization_alias="from")


class SinkCurve(Part):
    """By threshold."""

    thresholds: list[float]
    trained: list[Numbers]
    untrained: list[Numbers]
    uniform: list[Numbers]


class Sinks(SinkMetric):
    """Attention sinks: trained, at initialisation, and of even attention."""

    threshold: float
    sequences: int
    later_queries: LaterQueries
    layers: list[SinkMetric]
    curve: SinkCurve

    @classmethod
    def of_sinks(cls, sinks: Any) -> Self:
        """At the usual threshold: over all queries and the later ones, and per layer."""
        from posbias.training.sinks import THRESHOLD

        later = sinks.starts[-1]
        layers = [SinkMetric.at(sinks, layer, 0) for layer in range(sinks.trained.shape[1])]
        parts = {"layers": layers, "later_queries": LaterQueries.at(sinks, None, later, start=later)}
        parts["curve"] = SinkCurve.of(thresholds=sinks.thresholds, **sinks.curve())
        return cls.at(sinks, None, 0, threshold=THRESHOLD, **parts)


class Rollout(Part):
    """The networks' own kernels composed, and theory: network × position."""

    mixing: list[Numbers] = entry("weight of attention, network × layer")
    profiles: dict[str, list[Numbers]]
    assumptions: Texts
    sequences: int


class GapAgreement(Part):
    """Whether measured gaps follow a profile."""

    profile: str
    label: str = entry("the profile in words")
    carrier: Literal["label"] = entry("the token of an item that is taken for it", "label")
    predicted: dict[str, Value] = entry("by pair")
    measured: dict[str, Value] = entry("by pair, on informative sequences")
    signs: dict[str, ClaimVerdict] = entry("by pair")
    orders: dict[str, ClaimVerdict] = entry("by two pairs")
    order: ClaimVerdict


class Cell(Part):
    """A trained ensemble: what it shows on new classes, with errors over its networks."""

    gaps: dict[str, Gap] = entry("by pair, such as first-last")
    accuracy_by_position: Averages = entry("by place of the item asked for")
    accuracy_alone: Averages = entry("where only that item has its class")
    in_context_accuracy: Average = entry(of="evaluation.in_context_accuracy")
    loss: Average = entry("cross-entropy in nats", of="evaluation.loss")
    largest_gap: Number
    sequences: int = entry("per network and test", of="evaluation.sequences")
    seed: int = entry("of the test set", of="evaluation.seed")
    seeds: list[int] = entry("of the networks", of="trained.experiment.seeds")
    stopped: dict[int, int] = entry(
        "seeds whose loss was not finite, with the iteration", of="trained.stopped"
    )
    sinks: Sinks
    rollout: Rollout
    agreement: dict[str, GapAgreement] = entry("by profile")
    experiment: dict[str, Any] = entry("as a specification file has it (train.md)")
    fingerprint: str = entry("of the experiment")
    cost: dict[str, Any] = entry("device, threads, seconds, iterations per second", of="trained.cost")
    file: Path | None = entry("the cell's .nc", of="path")

    @classmethod
    def of(cls, result: Any = None, **more: Any) -> Self:
        """What the evaluation says, then sinks, rollout, experiment, file and cost."""
        from posbias.training import agreement
        from posbias.training.probes import largest_gap

        tested, gaps, names = result.evaluation, {}, ("accuracy_by_position", "accuracy_alone")
        for name, gap in tested.gaps.items():
            informative = Informative.of(gap.over_informative, share=gap.share.mean())
            gaps[name] = Gap.of(gap.over_all, informative=informative, items=(gap.first, gap.second))
        found = {name: Averages.over(getattr(tested, name)) for name in names}
        found |= {"sinks": Sinks.of_sinks(result.sinks), "agreement": agreement(result.rollout, tested)}
        about = {"experiment": encode(result.experiment), "fingerprint": fingerprint(result.experiment)}
        about["largest_gap"] = largest_gap(result.experiment.task)
        return super().of(result, gaps=gaps, **about, **found, **more)


class Train(Cell, Answer):
    """One trained ensemble."""


class TrainSweep(Answer):
    """The ensembles of an experiment file with a sweep."""

    cells: list[Cell]


class StudyCost(Part):
    """What all finished cells took."""

    seconds: float
    cpu_seconds: float
    peak_memory: int = entry("bytes, of the largest process")


class Quantity(Part):
    """An estimate from n independent draws; n is null of what is exact. Of a list, value and se are lists."""

    value: Any
    se: Any
    n: int | None


class StudyCell(Part):
    """A cell; null is what an unfinished one does not have."""

    fingerprint: str
    chosen: dict[str, Any] = entry("what varies, by path in the study's base")
    seed: int
    quantities: dict[str, Quantity] | None = entry("by name (study.md)")
    about: dict[str, Any] | None = entry("what is no number")
    cost: dict[str, Any] | None = entry("seconds, cores, bytes, when")
    file: Path | None


class StudyClaim(JudgedClaim):
    """A claim of a study's file."""

    quantity: str
    bound: tuple[str, float] = entry("above, below or equals, and the number")


class OfStudy(Part):
    """A study of a file, and what of it is finished."""

    study: str = entry("its name", of="study.name")
    question: str = entry(of="study.question")
    folder: Path
    finished: int
    cost: StudyCost


class Study(OfStudy, Answer):
    """What a study of a file found."""

    cells: list[StudyCell]
    computed: int = entry("by this command")
    claims: list[StudyClaim]
    plot: Path | None = entry("null without --plot")


class MissingCell(Part):
    """A cell that is to be computed."""

    label: str
    fingerprint: str


class StudyStatus(OfStudy, Answer):
    """Which cells of a study are finished."""

    cells: int
    combinations: int = entry("cells without seeds")
    missing: list[MissingCell]


class StudyExport(Answer):
    """Every number of a study as rows; of a file's study one for each cell, quantity and index."""

    rows: list[dict[str, Any]] = entry("columns by name; null is not defined, or se of what is exact")
