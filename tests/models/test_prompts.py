"""Prompts are disjoint windows of the text or beginnings of its documents, drawn by the seed alone."""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias.core.errors import InputFileError, InvalidValueError
from posbias.measurement import prompts_from
from posbias.measurement.models.sources import model_folder
from posbias.measurement.texts.corpora import Text, read_text


def letters(text, **_):
    """Characters as tokens: enough of a tokenizer for cutting."""
    return {"input_ids": [ord(letter) for letter in text]}


def octets(text, **_):
    """Bytes as tokens."""
    return {"input_ids": list(text.encode())}


def checksum(drawn):
    return hashlib.sha256(drawn.ids.tobytes() + drawn.starts.tobytes()).hexdigest()[:16]


@given(st.text(st.characters(codec="ascii"), min_size=4, max_size=60), st.integers(2, 6), st.data())
def test_prompts_are_disjoint_windows(content, tokens, data):
    windows = len(content) // tokens
    text = Text("letters", (content,), "")
    if windows == 0:
        with pytest.raises(InputFileError, match="shorter than one prompt"):
            prompts_from(letters, text, tokens=tokens, prompts=1, seed=0)
        return
    prompts = data.draw(st.integers(1, windows))
    drawn = prompts_from(letters, text, tokens=tokens, prompts=prompts, seed=data.draw(st.integers(0, 99)))
    assert drawn.ids.shape == (prompts, tokens)
    assert len(set(drawn.starts.tolist())) == prompts
    for ids, start in zip(drawn.ids, drawn.starts, strict=True):
        assert start % tokens == 0
        assert "".join(map(chr, ids)) == content[start : start + tokens]


def test_another_seed_draws_other_prompts_and_the_same_seed_the_same(tiny):
    text = read_text(None)
    draws = [prompts_from(tiny.tokenizer, text, tokens=16, prompts=8, seed=seed).starts for seed in (4, 4, 5)]
    assert (draws[0] == draws[1]).all()
    assert not np.array_equal(draws[0], draws[2])


BUNDLED_OCTETS = {
    (64, 2, 0): "67d3095c7da5108b",
    (256, 32, 0): "3f1e37a1ba35bb3c",
    (256, 48, 3): "fd4dfd99fc8006e4",
}
BUNDLED_SMOLLM2 = {
    (64, 2, 0): "da42d0df3544b849",
    (256, 32, 0): "494e5730c4c1cf03",
    (256, 48, 3): "33cb02e6a1667b42",
}


@pytest.mark.parametrize(("sizes", "expected"), BUNDLED_OCTETS.items())
def test_prompts_of_the_bundled_text_stay_what_they_are(sizes, expected):
    tokens, prompts, seed = sizes
    assert (
        checksum(prompts_from(octets, read_text(None), tokens=tokens, prompts=prompts, seed=seed)) == expected
    )


@pytest.mark.slow
@pytest.mark.real_model
def test_prompts_for_smollm2_stay_what_they_are():
    import transformers

    from posbias.measurement import fetch

    fetch("smollm2-135m")
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        model_folder("smollm2-135m"), local_files_only=True
    )
    for (tokens, prompts, seed), expected in BUNDLED_SMOLLM2.items():
        drawn = prompts_from(tokenizer, read_text(None), tokens=tokens, prompts=prompts, seed=seed)
        assert checksum(drawn) == expected


@pytest.mark.parametrize("blank", ["\n", " ", ""])
def test_long_texts_are_tokenised_in_pieces(blank):
    content = "".join(chr(97 + number % 26) * (number % 7) + blank for number in range(700_000))
    seen = []

    def watched(text, **_):
        seen.append(text)
        return octets(text)

    drawn = prompts_from(watched, Text("long", (content,), ""), tokens=1000, prompts=3, seed=0)
    assert "".join(seen) == content
    assert [len(piece) <= 1_000_000 for piece in seen] == [True] * len(seen)
    assert len(seen) >= 3
    assert all(piece.startswith(blank) and len(piece) > 999_000 for piece in seen[1:-1])
    whole = content.encode()
    for ids, start in zip(drawn.ids, drawn.starts, strict=True):
        assert bytes(ids.tolist()) == whole[start : start + 1000]


# one document a prompt

documents = st.lists(st.text(st.characters(codec="ascii"), max_size=12), max_size=12).map(tuple)


