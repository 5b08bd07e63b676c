"""All papers by one call, and their page: what is on record is drawn, a part that fails stops no other."""

import json
import re
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from browser import LOADING, plain, read
from project import ROOT

from posbias.cli import main
from posbias.core.errors import InvalidValueError, OutputFileError
from posbias.core.running import InProcess
from posbias.profiles.claims import Claim, Judged
from posbias.profiles.estimate import Estimate
from posbias_papers import kim2026
from posbias_papers.registry import STUDIES
from posbias_papers.reproduction import make_all, reproduce
from posbias_papers.results import write_page
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


def test_an_interruption_says_what_is_kept(tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(kim2026, "tables", interrupted)
    with pytest.raises(KeyboardInterrupt, match="is kept in"):
        make_all(tmp_path, "kim2026/fig1", again=True)


def test_wrong_arguments_are_refused_before_any_work(tmp_path):
    for wrong in ({"names": "kim2025"}, {"effort": "some"}, {"effort": 5}):
        with pytest.raises(InvalidValueError):
            make_all(tmp_path / "none", **wrong)
    with pytest.raises(InvalidValueError, match=r"^figure: .*did you mean"):
        reproduce("wu2025", "fig25", out=tmp_path / "none")
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


def claim(key, verdict="holds", sentence="the first token draws more than λ_t", **more):
    study = key.rpartition("/")[0]
    return Judged(
        Claim(key, "", sentence),
        (),
        verdict,
        Estimate(0.638, 0.0021),
        "since `it` does",
        study,
        {"tested_on": "instances"} | more,
    )


def reading(**given):
    known = {"key": "kim2026/eq-42", "paper": "kim2026", "where": "Eq. 42", "quantity": "S_98", "note": ""}
    published, corrected = Estimate(1.032), Estimate(1.0603, 0.0002)
    known |= {"published": published, "corrected": corrected, "difference": corrected - published}
    return SimpleNamespace(**known | given)


def erratum(**given):
    known = {"key": "kim2026/eq-42", "paper": "kim2026", "where": "Eq. 42"}
    return SimpleNamespace(**known | {"printed": "*γ* = 1", "holds": "`g`", "posbias": "both"} | given)


def check_structure(path):
    """Balanced tags, unique ids, links that lead somewhere, nothing loaded but figures."""
    reader = read(path)
    assert reader.open == []
    assert len(reader.ids) == len(set(reader.ids))
    assert not {"script", "link", "iframe", "object", "embed"} & set(reader.tags)
    for tag, name, value in reader.attributes:
        if name == "src" or (name == "href" and value[0] != "#"):
            assert (path.parent / value).is_file() or value.startswith("https://arxiv.org/"), (tag, value)
        elif name in ("href", "aria-labelledby"):
            assert value.removeprefix("#") in reader.ids, (tag, name, value)
        else:
            assert name not in LOADING, (tag, name, value)
        assert not name.startswith("on")
    return reader


def test_the_page_has_every_claim_figure_reading_and_erratum(folder):
    claims = [claim("wu2025/fig2/1", "fails"), claim("kim2026/fig1/1", effort="full: 10 samples")]
    path = write_page(folder, folder / "papers.html", claims=claims, readings=[reading()], errata=[erratum()])
    reader = check_structure(path)
    text = plain(reader)
    assert {"wu2025/fig2/1", "kim2026/fig1/1", "erratum/kim2026/eq-42"} <= {*reader.ids}
    assert {key for key in STUDIES if not key.endswith("/statements")} <= {*reader.ids}
    assert [value for tag, name, value in reader.attributes if name == "src"] == ["wu2025/fig20.svg"]
    for part in ("0.6380 ± 0.0021", "1.06030 ± 0.00020", "10 samples", "paper wu2025 fig3 makes it"):
        assert part in text, part
    assert "λ<sub>t</sub>" in path.read_text("utf-8")


def test_what_is_given_is_text_and_never_markup(tmp_path):
    errata = [erratum(**dict.fromkeys(("where", "printed", "holds", "posbias"), HOSTILE))]
    claims, readings = [claim("wu2025/fig2/1", sentence=HOSTILE)], [reading(quantity=HOSTILE, note=HOSTILE)]
    path = write_page(tmp_path, tmp_path / "p.html", claims=claims, readings=readings, errata=errata)
    assert "img" not in check_structure(path).tags
    assert plain(read(path)).count("<script>alert(1)</script>") == 7


def test_the_document_counts_what_the_records_say():
    text = (ROOT / "docs" / "papers.md").read_text("utf-8")
    rows = re.findall(r"^\|[^|]*\| [a-z][^|]* \| (\d+) \| (\d+) \| (\d+) \|$", text, re.MULTILINE)
    counted = np.array(rows, int).sum(axis=0)
    reference = json.loads((ROOT / "tests" / "reference.json").read_text("utf-8"))
    counts = Counter(row[0] for row in reference["claims"].values())
    assert counted.tolist() == [counts["holds"], counts["fails"], counts["undecided"]]
