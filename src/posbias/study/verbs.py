"""What a cell of a study does: one value class per verb, by its `kind`.

    Simulate(RecencyModel(dimension=16), samples=200_000)
    decode_verb({"kind": "simulate", "model": {"dimension": 16}})        # as a file has it

A verb says which quantities it finds before it is performed (`quantities`); `perform` finds them from a seed, on
as many threads as its study gives every cell, so that results do not depend on where they are computed, beyond
what torch's own kernels do. Nothing heavy is loaded for making a verb, but that a training is checked by torch's
own side. Another package brings a class like these by an entry point `posbias.verbs`.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from posbias.core import packages
from posbias.core.errors import nearest, position, shortened, wrong
from posbias.core.machine import torch_threads
from posbias.core.progress import OnEvent
from posbias.core.spec import Count, decode, encode, tag, value
from posbias.core.sweeps import paths
from posbias.simulation.model import RecencyModel
from posbias.study.quantities import SHAPE, Quantities, ends, estimated, quantity, shape
from posbias.theory.architecture import Architecture
from posbias.theory.mixing import Mixing

Found = tuple[Quantities, dict[str, Any]]
"""Quantities, and what else is worth keeping: words, checksums, a counterexample."""
_PAIRS = ("first_middle", "first_last", "middle_last")


@value
class Predict:
    """Predict the influence of every position on `query` from an architecture; a file may name a preset or a file.

    `tokens` is the length of the text; `mixing`, if given, stands instead of the architecture's. Exact.
    Raises `InvalidValueError` for a query outside the text. Source: Herasimchyk et al. 2026, Eqs. (2) to (4).
    """

    architecture: Architecture
    tokens: Count = 256
    query: int = -1
    mixing: Mixing | None = None
    kind: Literal["predict"] = tag(default="predict")

    main = ("first_mass", "last_mass", "trough_depth", "favours_first", "favours_last")
    quantities = (*SHAPE, "lost", "profile")
    packages = ("numba",)
    draws = False

    def __post_init__(self):
        position("query", self.query, self.tokens)
        if self.mixing is not None:
            self.mixing.values(self.architecture.depth)

    def perform(self, seed: int, cores: int, on_event: OnEvent) -> Found:
        """The predicted profile and its statistics; nothing is drawn."""
        from posbias.theory.rollout.dispatch import influence

        architecture = self.architecture
        if self.mixing is not None:
            architecture = replace(architecture, mixing=self.mixing)
        profile = influence(architecture, self.tokens, self.query, threads=cores)
        found = shape(profile) | {"lost": quantity(profile.missing_mass), "profile": quantity(profile.mass)}
        about = {"assumptions": list(profile.assumptions), "exact": profile.exact, "method": profile.method}
        return found, {"verdict": profile.summary.verdict, **about}


@value
class Simulate:
    """Draw `samples` inputs of a stack of attention layers without parameters and count their recency.

    Numbers are means over samples. Source: Kim et al. 2026, Section 3.
    """

    model: RecencyModel = RecencyModel()
    samples: Count = 200_000
    kind: Literal["simulate"] = tag(default="simulate")

    main = ("recency_probability",)
    quantities = (
        *("recency_probability", "plain_recency_probability", "least_step"),
        *("recency_by_distance", "last_scores", "last_attention"),
    )
    packages = ("numba", "scipy")
    draws = True

    def __post_init__(self):
        if self.model.tokens < 3:
            raise wrong("model.tokens", "at least 3 for a recency probability", self.model.tokens)

    def perform(self, seed: int, cores: int, on_event: OnEvent) -> Found:
        """Recency probabilities by layer, and the mean scores and attention of the last layer's last query."""
        from posbias.simulation import simulate_recency

        result = simulate_recency(self.model, self.samples, seed=seed, threads=cores, on_event=on_event)
        recency = result.exhibits_recency()
        last, count = self.model.tokens - 1, result.samples
        distance, scores, attention = result.by_distance, result.mean_scores, result.mean_attention
        found = {
            "recency_probability": estimated(result.recency_probability),
            "plain_recency_probability": estimated(result.plain_recency_probability),
            "least_step": estimated([one.least for one in recency]),
            "recency_by_distance": quantity(distance.value[-1, 1:last], distance.se[-1, 1:last], count),
            "last_scores": quantity(scores.value[-1, last], scores.se[-1, last], count),
            "last_attention": quantity(attention.value[-1, last], attention.se[-1, last], count),
        }
        return found, {"definition_1": [one.verdict for one in recency]}


