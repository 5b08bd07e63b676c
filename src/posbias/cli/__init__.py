"""The command line: a file for each command, whose options are a frozen dataclass.

stdout is the answer (text, or one JSON value with --json), stderr the progress. Whatever goes wrong is one
line on stderr: exit code 2 for input that cannot be right, 130 after Ctrl-C or SIGTERM; --debug
shows the traceback. A command is imported when it is called or listed, and imports what is heavy when it works.
"""

import codecs
import io
import logging
import os
import signal
import sys
import time
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated

from cyclopts import App, CycloptsError, MissingArgumentError, Parameter

from posbias import __version__
from posbias.cli.output import without_bars
from posbias.core.errors import MissingPackageError, OutputFileError, PosbiasError
from posbias.core.packages import missing
from posbias.core.progress import MOST, on_stderr, one_line

__all__ = ["app", "main"]

log = logging.getLogger(__name__)
VERBOSE, QUIET = ("-v", "--verbose"), ("-q", "--quiet")
COMMANDS = (
    "predict measure heads retrieve choose remedy check compare report order design explore simulate train study "
    "presets models"
)

app = App(
    name="posbias",
    version=__version__,
    help="Predict, measure, compare, simulate and train position bias in transformers: where a model looks in its "
    "context, and where it does not. POSBIAS_CACHE names the folder of fetched models.",
    help_format="plaintext",
    help_epilogue="With any command: -v more words, -q no progress, --debug the traceback of an error.",
    suppress_keyboard_interrupt=False,
)
for name in COMMANDS.split():
    app.command(f"posbias.cli.{name}:{name}", name=name)
for entry in entry_points(group="posbias.commands"):
    app.command(entry.value, name=entry.name)
if "paper" not in app:

    @app.command
    def paper(*words: Annotated[str, Parameter(allow_leading_hyphen=True)]) -> None:
        """Reproduce the three papers: figures, tables and statements (needs posbias-papers)."""
        raise MissingPackageError(
            "posbias-papers: not installed, `posbias paper` needs it; run, where the sources of posbias are: "
            "pip install ./papers"
        )


app.register_install_completion_command(help="Let the shell complete commands and options.")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 2 input that cannot be right, 130 interrupted; else what a command
    returns (1: what was checked does not hold, 4: undecided)."""
    words = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in words
    verbose, quiet = (any(word in names for word in words) for names in (VERBOSE, QUIET))
    try:
        with on_stderr(verbose - quiet), without_bars(quiet):
            _prepare()
            status = _run([word for word in words if word not in ("--debug", *VERBOSE, *QUIET)])
            sys.stdout.flush()
            if status:
                raise SystemExit(status)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output left
        raise SystemExit(141) from None
    except ModuleNotFoundError as error:
        known = missing(error)
        if known is None or debug:
            raise
        _fail(known, words)
    except (PosbiasError, CycloptsError, KeyboardInterrupt, MemoryError, OSError) as error:
        if debug and not isinstance(error, CycloptsError):
            raise
        _fail(error, words)


def _prepare() -> None:
    """Streams that can be written to, whatever their encoding; pictures that need no screen; SIGTERM as Ctrl-C.

    Raises `OutputFileError` where standard output is closed.
    """
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115
        raise OutputFileError("standard output: expected a file, or /dev/null, got a closed one")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # halves of characters, from names that are no text, are escaped as in JSON
            whole = codecs.lookup(stream.encoding).name == "utf-8"
            stream.reconfigure(errors="backslashreplace" if whole else "replace")
    # what `timeout` and schedulers send ends a command as Ctrl-C does, so that nothing finished is lost
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    # figures go to files: no backend with a screen, nor one that is not there
    os.environ["MPLBACKEND"] = "agg"


def _run(words: list[str]) -> int | None:
    began, used = time.monotonic(), time.process_time()
    # import the commands below the one that is called: a page of help has the first line of each
    called = app
    for word in words:
        if word.startswith("-") or word not in called:
            break
        called = called[word]
    called.resolved_commands()
    quietly = dict.fromkeys(("exit_on_error", "print_error", "help_on_error"), False)
    status = app(words, **quietly, result_action="return_value")
    log.debug("%.1f s, %.1f s of them computing", time.monotonic() - began, time.process_time() - used)
    return status


def _fail(error: BaseException, words: list[str]) -> None:
    """Say in a line what went wrong, and exit."""
    message = str(error)
    if isinstance(error, MissingArgumentError) and error.argument is not None and error.keyword is None:
        message = f"{error.argument.field_info.name}: expected one, got none"
    elif isinstance(error, CycloptsError):
        message = " ".join(message.split()).removeprefix("Invalid value for ")
        message = message.replace("Unused Tokens:", "not understood:")
    elif isinstance(error, KeyboardInterrupt):
        message = f"interrupted: {message}".removesuffix(": ")
    elif isinstance(error, MemoryError):
        message = f"out of memory ({message}); fewer tokens or prompts needed"
    elif isinstance(error, OSError):
        where = "standard output" if error.filename is None else error.filename
        message = f"{where}: {error.strerror or error}"
        _silence_output()
    elif not isinstance(error, MissingPackageError):
        message = _of_option(message, words)
    sys.stderr.write(f"posbias: {one_line(message, 4 * MOST)}\n")
    raise SystemExit(130 if isinstance(error, KeyboardInterrupt) else 2)


def _of_option(message: str, words: list[str]) -> str:
    """A message about an argument, with the option that it was typed as in place of the argument's name."""
    name, colon, rest = message.partition(": ")
    option = f"--{name.replace('_', '-')}"
    if option in {word.partition("=")[0] for word in words} or (option == "--out" and "-o" in words):
        return f"{option}{colon}{rest}"
    given = next((place for place, word in enumerate(words) if word.startswith(f"{name}=")), 0)
    if given and words[given - 1].startswith("--"):
        return f"{words[given - 1]} {message}"
    of_a_part = _of_option(rest, words) if name.isidentifier() else rest
    return message if of_a_part == rest else of_a_part


def _silence_output() -> None:
    """Send what is left in the buffer of standard output nowhere: it could not be written."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError, AttributeError):  # not a stream of the system
        pass
