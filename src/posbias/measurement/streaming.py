"""The prompts of a job, one after another, shared among processes, each with a checkpoint of its own.

Under `torchrun` every process measures its share of the prompts and holds sums and rows of its own; the first one
takes the others' one after another, and gives the whole to all. States travel as Python objects on the CPU, so
gloo serves machines with and without GPUs. A process that ends early takes the others with it; what was finished
is in the checkpoints, and counts for the next run, however many processes that one has. Every process has one
checkpoint, since kernels make a state of one prompt as large as that of all: a file for each range of prompts
would not fit.
"""

import datetime
import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch.distributed as dist

from posbias.core.errors import InputFileError, ModelError, NonFiniteError, WorkerError
from posbias.core.progress import Event, OnEvent
from posbias.core.store import Checkpoint, file_of_job
from posbias.measurement.result import Arrays, Quantities, State

if TYPE_CHECKING:
    import xarray as xr

log = logging.getLogger(__name__)
PATIENCE = datetime.timedelta(hours=24)
"""How long a process waits for the others' results."""
_SHARE = 20
"""Writing a checkpoint takes one of so many parts of the time at most."""
T = TypeVar("T")


@dataclass(frozen=True)
class Group:
    """The processes of one measurement: `rank` of `size`, and `local_rank` on this machine."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and speaks."""
        return self.rank == 0

    def exchange(self, thing: T) -> list[T]:
        """Return what every process gave, in the order of ranks. Raises `WorkerError` if one is gone."""
        if self.size == 1:
            return [thing]
        everyone: list[Any] = [None] * self.size
        with _missing_the_others():
            dist.all_gather_object(everyone, thing)
        return everyone

    def merged(self, state: State) -> State:
        """Return one state of every process's, the same to all; two are in memory at a time.

        Raises `WorkerError` if a process is gone.
        """
        if self.size == 1:
            return state
        with _missing_the_others():
            for rank in range(1, self.size):
                if self.first:
                    received: list[Any] = [None]
                    dist.recv_object_list(received, src=rank)
                    state.merge(received[0])
                elif self.rank == rank:
                    dist.send_object_list([state], dst=0)
            whole: list[Any] = [state if self.first else None]
            dist.broadcast_object_list(whole, src=0)
        return whole[0]

    def resume(
        self, path: Path | None, fingerprint: str, quantities: Quantities
    ) -> tuple[Checkpoint, State, set[int]]:
        """This process's checkpoint, the state in it, and the prompts that any process has finished.

        The first process also takes over what processes that this run does not have left next to `path`. A prompt
        that two checkpoints hold counts once: the later one of the two is forgotten.
        """
        checkpoint = Checkpoint(_of_rank(path, self.rank), fingerprint, _SHARE, least=0.0)
        state = _stored(checkpoint, quantities)
        for rank, place in _left_over(path) if self.first else ():
            if rank >= self.size:
                try:
                    left = _stored(Checkpoint(place, fingerprint, _SHARE), quantities)
                except InputFileError:
                    continue  # another job's
                if not left.rows.keys() & state.rows.keys():
                    state.merge(left)
        if state.rows:
            log.info("resuming after %d finished prompts from %s", len(state.rows), path)
        done: set[int] = set()
        for rank, held in enumerate(self.exchange({*state.rows})):
            if not held & done:
                done |= held
            elif rank == self.rank:
                checkpoint.forget()
                state = State(quantities)
        return checkpoint, state, done


ALONE = Group()


def discard_checkpoint(path: str | Path) -> None:
    """Remove a checkpoint whose measurement has been stored, those of further processes too.

    A missing file is fine.
    """
    for place in (Path(path), *(place for _, place in _left_over(Path(path)))):
        place.unlink(missing_ok=True)


def _stored(checkpoint: Checkpoint, quantities: Quantities) -> State:
    """The state in a checkpoint, empty if there is none. Raises `InputFileError` for another job's."""
    stored = checkpoint.load()
    # an older version left no prompts
    return State.of(stored, quantities) if stored and "prompts" in stored.note else State(quantities)


def _of_rank(path: Path | None, rank: int) -> Path | None:
    """Where a process keeps its checkpoint: job.ending for the first, job.1.ending, job.2.ending, … for others."""
    return path if path is None or rank == 0 else path.with_name(f"{path.stem}.{rank}{path.suffix}")


