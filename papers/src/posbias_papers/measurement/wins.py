"""Which of two keys scores higher, the nearer or the farther: counts behind recency and adjacency probability.

Of a query i and two earlier keys j > k that it sees, the nearer one wins where S_ij > S_ik; ties win nothing. The
recency probability of Kim et al. 2026 (Section 3) is the share of all such triples, the adjacency probability that
of triples whose nearer key is j = i − 1. Wins of a row are counted while it is sorted by merging: as many steps as
n·log n, where the definition looks at n² pairs.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from posbias.core.compiling import compiled


@dataclass(frozen=True)
class Wins:
    """Triples of each query, and how many of them the nearer key wins; `neighbour` of those with j = i − 1."""

    triples: Float[np.ndarray, "head query"]
    wins: Float[np.ndarray, "head query"]
    neighbour_triples: Float[np.ndarray, "head query"]
    neighbour_wins: Float[np.ndarray, "head query"]

    @property
    def recency(self) -> Float[np.ndarray, "head"]:
        """Share of a head's triples that the nearer key wins; NaN where there are none."""
        return _share(self.wins.sum(axis=1), self.triples.sum(axis=1))

    @property
    def adjacency(self) -> Float[np.ndarray, "head"]:
        """The same of triples whose nearer key is the neighbour of the query."""
        return _share(self.neighbour_wins.sum(axis=1), self.neighbour_triples.sum(axis=1))

    @property
    def by_query(self) -> Float[np.ndarray, "query"]:
        """Recency probability of each query over all heads; NaN without two earlier keys."""
        return _share(self.wins.sum(axis=0), self.triples.sum(axis=0))


def wins(logits: Float[np.ndarray, "head query key"]) -> Wins:
    """Count the triples of every head and query; −∞ stands where a query does not see a key."""
    return Wins(*_wins(np.ascontiguousarray(logits, dtype=np.float64)))


def _share(part: Float[np.ndarray, "*any"], whole: Float[np.ndarray, "*any"]) -> Float[np.ndarray, "*any"]:
    return np.divide(part, whole, out=np.full(whole.shape, np.nan), where=whole > 0)


@compiled()
def _wins(logits):
    heads, queries, _ = logits.shape
    counts = np.zeros((4, heads, queries))
    row, spare = np.empty(queries), np.empty(queries)
    for head in range(heads):
        for query in range(queries):
            size = 0
            for key in range(query):
                if logits[head, query, key] != -np.inf:
                    row[size] = logits[head, query, key]
                    size += 1
            counts[0, head, query] = size * (size - 1) / 2
            if size > 1 and logits[head, query, query - 1] != -np.inf:
                counts[2, head, query] = size - 1
                for place in range(size - 1):
                    counts[3, head, query] += 1.0 if row[size - 1] > row[place] else 0.0
            counts[1, head, query] = _rises(row, spare, size)
    return counts[0], counts[1], counts[2], counts[3]


@compiled()
def _rises(row, spare, size):
    """Pairs of places k < j with row[k] < row[j]; sorts the first `size` entries in either of the two arrays."""
    count, width = 0.0, 1
    while width < size:
        for start in range(0, size, 2 * width):
            middle, stop = min(start + width, size), min(start + 2 * width, size)
            left, right = start, middle
            for place in range(start, stop):
                if left < middle and (right >= stop or row[left] < row[right]):
                    spare[place] = row[left]
                    left += 1
                else:
                    # what was taken from the left is lower than this one
                    spare[place] = row[right]
                    count += left - start
                    right += 1
        row, spare = spare, row
        width *= 2
    return count
