"""The gradient influence on several tokens of a prompt: one forward pass, a backward pass for each of them.

A measurement (`posbias.measure`) has the influence on the last token alone, where the distance from it and the
position in the text are one. Here each query has its own row, so that a distance is seen at several positions.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float, Int

from posbias.core.arguments import whole
from posbias.core.errors import InvalidValueError, NonFiniteError
from posbias.core.events import OnEvent
from posbias.measurement.accumulate import Arrays
from posbias.measurement.by_prompt import Variables, by_prompt, drawn
from posbias.measurement.job import Request, TextSource
from posbias.measurement.models.families import decoder_layers
from posbias.measurement.models.in_memory import ready
from posbias.measurement.models.loading import LoadedModel
from posbias.measurement.prompt_meter import FUSED
from posbias.measurement.quantities.influence import Economy, economy, predict
from posbias.measurement.run import for_length

_PROVEN_ON = 64
_ABOUT: Variables = {
    "influence": (
        ("query", "position"),
        "norm of the gradient of the query's highest log-probability",
        "nat",
    ),
}


def query_influence(
    model: Any = "tiny-nope",
    *,
    tokenizer: Any = None,
    text: TextSource = None,
    tokens: int = 256,
    prompts: int = 32,
    seed: int = 0,
    scramble: bool = False,
    queries: Sequence[int] = (-1,),
    threads: int | None = None,
    on_event: OnEvent | None = None,
) -> xr.Dataset:
    """‖∇_{e_j} ln P(y|x_≤i)‖₂ for each query i and position j, y the most likely next token; 0 for j > i.

    Arguments as of `measure`; `queries` are positions of the prompt. Returns a dataset with `influence` [prompt,
    query, position]. ln P and P differ by a factor for each query, which drops out of ratios within a row. Raises
    as `measure`, `InvalidValueError` for a query that is no position, `NonFiniteError` for a gradient that is not
    finite.
    """
    request = Request(text=text, tokens=tokens, prompts=prompts, seed=seed, scramble=scramble)
    for query in queries:
        if not -tokens <= whole("queries", query, -tokens) < tokens:
            raise InvalidValueError(f"queries: {query} given, positions of the {tokens} tokens needed")
    saving = Economy()

    def draw(loaded: LoadedModel, request: Request) -> Int[np.ndarray, "prompt position"]:
        nonlocal saving
        ids = drawn(loaded, request)
        saving = _saving(loaded, ids, queries)
        return ids

    def measure(loaded: LoadedModel, ids: Int[np.ndarray, "position"], prompt: str) -> Arrays:
        return {"influence": prompt_influence(loaded, ids, queries, saving, prompt)}

    with ready(model, tokenizer) as given:
        loaded = for_length(given, tokens)
        how: dict[str, Any] = {"threads": threads, "on_event": on_event}
        return by_prompt("query_influence", _ABOUT, loaded, None, request, draw, measure, **how)


def _saving(loaded: LoadedModel, ids: Int[np.ndarray, "prompt position"], queries: Sequence[int]) -> Economy:
    """What long prompts need not remember where the last token alone is asked for (proven on the first)."""
    tokens = ids.shape[1]
    if tokens <= FUSED or {query % tokens for query in queries} != {tokens - 1}:
        return Economy()
    layers = decoder_layers(loaded.model, loaded.family)
    return economy(loaded.model, layers, torch.from_numpy(ids[0][:_PROVEN_ON]))


def prompt_influence(
    loaded: LoadedModel,
    ids: Int[np.ndarray, "position"],
    queries: Sequence[int],
    saving: Economy,
    prompt: str,
) -> Float[np.ndarray, "query position"]:
    """The influence on each query of one prompt. Raises `NonFiniteError`, naming `prompt`."""
    prediction = predict(loaded.model, torch.from_numpy(ids), saving)
    rows = []
    for query in queries:
        with torch.enable_grad():
            said = prediction.outputs[query].double().log_softmax(dim=-1).max()
        (slope,) = torch.autograd.grad(said, prediction.embeddings, retain_graph=True)
        rows.append(torch.linalg.vector_norm(slope[0].cpu().double(), dim=-1).numpy())
    if not np.isfinite(rows).all():
        raise NonFiniteError(f"model: the gradient is not finite in {prompt}")
    return np.stack(rows)
