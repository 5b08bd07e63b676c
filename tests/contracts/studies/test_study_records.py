"""Records are whole or not there; what is damaged is named, set aside and computed again; nothing is deleted."""

import json
import os
import platform
import subprocess
import sys
from dataclasses import replace

import pytest
from logged import logged
from study_values import results, small

from posbias import __version__
from posbias.core.errors import OutputFileError, SchemaError
from posbias.core.events import Event
from posbias.core.running import InProcess
from posbias.core.store import JsonCodec
from posbias.study import StudyError, judge, load_record, run_study, status


@pytest.fixture
def ran(tmp_path):
    outcome = run_study(small(), tmp_path / "out")
    assert (outcome.computed, outcome.finished) == (6, 6)
    return tmp_path / "out"


@pytest.fixture
def run(caplog):
    """Run the small study, or another, in a folder: the outcome, and what was said."""

    def run(folder, study=None, **settings):
        caplog.clear()
        outcome = run_study(study or small(), folder, **settings)
        return outcome, [record.getMessage() for record in caplog.records]

    return run


def change(path, content=None, **keys):
    """Alter a file as another program would, its digest right."""
    header, held = JsonCodec().read(path, *kind_of(path))
    JsonCodec().write(path, replace(header, **keys), held | (content or {}))


def kind_of(path):
    return ("study", 2) if path.name == "study.json" else ("study_cell", 2)


def test_a_record_says_everything_that_made_it(ran):
    path = next((ran / "cells").glob("simulate-dimension16-seed1-*.json"))
    data = json.loads(path.read_text())
    cell = small().cells()[1]
    assert list(data)[:4] == ["posbias_kind", "schema", "digest", "fingerprint"]
    assert (data["posbias_kind"], data["schema"]) == ("study_cell", 2)
    assert data["fingerprint"] == cell.fingerprint
    assert data["specification"] == {"spec": cell.mapping, "seed": 1}
    assert data["specification"]["spec"]["model"]["temperature"] == 1.0  # defaults too
    assert data["versions"]["posbias"] == __version__
    assert set(data["cost"]) == {*("seconds", "cpu_seconds", "cores", "peak_memory", "engine", "finished")}
    assert data["cost"]["finished"].endswith("+00:00")
    assert load_record(path).quantities == data["content"]["quantities"]
    manifest = json.loads((ran / "study.json").read_text())
    assert (manifest["posbias_kind"], manifest["schema"]) == ("study", 2)
    assert manifest["content"]["cells"] == [cell.fingerprint for cell in small().cells()]
    assert manifest["specification"]["question"] == small().question


def test_finished_cells_are_taken_and_new_ones_computed(ran, run):
    before = {path: path.read_bytes() for path in (ran / "cells").iterdir()}
    outcome, said = run(ran)
    assert (outcome.computed, said) == (0, [])
    wider, said = run(ran, small(sweep={"model.dimension": [16, 32]}))
    assert (wider.computed, wider.finished, said) == (2, 4, [])
    assert all(path.read_bytes() == content for path, content in before.items())
    assert len([*(ran / "cells").iterdir()]) == 8


def test_again_writes_beside_and_the_newest_counts(ran, run):
    before = {path: path.read_bytes() for path in (ran / "cells").iterdir()}
    outcome, _ = run(ran, again=True)
    assert outcome.computed == 6
    assert all(path.read_bytes() == content for path, content in before.items())
    names = {path.name for path in (ran / "cells").iterdir()} - {path.name for path in before}
    assert names == {path.name.replace(".json", "-2.json") for path in before}
    newest = status(small(), ran)
    assert {record.path.name for record in newest.records} == names
    for record in newest.records:
        beside = record.path.with_name(record.path.name.replace("-2.json", ".json"))
        assert load_record(beside).result == record.result
    run(ran, again=True)
    assert {record.path.name[-7:] for record in status(small(), ran).records} == {"-3.json"}


def cut(path):
    path.write_bytes(path.read_bytes()[:-40])


def empty(path):
    path.write_bytes(b"")


