"""Commands in processes of their own, forked with everything imported, so that a kill strikes what they do."""

import multiprocessing
import os
import shlex
import shutil
import signal
import time
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

PRELOADED = [
    "matplotlib.pyplot",
    "posbias.cli.measure",
    "posbias_papers.cli",
    "posbias.cli.study",
    "posbias.cli.train",
    "posbias.measurement.models.loading",
    "posbias.measurement.prompt_meter",
    "posbias_papers.kim2026",
    "posbias.training.cells",
    "transformers",
]


def is_leftover(path: Path) -> bool:
    """Whether a file is what a writer has begun."""
    return path.name.startswith(".") and path.name.count("~") >= 2


def run(line: str, folder: str) -> None:
    """The command, in a process group of its own, its words in files next to what it keeps."""
    os.setsid()
    os.chdir(folder)
    for name, descriptor in (("out", 1), ("err", 2)):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    from posbias.cli import main

    main(shlex.split(line))


class Command:
    """A command line that keeps everything in `kept`, run in a folder, whole or until it is killed.

    `modules` are imported before the first of all commands begins.
    """

    def __init__(self, line: str, folder: Path, modules: Sequence[str] = PRELOADED):
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([*modules])
        self.line, self.folder = line, folder

    def start(self) -> BaseProcess:
        process = self._context.Process(target=run, args=(self.line, str(self.folder)))
        process.start()
        return process

    def whole(self) -> float:
        """Run it to its end, and return the seconds that took."""
        process, began = self.start(), time.monotonic()
        process.join()
        assert process.exitcode == 0, (self.folder / "err").read_text()
        return time.monotonic() - began

    def strike(self, after: float, writing: bool) -> bool:
        """Kill it after so many seconds, or later while it writes a file; return whether it lived until then."""
        process, moment = self.start(), time.monotonic() + after
        while time.monotonic() < moment and process.is_alive():
            time.sleep(0.002)
        while writing and process.is_alive() and not self.begun():
            pass
        if alive := process.is_alive():
            assert process.pid is not None
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:  # it has no group of its own yet, or has just ended
                process.kill()
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL), (self.folder / "err").read_text()
        return alive and process.exitcode != 0

    def begun(self) -> list[Path]:
        """Files that a writer has begun and not finished."""
        return [path for path in (self.folder / "kept").rglob(".*") if is_leftover(path)]

    def forget(self) -> None:
        """Begin anew."""
        shutil.rmtree(self.folder / "kept", ignore_errors=True)
