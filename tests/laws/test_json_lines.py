"""Files of JSON lines: what was written is what is read, whatever ends of lines stand within a text."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias.core.errors import InputFileError
from posbias.core.files import json_lines
from posbias.measurement.texts.corpora import read_text
from posbias.ordering.hits import read_hits
from posbias.retrieval.answers import read_answers
from posbias.retrieval.documents import read_document_sets

ENDS = st.sampled_from(["\n", "\r\n", "\n\n", "\n  \n"])
texts = st.text(st.sampled_from('ab "\\\u2028\u0085\u001c\t\r\n'), max_size=6)
rows = st.lists(st.dictionaries(texts, st.one_of(texts, st.integers(), st.none()), max_size=3), max_size=5)


@given(rows, st.lists(ENDS, min_size=5, max_size=5), st.booleans(), st.booleans())
def test_objects_come_back_with_the_lines_that_they_stand_in(objects, ends, marked, plainly):
    written = [json.dumps(one, ensure_ascii=not plainly) for one in objects]
    whole = "".join(line + end for line, end in zip(written, ends, strict=False))
    found = list(json_lines("\ufeff" * marked + whole, "file"))
    assert [line.columns for line in found] == objects
    assert [line.text for line in found] == written
    # a plain count of the ends before
    before = [
        "".join(one + end for one, end in zip(written[:k], ends, strict=False)) for k in range(len(found))
    ]
    assert [line.where for line in found] == [f"file: line {1 + text.count(chr(10))}" for text in before]


READERS = (read_hits, read_answers, read_document_sets, read_text)
WRONG = {
    "{": "line 2: not valid JSON (Expecting",
    "[1]": "line 2: [1] given, a JSON object needed",
    '[{"a": 1}]': "line 2: [{'a': 1}] given, a JSON object on each line, not a list of them, needed",
    "[" * 100_000: "line 2: nested too deeply to be read",
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("line", WRONG, ids=["cut", "list", "objects", "deep"])
def test_every_reader_names_a_wrong_line_in_the_same_words(reader, line, tmp_path):
    path = tmp_path / "file.jsonl"
    path.write_text(f"\n{line}\n")
    with pytest.raises(InputFileError) as caught:
        reader(path)
    said = str(caught.value).removeprefix("text: ")
    assert said.startswith(f"{path}: {WRONG[line]}")
    assert "\n" not in said
