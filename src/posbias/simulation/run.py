"""Running a simulation, and what it says: recency probabilities, mean scores and attention, with errors.

The recency probability of a layer is the chance that S_ij > S_ik for a triple of positions i > j > k, over
samples and triples (Kim et al. 2026, Section 3); half says no preference. Under a mask these are the triples whose
query sees both keys. Triples of one sample depend on each
other, so errors are over samples. In the first layer it is ½ exactly, and what a sample's share of triples
there exceeds ½ by, a later layer's share exceeds its mean by, to a part that regression finds. Taking that
part out (a control variate) leaves the mean where it is and makes the error smaller: 1.3 times at d = 16, a
thousand times at d = 1024. `plain` numbers are without it, as in the paper.

Blocks of samples are shared out to threads and counted in their order, until there are enough.
"""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from types import ModuleType
from typing import Literal

import numpy as np
from jaxtyping import Float, Int
from scipy.special import ndtri

from posbias.core.errors import PosbiasError, one_of, positive, whole, wrong
from posbias.core.machine import cores, require, sequence
from posbias.core.progress import Event, OnEvent
from posbias.profiles.estimate import Estimate
from posbias.simulation.model import RecencyModel
from posbias.simulation.tally import Layout, Tally

EngineName = Literal["gram", "token_space"]
ENGINES: tuple[EngineName, ...] = ("gram", "token_space")
LEVEL = 0.05
"""How often a step may be called sure that is not (`RecencyResult.exhibits_recency`)."""
ROUND = 2**17
"""Samples between two looks at how precise a simulation is, when it runs until it is precise enough."""
MOST = 10**12
"""Samples at which a simulation that runs until it is precise enough gives up."""
Array = Float[np.ndarray, "..."]
Pair = Float[np.ndarray, "2 layer feature"]
"""Means and their standard errors."""
Places = Int[np.ndarray, "entry"]


@dataclass(frozen=True)
class Averages:
    """Means over samples and their standard errors, equally shaped; NaN where nothing is defined."""

    value: Array
    se: Array


@dataclass(frozen=True)
class Recency:
    """Whether mean scores show recency bias (Kim et al. 2026, Definition 1), and the step that decides it.

    `least` is the step S_i,j+1 − S_ij with the smallest mean in units of its standard error, `query` and
    `key` are its i and j (from 0).
    """

    verdict: Literal["yes", "no", "undecided"]
    least: Estimate
    query: int
    key: int


