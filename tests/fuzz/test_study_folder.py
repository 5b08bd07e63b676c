"""A study's folder through anything: run, stopped, killed, shared, damaged, carried elsewhere, of posbias 0.1.

One invariant: a result that is there is the plain run's, to the bit; what is missing or damaged is named, and
the next run makes it again. Draws have the same shape whatever is on the disk: a kill is never the same twice.
"""

import functools
import hashlib
import json
import logging
import re
import shutil
import tempfile
from pathlib import Path

import pytest
from command import called
from counted import EXAMPLES
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from struck import Command

from posbias.errors import InputFileError, SchemaError
from posbias.files import is_leftover
from posbias.store.packing import pack, unpack
from posbias.study import read_study, run_study, status
from posbias.study.conversion import convert

STUDY = """
question = "Does recency grow with depth?"
seeds = [0, 1]
base = {{kind = "simulate", samples = 20, model = {{tokens = 5, dimension = 8}}}}
sweep = {{"model.depth" = {}}}
"""
CELLS = 4
LIBRARIES = ["posbias.cli.study", "posbias.study", "posbias.study.performing", "posbias.simulation.run"]
"""What a process has imported before it begins, so that a kill strikes its work."""
NAMED = re.compile(r"[^.].*-(?P<digits>[0-9a-f]{12})(-(?P<number>\d+))?\.json")
ANY = st.integers(0, 2**32 - 1)
OTHERS = [b"", b"{", b"null", b"[" * 100_000, b'{"posbias_kind": "study_cell", "schema": 2}', bytes(64)]
"""What may stand in a file's place."""
DEPTHS = st.sampled_from([[1], [2], [1, 2]])
"""Of the parts of the study that a run may be of."""


def written(folder, depths=(1, 2)):
    """The study's file, of so many of its cells."""
    path = folder / "study.toml"
    path.write_text(STUDY.format([*depths]))
    return path


def command(folder):
    written(folder)
    return Command("study run study.toml --out kept", folder, LIBRARIES)


@functools.cache
def plain():
    """What an uninterrupted run finds, by fingerprint: the result and the text of the cell's file."""
    with tempfile.TemporaryDirectory() as name:
        records = run_study(read_study(written(Path(name))), Path(name) / "kept").records
        return {one.header.fingerprint: (one.result, one.path.name, one.path.read_text()) for one in records}


@functools.cache
def length():
    """How many seconds a process takes that is not killed."""
    with tempfile.TemporaryDirectory() as name:
        run = command(Path(name))
        run.whole()
        run.forget()
        return run.whole()


def as_0_1(text):
    """A cell's file as posbias 0.1 wrote it."""
    told = json.loads(text)
    data = {
        "posbias_kind": "study_cell",
        "schema": 1,
        "fingerprint": told["fingerprint"],
        **told["specification"],
        "versions": told["versions"] | {"posbias": "0.1.0"},
        "result": told["content"],
        "cost": told["cost"],
    }
    plainly = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return json.dumps(data | {"checksum": hashlib.sha256(plainly.encode()).hexdigest()})


def contents(paths):
    return {path: path.read_bytes() for path in paths if path.is_file()}


def parsed(path):
    """The keys of a file; none where it is no JSON."""
    try:
        told = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) and isinstance(told.get("versions"), dict) else {}


