"""Everything that is measured on one prompt, from one forward pass and the backward passes that are asked for.

While the pass runs, each layer's attention is gone through in blocks of queries, reduced to what is kept and
then let go: no n × n matrix of all heads is held, unless the model makes it (eager attention) or it was asked
for (`Request.dense_logits`). What cannot be told of a layer is NaN.
"""

from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from posbias.core.errors import NonFiniteError
from posbias.measurement.accumulate import Arrays
from posbias.measurement.capture.forward import Capture, SeenLayer
from posbias.measurement.capture.scores import Factored, block_size, halvings
from posbias.measurement.job import Request
from posbias.measurement.models.families import adds_to_stream, decoder_layers
from posbias.measurement.models.loading import LoadedModel
from posbias.measurement.quantities.block_sums import energy_kernel, head_mean
from posbias.measurement.quantities.content import ByDistance, diagonal, first_column, hidden, seen_or_nan
from posbias.measurement.quantities.influence import Economy, gradients, predict
from posbias.measurement.quantities.jacobian import HeadGains, stretch
from posbias.measurement.quantities.mixing import (
    feed_forward_share,
    head_norms,
    mixing,
    mixing_by_head,
    mixing_per_token,
    token_norms,
)
from posbias.measurement.quantities.rollouts import Rollouts
from posbias.measurement.quantities.sinks import Received, massive

FUSED = 256
"""Above so many tokens fused attention is taken where the family has it, and outputs are made in blocks."""
KERNEL_TOKENS = 1024
"""Longest prompts whose averaged kernels are kept: 30 layers of them take 250 MB in float64. Sums over queries and
rollouts of single prompts serve longer ones."""
OF_EARLIER_KEYS = (
    *("logits_distance", "positional_distance", "content_distance", "content_distance_variance"),
    *("content_mean", "content_variance", "constant_diagonal_r2"),
)
"""Means over earlier keys alone, which are not all that an encoder sees."""
_CACHED_BYTES = 8 * 2**20
"""Logits and attention of one block on a CPU: with a few copies in float64 what caches hold."""


class PromptMeter:
    """Measures the prompts of one request on one model; what depends on the model alone is given once.

    `gains` are the head gains that energy kernels and rollouts need: without them there are none. `economy`
    says what the passes need not remember (see `influence.economy`), and may be changed between prompts.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        request: Request,
        gains: HeadGains | None = None,
        economy: Economy | None = None,
    ):
        self._loaded = loaded
        self._request = request
        self._gains = gains
        self.economy = economy
        self._depth = len(decoder_layers(loaded.model, loaded.family))
        self._encoder = loaded.encoder

    def measure(self, ids: Int[np.ndarray, "position"], prompt: str) -> tuple[Arrays, Arrays]:
        """Return one prompt's sample, to be averaged, and its row, to be kept.

        Raises `NonFiniteError` that names layer and `prompt` when activations or a gradient are not finite,
        `InvalidValueError` for a target that is no token of the model.
        """
        model, request = self._loaded.model, self._request
        sample: Arrays = {}
        row: Arrays = {}
        rollouts = self._rollouts()
        additive = adds_to_stream(self._loaded.family, model.config)
        written: dict[int, tuple[Tensor, Tensor]] = {}

        def see(seen: SeenLayer) -> None:
            seen.check_finite(prompt)
            norms = _Norms(seen)
            self._keep(seen.layer, sample, self._means(seen, norms))
            self._keep(seen.layer, row, norms.mixings())
            if additive:
                written[seen.layer] = seen.stream, seen.update
            if rollouts is not None:
                rollouts.see(seen)

        def left(layer: int, stream: Tensor) -> None:
            share = feed_forward_share(*written.pop(layer), stream)
            self._keep(layer, row, {"feed_forward_share": np.array(share)})

        given = torch.from_numpy(ids)
        saving = self.economy
        if saving is not None and "outputs" in request.influences:  # each output is differentiated
            saving = Economy()
        with rollouts or nullcontext(), Capture(model, self._loaded.family, see, left if additive else None):
            prediction = predict(model, given, saving)
        row |= rollouts.rows() if rollouts is not None else {}
        row |= gradients(prediction, given, ("probability", *request.influences), request.target)
        if self._encoder:  # no output says what comes next
            del row["loss"]
        for name, values in row.items():
            if name.startswith(("influence", "rollout", "loss")) and not np.isfinite(values).all():
                raise NonFiniteError(f"model: the {name} is not finite in {prompt}")
        return sample, row

    def _keep(self, layer: int, arrays: Arrays, values: dict[str, np.ndarray]) -> None:
        """Put one layer's values in their place; layers for which there are none stay NaN, tokens −1."""
        for name, value in values.items():
            if name not in arrays:
                empty = -1 if value.dtype.kind == "i" else np.nan
                arrays[name] = np.full((self._depth, *value.shape), empty, dtype=value.dtype)
            arrays[name][layer] = value

    def _means(self, seen: SeenLayer, norms: "_Norms") -> Arrays:
        energy = None
        if self._gains is not None and self._request.tokens <= KERNEL_TOKENS:
            weights = self._gains.weights(seen.layer, seen.stream)
            stretched = norms.stretch if self._gains.stretched[seen.layer] else None
            energy = weights, None if stretched is None else stretched.square()
        found = {"residual_norm": norms.stream, "update_norm": norms.update}
        found |= layer_means(seen, self._request, energy)
        left_out = OF_EARLIER_KEYS if self._encoder else ()
        return {name: values for name, values in found.items() if name not in left_out}

    def _rollouts(self) -> Rollouts | None:
        if not self._request.rollouts:
            return None
        layers = decoder_layers(self._loaded.model, self._loaded.family)
        return Rollouts(self._request.tokens, self._request.rollouts, self._gains, layers)


