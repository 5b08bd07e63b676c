"""Nothing damaged is believed: whatever happens to a file, it is noticed, or what is read is equal to the bit."""

import json
import random
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import netCDF4
import numpy as np
import pytest
import xarray as xr
from command import called
from logged import logged

import posbias
import posbias.measurement
from posbias.errors import DamagedError, InputFileError, OtherKindError
from posbias.measurement import measure
from posbias.measurement.models.loading import load_model
from posbias.papers.citations.results import uses_of_file
from posbias.papers.costs import Costs
from posbias.papers.results import read_result
from posbias.papers.theorems import statements_of
from posbias.predictors import load_profile
from posbias.simulation import RecencyModel, simulate_recency
from posbias.simulation.cell import RecencyCell
from posbias.store import (
    Checkpoint,
    Header,
    JsonCodec,
    SafetensorsCodec,
    Store,
    Tensors,
    load_measurement,
    open_netcdf,
    save_measurement,
    save_retrieval,
)
from posbias.store import load_retrieval as read_retrieval
from posbias.store.packing import unpack
from posbias.study.records import load_record as load_study_record
from posbias.training.records import load_record
from posbias.training.results import KIND, SCHEMA, WEIGHTS, CellCodec, load_cell
from posbias.verify import StatementCell, select, verify

STUDY = """
question = "Does recency grow with depth?"
seeds = [0]
base = {kind = "simulate", samples = 20, model = {tokens = 5, dimension = 8}}
sweep = {"model.depth" = [1, 2]}
"""
TRAINING = (
    "--items 4 --dimension 8 --classes 16 --labels 4 --burstiness 2 --batch 16 --effort 20 --sequences 20"
)
TRAIN = f"train {TRAINING} --threads 1 --networks"
COMMANDS = (
    "measure tiny-alibi --tokens 32 --prompts 2 --out measurement.nc",
    "retrieve tiny-alibi --pairs 4 --positions 3 --prompts 2 --out retrieval",
    f"{TRAIN} 2 --out network",
    f"{TRAIN} 1 --out untested --no-tests",
    "study record network --out record",
    "study run study.toml --out study",
    "study pack study --out pack.zip",
    "predict bloom-7b1 --tokens 16 --out prediction.json",
    "study run kim2026/fig1 --effort 1000 --out results",
)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A real file of every kind, small, by the name of the kind."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "study.toml").write_text(STUDY)
    for line in COMMANDS:
        done = called(*line.split(), "--json", cwd=folder)
        assert done.returncode == 0, done.stderr
    checkpoint(folder / "checkpoint.safetensors")
    model = RecencyModel(tokens=5, dimension=8, depth=1)
    Store(folder / "simulation").save(RecencyCell(model), simulate_recency(model, 20))
    (finding,) = verify(select(statements_of(), ["kim-theorem-1"]), instances=1)
    Store(folder / "statement").save(StatementCell(finding.statement), finding, amount=1)
    found = {
        "measurement": "measurement.nc",
        "retrieval": "retrieval/retrieval.nc",
        "network": "network/*.nc",
        "weights": "network/*.safetensors",
        "untested weights": "untested/.*.safetensors",
        "record": "record/*.json",
        "study cell": "study/cells/*depth1*.json",
        "manifest": "study/study.json",
        "simulation": "simulation/*.json",
        "statement": "statement/*.json",
        "checkpoint": "checkpoint.safetensors",
        "pack": "pack.zip",
        "prediction": "prediction.json",
        "figure": "results/kim2026/fig1.json",
        "costs": "results/papers.json",
    }
    return {kind: next(iter(sorted(folder.glob(pattern)))) for kind, pattern in found.items()}


def checkpoint(path):
    """The checkpoint of a measurement that was stopped after its first prompt."""

    def stop(event):
        if event.done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure(load_model("tiny-alibi"), tokens=8, prompts=2, checkpoint=path, on_event=stop)


def resumed(path):
    """What a computation goes on from, as the checkpoint of this very job gives it."""
    held = Checkpoint(path, FINGERPRINTS[path.name], 20).load()
    if held is None:
        raise InputFileError(f"{path}: damaged, started over")
    return held


