"""Proof, on the model at hand, that the capture sees the truth and changes nothing.

The model is run twice on a short prompt: once plainly, asked for its own attention weights, and once under
the capture. Attention rebuilt from the captured logits must equal the model's own, outputs must be the same
bits, and since a rotation turns query and key of one position alike, logits and rotation-free logits must
agree on the diagonal.
"""

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from posbias.errors import ModelError
from posbias.measure.capture import Capture, SeenLayer
from posbias.measure.content import diagonal, rotation_free
from posbias.measure.families import Family, decoder_layers, part
from posbias.measure.influence import predict
from posbias.measure.loading import LoadedModel

TOLERANCE = 1e-5


def content_scales(model: Any, family: Family) -> list[float]:
    """Return, per layer, the factor on q·k: the model's own scale, times what its rotation adds."""
    stretch = float(getattr(part(model, family.rotary), "attention_scaling", 1.0)) ** 2
    return [
        float(part(part(layer, family.attention), family.scaling)) * stretch
        for layer in decoder_layers(model, family)
    ]


def selfcheck(loaded: LoadedModel, ids: Int[Tensor, "position"]) -> dict[str, Any]:
    """Check the capture on one prompt; return `max_deviation`, `outputs_identical` and what was compared.

    Raises `ModelError` when rebuilt attention is off by more than 1e-5, outputs differ in any bit, or the
    rotation-free logits are not those of the model.
    """
    with torch.no_grad():
        plain = loaded.model(ids[None], output_attentions=True, use_cache=False)
    scales = content_scales(loaded.model, loaded.family)
    attention_off, rotation_off = [], []

    def compare(seen: SeenLayer) -> None:
        seen.check_finite("the prompt of the self-check")
        rebuilt = seen.logits.double().softmax(dim=-1)
        attention_off.append(float((rebuilt - plain.attentions[seen.layer][0].double()).abs().max()))
        # relative to the size of what is summed: logits near 100 carry float32 errors near 1e-5 each
        size = (seen.query.norm(dim=-1) * seen.key.norm(dim=-1)).max() * scales[seen.layer]
        content = rotation_free(seen.query, seen.key, scales[seen.layer])
        rotation_off.append(float(abs(diagonal(seen.logits) - diagonal(content)).max()) / float(size + 1e-30))

    with Capture(loaded.model, loaded.family, compare):
        outputs = predict(loaded.model, ids).outputs.detach()
    if not bool(torch.isfinite(outputs).all()):
        raise ModelError(
            f"model: the outputs of {loaded.name} are not finite in the prompt of the self-check"
        )
    result = {
        "tokens": ids.shape[0],
        "layers": len(attention_off),
        "max_deviation": max(attention_off),
        "rotation_deviation": max(rotation_off),
        "outputs_identical": torch.equal(outputs, plain.logits[0]),
    }
    # written so that a NaN fails
    if not (result["max_deviation"] <= TOLERANCE and result["rotation_deviation"] <= TOLERANCE):
        raise ModelError(
            f"model: the capture is wrong for {loaded.name}: attention rebuilt from its logits deviates by "
            f"{result['max_deviation']:.1e}, rotation-free logits by {result['rotation_deviation']:.1e}, "
            f"at most {TOLERANCE:.0e} is right"
        )
    if not result["outputs_identical"]:
        raise ModelError(
            f"model: outputs of {loaded.name} differ with and without capture, they must be the same"
        )
    return result
