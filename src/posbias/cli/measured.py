"""A measurement as commands want it: found where it was stored, or measured, resumed, shared and stored."""

import itertools
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posbias.cli.asking import Loading, Prompting, need_model
from posbias.cli.speaking import say
from posbias.errors import InvalidValueError
from posbias.files import need_writable

if TYPE_CHECKING:
    import xarray as xr

    from posbias.measurement import LoadedModel
    from posbias.measurement.sharing import Group

Asked = dict[str, Any]
"""Arguments of `posbias.measure`."""


def results_of(model: str, prompting: Prompting, asked: Asked) -> Path:
    """Return results/NAME: model, tokens × prompts, and text and seed unless they are the default."""
    words = [Path(model).name, f"{asked['tokens']}x{asked['prompts']}", *prompting.words]
    words += [f"seed{asked['seed']}"] * bool(asked["seed"])
    return Path("results") / "-".join(words)


def cost_of(model: str, loading: Loading, asked: Asked, target: str | None) -> Any:
    """Return what a measurement would cost: memory, and time as one short prompt tells it."""
    need_model(model)
    _check(asked)
    from posbias import measurement as measuring

    loaded = loading.load(model, asked["tokens"])
    request = measuring.Request(**_with_target(asked, loaded, target))
    measuring.prepared(loaded, request)
    return measuring.estimate_cost(loaded, request)


def decoded(attribute: str) -> Any:
    """Return an attribute that holds JSON."""
    return json.loads(attribute)


def _check(asked: Asked) -> None:
    """Raise for what is wrong whatever the model, the text among it."""
    from posbias.measurement import Request

    unknown_yet = 0 if "target" in asked.get("influences", ()) else None
    _ = Request(**asked, target=unknown_yet).source


def _with_target(asked: Asked, loaded: "LoadedModel", target: str | None) -> dict[str, Any]:
    """The job, with the target's number in the model's vocabulary."""
    if target is None:
        return asked
    ids = loaded.tokenizer(target, add_special_tokens=False)["input_ids"]
    if len(ids) != 1:
        raise InvalidValueError(
            f"target: {target!r} given, which is {len(ids)} tokens of this model; text that is one needed"
        )
    return asked | {"target": int(ids[0])}


def measured(
    model: str,
    place: Path,
    loading: Loading,
    asked: Asked,
    again: bool,
    target: str | None = None,
) -> tuple["xr.Dataset", Path] | None:
    """Measure, or take what is there, and return it with its file.

    `place` is the .nc file to write, or the folder to write it in. A finished measurement of the same job is
    used as it is; one of another job stays, and the new one is written beside it (as with `again`). What an
    interruption leaves is resumed. Of several processes, all measure and the first one writes; the others get
    None.
    """
    # what can be known to be wrong is said before the model is loaded
    need_model(model)
    need_writable(place)
    _check(asked)
    from posbias.measurement.sharing import group

    with group() as processes:
        loaded = loading.load(model, asked["tokens"], processes.local_rank, processes.first)
        job = _with_target(asked, loaded, target)
        found, there = processes.exchange(_target(loaded, place, job, again))[0]
        if found:
            return _already(there) if processes.first else None
        return _made(loaded, there, job, processes)


def _target(loaded: "LoadedModel", place: Path, job: Asked, again: bool) -> tuple[bool, Path]:
    """Whether the job is finished already, and its file: the one found, or the first name that is free."""
    from posbias import measurement as measuring
    from posbias.store import load_measurement

    fingerprint = measuring.job_fingerprint(loaded, **job)
    places = _places(place)
    while (target := next(places)).exists():
        if load_measurement(target).attrs.get("fingerprint") == fingerprint and not again:
            return True, target
    return False, target


def _already(target: Path) -> tuple["xr.Dataset", Path]:
    from posbias.store import load_measurement

    say(f"already measured: {target} (--again measures anew)")
    return load_measurement(target), target


def _made(
    loaded: "LoadedModel", target: Path, job: Asked, processes: "Group"
) -> tuple["xr.Dataset", Path] | None:
    """Measure with a bar and a checkpoint beside the file, and write the file."""
    from posbias import measurement as measuring
    from posbias.store import save_measurement

    fingerprint = measuring.job_fingerprint(loaded, **job)
    checkpoint = target.with_name(f".{target.stem}-{fingerprint[:12]}.partial.npz")
    with _progress_bar() as (progress, seen):
        try:
            measurement = measuring.measure(loaded, checkpoint=checkpoint, progress=progress, say=say, **job)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"{seen[0]} of {job['prompts']} prompts are kept, the same command goes on from there"
            ) from None
    if processes.first:
        save_measurement(measurement, target)
        measuring.discard_checkpoint(checkpoint)
    processes.exchange(None)
    return (measurement, target) if processes.first else None


def _places(place: Path) -> Iterator[Path]:
    """`place` and the names beside it: a.nc, a-2.nc, …, or folder/measurement.nc, folder-2/measurement.nc, …"""
    for number in itertools.count(1):
        suffix = "" if number == 1 else f"-{number}"
        if place.suffix == ".nc":
            yield place.with_name(f"{place.stem}{suffix}.nc")
        else:
            yield place.with_name(place.name + suffix) / "measurement.nc"


@contextmanager
def _progress_bar() -> Iterator[tuple[Callable[[int, int], None], list[int]]]:
    """A bar of prompts on stderr: a function to call with (finished, total), and what it last heard."""
    from tqdm import tqdm

    seen = [0]
    bars: list[Any] = []

    def progress(finished: int, total: int) -> None:
        if not bars:
            bars.append(
                tqdm(total=total, initial=finished, unit="prompt", file=sys.stderr, dynamic_ncols=True)
            )
        bars[0].update(finished - bars[0].n)
        seen[0] = finished

    try:
        yield progress, seen
    finally:
        for bar in bars:
            bar.close()
