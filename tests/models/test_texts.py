"""Texts from files, folders and datasets are the documents they hold; prompts are disjoint windows of them, or
their beginnings, drawn by the seed alone, and begin as the model's tokenizer begins a text.
"""

import hashlib
import json

import numpy as np
import pytest
import tokenizers
import transformers
from hypothesis import given
from hypothesis import strategies as st
from tiny import WORDS, llama
from tokenizers import models, pre_tokenizers, processors, trainers

import posbias
from posbias.core.errors import InputFileError, InvalidValueError
from posbias.measurement import LoadedModel, MeasurementJob, fetch, prompts_from, read_text
from posbias.measurement.models.sources import model_folder
from posbias.measurement.texts.corpora import Text, sha256_of_documents

DOCUMENTS = ("Alpha beta.", "Gamma\nδ with a \u2028 in it", "", "Last one")


def lines(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def corpus(tmp_path):
    return lines(tmp_path / "corpus.jsonl", [{"text": one, "body": one.upper()} for one in DOCUMENTS])


def refusal(source, kind=InputFileError):
    with pytest.raises(kind, match=r"^text: [^\n]*$") as caught:
        read_text(source)
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
    assert (len(text.documents), min(map(len, text.documents)) > 20_000) == (12, True)


def test_lines_are_documents_in_the_column_text_or_another(corpus, tmp_path):
    text = read_text(corpus)
    assert (text.documents, text.content) == (DOCUMENTS, "\n\n".join(DOCUMENTS))
    assert text.sha256 == sha256_of_documents(DOCUMENTS)
    other = read_text(f"{corpus}:body")
    assert (other.name, other.documents) == ("corpus.jsonl:body", tuple(one.upper() for one in DOCUMENTS))
    (tmp_path / "odd.jsonl").write_bytes(b'\xef\xbb\xbf{"text": "a"}\r\n\r\n{"text": "b"}')
    assert read_text(tmp_path / "odd.jsonl").documents == ("a", "b")


def test_a_folder_is_its_texts_sorted_by_path_and_several_texts_follow_each_other(tmp_path, corpus):
    (tmp_path / "one.txt").write_text("one")
    text = read_text([tmp_path / "one.txt", str(corpus)])
    assert (text.name, text.documents) == ("one.txt+corpus.jsonl", ("one", *DOCUMENTS))
    folder = tmp_path / "texts"
    for name, content in {
        "z.txt": "z",
        "b/a.txt": "ba",
        "note.md": "",
        ".hidden/a.txt": "",
        ".a.txt": "",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content or "not read")
    corpus.rename(folder / "c.jsonl")
    text = read_text(folder)
    assert (text.name, text.documents) == ("texts", ("ba", *DOCUMENTS, "z"))
    assert text.sha256 == sha256_of_documents(text.documents)
    assert read_text(f"{folder}:body").documents == ("ba", *(one.upper() for one in DOCUMENTS), "z")


@given(st.lists(st.text("aé:1", max_size=3), max_size=3), st.lists(st.text("aé:1", max_size=3), max_size=3))
def test_checksums_are_equal_where_documents_are(some, others):
    assert (sha256_of_documents(some) == sha256_of_documents(others)) == (some == others)
    assert sha256_of_documents([*some, "ab", "c"]) != sha256_of_documents([*some, "a", "bc"])


@pytest.mark.parametrize("row", ['{"txt": "b"}', '{"text": null}', '{"text": "\\ud800"}'])
def test_a_bad_line_is_located(tmp_path, row):
    (tmp_path / "bad.jsonl").write_text(f'{{"text": "a"}}\n{row}\n')
    assert "line 2" in refusal(tmp_path / "bad.jsonl")


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
        "corpus.jsonl:title",
    ):
        refusal(f"{tmp_path}/{source}")
    refusal("the text itself " * 40)
    refusal([], InvalidValueError)


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
    assert (text.name, text.documents) == ("datasets:small-corpus", tuple(f"document {k}" for k in range(9)))
    assert text.sha256 == sha256_of_documents(text.documents)
    assert read_text(f"datasets:{dataset}:test:title").documents == ("title 0", "title 1")
    for source in (
        "someone/nothing",
        f"{dataset}:validation",
        f"{dataset}:train:txt",
        f"{dataset}:train[0:0]",
        "",
    ):
        refusal(f"datasets:{source}")


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


# ── prompts ──


def letters(text, **_):
    """Characters as tokens: enough of a tokenizer for cutting."""
    return {"input_ids": [ord(letter) for letter in text]}


def octets(text, **_):
    """Bytes as tokens."""
    return {"input_ids": list(text.encode())}


def checksum(drawn):
    return hashlib.sha256(drawn.ids.tobytes() + drawn.starts.tobytes()).hexdigest()[:16]


DOCS = st.lists(st.text(st.characters(codec="ascii"), max_size=12), max_size=12).map(tuple)


