"""Run the recorded command lines through the command's own entry, and keep everything that each of them does.

Nothing of the package but `posbias.cli.main` is named here: what lies below may be renamed and rebuilt.
"""

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import tempfile
import tomllib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

HERE = Path(__file__).parent
RECORDED, FIGURES, INPUTS, RESULTS = (HERE / name for name in ("recorded", "figures", "inputs", "results"))
SETTING = {"COLUMNS": "100", "LINES": "50", "NO_COLOR": "1", "HF_HUB_OFFLINE": "1", "TERM": "dumb"}
_BAR = re.compile(r"\d+%\||\[\d\d:\d\d|it/s\]")
_COMPILING = "compiled on first use"
_VARYING = [
    (re.compile(r"posbias-golden-\w+"), "golden"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)?"), "<date>"),
    (re.compile(r"(?<=[-_.])[0-9a-f]{8,64}(?![0-9a-zA-Z])"), "<fingerprint>"),
    (re.compile(r"about [\d.,]+ [kMG]?B\b|(?<![\w.])[\d.,]+ [kMG]B\b"), "<memory>"),
    (re.compile(r"(?<![\w.])[\d.,]+ (?:s|ms|seconds?|minutes?|hours?|days?)\b"), "<time>"),
    (re.compile(r"\b\d+\.\d+\.\d+(?:\.?[a-z]+\d*)?(?:\+\w+)?\b"), "<version>"),
]


@dataclass(frozen=True)
class Command:
    """A command line with its id; commands of one `folder` run in order, each finding what those before left."""

    id: str
    line: str
    folder: str = ""
    slow: bool = False
    rtol: float = 1e-9
    atol: float = 0.0
    ignore: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """The name of the folder it runs in."""
        return self.folder or self.id


@dataclass
class Outcome:
    """What a command did: exit code, words on stderr, answer on stdout, files written, arrays of its figures."""

    exit: int
    stderr: list[str]
    stdout: Any
    files: list[str]
    figures: dict[str, np.ndarray] = field(default_factory=dict)

    def save(self, name: str) -> None:
        """Keep it as JSON, the arrays beside it as npz."""
        kept = {key: getattr(self, key) for key in ("exit", "stderr", "stdout", "files")}
        text = json.dumps(kept, ensure_ascii=False, indent=1)
        # a list of numbers stands on one line
        text = re.sub(r"\[[\s\d.,e+-]*\]", lambda match: " ".join(match[0].split()), text)
        (RECORDED / f"{name}.json").write_text(text + "\n")
        (FIGURES / f"{name}.npz").unlink(missing_ok=True)
        if self.figures:
            np.savez_compressed(FIGURES / f"{name}.npz", **self.figures)

    @classmethod
    def load(cls, name: str) -> "Outcome":
        """What was kept under a name."""
        kept = json.loads((RECORDED / f"{name}.json").read_text())
        path = FIGURES / f"{name}.npz"
        if path.exists():
            with np.load(path) as arrays:
                kept["figures"] = dict(arrays)
        return cls(**kept)


def read_commands() -> dict[str, Command]:
    """The commands of commands.toml by id. Raises `ValueError` for an id that is there twice."""
    listed = tomllib.loads((HERE / "commands.toml").read_text())["command"]
    commands = [Command(**entry | {"ignore": tuple(entry.get("ignore", ()))}) for entry in listed]
    by_id = {command.id: command for command in commands}
    if len(by_id) < len(commands):
        raise ValueError("commands.toml: an id is given twice")
    return by_id


class Replay:
    """Runs commands, each folder's in their order, and remembers what they did."""

    def __init__(self, commands: dict[str, Command], root: Path):
        self.commands, self.root = commands, root
        self.outcomes: dict[str, Outcome] = {}

    def outcome(self, name: str) -> Outcome:
        """What a command does, after the earlier ones of its folder."""
        wanted = self.commands[name]
        for command in self.commands.values():
            if command.place == wanted.place and command.id not in self.outcomes:
                self.outcomes[command.id] = run(shlex.split(command.line), self._folder(command))
            if command.id == name:
                break
        return self.outcomes[name]

    def _folder(self, command: Command) -> Path:
        folder = self.root / command.place
        if not folder.exists():
            shutil.copytree(INPUTS, folder)
        return folder


@contextlib.contextmanager
def temporary_replay(commands: dict[str, Command]) -> Iterator[Replay]:
    """A replay in a folder that goes at the end."""
    with tempfile.TemporaryDirectory(prefix="posbias-golden-") as root:
        yield Replay(commands, Path(root))


