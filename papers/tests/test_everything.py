"""A run of all papers, at an effort of seconds: what is made, skipped, left out, on record, and what fails."""

import json
from pathlib import Path

import pytest

from posbias.core.errors import InvalidValueError, ModelError, OutputFileError
from posbias.core.formats import save_json
from posbias.core.running import InProcess
from posbias_papers import herasimchyk2026, kim2026, wu2025
from posbias_papers.everything import make_all, read_costs
from posbias_papers.herasimchyk2026.measure import EFFORTS
from posbias_papers.herasimchyk2026.measure import Effort as Prompts
from posbias_papers.kim2026.figures import EFFORT
from posbias_papers.pages import Page
from posbias_papers.records import Records
from posbias_papers.registry import STUDIES
from posbias_papers.reproduction import Made, Reproduction
from posbias_papers.study import Study
from posbias_papers.wu2025 import Effort, recorded, settings

SOME = ("kim2026/section3", "wu2025/fig9", "wu2025/fig10")


@pytest.fixture(autouse=True)
def brief(monkeypatch):
    """Efforts of seconds in the place of minutes, and no networks on record."""
    monkeypatch.setattr(recorded, "RECORDS", Records(Path("none")))
    monkeypatch.setitem(EFFORT, "quick", 5000)
    monkeypatch.setitem(settings.EFFORT, "quick", Effort("quick", (0, 1), {2: 4}, 40))
    monkeypatch.setitem(EFFORTS, "quick", Prompts("quick", 4, 4, 96))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def first(folder):
    with pytest.MonkeyPatch.context() as patch:
        brief.__wrapped__(patch)
        return make_all(folder, SOME, engine=InProcess())


def on_record(folder):
    return json.loads((folder / "papers.json").read_text())


def test_what_is_asked_for_is_made_from_fastest_to_slowest(folder, first):
    assert first.made == SOME
    assert (first.found, first.failed, first.left_out) == ((), {}, {})
    assert all(STUDIES[key].file(folder).exists() for key in SOME)


def test_what_it_took_is_on_record(folder, first):
    about = on_record(folder)
    studies = about["studies"]
    assert [*studies] == [*SOME]
    made = {key: (one["cells_made"], one["cells_found"]) for key, one in studies.items()}
    # Kim et al. are drawn from their record; Figure 10 is of the networks that were trained for Figure 9
    assert made == {"kim2026/section3": (0, 8), "wu2025/fig9": (2, 0), "wu2025/fig10": (0, 2)}
    assert sum(one["seconds"] for one in studies.values()) <= first.seconds
    assert studies["wu2025/fig9"]["seconds"] > studies["wu2025/fig10"]["seconds"]
    assert {one["paper"]: one["cells"] for one in about["runs"]} == {"kim2026": 0, "wu2025": 2}
    assert about["versions"]["posbias"]
    (folder / "damaged.json").write_text("{")
    assert read_costs(folder / "damaged.json") == {}


def test_what_is_finished_is_skipped(folder, first):
    stamps = {path: path.stat().st_mtime_ns for path in folder.rglob("*.svg")}
    ran = make_all(folder, SOME)
    assert (ran.made, ran.found) == ((), tuple(one for one in STUDIES if one in SOME))
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.svg")} == stamps
    assert on_record(folder)["studies"].keys() == {*SOME}


def test_a_damaged_result_is_made_anew_from_its_cells(folder, first):
    path = STUDIES["wu2025/fig10"].file(folder)
    whole = path.read_text()
    path.write_text(whole[:-9])
    cells = {one.name for one in (folder / "wu2025" / "cells").iterdir()}
    assert make_all(folder, SOME, engine=InProcess()).made == ("wu2025/fig10",)
    assert path.read_text() == whole
    assert {one.name for one in (folder / "wu2025" / "cells").iterdir()} == cells


def test_more_effort_makes_what_is_there_anew_and_less_does_not(folder, first):
    path = STUDIES["wu2025/fig10"].file(folder)
    whole = path.read_text()
    save_json(json.loads(whole.replace('"effort": "quick"', '"effort": "full"')), path)
    assert make_all(folder, "wu2025/fig10").found == ("wu2025/fig10",)
    save_json(json.loads(whole.replace('"effort": "quick"', '"effort": "less"')), path)
    assert make_all(folder, "wu2025/fig10").made == ("wu2025/fig10",)
    assert make_all(folder, "wu2025/fig10", again=True, engine=InProcess()).made == ("wu2025/fig10",)


def test_a_number_is_simulated_although_more_is_on_record(tmp_path):
    assert make_all(tmp_path, "kim2026/section3", effort=5000).made == ("kim2026/section3",)
    assert json.loads(STUDIES["kim2026/section3"].file(tmp_path).read_text())["samples"] == 5000


