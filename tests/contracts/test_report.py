"""Reports: the page stands alone and comes out the same every time; numbers in it are those of the comparison."""

import base64
import csv
import io
import re

import pytest
from browser import alone, plain, read

from posbias.comparison.predictors import LABELS, PREDICTORS, predictions
from posbias.profiles.curves import wasserstein
from posbias.profiles.profile import measured_influence
from posbias.reports import write_report
from posbias.reports.findings import MEASURES, number


def test_page_loads_nothing_and_names_are_text(report):
    """The measurement's names would be markup."""
    reader = alone(report.page)
    assert "Where <script>alert(1)</script> looks" in plain(reader)
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
    assert "Where the model looks" in text
    assert "split-half agreement:" not in text
    assert not re.search(r"\bnan\b", text.lower())
