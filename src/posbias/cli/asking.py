"""What several commands ask of a model in the same words: how it is loaded, what its prompts are."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from posbias.cli.speaking import Whole, say
from posbias.errors import InvalidValueError

if TYPE_CHECKING:
    from posbias.measurement import LoadedModel

Flag = Annotated[bool, Parameter(negative="")]
DEFAULT_MODEL = "smollm2-135m"


def _words(type_: Any, tokens: Any) -> tuple[str, ...]:
    """Words with commas between them."""
    return tuple(word.strip() for word in tokens[0].value.split(",") if word.strip())


Names = Annotated[tuple[str, ...], Parameter(converter=_words, n_tokens=1, negative="", show_default=False)]


@Parameter(name="*")
@dataclass(frozen=True)
class Loading:
    """How to load a model.

    Parameters
    ----------
    revision
        Branch, tag or commit of a model from a hub.
    dtype
        Precision of the weights; auto: the one stored.
    device
        Where to put the model: cpu, cuda, cuda:1, mps.
    device_map
        Spread the model over several devices: auto, or a JSON file of modules and devices.
    attention
        The attention implementation. Default: eager, sdpa above 1,024 tokens, where transformers has it right.
    trust_remote_code
        Run Python files that come with the model.
    """

    revision: str | None = None
    dtype: Literal["float32", "bfloat16", "float16", "auto"] = "float32"
    device: str = "cpu"
    device_map: str | None = None
    attention: Literal["eager", "sdpa"] | None = None
    trust_remote_code: Flag = False

    def load(self, model: str, tokens: int, local_rank: int = 0, speak: bool = True) -> "LoadedModel":
        """Load a model for prompts of this length, on the device of this process. Raises as `load_model`."""
        from posbias import measurement as measuring

        device = f"cuda:{local_rank}" if self.device == "cuda" and local_rank else self.device
        loaded = measuring.load_model(
            model,
            say if speak else None,
            revision=self.revision,
            dtype=self.dtype,
            device=device,
            device_map=self.device_map,
            attention=self.attention,
            trust_remote_code=self.trust_remote_code,
        )
        return loaded if self.attention else measuring.for_length(loaded, tokens)


@Parameter(name="*")
@dataclass(frozen=True)
class Prompting:
    """What the prompts are.

    Parameters
    ----------
    text
        Text to cut the prompts from: a .txt or .jsonl file (PATH:COLUMN names its column), a folder of them, or
        datasets:ID[:SPLIT[:COLUMN]]; several by repeating --text. Default: the bundled State of the Union
        addresses.
    documents
        One prompt from the beginning of each document, instead of windows of the running text.
    minimum_tokens
        Leave out documents that are shorter.
    scramble
        Shuffle the tokens of every prompt: architecture without content.
    """

    text: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = ()
    documents: Flag = False
    minimum_tokens: Whole | None = None
    scramble: Flag = False

    def as_job(self) -> dict[str, Any]:
        """The same as arguments of `measure`."""
        return {
            "text": list(self.text) or None,
            "packed": not self.documents,
            "minimum_tokens": self.minimum_tokens,
            "scramble": self.scramble,
        }

    @property
    def words(self) -> Sequence[str]:
        """What of this is not the default, for a file's name."""
        names = [Path(one.partition(":")[0] if "datasets:" not in one else one).stem for one in self.text]
        marks = {"documents": self.documents, "scrambled": self.scramble}
        return ["-".join(names)] * bool(names) + [name for name, given in marks.items() if given]


def need_model(model: str) -> None:
    """Raise `InvalidValueError` for an empty name."""
    if not model:
        raise InvalidValueError("model: '' given, a name, a model folder, a .gguf file or a hub id needed")
