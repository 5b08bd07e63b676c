"""Appendix K.4 on language models: sinks like those of the toy networks are said to be known of real ones.

The paper names three: on the first token under the causal mask, the more so the wider a sliding window, and on all
tokens of a prefix; Gu et al. 2025 saw them in models trained for that. At hand are one pretrained model and small
decoders of ours, causal but for one with a window, none with a prefix. They were measured once, prompt by prompt
(`posbias_papers.measurement.sinks`); `observed_sinks.toml` has the numbers, `run_observed_sinks` made it.
"""

import functools
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from posbias.profiles.estimate import Estimate
from posbias.profiles.evidence import Evidence, mean
from posbias.reports.pages import Table
from posbias_papers.claims import AtHand, claims_of
from posbias_papers.study import Study
from posbias_papers.wu2025.settings import EFFORT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FILE = Path(__file__).with_name("observed_sinks.toml")
PRETRAINED = ("smollm2-135m",)
SMALL = ("tiny-nope", "tiny-alibi", "tiny-rope", "tiny-learned", "tiny-window")
"""Decoders of ours that differ in the encoding alone (`docs/encodings.md`)."""
MODELS = (*PRETRAINED, *SMALL)
SHOWN = 16
"""Tokens whose metric is kept and drawn."""


@dataclass(frozen=True)
class Observed:
    """The sink metric of a model at τ = .2, mean over layers and heads.

    `first` are its values at token 0 and `other` those at the token `strongest`, which has the greatest mean of
    all later ones, by prompt; `by_token` are means over prompts of the first tokens and `even` what even attention
    scores there; `by_layer` is token 0 in each layer. The rest is what was measured: `positional` encoding,
    checksum of the weights, text, and how much of it.
    """

    positional: str
    heads: int
    checksum: str
    text: str
    text_sha256: str
    tokens: int
    prompts: int
    seed: int
    first: tuple[float, ...]
    strongest: int
    other: tuple[float, ...]
    even: tuple[float, ...]
    by_token: tuple[float, ...]
    by_layer: tuple[float, ...]
    versions: Mapping[str, str]

    def ahead(self, where: str) -> Evidence:
        """By how much the first token is ahead of the strongest other one."""
        place = f"{where}, less token {self.strongest}"
        return mean(place, np.subtract(self.first, self.other), draws="prompts")

    def above_even(self, where: str) -> Evidence:
        """By how much the first token is above what even attention gives it."""
        return mean(f"{where}, less even", np.subtract(self.first, self.even[0]), draws="prompts")


@functools.cache
def observed() -> Mapping[str, Observed]:
    """What was measured, by model."""
    names = [one.name for one in fields(Observed)]
    read = tomllib.loads(FILE.read_text(encoding="utf-8"))
    return {model: Observed(**{name: _frozen(held[name]) for name in names}) for model, held in read.items()}


def _frozen(held: Any) -> Any:
    return tuple(held) if isinstance(held, list) else held


def _ahead() -> Iterator[Evidence]:
    return (observed()[model].ahead(model) for model in PRETRAINED)


def _above_even() -> Iterator[Evidence]:
    return (observed()[model].above_even(model) for model in PRETRAINED)


def _small() -> Iterator[Evidence]:
    return (observed()[model].above_even(model) for model in SMALL)


def _none(needed: str) -> AtHand:
    """A quantity that no model at hand has."""
    return AtHand(
        lambda: [Evidence("language models", flaw=f"not measured: {needed} needed")], "no model at hand"
    )


def basis() -> str:
    """'6 models, 16 prompts of 256 tokens each'."""
    known = [*observed().values()]
    return f"{len(known)} models, {known[0].prompts} prompts of {known[0].tokens} tokens each"


def _tables(results: Any) -> Iterator[Table]:
    head = (
        "model",
        "encoding",
        "layers × heads",
        "first token",
        "strongest other",
        "even attention, first token",
    )
    rows = [
        [
            model,
            one.positional,
            f"{len(one.by_layer)} × {one.heads}",
            str(Estimate.of_mean(np.array(one.first))),
            f"{Estimate.of_mean(np.array(one.other))} (token {one.strongest})",
            f"{one.even[0]:.4f}",
        ]
        for model, one in observed().items()
    ]
    yield Table("Sink metric at τ = .2, mean over layers and heads", head, rows)


def _data(results: Any) -> dict[str, Any]:
    return {"models": {model: vars(one) for model, one in observed().items()}}


def _note(results: Any) -> str:
    return (
        f"{basis()}, windows of the bundled text without a token that begins a text; tokens counted from 0; "
        "late tokens are seen by few queries"
    )


def _draw(results: Any, caption: str = "") -> "Figure":
    """The metric by token, and that of the first token by layer, a line for each model."""
    from posbias.reports.plots.layers import draw_first_token_by_depth, draw_metric_by_token
    from posbias_papers.plots.captions import captioned_figure, settle

    known = observed()
    figure, part = captioned_figure(8.0, 2.9, caption)
    left, right = part.subplots(1, 2)
    even = known[PRETRAINED[0]].even
    draw_metric_by_token(
        left, {model: np.array(one.by_token) for model, one in known.items()}, np.array(even)
    )
    draw_first_token_by_depth(right, {model: np.array(one.by_layer) for model, one in known.items()})
    return settle(figure)


_claim = claims_of(
    "wu2025/observed-sinks",
    "Appendix K.4",
    scope="SmolLM2-135M-Instruct alone, causal, on English addresses cut into windows of 256 tokens",
    effort="16 prompts, the mean over 30 layers of 9 heads; Gu et al. 2025 looked at many models",
)
_NO_WINDOWS = "pretrained models that differ in the width of a sliding window"
STUDY = Study(
    "wu2025/observed-sinks",
    "Sinks of language models at hand",
    "Has a real language model sinks like those of the toy networks, and have small ones?",
    (),
    (
        _claim(
            1,
            "A sink on the first token, as in the toy networks, is observed in a real language model under the "
            "causal mask: it draws more than any other",
            AtHand(_ahead, "1 model, 16 prompts of 256 tokens"),
        ),
        _claim(
            2,
            "In real language models sinks tend to be on the first token when a sliding window is wider",
            _none(_NO_WINDOWS),
            scope="language models with a sliding window",
            effort="models of several widths",
            strength="hedged",
        ),
        _claim(
            3,
            "In real language models with a prefix mask sinks are on all tokens of the prefix",
            _none("a pretrained model with a prefix mask"),
            scope="language models with a prefix mask",
            effort="one model or more",
        ),
        _claim(
            4,
            "The first token of the pretrained model draws more than under even attention",
            AtHand(_above_even, "1 model, 16 prompts of 256 tokens"),
            provenance="ours",
        ),
        _claim(
            5,
            "So does the first token of each of the small decoders",
            AtHand(_small, "5 models, 16 prompts of 256 tokens each"),
            provenance="ours",
            scope="small decoders of ours (6 layers, 8 heads), on text that they were not trained on",
            effort="16 prompts of 256 tokens each",
        ),
    ),
    EFFORT,
    "iterations",
    {"quick": 0.05, "full": 0.05},
    _tables,
    _data,
    _note,
    _draw,
    captioned=True,
    uses=(("gu2025", "the metric of attention sinks"), ("xiao2024", "attention sinks")),
)
"""Sinks of language models as a study without cells: nothing is measured for it anew."""
