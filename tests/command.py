"""A command line in this process: as its own process answers, without a second of imports."""

import contextlib
import io
import os
import subprocess
import warnings
from pathlib import Path
from unittest import mock

from posbias.cli import main


def called(*arguments: object, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess:
    """What `posbias ARGUMENTS` prints and how it ends."""
    words = [str(word) for word in arguments]
    answer, told, code = io.StringIO(), io.StringIO(), 0
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, environment))
        if cwd is not None:
            stack.enter_context(contextlib.chdir(cwd))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("default")
        stack.enter_context(contextlib.redirect_stdout(answer))
        stack.enter_context(contextlib.redirect_stderr(told))
        try:
            main(words)
        except SystemExit as ended:
            code = int(ended.code or 0)
    return subprocess.CompletedProcess(words, code, answer.getvalue(), told.getvalue())
