"""Trained models: what Kim et al. 2026 say in passing of decoders without positional encoding, and do not measure.

Section 3 finds its theory consistent with Zuo et al. 2025, who see alike hidden states of near tokens; Section 4
suspects that an uneven bias harms length generalisation; the Limitations leave model performance open. Small
decoders of ours that differ in the encoding alone (`docs/encodings.md`) are measured on texts of their trained
length, and on four times as long ones where the encoding has no end. That is another thing than the paper's models
at initialisation: all claims are ours, of these models, and what goes together need not be cause and effect.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from posbias.core.events import Event, OnEvent
from posbias.profiles.claims import Claim
from posbias.profiles.estimate import Estimate
from posbias.profiles.evidence import Above, Below, Evidence, Near, mean
from posbias.profiles.profile import spearman
from posbias.reports.pages import Table
from posbias_papers.claims import claims_of, quantity
from posbias_papers.study import Results, Study

if TYPE_CHECKING:
    import xarray as xr

log = logging.getLogger("posbias.papers")
EFFORT = {"quick": 16, "full": 64}
"""Prompts of each model and length: minutes, and about as many as the bundled text has at the longest."""


@dataclass(frozen=True)
class TrainedCell:
    """A model by name, and the length of the prompts it is measured on."""

    model: str
    tokens: int


TRAINED = 256
"""The length that the models were trained on."""
LONG = 4 * TRAINED
NONE, ROPE, ALIBI = (TrainedCell(f"tiny-{name}", TRAINED) for name in ("nope", "rope", "alibi"))
LONG_NONE, LONG_ALIBI = (TrainedCell(f"tiny-{name}", LONG) for name in ("nope", "alibi"))
CELLS = (NONE, ROPE, ALIBI, LONG_NONE, LONG_ALIBI)
BANDS = ((1, 8), (9, 64), (65, TRAINED - 2))
"""Distances that stand together, both ends included: near, middle and far."""
WITHIN = (TRAINED // 2, TRAINED)
"""Positions with a long context that is not longer than the trained one."""
BEYOND = ((TRAINED, 2 * TRAINED), (2 * TRAINED, LONG))
"""Positions up to twice and to four times the trained length."""
EVEN = 0.01
"""How far a recency probability may be from one half and be said to be no preference."""
SMALL = Above(0.0, 1e-3)
"""Above nothing; less than a thousandth is taken for none."""


def measured(
    cells: Iterable[TrainedCell], prompts: int, *, seed: int, threads: int | None, on_event: OnEvent | None
) -> "dict[TrainedCell, xr.Dataset]":
    """The nearness of states and the losses of every cell on so many prompts of the bundled text.

    `threads` as of `posbias.measure`; `on_event` hears of all prompts. Raises as `nearness`.
    """
    from posbias_papers.measurement.nearness import nearness

    wanted = list(cells)
    found: dict[TrainedCell, xr.Dataset] = {}
    for number, cell in enumerate(wanted):

        def heard(event: Event, before: int = number * prompts) -> None:
            if on_event:
                on_event(Event(before + event.done, len(wanted) * prompts, "prompt"))

        log.info("measuring %s on %d prompts of %d tokens", cell.model, prompts, cell.tokens)
        options: dict[str, Any] = {"tokens": cell.tokens, "prompts": prompts, "seed": seed}
        found[cell] = nearness(cell.model, threads=threads, on_event=heard, **options)
    return found


def words_of(prompts: int) -> str:
    """'full' or 'quick' if there are so many prompts of every cell, else the number in words."""
    return next((name for name in ("full", "quick") if prompts >= EFFORT[name]), f"{prompts:,} prompts")


# --- numbers by prompt -------------------------------------------------------------------------------------


def cosine(
    measurement: "xr.Dataset", band: tuple[int, int], name: str = "cosine"
) -> Float[np.ndarray, "prompt layer"]:
    """Mean cosine of states at the distances of a band, of each prompt and layer; pairs of a distance weigh 1."""
    first, last = band
    return measurement[name].values[:, :, first : last + 1].mean(axis=2)


def probability(
    measurement: "xr.Dataset", name: str = "recency_content"
) -> Float[np.ndarray, "prompt layer"]:
    """A recency or adjacency probability of each prompt and layer, the mean over heads."""
    return measurement[name].values.mean(axis=2)


def loss(measurement: "xr.Dataset", positions: tuple[int, int]) -> Float[np.ndarray, "prompt"]:
    """Mean next-token loss of each prompt over some positions, in nats; the last of the prompt has none."""
    return np.nanmean(measurement["loss_position"].values[:, slice(*positions)], axis=1)


def recency_at(measurement: "xr.Dataset", positions: tuple[int, int]) -> Float[np.ndarray, "prompt"]:
    """Recency probability of queries at some positions, of each prompt: the mean over layers and queries."""
    return measurement["recency_query"].values[:, :, slice(*positions)].mean(axis=(1, 2))


def layer_name(cell: TrainedCell, layer: int) -> str:
    """'tiny-nope, layer 1': layers count from 1 in words."""
    return f"{cell.model}, layer {layer + 1}"


# --- what claims rest on -----------------------------------------------------------------------------------


def _layers(
    cell: TrainedCell, values: Float[np.ndarray, "prompt layer"], first: int, note: str = ""
) -> Iterator[Evidence]:
    for layer in range(first, values.shape[1]):
        yield mean(f"{layer_name(cell, layer)}{note}", values[:, layer], draws="prompts")


@quantity
def falls(results: Results) -> Iterator[Evidence]:
    """By how much the mean cosine falls from band to band, in every layer behind the first one's attention."""
    for name, note in (("cosine", ""), ("cosine_normed", ", behind the norm")):
        near, middle, far = (cosine(results[NONE], band, name) for band in BANDS)
        yield from _layers(NONE, near - middle, 1, f"{note}, near less middle")
        yield from _layers(NONE, middle - far, 1, f"{note}, middle less far")


