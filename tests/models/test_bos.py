"""A prompt begins as the model's own tokenizer begins a text, and says so; tokenizers trained here."""

import json

import numpy as np
import pytest
import tokenizers
import transformers
from command import called
from small_llama import WORDS, llama
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

import posbias
from posbias.errors import InvalidValueError
from posbias.measurement import LoadedModel, Request
from posbias.measurement.job import fingerprint_of
from posbias.measurement.texts.prompts import bos_of, read_text

TOKENS, PROMPTS = 12, 3
KINDS = {
    # specials in the order of their ids; template; what begins a prompt; what `bos=True` begins it with
    "llama": (("<unk>", "<s>", "</s>"), "<s> $A", ["<s>"], ["<s>"]),
    "gpt2": (("<unk>", "<s>", "</s>"), "$A", [], ["<s>"]),
    "t5": (("<unk>", "</s>"), "$A </s>", [], None),
    "glm": (("<unk>", "[gMASK]", "<sop>"), "[gMASK] <sop> $A", ["[gMASK]", "<sop>"], ["[gMASK]", "<sop>"]),
    "bert": (("<unk>", "[CLS]", "[SEP]"), "[CLS] $A [SEP]", ["[CLS]"], ["[CLS]"]),
}


def trained(kind):
    """A tokenizer of the kind, trained on the words of the tests: BPE of bytes, or word pieces."""
    specials, template, *_ = KINDS[kind]
    if kind == "bert":
        made = tokenizers.Tokenizer(models.WordPiece(unk_token="<unk>"))
        made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(vocab_size=64, special_tokens=list(specials))
    else:
        made = tokenizers.Tokenizer(models.BPE(unk_token="<unk>"))
        made.pre_tokenizer = pre_tokenizers.Metaspace() if kind == "llama" else pre_tokenizers.ByteLevel()
        made.decoder = decoders.Metaspace() if kind == "llama" else decoders.ByteLevel()
        trainer = trainers.BpeTrainer(vocab_size=64, special_tokens=list(specials))
    made.train_from_iterator([" ".join(WORDS)], trainer)
    pairs = [(token, made.token_to_id(token)) for token in specials]
    if template != "$A":
        made.post_processor = processors.TemplateProcessing(single=template, special_tokens=pairs)
    known = {"bos_token": "<s>"} if "<s>" in specials else {"cls_token": "[CLS]"} if kind == "bert" else {}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>", **known)


def loaded(kind):
    return LoadedModel.of(llama(), trained(kind), kind)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_prompts_begin_as_the_tokenizer_begins_a_text(kind, packed, text, tmp_path):
    (tmp_path / "more.txt").write_text(text.read_text(encoding="utf-8")[::2], encoding="utf-8")
    model, sizes = loaded(kind), {"tokens": TOKENS, "prompts": 2, "packed": packed}
    request = Request(text=tmp_path, **sizes)
    ids, begins = request.draw(model).ids, model.tokenizer.convert_tokens_to_ids(KINDS[kind][2])
    assert ids.shape == (2, TOKENS)
    assert (ids[:, : len(begins)] == begins).all()
    specials = set(model.tokenizer.all_special_ids) - {model.tokenizer.unk_token_id}
    assert not np.isin(ids[:, len(begins) :], list(specials)).any()
    plain = Request(text=tmp_path, bos=False, **sizes | {"tokens": TOKENS - len(begins)}).draw(model).ids
    np.testing.assert_array_equal(ids[:, len(begins) :], plain)
    mixed = Request(text=tmp_path, scramble=True, **sizes).draw(model).ids
    assert (mixed[:, : len(begins)] == begins).all()
    np.testing.assert_array_equal(np.sort(mixed), np.sort(ids))


@pytest.mark.parametrize("kind", KINDS)
def test_a_bos_can_be_asked_for_and_left_out(kind, text):
    tokenizer, source = trained(kind), read_text(text)
    assert bos_of(tokenizer, source, False) == ()
    wanted = KINDS[kind][3]
    if wanted is None:
        with pytest.raises(InvalidValueError, match="bos: expected False or None for a tokenizer without"):
            bos_of(tokenizer, source, True)
    else:
        assert bos_of(tokenizer, source, True) == tuple(tokenizer.convert_tokens_to_ids(wanted))


def test_a_measurement_without_bos_keeps_its_specification_and_one_with_says_it(text):
    """Without, what was recorded before there was a choice is found by its fingerprint."""
    job = {"text": text, "tokens": TOKENS, "prompts": PROMPTS}
    of = {
        (kind, bos): Request(**job, bos=bos).of(loaded(kind))
        for kind in ("llama", "gpt2")
        for bos in (None, False)
    }
    before = {"bos"}.isdisjoint
    assert all(before(of[key]["asked"]) for key in (("gpt2", None), ("gpt2", False), ("llama", False)))
    assert of["gpt2", None] == of["gpt2", False]
    assert of["llama", None]["asked"] == of["llama", False]["asked"] | {"bos": (1,)}
    assert fingerprint_of(of["llama", None]) != fingerprint_of(of["llama", False])
    with_it, without = (posbias.measure(loaded("llama"), **job, bos=bos, threads=1) for bos in (None, False))
    assert with_it.attrs["bos"] == "<s>"
    assert "bos" not in without.attrs
    assert json.loads(with_it.attrs["asked"])["bos"] == [1]
    assert not np.allclose(with_it["influence"], without["influence"])


def test_the_command_says_how_prompts_begin(text, tmp_path):
    model = loaded("llama")
    model.model.save_pretrained(tmp_path / "model")
    model.tokenizer.save_pretrained(tmp_path / "model")
    words = ["measure", tmp_path / "model", "--text", text, "--tokens", TOKENS, "--prompts", PROMPTS]
    for options, says, found in (
        ([], "prompts begin with <s>, as the tokenizer writes them", "<s>"),
        (["--bos"], "prompts begin with <s>\n", "<s>"),
        (["--no-bos"], "prompts begin without a BOS token\n", None),
    ):
        told = called(*words, *options, cwd=tmp_path)
        assert says in told.stdout, told
        assert json.loads(called(*words, *options, "--json", cwd=tmp_path).stdout)["bos"] == found
    assert len(list(tmp_path.glob("results/*/measurement.nc"))) == 3