FINGERPRINTS: dict[str, str] = {}


def unpacked(path):
    folder = path.with_suffix("")
    shutil.rmtree(folder, ignore_errors=True)
    unpack(path, folder)
    return {place.name: place.read_bytes() for place in sorted(folder.rglob("*")) if place.is_file()}


def costs(path):
    """What studies took; of a damaged file nothing is kept, which the log is told."""
    with logged() as words:
        held = Costs(path, "quick", {}).records
    if words:
        raise InputFileError(*words)
    return held


READ = {
    "measurement": load_measurement,
    "retrieval": read_retrieval,
    "network": lambda path: CellCodec().read(path, KIND, SCHEMA),
    "weights": lambda path: CellCodec().read(path.with_suffix(".nc"), KIND, SCHEMA),
    "untested weights": lambda path: SafetensorsCodec().read(path, WEIGHTS, SCHEMA),
    "record": lambda path: [load_record(path), JsonCodec().read(path, "record", 1)][1],
    "study cell": lambda path: vars(load_study_record(path)),
    "manifest": lambda path: JsonCodec().read(path, "study", 2),
    "simulation": lambda path: JsonCodec().read(path, RecencyCell.kind, RecencyCell.schema),
    "statement": lambda path: JsonCodec().read(path, StatementCell.kind, StatementCell.schema),
    "checkpoint": resumed,
    "pack": unpacked,
    "prediction": lambda path: vars(load_profile(path)),
    "figure": lambda path: read_result(path, "fig1"),
    "costs": costs,
}
"""How each kind is read where its content is used."""
CITED = (
    *("measurement", "retrieval", "network", "untested weights", "study cell", "manifest", "statement"),
    *("prediction", "figure"),
)


def bits(value):
    """A value as what compares equal only where every bit of it is."""
    match value:
        case xr.Dataset():
            variables = {
                name: (value[name].dims, value[name].attrs, value[name].values) for name in value.variables
            }
            return bits([variables, value.attrs])
        case np.ndarray():
            held = value.tolist() if value.dtype == object else value.tobytes()
            return [str(value.dtype), value.shape, held]
        case Header():
            return bits(value.as_dict())
        case Tensors():
            return bits([dict(value.arrays), dict(value.note)])
        case dict():
            return {str(key): bits(held) for key, held in value.items()}
        case list() | tuple():
            return [bits(held) for held in value]
    return repr(value)


def copied(files, kind, folder):
    """A file of a kind, with what lies beside it, to be damaged."""
    for path in files[kind].parent.glob(f"{files[kind].stem}.*"):
        if path.is_file():
            shutil.copy(path, folder)
    place = folder / files[kind].name
    if kind == "checkpoint":
        FINGERPRINTS[place.name] = (
            SafetensorsCodec().read(place, "checkpoint", 2)[0].specification["fingerprint"]
        )
    return place


def judged(read, place, truth):
    """What comes of reading a file: noticed in one line that names it, equal to the bit, or believed."""
    try:
        return "equal" if bits(read(place)) == truth else "believed"
    except InputFileError as error:
        said = str(error)
    assert str(place.with_suffix("")) in said
    assert "\n" not in said
    return "noticed"


def rewritten(place, content):
    """Write a file anew. HDF5 gives what it remembers of one that it could not open, as long as it is the same."""
    place.unlink()
    place.write_bytes(content)


