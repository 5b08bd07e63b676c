"""A large checkpoint lies in pieces of a limited size, and is the old state or the new one, never a mix."""

import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias.core.errors import DamagedError, OutputFileError
from posbias.core.store import Header, Tensors, pieces
from posbias.core.store.checkpoint import Checkpoint
from posbias.core.store.pieces import pieces_of, read_pieces, remove_pieces, write_pieces

HEADER = Header("state", 1, {"fingerprint": "a"})
SIZE = 1000


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(pieces, "SIZE", SIZE)


def state(number):
    """Five pieces of SIZE bytes, in three arrays and a scalar, all of them one number."""
    shapes = {"a": (3, 5), "b": (40, 20), "c": (1200,), "d": ()}
    arrays = {
        name: np.full(shape, number, np.float32 if name == "b" else np.int8) for name, shape in shapes.items()
    }
    return Tensors(arrays, {"number": number})


def number_of(path):
    """The number of a state that is whole and no mix."""
    _, content = read_pieces(path, "state", 1)
    assert {float(held) for array in content.arrays.values() for held in array.flat} == {
        content.note["number"]
    }
    return content.note["number"]


@given(st.lists(st.tuples(st.integers(0, 700), st.sampled_from(["<f4", "<f8", "|i1", "<i8"])), max_size=6))
def test_arrays_come_back_from_their_pieces(tmp_path_factory, sizes):
    folder = tmp_path_factory.mktemp("pieces")
    draws = np.random.default_rng(0)
    arrays = {
        f"x{place}": draws.integers(0, 99, size).astype(kind) for place, (size, kind) in enumerate(sizes)
    }
    write_pieces(folder / "s", HEADER, Tensors(arrays, {"note": 1}))
    header, content = read_pieces(folder / "s", "state", 1)
    assert header.specification == HEADER.specification
    assert content.note == {"note": 1}
    assert content.arrays.keys() == arrays.keys()
    for name, array in arrays.items():
        assert content.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(content.arrays[name], array)
    assert (len(pieces_of(folder / "s")) > 1) == (content.nbytes > SIZE)


def test_no_file_is_larger_and_old_pieces_go(tmp_path):
    path = tmp_path / "s"
    for number in range(3):
        write_pieces(path, HEADER, state(number))
        assert number_of(path) == number
        assert len(list(tmp_path.iterdir())) == 1 + 5
        assert all(place.stat().st_size < 2 * SIZE for place in tmp_path.iterdir())
    write_pieces(path, HEADER, Tensors({"a": np.arange(3)}, {}))
    assert [*tmp_path.iterdir()] == [path]
    write_pieces(path, HEADER, state(3))
    remove_pieces(path)
    assert not list(tmp_path.iterdir())


WRITER = """
import sys
from pathlib import Path
import test_pieces
from posbias.core.store import pieces
pieces.SIZE = test_pieces.SIZE
for number in range(int(sys.argv[2]), 100):
    pieces.write_pieces(Path(sys.argv[1]), test_pieces.HEADER, test_pieces.state(number))
    print(number, flush=True)
"""


def test_a_killed_writer_leaves_the_old_state_or_the_new_one(tmp_path):
    path, told = tmp_path / "s", -1
    draws = random.Random(0)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    }
    for _ in range(4):
        words = [sys.executable, "-c", WRITER, path, str(told + 1)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as process:
            assert process.stdout is not None
            last = int(process.stdout.readline())
            time.sleep(draws.uniform(0.0, 0.2))
            process.send_signal(signal.SIGKILL)
            rest, _ = process.communicate()
        last = int([str(last), *rest.split()][-1])
        told = number_of(path)
        assert told in (last, last + 1)
    write_pieces(path, HEADER, state(100))
    assert len([*tmp_path.glob("s*")]) == 1 + 5


def test_a_state_that_fits_no_disk_leaves_the_old_one(tmp_path):
    """A limit on the size of files stands in for a full disk."""
    path = tmp_path / "s"
    write_pieces(path, HEADER, state(1))
    before = sorted(tmp_path.iterdir())
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.getsignal(signal.SIGXFSZ)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    small = {f"x{place}": np.zeros(10, np.int8) for place in range(3)}
    large = {"x3": np.zeros(SIZE, np.int8)}
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (SIZE + 100, limits[1]))
        with pytest.raises(OutputFileError, match="cannot write"):
            write_pieces(path, HEADER, Tensors(small | large, {"number": 2}))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert sorted(tmp_path.iterdir()) == before
    assert number_of(path) == 1


@pytest.mark.parametrize("damage", ["missing", "altered", "of another state"])
def test_a_damaged_piece_is_named_and_the_checkpoint_begun_anew(tmp_path, damage, caplog):
    path = tmp_path / "c"
    keeper = Checkpoint(path, "a", 20)
    keeper.write(lambda: state(1))
    content = pieces_of(path)[0].read_bytes()
    assert Checkpoint(path, "a", 20).load() is not None
    if damage == "of another state":
        keeper.write(lambda: state(2))
    (piece,) = (place for place in pieces_of(path) if place.name.endswith("-0.piece"))
    if damage == "missing":
        piece.unlink()
    else:
        piece.write_bytes(content[:-1] + b"\x7f" if damage == "altered" else content)
    with pytest.raises(DamagedError, match=r"damaged"):
        read_pieces(path, "checkpoint", 2)
    assert Checkpoint(path, "a", 20).load() is None
    assert "is damaged: starting over" in caplog.text
