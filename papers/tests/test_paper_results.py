"""What is read back is what was written, to the bit; a damaged cell is known for one."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import xarray as xr
from answers import as_json, plain
from setting import logged

from posbias.core.errors import InputFileError, OutputFileError, SchemaError
from posbias.core.formats import NetCDFCodec
from posbias.core.spec import decode, encode, fingerprint
from posbias.reports.answers.experiments import Cell
from posbias.training.cells import find_cell, run_cells
from posbias.training.experiments import Experiment
from posbias.training.network import ENCODINGS, Network
from posbias.training.results import KIND, SCHEMA, TrainingCell, load_cell, measure_cell, save_cell
from posbias.training.task import RetrievalTask

TASK = RetrievalTask(items=4, dimension=16, classes=64, labels=4, burstiness=2, answers=(0, 3))
NETWORK = Network(depth=2, residual=True, positional=ENCODINGS["decay"])
EXPERIMENT = Experiment(TASK, NETWORK, seeds=(4, 0, 7), iterations=40, batch=16, evaluate_every=10)


@pytest.fixture(scope="module")
def cell(tmp_path_factory):
    (made,) = run_cells([EXPERIMENT], tmp_path_factory.mktemp("cells"), sequences=60, workers=1)
    return made


def same(one, two):
    """The two cells hold the same numbers."""
    assert one.experiment == two.experiment
    assert one.trained.stopped == two.trained.stopped
    assert one.trained.cost == two.trained.cost
    assert one.trained.weights.keys() == two.trained.weights.keys()
    for name, weights in one.trained.weights.items():
        assert torch.equal(weights, two.trained.weights[name])
    assert one.trained.curves.keys() == two.trained.curves.keys()
    for name, curve in one.trained.curves.items():
        np.testing.assert_array_equal(curve, two.trained.curves[name])
    np.testing.assert_array_equal(one.attention, two.attention)
    np.testing.assert_array_equal(one.rollout.mixing, two.rollout.mixing)
    assert as_json(Cell.of(one)) | {"file": None} == as_json(Cell.of(two)) | {"file": None}


def test_a_cell_is_read_back_as_it_was_written(cell, tmp_path):
    fresh = measure_cell(cell.trained, 60)
    same(fresh, cell)
    kept = save_cell(fresh, tmp_path / "kept.nc")
    same(load_cell(tmp_path / "kept.nc"), kept)
    assert kept.path == tmp_path / "kept.nc"


def test_a_stopped_member_is_read_back_as_stopped(cell, tmp_path):
    stopped = replace(cell.trained, stopped={0: 17})
    made = save_cell(measure_cell(stopped, 60), tmp_path / "stopped.nc")
    read = load_cell(tmp_path / "stopped.nc")
    same(made, read)
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
        assert data["attention"].sel(member=4, layer=1, query=8, key=0) == cell.attention[0, 1, 8, 0]
        np.testing.assert_allclose(data["attention"].sum("key"), 1.0, rtol=1e-6)
        assert data["curve_loss"].dims == ("member", "step")
        assert data["step"].values.tolist() == list(cell.trained.curves["iteration"])
    header, _ = TrainingCell.codec.read(cell.path, KIND, SCHEMA)
    assert decode(Experiment, header.specification) == EXPERIMENT
    assert header.fingerprint == fingerprint(EXPERIMENT)
    assert header.versions["torch"] == torch.__version__
    assert header.cost["seconds"] > 0
    assert header.amount == 60


def copied(cell, folder):
    for suffix in (".nc", ".safetensors"):
        (folder / cell.path.with_suffix(suffix).name).write_bytes(cell.path.with_suffix(suffix).read_bytes())
    return folder / cell.path.name


def flip(path, where):
    content = bytearray(path.read_bytes())
    content[where] ^= 1
    path.write_bytes(content)


def rewritten(path, kind=KIND, schema=SCHEMA, **changes):
    """The .nc with another header, whole and true to its digest."""
    header, dataset = NetCDFCodec().read(path, KIND, SCHEMA)
    NetCDFCodec().write(path, replace(header, kind=kind, schema=schema, **changes), dataset)


def spoilt(path, change):
    """The .nc after `change`, with the digest of before."""
    with xr.open_dataset(path, engine="netcdf4") as opened:
        data = opened.load()
    change(data)
    data.to_netcdf(path, engine="netcdf4")


def another_number(data):
    data["loss"].values[0] += 1e-12


def another_experiment(data):
    data.attrs["posbias_specification"] = json.dumps(encode(Experiment()))


OTHER = "damaged, its content does not match its digest"
DAMAGE = {
    "a number that changed": (lambda path: spoilt(path, another_number), OTHER),
    "a spec that changed": (
        lambda path: spoilt(path, another_experiment),
        "damaged, its header is not whole",
    ),
    "no weights": (lambda path: path.with_suffix(".safetensors").unlink(), "with its weights is missing"),
    "another version": (lambda path: rewritten(path, versions={"posbias": "0.0.1"}), "made by posbias 0.0.1"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_cell_is_named_and_made_anew(cell, tmp_path, damage):
    spoil, words = DAMAGE[damage]
    path = copied(cell, tmp_path)
    assert find_cell(tmp_path, EXPERIMENT) is not None
    spoil(path)
    with logged() as said:
        assert find_cell(tmp_path, EXPERIMENT) is None
    assert len(said) == 1
    assert words in said[0]
    assert str(tmp_path) in said[0]
    assert said[0].endswith("computed again")


def test_a_cell_of_another_schema_is_refused(cell, tmp_path):
    rewritten(copied(cell, tmp_path), schema=4)
    with pytest.raises(SchemaError, match="schema version 4, this posbias reads and writes 3"):
        find_cell(tmp_path, EXPERIMENT)


def test_what_is_made_anew_does_not_replace_the_damaged_cell(cell, tmp_path):
    path = copied(cell, tmp_path)
    flip(path.with_suffix(".safetensors"), -5)
    before = path.read_bytes(), path.with_suffix(".safetensors").read_bytes()
    with logged() as said:
        (new,) = run_cells([EXPERIMENT], tmp_path, sequences=60, workers=1)
    assert "damaged" in said[0]
    assert new.path == tmp_path / f"{path.stem}-2.nc"
    assert plain(new.evaluation) == plain(cell.evaluation)
    assert (path.read_bytes(), path.with_suffix(".safetensors").read_bytes()) == before
    assert find_cell(tmp_path, EXPERIMENT).path == new.path


def test_a_cell_that_cannot_be_written_leaves_nothing(cell, tmp_path):
    (tmp_path / "taken.nc").mkdir()
    with pytest.raises(OutputFileError, match="it is a folder"):
        save_cell(cell, tmp_path / "taken.nc")
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputFileError, match="cannot write"):
        run_cells([EXPERIMENT], tmp_path / "file" / "in", sequences=60)
    with pytest.raises(InputFileError, match="no such file"):
        load_cell(tmp_path / "missing.nc")
