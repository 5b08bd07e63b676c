"""Small measurements made by hand: their slopes, content, mixing and influence are known exactly."""

import numpy as np
import xarray as xr

TOKENS, DEPTH, HEADS, PROMPTS = 48, 4, 2, 12
HEAD_SIZE = 16
SLOPES = np.array([0.25, 0.0625])
DELTA = np.array([1.5, -0.5])
CONSTANT = np.array([0.3, -0.2])


def measurement(
    model: str = "toy",
    text: str = "noise",
    *,
    additive: bool = True,
    window: int | None = None,
    prompts: int = PROMPTS,
    seed: int = 1,
    shift: float = 0.0,
    **attributes: object,
) -> xr.Dataset:
    """A measurement with ALiBi's positional logits (or, not `additive`, a cosine by distance) and known content.

    `shift` is added to whole rows of the positional logits, as models do that add m·j. Token 0 has content of
    its own, on the diagonal and as a key.
    """
    random = np.random.default_rng(seed)
    position = np.arange(TOKENS)
    distance = position[:, None] - position
    seen = np.tri(TOKENS, dtype=bool)
    if window is not None:
        seen &= distance < window
    by_distance = (
        -SLOPES[:, None, None] * distance
        if additive
        else np.cos(distance / 7.0)[None] * SLOPES[:, None, None]
    )
    positional = np.tile(by_distance, (DEPTH, 1, 1, 1)) + shift * position[:, None]
    content = np.zeros((DEPTH, HEADS, TOKENS, TOKENS)) + CONSTANT[None, :, None, None]
    content += DELTA[None, :, None, None] * np.eye(TOKENS) * (1 + np.arange(DEPTH))[:, None, None, None]
    content[..., 0] += 2.0
    content = np.where(seen, content, np.nan)
    logits = np.where(seen, positional + content, np.nan)
    kernel = np.exp(np.nan_to_num(logits, nan=-np.inf))
    kernel = (kernel / kernel.sum(axis=-1, keepdims=True)).mean(axis=1)
    shape = 0.3 + np.exp(-position / 4) + np.exp((position - TOKENS + 1) / 4)
    mixing = np.array([0.5, 0.4, 0.3, 0.2]) + random.normal(0, 0.01, (prompts, DEPTH))
    below = np.where(np.eye(TOKENS, dtype=bool), np.nan, content)[..., 1:]
    diagonal = np.diagonal(content, axis1=2, axis2=3)
    variables = {
        "influence": (("prompt", "position"), shape * random.lognormal(0, 0.1, (prompts, TOKENS))),
        "mixing": (("prompt", "layer"), mixing),
        "mixing_token": (("prompt", "layer"), mixing + 0.1),
        "logits_distance": (("layer", "head", "distance"), _by_distance(logits)),
        "logits_diagonal": (("layer", "head", "position"), np.diagonal(logits, axis1=2, axis2=3)),
        "logits_first_column": (("layer", "head", "position"), logits[..., 0]),
        "positional_distance": (("layer", "head", "distance"), _by_distance(logits - content)),
        "content_mean": (("layer", "head"), np.nanmean(below, axis=(2, 3))),
        "content_diagonal": (("layer", "head", "position"), diagonal),
        "content_first_column": (("layer", "head", "position"), content[..., 0]),
        "content": (
            ("layer", "head", "query", "key"),
            content + np.where(seen, random.normal(0, 0.05, seen.shape), 0),
        ),
        "kernel": (("layer", "query", "key"), kernel),
        "monotonicity_rate": (("layer", "tolerance"), np.array([[0.02], [0.0], [0.01], [0.03]])),
        "monotonicity_gap": (("layer",), np.array([1e-3, 0.0, 2e-3, 4e-3])),
        "monotonicity_floor": (("layer",), np.full(DEPTH, 0.001)),
    }
    sizes = {"prompt": prompts, "layer": DEPTH, "head": HEADS, "tolerance": 1}
    sizes |= dict.fromkeys(("position", "query", "key", "distance"), TOKENS)
    known = {"posbias_kind": "measurement", "model": model, "text": text, "hidden_size": HEADS * HEAD_SIZE}
    return xr.Dataset(
        variables, coords={name: np.arange(size) for name, size in sizes.items()}, attrs=known | attributes
    )


def _by_distance(logits: np.ndarray) -> np.ndarray:
    """Means along diagonals over keys from 1 on, by plain loops."""
    table = np.full((*logits.shape[:2], TOKENS), np.nan)
    for d in range(TOKENS - 1):
        pairs = np.array([logits[:, :, j + d, j] for j in range(1, TOKENS - d)])
        if np.isfinite(pairs).all():
            table[..., d] = pairs.mean(axis=0)
    return table
