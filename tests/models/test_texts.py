"""Texts from files, lines, folders and datasets are the documents they hold, or an error that says where not."""

import hashlib
import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias.core.errors import InputFileError, InvalidValueError
from posbias.measurement import read_text
from posbias.measurement.texts.corpora import sha256_of_documents

DOCUMENTS = ("Alpha beta.", "Gamma\nδ with a \u2028 in it", "", "Last one")


def lines(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def corpus(tmp_path):
    return lines(tmp_path / "corpus.jsonl", [{"text": one, "body": one.upper()} for one in DOCUMENTS])


def refusal(source, kind=InputFileError):
    with pytest.raises(kind) as caught:
        read_text(source)
    assert str(caught.value).startswith("text: ")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_plain_file_is_one_document_and_its_checksum_that_of_its_bytes(tmp_path):
    content = "One.\r\n\r\nTwo.\n"
    (tmp_path / "plain.md").write_bytes(content.encode())
    text = read_text(str(tmp_path / "plain.md"))
    assert (text.name, text.documents, text.content) == ("plain.md", (content,), content)
    assert text.sha256 == hashlib.sha256(content.encode()).hexdigest()


def test_the_bundled_text_is_twelve_addresses():
    text = read_text(None)
    assert text.name == "sotu"
    assert text.sha256 == "1e21970f05178051189ec12908b44a696f21d42dee4cdf40be4062236e52b5f5"
    assert hashlib.sha256(text.content.encode()).hexdigest() == text.sha256
    assert len(text.documents) == 12
    assert min(map(len, text.documents)) > 20_000


def test_lines_are_documents_in_the_column_text_or_another(corpus):
    text = read_text(corpus)
    assert text.documents == DOCUMENTS
    assert text.content == "\n\n".join(DOCUMENTS)
    assert text.sha256 == sha256_of_documents(DOCUMENTS)
    other = read_text(f"{corpus}:body")
    assert (other.name, other.documents) == ("corpus.jsonl:body", tuple(one.upper() for one in DOCUMENTS))


def test_blank_lines_and_a_byte_order_mark_are_no_rows(tmp_path):
    path = tmp_path / "odd.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"text": "a"}\r\n\r\n{"text": "b"}')
    assert read_text(path).documents == ("a", "b")


def test_a_folder_is_its_texts_sorted_by_path(tmp_path, corpus):
    folder = tmp_path / "texts"
    (folder / "b").mkdir(parents=True)
    (folder / ".hidden").mkdir()
    (folder / "z.txt").write_text("z")
    (folder / "b" / "a.txt").write_text("ba")
    (folder / "note.md").write_text("not read")
    (folder / ".hidden" / "a.txt").write_text("not read")
    (folder / ".a.txt").write_text("not read")
    corpus.rename(folder / "c.jsonl")
    text = read_text(folder)
    assert (text.name, text.documents) == ("texts", ("ba", *DOCUMENTS, "z"))
    assert text.sha256 == sha256_of_documents(text.documents)
    assert read_text(f"{folder}:body").documents == ("ba", *(one.upper() for one in DOCUMENTS), "z")


def test_several_texts_follow_each_other(tmp_path, corpus):
    (tmp_path / "one.txt").write_text("one")
    text = read_text([tmp_path / "one.txt", str(corpus)])
    assert (text.name, text.documents) == ("one.txt+corpus.jsonl", ("one", *DOCUMENTS))
    assert read_text([corpus]) == read_text(corpus)
    refusal([], InvalidValueError)


@given(st.lists(st.text("aé:1", max_size=3), max_size=3), st.lists(st.text("aé:1", max_size=3), max_size=3))
def test_the_checksum_tells_documents_apart(some, others):
    assert (sha256_of_documents(some) == sha256_of_documents(others)) == (some == others)
    assert sha256_of_documents([*some, "ab", "c"]) != sha256_of_documents([*some, "a", "bc"])


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ('{"text": "a"}\n{"txt": "b", "id": 3}\n', "line 2"),
        ('{"text": "a"}\n{"text": null}\n', "line 2"),
        ('{"text": "a"}\n{"text"\n', "line 2"),
        ('\n["a"]\n', "line 2"),
        ('{"text": "\\ud800"}\n', "line 1"),
        ("[" * 100_000 + "\n", "line 1"),
        ("\n \n", "bad.jsonl"),
    ],
)
def test_a_bad_line_is_located(tmp_path, content, line):
    path = tmp_path / "bad.jsonl"
    path.write_text(content)
    assert line in refusal(path)


def test_what_is_no_text_is_refused(tmp_path, corpus):
    (tmp_path / "empty").mkdir()
    (tmp_path / "plain.txt").write_text("a")
    (tmp_path / "odd.txt").write_bytes(b"a\xff")
    for source in (
        "nowhere.txt",
        "nowhere.jsonl:body",
        "empty",
        "plain.txt:body",
        "odd.txt",
        f"{corpus.name}:title",
    ):
        refusal(f"{tmp_path}/{source}")
    refusal("the text itself " * 40)


@pytest.fixture
def dataset(tmp_path, monkeypatch):
    """A dataset of two splits in a folder, prepared in a cache of its own."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "small-corpus"
    folder.mkdir()
    rows = [{"text": f"document {number}", "title": f"title {number}"} for number in range(9)]
    lines(folder / "train.jsonl", rows)
    lines(folder / "test.jsonl", rows[:2])
    return folder


def test_a_dataset_is_its_documents(dataset):
    text = read_text(f"datasets:{dataset}")
    assert text.name == "datasets:small-corpus"
    assert text.documents == tuple(f"document {number}" for number in range(9))
    assert text.sha256 == sha256_of_documents(text.documents)
    assert read_text(f"datasets:{dataset}:test").documents == ("document 0", "document 1")
    assert read_text(f"datasets:{dataset}:test:title").documents == ("title 0", "title 1")


@pytest.mark.parametrize(
    ("part", "expected"), [("[2:4]", range(2, 4)), ("[:3]", range(3)), ("[-2:]", range(7, 9))]
)
@pytest.mark.parametrize("offline", [True, False])
def test_a_slice_of_a_split_is_the_same_streamed_or_not(dataset, monkeypatch, part, expected, offline):
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", offline)
    text = read_text(f"datasets:{dataset}:train{part}")
    assert text.documents == tuple(f"document {number}" for number in expected)
    prepared = any((dataset.parent / "cache").rglob("*.arrow"))
    assert prepared == (offline or part == "[-2:]")


def test_a_dataset_that_is_not_there_is_one_line(dataset):
    assert "HF_HUB_OFFLINE is set" in refusal("datasets:someone/nothing")
    for split in ("validation", "train:txt", "train[0:0]"):
        refusal(f"datasets:{dataset}:{split}")
    refusal("datasets:")


def test_without_the_package_the_command_that_installs_it_is_said():
    script = (
        "import sys; sys.modules['datasets'] = None\n"
        "from posbias.core.errors import MissingPackageError\n"
        "from posbias.measurement import read_text\n"
        "assert read_text(None).name == 'sotu'\n"
        "try: read_text('datasets:someone/corpus')\n"
        "except MissingPackageError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("datasets: not installed")
    assert "pip install 'posbias[texts]'" in done.stdout