@given(documents, st.integers(2, 6), st.integers(0, 4), st.integers(0, 99), st.data())
def test_prompts_are_beginnings_of_documents_that_are_long_enough(content, tokens, more, seed, data):
    text = Text("letters", content, "")
    minimum = data.draw(st.sampled_from([None, tokens + more]))
    long = [one for one in content if len(one) >= (minimum or tokens)]
    sizes = {"tokens": tokens, "seed": seed, "packed": False, "minimum_tokens": minimum}
    with pytest.raises(InputFileError) as caught:
        prompts_from(letters, text, prompts=len(long) + 1, **sizes)
    assert (
        f"has {len(content)} documents, {len(content) - len(long)} of them shorter than {minimum or tokens} "
        f"tokens; {len(long)} are left, {len(long) + 1} prompts asked"
    ) in str(caught.value)
    if not long:
        return
    drawn = prompts_from(letters, text, prompts=len(long), **sizes)
    assert sorted(drawn.documents) == [i for i, one in enumerate(content) if len(one) >= (minimum or tokens)]
    assert drawn.left_out <= len(content) - len(long)
    assert not drawn.starts.any()
    for index, (ids, document) in enumerate(zip(drawn.ids, drawn.documents, strict=True)):
        assert "".join(map(chr, ids)) == content[document][:tokens]
        assert drawn.place(index) == f"document {document}"
    fewer = data.draw(st.integers(1, len(long)))
    again = prompts_from(letters, text, prompts=fewer, **sizes)
    assert np.array_equal(again.ids, drawn.ids[:fewer])


# minimum length, scrambling


def test_short_documents_can_be_left_out_of_the_running_text():
    text = Text("letters", ("aaaa", "b", "cc", "dddd"), "")
    drawn = prompts_from(letters, text, tokens=2, prompts=5, seed=0, minimum_tokens=3)
    assert drawn.left_out == 2
    cut = {start: "".join(map(chr, ids)) for start, ids in zip(drawn.starts, drawn.ids, strict=True)}
    assert "".join(cut[start] for start in sorted(cut)) == "aaaa\n\ndddd"
    assert drawn.place(0) == f"tokens from {drawn.starts[0]}"
    with pytest.raises(
        InputFileError, match=r"5 windows of 2 tokens \(2 documents shorter than 3 tokens left out\)"
    ):
        prompts_from(letters, text, tokens=2, prompts=6, seed=0, minimum_tokens=3)


@pytest.mark.parametrize(("packed", "given"), [(True, 0), (True, 2.0), (False, 3), (False, True)])
def test_a_minimum_length_that_cannot_be_right(packed, given):
    with pytest.raises(InvalidValueError, match=f"minimum_tokens: {given} given, an integer"):
        prompts_from(
            letters,
            Text("a", ("abcdef",), ""),
            tokens=4,
            prompts=1,
            seed=0,
            packed=packed,
            minimum_tokens=given,
        )


@pytest.mark.parametrize("packed", [True, False])
@given(st.integers(0, 99))
def test_scrambling_shuffles_the_same_prompts(packed, seed):
    text = Text(
        "letters", tuple("".join(chr(32 + (7 * k + i) % 90) for i in range(60)) for k in range(5)), ""
    )
    sizes = {"tokens": 40, "seed": seed, "packed": packed}
    plain = prompts_from(letters, text, prompts=4, **sizes)
    mixed = prompts_from(letters, text, prompts=4, **sizes, scramble=True)
    assert np.array_equal(mixed.starts, plain.starts)
    assert np.array_equal(np.sort(mixed.ids, axis=1), np.sort(plain.ids, axis=1))
    assert not any(np.array_equal(one, other) for one, other in zip(mixed.ids, plain.ids, strict=True))
    assert np.array_equal(mixed.ids, prompts_from(letters, text, prompts=4, **sizes, scramble=True).ids)
    orders = {tuple(np.argsort(ids, kind="stable")) for ids in mixed.ids}
    assert len(orders) == 4, "each prompt is shuffled in its own way"


def test_a_scrambled_token_may_come_to_any_place():
    text = Text("letters", ("abcdefgh",), "")
    places = [
        list(prompts_from(letters, text, tokens=8, prompts=1, seed=seed, scramble=True).ids[0]).index(
            ord("a")
        )
        for seed in range(800)
    ]
    counts = np.bincount(places, minlength=8)
    assert abs(counts - 100).max() < 4 * np.sqrt(100 * 7 / 8)
