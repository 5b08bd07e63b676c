"""Untrained decoders: is the U there before training, with and without positions? After Chowdhury 2026.

GPT-2 and Qwen2 from their configurations, random weights, at their depth and a quarter of their width. The
gradient influence on the last token is compared with evenly spread attention of weight α in every layer
(`posbias_papers.closed_forms.causal_averaging`). The paper's text was not at hand: this is no verdict on it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from posbias.core.errors import one_of
from posbias.profiles.estimate import Estimate
from posbias.profiles.profile import measured_influence, spearman, wasserstein
from posbias_papers.closed_forms.causal_averaging import hops_of, nearest_mixing, profile_of_averages
from posbias_papers.extensions.extension import Cell, Extension, Result, Results
from posbias_papers.pages import Table

TOKENS, PROMPTS, NARROWER, VOCABULARY = 128, 2, 4, 2048
SEEDS = range(2, 6)
CONFIGS: dict[str, dict[str, int]] = {
    "gpt2": {"n_layer": 12, "n_head": 12, "n_embd": 768, "n_inner": 3072},
    "qwen2": {
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "hidden_size": 896,
        "intermediate_size": 4864,
    },
}
"""The shapes of GPT-2 (124M) and Qwen2 (0.5B)."""
_WIDTHS = ("n_embd", "n_inner", "hidden_size", "intermediate_size")


def untrained(family: str, narrower: int, context: int, seed: int, *, positions: bool = True) -> Any:
    """A network of a family of `CONFIGS`, `narrower` times as narrow, in evaluation mode and float32.

    Matrices are drawn wider by the root of that factor and embeddings are not, so that every update relative to
    the stream is as large as at the full width. Without `positions` learned ones, or rotary frequencies, are zero;
    the same seed gives the same other weights. Raises `InvalidValueError` for another family.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    shape, wide = CONFIGS[one_of("family", family, tuple(CONFIGS))], narrower**0.5
    sizes = {name: size // narrower if name in _WIDTHS else size for name, size in shape.items()}
    sizes |= {"vocab_size": VOCABULARY, "bos_token_id": 0, "eos_token_id": 0}
    options = {"initializer_range": 0.02 * wide, "tie_word_embeddings": True}
    config = AutoConfig.for_model(family, **sizes, max_position_embeddings=context, **options)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
        model.get_input_embeddings().weight.div_(wide)
        if family == "gpt2":
            model.transformer.wpe.weight.mul_(positions / wide)
        elif not positions:
            model.model.rotary_emb.inv_freq.zero_()
    return model


@dataclass(frozen=True)
class UntrainedCell(Cell):
    """A family, and whether its encoding of positions is left in."""

    family: str
    positions: bool

    kind = "untrained_cell"

    @property
    def label(self) -> str:
        """'gpt2 without positions'."""
        return f"{self.family} {'with' if self.positions else 'without'} positions"

    def compute(self, on_event: Any = None, seeds: Sequence[int] = SEEDS) -> Result:
        """Measure a network of each seed on two prompts."""
        from posbias.core.packages import bundled
        from posbias.measurement import measure

        rows = []
        for seed in seeds:
            network = untrained(self.family, NARROWER, TOKENS, seed, positions=self.positions)
            chosen: dict[str, Any] = {"tokens": TOKENS, "prompts": PROMPTS, "seed": seed}
            data = measure(network, tokenizer=bundled()["tiny-alibi"], **chosen)
            mixing, influence = data["mixing"].values.mean(axis=0), measured_influence(data).mass
            rows.append({"influence": influence.tolist(), "mixing": mixing.tolist()})
        return {name: [row[name] for row in rows] for name in rows[0]}


CELLS = tuple(UntrainedCell(family, positions) for family in CONFIGS for positions in (True, False))


def even(mixing: Sequence[float]) -> np.ndarray:
    """The influence of even attention with these weights, by layer."""
    return profile_of_averages(TOKENS, hops_of(mixing))


def agreement(result: Result) -> dict[str, Estimate]:
    """How near even attention is to each network: α fitted to the others, α = ½ and the measured λ."""
    influence, mixing = np.array(result["influence"]), np.array(result["mixing"])
    rows, depth = [], mixing.shape[1]
    for number, own in enumerate(influence):
        others = np.delete(influence, number, axis=0).mean(axis=0)
        alpha = nearest_mixing(others, depth)
        curves = {
            "α fitted": even([alpha] * depth),
            "the other networks": others,
            "α = ½": even([0.5] * depth),
        }
        curves["λ measured"] = even(mixing[number])
        row = {"α fitted to the others": alpha, "Spearman": float(spearman(curves["α fitted"], own))}
        row |= {f"Wasserstein, {name}": float(wasserstein(curve, own)) for name, curve in curves.items()}
        parts = {"first 5 %": own[:6], "middle tenth": own[58:70], "tenth before the last": own[-13:-1]}
        row |= {name: float(TOKENS * part.mean()) for name, part in parts.items()}
        rows.append(row | {"last token": float(TOKENS * own[-1])})
    return {name: Estimate.of_mean(np.array([row[name] for row in rows])) for name in rows[0]}


def _tables(results: Results) -> Iterator[Table]:
    caption = "Agreement with even attention, and influence in units of an even spread"
    yield Table.of(caption, ({"network": cell.label, **agreement(results[cell])} for cell in CELLS))
    rows = []
    for family in CONFIGS:
        pair = (np.array(results[UntrainedCell(family, one)]["influence"]) for one in (True, False))
        apart = [float(wasserstein(*networks)) for networks in zip(*pair, strict=True)]
        rows.append({"family": family, "apart by": Estimate.of_mean(np.array(apart))})
    yield Table.of("The same weights with and without positions (Wasserstein)", rows)


def _draw(results: Results) -> Any:
    from posbias.reports.plots.style import direct_label, new_figure
    from posbias_papers.plots.position_curves import draw_position_curves

    figure, places = new_figure(7.2, 2.8), (np.arange(TOKENS) + 0.5) / TOKENS
    for ax, family in zip(figure.subplots(1, 2, sharey=True), CONFIGS, strict=True):
        found = {cell: results[cell] for cell in CELLS if cell.family == family}
        depth = len(next(iter(found.values()))["mixing"][0])
        influence = np.concatenate([one["influence"] for one in found.values()]).mean(axis=0)
        alphas = (nearest_mixing(influence, depth), 0.5)
        curves = {f"even attention, α = {alpha:.2g}": even([alpha] * depth) * TOKENS for alpha in alphas}
        curves |= {cell.label: np.mean(one["influence"], axis=0) * TOKENS for cell, one in found.items()}
        draw_position_curves(ax, places, curves)
        direct_label(ax, family, "black")
        ax.set_ylim(0.05, 30)
    return figure


EXTENSION = Extension(
    "untrained",
    "Is the U there before training, is it that of even attention, and do positions matter?",
    "docs/evidence.md",
    CELLS,
    _tables,
    _draw,
    minutes=1.0,
)