@value
class Train:
    """Train one network on the retrieval task (the study's seed is its seed) and ask which positions it favours.

    Keys are those of `posbias.training.Experiment`, words for masks and encodings included; `sequences` is the
    number of test sequences. Errors are over sequences: those over networks are between seeds. Runs on one thread.
    Raises as `Experiment`. Source: Wu et al. 2025, Section 5.
    """

    task: Mapping[str, Any] = Field(default_factory=dict)
    network: Mapping[str, Any] = Field(default_factory=dict)
    iterations: int = 2500
    batch: int = 128
    learning_rate: float = 1e-3
    weight_decay: float = 1e-6
    evaluate_every: int = 250
    sequences: Count = 2000
    device: str = "cpu"
    kind: Literal["train"] = tag(default="train")

    main = ("gap_first_middle", "gap_first_last", "gap_middle_last", "in_context_accuracy")
    quantities = (
        *(f"{kind}_{pair}" for kind in ("gap", "informative_gap") for pair in _PAIRS),
        *("in_context_accuracy", "loss", "accuracy_by_position", "accuracy_alone"),
        *("sink", "sink_untrained", "sink_uniform"),
    )
    packages = ("torch",)
    draws = True

    def __post_init__(self):
        from posbias.training.probes import compared

        experiment = self.experiment(0)
        compared(experiment.task)
        whole = encode(experiment)
        for name in ("task", "network"):
            object.__setattr__(self, name, whole[name])

    def experiment(self, seed: int) -> Any:
        """The `posbias.training.Experiment` with this one seed."""
        from posbias.training.experiments import experiment_of

        names = {field.name for field in dataclasses.fields(self)} - {"sequences", "device", "kind"}
        keys = {name: getattr(self, name) for name in names}
        tables = {name: dict(keys[name]) for name in ("task", "network")}
        return experiment_of(keys | tables | {"seeds": [seed]})

    def perform(self, seed: int, cores: int, on_event: OnEvent) -> Found:
        """What one trained network favours; errors are over its test sequences."""
        from posbias.training import evaluate, train
        from posbias.training.sinks import sinks

        count = self.sequences
        with torch_threads(1):
            trained = train(self.experiment(seed), device=self.device, threads=1, on_event=on_event)
            evaluation, drawn = evaluate(trained, count), sinks(trained, count)
        found: Quantities = {}
        for name, gap in evaluation.gaps.items():
            pair = name.replace("-", "_")
            found[f"gap_{pair}"] = estimated(gap.over_all.over_sequences)
            found[f"informative_gap_{pair}"] = estimated(gap.over_informative.over_sequences)
        for name in ("in_context_accuracy", "loss"):
            found[name] = estimated(getattr(evaluation, name).over_sequences)
        for name in ("accuracy_by_position", "accuracy_alone"):
            share = getattr(evaluation, name)[0]
            # a share of 0 or 1 is not certain: one success and one failure more, for the error alone
            likely = (share * count + 1) / (count + 2)
            found[name] = quantity(share, np.sqrt(likely * (1 - likely) / (count - 1)), count)
        shares = {"sink": drawn.metric(), "sink_untrained": drawn.metric(of="untrained")}
        found |= {name: quantity(share[0, 0], math.nan, count) for name, share in shares.items()}
        found["sink_uniform"] = quantity(drawn.metric(of="uniform")[0, 0])
        return found, {"stopped": {str(one): at for one, at in trained.stopped.items()}}


def _texts(given: Any) -> Any:
    if isinstance(given, str):
        return (given,)
    return tuple(given) if isinstance(given, list) else given


