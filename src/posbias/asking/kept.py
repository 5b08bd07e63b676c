"""Answers that are kept: a file of JSON lines to which each is written as it comes; answers made elsewhere.

A line has the prompt, its `id` (the beginning of the SHA-256 of the prompt) and, once there is one, the `answer`.
An answer that may be none has the name of why (`ENDINGS`, `cut_off` for instance), or a server's `finish_reason`;
thoughts that were kept with it are left out. The first line of a file that posbias writes says who was asked, and
how; nobody else's answers go there; `sent` is what the server wanted otherwise. A last line that a kill has cut
short is dropped. Folders of one results folder share answers: what whoever was asked alike said for one command
is not asked again for another.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from posbias.asking.replies import answer_of, text_of
from posbias.asking.requests import Generator, Request, cost, each_answer, id_of, json_line
from posbias.core import spec
from posbias.core.errors import DamagedError, InputFileError, OutputFileError, shortened, wrong
from posbias.core.files import need_writable
from posbias.core.matching import ENDINGS
from posbias.core.progress import Event, OnEvent
from posbias.core.tables import json_lines, table_lines

log = logging.getLogger(__name__)
KIND, SCHEMA = "retrieval-answers", 1
RESULTS, ANSWERS = "results", "answers.jsonl"
"""The name of a results folder, and what folders in it, or in these, keep answers in."""


def read_answers(path: str | os.PathLike[str]) -> dict[str, str]:
    """Answers by the id of their prompt, from a file of JSON lines (or CSV) with `answer` and `id` or `prompt`.

    Raises `InputFileError` naming line and key, also where one prompt has two answers that differ.
    """
    answers: dict[str, str] = {}
    for where, row in table_lines(Path(path)):
        if row.get("posbias_kind") == KIND:
            continue
        prompt = row.get("prompt")
        identity = row.get("id", id_of(prompt) if isinstance(prompt, str) else None)
        for key, held, kind in (("id", identity, str), ("answer", row.get("answer"), str | list)):
            if not isinstance(held, kind):
                raise InputFileError(f"{where}: {key}: expected a text, got {shortened(held)}")
        answer = _answer_of(row)
        if answers.setdefault(identity, answer) != answer:
            raise InputFileError(f"{where}: id: expected one answer to {identity}, got another one before")
    return answers


class AnswersRead:
    """Answers made elsewhere, which are looked up; `asked_of` has a name for who gave them.

    `write` raises `InputFileError` for a prompt that has none in the file. Raises as `read_answers`.
    """

    def __init__(self, path: str | os.PathLike[str], name: str = ""):
        self.path, self._known = Path(path), read_answers(path)
        self.asked_of = {"model": name or f"answers of {path}"}

    def write(self, prompt: str) -> str:
        """The answer to a prompt."""
        if id_of(prompt) not in self._known:
            none = f"none to {id_of(prompt)} ({shortened(prompt)})"
            what = "answers to all prompts of the same options"
            raise wrong(self.path, what, got=none, kind=InputFileError)
        return self._known[id_of(prompt)]


class AnswerFile:
    """Answers in a file of JSON lines, each written as it comes; `known` has all by id, `asked_of` who was asked.

    Without a path they are kept in memory; without an answer there is no file. Raises `InputFileError` for a file
    of another specification or of something else, `DamagedError` for a line that is none of ours, and
    `OutputFileError` where it cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str] | None, specification: Mapping[str, Any]):
        self.path, self.known = None if path is None else Path(path), dict[str, str]()
        self.asked_of = dict(specification)
        about = {"posbias_kind": KIND, "schema": SCHEMA, "fingerprint": spec.fingerprint(dict(specification))}
        self._header = about | {"specification": dict(specification)}
        if self.path is not None:
            need_writable(self.path)
            if self.path.exists():
                self.known, first = self._read(self.path)
                self.asked_of |= first.get("sent", {})
                self._header |= {"server": first["server"]} if "server" in first else {}

    def add(self, request: Request, answer: str, sent: Mapping[str, Any] = {}) -> None:
        """Keep an answer: it is on its way to the disk when this returns. Raises `OutputFileError`.

        `sent`: what was sent otherwise than `asked_of` says, which says so from now on.
        """
        self.known[request.id] = answer
        self.asked_of |= sent
        if self.path is None:
            return
        why = {name: True for name, kind in ENDINGS.items() if isinstance(answer, kind)}
        line = request.line(answer=answer, **why)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                header = self._header | ({"sent": dict(sent)} if sent else {})
                file.write((line if file.tell() else json_line(header) + line).encode())
        except OSError as error:
            raise OutputFileError(f"cannot write {self.path}: {error.strerror or error}") from None

    def answer(
        self, generator: Generator, asked: Sequence[Request], concurrency: int, on_event: OnEvent
    ) -> None:
        """Ask each prompt once that has no answer yet, and keep what comes. Raises as `each_answer` and `add`."""
        self.take(asked, generator)
        left = list({one.id: one for one in asked if one.id not in self.known}.values())
        before = len(asked) - len(left)
        on_event(Event(before, len(asked), "request"))
        for done, pair in enumerate(each_answer(generator, left, concurrency), start=before + 1):
            self.add(*pair, getattr(generator, "sent", {}))
            on_event(Event(done, len(asked), "request"))

    def announce(
        self, asked: Sequence[Request], generator: Any, most_out: int | None = None, more: str = ""
    ) -> None:
        """Take what other folders have of these requests, and log what asking for the rest takes (`cost`)."""
        self.take(asked, generator)
        left = cost(asked, self.known, most_out)
        nothing = f"nothing, all answers are in {self.path}; another --out asks anew"
        log.info("%s: to ask: %s", self.asked_of.get("model"), f"{left}{more}" if left.requests else nothing)

    def take(self, asked: Sequence[Request], generator: Any) -> None:
        """Copy answers that folders of the same results folder have of whoever was asked alike, at the address of
        `generator` if it is a server, but of nobody who has a name alone. Raises as `add`."""
        if (url := getattr(generator, "url", None)) is not None:
            server = spec.fingerprint(url)
            if self._header.get("server", server) != server:
                log.warning("%s: kept answers, of this model elsewhere: another --out asks anew", self.path)
            self._header["server"] = server
        taken = {one.id: one for one in asked if one.id in self._near and one.id not in self.known}
        for one in taken.values():
            self.add(one, *self._near[one.id])
        if taken:
            log.info("%d answers are those of other folders (--out outside asks anew)", len(taken))

    @cached_property
    def _near(self) -> dict[str, tuple[str, dict[str, Any]]]:
        """By id the answers in other folders of whoever was asked alike, and what was sent otherwise."""
        found = dict[str, tuple[str, dict[str, Any]]]()
        named = len(self._header["specification"]) > 1
        near = self.path.absolute().parents[1:3] if self.path is not None and named else ()
        roots = [folder for folder in near if folder.name == RESULTS]
        files = {file for one in roots for own in ("*", "*/*") for file in one.glob(f"{own}/{ANSWERS}")}
        for path in sorted(files):
            with suppress(InputFileError, OSError):
                answers, first = self._read(path)
                found |= {identity: (answer, first.get("sent", {})) for identity, answer in answers.items()}
        return found

    def _read(self, path: Path) -> tuple[dict[str, str], dict[str, Any]]:
        """The answers in a file by id, and its first line; a line cut short is dropped from one's own."""
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        lines = json_lines(content[:whole].decode(errors="replace"), path)
        known = dict[str, str]()
        _, first = next(lines, ("", None))
        if first is not None:
            held = {"posbias_kind": "kind", "schema": "schema", "fingerprint": "model and options"}
            if path != self.path:
                held["server"] = "server"
            for key, what in held.items():
                if first.get(key) != self._header.get(key):
                    others = "others; give another name"
                    raise wrong(path, f"answers of this {what}", got=others, kind=InputFileError)
        elif not content.startswith(b'{"posbias_kind"'[: len(content)]):
            raise DamagedError(f"{path}: damaged, not a file of answers")
        for where, row in lines:
            prompt, answer, name = row.get("prompt"), row.get("answer"), str(row.get("id")).partition("-")[0]
            if not isinstance(prompt, str) or not isinstance(answer, str) or name != id_of(prompt):
                raise DamagedError(f"{where}: damaged, not an answer of posbias")
            known[row["id"]] = _answer_of(row)
        if whole < len(content) and path == self.path:
            os.truncate(path, whole)
        return known, first or {}


def _answer_of(row: Mapping[str, Any]) -> str:
    named = next((name for name in ENDINGS if row.get(name) is True), row.get("finish_reason"))
    return answer_of(text_of(row["answer"]), named)
