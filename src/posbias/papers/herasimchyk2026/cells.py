"""The measurements behind the tables: made once, kept in a folder, found again by everything they decide.

A cell is one model on one corpus at one length. Its file's name says so, with the fingerprint of the job; the same
command finds it there and measures only what is missing. A model may also be a finished measurement (`.nc`), for
what took another machine. An interrupted cell goes on from its finished prompts.
"""

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posbias.errors import InvalidValueError
from posbias.events import OnEvent
from posbias.papers.herasimchyk2026.printed import PROMPTS
from posbias.store import load_measurement, save_measurement

if TYPE_CHECKING:
    import xarray as xr

log = logging.getLogger(__name__)
CONTROL = " (scrambled)"
"""What the name of a corpus ends in whose prompts have their tokens shuffled."""


@dataclass(frozen=True)
class Corpus:
    """A text to cut prompts from (`None`: the bundled one), its tokens shuffled prompt by prompt if `scramble`."""

    source: str | None = None
    scramble: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """What `posbias.measure` is told of it."""
        return {"text": self.source} | ({"scramble": True} if self.scramble else {})


@dataclass(frozen=True)
class Effort:
    """How much is measured: prompts of each length (None: as many as the text has, at most `most`)."""

    name: str
    prompts: int | None
    most: int
    longest: int | None = None

    def lengths(self, lengths: Sequence[int]) -> list[int]:
        """Those of some lengths that are no longer than the longest, and that."""
        if self.longest is None:
            return [*lengths]
        return [*(tokens for tokens in lengths if tokens <= self.longest), self.longest]


EFFORTS = {"quick": Effort("quick", None, 32, 512), "full": Effort("full", None, PROMPTS)}
"""32 prompts, λ at no more than 512 tokens; the paper's 1,000 prompts. Or as many as the text has."""


@dataclass(frozen=True)
class Key:
    """What a cell is of: model and corpus by name, and the length of its prompts."""

    model: str
    corpus: str
    tokens: int


@dataclass(frozen=True)
class Wanted:
    """The lengths to measure; at `dense` of them mean content matrices are kept too."""

    lengths: tuple[int, ...]
    dense: tuple[int, ...] = ()


Cells = Mapping[Key, "xr.Dataset"]


def gather(
    models: Sequence[str],
    corpora: Mapping[Corpus, Wanted],
    folder: Path,
    effort: Effort,
    *,
    seed: int = 0,
    again: bool = False,
    on_event: OnEvent | None = None,
    new: list[Key] | None = None,
) -> dict[Key, "xr.Dataset"]:
    """The measurement of every model on every corpus at the lengths wanted there, from `folder` where it has them.

    Lengths beyond a model's context, and those of which the text has no prompt, are left out, and said. `on_event`
    hears the prompts of each measurement, `new` gets the keys of those that were not there. Raises as
    `posbias.measure`, `load_measurement` and `save_measurement`;
    KeyboardInterrupt on Ctrl-C, what is finished being kept.
    """
    found: dict[Key, Any] = {}
    for name in models:
        if name.endswith(".nc"):
            measurement = load_measurement(name)
            found[_key(measurement)] = measurement
            continue
        worker = _Worker(name, folder, effort, seed, again, on_event)
        for corpus in corpora:
            wanted = corpora[corpus]
            for tokens in worker.fitting(wanted.lengths):
                before = worker.measured
                measurement = worker.cell(corpus, tokens, tokens in wanted.dense)
                if measurement is not None:
                    key = _key(measurement, corpus)
                    found[key] = measurement
                    if new is not None and worker.measured > before:
                        new.append(key)
    return found


def names(keys: Iterable[Key], what: str) -> tuple[str, ...]:
    """The distinct models, corpora or lengths among some keys, in their order."""
    return tuple(dict.fromkeys(getattr(key, what) for key in keys))


def _key(measurement: "xr.Dataset", corpus: Corpus | None = None) -> Key:
    attributes = measurement.attrs
    asked = json.loads(attributes.get("asked", "{}"))
    scrambled = corpus.scramble if corpus else asked.get("scramble", False)
    text = str(attributes.get("text", "")) + (CONTROL if scrambled else "")
    return Key(str(attributes.get("model", "")), text, measurement.sizes["position"])