@value
class Measure:
    """Measure a language model's influence, mixing and sinks, and score every predictor against it.

    `model` is a name, a folder, a `.gguf` or a hub id; `text` what prompts are cut from (None: the bundled text),
    `scramble` shuffles the tokens of each. Errors are over prompts. The seed draws the prompts. Needs
    posbias[measure]. Source: Herasimchyk et al. 2026, Sections 3 and 6.
    """

    model: Annotated[str, Field(min_length=1)]
    tokens: Annotated[int, Field(ge=3)] = 256
    prompts: Count = 32
    text: Annotated[tuple[str, ...] | None, BeforeValidator(_texts)] = None
    scramble: bool = False
    dtype: Literal["float32", "bfloat16", "float16", "auto"] = "float32"
    device: str = "cpu"
    kind: Literal["measure"] = tag(default="measure")

    main = ("first_mass", "last_mass", "trough_depth", "spearman_positional")
    packages = ("torch", "transformers", "xarray")
    draws = True

    @property
    def quantities(self) -> tuple[str, ...]:
        """The measured profile and its statistics, λ by layer, and two scores of every predictor."""
        from posbias.comparison.predictors import PREDICTORS

        names = [one.key for one in PREDICTORS] + ["uniform", "recency_only"]
        scores = [f"{score}_{name}" for score in ("spearman", "wasserstein") for name in names]
        return (*SHAPE, "profile", "mixing", "loss", "sink_share", *scores)

    def perform(self, seed: int, cores: int, on_event: OnEvent) -> Found:
        """Measured influence, mixing and sinks, and how well every predictor fits."""
        from posbias.comparison.predictors import predictions
        from posbias.comparison.scores import compare_all
        from posbias.measurement import load_model, measure
        from posbias.profiles.profile import measured_influence

        with torch_threads(cores):
            loaded = load_model(self.model, dtype=self.dtype, device=self.device, tokens=self.tokens)
            options = {name: getattr(self, name) for name in ("text", "tokens", "prompts", "scramble")}
            data = measure(loaded, **options, seed=seed, threads=cores, on_event=on_event)
        profile, prompts = measured_influence(data), data.sizes["prompt"]
        found = shape(profile) | ends(profile, prompts)
        found["profile"] = quantity(profile.mass, profile.se, prompts)
        for name in ("mixing", "loss"):
            values = data[name].values
            spread = values.std(axis=0, ddof=1) if prompts > 1 else np.full(values.shape[1:], math.nan)
            found[name] = quantity(values.mean(axis=0), spread / math.sqrt(prompts), prompts)
        found["sink_share"] = quantity(float(data["sink_share"].mean()), math.nan, prompts)
        compared = compare_all(predictions(data), profile, seed=seed)
        for name, agreement in (compared.agreements | compared.baselines).items():
            for score in ("spearman", "wasserstein"):
                given = getattr(agreement, score)
                found[f"{score}_{name}"] = quantity(given.value, given.se, prompts)
        kept = ("checksum", "text_sha256", "attention", "dtype", "fingerprint")
        about = {name: data.attrs[name] for name in kept if name in data.attrs}
        return found, about | {"verdict": profile.summary.verdict}


VERBS: dict[str, type] = {cls.kind: cls for cls in (Predict, Simulate, Train, Measure)}
"""The verbs by their `kind`; other packages bring further ones (entry points `posbias.verbs`)."""
GROUP = "posbias.verbs"


def decode_verb(data: Mapping[str, Any]) -> Any:
    """A verb from what a file holds. Raises `InvalidValueError` naming key, value and what fits."""
    cls = class_of(data)
    if cls is Predict and isinstance(data.get("architecture"), str):
        from posbias.theory.configs import read_architecture

        data = {**data, "architecture": encode(read_architecture(data["architecture"]).architecture)}
    return decode(cls, dict(data))


def class_of(data: Mapping[str, Any]) -> type:
    """The verb class that `kind` names. Raises `InvalidValueError` for a missing or unknown one."""
    kind, known = data.get("kind"), [*VERBS, *packages.names(GROUP)]
    if kind not in known:
        hint = f"{shortened(kind)}{nearest(str(kind), known)}" if "kind" in data else "no kind"
        raise wrong("kind", f"what every cell does ({', '.join(known)})", got=hint)
    return VERBS.get(str(kind)) or packages.load(GROUP, str(kind))


def known_paths(cls: type) -> list[str]:
    """The paths that a sweep over a verb may name."""
    found = [path for path in paths(cls) if path != "kind"]
    if cls is Train:
        from posbias.training.experiments import Experiment

        found += [path for path in paths(Experiment) if path != "seeds"]
    return list(dict.fromkeys(found))
