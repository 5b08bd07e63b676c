"""The registry of studies: that it has exactly what can be made, and reads results as they are."""

import json
import math
import subprocess
import sys

import pytest
from answers import as_json

from posbias import __version__
from posbias.core.errors import InputFileError, InvalidValueError
from posbias.core.store import save_json
from posbias.profiles.claims import Claim, judged
from posbias.profiles.estimate import Estimate
from posbias.profiles.evidence import Evidence
from posbias_papers.cli.answers import StudyPart
from posbias_papers.records import Records
from posbias_papers.registry import PAPERS, STUDIES, find_studies
from posbias_papers.results import State, read_result
from posbias_papers.study import Cost, minutes_text
from posbias_papers.wu2025 import recorded


def names_of(paper: str) -> set[str]:
    return {one.name for one in STUDIES.values() if one.paper == paper} - {"statements"}


def result(path, name="fig2", **more):
    """A study's JSON with one claim that holds and one of no verdict."""
    claims = [
        judged(Claim("", "", "It rises"), (Evidence("here", Estimate(0.2, 0.01, 10)),)),
        judged(Claim("", "", "It falls"), (Evidence("x", flaw="no"),)),
    ]
    about = {"name": name, "version": __version__, "effort": "quick"}
    about |= {"claims": [one.as_dict() for one in claims]}
    return save_json(about | more, path)


def told(**changed):
    """The JSON of a study with one claim, of which `changed` may be a key too, as text."""
    claim = {"claim": "x", "number": 1, "se": 1, "why": "", "verdict": "holds"}
    claim = {key: changed.pop(key, held) for key, held in claim.items()}
    return json.dumps({"name": "fig2", "version": __version__, "claims": [claim]} | changed)


# --- what there is -----------------------------------------------------------------------------------------


def test_the_registry_has_exactly_what_can_be_made():
    from posbias_papers import herasimchyk2026, kim2026, wu2025

    assert names_of("wu2025") == {*wu2025.STUDIES}
    assert names_of("herasimchyk2026") == {*herasimchyk2026.TARGETS}
    assert names_of("kim2026") == {*kim2026.TARGETS}
    assert all(f"{paper}/statements" in STUDIES for paper in PAPERS)


def test_cells_are_those_that_the_code_makes():
    from posbias_papers.kim2026 import STUDIES as KIM
    from posbias_papers.statements import STATEMENTS
    from posbias_papers.wu2025 import STUDIES as WU

    for name, figure in WU.items():
        study = STUDIES[f"wu2025/{name}"]
        assert study.quick.cells == study.full.cells == len({*figure.cells})
        assert study.parts == figure.parts
        if study.parts:
            assert study.quick.cells == sum(part.quick.cells for part in study.parts)
    for name in KIM:
        assert STUDIES[f"kim2026/{name}"].quick.cells == len({*KIM[name].cells}), name
    for paper in PAPERS:
        count = sum(one.source == paper for one in STATEMENTS)
        assert STUDIES[f"{paper}/statements"].quick.cells == count


def test_every_study_says_what_it_is():
    for key, study in STUDIES.items():
        assert study.key == key
        assert study.question.endswith("?")
        assert study.title
        assert study.needs in ("", "torch", "models")
        assert study.command.startswith("posbias paper ")
        assert study.quick.minutes <= study.full.minutes
        assert study.quick.machine
        assert bool(study.writes) != bool(study.parts)


def test_expected_numbers_are_those_that_the_papers_print():
    from posbias_papers.herasimchyk2026.printed import TABLE4, TABLE6

    six = [one.value for one in STUDIES["kim2026/section3"].expected]
    assert six == [0.5015, 0.5, 0.6382, 0.5544, 0.5931, 0.5457]
    table4 = {one.what: one.value for one in STUDIES["herasimchyk2026/table4"].expected}
    assert table4["bloom-176b, Wikipedia, (b), Spearman"] == 0.98
    assert len(table4) == 3 * 3 * len(TABLE4)
    assert len(STUDIES["herasimchyk2026/table2"].expected) == 2 * 3
    assert len(STUDIES["herasimchyk2026/table6"].expected) == 2 * len(TABLE6)
    assert not STUDIES["wu2025/fig2"].expected
    assert all(one.tolerance >= 0 and one.where for study in STUDIES.values() for one in study.expected)


