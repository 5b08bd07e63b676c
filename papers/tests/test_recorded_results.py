"""Results that come along: a record says what its cell says, and is taken where no more effort was made."""

import json
from dataclasses import replace

import numpy as np
import pytest
from answers import as_json, faults, plain
from setting import logged

from posbias.cli import main
from posbias.core.errors import InvalidValueError
from posbias.core.formats import dump_json, save_json
from posbias.core.running import InProcess
from posbias.core.spec import fingerprint
from posbias.reports.answers.experiments import Rollout
from posbias.training.cells import find_cell, run_cells
from posbias.training.results import measure_cell, save_cell
from posbias_papers.collect import collect
from posbias_papers.everything import make_all
from posbias_papers.records import Records
from posbias_papers.registry import STUDIES
from posbias_papers.wu2025 import FULL, Effort, effort_of, outcome_of, recorded, reproduce, settings
from posbias_papers.wu2025.recorded import entries, find_recorded
from posbias_papers.wu2025.trained_records import find_record, record_cells, weights_digest

EFFORT = effort_of(6, 2, 60)
FIG10 = STUDIES["wu2025/fig10"]
BASIS = "6 iterations × 2 networks × 60 test sequences"
ROUNDING = 0.5001e-4


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


@pytest.fixture
def pair(trained, records):
    """A cell and its record."""
    experiment = EFFORT.experiment(FIG10.cells[1])
    return find_cell(trained / "wu2025" / "cells", experiment), find_record(records, experiment)


def judged(folder):
    return collect(folder, papers=["wu2025/fig10"])


# --- what a record says ------------------------------------------------------------------------------------


def test_every_record_that_comes_along_is_of_a_setting():
    known = {header.fingerprint: header.specification["task"] for header in recorded.RECORDS.headers()}
    found = {
        fingerprint(effort_of(*effort).experiment(setting))
        for effort, own in entries().items()
        for setting in own
    }
    # those with the embeddings of the authors' code are not of the figures
    assert found == {key for key, task in known.items() if task["embedding"] == "variance"} != set()


def test_a_record_says_what_its_cell_says(pair, trained):
    cell, record = pair
    other = record.cell
    assert other.experiment == cell.experiment
    assert record.weights == weights_digest(cell.trained)
    assert plain(other.evaluation) == plain(cell.evaluation)
    assert as_json(Rollout.of(other.rollout)) == as_json(Rollout.of(cell.rollout))
    np.testing.assert_allclose(other.attention, cell.attention, atol=ROUNDING)
    np.testing.assert_array_equal(other.sinks.metric(), cell.sinks.metric())
    for name, curve in cell.trained.curves.items():
        rounded = name in ("loss", "accuracy")
        np.testing.assert_allclose(other.trained.curves[name], curve, rtol=0, atol=ROUNDING * rounded)


@pytest.mark.parametrize("accuracy", [0.0, 0.3], ids=["all learnt", "none learnt"])
def test_claims_tables_and_figures_are_those_of_the_cells(trained, records, monkeypatch, accuracy):
    monkeypatch.setattr("posbias_papers.wu2025.outcomes.LEARNT", accuracy)
    experiments = {setting: EFFORT.experiment(setting) for setting in FIG10.cells}
    folder = trained / "wu2025" / "cells"
    made = {setting: outcome_of(find_cell(folder, one)) for setting, one in experiments.items()}
    kept = {setting: outcome_of(find_record(records, one).cell) for setting, one in experiments.items()}
    # the example sequence of Figure 9 needs weights, and those are not on record
    for name, panels in (("fig9", [8, 4]), ("fig10", [2, 2])):
        study = STUDIES[f"wu2025/{name}"]
        frames = [study.table(results) for results in (made, kept)]
        one, other = ([claim.as_dict() for claim in study.judged(frame)] for frame in frames)
        assert dump_json(one) == dump_json(other)
        one, other = (study.data(frame)["cells"] for frame in frames)
        assert dump_json(one) == dump_json(other)
        assert [len(study.draw(frame, "").axes) for frame in frames] == panels


def test_a_stopped_member_is_on_record_as_stopped(pair, tmp_path):
    cell, _ = pair
    save_cell(measure_cell(replace(cell.trained, stopped={1: 17}), 60), tmp_path / "stopped.nc")
    record_cells(tmp_path, Records(tmp_path / "stopped.jsonl"))
    other = find_record(Records(tmp_path / "stopped.jsonl"), cell.experiment).cell
    assert other.trained.stopped == {1: 17}
    assert np.isnan(other.attention[1]).all()
    assert np.isfinite(other.attention[0]).all()
    assert np.isnan(other.sinks.metric()[1]).all()


def test_recording_again_changes_no_byte_and_fewer_sequences_replace_nothing(
    trained, records, pair, tmp_path
):
    before = records.path.read_bytes()
    assert all(len(line) < 20_000 for line in before.splitlines())
    record_cells(trained / "wu2025" / "cells", records)
    assert records.path.read_bytes() == before
    save_cell(measure_cell(pair[0].trained, 20), tmp_path / "fewer.nc")
    assert record_cells(tmp_path, records) == []
    assert records.path.read_bytes() == before


# --- where records are taken -------------------------------------------------------------------------------


def test_claims_of_a_fresh_folder_are_judged_on_recorded_results(trained, records, tmp_path):
    here, fresh = judged(trained), judged(tmp_path / "fresh")
    assert [(one.id, one.verdict) for one in fresh] == [(one.id, one.verdict) for one in here]
    for one, other in zip(fresh, here, strict=True):
        assert one.as_dict()["number"] == other.as_dict()["number"]
        assert f"recorded: {BASIS}" in one.why
        assert one.more["effort"] == f"6 iterations, 2 networks: {BASIS}"
    assert not (tmp_path / "fresh").exists()