@quantity
def falls_more(results: Results) -> Iterator[Evidence]:
    """By how much more the cosine falls from near to far than it does among embeddings."""
    near, _, far = (cosine(results[NONE], band) for band in BANDS)
    drop = near - far
    yield from _layers(NONE, drop - drop[:, :1], 1)


@quantity
def preference(results: Results, name: str, first: int, last: int) -> Iterator[Evidence]:
    """A probability of content logits in the layers `first` to `last`, counted from 0."""
    yield from _layers(NONE, probability(results[NONE], name)[:, :last], first)


@quantity
def more_than_others(results: Results, name: str) -> Iterator[Evidence]:
    """By how much a probability of content logits, the mean over layers behind the first, is above the others'."""
    own = probability(results[NONE], name)[:, 1:].mean(axis=1)
    for cell in (ROPE, ALIBI):
        other = probability(results[cell], name)[:, 1:].mean(axis=1)
        yield mean(f"{NONE.model} less {cell.model}", own - other, draws="prompts")


@quantity
def beyond(results: Results, cells: Sequence[TrainedCell], against: bool) -> Iterator[Evidence]:
    """By how much losses beyond the trained length exceed those within, or exceed ALiBi's excess (`against`)."""
    control = results[LONG_ALIBI]
    for cell in cells:
        for first, last in BEYOND:
            rise = loss(results[cell], (first, last)) - loss(results[cell], WITHIN)
            if against:
                rise = rise - (loss(control, (first, last)) - loss(control, WITHIN))
            yield mean(f"{cell.model}, positions {first} to {last - 1}", rise, draws="prompts")


@quantity
def recency_beyond(results: Results, cell: TrainedCell) -> Iterator[Evidence]:
    """By how much the recency probability of queries beyond the trained length exceeds that of those within."""
    for first, last in BEYOND:
        rise = recency_at(results[cell], (first, last)) - recency_at(results[cell], WITHIN)
        yield mean(f"{cell.model}, queries {first} to {last - 1}", rise, draws="prompts")


@quantity
def costs(results: Results) -> Iterator[Evidence]:
    """By how much the loss of the model without encoding exceeds that of each other, on the same prompts."""
    own = loss(results[NONE], (0, TRAINED))
    for cell in (ROPE, ALIBI):
        other = loss(results[cell], (0, TRAINED))
        yield mean(f"{NONE.model} less {cell.model}", own - other, draws="prompts")


@quantity
def less_recent(results: Results) -> Iterator[Evidence]:
    """By how much the recency probability of each other model's logits exceeds that without encoding."""
    own = probability(results[NONE], "recency").mean(axis=1)
    for cell in (ROPE, ALIBI):
        other = probability(results[cell], "recency").mean(axis=1)
        yield mean(f"{cell.model} less {NONE.model}", other - own, draws="prompts")


@quantity
def within_model(results: Results) -> Iterator[Evidence]:
    """Rank correlation over prompts of recency probability and loss, with a jackknife's error."""
    recent = probability(results[NONE], "recency").mean(axis=1)
    yield Evidence(NONE.model, correlation(recent, loss(results[NONE], (0, TRAINED))))


def correlation(one: Float[np.ndarray, "prompt"], other: Float[np.ndarray, "prompt"]) -> Estimate:
    """Spearman's rank correlation over prompts with a jackknife's error; not known for fewer than 4 prompts."""
    n = len(one)
    if n < 4:
        return Estimate(float("nan"), float("nan"), n)
    left_out = np.array([spearman(np.delete(one, k), np.delete(other, k)) for k in range(n)])
    se = float(np.sqrt((n - 1) / n * ((left_out - left_out.mean()) ** 2).sum()))
    return Estimate(float(spearman(one, other)), se, n)


# --- claims ------------------------------------------------------------------------------------------------


