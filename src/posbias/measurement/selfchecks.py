"""Proof, on the model at hand, that the capture sees the truth and changes nothing.

The model is run on a short prompt plainly and under the capture, in the attention implementation in which it
is to be measured. Attention rebuilt from the captured logits must equal the model's own where the model can
be asked for it; attention times values must equal what enters the output projection; outputs must be the same
bits. Positions taken out: a rotation turns query and key of one position alike, so logits with and without
must agree on the diagonal, and equal streams (a first half repeated, in the bottom layer) must give equal logits
wherever they stand; without rotation, what logits hold besides must not depend on the prompt.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional

from posbias.core.errors import ModelError
from posbias.measurement.capture.forward import Capture, SeenLayer
from posbias.measurement.capture.recurrences import Effective
from posbias.measurement.capture.scores import Factored, single
from posbias.measurement.models.families import Family, decoder_layers
from posbias.measurement.models.loading import LoadedModel
from posbias.measurement.quantities.influence import predict

TOLERANCE = 1e-5
DEVIATIONS = {
    "max_deviation": "attention rebuilt from its logits deviates",
    "mixed_deviation": "attention · values deviate",
    "rotation_deviation": "rotation-free logits deviate",
}
"""What is compared, and what is wrong where it differs."""
_ROUNDING = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}


def selfcheck(loaded: LoadedModel, ids: Int[Tensor, "position"]) -> dict[str, Any]:
    """Check the capture on one prompt and return what was compared and how far it was off.

    `max_deviation` is of attention rebuilt from logits, against the model's own (eager) or what the fused
    function gives for the same factors (sdpa, asked for every key's share), `mixed_deviation` of
    attention · values against what enters the output projection, relative to the largest value or sum of sizes;
    `rotation_deviation` of logits with positions taken out, relative to what is summed in them. `content` says
    in how many of the `layers` that could be determined, `causal` whether no query saw a later key. `kinds` of
    layers are said where some are no softmax attention: "softmax" or as in `recurrences.py`.

    Raises `ModelError` when a deviation is over 1e-5, in half precision over two roundings u (2⁻⁸ in bfloat16,
    2⁻¹¹ in float16), outputs differ in any bit or are not finite, heads of a layer see different keys, or a model
    that its row calls causal is not. 2u is what rounding can do: weights ≤ 1 are rounded by the model (u/2) or
    with their product (2u); attention times values rounds the weights, whose rows sum to one, and the result
    (u · max |v| each). Rotations round more often, but not alike in all channels: 1.5u at most was seen, in all
    families of the table.
    """
    model, family = loaded.model, loaded.family
    tolerance = max(TOLERANCE, 2 * _ROUNDING.get(model.dtype, 0.0))
    check = _Comparison(_own_attention(loaded, ids) if loaded.attention == "eager" else None)
    with torch.no_grad():
        plain = predict(model, ids).outputs.detach()
    with Capture(model, family, check.first):
        outputs = predict(model, ids).outputs.detach()
    if not bool(torch.isfinite(outputs).all()):
        raise ModelError(f"model: the outputs of {loaded.name} are not finite in the self-check's prompt")
    if check.remainders:
        with Capture(model, family, check.second):
            predict(model, ids[: ids.shape[0] // 2].repeat(2))
    result = {
        "tokens": ids.shape[0],
        "layers": len(check.kinds),
        "attention": loaded.attention,
        **{name: float(np.max(each, initial=0.0)) for name, each in check.deviations.items()},
        "content": len(check.remainders),
        "causal": check.causal,
        "outputs_identical": torch.equal(outputs, plain),
        **({"kinds": check.kinds} if {*check.kinds} != {"softmax"} else {}),
    }
    _judge(result, loaded.name, family, tolerance)
    return result


def _own_attention(loaded: LoadedModel, ids: Tensor) -> list[Tensor] | None:
    """The model's own account of its attention, None when it gives none, or none of some layers."""
    with torch.no_grad():
        own = loaded.model(ids[None].to(loaded.device), output_attentions=True, use_cache=False)
    attentions = getattr(own, "attentions", None)
    depth = len(decoder_layers(loaded.model))
    if not attentions or len(attentions) < depth or any(each is None for each in attentions):
        return None
    return [each[0].cpu() for each in attentions]


class _Comparison:
    """Compares what was seen of each layer, in a first prompt and then in another."""

    def __init__(self, own: list[Tensor] | None):
        self._own = own
        self.causal = True
        self.deviations: dict[str, list[float]] = {name: [] for name in DEVIATIONS}
        self.remainders: dict[int, Tensor] = {}
        self.kinds: list[str] = []

    def first(self, seen: SeenLayer) -> None:
        seen.check_finite("the prompt of the self-check")
        self.kinds.append(seen.scores.kind if isinstance(seen.scores, Effective) else "softmax")
        # compared on the CPU: some devices know no float64
        logits, attention = (each.cpu() for each in seen.scores.dense())
        tokens = seen.scores.tokens
        later = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
        self.causal &= not bool(attention[:, later].any())
        unseen = logits.isneginf()
        if not torch.equal(unseen, unseen[:1].expand_as(unseen)):
            raise ModelError(
                f"model: expected heads that see the same keys, got some that see others in layer {seen.layer}"
            )
        self._compare_attention(seen, logits, attention)
        if seen.values is not None and seen.mixed is not None:
            values = seen.values.cpu().double()
            rebuilt = (attention.double() @ values).transpose(0, 1).flatten(1)
            summed = torch.maximum(values.abs(), attention.double().abs() @ values.abs()).max()
            off = (rebuilt - seen.mixed.cpu().double()).abs().max() / (summed + 1e-30)
            self.deviations["mixed_deviation"].append(float(off))
        self._compare_content(seen, logits)

    def _compare_attention(self, seen: SeenLayer, logits: Tensor, attention: Tensor) -> None:
        """The softmax of the logits, learned sinks aside, against what the model or its function says."""
        deviations = self.deviations["max_deviation"]
        if isinstance(seen.scores, Factored):
            deviations.append(float((attention.double() - _shares(seen.scores)).abs().max()))
        if self._own is None:
            return
        own = self._own[seen.layer].double()[..., : seen.scores.tokens]
        # a sink's share is known from the model's own rows alone: what is left must be a softmax
        rebuilt = logits.double().softmax(dim=-1) * own.sum(dim=-1, keepdim=True)
        deviations += [float((one - own).abs().max()) for one in (rebuilt, attention.double())]

    def _compare_content(self, seen: SeenLayer, logits: Tensor) -> None:
        if seen.content is None:
            return
        content = seen.content.dense()[0].cpu()
        remainder = _remainder(logits, content)
        diagonal = float(remainder.diagonal(dim1=1, dim2=2).abs().max())
        self.deviations["rotation_deviation"].append(diagonal / _size(seen.content))
        self.remainders[seen.layer] = torch.zeros(()) if seen.turned else remainder

    def second(self, seen: SeenLayer) -> None:
        """A prompt whose second half repeats its first: only where tokens stand has changed."""
        if seen.content is None:
            return
        half = seen.scores.tokens // 2
        if not seen.turned:
            logits, content = (each.dense()[0].cpu() for each in (seen.scores, seen.content))
            first = self.remainders[seen.layer][:, : 2 * half, : 2 * half]
            difference = _remainder(logits, content) - first
        elif torch.equal(seen.stream[:half], seen.stream[half:]):
            everything = replace(seen.content, mask=None, causal=False).dense()[0].cpu()
            difference = everything - everything.roll((half, 0), dims=(1, 2))
        else:
            return
        biases = float(self.remainders[seen.layer].abs().max())
        off = float(difference.abs().max()) / (_size(seen.content) + biases)
        self.deviations["rotation_deviation"].append(off)


def _shares(scores: Factored) -> Tensor:
    """Attention as torch's fused function computes it: each key's value is a one in a place of its own."""
    key = scores.key.repeat_interleave(scores.heads // scores.key.shape[0], dim=0)
    ones = torch.eye(scores.tokens, dtype=key.dtype, device=key.device).expand(scores.heads, -1, -1)
    given = {"attn_mask": scores.mask, "is_causal": scores.causal, "scale": scores.scale}
    return functional.scaled_dot_product_attention(scores.query, key, ones, **given).cpu().double()


def _remainder(logits: Tensor, content: Tensor) -> Tensor:
    """What logits hold besides content where both are finite: unrotated, the part that only positions decide."""
    return torch.where(torch.isfinite(logits) & torch.isfinite(content), logits - content, 0)


def _size(content: Factored) -> float:
    """The largest ‖q‖ · ‖k‖ · scale: logits near 100 carry float32 errors near 1e-5 each."""
    query, key = (single(each).norm(dim=-1).max() for each in (content.query, content.key))
    return float(query * key) * abs(content.scale) + 1e-30


def _judge(result: dict[str, Any], name: str, family: Family, tolerance: float) -> None:
    """Raise `ModelError` when the comparison says that the capture, or the family's row, is wrong."""
    known = "" if family.checked else f"; its family {family.model_type!r} is not in the table of families"
    # written so that a NaN fails
    found = {what: result[key] for key, what in DEVIATIONS.items()}
    wrong = [f"{what} by {off:.1e}" for what, off in found.items() if not off <= tolerance]
    if wrong:
        raise ModelError(
            f"model: the capture is wrong for {name}: {', '.join(wrong)}, at most {tolerance:.0e} is right{known}"
        )
    if family.checked and result["content"] < result["layers"]:
        raise ModelError(
            f"model: rotation-free logits of {name} could be determined in {result['content']} of "
            f"{result['layers']} layers, the row of {family.model_type!r} needs all"
        )
    if family.causal and family.checked and not result["causal"]:
        raise ModelError(f"model: {name} attends to later tokens, its family {family.model_type!r} may not")
    if not result["outputs_identical"]:
        raise ModelError(
            f"model: outputs of {name} must be the same with and without capture, and differ{known}"
        )