def _left_over(path: Path | None) -> list[tuple[int, Path]]:
    """The checkpoints next to `path` that processes other than the first left, by their number."""
    if path is None or not path.parent.is_dir():
        return []
    ours = re.compile(rf"{re.escape(path.stem)}\.([1-9]\d*){re.escape(path.suffix)}")
    found = [(ours.fullmatch(place.name), place) for place in path.parent.iterdir()]
    return sorted((int(match[1]), place) for match, place in found if match)


@contextmanager
def group() -> Iterator[Group]:
    """The processes that `torchrun`, or what else sets RANK and WORLD_SIZE, started, or this one alone."""
    if "RANK" not in os.environ or int(os.environ.get("WORLD_SIZE", "1")) < 2:
        yield ALONE
        return
    ours = not dist.is_initialized()
    if ours:
        with _missing_the_others():
            dist.init_process_group("gloo", timeout=PATIENCE)
    try:
        yield Group(dist.get_rank(), dist.get_world_size(), int(os.environ.get("LOCAL_RANK", "0")))
    finally:
        if ours and dist.is_initialized():
            dist.destroy_process_group()


@contextmanager
def _missing_the_others() -> Iterator[None]:
    """Say in a line that another process is gone: gloo speaks of closed connections."""
    try:
        yield
    except RuntimeError as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise WorkerError(
            f"torchrun: another process of this measurement is gone ({first}); finished prompts are kept, the "
            "same command goes on from there"
        ) from error


def find_or_compute(
    place: Path,
    kind: str,
    fingerprint: str,
    load: Callable[[Path], "xr.Dataset"],
    save: Callable[["xr.Dataset", Path], object],
    compute: Callable[..., "xr.Dataset"],
    *,
    rerun: bool = False,
    processes: Group = ALONE,
) -> "tuple[xr.Dataset, Path] | None":
    """A job's dataset and its file: read where it is finished, else computed and written.

    `place` is the .nc file, or the folder of a file KIND.nc; one of another job stays, and the new one is written
    next to it (`file_of_job`), as with `rerun`. `compute` takes the `checkpoint` to resume from. Of several
    processes, all compute and the first one writes; the others get None.
    """
    held = file_of_job(place, f"{kind}.nc", lambda it: load(it).attrs.get("fingerprint"), fingerprint, rerun)
    file, finished = processes.exchange(held)[0]
    checkpoint = file.with_name(f".{file.stem}-{fingerprint[:12]}.partial.npz")
    dataset = load(file) if finished else compute(checkpoint=checkpoint)
    if finished:
        log.info("already there: %s (--rerun computes it anew)", file)
    elif processes.first:
        save(dataset, file)
    if processes.first:
        discard_checkpoint(checkpoint)  # that of a run too which was killed when it had written the file
    processes.exchange(None)
    return (dataset, file) if processes.first else None


Skipped = dict[int, str]
"""Prompts left out, and why."""


def over_prompts(
    measure: Callable[[int], Arrays],
    total: int,
    quantities: Quantities,
    *,
    checkpoint: Path | None = None,
    fingerprint: str = "",
    processes: Group = ALONE,
    on_event: OnEvent | None = None,
) -> tuple[State, Skipped]:
    """Measure those of `total` prompts that a checkpoint lacks, by number, and keep up the checkpoint.

    `measure` gives a prompt's `quantities`. Returns the state of all prompts, the same in every process, and the
    prompts that were skipped. Raises what measuring raises, after the finished prompts have reached the
    checkpoint; `ModelError` when every prompt was skipped.
    """
    keeper, state, finished = processes.resume(checkpoint, fingerprint, quantities)
    left = [index for index in range(total) if index not in finished]
    skipped: Skipped = {}
    tell = on_event or (lambda event: None)
    try:
        mine = left[processes.rank :: processes.size]
        first, last = len(finished), len(finished) + len(mine)
        for done, index in enumerate(mine, start=first):
            tell(Event(done, last, "prompt"))
            keeper.keep_up(state.tensors)
            begin = time.perf_counter()
            try:
                found = measure(index)
            except NonFiniteError as error:
                skipped[index] = str(error)
                log.warning("%s: skipped", error)
            else:
                state.add(index, found, time.perf_counter() - begin)
        tell(Event(last, last, "prompt"))
        keeper.write(state.tensors)
    except BaseException as error:
        keeper.write_after(state.tensors, error)
        raise
    state = processes.merged(state)
    skipped = {index: why for each in processes.exchange(skipped) for index, why in each.items()}
    if not state.rows:
        raise ModelError(f"model: none of the {total} prompts could be measured; {skipped[min(skipped)]}")
    return state, dict(sorted(skipped.items()))
