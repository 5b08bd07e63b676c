"""Fuzzing for a while: `--seconds` of other examples in every test here, and how many there were."""

import functools
import time
from collections import Counter

import pytest
from counted import EXAMPLES

SAID: Counter[str] = Counter()


def pytest_addoption(parser):
    parser.addoption("--seconds", type=float, default=0, help="try other examples in every test for so long")


def pytest_collection_modifyitems(items):
    """Count what `@given` gives."""
    tests = {item.obj.hypothesis for item in items if hasattr(item.obj, "hypothesis")}
    for test in tests:
        test.inner_test = counting(test.inner_test)


def counting(test):
    @functools.wraps(test)
    def counted(*arguments, **named):
        EXAMPLES["given"] += 1
        return test(*arguments, **named)

    return counted


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Call a test once, or again and again until its time is over."""
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
            SAID.update(dict(getattr(report, "user_properties", ())).get("examples", {}))
    if SAID:
        terminalreporter.section("examples")
        for name, count in sorted(SAID.items()):
            terminalreporter.line(f"{count:8,}  {name}")
        given = sum(count for name, count in SAID.items() if not name.endswith(": kills"))
        terminalreporter.line(f"{given:8,}  in all")
