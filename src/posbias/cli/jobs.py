"""Jobs on a language model: their files, found finished or to be written, and what an interruption leaves."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from posbias.cli.output import progress
from posbias.events import Event, OnEvent

if TYPE_CHECKING:
    import xarray as xr


def file_of(
    place: Path, name: str, fingerprint: str, load: "Callable[[Path], xr.Dataset]", rerun: bool
) -> tuple[Path, bool]:
    """A job's file, and whether it is finished: else, or with `rerun`, the first name that is free.

    `place` is a .nc file or the folder of a file `name`; files of other jobs stay. Raises as `load`.
    """
    for spot in _beside(place):
        file = spot if spot.suffix == ".nc" else spot / name
        if not file.exists():
            return file, False
        if load(file).attrs.get("fingerprint") == fingerprint and not rerun:
            return file, True
    raise AssertionError


def _beside(place: Path) -> Iterator[Path]:
    """`place` and the names beside it: a.nc, a-2.nc, …, or folder, folder-2, …"""
    stem, suffix = (place.stem, ".nc") if place.suffix == ".nc" else (place.name, "")
    return (place.with_name(f"{stem}{f'-{n}' if n > 1 else ''}{suffix}") for n in itertools.count(1))


@contextmanager
def resumable(prompts: int) -> Iterator[OnEvent]:
    """A bar of prompts; KeyboardInterrupt says how many are kept."""
    done = 0.0
    with progress() as show:

        def on_event(event: Event) -> None:
            nonlocal done
            done = event.done
            show(event)

        try:
            yield on_event
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"{done:.0f} of {prompts} prompts are kept, the same command goes on from there"
            ) from None