@dataclass(frozen=True)
class RecencyResult:
    """The samples of a `RecencyModel`, counted. Layers are numbered from 1 in words, from 0 in arrays."""

    model: RecencyModel
    seed: int
    engine: str
    tally: Tally

    @property
    def samples(self) -> int:
        """How many samples were drawn."""
        return self.tally.count

    @property
    def recency_probability(self) -> tuple[Estimate, ...]:
        """Per layer, controlled by the first. Raises `InvalidValueError` for fewer than 3 tokens."""
        return self._estimates(self._controlled_shares(), fitted=2)

    @property
    def plain_recency_probability(self) -> tuple[Estimate, ...]:
        """Per layer, the share of triples as it is. Raises `InvalidValueError` for fewer than 3 tokens."""
        return self._estimates(self._plain(self._shares), fitted=1)

    @property
    def adjacency_probability(self) -> tuple[Estimate, ...]:
        """Per layer, the chance that S_i,i−1 > S_ik for keys k < i − 1: of the neighbour against another key.

        The triples of the recency probability with j = i − 1, controlled like it; ½ is no preference. Under
        LayerNorm S_ij/√d is the cosine of the centred states of two tokens (before a first "post" norm it is an
        inner product). Our reading of the adjacency probability of Zuo et al. 2025, by which Kim et al. say that
        theirs is inspired: they do not repeat its definition. Raises `InvalidValueError` for fewer than 3 tokens.
        """
        near = self.by_distance
        return self._estimates(np.stack([near.value[:, 1:2], near.se[:, 1:2]]), fitted=2)

    @property
    def by_query(self) -> Averages:
        """Recency probability [layer, query]; NaN for the first two queries, which have no two earlier keys."""
        return self._padded(0, (2, 0))

    @property
    def by_gap(self) -> Averages:
        """Recency probability [layer, gap] by the distance j − k between the two keys, 1 to tokens − 2."""
        return self._padded(1, (1, 1))

    @property
    def by_distance(self) -> Averages:
        """Recency probability [layer, distance] by that of the nearer key, i − j, 1 to tokens − 2."""
        return self._padded(2, (1, 1))

    @property
    def mean_scores(self) -> Averages:
        """Mean scores [layer, query, key]; NaN above the diagonal and where the mask admits no pair."""
        scores = self._plain(slice(0, self.tally.layout.pairs))
        scores[..., ~self.tally.layout.seen] = np.nan
        return self._triangle(scores, *np.tril_indices(self.model.tokens))

    @property
    def mean_attention(self) -> Averages:
        """Mean attention [layer, query, key]; NaN above the diagonal."""
        layout = self.tally.layout
        attention = self._plain(slice(layout.attention, layout.steps))
        return self._triangle(attention, *np.tril_indices(layout.tokens))

    @property
    def steps(self) -> Averages:
        """Mean of S_i,j+1 − S_ij [layer, query, key j < i], controlled below the diagonal; else NaN.

        Of pairs that the mask does not admit, too.
        """
        part = slice(self.tally.layout.steps, self.tally.layout.rises)
        row, column = np.tril_indices(self.model.tokens, -1)
        steps = np.where(column + 1 == row, self._plain(part), self._controlled(part, 0.0))
        return self._triangle(steps, row, column)

    @property
    def rises(self) -> Averages:
        """Mean of S_ij − S_i0 [layer, query, key j < i], controlled; 0 for the first key, else NaN."""
        part = slice(self.tally.layout.rises, self.tally.layout.shares)
        row, column = np.tril_indices(self.model.tokens - 1, -1)
        rises = self._triangle(self._controlled(part, 0.0), row + 1, column + 1)
        rises.value[:, 1:, 0] = rises.se[:, 1:, 0] = 0.0
        return rises

    def exhibits_recency(self) -> tuple[Recency, ...]:
        """Definition 1 of the mean scores, layer by layer, at 95 %.

        "yes" if every step between two keys that the mask admits is surely positive (each on its own: one that
        is not refutes it), "no" if one is surely not, allowing for the number of steps tried.
        """
        steps = self.steps
        row, column = np.tril_indices(self.model.tokens, -1)
        answers = []
        for layer in range(self.model.depth):
            value, se = steps.value[layer, row, column], steps.se[layer, row, column]
            with np.errstate(divide="ignore", invalid="ignore"):
                sure = np.where(se > 0, value / se, np.sign(value) * np.inf)
            sure = np.where(np.isnan(sure), 0.0, sure)
            allowed = self.model.mask.allowed(self.model.tokens)
            sure = np.where(allowed[row, column] & allowed[row, column + 1], sure, np.inf)
            worst = int(np.argmin(sure))
            verdict = "undecided"
            if sure[worst] > ndtri(1.0 - LEVEL):
                verdict = "yes"
            elif sure[worst] < ndtri(LEVEL / sure.size):
                verdict = "no"
            if layer == 0 and self.model.tokens > 2:
                verdict = "no"  # tokens are alike there: equal means are not an estimate
            least = Estimate(float(value[worst]), float(se[worst]), self.samples)
            answers.append(Recency(verdict, least, int(row[worst]), int(column[worst])))
        return tuple(answers)

    # --- moments: pairs of means and standard errors ---------------------------------------------------

    def _plain(self, part: slice) -> Pair:
        squares = self.tally.squares[:, part]
        return np.stack([self.tally.mean[:, part], _error(squares, self.samples, 1)])

    def _controlled(self, part: slice, known: float) -> Pair:
        """Means of the later layers as regression on the first layer puts them, whose mean is `known`."""
        value, se = pair = self._plain(part)
        squares, controls = self.tally.squares[:, part], self.tally.squares[0, part]
        first = self.tally.layout.steps
        products = self.tally.products[:, part.start - first : part.stop - first]
        slope = np.divide(products, controls, out=np.zeros_like(products), where=controls > 0)[1:]
        value[1:] -= slope * (value[0] - known)
        # where two layers agree in every digit, what is left of the variance is no less than rounding
        left = squares[1:] - slope * products[1:]
        se[1:] = _error(np.maximum(left, 4 * np.finfo(float).eps * squares[1:]), self.samples, 2)
        return pair

    @property
    def _shares(self) -> slice:
        layout = self.tally.layout
        if layout.tokens < 3:
            raise _few(layout.tokens)
        return slice(layout.shares, layout.size)

    def _controlled_shares(self) -> Pair:
        pair = self._controlled(self._shares, 0.5)
        # no finer than one triple of one sample: none of them changed sides, that does not mean none can
        triples = self.tally.layout.triples
        with np.errstate(divide="ignore"):
            pair[1, 1:] = np.maximum(pair[1, 1:], 1.0 / (triples * self.samples))
        pair[..., triples == 0] = np.nan
        return pair

    def _padded(self, group: int, width: tuple[int, int]) -> Averages:
        """Group `group` of the shares (by query, by gap, by distance), with NaN before and after it."""
        kinds = self.model.tokens - 2
        pair = self._controlled_shares()[..., 1 + group * kinds : 1 + (group + 1) * kinds]
        return Averages(*np.pad(pair, ((0, 0), (0, 0), width), constant_values=np.nan))

    def _estimates(self, shares: Pair, *, fitted: int) -> tuple[Estimate, ...]:
        freedom = float(max(1, self.samples - fitted))
        pairs = shares[..., 0].T.tolist()
        return tuple(Estimate(value, se, self.samples, freedom) for value, se in pairs)

    def _triangle(self, entries: Pair, query: Places, key: Places) -> Averages:
        """Entries of a triangle at their places, as matrices with NaN elsewhere."""
        tokens = self.model.tokens
        full = np.full((2, self.model.depth, tokens, tokens), np.nan)
        full[..., query, key] = entries
        return Averages(*full)


