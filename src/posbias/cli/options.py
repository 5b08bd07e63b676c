"""Options that several commands share, each declared once; a command composes them in a dataclass of its own."""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, dataclass_transform

from cyclopts import Parameter

from posbias.core.errors import MOST_THREADS, shortened, typed_integer, whole, wrong
from posbias.core.files import need_writable
from posbias.core.packages import need

if TYPE_CHECKING:
    from posbias.asking import Endpoint
    from posbias.core.running import Engine
    from posbias.measurement.models.loading import LoadedModel

T = TypeVar("T")
DEFAULT_MODEL = "smollm2-135m"
RESULTS = Path("results")
Way = tuple[Literal["chat", "completion"], str | None]
"""Api and system message."""


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
                raise wrong(name, f"a file that is not {what} too", str(target))
            taken[os.path.realpath(target)] = "written"
            need_writable(target)


# ── what is typed ──


def _typed(read: Callable[[str], Any], what: str, **look: Any) -> Any:
    """A converter of a word by `read`, which gives None for what is not expected; `look`: as of `Parameter`."""

    def convert(type_: Any, tokens: Any) -> Any:
        text, several = " ".join(token.value for token in tokens), len(tokens) > 1
        if several or (value := read(text)) is None:
            raise ValueError(f"{tokens[0].keyword}: " * several + f"expected {what}, got {shortened(text)}")
        return value

    return Parameter(converter=convert, n_tokens=1, **look)


_INTEGER = "an integer such as 250000, 1e7 or 8k"
"""As it was typed, in powers of ten or with k and M; 2.5 is not rounded."""


def _integer_or(*words: str) -> Any:
    """A converter that takes some words as they are, and else an integer."""
    metavar, what = "|".join((*words, "NUMBER")), ", ".join((*words, _INTEGER))
    return _typed(
        lambda word: word if word in words else typed_integer(word), what, metavar=metavar, show_choices=False
    )


def _listed(one: Callable[[str], Any], what: str) -> Any:
    """A converter of values with commas between them, one at least."""

    def read(text: str) -> tuple[Any, ...] | None:
        values = tuple(one(word.strip()) for word in text.split(",") if word.strip())
        return None if not values or None in values else values

    return _typed(read, f"{what}, or several with commas", negative="", show_default=False)


def _columns(type_: Any, tokens: Any) -> dict[str, str]:
    """Words NAME=COLUMN as a mapping."""
    words = [token.value for token in tokens]
    columns = dict(word.split("=", 1) for word in words if "=" in word)
    if len(columns) < len(words):
        name = f"{tokens[0].keyword}: " * (len(words) > 1)
        raise ValueError(f"{name}expected NAME=COLUMN, each name once, got {shortened(' '.join(words))}")
    return columns


Flag = Annotated[bool, Parameter(negative="")]
Whole = Annotated[int, _typed(typed_integer, _INTEGER)]
Lengths = Annotated[tuple[int, ...], _listed(typed_integer, "an integer")]
Names = Annotated[tuple[str, ...], _listed(str, "a name")]
Words = Annotated[tuple[str, ...], Parameter(negative="", show_default=False)]
Plot = Annotated[Path | None, Parameter(name="--plot")]


# ── options that mean the same everywhere ──

Out = Annotated[Path, Parameter(name=["--out", "-o"])]
_FOLDER = "a folder (the answer is several files)"
Folder = Annotated[Out, _typed(lambda word: None if Path(word).suffix else Path(word), _FOLDER)]
Results = Annotated[Out, Parameter(help="The folder of results.")]
Json = Annotated[Flag, Parameter(name="--json", help="Print JSON on stdout.")]
_RERUN = "Recompute existing results; new files are written next to the old ones."
Rerun = Annotated[Flag, Parameter(help=_RERUN)]
Seed = Annotated[Whole, Parameter(help="Seed of the random numbers.")]
_CORES = "Cores to use; the result is the same for any number. Default: all."
Threads = Annotated[Whole | None, Parameter(help=_CORES)]
_THREADS = f"an integer from 1 to {MOST_THREADS:,}"
_Count = Annotated[
    int,
    _typed(lambda word: one if 0 < (one := typed_integer(word) or 0) <= MOST_THREADS else None, _THREADS),
    Parameter(name="--threads"),
]
TorchThreads = Annotated[_Count | None, Parameter(help="Threads of torch. Default: the cores but one.")]
_CELLS = (
    "Cores to use: cells train one on each (default: all), a single cell with this many threads (default: 1)."
)
TrainingThreads = Annotated[_Count | None, Parameter(help=_CELLS)]
_PROCESSES = "Processes of one thread that share the work. Default: the cores."
Workers = Annotated[Whole | None, Parameter(help=_PROCESSES)]
_RAY = """Share the work on a Ray cluster instead: auto (the one that is running, else one here), HOST:PORT,
ray://HOST:PORT or local. Needs posbias[cluster]."""
Ray = Annotated[str | None, Parameter(help=_RAY)]
_GPUS = "With --ray and --device cuda, the GPUs for each cell; 0.25 trains four side by side on one."
GpusPerCell = Annotated[float, Parameter(help=_GPUS)]
Device = Annotated[str, Parameter(help="Where to compute: cpu, cuda, cuda:1 or mps.")]
Effort = Annotated[Literal["quick", "full"] | int, _integer_or("quick", "full")]
_CONTEXT = "Of results at several context lengths take this one, or all: their mean."
ContextLength = Annotated[int | Literal["all"] | None, _integer_or("all"), Parameter(help=_CONTEXT)]
_COLUMNS = "What columns of a table are: place=COLUMN score=COLUMN (also total, trial, length, model, scale)."
ColumnNames = Annotated[
    Mapping[str, str] | None,
    Parameter(converter=_columns, n_tokens=-1, consume_multiple=True, negative="", accepts_keys=False),
]
Columns = Annotated[ColumnNames, Parameter(help=_COLUMNS)]
Networks = Annotated[Whole | None, Parameter(help="Networks of each cell, with seeds from 0 on.")]
_MODEL = "A name that `posbias models` lists, a model folder, a .gguf file, or the id of a model on a hub."
Model = Annotated[str, Parameter(help=_MODEL)]
_CONFIGS = "A folder of the rollout files of the authors of herasimchyk2026, for the paper's own models."
Configs = Annotated[Path | None, Parameter(help=_CONFIGS)]


