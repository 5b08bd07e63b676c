"""The measurements behind tables and figures: made once, kept in a folder, found again by everything they decide.

A cell is one model on the prompts of one `MeasurementJob`: a text, perhaps with the tokens of each prompt
shuffled, at one length. Its file's name says so, with the fingerprint of the job; the same command finds it there
and measures only what is missing. A model may also be a finished measurement (`.nc`), for what took another
machine. An interrupted cell resumes from its finished prompts.
"""

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posbias.core.errors import InputFileError, InvalidValueError, whole
from posbias.core.progress import Event, OnEvent
from posbias.core.running import Task, run
from posbias.measurement.job import MeasurementJob
from posbias.measurement.models.sources import kind_of
from posbias.profiles.measurements import load_measurement, save_measurement

if TYPE_CHECKING:
    import xarray as xr

    from posbias.measurement import LoadedModel

log = logging.getLogger("posbias.papers")
CONTROL = " (scrambled)"
"""What the name of a corpus ends in whose prompts have their tokens shuffled."""


@dataclass(frozen=True)
class Key:
    """What a cell is of: model and corpus by name, and the length of its prompts."""

    model: str
    corpus: str
    tokens: int


Cells = Mapping[Key, "xr.Dataset"]


def gather(
    models: Sequence[str],
    jobs: Sequence[MeasurementJob],
    folder: Path,
    *,
    again: bool = False,
    threads: int | None = None,
    on_event: OnEvent | None = None,
    loading: Mapping[str, Any] | None = None,
) -> "dict[Key, xr.Dataset]":
    """The measurement of every model for every job, from `folder` where it has them.

    Lengths beyond a model's context, and those of which the text has no prompt, are left out, and logged; of a
    shorter text all prompts are taken. `on_event` gets the events of all measurements together; `loading` are
    arguments of `posbias.measurement.load_model`. Raises as that, `posbias.measure`, `load_measurement` and
    `save_measurement`; KeyboardInterrupt on Ctrl-C, naming the folder of finished measurements.
    """
    cells: dict[Key, Any] = {}
    same = {"jobs": jobs, "folder": folder, "again": again, "threads": threads, "loading": loading or {}}
    failed = run(
        {name: Task(_measure, {"name": name, **same}, name) for name in models},
        lambda name, measured: cells.update((_key(cell), cell) for cell in measured),
        unit="model",
        on_event=on_event,
        kept=lambda: f"finished measurements and the running one's finished prompts are kept in {folder}",
    )
    for failure in failed.values():
        raise failure.error()
    return cells


def _measure(
    name: str,
    on_event: OnEvent,
    *,
    jobs: Sequence[MeasurementJob],
    folder: Path,
    again: bool,
    threads: int | None,
    loading: Mapping[str, Any],
) -> "list[xr.Dataset]":
    """All cells of a model; no reference to it is kept."""
    if name.endswith(".nc"):
        return [load_measurement(name)]
    from posbias.measurement import for_length, load_model
    from posbias.measurement.models.formats import let_go

    loaded = load_model(name, **loading)
    loaded.need_causal("the paper's theory")
    attention, fitting, cells = loaded.attention, [*_fitting(loaded, jobs)], []
    for place, job in enumerate(fitting):

        def part(event: Event, place: int = place) -> None:
            on_event(Event(place + event.share, len(fitting), "measurement"))

        if loaded.attention != attention:
            loaded.model.set_attn_implementation(attention)
        if not loading.get("attention"):
            loaded = for_length(loaded, job.tokens)
        cells.append(_cell(loaded, job, folder, again, threads=threads, on_event=part))
    del loaded
    let_go()
    return cells


