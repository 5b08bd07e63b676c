"""A command line in this process: as its own process answers, without a second of imports."""

import contextlib
import io
import os
import resource
import subprocess
import sys
import warnings
from pathlib import Path
from unittest import mock

from posbias.cli import app, main

SMALL_TASK = """
[task]
items = 4
dimension = 8
classes = 16
labels = 4
burstiness = 2
"""
"""A retrieval task of four items, in a file of `posbias train`."""


def called(*arguments: object, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess:
    """What `posbias ARGUMENTS` prints and how it ends."""
    words = [str(word) for word in arguments]
    answer, errors_out, code = io.StringIO(), io.StringIO(), 0
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, environment))
        if cwd is not None:
            stack.enter_context(contextlib.chdir(cwd))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("default")
        stack.enter_context(contextlib.redirect_stdout(answer))
        stack.enter_context(contextlib.redirect_stderr(errors_out))
        try:
            main(words)
        except SystemExit as ended:
            code = int(ended.code or 0)
    return subprocess.CompletedProcess(words, code, answer.getvalue(), errors_out.getvalue())


def started(*arguments: object, cwd: Path | None = None) -> subprocess.Popen:
    """The same command in a process of its own."""
    command = [sys.executable, "-m", "posbias", *map(str, arguments)]
    return subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@contextlib.contextmanager
def full_disk(room: int):
    """No file can be longer than so many bytes: that limit stands for the disk's."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def commands(page=app, path=()):
    """Every command that has options, as words."""
    below = [name for name in page if not name.startswith("-")]
    if page.default_command is not None:
        yield path
    for name in below:
        yield from commands(page[name], (*path, name))
