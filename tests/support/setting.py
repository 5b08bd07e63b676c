"""What both suites set: the same examples on every run, no hub asked, tests that wait first; what posbias logs."""

import gc
import logging
import os
import signal
import sys
from contextlib import contextmanager
from zlib import crc32

os.environ.setdefault("HF_HUB_OFFLINE", "1")
# one thread, here and in the processes that tests start: next to other work, threads waiting for each other
# make small models several times slower
os.environ["OMP_NUM_THREADS"] = "1"
# processes that tests start are many: each would compile our sources anew
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# a command's console takes its width once, from the first test that makes it write
os.environ["COLUMNS"] = "100"
# a shell that starts the tests in the background has SIGINT ignored, and so would every process started here
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import pytest
from hypothesis import HealthCheck, settings

sys.dont_write_bytecode = False
# what is imported is large and stays: looking through it for garbage took a twentieth of the time
gc.set_threshold(20_000, 20, 20)

settings.register_profile(
    "posbias", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("quick", settings.get_profile("posbias"), max_examples=10)
settings.load_profile("posbias")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with tests that wait come first; with `TENTH` in the environment, 0 to 9, a tenth of all stays."""
    if "TENTH" in os.environ:
        items[:] = [
            item for item in items if crc32(item.nodeid.encode()) % 10 == int(os.environ["TENTH"]) % 10
        ]
    first = {item.path for item in items if item.get_closest_marker("waits")}
    items.sort(key=lambda item: item.path not in first)


@pytest.fixture(autouse=True)
def logging_as_found():
    """A test that leaves the log at another level would make a later one deaf, wherever both run."""
    logger = logging.getLogger("posbias")
    before = logger.level, list(logger.handlers)
    yield
    now = logger.level, list(logger.handlers)
    logger.setLevel(before[0])
    logger.handlers[:] = before[1]
    assert now == before, f"the log is left at level {now[0]} with {now[1]}, not {before[0]} with {before[1]}"


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
