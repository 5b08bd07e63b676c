"""Chromium, driven by playwright; without either, the tests that need it say so in one line and do not run."""

import shutil
from importlib.util import find_spec

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="session")
def browser():
    """One browser for all tests, without a network."""
    if CHROMIUM is None or find_spec("playwright") is None:
        pytest.skip("Chromium or playwright is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()