def test_the_tolerance_of_a_printed_probability_is_four_standard_errors():
    # the largest standard error of a difference at ten million samples is .0000493
    assert {one.tolerance for one in STUDIES["kim2026/section3"].expected} == {0.0002}


def test_the_registry_imports_nothing_heavy():
    heavy = "torch", "transformers", "matplotlib", "numba", "xarray", "ray"
    code = f"import sys, posbias_papers.registry; print([m for m in {heavy!r} if m in sys.modules])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


def test_studies_are_found_by_key_or_paper():
    assert [one.key for one in find_studies("wu2025/fig2")] == ["wu2025/fig2"]
    assert {one.paper for one in find_studies(["kim2026"])} == {"kim2026"}
    assert find_studies() == [*STUDIES.values()]
    with pytest.raises(InvalidValueError, match=r"study: 'wu2025/fig25' given.*did you mean 'wu2025/fig"):
        find_studies("wu2025/fig25")


@pytest.mark.parametrize(
    ("minutes", "told"),
    [
        (0.001, "1 second"),
        (0.5, "30 seconds"),
        (1, "1 minute"),
        (14.4, "14 minutes"),
        (180, "3 hours"),
        (9000, "6 days"),
    ],
)
def test_minutes_in_words(minutes, told):
    assert minutes_text(minutes) == told
    assert str(Cost(3, minutes, "m")) == f"3 cells, {told}"


# --- results -----------------------------------------------------------------------------------------------


@pytest.fixture
def nothing_recorded(tmp_path, monkeypatch):
    monkeypatch.setattr(recorded, "RECORDS", Records(tmp_path / "none"))


@pytest.mark.usefixtures("nothing_recorded")
def test_the_state_of_a_study(tmp_path):
    study = STUDIES["wu2025/fig2"]
    assert str(study.state(tmp_path)) == "not made"
    result(study.file(tmp_path))
    state = study.state(tmp_path)
    assert (state.made, state.effort) == (True, "quick")
    assert state.claims == {"holds": 1, "fails": 0, "undecided": 1}
    assert "quick, 1 holds, 1 undecided" in str(state)
    elsewhere = {"wu2025": tmp_path / "wu2025"}
    assert study.state(tmp_path / "none", elsewhere).made


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not valid JSON"),
        ("[1]", "holds list"),
        (told(name="fig3"), "holds 'fig3', 'fig2' needed"),
        (told(claims="none"), "no list of claims"),
        (told(claims=[{"claim": "x", "verdict": "holds"}]), "written before claims had number, se, why"),
        (told(verdict="yes"), "verdict 'yes', one of holds, fails, undecided needed"),
        (told(number="much"), "number 'much' of a claim, a finite number or null needed"),
        (told(number=10**400), "of a claim, a finite number or null needed"),
        (told(number=math.nan), "number nan of a claim, a finite number or null needed"),
        (told(se=[1]), "se [1] of a claim, a finite number ≥ 0 or null needed"),
        (told(se=-1), "se -1 of a claim, a finite number ≥ 0 or null needed"),
        (told(version="0.0.1"), f"of posbias 0.0.1, this is {__version__}"),
        (told(version=None), f"of an earlier posbias, this is {__version__}"),
        ('{"figure": "fig2", "claims": []}', f"of an earlier posbias, this is {__version__}"),
    ],
)
def test_a_result_that_cannot_be_used_is_damaged_and_says_how(tmp_path, content, said):
    study = STUDIES["wu2025/fig2"]
    path = study.file(tmp_path)
    path.parent.mkdir()
    path.write_text(content)
    assert said in study.state(tmp_path).damaged
    assert not study.state(tmp_path).made
    with pytest.raises(InputFileError, match=r"fig2\.json"):
        read_result(path, "fig2")


@pytest.mark.usefixtures("nothing_recorded")
def test_a_group_is_made_when_its_parts_are(tmp_path):
    group = STUDIES["wu2025/fig24"]
    for part in group.parts:
        assert not group.state(tmp_path).made
        result(part.file(tmp_path), part.name, rows=[{"gap": 1.0}])
    assert group.state(tmp_path).claims == {"holds": 3, "fails": 0, "undecided": 3}


def test_a_study_as_json_is_json():
    told = [as_json(StudyPart.of(one, state=State())) for one in STUDIES.values()]
    assert len(told) == len(STUDIES)
    assert told[0]["quick"].keys() == {"cells", "minutes", "machine"}