Energy = tuple[Float[Tensor, "head key"], Float[Tensor, "query"] | None]


def layer_means(
    seen: SeenLayer, request: Request, energy: Energy | None = None, block: int | None = None
) -> Arrays:
    """Return everything that is averaged over prompts of one layer's attention, from blocks of queries.

    `energy` are the weights of the energy kernel and the factors on its rows, `block` is the number of queries
    at a time (by default a few MB of them). Content statistics are left out where content cannot be told.
    """
    heads, tokens = seen.scores.heads, seen.scores.tokens
    received, logits_at = Received(heads, tokens), _Logits(heads, tokens, request.dense_logits, spread=False)
    content_at = None if seen.content is None else _Logits(heads, tokens, request.dense_logits, spread=True)
    kernels = _Kernels(heads, tokens, request, energy)
    size = block or queries_at_once(heads, tokens, seen.stream.device)
    for queries, logits, attention in seen.scores.blocks(size):
        unseen = hidden(logits)
        # under a causal mask nothing stands to the right of a block's last query
        keys = queries.stop if bool(unseen[:, queries.stop :].all()) else tokens
        logits, attention, unseen = logits[:, :, :keys], attention[:, :, :keys], unseen[:, :keys]
        received.add(queries.start, attention, unseen)
        kernels.add(queries, attention)
        logits_at.add(queries, logits, unseen)
        if content_at is not None and seen.content is not None:
            content_at.add(queries, _content_rows(seen.content, queries, unseen), unseen)
    found = kernels.found | {
        "sink_share": received.first_token(),
        "attention_received": received.mean(),
        "sink_metric": received.metric(),
        "missing_mass": received.missing(),
    }
    found |= logits_at.found("logits")
    return found if content_at is None else found | _content(content_at, logits_at)


