"""The page of three papers names every claim and study once, loads its figures alone, and takes all as text."""

import itertools
import json
import re
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from urllib.parse import unquote

import pytest
from browser import LOADING, plain, read
from project import ROOT
from three_papers import CLAIMS, EFFECTS, ERRATA, PAGE, READINGS, STUDIES, judged, study

from posbias.core.errors import InvalidValueError, OutputFileError
from posbias.reports.plots.style import new_figure, save_figure
from posbias_papers.page import write_page
from posbias_papers.sections import anchor


@pytest.fixture
def results(tmp_path):
    """A folder of results: a figure with its page, a table, and the record of a run."""
    folder = tmp_path / "results"
    figure = new_figure(3, 2)
    ax = figure.subplots()
    ax.plot([0, 1], [1, 0])
    ax.set_title("gaps")
    for kind in ("svg", "png"):
        save_figure(figure, folder / "wu2025" / f"fig2.{kind}")
        save_figure(figure, folder / "kim2026" / f"fig1.{kind}")
    (folder / "wu2025" / "fig2.json").write_text(json.dumps(PAGE), encoding="utf-8")
    (folder / "herasimchyk2026").mkdir()
    table = {"caption": "Models", "head": ["model"], "rows": [["mpt"]]}
    (folder / "herasimchyk2026" / "table2.json").write_text(json.dumps({"tables": [table]}))
    about = {
        "machine": "2 cores, x86_64",
        "versions": {"python": "3.11.7"},
        "runs": [{"paper": "wu2025", "effort": "quick", "cells": 18, "minutes": 14.2}],
        "studies": {"wu2025/fig2": {"effort": "quick", "seconds": 852.0, "cells_made": 18}},
    }
    (folder / "papers.json").write_text(json.dumps(about))
    return folder


def write(folder, out, **given):
    known = {"claims": CLAIMS, "readings": READINGS, "errata": ERRATA, "studies": STUDIES}
    return write_page(folder, out, **(known | given))


@pytest.fixture
def page(results, tmp_path):
    return write(results, tmp_path / "papers.html")


