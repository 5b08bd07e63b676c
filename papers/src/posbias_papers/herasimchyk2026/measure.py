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

from posbias.core.errors import InputFileError, InvalidValueError, shortened
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
    """How much is measured: prompts of each length (None: as many as the text has, at most `most`)."""

    name: str
    prompts: int | None
    most: int
    longest: int | None = None


EFFORTS = {"quick": Effort("quick", None, 32, 512), "full": Effort("full", None, PROMPTS)}
"""32 prompts, λ at no more than 512 tokens; the paper's 1,000 prompts. Or as many as the text has."""


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
    new: list[Key] | None = None,
    loading: Mapping[str, Any] | None = None,
) -> dict[Key, "xr.Dataset"]:
    """The measurement of every model on every corpus at the lengths wanted there, from `folder` where it has them.

    Lengths beyond a model's context, and those of which the text has no prompt, are left out, and said. `on_event`
    hears of all measurements together, `new` gets the keys of those that were not there; `loading` are arguments
    of `posbias.measurement.load_model`. Raises as that, `posbias.measure`, `load_measurement` and
    `save_measurement`; KeyboardInterrupt on Ctrl-C, saying what is kept.
    """
    cells: dict[Key, Any] = {}
    how = {"corpora": corpora, "folder": folder, "effort": effort, "seed": seed, "again": again}
    how |= {"threads": threads, "loading": loading or {}, "new": [] if new is None else new}
    failed = run(
        {name: Task(_measure, {"name": name, **how}, name) for name in models},
        lambda name, measured: cells.update((_key(one), one) for one in measured),
        unit="model",
        on_event=on_event,
        kept=lambda: f"finished measurements and the running one's finished prompts are kept in {folder}",
    )
    for one in failed.values():
        raise one.error()
    return cells


def _measure(name: str, on_event: OnEvent, **options: Any) -> "list[xr.Dataset]":
    """All measurements of a model; nothing holds it afterwards."""
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
    new: list[Key],
) -> "Iterator[xr.Dataset]":
    """The same, one by one; `new` gets the keys of those that were not there."""
    from posbias.measurement import load_model
    from posbias.measurement.run import for_length

    loaded = load_model(name, **loading)
    attention, jobs = loaded.attention, [*_jobs(loaded, corpora, effort, seed)]
    for place, (corpus, job) in enumerate(jobs):

        def heard(event: Event, place: int = place) -> None:
            on_event(Event(place + event.share, len(jobs), "measurement"))

        if loaded.attention != attention:
            loaded.model.set_attn_implementation(attention)
        fit = loaded if loading.get("attention") else for_length(loaded, job["tokens"])
        measurement, measured = _cell(fit, corpus, job, folder, again, threads=threads, on_event=heard)
        yield measurement
        if measured:
            new.append(_key(measurement))


def names(keys: Iterable[Key], what: str) -> tuple[str, ...]:
    """The distinct models, corpora or lengths among some keys, in their order."""
    return tuple(dict.fromkeys(getattr(key, what) for key in keys))


def _key(measurement: "xr.Dataset") -> Key:
    attributes = measurement.attrs
    scrambled = json.loads(attributes.get("asked", "{}")).get("scramble", False)
    text = str(attributes.get("text", "")) + (CONTROL if scrambled else "")
    return Key(str(attributes.get("model", "")), text, measurement.sizes["position"])


