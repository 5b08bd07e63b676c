"""How alike the hidden states of near tokens are, which keys score higher, and what that does to the prediction.

One forward pass a prompt and no gradient, so that texts longer than the context can be tried where the encoding
has no end: models without any, and ALiBi. Everything is by layer and kept for each prompt: cosines of the residual
stream by distance, before the norm of attention and after it (Zuo et al. 2025 find near ones alike), the recency
probability of Kim et al. 2026 and the adjacency probability of logits, with positions and without, and beside them
the loss of the next token by position.
"""

from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor

from posbias.core.errors import InvalidValueError, NonFiniteError
from posbias.core.events import OnEvent
from posbias.measurement.accumulate import Arrays
from posbias.measurement.by_prompt import Variables, by_prompt
from posbias.measurement.capture.forward import Capture, SeenLayer
from posbias.measurement.capture.scores import Scores
from posbias.measurement.job import Request, TextSource
from posbias.measurement.memory import check_memory
from posbias.measurement.models.families import decoder_config, decoder_layers, part
from posbias.measurement.models.loading import LoadedModel
from posbias.measurement.quantities.block_sums import numbers
from posbias.measurement.quantities.content import ByDistance
from posbias_papers.measurement.wins import Wins, wins

ENDLESS = ("none", "alibi")
"""Encodings that any position has, beyond the context too."""
_ABOUT: Variables = {
    "cosine": (("layer", "distance"), "mean cosine of states entering the layer, keys from 1", "1"),
    "cosine_normed": (("layer", "distance"), "the same behind the norm before attention", "1"),
    "recency": (("layer", "head"), "share of triples i > j > k with a higher logit of j than of k", "1"),
    "adjacency": (("layer", "head"), "the same of triples with j = i - 1", "1"),
    "recency_query": (("layer", "query"), "recency of each query, over all heads", "1"),
    "recency_content": (("layer", "head"), "recency of content logits", "1"),
    "adjacency_content": (("layer", "head"), "adjacency of content logits", "1"),
    "loss_position": (("position",), "cross-entropy of the token behind this one", "nat"),
}


def nearness(
    model: Any = "tiny-nope",
    *,
    tokenizer: Any = None,
    text: TextSource = None,
    tokens: int = 256,
    prompts: int = 32,
    seed: int = 0,
    threads: int | None = None,
    on_event: OnEvent | None = None,
) -> xr.Dataset:
    """Measure cosines by distance, recency and adjacency by layer, and the loss by position, prompt by prompt.

    Arguments as of `measure`; `tokens` may be more than the context where the encoding is one of `ENDLESS`.
    Returns a dataset with the variables of `_ABOUT` by prompt and their dimensions; indices from 0, layer 0 at the
    bottom. `cosine_normed` is left out where the family's row does not name the norm, NaN stands for content that
    cannot be told and for pairs that are not there. Raises as `measure`, but for checkpoints: there are none.
    """
    request = Request(text=text, tokens=tokens, prompts=prompts, seed=seed)
    how: dict[str, Any] = {"threads": threads, "on_event": on_event}
    return by_prompt("nearness", _ABOUT, model, tokenizer, request, _prompts, prompt_nearness, **how)


def _prompts(loaded: LoadedModel, request: Request) -> Int[np.ndarray, "prompt position"]:
    """The prompts, after what can be known before any of them is run is checked."""
    loaded.need_causal("comparing earlier keys")
    config = decoder_config(loaded.model.config)
    context = getattr(config, "max_position_embeddings", None)
    endless = loaded.family.positional_kind(loaded.model.config) in ENDLESS
    if context is not None and request.tokens > context and not endless:
        raise InvalidValueError(
            f"tokens: {request.tokens} given, at most {context} fit the context of {loaded.name}; only a model "
            "without positional encoding or with ALiBi can go beyond"
        )
    check_memory(loaded, request)
    drawn = request.draw(loaded)
    loaded.check_ids(int(drawn.ids.max()))
    return drawn.ids


def prompt_nearness(loaded: LoadedModel, ids: Int[np.ndarray, "position"], prompt: str) -> Arrays:
    """Everything of one prompt. Raises `NonFiniteError`, naming `prompt`, where activations are not finite."""
    layers = decoder_layers(loaded.model, loaded.family)
    found: list[Arrays] = [{} for _ in layers]
    normed: dict[int, Tensor] = {}
    nothing_to_take_out = loaded.family.positional_kind(loaded.model.config) == "none"

    def see(seen: SeenLayer) -> None:
        seen.check_finite(prompt)
        states = {"cosine": seen.stream}
        if seen.layer in normed:
            states["cosine_normed"] = normed.pop(seen.layer)[0]
        cosines = {name: cosines_by_distance(one) for name, one in states.items()}
        found[seen.layer] = cosines | _wins_of(seen, nothing_to_take_out)

    given = torch.from_numpy(ids)[None].to(loaded.model.get_input_embeddings().weight.device)
    with torch.no_grad(), ExitStack() as hooks:
        if loaded.family.gains is not None:
            for index, layer in enumerate(layers):

                def keep(module: Any, arguments: Any, output: Tensor, index: int = index) -> None:
                    normed[index] = output.detach()

                norm = part(layer, loaded.family.gains.norm)
                hooks.enter_context(norm.register_forward_hook(keep))
        with Capture(loaded.model, loaded.family, see):
            outputs = loaded.model(input_ids=given, use_cache=False).logits[0]
    loss = _loss(outputs, given[0])
    if not np.isfinite(loss[:-1]).all():
        raise NonFiniteError(f"model: the loss is not finite in {prompt}")
    return {name: np.stack([one[name] for one in found]) for name in found[0]} | {"loss_position": loss}


def cosines_by_distance(states: Float[Tensor, "position hidden"]) -> Float[np.ndarray, "distance"]:
    """Mean cosine of x_i and x_j by i − j, keys j ≥ 1, in float64; NaN at the last distance, which has no pair."""
    unit = torch.nn.functional.normalize(states.double(), dim=1)
    tokens = len(unit)
    sums = ByDistance(1, tokens, spread=False)
    later = torch.ones(tokens, tokens, dtype=torch.bool, device=unit.device).triu(1)
    sums.add(0, (unit @ unit.T)[None], later)
    return sums.mean()[0]


def _wins_of(seen: SeenLayer, alike: bool) -> Arrays:
    """Wins of logits and of content logits, which are `alike` without an encoding."""
    counted = _counted(seen.scores)
    content = counted if alike else None if seen.content is None else _counted(seen.content)
    nothing = np.full(seen.scores.heads, np.nan)
    return {
        "recency": counted.recency,
        "adjacency": counted.adjacency,
        "recency_query": counted.by_query,
        "recency_content": nothing if content is None else content.recency,
        "adjacency_content": nothing if content is None else content.adjacency,
    }


def _counted(scores: Scores) -> Wins:
    """The wins among the keys that each query sees; content is masked as the attention is."""
    return wins(numbers(scores.logits_of(0, scores.tokens)))


def _loss(
    outputs: Float[Tensor, "position vocabulary"], ids: Int[Tensor, "position"]
) -> Float[np.ndarray, "position"]:
    """Cross-entropy of each next token in nats, from float64; NaN for the last, which has none."""
    log_probabilities = outputs[:-1].double().log_softmax(dim=1)
    loss = -log_probabilities.gather(1, ids[1:, None].to(outputs.device))[:, 0]
    return np.append(numbers(loss), np.nan)
