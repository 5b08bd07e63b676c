"""What can be measured of which family, tried on a tiny random model of every one in transformers.

PYTHONPATH=tools python tests/support/zoo.py               write docs/made/zoo.md
PYTHONPATH=tools python tests/support/zoo.py llama bert    print the rows of some families

Each family goes through `posbias.measure` as a user's model in memory would. What comes out is held against the
model's own attention, and against λ and gradients computed plainly (`by_hand.py`).
"""

import logging
import random
import re
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from by_hand import influence, mixings, own_attention, uncached
from tiny import WORDS, word_tokenizer
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

from families import build, families
from posbias.core.errors import PosbiasError
from posbias.measurement import LoadedModel, measure, selfcheck
from posbias.measurement.capture.forward import Capture, SeenLayer
from posbias.measurement.job import MeasurementJob
from posbias.measurement.models.families import FAMILIES, MISREAD, decoder_config, generic
from posbias.measurement.quantities.influence import gradients, predict
from posbias.measurement.quantities.mixing import mixing, token_norms

TOKENS = 20
TOLERANCE = 1e-4
"""Relative, of λ and gradients against those by hand; of attention and its sums absolute. Seen: 1e-8 to 1e-6."""

UNDETERMINED = "by hand it cannot be determined: "
Seen = Mapping[int, SeenLayer]


@dataclass(frozen=True)
class Row:
    """How far a family can be measured, in how many layers, and what is to be said of it."""

    family: str
    verdict: str
    layers: str = ""
    remarks: tuple[str, ...] = ()


VERDICTS = {
    "measured": "attention, λ, outputs and gradient influence are the model's, in every layer",
    "all but λ": "the same without λ: what attention adds to the stream cannot be determined by hand",
    "attention layers only": "`measure` refuses; the gradient influence, and attention and λ of the layers "
    "that have a softmax, are right",
    "influence only": "`measure` refuses and says why; the gradient influence is right",
    "refused": "neither can be had; `measure` says why",
    "not built": "no tiny model could be built and run here; `python tests/support/zoo.py NAME` says why",
    "wrong": "something deviates and nothing says so",
}
"""Verdicts → what they mean."""


def tiny(family: str, head: Any = transformers.AutoModelForCausalLM, attention: str | None = None) -> Any:
    """A tiny model that runs; no gain or bias stands at 1 or 0, where nothing would show that it is missing."""
    known = FAMILIES.get(family)
    attention = attention or (known.attention[0] if known else "eager")
    decoder = head is transformers.AutoModelForCausalLM
    config = transformers.AutoConfig.for_model(family).to_dict()
    changes = {"is_decoder": True} if decoder and config.get("is_decoder") is False else {}
    if known and not known.causal:
        changes = {}
    _, model = build(family, head, attention, **changes)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(1)
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1 and not name.lower().endswith("norm.bias"):
                parameter.add_(0.1 * torch.randn_like(parameter))
        model(torch.arange(3, 3 + TOKENS)[None], **uncached(model))
    return model


def causal(family: str) -> Row:
    """Build and measure one family with a causal head."""
    return row(family, transformers.AutoModelForCausalLM)


def encoder(family: str) -> Row:
    """Build and measure one family with a head for masked words."""
    return row(family, transformers.AutoModelForMaskedLM)


def row(family: str, head: Any) -> Row:
    """Build and measure one family with this head."""
    try:
        model = tiny(family, head)
    except Exception as error:  # whatever keeps a family from being built is its reason
        return Row(family, "not built", remarks=(_line(error),))
    said = (MISREAD[family],) if family in MISREAD else ()
    ids, reason, found = torch.arange(3, 3 + TOKENS), "", None
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "words.txt")
        text.write_text(" ".join(random.Random(5).choices(WORDS, k=200)), encoding="utf-8")
        asked = {"text": text, "tokens": TOKENS, "prompts": 1}
        try:
            found = measure(model, tokenizer=word_tokenizer(), threads=1, **asked)
            loaded = LoadedModel(model, word_tokenizer(), generic(family), family, "")
            ids = torch.from_numpy(MeasurementJob(**asked).draw(loaded).ids[0])
        except PosbiasError as error:
            reason = _line(error)
        except Exception as error:
            return Row(family, "wrong", remarks=(f"raises {_line(error)}", *said))
    model.eval().requires_grad_(False)
    if found is None:
        return _refused(family, model, ids, reason, said)
    # asked for its attention, a model with sdpa may return one that it does not use
    own_of = model if model.config._attn_implementation == "eager" else tiny(family, head, "eager")
    kernels, depth = found["kernel"].values, found.sizes["layer"]
    faults = of_layers(model, ids, dict(enumerate(kernels)), found["mixing"].values[0], own_of)
    faults += of_influence(model, ids, found["influence"].values[0])
    faults += _fused(model, family, ids, found["mixing"].values[0])
    content = (
        found["content_diagonal"].values if "content_diagonal" in found else np.full((depth, 1, 1), np.nan)
    )
    separated = int(np.isfinite(content).all(axis=(1, 2)).sum())
    if separated < depth:
        said = (*said, f"positions are separated apart from content in {separated} of {depth} layers")
    untold = [fault for fault in faults if UNDETERMINED in fault]
    wrong = [fault for fault in faults if not fault.startswith("(") and fault not in untold]
    remarks = [*wrong, *(fault.split(UNDETERMINED)[1] for fault in untold[:1])]
    remarks += [*(fault.strip("()") for fault in faults if fault.startswith("(")), *said]
    verdict = "wrong" if wrong else "all but λ" if untold else "measured"
    return Row(family, verdict, f"{depth} of {depth}", tuple(remarks))


