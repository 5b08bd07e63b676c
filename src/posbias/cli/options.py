"""Options that several commands share, each declared once; a command composes them in a dataclass of its own."""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, dataclass_transform

from cyclopts import Parameter

from posbias.core.arguments import counted, shortened, typed_integer, whole
from posbias.core.errors import InvalidValueError
from posbias.core.files import need_writable
from posbias.core.lazy import need

if TYPE_CHECKING:
    from posbias.core.running import Engine
    from posbias.measurement import LoadedModel

T = TypeVar("T")
DEFAULT_MODEL = "smollm2-135m"
RESULTS = Path("results")


@dataclass_transform(frozen_default=True)
def options(fields: type[T]) -> type[T]:
    """Make a class a frozen dataclass, each of whose fields is an option of the command that takes it."""
    return Parameter(name="*")(dataclass(frozen=True)(fields))


def check_targets(out: Path | None, plot: Path | None, *inputs: str | Path | None) -> None:
    """Say what is known to be wrong with the files to be written before anything is computed.

    Raises `InvalidValueError` for a kind of picture that is not drawn, and for a file that is read as well, or
    written twice; `OutputFileError` where nothing can be written; `MissingPackageError` where nothing is drawn.
    """
    if plot is not None:
        from posbias.reports.plots import check_kind

        check_kind(plot)
        need("matplotlib", work="--plot", extra="report")
    taken = {os.path.realpath(one): "read" for one in inputs if one is not None}
    for name, target in (("out", out), ("plot", plot)):
        if target is not None:
            if (what := taken.get(os.path.realpath(target))) is not None:
                raise InvalidValueError(f"{name}: {str(target)!r} given, which is {what} too; another needed")
            taken[os.path.realpath(target)] = "written"
            need_writable(target)


# ── what is typed ──


def _whole(type_: Any, tokens: Any) -> int:
    """An integer as it was typed, in powers of ten or with k and M: 1e6, 8k; 2.5 is not rounded."""
    return _integer(tokens[0].value)


def _many(type_: Any, tokens: Any) -> int:
    """The same of a number that is large as a rule."""
    return _integer(tokens[0].value, " such as 250000 or 1e7")


def _integer(word: str, example: str = "") -> int:
    if (number := typed_integer(word)) is None:
        below = " below 2**63" if word.removeprefix("-").isdecimal() else ""
        raise ValueError(f"{shortened(word)} given, an integer{below}{example} needed")
    return number


def _length(type_: Any, tokens: Any) -> int | str:
    return "all" if tokens[0].value == "all" else _whole(type_, tokens)


def column_names(words: Sequence[str] | None) -> dict[str, str]:
    """Words NAME=COLUMN as a mapping. Raises `InvalidValueError`."""
    if wrong := [word for word in words or () if "=" not in word]:
        raise InvalidValueError(f"columns: expected NAME=COLUMN, got {shortened(wrong[0])}")
    found = dict(word.split("=", 1) for word in words or ())
    if len(found) < len(words or ()):
        raise InvalidValueError(f"columns: expected each name once, got {shortened(' '.join(words or ()))}")
    return found


def _effort(type_: Any, tokens: Any) -> str | int:
    """quick, full or a large integer."""
    word = tokens[0].value
    if word in ("quick", "full"):
        return word
    try:
        return _many(type_, tokens)
    except ValueError as error:
        raise ValueError(str(error).replace("given, ", "given, quick, full or ")) from None


def _words(type_: Any, tokens: Any) -> tuple[str, ...]:
    """Words with commas between them, one at least."""
    if len(tokens) > 1:
        times = f"given {len(tokens)} times, once needed, with commas between several"
        raise ValueError(f"{tokens[0].keyword}: {times}")
    words = tuple(word.strip() for word in tokens[0].value.split(",") if word.strip())
    if not words:
        raise ValueError(f"{tokens[0].value!r} given, one needed, or several with commas")
    return words


def _lengths(type_: Any, tokens: Any) -> tuple[int, ...]:
    """Lengths as they were typed, with commas between them."""
    words = _words(type_, tokens)
    lengths = tuple(number for word in words if (number := typed_integer(word)) is not None)
    if len(lengths) < len(words):
        several = ", or several with commas" if len(words) > 1 else ""
        raise ValueError(f"{tokens[0].value!r} given, an integer needed{several}")
    return lengths


