"""Remedies inside an opened model: an intervention in every pass, with the bounds of each prompt's documents."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields, replace
from typing import Any

import numpy as np

from posbias.asking.local import LocalModel
from posbias.asking.requests import PromptParts, Scores
from posbias.core.errors import wrong
from posbias.core.spec import decode
from posbias.measurement.interventions import INTERVENTIONS, intervened
from posbias.measurement.models.loading import LoadedModel
from posbias.theory.architecture import Architecture, Layer
from posbias.theory.content import ConstantDiagonal, NoContent, ScalableSoftmax


class TreatedModel(LocalModel):
    """A model as `who` asks it, under the intervention of this name with these parameters, in JSON's terms.

    Bounds are those of the pieces in `parts`, by prompt, and no part of the treatment that answers are kept under;
    a `dummy` is a text.
    """

    def __init__(
        self, who: LocalModel, name: str, given: Mapping[str, Any], parts: Mapping[str, PromptParts]
    ):
        treated = replace(who.loaded, treatment={"name": name, **given})
        super().__init__(treated, api=who.api, special=who.special, most_out=who.most_out)
        self._plain, self._given, self._parts = who.loaded, given, parts
        self._kind = next(one for one in INTERVENTIONS if one.kind == name.replace("-", "_"))
        with self._within([0, 1, 2]):
            pass  # what does not fit the model is refused now

    def score(self, prompt: str, endings: Sequence[str]) -> Scores:
        """The scores of some endings behind a prompt. Raises as `LocalModel`, `ModelError` for other families."""
        with self._treated(prompt, prompt, self.special):
            return super().score(prompt, endings)

    def write(self, prompt: str) -> str:
        """What the model writes behind a prompt. Raises as `LocalModel`, `ModelError` for other families."""
        with self._treated(prompt, *self.in_template(prompt)):
            return super().write(prompt)

    @contextmanager
    def _treated(self, prompt: str, text: str, special: bool) -> Iterator[None]:
        tokens = self._plain.tokenizer(text, add_special_tokens=special, return_offsets_mapping=True)
        bounds = bounds_in(text, self._parts[prompt].pieces, [end for _, end in tokens["offset_mapping"]])
        # keys of another prompt were made under its own bounds
        self.reader.forget()
        with self._within(bounds):
            yield

    def _within(self, bounds: Sequence[int]) -> AbstractContextManager[LoadedModel]:
        given = dict(self._given)
        if "bounds" in {field.name for field in fields(self._kind)}:
            given["bounds"] = bounds
        if "dummy" in given:
            given["dummy"] = self._plain.tokenizer(given["dummy"], add_special_tokens=False)["input_ids"]
        return intervened(self._plain, decode(self._kind, given))


def bounds_in(text: str, pieces: Sequence[str], ends: Sequence[int]) -> list[int]:
    """Tokens at which pieces begin in a text, and behind the last; `ends`: the character behind each token."""
    places, at = list[int](), 0
    for piece in pieces:
        # a template may trim what stands at its ends
        held = piece if piece in text[at:] else piece.strip()
        places.append(text.index(held, at))
        at = places[-1] + len(held)
    return [next((k for k, end in enumerate(ends) if end > place), len(ends)) for place in (*places, at)]


def foreseen(architecture: Architecture, name: str, given: Mapping[str, Any]) -> Architecture:
    """The architecture under a temperature by position or a first-token scale, of which theory has a prediction.

    Raises `InvalidValueError` for other remedies, and for layers with a temperature or content of another kind.
    """

    def treated(layer: Layer) -> Layer:
        content = layer.content
        if name == "query-temperature" and layer.query_scale is None:
            return replace(layer, query_scale=ScalableSoftmax((given["scale"],), (given.get("bias", 1.0),)))
        if name == "first-token-scale" and isinstance(content, NoContent | ConstantDiagonal):
            plain = content if isinstance(content, ConstantDiagonal) else ConstantDiagonal((0.0,))
            added = tuple(one + float(np.log(given["factor"])) for one in plain.first_column)
            return replace(layer, content=replace(plain, first_column=added))
        raise wrong("remedy", "one that theory has for these layers", name)

    return replace(architecture, layers=tuple(map(treated, architecture.layers)))
