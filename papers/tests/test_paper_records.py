"""Cells on record: what is read back says what the cell says, and a cell is made again by its record alone."""

import json
from dataclasses import replace

import numpy as np
import pytest
from answers import as_json, plain
from logged import logged

from posbias.core.errors import InputFileError
from posbias.core.store import dump_json
from posbias.reports.answers.experiments import Rollout, Sinks
from posbias.training.cells import find_cell, run_cells
from posbias.training.kernels import agreement
from posbias.training.results import measure_cell, save_cell
from posbias_papers.records import Records
from posbias_papers.wu2025 import STUDIES, Effort, outcome_of
from posbias_papers.wu2025.repetition import repetition
from posbias_papers.wu2025.trained_records import (
    RECORD,
    find_record,
    record_cells,
    weights_digest,
)

BRIEF = Effort("brief", (0, 1), {2: 6}, 60)
SETTINGS = STUDIES["fig10"].cells
ROUNDING = 0.5001e-4


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The cells of Figure 10, trained for thirty iterations, and their records."""
    folder = tmp_path_factory.mktemp("cells")
    run_cells([BRIEF.experiment(setting) for setting in SETTINGS], folder, sequences=60, workers=1)
    assert len(record_cells(folder, Records(folder / "records.jsonl"))) == len(SETTINGS) == 2
    return folder


@pytest.fixture
def pair(folder):
    """A cell and its record."""
    experiment = BRIEF.experiment(SETTINGS[1])
    return find_cell(folder, experiment), find_record(Records(folder / "records.jsonl"), experiment)


def test_a_record_says_what_its_cell_says(pair):
    cell, record = pair
    recorded = record.cell
    assert recorded.experiment == cell.experiment
    assert record.weights == weights_digest(cell.trained)
    assert recorded.trained.cost == cell.trained.cost
    assert plain(recorded.evaluation) == plain(cell.evaluation)
    assert as_json(Rollout.of(recorded.rollout)) == as_json(Rollout.of(cell.rollout))
    np.testing.assert_allclose(recorded.attention, cell.attention, atol=ROUNDING)
    assert not recorded.attention[..., ~cell.sinks.allowed].any()
    for one, other in zip(*(agreement(c.rollout, c.evaluation).values() for c in pair_of(pair)), strict=True):
        assert plain(one) == plain(other)
    told, kept = (as_json(Sinks.of_sinks(one.sinks)) for one in (recorded, cell))
    assert {name: held for name, held in told.items() if name != "curve"} == {
        name: held for name, held in kept.items() if name != "curve"
    }
    assert recorded.sinks.curve()["trained"].tolist() == cell.sinks.metric()[:, :1].tolist()
    for name, curve in cell.trained.curves.items():
        rounded = name in ("loss", "accuracy")
        np.testing.assert_allclose(recorded.trained.curves[name], curve, rtol=0, atol=ROUNDING * rounded)


def pair_of(pair):
    return pair[0], pair[1].cell


@pytest.mark.parametrize("accuracy", [0.0, 0.3], ids=["all learnt", "none learnt"])
def test_claims_tables_and_figures_are_those_of_the_cells(folder, monkeypatch, accuracy):
    monkeypatch.setattr("posbias_papers.wu2025.outcomes.LEARNT", accuracy)
    experiments = {setting: BRIEF.experiment(setting) for setting in SETTINGS}
    trained = {setting: outcome_of(find_cell(folder, one)) for setting, one in experiments.items()}
    recorded = {
        setting: outcome_of(find_record(Records(folder / "records.jsonl"), one).cell)
        for setting, one in experiments.items()
    }
    # the example sequence of Figure 9 needs weights, and those are not on record
    for name, panels in (("fig9", (4, 8)), ("fig10", (2, 2))):
        study = STUDIES[name]
        assert dump_json([one.as_dict() for one in study.judged(recorded)]) == dump_json(
            [one.as_dict() for one in study.judged(trained)]
        )
        assert [vars(table) for table in study.tables(recorded)] == [vars(t) for t in study.tables(trained)]
        assert dump_json(study.data(recorded)["cells"]) == dump_json(study.data(trained)["cells"])
        assert (len(study.draw(recorded).axes), len(study.draw(trained).axes)) == panels


def test_a_stopped_member_is_on_record_as_stopped(pair, tmp_path):
    cell, _ = pair
    stopped = measure_cell(replace(cell.trained, stopped={1: 17}), 60)
    save_cell(stopped, tmp_path / "stopped.nc")
    record_cells(tmp_path, Records(tmp_path / "records.jsonl"))
    recorded = find_record(Records(tmp_path / "records.jsonl"), cell.experiment).cell
    assert recorded.trained.stopped == {1: 17}
    assert plain(recorded.evaluation.gaps) == plain(stopped.evaluation.gaps)
    assert np.isnan(recorded.attention[1]).all()
    assert np.isfinite(recorded.attention[0]).all()
    assert np.isnan(recorded.sinks.metric()[1]).all()


def test_a_record_is_small_and_a_line(folder):
    for line in (folder / "records.jsonl").read_text().splitlines():
        assert len(line) < 20_000
        told = json.loads(line)
        assert (told["posbias_kind"], told["amount"]) == (RECORD, 60)
        assert told["cost"]["device"] == "cpu"
        assert {"finished", "seconds", "threads"} <= told["cost"].keys()
        assert told["versions"]["torch"]


def test_recording_again_changes_no_byte_and_fewer_sequences_replace_nothing(folder, pair, tmp_path):
    records = Records(folder / "records.jsonl")
    before = records.path.read_bytes()
    record_cells(folder, records)
    assert records.path.read_bytes() == before
    save_cell(measure_cell(pair[0].trained, 20), tmp_path / "fewer.nc")
    with logged() as lines:
        assert record_cells(tmp_path, records) == []
    assert "kept, of 60 test sequences" in "\n".join(lines)
    assert records.path.read_bytes() == before


def test_a_damaged_record_is_none(folder, pair, tmp_path):
    experiment = BRIEF.experiment(SETTINGS[1])
    records, text = Records(tmp_path / "one.jsonl"), (folder / "records.jsonl").read_text()
    records.path.write_text(text.replace('"test_seed": 0', '"test_seed": 1'))
    with pytest.raises(InputFileError, match="damaged, its content does not match its digest"):
        find_record(records, experiment)
    records.path.write_text("{}")
    with pytest.raises(InputFileError, match="expected a cell's JSON in every line"):
        find_record(records, experiment)


def test_other_weights_are_told_in_standard_errors(pair):
    cell, record = pair
    weights = {name: 1.5 * one for name, one in cell.trained.weights.items()}
    other = measure_cell(replace(cell.trained, weights=weights), 60)
    told = repetition(other, record)
    assert not told.same_weights
    expected = other.evaluation.loss.values.mean() - cell.evaluation.loss.values.mean()
    assert told.differences["loss"].value == pytest.approx(expected, rel=1e-12)
    errors = np.hypot(*(one.evaluation.loss.over_members.se for one in (other, cell)))
    assert told.deviations["loss"] == pytest.approx(expected / errors, rel=1e-12)
    assert "weights others than those on record" in told.lines()[0]


def test_no_cell_is_no_record(tmp_path):
    with pytest.raises(
        InputFileError, match="no finished cell in it, a folder that 'posbias train' wrote needed"
    ):
        record_cells(tmp_path, Records(tmp_path / "records.jsonl"))