def _claims() -> Iterator[Claim]:
    scope = "small decoders of ours (6 layers, 8 heads, 256 trained tokens), on addresses they were not trained on"
    every = {"scope": scope, "effort": "16 prompts of each model and length, or more", "provenance": "ours"}
    claim = claims_of("kim2026/trained", "beyond Section 3, on Zuo et al. 2025", **every)
    sentence = (
        "Trained without positional encoding, near hidden states are more alike: in every layer behind the first "
        "the mean cosine falls from distances 1 to 8 over 9 to 64 to beyond, before the norm and behind it"
    )
    yield claim(1, sentence, falls(), SMALL)
    sentence = "That is more than embeddings bring: it falls by more in every later layer than in the first"
    yield claim(2, sentence, falls_more(), SMALL)
    sentence = (
        "As in the paper's models the first layer prefers neither end (recency probability of raw logits)"
    )
    yield claim(3, sentence, preference("recency_content", 0, 1), Near(0.5, EVEN))
    sentence = (
        "In every layer behind the first raw logits prefer the nearer of two keys (recency probability)"
    )
    yield claim(4, sentence, preference("recency_content", 1, 6), Above(0.5, 1e-3))
    sentence = "In every layer the neighbour scores higher than another earlier key (adjacency probability)"
    yield claim(5, sentence, preference("adjacency_content", 0, 6), Above(0.5, 1e-3))
    sentence = (
        "Without encoding content prefers near keys more than under RoPE and ALiBi, positions taken out"
    )
    yield claim(6, sentence, more_than_others("recency_content"), SMALL)
    about: dict[str, Any] = {"place": "beyond Section 4, on length generalisation"}
    sentence = "Without encoding the loss rises beyond the trained length, up to twice and four times of it"
    yield claim(7, sentence, beyond((LONG_NONE,), False), **about)
    sentence = "It rises more than ALiBi's on the same tokens"
    yield claim(8, sentence, beyond((LONG_NONE,), True), **about)
    sentence = "Without encoding the recency probability falls beyond the trained length"
    yield claim(9, sentence, recency_beyond(LONG_NONE), Below(0.0, 1e-3), **about)
    sentence = "With ALiBi it rises"
    yield claim(10, sentence, recency_beyond(LONG_ALIBI), SMALL, **about)
    about = {"place": "beyond the Limitations, on model performance"}
    sentence = (
        "The model without encoding predicts worse than the same with RoPE or ALiBi (difference of losses)"
    )
    yield claim(11, sentence, costs(), **about)
    sentence = "Its logits prefer near keys less than theirs, positions included"
    yield claim(12, sentence, less_recent(), **about)
    sentence = "Within it prompts with more recency have a lower loss (rank correlation over prompts)"
    yield claim(13, sentence, within_model(), Below(), **about)


# --- the page ----------------------------------------------------------------------------------------------


def rows(results: Results) -> list[dict[str, Any]]:
    """Cosines by band and probabilities of every cell by layer, means over prompts with their errors, for JSON."""
    listed = []
    for cell, measurement in results.items():
        columns = {f"cosine_{first}_{last}": cosine(measurement, (first, last)) for first, last in BANDS}
        columns |= {
            name: probability(measurement, name) for name in ("recency", "adjacency", "recency_content")
        }
        for layer in range(measurement.sizes["layer"]):
            numbers = {name: vars(Estimate.of_mean(values[:, layer])) for name, values in columns.items()}
            listed.append({"model": cell.model, "tokens": cell.tokens, "layer": layer, **numbers})
    return listed


def losses(results: Results) -> list[dict[str, Any]]:
    """Loss and recency probability by stretch of positions of the long cells, for JSON."""
    listed = []
    for cell in (cell for cell in results if cell.tokens == LONG):
        for positions in (WITHIN, *BEYOND):
            numbers = {
                "loss": loss(results[cell], positions),
                "recency": recency_at(results[cell], positions),
            }
            place = {"model": cell.model, "first": positions[0], "last": positions[1] - 1}
            listed.append(place | {name: vars(Estimate.of_mean(values)) for name, values in numbers.items()})
    return listed


def _tables(results: Results) -> Iterator[Table]:
    for title, listed in (("By layer", rows(results)), ("By position", losses(results))):
        if listed:
            body = [[_text(name, one) for name, one in row.items()] for row in listed]
            yield Table(title, [name.replace("_", " ") for name in listed[0]], body)


def _text(name: str, value: Any) -> str:
    if isinstance(value, Mapping):
        return str(Estimate(**value))
    return str(value + 1 if name == "layer" else value)


def _data(results: Results) -> dict[str, Any]:
    return {"layers": rows(results), "losses": losses(results)}


def _note(results: Results) -> str:
    prompts = min(measurement.sizes["prompt"] for measurement in results.values())
    return (
        f"{len(results)} cells, {prompts} prompts of each, held-out addresses; layers count from 1, recency "
        "content is that of logits with positions taken out. These are models of ours: the paper measures none."
    )


STUDY = Study(
    "kim2026/trained",
    "Trained models: alike states, recency of logits, longer texts",
    "Are near states alike and near keys preferred in a model trained without encoding, and what goes with it?",
    CELLS,
    tuple(_claims()),
    EFFORT,
    "prompts",
    {"quick": 3, "full": 12},
    _tables,
    _data,
    _note,
    needs="models",
    uses=(("zuo2025", "alike hidden states of near tokens, the adjacency probability"),),
)
