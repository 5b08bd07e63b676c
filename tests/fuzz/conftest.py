"""Fuzzing for a while: `--seconds` of other examples in every test here, and how many there were."""

import functools
import time
from collections import Counter
from pathlib import Path

import pytest
from counted import EXAMPLES
from reading import Reader


@pytest.fixture(scope="module")
def reader():
    """A process that reads what a test gives it."""
    made = Reader()
    yield made
    made.stop()


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """A whole file of every kind by its name."""
    pytest.importorskip("torch")
    from whole_files import whole_files

    return whole_files(tmp_path_factory.mktemp("whole"))


SAID: Counter[str] = Counter()


def pytest_addoption(parser):
    parser.addoption("--seconds", type=float, default=0, help="try other examples in every test for so long")


def pytest_collection_modifyitems(items):
    """Count what `@given` gives the tests of this folder."""
    own = [item.obj for item in items if item.path.parent == Path(__file__).parent]
    for handle in (test.hypothesis for test in own if hasattr(test, "hypothesis")):
        if not hasattr(handle.inner_test, "__wrapped__"):
            handle.inner_test = counting(handle.inner_test)


def counting(test):
    @functools.wraps(test)
    def counted(*arguments, **named):
        EXAMPLES["given"] += 1
        return test(*arguments, **named)

    return counted


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Call a test of this folder once, or again and again until its time is over."""
    if pyfuncitem.path.parent != Path(__file__).parent:
        return None
    end = time.monotonic() + pyfuncitem.config.getoption("seconds", 0)
    before = Counter(EXAMPLES)
    names = pyfuncitem._fixtureinfo.argnames
    try:
        while True:
            pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
            if time.monotonic() >= end:
                return True
    finally:
        counted = {f"{pyfuncitem.name}: {kind}": count for kind, count in (EXAMPLES - before).items()}
        pyfuncitem.user_properties.append(("examples", counted))


def pytest_terminal_summary(terminalreporter):
    """How many examples of what there were."""
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") == "call":
                SAID.update(dict(report.user_properties).get("examples", {}))
    if SAID:
        terminalreporter.section("examples")
        for name, count in sorted(SAID.items()):
            terminalreporter.line(f"{count:8,}  {name}")
        given = sum(count for name, count in SAID.items() if name.endswith((": given", ": folders")))
        terminalreporter.line(f"{given:8,}  in all")
