"""Attention sinks: which tokens draw more than their share, and more than they would without learning?

    sink_j(τ) = mean over layers of  Σ_i 1{A_ij > τ} / Σ_i M_ij

with M the mask (Wu et al. 2025, Appendix K.4; τ = 0.2), averaged over sequences that favour no position. The
metric is not zero for a network that prefers nothing: under the causal mask uniform attention gives token 0 more
than 0.2 in its first four rows, hence 4/17 = .235. So it always stands next to two nulls, uniform attention
under the same mask (exact) and the untrained network (same seeds, initial weights), and is also given over the
queries from the sixth on, where uniform causal attention scores nothing at τ = 0.2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from posbias.core.errors import is_integer, wrong
from posbias.profiles.curves import THRESHOLD
from posbias.training.loop import Trained
from posbias.training.network import initial_weights
from posbias.training.probes import attention_blocks, running

THRESHOLDS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""The τ of curves."""
LATER = 5
"""The first query (from 0) of the variant without the first rows, where few keys share all attention."""

Queries = Float[np.ndarray, "member layer start key threshold"]
"""How many queries from a start on give a key more than a threshold, mean over sequences."""


@dataclass(frozen=True, eq=False)
class Sinks:
    """How often attention exceeds each of `thresholds`, in the trained networks and in both nulls.

    `trained`, `untrained` and `uniform` count the queries i from each of `starts` on with A_ij > τ: means over
    `sequences`, `uniform` exact. `allowed` is the mask. Trained counts are NaN for members whose training was
    stopped.
    """

    thresholds: tuple[float, ...]
    starts: tuple[int, ...]
    allowed: Bool[np.ndarray, "query key"]
    trained: Queries
    untrained: Queries
    uniform: Float[np.ndarray, "start key threshold"]
    sequences: int

    def metric(
        self,
        threshold: float = THRESHOLD,
        layer: int | None = None,
        start: int = 0,
        of: Literal["trained", "untrained", "uniform"] = "trained",
    ) -> Float[np.ndarray, "member key"]:
        """sink_j of the trained or the untrained networks, or (one exact row) of uniform attention under the mask.

        Mean over layers or of one `layer`, over queries from `start` on; NaN for keys that no such query may see.
        Raises `InvalidValueError` for a threshold or a start that was not counted, and for a layer that there is
        not.
        """
        counts = self._counts[of]
        if threshold not in self.thresholds:
            listed = ", ".join(f"{one:g}" for one in self.thresholds)
            raise wrong("threshold", f"one that was counted ({listed})", got=f"{threshold}")
        last = counts.shape[1] - 1
        if layer is not None and not (is_integer(layer) and 0 <= layer <= last):
            raise wrong("layer", f"an integer from 0 to {last}", layer)
        chosen = counts[..., self.thresholds.index(threshold)]
        over = self._over_queries(chosen[..., None], start)[..., 0]
        return over.mean(axis=1) if layer is None else over[:, layer]

    def curve(self) -> dict[str, Float[np.ndarray, "member threshold"]]:
        """The first token's against τ: "trained", "untrained" [member, threshold], "uniform" [1, threshold]."""
        return {name: self._over_queries(one, 0).mean(axis=1)[:, 0] for name, one in self._counts.items()}

    @property
    def _counts(self) -> dict[str, Queries]:
        return {"trained": self.trained, "untrained": self.untrained, "uniform": self.uniform[None, None]}

    def _over_queries(self, counts: Queries, start: int) -> Float[np.ndarray, "member layer key threshold"]:
        """Counts over the queries from `start` on, divided by how many of them may see the key."""
        if isinstance(start, bool) or start not in self.starts:
            listed = ", ".join(map(str, self.starts))
            raise wrong("start", f"one that was counted ({listed})", start)
        seeing = self.allowed[start:].sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            return counts[:, :, self.starts.index(start)] / np.where(seeing == 0, np.nan, seeing)[:, None]


def sinks(trained: Trained, sequences: int = 2000, seed: int = 0) -> Sinks:
    """Count how often attention exceeds each of `THRESHOLDS`, before and after training and for uniform attention.

    Over all queries, and over those from `LATER` on, or the last where there are fewer. Raises `InvalidValueError`
    for sequences < 1 or seed < 0.
    """
    experiment = trained.experiment
    network, tokens = experiment.network, experiment.task.tokens
    allowed, starts = network.mask.allowed(tokens), (0, min(LATER, tokens - 1))
    began = initial_weights(network.depth, experiment.task, experiment.seeds, network.normaliser)
    fresh = {name: began[name].to(weights.device) for name, weights in trained.weights.items()}
    counts: list[Any] = [0, 0]
    for _, both in attention_blocks(trained, sequences, seed, trained.weights, fresh):
        for place, layers in enumerate(both):
            counts[place] = counts[place] + _exceeding(layers, starts)
    after, before = (one.cpu().numpy() / sequences for one in counts)
    after[~running(trained)] = np.nan
    even = torch.from_numpy(allowed / allowed.sum(axis=1, keepdims=True))
    uniform = _exceeding([even[None, None]], starts)[0, 0].double().numpy()
    return Sinks(THRESHOLDS, starts, allowed, after, before, uniform, sequences)


def _exceeding(layers: Sequence[Tensor], starts: Sequence[int]) -> Tensor:
    """How often attention exceeds each of `THRESHOLDS`: [member, layer, start, key, threshold].

    Counted over sequences, and over the queries from each start on.
    """
    by_query = [torch.stack([(one > level).sum(dim=1) for level in THRESHOLDS], dim=-1) for one in layers]
    counted = [torch.stack([one[:, start:].sum(dim=1) for start in starts], dim=1) for one in by_query]
    return torch.stack(counted, dim=1)