@dataclass
class _Worker:
    """Measures one model, which is loaded when first needed."""

    name: str
    folder: Path
    effort: Effort
    seed: int
    again: bool
    on_event: OnEvent | None
    measured: int = 0
    _loaded: Any = None
    _attention: str = ""
    _counts: dict[Corpus, tuple[str, int]] = field(default_factory=dict)

    @property
    def loaded(self) -> Any:
        if self._loaded is None:
            from posbias.measurement import load_model

            self._loaded = load_model(self.name)
            self._attention = self._loaded.attention
        return self._loaded

    def at(self, tokens: int) -> Any:
        """The model with the attention that `measure` takes for prompts so long."""
        from posbias.measurement.run import for_length

        loaded = self.loaded
        if loaded.attention != self._attention:
            loaded.model.set_attn_implementation(self._attention)
        return for_length(loaded, tokens)

    def fitting(self, lengths: Iterable[int]) -> Iterator[int]:
        """Those of the lengths that the model's context holds."""
        context = getattr(self.loaded.model.config, "max_position_embeddings", None)
        for tokens in lengths:
            if context is not None and tokens > context:
                log.info("%s: %d tokens left out, its context has %d", self.loaded.name, tokens, context)
            else:
                yield tokens

    def cell(self, corpus: Corpus, tokens: int, dense: bool) -> "xr.Dataset | None":
        """One cell, found or measured; None where the corpus has no prompt so long."""
        from posbias import measurement as measuring

        prompts = self._prompts(corpus, tokens)
        if not prompts:
            return None
        job: dict[str, Any] = {"tokens": tokens, "prompts": prompts, "seed": self.seed} | corpus.options
        loaded = self.at(tokens)
        wanted = measuring.job_fingerprint(loaded, **job, dense_logits=dense)
        for kept in (wanted, measuring.job_fingerprint(loaded, **job, dense_logits=True)):
            there = [path for path in _places(self._path(corpus, tokens, prompts, kept)) if path.exists()]
            if there and not self.again:
                return load_measurement(there[-1])
        path = _places(self._path(corpus, tokens, prompts, wanted))[-1]
        checkpoint = path.with_suffix(".partial.npz")
        measured = measuring.measure(
            loaded,
            **job,
            dense_logits=dense,
            checkpoint=checkpoint,
            on_event=self.on_event,
        )
        measured.attrs["parameters"] = sum(one.numel() for one in loaded.model.parameters())
        save_measurement(measured, path)
        measuring.discard_checkpoint(checkpoint)
        self.measured += 1
        # as the next one will read it, so that both draw the same
        return load_measurement(path)

    def _prompts(self, corpus: Corpus, tokens: int) -> int:
        """As many prompts as asked for, or as the corpus has."""
        if self.effort.prompts is not None:
            return self.effort.prompts
        if corpus not in self._counts:
            from posbias.measurement import read_text

            text = read_text(corpus.source)
            ids = self.loaded.tokenizer(text.content, add_special_tokens=False, verbose=False)["input_ids"]
            self._counts[corpus] = text.name, len(ids)
        name, count = self._counts[corpus]
        windows = count // tokens
        if windows < self.effort.most:
            have = (
                f"{windows} prompts of {tokens} tokens are all it has" if windows else "left out, too short"
            )
            log.info("%s on %s at %d tokens: %s", self.loaded.name, name, tokens, have)
        return min(windows, self.effort.most)

    def _path(self, corpus: Corpus, tokens: int, prompts: int, fingerprint: str) -> Path:
        text = "bundled" if corpus.source is None else Path(corpus.source).name
        parts = [self.loaded.name, text + ("-scrambled" if corpus.scramble else ""), f"{tokens}x{prompts}"]
        stem = re.sub(r"[^\w.+-]+", "_", "-".join(parts))
        return self.folder / f"{stem}-{fingerprint[:12]}.nc"


def _places(path: Path) -> list[Path]:
    """The files of a cell (a.nc, a-2.nc, …) and, last, the next free one: nothing is overwritten."""
    places = [path]
    while places[-1].exists():
        places.append(path.with_name(f"{path.stem}-{len(places) + 1}.nc"))
    return places


def check(
    models: Sequence[str], corpora: Sequence[str | None], lengths: Sequence[int], effort: Effort
) -> None:
    """Raise `InvalidValueError` for what no model could be measured on: nothing, a bad count, the same twice."""
    if not models:
        raise InvalidValueError("models: none given, at least one needed")
    if not corpora:
        raise InvalidValueError("corpora: none given, at least one needed")
    every: dict[str, list[Any]] = {"models": [*models], "corpora": [*corpora], "lengths": [*lengths]}
    for name, given in every.items():
        twice = [one for one in given if given.count(one) > 1]
        if twice:
            raise InvalidValueError(f"{name}: {twice[0]} given twice, once needed")
    # a cell is known by the name of its text, which for files is that without folders
    called = [Path(one).name for one in corpora if one is not None and not one.startswith("datasets:")]
    twice = [one for one in called if called.count(one) > 1]
    if twice:
        raise InvalidValueError(f"corpora: two texts are called {twice[0]}, different names needed")
    for tokens in lengths:
        if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 3:
            raise InvalidValueError(f"lengths: {tokens!r} given, integers ≥ 3 needed")
    if effort.prompts is not None and effort.prompts < 2:
        raise InvalidValueError(f"prompts: {effort.prompts} given, at least 2 needed for an interval")
