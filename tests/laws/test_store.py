"""Laws of kept files: what is written is read again, what was changed since is noticed, nothing is lost."""

import dataclasses
import json
import logging
import shutil

import numpy as np
import pytest
import xarray as xr
from examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from posbias import __version__
from posbias.asking import read_answers
from posbias.core import store as keeping
from posbias.core.errors import InputFileError, OtherKindError, OutputFileError, SchemaError
from posbias.core.formats import Header, JsonCodec, NetCDFCodec
from posbias.core.spec import fingerprint
from posbias.core.store import Cell, Checkpoint, Store, Tensors, compute
from posbias.core.tables import json_lines
from posbias.measurement.texts.corpora import read_text
from posbias.ordering.hits import read_hits
from posbias.retrieval import read_document_sets

KIND, SCHEMA = "trial", 3
WORDS = st.text(max_size=8)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**70), 2**70)
LEAVES = st.none() | st.booleans() | NUMBERS | WORDS
MAPPINGS = st.dictionaries(
    WORDS,
    st.recursive(
        LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3)
    ),
    max_size=4,
)
DTYPES = st.sampled_from(["f8", "f4", "i8", "i4", "u1"])


ARRAYS = arrays(DTYPES, array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
NAMES = st.text("abcdefgh_", min_size=1, max_size=6)


@st.composite
def datasets(draw):
    variables = {
        f"v_{name}": xr.Variable(
            [f"{name}_{axis}" for axis in range(array.ndim)], array, {"long_name": draw(WORDS)}
        )
        for name, array in draw(st.dictionaries(NAMES, ARRAYS, max_size=3)).items()
    }
    texts = draw(st.lists(st.text("äbc ", min_size=1, max_size=4), min_size=1, max_size=3))
    attributes = {
        f"a_{name}": held
        for name, held in draw(
            st.dictionaries(NAMES, st.text("xyzö", min_size=1) | st.integers(0, 9) | st.just(0.1), max_size=3)
        ).items()
    }
    return xr.Dataset(variables | {"words": ("word", np.array(texts, dtype=object))}, attrs=attributes)


HEADERS = st.builds(
    Header,
    kind=st.just(KIND),
    schema=st.just(SCHEMA),
    specification=MAPPINGS,
    amount=st.none() | st.integers(0, 10),
    versions=st.dictionaries(NAMES, WORDS, max_size=2),
    cost=MAPPINGS,
)


def same(written, read):
    """Whether two contents are equal, every float to the bit."""
    if isinstance(written, xr.Dataset):
        about = {name: held for name, held in read.attrs.items() if name != "posbias_kind"}
        numbers = [name for name in written.variables if written[name].dtype.kind in "fiu"]
        return written.identical(read.drop_attrs(deep=False).assign_attrs(about)) and all(
            written[name].values.tobytes() == read[name].values.tobytes() for name in numbers
        )
    if isinstance(written, Tensors):
        one, other = (
            {name: (held.dtype, held.shape, held.tobytes()) for name, held in content.arrays.items()}
            for content in (written, read)
        )
        return (written.note, one) == (read.note, other)
    return written == read


CASES = [pytest.param(JsonCodec(), MAPPINGS, id="json"), pytest.param(NetCDFCodec(), datasets(), id="netcdf")]
EXAMPLES = {
    ".json": {"value": [0.1, 1e-200], "words": "nature", "none": None, "count": 7},
    ".nc": xr.Dataset(
        {"loss": ("step", [0.5, 1e-9, 3.0], {"units": "nat"}), "name": ("step", ["a", "bc", "d"])},
        coords={"step": [1, 2, 3]},
        attrs={"model": "gpt2", "tokens": 64},
    ),
}
CODECS = pytest.mark.parametrize("codec", [case.values[0] for case in CASES], ids=lambda codec: codec.suffix)
HEADER = Header(KIND, SCHEMA, {"model": {"dimension": 16}, "seed": 1}, versions={"posbias": __version__})


@pytest.mark.parametrize(("codec", "contents"), CASES)
@settings(examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_what_is_read_is_what_was_written(codec, contents, data, tmp_path):
    content, header = data.draw(contents), data.draw(HEADERS)
    path = tmp_path / f"file{codec.suffix}"
    written = codec.write(path, header, content)
    found, read = codec.read(path, KIND, SCHEMA)
    assert same(content, read)
    assert found == written == dataclasses.replace(header, digest=written.digest)
    assert len(written.digest) == 64
    assert found.fingerprint == fingerprint(header.specification)


@CODECS
@settings(examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_flipped_bit_is_noticed_or_changes_nothing_that_is_read(codec, data, tmp_path):
    path, content = tmp_path / f"file{codec.suffix}", EXAMPLES[codec.suffix]
    header = codec.write(path, HEADER, content)
    whole = bytearray(path.read_bytes())
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(whole)
    error = None
    try:
        found, read = codec.read(path, KIND, SCHEMA)
    except InputFileError as caught:
        error = caught
    if error is not None:
        assert str(error).startswith(str(path))
        assert "\n" not in str(error)
    else:
        assert found == header
        assert same(content, read)


@CODECS
def test_another_kind_another_schema_and_a_path_that_cannot_be_are_refused(codec, tmp_path):
    path = tmp_path / f"file{codec.suffix}"
    codec.write(path, HEADER, EXAMPLES[codec.suffix])
    with pytest.raises(OtherKindError) as caught:
        codec.read(path, "measurement", SCHEMA)
    assert caught.value.held == KIND
    for other in (SCHEMA + 1, SCHEMA - 1):
        with pytest.raises(SchemaError):
            codec.read(path, KIND, other)
    with pytest.raises(InputFileError):
        codec.read(tmp_path / "none", KIND, SCHEMA)
    with pytest.raises(OutputFileError):
        codec.write(path / "x", HEADER, EXAMPLES[codec.suffix])
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


# --- the store ---------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Power(Cell):
    """A cell whose result is a list of powers."""

    base: int
    amount: int = 3
    seed: int = 0
    kind = "powers"

    @property
    def specification(self):
        return {"base": self.base, "seed": self.seed}

    @property
    def name(self):
        return f"powers-base{self.base}"

    def compute(self, on_event):
        if self.base < 0:
            raise InputFileError("no such base")
        return [self.base**power for power in range(self.amount)]

    def to_content(self, result):
        return {"powers": result}

    def from_content(self, header, content):
        return content["powers"]


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "cells")


def save(store, cell, **settings):
    return store.save(cell, cell.compute(print), {"seconds": 1.0}, **settings)


def find(store, cell, **settings):
    """As another run would."""
    return Store(store.folder).find(cell, **settings)


def test_a_cell_is_found_by_its_specification_alone(store):
    assert find(store, Power(2)) is None
    kept = save(store, Power(2))
    assert kept.path.name == f"powers-base2-{fingerprint({'base': 2, 'seed': 0})[:12]}.json"
    assert (kept.result, kept.header.cost["seconds"]) == ([1, 2, 4], 1.0)
    assert kept.header.versions["posbias"] == __version__
    assert kept.header.cost["finished"].endswith("+00:00")
    back = find(store, Power(2))
    assert (back.result, back.header, back.path) == ([1, 2, 4], kept.header, kept.path)
    assert find(store, Power(2, seed=1)) is None
    kept.path.rename(kept.path.with_name(kept.path.name.replace("powers-base2", "other-words")))
    assert find(store, Power(2)).result == [1, 2, 4]


def test_the_newest_counts_and_nothing_is_overwritten(store):
    paths = [save(store, Power(2)).path for _ in range(11)]
    assert len(set(paths)) == 11
    assert find(store, Power(2)).path == paths[-1]
    assert save(Store(store.folder), Power(2)).path.stem.endswith("-12")
    assert len([*store.folder.iterdir()]) == 12


def test_a_larger_amount_serves_a_smaller_wish(store):
    large = save(store, Power(2, amount=9), amount=9)
    small = save(store, Power(2, amount=4), amount=4)
    assert find(store, Power(2)).path == small.path
    assert find(store, Power(2), at_least=4).path == small.path
    assert find(store, Power(2), at_least=5).path == large.path
    assert find(store, Power(2), at_least=10) is None


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-40]),
        lambda path: path.write_text(path.read_text().replace("[1, 2", "[1, 3")),
        lambda path: shutil.copy(save(Store(path.parent), Power(5)).path, path),
        lambda path: JsonCodec().write(path, Header("powers", 1, Power(2).specification), {"power": 1}),
    ],
)
def test_a_file_that_does_not_load_is_named_and_the_one_before_it_counts(store, spoil, caplog):
    older, newer = save(store, Power(2)), save(store, Power(2))
    spoil(newer.path)
    damaged = newer.path.read_bytes()
    caplog.set_level(logging.WARNING)
    assert find(store, Power(2)).path == older.path
    (record,) = caplog.records
    assert record.getMessage().startswith(str(newer.path))
    assert newer.path.read_bytes() == damaged
    assert save(Store(store.folder), Power(2)).path not in (older.path, newer.path)