def _fitting(loaded: "LoadedModel", jobs: Sequence[MeasurementJob]) -> Iterator[MeasurementJob]:
    """The jobs that a model can be measured for, each with as many prompts as its text has at most."""
    context = getattr(loaded.model.config, "max_position_embeddings", None) or 10**9
    sizes: dict[Any, list[int]] = {}
    for job in jobs:
        text, source = (job.text, job.packed), job.source
        if text not in sizes:
            parts = [source.content] if job.packed else source.documents
            ids = (loaded.tokenizer(one, add_special_tokens=False, verbose=False) for one in parts)
            sizes[text] = [len(one["input_ids"]) for one in ids]
        windows = [size // job.tokens for size in sizes[text]]
        available = sum(windows if job.packed else (min(count, 1) for count in windows))
        prompts = min(available, job.prompts) if job.tokens <= context else 0
        if prompts < job.prompts:
            of = f"{loaded.name} on {source.name} at {job.tokens} tokens"
            log.info("%s: %s", of, f"all of its {prompts} prompts" if prompts else "left out, too long")
        if prompts:
            yield replace(job, prompts=prompts)


def _cell(loaded: "LoadedModel", job: MeasurementJob, folder: Path, again: bool, **how: Any) -> "xr.Dataset":
    """A cell, measured unless the folder has it; one with mean content matrices serves where none are wanted."""
    from posbias import measurement as measuring

    text = "bundled" if job.text is None else Path(str(job.text)).name
    parts = [loaded.name, text, *["documents"] * (not job.packed), *["scrambled"] * job.scramble]
    stem = re.sub(r"[^\w.+-]+", "_", "-".join([*parts, f"{job.tokens}x{job.prompts}"]))
    denser = replace(job, dense_logits=True)
    digits = [measuring.job_fingerprint(loaded, one)[:12] for one in (job, denser)]
    places = [[folder / f"{stem}-{one}.nc", *sorted(folder.glob(f"{stem}-{one}-*.nc"))] for one in digits]
    existing = [files[-1] for files in places if files[0].exists()]
    if existing and not again:
        return load_measurement(existing[0])
    # nothing is overwritten: the same job measured again is NAME-2.nc
    path, *later = places[0]
    path = path.with_name(f"{path.stem}-{len(later) + 2}.nc") if path.exists() else path
    checkpoint = path.with_suffix(".partial.npz")
    measured = measuring.measure(loaded, job, checkpoint=checkpoint, **how)
    measured.attrs["parameters"] = sum(weights.numel() for weights in loaded.model.parameters())
    save_measurement(measured, path)
    measuring.discard_checkpoint(checkpoint)
    # as the next one will read it, so that both draw the same
    return load_measurement(path)


def names(keys: Iterable[Key], what: str) -> tuple[str, ...]:
    """The distinct models, corpora or lengths among some keys, in their order."""
    return tuple(dict.fromkeys(getattr(key, what) for key in keys))


def _key(measurement: "xr.Dataset") -> Key:
    attributes = measurement.attrs
    scrambled = json.loads(attributes.get("asked", "{}")).get("scramble", False)
    text = str(attributes.get("text", "")) + (CONTROL if scrambled else "")
    return Key(str(attributes.get("model", "")), text, measurement.sizes["position"])


def check(models: Sequence[str], corpora: Sequence[str | None], lengths: Sequence[int], prompts: int) -> None:
    """Check what can be known before a model is loaded.

    Raises `InvalidValueError` for what no model could be measured on (nothing, a bad count, the same twice),
    `InputFileError` for a `.nc` that is none, `ModelError` for what can be no model.
    """
    # a cell is known by the name of its text, which for files is that without folders
    texts = [one if one is None or one.startswith("datasets:") else Path(one).name for one in corpora]
    every: dict[str, list[Any]] = {"models": [*models], "corpora": texts, "lengths": [*lengths]}
    for name, values in every.items():
        if not values or len({*values}) < len(values):
            raise InvalidValueError(f"{name}: expected at least one, with different names, got {values}")
    check_models(models)
    for tokens in lengths:
        whole("lengths", tokens, 3)
    whole("prompts", prompts, 2)


def check_models(models: Sequence[str], argument: str = "models") -> None:
    """Raise `ModelError` for a name that can be no model, `InputFileError` for a `.nc` that is no file."""
    for name in models:
        if not name.endswith(".nc"):
            kind_of(name, argument)
        elif not Path(name).is_file():
            raise InputFileError(f"{argument}: expected a file, got {name}")