def _numbers(type_: Any, tokens: Any) -> tuple[float, ...]:
    """Numbers with commas between them."""
    words = _words(type_, tokens)
    try:
        return tuple(map(float, words))
    except ValueError:
        raise ValueError(f"{tokens[0].value!r} given, numbers with commas needed") from None


Flag = Annotated[bool, Parameter(negative="")]
Whole = Annotated[int, Parameter(converter=_whole, n_tokens=1)]
Many = Annotated[int, Parameter(converter=_many, n_tokens=1)]
Lengths = Annotated[
    tuple[int, ...], Parameter(converter=_lengths, n_tokens=1, negative="", show_default=False)
]
Numbers = Annotated[
    tuple[float, ...], Parameter(converter=_numbers, n_tokens=1, negative="", show_default=False)
]
Names = Annotated[tuple[str, ...], Parameter(converter=_words, n_tokens=1, negative="", show_default=False)]


# ── what is asked in the same words everywhere ──

Out = Annotated[Path, Parameter(name=["--out", "-o"])]
Results = Annotated[Out, Parameter(help="The folder of results.")]
Json = Annotated[Flag, Parameter(name="--json", help="Print JSON on stdout.")]
Rerun = Annotated[Flag, Parameter(help="Compute even what is there; new files are written beside it.")]
Seed = Annotated[Whole, Parameter(help="Seed of what is drawn.")]
Threads = Annotated[
    Whole | None, Parameter(help="Cores to use; the result is the same for any number. Default: all.")
]
TorchThreads = Annotated[
    Whole | None, Parameter(name="--threads", help="Threads of torch. Default: the cores but one.")
]
TrainingThreads = Annotated[
    Whole | None,
    Parameter(
        name="--threads",
        help="Cores to use: cells train side by side, one on each (default: all); a single cell has so many "
        "threads (default: 1).",
    ),
]
Workers = Annotated[
    Whole | None, Parameter(help="Processes of one thread that share the work. Default: the cores.")
]
Ray = Annotated[
    str | None,
    Parameter(
        help="Share the work out on a Ray cluster instead: auto (the one that is running, else one here), "
        "HOST:PORT, ray://HOST:PORT or local. Needs posbias[cluster]."
    ),
]
NoTests = Annotated[
    Flag,
    Parameter(help="Train and keep the weights; the same command without it tests them later."),
]
GpusPerCell = Annotated[
    float,
    Parameter(
        help="With --ray and --device cuda, the GPUs for each cell; 0.25 trains four side by side on one."
    ),
]
Device = Annotated[str, Parameter(help="Where to compute: cpu, cuda, cuda:1 or mps.")]
Effort = Annotated[
    Literal["quick", "full"] | int,
    Parameter(converter=_effort, n_tokens=1, metavar="quick|full|NUMBER", show_choices=False),
]
ContextLength = Annotated[
    int | Literal["all"] | None,
    Parameter(
        converter=_length,
        n_tokens=1,
        help="Of results at several context lengths take this one, or all: their mean.",
    ),
]
Columns = Annotated[
    list[str] | None,
    Parameter(
        consume_multiple=True,
        negative="",
        help="What columns of a table are: place=COLUMN score=COLUMN (also total, trial, length, model, scale).",
    ),
]
Networks = Annotated[Whole | None, Parameter(help="Networks of each cell, with seeds from 0 on.")]
Model = Annotated[
    str,
    Parameter(
        help="A name that `posbias models` lists, a model folder, a .gguf file, or the id of a model on a hub."
    ),
]
StudyName = Annotated[str, Parameter(help="The study's file (TOML, YAML or JSON).")]
StudyOut = Annotated[
    Out | None,
    Parameter(help="The folder of results. Default: results/studies/NAME, after the file."),
]
Configs = Annotated[
    Path | None,
    Parameter(
        help="A folder of the rollout files of the authors of herasimchyk2026, for the paper's own models."
    ),
]


