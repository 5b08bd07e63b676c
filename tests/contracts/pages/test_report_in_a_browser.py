"""Reports as they are read: on a phone, on a wide screen, on paper; in a real Chromium, or not at all."""

import csv
import io

import numpy as np
import pytest

from posbias.profiles.profile import Profile
from posbias.reports.profile_page import write_profile_report

A4 = 688
"""CSS pixels between the margins of a sheet."""


@pytest.fixture(scope="module")
def written(report, tmp_path_factory):
    """Both kinds of page: of a measurement, and of results made elsewhere."""
    samples = np.random.default_rng(0).integers(0, 2, (12, 5)).astype(float)
    error = samples.std(axis=0, ddof=1) / np.sqrt(12)
    places = {"places": [0, 0.25, 0.5, 0.75, 1], "read_as": "trials <b>of</b> a test"}
    profile = Profile(
        samples.mean(axis=0), kind="rate", measures="score", samples=samples, se=error, attrs=places
    )
    folder = tmp_path_factory.mktemp("elsewhere")
    return {"report": report.page, "profile": write_profile_report(profile, folder, title="trials.csv").page}


@pytest.fixture(params=["report", "profile"])
def page(request, browser, written):
    """An open page, with what it asked for and complained of."""
    opened = browser.new_page(accept_downloads=True)
    asked, wrong = [], []
    opened.on("request", lambda one: asked.append(one.url))
    opened.on("console", lambda one: wrong.append(one.text))
    opened.on("pageerror", lambda one: wrong.append(str(one)))
    opened.goto(written[request.param].as_uri())
    yield opened
    assert asked == [written[request.param].as_uri()]
    assert wrong == []
    opened.close()


def reaches(page):
    """How far the page reaches to the right, pixels."""
    return page.evaluate("document.documentElement.scrollWidth")


def test_a_page_fits_a_phone_and_a_screen_and_begins_with_its_answer(page):
    for width in (400, 1200):
        page.set_viewport_size({"width": width, "height": 900})
        assert reaches(page) == width
        answer, figure = page.locator("section.answer"), page.locator("figure").first
        assert answer.locator("h2").count() == 4
        assert answer.bounding_box()["y"] < 300
        below = answer.bounding_box()["y"] + answer.bounding_box()["height"]
        assert 0 < figure.bounding_box()["y"] - below < 300


def test_a_page_prints_on_paper(page):
    """Nothing is cut off at the right, evidence is open, tables of numbers stay in the page and its CSV."""
    page.emulate_media(media="print", color_scheme="dark")
    page.set_viewport_size({"width": A4, "height": 1000})
    wide = page.evaluate("""() => [...document.querySelectorAll('.wide')].filter(one => one.offsetParent)
        .map(one => one.scrollWidth)""")
    assert wide
    assert max(wide) <= A4
    assert reaches(page) <= A4
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not any(one.is_visible() for one in page.locator("details.numbers").all())
    assert page.pdf(format="A4").startswith(b"%PDF")


def test_numbers_are_saved_and_copied_as_they_lie_beside_the_page(page, written):
    link = page.locator("figure a[download]").first
    with page.expect_download() as saved:
        link.click()
    folder = next(path.parent for path in written.values() if path.as_uri() == page.url)
    content = (folder / saved.value.suggested_filename).read_bytes()
    assert saved.value.path().read_bytes() == content
    page.locator("details.numbers summary").first.click()
    shown = page.locator("details.numbers table").first
    rows = list(csv.reader(io.StringIO(content.decode())))
    assert shown.locator("thead th").all_inner_texts() == rows[0]
    cells = shown.locator("tbody th, tbody td").all_inner_texts()
    assert cells == [cell for row in rows[1:] for cell in row]


def test_what_a_file_was_read_as_is_text(browser, written):
    opened = browser.new_page()
    opened.goto(written["profile"].as_uri())
    assert "Read as trials <b>of</b> a test." in opened.locator("header").inner_text()
    opened.close()
