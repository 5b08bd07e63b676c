"""How strongly each head passes a token on: the squared Jacobian of its part of the update.

What head h adds for token j is A_ij W_O^h v_j, and v_j depends on the stream at token j alone, through the norm
before attention and W_V. Its Jacobian J has ‖J‖²_F / d = g_h / r_j²: a strength of the head, and the size r_j
that the norm divides by. Where the layout is plain, g_h = ‖W_O^h W_V^h diag(gain)‖²_F / d is computed from the
weights. Elsewhere it is estimated: for a random u with E[u uᵀ] = I, E‖J u‖² = ‖J‖²_F, and one such product
serves all heads and tokens at once; it is the derivative, by w, of ⟨Jᵀw, u⟩, which two backward passes give.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from posbias.core.errors import ModelError
from posbias.core.machine import stream as random_stream
from posbias.measurement.capture.forward import SeenLayer
from posbias.measurement.capture.rerun import recording
from posbias.measurement.models.families import Family, decoder_layers, part

NORMS = ("rms", "layer", "none")
"""What the norm before attention divides a token by: its RMS, its standard deviation over channels, nothing."""
PROBES = 8
_SAME = 1e-3
_LEFT_OUT = 0.02
"""What a direction that a norm leaves out may still pass on (because of ε), in proportion to others."""


@dataclass(frozen=True)
class HeadGains:
    """What the energy rollout needs of a model; `gains_of` finds it.

    `strength` is g_h, `norm` and `epsilon` say what r_j is in each layer (see `NORMS`), `stretched` whether
    something scales the update after the output projection. `se` is the standard error of an estimated
    strength over probes and tokens; None for strengths computed from the weights.
    """

    strength: Float[np.ndarray, "layer head"]
    norm: tuple[str, ...]
    epsilon: tuple[float, ...]
    stretched: tuple[bool, ...]
    se: Float[np.ndarray, "layer head"] | None = None

    def weights(self, layer: int, stream: Float[Tensor, "position hidden"]) -> Float[Tensor, "head position"]:
        """Return g_h / r_j² of every head and token, in float64."""
        squares = norm_square(stream, self.norm[layer], self.epsilon[layer])
        strength = torch.from_numpy(self.strength[layer]).to(squares.device)
        return strength[:, None] / squares[None, :]


def norm_square(
    stream: Float[Tensor, "position hidden"], norm: str, epsilon: float
) -> Float[Tensor, "position"]:
    """Return r_j², what the norm before attention divides token j's square by, in float64 (see `NORMS`)."""
    states = stream.double()
    if norm == "none":
        return torch.ones(states.shape[0], dtype=states.dtype, device=states.device)
    if norm == "layer":
        states = states - states.mean(dim=1, keepdim=True)
    return states.square().mean(dim=1) + epsilon


def stretch(
    update: Float[Tensor, "position hidden"],
    mixed: Float[Tensor, "position joined"],
    output_weight: Float[Tensor, "hidden joined"],
) -> Float[Tensor, "position"]:
    """Return ‖update_i‖ / ‖W_O mixed_i‖ in float64: what a norm or multiplier after W_O scales a query by.

    Exactly one where the two differ by a bias only.
    """
    plain = (mixed.to(output_weight.dtype) @ output_weight.T).double()
    added = update.double()
    bias = (added - plain).mean(dim=0)
    if torch.linalg.norm(added - plain - bias) <= _SAME * torch.linalg.norm(added):
        return torch.ones(added.shape[0], dtype=added.dtype, device=added.device)
    smallest = torch.finfo(plain.dtype).tiny
    return torch.linalg.norm(added, dim=1) / torch.linalg.norm(plain, dim=1).clamp(min=smallest)


def stretch_of(seen: SeenLayer) -> Float[Tensor, "position"] | None:
    """Return `stretch` of a layer; None where its output projection could not be determined."""
    if seen.mixed is None or seen.output_weight is None:
        return None
    return stretch(seen.update, seen.mixed, seen.output_weight)


def gains_of(model: Any, family: Family, ids: Int[Tensor, "position"], probes: int = PROBES) -> HeadGains:
    """Return a model's head gains: from its weights where the family's row says where, else estimated.

    The estimate uses one prompt `ids` and `probes` random directions a layer. Raises `ModelError` when a part
    that the row names is missing, or a layer's values or output projection cannot be determined.
    """
    layers = decoder_layers(model)
    if family.gains is None:
        return estimated_gains(model, layers, ids, probes)
    row, heads = family.gains, model.config.get_text_config().num_attention_heads
    strength = [
        plain_strength(
            part(layer, row.norm).weight, part(layer, row.value).weight, part(layer, row.output).weight, heads
        )
        for layer in layers
    ]
    epsilon = tuple(float(part(layer, row.epsilon)) for layer in layers)
    depth = len(layers)
    return HeadGains(np.stack(strength), ("rms",) * depth, epsilon, (False,) * depth)