def test_cells_of_another_schema_are_refused_and_those_of_another_main_version_left(store, caplog):
    path = save(store, Power(2)).path
    before = path.read_bytes()
    path.with_suffix(".nc").touch()  # the weights that an older version kept next to a cell, for instance
    with pytest.raises(SchemaError):
        find(store, type("Power", (Power,), {"schema": 2})(2))
    assert path.read_bytes() == before
    for seed, (version, used) in enumerate(
        ((f"{__version__}.post7", True), ("0.0.9", False), ("7.1.0", False)), 1
    ):
        path = save(store, Power(2, seed=seed), versions={"posbias": version}).path
        assert (find(store, Power(2, seed=seed)) is not None) == used
        assert path.exists()
    assert len(caplog.records) == 2


def test_cells_are_computed_once_and_one_that_fails_stops_no_other(store):
    save(store, Power(3), amount=5)
    cells, heard = [Power(2), Power(3), Power(-1), Power(5, amount=6)], []
    done = compute(cells, Store(store.folder), on_event=heard.append)
    assert done.new == (Power(2), Power(-1), Power(5, amount=6))
    assert {cell.base: stored.result[1] for cell, stored in done.stored.items()} == {2: 2, 3: 3, 5: 5}
    assert [*done.failed] == [Power(-1)]
    assert (heard[-1].done, heard[-1].total) == (3, 3)
    with pytest.raises(InputFileError, match="no such base"):
        done.results()
    assert compute(cells, Store(store.folder)).new == (Power(-1),)
    assert compute([Power(2)], Store(store.folder), again=True).stored[Power(2)].path.stem.endswith("-2")
    more = compute([Power(2, amount=4)], Store(store.folder))
    assert more.results() == {Power(2, amount=4): [1, 2, 4, 8]}