@given(DOCS, st.integers(2, 6), st.integers(0, 4), st.data())
def test_prompts_are_disjoint_windows_of_the_documents_that_are_long_enough(content, tokens, minimum, data):
    kept = "\n\n".join(one for one in content if len(one) >= minimum)
    windows = len(kept) // tokens
    text, sizes = Text("letters", content, ""), {"tokens": tokens, "minimum_tokens": minimum or None}
    with pytest.raises(InputFileError, match=r"^text: "):
        prompts_from(letters, text, prompts=windows + 1, seed=0, **sizes)
    if windows == 0:
        return
    prompts, seed = data.draw(st.integers(1, windows)), data.draw(st.integers(0, 99))
    drawn = prompts_from(letters, text, prompts=prompts, seed=seed, **sizes)
    assert drawn.ids.shape == (prompts, tokens)
    assert len(set(drawn.starts.tolist())) == prompts
    assert drawn.left_out == sum(len(one) < minimum for one in content)
    for ids, start in zip(drawn.ids, drawn.starts, strict=True):
        assert start % tokens == 0
        assert "".join(map(chr, ids)) == kept[start : start + tokens]


BUNDLED = {
    (64, 2, 0): ("67d3095c7da5108b", "da42d0df3544b849"),
    (256, 32, 0): ("3f1e37a1ba35bb3c", "494e5730c4c1cf03"),
    (256, 48, 3): ("fd4dfd99fc8006e4", "33cb02e6a1667b42"),
}
"""Tokens, prompts and seed → checksum of the prompts of the bundled text in bytes, and in tokens of SmolLM2."""


@pytest.mark.parametrize(
    "pretrained", [False, pytest.param(True, marks=[pytest.mark.slow, pytest.mark.real_model])]
)
def test_prompts_of_the_bundled_text_stay_what_they_are(pretrained):
    tokenizer = octets
    if pretrained:
        fetch("smollm2-135m")
        folder = model_folder("smollm2-135m")
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    for (tokens, prompts, seed), expected in BUNDLED.items():
        drawn = prompts_from(tokenizer, read_text(None), tokens=tokens, prompts=prompts, seed=seed)
        assert checksum(drawn) == expected[pretrained]


@pytest.mark.parametrize("blank", ["\n", " ", ""])
def test_long_texts_are_tokenised_in_pieces(blank):
    content = "".join(chr(97 + number % 26) * (number % 7) + blank for number in range(700_000))
    seen = []

    def watched(text, **_):
        seen.append(text)
        return octets(text)

    drawn = prompts_from(watched, Text("long", (content,), ""), tokens=1000, prompts=3, seed=0)
    assert "".join(seen) == content
    assert len(seen) >= 3
    assert all(len(piece) <= 1_000_000 for piece in seen)
    assert all(piece.startswith(blank) and len(piece) > 999_000 for piece in seen[1:-1])
    for ids, start in zip(drawn.ids, drawn.starts, strict=True):
        assert bytes(ids.tolist()) == content.encode()[start : start + 1000]


@given(DOCS, st.integers(2, 6), st.integers(0, 4), st.integers(0, 99), st.data())
def test_prompts_are_beginnings_of_documents_that_are_long_enough(content, tokens, more, seed, data):
    text = Text("letters", content, "")
    minimum = data.draw(st.sampled_from([None, tokens + more]))
    long = [index for index, one in enumerate(content) if len(one) >= (minimum or tokens)]
    sizes = {"tokens": tokens, "seed": seed, "packed": False, "minimum_tokens": minimum}
    with pytest.raises(InputFileError, match=r"^text: "):
        prompts_from(letters, text, prompts=len(long) + 1, **sizes)
    if not long:
        return
    drawn = prompts_from(letters, text, prompts=len(long), **sizes)
    assert sorted(drawn.documents) == long
    assert drawn.left_out <= len(content) - len(long)
    assert not drawn.starts.any()
    for ids, document in zip(drawn.ids, drawn.documents, strict=True):
        assert "".join(map(chr, ids)) == content[document][:tokens]
    fewer = data.draw(st.integers(1, len(long)))
    assert np.array_equal(prompts_from(letters, text, prompts=fewer, **sizes).ids, drawn.ids[:fewer])


@pytest.mark.parametrize(("packed", "minimum"), [(True, 0), (True, 2.0), (False, 3), (False, True)])
def test_a_minimum_length_that_cannot_be_right_is_refused(packed, minimum):
    sizes = {"tokens": 4, "prompts": 1, "seed": 0, "packed": packed, "minimum_tokens": minimum}
    with pytest.raises(InvalidValueError, match=r"^minimum_tokens: "):
        prompts_from(letters, Text("a", ("abcdef",), ""), **sizes)


