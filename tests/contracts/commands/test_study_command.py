"""`posbias study` as a user runs it: real processes, killed at any moment, full disks, two at once, bad input."""

import contextlib
import csv
import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from study_values import results

from posbias.cli import main

POSBIAS = Path(sys.executable).with_name("posbias")
STUDY = """
question = "Does the recency bias vanish with the dimension?"
seeds = [0, 1]
[base]
kind = "simulate"
samples = {samples}
model.depth = 2
[sweep]
model.dimension = [16, 64, 256]
[[claims]]
claim = "At d = 16 the second layer favours recent keys"
quantity = "recency_probability.1"
of = {{"model.dimension" = 16}}
above = 0.5
[[claims]]
claim = "Less so at d = 256"
quantity = "recency_probability.1"
of = {{"model.dimension" = 16}}
than = {{"model.dimension" = 256}}
above = 0.0
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dimension.toml").write_text(STUDY.format(samples=2000))
    return tmp_path


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    """A study whose cells take a while each, and what it finds when nothing interrupts it."""
    folder = tmp_path_factory.mktemp("slow")
    (folder / "slow.toml").write_text(STUDY.format(samples=30_000))
    # code that a process has just compiled may round the last digit otherwise than the same code from the cache
    (folder / "first.toml").write_text(STUDY.format(samples=20))
    for name in ("first", "slow"):
        code, _, err = call("run", folder / f"{name}.toml", "--out", folder / name)
        assert code == 0, err
    return folder / "slow.toml", results(folder / "slow")


def start(*arguments, **settings):
    words = [str(POSBIAS), "study", *map(str, arguments)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **settings)


def call(*arguments, **settings):
    process = start(*arguments, **settings)
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


def ran(capsys, *arguments):
    main(["study", *map(str, arguments)])
    return capsys.readouterr()


def count(folder):
    """Finished cells; what is being written has a name that begins with a dot."""
    return len([path for path in (folder / "cells").glob("*.json") if path.name[0] != "."])


def readable(folder):
    """Every file among the results can be read as JSON; the names of what killed writers had begun have a dot."""
    for path in [*folder.glob("*.json"), *(folder / "cells").glob("*")]:
        assert path.name[0] == "." or json.loads(path.read_text()), path


# ── the commands ──


def test_json_holds_every_cell_and_claim(here, capsys):
    answer = json.loads(ran(capsys, "run", "dimension.toml", "--out", "o", "--json").out)
    assert (answer["finished"], answer["computed"], answer["folder"]) == (6, 6, "o")
    assert [one["verdict"] for one in answer["claims"]] == ["holds", "holds"]
    assert answer["claims"][0]["bound"] == ["above", 0.5]
    for cell in answer["cells"]:
        on_disk = json.loads(Path(cell["file"]).read_text())
        assert cell["quantities"] == on_disk["content"]["quantities"]
        assert cell["fingerprint"] == on_disk["fingerprint"]
    shown = json.loads(ran(capsys, "show", "dimension.toml", "--out", "o", "--json").out)
    assert shown == answer | {"computed": 0}
    state = json.loads(ran(capsys, "status", "dimension.toml", "--out", "none", "--json").out)
    assert (state["cells"], state["finished"], len(state["missing"])) == (6, 0, 6)


def test_show_draws_and_lists(here, capsys):
    ran(capsys, "run", "dimension.toml")
    shown = ran(
        capsys, "show", "dimension.toml", "--cells", "--quantities", "least_step.1", "--plot", "a.svg"
    ).out
    assert "least_step.1" in shown
    assert "recency_probability.0" not in shown
    assert shown.count("simulate-dimension16-seed") == 2
    assert "plot: a.svg" in shown
    assert (here / "a.svg").read_text().count("<path") > 10
    ran(capsys, "show", "dimension.toml", "--plot", "b.svg")
    assert (here / "a.svg").read_bytes() != (here / "b.svg").read_bytes()


def test_export_is_the_numbers_in_full(here, capsys):
    ran(capsys, "run", "dimension.toml")
    text = ran(capsys, "export", "dimension.toml", "--csv", "-").out
    assert ran(capsys, "export", "dimension.toml").out == text
    assert ran(capsys, "export", "dimension.toml", "--csv", "t.csv").out == "table: t.csv\n"
    assert (here / "t.csv").read_text() == text
    table = list(csv.DictReader(io.StringIO(text)))
    listed = json.loads(ran(capsys, "export", "dimension.toml", "--json").out)["rows"]
    assert [float(row["value"]) for row in table] == [row["value"] for row in listed]
    (row,) = (
        row for row in table
        if [row[name] for name in ("model.dimension", "seed", "quantity", "index")]
        == ["64", "1", "recency_probability", "1"]
    )  # fmt: skip
    record = json.loads(next((here / "results/studies/dimension/cells").glob("*64-seed1*")).read_text())
    assert float(row["value"]) == record["content"]["quantities"]["recency_probability"]["value"][1]


# ── what stops a run ──


@pytest.mark.waits
@pytest.mark.parametrize(
    ("workers", "most"),
    [
        pytest.param((), 4, marks=pytest.mark.slow),
        pytest.param(("--workers", 2), 4, marks=pytest.mark.slow),
        (("--workers", 2), 2),
    ],
)
def test_a_run_killed_at_any_moment_loses_at_most_the_running_cells(slow, tmp_path, workers, most):
    path, whole = slow
    folder, chance = tmp_path / "o", random.Random(7)
    kills = 0
    while kills < most:
        before = count(folder)
        process = start("run", path, "--out", folder, *workers, start_new_session=True)
        while process.poll() is None and count(folder) <= before:
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.2))
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        _, err = process.communicate()
        readable(folder)
        assert count(folder) > before, err
        kills += 1
        if count(folder) == 6:
            break
    # a file that was being written lies hidden among the cells, and is swept away
    kept = {one: one.stat().st_mtime_ns for one in (folder / "cells").glob("[!.]*")}
    code, _, err = call("run", path, "--out", folder)
    assert code == 0, err
    assert all(one.stat().st_mtime_ns == when for one, when in kept.items())
    found = results(folder)
    assert found == whole
    assert json.dumps(found) == json.dumps(whole)  # the order of keys too: byte for byte
    assert not [*folder.rglob(".*")]


@pytest.mark.waits
def test_ctrl_c_ends_with_130_and_says_what_is_kept(tmp_path):
    path = tmp_path / "endless.toml"
    path.write_text(
        'question = "Does it end?"\n[base]\nkind = "simulate"\n[sweep]\nsamples = [100, 100_000_000_000]\n'
    )
    process = start("run", path, "--out", tmp_path / "o")
    while process.poll() is None and count(tmp_path / "o") < 1:
        time.sleep(0.01)
    time.sleep(0.5)  # the second cell has no end; the run reads the first back
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert count(tmp_path / "o") == 1
    assert "posbias: interrupted: 1 of 2 cells are kept in" in err
    assert " left; the same command goes on from there" in err
    assert "Traceback" not in err
    readable(tmp_path / "o")


@contextlib.contextmanager
def small_disk(folder):
    """A real file system of so few pages that it is soon full."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=20k", "tmpfs", str(folder)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("file systems cannot be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_keeps_what_fitted(slow, tmp_path):
    path, whole = slow
    folder = tmp_path / "disk"
    with small_disk(folder):
        code, out, err = call("run", path, "--out", folder / "o")
        assert (code, out) == (2, "")
        assert "No space left on device" in err.splitlines()[-1]
        assert "Traceback" not in err
        assert 0 < count(folder / "o") < 6
        readable(folder / "o")
        found = results(folder / "o")
        assert found == {name: whole[name] for name in found}
        assert not [*(folder / "o").rglob(".*")]


# ── wrong input ──

BASE = 'question = "q"\n[base]\nkind = "simulate"\nsamples = 50\n'
CLAIM = "[[claims]]\nclaim = 'c'\nquantity = 'recency_probabilty.1'\nabove = 0\n"
WRONG = [
    ("run none.toml", "", "none.toml: no such file"),
    ("run bad.toml", "[base", "bad.toml: not valid TOML"),
    ("run bad.toml", "", "bad.toml: key 'question'"),
    ("run bad.toml", BASE + "[sweep]\nmodl.dimension = [1]\n", "did you mean 'model.dimension'?"),
    ("run bad.toml", BASE + "[sweep]\nsamples = [1]\n", "samples"),
    ("run bad.toml", BASE + "[sweep]\nmodel.depth = [1]\nmodel.depth = [2]\n", "bad.toml: not valid TOML"),
    ("run bad.toml", BASE + CLAIM, "did you mean 'recency_probability'?"),
    ("run bad.toml --workers 0", BASE, "workers"),
    ("run bad.toml --workers 1 --ray auto", BASE, "workers"),
    ("run bad.toml --out bad.toml", BASE, "bad.toml"),
    ("run bad.txt", BASE, "bad.txt: suffix"),
    ("show bad.toml --plot p.gif", BASE, "picture"),
    ("show bad.toml --plot p.svg", BASE, "plot"),
    ("show bad.toml --quantities recency", BASE, "quantity"),
    ("export bad.toml --csv - --json", BASE, "json"),
    ("status bad.toml --ot x", BASE, "Unknown option"),
]


@pytest.mark.parametrize(("arguments", "text", "words"), WRONG)
def test_wrong_input_is_one_line_and_exit_code_2(here, capsys, arguments, text, words):
    for name in ("bad.toml", "bad.txt"):
        (here / name).write_text(text)
    with pytest.raises(SystemExit) as ended:
        main(["study", *arguments.split()])
    printed = capsys.readouterr()
    assert ended.value.code == 2
    assert words.lower() in printed.err.lower()
    assert printed.err.count("\n") == 1
    assert printed.out == ""
    assert not (here / "results").exists()