# --- checkpoints -------------------------------------------------------------------------------------------


class Clock:
    """A clock that runs only as it is set; writing a byte takes so many seconds."""

    def __init__(self, seconds_per_byte=0.0):
        self.now, self.rate, self.written = 0.0, seconds_per_byte, []

    def monotonic(self):
        return self.now

    def write(self, file, *, kernel, note):
        self.now += self.rate * kernel.nbytes
        self.written.append((self.now, self.rate * kernel.nbytes))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(st.floats(0.01, 30), min_size=1, max_size=60),
    size=st.sampled_from([8, 10**6, 778 * 10**6]),
    rate=st.floats(2e7, 1e8),
    patience=st.sampled_from([20, 100]),
)
def test_writing_takes_its_share_of_the_run_at_most(steps, size, rate, patience, tmp_path):
    """Also the first writing, and on disks five times as slow as expected, once that is known."""
    clock = Clock(1 / rate)
    state = Tensors({"kernel": np.broadcast_to(np.zeros(1), (size // 8,))}, {})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keeping, "time", clock)
        patch.setattr(np, "savez", clock.write)
        keeper = Checkpoint(tmp_path / "c", "f" * 64, patience)
        for step in steps:
            clock.now += step
            keeper.keep_up(lambda: state)
    spent = 0.0
    for number, (end, took) in enumerate(clock.written):
        spent += took
        slower = 1e8 / rate if number == 0 else 1.0
        assert spent <= slower * (end - took) / patience * (1 + 1e-9)
        assert end - took >= 2.0 - 1e-6


STATE = Tensors({"mean.loss": np.array([0.1, 1e-300]), "row.index": np.arange(3)}, {"finished": 3})


def test_a_checkpoint_is_read_back(tmp_path):
    path = tmp_path / "job.npz"
    keeper = Checkpoint(path, "a" * 64, 20)
    assert keeper.load() is None
    keeper.keep_up(lambda: STATE)
    assert not path.exists()  # two seconds have not passed
    keeper.write(lambda: STATE)
    assert same(STATE, Checkpoint(path, "a" * 64, 20).load())
    with pytest.raises(InputFileError, match="another job"):
        Checkpoint(path, "b" * 64, 20).load()


@settings(examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7) | st.none())
def test_a_damaged_checkpoint_is_named_and_begun_anew_or_nothing_that_is_read_changes(
    tmp_path, place, bit, caplog
):
    path = tmp_path / "job.npz"
    Checkpoint(path, "a", 20).write(lambda: STATE)
    whole = bytearray(path.read_bytes())
    number = int(place * len(whole))
    path.write_bytes(whole[:number] if bit is None else whole)
    if bit is not None:
        whole[number] ^= 1 << bit
        path.write_bytes(whole)
    caplog.clear()
    read = Checkpoint(path, "a", 20).load()
    assert str(path) in caplog.text if read is None else same(STATE, read)


# --- JSON lines ------------------------------------------------------------------------------------------


ENDS = st.sampled_from(["\n", "\r\n", "\n\n", "\n  \n"])
texts = st.text(st.sampled_from('ab "\\\u2028\u0085\u001c\t\r\n'), max_size=6)
rows = st.lists(st.dictionaries(texts, st.one_of(texts, st.integers(), st.none()), max_size=3), max_size=5)


@given(rows, st.lists(ENDS, min_size=5, max_size=5), st.booleans(), st.booleans())
def test_objects_come_back_with_the_lines_that_they_stand_in(objects, ends, marked, plainly):
    written = [json.dumps(one, ensure_ascii=not plainly) for one in objects]
    whole = "".join(line + end for line, end in zip(written, ends, strict=False))
    found = list(json_lines("\ufeff" * marked + whole, "file"))
    assert [row for _, row in found] == objects
    # a plain count of the ends before
    before = [
        "".join(one + end for one, end in zip(written[:k], ends, strict=False)) for k in range(len(found))
    ]
    assert [where for where, _ in found] == [f"file: line {1 + text.count(chr(10))}" for text in before]


READERS = (read_hits, read_answers, read_document_sets, read_text)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("line", ["{", "[1]", "[" * 100_000], ids=["cut", "list", "deep"])
def test_every_reader_names_a_wrong_line(reader, line, tmp_path):
    path = tmp_path / "file.jsonl"
    path.write_text(f"\n{line}\n")
    with pytest.raises(InputFileError) as caught:
        reader(path)
    assert str(caught.value).removeprefix("text: ").startswith(f"{path}: line 2: ")
    assert "\n" not in str(caught.value)
