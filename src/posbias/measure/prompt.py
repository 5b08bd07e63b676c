"""Everything that is measured on one prompt, from one forward and one backward pass.

While the pass runs, each layer's n × n matrices are reduced to what is kept and then let go.
"""

import numpy as np
import torch
from jaxtyping import Int

from posbias.errors import ModelError
from posbias.measure.accumulate import Arrays
from posbias.measure.capture import Capture, SeenLayer
from posbias.measure.content import diagonal, distance_means, first_column, rotation_free, visible
from posbias.measure.families import decoder_layers, part
from posbias.measure.influence import influence, predict
from posbias.measure.kernels import energy_kernel, head_gains, head_mean, sink_share
from posbias.measure.loading import LoadedModel
from posbias.measure.mixing import mixing, mixing_per_token, token_norms
from posbias.measure.proof import content_scales


class PromptMeter:
    """Measures prompts of one length on one model; what depends on the model alone is computed once.

    `gains` are the head gains [layer, head].
    """

    def __init__(self, loaded: LoadedModel, tokens: int, dense_logits: bool):
        config = loaded.model.config
        self._loaded = loaded
        self._dense = dense_logits
        self._scales = content_scales(loaded.model, loaded.family)
        self._epsilons = [
            float(part(layer, f"{loaded.family.norm}.{loaded.family.epsilon}"))
            for layer in decoder_layers(loaded.model, loaded.family)
        ]
        self.gains = head_gains(loaded.model, loaded.family)
        depth, heads = config.num_hidden_layers, config.num_attention_heads
        by_head = (depth, heads, tokens)
        self._shapes: dict[str, tuple[int, ...]] = {
            "residual_norm": (depth, tokens),
            "update_norm": (depth, tokens),
            "logits_distance": by_head,
            "positional_distance": by_head,
            "logits_diagonal": by_head,
            "logits_first_column": by_head,
            "kernel": (depth, tokens, tokens),
            "energy_kernel": (depth, tokens, tokens),
            "sink_share": (depth, heads),
        } | ({"logits": (depth, heads, tokens, tokens)} if dense_logits else {})

    def measure(self, ids: Int[np.ndarray, "position"], prompt: str) -> tuple[Arrays, Arrays]:
        """Return one prompt's sample, to be averaged, and its row, to be kept.

        Raises `ModelError` that names layer and `prompt` when activations or the gradient are not finite.
        """
        sample = {name: np.empty(shape) for name, shape in self._shapes.items()}
        depth = len(self._scales)
        row: Arrays = {"mixing": np.empty(depth), "mixing_token": np.empty(depth)}

        def see(seen: SeenLayer) -> None:
            seen.check_finite(prompt)
            self._reduce(seen, sample, row)

        given = torch.from_numpy(ids)
        with Capture(self._loaded.model, self._loaded.family, see):
            prediction = predict(self._loaded.model, given)
        result = influence(prediction, given)
        if not (np.isfinite(result.influence).all() and np.isfinite(result.loss)):
            raise ModelError(f"model: the outputs or their gradient are not finite in {prompt}")
        row["influence"] = result.influence
        row["probability"] = np.array(result.probability)
        row["next_token"] = np.array(result.next_token)
        row["loss"] = np.array(result.loss)
        return sample, row

    def _reduce(self, seen: SeenLayer, sample: Arrays, row: Arrays) -> None:
        layer = seen.layer
        stream, update = token_norms(seen.stream), token_norms(seen.update)
        content = rotation_free(seen.query, seen.key, self._scales[layer])
        mean_square = stream**2 / seen.stream.shape[1] + self._epsilons[layer]
        row["mixing"][layer] = mixing(stream, update)
        row["mixing_token"][layer] = mixing_per_token(stream, update)
        sample["residual_norm"][layer] = stream
        sample["update_norm"][layer] = update
        sample["logits_distance"][layer] = distance_means(seen.logits)
        sample["positional_distance"][layer] = distance_means(seen.logits - content)
        sample["logits_diagonal"][layer] = diagonal(seen.logits)
        sample["logits_first_column"][layer] = first_column(seen.logits)
        sample["kernel"][layer] = head_mean(seen.attention)
        sample["energy_kernel"][layer] = energy_kernel(seen.attention, self.gains[layer], mean_square)
        sample["sink_share"][layer] = sink_share(seen.attention)
        if self._dense:
            sample["logits"][layer] = visible(seen.logits)
