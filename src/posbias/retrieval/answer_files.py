"""Answers in a file of JSON lines: kept as they come, so that nothing is asked twice, or made elsewhere.

A line has the prompt, its `id` (the beginning of the SHA-256 of the prompt) and, once there is one, the `answer`.
An answer that was cut off (`scoring.CutOff`) has `cut_off` too, or the `finish_reason` length of a server.
The first line of a file that posbias writes says who was asked, and how; nobody else's answers go there, and
without an answer there is no file. A last line that a kill has cut short is dropped.
"""

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from posbias.core import spec
from posbias.core.arguments import shortened
from posbias.core.errors import DamagedError, InputFileError, OutputFileError
from posbias.core.files import need_writable, write_text
from posbias.core.input_files import json_lines
from posbias.core.tables import table_lines
from posbias.retrieval.scoring import CutOff
from posbias.retrieval.trials import Trial

KIND, SCHEMA = "retrieval-answers", 1
PLACED = "placed"
"""The arm in which the fact stands at a position."""


@dataclass(frozen=True)
class Request:
    """A prompt to be answered: of which trial, in which arm, and for `PLACED` at which position."""

    trial: int
    arm: str
    position: int | None
    prompt: str

    @property
    def id(self) -> str:
        """Sixteen hexadecimal digits of the prompt: equal prompts are asked once."""
        return hashlib.sha256(self.prompt.encode(errors="surrogatepass")).hexdigest()[:16]

    def as_dict(self) -> dict[str, Any]:
        """The keys of a line, without an answer."""
        about = {"id": self.id, "trial": self.trial, "arm": self.arm, "position": self.position}
        return about | {"prompt": self.prompt}


def requests_of(trial: Trial, index: int) -> list[Request]:
    """All prompts of a trial: at each position, then each control arm."""
    placed = [Request(index, PLACED, k, text) for k, text in enumerate(trial.asked)]
    return placed + [Request(index, arm, None, text) for arm, text in trial.arms.items()]


def write_requests(requests: Sequence[Request], path: str | os.PathLike[str]) -> Path:
    """Write prompts for somebody to answer, one a line. Raises `OutputFileError`."""
    return write_text(path, "".join(_line(request.as_dict()) for request in requests))


def read_answers(path: str | os.PathLike[str]) -> dict[str, str]:
    """Answers by the id of their prompt, from a file of JSON lines (or CSV) with `answer` and `id` or `prompt`.

    Raises `InputFileError` naming line and key, also where one prompt has two answers that differ.
    """
    answers: dict[str, str] = {}
    for line in table_lines(Path(path)):
        row = line.columns
        if row.get("posbias_kind") == KIND:
            continue
        identity, answer = _id_of(row), row.get("answer")
        if not isinstance(identity, str) or not isinstance(answer, str):
            key = "answer" if isinstance(identity, str) else "id"
            raise InputFileError(f"{line.where}: {key}: {shortened(row.get(key))} given, a text needed")
        if answers.setdefault(identity, _answer_of(row)) != answer:
            raise InputFileError(f"{line.where}: id: {identity} has another answer before, one needed")
    if not answers:
        raise InputFileError(f"{path}: no answer in it; lines with id and answer needed")
    return answers


class AnswerFile:
    """Answers that are kept in a file as they come; inside its block nobody else writes there.

    `known` has every answer by id. Without a path they are kept in memory. Raises `InputFileError` for a file of
    another specification or of something else, `DamagedError` for a line that is none of ours, `OutputFileError`
    where it cannot be written or another process does.
    """

    def __init__(self, path: str | os.PathLike[str] | None, specification: Mapping[str, Any]):
        self.path = None if path is None else Path(path)
        self.known: dict[str, str] = {}
        self._specification = dict(specification)
        self._file: IO[bytes] | None = None
        self._begun = False
        self._made: list[Path] = []

    def __enter__(self) -> "AnswerFile":
        if self.path is None:
            return self
        need_writable(self.path)
        # what is not there yet, the innermost first: it goes again where no answer comes
        self._made = [one for one in (self.path, *self.path.parents) if not one.exists()]
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # unbuffered: what a full disk refuses is not tried again at the end
            self._file = self.path.open("a+b", buffering=0)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not self.path.exists() or not os.path.samestat(
                os.fstat(self._file.fileno()), self.path.stat()
            ):
                raise BlockingIOError  # who held it before took it away, without an answer
        except BlockingIOError:
            self._made = []
            self._close()
            raise OutputFileError(f"cannot write {self.path}: another process is asking into it") from None
        except OSError as error:
            self._close()
            raise OutputFileError(f"cannot write {self.path}: {error.strerror or error}") from None
        try:
            self._read(self._file)
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: Any) -> None:
        self._close()

    def add(self, request: Request, answer: str) -> None:
        """Keep an answer: it is on its way to the disk when this returns. Raises `OutputFileError`."""
        self.known[request.id] = answer
        cut = {"cut_off": True} if isinstance(answer, CutOff) else {}
        self._append(request.as_dict() | {"answer": answer} | cut)

    def _append(self, row: Mapping[str, Any]) -> None:
        if self._file is None:
            return
        begin = "" if self._begun else _line(self._header())
        left = memoryview((begin + _line(row)).encode())
        self._begun = True
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            raise OutputFileError(f"cannot write {self.path}: {error.strerror or error}") from None

    def _read(self, file: IO[bytes]) -> None:
        file.seek(0)
        content = file.read()
        whole = content.rfind(b"\n") + 1
        lines = json_lines(content[:whole].decode(errors="replace"), self.path or "")
        first = next(lines, None)
        if first is not None:
            self._check_header(first.columns)
        if cut := content[whole:]:
            if first is None and not cut.startswith(b'{"posbias_kind"'[: len(cut)]):
                raise DamagedError(f"{self.path}: damaged, not a file of answers")
            file.truncate(whole)
        for line in lines:
            row = line.columns
            if row.get("id") != _id_of({"prompt": row.get("prompt")}) or not isinstance(
                row.get("answer"), str
            ):
                raise DamagedError(f"{line.where}: damaged, not an answer of posbias")
            self.known[row["id"]] = _answer_of(row)
        self._begun = first is not None

    def _header(self) -> dict[str, Any]:
        about = {"posbias_kind": KIND, "schema": SCHEMA}
        return about | {
            "fingerprint": spec.fingerprint(self._specification),
            "specification": self._specification,
        }

    def _check_header(self, row: Mapping[str, Any]) -> None:
        if row.get("posbias_kind") != KIND:
            raise InputFileError(
                f"{self.path}: not a file of answers that posbias began, another name needed"
            )
        if row.get("schema") != SCHEMA:
            raise InputFileError(
                f"{self.path}: schema version {row.get('schema')}, this posbias writes {SCHEMA}"
            )
        if row.get("fingerprint") != spec.fingerprint(self._specification):
            raise InputFileError(
                f"{self.path}: answers of another model, or asked in another way; another name needed"
            )

    def _close(self) -> None:
        if self._file is None:
            return
        if not self._begun:
            with contextlib.suppress(OSError):
                for one in self._made:
                    one.rmdir() if one.is_dir() else one.unlink()
        self._file.close()
        self._file = None


def _id_of(row: Mapping[str, Any]) -> Any:
    if "id" in row or not isinstance(row.get("prompt"), str):
        return row.get("id")
    return Request(0, "", None, row["prompt"]).id


def _answer_of(row: Mapping[str, Any]) -> str:
    cut = row.get("cut_off") is True or row.get("finish_reason") == "length"
    return CutOff(row["answer"]) if cut else row["answer"]


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=True) + "\n"
