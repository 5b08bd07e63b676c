"""Jobs on a language model: computed once, found by their files from then on, resumed after an interruption."""

import itertools
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from posbias.cli.output import progress
from posbias.core.events import Event, OnEvent
from posbias.core.files import clear_leftovers
from posbias.core.interruption import Pace

if TYPE_CHECKING:
    import xarray as xr

    from posbias.measurement.sharing import Group

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class JobFiles:
    """How a kind of job is kept: the name of its file in a folder, what reads and writes it, and two verbs."""

    name: str
    load: "Callable[[Path], xr.Dataset]"
    save: "Callable[[xr.Dataset, Path], Path]"
    done: str
    does: str

    def find(self, place: Path, fingerprint: str, rerun: bool) -> tuple[Path, bool]:
        """A job's file, and whether it is finished, as `file_of`. Raises as `load`."""
        return file_of(
            place, self.name, lambda file: self.load(file).attrs.get("fingerprint"), fingerprint, rerun
        )


def file_of(
    place: Path, name: str, held: Callable[[Path], object], fingerprint: str, rerun: bool = False
) -> tuple[Path, bool]:
    """The file of a job, and whether it is finished: else, or with `rerun`, the first name that is free.

    `place` is a .nc file or the folder of a file `name`; `held` is the fingerprint in a file. Those of other jobs
    stay.
    """
    stem, suffix = (place.stem, ".nc") if place.suffix == ".nc" else (place.name, "")
    for number in itertools.count(1):
        # a.nc, a-2.nc, …, or folder, folder-2, …
        spot = place.with_name(f"{stem}{f'-{number}' if number > 1 else ''}{suffix}")
        file = spot if suffix else spot / name
        if not file.exists():
            return file, False
        if held(file) == fingerprint and not rerun:
            return file, True
    raise AssertionError


def computed_once(
    files: JobFiles,
    place: Path,
    fingerprint: str,
    prompts: int,
    compute: "Callable[..., xr.Dataset]",
    rerun: bool,
    processes: "Group",
) -> "tuple[xr.Dataset, Path] | None":
    """A job's dataset and its file: read where it is finished, else computed with a bar and a checkpoint.

    `compute` takes `checkpoint` and `on_event`. Of several processes, all compute and the first one writes; the
    others get None. KeyboardInterrupt says how many prompts are kept.
    """
    from posbias.measurement import discard_checkpoint

    file, finished = processes.exchange(files.find(place, fingerprint, rerun))[0]
    checkpoint = file.with_name(f".{file.stem}-{fingerprint[:12]}.partial.safetensors")
    if finished:
        if not processes.first:
            return None
        discard_checkpoint(checkpoint)  # of a run that was killed when it had written the file
        log.info("already %s: %s (--rerun %s anew)", files.done, file, files.does)
        return files.load(file), file
    clear_leftovers(file.parent)
    with resumable(prompts) as on_event:
        dataset = compute(checkpoint=checkpoint, on_event=on_event)
    if processes.first:
        files.save(dataset, file)
        discard_checkpoint(checkpoint)
    processes.exchange(None)
    return (dataset, file) if processes.first else None


@contextmanager
def resumable(prompts: int) -> Iterator[OnEvent]:
    """Progress on so many prompts; KeyboardInterrupt says how many of them are kept."""
    done, first, pace = 0.0, None, Pace()
    with progress() as show:

        def on_event(event: Event) -> None:
            nonlocal done, first
            done = event.done
            first = done if first is None else first
            show(event)

        try:
            yield on_event
        except KeyboardInterrupt:
            said = f"{done:.0f} of {prompts} prompts are kept"
            raise KeyboardInterrupt(pace.goes_on(said, done - (first or 0), prompts - done)) from None
