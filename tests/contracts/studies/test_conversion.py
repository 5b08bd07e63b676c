"""Results of 0.1 are read, verified and written anew, or named with what makes them again; nothing is deleted."""

import json
import shutil

import numpy as np
import pytest
import xarray as xr
from answers import faults
from project import ROOT

from posbias import __version__
from posbias.cli import main
from posbias.errors import InputFileError
from posbias.simulation import RecencyModel
from posbias.simulation.cell import RecencyCell
from posbias.store import Store, load_measurement, load_retrieval
from posbias.study import read_study, run_study, status
from posbias.study.conversion import convert

GOLDEN = ROOT / "tests/golden"


@pytest.fixture
def old(tmp_path):
    """The results of every kind that 0.1.0 wrote."""
    shutil.copytree(GOLDEN / "results", tmp_path / "old")
    return tmp_path / "old"


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_file_of_0_1_is_converted_or_named_and_none_is_lost(old):
    before = files(old)
    conversions = convert(old)
    after = files(old)
    assert set(before.values()) <= set(after.values())
    told = {str(one.path.relative_to(old)): one for one in conversions}
    assert not [one for one in conversions if one.kind == "damaged"]
    assert all(one.written is not None or one.todo for one in conversions)
    assert all((one.written is None) != (not one.todo) for one in conversions)
    kinds = {one.kind for one in conversions if one.written is not None}
    assert kinds == {
        "a study's cell",
        "what a study was run with",
        "a simulation",
        "a measurement",
        "a retrieval",
    }
    assert told["kim2026/section3.json"].todo == (
        "'posbias paper kim2026 section3' writes it again, from its cells"
    )
    assert "posbias paper claims" in told["statements/statements.json"].todo
    assert told["train/causal-none-depth1-7de43f69.nc"].kind == "a trained cell"
    begun = told["interrupted/.causal-none-depth1-1b0b569f.checkpoint"]
    assert (begun.kind, begun.todo) == (
        "an unfinished training",
        "the command that was interrupted begins anew",
    )
    assert told["encodings/encodings.json"].todo == (
        "'posbias paper encodings' writes it again, from its cells"
    )
    # what has no kind is read as it is: predictions, simulations, comparisons, verifications
    untold = {str(path.relative_to(old)) for path in before} - told.keys()
    assert untold == {
        *("README.md", "comparison.json", "prediction.json", "simulation.json", "variants.json"),
        *("variation.json", "verify/verify.json", "verify/wu-4.5-published.json"),
        *("kim2026/table.csv", "train/causal-none-depth1-7de43f69.safetensors", "report.json"),
    }
    again = convert(old)
    assert not [one for one in again if one.written is not None]
    assert files(old) == after


STUDIES = {
    "study-simulate": "tiny-study.toml",
    "study-predict-verify": "every-verb.toml",
    "study-train": "train-study.toml",
    "study-measure": "measure-study.toml",
}


@pytest.mark.parametrize("folder", STUDIES)
def test_a_converted_study_is_finished_and_holds_the_numbers_of_0_1(old, folder):
    study = read_study(GOLDEN / "inputs" / STUDIES[folder])
    with pytest.raises(InputFileError, match=f"'posbias study convert {old / folder}' converts it"):
        run_study(study, old / folder)
    numbers = {}
    for path in (old / folder / "cells").iterdir():
        data = json.loads(path.read_text())
        numbers[data["fingerprint"]] = (data["result"], data["cost"], data["versions"])
    convert(old / folder)
    outcome = status(study, old / folder)
    assert outcome.finished == len(study.cells()) == len(numbers)
    for record in outcome.records:
        result, cost, versions = numbers[record.header.fingerprint]
        assert (record.result, record.cost) == (result, cost)
        assert record.header.versions == versions | {"converted": __version__}
    assert run_study(study, old / folder).computed == 0


