"""Results that come along: claims, lists and figures take them where nothing of more effort was made."""

import json
import shutil
from dataclasses import replace

import pytest
from answers import faults
from logged import logged

from posbias.cli import main
from posbias.core.errors import InvalidValueError
from posbias.core.running import InProcess
from posbias.core.store import save_json
from posbias.training.cells import run_cells
from posbias_papers.collect import collect
from posbias_papers.everything import make_all
from posbias_papers.records import Records
from posbias_papers.registry import STUDIES
from posbias_papers.wu2025 import FULL, Effort, effort_of, recorded, reproduce, settings
from posbias_papers.wu2025.recorded import find_recorded
from posbias_papers.wu2025.repetition import repetition
from posbias_papers.wu2025.trained_records import record_cells

EFFORT = effort_of(6, 2, 60)
FIG10 = STUDIES["wu2025/fig10"]
BASIS = "6 iterations × 2 networks × 60 test sequences"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder of results with the cells of Figure 10, and Figure 10 drawn from them."""
    folder = tmp_path_factory.mktemp("trained")
    reproduce("fig10", out=folder / "wu2025", effort=EFFORT, workers=1)
    return folder


@pytest.fixture
def records(trained, tmp_path, monkeypatch):
    """A file of records, with those of Figure 10."""
    records = Records(tmp_path / "records.jsonl")
    assert len(record_cells(trained / "wu2025" / "cells", records)) == 2
    monkeypatch.setattr(recorded, "RECORDS", records)
    return records


def judged(folder):
    return collect(folder, papers=["wu2025/fig10"])


def made_at(folder, iterations):
    """Figure 10's JSON in a folder, as if made with so many iterations."""
    path = FIG10.file(folder)
    about = json.loads(path.read_text())
    about["rests_on"]["iterations"] = iterations
    save_json(about, path)


def test_claims_of_a_fresh_folder_are_judged_on_recorded_results(trained, records, tmp_path):
    here, fresh = judged(trained), judged(tmp_path / "fresh")
    assert [(one.id, one.verdict) for one in fresh] == [(one.id, one.verdict) for one in here]
    for one, other in zip(fresh, here, strict=True):
        assert one.as_dict()["number"] == other.as_dict()["number"]
        assert one.why == other.why.replace("made here: ", "recorded: ")
        assert f"; recorded: {BASIS}" in one.why
        assert one.more["effort"] == f"6 iterations, 2 networks: {BASIS}"
    assert not (tmp_path / "fresh").exists()


