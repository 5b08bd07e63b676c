"""Appendix K.4 on language models: sinks like those of the toy networks are said to be known of real ones.

The paper names three: on the first token under the causal mask, the more so the wider a sliding window, and on
all tokens of a prefix; Gu et al. 2025 saw them in models trained for that. Available here are two pretrained
models (Gemma's is a 4-bit re-upload, whose windows hide nothing at this length) and small decoders of ours, causal
but for one with a window, none with a prefix. They were measured once, prompt by prompt (15 minutes on two cores);
`observed_sinks.json` has the numbers:

    python -m posbias_papers.wu2025.observed [MODEL …] > observed_sinks.json
"""

import functools
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from posbias.profiles.curves import sink_metric
from posbias.profiles.estimate import Estimate
from posbias_papers import SMALL
from posbias_papers.pages import Page, Table

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr
    from matplotlib.figure import Figure

    from posbias.measurement import LoadedModel
    from posbias.measurement.capture.forward import SeenLayer

PRETRAINED = ("smollm2-135m", "gemma-3-270m")
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
    from posbias_papers.plots import captioned_figure, settle

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


# --- measuring: one forward pass for each prompt, no gradient ------------------------------------------------


def sinks_by_prompt(loaded: "LoadedModel", *, threads: int | None = None, **size: Any) -> "xr.Dataset":
    """The sink metric of every key by prompt and layer, at τ = .2.

    A measurement (`posbias.measure`) has it as a mean over prompts, so that its error is not known. `size` are
    tokens, prompts and seed of windows of the bundled text. Returns a dataset with `sink_metric`
    [prompt, layer, position], indices from 0, layer 0 at the bottom; NaN for a key that no query sees. Raises as
    `posbias.measure`. Source: Wu et al. 2025, Appendix K.4; means over heads are ours, as its networks have one.
    """
    from posbias.measurement import MeasurementJob, Quantity, per_prompt

    what = "share of the queries seeing a key that give it more than .2, mean over heads"
    quantities = {"sink_metric": Quantity(("prompt", "layer", "position"), what)}
    return per_prompt(
        "sinks", quantities, prompt_sinks, MeasurementJob(**size), model=loaded, threads=threads
    )


def prompt_sinks(loaded: "LoadedModel", ids: np.ndarray, prompt: str) -> dict[str, np.ndarray]:
    """The metric of one prompt [layer, position].

    Raises `NonFiniteError`, naming `prompt`, where activations are not finite.
    """
    import torch

    from posbias.measurement.capture.forward import Capture
    from posbias.measurement.quantities.attention import layer_means

    found: dict[int, np.ndarray] = {}

    def see(seen: "SeenLayer") -> None:
        seen.check_finite(prompt)
        found[seen.layer] = layer_means(seen)["sink_metric"].mean(axis=0)

    given = torch.from_numpy(ids)[None].to(loaded.model.get_input_embeddings().weight.device)
    with torch.no_grad(), Capture(loaded.model, loaded.family, see):
        loaded.model(input_ids=given, use_cache=False)
    return {"sink_metric": np.stack([found[layer] for layer in range(len(found))])}


def even_sinks(loaded: "LoadedModel") -> Float[np.ndarray, "position"]:
    """The metric of even attention under the model's masks, mean over layers."""
    from posbias.theory.huggingface import from_huggingface

    masks = (layer.mask.allowed(TOKENS) for layer in from_huggingface(loaded.model.config.to_dict()).stack)
    return np.mean([sink_metric(seen / seen.sum(axis=1, keepdims=True), seen) for seen in masks], axis=0)


def measured(name: str) -> dict[str, Any]:
    """What `observed_sinks.json` has of a model, measured anew."""
    from posbias.measurement import load_model

    loaded = load_model(name)
    found = sinks_by_prompt(loaded, tokens=TOKENS, prompts=PROMPTS, seed=SEED)
    metric = found["sink_metric"].values.mean(axis=1)
    strongest = 1 + int(metric[:, 1:].mean(axis=0).argmax())
    about = {key: found.attrs[key] for key in ("positional", "checksum", "text", "text_sha256")}
    about |= {"tokens": TOKENS, "prompts": PROMPTS, "seed": SEED}
    about["versions"] = json.loads(found.attrs["versions"])
    about |= {"heads": loaded.model.config.num_attention_heads, "strongest": strongest}
    numbers = {
        "first": metric[:, 0],
        "other": metric[:, strongest],
        "even": even_sinks(loaded)[:SHOWN],
        "by_token": metric.mean(axis=0)[:SHOWN],
        "by_layer": found["sink_metric"].values[:, :, 0].mean(axis=0),
    }
    return about | {key: [round(float(value), 6) for value in values] for key, values in numbers.items()}


if __name__ == "__main__":
    print(json.dumps({model: measured(model) for model in sys.argv[1:] or MODELS}))