def _error(squares: Array, samples: int, fitted: int) -> Array:
    """Standard errors of means from centred squares, `fitted` numbers having been fitted to the samples."""
    if samples <= fitted:
        return np.full_like(squares, np.nan)
    return np.sqrt(squares / (samples - fitted) / samples)


# --- running ----------------------------------------------------------------------------------------------------


class InterruptedSimulation(KeyboardInterrupt):
    """Ctrl-C during a simulation; `result` holds the samples counted until then (None before the first)."""

    def __init__(self, result: RecencyResult | None):
        super().__init__(f"{result.samples if result else 0:,} samples were counted")
        self.result = result


def simulate_recency(
    model: RecencyModel,
    samples: int | None = None,
    *,
    seed: int = 0,
    until_se: float | None = None,
    threads: int | None = None,
    engine: EngineName = "gram",
    on_event: OnEvent | None = None,
) -> RecencyResult:
    """Draw `samples` inputs of `model` and count what its layers make of them.

    Default: a million samples; or, with `until_se`, as many as it takes for every layer's recency probability
    to be that sure (then `samples` is the most). `engine` "gram" is exact in distribution at a cost that does
    not depend on d; "token_space" is the plain simulation, on one thread. `threads` (default: all cores)
    share out blocks of samples; on one kind of processor seed and samples fix every byte of the result, and a
    longer run begins with the samples of a shorter one. `on_event` counts samples; with `until_se` their total is
    what the errors so far let expect, at first None. Memory does not grow with `samples`.

    Raises `InvalidValueError` for samples or threads < 1, until_se that is not finite or not above 0, or with
    fewer than 3 tokens, a seed that is no integer ≥ 0, an unknown engine, a mask that "gram" cannot have;
    `InterruptedSimulation` on Ctrl-C, with what was counted.
    Source: Kim et al. 2026, Section 3.
    """
    _check(model, samples, until_se)
    sequence(seed, "check")
    module = import_module(f"posbias.simulation.{one_of('engine', engine, ENGINES)}")
    workers = cores(threads) if engine == "gram" else 1
    most = samples if samples is not None else (MOST if until_se is not None else 1_000_000)
    tally = Tally(Layout(model.tokens, model.mask), model.depth)
    require(module.memory(model) * workers + 5 * workers * tally.nbytes, "tokens", model.tokens)

    def result() -> RecencyResult:
        return RecencyResult(model, seed, engine, tally)

    looked, wanted = 0, (most if until_se is None else None)
    with ExitStack() as stack:
        try:
            blocks = _blocks(stack, module, model, seed, most, workers)
            for block in blocks:
                tally.merge(block)
                sure = False
                if until_se is not None and (
                    tally.count // ROUND > looked or tally.count >= (wanted or most)
                ):
                    looked = tally.count // ROUND
                    worst = max(p.se for p in result().recency_probability)
                    sure = worst <= until_se
                    wanted = (
                        tally.count if sure else min(most, int(tally.count * (worst / until_se) ** 2) + 1)
                    )
                if on_event:
                    on_event(Event(tally.count, wanted, "sample"))
                if sure:
                    break
        except KeyboardInterrupt:
            raise InterruptedSimulation(result() if tally.count else None) from None
    return result()


simulate = simulate_recency
"""The verb `posbias.simulate`."""


def _blocks(
    stack: ExitStack, module: ModuleType, model: RecencyModel, seed: int, samples: int, workers: int
) -> Iterator[Tally]:
    """The tallies of all blocks in their order, a few of them computed ahead."""
    size = module.block_size(model)
    whole, rest = divmod(samples, size)
    jobs = ((block, size if block < whole else rest) for block in range(whole + (rest > 0)))
    pool = ThreadPoolExecutor(workers)
    stack.callback(pool.shutdown, wait=True, cancel_futures=True)
    waiting = deque(pool.submit(module.run_block, model, seed, *job) for job in islice(jobs, 4 * workers))
    while waiting:
        tally = waiting.popleft().result()
        waiting.extend(pool.submit(module.run_block, model, seed, *job) for job in islice(jobs, 1))
        yield tally


def _check(model: RecencyModel, samples: int | None, until_se: float | None) -> None:
    if not isinstance(model, RecencyModel):
        raise wrong("model", "a RecencyModel", model)
    if samples is not None:
        whole("samples", samples, 1)
    if until_se is not None:
        positive("until_se", until_se)
        if model.tokens < 3:
            raise _few(model.tokens)


def _few(tokens: int) -> PosbiasError:
    return wrong("tokens", "at least 3 for a recency probability", tokens)
