"""What a browser makes of pages whose names and texts would be markup; skipped where there is no Chromium."""

import shutil
import subprocess

import pytest
from browser import plain
from browser import read as read_page

from posbias.reports import write_report

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
STRIKES = "document.documentElement.setAttribute('struck', 1)"
HOSTILE = f'<script>{STRIKES}</script><img src=x onerror="{STRIKES}">]](x) | & \' </title></text></svg>'


def shown(path, folder):
    """The document after its scripts ran, if it has any, as the browser spells it."""
    off = ("gpu", "dev-shm-usage", "extensions", "background-networking")
    words = ["--headless", "--no-sandbox", "--no-first-run", *(f"--disable-{part}" for part in off)]
    words += [f"--user-data-dir={folder / 'profile'}", "--dump-dom"]
    done = subprocess.run(
        [CHROMIUM, *words, path.absolute().as_uri()], capture_output=True, text=True, timeout=300, check=True
    )
    return done.stdout


@needs_browser
def test_a_browser_runs_what_is_markup(tmp_path):
    """Else the tests below would show nothing."""
    page = tmp_path / "page.html"
    page.write_text(f"<!doctype html><title>x</title><p>{HOSTILE}")
    assert 'struck="1"' in shown(page, tmp_path)


@pytest.mark.slow
@needs_browser
def test_names_in_a_report_are_text_in_a_browser(make_measurement, tmp_path):
    report = write_report(make_measurement("flat", model=HOSTILE, text=HOSTILE), tmp_path)
    for path in (report.page, *(path for path in report.figures if path.suffix == ".svg")):
        assert "struck=" not in shown(path, tmp_path), path
    page = tmp_path / "shown.html"
    page.write_text(shown(report.page, tmp_path))
    assert f"<script>{STRIKES}</script>" in plain(read_page(page))
