"""The measurements behind tables and figures: made once, kept in a folder, found again by everything they decide.

A cell is one model on one corpus at one length. Its file's name says so, with the fingerprint of the job; the same
command finds it there and measures only what is missing. A model may also be a finished measurement (`.nc`), for
what took another machine. An interrupted cell resumes from its finished prompts.
"""

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posbias.core.errors import InputFileError, InvalidValueError, whole
from posbias.core.progress import Event, OnEvent
from posbias.core.running import Task, run
from posbias.measurement.models.sources import kind_of
from posbias.profiles.measurements import load_measurement, save_measurement
from posbias_papers.herasimchyk2026.configs import PROMPTS

if TYPE_CHECKING:
    import xarray as xr

log = logging.getLogger("posbias.papers")
CONTROL = " (scrambled)"
"""What the name of a corpus ends in whose prompts have their tokens shuffled."""


@dataclass(frozen=True)
class Corpus:
    """A text to cut prompts from (`None`: the bundled one), its tokens shuffled prompt by prompt if `scramble`.

    Prompts are windows of the running text, or, if `documents`, the beginnings of its documents.
    """

    source: str | None = None
    scramble: bool = False
    documents: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of `posbias.measure` that it is."""
        scramble: dict[str, Any] = {"scramble": True} if self.scramble else {}
        return {"text": self.source} | scramble | ({"packed": False} if self.documents else {})

    @property
    def words(self) -> list[str]:
        """What its files are called after."""
        name = "bundled" if self.source is None else Path(self.source).name
        return [name, *["documents"] * self.documents, *["scrambled"] * self.scramble]


@dataclass(frozen=True)
class Effort:
    """How much is measured: the most prompts of each length; fewer where the text has no more."""

    name: str
    prompts: int
    longest: int | None = None


EFFORTS = {"quick": Effort("quick", 32, 512), "full": Effort("full", PROMPTS)}
"""32 prompts, λ at no more than 512 tokens; the paper's 1,000 prompts."""


@dataclass(frozen=True)
class Key:
    """What a cell is of: model and corpus by name, and the length of its prompts."""

    model: str
    corpus: str
    tokens: int


Cells = Mapping[Key, "xr.Dataset"]
Lengths = Mapping[int, bool]
"""Lengths of prompts to measure, each with whether mean content matrices are kept too."""


def gather(
    models: Sequence[str],
    corpora: Mapping[Corpus, Lengths],
    folder: Path,
    effort: Effort,
    *,
    seed: int = 0,
    again: bool = False,
    threads: int | None = None,
    on_event: OnEvent | None = None,
    loading: Mapping[str, Any] | None = None,
) -> "dict[Key, xr.Dataset]":
    """The measurement of every model on every corpus at its lengths, from `folder` where it has them.

    Lengths beyond a model's context, and those of which the text has no prompt, are left out, and logged.
    `on_event` gets the events of all measurements together; `loading` are arguments of
    `posbias.measurement.load_model`. Raises as that, `posbias.measure`, `load_measurement` and `save_measurement`;
    KeyboardInterrupt on Ctrl-C, naming the folder of finished measurements.
    """
    cells: dict[Key, Any] = {}
    options = {"corpora": corpora, "folder": folder, "effort": effort, "seed": seed, "again": again}
    options |= {"threads": threads, "loading": loading or {}}
    failed = run(
        {name: Task(_measure, {"name": name, **options}, name) for name in models},
        lambda name, measured: cells.update((_key(cell), cell) for cell in measured),
        unit="model",
        on_event=on_event,
        kept=lambda: f"finished measurements and the running one's finished prompts are kept in {folder}",
    )
    for failure in failed.values():
        raise failure.error()
    return cells


def _measure(name: str, on_event: OnEvent, **options: Any) -> "list[xr.Dataset]":
    """All cells of a model; no reference to it is kept."""
    if name.endswith(".nc"):
        return [load_measurement(name)]
    from posbias.measurement.models.formats import let_go

    cells = [*_cells(name, on_event, **options)]
    let_go()
    return cells


