"""A process that reads files: what a library does to it, or takes, is seen from outside."""

import contextlib
import io
import multiprocessing
import resource
import signal
import sys
import tempfile
import traceback
import warnings
from pathlib import Path

from struck import PRELOADED

MORE, SECONDS = 2 << 30, 60.0
"""Bytes of addresses and seconds that reading a file may take."""


def _command(*words):
    """A command line that is one argument long, or says in a line why not."""

    def read(path):
        from posbias.cli import main

        told = io.StringIO()
        with tempfile.TemporaryDirectory() as out, contextlib.chdir(out):
            Path("list.json").write_text("[" + ", ".join(["1.0"] * TOKENS) + "]")
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(told):
                try:
                    main([str(path) if word == "FILE" else word for word in words])
                except SystemExit as ended:
                    code = ended.code
                else:
                    return
        said = told.getvalue().splitlines()[-1]
        if code != 2 or not said.startswith("posbias: ") or "out of memory" in said:
            raise ValueError(f"exit code {code}: {said}")
        raise RefusedError(said)

    return read


def _imported(path):
    """Results made elsewhere, without a warning."""
    import numpy as np

    from posbias.imports import read_curves

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        curves = read_curves(path)
    for profile in curves.values():
        assert np.isfinite(profile.mass).all()
        assert profile.se is None or np.isfinite(profile.se).all()


class RefusedError(Exception):
    """A command said in a line what is wrong."""


TOKENS = 16
"""Of the measurement that is damaged."""


def readers():
    """What reads a file of a kind; the libraries are loaded here."""
    import posbias
    from posbias.measurement import load_model
    from posbias.store import load_retrieval
    from posbias.store.checkpoint import KIND, SCHEMA
    from posbias.store.packing import unpack
    from posbias.store.pieces import read_pieces
    from posbias.training.results import load_cell, load_trained

    def unpacked(path):
        with tempfile.TemporaryDirectory() as folder:
            unpack(path, Path(folder))

    return {
        "import": _imported,
        "measurement": posbias.load_measurement,
        "retrieval": load_retrieval,
        "network": load_cell,
        "weights": load_trained,
        "checkpoint": lambda path: read_pieces(path, KIND, SCHEMA),
        "pack": unpacked,
        "model": load_model,
        "compare": _command("compare", "FILE", "list.json"),
        "noise": _command("compare", "FILE", "FILE", "--json"),
        "report": _command("report", "FILE", "--out", "report"),
        "cite": _command("cite", "FILE"),
        "calibrate": _command("predict", "tiny-alibi", "--tokens", str(TOKENS), "--calibrate", "FILE"),
        "mixing": _command("predict", "tiny-alibi", "--tokens", str(TOKENS), "--mixing", "FILE"),
        "predict": _command("predict", "FILE", "--tokens", "8"),
        "study": _command("study", "run", "FILE", "--dry-run"),
    }


def serve(connection):
    """Read what is asked for, and say how that ended."""
    from posbias.errors import PosbiasError
    from posbias.logs import MOST, one_line

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    known = readers()
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MORE
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    sys.stderr = io.StringIO()
    while True:
        kind, path = connection.recv()
        try:
            known[kind](path)
            connection.send(("read", ""))
        except (PosbiasError, RefusedError) as error:
            said = str(error).replace(str(path), "FILE").replace(str(path.parent), "FOLDER")
            whole = said.strip() and len(one_line(said)) <= MOST
            connection.send(("refused" if whole else "badly told", said))
        except BaseException:
            connection.send(("traceback", traceback.format_exc()))


class Reader:
    """Reads files in another process, which is begun anew when one has ended it."""

    def __init__(self):
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["reading", *PRELOADED])
        self._process = None

    def _begin(self):
        self._connection, theirs = self._context.Pipe()
        self._process = self._context.Process(target=serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def read(self, kind, path):
        """How reading ended ("read", "refused", "traceback", "crashed", "endless"), and what was said."""
        if self._process is None:
            self._begin()
        self._connection.send((kind, path))
        patience = SECONDS if self._warm(kind) else 6 * SECONDS
        try:
            if self._connection.poll(patience):
                return self._connection.recv()
            how = "endless", f"not done after {patience} s"
            self._process.kill()
        except EOFError:
            self._process.join()
            how = "crashed", f"exit code {self._process.exitcode}"
        self.stop()
        return how

    def _warm(self, kind):
        """Whether it has read such a file before: the first one also compiles and imports."""
        warm, self._seen = kind in getattr(self, "_seen", set()), getattr(self, "_seen", set()) | {kind}
        return warm

    def stop(self):
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._connection.close()
            self._process, self._seen = None, set()
