"""The command line: one short function per command.

stdout is the answer (text, or one JSON value with --json), stderr the progress. Whatever goes wrong is one
line on stderr: exit code 2 for input that cannot be right, 130 after Ctrl-C; --debug shows the traceback.
"""

import sys

from cyclopts import App, CycloptsError

from posbias import __version__
from posbias.cli import reproducing as _reproducing  # noqa: F401 (adds its commands to `paper`)
from posbias.cli import residual as _residual  # noqa: F401 (adds its commands to `paper`)
from posbias.cli.citing import cite
from posbias.cli.measuring import compare, measure, report
from posbias.cli.models import models
from posbias.cli.papers import paper
from posbias.cli.predicting import predict, presets, verify
from posbias.cli.retrieving import retrieve
from posbias.cli.simulating import simulate
from posbias.cli.speaking import COMPILING
from posbias.cli.studies import study
from posbias.cli.training import train
from posbias.errors import PosbiasError
from posbias.logs import on_stderr

__all__ = ["COMPILING", "app", "main"]

app = App(
    name="posbias",
    version=__version__,
    help="Predict, measure, compare, simulate and train position bias in transformers: where a model looks in its "
    "context, and where it does not. Add --debug to any command to see the traceback of an error; POSBIAS_CACHE "
    "names the folder of fetched models.",
    help_format="plaintext",
    suppress_keyboard_interrupt=False,
)
for command in (predict, measure, retrieve, compare, report, simulate, train):
    app.command(command)
for command in (study, paper, verify, presets, models, cite):
    app.command(command)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 2 input that cannot be right, 130 interrupted."""
    given = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in given
    try:
        with on_stderr():
            app(
                [word for word in given if word != "--debug"],
                exit_on_error=False,
                print_error=False,
                help_on_error=False,
                result_action="return_value",
            )
    except PosbiasError as error:
        if debug:
            raise
        _fail(str(error), 2)
    except CycloptsError as error:
        if {"--full", "--quick"} <= {*given}:
            # where they are one flag, the parser would call it repeated
            _fail("full: given together with --quick, one of the two needed", 2)
        message = " ".join(str(error).split())
        _fail(message.replace("Unused Tokens:", "not understood:"), 2)
    except KeyboardInterrupt as interrupt:
        if debug:
            raise
        _fail(f"interrupted{': ' + str(interrupt) if str(interrupt) else ''}", 130)
    except BrokenPipeError:
        # the reader of our output left; there is nobody to tell
        sys.stderr.close()
        raise SystemExit(141) from None
    except MemoryError as error:
        if debug:
            raise
        _fail(f"out of memory ({error}); fewer tokens or prompts needed", 2)


def _fail(message: str, code: int) -> None:
    sys.stderr.write(f"posbias: {message}\n")
    raise SystemExit(code)