def _refused(family: str, model: Any, ids: torch.Tensor, reason: str, said: tuple[str, ...]) -> Row:
    """What is left of a family that `measure` refuses."""
    seen, problem = layers_seen(model, family, ids)
    try:
        found = gradients(predict(model, ids), ids)["influence"]
    except PosbiasError as error:
        return Row(family, "refused", remarks=(reason, _line(error), *said))
    faults = of_influence(model, ids, found)
    if not (seen and "softmax attention in each" in problem):
        return Row(
            family,
            *(("wrong", "", (*faults, reason, *said)) if faults else ("influence only", "", (reason, *said))),
        )
    faults += of_layers(model, ids, *parts_of(seen))
    layers = f"{len(seen)} of {getattr(decoder_config(model.config), 'num_hidden_layers', 0)}"
    untold = [f"no λ: {one.split(UNDETERMINED)[1]}" for one in faults if UNDETERMINED in one]
    if len(faults) > len(untold):
        return Row(family, "wrong", layers, (*faults, reason, *said))
    return Row(family, "attention layers only", layers, (*untold[:1], *said))


def layers_seen(model: Any, family: str, ids: torch.Tensor) -> tuple[Seen, str]:
    """What the capture sees of each layer, and what it says where it refuses."""
    seen: dict[int, SeenLayer] = {}
    known = FAMILIES.get(family) or generic(family)
    try:
        with Capture(model, known, lambda one: seen.update({one.layer: one})):
            predict(model, ids)
    except PosbiasError as error:
        return seen, str(error)
    return seen, ""


def parts_of(seen: Seen) -> tuple[dict[int, np.ndarray], dict[int, float]]:
    """Attention [head, query, key] and λ of the layers that were seen."""
    mixings_of = {
        number: mixing(token_norms(one.stream), token_norms(one.update)) for number, one in seen.items()
    }
    return {number: one.attention.double().numpy() for number, one in sorted(seen.items())}, mixings_of


def of_layers(model: Any, ids: torch.Tensor, attention: Any, mixing_of: Any, own_of: Any = None) -> list[str]:
    """How attention ([head, query, key] or its mean) and λ by layer differ from the model's; in brackets what was
    not compared. `own_of` is the model that returns its own attention.
    """
    own, hand, faults = own_attention(own_of or model, ids), mixings(model, ids), []
    if own is None or len(own) not in (len(attention), len(hand)):
        faults.append("(attention is compared with its logits alone: the model does not return its own)")
    for place, (number, found) in enumerate(attention.items() if not faults else ()):
        its = own[place if len(own) == len(attention) else number][..., : found.shape[-1]].numpy()
        its = its.mean(0) if found.ndim == 2 else its
        if found.shape != its.shape or not np.abs(found - its).max() < TOLERANCE:
            faults.append(f"attention of layer {number} is not the model's")
        elif found.sum(-1).max() >= 1 + TOLERANCE:
            faults.append(f"rows of layer {number} sum to more than one")
    for number in attention:
        coefficient, by_hand = float(mixing_of[number]), hand[number]
        if by_hand.reason:
            faults.append(f"λ of layer {number} is {coefficient:.3f}, {UNDETERMINED}{by_hand.reason}")
        elif not abs(coefficient - by_hand.mixing) < TOLERANCE * by_hand.mixing:
            faults.append(f"λ of layer {number} is {coefficient:.4f}, by hand {by_hand.mixing:.4f}")
    return faults


def of_influence(model: Any, ids: torch.Tensor, found: np.ndarray) -> list[str]:
    plain = influence(model, ids).numpy()
    right = plain.max() > 0 and np.abs(found - plain).max() < TOLERANCE * plain.max()
    return [] if right else ["the influence is not that of a plain backward pass"]