def test_a_list_says_what_is_on_record(records, tmp_path, capsys):
    main(["paper", "list", "wu2025/fig10", "wu2025/fig2", "--out", str(tmp_path), "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert not faults(answer)
    part, whole = (one["state"] for one in answer["studies"])
    assert (whole["made"], whole["effort"]) == (False, EFFORT.name)
    assert (part["recorded"][:7], whole["recorded"][:6]) == ("2 of 18", "2 of 2")


def test_what_was_made_with_more_effort_counts_and_with_less_does_not(trained, records, tmp_path):
    def made_with(iterations):
        about = json.loads(FIG10.file(trained).read_text())
        about["rests_on"]["iterations"] = iterations
        save_json(about, FIG10.file(tmp_path))
        return tmp_path

    assert all("made here: 7 iterations × 2 networks" in one.why for one in judged(made_with(7)))
    assert FIG10.state(tmp_path).recorded == ""
    assert all(f"recorded: {BASIS}" in one.why for one in judged(made_with(5)))
    assert FIG10.state(tmp_path).made
    assert FIG10.state(tmp_path).recorded
    FIG10.file(tmp_path).write_text("{")
    assert all(f"recorded: {BASIS}" in one.why for one in judged(tmp_path))
    assert FIG10.state(tmp_path).damaged


def test_a_study_that_is_recorded_in_part_is_pending_and_says_how_much(records, tmp_path):
    records.path.write_text(records.path.read_text().splitlines()[0] + "\n")
    (one,) = judged(tmp_path)
    assert (one.verdict, one.seen) == ("undecided", None)
    assert f"1 of 2 cells recorded, {BASIS}" in one.why
    records.path.unlink()
    assert FIG10.recorded(FIG10) is None


def test_the_greatest_effort_that_is_whole_counts(trained, records, tmp_path):
    more = effort_of(8, 2, 60)
    cells = [more.experiment(setting) for setting in FIG10.cells]
    run_cells(cells[:1], tmp_path / "more", sequences=60, workers=1)
    record_cells(tmp_path / "more", records)
    assert FIG10.recorded(FIG10).effort == EFFORT
    run_cells(cells, tmp_path / "more", sequences=60, workers=1)
    record_cells(tmp_path / "more", records)
    assert FIG10.recorded(FIG10).effort == more
    setting = FIG10.cells[0]
    assert find_recorded(EFFORT, setting).cell.evaluation.sequences == 60
    for other in (replace(EFFORT, sequences=61), effort_of(7, 2, 60), effort_of(6, 3, 60)):
        assert find_recorded(other, setting) is None


def test_a_recorded_effort_is_drawn_without_training(records, tmp_path):
    with logged() as lines:
        made = reproduce("fig10", out=tmp_path / "drawn", effort=EFFORT, workers=1)
    assert "2 of 2 cells are taken from recorded results" in "\n".join(lines)
    assert not made.new
    assert not list((tmp_path / "drawn").rglob("*.nc"))
    assert json.loads((tmp_path / "drawn" / "fig10.json").read_text())["rests_on"]["recorded"] == 2


@pytest.mark.slow
def test_rerun_trains_what_is_on_record(records, tmp_path):
    made = reproduce("fig10", out=tmp_path / "again", effort=EFFORT, workers=1, again=True)
    assert set(made.new) == set(FIG10.cells)
    assert len(list((tmp_path / "again" / "cells").glob("*.nc"))) == 2


def test_all_papers_are_drawn_from_greater_recorded_results(records, tmp_path, monkeypatch):
    monkeypatch.setitem(settings.EFFORT, "quick", Effort("quick", (0, 1), {2: 4}, 40))
    assert make_all(tmp_path, "wu2025/fig10", engine=InProcess()).made == ("wu2025/fig10",)
    assert not list(tmp_path.rglob("*.nc"))
    assert json.loads(FIG10.file(tmp_path).read_text())["effort"] == EFFORT.name
    assert make_all(tmp_path, "wu2025/fig10", engine=InProcess()).found == ("wu2025/fig10",)
    make_all(tmp_path, "wu2025/fig10", again=True, engine=InProcess())
    assert json.loads(FIG10.file(tmp_path).read_text())["effort"] == "quick"


def test_an_effort_is_a_number_of_iterations(capsys):
    assert effort_of(100_000) == FULL
    assert effort_of(25_000, 3).name == "25,000 iterations, 3 networks"
    assert {effort_of(25_000, 3).steps(setting) for setting in STUDIES["wu2025/fig14"].cells} == {25_000}
    with pytest.raises(InvalidValueError, match=r"^networks: "):
        effort_of(30, 0)
    with pytest.raises(SystemExit):
        main(["paper", "wu2025", "fig10", "--effort", "0"])
    assert "effort: " in capsys.readouterr().err


@pytest.mark.slow
def test_a_recorded_cell_of_two_layers_is_made_again(tmp_path):
    """Hours of work are checked by one cell: the recorded weights, or gaps that agree within errors."""
    record = find_recorded(effort_of(25_000, 3, 0), FIG10.cells[0])
    evaluation, threads = record.cell.evaluation, record.cell.trained.cost["threads"]
    (cell,) = run_cells([record.cell.experiment], tmp_path, sequences=evaluation.sequences, workers=threads)
    if weights_digest(cell.trained) != record.weights:
        for name, gap in evaluation.gaps.items():
            off = cell.evaluation.gaps[name].over_all.estimate - gap.over_all.estimate
            assert abs(off.value) < 4 * off.se, name
