"""What does influence mean? Gradients by position next to what becomes of the answer without the token.

Herasimchyk et al. 2026 (Eq. 6) measure influence by a gradient, which speaks of infinitely small changes of an
embedding. Here each token of a prompt is deleted, or replaced by one drawn from the text, one at a time, and the
last token's distribution compared with the one before: by KL divergence, and by how far the most likely token's
logit moves against the runner-up's.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from posbias.core.machine import stream
from posbias.profiles.curves import spearman, wasserstein
from posbias.profiles.estimate import Estimate
from posbias.profiles.profile import Profile, harmonic
from posbias_papers.extensions.cells import Cell, Result, Results, own_study, rounded
from posbias_papers.pages import Table

if TYPE_CHECKING:
    from torch import Tensor

MODEL, TOKENS, PROMPTS, SEED = "smollm2-135m", 128, 24, 2
BATCH = 16
"""Changed prompts that go through the model in one pass."""
CHANGES = ("deleted", "replaced")
EFFECTS = {"kl": "KL divergence", "root": "√KL", "logit": "logit difference"}
GRADIENT = "gradient"
RESAMPLES = 1000


@functools.cache
def drawn(model: str, tokens: int, prompts: int, seed: int) -> tuple[Any, Int[np.ndarray, "prompt position"]]:
    """A model and prompts of the bundled text, each begun as the model's tokenizer begins a text."""
    from posbias.measurement import load_model, prompts_from, read_text
    from posbias.measurement.texts.prompts import bos_of

    loaded, text = load_model(model), read_text(None)
    how: dict[str, Any] = {"tokens": tokens, "prompts": prompts, "seed": seed}
    return loaded, prompts_from(loaded.tokenizer, text, bos=bos_of(loaded.tokenizer, text), **how).ids


@dataclass(frozen=True)
class InfluenceCell(Cell):
    """One prompt of the bundled text: the `prompt`-th of `prompts` that are drawn."""

    prompt: int
    model: str = MODEL
    tokens: int = TOKENS
    prompts: int = PROMPTS

    kind = "influence_cell"

    def compute(self, on_event: Any = None) -> Result:
        """By position: the gradient influence, and each effect of each change."""
        import torch

        from posbias.measurement.quantities.influence import gradients, predict

        loaded, prompts = drawn(self.model, self.tokens, self.prompts, SEED)
        ids = torch.tensor(prompts[self.prompt])
        # the tokens put in are drawn as often as prompts have them
        chosen = stream(SEED, f"influence.{self.prompt}").choice(prompts.ravel(), size=self.tokens)
        result = {GRADIENT: gradients(predict(loaded.model, ids), ids)["influence"]}
        result |= effects(loaded.model, ids, torch.tensor(chosen))
        return {name: rounded(values) for name, values in result.items()}


def effects(model: Any, ids: "Tensor", others: "Tensor") -> dict[str, Float[np.ndarray, "position"]]:
    """By effect and change, how far the last token's distribution moves without each token of a prompt.

    Position j is `deleted`, or `replaced` by others[j]; with the last position deleted, the last but one answers.
    `kl` is the divergence (nats) of the distribution after from that before, `logit` the size of the change in the
    most likely token's logit less the second's (which are the first and second before).
    """
    import torch

    rows, place = ids.repeat(len(ids), 1), torch.eye(len(ids), dtype=torch.bool)
    changed = {"deleted": rows[~place].view(len(ids), -1), "replaced": torch.where(place, others, rows)}
    found = {}
    with torch.no_grad():
        before = model(ids[None]).logits[0, -1].double()
        first, second = before.topk(2).indices
        for change, prompts in changed.items():
            logits = [model(some, logits_to_keep=1).logits[:, -1].double() for some in prompts.split(BATCH)]
            after = torch.cat(logits)
            moved = before.softmax(-1) * (before.log_softmax(-1) - after.log_softmax(-1))
            margin = (after[:, first] - after[:, second]) - (before[first] - before[second])
            # of a token without effect, rounding may be below zero
            found[f"kl_{change}"] = moved.sum(-1).clamp(min=0.0).numpy()
            found[f"logit_{change}"] = margin.abs().numpy()
    return found


CELLS = tuple(InfluenceCell(prompt) for prompt in range(PROMPTS))


# --- what is shown -----------------------------------------------------------------------------------------


