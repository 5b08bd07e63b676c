"""Reports: the page stands alone and comes out the same every time; numbers in it are those of the comparison."""

import base64
import csv
import io
import re

import numpy as np
import pytest
from browser import alone, plain, read

from posbias.comparison.predictors import LABELS, PREDICTORS, predictions
from posbias.profiles.curves import wasserstein
from posbias.profiles.places import Places
from posbias.profiles.profile import Profile, measured_influence
from posbias.reports import write_report
from posbias.reports.plots.style import SMALL
from posbias.reports.profile_page import write_profile_report
from posbias.reports.sentences import MEASURES, number


def test_page_loads_nothing_and_names_are_text(report):
    """The measurement's names would be markup."""
    reader = alone(report.page)
    assert "<script>alert(1)</script> favours" in plain(reader)
    assert "i" not in reader.tags
    assert not re.search(r"@import|url\((?!#)", report.page.read_text(encoding="utf-8"))


def test_numbers_in_the_table_are_those_of_the_comparison(report):
    text = plain(read(report.page))
    labels = {one.key: one.label for one in PREDICTORS}
    for key, agreement in report.comparison.agreements.items():
        digits = [measure.digits_in(report.comparison) for measure in MEASURES]
        values = [number(m.of(agreement).value, d) for m, d in zip(MEASURES, digits, strict=True)]
        pattern = re.escape(labels[key]) + "".join(rf"\s*{re.escape(v)}\s*\[[^\]]+\]" for v in values)
        assert re.search(pattern, text), key


def test_same_measurement_and_seed_give_the_same_page(hostile, report, tmp_path):
    again = write_report(hostile, tmp_path, seed=3)
    assert again.page.read_bytes() == report.page.read_bytes()


def test_numbers_of_every_figure_are_in_its_csv_and_in_the_page(measured, report):
    """The file next to the page and the address in the page are one thing."""
    page = report.page.read_text(encoding="utf-8")
    links = re.findall(r'<a download="([^"]+)" href="data:text/csv;base64,([^"]+)"', page)
    kept = {name: base64.b64decode(text) for name, text in links}
    files = {path.name: path for path in report.figures if path.suffix == ".csv"}
    assert kept == {name: path.read_bytes() for name, path in files.items()}
    rows = list(csv.reader(io.StringIO(files["influence.csv"].read_text())))
    influence = measured_influence(measured)
    assert [float(row[1]) for row in rows[1:]] == pytest.approx(influence.mass * influence.tokens, rel=1e-5)
    attention = list(csv.DictReader(io.StringIO(files["kernels.csv"].read_text())))
    assert float(attention[5]["key 3"]) == pytest.approx(measured["kernel"].values[0, 5, 3], rel=1e-5)


def test_the_curve_by_parts_goes_from_an_even_spread_to_the_measured_one(measured, report):
    influence = measured_influence(measured)
    file = next(path for path in report.figures if path.name == "parts.csv")
    _, *rows = csv.reader(io.StringIO(file.read_text()))
    numbers = [[float(cell) for cell in row[1:]] for row in rows]
    assert [row[0] for row in rows] == ["uniform", *[*LABELS.values()][:-1], "the rest: as measured"]
    assert numbers[0][:3] == pytest.approx([2 / 40, 36 / 40, 2 / 40])
    assert numbers[-1][:3] == pytest.approx(
        [influence.mass[:2].sum(), influence.mass[2:-2].sum(), influence.mass[-2:].sum()], rel=1e-5
    )
    expected = predictions(measured)
    for row, known in ((3, "positional"), (4, "fitted"), (5, "energy")):
        assert numbers[row][3] == pytest.approx(wasserstein(expected[known].mass, influence.mass), rel=1e-5)


@pytest.mark.slow
def test_one_prompt_and_no_attributes_still_make_a_page(measured, tmp_path):
    report = write_report(measured.isel(prompt=[0]).drop_attrs(), tmp_path)
    assert report.comparison.reliability is None
    text = plain(read(report.page))
    assert "The model favours" in text
    assert "split-half agreement:" not in text
    assert not re.search(r"\bnan\b", text.lower())


# --- a curve by place -------------------------------------------------------------------------------------------

RATES = (0.9, 0.5, 0.45, 0.5, 0.85)


