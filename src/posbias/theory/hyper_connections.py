"""Hyper-connections: a residual of s streams instead of one, which every layer mixes, reads from and writes to.

What stream s holds after a layer is Σ_r C_sr·X_r + w_s·F(Σ_r q_r·X_r), with F the attention: as shares, each
stream keeps 1 − λ·w_s, split over the streams before it by C, and takes λ·w_s from what the layer read,

    R[(s, i), (r, j)] = (1 − λ·w_s)·C_sr·1[i = j] + λ·w_s·q_r·A_ij.

States are pairs (stream, position) and rows sum to one, so that a rollout is as before, over s times as many
states; attention goes by position alone, so that a layer costs one push of a row, and s² additions for each token.
All streams begin as the embedding; at the end they are read with the shares of `collapse`. One stream makes it the
rollout of Herasimchyk et al. 2026, Eqs. (2) to (4). Source: Zhu et al. 2025; Xie et al. 2025 (C is doubly
stochastic).

In models C, q and w depend on the token. A prediction has their means, and is exact only where they are constant.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from posbias.core.errors import InvalidValueError
from posbias.core.spec import Fractions, Rows, value

States = Float[np.ndarray, "stream token"]
Row = Float[np.ndarray, "token"]
ROUNDING = 1e-9


@value
class Connection:
    """How one layer is connected with the streams.

    `mix` is C: row s holds the shares of the streams before in what stream s keeps (DeepSeek V4's `comb`
    transposed). `read` is q, the shares of streams in what attention sees; `write` is w, a factor from 0 to 1 on λ
    for each stream (None: 1 for all). Rows of `mix`, and `read`, sum to one. Where a feed-forward block mixes the
    streams again, `mix` is the product of both, the feed-forward block's on the left. Raises `InvalidValueError`
    where numbers do not fit.
    """

    mix: Rows
    read: Fractions
    write: Fractions | None = None

    def __post_init__(self):
        streams = len(self.read)
        _sums_to_one("read", self.read)
        if len(self.mix) != streams or any(len(row) != streams or min(row) < 0 for row in self.mix):
            raise InvalidValueError(f"mix: {streams} rows of {streams} numbers ≥ 0, as `read` has, needed")
        for row in self.mix:
            _sums_to_one("mix", row)
        if self.write is not None and len(self.write) != streams:
            raise InvalidValueError(f"write: {len(self.write)} given, {streams} (one per stream) needed")

    def push(
        self, mixing: float, states: States, attend: Callable[[Row], tuple[Row, float]]
    ) -> tuple[States, float]:
        """states · R for one layer, and what its sinks take; `attend` gives row · A and that of its attention."""
        written = mixing * (np.ones(len(self.read)) if self.write is None else np.array(self.write))
        kept = np.einsum("s,sr,sj->rj", 1.0 - written, np.array(self.mix), states)
        asked = np.einsum("s,sj->j", written, states)
        if not asked.any():
            return kept, 0.0
        drawn, lost = attend(asked)
        return kept + np.array(self.read)[:, None] * drawn, lost


@value
class HyperConnections:
    """The streams of an architecture: a `Connection` for all layers, or one for each, bottom first.

    `collapse` are the shares of streams in what is read at the end. Raises `InvalidValueError` where counts do not
    fit or shares do not sum to one.

        HyperConnections((Connection(((0.9, 0.1), (0.1, 0.9)), (0.5, 0.5)),), (0.5, 0.5))
    """

    connections: tuple[Connection, ...]
    collapse: Fractions

    def __post_init__(self):
        _sums_to_one("collapse", self.collapse)
        counts = {len(one.read) for one in self.connections}
        if counts != {len(self.collapse)}:
            raise InvalidValueError(
                f"connections: of {', '.join(map(str, sorted(counts))) or 'no'} streams given, one or more of "
                f"{len(self.collapse)}, as `collapse` has, needed"
            )

    def of(self, depth: int) -> tuple[Connection, ...]:
        """The connection of each layer. Raises `InvalidValueError` unless there is one, or one per layer."""
        if len(self.connections) not in (1, depth):
            raise InvalidValueError(
                f"connections: {len(self.connections)} given, one or {depth} (one per layer) needed"
            )
        return self.connections * (depth // len(self.connections))

    def begin(self, row: Row) -> States:
        """The states of a row at the top: each stream with its share of what is read."""
        return np.array(self.collapse)[:, None] * row


def _sums_to_one(name: str, shares: tuple[float, ...]) -> None:
    if abs(sum(shares) - 1.0) > ROUNDING:
        raise InvalidValueError(f"{name}: shares that sum to {sum(shares):.13g} given, a sum of 1 needed")