def amount(effort: str | int, named: Mapping[str, int]) -> int:
    """How much an effort is: the number itself, or what `named` says of quick and full.

    Raises `InvalidValueError` below 1.
    """
    return whole("effort", effort, 1) if isinstance(effort, int) else named[effort]


def check_threads(count: int | None) -> None:
    """Raise `InvalidValueError` for a number of threads that cannot be right, before anything is loaded."""
    if count is not None:
        counted("threads", count)


def engine(workers: int | None, ray: str | None = None) -> "Engine | None":
    """The engine asked for; None where neither is, for what each part takes by itself. Raises as `engine_of`."""
    from posbias.core.cluster import engine_of

    return None if workers is None and ray is None else engine_of(workers, ray)


def cluster(ray: str | None, threads: int | None) -> "Engine | None":
    """The cluster at an address, None without one. Raises `InvalidValueError` for threads beside it."""
    if ray is not None and threads is not None:
        raise InvalidValueError(f"threads: {threads} given together with --ray, one of the two needed")
    return engine(None, ray)


def refuse_beside_file(options: Any, kept: Collection[str], finished: str) -> None:
    """Raise `InvalidValueError` for an option that a finished file has decided; those in `kept` still count."""
    default = type(options)()
    for name, given in vars(options).items():
        if name in kept:
            continue
        if is_dataclass(given):
            refuse_beside_file(given, (), finished)
        elif given != getattr(default, name):
            raise InvalidValueError(
                f"{name}: given with a finished {finished}, which it cannot change; a model needed"
            )


def need_model(model: str) -> None:
    """Raise `InvalidValueError` for an empty name."""
    if not model:
        raise InvalidValueError("model: '' given, a name, a model folder, a .gguf file or a hub id needed")


# ── how a model is loaded, what its prompts are ──


@options
class Loading:
    """How to load a model.

    Parameters
    ----------
    revision
        Branch, tag or commit of a model from a hub.
    dtype
        Precision of the weights; auto: the one stored.
    device_map
        Spread the model over several devices: auto, or a JSON file of modules and devices.
    attention
        The attention implementation. Default: eager, sdpa above 256 tokens, where transformers has it right.
    trust_remote_code
        Run Python files that come with the model.
    tokenizer
        A folder with the tokenizer, where the model's own has none or another is wanted.
    """

    revision: str | None = None
    dtype: Literal["float32", "bfloat16", "float16", "auto"] = "float32"
    device: Device = "cpu"
    device_map: str | None = None
    attention: Literal["eager", "sdpa"] | None = None
    trust_remote_code: Flag = False
    tokenizer: Path | None = None

    def load(self, model: str, tokens: int, local_rank: int = 0, speak: bool = True) -> "LoadedModel":
        """Load a model for prompts of this length, on the device of this process. Raises as `load_model`."""
        from posbias.core.logs import muted
        from posbias.measurement import for_length, load_model

        device = f"cuda:{local_rank}" if self.device == "cuda" and local_rank else self.device
        with muted(not speak):
            loaded = load_model(model, **{**vars(self), "device": device})
        return loaded if self.attention else for_length(loaded, tokens)


@options
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
    shuffle_tokens
        Shuffle the tokens of every prompt: architecture without content.
    bos
        Begin every prompt with the BOS token (an encoder's [CLS]), or not. Default: as the model's tokenizer does.
    """

    text: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = ()
    documents: Flag = False
    minimum_tokens: Whole | None = None
    shuffle_tokens: Flag = False
    bos: bool | None = None

    def as_job(self) -> dict[str, Any]:
        """The same as arguments of `measure`."""
        return {
            "text": list(self.text) or None,
            "packed": not self.documents,
            "minimum_tokens": self.minimum_tokens,
            "scramble": self.shuffle_tokens,
            "bos": self.bos,
        }

    @property
    def words(self) -> Sequence[str]:
        """What of this is not the default, for a file's name."""
        names = [Path(text.partition(":")[0] if "datasets:" not in text else text).stem for text in self.text]
        marks = {"documents": self.documents, "scrambled": self.shuffle_tokens}
        marks |= {"bos": self.bos is True, "no-bos": self.bos is False}
        return ["-".join(names)] * bool(names) + [name for name, marked in marks.items() if marked]
