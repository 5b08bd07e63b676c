"""One small measurement for all, and a report on it whose names would be markup."""

import pytest
from browser import browser  # noqa: F401

from posbias import measure
from posbias.reports import write_report

HOSTILE = {"model": "<script>alert(1)</script>", "text": "a & b", "extra": "<i>"}


@pytest.fixture(scope="session")
def measured():
    """Two layers of tiny-alibi, in 8 prompts of 40 tokens."""
    return measure("tiny-alibi", tokens=40, prompts=8, threads=1).isel(layer=slice(0, 2))


@pytest.fixture(scope="session")
def hostile(measured):
    """The same, with names that would be markup."""
    return measured.assign_attrs(HOSTILE)


@pytest.fixture(scope="session")
def report(hostile, tmp_path_factory):
    return write_report(hostile, tmp_path_factory.mktemp("report"), seed=3)