def test_a_converted_simulation_is_found_with_all_its_samples(old):
    convert(old / "kim2026")
    store = Store(old / "kim2026/cells")
    for path in sorted((GOLDEN / "results/kim2026/cells").iterdir()):
        data = json.loads(path.read_text())
        stored = store.find(RecencyCell(RecencyModel(**data["model"]), data["seed"]), at_least=100)
        assert stored.header.amount == stored.result.samples == data["samples"]
        for name in ("mean", "squares", "products"):
            np.testing.assert_array_equal(getattr(stored.result.tally, name), data[name])


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """The same, converted."""
    folder = shutil.copytree(GOLDEN / "results", tmp_path_factory.mktemp("converted") / "old")
    convert(folder)
    return folder


@pytest.mark.parametrize(
    ("name", "load"),
    [
        ("measurement.nc", load_measurement),
        ("options.nc", load_measurement),
        ("herasimchyk2026/cells/tiny-alibi-bundled-8x3-327cda70b1ac.nc", load_measurement),
        ("retrieve/retrieval.nc", load_retrieval),
    ],
)
def test_converted_arrays_are_those_of_0_1(converted, name, load):
    with pytest.raises(InputFileError, match=r"schema version 1.*study convert"):
        load(GOLDEN / "results" / name)
    with xr.open_dataset(GOLDEN / "results" / name, engine="netcdf4") as opened:
        before = opened.load()
    before.attrs.pop("content_checksum", None)
    assert load(converted / name).identical(before)
    assert (converted / f"{name}.0.1").read_bytes() == (GOLDEN / "results" / name).read_bytes()


def flip(path):
    whole = bytearray(path.read_bytes())
    at = whole.index(b"0.", len(whole) // 2) + 2
    whole[at] = ord("1") if whole[at] != ord("1") else ord("2")
    path.write_bytes(whole)


def test_a_damaged_file_of_0_1_is_named_and_kept(old):
    paths = [
        next((old / "study-simulate/cells").iterdir()),
        next((old / "kim2026/cells").iterdir()),
    ]
    for path in paths:
        flip(path)
    before = files(old)
    conversions = {one.path: one for one in convert(old)}
    aside = paths[0].with_name(f"{paths[0].name}.damaged-1")  # where a run would look for a cell
    for path, kept in zip(paths, (aside, paths[1]), strict=True):
        assert conversions[path].kind == "damaged"
        assert "does not match its checksum; kept" in conversions[path].todo
        assert kept.read_bytes() == before[path]
    assert f"kept as {aside.name}, not converted" in conversions[paths[0]].todo


@pytest.mark.parametrize("damage", ["a flipped digit", "another's name"])
def test_a_damaged_cell_of_0_1_is_not_in_the_way_of_a_run(old, damage):
    study, folder = read_study(GOLDEN / "inputs/tiny-study.toml"), old / "study-simulate"
    first, second, *_ = sorted((folder / "cells").iterdir())
    if damage == "a flipped digit":
        flip(first)
    else:
        first.write_bytes(second.read_bytes())
    convert(folder)
    assert status(study, folder).finished == 3
    assert run_study(study, folder).computed == 1


def test_of_several_files_of_a_cell_the_newest_good_one_counts(old):
    cells = old / "study-simulate/cells"
    path = cells / "simulate-dimension16-seed0-84188894a5dc.json"
    newer = path.with_name("simulate-dimension16-seed0-84188894a5dc-2.json")
    newer.write_bytes(path.read_bytes())
    flip(newer)
    convert(old / "study-simulate")
    assert newer.with_name(f"{newer.name}.damaged-1").exists()
    assert json.loads(newer.read_text())["schema"] == 2
    study = read_study(GOLDEN / "inputs/tiny-study.toml")
    assert status(study, old / "study-simulate").finished == 4


def test_the_command_lists_every_file(old, capsys):
    main(["study", "convert", str(old / "study-simulate")])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    assert lines[-1] == f"5 of 5 files of posbias 0.1 converted in {old / 'study-simulate'}"
    main(["study", "convert", str(old / "kim2026"), "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert answer["converted"] == 3
    assert not faults(answer)
    assert {one["kind"] for one in answer["files"]} == {"a simulation", "a page"}
    with pytest.raises(SystemExit) as ended:
        main(["study", "convert", str(old / "nothing")])
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"posbias: {old / 'nothing'}: no such folder\n"
