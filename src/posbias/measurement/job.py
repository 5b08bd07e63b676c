"""What is asked of a measurement: everything that decides its numbers, checked before anything heavy.

Two jobs with one fingerprint give the same numbers: checkpoints and finished files are found by it.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posbias.core.errors import one_of, shortened, wrong
from posbias.core.formats import versions_here
from posbias.measurement.result import INFLUENCES, ROLLOUTS
from posbias.measurement.texts.corpora import Text, read_text
from posbias.measurement.texts.prompts import Prompts, bos_of, check_counts, prompts_from

if TYPE_CHECKING:
    from posbias.measurement.models.loading import LoadedModel

TextSource = str | Path | Sequence[str | Path] | None


@dataclass(frozen=True)
class MeasurementJob:
    """What to measure, of any model: the fields are what `posbias.measure` says of its arguments.

    Raises `InvalidValueError` for a value that cannot be right.
    """

    text: TextSource = None
    tokens: int = 256
    prompts: int = 32
    seed: int = 0
    packed: bool = True
    minimum_tokens: int | None = None
    scramble: bool = False
    dense_logits: bool = False
    head_kernels: bool = False
    influences: tuple[str, ...] = ()
    rollouts: tuple[str, ...] = ()
    target: int | str | None = None
    bos: bool | None = None

    def __post_init__(self):
        check_counts(self.tokens, self.prompts, self.seed)
        for name, known in (("influences", INFLUENCES), ("rollouts", ROLLOUTS)):
            given = getattr(self, name)
            kinds = [one_of(name, kind, known) for kind in ((given,) if isinstance(given, str) else given)]
            # in one order, each once: the same wishes are the same job
            object.__setattr__(self, name, tuple(kind for kind in known if kind in kinds))
        if ("target" in self.influences) != (self.target is not None):
            got = f"{shortened(self.target)} with {', '.join(self.influences) or 'none'}"
            raise wrong("target", "a token with the influence 'target', and only with it", got=got)

    @cached_property
    def source(self) -> Text:
        """The text, read once. Raises as `read_text`."""
        return read_text(self.text)

    def draw(self, loaded: "LoadedModel") -> Prompts:
        """Cut the prompts for this model. Raises as `prompts_from`."""
        names = ("tokens", "prompts", "seed", "packed", "scramble", "minimum_tokens")
        how = {name: getattr(self, name) for name in names}
        return prompts_from(loaded.tokenizer, self.source, **how, bos=self.begins(loaded))

    def begins(self, loaded: "LoadedModel") -> tuple[int, ...]:
        """Ids of the special tokens that each prompt begins with. Raises as `bos_of`."""
        return bos_of(loaded.tokenizer, self.source, self.bos)

    def target_of(self, loaded: "LoadedModel") -> int | None:
        """The number of the target token for this model. Raises `InvalidValueError` for a text of several."""
        if not isinstance(self.target, str):
            return self.target
        ids = loaded.tokenizer(self.target, add_special_tokens=False)["input_ids"]
        if len(ids) != 1:
            what = f"text that is one token of this model, not {len(ids)}"
            raise wrong("target", what, self.target)
        return int(ids[0])

    def described(self, loaded: "LoadedModel") -> dict[str, Any]:
        """What was measured of which model, for the attributes of a result."""
        begins = list(self.begins(loaded))
        return loaded.described | {
            "positional": loaded.family.positional_kind(loaded.model.config),
            "text": self.source.name,
            "text_sha256": self.source.sha256,
            "tokens": self.tokens,
            "prompts": self.prompts,
            "seed": self.seed,
            **({"bos": " ".join(loaded.tokenizer.convert_ids_to_tokens(begins))} if begins else {}),
        }

    def of(self, loaded: "LoadedModel") -> dict[str, Any]:
        """All that decides the numbers of this job for a model; checksums stand for model and text."""
        names = [each.name for each in fields(self) if each.name not in ("text", "bos")]
        asked = {name: getattr(self, name) for name in names} | {"target": self.target_of(loaded)}
        if begins := self.begins(loaded):  # without any, the fingerprint is that of before there was a choice
            asked["bos"] = begins
        return job_of(loaded, text=self.source.sha256, asked=asked)


def job_of(loaded: "LoadedModel", **asked: Any) -> dict[str, Any]:
    """What is asked of a model, with the model, its treatment and the versions that compute it, in JSON's terms.

    Raises `ModelError` for hooks on the model that no treatment names.
    """
    versions = versions_here(("torch", "transformers"))
    del versions["python"]
    return {
        "model": loaded.checksum,
        "attention": loaded.attention,
        "dtype": loaded.dtype,
        "versions": versions,
        # other kernels round otherwise: what a GPU began, a CPU may not finish
        **({} if loaded.device.type == "cpu" else {"device": loaded.device.type}),
        **loaded.treated,
    } | asked


def fingerprint_of(job: Mapping[str, Any]) -> str:
    """The SHA-256 of a job, in hexadecimal."""
    return hashlib.sha256(json.dumps(job, sort_keys=True).encode()).hexdigest()
