"""The metric of attention sinks, prompt by prompt: one forward pass each and no gradient.

A measurement (`posbias.measure`) has the metric as a mean over prompts, so that its error over prompts is not
known. Here every prompt keeps its own, the mean over a layer's heads, next to what even attention under the same
mask would score.
"""

from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float, Int

from posbias.measurement import LoadedModel, Quantity, Request, per_prompt
from posbias.measurement.capture.forward import Capture, SeenLayer
from posbias.measurement.quantities.attention import Received, hidden, queries_at_once
from posbias.measurement.result import Arrays

_BY_KEY = ("prompt", "layer", "position")
QUANTITIES = {
    "sink_metric": Quantity(
        _BY_KEY, "share of the queries seeing a key that give it more than .2, mean over heads"
    ),
    "even": Quantity(_BY_KEY, "the same of even attention over what each query sees"),
}


def sinks_by_prompt(loaded: LoadedModel, *, threads: int | None = None, **size: Any) -> xr.Dataset:
    """The sink metric of every key by prompt and layer, at τ = .2, and that of even attention.

    `size` are tokens, prompts and seed of windows of the bundled text. Returns a dataset with `sink_metric` and
    `even` [prompt, layer, position], indices from 0, layer 0 at the bottom; NaN for a key that no query sees.
    Raises as `posbias.measure`. Source: Wu et al. 2025, Appendix K.4; means over heads are ours, as its networks
    have one.
    """
    request = Request(text=None, **size)
    return per_prompt("sinks", QUANTITIES, prompt_sinks, request, model=loaded, threads=threads)


def prompt_sinks(loaded: LoadedModel, ids: Int[np.ndarray, "position"], prompt: str) -> Arrays:
    """Both metrics of one prompt [layer, position].

    Raises `NonFiniteError`, naming `prompt`, where activations are not finite.
    """
    found: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def see(seen: SeenLayer) -> None:
        seen.check_finite(prompt)
        found[seen.layer] = layer_sinks(seen)

    given = torch.from_numpy(ids)[None].to(loaded.model.get_input_embeddings().weight.device)
    with torch.no_grad(), Capture(loaded.model, loaded.family, see):
        loaded.model(input_ids=given, use_cache=False)
    own, even = zip(*(found[layer] for layer in range(len(found))), strict=True)
    return {"sink_metric": np.stack(own), "even": np.stack(even)}


def layer_sinks(seen: SeenLayer) -> tuple[Float[np.ndarray, "position"], Float[np.ndarray, "position"]]:
    """The metric of each key in one layer, mean over heads, and that of even attention under its mask."""
    heads, tokens = seen.scores.heads, seen.scores.tokens
    own, even = Received(heads, tokens), Received(1, tokens)
    for queries, logits, attention in seen.scores.blocks(queries_at_once(heads, tokens, seen.stream.device)):
        unseen = hidden(logits)
        shared = (~unseen).double()
        own.add(queries.start, attention, unseen)
        even.add(queries.start, (shared / shared.sum(dim=1, keepdim=True))[None], unseen)
    return own.metric().mean(axis=0), even.metric()[0]