def test_a_list_says_what_is_on_record(records, tmp_path, capsys):
    main(["paper", "list", "wu2025/fig10", "wu2025/fig2", "--out", str(tmp_path)])
    shown = capsys.readouterr().out
    assert f"2 of 2 cells recorded, {BASIS}, 1 undecided" in shown
    assert f"not made, 2 of 18 cells recorded, {BASIS}" in shown
    main(["paper", "list", "wu2025/fig10", "--out", str(tmp_path), "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert not faults(answer)
    (one,) = answer["studies"]
    assert (one["state"]["made"], one["state"]["claims"]["undecided"]) == (False, 1)
    assert one["state"]["effort"] == EFFORT.name


def test_what_was_made_with_more_effort_counts_and_with_less_does_not(trained, records, tmp_path):
    folder = tmp_path / "results"
    shutil.copytree(trained, folder)
    assert FIG10.state(folder).made
    made_at(folder, 7)
    assert all("made here: 7 iterations × 2 networks" in one.why for one in judged(folder))
    assert FIG10.state(folder).made
    made_at(folder, 5)
    assert all(f"recorded: {BASIS}" in one.why for one in judged(folder))
    assert not FIG10.state(folder).made
    FIG10.file(folder).write_text("{")
    with logged() as lines:
        assert all(f"recorded: {BASIS}" in one.why for one in judged(folder))
    assert "not valid JSON" in "\n".join(lines)
    assert FIG10.state(folder).damaged


def test_a_study_that_is_recorded_in_part_is_pending_and_says_how_much(records, tmp_path):
    records.path.write_text(records.path.read_text().splitlines()[0] + "\n")
    (one,) = judged(tmp_path)
    assert (one.verdict, one.seen) == ("undecided", None)
    assert f"not made here; 1 of 2 cells recorded, {BASIS}; `posbias paper wu2025 fig10` makes it" in one.why


def test_nothing_is_said_where_nothing_is_recorded(tmp_path, monkeypatch):
    monkeypatch.setattr(recorded, "RECORDS", Records(tmp_path / "none"))
    assert FIG10.recorded(FIG10) is None
    assert str(FIG10.state(tmp_path)) == "not made"


def test_the_greatest_effort_that_is_whole_counts(trained, records, tmp_path):
    more = effort_of(8, 2, 60)
    cells = [more.experiment(setting) for setting in FIG10.cells]
    run_cells(cells[:1], tmp_path / "more", sequences=60, workers=1)
    record_cells(tmp_path / "more", records)
    assert FIG10.recorded(FIG10).effort == EFFORT
    run_cells(cells, tmp_path / "more", sequences=60, workers=1)
    record_cells(tmp_path / "more", records)
    assert FIG10.recorded(FIG10).effort == more
    assert "8 iterations" in judged(tmp_path)[0].why


def test_a_recorded_effort_is_drawn_without_training(records, trained, tmp_path):
    with logged() as lines:
        made = reproduce("fig10", out=tmp_path / "drawn", effort=EFFORT, workers=1)
    assert "2 of 2 cells are taken from recorded results (6 iterations, 2 networks)" in "\n".join(lines)
    assert made.new == {}
    assert not list((tmp_path / "drawn").rglob("*.nc"))
    page = (tmp_path / "drawn" / "fig10.md").read_text()
    assert "60 test sequences; 2 of 2 cells are recorded results" in page
    drawn, own = (
        (folder / "fig10.svg").stat().st_size for folder in (tmp_path / "drawn", trained / "wu2025")
    )
    assert drawn == pytest.approx(own, rel=0.05)
    assert json.loads((tmp_path / "drawn" / "fig10.json").read_text())["rests_on"]["recorded"] == 2


def test_more_sequences_than_recorded_or_another_effort_are_not_taken(records):
    setting = FIG10.cells[0]
    assert find_recorded(EFFORT, setting).cell.evaluation.sequences == 60
    assert find_recorded(replace(EFFORT, sequences=61), setting) is None
    assert find_recorded(effort_of(7, 2, 60), setting) is None
    assert find_recorded(effort_of(6, 3, 60), setting) is None


@pytest.mark.slow
def test_rerun_trains_what_is_on_record(records, tmp_path):
    made = reproduce("fig10", out=tmp_path / "again", effort=EFFORT, workers=1, again=True)
    assert set(made.new) == set(FIG10.cells)
    assert len(list((tmp_path / "again" / "cells").glob("*.nc"))) == 2
    assert "recorded" not in (tmp_path / "again" / "fig10.md").read_text()


def test_all_papers_are_drawn_from_greater_recorded_results(records, tmp_path, monkeypatch):
    monkeypatch.setitem(settings.EFFORT, "quick", Effort("quick", (0, 1), {2: 4}, 40))
    with logged() as lines:
        ran = make_all(tmp_path, "wu2025/fig10", engine=InProcess())
    assert ran.made == ("wu2025/fig10",)
    assert "1 studies to draw from recorded results" in "\n".join(lines)
    assert not list(tmp_path.rglob("*.nc"))
    assert json.loads(FIG10.file(tmp_path).read_text())["effort"] == EFFORT.name
    assert make_all(tmp_path, "wu2025/fig10", engine=InProcess()).found == ("wu2025/fig10",)
    make_all(tmp_path, "wu2025/fig10", again=True, engine=InProcess())
    assert json.loads(FIG10.file(tmp_path).read_text())["effort"] == "quick"


def test_an_effort_is_a_number_of_iterations(capsys):
    assert effort_of(100_000) == FULL
    assert effort_of(25_000, 3).name == "25,000 iterations, 3 networks"
    assert {effort_of(25_000, 3).steps(setting) for setting in STUDIES["wu2025/fig14"].cells} == {25_000}
    with pytest.raises(InvalidValueError, match="networks: 0 given"):
        effort_of(30, 0)
    with pytest.raises(SystemExit):
        main(["paper", "wu2025", "fig10", "--effort", "0"])
    assert "effort: 0 given, an integer ≥ 1 needed" in capsys.readouterr().err


DEEPER = [
    (setting, effort)
    for effort in (effort_of(25_000, networks) for networks in (3, 5))
    for setting in STUDIES["wu2025/fig10"].cells
]


@pytest.mark.slow
def test_a_recorded_cell_of_two_layers_is_made_again(tmp_path):
    """Hours of work are checked by one cell: the recorded weights, or gaps that agree within errors."""
    there = (find_recorded(replace(effort, sequences=0), setting) for setting, effort in DEEPER)
    record = next((one for one in there if one is not None), None)
    if record is None:
        pytest.skip("no cell of depth 2 and 25,000 iterations is on record yet")
    sequences, threads = record.cell.evaluation.sequences, record.cell.trained.cost["threads"]
    (cell,) = run_cells([record.cell.experiment], tmp_path, sequences=sequences, workers=threads)
    again = repetition(cell, record)
    assert again.same_weights or all(abs(one) < 4 for one in again.deviations.values())
