"""Outcomes of trained networks as a test wants them: gaps, sinks, learning curves."""

import numpy as np

from posbias.theory.masks import Full
from posbias_papers.wu2025 import Setting
from posbias_papers.wu2025.outcomes import PAIRS, Outcome

TOKENS = 17
PAIRED = {
    "fig3": (0.3, 0.05, -0.25),
    "fig6": (0.3, 0.3, 0.0),
    "fig7": (-0.3, 0.0, 0.3),
    "fig8": (0.0, -0.3, -0.3),
}
"""Figures on biased training, and the gaps that networks with an encoding have there."""


def pairs(first_middle, first_last, middle_last):
    return dict(zip(PAIRS, (first_middle, first_last, middle_last), strict=True))


def gaps_of(levels, *, networks=3, noise=0.002, seed=None):
    """Gaps of these means."""
    rng = np.random.default_rng(
        [round(1e6 * (1 + level)) for level in levels.values()] if seed is None else seed
    )
    return {pair: levels[pair] + rng.normal(0, noise, networks) for pair in PAIRS}


def outcome(setting, gaps, slope=0.1, *, sink=0.9, share=0.0, accuracy=0.6, steps=100_000, curves=None):
    """What is known of networks with these gaps, which grow with accuracy at the given slope while training.

    Their sink metric is `sink` on the first tokens, and a `share` of attention goes to the first token, where
    it is seen.
    """
    networks = len(gaps["first-last"])
    rising = np.linspace(0.03, np.linspace(0.6, 0.8, networks), 6).T
    known = {"iteration": np.arange(6.0), "in_context_accuracy": rising}
    known |= dict.fromkeys(PAIRS, slope * rising) | {"loss": 3 - 2 * rising}
    first, token = getattr(setting.mask, "length", 1), np.arange(TOKENS)
    spread = np.random.default_rng(setting.depth).normal(0, 0.004, (networks, 1))
    nulls = np.where(token < first, 0.2, 0.05)
    allowed = setting.mask.allowed(TOKENS)
    even = allowed / allowed.sum(axis=1, keepdims=True)
    even = np.where(allowed[:, :1], (1 - share) * even + share * np.eye(TOKENS)[0], even)
    return Outcome(
        iterations=steps,
        sequences=40,
        gaps=gaps,
        accuracy=np.broadcast_to(accuracy, networks).astype(float),
        loss=np.full(networks, 1.4),
        by_position=np.full((networks, 8), 0.5),
        attention=np.tile(even, (networks, setting.depth, 1, 1)),
        sinks=np.where(token < first, sink, 0.05) + spread,
        untrained=np.tile(nulls, (networks, 1)),
        even=nulls,
        curves=known | (curves or {}),
    )


def as_published(setting: Setting):
    """Gaps as the paper describes them."""
    if setting.answers:
        encoded = PAIRED[
            {("first", "last"): "fig3", ("first",): "fig6", ("middle",): "fig7", ("last",): "fig8"}[
                setting.answers
            ]
        ]
        plain = (0.0, 0.0, 0.0) if setting.mask == Full() else (0.1, 0.15, 0.05)
        return pairs(*(plain if setting.positional == "none" else encoded))
    strength = {"none": 0.12, "decay": -0.12, "rope": 0.04}[setting.positional]
    strength += 0.05 * (setting.depth / 2 - 1) + 0.3 * (setting.residual and setting.depth == 4)
    return pairs(0.7 * strength, strength, 0.2 * strength)


def depth_outcomes(study, gaps=as_published, **options):
    """The outcomes of a figure's cells with these gaps, and a curve that is the steeper the deeper."""
    return {cell: outcome(cell, gaps_of(gaps(cell)), 0.1 * cell.depth, **options) for cell in study.cells}
