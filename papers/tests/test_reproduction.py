"""All papers by one call, and their page: what is on record is drawn, a part that fails stops no other."""

import json
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from browser import alone, plain, read
from project import ROOT

from posbias.cli import main
from posbias.core.errors import InvalidValueError, OutputFileError
from posbias.core.running import InProcess
from posbias_papers import kim2026
from posbias_papers.errata import find_erratum
from posbias_papers.readings import compare_readings
from posbias_papers.registry import STUDIES
from posbias_papers.reproduction import make_all, reproduce
from posbias_papers.results import collect, write_page
from posbias_papers.study import Tables

RECORDED = ("kim2026/section3", "herasimchyk2026/table1", "wu2025/fig20", "wu2025/table1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Some studies, drawn from what is on record."""
    folder = tmp_path_factory.mktemp("results")
    ran = make_all(folder, RECORDED, engine=InProcess())
    assert ({*ran.made}, ran.left_out, ran.failed) == ({*RECORDED}, {}, {})
    return folder


def test_what_is_on_record_at_the_effort_or_a_greater_one_is_drawn(folder):
    assert not [*folder.rglob("*.nc")]
    wu = json.loads(STUDIES["wu2025/fig20"].file(folder).read_text())
    assert (wu["effort"], wu["rests_on"]["recorded"]) == ("25,000 iterations, 3 networks", 2)
    assert "full" not in STUDIES["wu2025/fig20"].recorded(STUDIES["wu2025/fig20"]).serves


def test_a_part_that_fails_stops_no_other(tmp_path, monkeypatch):
    def broken(*_, **__):
        raise InvalidValueError("broken")

    monkeypatch.setattr(kim2026, "tables", broken)
    wanted = ["kim2026/fig1", "wu2025/table1", "herasimchyk2026/fig4"]
    with monkeypatch.context() as patch:
        left = Tables({}, "quick", {"fig4": "one corpus only"})
        patch.setattr("posbias_papers.herasimchyk2026.tables", lambda *_, **__: left)
        ran = make_all(tmp_path, wanted, again=True)
    assert ran.failed == {"kim2026/fig1": "broken"}
    assert ran.left_out == {"herasimchyk2026/fig4": "one corpus only"}
    assert ran.made == ("wu2025/table1",)


def test_nothing_to_make_and_nowhere_to_write_are_refused_before_any_work(tmp_path):
    for nothing in ([], iter(())):
        with pytest.raises(InvalidValueError, match=r"^what: "):
            reproduce("kim2026", nothing, out=tmp_path / "none")
    (tmp_path / "file").write_text("")
    for make in (make_all, lambda out: reproduce("kim2026", out=out)):
        with pytest.raises(OutputFileError):
            make(tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_all_answers_in_json_and_writes_the_page(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("posbias_papers.reproduction.find_studies", lambda _: [STUDIES["wu2025/table1"]])
    monkeypatch.setattr("posbias_papers.results.collect", lambda _: [])
    monkeypatch.setattr("posbias_papers.readings.compare_readings", lambda **_: [])
    main(["paper", "all", "--report", "--out", str(tmp_path), "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert (answer["made"], answer["failed"]) == (["wu2025/table1"], {})
    assert (tmp_path / "papers.html").samefile(answer["page"])


# --- the page ----------------------------------------------------------------------------------------------

HOSTILE = "<script>alert(1)</script> & \"quoted\" '<img src=x onerror=alert(2)>' ![a](http://x/y.png)"


@pytest.fixture(scope="module")
def parts(folder):
    """What a page is made of: claims on record, a reading and its erratum."""
    readings, errata = compare_readings("kim2026/eq-42"), [find_erratum("kim2026/eq-42")]
    return {"claims": collect(folder, papers=RECORDED), "readings": readings, "errata": errata}


def check_structure(path):
    """Links lead somewhere, and nothing is loaded but figures."""
    reader = alone(
        path, lambda to: to.startswith(("#", "https://arxiv.org/")) or (path.parent / to).is_file()
    )
    inside = {to for _, name, to in reader.attributes if name == "href" and to[0] == "#"}
    inside |= {f"#{to}" for _, name, to in reader.attributes if name == "aria-labelledby"}
    assert inside <= {f"#{name}" for name in reader.ids}
    return reader


def test_the_page_has_every_claim_figure_reading_and_erratum(folder, parts):
    path = write_page(folder, folder / "papers.html", **parts)
    reader, claims, (reading,) = check_structure(path), parts["claims"], parts["readings"]
    text = plain(reader)
    assert {*(one.id for one in claims), "erratum/kim2026/eq-42"} <= {*reader.ids}
    assert {key for key in STUDIES if not key.endswith("/statements")} <= {*reader.ids}
    assert [value for tag, name, value in reader.attributes if name == "src"] == ["wu2025/fig20.svg"]
    for number in (claims[0].estimate, reading.published, reading.corrected):
        assert str(number).replace("-", "−") in text
    assert "paper wu2025 fig3 makes it" in text
    assert "λ<sub>t</sub>" in path.read_text("utf-8")


def test_what_is_given_is_text_and_never_markup(tmp_path, parts):
    claim, reading, erratum = (part[0] for part in parts.values())
    hostile = {
        "claims": [replace(claim, claim=replace(claim.claim, sentence=HOSTILE))],
        "readings": [replace(reading, quantity=HOSTILE, note=HOSTILE)],
        "errata": [replace(erratum, **dict.fromkeys(("where", "printed", "holds", "posbias"), HOSTILE))],
    }
    path = write_page(tmp_path, tmp_path / "p.html", **hostile)
    assert "img" not in check_structure(path).tags
    assert plain(read(path)).count("<script>alert(1)</script>") == 7


def test_the_document_counts_what_the_records_say():
    text = (ROOT / "docs" / "papers.md").read_text("utf-8")
    rows = re.findall(r"^\|[^|]*\| [a-z][^|]* \| (\d+) \| (\d+) \| (\d+) \|$", text, re.MULTILINE)
    counted = np.array(rows, int).sum(axis=0)
    reference = json.loads((ROOT / "tests" / "reference.json").read_text("utf-8"))
    counts = Counter(row[0] for row in reference["claims"].values())
    assert counted.tolist() == [counts["holds"], counts["fails"], counts["undecided"]]