def curves(results: Results) -> dict[str, Float[np.ndarray, "prompt position"]]:
    """By prompt: the gradient, and every effect of every change; with the root of KL, which is of first order."""
    names = next(iter(results.values()))
    samples = {name: np.array([one[name] for one in results.values()]) for name in names}
    return samples | {f"root_{change}": np.sqrt(samples[f"kl_{change}"]) for change in CHANGES}


def agreement(
    one: Float[np.ndarray, "prompt position"],
    other: Float[np.ndarray, "prompt position"],
    less: Float[np.ndarray, "prompt position"] | None = None,
) -> dict[str, Estimate]:
    """Spearman and 1-Wasserstein of the mean curves, or how much they exceed those of `less` and `other`.

    Errors are over prompts, which all curves share.
    """
    prompts = len(one)
    counts = stream(SEED, "influence.bootstrap").multinomial(
        prompts, np.full(prompts, 1 / prompts), size=RESAMPLES
    )
    weights = np.vstack([np.ones(prompts), counts])
    first, second, third = (
        mean / mean.sum(axis=1, keepdims=True)
        for mean in (weights @ part for part in (one, other, one if less is None else less))
    )
    found = {}
    for name, score in {"Spearman": spearman, "Wasserstein": wasserstein}.items():
        values = score(first, second) - (0.0 if less is None else score(third, second))
        se = float(np.std(values[1:], ddof=1)) * np.sqrt(prompts / (prompts - 1))
        found[name] = Estimate(float(values[0]), se, prompts)
    return found


def tables(results: Results) -> Iterator[Table]:
    """What the page shows of results by cell."""
    samples = curves(results)
    gradient = samples[GRADIENT]
    recency = np.tile(harmonic(gradient.shape[1]).mass, (len(gradient), 1))
    rows = [{"token": "", "effect": "the gradient itself"} | _halves(gradient)]
    for change in CHANGES:
        for effect, words in EFFECTS.items():
            effects = samples[f"{effect}_{change}"]
            scores = {
                "{}": agreement(gradient, effects),
                # the last token asks the question
                "{}, first and last left out": agreement(gradient[:, 1:-1], effects[:, 1:-1]),
                "1/(distance + 1), {}": agreement(recency, effects),
                "1/(distance + 1) less gradient, {}": agreement(recency, effects, gradient),
            }
            row = {"token": change, "effect": words}
            for head, found in scores.items():
                row |= {head.format(name): _interval(one) for name, one in found.items()}
            rows.append(row | _halves(effects))
    yield Table.of("Gradient influence against effects, 95 % intervals over prompts", rows)
    shares = []
    for name, values in samples.items():
        profile = Profile.from_samples(values)
        ends, tokens = profile.summary.ends, profile.tokens
        row = {"curve": name.replace("_", ", "), "verdict": profile.summary.verdict}
        row |= {"first token": profile.share(0, 1), "first 5 %": profile.share(0, ends)}
        row |= {"last 5 %": profile.share(tokens - ends, tokens)}
        shares.append(row | {"last token": profile.share(tokens - 1, tokens)})
    yield Table.of("Shares of each curve", shares)


def _halves(samples: Float[np.ndarray, "prompt position"]) -> dict[str, float]:
    """How well one half of the prompts agrees with the other."""
    found = agreement(samples[::2][: len(samples) // 2], samples[1::2])
    return {f"half against half, {name}": one.value for name, one in found.items()}


def _interval(score: Estimate) -> str:
    low, high = score.interval
    return f"{score.value:.2f} [{low:.2f}, {high:.2f}]".replace("-", "−")


def _draw(results: Results) -> Any:
    from posbias.reports.plots.influence import draw_influence
    from posbias.reports.plots.style import new_figure

    samples = curves(results)
    figure = new_figure(7.2, 5.4)
    panels: Any = figure.subplots(2, 2, sharex=True, sharey=True)
    gradient = Profile.from_samples(samples[GRADIENT], measures="gradient")
    for row, effect in zip(panels, ("root", "logit"), strict=True):
        for ax, change in zip(row, CHANGES, strict=True):
            changed = Profile.from_samples(samples[f"{effect}_{change}"])
            draw_influence(ax, gradient, {f"{EFFECTS[effect]}, token {change}": changed})
            ax.label_outer()
    return figure


STUDY = own_study("influence", CELLS, 40.0, tables, _draw)
