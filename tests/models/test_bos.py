"""A prompt begins as the model's own tokenizer begins a text, and says so; tokenizers trained here."""

import json

import numpy as np
import pytest
import tokenizers
import transformers
from command import called
from tiny import WORDS, llama
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

import posbias
from posbias.core.errors import InvalidValueError
from posbias.measurement import LoadedModel, Request

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
    model, sizes = loaded(kind), {"text": tmp_path, "prompts": 2, "packed": packed}
    ids = Request(tokens=TOKENS, **sizes).draw(model).ids
    begins = model.tokenizer.convert_tokens_to_ids(KINDS[kind][2])
    assert ids.shape == (2, TOKENS)
    assert (ids[:, : len(begins)] == begins).all()
    plain = Request(tokens=TOKENS - len(begins), bos=False, **sizes).draw(model).ids
    np.testing.assert_array_equal(ids[:, len(begins) :], plain)
    assert not np.isin(plain, model.tokenizer.convert_tokens_to_ids(KINDS[kind][0][1:])).any()
    mixed = Request(tokens=TOKENS, scramble=True, **sizes).draw(model).ids
    assert (mixed[:, : len(begins)] == begins).all()
    np.testing.assert_array_equal(np.sort(mixed), np.sort(ids))
    if (wanted := KINDS[kind][3]) is not None:
        ids = Request(tokens=TOKENS, bos=True, **sizes).draw(model).ids
        assert (ids[:, : len(wanted)] == model.tokenizer.convert_tokens_to_ids(wanted)).all()
        return
    with pytest.raises(InvalidValueError, match="bos: expected False or None for a tokenizer without"):
        Request(tokens=TOKENS, bos=True, **sizes).draw(model)


def test_a_measurement_without_bos_keeps_its_specification_and_one_with_says_it(text):
    """Without, what was recorded before there was a choice is found by its fingerprint."""
    job = {"text": text, "tokens": TOKENS, "prompts": PROMPTS}
    llama_, plain, gpt2 = (
        Request(**job, bos=bos).of(loaded(kind))
        for kind, bos in (("llama", None), ("llama", False), ("gpt2", None))
    )
    assert "bos" not in plain["asked"]
    assert plain["asked"] == gpt2["asked"] == Request(**job, bos=False).of(loaded("gpt2"))["asked"]
    assert llama_["asked"] == plain["asked"] | {"bos": (1,)}
    with_it, without = (posbias.measure(loaded("llama"), **job, bos=bos, threads=1) for bos in (None, False))
    assert (with_it.attrs["bos"], json.loads(with_it.attrs["asked"])["bos"]) == ("<s>", [1])
    assert "bos" not in without.attrs
    assert with_it.attrs["fingerprint"] != without.attrs["fingerprint"]
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
        assert says in called(*words, *options, cwd=tmp_path).stdout
        assert json.loads(called(*words, *options, "--json", cwd=tmp_path).stdout)["bos"] == found
    assert len(list(tmp_path.glob("results/*/measurement.nc"))) == 3