def asked(trials=60, rates=RATES, **about):
    """Answers of `trials` questions at five places."""
    found = np.random.default_rng(5).random((trials, len(rates))) < np.array(rates)
    return Places({"accuracy": found}, np.arange(len(rates)), {"model": "<b>m</b>"}, **about)


def headline(page):
    (found,) = re.findall(r"<h1>(.*?)</h1>\s*<p class=\"lead\">(.*?)</p>", page.read_text(encoding="utf-8"))
    return found


def test_the_verdict_for_whom_and_of_how_many_questions_is_the_headline(tmp_path, report):
    page = write_profile_report(asked().profile(), tmp_path, title="x").page
    assert headline(page) == (
        "U: both ends do better than the middle",
        "&lt;b&gt;m&lt;/b&gt;, 60 questions, each at 5 places",
    )
    alone(page)
    of_four = write_profile_report(asked(4).profile(), tmp_path / "4", title="x").page
    assert headline(of_four)[0].startswith("Inconclusive: ")
    influence = write_profile_report(
        Profile.from_weights([3.0, 1.0, 2.0], model="m"), tmp_path / "m", title="x"
    )
    assert headline(influence.page) == (
        "m favours both ends over what lies between (U)",
        "weights of 3 tokens",
    )
    assert headline(report.page)[0].startswith("&lt;script&gt;alert(1)&lt;/script&gt; favours ")


@pytest.mark.parametrize(("trials", "digits"), [(60, 2), (10_000, 3)])
def test_shares_have_as_many_digits_as_their_answers_allow(trials, digits, tmp_path):
    """In text, tables and the sentences of the JSON."""
    curve = asked(trials)
    made = write_profile_report(curve.profile(), tmp_path, title="x")
    page = " ".join(read(made.page).words).rpartition("}")[2]  # without its style
    lines = [*made.answer, *(claim.why for claim in made.claims), page, *curve.sentences()]
    written = re.findall(r"\d\.(\d+)", " ".join(lines))
    assert {len(one) for one in written} <= {1, digits}
    assert str(digits) in {str(len(one)) for one in written}


def test_an_order_of_documents_is_advised_where_places_are_those_of_documents_alone(tmp_path):
    advised = {
        name: "posbias order" in plain(read(write_profile_report(one.profile(), tmp_path, title=name).page))
        for name, one in {
            "options": asked(rates=RATES[:4]),
            "documents": asked(unit="documents"),
            "keys": asked(job={"task": "keys", "pairs": 5, "length": None}),
        }.items()
    }
    assert advised == {"options": False, "documents": True, "keys": True}


def test_an_end_is_above_the_middle_where_the_verdict_says_so(tmp_path):
    made = write_profile_report(asked(rates=(0.9, 0.5, 0.5)).profile(), tmp_path, title="x")
    assert [claim.verdict for claim in made.claims] == ["holds", "undecided"]
    fails = write_profile_report(asked(200, rates=(0.2, 0.7, 0.2)).profile(), tmp_path, title="x")
    assert [claim.verdict for claim in fails.claims] == ["fails", "fails"]
    single = write_profile_report(Profile(np.array([0.5, 0.1]), kind="rate"), tmp_path, title="x")
    assert [claim.verdict for claim in single.claims] == ["undecided"]


@pytest.mark.parametrize("width", [400, 1200])
def test_labels_of_every_chart_can_be_read(width, browser, report, tmp_path):
    """Text of `SMALL` points has 11 pixels; what is wider than the screen scrolls within itself."""
    arms = dict.fromkeys(("no gold", "gold alone", "shuffled"), np.arange(60) % 2)
    curve = asked(arms=arms, job={"task": "keys", "pairs": 5, "length": None})
    context = browser.new_context(viewport={"width": width, "height": 900})
    tab = context.new_page()
    for page in (report.page, write_profile_report(curve.profile(), tmp_path, title="x").page):
        tab.goto(page.as_uri())
        scales = tab.evaluate(
            """[...document.querySelectorAll("figure svg")].filter(one => one.checkVisibility()).map(
                one => one.getBoundingClientRect().width / one.style.getPropertyValue("--natural"))"""
        )
        assert len(scales) == tab.locator("figure").count()
        assert min(scales) * SMALL * 4 / 3 >= 11
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
    context.close()