def amount(effort: str | int, named: Mapping[str, int]) -> int:
    """How much an effort is: the number itself, or what `named` says of quick and full.

    Raises `InvalidValueError` below 1.
    """
    return whole("effort", effort, 1) if isinstance(effort, int) else named[effort]


def engine(workers: int | None, ray: str | None = None, threads: int | None = None) -> "Engine | None":
    """The engine of some workers or of a Ray cluster; None for what each part takes by itself.

    Raises `InvalidValueError` for a cluster together with workers or threads, or a wrong number, and as `Cluster`.
    """
    from posbias.core.cluster import Cluster
    from posbias.core.running import Processes

    if ray is None:
        return None if workers is None else Processes(workers)
    if workers is not None:
        raise wrong("workers", "either workers or ray", got=f"{workers} and {ray!r}")
    if threads is not None:
        raise wrong("threads", "none together with --ray", threads)
    return Cluster(ray)


def given(options: Any) -> dict[str, Any]:
    """By name, those of options and of options within them that are not as by default."""
    default, held = type(options)(), dict[str, Any]()
    for name, value in vars(options).items():
        if is_dataclass(value):
            held |= given(value)
        elif value != getattr(default, name):
            held[name] = value
    return held


def refuse(options: Any, expected: str, names: Collection[str] = (), kept: Collection[str] = ()) -> None:
    """Raise `InvalidValueError` for an option that does not go with another one or with a file.

    `names` are those that do not, or all but `kept`.
    """
    for name, value in given(options).items():
        if (name in names or not names) and name not in kept:
            raise wrong(name, expected, str(value) if isinstance(value, Path) else value)


# ── who is asked, how a model is loaded, what its prompts are ──


@options
class Server:
    """How to ask a server.

    Parameters
    ----------
    endpoint
        Ask MODEL of this OpenAI-compatible server, http://localhost:8000/v1 for instance; key in OPENAI_API_KEY.
    api
        chat: prompts are a user's messages, in the server's template. completion: as they are. Given twice: both,
        compared with each other. Default: chat.
    system
        A system message before each prompt (chat). Given several times: each, compared with the first; '' is none.
    concurrency
        Requests at a time.
    answer_tokens
        Tokens of an answer at most.
    timeout
        Seconds that a server may be silent.
    """

    endpoint: str | None = None
    api: Annotated[tuple[Literal["chat", "completion"], ...], Parameter(negative="", show_default=False)] = (
        "chat",
    )
    system: Words = ()
    concurrency: Whole = 4
    answer_tokens: Whole = 32
    timeout: float = 120.0

    @property
    def ways(self) -> list[Way]:
        """Api and system message of each way to ask. Raises `InvalidValueError` for one that is given twice."""
        chats: list[Way] = [("chat", text or None) for text in self.system or ("",)]
        plain: list[Way] = [("completion", None)]
        ways = [way for api in self.api for way in (chats if api == "chat" else plain)]
        if self.system and "chat" not in self.api:
            raise wrong("system", "none with the api completion", self.system)
        if len(set(ways)) < len(ways):
            name = "api" if len(set(self.api)) < len(self.api) else "system"
            raise wrong(name, "each value once", getattr(self, name))
        return ways

    def check_single(self) -> None:
        """Raise `InvalidValueError` for several ways to ask."""
        if len(self.ways) > 1:
            name = "api" if len(self.api) > 1 else "system"
            raise wrong(name, "one way to ask", getattr(self, name))

    def servers(self, model: str | None) -> "dict[str, Endpoint]":
        """The server in each way, by its name. Raises `InvalidValueError` for options that do not go together."""
        from posbias.asking import Endpoint

        if model is None:
            raise wrong("model", "the name of a model of the server", None)
        servers, most_out, timeout = dict[str, Endpoint](), self.answer_tokens, self.timeout
        for api, system in self.ways:
            messages = sum(one.system is not None for one in servers.values())
            name = api if system is None else f"chat, system message {messages + 1}"
            server = Endpoint(
                self.endpoint or "", model, api=api, system=system, most_out=most_out, timeout=timeout
            )
            servers[name] = server
        return servers


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
    accept_terms
        You accept the terms of use that a model comes under; gemma-3-270m's: https://ai.google.dev/gemma/terms.
    """

    revision: str | None = None
    dtype: Literal["float32", "bfloat16", "float16", "auto"] = "float32"
    device: Device = "cpu"
    device_map: str | None = None
    attention: Literal["eager", "sdpa"] | None = None
    trust_remote_code: Flag = False
    tokenizer: Path | None = None
    accept_terms: Flag = False

    def load(self, model: str, tokens: int) -> "LoadedModel":
        """The model, for prompts of `tokens`. Raises as `posbias.measurement.load_model`."""
        from posbias.measurement import load_model

        return load_model(
            model,
            revision=self.revision,
            dtype=self.dtype,
            device=self.device,
            device_map=self.device_map,
            attention=self.attention,
            trust_remote_code=self.trust_remote_code,
            tokenizer=self.tokenizer,
            tokens=tokens,
            accept_terms=self.accept_terms,
        )


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

    text: Words = ()
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