def plain_strength(
    gain: Float[Tensor, "hidden"],
    value: Float[Tensor, "shared_joined hidden"],
    output: Float[Tensor, "hidden joined"],
    heads: int,
) -> Float[np.ndarray, "head"]:
    """Return ‖W_O^h W_V^h diag(gain)‖²_F / d, in float64, as the inner product of two Grams of head size."""
    writing = output.double().unflatten(1, (heads, -1)).transpose(0, 1)
    reading = (value.double() * gain.double()).unflatten(0, (-1, writing.shape[2]))
    reading = reading.repeat_interleave(heads // reading.shape[0], dim=0)
    grams = (reading @ reading.transpose(1, 2)) * (writing.transpose(1, 2) @ writing).to(reading.device)
    return (grams.sum(dim=(1, 2)) / output.shape[0]).cpu().numpy()


def estimated_gains(
    model: Any, layers: Sequence[Any], ids: Int[Tensor, "position"], probes: int = PROBES
) -> HeadGains:
    """Estimate head gains on one prompt, running each layer once more with gradients.

    Which norm precedes attention is recognised by what its Jacobian leaves out: a norm by RMS the token's own
    direction, one by standard deviation also the direction in which all channels are equal. What the token's
    own direction takes from a strength is averaged over tokens. Raises `ModelError` when a layer's values or
    output projection cannot be determined.
    """
    device = model.get_input_embeddings().weight.device
    with torch.no_grad(), recording(layers) as calls:
        model(input_ids=ids[None] if device.type == "meta" else ids[None].to(device), use_cache=False)
    rows = []
    for index, call in enumerate(calls):
        again = call.again()
        if again.update is None or again.live is None or again.mixed is None or again.output_weight is None:
            raise ModelError(
                f"model: values or output projection of layer {index} could not be determined, the energy rollout "
                "needs them"
            )
        jacobian = HeadJacobian(again.stream, again.live, again.output_weight)
        samples = jacobian.squares(random_stream(0, f"jacobian.layer{index}"), probes)
        norm, epsilon = jacobian.norm(), _epsilon(call.layer)
        samples *= norm_square(again.stream[0].detach(), norm, epsilon).cpu().numpy()
        by_head = samples.transpose(1, 0, 2).reshape(samples.shape[1], -1)
        error = by_head.std(axis=1, ddof=1) / np.sqrt(by_head.shape[1])
        factor = stretch(again.update[0].detach(), again.mixed, again.output_weight)
        rows.append((by_head.mean(axis=1), error, norm, epsilon, bool((factor != 1).any())))
    strength, se, norms, epsilons, stretched = zip(*rows, strict=True)
    return HeadGains(np.stack(strength), norms, epsilons, stretched, np.stack(se))


class HeadJacobian:
    """Products of J_h,j = W_O^h ∂v_j^h/∂x_j with vectors, for all heads and tokens of one layer at once.

    `values` must be part of the graph of `stream`, each token's made from its own stream alone; neighbouring
    heads may share them.
    """

    def __init__(
        self,
        stream: Float[Tensor, "1 position hidden"],
        values: Float[Tensor, "*batch position channel"],
        output_weight: Float[Tensor, "hidden joined"],
    ):
        values = values.flatten(0, -3)
        self._stream = stream
        self._heads = output_weight.shape[1] // values.shape[2]
        self._each = self._heads // values.shape[0]
        writing = output_weight.double().unflatten(1, (self._heads, -1)).transpose(0, 1)
        self._grams = writing.transpose(1, 2) @ writing
        with torch.enable_grad():
            self._cotangent = torch.zeros_like(values, requires_grad=True)
            (self._pulled,) = torch.autograd.grad(values, stream, self._cotangent, create_graph=True)

    def square(self, direction: Tensor) -> Float[Tensor, "head position"]:
        """Return ‖J_h,j u_j‖² in float64 for `direction` u, which may be broadcast to [1 position hidden]."""
        given = direction.to(self._pulled).expand_as(self._pulled)
        (pushed,) = torch.autograd.grad(self._pulled, self._cotangent, given, retain_graph=True)
        pushed = pushed.double().repeat_interleave(self._each, dim=0)
        return ((pushed @ self._grams.to(pushed.device)) * pushed).sum(dim=2)

    def squares(self, rng: np.random.Generator, probes: int) -> Float[np.ndarray, "probe head position"]:
        """Return ‖J_h,j u‖² / d for random u with entries ±1: unbiased samples of ‖J_h,j‖²_F / d."""
        shape = tuple(self._stream.shape)
        directions = (torch.from_numpy(rng.integers(2, size=shape) * 2.0 - 1.0) for _ in range(probes))
        return np.stack([self.square(one).cpu().numpy() for one in directions]) / shape[2]

    def norm(self) -> str:
        """Return which of `NORMS` stands between stream and values."""
        states = self._stream.detach().double()
        centred = states - states.mean(dim=2, keepdim=True)
        if self._share(torch.ones_like(states)) < _LEFT_OUT and self._share(centred) < _LEFT_OUT:
            return "layer"
        return "rms" if self._share(states) < _LEFT_OUT else "none"

    def _share(self, direction: Tensor) -> float:
        """‖J u‖² for unit vectors u along `direction`, in proportion to that for typical ones."""
        unit = direction / direction.norm(dim=2, keepdim=True).clamp(min=torch.finfo(direction.dtype).tiny)
        typical = self.squares(random_stream(0, "jacobian.norm"), 1)
        return float(self.square(unit).sum()) / max(float(typical.sum()), np.finfo(np.float64).tiny)


def _epsilon(layer: Any) -> float:
    """The ε of the layer's first norm; zero where none tells."""
    for module in layer.modules():
        for name in ("variance_epsilon", "eps"):
            if isinstance(getattr(module, name, None), float):
                return getattr(module, name)
    return 0.0
