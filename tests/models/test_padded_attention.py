"""Attention of padded and packed batches is refused, and what the refusal advises gives the unpadded run."""

import re

import numpy as np
import pytest
import torch
import transformers

import posbias
import zoo
from posbias import Attention
from posbias.errors import InputFileError, InvalidValueError
from posbias.imports.arrays import read_arrays

TOKENS, PADS = 9, 3
DECODERS = ["llama", "mistral", "gpt2", "gpt_neox", "gemma2", "bloom", "gpt_oss"]
ENCODERS = ["bert", "modernbert"]
SIDES = {"left": [0] * PADS + [1] * (TOKENS - PADS), "right": [1] * (TOKENS - PADS) + [0] * PADS}


def attentions(family, ids, **options):
    head = transformers.AutoModelForMaskedLM if family in ENCODERS else transformers.AutoModelForCausalLM
    model = zoo.tiny(family, head, "eager")
    options |= {} if family in ENCODERS else {"use_cache": False}
    with torch.no_grad():
        return model(ids, output_attentions=True, **options).attentions


def refusal(arrays, **options):
    """The refusal, and what it says to pass: text, and from which token to which."""
    with pytest.raises(InvalidValueError, match="one text without padding in each row") as caught:
        Attention.from_arrays(arrays, **options)
    numbers = re.search(r"row (\d+) .* layer\[\.\.\., (\d+):(\d+), \2:\3\]", str(caught.value))
    assert numbers, str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value), *map(int, numbers.groups())


def options_of(family):
    return {"mask": posbias.Full()} if family in ENCODERS else {"learned_sinks": family == "gpt_oss"}


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("family", [*DECODERS, *ENCODERS])
def test_a_padded_batch_is_refused_and_its_text_alone_is_that_of_the_unpadded_run(family, side):
    ids = torch.arange(3, 3 + 2 * TOKENS).view(2, TOKENS)
    mask = torch.tensor([[1] * TOKENS, SIDES[side]])
    options = options_of(family)
    # bloom's biases and gpt2's positions go by the mask where they are not given
    positions = {} if family in ("bloom", *ENCODERS) else {"position_ids": (mask.cumsum(-1) - 1).clamp(min=0)}
    arrays = attentions(family, ids, attention_mask=mask, **positions)
    _, text, first, last = refusal(arrays, **options)
    assert (text, first, last) == (1, *((PADS, TOKENS) if side == "left" else (0, TOKENS - PADS)))
    if side == "right" or family not in ENCODERS:  # an encoder's positions go on from the padding
        own = [layer[text, :, first:last, first:last] for layer in arrays]
        alone = Attention.from_arrays(attentions(family, ids[text:, first:last]), **options).rollout(0.5)
        np.testing.assert_allclose(
            Attention.from_arrays(own, **options).rollout(0.5).mass, alone.mass, rtol=2e-4
        )


@pytest.mark.parametrize("fill", [0.0, np.nan, "itself"])
@pytest.mark.parametrize("side", SIDES)
def test_rows_of_padding_may_hold_anything(side, fill):
    ids, mask = torch.arange(3, 3 + TOKENS)[None], torch.tensor([SIDES[side]])
    given = torch.eye(TOKENS) if fill == "itself" else torch.tensor(fill)
    arrays = [
        torch.where(mask[:, None, :, None] > 0, layer, given)
        for layer in attentions("llama", ids, attention_mask=mask)
    ]
    _, _, first, last = refusal(arrays)
    assert (first, last) == ((PADS, TOKENS) if side == "left" else (0, TOKENS - PADS))


def test_packed_texts_are_refused_unless_a_mask_parts_them():
    ids = torch.arange(3, 3 + TOKENS)[None]
    arrays = attentions("llama", ids, position_ids=torch.tensor([[0, 1, 0, 1, 2, 3, 0, 1, 0]]))
    said, _, first, last = refusal(arrays)
    assert "[2, 6, 8]" in said
    assert (first, last) == (2, 6)
    alone = Attention.from_arrays(attentions("llama", ids[:, 2:6])).rollout(0.5).mass
    own = Attention.from_arrays([layer[..., 2:6, 2:6] for layer in arrays]).rollout(0.5).mass
    np.testing.assert_allclose(own, alone, rtol=1e-4)
    documents = np.repeat([0, 1, 2, 3], [2, 4, 2, 1])
    parted = posbias.CustomMask(np.equal.outer(documents, documents) & np.tri(TOKENS, dtype=bool))
    meant = Attention.from_arrays(arrays, mask=parted).rollout(0.5, query=5).mass
    np.testing.assert_allclose(meant[2:6], alone, rtol=1e-4)
    assert not meant[:2].any()


@pytest.mark.parametrize("family", [*DECODERS, *ENCODERS])
def test_attention_of_one_text_is_never_taken_for_padded(family):
    arrays = attentions(family, torch.arange(3, 3 + 2 * TOKENS).view(2, TOKENS))
    assert Attention.from_arrays(arrays, **options_of(family)).texts == 2


@pytest.mark.parametrize("kept", [True, False])
def test_a_file_with_its_attention_mask(tmp_path, kept):
    """Also where the model ran without it, so that the weights do not show the padding."""
    arrays = torch.stack(attentions("llama", torch.arange(3, 3 + TOKENS)[None])).numpy()
    mask = np.array([SIDES["left" if kept else "right"]])
    np.savez(tmp_path / "a.npz", attentions=arrays, attention_mask=mask)
    with pytest.raises(InputFileError, match="attention_mask: expected ones"):
        read_arrays(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", attentions=arrays, attention_mask=np.ones_like(mask))
    np.save(tmp_path / "c.npy", arrays)
    np.testing.assert_array_equal(read_arrays(tmp_path / "b.npz").mass, read_arrays(tmp_path / "c.npy").mass)