def test_a_number_that_is_a_caption_means_its_parts(tmp_path, monkeypatch):
    asked: list[str] = []
    nothing = Reproduction({}, {}, (), 0.0)
    monkeypatch.setattr(wu2025, "reproduce", lambda names, **options: asked.extend(names) or nothing)
    make_all(tmp_path, "wu2025/fig24")
    assert asked == ["fig21", "fig22", "fig23"]


def test_statements_are_tried_once(tmp_path):
    options = {"effort": 1, "engine": InProcess()}
    assert make_all(tmp_path, "kim2026/statements", **options).made == ("kim2026/statements",)
    assert make_all(tmp_path, "kim2026/statements", **options).found == ("kim2026/statements",)
    assert make_all(tmp_path, "kim2026/statements", effort=2, engine=InProcess()).made


# --- measured models ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_measured_models_stand_in_and_a_second_text_is_shuffled(tmp_path):
    names = [f"herasimchyk2026/{name}" for name in ("table2", "fig3", "fig4")]
    ran = make_all(tmp_path, names, models=["tiny-alibi"])
    assert (ran.failed, ran.made) == ({}, ("herasimchyk2026/table2", "herasimchyk2026/fig4"))
    assert [*ran.left_out] == ["herasimchyk2026/fig3"]
    for name in ("table2", "fig4"):
        about = json.loads((tmp_path / "herasimchyk2026" / f"{name}.json").read_text())
        assert (about["measured"], about["effort"]) == (["tiny-alibi"], "quick")
    assert "(scrambled)" in (tmp_path / "herasimchyk2026" / "fig4.md").read_text()
    assert on_record(tmp_path)["studies"]["herasimchyk2026/table2"]["cells_made"] == 1
    # other models are another question
    assert make_all(tmp_path, names[0], models=["tiny-alibi"]).found == ("herasimchyk2026/table2",)
    assert make_all(tmp_path, names[0], models=["tiny-alibi", "tiny-nope"]).made == (
        "herasimchyk2026/table2",
    )


def test_a_model_that_cannot_be_had_is_done_without(tmp_path, monkeypatch):
    asked: list[tuple] = []

    def measured(names, *, models, **options):
        asked.append(tuple(models))
        if "smollm2-135m" in models:
            raise ModelError("smollm2-135m: could not be downloaded")
        return Reproduction({}, {}, (), 0.0)

    monkeypatch.setattr(herasimchyk2026, "reproduce", measured)
    assert make_all(tmp_path, "herasimchyk2026/table2").failed == {}
    assert asked == [("tiny-alibi", "smollm2-135m"), ("tiny-alibi",)]
    # a model that was asked for by name is not done without
    ran = make_all(tmp_path, "herasimchyk2026/table2", models=["smollm2-135m"])
    assert ran.failed == {"herasimchyk2026/table2": "smollm2-135m: could not be downloaded"}


# --- what goes wrong ---------------------------------------------------------------------------------------


def test_a_part_that_fails_does_not_stop_the_others(tmp_path, monkeypatch):
    def fail(*_, **options):
        raise InvalidValueError("broken")

    monkeypatch.setattr(kim2026, "reproduce", fail)
    ran = make_all(tmp_path, SOME, engine=InProcess())
    assert ran.failed == {"kim2026/section3": "broken"}
    assert ran.made == ("wu2025/fig9", "wu2025/fig10")
    assert on_record(tmp_path)["studies"].keys() == {*ran.made}


def test_an_interrupt_says_what_is_kept(tmp_path, monkeypatch):
    def stop(*_, **options):
        raise KeyboardInterrupt("2 of 3 cells are kept")

    monkeypatch.setattr(wu2025, "reproduce", stop)
    with pytest.raises(KeyboardInterrupt, match=r"1 of 3 studies are kept in .* \(2 of 3 cells"):
        make_all(tmp_path, SOME)
    assert on_record(tmp_path)["studies"].keys() == {"kim2026/section3"}


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"names": "fig2"}, "study"),
        ({"effort": "much"}, "effort"),
        ({"effort": 9}, "effort"),
        ({"configs": "nowhere"}, "configs"),
        ({"models": ["a", "a"]}, "models"),
    ],
)
def test_what_cannot_be_right_is_refused_first(tmp_path, options, name):
    with pytest.raises(InvalidValueError, match=f"^{name}: "):
        make_all(tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputFileError):
        make_all(tmp_path / "file" / "out")


def test_shared_work_is_counted_once():
    made = {}
    for name, cells, seconds in (("a", ("x", "y"), 1.0), ("b", ("y", "z", "old"), 2.0)):
        made[name] = Made(
            Study(f"wu2025/{name}", "", "?", cells, (), {}, "", {}), {}, Page(), (), (), seconds
        )
    spent = [*Reproduction(made, {}, ("x", "y", "z"), 12.0).spent]
    assert [(one.name, one.made, one.found) for one in spent] == [("a", 2, 0), ("b", 1, 2)]
    assert [one.seconds for one in spent] == pytest.approx([7.0, 5.0])
