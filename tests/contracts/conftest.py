"""Small measurements, made by the contract in docs/measure.md."""

from collections.abc import Callable

import numpy as np
import pytest
import xarray as xr
from browser import browser  # noqa: F401

TOKENS, DEPTH, HEADS = 40, 3, 2
HOSTILE = {"model": "<script>alert(1)</script>", "text": "a & b", "extra": "<i>"}


def make(*, sink: bool = False, prompts: int = 8, **attributes: object) -> xr.Dataset:
    """A measurement whose influence is U-shaped, with or without token 0 drawing most attention."""
    random = np.random.default_rng(7)
    position = np.arange(TOKENS)
    shape = 0.2 + np.exp(-position / 4) + np.exp((position - TOKENS + 1) / 4)
    influence = shape * random.lognormal(0, 0.05, (prompts, TOKENS))
    per_head = np.array([1.0, 2.0])[:, None] * -0.05 * position
    logits = np.tile(per_head, (DEPTH, 1, 1))
    column = logits + (6.0 if sink else 0.0)
    scores = np.where(np.tri(TOKENS, dtype=bool), -0.07 * (position[:, None] - position), -np.inf)
    scores[:, 0] += 6.0 if sink else 0.0
    kernel = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    norms = np.full((DEPTH, TOKENS), 10.0)
    norms[:, 0] *= 50.0 if sink else 1.0
    share = np.full((DEPTH, HEADS), kernel[1:, 0].mean())
    logits[..., -1] = np.nan
    mixing = np.array([0.5, 0.3, 0.2]) + random.normal(0, 0.01, (prompts, DEPTH))
    variables = {
        "influence": (("prompt", "position"), influence),
        "probability": (("prompt",), np.full(prompts, 0.4)),
        "next_token": (("prompt",), np.arange(prompts)),
        "loss": (("prompt",), np.full(prompts, 3.0)),
        "mixing": (("prompt", "layer"), mixing),
        "mixing_token": (("prompt", "layer"), mixing + 0.05),
        "residual_norm": (("layer", "position"), norms),
        "update_norm": (("layer", "position"), norms / 5),
        "logits_distance": (("layer", "head", "distance"), logits),
        "logits_diagonal": (("layer", "head", "position"), np.zeros((DEPTH, HEADS, TOKENS))),
        "logits_first_column": (("layer", "head", "position"), column),
        "positional_distance": (("layer", "head", "distance"), logits),
        "kernel": (("layer", "query", "key"), np.tile(kernel, (DEPTH, 1, 1))),
        "sink_share": (("layer", "head"), share),
        "energy_kernel": (("layer", "query", "key"), np.tile(kernel**2, (DEPTH, 1, 1))),
        "head_gain": (("layer", "head"), np.ones((DEPTH, HEADS))),
    }
    known = {
        "posbias_kind": "measurement",
        "model": "toy",
        "text": "noise",
        "versions": '{"python": "3.11.7"}',
        "selfcheck": '{"max_deviation": 2.9e-7, "outputs_identical": true}',
        "created": "2026-01-01T00:00:00+00:00",
    }
    sizes = {"prompt": prompts, "layer": DEPTH, "head": HEADS}
    sizes |= dict.fromkeys(("position", "query", "key", "distance"), TOKENS)
    coordinates = {name: np.arange(size) for name, size in sizes.items()}
    return xr.Dataset(variables, coords=coordinates, attrs=known | attributes)


@pytest.fixture
def make_measurement() -> Callable[..., xr.Dataset]:
    """The maker of measurements: sink=, prompts= and any attribute."""
    return make


@pytest.fixture(scope="session")
def report(tmp_path_factory):
    """A report on a U-shaped measurement with a sink, whose names would be markup."""
    from posbias.reports import write_report

    return write_report(make(sink=True, **HOSTILE), tmp_path_factory.mktemp("report"), seed=3)
