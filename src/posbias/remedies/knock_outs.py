"""What knocking out heads, or attention to a region, changes: loss and margins by place, within prompts.

    found = posbias.knock_out("smollm2-135m", heads=[(3, 1), (12, 7)])     # without heads: all, each by itself
    found[3, 1]["loss"], found[3, 1]["first - middle"]
    posbias.knock_out("smollm2-135m", first_order=True)                    # all heads, by one pass back a prompt
    posbias.knock_out("smollm2-135m", region="first")["first"]["mean"]
    greedy("smollm2-135m", "first", heads=[(3, 1), (12, 7), (20, 4)])      # sets of heads, on held-out prompts

All intervals hold together (Bonferroni over all that is knocked out, and over quantities). Every prompt is read
plainly once, what each layer gives is kept, and a pass with heads knocked out begins at the lowest layer of them.
For influence: `posbias.measure(…, knock_out=[(3, 1)])`, compared with a measurement of the same prompts without.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from posbias.asking.local import LocalModel
from posbias.asking.opening import opened
from posbias.core.errors import counted, one_of, wrong
from posbias.core.machine import stream
from posbias.core.progress import Event, OnEvent
from posbias.measurement.capture.rerun import answering, outputs_of
from posbias.measurement.interventions import KnockOut, RegionRemoved, head_means, head_scales, intervened
from posbias.measurement.job import MeasurementJob
from posbias.measurement.models.families import decoder_config, decoder_layers
from posbias.profiles.estimate import Estimate
from posbias.profiles.gaps import MEAN, gaps_of
from posbias.profiles.heads import Head
from posbias.retrieval.jobs import RetrievalJob, retrieval_job
from posbias.retrieval.session import Session

Prompt = tuple[list[int], list[int]]
"""Token ids, and the first token of each candidate, the right one first; none where the loss is wanted."""
Outputs = Float[np.ndarray, "layer head _"]
Columns = Mapping[str, Float[np.ndarray, "draw way"]]


def knock_out(
    model: Any = "smollm2-135m",
    heads: Sequence[Head] | None = None,
    *,
    region: Any = None,
    means: bool = False,
    first_order: bool = False,
    job: MeasurementJob | None = None,
    trials: RetrievalJob | None = None,
    threads: int | None = None,
    on_event: OnEvent = lambda event: None,
) -> dict[Any, dict[str, Estimate]]:
    """Knock out each head, or attention to a region: by head (or region) and quantity, what that changes.

    Quantities, in nats: `loss` of the prompts of `job` (8 of 128 tokens); of the margins of `trials` (of keys: 4
    at 3 places) those of the `first` and `last` place, their `mean`, and gaps between places.

    heads: layer and head of each; None: all. means: outputs become their mean over the prompts, not 0.
    first_order: −⟨∂y/∂z_h, z_h⟩ with z_h the output of a head (z_h less its mean), of one pass back a prompt, for
    each quantity y: what scaling the output down does, as a slope.
    region: sink, first, middle or last, as of `head_shares`, in place of heads.
    model, threads: as of `measure`. Raises as `measure` and `LocalModel.split`, and `InvalidValueError` for
    candidates that begin with the same token: margins are of first tokens.
    """
    with opened(model, threads) as who:
        job = job or MeasurementJob(tokens=128, prompts=8)
        draws = _draws(who, job, trials or retrieval_job(positions=3, prompts=4))
        if region:
            if heads is not None or means or first_order:
                raise wrong("region", "no heads, means or first_order with it", region)
            row = partial(_changes, who, [RegionRemoved(region)])
            return _estimates([region], _columns(draws, row, on_event))
        chosen, outputs = _heads(who.loaded, heads, draws if means else ())
        if not first_order:
            ways = [_knocked_out([head], outputs) for head in chosen]
            return _estimates(chosen, _columns(draws, partial(_changes, who, ways), on_event))
        with head_scales(who.loaded, outputs) as scales:
            return _estimates(chosen, _columns(draws, partial(_slopes, who, scales, chosen), on_event))


def greedy(
    model: Any = "smollm2-135m",
    quantity: str = MEAN,
    heads: Sequence[Head] | None = None,
    *,
    most: int = 5,
    means: bool = False,
    job: MeasurementJob | None = None,
    trials: RetrievalJob | None = None,
    seed: int = 0,
    threads: int | None = None,
    on_event: OnEvent = lambda event: None,
) -> dict[tuple[Head, ...], dict[str, Estimate]]:
    """Sets of heads that together lower a quantity of `knock_out` most: by set what knocking it out changes.

    Each set has one head more, of `heads` (None: all): the one that lowers the mean over one half of the prompts
    most. What sets change is that over the other half. `seed` draws the halves, of texts and of trials (16 of
    each, unless given). Sets have up to `most` heads, in the order chosen. Raises as `knock_out`, and
    `InvalidValueError` for another quantity.
    """
    trials = trials or retrieval_job(positions=3, prompts=16)
    one_of("quantity", quantity, ("loss", *_margins(np.zeros((1, trials.positions, 1)))))
    with opened(model, threads) as who:
        job, found = job or MeasurementJob(tokens=128, prompts=16), list[Any]()
        draws = _draws(who, job, trials)
        chosen, outputs = _heads(who.loaded, heads, draws if means else ())
        order = stream(seed, "knock_out.greedy").permutation(len(draws))
        order = sorted(order, key=lambda place: len(draws[place]))  # halves of texts and of trials
        wanted = [draws[place] for place in order[::2] if (len(draws[place]) == 1) == (quantity == "loss")]
        for _ in chosen[: counted("most", most)]:
            before = found[-1] if found else ()
            sets = [(*before, head) for head in chosen if head not in before]
            ways = [_knocked_out(one, outputs) for one in sets]
            columns = _columns(wanted, partial(_changes, who, ways), on_event)
            found.append(sets[int(columns[quantity].mean(axis=0).argmin())])
        ways, others = [_knocked_out(one, outputs) for one in found], [draws[place] for place in order[1::2]]
        return _estimates(found, _columns(others, partial(_changes, who, ways), on_event))


def by_head(found: Mapping[Any, Mapping[str, Estimate]], quantity: str) -> Float[np.ndarray, "layer head"]:
    """What knocking out each head changes of a quantity, a map for `plots.heads_figure`; NaN of other heads."""
    made = np.full(np.max([*found], axis=0) + 1, np.nan)
    for head, one in found.items():
        made[head] = one[quantity].value
    return made


# --- what is asked --------------------------------------------------------------------------------------------


def _draws(who: LocalModel, job: MeasurementJob, trials: RetrievalJob) -> list[list[Prompt]]:
    """Each text by itself, and the prompts of each trial by place."""
    draws: list[Any] = [[(ids.tolist(), [])] for ids in job.draw(who.loaded).ids]
    made = Session((trials,)).trials(trials, who.loaded.tokenizer)
    for one in map(made.trial, range(trials.prompts)):
        split = [who.split(text, one.answers) for text in one.asked]
        draws.append([(ids, [ending[0] for ending in endings]) for ids, endings in split])
    return draws


def _heads(loaded: Any, heads: Any, draws: Sequence[Any]) -> tuple[list[Head], Outputs]:
    """The heads given, or all, and what outputs become: their means over the texts among draws, or 0.

    Raises `InvalidValueError` for none, and for heads that there are not.
    """
    sizes = len(decoder_layers(loaded.model)), decoder_config(loaded.model.config).num_attention_heads
    every: list[Any] = [*itertools.product(*map(range, sizes))]
    given = every if heads is None else [tuple(np.atleast_1d(one).tolist()) for one in heads]
    chosen = [*dict.fromkeys(given)]
    if not chosen or not {*chosen} <= {*every}:
        raise wrong("heads", f"layers below {sizes[0]} with heads below {sizes[1]}", chosen)
    texts = [draw[0][0] for draw in draws if len(draw) == 1]
    return chosen, head_means(loaded, texts) if texts else np.zeros((*sizes, 1))


def _knocked_out(heads: Sequence[Head], outputs: Outputs) -> KnockOut:
    return KnockOut(tuple(heads), tuple(tuple(outputs[head].tolist()) for head in heads))


def _columns(draws: Sequence[list[Prompt]], row: Callable[[Prompt], Any], on_event: OnEvent) -> Columns:
    """By quantity, what `row` gives of each text, or makes of each trial."""
    found = defaultdict[str, list[Any]](list)
    for done, draw in enumerate(draws):
        on_event(Event(done, len(draws), "text or trial"))
        rows = np.array([[row(prompt) for prompt in draw]])
        for name, held in ({"loss": rows[:, 0]} if len(draw) == 1 else _margins(rows)).items():
            found[name].append(held[0])
    return {name: np.array(held) for name, held in found.items()}


def _margins(rows: Float[np.ndarray, "draw place way"]) -> dict[str, Float[np.ndarray, "draw way"]]:
    return {"first": rows[:, 0], "last": rows[:, -1], MEAN: rows.mean(axis=1), **gaps_of(rows)}


def _estimates(names: Sequence[Any], columns: Columns) -> dict[Any, Any]:
    """By name of a way and quantity, the mean of its column, with intervals that hold together."""
    found, together = dict[Any, Any](), len(columns) * len(names)
    for way, name in enumerate(names):
        found[name] = {key: Estimate.of_mean(held[:, way]).jointly(together) for key, held in columns.items()}
    return found


# --- what is changed in one prompt ----------------------------------------------------------------------------


def _number(who: LocalModel, prompt: Prompt) -> Float[Tensor, ""]:
    """The margin of the first candidate of a prompt, or without any its loss."""
    ids, first = prompt
    if first[:1] and first[0] in first[1:]:
        raise wrong("trials", "candidates that begin with different tokens", got="the same token")
    if first:
        right, *others = who.reader.following(ids)[first]
        return right - torch.stack(others).max()
    given = torch.tensor(ids, device=who.loaded.device)
    logits = who.loaded.model(input_ids=given[None], use_cache=False).logits[0, :-1].float()
    return functional.cross_entropy(logits, given[1:].to(logits.device))


@torch.no_grad()
def _changes(who: LocalModel, ways: Sequence[KnockOut | RegionRemoved], prompt: Prompt) -> list[float]:
    """What each way changes in the number of a prompt."""
    model = who.loaded.model
    stages, found = [model.get_input_embeddings(), *decoder_layers(model)], list[float]()
    with outputs_of(stages) as kept:
        plain = float(_number(who, prompt))
    for way in ways:
        untouched = min(layer for layer, _ in way.heads) + 1 if isinstance(way, KnockOut) else 0
        with intervened(who.loaded, way), ExitStack() as stack:
            for stage, output in zip(stages[:untouched], kept, strict=False):
                stack.enter_context(answering(stage, output))
            found.append(float(_number(who, prompt)) - plain)
    return found


def _slopes(who: LocalModel, scales: Tensor, heads: Sequence[Head], prompt: Prompt) -> list[float]:
    """The same to first order, of all heads by one pass back."""
    (slopes,) = torch.autograd.grad(_number(who, prompt), scales)
    return [-float(slopes[head]) for head in heads]
