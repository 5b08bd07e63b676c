"""A pytest plugin for an environment without torch and transformers: what needs them is skipped, and counted.

    PYTHONPATH=tools python -m pytest -p without_torch tests

A test, a fixture or a file counts as skipped where what it failed on says that one of these packages is missing.
Whatever else fails, fails.
"""

import importlib.util
import re

import pytest

_PACKAGES = ("torch", "transformers", "tokenizers", "accelerate", "huggingface_hub")
_ABSENT = "|".join(name for name in _PACKAGES if importlib.util.find_spec(name) is None)
_MISSING = re.compile(rf"No module named '({_ABSENT})\b|\b({_ABSENT}): not installed")


def _skip(report: pytest.TestReport | pytest.CollectReport, path: str) -> None:
    found = _MISSING.search(report.longreprtext) if report.failed and _ABSENT else None
    if found:
        report.outcome = "skipped"
        report.longrepr = (path, 0, f"Skipped: needs {found[1] or found[2]}")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector):
    report = yield
    _skip(report, str(collector.path))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item):
    report = yield
    _skip(report, str(item.path))
    return report
