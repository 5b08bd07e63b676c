"""Running a simulation: blocks shared out to threads, counted in their order, until there are enough."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from importlib import import_module
from itertools import islice
from types import ModuleType
from typing import Literal

from posbias.core.arguments import one_of, positive, whole
from posbias.core.errors import InvalidValueError
from posbias.core.events import Event, OnEvent
from posbias.core.memory import require
from posbias.core.seeds import sequence
from posbias.simulation.model import RecencyModel
from posbias.simulation.result import RecencyResult
from posbias.simulation.tally import Layout, Tally
from posbias.theory.rollout.dispatch import cores

EngineName = Literal["gram", "token_space"]
ENGINES: tuple[EngineName, ...] = ("gram", "token_space")
ROUND = 2**17
"""Samples between two looks at how precise a simulation is, when it runs until it is precise enough."""
MOST = 10**12
"""Samples at which a simulation that runs until it is precise enough gives up."""


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
    if engine == "gram":
        module.check_mask(model)
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
    if samples is not None:
        whole("samples", samples, 1)
    if until_se is None:
        return
    positive("until_se", until_se)
    if model.tokens < 3:
        raise InvalidValueError(f"tokens: {model.tokens} given, at least 3 needed for a recency probability")