def flipped(read, place, count):
    """How often each comes of flipping one bit, at seeded random places."""
    truth, whole, draw = bits(read(place)), place.read_bytes(), random.Random(0)
    counted: Counter[str] = Counter()
    for _ in range(count):
        content, bit = bytearray(whole), draw.randrange(8 * len(whole))
        content[bit // 8] ^= 1 << bit % 8
        rewritten(place, content)
        counted[judged(read, place, truth)] += 1
    place.write_bytes(whole)
    return counted


COUNTS = pytest.mark.parametrize("count", [60, pytest.param(1000, marks=pytest.mark.slow)])


@COUNTS
@pytest.mark.parametrize("kind", READ)
def test_a_flipped_bit_is_noticed_or_what_is_read_is_equal(files, kind, count, tmp_path, record_property):
    place = copied(files, kind, tmp_path)
    counted = flipped(READ[kind], place, count)
    print(f"{kind}: {place.stat().st_size} bytes, {count} flipped, {dict(counted)}")
    record_property("flipped", dict(counted))
    assert not counted["believed"]
    assert counted["noticed"]


@COUNTS
@pytest.mark.parametrize("kind", CITED)
def test_what_a_damaged_file_rests_on_is_not_cited(files, kind, count, tmp_path):
    place = copied(files, kind, tmp_path)
    assert not flipped(lambda path: [*uses_of_file(path)], place, count)["believed"]


@pytest.mark.parametrize("count", [4, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", READ)
def test_a_cut_is_noticed(files, kind, count, tmp_path):
    place = copied(files, kind, tmp_path)
    truth, whole, draw = bits(READ[kind](place)), place.read_bytes(), random.Random(1)
    # the line break that ends JSON is nothing, nor is a part of the digest behind what HDF5 reads
    most = whole.rfind(b"\nposbias-sha256 ") % len(whole)
    for length in (0, 1, 8, *(draw.randrange(most) for _ in range(count))):
        rewritten(place, whole[:length])
        assert judged(READ[kind], place, truth) == "noticed", length


@pytest.mark.parametrize("digit", "013")
def test_a_changed_schema_is_damage_and_its_cell_is_computed_again(digit, files, tmp_path):
    """A whole file of another schema is refused and kept; one that only seems to be of one is in nobody's way."""
    shutil.copytree(files["manifest"].parent, tmp_path / "study")
    (tmp_path / "study.toml").write_text(STUDY)
    line = ["study", "run", "study.toml", "--out", "study", "--json"]
    before = json.loads(called(*line, cwd=tmp_path).stdout)
    for path in (tmp_path / "study/study.json", next((tmp_path / "study/cells").glob("*depth1*"))):
        path.write_text(path.read_text().replace('"schema": 2', f'"schema": {digit}'))
    done = called(*line, cwd=tmp_path)
    answer = json.loads(done.stdout)
    assert (
        f"{path.name}: damaged, its content does not match its digest; kept as {path.name}.damaged-1"
        in done.stderr
    )
    assert answer["computed"] == 1
    assert [cell["quantities"] for cell in answer["cells"]] == [
        cell["quantities"] for cell in before["cells"]
    ]


def test_weights_of_another_network_are_noticed(files, tmp_path):
    place = copied(files, "network", tmp_path)
    codec = SafetensorsCodec()
    header, held = codec.read(place.with_suffix(".safetensors"), WEIGHTS, SCHEMA)
    other = {name: array + 1 if array.dtype.kind == "f" else array for name, array in held.arrays.items()}
    codec.write(place.with_suffix(".safetensors"), header, Tensors(other, held.note))
    with pytest.raises(InputFileError, match=r"measured of other weights .* write one with 'posbias train'"):
        load_cell(place)
    shutil.copy(files["untested weights"], place.with_suffix(".safetensors"))
    with pytest.raises(InputFileError, match=r"of another experiment .* write one with 'posbias train'"):
        load_cell(place)


# --- files that are no whole measurement, given to commands ---------------------------------------------------


def attribute(name, value):
    """Another attribute, or none, written as another program would."""

    def change(path):
        with netCDF4.Dataset(path, "r+") as file:
            if value is None:
                file.delncattr(name)
            else:
                file.setncattr(name, value)

    return change


def content(change):
    """Other content, the digest right."""
    return lambda path: save_measurement(change(load_measurement(path)), path)


def replaced(name, dimensions, values):
    return content(lambda data: data.drop_vars(name).assign({name: (dimensions, values(data[name].values))}))


MEASUREMENTS = {
    "text": lambda path: path.write_text("influence = 1\n"),
    "nothing": lambda path: path.write_bytes(b""),
    "half of it": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "kind an array": attribute("posbias_kind", np.array([1, 2, 3])),
    "no kind": attribute("posbias_kind", None),
    "no digest": attribute("posbias_digest", None),
    "no specification": attribute("posbias_specification", None),
    "text for a header": attribute("posbias_specification", "hello"),
    "a number for a header": attribute("posbias_versions", 3),
    "no influence": content(lambda data: data.drop_vars("influence")),
    "fewer positions": replaced("influence", ("prompt", "place"), lambda held: held[:, :10]),
    "fewer queries": content(lambda data: data.isel(query=slice(9))),
    "one prompt's influence": replaced("influence", ("position",), lambda held: held[0]),
    "influence in words": replaced(
        "influence", ("prompt", "position"), lambda held: held.astype(str).astype(object)
    ),
    "kernel of other dimensions": replaced("kernel", ("layer", "one", "other"), lambda held: held[:, :9, :9]),
    "an attribute that is no JSON": content(lambda data: data.assign_attrs(rope="{")),
}
MODEL = "tiny-alibi"
USES = {
    "compare": ["compare", "FILE", "list.json"],
    "report": ["report", "FILE", "--out", "report"],
    "calibrate": ["predict", MODEL, "--tokens", "40", "--calibrate", "FILE"],
    "mixing": ["predict", MODEL, "--tokens", "32", "--mixing", "FILE"],
    "cite": ["cite", "FILE"],
}
MAKES_NO_DIFFERENCE = {
    ("no influence", "cite"),
    ("fewer positions", "cite"),
    ("fewer queries", "cite"),
    ("one prompt's influence", "cite"),
    ("influence in words", "cite"),
    ("kernel of other dimensions", "cite"),
    ("an attribute that is no JSON", "cite"),
}
"""The digest is right, and citing reads none of it."""


def test_a_whole_measurement_serves_all(files, tmp_path):
    (tmp_path / "list.json").write_text(json.dumps([1.0] * 32))
    for words in USES.values():
        done = called(*(files["measurement"] if word == "FILE" else word for word in words), cwd=tmp_path)
        assert done.returncode == 0, done.stderr


RETRIEVALS = {
    "half of it": (MEASUREMENTS["half of it"], "'posbias measure' or 'posbias retrieve'"),
    "no digest": (MEASUREMENTS["no digest"], "'posbias retrieve'"),
    "no depth": (
        lambda path: save_retrieval(read_retrieval(path).drop_vars("depth"), path),
        "'posbias retrieve'",
    ),
}
"""Damage, and the commands that are named: both where the kind of a file is not told."""


@pytest.mark.parametrize("damage", RETRIEVALS)
def test_a_retrieval_that_is_not_whole_names_the_command_that_makes_one(files, damage, tmp_path):
    path = Path(shutil.copy(files["retrieval"], tmp_path / "r.nc"))
    change, commands = RETRIEVALS[damage]
    change(path)
    with pytest.raises(DamagedError) as caught:
        posbias.read(path)
    assert str(caught.value).endswith(f"; write one with {commands}")


def test_what_is_read_as_a_profile_says_what_it_is_instead(files):
    with pytest.raises(OtherKindError, match="holds a posbias cell, not a posbias measurement") as caught:
        posbias.read(files["network"])
    assert caught.value.held == "cell"
    assert posbias.read(files["retrieval"]).kind == "rate"
    assert posbias.read(files["measurement"]).kind == "mass"


UNSEALED = (
    *("text", "nothing", "half of it", "kind an array", "no kind", "no digest", "no specification"),
    *("text for a header", "a number for a header"),
)
"""Without the digest behind them: each use opens them in a process more, and opens them alike."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "uses"),
    [
        *((damage, ("compare", "mixing") if damage in UNSEALED else (*USES,)) for damage in MEASUREMENTS),
        *(
            pytest.param(damage, ("report", "calibrate", "cite"), marks=pytest.mark.slow)
            for damage in UNSEALED
        ),
    ],
)
def test_a_measurement_that_is_not_whole_is_one_line_that_says_what_to_do(files, damage, uses, tmp_path):
    path = Path(shutil.copy(files["measurement"], tmp_path / "m.nc"))
    (tmp_path / "list.json").write_text(json.dumps([1.0] * 32))
    MEASUREMENTS[damage](path)
    for use in uses:
        done = called(*(path if word == "FILE" else word for word in USES[use]), "-q", cwd=tmp_path)
        if (damage, use) in MAKES_NO_DIFFERENCE:
            assert done.returncode == 0, use
            continue
        (line,) = done.stderr.splitlines()
        assert (done.returncode, done.stdout) == (2, ""), use
        assert line.startswith(f"posbias: {path}: "), line
        # a file that is nothing at all may be of any command
        assert "posbias measure" in line or use == "cite", line


def test_a_measurement_without_mixing_has_none_to_predict_with(files, tmp_path):
    path = Path(shutil.copy(files["measurement"], tmp_path / "m.nc"))
    content(lambda data: data.drop_vars("mixing"))(path)
    done = called("predict", MODEL, "--mixing", path)
    said = "not a whole measurement, it has no variable 'mixing'; write one with 'posbias measure'"
    assert done.stderr == f"posbias: {path}: {said}\n"


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_text("question = 1\n"),
        lambda path: path.write_text(path.read_text().replace('"study_cell"', '["study_cell"]')),
        lambda path: path.write_text(path.read_text().replace('"schema": 2', '"schema": [2]')),
        lambda path: path.write_text(path.read_text().replace('"about"', '"\\ud800"')),
        lambda path: path.write_text(json.dumps({"posbias_kind": "study_cell", "schema": 2})),
        lambda path: path.write_text("[" * 100_000),
    ],
    ids=["text", "kind an array", "schema an array", "half a character", "no attributes", "nested deeply"],
)
def test_a_study_says_which_cell_is_damaged(files, damage, tmp_path):
    shutil.copytree(files["manifest"].parent, tmp_path / "study")
    (tmp_path / "study.toml").write_text(STUDY)
    path = next((tmp_path / "study/cells").glob("*depth1*"))
    damage(path)
    done = called("study", "status", "study.toml", "--out", "study", "--json", cwd=tmp_path)
    assert "Traceback" not in done.stderr
    assert f"cells/{path.name}: " in done.stderr
    assert done.returncode == 2 or json.loads(done.stdout)["finished"] == 1


# --- files without the digest behind them, as posbias 0.1 wrote them ------------------------------------------

OLD = Path(__file__).parent / "release_0_1_0" / "causal-decay-depth1-residual-e8f09c36.nc"
OPEN = """
import sys
from pathlib import Path
from posbias.errors import DamagedError
from posbias.store import open_netcdf
try:
    open_netcdf(Path(sys.argv[1]))
except DamagedError as error:
    print(error)
"""


def hurt(seed):
    """The old file with some bits of its first part flipped."""
    draw, content = random.Random(seed), bytearray(OLD.read_bytes())
    for _ in range(draw.choice([1, 4, 16])):
        bit = draw.randrange(8 * 20_000)
        content[bit // 8] ^= 1 << bit % 8
    return content


@pytest.mark.parametrize("seed", [2, 59, pytest.param(85, marks=pytest.mark.slow)])
def test_what_crashes_hdf5_ends_in_a_line(seed, tmp_path):
    """With HDF5 2.2.0 reading these files ends the process that does it."""
    path = tmp_path / "old.nc"
    path.write_bytes(hurt(seed))
    done = subprocess.run([sys.executable, "-c", OPEN, path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    # where the crash hits nothing, it may be read
    assert all(line.startswith(f"{path}: ") for line in done.stdout.splitlines())


def test_bundled_measurements_have_their_digest_behind_them():
    """So that they are read without a process more."""
    for path in Path(posbias.measurement.__path__[0]).rglob("*.nc"):
        assert path.read_bytes()[-80:].startswith(b"\nposbias-sha256 "), path


def test_an_old_file_is_read():
    """By a process of its own, equal to the bit to what is read here."""
    with xr.open_dataset(OLD, engine="netcdf4") as opened:
        assert bits(open_netcdf(OLD)) == bits(opened.load())
