"""Cells of a study are whole files or not there; what is damaged is computed again; nothing is deleted."""

import json
from dataclasses import replace

import pytest
from study_values import results, small

from posbias import __version__
from posbias.core.errors import OutputFileError
from posbias.core.formats import JsonCodec
from posbias.core.progress import Event
from posbias.core.running import InProcess
from posbias.study import StudyError, judge, run_study, status

KIND = ("study_cell", 2)


@pytest.fixture
def ran(tmp_path):
    outcome = run_study(small(), tmp_path / "out")
    assert (outcome.computed, outcome.finished) == (6, 6)
    return tmp_path / "out"


def change(path, content=None, **keys):
    """Alter a file as another program would, its digest right."""
    header, held = JsonCodec().read(path, *KIND)
    JsonCodec().write(path, replace(header, **keys), held | (content or {}))


def test_a_record_holds_everything_that_made_it(ran):
    path = next((ran / "cells").glob("simulate-dimension16-seed1-*.json"))
    data = json.loads(path.read_text())
    cell = small().cells()[1]
    assert list(data)[:4] == ["posbias_kind", "schema", "digest", "fingerprint"]
    assert (data["posbias_kind"], data["schema"]) == KIND
    assert data["fingerprint"] == cell.fingerprint
    assert data["specification"] == {"spec": cell.mapping, "seed": 1}
    assert data["specification"]["spec"]["model"]["temperature"] == 1.0  # defaults too
    assert data["versions"]["posbias"] == __version__
    assert set(data["cost"]) == {*("seconds", "cpu_seconds", "cores", "peak_memory", "engine", "finished")}
    assert status(small(), ran).records[1].result == data["content"]
    assert json.loads((ran / "study.json").read_text())["question"] == small().question


def test_finished_cells_are_taken_and_new_ones_computed(ran):
    before = {path: path.read_bytes() for path in (ran / "cells").iterdir()}
    assert run_study(small(), ran).computed == 0
    wider = run_study(small(sweep={"model.dimension": [16, 32]}), ran)
    assert (wider.computed, wider.finished) == (2, 4)
    assert all(path.read_bytes() == content for path, content in before.items())
    assert len([*(ran / "cells").iterdir()]) == 8


def test_again_computes_all_in_new_files_and_the_newest_counts(ran):
    before = {path: path.read_bytes() for path in (ran / "cells").iterdir()}
    assert run_study(small(), ran, again=True).computed == 6
    assert all(path.read_bytes() == content for path, content in before.items())
    names = {path.name for path in (ran / "cells").iterdir()} - {path.name for path in before}
    assert names == {path.name.replace(".json", "-2.json") for path in before}
    assert {record.path.name for record in status(small(), ran).records} == names


def cut(path):
    path.write_bytes(path.read_bytes()[:-40])


def alter_content(path):
    head, key, content = path.read_text().partition('"content"')
    path.write_text(head + key + content.replace("0.", "1.", 1))


def put_other_kind(path):
    change(path, kind="something")


def put_other_cell(path):
    change(path, specification={"spec": {}, "seed": 0})


def lack_a_part(path):
    header, held = JsonCodec().read(path, *KIND)
    del held["about"]
    JsonCodec().write(path, header, held)


@pytest.mark.parametrize("damage", [cut, alter_content, put_other_kind, put_other_cell, lack_a_part])
def test_a_damaged_record_is_named_and_computed_again(ran, damage, caplog):
    whole = results(ran)
    path = sorted((ran / "cells").iterdir())[2]
    damage(path)
    damaged = path.read_bytes()
    assert status(small(), ran).finished == 5
    assert run_study(small(), ran).computed == 1
    assert all(str(path) in line for line in caplog.messages)
    assert len(caplog.messages) == 2
    assert path.read_bytes() == damaged
    path.with_name(f"{path.stem}-2.json").rename(path)
    assert results(ran) == whole


def test_a_record_is_found_by_its_digits_whatever_words_another_study_gave_it(ran):
    assert run_study(small(sweep={"model.dimension": [16]}, seeds=[1]), ran).computed == 0
    table = {"model": {"dimension": 64, "depth": 2}, "samples": 200}
    listed = small(sweep={}, cells=[table], base={"kind": "simulate"})
    outcome = run_study(listed, ran)
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
    with pytest.raises(StudyError, match=r"1 of 3 cells failed.*no-such-model"):
        run_study(study, tmp_path / "out")
    found = status(study, tmp_path / "out")
    assert [record is not None for record in found.records] == [True, False, True]
    assert judge(found)[0].verdict == "holds"


def test_an_interruption_keeps_finished_cells(tmp_path):
    def stop(event):
        if event.done >= 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match="3 of 6 cells"):
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

    study = small(cores=2, sweep={"model.dimension": [16]})
    outcome = run_study(study, tmp_path / "out", engine=Listens())
    assert [(task.cores, task.gpus) for task in tasks] == [(2, 0.0)] * 2
    assert outcome.records[0].header.cost["cores"] == 2


def test_a_folder_that_cannot_be_written_is_refused_first(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputFileError):
        run_study(small(), tmp_path / "file" / "out")


def test_a_quantity_that_a_record_lacks_leaves_its_claim_undecided(ran):
    study = small(claims=[{"claim": "c", "quantity": "recency_probability.1", "above": 0.5}])
    for path in sorted((ran / "cells").iterdir()):
        held = JsonCodec().read(path, *KIND)[1]["quantities"]["least_step"]
        change(path, {"quantities": {"recency_probabilities": held}})
    (judged,) = judge(status(study, ran))
    assert judged.verdict == "undecided"
