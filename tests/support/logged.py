"""What posbias logs, for tests to look at."""

import logging
from contextlib import contextmanager


@contextmanager
def logged():
    """The messages that posbias logs inside the block, at `info` and above."""
    lines, handler, logger = [], logging.Handler(), logging.getLogger("posbias")
    handler.emit = lambda record: lines.append(record.getMessage())
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
