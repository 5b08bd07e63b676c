"""What is read back is what was written, to the bit; a damaged cell is known for one."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import xarray as xr
from answers import as_json, plain

from posbias.core.spec import decode, fingerprint
from posbias.core.store import Store
from posbias.reports.answers.experiments import Cell
from posbias.training.cells import KIND, SCHEMA, TrainingCell, load_cell, measure_cell, run_cells
from posbias.training.experiments import Experiment
from posbias.training.network import ENCODINGS, Network
from posbias.training.task import RetrievalTask

TASK = RetrievalTask(items=4, dimension=16, classes=64, labels=4, burstiness=2, answers=(0, 3))
NETWORK = Network(depth=2, residual=True, positional=ENCODINGS["decay"])
EXPERIMENT = Experiment(TASK, NETWORK, seeds=(4, 0, 7), iterations=40, batch=16, evaluate_every=10)


@pytest.fixture(scope="module")
def cell(tmp_path_factory):
    (made,) = run_cells([EXPERIMENT], tmp_path_factory.mktemp("cells"), sequences=60, workers=1)
    return made


def held(cell):
    """All that a cell holds, to the bit, but for its file."""
    return plain(replace(cell, path=None))


def test_a_cell_is_read_back_as_it_was_written(cell, tmp_path):
    fresh = measure_cell(cell.trained, 60)
    assert held(fresh) == held(cell)
    kept = Store(tmp_path).save(TrainingCell(EXPERIMENT), fresh, amount=60)
    assert held(load_cell(kept.path)) == held(kept.result)


def test_a_stopped_member_is_read_back_as_stopped(cell, tmp_path):
    stopped = replace(cell.trained, stopped={0: 17})
    kept = Store(tmp_path).save(TrainingCell(EXPERIMENT), measure_cell(stopped, 60), amount=60)
    read = load_cell(kept.path)
    assert held(kept.result) == held(read)
    assert read.trained.stopped == {0: 17}
    assert np.isnan(read.evaluation.loss.values).tolist() == [False, True, False]
    assert as_json(Cell.of(read))["gaps"]["first-last"]["members"][1] is None
    assert read.evaluation.gaps["first-last"].all.n == 2


def test_arrays_are_labelled_and_say_what_made_them(cell):
    with xr.open_dataset(cell.path, engine="netcdf4") as data:
        assert data["gap"].sel(member=7, pair="first-last") == pytest.approx(
            cell.evaluation.gaps["first-last"].over_all.values[2], abs=0
        )
        assert (
            data["accuracy_by_position"].sel(member=0, item=3) == cell.evaluation.accuracy_by_position[1, 3]
        )
        assert data["attention"].sel(member=4, layer=1, query=8, key=0) == cell.rollout.attention[0, 1, 8, 0]
        np.testing.assert_allclose(data["attention"].sum("key"), 1.0, rtol=1e-6)
        assert data["curve_loss"].dims == ("member", "step")
        assert data["step"].values.tolist() == list(cell.trained.curves["iteration"])
    header, _ = TrainingCell.codec.read(cell.path, KIND, SCHEMA)
    assert decode(Experiment, header.specification) == EXPERIMENT
    assert header.fingerprint == fingerprint(EXPERIMENT)
    assert header.versions["torch"] == torch.__version__
    assert header.cost["seconds"] > 0
    assert header.amount == 60