def flipped(path, bit):
    """Another bit somewhere; a file of none stays."""
    content = bytearray(path.read_bytes())
    if content:
        content[bit // 8 % len(content)] ^= 1 << bit % 8
        path.write_bytes(content)


class Heard(logging.Handler):
    """What the log is told inside a block."""

    def __enter__(self):
        self.lines = []
        logging.getLogger("posbias").addHandler(self)
        return self.lines

    def __exit__(self, *_):
        logging.getLogger("posbias").removeHandler(self)

    def emit(self, record):
        self.lines.append(record.getMessage())


class StudyFolder(RuleBasedStateMachine):
    """A folder of results, and which bytes of it are known to be a whole cell's."""

    def __init__(self):
        super().__init__()
        EXAMPLES["folders"] += 1
        self.root = Path(tempfile.mkdtemp())
        self.kept = self.root / "kept"
        self.kept.mkdir()
        self.whole, self.old = set(), set()
        plain()

    def teardown(self):
        shutil.rmtree(self.root)

    # ── what is there ──

    def files(self):
        """Every file, hidden ones too."""
        return sorted(path for path in self.kept.rglob("*") if path.is_file())

    def cells(self):
        """The files of cells, by their names."""
        return [path for path in self.files() if path.parent.name == "cells" and NAMED.fullmatch(path.name)]

    def expected(self, fingerprint):
        """The damaged files of a cell that a reader comes across, and what ends its search: a file, or None."""
        numbered = [(int(NAMED.fullmatch(path.name)["number"] or 1), path) for path in self.cells()]
        damaged = []
        for _, path in sorted(numbered, reverse=True):
            if NAMED.fullmatch(path.name)["digits"] != fingerprint[:12]:
                continue
            if self.is_whole(path) or path.read_bytes() in self.old:
                return damaged, path
            damaged.append(path)
        return damaged, None

    def is_whole(self, path):
        return (NAMED.fullmatch(path.name)["digits"], path.read_bytes()) in self.whole

    def learn(self, records):
        """Results are the plain run's; the bytes that gave them are those of whole cells."""
        for record in records:
            assert record.result == plain()[record.header.fingerprint][0], record.path
            self.whole.add((record.header.fingerprint[:12], record.path.read_bytes()))

    @invariant()
    def what_is_there_is_right_and_what_is_not_is_named(self):
        study, before = read_study(written(self.root)), contents(self.files())
        with Heard() as lines:
            try:
                outcome = status(study, self.kept)
            except SchemaError as error:
                # of 0.1, or damaged so that it seems to be
                said = str(error)
                assert any(str(path) in said for path in self.cells() if not self.is_whole(path)), said
                assert "'posbias study convert" in said
                return
        assert contents(self.files()) == before
        self.learn(record for record in outcome.records if record is not None)
        for cell, record in zip(study.cells(), outcome.records, strict=True):
            damaged, end = self.expected(cell.fingerprint)
            assert end is None or self.is_whole(end)
            assert (end is None) == (record is None) == (cell in outcome.missing)
            assert record is None or record.path == end
            for path in damaged:
                assert any(line.startswith(f"{path}: ") for line in lines), (path, lines)

    def missing(self, study):
        return [cell for cell in study.cells() if self.expected(cell.fingerprint)[1] is None]

    def up_to_date(self):
        """Convert what is of 0.1, as a person does who is told so: nothing is in the way of a run then."""
        before = contents(self.files())
        conversions = convert(self.kept)
        assert all((one.written is None) != (not one.todo) for one in conversions)
        after = contents(self.files())
        assert {*before.values()} <= {*after.values()}
        for path in self.cells():
            told = parsed(path)
            if "converted" in told.get("versions", {}) and path not in before:
                assert told["content"] == plain()[told["fingerprint"]][0]
                self.whole.add((told["fingerprint"][:12], path.read_bytes()))
        assert not [one for one in convert(self.kept) if one.written is not None]

    def complete(self, depths=(1, 2)):
        """After a run: all there, right, and nothing half written."""
        outcome = status(read_study(written(self.root, depths)), self.kept)
        assert not outcome.missing
        self.learn(outcome.records)
        assert not [path for path in self.files() if is_leftover(path)]

    # ── what happens to it ──

    @rule(depths=DEPTHS, again=st.booleans())
    def run(self, depths, again):
        self.up_to_date()
        study = read_study(written(self.root, depths))
        missing = self.missing(study)
        outcome = run_study(study, self.kept, again=again)
        assert outcome.computed == len(study.cells() if again else missing)
        self.complete(depths)

    @rule()
    def run_by_command(self):
        written(self.root)
        before = contents(path for path in self.files() if not is_leftover(path))
        done = called("study", "run", "study.toml", "--out", "kept", "-q", cwd=self.root)
        if done.returncode:
            assert (done.returncode, done.stdout) == (2, "")
            assert "'posbias study convert kept/cells' converts it" in done.stderr.splitlines()[-1]
            assert {*before.values()} <= {*contents(self.files()).values()}
        else:
            self.complete()

    @rule(depths=DEPTHS, events=st.integers(1, 12))
    def stopped(self, depths, events):
        self.up_to_date()
        heard = []

        def stop(event):
            heard.append(event)
            if len(heard) == events:
                raise KeyboardInterrupt

        try:
            run_study(read_study(written(self.root, depths)), self.kept, on_event=stop)
        except KeyboardInterrupt as error:
            said = str(error)
            assert re.search(r"\d of \d cells are kept in ", said)

    @rule(share=ANY, writing=st.booleans())
    def killed(self, share, writing):
        self.up_to_date()
        EXAMPLES["kills"] += command(self.root).strike(share / 2**32 * length(), writing)

    @rule(count=st.integers(2, 3))
    def at_once(self, count):
        self.up_to_date()
        begun, before = command(self.root), self.missing(read_study(written(self.root)))
        files = len(self.cells())
        running = [begun.start() for _ in range(count)]
        for process in running:
            process.join()
            assert process.exitcode == 0, (self.root / "err").read_text()
        self.complete()
        assert len(self.cells()) <= files + len(before)

    # ── what damages it ──

    def pick(self, number, paths):
        return paths[number % len(paths)] if paths else None

    @rule(which=ANY, bit=ANY)
    def flip(self, which, bit):
        if path := self.pick(which, self.files()):
            flipped(path, bit)

    @rule(which=ANY, share=ANY)
    def cut(self, which, share):
        if path := self.pick(which, self.files()):
            path.write_bytes(path.read_bytes()[: share * path.stat().st_size // 2**32])

    @rule(one=ANY, other=ANY)
    def swap(self, one, other):
        if self.cells():
            first, second = self.pick(one, self.cells()), self.pick(other, self.cells())
            held = first.read_bytes()
            first.write_bytes(second.read_bytes())
            second.write_bytes(held)

    @rule(which=ANY, content=st.sampled_from([None, *OTHERS]))
    def replace(self, which, content):
        if path := self.pick(which, self.files()):
            path.unlink()
            if content is not None:
                path.write_bytes(content)

    @rule(which=st.integers(0, CELLS - 1))
    def of_0_1(self, which):
        _, (_, name, text) = sorted(plain().items())[which]
        place, number = self.kept / "cells" / name, 1
        place.parent.mkdir(exist_ok=True)
        while place.exists():
            number += 1
            place = place.with_name(name.replace(".json", f"-{number}.json"))
        place.write_text(as_0_1(text))
        self.old.add(place.read_bytes())

    # ── what reads and carries it ──

    @rule()
    def convert(self):
        self.up_to_date()

    @rule()
    def look(self):
        written(self.root)
        before = contents(self.files())
        done = called("study", "show", "study.toml", "--out", "kept", "--json", cwd=self.root)
        assert contents(self.files()) == before
        assert "Traceback" not in done.stderr
        if done.returncode:
            assert (done.returncode, done.stdout) == (2, "")
            assert "'posbias study convert kept/cells' converts it" in done.stderr.splitlines()[-1]
            return
        for cell in json.loads(done.stdout)["cells"]:
            _, end = self.expected(cell["fingerprint"])
            result = {} if end is None else plain()[cell["fingerprint"]][0]
            assert cell["quantities"] == result.get("quantities")

    @rule(bit=ANY, damage=st.booleans())
    def carry(self, bit, damage):
        """Packed and unpacked elsewhere, which is gone on with; or not, where the pack is damaged."""
        if all(map(is_leftover, self.files())):
            return
        archive, there = self.root / "pack.zip", self.root / "there"
        pack(self.kept, archive)
        if damage:
            flipped(archive, bit)
        try:
            unpack(archive, there)
        except InputFileError as error:
            said = str(error)
            assert damage
            assert str(archive) in said
            assert not there.exists() or not contents(there.rglob("*"))
        else:
            packed = {
                str(path.relative_to(self.kept)): path for path in self.files() if not is_leftover(path)
            }
            carried = {str(path.relative_to(there)): path for path in there.rglob("*") if path.is_file()}
            assert sorted(carried) == sorted(packed)
            assert all(carried[name].read_bytes() == packed[name].read_bytes() for name in packed)
            if not damage:
                shutil.rmtree(self.kept)
                there.rename(self.kept)
        shutil.rmtree(there, ignore_errors=True)


@pytest.mark.parametrize("examples", [3, pytest.param(80, marks=pytest.mark.slow)])
def test_what_is_there_is_right_whatever_happened(examples):
    how = settings(
        max_examples=examples,
        stateful_step_count=12,
        # what a kill leaves is never the same again: a failure is shown as it was
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(StudyFolder, settings=how)
