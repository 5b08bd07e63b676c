"""A second pretrained model: what SmolLM2-135M showed, asked of Gemma 3 270M (a 4-bit re-upload).

Cells are of its curve by length, with the scores of predictors on it, of rotary scaling, and of influence and use.
Not run yet: the other texts and 64 prompts of `predictors.py`. The protocol, as it was committed before the
runs (0334428c; its last paragraph 3029713f):

The base model, unpacked to float32 (windows of 512 in 15 of 18 layers, full attention in layers 5, 11 and 17
from 0), is measured as SmolLM2-135M was: by the same commands, texts, seeds and rules. Seen before, by hand, on
a few prompts of 256 tokens: a U through the first token and recency without it; keys in a list above chance, the
last ahead of the middle by 1.6 nats. All else was unknown. Prompts: 32 of 64, 128, 256 and 512 tokens, 16 of
1,024, 8 of 2,048, bundled text, seed 0. Intervals are 95 %, over prompts, paired where prompts are shared; an
effect counts where its interval excludes zero, else it is open. One model more decides nothing on transformers.

- shape by length: the verdict of `posbias measure`, and that without the first token (Gemma's is `<bos>`,
  SmolLM2's is text)
- a window's edge, at 1,024 and 2,048: mean log-influence at distances 480 to 511, less that at 512 to 543,
  exceeds the same fall one step nearer (448 to 479, less 480 to 511)
- λ falls with depth, Eq. (1): mean over the lower half of the layers above that over the upper by more than .02,
  at every length; and whether the mean over layers falls from 64 to 512 tokens
- sinks (16 prompts of 256, `wu2025.observed`): first token above the strongest other, and above even attention
  by .02; at 1,024, sink share in full layers above that in windows
- levels (256 tokens, held out): (b) ahead of (a) by both scores; (c) ahead of (b); (d) puts more on the first 5
  % than measured, by .1 or more; (e) nearest by Wasserstein
- predictors: the rule of `predictors.py`, in the cells measured: addresses, code and shuffled, 128 and 256
  tokens, then longer ones as time allows, and the novel
- influence and use (`influence.py`, its 24 prompts in their order, as many as time allows, eight at least): the
  end holds more than an even share by gradient and by each effect; the first token more by gradient and less by
  √KL and logit difference (for Gemma also the second, the first of the text); 1/(distance + 1) ranks an effect
  better than the gradient
- retrieval (`posbias retrieve`, five keys, JSON and list, 200 trials or as many as time allows): the task can be
  done (above chance where the key stands best), and first − middle and last − middle of the margins
- claims of Herasimchyk et al. and Wu et al. on models measured here: rows of `claims.csv`, judged with both
  models

What is not run is said to be missing. Nothing is chosen after a look: no text, length, wording or seed is added
or left out for its result.

Before the runs that were left: 4 prompts of 2,048 tokens, not 8; of the list 60 trials; of `influence.py`'s
prompts the first 8, begun with `<bos>`. Rotary scaling, which had no protocol: both models, 16 prompts of 256
tokens (bundled text, seed 0), no further training; SmolLM2's layers, Gemma's three full ones alone (as its
larger models scale). By linear, NTK (base · factor^(d/(d − 2)), fixed) and YaRN, × 2, 4, 8, less the unscaled
model, paired by prompt: shares of the first and last 5 %; the slope of ln influence on ln distance (least
squares, distances 1 to 127); the loss. SmolLM2 at linear × 4 moved influence from the end to the beginning
(docs/predict.md): a model does so where both intervals exclude zero.

Before the run of `influence.py`: prompts of 64 tokens, not 128, for which a shared machine takes an hour; all
else as above.
"""

import copy
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from posbias.profiles.estimate import Estimate
from posbias.profiles.profile import measured_influence
from posbias.profiles.summary import LEAST_PROMPTS, at_ends
from posbias_papers.extensions import influence, predictors
from posbias_papers.extensions.cells import Cell, Result, Results, own_study, rounded
from posbias_papers.extensions.influence import InfluenceCell
from posbias_papers.extensions.predictors import PredictorCell
from posbias_papers.pages import Table

if TYPE_CHECKING:
    import xarray as xr

MODEL = "gemma-3-270m"
PROMPTS = {64: 32, 128: 32, 256: 32, 512: 32, 1024: 16, 2048: 4}
"""By length."""
WINDOW, STEP = 512, 32
"""Keys that a layer with a window sees, and the distances on either side of its edge that are compared."""


@dataclass(frozen=True)
class LengthCell(Cell):
    """The model at one length."""

    tokens: int
    prompts: int
    model: str = MODEL

    kind = "length_cell"

    def compute(self, on_event: Any = None) -> Result:
        """Measure the bundled text, seed 0."""
        from posbias.measurement import measure

        return curve(measure(self.model, tokens=self.tokens, prompts=self.prompts))


def curve(measurement: "xr.Dataset") -> dict[str, Any]:
    """What is kept: verdict and curve, λ and sinks by layer, the window's edge, and how predictors fare."""
    profile = measured_influence(measurement)
    summary = profile.summary
    kept: dict[str, Any] = {"verdict": summary.verdict, "without first": summary.verdict_without_first}
    kept |= {name: measurement.attrs[name] for name in ("checksum", "text_sha256")}
    mixing = measurement["mixing"].values
    half = mixing.shape[1] // 2
    kept["influence"] = rounded(profile.mass)
    kept["mixing"] = rounded(mixing.mean(axis=0))
    kept["sink_share"] = rounded(measurement["sink_share"].values.mean(axis=1))
    kept["fall of λ"] = _listed(mixing[:, :half].mean(axis=1) - mixing[:, -half:].mean(axis=1))
    if measurement.sizes["position"] > WINDOW + STEP:
        kept["edge"] = _listed(edge(measurement["influence"].values))
    # fewer prompts have no halves that agree
    return kept | (predictors.trial(measurement) if measurement.sizes["prompt"] > LEAST_PROMPTS else {})


