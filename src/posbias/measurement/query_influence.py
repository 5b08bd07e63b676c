"""The gradient influence on several tokens of a prompt: one forward pass, a backward pass for each of them.

A measurement (`posbias.measure`) has the influence on the last token alone, where the distance from it and the
position in the text are one. Here each query has its own row, so that a distance is seen at several positions.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from posbias.arguments import whole
from posbias.errors import InvalidValueError, NonFiniteError
from posbias.measurement.job import Request, TextSource
from posbias.measurement.models.families import decoder_layers
from posbias.measurement.models.in_memory import ready
from posbias.measurement.models.loading import LoadedModel
from posbias.measurement.prompt_meter import FUSED
from posbias.measurement.quantities.influence import Economy, economy, predict
from posbias.measurement.run import for_length, prepared
from posbias.threads import leaving_a_core, torch_threads

_PROVEN_ON = 64


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
) -> Float[np.ndarray, "prompt query position"]:
    """‖∇_{e_j} ln P(y|x_≤i)‖₂ for each query i and position j, y the most likely next token; 0 for j > i.

    Arguments as of `measure`; `queries` are positions of the prompt. ln P and P differ by a factor for each
    query, which drops out of ratios within a row. Raises as `measure`, `InvalidValueError` for a query that is
    no position, `NonFiniteError` for a gradient that is not finite.
    """
    request = Request(text=text, tokens=tokens, prompts=prompts, seed=seed, scramble=scramble)
    for query in queries:
        if not -tokens <= whole("queries", query, -tokens) < tokens:
            raise InvalidValueError(f"queries: {query} given, positions of the {tokens} tokens needed")
    with (
        torch_threads(leaving_a_core() if threads is None else threads),
        ready(model, tokenizer) as given,
    ):
        loaded = for_length(given, tokens)
        ids = prepared(loaded, request).ids
        return np.stack([_of_prompt(loaded, one, queries, _saving(loaded, ids, queries)) for one in ids])


def _saving(loaded: LoadedModel, ids: Int[np.ndarray, "prompt position"], queries: Sequence[int]) -> Economy:
    """What long prompts need not remember where the last token alone is asked for (proven on the first)."""
    tokens = ids.shape[1]
    if tokens <= FUSED or {query % tokens for query in queries} != {tokens - 1}:
        return Economy()
    layers = decoder_layers(loaded.model, loaded.family)
    return economy(loaded.model, layers, torch.from_numpy(ids[0][:_PROVEN_ON]))


def _of_prompt(
    loaded: LoadedModel, ids: Int[np.ndarray, "position"], queries: Sequence[int], saving: Economy
) -> Float[np.ndarray, "query position"]:
    prediction = predict(loaded.model, torch.from_numpy(ids), saving)
    rows = []
    for query in queries:
        with torch.enable_grad():
            said = prediction.outputs[query].double().log_softmax(dim=-1).max()
        (slope,) = torch.autograd.grad(said, prediction.embeddings, retain_graph=True)
        rows.append(torch.linalg.vector_norm(slope[0].cpu().double(), dim=-1).numpy())
    if not np.isfinite(rows).all():
        raise NonFiniteError("model: the gradient is not finite in a prompt")
    return np.stack(rows)
