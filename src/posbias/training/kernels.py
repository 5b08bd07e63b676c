"""Do gaps follow influence? The rollout of trained kernels, and the theory's, next to the measured gaps.

A network's mean attention kernels, composed over its layers, say how much of each input token reaches the last
one: with residual connections as R_t = (1 − λ_t)I + λ_t·A_t, λ_t from the network's own norms (Herasimchyk et
al. 2026, Eq. 1). The theory predicts the same from mask, encoding by distance and mixing alone.

From a profile to a gap: in the tests [a, b] the answer is one of two labels, and only the tokens y_a and y_b carry
them; x_a and x_b are one vector and steer attention to either alike. A network that tells each label in
proportion to the mass of its token has, on informative sequences, the gap

    [a, b]  =  (p(y_a) − p(y_b)) / (p(y_a) + p(y_b)),

the predicted gap. Its sign and the order of three are what a rollout can promise; the size is not, since
matching sharpens it.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from posbias.core.errors import one_of, wrong
from posbias.profiles.claims import ClaimVerdict
from posbias.profiles.estimate import Estimate
from posbias.profiles.profile import Profile
from posbias.theory.architecture import Architecture
from posbias.theory.mixing import PerLayer
from posbias.theory.rollout import influence
from posbias.theory.rollout.kernel import push
from posbias.training import probes
from posbias.training.loop import Trained

Kernels = Float[np.ndarray, "member layer query key"]
Mixings = Float[np.ndarray, "member layer"]
LABELS = {
    "attention": "own kernels, attention only",
    "residual": "own kernels and mixing",
    "theory": "theory",
    "theory_measured": "theory with the measured mixing",
}
"""The profiles by name. The second and the last are for networks with residual connections."""


@dataclass(frozen=True, eq=False)
class Rollout:
    """Mean kernels and mixing of trained networks, and profiles of influence on the last token.

    `mixing` is λ per layer, 1 without residual connections. `profiles` are masses over tokens by the names of
    `LABELS`, one row per member, each summing to 1. `assumptions` are the theory's, in words: rotary and
    sinusoidal encodings are left out of it. NaN for members whose training was stopped.
    """

    attention: Kernels
    mixing: Mixings
    profiles: Mapping[str, Float[np.ndarray, "member position"]]
    assumptions: tuple[str, ...]
    sequences: int

    def profile(self, name: str) -> Profile:
        """The mean over members with its standard error, divided by its sum (float32 attention leaves 1 ± 1e-6).

        Raises `InvalidValueError` for another name, or if every member was stopped.
        """
        masses = self._named(name)
        kept = masses[np.isfinite(masses).all(axis=1)]
        if not len(kept):
            raise wrong("profiles", "a trained member", got="only stopped ones")
        se = kept.std(axis=0, ddof=1) / math.sqrt(len(kept)) if len(kept) > 1 else None
        about = {"predictor": LABELS[name], "assumptions": self.assumptions}
        return Profile.from_weights(kept.mean(axis=0), measures="rollout", se=se, **about)

    def gap(self, name: str, first: int, second: int) -> Float[np.ndarray, "member"]:
        """The predicted gap (m_a − m_b)/(m_a + m_b) by the masses of the labels of items a and b.

        0 where neither has mass. Raises `InvalidValueError` for another name.
        """
        labels = self._named(name)[:, 1::2]
        a, b = labels[:, first], labels[:, second]
        total = np.where(a + b == 0, 1.0, a + b)
        return (a - b) / total

    def _named(self, name: str) -> Float[np.ndarray, "member position"]:
        return self.profiles[one_of("name", name, self.profiles)]


@dataclass(frozen=True, eq=False)
class Agreement:
    """Whether measured gaps follow one profile: the sign of each, and their order.

    `predicted` are over members, `measured` on informative sequences. `signs` and `order` hold or fail where both
    sides are significant at 95 % (Student's t over members; with one member the error over sequences), each
    by itself: a comparison in twenty is significant by chance. A prediction of none fails where something is
    significant. `orders` compare every two gaps; `order` holds if none of the significant ones stands the other
    way round.
    """

    profile: str
    predicted: Mapping[str, Estimate]
    measured: Mapping[str, Estimate]
    signs: Mapping[str, ClaimVerdict]
    orders: Mapping[str, ClaimVerdict]

    @property
    def label(self) -> str:
        """The profile in words."""
        return LABELS[self.profile]

    @property
    def order(self) -> ClaimVerdict:
        """Whether the order of the gaps is the predicted one, as far as it is significant."""
        orders = self.orders.values()
        return "fails" if "fails" in orders else "holds" if "holds" in orders else "undecided"


def trained_rollout(trained: Trained, sequences: int = 1000, seed: int = 0) -> Rollout:
    """Measure kernels and mixing on sequences that favour no position, and compose them.

    Raises `InvalidValueError` for sequences < 1 or seed < 0.
    """
    network = trained.experiment.network
    attention, mixing = _measure(trained, sequences, seed, mixing=network.residual)
    depth, tokens = attention.shape[1], attention.shape[2]
    architecture = network.architecture()
    theory = influence(architecture, tokens, threads=1).mass
    profiles = {
        "attention": _compose(attention, np.ones_like(mixing)),
        "theory": np.tile(theory, (len(mixing), 1)),
    }
    if network.residual:
        profiles["residual"] = _compose(attention, mixing)
        profiles["theory_measured"] = np.stack([_predict(architecture, depth, tokens, m) for m in mixing])
    kept = probes.running(trained)[:, None]
    ordered = {name: np.where(kept, profiles[name], np.nan) for name in LABELS if name in profiles}
    return Rollout(attention, mixing, ordered, architecture.assumptions, sequences)


def agreement(rollout: Rollout, evaluation: probes.Evaluation) -> dict[str, Agreement]:
    """Every profile of a rollout next to the measured gaps."""
    return {name: _agree(rollout, evaluation, name) for name in rollout.profiles}


def _agree(rollout: Rollout, evaluation: probes.Evaluation, name: str) -> Agreement:
    gaps = evaluation.gaps
    predicted = {pair: rollout.gap(name, gap.first, gap.second) for pair, gap in gaps.items()}
    measured = {pair: gap.over_informative for pair, gap in gaps.items()}
    two = list(combinations(gaps, 2))
    return Agreement(
        profile=name,
        predicted={pair: probes.estimate_members(values) for pair, values in predicted.items()},
        measured={pair: averages.over_members for pair, averages in measured.items()},
        signs={pair: _verdict(predicted[pair], measured[pair]) for pair in gaps},
        orders={
            f"{a} > {b}": _verdict(predicted[a] - predicted[b], _difference(measured[a], measured[b]))
            for a, b in two
        },
    )


def _verdict(predicted: Float[np.ndarray, "member"], measured: probes.Averages) -> ClaimVerdict:
    """Whether two signs agree. A prediction of none fails where there is a gap; a single member's is exact."""
    found, expected = probes.sign(measured.estimate), probes.estimate_members(predicted)
    expected_sign = probes.sign(expected if expected.known else Estimate(expected.value))
    none = np.abs(predicted[np.isfinite(predicted)]).max(initial=0.0) <= probes.ZERO
    if found == 0 or (expected_sign == 0 and not none):
        return "undecided"
    return "holds" if expected_sign == found else "fails"


def _difference(a: probes.Averages, b: probes.Averages) -> probes.Averages:
    """Member by member, from independent sequences."""
    return probes.Averages(a.values - b.values, np.hypot(a.errors, b.errors), np.minimum(a.counts, b.counts))


def _measure(trained: Trained, sequences: int, seed: int, mixing: bool) -> tuple[Kernels, Mixings]:
    """Mean attention, and the mean over sequences of λ_t = ‖A·X·W_V‖/(‖X‖ + ‖A·X·W_V‖), Frobenius norms.

    Without `mixing` λ is 1.
    """
    sums: list[Any] = [0.0, 0.0]
    for tokens, (layers,) in probes.attention_blocks(trained, sequences, seed, trained.weights):
        sums[0] = sums[0] + torch.stack([layer.sum(dim=1, dtype=torch.float64) for layer in layers], dim=1)
        if mixing:
            shares = [share.sum(dim=1) for share in _shares(trained, tokens, layers)]
            sums[1] = sums[1] + torch.stack(shares, dim=1)
    attention = sums[0].cpu().numpy() / sequences
    lam = sums[1].cpu().numpy() / sequences if mixing else np.ones(attention.shape[:2])
    stopped = ~probes.running(trained)
    attention[stopped], lam[stopped] = np.nan, np.nan
    return attention, lam


def _shares(trained: Trained, tokens: Tensor, layers: Sequence[Tensor]) -> Iterator[Tensor]:
    """λ of every layer and sequence [member, sequence] of networks with residual connections."""
    added = probes.wiring(trained).added
    x = tokens if added is None else tokens + added[:, None]
    with torch.no_grad():
        for t, attention in enumerate(layers):
            update = attention @ x @ trained.weights["value"][:, None, t]
            stream, own = (
                torch.linalg.vector_norm(one, dim=(2, 3), dtype=torch.float64) for one in (x, update)
            )
            yield own / (stream + own)
            x = x + update


def _compose(attention: Kernels, mixing: Mixings) -> Float[np.ndarray, "member position"]:
    """The rollout's row of the last token, for every member."""
    last = np.eye(attention.shape[-1])[-1]
    return np.stack([push(last, a[::-1], m[::-1]) for a, m in zip(attention, mixing, strict=True)])


def _predict(architecture: Architecture, depth: int, tokens: int, mixing: np.ndarray) -> np.ndarray:
    """The theory's row with a member's measured mixing; NaN for a stopped member."""
    if not np.isfinite(mixing).all():
        return np.full(tokens, np.nan)
    measured = Architecture(depth, architecture.layers, PerLayer(tuple(mixing.tolist())))
    return influence(measured, tokens, threads=1).mass
