"""What is counted in every sample, and its running moments.

A sample is one draw of all embeddings; of every layer it gives scores S, attention A and, per row, whether
S_ij > S_ik. `Layout` says where each of these features stands in one vector per layer:

    [ scores | attention | steps S_i,j+1 − S_ij | rises S_ij − S_i0 | shares of triples with S_ij > S_ik ]

Steps (but for the one to the diagonal), rises and shares have a known mean in the first layer, where all
tokens are alike: 0, 0 and ½. Their co-moment with the first layer is kept too, which makes the first layer a
control variate for all others. Moments of blocks are merged by Chan's formula, in the order of the blocks:
the same samples give the same bytes, however they were shared out.
"""

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int

from posbias.theory.masks import Causal, Mask

CAUSAL: Mask = Causal()
Triples = Int[np.ndarray, "triple"]
Scores = Float[np.ndarray, "sample query key"]
PerLayer = Float[np.ndarray, "layer sample query key"]


@dataclass(frozen=True)
class Layout:
    """Where the features of `tokens` tokens stand. Positions count from 0; i ≥ j are query and key.

    Shares are of triples whose query sees both keys under `mask`; a group without any has the share 0.
    """

    tokens: int
    mask: Mask = CAUSAL

    @property
    def pairs(self) -> int:
        """Entries on and below the diagonal, row by row: (i, j) stands at i(i + 1)/2 + j."""
        return self.tokens * (self.tokens + 1) // 2

    @property
    def attention(self) -> int:
        """Where attention begins (scores begin at 0)."""
        return self.pairs

    @property
    def steps(self) -> int:
        """Where steps begin: (i, j) with j < i stands at i(i − 1)/2 + j from here."""
        return 2 * self.pairs

    @property
    def rises(self) -> int:
        """Where rises begin: (i, j) with 1 ≤ j < i stands at (i − 1)(i − 2)/2 + j − 1 from here."""
        return self.steps + self.tokens * (self.tokens - 1) // 2

    @property
    def shares(self) -> int:
        """Where shares begin: of all triples, by query from 2, by gap j − k from 1, by distance i − j from 1."""
        return self.rises + (self.tokens - 1) * (self.tokens - 2) // 2

    @property
    def size(self) -> int:
        """Features per layer."""
        return self.shares + (1 + 3 * (self.tokens - 2) if self.tokens > 2 else 0)

    @cached_property
    def seen(self) -> Bool[np.ndarray, "pair"]:
        """Which pairs i ≥ j the mask admits, in the order of scores."""
        return self.mask.allowed(self.tokens)[np.tril_indices(self.tokens)]

    @cached_property
    def triples(self) -> Int[np.ndarray, "group"]:
        """How many triples each share is taken of."""
        n = self.tokens
        if not self.seen.all():
            return np.array([group.sum() for group in self.groups(*self.places)], dtype=np.int64)
        by_query = [math.comb(query, 2) for query in range(2, n)]
        along = [math.comb(n - gap, 2) for gap in range(1, n - 1)]
        return np.array(
            [math.comb(n, 3), *by_query, *along, *along][: self.size - self.shares], dtype=np.int64
        )

    @property
    def places(self) -> tuple[Triples, ...]:
        """Query, nearer and farther key of all triples that the mask admits."""
        allowed, tokens = self.mask.allowed(self.tokens), range(self.tokens)
        found = [
            (i, j, k)
            for i in tokens
            for j in range(1, i)
            for k in range(j)
            if allowed[i, j] and allowed[i, k]
        ]
        return tuple(np.array(found, dtype=np.int64).reshape(-1, 3).T)

    def groups(self, i: Triples, j: Triples, k: Triples) -> list[Bool[np.ndarray, "triple"]]:
        """Which of some triples each share is of: all, by query, by gap, by distance."""
        if self.tokens < 3:
            return []
        groups = [np.ones(len(i), dtype=bool), *(i == query for query in range(2, self.tokens))]
        groups += [j - k == gap for gap in range(1, self.tokens - 1)]
        return [*groups, *(i - j == distance for distance in range(1, self.tokens - 1))]


@dataclass
class Tally:
    """Running moments of all features: means, centred squares, centred products with the first layer."""

    layout: Layout
    depth: int
    count: int = 0
    mean: Float[np.ndarray, "layer feature"] = field(init=False)
    squares: Float[np.ndarray, "layer feature"] = field(init=False)
    products: Float[np.ndarray, "layer control"] = field(init=False)

    @property
    def nbytes(self) -> int:
        """Bytes of the moments."""
        return 8 * self.depth * (3 * self.layout.size - self.layout.steps)

    def __post_init__(self):
        features = self.layout.size
        self.mean = np.zeros((self.depth, features))
        self.squares = np.zeros((self.depth, features))
        self.products = np.zeros((self.depth, features - self.layout.steps))

    def merge(self, other: "Tally") -> None:
        """Take in the samples of another tally of the same layout and depth."""
        if not other.count:
            return
        total = self.count + other.count
        share = other.count / total
        apart = other.mean - self.mean
        self.squares += other.squares + apart**2 * (self.count * share)
        controls = apart[:, self.layout.steps :]
        self.products += other.products + controls * controls[0] * (self.count * share)
        self.mean += apart * share
        self.count = total

    @classmethod
    def of_scores(cls, scores: PerLayer, attention: PerLayer, mask: Mask = CAUSAL) -> "Tally":
        """The tally of drawn scores and attention, feature by feature: the plain way."""
        depth, samples, tokens, _ = scores.shape
        tally = cls(Layout(tokens, mask), depth)
        drawn = np.stack([_features(s, a, tally.layout) for s, a in zip(scores, attention, strict=True)])
        tally.count = samples
        tally.mean = drawn.mean(axis=1)
        centred = drawn - tally.mean[:, None]
        tally.squares = (centred**2).sum(axis=1)
        controls = centred[:, :, tally.layout.steps :]
        tally.products = (controls * controls[0]).sum(axis=1)
        return tally


def _features(scores: Scores, attention: Scores, layout: Layout) -> Float[np.ndarray, "sample feature"]:
    """The features of one layer in the order of `Layout`."""
    tokens = scores.shape[-1]
    below = np.tril_indices(tokens)
    step = np.tril_indices(tokens, -1)
    rise = [(i, j) for i in range(2, tokens) for j in range(1, i)]
    columns = [scores[:, below[0], below[1]], attention[:, below[0], below[1]]]
    columns.append(scores[:, step[0], step[1] + 1] - scores[:, step[0], step[1]])
    columns += [(scores[:, i, j] - scores[:, i, 0])[:, None] for i, j in rise]
    i, j, k = layout.places
    later = scores[:, i, j] > scores[:, i, k]
    for group in layout.groups(i, j, k):
        share = later[:, group].mean(axis=1) if group.any() else np.zeros(len(scores))
        columns.append(share[:, None])
    return np.concatenate(columns, axis=1)
