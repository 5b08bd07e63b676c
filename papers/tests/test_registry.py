"""The registry of studies: that it has exactly what can be made, and reads results as they are."""

import json
import subprocess
import sys

import pytest
from answers import as_json

from posbias import __version__
from posbias.core.errors import InputFileError, InvalidValueError
from posbias.core.formats import save_json
from posbias.profiles.claims import Claim, Evidence, judged
from posbias.profiles.estimate import Estimate
from posbias_papers.cli.answers import StudyPart
from posbias_papers.kim2026 import STUDIES as KIM
from posbias_papers.records import Records
from posbias_papers.registry import PAPERS, STUDIES, find_studies
from posbias_papers.statements import STATEMENTS
from posbias_papers.study import State, minutes_text, read_result
from posbias_papers.wu2025 import STUDIES as WU
from posbias_papers.wu2025 import recorded


def result(path, name="fig2", **more):
    """A study's JSON with one claim that holds and one of no verdict."""
    claims = [
        judged(Claim("wu2025/x/1", "", "It rises"), (Evidence("here", Estimate(0.2, 0.01, 10)),)),
        judged(Claim("wu2025/x/2", "", "It falls"), (Evidence("x", flaw="no"),)),
    ]
    about = {"name": name, "version": __version__, "effort": "quick"}
    return save_json(about | {"claims": [one.as_dict() for one in claims]} | more, path)


def test_the_registry_has_exactly_what_can_be_made():
    from posbias_papers import herasimchyk2026

    for paper, studies in (("wu2025", WU), ("herasimchyk2026", herasimchyk2026.STUDIES), ("kim2026", KIM)):
        names = {one.name for one in STUDIES.values() if one.paper == paper}
        assert names == {*studies, "statements"}
        count = sum(one.source == paper for one in STATEMENTS)
        assert STUDIES[f"{paper}/statements"].quick.cells == count


def test_every_study_says_what_it_is():
    for key, study in STUDIES.items():
        assert study.key == key
        assert study.question.endswith("?")
        assert 0 < len(study.title.split()) <= 25
        assert study.needs in ("", "torch", "models")
        assert study.command.startswith("posbias paper ")
        assert study.quick.minutes <= study.full.minutes
        assert bool(study.writes) != bool(study.parts)
        assert (
            study.paper == "herasimchyk2026"
            or study.name == "statements"
            or (study.quick.cells == study.full.cells == len({*study.cells}))
        )


def test_expected_numbers_are_those_that_the_papers_print():
    from posbias_papers.herasimchyk2026.configs import TABLE4, TABLE6

    six = {one.value: one.tolerance for one in STUDIES["kim2026/section3"].expected}
    # the largest standard error of a difference at ten million samples is .0000493
    assert six == dict.fromkeys([0.5015, 0.5, 0.6382, 0.5544, 0.5931, 0.5457], 0.0002)
    table4 = {one.what: one.value for one in STUDIES["herasimchyk2026/table4"].expected}
    assert table4["bloom-176b, Wikipedia, b"] == 0.98
    assert len(table4) == 3 * 3 * len(TABLE4)
    assert len(STUDIES["herasimchyk2026/table6"].expected) == 2 * len(TABLE6)
    assert all(one.tolerance >= 0 and one.where for study in STUDIES.values() for one in study.expected)


def test_the_registry_imports_nothing_heavy_and_finds_records_without_torch():
    heavy = "torch", "transformers", "matplotlib", "numba", "xarray", "ray"
    code = "import sys; from posbias_papers.registry import STUDIES\n"
    code += "assert STUDIES['wu2025/fig2'].state('nowhere').recorded\n"
    code += f"print([m for m in {heavy!r} if m in sys.modules])"
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert imported.stdout.strip() == "[]"


def test_studies_are_found_by_key_or_paper():
    assert [one.key for one in find_studies("wu2025/fig2")] == ["wu2025/fig2"]
    assert {one.paper for one in find_studies(["kim2026"])} == {"kim2026"}
    assert find_studies() == [*STUDIES.values()]
    with pytest.raises(InvalidValueError, match=r"^study: .*did you mean 'wu2025/fig"):
        find_studies("wu2025/fig25")


@pytest.mark.parametrize(
    ("minutes", "words"),
    [(0.001, "1 second"), (0.5, "30 seconds"), (1, "1 minute"), (180, "3 hours"), (9000, "6 days")],
)
def test_minutes_in_words(minutes, words):
    assert minutes_text(minutes) == words


# --- results -----------------------------------------------------------------------------------------------


@pytest.fixture
def nothing_recorded(tmp_path, monkeypatch):
    monkeypatch.setattr(recorded, "RECORDS", Records(tmp_path / "none"))


@pytest.mark.usefixtures("nothing_recorded")
def test_the_state_of_a_study(tmp_path):
    study, group = STUDIES["wu2025/fig2"], STUDIES["wu2025/fig24"]
    assert str(study.state(tmp_path)) == "not made"
    result(study.file(tmp_path))
    state = study.state(tmp_path)
    assert (state.made, state.effort) == (True, "quick")
    assert state.claims == {"holds": 1, "fails": 0, "undecided": 1}
    for part in group.parts:
        assert not group.state(tmp_path).made
        result(part.file(tmp_path), part.name)
    assert group.state(tmp_path).claims == {"holds": 3, "fails": 0, "undecided": 3}


CLAIM = {"id": "x", "claim": "x", "number": 1, "se": 1, "why": "", "verdict": "holds"}
WHOLE = {"name": "fig2", "version": __version__, "claims": [CLAIM]}


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[1]",
        *(json.dumps(WHOLE | {name: "other"}) for name in WHOLE),
        json.dumps(WHOLE | {"claims": [{"id": "x"}]}),
    ],
)
def test_a_result_that_cannot_be_used_is_damaged(tmp_path, content):
    study = STUDIES["wu2025/fig2"]
    path = study.file(tmp_path)
    path.parent.mkdir()
    path.write_text(content)
    assert "fig2.json" in study.state(tmp_path).damaged
    with pytest.raises(InputFileError, match=r"fig2\.json"):
        read_result(path, "fig2")


def test_a_study_as_json_is_json():
    answers = [as_json(StudyPart.of(one, state=State())) for one in STUDIES.values()]
    assert len(answers) == len(STUDIES)
    assert answers[0]["quick"].keys() == {"cells", "minutes", "machine"}
    assert {*PAPERS} == {one["study"].partition("/")[0] for one in answers}
