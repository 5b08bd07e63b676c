"""Which sources stand behind a method or a study of the papers, as (citation key, why).

What is looked at are specs as files have them (`posbias.spec.encode`), so that a result of another day or machine
can be cited without what made it being installed.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from posbias.papers import OURS
from posbias.papers.study import Study
from posbias.papers.theorems import Statements, statements_of
from posbias.spec import encode
from posbias.theory.content import CONTENTS
from posbias.theory.distance import RoPE
from posbias.theory.encodings import POSITIONALS
from posbias.theory.masks import MASKS
from posbias.theory.mixing import MIXINGS
from posbias.theory.normalisers import NORMALISERS
from posbias.theory.query_scale import QUERY_SCALES
from posbias.theory.rope_scaling import ROPE_SCALINGS

Use = tuple[str, str]
"""A citation key, and why it is cited."""
Uses = Iterator[Use]
MEMBERS = (*MASKS, *POSITIONALS, *ROPE_SCALINGS, *CONTENTS, *MIXINGS, *NORMALISERS, *QUERY_SCALES)
"""Every class of the unions of an architecture; what one `cites` stands in the class."""
KINDS: dict[str, Use] = {
    "rotary": RoPE.cites,
    "sinusoidal": ("vaswani2017", "sinusoidal encoding"),
    "sink_softmax": ("miller2023", "a softmax beside a sink"),
    "layernorm": ("ba2016", "LayerNorm"),
    "rmsnorm": ("zhang2019", "RMSNorm"),
} | {cls.kind: cls.cites for cls in MEMBERS if hasattr(cls, "cites")}
"""Encodings, masks, contents, mixings and norms by their `kind`; others have no source."""
MODELS: dict[str, Use] = {
    "bloom": ("bigscience2022", "BLOOM"),
    "mpt-7b": ("mosaic2023a", "MPT-7B"),
    "mpt-30b": ("mosaic2023b", "MPT-30B"),
    "falcon-rw": ("penedo2023", "Falcon-RW"),
    "smollm2": ("benallal2025", "SmolLM2"),
    "gpt2": ("radford2019", "GPT-2"),
    "pythia": ("biderman2023", "Pythia"),
    "mistral-7b": ("jiang2023", "Mistral 7B"),
    "llama-3": ("dubey2024", "Llama 3"),
    "meta-llama-3": ("dubey2024", "Llama 3"),
    "gemma-2": ("gemma2024", "Gemma 2"),
    "gemma-3": ("gemma2025", "Gemma 3"),
    "gpt-oss": ("openai2025", "gpt-oss"),
    "gemma-4": ("google2026", "Gemma 4"),
    "qwen3": ("yang2025", "Qwen3"),
    "qwen3-next": ("qiu2025", "Qwen3-Next"),
    "llama-4": ("meta2025", "Llama 4"),
    "olmo-3": ("olmo2025", "Olmo 3"),
    "exaone-4.0": ("lg2025", "EXAONE 4.0"),
    "lfm2": ("amini2025", "LFM2"),
}
"""Models by how their names begin."""


def of_kind(part: Any) -> Uses:
    """A part of a layer, by its `kind` or its kind alone; of an encoding that needs a measurement, by its name."""
    part = part if isinstance(part, Mapping) else {"kind": part}
    kind = part.get("encoding" if part.get("kind") == "needs_measurement" else "kind")
    if kind in KINDS:
        yield KINDS[kind]
    if kind == "sliding_window" and part.get("sinks"):
        yield "xiao2024", "first tokens kept beside the window"


def of_architecture(architecture: Mapping[str, Any], mixing: Mapping[str, Any] | None = None) -> Uses:
    """A prediction from an architecture; `mixing`, if given, stands instead of its own."""
    yield "abnar2020", "attention rollout"
    kind = (mixing or architecture.get("mixing") or {}).get("kind")
    yield KINDS.get(str(kind), ("herasimchyk2026", "residual-aware rollout"))
    if architecture.get("streams"):
        yield "zhu2025", "hyper-connections"
        yield "xie2025", "hyper-connections whose mixing is doubly stochastic"
    for layer in architecture.get("layers") or []:
        for name in ("mask", "positional", "content", "normaliser", "query_scale"):
            yield from of_kind(layer.get(name))
        yield from of_kind((layer.get("positional") or {}).get("scaling"))
    yield from of_model(str(architecture.get("name", "")))


def of_model(name: str) -> Uses:
    """A language model by its name, folders and organisation left out."""
    plain = name.replace("\\", "/").rpartition("/")[2].lower()
    for begin, use in MODELS.items():
        # gemma-2-9b is of Gemma 2, gemma-2b is not
        if re.match(rf"{re.escape(begin)}(?![a-z0-9])", plain):
            yield use


def of_experiment(experiment: Mapping[str, Any]) -> Uses:
    """A training on the retrieval task, and what is measured of every trained cell."""
    task, network = experiment.get("task") or {}, experiment.get("network") or {}
    yield "wu2025", "the retrieval experiments and their accuracy gaps"
    yield "reddy2024", "the in-context task and its network"
    yield "loshchilov2019", "AdamW"
    yield "abnar2020", "rollout of the trained kernels"
    if network.get("residual"):
        yield "herasimchyk2026", "measured residual mixing"
    yield "gu2025", "the metric of attention sinks"
    positional = network.get("positional") or {}
    yield from of_kind(network.get("mask"))
    yield from of_kind(positional)
    yield from of_kind(network.get("normaliser"))
    if task.get("answers") is not None and positional.get("kind", "nope") == "nope":
        yield "kazemnejad2023", "whether a mask alone can stand in for a positional encoding"


def of_measurement(attributes: Mapping[str, Any], variables: Iterable[str] = ()) -> Uses:
    """A measured model: what it holds decides."""
    held = {*variables}
    yield "herasimchyk2026", "residual mixing (Eq. 1) and influence on the last token (Eq. 6)"
    yield "simonyan2014", "influence as a gradient"
    if {"sink_share", "sink_metric"} & held:
        yield "gu2025", "the metric of attention sinks"
        yield "xiao2024", "attention sinks"
    if "rollout_kernel" in held:
        yield "abnar2020", "rollout of measured attention"
    if "rollout_value" in held:
        yield "kobayashi2020", "attention weighted by the norms of values"
    positional = str(attributes.get("positional", ""))
    yield from of_kind("rotary" if positional == "mixed" else positional)
    yield from of_model(str(attributes.get("model", "")))


def of_report(attributes: Mapping[str, Any], variables: Iterable[str] = ()) -> Uses:
    """A report: a measurement, and five predictions of it."""
    yield from of_measurement(attributes, variables)
    yield "abnar2020", "attention rollout, the predictors"
    yield "wu2025", "the predictor without residual connections"
    yield "herasimchyk2026", "the residual-aware predictors"


def of_retrieval(attributes: Mapping[str, Any]) -> Uses:
    """Retrieval by position of a language model."""
    yield "liu2024", "retrieval by the position of the answer"
    yield from of_model(str(attributes.get("model", "")))


def of_simulation(model: Mapping[str, Any]) -> Uses:
    """A simulated recency bias."""
    yield "kim2026", "the recency bias that a norm induces, and the recency probability"
    yield from of_kind(model.get("norm", "layernorm"))


def of_variant(variant: Mapping[str, Any]) -> Uses:
    """A simulation with parts of a real layer."""
    yield from of_simulation(variant.get("model") or {})
    yield from of_kind(variant.get("positional"))


def of_statements(named: Iterable[tuple[str, str]]) -> Uses:
    """Statements tried: (citation key of their paper, name)."""
    by_paper: dict[str, list[str]] = {}
    for key, name in named:
        by_paper.setdefault(key, []).append(name)
    for key, names in by_paper.items():
        shown = ", ".join(names) if len(names) < 6 else f"{len(names)} statements"
        yield key, f"{shown}, tried on random instances"


def of_statement(key: str) -> Uses:
    """A statement tried, by its key."""
    yield from of_statements((one.source, one.name) for one in statements_of() if one.key == key)


def of_verb(verb: Mapping[str, Any]) -> Uses:
    """A cell of a study, by its `kind`."""
    match verb.get("kind"):
        case "predict":
            yield from of_architecture(verb.get("architecture") or {}, verb.get("mixing"))
        case "simulate":
            yield from of_simulation(verb.get("model") or {})
        case "train":
            yield from of_experiment(verb)
        case "measure":
            yield from of_report({"model": verb.get("model", "")}, ["sink_share"])
        case "verify":
            yield from of_statement(str(verb.get("statement")))


def of_study(study: Study) -> Uses:
    """A figure, a table or the statements of a paper."""
    if isinstance(study, Statements):
        yield study.paper, study.title
        return
    if study.paper == OURS:
        yield from study.uses
        return
    yield study.paper, f"{study.title} ({study.key})"
    if study.parts:
        for part in study.made_of:
            yield from of_study(part)
        return
    for cell in study.cells:
        if study.paper == "wu2025":
            yield from of_experiment(encode(study.effort["quick"].experiment(cell)))
        else:
            yield from of_simulation(encode(cell))
    yield from study.uses
