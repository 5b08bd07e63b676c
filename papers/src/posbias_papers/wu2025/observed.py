"""Appendix K.4 on language models: sinks like those of the toy networks are said to be known of real ones.

The paper names three: on the first token under the causal mask, the more so the wider a sliding window, and on
all tokens of a prefix; Gu et al. 2025 saw them in models trained for that. Available here are one pretrained
model and small decoders of ours, causal but for one with a window, none with a prefix. They were measured once,
prompt by prompt (10 minutes on two cores, most of it SmolLM2); `observed_sinks.json` has the numbers:

    python -m posbias_papers.wu2025.observed [MODEL …] > observed_sinks.json
"""

import functools
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from posbias.profiles.estimate import Estimate
from posbias_papers.pages import Page, Table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

PRETRAINED = ("smollm2-135m",)
SMALL = ("tiny-nope", "tiny-alibi", "tiny-rope", "tiny-learned", "tiny-window")
"""Decoders of ours that differ in the encoding alone (`docs/evidence.md`)."""
MODELS = (*PRETRAINED, *SMALL)
TOKENS, PROMPTS, SEED = 256, 16, 0
SHOWN = 16
"""Tokens whose metric is kept and drawn."""
BASIS = f"{len(MODELS)} models, {PROMPTS} prompts of {TOKENS} tokens each"


@functools.cache
def observed() -> Mapping[str, Any]:
    """The sink metric at τ = .2, mean over layers and heads, by model.

    `first` are its values at token 0 and `other` those at the token `strongest`, which has the greatest mean of
    all later ones, by prompt; `by_token` are means over prompts of the first tokens and `even` what even attention
    scores there; `by_layer` is token 0 in each layer. The rest says what was measured: `positional` encoding,
    checksum of the weights, text, and how much of it.
    """
    return json.loads(Path(__file__).with_name("observed_sinks.json").read_text(encoding="utf-8"))


def sinks_table(results: Any = None) -> "pd.DataFrame":
    """How far the first token is `ahead` of the strongest other, and `above_even` attention, by prompt."""
    import pandas as pd

    rows = [
        {"model": model, "prompt": prompt, "ahead": first - other, "above_even": first - held["even"][0]}
        for model, held in observed().items()
        for prompt, (first, other) in enumerate(zip(held["first"], held["other"], strict=True))
    ]
    return pd.DataFrame(rows).set_index(["model", "prompt"])


def sinks_page(frame: "pd.DataFrame") -> Page:
    """What was measured."""
    rows = []
    for model, one in observed().items():
        first, other = (str(Estimate.of_mean(np.array(one[name]))) for name in ("first", "other"))
        size, strongest = f"{len(one['by_layer'])} × {one['heads']}", f"{other} (token {one['strongest']})"
        rows.append([model, one["positional"], size, first, strongest, f"{one['even'][0]:.4f}"])
    head = ("model", "encoding", "layers × heads", "first token", "strongest other", "even, first token")
    table = Table("Sink metric at τ = .2, mean over layers and heads", head, rows)
    note = f"{BASIS}, windows of the bundled text; tokens counted from 0; late tokens are seen by few queries"
    return Page(note=note, tables=(table,), data={"models": dict(observed())})


def draw_observed(frame: "pd.DataFrame", caption: str) -> "Figure":
    """The metric by token, and that of the first token by layer, a line for each model."""
    from posbias.reports.plots.style import DASHES, INK, draw_lines, dress
    from posbias_papers.plots.captions import captioned_figure, settle

    by_token, by_layer = (
        {model: np.array(one[name]) for model, one in observed().items()} for name in ("by_token", "by_layer")
    )
    figure, part = captioned_figure(8.0, 2.9, caption)
    left, right = part.subplots(1, 2)
    draw_lines(left, {model: (range(len(values)), values) for model, values in by_token.items()})
    even = observed()[PRETRAINED[0]]["even"]
    left.plot(even, color=INK, linewidth=0.9, linestyle=DASHES, label="even, causal")
    left.legend()
    draw_lines(right, {m: (np.linspace(0, 1, len(values)), values) for m, values in by_layer.items()})
    dress(left, "token (from 0)", "sink metric")
    dress(right, "depth (0 = bottom layer, 1 = top layer)", "sink metric of the first token")
    left.set_ylim(bottom=0)
    right.set_ylim(0, 1)
    return settle(figure)


def measured(name: str) -> dict[str, Any]:
    """What `observed_sinks.json` has of a model, measured anew."""
    from posbias.measurement import load_model
    from posbias_papers.wu2025.sinks import sinks_by_prompt

    loaded = load_model(name)
    found = sinks_by_prompt(loaded, tokens=TOKENS, prompts=PROMPTS, seed=SEED)
    metric, even = (found[variable].values.mean(axis=1) for variable in ("sink_metric", "even"))
    strongest = 1 + int(metric[:, 1:].mean(axis=0).argmax())
    about = {key: found.attrs[key] for key in ("positional", "checksum", "text", "text_sha256")}
    about |= {"tokens": TOKENS, "prompts": PROMPTS, "seed": SEED}
    about["versions"] = json.loads(found.attrs["versions"])
    about |= {"heads": loaded.model.config.num_attention_heads, "strongest": strongest}
    numbers = {
        "first": metric[:, 0],
        "other": metric[:, strongest],
        "even": even[0, :SHOWN],
        "by_token": metric.mean(axis=0)[:SHOWN],
        "by_layer": found["sink_metric"].values[:, :, 0].mean(axis=0),
    }
    return about | {key: [round(float(value), 6) for value in values] for key, values in numbers.items()}


if __name__ == "__main__":
    print(json.dumps({model: measured(model) for model in sys.argv[1:] or MODELS}))