def run(arguments: list[str], folder: Path) -> Outcome:
    """Run a command line in a folder, in this process, without the recorded results that 0.1.0 had not."""
    from posbias.cli import main
    from posbias.papers.wu2025 import recorded

    before = _files(folder)
    answer, words = io.StringIO(), io.StringIO()
    setting = SETTING | {"POSBIAS_CACHE": str(folder.parent / "cache")}
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, setting))
        stack.enter_context(mock.patch.object(recorded, "FOLDER", folder / "records"))
        stack.enter_context(contextlib.chdir(folder))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("default")
        shown = stack.enter_context(watched_figures())
        stack.enter_context(contextlib.redirect_stdout(answer))
        stack.enter_context(contextlib.redirect_stderr(words))
        code: Any = 0
        try:
            main(arguments)
        except SystemExit as exit:
            code = exit.code or 0
    return Outcome(
        int(code),
        normal_stderr(words.getvalue(), folder),
        normal_stdout(answer.getvalue(), folder),
        sorted({_normal(name, folder) for name in _files(folder) - before}),
        shown,
    )


def normal_stderr(text: str, folder: Path) -> list[str]:
    """Lines without progress bars, notices of compiling, timings, versions and the folder's own path."""
    lines = (line.strip() for line in re.split(r"[\r\n]", text))
    return [
        _normal(line, folder) for line in lines if line and not _BAR.search(line) and _COMPILING not in line
    ]


def normal_stdout(text: str, folder: Path) -> Any:
    """JSON parsed; other text without timings, versions and the folder's own path."""
    with contextlib.suppress(json.JSONDecodeError):
        return _normal_json(json.loads(text), folder)
    return _normal(text, folder)


def _normal_json(data: Any, folder: Path) -> Any:
    match data:
        case dict():
            return {_normal(key, folder): _normal_json(value, folder) for key, value in data.items()}
        case list():
            return [_normal_json(value, folder) for value in data]
        case str():
            return _normal(data, folder)
    return data


def _normal(text: str, folder: Path) -> str:
    for path in (folder.resolve(), folder):
        text = text.replace(str(path), "<folder>").replace(str(path.parent), "<root>")
    for pattern, name in _VARYING:
        text = pattern.sub(name, text)
    return text


def _files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


# ── figures ──


@contextlib.contextmanager
def watched_figures() -> Iterator[dict[str, np.ndarray]]:
    """Collect the arrays of every figure that is written, by figure, axes, kind and number."""
    from matplotlib.figure import Figure

    seen: list[Figure] = []
    arrays: dict[str, np.ndarray] = {}
    write = Figure.savefig

    def savefig(figure: Figure, *arguments: Any, **options: Any) -> Any:
        if not any(figure is other for other in seen):
            arrays.update(arrays_of(figure, f"figure{len(seen)}"))
            seen.append(figure)
        return write(figure, *arguments, **options)

    with mock.patch.object(Figure, "savefig", savefig):
        yield arrays


def arrays_of(figure: Any, name: str) -> dict[str, np.ndarray]:
    """What was given to matplotlib: points of lines, corners of patches and collections, images, colour values."""
    arrays: dict[str, np.ndarray] = {}
    for place, ax in enumerate(figure.axes):
        for kind, drawn in _drawn(ax):
            start = f"{name}/axes{place}/{kind}"
            number = sum(key.startswith(start) for key in arrays)
            array = np.ma.filled(np.ma.asarray(drawn, dtype=float), np.nan)
            if array.size:
                arrays[f"{start}{number}"] = array
    return arrays


def _drawn(ax: Any) -> Iterator[tuple[str, Any]]:
    from matplotlib.patches import Rectangle

    for line in ax.lines:
        yield "line", line.get_xydata()
    for collection in ax.collections:
        offsets, values = np.asarray(collection.get_offsets()), collection.get_array()
        if values is not None:
            yield "values", values
        if len(offsets) > 1 or offsets.any():
            yield "offsets", offsets
        paths = [path.vertices for path in collection.get_paths()]
        if values is None and paths and not offsets.any():
            yield "corners", np.concatenate(paths)
    for patch in ax.patches:
        if isinstance(patch, Rectangle):
            yield "bar", [*patch.get_xy(), patch.get_width(), patch.get_height()]
        else:
            yield "patch", patch.get_path().vertices
    for image in ax.images:
        yield "image", image.get_array()
        yield "extent", image.get_extent()
