"""What a cell of a study does: one value class per verb, told apart by `kind`.

    Simulate(RecencyModel(dimension=16), samples=200_000)
    decode_verb({"kind": "simulate", "model": {"dimension": 16}})        # as a file has it

A verb says which quantities it finds before it is performed (`lengths`); `performing` finds them from a seed.
Nothing heavy is loaded for making one, but that a training is checked by torch's own side. A further verb is a
class like these with a method `perform(seed, cores, on_event)`, named by an entry point `posbias.verbs`.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from posbias.core import plugins
from posbias.core.arguments import shortened
from posbias.core.errors import InvalidValueError, nearest
from posbias.core.spec import Count, decode, encode, tag, value
from posbias.core.sweeps import paths
from posbias.simulation.model import RecencyModel
from posbias.study.quantities import SINGLE, Lengths, Quantities
from posbias.theory.architecture import Architecture
from posbias.theory.mixing import Mixing

Found = tuple[Quantities, dict[str, Any]]
"""Quantities, and what else is worth keeping: words, checksums, a counterexample."""

SHAPE = (
    *("first_mass", "last_mass", "trough", "trough_depth", "ratio_first", "ratio_middle", "ratio_last"),
    *("effective_range", "entropy", "favours_first", "favours_last"),
)
"""The statistics of a profile (`Summary`) that are quantities, and whether an end is favoured."""


def _texts(given: Any) -> Any:
    if isinstance(given, str):
        return (given,)
    return tuple(given) if isinstance(given, list) else given


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
    packages = ("numba",)
    draws = False

    def __post_init__(self):
        if not -self.tokens <= self.query < self.tokens:
            raise InvalidValueError(
                f"query: {self.query} given, a position from {-self.tokens} to {self.tokens - 1} needed for "
                f"{self.tokens} tokens"
            )
        if self.mixing is not None:
            self.mixing.values(self.architecture.depth)

    @property
    def lengths(self) -> Lengths:
        """The profile by position, and its statistics."""
        return dict.fromkeys((*SHAPE, "lost"), SINGLE) | {"profile": self.tokens}


@value
class Simulate:
    """Draw `samples` inputs of a stack of attention layers without parameters and count their recency.

    Numbers are means over samples. Source: Kim et al. 2026, Section 3.
    """

    model: RecencyModel = RecencyModel()
    samples: Count = 200_000
    kind: Literal["simulate"] = tag(default="simulate")

    main = ("recency_probability",)
    packages = ("numba", "scipy")
    draws = True

    def __post_init__(self):
        if self.model.tokens < 3:
            raise InvalidValueError(
                f"model.tokens: {self.model.tokens} given, at least 3 needed for a recency probability"
            )

    @property
    def lengths(self) -> Lengths:
        """Probabilities by layer, what the last layer does by distance and by key."""
        layers = dict.fromkeys(
            ("recency_probability", "plain_recency_probability", "least_step"), self.model.depth
        )
        keys = dict.fromkeys(("last_scores", "last_attention"), self.model.tokens)
        return {**layers, "recency_by_distance": self.model.tokens - 2, **keys}


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
        from posbias.training.shorthand import experiment_of

        own = ("sequences", "device", "kind")
        names = [field.name for field in dataclasses.fields(self)]
        keys = {name: getattr(self, name) for name in names if name not in own}
        tables = {name: dict(keys[name]) for name in ("task", "network")}
        return experiment_of(keys | tables | {"seeds": [seed]})

    @property
    def lengths(self) -> Lengths:
        """Gaps between pairs of items, accuracies, and the share of attention that sinks draw."""
        pairs = ("first_middle", "first_last", "middle_last")
        gaps = [f"{kind}_{pair}" for kind in ("gap", "informative_gap") for pair in pairs]
        single = (*gaps, "in_context_accuracy", "loss", "sink", "sink_untrained", "sink_uniform")
        items = dict.fromkeys(("accuracy_by_position", "accuracy_alone"), self.task["items"])
        return dict.fromkeys(single, SINGLE) | items


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
    def lengths(self) -> Lengths:
        """The measured profile and its statistics, λ by layer, and two scores of every predictor."""
        from posbias.comparison.predictors import PREDICTORS

        names = [one.key for one in PREDICTORS] + ["uniform", "recency_only"]
        scores = [f"{score}_{name}" for score in ("spearman", "wasserstein") for name in names]
        single = dict.fromkeys((*SHAPE, "loss", "sink_share", *scores), SINGLE)
        return single | {"profile": self.tokens, "mixing": None}


VERBS: dict[str, type] = {cls.kind: cls for cls in (Predict, Simulate, Train, Measure)}
"""The verbs by their `kind`; other packages bring further ones (entry points `posbias.verbs`)."""
GROUP = "posbias.verbs"


def decode_verb(data: Mapping[str, Any]) -> Any:
    """A verb from what a file holds. Raises `InvalidValueError` naming key, value and what fits."""
    cls = class_of(data)
    if cls is Predict and isinstance(data.get("architecture"), str):
        from posbias.theory.configs import load_architecture
        from posbias.theory.presets import preset

        named = data["architecture"]
        read = load_architecture if Path(named).exists() else preset
        data = {**data, "architecture": encode(read(named))}
    return decode(cls, dict(data))


def class_of(data: Mapping[str, Any]) -> type:
    """The verb class that `kind` names. Raises `InvalidValueError` for a missing or unknown one."""
    if "kind" not in data:
        raise InvalidValueError(
            f"kind: missing, one of {', '.join(_known())} needed; it says what every cell does"
        )
    kind = data["kind"]
    if kind in tuple(VERBS):
        return VERBS[kind]
    known = _known()
    if kind not in known:
        raise InvalidValueError(
            f"kind: {shortened(kind)} given, one of {', '.join(known)} needed{nearest(str(kind), known)}"
        )
    return plugins.load(GROUP, kind)


def _known() -> list[str]:
    """The verbs by name, those of other packages too."""
    return [*VERBS, *plugins.names(GROUP)]


def known_paths(cls: type) -> list[str]:
    """The paths that a sweep over a verb may name."""
    found = [path for path in paths(cls) if path != "kind"]
    if cls is Train:
        from posbias.training.specification import Experiment

        found += [path for path in paths(Experiment) if path != "seeds"]
    return list(dict.fromkeys(found))


def gpus_of(verb: Any) -> float:
    """How many GPUs a cell takes: one for what runs on CUDA."""
    return float(getattr(verb, "device", "cpu").startswith("cuda"))
