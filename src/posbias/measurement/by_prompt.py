"""Statistics that every prompt keeps its own of, from forward passes alone: what draws, runs and describes them.

dataset = by_prompt("sinks", VARIABLES, model, tokenizer, request, draw, measure)
"""

import datetime
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Int

from posbias.core.events import OnEvent
from posbias.core.threads import leaving_a_core, torch_threads
from posbias.measurement.accumulate import Arrays, State
from posbias.measurement.job import Request, fingerprint_of
from posbias.measurement.models.in_memory import ready
from posbias.measurement.models.loading import LoadedModel
from posbias.measurement.run import prepared
from posbias.measurement.selfchecks import selfcheck
from posbias.measurement.sharing import Group
from posbias.measurement.streaming import Stream

Variables = Mapping[str, tuple[tuple[str, ...], str, str]]
"""By name: the dimensions behind the prompt, what it is, and its unit."""
_SELFCHECK_TOKENS = 64


def by_prompt(
    kind: str,
    variables: Variables,
    model: Any,
    tokenizer: Any,
    request: Request,
    draw: Callable[[LoadedModel, Request], Int[np.ndarray, "prompt position"]],
    measure: Callable[[LoadedModel, Int[np.ndarray, "position"], str], Arrays],
    *,
    threads: int | None = None,
    on_event: OnEvent | None = None,
) -> xr.Dataset:
    """Run `measure` on each prompt of `request` and return its arrays, with the prompt as their first dimension.

    `draw` gives the tokens of all prompts and refuses what can be known to be wrong; `measure` takes those of one
    and what an error is to call it. Of `variables`, those are kept that `measure` gives. Other arguments as of
    `posbias.measure`. Raises what loading, the self-check, `draw` and `measure` raise.
    """
    heard = on_event if on_event is not None else lambda event: None
    running = torch_threads(leaving_a_core() if threads is None else threads)
    with running, ready(model, tokenizer) as loaded:
        ids = draw(loaded, request)
        selfcheck(loaded, torch.from_numpy(ids[0][:_SELFCHECK_TOKENS]))

        def row(index: int) -> tuple[Arrays, Arrays]:
            return {}, measure(loaded, ids[index], f"prompt {index}")

        job = request.of(loaded) | {"kind": kind}
        state, _ = Stream(row, request.prompts, Group(), heard).run(None, fingerprint_of(job))
        return _dataset(state, variables, loaded, request, job)


def drawn(loaded: LoadedModel, request: Request) -> Int[np.ndarray, "prompt position"]:
    """The prompts of a measurement of a causal model. Raises as `prepared`, and `ModelError` for an encoder."""
    loaded.need_causal("what is taken by query or head")
    return prepared(loaded, request).ids


def _dataset(
    state: State, variables: Variables, loaded: LoadedModel, request: Request, job: dict[str, Any]
) -> xr.Dataset:
    held = {
        name: xr.Variable(("prompt", *dimensions), state.column(name), {"long_name": what, "units": unit})
        for name, (dimensions, what, unit) in variables.items()
        if name in state.rows[0]
    }
    attributes = {
        "posbias_kind": job["kind"],
        **request.described(loaded),
        "fingerprint": fingerprint_of(job),
        "versions": json.dumps(job["versions"]),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    return xr.Dataset(held, {"prompt": state.column("index")}, attributes)