def check_structure(path):
    """Balanced tags, unique ids, links that lead somewhere, nothing loaded but figures, headings in order."""
    reader = read(path)
    text = path.read_text(encoding="utf-8")
    assert reader.open == []
    assert len(reader.ids) == len(set(reader.ids))
    assert not {"script", "link", "iframe", "object", "embed", "foreignobject"} & set(reader.tags)
    for tag, name, value in reader.attributes:
        if name == "src" or (name == "href" and value[0] != "#"):
            here = (path.parent / unquote(value)).is_file()
            assert here or (tag, value[:18]) == ("a", "https://arxiv.org/"), (tag, value)
        elif name in ("href", "for", "aria-labelledby"):
            assert value.removeprefix("#") in reader.ids, (tag, name, value)
        else:
            assert name not in LOADING, (tag, name, value)
        assert not name.startswith("on")
    assert set(re.findall(r"url\(#([^)]+)\)", text)) <= set(reader.ids)
    assert not re.search(r"@import|url\((?!#)", text)
    levels = [int(tag[1]) for tag in reader.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    return reader


def test_structure(page):
    reader = check_structure(page)
    assert ("html", "lang", "en") in reader.attributes
    assert sum(1 for tag in reader.tags if tag == "figure") == 2


def test_every_claim_study_reading_and_erratum_is_there_with_a_target(page):
    reader = read(page)
    text = plain(reader)
    for claim in CLAIMS:
        assert anchor(claim.id) in reader.ids
        assert claim.id in text
    for key, one in STUDIES.items():
        assert anchor(key) in reader.ids
        assert one.title in text
    assert {
        "readings",
        "errata",
        "sources",
        "reading/kim2026/eq-42",
        "erratum/kim2026/eq-42",
    } <= set(reader.ids)
    assert "@misc" in text or "@inproceedings" in text
    assert "1.0603 ± 0.0002" in text or "1.06030 ± 0.00020" in text


def test_what_was_not_made_is_said_with_the_command(page):
    text = plain(read(page))
    assert "Not made here: posbias paper wu2025 fig3 makes it, with 3 cells, 2 minutes" in text
    assert "Not made here: posbias paper wu2025 fig2" not in text


def test_an_empty_folder_still_makes_a_page(tmp_path):
    path = write_page(
        tmp_path / "nothing", tmp_path / "papers.html", claims=[], readings=[], errata=[], studies={}
    )
    reader = check_structure(path)
    assert "posbias paper all" in plain(reader)
    path = write(tmp_path / "nothing", tmp_path / "papers.html")
    assert "figure" not in check_structure(path).tags


HOSTILE = "<script>alert(1)</script> & \"quoted\" '<img src=x onerror=alert(2)>'"


def test_what_is_given_is_text_and_never_markup(results, tmp_path):
    effects = [dict(EFFECTS[0], where=HOSTILE), dict(EFFECTS[1], flaw=HOSTILE)]
    claim = judged("wu2025/fig2/1", "fails", sentence=HOSTILE, why=f"`{HOSTILE}`", effects=effects)
    cells = dict.fromkeys(("where", "printed", "posbias"), HOSTILE) | {"holds": "[l](http://x)"}
    erratum = SimpleNamespace(key="x", paper="kim2026", **cells)
    picture = "![a](http://x/y.png)"
    table = {"caption": f"{HOSTILE}\n\n{picture}", "head": [HOSTILE, picture], "rows": [[HOSTILE, picture]]}
    hostile = {"note": f"{HOSTILE} {picture}", "tables": [table]}
    (results / "wu2025" / "fig2.json").write_text(json.dumps(hostile))
    run = dict.fromkeys(("paper", "effort", "cells", "minutes"), HOSTILE)
    (results / "papers.json").write_text(json.dumps({"machine": HOSTILE, "runs": [run]}))
    studies = {"wu2025/fig2": study("wu2025/fig2", title=HOSTILE, question=HOSTILE)}
    path = write(
        results, tmp_path / "papers.html", claims=[claim], errata=[erratum], studies=studies, title=HOSTILE
    )
    reader = check_structure(path)
    assert pictures(path) == ["results/wu2025/fig2.svg"]
    assert plain(reader).count("<script>alert(1)</script>") > 8


def pictures(path):
    return [dict(attributes)["src"] for tag, attributes in read(path).all if tag == "img"]


def test_figures_are_files_where_they_were_drawn(results, tmp_path):
    there = write(results, results / "papers.html")
    check_structure(there)
    assert pictures(there) == ["wu2025/fig2.svg", "kim2026/fig1.svg"]
    assert pictures(write(results, tmp_path / "a b" / "p.html"))[0] == "../results/wu2025/fig2.svg"
    assert there.stat().st_size < 40_000


def test_a_picture_that_cannot_be_read_gives_way_to_the_next_and_then_to_a_note(results, tmp_path):
    place = results / "wu2025"
    (place / "fig2.svg").write_text("<svg")
    path = write(results, tmp_path / "papers.html")
    assert pictures(path)[0] == "results/wu2025/fig2.png"
    alternatives = [value for tag, name, value in check_structure(path).attributes if name == "alt"]
    assert alternatives[0].startswith("Figure 2 of Wu et al. 2025")
    (place / "fig2.png").write_bytes(b"GIF89a")
    text = plain(check_structure(write(results, tmp_path / "papers.html")))
    assert "No picture here: fig2.svg cannot be read and fig2.png is no PNG." in text
    (place / "fig2.json").write_text("{")
    assert "fig2.json cannot be read" in plain(read(write(results, tmp_path / "papers.html")))


def test_a_claim_that_is_said_again_leads_to_where_it_stands(tmp_path):
    first = judged("wu2025/fig2/1", why="since it does")
    again = judged("wu2025/fig3/1", why="since it does")
    again = replace(again, claim=replace(again.claim, alias_of=first.id))
    path = write(tmp_path, tmp_path / "p.html", claims=[first, again])
    assert plain(check_structure(path)).count("since it does") == 1
    assert '<a href="#wu2025/fig2/1">as wu2025/fig2/1, where it is counted</a>' in path.read_text("utf-8")
    assert plain(check_structure(write(tmp_path, path, claims=[again]))).count("since it does") == 1


def test_the_document_counts_what_the_records_say():
    text = (ROOT / "docs" / "papers.md").read_text("utf-8")
    (counted,) = re.findall(
        r"of (\d+) claims of the papers (\d+) hold, (\d+) fail and (\d+) are undecided", text
    )
    reference = json.loads((ROOT / "tests" / "reference.json").read_text("utf-8"))
    counts = Counter(row[0] for row in reference["claims"].values())
    assert list(map(int, counted)) == [counts.total(), counts["holds"], counts["fails"], counts["undecided"]]


def test_wrong_claims_are_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(InvalidValueError, match="wu2025"):
        write(tmp_path, tmp_path / "p.html", claims=[judged("wu2024/a")])
    (tmp_path / "taken").mkdir()
    with pytest.raises(OutputFileError, match="taken"):
        write(tmp_path, tmp_path / "taken")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_results_of_the_registry_make_a_page(tmp_path):
    """The real studies, errata and an empty folder: every study has its section and its command."""
    from posbias_papers.errata import ERRATA as REAL
    from posbias_papers.registry import STUDIES as REGISTRY

    path = write(tmp_path, tmp_path / "p.html", claims=[], readings=[], errata=REAL, studies=REGISTRY)
    reader = check_structure(path)
    assert {anchor(key) for key in REGISTRY} <= set(reader.ids)
    text = plain(reader)
    for one in REGISTRY.values():
        assert one.parts or f"Not made here: {one.command} " in text
