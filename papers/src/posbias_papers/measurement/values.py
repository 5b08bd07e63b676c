"""Values by position, beside the sinks of the same heads: one forward pass of a prompt and no gradient.

Of a head it is told how long the first token's value is beside those of later tokens, and how large the spread of
what the head writes there (attention · values, before the output projection) is beside the spread later on: the
first token attends to itself alone, while later ones average.
"""

from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float, Int

from posbias.core.errors import ModelError
from posbias.core.events import OnEvent
from posbias.measurement.accumulate import Arrays
from posbias.measurement.by_prompt import Variables, by_prompt, drawn
from posbias.measurement.capture.forward import Capture, SeenLayer
from posbias.measurement.job import Request, TextSource
from posbias.measurement.models.loading import LoadedModel
from posbias.measurement.prompt_meter import queries_at_once
from posbias.measurement.quantities.content import hidden
from posbias.measurement.quantities.sinks import Received

_BY_HEAD, _BY_POSITION = ("layer", "head"), ("layer", "head", "position")
_ABOUT: Variables = {
    "sink_share": (_BY_HEAD, "attention that token 0 receives, mean over later queries", "1"),
    "sink_metric": (_BY_HEAD, "share of the queries that give token 0 more than .2", "1"),
    "value_norm": (_BY_POSITION, "norm of the value vector", "1"),
    "value_variance": (_BY_POSITION, "variance of the value vector over its channels", "1"),
    "mixed_variance": (_BY_POSITION, "variance over channels of attention · values", "1"),
}


def values_by_head(
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
    """Norms and variances of values by prompt, layer, query head and position, and how much token 0 draws.

    Arguments as of `measure`. Heads that share values (grouped queries) repeat them. Raises as `measure`, and
    `ModelError` for a model whose values are not seen.
    """
    request = Request(text=text, tokens=tokens, prompts=prompts, seed=seed)
    how: dict[str, Any] = {"threads": threads, "on_event": on_event}
    return by_prompt("values", _ABOUT, model, tokenizer, request, drawn, prompt_values, **how)


def prompt_values(loaded: LoadedModel, ids: Int[np.ndarray, "position"], prompt: str) -> Arrays:
    """All of one prompt, [layer, head] and [layer, head, position]. Raises as `values_by_head`."""
    found: dict[int, Arrays] = {}

    def see(seen: SeenLayer) -> None:
        seen.check_finite(prompt)
        found[seen.layer] = layer_values(seen)

    given = torch.from_numpy(ids)[None].to(loaded.device)
    with torch.no_grad(), Capture(loaded.model, loaded.family, see):
        loaded.model(input_ids=given, use_cache=False)
    return {name: np.stack([found[layer][name] for layer in range(len(found))]) for name in _ABOUT}


def layer_values(seen: SeenLayer) -> dict[str, Float[np.ndarray, "head *position"]]:
    """The same of one layer."""
    if seen.values is None or seen.mixed is None:
        raise ModelError(f"model: the values of layer {seen.layer} are not seen")
    heads, tokens = seen.scores.heads, seen.scores.tokens
    received = Received(heads, tokens)
    for queries, logits, attention in seen.scores.blocks(queries_at_once(heads, tokens, seen.stream.device)):
        received.add(queries.start, attention, hidden(logits))
    values = seen.values.double().cpu().numpy()
    mixed = seen.mixed.double().cpu().numpy().reshape(tokens, heads, -1).swapaxes(0, 1)
    return {
        "sink_share": received.first_token(),
        "sink_metric": received.metric()[:, 0],
        "value_norm": np.linalg.norm(values, axis=-1),
        "value_variance": values.var(axis=-1),
        "mixed_variance": mixed.var(axis=-1),
    }
