"""The prompts of a job, one after another: what is finished is kept, what fails is counted, what does not fit
is tried again with less.

A prompt whose activations are not finite is skipped. When memory runs out, layers are computed again instead of
remembered, then blocks of queries are halved, and the prompt is tried once more. Under several processes each
does a share of the prompts that none has finished; the first also takes over checkpoints that are left of
processes which this run does not have.
"""

import logging
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from posbias.core.errors import InputFileError, InvalidValueError, ModelError, NonFiniteError
from posbias.core.events import Event, OnEvent
from posbias.core.store import Checkpoint
from posbias.measurement.accumulate import Arrays, State
from posbias.measurement.capture import scores
from posbias.measurement.checkpoint import begun, of_rank, ranked
from posbias.measurement.prompt_meter import PromptMeter
from posbias.measurement.quantities.influence import Economy
from posbias.measurement.sharing import Group
from posbias.measurement.texts.prompts import Prompts

log = logging.getLogger(__name__)
Skipped = dict[int, str]
"""Prompts left out, and why."""
_NO_MEMORY = re.compile(r"out of memory|not enough memory|can't allocate memory|cannot allocate memory", re.I)
PATIENCE = 10
"""Times the expected seconds of a prompt after which a person is told."""
_HALVINGS = 6
"""Blocks of 64 MB are halved down to 1 MB before giving up."""


class Frugal:
    """Measures the prompts that were drawn by their numbers, with less memory each time that there is not enough.

    `spare` finds out what the passes need not remember; it is asked once, when memory first runs out.
    """

    def __init__(self, meter: PromptMeter, drawn: Prompts, spare: Callable[[], Economy]):
        self._meter, self._drawn, self._halvings = meter, drawn, 0
        self._spare: Callable[[], Economy] | None = spare

    def measure(self, index: int) -> tuple[Arrays, Arrays]:
        """A prompt's sample and row. Raises as `PromptMeter.measure`, `InvalidValueError` for want of memory."""
        prompt = f"prompt {index} ({self._drawn.place(index)})"
        while True:
            try:
                with scores.halved(self._halvings):
                    return self._meter.measure(self._drawn.ids[index], prompt)
            except (MemoryError, RuntimeError) as error:
                if not _is_out_of_memory(error):
                    raise
                self._spare_memory(prompt, error)
            if torch.cuda.is_available():
                torch.cuda.empty_cache()

    def _spare_memory(self, prompt: str, error: BaseException) -> None:
        saving = self._meter.economy
        if self._spare is not None and (saving is None or not saving.recompute):
            log.warning("%s: out of memory; from here on layers are computed again, not remembered", prompt)
            spare, self._spare = self._spare, None
            try:
                self._meter.economy = spare()
            except (MemoryError, RuntimeError) as failure:
                if not _is_out_of_memory(failure):
                    raise
        elif self._halvings < _HALVINGS:
            self._halvings += 1
            size = scores.BLOCK_BYTES >> self._halvings >> 20
            log.warning("%s: out of memory; going on with blocks of at most %d MB", prompt, size)
        else:
            tokens = self._drawn.ids.shape[1]
            raise InvalidValueError(
                f"tokens: {tokens} given, too many for the memory of this machine even in small blocks; fewer "
                "tokens needed, or attention 'sdpa' where the model has it"
            ) from error


class Stream:
    """Measures those of `total` prompts that a checkpoint lacks, by number, and keeps up the checkpoint.

    `measure` gives a prompt's sample, to be averaged, and its row, to be kept. A prompt that takes `PATIENCE`
    times the `expected` seconds gets a warning, once.
    """

    def __init__(
        self,
        measure: Callable[[int], tuple[Arrays, Arrays]],
        total: int,
        group: Group,
        on_event: OnEvent,
        expected: float | None = None,
    ):
        self._measure, self._total, self._group, self._on_event = measure, total, group, on_event
        self._expected = expected

    def run(self, path: Path | None, fingerprint: str) -> tuple[State, Skipped]:
        """Return the state of all prompts, the same in every process, and the prompts that were skipped.

        Raises what measuring raises, after the finished prompts have reached the checkpoint; `ModelError` when
        every prompt was skipped.
        """
        keeper, own = begun(of_rank(path, self._group.rank), fingerprint)
        state = self._adopted(own, path, fingerprint)
        shares = self._group.exchange(_indices(state))
        kept = _disjoint(shares)
        if self._group.rank not in kept:
            # an earlier run took these over into another checkpoint: they must not count twice
            keeper.forget()
            state = State()
        done = set().union(*(shares[rank] for rank in kept))
        mine = self._group.share([index for index in range(self._total) if index not in done])
        state, skipped = self._measured(state, mine, len(done), keeper)
        state = self._group.merged(state, State.merged)
        skipped = {index: why for one in self._group.exchange(skipped) for index, why in one.items()}
        if not state.finished:
            first = skipped[min(skipped)]
            raise ModelError(f"model: none of the {self._total} prompts could be measured; {first}")
        return state, dict(sorted(skipped.items()))

    def _measured(
        self, state: State, mine: list[int], before: int, keeper: Checkpoint
    ) -> tuple[State, Skipped]:
        """The state after this process's prompts; whatever stops it, finished ones reach the checkpoint."""
        skipped: Skipped = {}
        total = before + len(mine)
        try:
            self._on_event(Event(before, total, "prompt"))
            for done, index in enumerate(mine, start=before + 1):
                begin = time.perf_counter()
                try:
                    sample, row = self._measure(index)
                except NonFiniteError as error:
                    skipped[index] = str(error)
                    log.warning("%s: skipped", error)
                else:
                    # one assignment: an interruption sees the state before this prompt or after it
                    seconds = time.perf_counter() - begin
                    state = state.extended(sample, row, seconds, index)
                    self._compare(seconds, index)
                self._on_event(Event(done, total, "prompt"))
                keeper.keep_up(state.tensors)
            keeper.write(state.tensors)
        except BaseException as error:
            keeper.write_after(state.tensors, error)
            raise
        return state, skipped

    def _compare(self, seconds: float, index: int) -> None:
        """Say once that a prompt took much longer than expected."""
        if self._expected is None or seconds < PATIENCE * self._expected:
            return
        log.warning(
            "prompt %d took %.1f s, %.1f s were expected: something else may be using the cores (fewer --threads "
            "then help) or the memory",
            index,
            seconds,
            self._expected,
        )
        self._expected = None

    def _adopted(self, state: State, path: Path | None, fingerprint: str) -> State:
        """The first process's state with the finished prompts of processes that this run does not have."""
        if path is None or not self._group.first:
            return state
        for rank, place in ranked(path):
            if rank < self._group.size:
                continue
            try:
                _, left = begun(place, fingerprint)
            except InputFileError:
                continue  # another job's: nothing of ours
            if left.finished and not (_indices(left) & _indices(state)):
                state = state.merged(left)
        return state


def _indices(state: State) -> set[int]:
    return {int(row["index"]) for row in state.rows}


def _disjoint(shares: Sequence[set[int]]) -> list[int]:
    """The places of those shares that have no prompt in common with one kept before them."""
    kept: list[int] = []
    for place, share in enumerate(shares):
        if not any(share & shares[other] for other in kept):
            kept.append(place)
    return kept


def _is_out_of_memory(error: BaseException) -> bool:
    named = isinstance(error, (MemoryError, torch.OutOfMemoryError))
    return named or _NO_MEMORY.search(str(error)) is not None