def alter(path):
    path.write_text(path.read_text().replace("0.", "1.", 1))


def alter_content(path):
    head, key, content = path.read_text().partition('"content"')
    path.write_text(head + key + content.replace("0.", "1.", 1))


def put_nan(path):
    path.write_text(path.read_text().replace('"value": [0.', '"value": [NaN, 0.', 1))


def put_list(path):
    path.write_text("[1, 2]")


def put_nonsense(path):
    path.write_bytes(b"\xff\xfe\x00" * 50)


def put_other_kind(path):
    change(path, kind="something")


def put_other_cell(path):
    change(path, specification={"spec": {}, "seed": 0})


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (cut, "damaged, not valid JSON"),
        (empty, "damaged, not valid JSON"),
        (alter, "damaged, its header is not whole"),
        (alter_content, "damaged, its content does not match its digest"),
        (put_nan, "damaged, not valid JSON (NaN is no number of JSON)"),
        (put_list, "damaged, no mapping of keys"),
        (put_nonsense, "damaged, not valid JSON"),
        (put_other_kind, "holds a posbias something, not a posbias study_cell"),
        (put_other_cell, "damaged, it holds another cell than its name says"),
    ],
)
def test_a_damaged_record_is_named_and_computed_again_beside_it(ran, run, damage, said, caplog):
    whole = results(ran)
    path = sorted((ran / "cells").iterdir())[2]
    damage(path)
    damaged = path.read_bytes()
    caplog.clear()
    assert status(small(), ran).finished == 5
    (told,) = (record.getMessage() for record in caplog.records)
    assert f"{path}: {said}" in told
    assert path.read_bytes() == damaged  # looking changes nothing
    outcome, (told,) = run(ran)
    assert (outcome.computed, outcome.finished) == (1, 6)
    assert f"{path}: {said}" in told
    assert told.endswith(", computed again")
    assert path.read_bytes() == damaged
    path.with_name(f"{path.stem}-2.json").rename(path)
    assert results(ran) == whole


@pytest.mark.parametrize("name", ["study.json", "record"])
@pytest.mark.parametrize("schema", [1, 3])
def test_another_schema_version_is_refused_and_nothing_changed(ran, name, schema):
    path = ran / "study.json" if name == "study.json" else sorted((ran / "cells").iterdir())[0]
    change(path, schema=schema)
    before = {one: one.read_bytes() for one in ran.rglob("*") if one.is_file()}
    for look in (run_study, status):
        with pytest.raises(SchemaError) as caught:
            look(small(), ran)
        assert str(caught.value).startswith(
            f"{path}: schema version {schema}, this posbias reads and writes 2"
        )
    assert {one: one.read_bytes() for one in ran.rglob("*") if one.is_file()} == before


def test_a_damaged_manifest_is_written_anew(ran, run):
    (ran / "study.json").write_text("{")
    run(ran)
    assert json.loads((ran / "study.json").read_text())["schema"] == 2


@pytest.mark.parametrize(
    ("version", "used"), [(f"{__version__}.post7", True), ("0.0.9", False), ("7.1.0", False)]
)
def test_records_of_a_version_whose_first_two_numbers_differ_are_computed_again(ran, run, version, used):
    path = sorted((ran / "cells").iterdir())[0]
    versions = json.loads(path.read_text())["versions"] | {"posbias": version}
    change(path, versions=versions)
    old = path.read_bytes()
    outcome, said = run(ran)
    assert outcome.computed == (0 if used else 1)
    assert said == (
        [] if used else [f"{path}: made by posbias {version}, this is {__version__}; kept, computed again"]
    )
    assert path.read_bytes() == old
    assert path.with_name(path.name.replace(".json", "-2.json")).exists() != used
    again, _ = run(ran)
    assert again.computed == 0


def test_the_study_beside_decides_no_name(ran, run):
    """A record is found by its digits, whatever words another study gave it."""
    other = small(sweep={"model.dimension": [16]}, seeds=[1])
    assert run(ran, other)[0].computed == 0
    listed = small(
        sweep={}, cells=[{"model": {"dimension": 64, "depth": 2}, "samples": 200}], base={"kind": "simulate"}
    )
    outcome, _ = run(ran, listed)
    assert outcome.computed == 0
    assert "simulate-dimension64" in outcome.records[0].path.name
    assert "depth2" in listed.cells()[0].name