def edge(samples: np.ndarray) -> np.ndarray:
    """By prompt, how much more log-influence falls over the window's edge than over one step before it."""
    before, inside, outside = (
        np.log(samples[:, -begin - STEP : -begin]).mean(axis=1)
        for begin in (WINDOW - 2 * STEP, WINDOW - STEP, WINDOW)
    )
    return (inside - outside) - (before - inside)


def _listed(by_prompt: np.ndarray) -> list[float]:
    """Mean, standard error and number."""
    mean = Estimate.of_mean(by_prompt)
    return [*rounded([mean.value, mean.se]), by_prompt.size]


@dataclass(frozen=True)
class RotaryCell(Cell):
    """A model under a rotary scaling, without further training; by a factor of 1 it is as it was trained."""

    model: str
    scaling: str
    factor: float
    tokens: int = 256
    prompts: int = 16

    kind = "rotary_cell"

    def compute(self, on_event: Any = None) -> Result:
        """By prompt the loss, the shares of both ends and the slope by distance; the mean curve."""
        import torch

        from posbias.measurement.quantities.influence import gradients, predict

        loaded, ids = influence.drawn(self.model, self.tokens, self.prompts, 0)
        trained = loaded.model.model.rotary_emb
        loaded.model.model.rotary_emb = type(trained)(scaled(loaded.model.config, self.scaling, self.factor))
        found = [gradients(predict(loaded.model, row), row) for row in torch.tensor(ids)]
        loaded.model.model.rotary_emb = trained
        samples = np.array([one["influence"] / one["influence"].sum() for one in found])
        ends, distance = at_ends(self.tokens), np.arange(1, self.tokens // 2)
        slope = np.polyfit(np.log(distance), np.log(samples[:, -1 - distance]).T, 1)[0]
        kept = {
            "influence": samples.mean(axis=0),
            "slope": slope,
            "loss": [float(one["loss"]) for one in found],
        }
        kept |= {"first": samples[:, :ends].sum(axis=1), "last": samples[:, -ends:].sum(axis=1)}
        return {name: rounded(values) for name, values in kept.items()}


def scaled(config: Any, scaling: str, factor: float) -> Any:
    """The configuration of a model whose rotary pairs turn more slowly, where layers see the whole text."""
    changed = copy.deepcopy(config)
    rope = changed.rope_parameters
    rope = rope.get("full_attention", rope)
    if scaling == "ntk":
        rope["rope_theta"] *= factor ** (config.head_dim / (config.head_dim - 2))
    else:
        rope |= {"rope_type": scaling, "factor": factor}
        rope["original_max_position_embeddings"] = config.max_position_embeddings
    return changed


SCALINGS = (("linear", 1.0), *itertools.product(("linear", "ntk", "yarn"), (2.0, 4.0, 8.0)))
SCALED = tuple(RotaryCell(model, *how) for model in ("smollm2-135m", MODEL) for how in SCALINGS)
CELLS: tuple[Cell, ...] = (
    *(LengthCell(tokens, prompts) for tokens, prompts in PROMPTS.items()),
    *SCALED,
    *(InfluenceCell(prompt, MODEL, tokens=64) for prompt in range(8)),
    *(PredictorCell(MODEL, text, 128) for text in ("addresses", "code", "shuffled")),
)


def moved(results: Results) -> Iterator[tuple[RotaryCell, dict[str, Estimate]]]:
    """Each scaled model, and by how much its numbers exceed those of the model as it was trained."""
    for cell, result in results.items():
        if isinstance(cell, RotaryCell) and cell.factor > 1:
            trained = results[replace(cell, scaling="linear", factor=1.0)]
            less = {name: np.subtract(result[name], trained[name]) for name in trained if name != "influence"}
            yield cell, {name: Estimate.of_mean(values) for name, values in less.items()}


def _tables(results: Results) -> Iterator[Table]:
    rows = []
    for cell, result in results.items():
        if isinstance(cell, LengthCell):
            row = cell.specification | {name: result[name] for name in ("verdict", "without first")}
            row |= {name: Estimate(*result[name]) for name in ("fall of λ", "edge") if name in result}
            rows.append(row | {name: float(np.mean(result[name])) for name in ("mixing", "sink_share")})
    yield Table.of("By length: λ and the first token's sink, means over layers, and the window's edge", rows)
    scaled_less_trained = [cell.specification | change for cell, change in moved(results)]
    yield Table.of(
        "Shares of both ends, slope by distance and loss, less the trained model's", scaled_less_trained
    )
    own = {cell: result for cell, result in results.items() if isinstance(cell, LengthCell)}
    judged = {cell: result for cell, result in own.items() if "scores" in result}
    yield from predictors.tables(
        {PredictorCell(MODEL, "addresses", cell.tokens): judged[cell] for cell in judged}
    )
    yield from predictors.tables({cell: results[cell] for cell in results if isinstance(cell, PredictorCell)})
    yield from influence.tables({cell: results[cell] for cell in results if isinstance(cell, InfluenceCell)})


STUDY = own_study("second-model", CELLS, 150.0, _tables)