def _cells(
    name: str,
    on_event: OnEvent,
    *,
    corpora: Mapping[Corpus, Lengths],
    folder: Path,
    effort: Effort,
    seed: int,
    again: bool,
    threads: int | None,
    loading: Mapping[str, Any],
) -> "Iterator[xr.Dataset]":
    from posbias.measurement import load_model
    from posbias.measurement.run import for_length

    loaded = load_model(name, **loading)
    loaded.need_causal("the paper's theory")
    attention, jobs = loaded.attention, [*_jobs(loaded, corpora, effort, seed)]
    for place, (corpus, job) in enumerate(jobs):

        def part(event: Event, place: int = place) -> None:
            on_event(Event(place + event.share, len(jobs), "measurement"))

        if loaded.attention != attention:
            loaded.model.set_attn_implementation(attention)
        fitting = loaded if loading.get("attention") else for_length(loaded, job["tokens"])
        yield _cell(fitting, corpus, job, folder, again, threads=threads, on_event=part)


def _jobs(
    loaded: Any, corpora: Mapping[Corpus, Lengths], effort: Effort, seed: int
) -> Iterator[tuple[Corpus, dict[str, Any]]]:
    """What a model is to be measured on: corpus by corpus the arguments of `posbias.measure`."""
    from posbias.measurement import read_text

    context = getattr(loaded.model.config, "max_position_embeddings", None) or 10**9
    for corpus, lengths in corpora.items():
        text = read_text(corpus.source)
        stretches = text.documents if corpus.documents else [text.content]
        ids = (
            loaded.tokenizer(part, add_special_tokens=False, verbose=False)["input_ids"] for part in stretches
        )
        sizes = [len(part) for part in ids]
        for tokens, dense in lengths.items():
            available = sum(min(size // tokens, 1) if corpus.documents else size // tokens for size in sizes)
            prompts = min(available, effort.prompts) if tokens <= context else 0
            if prompts < effort.prompts:
                of = f"{loaded.name} on {text.name} at {tokens} tokens"
                log.info("%s: %s", of, f"all of its {prompts} prompts" if prompts else "left out, too long")
            if prompts:
                sizes_of = {"tokens": tokens, "prompts": prompts, "seed": seed, "dense_logits": dense}
                yield corpus, corpus.options | sizes_of


def _cell(
    loaded: Any, corpus: Corpus, job: dict[str, Any], folder: Path, again: bool, **how: Any
) -> "xr.Dataset":
    """A cell, measured unless the folder has it; one with mean content matrices serves where none are wanted."""
    from posbias import measurement as measuring

    parts = [loaded.name, *corpus.words, f"{job['tokens']}x{job['prompts']}"]
    stem = re.sub(r"[^\w.+-]+", "_", "-".join(parts))
    digits = [measuring.job_fingerprint(loaded, **one)[:12] for one in (job, job | {"dense_logits": True})]
    places = [[folder / f"{stem}-{one}.nc", *sorted(folder.glob(f"{stem}-{one}-*.nc"))] for one in digits]
    existing = [files[-1] for files in places if files[0].exists()]
    if existing and not again:
        return load_measurement(existing[0])
    # nothing is overwritten: the same job measured again is NAME-2.nc
    path, *later = places[0]
    path = path.with_name(f"{path.stem}-{len(later) + 2}.nc") if path.exists() else path
    checkpoint = path.with_suffix(".partial.npz")
    measured = measuring.measure(loaded, **job, checkpoint=checkpoint, **how)
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


def check_models(models: Sequence[str]) -> None:
    """Raise `InputFileError` for a `.nc` that is none, `ModelError` for what can be no model; none is loaded."""
    for name in models:
        if name.endswith(".nc"):
            if not Path(name).is_file():
                raise InputFileError(f"models: expected a file, got {name}")
        elif name != "none":
            kind_of(name)


def check(
    models: Sequence[str], corpora: Sequence[str | None], lengths: Sequence[int], effort: Effort
) -> None:
    """Raise `InvalidValueError` for what no model could be measured on: nothing, a bad count, the same twice."""
    # a cell is known by the name of its text, which for files is that without folders
    texts = [one if one is None or one.startswith("datasets:") else Path(one).name for one in corpora]
    every: dict[str, list[Any]] = {"models": [*models], "corpora": texts, "lengths": [*lengths]}
    for name, values in every.items():
        if not values or len({*values}) < len(values):
            raise InvalidValueError(f"{name}: expected at least one, with different names, got {values}")
    check_models(models)
    for tokens in lengths:
        whole("lengths", tokens, 3)
    whole("prompts", effort.prompts, 2)
