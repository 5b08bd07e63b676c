"""What is read back is what was written, to the bit; a damaged cell is known for one."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import xarray as xr

from posbias import netcdf
from posbias.errors import InputFileError, OutputFileError
from posbias.spec import decode, encode, fingerprint
from posbias.train.cells import find_cell, run_cells
from posbias.train.network import ENCODINGS, Network
from posbias.train.probes import evaluate
from posbias.train.results import load_cell, measure_cell, save_cell
from posbias.train.sinks import untrained_weights
from posbias.train.specification import Experiment
from posbias.train.spelling import name_of
from posbias.train.task import RetrievalTask

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
    assert one.as_dict() | {"file": None} == two.as_dict() | {"file": None}


def test_a_cell_is_read_back_as_it_was_written(cell, tmp_path):
    fresh = measure_cell(cell.trained, 60)
    same(fresh, cell)
    kept = save_cell(fresh, tmp_path / "kept.nc")
    same(load_cell(tmp_path / "kept.nc"), kept)
    assert kept.path == tmp_path / "kept.nc"


def test_the_kept_weights_give_the_kept_numbers(cell):
    read = load_cell(cell.path)
    assert evaluate(read.trained, 60).as_dict() == cell.evaluation.as_dict()
    learnt = read.trained.weights["query"] - untrained_weights(read.trained)["query"]
    assert float(learnt.abs().max()) > 1e-3


def test_a_stopped_member_is_read_back_as_stopped(cell, tmp_path):
    stopped = replace(cell.trained, stopped={0: 17})
    made = save_cell(measure_cell(stopped, 60), tmp_path / "stopped.nc")
    read = load_cell(tmp_path / "stopped.nc")
    same(made, read)
    assert read.trained.stopped == {0: 17}
    assert np.isnan(read.evaluation.loss.values).tolist() == [False, True, False]
    assert read.as_dict()["gaps"]["first-last"]["members"][1] is None
    assert read.evaluation.gaps["first-last"].all.n == 2


def test_arrays_are_labelled_and_say_what_made_them(cell):
    with xr.open_dataset(cell.path, engine="h5netcdf") as data:
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
        assert decode(Experiment, json.loads(data.attrs["experiment"])) == EXPERIMENT
        assert data.attrs["fingerprint"] == fingerprint(EXPERIMENT)
        assert json.loads(data.attrs["versions"])["torch"] == torch.__version__
        assert json.loads(data.attrs["cost"])["seconds"] > 0
        assert data.attrs["test_sequences"] == 60


def copied(cell, folder):
    for suffix in (".nc", ".safetensors"):
        (folder / cell.path.with_suffix(suffix).name).write_bytes(cell.path.with_suffix(suffix).read_bytes())
    return folder / cell.path.name


def flip(path, where):
    content = bytearray(path.read_bytes())
    content[where] ^= 1
    path.write_bytes(content)


def changed_attribute(path, checksum=True, **attributes):
    """The file with other attributes; with `checksum` it is whole and says so."""
    with xr.open_dataset(path, engine="h5netcdf") as opened:
        data = opened.load()
    if checksum:
        data.attrs.pop("content_checksum")
    netcdf.save(data.assign_attrs(attributes), path, checksum=checksum)


def flipped_number(path):
    with xr.open_dataset(path, engine="h5netcdf") as opened:
        data = opened.load()
    data["loss"].values[0] += 1e-12
    netcdf.save(data, path)


DAMAGE = {
    "a number that changed": (flipped_number, "damaged, its content does not match its checksum"),
    "a spec that changed": (
        lambda path: changed_attribute(path, checksum=False, experiment=json.dumps(encode(Experiment()))),
        "damaged, its content does not match its checksum",
    ),
    "half a file": (
        lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
        "not a readable NetCDF file",
    ),
    "no weights": (lambda path: path.with_suffix(".safetensors").unlink(), "not a readable training"),
    "half of the weights": (
        lambda path: path.with_suffix(".safetensors").write_bytes(
            path.with_suffix(".safetensors").read_bytes()[:900]
        ),
        "not a readable training",
    ),
    "weights that changed": (
        lambda path: flip(path.with_suffix(".safetensors"), -5),
        "safetensors: damaged, its content does not match its checksum",
    ),
    "another version": (
        lambda path: changed_attribute(path, version="0.0.1"),
        "trained by posbias 0.0.1, this is",
    ),
    "another kind": (
        lambda path: changed_attribute(path, posbias_kind="measurement"),
        "not a posbias cell; write one with 'posbias train'",
    ),
    "another experiment": (
        lambda path: changed_attribute(path, experiment=json.dumps(encode(Experiment()))),
        "of another experiment than the weights beside it",
    ),
    "other weights": (
        lambda path: changed_attribute(path, weights_checksum="0"),
        "measured of other weights than those beside it",
    ),
    "a spec that is none": (lambda path: changed_attribute(path, experiment="{}x"), "not a whole cell"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_cell_is_named_and_made_anew(cell, tmp_path, damage):
    spoil, words = DAMAGE[damage]
    path = copied(cell, tmp_path)
    assert find_cell(tmp_path, EXPERIMENT) is not None
    spoil(path)
    said = []
    assert find_cell(tmp_path, EXPERIMENT, said.append) is None
    assert len(said) == 1
    assert words in said[0]
    assert str(tmp_path) in said[0]
    assert said[0].endswith("; not used")


def test_what_is_made_anew_stands_beside_the_damaged_cell(cell, tmp_path):
    path = copied(cell, tmp_path)
    flip(path.with_suffix(".safetensors"), -5)
    spoilt = path.read_bytes(), path.with_suffix(".safetensors").read_bytes()
    said = []
    (new,) = run_cells([EXPERIMENT], tmp_path, sequences=60, workers=1, say=said.append)
    assert "damaged" in said[0]
    assert new.path == tmp_path / f"{path.stem}-2.nc"
    assert new.evaluation.as_dict() == cell.evaluation.as_dict()
    assert (path.read_bytes(), path.with_suffix(".safetensors").read_bytes()) == spoilt
    assert find_cell(tmp_path, EXPERIMENT, said.append).path == new.path


def test_a_cell_under_another_name_is_not_taken_for_it(cell, tmp_path):
    path, other = copied(cell, tmp_path), replace(EXPERIMENT, iterations=41)
    for suffix in (".nc", ".safetensors"):
        path.with_suffix(suffix).rename(tmp_path / f"{name_of(other)}{suffix}")
    said = []
    assert find_cell(tmp_path, other, said.append) is None
    assert "holds another experiment than its name says" in said[0]


def test_a_cell_that_cannot_be_written_leaves_nothing(cell, tmp_path):
    (tmp_path / "taken.nc").mkdir()
    with pytest.raises(OutputFileError, match="it is a folder"):
        save_cell(cell, tmp_path / "taken.nc")
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputFileError, match="cannot write"):
        run_cells([EXPERIMENT], tmp_path / "file" / "in", sequences=60)
    with pytest.raises(InputFileError, match="no such file"):
        load_cell(tmp_path / "missing.nc")