def _jobs(
    loaded: Any, corpora: Mapping[Corpus, Lengths], effort: Effort, seed: int
) -> Iterator[tuple[Corpus, dict[str, Any]]]:
    """What a model is to be measured on: corpus by corpus the arguments of `posbias.measure`."""
    context = getattr(loaded.model.config, "max_position_embeddings", None)
    for corpus, lengths in corpora.items():
        text, sizes = ("", [0]) if effort.prompts else _sizes_of(loaded, corpus)
        for tokens, dense in lengths.items():
            if context is not None and tokens > context:
                log.info("%s: %d tokens left out, its context has %d", loaded.name, tokens, context)
                continue
            there = sum(min(size // tokens, 1) if corpus.documents else size // tokens for size in sizes)
            if not effort.prompts and there < effort.most:
                all_it_has = f"{there} prompts of {tokens} tokens are all it has"
                have = all_it_has if there else "left out, too short"
                log.info("%s on %s at %d tokens: %s", loaded.name, text, tokens, have)
            if prompts := effort.prompts or min(there, effort.most):
                size = {"tokens": tokens, "prompts": prompts, "seed": seed, "dense_logits": dense}
                yield corpus, corpus.options | size


def _sizes_of(loaded: Any, corpus: Corpus) -> tuple[str, list[int]]:
    """The name of a corpus, and how many tokens each stretch has from which prompts are cut."""
    from posbias.measurement import read_text

    text = read_text(corpus.source)
    stretches = text.documents if corpus.documents else [text.content]
    ids = (loaded.tokenizer(one, add_special_tokens=False, verbose=False)["input_ids"] for one in stretches)
    return text.name, [len(one) for one in ids]


def _cell(
    loaded: Any, corpus: Corpus, job: dict[str, Any], folder: Path, again: bool, **how: Any
) -> "tuple[xr.Dataset, bool]":
    """A cell, and whether it was measured now; one with mean content matrices serves a wish without them."""
    from posbias import measurement as measuring

    loaded.need_causal("the paper's theory")
    parts = [loaded.name, *corpus.words, f"{job['tokens']}x{job['prompts']}"]
    stem = re.sub(r"[^\w.+-]+", "_", "-".join(parts))
    jobs = (job, job | {"dense_logits": True})
    digits = [measuring.job_fingerprint(loaded, **one)[:12] for one in jobs]
    places = [_places(folder / f"{stem}-{one}.nc") for one in digits]
    there = [files[-2] for files in places if len(files) > 1]
    if there and not again:
        return load_measurement(there[0]), False
    path = places[0][-1]
    checkpoint = path.with_suffix(".partial.safetensors")
    measured = measuring.measure(loaded, **job, checkpoint=checkpoint, **how)
    measured.attrs["parameters"] = sum(one.numel() for one in loaded.model.parameters())
    save_measurement(measured, path)
    measuring.discard_checkpoint(checkpoint)
    # as the next one will read it, so that both draw the same
    return load_measurement(path), True


def _places(path: Path) -> list[Path]:
    """The files of a cell (a.nc, a-2.nc, …) and, last, the next free one: nothing is overwritten."""
    places = [path]
    while places[-1].exists():
        places.append(path.with_name(f"{path.stem}-{len(places) + 1}.nc"))
    return places


def check_models(models: Sequence[str]) -> None:
    """Raise `InputFileError` for a `.nc` that is none, `ModelError` for what can be no model; none is loaded."""
    for name in models:
        if name.endswith(".nc"):
            if not Path(name).is_file():
                raise InputFileError(f"models: {name} given, no such file")
        elif name != "none":
            kind_of(name)


def check(
    models: Sequence[str], corpora: Sequence[str | None], lengths: Sequence[int], effort: Effort
) -> None:
    """Raise `InvalidValueError` for what no model could be measured on: nothing, a bad count, the same twice."""
    every: dict[str, list[Any]] = {"models": [*models], "corpora": [*corpora], "lengths": [*lengths]}
    for name, given in every.items():
        if not given:
            raise InvalidValueError(f"{name}: none given, at least one needed")
        if twice := [one for one in given if given.count(one) > 1]:
            raise InvalidValueError(f"{name}: {twice[0]} given twice, once needed")
    check_models(models)
    # a cell is known by the name of its text, which for files is that without folders
    called = [Path(one).name for one in corpora if one is not None and not one.startswith("datasets:")]
    twice = [one for one in called if called.count(one) > 1]
    if twice:
        raise InvalidValueError(f"corpora: two texts are called {twice[0]}, different names needed")
    for tokens in lengths:
        if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 3:
            raise InvalidValueError(f"lengths: {shortened(tokens)} given, integers ≥ 3 needed")
    if effort.prompts is not None and effort.prompts < 2:
        raise InvalidValueError(f"prompts: {effort.prompts} given, at least 2 needed for an interval")