@pytest.mark.parametrize("packed", [True, False])
@given(st.integers(0, 99))
def test_scrambling_shuffles_the_same_prompts(packed, seed):
    content = tuple("".join(chr(32 + (7 * k + i) % 90) for i in range(60)) for k in range(5))
    text, sizes = Text("letters", content, ""), {"tokens": 40, "prompts": 4, "seed": seed, "packed": packed}
    plain, mixed, again = (prompts_from(letters, text, **sizes, scramble=mix) for mix in (False, True, True))
    assert np.array_equal(mixed.starts, plain.starts)
    assert np.array_equal(np.sort(mixed.ids, axis=1), np.sort(plain.ids, axis=1))
    assert not any(np.array_equal(one, other) for one, other in zip(mixed.ids, plain.ids, strict=True))
    assert np.array_equal(mixed.ids, again.ids)
    orders = {tuple(np.argsort(ids, kind="stable")) for ids in mixed.ids}
    assert len(orders) == 4, "each prompt is shuffled in its own way"


def test_a_scrambled_token_may_come_to_any_place():
    text, job = Text("letters", ("abcdefgh",), ""), {"tokens": 8, "prompts": 1, "scramble": True}
    drawn = [prompts_from(letters, text, **job, seed=seed).ids[0] for seed in range(800)]
    counts = np.bincount([list(ids).index(ord("a")) for ids in drawn], minlength=8)
    assert abs(counts - 100).max() < 4 * np.sqrt(100 * 7 / 8)


# ── what begins a prompt ──

KINDS = {
    # specials in the order of their ids; template; what begins a prompt; what `bos=True` begins it with
    "llama": (("<unk>", "<s>", "</s>"), "<s> $A", ["<s>"], ["<s>"]),
    "gpt2": (("<unk>", "<s>", "</s>"), "$A", [], ["<s>"]),
    "t5": (("<unk>", "</s>"), "$A </s>", [], None),
    "glm": (("<unk>", "[gMASK]", "<sop>"), "[gMASK] <sop> $A", ["[gMASK]", "<sop>"], ["[gMASK]", "<sop>"]),
    "bert": (("<unk>", "[CLS]", "[SEP]"), "[CLS] $A [SEP]", ["[CLS]"], ["[CLS]"]),
}
NAMED = {"bos_token": "<s>", "cls_token": "[CLS]"}


def loaded(kind):
    """A Llama with a tokenizer of the kind: BPE of bytes, trained on the words of the tests."""
    specials, template, *_ = KINDS[kind]
    made = tokenizers.Tokenizer(models.BPE(unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Metaspace() if kind == "llama" else pre_tokenizers.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=64, special_tokens=list(specials))
    made.train_from_iterator([" ".join(WORDS)], trainer)
    pairs = [(token, made.token_to_id(token)) for token in specials]
    if template != "$A":
        made.post_processor = processors.TemplateProcessing(single=template, special_tokens=pairs)
    known = {name: token for name, token in NAMED.items() if token in specials}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>", **known)
    return LoadedModel.of(llama(), tokenizer, kind)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_prompts_begin_as_the_tokenizer_begins_a_text(kind, packed, text, tmp_path):
    (tmp_path / "more.txt").write_text(text.read_text(encoding="utf-8")[::2], encoding="utf-8")
    model, sizes = loaded(kind), {"text": tmp_path, "prompts": 2, "packed": packed}
    specials, _, begins, wanted = KINDS[kind]
    begins = model.tokenizer.convert_tokens_to_ids(begins)
    ids = MeasurementJob(tokens=12, **sizes).draw(model).ids
    assert ids.shape == (2, 12)
    assert (ids[:, : len(begins)] == begins).all()
    plain = MeasurementJob(tokens=12 - len(begins), bos=False, **sizes).draw(model).ids
    np.testing.assert_array_equal(ids[:, len(begins) :], plain)
    assert not np.isin(plain, model.tokenizer.convert_tokens_to_ids(specials[1:])).any()
    mixed = MeasurementJob(tokens=12, scramble=True, **sizes).draw(model).ids
    assert (mixed[:, : len(begins)] == begins).all()
    np.testing.assert_array_equal(np.sort(mixed), np.sort(ids))
    if wanted is not None:
        ids = MeasurementJob(tokens=12, bos=True, **sizes).draw(model).ids
        assert (ids[:, : len(wanted)] == model.tokenizer.convert_tokens_to_ids(wanted)).all()
        return
    with pytest.raises(InvalidValueError, match=r"^bos: "):
        MeasurementJob(tokens=12, bos=True, **sizes).draw(model)


def test_a_measurement_with_bos_says_so_and_is_another_job(text):
    """Without, what was recorded before there was a choice is found by its fingerprint."""
    job = {"text": text, "tokens": 12, "prompts": 3}
    kinds = (("llama", None), ("llama", False), ("gpt2", None))
    with_it, plain, gpt2 = (MeasurementJob(**job, bos=bos).of(loaded(kind))["asked"] for kind, bos in kinds)
    assert plain == gpt2
    assert with_it == plain | {"bos": (1,)}
    found, without = (posbias.measure(loaded("llama"), **job, bos=bos, threads=1) for bos in (None, False))
    assert (found.attrs["bos"], "bos" in without.attrs) == ("<s>", False)
    assert found.attrs["fingerprint"] != without.attrs["fingerprint"]
    assert not np.allclose(found["influence"], without["influence"])
