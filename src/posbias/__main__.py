"""`posbias` and `python -m posbias`: the command line, from its first import on."""

import atexit
import gc
import sys


def main() -> None:
    """Run the command line; Ctrl-C while it is still being imported ends it as any later one does."""
    try:
        from posbias.cli import main as run
    except KeyboardInterrupt:
        sys.stderr.write("posbias: interrupted\n")
        raise SystemExit(130) from None
    # else the interpreter looks through all objects before it ends, a quarter of `posbias predict`
    atexit.register(gc.freeze)
    run()


if __name__ == "__main__":
    main()