def queries_at_once(heads: int, tokens: int, device: torch.device) -> int:
    """Return how many queries a block has: on a CPU what stays in its caches, else what fits 64 MB."""
    most = block_size(heads, tokens)
    if device.type != "cpu":
        return most
    return max(1, min(most, (_CACHED_BYTES >> halvings()) // (8 * heads * tokens)))


def _content_rows(
    content: Factored, queries: slice, unseen: Bool[Tensor, "query key"]
) -> Float[Tensor, "head query key"]:
    """Content logits of a block to its first keys, −∞ where the layer sees nothing."""
    keys = unseen.shape[1]
    mask = None if content.mask is None else content.mask[..., :keys]
    part = replace(content, key=content.key[:, :keys], mask=mask, causal=False)
    return part.logits_of(queries.start, queries.stop).masked_fill_(unseen, -torch.inf)


def _content(content: "_Logits", logits: "_Logits") -> Arrays:
    fit = content.distances.fit()
    return content.found("content") | {
        "content_distance_variance": content.distances.variance(),
        "content_mean": fit.constant,
        "content_variance": fit.variance,
        "constant_diagonal_r2": fit.r2,
        "positional_distance": logits.distances.mean() - content.distances.mean(),
    }


class _Logits:
    """Logits of one layer by where they stand; `dense` keeps them all."""

    def __init__(self, heads: int, tokens: int, dense: bool, spread: bool):
        self.distances = ByDistance(heads, tokens, spread)
        self._diagonal = np.empty((heads, tokens))
        self._column = np.empty((heads, tokens))
        self._all = np.full((heads, tokens, tokens), np.nan) if dense else None

    def add(self, queries: slice, logits: Float[Tensor, "head query key"], unseen: Tensor) -> None:
        self.distances.add(queries.start, logits, unseen)
        self._diagonal[:, queries] = diagonal(queries.start, logits)
        self._column[:, queries] = first_column(logits)
        if self._all is not None:
            self._all[:, queries, : logits.shape[2]] = seen_or_nan(logits)

    def found(self, name: str) -> Arrays:
        arrays = {
            f"{name}_distance": self.distances.mean(),
            f"{name}_diagonal": self._diagonal,
            f"{name}_first_column": self._column,
        }
        return arrays if self._all is None else arrays | {name: self._all}


class _Kernels:
    """The kernels of one layer that are kept: `found` after the last block."""

    def __init__(self, heads: int, tokens: int, request: Request, energy: Energy | None):
        self._energy = energy
        square = (tokens, tokens)
        self.found: Arrays = {}
        if tokens <= KERNEL_TOKENS:
            self.found["kernel"] = np.zeros(square)
            if energy is not None:
                self.found["energy_kernel"] = np.zeros(square)
        if request.head_kernels:
            self.found["kernel_head"] = np.zeros((heads, *square))

    def add(self, queries: slice, attention: Float[Tensor, "head query key"]) -> None:
        place = (queries, slice(attention.shape[2]))
        if "kernel" in self.found:
            self.found["kernel"][place] = head_mean(attention)
        if self._energy is not None and "energy_kernel" in self.found:
            weights, factors = self._energy
            rows = energy_kernel(attention, weights[:, place[1]])
            self.found["energy_kernel"][place] = (
                rows if factors is None else rows * factors[queries, None].cpu().numpy()
            )
        if "kernel_head" in self.found:
            self.found["kernel_head"][:, *place] = attention.double().cpu().numpy()


class _Norms:
    """The sizes of one layer's stream and update, and what is kept of them for each prompt."""

    def __init__(self, seen: SeenLayer):
        self.stream, self.update = token_norms(seen.stream), token_norms(seen.update)
        self._seen = seen

    @cached_property
    def stretch(self) -> Float[Tensor, "position"] | None:
        """What each token's update was scaled by after the output projection; None where that is not known."""
        seen = self._seen
        if seen.mixed is None or seen.output_weight is None:
            return None
        return stretch(seen.update, seen.mixed, seen.output_weight)

    def mixings(self) -> Arrays:
        """λ in its variants, and how massive the largest activation is."""
        ratio, token = massive(self.stream)
        found = {
            "mixing": np.array(mixing(self.stream, self.update)),
            "mixing_token": np.array(mixing_per_token(self.stream, self.update)),
            "massive_ratio": np.array(ratio),
            "massive_token": np.array(token),
        }
        seen = self._seen
        if seen.mixed is not None and seen.output_weight is not None and self.stretch is not None:
            heads = head_norms(seen.mixed, seen.output_weight, seen.scores.heads, self.stretch)
            found["mixing_head"] = mixing_by_head(self.stream, self.update, heads)
        return found