def test_a_cell_that_fails_stops_no_other_and_is_named_at_the_end(tmp_path):
    study = small(
        seeds=[0],
        sweep={},
        base={},
        cells=[
            {"kind": "simulate", "samples": 100},
            {"kind": "measure", "model": "no-such-model"},
            {"kind": "verify", "statement": "wu-4.1", "instances": 4},
        ],
        claims=[{"claim": "c", "quantity": "holds", "above": 0.5, "of": {"kind": "verify"}}],
    )
    with logged() as said, pytest.raises(StudyError) as caught:
        run_study(study, tmp_path / "out")
    assert [line for line in said if "'no-such-model', seed 0: failed: model: " in line]
    assert "1 of 3 cells failed, the other 2 are kept in" in str(caught.value)
    assert "no-such-model" in str(caught.value)
    assert "\n" not in str(caught.value)
    found = status(study, tmp_path / "out")
    assert [record is not None for record in found.records] == [True, False, True]
    assert judge(found)[0].verdict == "holds"


def test_ctrl_c_says_what_is_kept(tmp_path):
    def stop(event):
        if event.done >= 3:
            raise KeyboardInterrupt

    with pytest.raises(
        KeyboardInterrupt, match=r"3 of 6 cells are kept in .* the same command goes on from there"
    ):
        run_study(small(), tmp_path / "out", on_event=stop)
    assert len(results(tmp_path / "out")) == 3
    assert run_study(small(), tmp_path / "out").computed == 3


def test_progress_is_in_cells_and_ends_with_all_of_them(tmp_path):
    heard = []
    run_study(small(), tmp_path / "out", on_event=heard.append)
    assert heard[-1] == Event(6.0, 6, "cell")
    assert [event.done for event in heard] == sorted(event.done for event in heard)


def test_cells_get_the_cores_and_gpus_of_the_study(tmp_path):
    tasks = []

    class Listens(InProcess):
        def run(self, given, hear):
            tasks.extend(given)
            super().run(given, hear)

    run_study(small(cores=2, sweep={"model.dimension": [16]}), tmp_path / "out", engine=Listens())
    assert [(task.cores, task.gpus, task.label) for task in tasks] == [
        (2, 0.0, "model.dimension = 16, seed 0"),
        (2, 0.0, "model.dimension = 16, seed 1"),
    ]
    record = status(small(sweep={"model.dimension": [16]}), tmp_path / "out").records[0]
    assert (record.cost["cores"], record.cost["engine"]) == (2, "Listens")


def test_what_a_killed_writer_began_is_cleared_and_a_living_ones_is_not(ran, run):
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    begun = {
        (folder, host, process): folder / f".{host}~{process}~a.json.abc.json"
        for folder in (ran, ran / "cells")
        for host, process in (
            (platform.node(), done.pid),
            (platform.node(), os.getpid()),
            ("elsewhere", done.pid),
        )
    }
    for path in begun.values():
        path.write_text("{")
    assert run(ran)[0].computed == 0
    for (_, host, process), path in begun.items():
        assert path.exists() == ((host, process) != (platform.node(), done.pid))


def test_a_folder_that_cannot_be_written_is_refused_first(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputFileError, match="is no folder"):
        run_study(small(), tmp_path / "file" / "out")
    assert not list(tmp_path.glob("*/cells"))


def test_a_quantity_that_a_record_lacks_is_said(ran):
    study = small(claims=[{"claim": "c", "quantity": "recency_probability.1", "above": 0.5}])
    for path in sorted((ran / "cells").iterdir()):
        held = load_record(path).quantities["least_step"]
        change(path, {"quantities": {"recency_probabilities": held}})
    (judged,) = judge(status(study, ran))
    assert judged.verdict == "undecided"
    assert "did you mean 'recency_probabilities'" in judged.why