def _fused(model: Any, family: str, ids: torch.Tensor, coefficients: np.ndarray) -> list[str]:
    """What is wrong with attention in one call, which `measure` takes above 256 tokens where there is any."""
    known = FAMILIES.get(family) or generic(family)
    if "sdpa" not in known.attention or model.config._attn_implementation == "sdpa":
        return []
    outputs = model(ids[None], **uncached(model)).logits
    try:
        model.set_attn_implementation("sdpa")
        if model.config._attn_implementation != "sdpa":
            return ["(eager alone)"]
        selfcheck(LoadedModel(model, None, known, family, ""), ids)
    except ValueError:
        return ["(eager alone)"]
    except PosbiasError as error:
        return [f"(eager alone: of sdpa {_line(error)})"]
    _, found = parts_of(layers_seen(model, family, ids)[0])
    off = (model(ids[None], **uncached(model)).logits - outputs).abs().max() / outputs.abs().max()
    if off < 1e-2 and np.abs(np.array([*found.values()]) - coefficients).max() < 1e-2:
        return []
    return ["outputs of eager and sdpa attention differ"]


def encoders() -> list[str]:
    """Every model type with a head for masked words in the installed transformers."""
    return sorted(MODEL_FOR_MASKED_LM_MAPPING_NAMES)


def _line(error: Exception) -> str:
    text = " ".join(str(error).split()).replace("|", "/")
    text = text.split("; a softmax attention")[0].split("; its family")[0].removeprefix("model: ")
    text = re.sub(r" by [0-9.e+-]+, at most [0-9.e+-]+ is right", "", text)
    name = "" if isinstance(error, PosbiasError) else f"{type(error).__name__}: "
    return f"{name}{text[:117]}{'…' * (len(text) > 117)}"


def quiet() -> None:
    """Let neither transformers nor the measurement talk."""
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    logging.getLogger("posbias").setLevel(logging.ERROR)


PAGE = Path(__file__).parents[2] / "docs" / "made" / "zoo.md"
UNSEEN = ("influence only", "refused", "not built")
"""Verdicts whose reasons the page leaves to `measure` and to `zoo.py NAME`."""


def page(decoders: Sequence[Row], both_ways: Sequence[Row]) -> str:
    """Both tables as Markdown."""
    head = f"""# Families: what can be measured

Every family of transformers {transformers.__version__} with a causal head ({len(decoders)}) or one for masked \
words ({len(both_ways)}), tiny and with random weights. Made by `make pages`, held by `make test-all`. \
[How configurations are read](families.md) is another page.

Attention is held against what the model returns, λ against what a layer adds with its feed-forward block off and \
attention on or off, the gradient influence against a plain backward pass, each to {TOLERANCE:g}; eager against \
fused attention (sdpa) to 1e-2. A released model may use other options: `measure` checks its attention and \
outputs, λ it does not. The gradient influence needs no attention: `gradients(predict(model, ids), ids, \
("probability",))["influence"]`, both of `posbias.measurement.quantities.influence`.
"""
    counts = [Counter(one.verdict for one in rows) for rows in (decoders, both_ways)]
    verdicts = [
        "| verdict | causal | encoders | |",
        "|---|---|---|---|",
        *(
            f"| {kind} | {counts[0][kind]} | {counts[1][kind]} | {meaning} |"
            for kind, meaning in VERDICTS.items()
        ),
        "",
    ]
    return "\n".join([head, *verdicts, *_table("Causal", decoders), *_table("Encoders", both_ways)])


def _table(title: str, rows: Sequence[Row]) -> list[str]:
    """A table of families that share verdict and remarks."""
    alike: dict[tuple[str, str], list[str]] = {}
    for one in sorted(rows, key=lambda one: [*VERDICTS].index(one.verdict)):
        remarks = dict.fromkeys(map(_common, one.remarks)) if one.verdict not in UNSEEN else ()
        remark = "; ".join(remarks)
        family = f"{one.family} ({one.layers})" if _some(one.layers) else one.family
        alike.setdefault((one.verdict, remark), []).append(family)
    return [
        f"## {title}\n",
        "| verdict | | families |",
        "|---|---|---|",
        *(
            f"| {verdict} | {remark} | {', '.join(sorted(names))} |"
            for (verdict, remark), names in alike.items()
        ),
        "",
    ]


def _some(layers: str) -> bool:
    """Whether it is some of a model's layers that were seen, not all."""
    return len({*layers.split(" of ")}) == 2


def _common(remark: str) -> str:
    """A remark without the names and sizes of one family, so that it stands once."""
    remark = re.sub(r"\w+(For[A-Z]\w+|LMHeadModel)( \(\w+\))?", "the model", remark)
    remark = re.sub(r"^'[\w-]+' has", "it has", remark)
    return remark.split("; a model with")[0]


def main(names: Sequence[str]) -> None:
    """Write the page, or print some rows."""
    quiet()
    for name in names:
        print(*(kind(name) for kind, known in ((causal, families()), (encoder, encoders())) if name in known))
    if not names:
        decoders, both_ways = [causal(name) for name in families()], [encoder(name) for name in encoders()]
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(page(decoders, both_ways), encoding="utf-8")
        print(Counter(one.verdict for one in decoders), Counter(one.verdict for one in both_ways))


if __name__ == "__main__":
    main(sys.argv[1:])
