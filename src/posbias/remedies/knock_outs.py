"""What knocking out heads, or attention to a region, changes: loss and margins by place, within prompts.

    found = posbias.knock_out("smollm2-135m", heads=[(3, 1), (12, 7)])     # without heads: all, each by itself
    found[3, 1]["loss"], found[3, 1]["first - middle"]
    posbias.knock_out("smollm2-135m", region="first")["first"]["mean"]

All intervals hold together (Bonferroni over all that is knocked out, and over quantities). Every prompt is read
plainly once, what each layer gives is kept, and a pass with a head knocked out begins at its layer. For influence:
`posbias.measure(…, knock_out=[(3, 1)])`, compared with a measurement of the same prompts without.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch.nn import functional

from posbias.asking.local import LocalModel
from posbias.asking.opening import opened
from posbias.core.errors import wrong
from posbias.core.progress import Event, OnEvent
from posbias.measurement.capture.rerun import answering, outputs_of
from posbias.measurement.interventions import Intervention, KnockOut, RegionRemoved, head_means, intervened
from posbias.measurement.job import MeasurementJob
from posbias.measurement.models.families import decoder_config, decoder_layers
from posbias.profiles.estimate import Estimate
from posbias.profiles.gaps import MEAN, gaps_of
from posbias.profiles.heads import Head
from posbias.retrieval.jobs import RetrievalJob, retrieval_job
from posbias.retrieval.session import Session


def knock_out(
    model: Any = "smollm2-135m",
    heads: Sequence[Head] | None = None,
    *,
    region: Any = None,
    means: bool = False,
    job: MeasurementJob | None = None,
    trials: RetrievalJob | None = None,
    threads: int | None = None,
    on_event: OnEvent = lambda event: None,
) -> dict[Any, dict[str, Estimate]]:
    """Knock out each head, or attention to a region: by head (or region) and quantity, what that changes.

    Quantities, in nats: `loss` of the prompts of `job` (8 of 128 tokens); of the margins of `trials` (of keys: 4
    at 3 places) their `mean` and gaps between places.

    heads: layer and head of each; None: all. means: outputs become their mean over the prompts, not 0.
    region: sink, first, middle or last, as of `head_shares`, in place of heads.
    model, threads: as of `measure`. Raises as `measure` and `LocalModel.split`, and `InvalidValueError` for
    candidates that begin with the same token: margins are of first tokens.
    """
    job = job or MeasurementJob(tokens=128, prompts=8)
    trials = trials or retrieval_job(positions=3, prompts=4)
    with opened(model, threads) as who:
        texts, made = [*job.draw(who.loaded).ids], Session((trials,)).trials(trials, who.loaded.tokenizer)
        prompts: list[Any] = [(ids.tolist(), []) for ids in texts]
        for one in map(made.trial, range(trials.prompts)):
            prompts += [who.split(text, one.answers) for text in one.asked]
        ways, rows = _ways(who.loaded, region, heads, texts if means else ()), list[Any]()
        for done, (ids, endings) in enumerate(prompts):
            on_event(Event(done, len(prompts), "prompt"))
            rows.append(_numbers(who, ids, endings, ways.values()))
    losses, margins = np.split(np.array(rows)[:, 1:] - np.array(rows)[:, :1], [len(texts)])
    margins = margins.reshape(trials.prompts, trials.positions, len(ways))
    found = dict[Any, dict[str, Estimate]]()
    for k, name in enumerate(ways):
        columns = {"loss": losses[:, k], MEAN: margins[..., k].mean(axis=1), **gaps_of(margins[..., k])}
        together = len(columns) * len(ways)
        found[name] = {key: Estimate.of_mean(held).jointly(together) for key, held in columns.items()}
    return found


def by_head(found: Mapping[Any, Mapping[str, Estimate]], quantity: str) -> Float[np.ndarray, "layer head"]:
    """What knocking out each head changes of a quantity, a map for `plots.heads_figure`; NaN of other heads."""
    made = np.full(np.max([*found], axis=0) + 1, np.nan)
    for head, one in found.items():
        made[head] = one[quantity].value
    return made


def _ways(loaded: Any, region: Any, heads: Any, prompts: Sequence[Any]) -> dict[Any, Intervention]:
    """The region removed, or each head knocked out, by its mean over prompts where there are any."""
    if region:
        if heads is not None or prompts:
            raise wrong("region", "no heads and no means with it", region)
        return {region: RegionRemoved(region)}
    sizes = len(decoder_layers(loaded.model)), decoder_config(loaded.model.config).num_attention_heads
    every: list[Any] = [*itertools.product(*map(range, sizes))]
    chosen: list[Any] = every if heads is None else [tuple(np.atleast_1d(one).tolist()) for one in heads]
    if not chosen or not {*chosen} <= {*every}:
        raise wrong("heads", f"layers below {sizes[0]} with heads below {sizes[1]}", chosen)
    means = head_means(loaded, prompts) if prompts else np.zeros((*sizes, 1))
    return {one: KnockOut((one,), (tuple(means[one].tolist()),)) for one in chosen}


@torch.no_grad()
def _numbers(who: LocalModel, ids: list[int], endings: Any, ways: Iterable[Intervention]) -> list[float]:
    """The margin of the first of some endings, or without any the loss of a prompt, plainly and in each way."""
    model = who.loaded.model
    stages, first = [model.get_input_embeddings(), *decoder_layers(model)], [ending[0] for ending in endings]
    if first[:1] and first[0] in first[1:]:
        raise wrong("trials", "candidates that begin with different tokens", got="the same token")

    def number() -> float:
        if first:
            right, *others = who.reader.following(ids)[first].tolist()
            return right - max(others)
        given = torch.tensor(ids, device=who.loaded.device)
        logits = model(input_ids=given[None], use_cache=False).logits[0, :-1].float()
        return float(functional.cross_entropy(logits, given[1:].to(logits.device)))

    with outputs_of(stages) as kept:
        found = [number()]
    for way in ways:
        untouched = way.heads[0][0] + 1 if isinstance(way, KnockOut) else 0
        with intervened(who.loaded, way), ExitStack() as stack:
            for stage, output in zip(stages[:untouched], kept, strict=False):
                stack.enter_context(answering(stage, output))
            found.append(number())
    return found
